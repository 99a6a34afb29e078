"""Varying: how programs and cotangents follow the mesh axes that values vary over inside a `shard_map`.

A type says along which mesh axes devices may hold different values (`ShapedArray.varying`). `primitive.result_of` works
it out for every operation; what is left are the programs that equations hold, which are typed anew where an operand
varies more than their input does (the `settle` rules of the primitives that hold them), and cotangents, which must vary
as their values do (`settled`, called when a linear program runs backwards).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.jaxpr import Jaxpr, derivation, run_program
from phalanx.core.tangent import Zero, add_tangents, vector_space
from phalanx.core.trace import stage


def settled(x_bar: Any, aval: ShapedArray) -> Any:
    """A cotangent, to vary over the same mesh axes as the value of type `aval` that it belongs to.

    A value that is the same along an axis was used by every device there, so what these uses give is summed.
    """
    held, wanted = aval_of(x_bar).varying, aval.varying
    if held is wanted or held == wanted:
        return x_bar
    if held - wanted:
        x_bar = vector_space.sum_over_axes(x_bar, held - wanted)
    return varied(x_bar, aval)


def add_cotangents(held: Any, x_bar: Any, aval: ShapedArray) -> Any:
    """The sum of two cotangents of a value of type `aval`, either of which may be a symbolic zero.

    One that varies more is this device's share of a sum still to be taken (once, for all of its kind), one that does
    not is that sum already: these are not added before it is taken.
    """
    if type(held) is not Zero and type(x_bar) is not Zero and aval_of(held).varying != aval_of(x_bar).varying:
        held, x_bar = settled(held, aval), settled(x_bar, aval)
    return add_tangents(held, x_bar)


def varied(x: Any, aval: ShapedArray) -> Any:
    """`x`, marked as varying over the mesh axes that a value of type `aval` varies over."""
    missing = aval.varying - aval_of(x).varying
    return vector_space.vary(x, missing) if missing else x


def varies(*avals: Iterable[ShapedArray]) -> bool:
    """Whether any value of these types varies over a mesh axis."""
    return any(a.varying for some in avals for a in some)


def widened(avals: Sequence[ShapedArray], others: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types, each varying also over the axes that the other one varies over."""
    return [a if b.varying <= a.varying else a.with_varying(a.varying | b.varying) for a, b in zip(avals, others)]


def retyped(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """A program without constants for inputs that vary as these types do, and as its own inputs do."""
    wanted = widened(program.in_avals, avals)
    return program if wanted == program.in_avals else staged_for(program, wanted)


@derivation
def staged_for(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """The program of running another on inputs of these types."""
    return stage(functools.partial(run_program, program), avals, program.debug_name)


def returning(program: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """A program whose leading results are marked as varying as these types do."""
    if all(b.varying <= a.varying for a, b in zip(program.out_avals, avals)):
        return program

    def fun(*xs: Any) -> list:
        out = run_program(program, *xs)
        return [*(varied(x, a) for x, a in zip(out, avals)), *out[len(avals) :]]

    key = ("returning", tuple(a.varying for a in avals))
    return program.derive(key, lambda: stage(fun, program.in_avals, program.debug_name))
