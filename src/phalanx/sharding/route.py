"""Routes: the tilings to pass through on the way from one to another, so that no device holds more than either end.

XLA moves an array between two shardings in one step where it sees how, and otherwise builds a whole replica. Here every
move is taken apart into steps that are one operation each: cuts, which cost nothing; all-to-alls, which carry mesh axes
from one dimension to another; a permutation of parts; gathers. Builds on tilings only; `runtime.moves` follows routes
inside programs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from phalanx.sharding.hlo import spec_of_tiling
from phalanx.sharding.tiling import Tiling, mixed_radix, prime_factors

_Axes = tuple[int, ...]  # numbers of mesh axes of prime size
_Layout = list[_Axes]  # for each dimension the axes that cut it, from major to minor


class Route(NamedTuple):
    """How to get from one tiling to another.

    Args:
      stops: the tilings on the way, both ends included, each unlike the one before.
      cuts: for each dimension, into how many parts it must divide so that every stop cuts it evenly.
      slices: in how many slices an array must go at least, so that XLA takes no more memory than both ends and a part.
    """

    stops: tuple[Tiling, ...]
    cuts: tuple[int, ...]
    slices: int


def route(held: Tiling, wanted: Tiling, axis_sizes: Sequence[int] = ()) -> Route:
    """Plan the way from one tiling of an array to another over the same devices.

    Args:
      held, wanted: both ends; each must cut every dimension evenly.
      axis_sizes: of the mesh that the ends are likely said over; they are found to be over prime factors if not.

    Returns:
      The route.

    Examples:
      >>> rows, columns = (
      ...     Tiling((2, 1), np.array([[0, 0], [1, 0]])),
      ...     Tiling((1, 2), np.array([[0, 0], [0, 1]])),
      ... )
      >>> [stop.parts for stop in route(rows, columns).stops]
      [(2, 1), (1, 2)]
    """
    sizes, first, last = _layouts((held, wanted), axis_sizes)
    layouts = [first, *_path(first, last, sizes), last]
    stops = [held]
    for tiling in (*(_tiling(layout, sizes) for layout in layouts), wanted):
        if not tiling.is_equal(stops[-1]):
            stops.append(tiling)
    cuts = tuple([math.lcm(*parts) for parts in zip(*(stop.parts for stop in stops), strict=True)])
    return Route(tuple(stops), cuts, _least_slices([stop.parts for stop in stops]))


def _tiling(layout: _Layout, sizes: Sequence[int]) -> Tiling:
    where, still = [at.reshape(-1) for at in np.indices(sizes)], np.zeros(math.prod(sizes), np.int64)
    columns = [still + mixed_radix([where[a] for a in axes], [sizes[a] for a in axes]) for axes in layout]
    coordinates = np.stack(columns, axis=1) if columns else np.zeros((len(still), 0), np.int64)
    return Tiling(tuple([math.prod(sizes[a] for a in axes) for axes in layout]), coordinates)


def _least_slices(counts: Sequence[Sequence[int]]) -> int:
    """How many slices it takes: an all-to-all holds a part to send and one that arrives, moves in a row up to four."""
    fewest = min(math.prod(counts[0]), math.prod(counts[-1]))
    sent, gathers, held = 0, 0, []  # `held`: in how many parts an array is where a device has two, or one on the way
    for at, (before, after) in enumerate(itertools.pairwise(counts), 2):
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        if all(old % new == 0 for old, new in changed):
            gathers += len(changed)  # One dimension is gathered after the other.
            sent += max(len(changed), 1)
            held += [math.prod(before)] * (not changed and at < len(counts))
        elif any(new % old for old, new in changed):
            sent += 1
            held.append(math.prod(before))
    least = 4 if sent > 1 else 2
    return least if (sent > 1 and gathers) or any(least * fewest > parts for parts in held) else 1


def _layouts(tilings: Sequence[Tiling], axis_sizes: Sequence[int]) -> tuple[list[int], _Layout, _Layout]:
    """Sizes of axes over which both ends can be said, as far as they can; the ends, or what is a permutation away."""
    count = len(tilings[0].coordinates)
    candidates = [prime_factors(count), prime_factors(count)[::-1]]
    if math.prod(axis_sizes) == count:
        candidates.insert(0, [p for size in axis_sizes for p in prime_factors(size)])
    best: tuple[int, list[int], list[_Layout | None]] | None = None
    for sizes in candidates:
        said = [_said(t, sizes) for t in tilings]
        score = sum(layout is not None for layout in said)
        if best is None or score > best[0]:
            best = score, sizes, said
    assert best is not None, "there is at least the list of prime factors"
    _, sizes, said = best
    first, last = [layout or _alike(t, sizes) for layout, t in zip(said, tilings, strict=True)]
    return sizes, first, last


def _said(tiling: Tiling, sizes: Sequence[int]) -> _Layout | None:
    spec = spec_of_tiling(tiling, range(len(sizes)), sizes)
    return None if spec is None else [tuple(axes) for axes in spec.padded(len(tiling.parts))]


def _alike(tiling: Tiling, sizes: Sequence[int]) -> _Layout:
    """Axes that cut each dimension into as many parts: one permutation of parts away from a tiling they cannot say."""
    free = list(range(len(sizes)))
    layout = []
    for parts in tiling.parts:
        axes = []
        for prime in prime_factors(parts):
            axes.append(next(a for a in free if sizes[a] == prime))
            free.remove(axes[-1])
        layout.append(tuple(axes))
    return layout


def _path(first: _Layout, last: _Layout, sizes: Sequence[int]) -> list[_Layout]:
    """The layouts between two, both left out.

    Only numbers matter at first: how many axes of which size cut which dimension. Cuts that the end has more of are
    made from the devices that hold replicas, then axes go where they are wanted, and one permutation puts every part
    in its place, among others that are gathered at last. No dimension is ever cut into more parts than the least
    common multiple of both ends, and no axis is used that neither end has: it may not be ours to cut with.
    """
    here = _with_new_cuts(first, last, sizes)
    stops = [first, here]
    while (step := _largest_step(here, last, sizes)) is not None:
        source, target, moving = step
        here = list(here)
        staying = tuple(a for a in here[source] if a not in moving)
        if here[source] != staying + moving:  # Only the most minor axes can leave by an all-to-all.
            here[source] = staying + moving
            stops.append(list(here))
        here[source] = staying
        here[target] += moving
        stops.append(here)
    stops += [_in_place(here, last, sizes), last]
    path = [stop for before, stop in itertools.pairwise(stops) if stop != before]
    return path[:-1] if path and path[-1] == last else path


def _lacks(here: _Layout, goal: _Layout, sizes: Sequence[int]) -> list[Counter]:
    """For each dimension the sizes of axes that the goal has more of."""
    return [
        Counter(sizes[a] for a in new) - Counter(sizes[a] for a in old) for old, new in zip(here, goal, strict=True)
    ]


def _with_new_cuts(here: _Layout, goal: _Layout, sizes: Sequence[int]) -> _Layout:
    """The layout with axes that cut nothing yet put where the goal has more cuts in all."""
    used = {a for axes in here for a in axes}
    free = [a for a in range(len(sizes)) if a not in used]
    more = Counter(sizes[a] for axes in goal for a in axes) - Counter(sizes[a] for a in used)
    lacks = _lacks(here, goal, sizes)
    out = list(here)
    # An axis that the goal names at a dimension goes there first; others of the goal's go wherever one is lacking.
    places = [(d, a) for d, axes in enumerate(goal) for a in axes if a in free]
    places += [(d, a) for d in range(len(goal)) for _, a in places]
    for d, a in places:
        size = sizes[a]
        if a in free and more[size] > 0 and lacks[d][size] > 0:
            out[d] += (a,)
            free.remove(a)
            more[size] -= 1
            lacks[d][size] -= 1
    return out


def _largest_step(here: _Layout, goal: _Layout, sizes: Sequence[int]) -> tuple[int, int, _Axes] | None:
    """Two dimensions, and the axes of the first that the second lacks, the most minor ones of their sizes."""
    lacks, surplus = _lacks(here, goal, sizes), _lacks(goal, here, sizes)
    best: tuple[int, int, Counter] | None = None
    for source, target in itertools.permutations(range(len(here)), 2):
        both = surplus[source] & lacks[target]
        if both and (best is None or both.total() > best[2].total()):
            best = (source, target, both)
    if best is None:
        return None
    source, target, left = best
    moving = []
    for axis in reversed(here[source]):
        if left[sizes[axis]] > 0:
            left[sizes[axis]] -= 1
            moving.append(axis)
    return source, target, tuple(reversed(moving))


def _in_place(here: _Layout, goal: _Layout, sizes: Sequence[int]) -> _Layout:
    """The goal with as many axes after its own as the layout still has more, its own where they are free."""
    free = {a for axes in here for a in axes} - {a for axes in goal for a in axes}
    surplus = _lacks(goal, here, sizes)
    out = []
    for d, axes in enumerate(goal):
        rest = []
        for a in [*here[d], *sorted(free)]:
            if a in free and surplus[d][sizes[a]] > 0:
                surplus[d][sizes[a]] -= 1
                free.remove(a)
                rest.append(a)
        out.append((*axes, *rest))
    return out
