"""`PartitionSpec`: the mesh axes that split each dimension of an array, exactly as the user wrote them.

Depends on the error classes only. `named_sharding.py` pairs a spec with a mesh. Every public function that accepts
specs validates them with `check_spec` and `check_rank`, passing the path of the argument as `where`.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from phalanx.core import ArgumentTypeError, ShardingError
from phalanx.engine.traceback_filtering import api_boundary_class

AxisName: TypeAlias = Hashable


class Sentinel(enum.Enum):
    """Sentinels for a missing axis name (`UNCONSTRAINED`) and for a missing sharding (`UNSPECIFIED`).

    Enum members survive pickling and copying as the same object, so that `is` comparisons stay valid.
    """

    UNCONSTRAINED = "the compiler chooses"
    UNSPECIFIED = "no argument given"

    def __repr__(self) -> str:
        return self.name


UNCONSTRAINED: Final = Sentinel.UNCONSTRAINED
UNSPECIFIED: Final = Sentinel.UNSPECIFIED


@api_boundary_class
class PartitionSpec(Sequence[Any]):
    """The mesh axes that split each dimension of an array.

    Entry `d` describes dimension `d`. It is one of: `None` (not split, each device has the full dimension), the name
    of a mesh axis, a tuple of axis names from major to minor, or `PartitionSpec.UNCONSTRAINED` (the compiler chooses;
    allowed in sharding constraints only). Dimensions after the last entry are not split. `P` is short for this class.

    Args:
      *entries: one entry per leading dimension.

    Raises:
      ArgumentTypeError: an entry is a list, a dict or another value that cannot be an axis name.

    Examples:
      >>> P("data", None, ("model", "expert"))
      PartitionSpec('data', None, ('model', 'expert'))
      >>> P(("x",)) == P("x"), P("x", None) == P("x"), P("x", None).canonical == P("x")
      (True, False, True)
    """

    UNCONSTRAINED: ClassVar = UNCONSTRAINED
    __slots__ = ("_entries", "_hash", "dims")
    _entries: tuple[Any, ...]
    dims: tuple[Any, ...]  # `_entries` normalized: for each entry a tuple of axis names, or UNCONSTRAINED
    _hash: int

    def __init__(self, *entries: Any) -> None:
        self._entries = entries
        # Normalized once: equality, hashing and all index arithmetic use `dims`; `_entries` is kept for printing.
        self.dims = tuple([_axes_of(entry, self) for entry in entries])
        self._hash = hash(self.dims)

    @property
    def canonical(self) -> PartitionSpec:
        """The shortest equivalent spec: no trailing `None`, no tuple of a single axis."""
        dims = list(self.dims)
        while dims and dims[-1] == ():
            dims.pop()
        short = PartitionSpec.of_dims(dims)
        # Returning the same object keeps caches that are keyed by identity small.
        return self if self._entries == short._entries else short

    @classmethod
    def of_dims(cls, dims: Iterable[tuple[AxisName, ...]]) -> PartitionSpec:
        """Build a spec from a tuple of axis names for each dimension; `()` is a dimension that is not split."""
        return cls(*map(_entry_of, dims))

    @property
    def axes(self) -> tuple[AxisName, ...]:
        """All axes that the spec names, in order of appearance."""
        return tuple([axis for axes in self.dims if isinstance(axes, tuple) for axis in axes])

    @property
    def has_unconstrained(self) -> bool:
        """Whether the compiler chooses the sharding of at least one dimension."""
        return any(axes is UNCONSTRAINED for axes in self.dims)

    def axes_per_dim(self, ndim: int) -> tuple[Any, ...]:
        """The axis names of each of `ndim` dimensions; `()` for dimensions that are not split."""
        return self.dims + ((),) * (ndim - len(self.dims))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __getitem__(self, index: int | slice) -> Any:
        return self._entries[index]

    def __add__(self, other: PartitionSpec | tuple[Any, ...]) -> PartitionSpec:
        if isinstance(other, (PartitionSpec, tuple)):
            return PartitionSpec(*self._entries, *other)
        return NotImplemented

    def __radd__(self, other: tuple[Any, ...]) -> PartitionSpec:
        return PartitionSpec(*other, *self._entries) if isinstance(other, tuple) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            # The hashes differ for most unequal specs, which is cheaper to find out than comparing tuples.
            return self is other or (self._hash == other._hash and self.dims == other.dims)
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, self._entries

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self._entries))})"


P = PartitionSpec


def _axes_of(entry: object, spec: PartitionSpec) -> tuple[AxisName, ...] | Sentinel:
    """Normalize one entry of `spec` to a tuple of axis names."""
    if entry is None:
        return ()
    if entry is UNCONSTRAINED:
        return UNCONSTRAINED
    axes = entry if isinstance(entry, tuple) else (entry,)
    for axis in axes:
        if axis is None or isinstance(axis, (list, dict, set, tuple, Sentinel, PartitionSpec)):
            raise ArgumentTypeError(
                "PartitionSpec",
                expected="entries that are None, a mesh axis, a tuple of mesh axes or UNCONSTRAINED",
                got=spec,
                fix=f"write {entry!r} as a tuple of axis names, such as ('x', 'y'), or as None",
            )
    return axes


def _entry_of(axes: tuple[AxisName, ...] | Sentinel) -> Any:
    """The shortest entry that denotes these axes: the inverse of `_axes_of`."""
    if not isinstance(axes, tuple):
        return axes
    return axes if len(axes) > 1 else axes[0] if axes else None


def check_spec(spec: PartitionSpec, mesh_shape: Mapping[AxisName, int], *, where: str) -> None:
    """Reject a spec with an axis name that is unknown to the mesh or appears twice.

    Args:
      spec: the spec as the user wrote it.
      mesh_shape: size of each axis of the mesh.
      where: path of the argument for the error message, such as `in_shardings[0]['w']`.

    Raises:
      ShardingError: the name of an axis is unknown or appears twice.
    """
    # Over `spec.axes`, which flattens entries of several axes.
    seen = set()
    for axis in spec.axes:
        if axis not in mesh_shape:
            names = ", ".join(map(repr, mesh_shape)) or "none"
            raise ShardingError(
                where,
                expected=f"a spec over the axes of the mesh ({names})",
                got=spec,
                fix=f"add an axis {axis!r} to the mesh, or remove it from the spec",
            )
        if axis in seen:
            raise ShardingError(
                where,
                expected="a spec that names each mesh axis at most once",
                got=spec,
                fix=f"keep {axis!r} in one entry only: a mesh axis can split one dimension of an array",
            )
        seen.add(axis)


def check_rank(spec: PartitionSpec, ndim: int, what: str, *, where: str) -> None:
    """Reject a spec with more entries than the array has dimensions.

    Args:
      spec: the spec as the user wrote it.
      ndim: number of dimensions of the array.
      what: description of the array for the error message, such as `f32[4,2]`.
      where: path of the argument for the error message.

    Raises:
      ShardingError: the spec has more than `ndim` entries.
    """
    if len(spec) <= ndim:
        return
    extra = len(spec) - ndim
    drop = "drop the last entry" if extra == 1 else f"drop the last {extra} entries"
    plural, dims = "y" if ndim == 1 else "ies", f"{len(spec)} dimension{'s' if len(spec) > 1 else ''}"
    raise ShardingError(
        where,
        expected=f"a spec of at most {ndim} entr{plural} for {what}",
        got=spec,
        fix=f"{drop}, or give the array {dims}",
    )
