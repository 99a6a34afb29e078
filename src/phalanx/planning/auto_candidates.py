"""The usual ways to shard a training step, with which the solver's choice is compared: data, fully sharded, tensor.

A program's state is what it takes and returns: results of the types of an argument, which must be sharded as that
argument is, so that the next step can take them. Arguments that are not state are data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from phalanx.core import ShapedArray

Path = Sequence[Any]
Spec = tuple[tuple[Any, ...], ...]


def match_state(
    inputs: Sequence[tuple[Path, ShapedArray]],
    outputs: Sequence[tuple[Path, ShapedArray]],
    donated: Sequence[bool],
    depth: int = 2,
) -> dict[int, int]:
    """Pair the results that are the next state with arguments.

    An argument is state if the result, or a part of it up to that depth, has its structure and types: the part at the
    argument's position, or else the first. Single arrays count if they are donated, since functions that are no
    steps return arrays like their arguments, too.

    Args:
      inputs, outputs: the path and type of each leaf; the first key of a path is the argument.
      donated: for each input, whether its buffer may be reused.
      depth: of the parts of the result.

    Returns:
      The number of the input for each number of an output that is state.
    """
    arguments: dict[Any, list[int]] = {}
    for i, (path, _) in enumerate(inputs):
        arguments.setdefault(path[0], []).append(i)
    parts: dict[tuple[Any, ...], list[int]] = {}
    for j, (path, _) in enumerate(outputs):
        for n in range(min(depth, len(path)) + 1):
            parts.setdefault(tuple(path[:n]), []).append(j)

    def describe(leaves: Sequence[tuple[Path, ShapedArray]], numbers: Sequence[int], skipped: int) -> list[Any]:
        return [(tuple(leaves[n][0][skipped:]), leaves[n][1].shape, leaves[n][1].dtype) for n in numbers]

    pairs: dict[int, int] = {}
    for key, leaves in arguments.items():
        if len(leaves) == 1 and len(inputs[leaves[0]][0]) == 1 and not donated[leaves[0]]:
            continue
        wanted = describe(inputs, leaves, 1)
        for part in sorted(parts, key=lambda p: (len(p), p[:1] != (key,))):
            found = parts[part]
            if pairs.keys().isdisjoint(found) and describe(outputs, found, len(part)) == wanted:
                pairs.update(zip(found, leaves, strict=True))
                break
    return pairs


def list_candidates(
    avals: Sequence[ShapedArray], state: Collection[int], groups: Sequence[Sequence[int]], mesh: Mapping[Any, int]
) -> Iterator[tuple[str, dict[int, Spec]]]:
    """The usual shardings of the arguments.

    Args:
      avals: the types of the arguments.
      state: the numbers of the state. Without any, each group in turn is tried as the data.
      groups: the numbers of the leaves of each argument.
      mesh: the sizes of the axes by name.

    Yields:
      A name, and a spec for the number of each argument.
    """
    names = tuple(name for name, size in mesh.items() if size > 1)
    if state:
        divisions = [[i for i in range(len(avals)) if i not in state]]
    else:
        divisions = [list(group) for group in groups if any(avals[i].ndim for i in group)]
    for data in divisions:
        label = "" if state else f" over argument {groups.index(data)}"
        weights = [i for i in range(len(avals)) if i not in data]

        def lay(axes: Sequence[Any], others: Mapping[int, Spec], data: Sequence[int] = data) -> dict[int, Spec]:
            return {i: split_dim(avals[i], 0, axes, mesh) for i in data} | dict(others)

        whole = {i: ((),) * avals[i].ndim for i in weights}
        yield f"data parallel{label}", lay(names, whole)
        parts = math.prod(mesh[a] for a in names)
        uneven = [i for i in data if avals[i].ndim and avals[i].shape[0] % parts and avals[i].shape[0] >= parts]
        if uneven:
            every = {i: (names, *((),) * (avals[i].ndim - 1)) for i in uneven}
            yield f"data parallel, uneven{label}", lay(names, whole | every)
        yield f"fully sharded{label}", lay(names, {i: _split_largest(avals[i], names, mesh) for i in weights})
        *outer, inner = names
        yield f"tensor parallel{label}", lay(outer, {i: split_dim(avals[i], -1, [inner], mesh) for i in weights})
        yield f"tensor parallel in pairs{label}", lay(outer, _pair(avals, weights, [inner], mesh))
        if outer:
            over_all = _pair(avals, weights, names, mesh)
            yield f"tensor parallel in pairs over all axes{label}", lay((), over_all)
            mixed = {i: _split_largest(avals[i], outer, mesh, split_dim(avals[i], -1, [inner], mesh)) for i in weights}
            yield f"fully sharded and tensor parallel{label}", lay(outer, mixed)
    yield "replicated", {i: ((),) * a.ndim for i, a in enumerate(avals)}


def _pair(
    avals: Sequence[ShapedArray], weights: Sequence[int], axes: Sequence[Any], mesh: Mapping[Any, int]
) -> dict[int, Spec]:
    """Split the last dimension of a weight, and of the next one if it is multiplied with it, the dimension before.

    The product of the two then needs one all-reduce. A vector before the first weight, or else behind it, is split
    with that dimension, as its bias. Other vectors, and weights without such a partner, stay whole.
    """
    found: dict[int, Spec] = {i: ((),) * avals[i].ndim for i in weights}
    first = None  # the previous matrix, if it has no partner yet
    before: list[int] = []  # the vectors between the matrix before `first` and `first`
    between: list[int] = []  # the vectors since the previous matrix
    for i in weights:
        if avals[i].ndim < 2:
            between.append(i)
            continue
        if first is not None and avals[first].shape[-1] == avals[i].shape[-2]:
            biases = [[v for v in near if avals[v].shape == avals[first].shape[-1:]] for near in (before, between)]
            found |= {v: split_dim(avals[v], -1, axes, mesh) for v in (first, *(biases[0] or biases[1]))}
            found[i] = split_dim(avals[i], -2, axes, mesh)
            first = None
        else:
            first, before = i, between
        between = []
    return found


def split_dim(aval: ShapedArray, d: int, axes: Sequence[Any], mesh: Mapping[Any, int]) -> Spec:
    """Split one dimension over as many of the axes, the first ones, as divide it."""
    spec: list[tuple[Any, ...]] = [()] * aval.ndim
    if aval.ndim:
        spec[d] = _fitting(aval.shape[d], axes, mesh)
    return tuple(spec)


def _split_largest(aval: ShapedArray, axes: Sequence[Any], mesh: Mapping[Any, int], spec: Spec | None = None) -> Spec:
    """Split the largest dimension that all axes divide and that is not split yet, if there is one."""
    found = list(spec or ((),) * aval.ndim)
    parts = math.prod(mesh[a] for a in axes)
    fitting = [d for d, n in enumerate(aval.shape) if not found[d] and n and n % parts == 0]
    if fitting:
        found[max(fitting, key=lambda d: aval.shape[d])] = tuple(axes)
    return tuple(found)


def _fitting(size: int, axes: Sequence[Any], mesh: Mapping[Any, int]) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in axes:
        if size and size % math.prod(mesh[a] for a in (*found, name)) == 0:
            found.append(name)
    return tuple(found)
