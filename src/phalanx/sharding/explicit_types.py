"""The type rule over Explicit mesh axes: shardings of results from shardings of operands.

Over the Explicit axes of a mesh, the sharding of an array is part of its type. The sharding rule of a primitive names
the dimensions of operands and results; a sharded dimension of an operand shards every dimension of a result with the
same name. If operands disagree, or a dimension that must be whole is sharded, the operation is refused with an error.

A type also says over which axes the devices hold terms of a sum that is still to be computed (`unreduced`), and over
which an array is replicated such that its cotangent is unreduced (`reduced`). An operation that is linear in its
unreduced operands is applied to the terms; every other one is refused until the array is resharded.

`core.primitive` calls `infer_result_types` through the sharding in an operand's type, so that `core` does not import
this package. A primitive with `typed_sharding_rule` computes the types of its results in `abstract_eval` instead.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx.core import LINEAR, RuleError, ShapedArray, ShardingError, dtypes, format_sharded_shape
from phalanx.sharding.partition_spec import NO_AXES, AxisName, PartitionSpec, UnreducedKind

if TYPE_CHECKING:
    from phalanx.core import Primitive
    from phalanx.sharding.mesh import AbstractMesh, Mesh

DimAxes = tuple[Hashable, ...]  # the mesh axes that shard one dimension

_RESHARD = "reshard an operand with phalanx.reshard, or pass out_sharding= if the operation has that argument"


def infer_result_types(primitive: Primitive, avals: Sequence[ShapedArray], params: Mapping[str, Any]) -> Any:
    """The result types of an operation with at least one operand whose type has a sharding.

    Raises:
      ShardingError: the operands are on different meshes, or their shardings do not determine the result shardings.
    """
    sharding = next(a.type_sharding for a in avals if a.type_sharding is not None)
    _check_one_mesh(primitive.name, avals, sharding.mesh)
    found = primitive.abstract_eval(*[a.drop_sharding() for a in avals], **params)
    results = list(found) if primitive.multiple else [found]
    specs = [a.type_sharding.spec for a in avals if a.type_sharding is not None]
    # Without a sharded dimension nothing propagates, and operations without a sharding rule are accepted too.
    reductions: dict[str, Any] = {}
    if any(axes for spec in specs for axes in spec.dims) or not all(spec.is_partitions_only for spec in specs):
        propagation = _Propagation(primitive, avals, params, sharding.mesh)
        reductions = propagation.propagate_reductions()
        dims = propagation.result_dims(results, reductions.get("unreduced", ()))
    else:
        dims = [((),) * len(y.shape) for y in results]
    typed = [
        y.update(sharding=sharding.with_spec(PartitionSpec.of_dims(d, **reductions)))
        for y, d in zip(results, dims, strict=True)
    ]
    return typed if primitive.multiple else typed[0]


def _check_one_mesh(name: str, avals: Sequence[ShapedArray], mesh: Mesh | AbstractMesh) -> None:
    for a in avals:
        if a.type_sharding is not None and a.type_sharding.mesh is not mesh:
            raise ShardingError(
                name,
                expected=f"operands over one mesh, {mesh}",
                got=f"{_format_avals(avals)}, one of them over {a.type_sharding.mesh}",
                fix="bring them to one mesh with phalanx.reshard(x, NamedSharding(mesh, spec))",
            )


def _format_avals(avals: Sequence[ShapedArray]) -> str:
    return ", ".join(a.str_short() for a in avals)


class _Propagation:
    """The propagation of shardings from the operands of one operation to its results.

    Args:
      primitive, avals, params: the operation and the types of its operands.
      mesh: the mesh of the operands.
    """

    def __init__(
        self, primitive: Primitive, avals: Sequence[ShapedArray], params: Mapping[str, Any], mesh: Mesh | AbstractMesh
    ):
        self.primitive, self.name, self.avals, self.mesh = primitive, primitive.name, avals, mesh
        try:
            self.rule = primitive.sharding_rule(*[a.drop_sharding() for a in avals], **params)
        except RuleError as error:
            raise self._refuse("operands that are not sharded, since it has no sharding rule", "") from error
        self.axes: dict[Hashable, DimAxes] = {}  # by name of a dimension

    def propagate_reductions(self) -> dict[str, Any]:
        """The unreduced and reduced axes of the results, as arguments of a `PartitionSpec`.

        Devices may apply an operation to their terms of a sum if it is linear in the unreduced operands together. Its
        other operands must be equal along these axes, and declare by `reduced` that their cotangents are unreduced.
        """
        specs = [PartitionSpec() if a.type_sharding is None else a.type_sharding.spec for a in self.avals]
        if all(spec.is_partitions_only for spec in specs):
            return {}
        groups = self.primitive.linear_in
        if not groups and getattr(type(self.primitive), "jvp", None) is LINEAR:
            groups = (range(len(specs)),)
        # The others are indices and predicates.
        values = {i for i, a in enumerate(self.avals) if dtypes.issubdtype(a.dtype, np.inexact)}.union(*groups)
        # A constant has no sharding in its type, and no cotangent.
        values = {i for i in values if i < len(specs) and self.avals[i].type_sharding is not None}
        unreduced = self._propagate_unreduced(specs, groups, values)
        # Along its axes a collective returns one value, or one that varies.
        gone = frozenset(self.rule.axes)
        reduced = self._propagate_reduced(specs, values, unreduced) - gone
        return {"unreduced": unreduced - gone, "reduced": reduced.difference(*[a.varying for a in self.avals])}

    def _propagate_unreduced(
        self, specs: Sequence[PartitionSpec], groups: Sequence[Sequence[int]], values: set[int]
    ) -> frozenset[AxisName]:
        terms = {i for i, spec in enumerate(specs) if spec.unreduced}
        if not terms:
            return NO_AXES
        unreduced = specs[min(terms)].unreduced
        group = next((g for g in groups if terms <= set(g)), None)
        kinds = {specs[i].unreduced_kind for i in terms}
        combined = self.primitive.combines
        if combined is not None and unreduced <= set(self.rule.axes) and kinds == {UnreducedKind[combined]}:
            return unreduced
        if group is None or kinds != {UnreducedKind.sum} or (combined is None and unreduced & set(self.rule.axes)):
            raise self._refuse("operands that are not unreduced, since it is not linear in them", "")
        if any(specs[i].unreduced != unreduced for i in group if i < len(specs)):
            raise self._refuse("operands that are unreduced over the same axes", "")
        others = values.difference(group)
        varying = frozenset[AxisName]().union(*[self.avals[i].varying for i in range(len(specs)) if i not in group])
        if any(specs[i].reduced != unreduced for i in others) or varying & unreduced:
            raise self._refuse(f"another operand that is reduced over {', '.join(sorted(map(repr, unreduced)))}", "")
        return unreduced

    def _propagate_reduced(
        self, specs: Sequence[PartitionSpec], values: set[int], unreduced: frozenset[AxisName]
    ) -> frozenset[AxisName]:
        found = {specs[i].reduced - unreduced for i in values}
        if len(found) < 2:
            return found.pop() if found else NO_AXES
        if self.primitive.broadcasts_scalars:
            raise self._refuse("operands that are reduced over the same axes", "")
        return NO_AXES

    def result_dims(self, results: Sequence[ShapedArray], unreduced: Collection[AxisName]) -> list[tuple[DimAxes, ...]]:
        """For each result, which is unreduced over some axes, the axes that shard each of its dimensions."""
        for names, aval in zip(self.rule.operands, self.avals, strict=True):
            if aval.type_sharding is not None:
                for dim, (name, axes) in enumerate(zip(names, aval.type_sharding.spec.dims, strict=True)):
                    # An axis of one device shards nothing, so it does not violate a need for replication.
                    if axes and (self.mesh.num_parts(axes) > 1 or name not in self.rule.whole):
                        self._add(name, axes, aval, dim)
        dims = [tuple([self.axes.get(name, ()) for name in names]) for names in self.rule.results]
        for y, of_result in zip(results, dims, strict=True):
            self._check_result(y, of_result, unreduced)
        return dims

    def _add(self, name: Hashable, axes: DimAxes, aval: ShapedArray, dim: int) -> None:
        """Record that an operand shards the dimension `name` over `axes`."""
        targets: Sequence[Hashable] = (name,)
        # The order matters: a resized dimension, such as a sliced one, is in `whole` too, but it has counterparts of
        # another size that may be sharded over the same axes.
        if name in self.rule.resized:
            targets = self.rule.resized[name]
        elif name in self.rule.whole:
            raise self._refuse(
                "operands that are whole along each dimension that the operation mixes",
                f", of which {aval.str_short()} is sharded along dimension {dim}",
            )
        elif name in self.rule.reduced and self.axes.get(name) == axes:
            # Each device would have a partial sum, for which types have no sharding, so the caller has to decide how
            # the sums are sharded.
            raise self._refuse(
                "contracted dimensions of which one side is whole, or an out_sharding for the sums",
                f", of which both sides are sharded over {', '.join(map(repr, axes))}",
            )
        for target in targets:
            if self.axes.setdefault(target, axes) != axes:
                raise self._refuse("the same sharding of dimensions that correspond to each other", "")

    def _check_result(self, result: ShapedArray, dims: Sequence[DimAxes], unreduced: Collection[AxisName]) -> None:
        """Raise ShardingError if a result would be sharded twice over one axis, or is unreduced and uneven."""
        axes = [*unreduced, *(axis for dim in dims for axis in dim)]
        sizes = zip(result.shape, dims, strict=True)
        is_even = all(not isinstance(n, int) or n % self.mesh.num_parts(a) == 0 for n, a in sizes)
        if (is_even or not unreduced) and len(set(axes)) == len(axes):
            return
        text = f"{result.drop_sharding().str_short().split('[')[0]}[{format_sharded_shape(result.shape, dims)}]"
        raise ShardingError(
            self.name,
            expected=f"a result that is sharded over each mesh axis once{', and evenly' * bool(unreduced)}",
            got=f"{text} from {_format_avals(self.avals)}",
            fix=_RESHARD,
        )

    def _refuse(self, expected: str, more: str) -> ShardingError:
        return ShardingError(self.name, expected=expected, got=_format_avals(self.avals) + more, fix=_RESHARD)
