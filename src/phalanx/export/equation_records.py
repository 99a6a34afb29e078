"""Equations as text in an artifact, so that they can be lowered again for another mesh.

How a sort of rows, a scatter or a loop under `vmap` is best divided among devices depends on the mesh, and the
operations that a rule emits for one mesh do not tell what they stand for. So an artifact for several devices holds such
an equation as a function, which any consumer can call, with the text of the equation in an attribute. A call of Phalanx
reads it, and lowers the equation for the mesh that is there (`partitioner.linked_programs`).

The text is JSON: the name of the primitive and its parameters. Tuples are lists; a list whose first element is a name
that begins with `:` is a value of that kind. The text may come from a stranger: what is read is checked, and calls no
kernel by a name in the text, since the kernels that an artifact may call are checked in its operations. Builds on
`type_serialization`; `portable_lowering` and `module_linking` pass both functions on.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import phalanx.lax.linalg
import phalanx.random.discrete_distributions  # noqa: F401 - declares primitives that a text may name, as linalg does
from phalanx.core import Eqn, Jaxpr, Literal, ShapedArray, Var, check_jaxpr, dtypes, infer_results, no_effects, registry
from phalanx.export.artifact_format import malformed_error
from phalanx.export.type_serialization import read_aval, write_aval
from phalanx.lax.contraction.precision import DotAlgorithm, DotAlgorithmPreset, Precision
from phalanx.lax.convolution.conv_dimension_numbers import ConvDimensionNumbers
from phalanx.lax.elementwise.arithmetic import RoundingMethod
from phalanx.lax.fft import FftType
from phalanx.lax.indexing.gather import GatherDimensionNumbers, GatherScatterMode
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers
from phalanx.lax.prng.rng_bit_generator import RandomAlgorithm
from phalanx.runtime import lower_jaxpr_to_module

_ENUMS: Final[dict[str, type[enum.Enum]]] = {
    f":{kind.__name__}": kind
    for kind in (DotAlgorithmPreset, FftType, GatherScatterMode, Precision, RandomAlgorithm, RoundingMethod)
}
_RECORDS: Final[dict[str, Any]] = {
    f":{kind.__name__}": kind
    for kind in (ConvDimensionNumbers, DotAlgorithm, GatherDimensionNumbers, ScatterDimensionNumbers)
}
_CALLS_KERNELS = "ffi_call"
_PLAIN = (bool, int, float, str, type(None))


def write_equation(eqn: Eqn) -> str | None:
    """The text of an equation; None if it has effects, calls a kernel, or has parameters without text, as functions."""
    try:
        return json.dumps([eqn.primitive.name, _write_params(eqn)], separators=(",", ":"))
    except TypeError:
        return None


def read_equation(text: str, in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]) -> Eqn | None:
    """The inverse of `write_equation`.

    Args:
      text: the text.
      in_avals, out_avals: the types of operands and results.

    Returns:
      The equation; None if this version of Phalanx has no such primitive, or one that takes other parameters.
    """
    try:
        name, params = json.loads(text)
        found = _read_eqn(name, params, list(map(Var, in_avals)), out_avals)
        inferred = infer_results(found.primitive, tuple(in_avals), found.params)
        if [(a.shape, a.dtype) for a in inferred] != [(a.shape, a.dtype) for a in out_avals]:
            return None
        _check_lowers(found)
    except Exception:  # rules may fail in any way on parameters that they did not make
        return None
    return found


def _check_lowers(eqn: Eqn) -> None:
    """Lower an equation on its own; raises unless its rule takes the parameters, which `abstract_eval` may ignore."""
    hash(tuple(eqn.params.items()))
    program = Jaxpr(eqn.invars, [eqn], eqn.outvars)
    lower_jaxpr_to_module(program, "cpu", is_portable=True, is_attached=False).module.operation.verify()


def _write_params(eqn: Eqn) -> dict[str, Any]:
    if eqn.effects or eqn.primitive.name == _CALLS_KERNELS:
        raise TypeError(f"{eqn.primitive.name}, which has effects or calls a kernel")
    return {name: _write(value) for name, value in eqn.params.items()}


def _write(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    kind = f":{type(value).__name__}"
    if kind in _RECORDS or kind in _ENUMS:
        return [kind, value.name] if kind in _ENUMS else [kind, *map(_write, value)]
    if type(value) is tuple:
        return list(map(_write, value))
    if isinstance(value, np.dtype | dtypes.KeyDtype):
        return [":dtype", write_aval(ShapedArray((), value))]
    if isinstance(value, Jaxpr) and not value.consts and not value.effects:
        return [":jaxpr", *_write_jaxpr(value)]
    raise TypeError(f"a parameter {value!r}")


def _write_jaxpr(program: Jaxpr) -> list[Any]:
    numbers: dict[Any, int] = {v: i for i, v in enumerate(program.invars)}

    def atom(a: Any) -> Any:
        return [write_aval(a.aval), np.asarray(a.value).tolist()] if isinstance(a, Literal) else numbers[a]

    equations = []
    for eqn in program.eqns:
        ins = list(map(atom, eqn.invars))
        numbers |= {v: len(numbers) + i for i, v in enumerate(eqn.outvars)}
        equations.append([eqn.primitive.name, _write_params(eqn), ins, [write_aval(v.aval) for v in eqn.outvars]])
    return [[write_aval(v.aval) for v in program.invars], equations, list(map(atom, program.outvars))]


def _read(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if not (value and isinstance(value[0], str) and value[0].startswith(":")):
        return tuple(map(_read, value))
    kind, *rest = value
    if kind in _ENUMS:
        return _ENUMS[kind][rest[0]]
    if kind in _RECORDS:
        return _RECORDS[kind](*map(_read, rest))
    return _read_type(rest[0]).dtype if kind == ":dtype" else _read_jaxpr(*rest)


def _read_type(text: str) -> ShapedArray:
    return read_aval(text, _refuse_symbols)


def _refuse_symbols(text: str) -> Any:
    raise malformed_error("a shape of numbers", text)


def _read_eqn(name: str, params: dict[str, Any], ins: Sequence[Any], out_avals: Sequence[ShapedArray]) -> Eqn:
    if name == _CALLS_KERNELS:
        raise malformed_error("an equation without a kernel", name)
    params = {key: _read(value) for key, value in params.items()}
    return Eqn(registry[name], list(ins), list(map(Var, out_avals)), params, None, no_effects)


def _read_jaxpr(in_avals: list[str], equations: list[Any], outs: list[Any]) -> Jaxpr:
    values: list[Any] = [Var(_read_type(text)) for text in in_avals]
    num_inputs, eqns = len(values), []

    def atom(a: Any) -> Any:
        if isinstance(a, int):
            return values[a]
        aval = _read_type(a[0])
        return Literal(np.asarray(a[1], aval.dtype).reshape(aval.shape), aval)

    for name, params, ins, out_avals in equations:
        eqns.append(_read_eqn(name, params, list(map(atom, ins)), list(map(_read_type, out_avals))))
        values += eqns[-1].outvars
    program = Jaxpr(values[:num_inputs], eqns, list(map(atom, outs)))
    check_jaxpr(program)
    return program
