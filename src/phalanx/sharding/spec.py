"""PartitionSpec: which mesh axes split which dimension of an array, as the user wrote it.

Builds on the error records only. `shardings.py` pairs a spec with a mesh; `check_spec` is called there and by every
public function that takes specs, with the path of the argument as its `where`.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.engine.frames import boundaries

AxisName: TypeAlias = Hashable


class _Mark(enum.Enum):
    """What stands where a name of an axis, or a sharding, is not given."""

    UNCONSTRAINED = "the compiler chooses"
    UNSPECIFIED = "not said"

    def __repr__(self) -> str:
        return self.name


UNCONSTRAINED: Final = _Mark.UNCONSTRAINED
UNSPECIFIED: Final = _Mark.UNSPECIFIED


@boundaries
class PartitionSpec(Sequence):
    """Which mesh axes split each dimension of an array.

    Entry `d` is `None` (dimension `d` is whole on every device), the name of a mesh axis, a tuple of axis names from
    major to minor, or `PartitionSpec.UNCONSTRAINED` (the compiler chooses; only where constraints are written).
    Dimensions past the last entry are whole. `P` is a short name for this class.

    Args:
      *entries: one entry per leading dimension.

    Raises:
      ArgumentTypeError: an entry is a list or another thing that can be no axis name.

    Examples:
      >>> P("data", None, ("model", "expert"))
      PartitionSpec('data', None, ('model', 'expert'))
      >>> P(("x",)) == P("x"), P("x", None) == P("x"), P("x", None).canonical == P("x")
      (True, False, True)
    """

    UNCONSTRAINED: ClassVar = UNCONSTRAINED
    __slots__ = ("_entries", "_hash", "dims")
    _entries: tuple[Any, ...]
    dims: tuple[Any, ...]  # for each entry a tuple of axes, or UNCONSTRAINED
    _hash: int

    def __init__(self, *entries: Any) -> None:
        self._entries = entries
        self.dims = tuple([_axes_of(entry, self) for entry in entries])
        self._hash = hash(self.dims)

    @property
    def canonical(self) -> PartitionSpec:
        """The shortest spec that places an array alike: no trailing `None`, no tuples of one axis."""
        dims = list(self.dims)
        while dims and dims[-1] == ():
            dims.pop()
        short = PartitionSpec.of_dims(dims)
        return self if self._entries == short._entries else short

    @classmethod
    def of_dims(cls, dims: Iterable[tuple[AxisName, ...]]) -> PartitionSpec:
        """The spec of dimensions that are each split over a tuple of axes, `()` for a whole one."""
        return cls(*map(_entry_of, dims))

    @property
    def axes(self) -> tuple[AxisName, ...]:
        """All axes that the spec names, in order."""
        return tuple([axis for axes in self.dims if isinstance(axes, tuple) for axis in axes])

    @property
    def has_unconstrained(self) -> bool:
        """Whether some dimension is left to the compiler."""
        return any(axes is UNCONSTRAINED for axes in self.dims)

    def padded(self, ndim: int) -> tuple[Any, ...]:
        """The axes of each of `ndim` dimensions, `()` for whole ones."""
        return self.dims + ((),) * (ndim - len(self.dims))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._entries[index]

    def __add__(self, other: PartitionSpec | tuple[Any, ...]) -> PartitionSpec:
        if isinstance(other, (PartitionSpec, tuple)):
            return PartitionSpec(*self._entries, *other)
        return NotImplemented

    def __radd__(self, other: tuple[Any, ...]) -> PartitionSpec:
        return PartitionSpec(*other, *self._entries) if isinstance(other, tuple) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return self is other or (self._hash == other._hash and self.dims == other.dims)
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, self._entries

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self._entries))})"


P = PartitionSpec


def _axes_of(entry: Any, spec: PartitionSpec) -> tuple[AxisName, ...] | _Mark:
    if entry is None:
        return ()
    if entry is UNCONSTRAINED:
        return UNCONSTRAINED
    axes = entry if isinstance(entry, tuple) else (entry,)
    for axis in axes:
        if axis is None or isinstance(axis, (list, dict, set, tuple, _Mark, PartitionSpec)):
            raise ArgumentTypeError(
                "PartitionSpec",
                expected="entries that are None, a mesh axis, a tuple of mesh axes or UNCONSTRAINED",
                got=spec,
                mend=f"write {entry!r} as a tuple of axis names, such as ('x', 'y'), or as None",
            )
    return axes


def _entry_of(axes: tuple[AxisName, ...] | _Mark) -> Any:
    if not isinstance(axes, tuple):
        return axes
    return axes if len(axes) > 1 else axes[0] if axes else None


def check_spec(spec: PartitionSpec, mesh_shape: Mapping[AxisName, int], *, where: str) -> None:
    """Reject a spec that names an axis which the mesh has not, or names one twice.

    Args:
      spec: the spec as the user wrote it.
      mesh_shape: size of each axis of the mesh.
      where: the argument by its path, such as `in_shardings[0]['w']`.
    """
    seen = set()
    for axis in spec.axes:
        if axis not in mesh_shape:
            names = ", ".join(map(repr, mesh_shape)) or "none"
            raise ShardingError(
                where,
                expected=f"a spec over the axes of the mesh ({names})",
                got=spec,
                mend=f"add an axis {axis!r} to the mesh, or take it out of the spec",
            )
        if axis in seen:
            raise ShardingError(
                where,
                expected="a spec that names each mesh axis at most once",
                got=spec,
                mend=f"keep {axis!r} in one entry only: one axis cannot split an array twice",
            )
        seen.add(axis)


def check_rank(spec: PartitionSpec, ndim: int, what: str, *, where: str) -> None:
    """Reject a spec with more entries than an array, which is `what` in words, has dimensions."""
    if len(spec) <= ndim:
        return
    extra = len(spec) - ndim
    drop = "drop the last entry" if extra == 1 else f"drop the last {extra} entries"
    plural, dims = "y" if ndim == 1 else "ies", f"{len(spec)} dimension{'s' if len(spec) > 1 else ''}"
    raise ShardingError(
        where,
        expected=f"a spec of at most {ndim} entr{plural} for {what}",
        got=spec,
        mend=f"{drop}, or give the array {dims}",
    )
