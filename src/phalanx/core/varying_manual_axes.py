"""Varying manual axes: the types of values that differ between the devices of a `shard_map`.

`ShapedArray.varying` has the mesh axes along which the devices may hold different values. `primitive.infer_result`
computes it for the result of every operation. Two cases are left for this module. A jaxpr inside an equation is typed
again when an operand varies over more axes than the jaxpr's input (the `update_varying` rules of call-like primitives).
And a cotangent must vary over the same axes as its primal value (`reduce_to_varying`, called by the backward pass).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, get_aval
from phalanx.core.jaxpr import Jaxpr, cached_on_jaxpr, run_jaxpr
from phalanx.core.tangent import Zero, add_tangents, vector_space
from phalanx.core.trace import trace_to_jaxpr


def reduce_to_varying(x_bar: Any, aval: ShapedArray) -> Any:
    """Make a cotangent vary over the same mesh axes as the primal value, whose type is `aval`.

    A value that is the same along an axis was read by every device there, so the cotangent is summed over that axis.
    """
    given = get_aval(x_bar)
    if given is aval:
        return x_bar
    if given.type_sharding is not aval.type_sharding and given.manual_reductions != (
        aval.to_cotangent().manual_reductions
    ):
        x_bar = vector_space.conform(x_bar, aval.to_cotangent())
        given = get_aval(x_bar)
    held, wanted = given.varying, aval.varying
    if held is wanted or held == wanted:
        return x_bar
    if held - wanted:
        x_bar = vector_space.sum_over_axes(x_bar, held - wanted)
    return pvary_to(x_bar, aval)


def add_cotangents(held: Any, x_bar: Any, aval: ShapedArray) -> Any:
    """The sum of two cotangents of a value of type `aval`, either of which may be a symbolic zero.

    A cotangent that varies over more axes is this device's term of a sum over devices that is still to be computed; one
    that does not is already the sum. Both are brought to the same axes before they are added.
    """
    if type(held) is Zero or type(x_bar) is Zero:
        return add_tangents(held, x_bar)
    one, other = get_aval(held), get_aval(x_bar)
    if one.varying != other.varying or one.type_sharding is not other.type_sharding:
        held, x_bar = reduce_to_varying(held, aval), reduce_to_varying(x_bar, aval)
    return add_tangents(held, x_bar)


def pvary_to(x: Any, aval: ShapedArray) -> Any:
    """Mark `x` as varying over the mesh axes of the type `aval`."""
    missing = aval.varying - get_aval(x).varying
    return vector_space.vary(x, missing) if missing else x


def is_varying(*avals: Iterable[ShapedArray]) -> bool:
    """Whether any value of these types varies over a mesh axis."""
    return any(a.varying for some in avals for a in some)


def widen_varying(avals: Sequence[ShapedArray], others: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types, each varying also over the axes of the other type."""
    return [a if b.varying <= a.varying else a.with_varying(a.varying | b.varying) for a, b in zip(avals, others)]


def retype_jaxpr(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """A jaxpr without constants, typed for inputs that vary over the axes of `avals` in addition to its own."""
    wanted = widen_varying(program.in_avals, avals)
    return program if wanted == program.in_avals else retrace_jaxpr(program, wanted)


@cached_on_jaxpr
def retrace_jaxpr(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """Trace a jaxpr again for inputs of these types."""
    return trace_to_jaxpr(functools.partial(run_jaxpr, program), avals, program.debug_name)


def vary_outputs(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """A jaxpr whose leading results are marked as varying over the axes of `avals`."""
    if all(b.varying <= a.varying for a, b in zip(program.out_avals, avals)):
        return program

    def fun(*xs: Any) -> list[Any]:
        out = run_jaxpr(program, *xs)
        return [*(pvary_to(x, a) for x, a in zip(out, avals)), *out[len(avals) :]]

    key = ("returning", tuple(a.varying for a in avals))
    return program.derive(key, lambda: trace_to_jaxpr(fun, program.in_avals, program.debug_name))
