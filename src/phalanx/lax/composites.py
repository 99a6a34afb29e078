"""`composite`: a function under a name and a version that a compiler may know, with what it means written out.

Builds on the derived programs of `transforms`: its derivatives and its batched form are those of the decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core.errors import ArgumentTypeError
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.trace import stage
from phalanx.engine.mlir import i32, ir
from phalanx.lax.bodies import leaf_avals
from phalanx.runtime.lowering import attribute, emit_function
from phalanx.transforms.calls import DerivedCall
from phalanx.transforms.functions import FlatFunction
from phalanx.tree import tree_flatten, tree_unflatten


class Composite(DerivedCall, name="composite"):
    """A call of a named operation: (*inputs) -> outputs of `jaxpr`, which says what it means."""

    run = None

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, name: str, version: int, attributes: tuple) -> list:
        module = ctx.module
        if jaxpr.effects or len(module.leading):
            return ctx.call(jaxpr, operands, name)  # the operation has no place for order tokens or sizes
        function = module.add_function(("call", jaxpr), name, lambda n: emit_function(module, jaxpr, n))
        fields = {key: described_attribute(value) for key, value in attributes}
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
    """Give a function a name under which compilers may have an implementation of their own.

    Args:
      decomposition: what the operation means: a function of arrays, positional, and of attributes, by name.
      name: the operation's name, with a namespace, such as `"my.tangent"`.
      version: of what the name means.

    Returns:
      A function with the arguments of `decomposition`. Its keyword arguments become attributes: numbers, strings,
      bools, NumPy arrays, nested sequences and dicts of these. Derivatives and `vmap` are those of the decomposition.

    Raises:
      ArgumentTypeError: an attribute is of another kind, or the decomposition is no function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> scaled = phalanx.lax.composite(lambda x, *, by: x * by, "my.scaled", version=1)
      >>> f = phalanx.jit(lambda x: scaled(x, by=3.0))
      >>> float(f(2.0)), "stablehlo.composite" in f.lower(2.0).as_text()
      (6.0, True)
    """
    if not callable(decomposition):
        raise ArgumentTypeError(
            "composite, decomposition", expected="a function", got=repr(decomposition), mend="pass one"
        )

    def call(*args: Any, **attributes: Any) -> Any:
        leaves, tree = tree_flatten(args)
        function = FlatFunction(functools.partial(decomposition, **attributes), tree, written=decomposition)
        frozen = frozen_attributes(attributes)
        program = stage(function, leaf_avals(leaves), name)
        hoisted = program.hoist()
        out = composite_p(*program.consts, *leaves, jaxpr=hoisted, name=name, version=int(version), attributes=frozen)
        return tree_unflatten(function.out_tree, out)

    call.__name__ = getattr(decomposition, "__name__", name)
    return call


def frozen_attributes(attributes: dict[str, Any], where: str = "composite") -> tuple:
    """Attributes as hashable pairs: an array as its type and bytes, a dict as pairs.

    Raises:
      ArgumentTypeError: a value is of a kind that attributes do not have.
    """
    return tuple([(key, _frozen(f"{where}, attribute {key}", value)) for key, value in sorted(attributes.items())])


def _frozen(where: str, value: Any) -> Any:
    if isinstance(value, bool | int | float | str | np.generic):
        return value
    if isinstance(value, np.ndarray):
        return np.ndarray, str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return dict, tuple([(key, _frozen(where, item)) for key, item in sorted(value.items())])
    if isinstance(value, Sequence):
        return list, tuple([_frozen(where, item) for item in value])
    raise ArgumentTypeError(
        where,
        expected="a number, a string, a NumPy array, or a sequence or dict of these",
        got=repr(value),
        mend="pass traced arrays by position",
    )


def described_attribute(value: Any) -> ir.Attribute:
    """The MLIR attribute of a frozen value."""
    if not isinstance(value, tuple):
        return attribute(value)
    kind, *rest = value
    if kind is np.ndarray:
        dtype, shape, data = rest
        return attribute(np.frombuffer(data, dtype).reshape(shape))
    if kind is dict:
        return ir.DictAttr.get({key: described_attribute(item) for key, item in rest[0]})
    return ir.ArrayAttr.get([described_attribute(item) for item in rest[0]])
