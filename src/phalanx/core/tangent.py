"""Symbolic zeros and linear placeholders: the two stand-ins that derivative rules meet.

A `Zero` is a tangent or cotangent known to be zero, never computed; a `Linear` stands in a transpose rule for the
operand that the operation is linear in. The few operations that rules need on cotangents come from `lax`, by a seat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, Typed, aval_of
from phalanx.core.errors import RuleError
from phalanx.core.flags import chosen, merged, others
from phalanx.engine.seat import Seat

# zeros(aval), add(x, y), sum(x, dim), convert(x, dtype) and as_type(x, dtype, weak_type): the structure of tangent
# spaces; conform(x, aval) and open_type(x): `x` with the sharding in a type, or none; sum_over_axes(x, names) and
# vary(x, names): how a value moves between them inside a `shard_map`.
vector_space = Seat(taken_by="phalanx.lax")


class _Placeholder(Typed):
    """What stands for a value of type `aval`."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval.str_short()})"


class Zero(_Placeholder):
    """A tangent or cotangent that is known to be zero.

    Args:
      aval: the type of the tangent.
    """

    __slots__ = ()

    @classmethod
    def like(cls, primal: Any) -> Zero:
        """The zero tangent of a primal value."""
        return cls(aval_of(primal).to_tangent())


class Linear(_Placeholder):
    """In a transpose rule, the operand whose cotangent is asked for."""

    __slots__ = ()

    def __array__(self, *_: Any, **__: Any) -> Any:
        """A rule computes with the placeholder when the operation is not linear in it."""
        raise RuleError(
            "transposition",
            expected="operations that are linear in what is transposed",
            got=f"a product or quotient of two such values, one of type {self.aval.str_short()}",
            mend="transpose the linearisation instead (phalanx.vjp), or make the function linear",
        )


def is_linear(x: Any) -> bool:
    """Whether a transpose rule's operand is the placeholder of a linear one."""
    return type(x) is Linear


def instantiate(x: Any) -> Any:
    """An array in place of a symbolic zero; anything else as it is."""
    return vector_space.zeros(x.aval) if type(x) is Zero else x


def split_tangents(tangents: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """Which tangents are not zero, and those."""
    nonzero = [type(t) is not Zero for t in tangents]
    return nonzero, chosen(tangents, nonzero)


def join_tangents(avals: Sequence[Any], nonzero: Sequence[bool], computed: Sequence[Any]) -> list[Any]:
    """A tangent for each value of these types: those computed, and symbolic zeros."""
    return merged(nonzero, computed, [Zero(a.to_tangent()) for a in others(avals, nonzero)])


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be a symbolic zero."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return vector_space.add(x, y)


def conform(x: Any, aval: ShapedArray) -> Any:
    """`x` with the sharding that its type `aval` tells, where `x` tells another."""
    have = getattr(x, "aval", None)
    if aval.sharding is (None if have is None else have.sharding) or type(x) is Zero:
        return x
    return vector_space.conform(x, aval)


def conform_all(xs: Sequence[Any], avals: Sequence[ShapedArray]) -> list:
    """`conform` for each of several values."""
    return [conform(x, a) for x, a in zip(xs, avals, strict=True)]
