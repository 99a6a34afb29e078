"""`composite`: a function with a name and a version that compilers may recognise, and its decomposition.

Derivatives and the batched form come from the decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentTypeError, Jaxpr, check_function, trace_to_jaxpr
from phalanx.engine.mlir import i32, ir
from phalanx.lax.control_flow.control_flow_tracing import leaf_avals
from phalanx.runtime import LoweringContext, emit_function, to_mlir_attribute
from phalanx.transforms import FlatFunction, TransformedCall
from phalanx.tree import tree_flatten, tree_unflatten


class Composite(TransformedCall, name="composite"):
    """A call of a named operation: (*inputs) -> outputs of its decomposition `jaxpr`."""

    run = None

    def lower(
        self, ctx: LoweringContext, *operands: Any, jaxpr: Jaxpr, name: str, version: int, attributes: tuple
    ) -> list:
        module = ctx.module
        if jaxpr.effects or len(module.leading):
            return ctx.call(jaxpr, operands, name)  # stablehlo.composite takes no tokens or dynamic sizes
        function = module.add_function(("call", jaxpr), name, lambda n: emit_function(module, jaxpr, n))
        fields = {key: attribute_to_mlir(value) for key, value in attributes}
        call = ir.Operation.create(
            "stablehlo.composite",
            results=[ctx.type(a) for a in jaxpr.out_avals],
            operands=operands,
            attributes={
                "name": ir.StringAttr.get(name),
                "composite_attributes": ir.DictAttr.get(fields),
                "decomposition": ir.FlatSymbolRefAttr.get(function.name.value),
                "version": i32(version),
            },
        )
        return list(call.results)


composite_p = Composite()


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """Name a function, so that a compiler may replace it by an implementation that it has for this name.

    Args:
      decomposition: defines the operation: a function of positional arrays and of keyword attributes.
      name: the name of the operation, with a namespace, such as `"my.tangent"`.
      version: the version of the operation.

    Returns:
      A function with the arguments of `decomposition`. Keyword arguments become attributes: numbers, strings, bools,
      dtypes, NumPy arrays, and nested sequences and dicts of these; None is left out. Derivatives and `vmap` use the
      decomposition.

    Raises:
      ArgumentTypeError: an attribute has another type, or the decomposition is not callable.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> scaled = phalanx.lax.composite(lambda x, *, by: x * by, "my.scaled", version=1)
      >>> f = phalanx.jit(lambda x: scaled(x, by=3.0))
      >>> float(f(2.0)), "stablehlo.composite" in f.lower(2.0).as_text()
      (6.0, True)
    """
    check_function("composite, argument decomposition", decomposition)

    def call(*args: Any, **attributes: Any) -> Any:
        leaves, tree = tree_flatten(args)
        # Attributes are static: they are part of the equation's parameters, and must be hashable.
        function = FlatFunction(functools.partial(decomposition, **attributes), tree, written=decomposition)
        frozen = freeze_attributes({key: value for key, value in attributes.items() if value is not None})
        program = trace_to_jaxpr(function, leaf_avals(leaves), name)
        hoisted = program.hoist()
        out = composite_p(*program.consts, *leaves, jaxpr=hoisted, name=name, version=int(version), attributes=frozen)
        return tree_unflatten(function.out_tree, out)

    call.__name__ = getattr(decomposition, "__name__", name)
    return call


def freeze_attributes(attributes: dict[str, Any], where: str = "composite") -> tuple:
    """Attributes as hashable pairs; an array becomes its dtype, shape and bytes, a dict its sorted items.

    Raises:
      ArgumentTypeError: a value has a type that is not supported in attributes.
    """
    return tuple([(key, _freeze(f"{where}, attribute {key}", value)) for key, value in sorted(attributes.items())])


def _freeze(where: str, value: Any) -> Any:
    if isinstance(value, bool | int | float | str | np.generic | np.dtype):
        return value
    if isinstance(value, np.ndarray):
        return np.ndarray, str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return dict, tuple([(key, _freeze(where, item)) for key, item in sorted(value.items())])
    if isinstance(value, Sequence):
        return list, tuple([_freeze(where, item) for item in value])
    raise ArgumentTypeError(
        where,
        expected="a number, a string, a dtype, a NumPy array, or a sequence or dict of these",
        got=repr(value),
        fix="pass arrays computed by the program as positional arguments",
    )


def attribute_to_mlir(value: Any) -> ir.Attribute:
    """The MLIR attribute of a value from `freeze_attributes`."""
    if not isinstance(value, tuple):
        return to_mlir_attribute(value)
    kind, *rest = value
    if kind is np.ndarray:
        dtype, shape, data = rest
        return to_mlir_attribute(np.frombuffer(data, dtype).reshape(shape))
    if kind is dict:
        return ir.DictAttr.get({key: attribute_to_mlir(item) for key, item in rest[0]})
    return ir.ArrayAttr.get([attribute_to_mlir(item) for item in rest[0]])
