"""Operations run piece by piece: over several devices, each does its own part of an operation, as its roles say.

XLA splits most operations along the dimensions that they treat as parallel, and gathers the operands of some: of
Fourier transforms, of the largest elements, of loops until all have converged. A primitive of those says `by_pieces`;
it is emitted as a call with a rule for Shardy, made of its dimension roles, and when the partitioner comes to it, the
operation is lowered anew for the pieces; where these are pieces of sums, devices then add up what they have. Called by
`runtime.lowering`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.config import state
from phalanx.core.dtypes import KeyDtype
from phalanx.core.jaxpr import Eqn, Jaxpr, Var
from phalanx.core.primitive import Roles, results_of
from phalanx.engine import partitioner
from phalanx.engine.mlir import hlo, ir
from phalanx.runtime.partitioned_calls import PartitionedCalls, spread
from phalanx.sharding.hlo import hlo_of_tiling, manual_place, tiling_of_hlo
from phalanx.sharding.tiling import Tiling


class _Operation:
    """One operation that is called by pieces: what the partitioner's questions about it are answered from.

    Args:
      eqn: an application of it.
      platform: where it runs.
      sums: whether devices may add up what they have.
    """

    def __init__(self, eqn: Eqn, platform: str, sums: bool):
        self.eqn = eqn
        self.platform = platform
        self.context = state.context
        self.results = [v.aval for v in eqn.outvars]
        whole = self.results[0].shape if eqn.primitive.scalars_broadcast else ()
        self.avals = [a.aval if a.aval.shape else a.aval.with_shape(whole) for a in eqn.invars]
        self.roles: Roles = eqn.primitive.roles(*self.avals, **eqn.params)
        names = {n for names in (*self.roles.operands, *self.roles.results) for n in names}
        self.summed = {n for n, way in self.roles.reduced.items() if sums and way == "sum"} - self.roles.whole
        self.divisible = (names - self.roles.whole - self.roles.reduced.keys()) | self.summed

    @property
    def tensors(self) -> list[tuple[ShapedArray, Sequence]]:
        """Types and names of the dimensions of all operands, then of all results, as XLA has them."""
        from phalanx.runtime.lowering import physical_aval

        found: list[tuple[ShapedArray, Sequence]] = []
        logical = [*zip(self.avals, self.roles.operands), *zip(self.results, self.roles.results)]
        for i, (aval, names) in enumerate(logical):
            physical = physical_aval(aval)  # the words of a random key are a dimension more
            found.append((physical, [*names, *(("words", i, d) for d in range(physical.ndim - aval.ndim))]))
        return found

    def rule(self) -> Any:
        """What Shardy reads: one factor for each name; those that are not divisible must be whole."""
        sizes: dict[Any, int] = {}
        tensors = []
        for aval, names in self.tensors:
            # A name that is not divisible may have another size elsewhere, and then is another factor.
            keys = [name if name in self.divisible else (name, n) for name, n in zip(names, aval.shape, strict=True)]
            sizes.update(zip(keys, aval.shape, strict=True))
            tensors.append([[key] for key in keys])
        whole = [key for key in sizes if key not in self.divisible]
        return spread(tensors, len(self.avals), sizes, need_replication_factors=whole)

    def on(self, sizes: Sequence[tuple[int, ...]]) -> Jaxpr:
        """The program of the operation alone, on operands of these shapes."""
        ins = [Var(aval.with_shape(shape[: aval.ndim])) for aval, shape in zip(self.avals, sizes, strict=True)]
        outs = [Var(aval) for aval in results_of(self.eqn.primitive, tuple([v.aval for v in ins]), self.eqn.params)]
        return Jaxpr(ins, [self.eqn.replace(invars=ins, outvars=outs)], outs)

    def split(self, operands: Sequence[Any], results: Sequence[Any]) -> partitioner.Split:
        """Say how the call is split, by how its operands and results lie for XLA."""
        from phalanx.runtime.lowering import lower_program

        given = [*operands, *results]
        count = max([len(s.tile_assignment_devices()) for s in given if s.is_tiled()], default=1)
        manual = next((m for m in (manual_place(s, count) for s in given) if m is not None), None)
        tilings = [tiling_of_hlo(s, count, aval.ndim) for s, (aval, _) in zip(given, self.tensors, strict=True)]
        cuts = _agreed(self, tilings, manual)
        shardings, shapes = [], []
        for aval, names in self.tensors:
            here = [cuts.get(name) for name in names]
            parts = tuple([c.parts if c else 1 for c in here])
            held = [c.held if c else np.zeros(count, np.int64) for c in here]
            tiling = Tiling(parts, np.stack(held, axis=1) if held else np.zeros((count, 0), np.int64))
            # XLA moves between shardings of one form more cleverly, so one that it gave is said in its own words.
            said = (s for s, t in zip(given, tilings, strict=True) if t.is_equal(tiling))
            shardings.append(next(said, None) or hlo_of_tiling(tiling, manual))
            shapes.append(tuple([-(-size // n) for size, n in zip(aval.shape, parts, strict=True)]))
        num = len(self.avals)
        module = lower_program(self.on(shapes[:num]), self.platform, name="piece").module
        if self.summed & cuts.keys():
            _add_up(module, _partners(cuts, self.summed, manual))
        return partitioner.Split(str(module), shardings[:num], shardings[num:])


_calls = PartitionedCalls("phalanx.pieces")


# Parameters that print as what they are; functions and other objects only print their names.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, KeyDtype, np.generic, enum.Enum)


def is_told_by_text(program: Jaxpr) -> bool:
    """Whether a program's text, by which a call of it is known again, says all of it."""

    def is_plain(value: Any) -> bool:
        if isinstance(value, tuple | frozenset):
            return all(map(is_plain, value))
        return is_told_by_text(value) if type(value) is Jaxpr else isinstance(value, _PLAIN)

    return not program.consts and all(is_plain(value) for eqn in program.eqns for value in eqn.params.values())


def emit(ctx: Any, eqn: Eqn, operands: Sequence[Any]) -> list:
    """Emit an operation of a program over several devices as a call that is split by pieces."""
    # Where some axes are manual the partitioner numbers the partitions of the others only: nobody can be named.
    operation = _Operation(eqn, ctx.module.platform, sums=ctx.module.manual is None)
    text = f"{operation.on([aval.shape for aval in operation.avals])}\nsums: {sorted(map(str, operation.summed))}"
    return _calls.emit(ctx, text, operation, operands, operation.results, operation.rule())


class _Cut(NamedTuple):
    """How many parts a dimension is cut into, and which one each device holds."""

    parts: int
    held: np.ndarray


def _agreed(operation: _Operation, tilings: Sequence[Tiling], manual: np.ndarray | None) -> dict[Any, _Cut]:
    """For each divisible dimension the cut that it has already where it matters most, as far as all go together."""
    wishes: list[tuple[int, Any, _Cut]] = []
    for (aval, names), tiling in zip(operation.tensors, tilings, strict=True):
        size = math.prod(aval.shape) * aval.dtype.itemsize
        for d, name in enumerate(names):
            parts = tiling.parts[d]
            # Pieces of unequal size are filled up with what must not get into a sum.
            if (
                parts > 1
                and name in operation.divisible
                and (name not in operation.summed or aval.shape[d] % parts == 0)
            ):
                wishes.append((size, name, _Cut(parts, tiling.coordinates[:, d])))
    agreed: dict[Any, _Cut] = {}
    for _, name, cut in sorted(wishes, key=lambda wish: -wish[0]):
        if name not in agreed and _go_together([*agreed.values(), cut], manual):
            agreed[name] = cut
    return agreed


def _go_together(cuts: Sequence[_Cut], manual: np.ndarray | None) -> bool:
    """Whether each combination of parts is held by equally many devices."""
    columns = [c.held for c in cuts] + ([manual] if manual is not None else [])
    groups = math.prod(c.parts for c in cuts) * (len(np.unique(manual)) if manual is not None else 1)
    _, times = np.unique(np.stack(columns), axis=1, return_counts=True)
    return len(times) == groups and len(set(times.tolist())) == 1


def _partners(cuts: dict[Any, _Cut], summed: set, manual: np.ndarray | None) -> np.ndarray:
    """The partitions that have one sum between them, each a piece of its own: i64[groups, members]."""
    kept = [cut.held for name, cut in cuts.items() if name not in summed]
    pieces = [cut.held for name, cut in cuts.items() if name in summed]
    manual = np.zeros_like(pieces[0]) if manual is None else manual
    # Sorted by the result that they have, then by piece; what is left over are replicas.
    order = np.lexsort((*pieces, *kept, manual))
    members = math.prod(cut.parts for name, cut in cuts.items() if name in summed)
    results = math.prod(cut.parts for name, cut in cuts.items() if name not in summed) * len(np.unique(manual))
    return order.reshape(results, members, -1).swapaxes(1, 2).reshape(-1, members)


def _add_up(module: Any, groups: np.ndarray) -> None:
    """Let `main` give the sums of its results over groups of partitions."""
    with module.context, ir.Location.unknown():
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        last = list(main.regions[0].blocks[0].operations)[-1]
        for i, value in enumerate(last.operands):
            attributes = {
                "replica_groups": ir.DenseElementsAttr.get(np.ascontiguousarray(groups)),
                "channel_handle": hlo.ChannelHandle.get(i + 1, 1),  # XLA numbers them anew
                "use_global_device_ids": ir.UnitAttr.get(),
            }
            with ir.InsertionPoint(last):
                total = ir.Operation.create(
                    "stablehlo.all_reduce", results=[value.type], operands=[value], attributes=attributes, regions=1
                )
            element = ir.RankedTensorType.get([], ir.RankedTensorType(value.type).element_type)
            with ir.InsertionPoint(total.regions[0].blocks.append(element, element)) as inner:
                hlo.return_([hlo.add(*inner.block.arguments)])
            last.operands[i] = total.results[0]
