"""Plan a resharding as a sequence of tilings, so that no device ever holds more than it does before or after.

Where XLA does not recognise how to reshard in one step, it replicates the array on every device first. A plan avoids
that by splitting the resharding into steps that are one collective each. In order:

1. slices, which split replicated dimensions further and need no communication;
2. all-to-alls, which carry mesh axes from one dimension to another;
3. one collective permute, which brings every shard to the device that needs it;
4. all-gathers of the axes that the target does not use.

The planner knows tilings only; `runtime.reshard_lowering` emits the collectives inside compiled programs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from phalanx.sharding.hlo_conversion import tiling_to_spec
from phalanx.sharding.tiling import Tiling, mixed_radix, prime_factors

_Axes = tuple[int, ...]  # indices of mesh axes of prime size
_Layout = list[_Axes]  # for each dimension the axes that split it, from major to minor


class ReshardPlan(NamedTuple):
    """The steps that reshard an array.

    Args:
      tilings: the sequence of tilings, from the source to the target; neighbours differ.
      divisors: for each dimension, a number that must divide its size so that every tiling splits it evenly.
      num_slices: minimum number of slices in which the array must be resharded one after the other, so that the peak
        memory of XLA's collectives is at most the source, the target and one shard.
    """

    tilings: tuple[Tiling, ...]
    divisors: tuple[int, ...]
    num_slices: int


def plan_reshard(source: Tiling, target: Tiling, axis_sizes: Sequence[int] = ()) -> ReshardPlan:
    """Plan the resharding of an array from one tiling to another over the same devices.

    Args:
      source, target: the tilings; each must split every dimension evenly.
      axis_sizes: axis sizes of a mesh over which both are expected to be specs. The planner falls back to a mesh with
        the prime factors of the number of devices as axes.

    Returns:
      The plan.

    Examples:
      >>> rows, columns = (
      ...     Tiling((2, 1), np.array([[0, 0], [1, 0]])),
      ...     Tiling((1, 2), np.array([[0, 0], [0, 1]])),
      ... )
      >>> [tiling.parts for tiling in plan_reshard(rows, columns).tilings]
      [(2, 1), (1, 2)]
    """
    sizes, first, last = _common_layouts((source, target), axis_sizes)
    layouts = [first, *_path(first, last, sizes), last]
    tilings = [source]
    for tiling in (*(_layout_to_tiling(layout, sizes) for layout in layouts), target):
        if not tiling.is_equal(tilings[-1]):
            tilings.append(tiling)
    divisors = tuple([math.lcm(*parts) for parts in zip(*(tiling.parts for tiling in tilings), strict=True)])
    return ReshardPlan(tuple(tilings), divisors, _min_slices([tiling.parts for tiling in tilings]))


def _layout_to_tiling(layout: _Layout, sizes: Sequence[int]) -> Tiling:
    position, zeros = [at.reshape(-1) for at in np.indices(sizes)], np.zeros(math.prod(sizes), np.int64)
    columns = [zeros + mixed_radix([position[a] for a in axes], [sizes[a] for a in axes]) for axes in layout]
    coordinates = np.stack(columns, axis=1) if columns else np.zeros((len(zeros), 0), np.int64)
    return Tiling(tuple([math.prod(sizes[a] for a in axes) for axes in layout]), coordinates)


def _min_slices(counts: Sequence[Sequence[int]]) -> int:
    """Minimum number of slices in which the array must be resharded to bound the memory of temporaries.

    One all-to-all or permute keeps a buffer to send and a buffer to receive; XLA keeps up to four buffers alive across
    consecutive collectives.

    Args:
      counts: `Tiling.parts` of each tiling of the plan.
    """
    fewest = min(math.prod(counts[0]), math.prod(counts[-1]))
    # `held` lists the number of shards of the array at each step where a device holds two buffers of that shard size.
    sent, gathers, held = 0, 0, []
    for at, (before, after) in enumerate(itertools.pairwise(counts), 2):
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        if all(old % new == 0 for old, new in changed):
            gathers += len(changed)  # XLA gathers one dimension after the other.
            sent += max(len(changed), 1)
            # A permutation, unless it is the last step: then source and target themselves are the two buffers.
            held += [math.prod(before)] * (not changed and at < len(counts))
        # Some dimension has fewer shards and another one more: an all-to-all. Otherwise the step is a slice and free.
        elif any(new % old for old, new in changed):
            sent += 1
            held.append(math.prod(before))
    least = 4 if sent > 1 else 2
    return least if (sent > 1 and gathers) or any(least * fewest > parts for parts in held) else 1


def _common_layouts(tilings: Sequence[Tiling], axis_sizes: Sequence[int]) -> tuple[list[int], _Layout, _Layout]:
    """Choose the axis sizes of a mesh over which as many as possible of the two tilings are specs.

    Returns:
      The axis sizes and the layouts of both tilings. A tiling that is not a spec over the mesh is replaced by a layout
      with the same number of shards per dimension; a permutation of the shards turns it into the tiling.
    """
    count = len(tilings[0].coordinates)
    # Meshes of 2 x 3 and of 3 x 2 devices are different layouts, so both orders of the factors are tried.
    candidates = [prime_factors(count), prime_factors(count)[::-1]]
    if math.prod(axis_sizes) == count:
        candidates.insert(0, [p for size in axis_sizes for p in prime_factors(size)])
    best: tuple[int, list[int], list[_Layout | None]] | None = None
    for sizes in candidates:
        layouts = [_tiling_to_layout(t, sizes) for t in tilings]
        score = sum(layout is not None for layout in layouts)
        # `>` prefers earlier candidates, so the user's mesh wins ties.
        if best is None or score > best[0]:
            best = score, sizes, layouts
    assert best is not None, "the prime factors are always a candidate"
    _, sizes, layouts = best
    first, last = [layout or _permuted_layout(t, sizes) for layout, t in zip(layouts, tilings, strict=True)]
    return sizes, first, last


def _tiling_to_layout(tiling: Tiling, sizes: Sequence[int]) -> _Layout | None:
    spec = tiling_to_spec(tiling, range(len(sizes)), sizes)
    return None if spec is None else [tuple(axes) for axes in spec.axes_per_dim(len(tiling.parts))]


def _permuted_layout(tiling: Tiling, sizes: Sequence[int]) -> _Layout:
    """A layout with the same number of shards per dimension as a tiling that is no spec over these axes."""
    free = list(range(len(sizes)))
    layout = []
    for parts in tiling.parts:
        axes = []
        for prime in prime_factors(parts):
            # Exists, since the numbers of shards of all dimensions together divide the number of devices.
            axes.append(next(a for a in free if sizes[a] == prime))
            free.remove(axes[-1])
        layout.append(tuple(axes))
    return layout


def _path(first: _Layout, last: _Layout, sizes: Sequence[int]) -> list[_Layout]:
    """The layouts strictly between two layouts.

    The search first ignores the identity of axes and considers their sizes only, so that axes of equal size are
    interchangeable until a single permutation fixes them. Invariants: no dimension is ever split into more shards than
    the least common multiple of both ends, and no axis is used that neither end uses, since it may be manual.
    """
    current = _add_axes(first, last, sizes)
    layouts = [first, current]
    while (step := _largest_all_to_all(current, last, sizes)) is not None:
        source, target, moving = step
        current = list(current)
        staying = tuple(a for a in current[source] if a not in moving)
        if current[source] != staying + moving:  # An all-to-all can only remove the most minor axes.
            current[source] = staying + moving
            layouts.append(list(current))
        current[source] = staying
        current[target] += moving
        layouts.append(current)
    # From here on only the identity of axes differs (fixed by a permutation) and surplus axes remain (gathered last).
    layouts += [_permute_axes(current, last, sizes), last]
    path = [layout for before, layout in itertools.pairwise(layouts) if layout != before]
    return path[:-1] if path and path[-1] == last else path


def _missing_sizes(current: _Layout, goal: _Layout, sizes: Sequence[int]) -> list[Counter[int]]:
    """For each dimension the sizes of the axes, with multiplicity, that `goal` has in excess of `current`."""
    return [
        Counter(sizes[a] for a in new) - Counter(sizes[a] for a in old) for old, new in zip(current, goal, strict=True)
    ]


def _add_axes(current: _Layout, goal: _Layout, sizes: Sequence[int]) -> _Layout:
    """Split dimensions further over unused axes where `goal` has more axes in total: slicing replicas is free."""
    used = {a for axes in current for a in axes}
    free = [a for a in range(len(sizes)) if a not in used]
    # Not more axes of a size than the goal has in total, or the array would be split further than at either end.
    more = Counter(sizes[a] for axes in goal for a in axes) - Counter(sizes[a] for a in used)
    missing = _missing_sizes(current, goal, sizes)
    out = list(current)
    # First the dimension at which `goal` has the axis, then any dimension where an axis of this size is missing.
    places = [(d, a) for d, axes in enumerate(goal) for a in axes if a in free]
    places += [(d, a) for d in range(len(goal)) for _, a in places]
    for d, a in places:
        size = sizes[a]
        if a in free and more[size] > 0 and missing[d][size] > 0:
            out[d] += (a,)
            free.remove(a)
            more[size] -= 1
            missing[d][size] -= 1
    return out


def _largest_all_to_all(current: _Layout, goal: _Layout, sizes: Sequence[int]) -> tuple[int, int, _Axes] | None:
    """The all-to-all that moves most axes: source dimension, target dimension, and the axes, as minor as possible."""
    missing, surplus = _missing_sizes(current, goal, sizes), _missing_sizes(goal, current, sizes)
    best: tuple[int, int, Counter[int]] | None = None
    for source, target in itertools.permutations(range(len(current)), 2):
        # Axes that can go directly from a dimension with too many to one with too few.
        both = surplus[source] & missing[target]
        if both and (best is None or both.total() > best[2].total()):
            best = (source, target, both)
    if best is None:
        return None
    source, target, left = best
    moving = []
    # Minor axes first: they leave without a permutation.
    for axis in reversed(current[source]):
        if left[sizes[axis]] > 0:
            left[sizes[axis]] -= 1
            moving.append(axis)
    return source, target, tuple(reversed(moving))


def _permute_axes(current: _Layout, goal: _Layout, sizes: Sequence[int]) -> _Layout:
    """The layout to permute to before gathering: the axes of `goal`, followed by the surplus axes of `current`."""
    free = {a for axes in current for a in axes} - {a for axes in goal for a in axes}
    surplus = _missing_sizes(goal, current, sizes)
    out = []
    for d, axes in enumerate(goal):
        rest = []
        # Prefer axes that split this dimension already, which makes the permutation smaller.
        for a in [*current[d], *sorted(free)]:
            if a in free and surplus[d][sizes[a]] > 0:
                surplus[d][sizes[a]] -= 1
                free.remove(a)
                rest.append(a)
        out.append((*axes, *rest))
    return out
