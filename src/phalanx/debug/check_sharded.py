"""`check_sharded`: test that a function computes the same results on one device and on meshes of several devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import random
from phalanx.core import ArgumentError, PhalanxError, dtypes, get_aval
from phalanx.engine.client import local_devices
from phalanx.runtime.array import Array
from phalanx.sharding import UNSPECIFIED, AxisType, Mesh, NamedSharding, P, make_mesh, use_mesh
from phalanx.spmd.communication import Collectives, list_collectives
from phalanx.spmd.jit import jit
from phalanx.transforms import select_argnums, vjp
from phalanx.tree import (
    PyTreeDef,
    broadcast_prefix,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from phalanx.typing import ArrayLike, PyTree

# Maximum differences relative to the largest element of an array. Programs over different meshes sum in different
# orders.
_TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
_MOST_MESHES = 8


class ShardedMismatchError(PhalanxError, AssertionError):
    """A function computes another result on a mesh than on one device.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ShardedMismatchError, AssertionError)
      True
    """


class Trial(NamedTuple):
    """The comparison of a function on one mesh with the function on one device.

    Args:
      mesh: the mesh.
      specs: the spec of each array argument.
      shard_shapes: the shape of the shards of each array argument.
      difference: the largest difference of a result or gradient, relative to the largest element of that array.
      collectives: the collectives of the compiled function on the mesh.
    """

    mesh: Mesh
    specs: tuple[P, ...]
    shard_shapes: tuple[tuple[int, ...], ...]
    difference: float
    collectives: Collectives

    def __str__(self) -> str:
        parts = ", ".join(f"{spec!r} in parts of {shape}" for spec, shape in zip(self.specs, self.shard_shapes))
        sent = f"{len(self.collectives)} collective{'' if len(self.collectives) == 1 else 's'}"
        return f"{self.mesh}: {parts}; {sent}, largest difference {self.difference:.1g}"


class Report(tuple[Trial, ...]):
    """The comparisons of a successful `check_sharded`; the printed form has one line per mesh."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def check_sharded(
    f: Callable,
    *args: Any,
    mesh: Mesh | Sequence[Mesh] | None = None,
    in_shardings: PyTree = UNSPECIFIED,
    gradients: bool = True,
    rtol: float | None = None,
) -> Report:
    """Check that a function computes the same results and gradients on one device and on several meshes.

    The function is compiled for one device and for several meshes, each of which is the current mesh during tracing.
    Integers, booleans and random keys in the results must be equal, floating-point numbers must agree up to rounding.
    The gradients of the floating-point results, with random weights, with respect to the floating-point arguments are
    compared in the same way.

    Args:
      f: a function of pytrees of arrays.
      *args: its arguments.
      mesh: a mesh, or several. Meshes with the same axis names and other sizes over the same devices are tried, too. If
        not given, meshes over all devices with the axes in `in_shardings` are tried.
      in_shardings: a tree prefix of the tuple of arguments with a `PartitionSpec` for each array. By default each
        dimension of an array is split over another mesh axis.
      gradients: whether to compare gradients.
      rtol: maximum difference of floating-point numbers, relative to the largest element of the array; by default
        chosen according to the dtype.

    Returns:
      A record for each mesh, with the largest difference and the collectives.

    Raises:
      ShardedMismatchError: a result or gradient differs; the message has its path, the difference and the mesh.
      ArgumentError: no mesh over several devices splits the arguments evenly.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> report = check_sharded(lambda x: jnp.tanh(x).sum(), jnp.ones((4, 2)), in_shardings=P("data"))
      >>> len(report) > 1
      True
    """
    leaves, tree = tree_flatten(tree_map(_on_host, args))
    functions = {"result": f}
    # Gradients are a separate function, so that an error says whether values or gradients differ.
    if gradients and any(map(_is_inexact, leaves)):
        functions["gradient"] = _gradients_of(f)
    (alone, *placements), specs = _meshes(leaves, args, mesh, in_shardings)
    expected = {what: _run(function, leaves, tree, alone, specs)[0] for what, function in functions.items()}
    trials = []
    for tried in placements:
        worst, sent = 0.0, []
        for what, function in functions.items():
            got, collectives = _run(function, leaves, tree, tried, specs)
            worst = max(worst, _compare(what, tried, specs, expected[what], got, rtol))
            sent += collectives
        parts = [NamedSharding(tried, s).shard_shape(np.shape(x)) for s, x in zip(specs, leaves, strict=True)]
        trials.append(Trial(tried, tuple(specs), tuple(parts), worst, Collectives(sent)))
    return Report(trials)


def _gradients_of(f: Callable) -> Callable:
    """A function that computes the gradients of a random linear combination of the floating-point results of `f`."""

    def gradients(*args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        varied = [i for i, x in enumerate(leaves) if _is_inexact(x)]

        xs, fill = select_argnums(tuple(leaves), varied)

        def float_results(*xs: Any) -> list:
            return list(filter(_is_inexact, tree_leaves(f(*tree_unflatten(tree, fill(xs))))))

        ys, pull = vjp(float_results, *xs)
        weights = [random.normal(random.key(i), np.shape(y), get_aval(y).dtype) for i, y in enumerate(ys)]
        found = dict(zip(varied, pull(weights), strict=True))
        return tree_unflatten(tree, [found.get(i) for i in range(len(leaves))])

    return gradients


def _is_inexact(x: ArrayLike) -> bool:
    return dtypes.issubdtype(get_aval(x).dtype, np.inexact)


def _on_host(x: ArrayLike) -> Any:
    """Copy a committed array to the host, so that it can be placed on each mesh."""
    is_bound = type(x) is Array and x.committed and not isinstance(x.dtype, dtypes.KeyDtype)
    return np.asarray(x) if is_bound else x


def _run(f: Callable, leaves: list, tree: PyTreeDef, mesh: Mesh, specs: Sequence[P]) -> tuple[list, Collectives]:
    """Run a function on a mesh; returns pairs of path and host value of each result, and the collectives."""
    shardings = tree_unflatten(tree, [NamedSharding(mesh, spec) for spec in specs])
    args = tree_unflatten(tree, leaves)
    with use_mesh(mesh):
        compiled = jit(f, in_shardings=shardings).lower(*args).compile()
        found = tree_flatten_with_path(compiled(*args))[0]
    results = [
        (keystr(path), np.asarray(random.key_data(y) if isinstance(get_aval(y).dtype, dtypes.KeyDtype) else y))
        for path, y in found
    ]
    return results, list_collectives(compiled.program)


def _compare(what: str, mesh: Mesh, specs: Sequence[P], want: list, got: list, rtol: float | None) -> float:
    worst = 0.0
    for (path, a), (_, b) in zip(want, got, strict=True):
        # Integers, booleans and key data must agree exactly.
        allowed = 0.0 if a.dtype.kind in "biu" else rtol if rtol is not None else _tolerance(a.dtype)
        # bfloat16 and integer differences would overflow or round; float64 represents them well enough.
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        with np.errstate(invalid="ignore"):
            # Equal infinities and NaNs in the same place count as agreement.
            gaps = np.abs(np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, x - y))
        scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
        difference = float(np.max(gaps, initial=0.0)) / (scale if scale > 0 and a.dtype.kind not in "biu" else 1.0)
        # `not <=` instead of `>`: a difference of NaN must fail.
        if not difference <= allowed:
            at = tuple(map(int, np.unravel_index(int(np.argmax(np.nan_to_num(gaps, nan=np.inf))), a.shape)))
            raise ShardedMismatchError(
                f"check_sharded, {what}{path}",
                expected=f"{_format_number(a[at])} at {at} as on one device"
                + (f", to {allowed:.1g} of the largest element" if allowed else ", exactly"),
                got=f"{_format_number(b[at])} over {mesh} with arguments split by {', '.join(map(repr, specs))}",
                fix="look for missing collectives in shard_map, for results that depend on axis_index or on the shapes "
                "of shards, and for random keys that differ between devices",
            )
        worst = max(worst, difference)
    return worst


def _format_number(x: np.generic) -> str:
    return f"{x:.7g}" if x.dtype.kind in "fc" else str(x)


def _tolerance(dtype: np.dtype) -> float:
    return _TOLERANCES.get({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name), 0.1)


def _meshes(
    leaves: list, args: tuple, mesh: Mesh | Sequence[Mesh] | None, in_shardings: PyTree
) -> tuple[list[Mesh], list[P]]:
    """The meshes to compare, the first of which has one device, and the spec of each argument leaf."""
    given = [mesh] if isinstance(mesh, Mesh) else list(mesh or ())
    shapes = [np.shape(x) for x in leaves]
    specs = _specs(args, given, in_shardings)
    names = given[0].axis_names if given else tuple(dict.fromkeys(a for spec in specs for a in spec.axes))
    pool = max((m.flat_devices for m in given), key=len) if given else tuple(local_devices())
    sizes = _sizes(names, specs, shapes, len(pool))
    alone, *others = [make_mesh(s, names, AxisType.Auto, devices=pool[: math.prod(s)]) for s in sizes]
    fitting = [m for m in dict.fromkeys([*given, *others]) if _fits(dict(m.shape), specs, shapes)]
    if not any(m.size > 1 for m in fitting):
        raise ArgumentError(
            "check_sharded",
            expected=f"a mesh over several of {len(pool)} devices that splits the arguments evenly",
            got=f"shapes {shapes} with specs {specs}",
            fix="pass arguments whose dimensions have 2, 4 or 8 elements, and specs that split them",
        )
    return [alone, *fitting], specs


def _specs(args: tuple, meshes: Sequence[Mesh], in_shardings: PyTree) -> list[P]:
    if in_shardings is UNSPECIFIED:
        names = meshes[0].axis_names if meshes else ("x", "y")
        return [P(*names[: np.ndim(x)]) for x in tree_leaves(args)]
    found = broadcast_prefix(
        in_shardings, args, what="check_sharded, in_shardings", is_leaf=lambda s: s is None, lists_as_tuples=True
    )
    return [s.spec if isinstance(s, NamedSharding) else P() if s is None else s for s in found]


def _sizes(names: Sequence, specs: Sequence[P], shapes: Sequence[tuple], count: int) -> list[tuple[int, ...]]:
    """Axis sizes of the meshes to try: first one device, then the largest meshes with the most unequal sizes.

    The sizes of an axis are the common divisors of the dimensions that it splits, so that shards are even.
    """
    choices = []
    for name in names:
        cut = {shape[d] for spec, shape in zip(specs, shapes) for d, axes in enumerate(spec.dims) if name in axes}
        # An axis that splits no dimension may have any size: it then replicates.
        common = math.gcd(*cut) if cut else count
        choices.append([n for n in range(1, count + 1) if common % n == 0] if common else [1])
    every = [s for s in itertools.product(*choices) if math.prod(s) <= count]
    # Unequal sizes come first since they have the smallest shards, down to one element, where errors are likely.
    by_use = sorted(every, key=lambda s: (-math.prod(s), -max(s, default=1)))
    return list(dict.fromkeys([(1,) * len(names), *by_use]))[:_MOST_MESHES]


def _fits(sizes: dict, specs: Sequence[P], shapes: Sequence[tuple]) -> bool:
    return all(
        all(sizes.get(a) for a in axes) and shape[d] % math.prod(sizes[a] for a in axes) == 0
        for spec, shape in zip(specs, shapes)
        for d, axes in enumerate(spec.dims)
    )
