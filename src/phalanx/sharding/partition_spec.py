"""`PartitionSpec`: the mesh axes that split each dimension of an array, and those along which it is not yet summed.

Specs are interned, so that comparing and hashing them is by address. `named_sharding.py` pairs a spec with a mesh.
Every public function that accepts specs validates them with `check_spec` and `check_rank`, passing the path of the
argument as `where`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar, Final, TypeAlias

from phalanx.core import ArgumentTypeError, ShardingError
from phalanx.engine import Cache, api_boundary_class

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


class UnreducedKind(enum.Enum):
    """How the terms that the devices hold of an unreduced array are combined.

    Examples:
      >>> PartitionSpec("x", unreduced={"y"}).unreduced_kind is UnreducedKind.sum
      True
    """

    sum = 1
    max = 2
    min = 3

    def __repr__(self) -> str:
        return self.name


NO_AXES: Final[frozenset[AxisName]] = frozenset()


@api_boundary_class
class PartitionSpec(Sequence[Any]):
    """The mesh axes that split each dimension of an array; interned.

    Entry `d` describes dimension `d`. It is one of: `None` (not split, each device has the full dimension), the name
    of a mesh axis, a tuple of axis names from major to minor, or `PartitionSpec.UNCONSTRAINED` (the compiler chooses;
    allowed in sharding constraints only). Dimensions after the last entry are not split. `P` is short for this class.

    Args:
      *partitions: one entry per leading dimension.
      unreduced: mesh axes along which each device holds one term of a sum that is still to be computed.
      reduced: mesh axes along which the array is replicated and its cotangent is unreduced.
      unreduced_kind: how the terms are combined; a sum by default.

    Raises:
      ArgumentTypeError: an entry is a list, a dict or another value that cannot be an axis name, or `unreduced` or
        `reduced` is not a set.
      ShardingError: an axis is in more than one of `partitions`, `unreduced` and `reduced`, or there is an
        `unreduced_kind` without unreduced axes.

    Examples:
      >>> P("data", None, ("model", "expert"))
      P('data', None, ('model', 'expert'))
      >>> P(("x",)) is P("x"), P("x", None) == P("x"), P("x", None).canonical == P("x")
      (True, False, True)
      >>> P("x", unreduced={"y"})
      P('x', unreduced={'y'}, unreduced_kind=sum)
    """

    UNCONSTRAINED: ClassVar = UNCONSTRAINED
    __slots__ = ("__weakref__", "dims", "partitions", "reduced", "unreduced", "unreduced_kind")
    partitions: tuple[Any, ...]  # the entries in their shortest form
    dims: tuple[Any, ...]  # for each entry a tuple of axis names, or UNCONSTRAINED
    unreduced: frozenset[AxisName]
    reduced: frozenset[AxisName]
    unreduced_kind: UnreducedKind | None

    def __new__(
        cls,
        *partitions: Any,
        unreduced: Set[AxisName] = NO_AXES,
        reduced: Set[AxisName] = NO_AXES,
        unreduced_kind: UnreducedKind | None = None,
    ) -> PartitionSpec:
        key = (partitions, unreduced, reduced, unreduced_kind)
        try:
            found: PartitionSpec | None = _spellings.get(key)
        except TypeError:  # a set, or an entry that is refused below
            found = None
        return cls._intern(*key) if found is None else found

    @classmethod
    def _intern(
        cls,
        entries: tuple[Any, ...],
        unreduced: Set[AxisName],
        reduced: Set[AxisName],
        unreduced_kind: UnreducedKind | None,
    ) -> PartitionSpec:
        dims = tuple([_axes_of(entry, entries) for entry in entries])
        for name, axes in (("unreduced", unreduced), ("reduced", reduced)):
            if not isinstance(axes, Set):
                raise ArgumentTypeError(
                    f"PartitionSpec, argument {name}",
                    expected="a set of mesh axes",
                    got=f"{axes!r} of type {type(axes).__name__}",
                    fix=f"write {name}={{'x'}}",
                )
        unreduced, reduced = frozenset(unreduced), frozenset(reduced)
        _check_reductions(dims, unreduced, reduced, unreduced_kind)
        if unreduced and unreduced_kind is None:
            unreduced_kind = UnreducedKind.sum
        partitions = tuple(map(_entry_of, dims))
        spec = _interned.get_or_make(
            (partitions, unreduced, reduced, unreduced_kind),
            lambda: cls._make(partitions, dims, unreduced, reduced, unreduced_kind),
        )
        # The spelling of the caller leads to the same object, at once when it is written again.
        _spellings[entries, unreduced, reduced, unreduced_kind] = spec
        return spec

    @classmethod
    def _make(cls, *fields: Any) -> PartitionSpec:
        self = object.__new__(cls)
        self.partitions, self.dims, self.unreduced, self.reduced, self.unreduced_kind = fields
        return self

    @property
    def canonical(self) -> PartitionSpec:
        """The shortest equivalent spec, without trailing `None`."""
        count = len(self.dims)
        while count and self.dims[count - 1] == ():
            count -= 1
        return self if count == len(self.dims) else self.update(partitions=self.partitions[:count])

    @classmethod
    def of_dims(cls, dims: Iterable[tuple[AxisName, ...]], **reductions: Any) -> PartitionSpec:
        """Build a spec from a tuple of axis names for each dimension; `()` is a dimension that is not split."""
        return cls(*map(_entry_of, dims), **reductions)

    @property
    def axes(self) -> tuple[AxisName, ...]:
        """All axes that split a dimension, in order of appearance."""
        return tuple([axis for axes in self.dims if isinstance(axes, tuple) for axis in axes])

    @property
    def has_unconstrained(self) -> bool:
        """Whether the compiler chooses the sharding of at least one dimension."""
        return any(axes is UNCONSTRAINED for axes in self.dims)

    @property
    def reductions(self) -> dict[str, Any]:
        """The keyword arguments `unreduced`, `reduced` and `unreduced_kind` of this spec."""
        return {name: getattr(self, name) for name in ("unreduced", "reduced", "unreduced_kind")}

    @property
    def is_partitions_only(self) -> bool:
        """Whether no axis is `unreduced` or `reduced`."""
        return not (self.unreduced or self.reduced)

    def select_axes(self, axes: Collection[AxisName], ndim: int) -> PartitionSpec:
        """The spec of an array of `ndim` dimensions over these of its axes only, with an entry for each dimension."""
        unreduced = self.unreduced.intersection(axes)
        return PartitionSpec.of_dims(
            [tuple([a for a in names if a in axes]) for names in self.axes_per_dim(ndim)],
            unreduced=unreduced,
            reduced=self.reduced.intersection(axes),
            unreduced_kind=self.unreduced_kind if unreduced else None,
        )

    def axes_per_dim(self, ndim: int) -> tuple[Any, ...]:
        """The axis names of each of `ndim` dimensions; `()` for dimensions that are not split."""
        return self.dims + ((),) * (ndim - len(self.dims))

    def update(self, **changes: Any) -> PartitionSpec:
        """A copy with some of the fields replaced.

        Args:
          **changes: `partitions`, `unreduced`, `reduced` or `unreduced_kind`.

        Returns:
          The new spec.
        """
        fields = self.reductions | changes
        if "unreduced" in changes and not changes["unreduced"] and "unreduced_kind" not in changes:
            fields["unreduced_kind"] = None
        return PartitionSpec(*fields.pop("partitions", self.partitions), **fields)

    def to_ct_spec(self) -> PartitionSpec:
        """The spec of cotangents of an array with this spec: `unreduced` and `reduced` change places."""
        if self.unreduced_kind not in (None, UnreducedKind.sum):
            raise ShardingError(
                "the cotangent of an unreduced array",
                expected="a sum of terms, the only combination that is linear",
                got=self,
                fix="reshard the array to a spec without unreduced axes before differentiating",
            )
        return PartitionSpec(*self.partitions, unreduced=self.reduced, reduced=self.unreduced)

    def index(self, value: Any, *bounds: int) -> int:
        """The position of an entry."""
        return self.partitions.index(_entry_of(_axes_of(value, (value,))), *bounds)

    def count(self, value: Any) -> int:
        """The number of times that an entry occurs."""
        return self.partitions.count(_entry_of(_axes_of(value, (value,))))

    def _check_indexable(self) -> None:
        if self.unreduced or self.reduced:
            raise ShardingError(
                "indexing or unpacking a PartitionSpec",
                expected="a spec without unreduced and reduced axes, which would be lost",
                got=self,
                fix="read spec.partitions, or copy the spec with spec.update(partitions=...)",
            )

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Any]:
        self._check_indexable()
        return iter(self.partitions)

    def __getitem__(self, index: int | slice) -> Any:
        self._check_indexable()
        return self.partitions[index]

    def __add__(self, other: PartitionSpec | tuple[Any, ...]) -> PartitionSpec:
        if isinstance(other, PartitionSpec) and not other.is_partitions_only:
            kinds = {self.unreduced_kind, other.unreduced_kind}
            if len(kinds) > 1:
                raise ArgumentTypeError(
                    "sum of two PartitionSpecs",
                    expected="the same unreduced_kind",
                    got=f"{self!r} and {other!r}",
                    fix="pass both with one unreduced_kind",
                )
            reductions = {"unreduced": self.unreduced | other.unreduced, "reduced": self.reduced | other.reduced}
            return self.update(partitions=self.partitions + other.partitions, **reductions)
        if isinstance(other, (PartitionSpec, tuple)):
            return PartitionSpec(*self, *other)
        return NotImplemented

    def __radd__(self, other: tuple[Any, ...]) -> PartitionSpec:
        return PartitionSpec(*other, *self) if isinstance(other, tuple) else NotImplemented

    # Equal specs are one object.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init_subclass__(cls) -> None:
        raise ArgumentTypeError(
            f"class {cls.__name__}",
            expected="no base class PartitionSpec, whose instances are interned",
            got="a subclass of it",
            fix="hold a PartitionSpec in an attribute",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.partitions, self.reductions)

    def __repr__(self) -> str:
        entries = repr(self.partitions)[1:-1]
        options = [
            f"{name}={{{', '.join(sorted(map(repr, axes)))}}}"
            for name in ("unreduced", "reduced")
            if (axes := getattr(self, name))
        ]
        if self.unreduced_kind is not None:
            options.append(f"unreduced_kind={self.unreduced_kind!r}")
        # The form that the field prints: the usual alias of the class, and a tuple's comma after a single entry.
        return f"P({', '.join([*filter(None, [entries.rstrip(',') if options else entries]), *options])})"


_interned: Cache[tuple[Any, ...], PartitionSpec] = Cache("sharding.partition_specs", weak="values")
_spellings: Cache[tuple[Any, ...], PartitionSpec] = Cache("sharding.spec_spellings", 4096)


def _remake(partitions: tuple[Any, ...], reductions: dict[str, Any]) -> PartitionSpec:
    return PartitionSpec(*partitions, **reductions)


def _check_reductions(
    dims: tuple[Any, ...], unreduced: frozenset[AxisName], reduced: frozenset[AxisName], kind: UnreducedKind | None
) -> None:
    """Reject axes that a spec uses in two ways, and a kind without axes."""
    if kind is not None and not isinstance(kind, UnreducedKind):
        raise ArgumentTypeError(
            "PartitionSpec, argument unreduced_kind",
            expected="an UnreducedKind",
            got=f"{kind!r} of type {type(kind).__name__}",
            fix="pass phalanx.sharding.UnreducedKind.sum, .max or .min",
        )
    if kind is not None and not unreduced:
        raise ShardingError(
            "PartitionSpec, argument unreduced_kind",
            expected="None, since no axis is unreduced",
            got=kind,
            fix="name the unreduced axes, or leave unreduced_kind out",
        )
    split = {axis for axes in dims if isinstance(axes, tuple) for axis in axes}
    for first, second, where in (
        (split, unreduced, "partitions and unreduced"),
        (split, reduced, "partitions and reduced"),
        (unreduced, reduced, "unreduced and reduced"),
    ):
        if both := ", ".join(sorted(map(repr, first & second))):
            raise ShardingError(
                f"PartitionSpec, arguments {where}",
                expected="each mesh axis in one of the two",
                got=f"{both} in both",
                fix=f"remove {both} from one of the two",
            )
    if None in unreduced or None in reduced:
        raise ShardingError(
            "PartitionSpec, arguments unreduced and reduced",
            expected="names of mesh axes",
            got=None,
            fix="remove None; a set has no positions to skip",
        )


P = PartitionSpec


def _axes_of(entry: object, entries: tuple[Any, ...]) -> tuple[AxisName, ...] | Sentinel:
    """Normalize one of the entries of a spec to a tuple of axis names."""
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
                got=f"P{entries}",
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
    for axis in (*spec.axes, *spec.unreduced, *spec.reduced):
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
