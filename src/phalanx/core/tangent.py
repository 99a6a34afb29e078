"""Symbolic zeros and linear placeholders, the special operands of derivative rules.

A `Zero` is a tangent or cotangent that is known to be zero and is never computed. A `Linear` takes the place, in a
transpose rule, of the operand in which the operation is linear. The operations on tangents that rules need are provided
by `lax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.core.aval import ShapedArray, Typed, get_aval
from phalanx.core.error_classes import RuleError
from phalanx.core.list_partition import merge_lists, select_flagged, select_unflagged
from phalanx.engine.hook import Hook
from phalanx.typing import DimSize, DTypeLike, Shape

if TYPE_CHECKING:
    from phalanx.typing import ArrayLike


class ArrayOperations(Protocol):
    """Operations of `lax`, a higher layer, that the rules of derivatives and of batching need."""

    def zeros(self, aval: ShapedArray) -> Any:
        """Zeros of a type."""

    def add(self, x: ArrayLike, y: ArrayLike) -> Any:
        """The sum of two tangents."""

    def sum(self, x: ArrayLike, dim: int) -> Any:
        """The sum over one dimension."""

    def convert(self, x: ArrayLike, dtype: DTypeLike) -> Any:
        """`x` in another dtype."""

    def as_type(self, x: ArrayLike, dtype: DTypeLike, weak_type: bool) -> Any:
        """`x` in another dtype, weakly typed or not."""

    def unit_vectors(self, total: DimSize, start: DimSize, shape: Shape, dtype: DTypeLike) -> Any:
        """The elements from `start` on of each of `total` unit vectors, reshaped to `shape`: dtype[total, *shape]."""

    def conform(self, x: ArrayLike, aval: ShapedArray) -> Any:
        """`x` with the sharding of a type over Explicit mesh axes."""

    def open_type(self, x: ArrayLike) -> Any:
        """`x` with the sharding removed from its type, so that the partitioner may choose it."""

    def sum_over_axes(self, x: ArrayLike, axes: frozenset[Any]) -> Any:
        """The sum over the devices along mesh axes, inside a `shard_map`."""

    def vary(self, x: ArrayLike, axes: frozenset[Any]) -> Any:
        """`x`, marked as varying over mesh axes."""

    def move_dim(self, x: ArrayLike, source: int, destination: int) -> Any:
        """`x` with one dimension moved to another position."""

    def broadcast_to(self, x: ArrayLike, shape: Shape) -> Any:
        """`x` broadcast to a shape, aligned at the last dimension."""

    def broadcast_dim(self, x: ArrayLike, size: DimSize, dim: int) -> Any:
        """`x` repeated along a new dimension."""

    def shard_dim(self, x: ArrayLike, dim: int, axes: tuple[Any, ...]) -> Any:
        """`x` with one dimension sharded over Explicit mesh axes."""


vector_space = Hook[ArrayOperations]("phalanx.lax")


class _Placeholder(Typed):
    """An object that takes the place of a value of type `aval`."""

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
        return cls(get_aval(primal).to_tangent())

    from_primal_value = like  # the name of the method in JAX


class Linear(_Placeholder):
    """The operand of a transpose rule whose cotangent the rule computes."""

    __slots__ = ()

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Raise: a rule that computes with the placeholder belongs to an operation that is not linear in it."""
        raise RuleError(
            "transposition",
            expected="operations that are linear in the transposed arguments",
            got=f"a product or quotient of two such values, one of type {self.aval.str_short()}",
            fix="transpose the linearization instead (phalanx.vjp), or make the function linear",
        )


def is_linear(x: Any) -> bool:
    """Whether an operand of a transpose rule is the placeholder of a linear one."""
    return type(x) is Linear


def instantiate(x: Any) -> Any:
    """An array of zeros in place of a symbolic zero; any other value unchanged."""
    return vector_space.zeros(x.aval) if type(x) is Zero else x


def split_tangents(tangents: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """Flags of the tangents that are not symbolic zeros, and these tangents."""
    nonzero = [type(t) is not Zero for t in tangents]
    return nonzero, select_flagged(tangents, nonzero)


def join_tangents(avals: Sequence[Any], nonzero: Sequence[bool], computed: Sequence[Any]) -> list[Any]:
    """A tangent for each type in `avals`: a computed one where `nonzero` is True, else a symbolic zero."""
    return merge_lists(nonzero, computed, [Zero(a.to_tangent()) for a in select_unflagged(avals, nonzero)])


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be a symbolic zero."""
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else vector_space.add(x, y)


def conform(x: Any, aval: ShapedArray) -> Any:
    """`x` with the sharding in the type `aval`, resharded if it has another one."""
    have = getattr(x, "aval", None)
    if aval.type_sharding is (None if have is None else have.type_sharding) or type(x) is Zero:
        return x
    return vector_space.conform(x, aval)


def conform_all(xs: Sequence[Any], avals: Sequence[ShapedArray]) -> list[Any]:
    """`conform` for each of several values."""
    return [conform(x, a) for x, a in zip(xs, avals, strict=True)]
