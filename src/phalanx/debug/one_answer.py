"""One answer on any mesh: `check_sharded` runs a user's function on one device and on many, and compares.

Builds on `spmd.jit` and the differentiation of `transforms`; called by users' tests and by our own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import random
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, PhalanxError
from phalanx.engine.client import devices
from phalanx.runtime.array import Array
from phalanx.sharding import UNSPECIFIED, AxisType, Mesh, NamedSharding, P, make_mesh, use_mesh
from phalanx.spmd.communication import Collectives, collectives_of
from phalanx.spmd.jit import jit
from phalanx.transforms.autodiff import vjp
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

# How far results may differ, relative to the largest of an array: meshes sum and vectorise in different orders.
_TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
_MOST_MESHES = 8


class ShardedMismatchError(PhalanxError, AssertionError):
    """A function gives something else on a mesh than on one device.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> issubclass(ShardedMismatchError, AssertionError)
      True
    """


class Trial(NamedTuple):
    """One comparison of a function on a mesh with the function on one device.

    Args:
      mesh: the mesh.
      specs: the spec of each array among the arguments.
      shard_shapes: for each of these the shape of one device's part.
      difference: the largest difference of a result or gradient, relative to the largest of that array.
      collectives: what the function communicates there.
    """

    mesh: Mesh
    specs: tuple[P, ...]
    shard_shapes: tuple[tuple[int, ...], ...]
    difference: float
    collectives: Collectives


class Report(tuple[Trial, ...]):
    """The comparisons that were made, all of which held."""

    __slots__ = ()

    def __repr__(self) -> str:
        lines = []
        for t in self:
            parts = ", ".join(f"{spec!r} in parts of {shape}" for spec, shape in zip(t.specs, t.shard_shapes))
            sent = f"{len(t.collectives)} collective{'' if len(t.collectives) == 1 else 's'}"
            lines.append(f"{t.mesh!r}: {parts}; {sent}, largest difference {t.difference:.1g}")
        return "\n".join(lines)


def check_sharded(
    f: Callable,
    *args: Any,
    mesh: Mesh | Sequence[Mesh] | None = None,
    in_shardings: Any = UNSPECIFIED,
    gradients: bool = True,
    rtol: float | None = None,
) -> Report:
    """Prove that a function gives the same on one device and on many: values, gradients and random numbers.

    The function is compiled for one device and for several meshes, each of which is in force while it is traced, and
    all results are compared: integers, booleans and random keys exactly, floating numbers to rounding. So are the
    gradients of its floating results, weighted at random, with respect to its floating arguments. Random numbers that
    it draws are part of its results.

    Args:
      f: a function of arrays and trees of them.
      *args: its arguments.
      mesh: a mesh, or several. The same axes with other sizes over these devices are tried too, from one device
        to as many parts as dimensions have elements. Left out, meshes over all devices are chosen by the axes that
        `in_shardings` names.
      in_shardings: for the arguments a `PartitionSpec` each, as a prefix of their tree. Left out, each array is cut
        along its dimensions, one axis of the mesh for each.
      gradients: whether to compare gradients.
      rtol: largest difference of floating numbers, relative to the largest one of the array; by default fitting the
        dtype.

    Returns:
      What was tried, one record for each mesh with its largest difference and what was communicated.

    Raises:
      ShardedMismatchError: a result or gradient differs; it names the first by its path, by how much, and the mesh.
      ArgumentError: no mesh over several devices can cut the arguments evenly.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> report = check_sharded(lambda x: jnp.tanh(x).sum(), jnp.ones((4, 2)), in_shardings=P("data"))
      >>> len(report) > 1
      True
    """
    leaves, tree = tree_flatten(_on_host(args))
    tests = [_Test("result", f)]
    if gradients and any(map(_is_inexact, leaves)):
        tests.append(_Test("gradient", _gradients_of(f)))
    (alone, *placements), specs = _meshes(leaves, args, mesh, in_shardings)
    expected = [_run(test.f, leaves, tree, alone, specs)[0] for test in tests]
    trials = []
    for tried in placements:
        worst, sent = 0.0, []
        for test, want in zip(tests, expected, strict=True):
            got, collectives = _run(test.f, leaves, tree, tried, specs)
            worst = max(worst, _compare(test.what, tried, specs, want, got, rtol))
            sent += collectives
        parts = [NamedSharding(tried, s).shard_shape(np.shape(x)) for s, x in zip(specs, leaves, strict=True)]
        trials.append(Trial(tried, tuple(specs), tuple(parts), worst, Collectives(sent)))
    return Report(trials)


class _Test(NamedTuple):
    """What is compared: the function's results, or its gradients."""

    what: str
    f: Callable


def _gradients_of(f: Callable) -> Callable:
    """The gradients of the floating results of `f`, weighted at random, with respect to its floating arguments."""

    def gradients(*args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        varied = [i for i, x in enumerate(leaves) if _is_inexact(x)]

        def weighed(*xs: Any) -> list:
            full = list(leaves)
            for i, x in zip(varied, xs, strict=True):
                full[i] = x
            return [y for y in tree_flatten(f(*tree_unflatten(tree, full)))[0] if _is_inexact(y)]

        ys, pull = vjp(weighed, *[leaves[i] for i in varied])
        weights = [random.normal(random.key(i), np.shape(y), aval_of(y).dtype) for i, y in enumerate(ys)]
        found = iter(pull(weights))
        return tree_unflatten(tree, [next(found) if i in varied else None for i in range(len(leaves))])

    return gradients


def _is_inexact(x: Any) -> bool:
    return dtypes.issubdtype(aval_of(x).dtype, np.inexact)


def _on_host(args: tuple) -> tuple:
    """The arguments without their placement, so that each mesh may have its own."""
    leaves, tree = tree_flatten(args)
    return tree_unflatten(tree, [_value(x) for x in leaves])


def _value(x: Any) -> Any:
    if type(x) is not Array or isinstance(x.dtype, dtypes.KeyDtype):
        return x
    return x if not x.committed else np.asarray(x)


def _run(f: Callable, leaves: list, tree: Any, mesh: Mesh, specs: Sequence[P]) -> tuple[list, Collectives]:
    """All results by their paths, on the host, and what was communicated; the mesh is in force meanwhile."""
    shardings = tree_unflatten(tree, [NamedSharding(mesh, spec) for spec in specs])
    args = tree_unflatten(tree, leaves)
    with use_mesh(mesh):
        compiled = jit(f, in_shardings=shardings).lower(*args).compile()
        found = tree_flatten_with_path(compiled(*args))[0]
    results = [
        (keystr(path), np.asarray(random.key_data(y) if isinstance(aval_of(y).dtype, dtypes.KeyDtype) else y))
        for path, y in found
    ]
    return results, collectives_of(compiled.program)


def _compare(what: str, mesh: Mesh, specs: Sequence[P], want: list, got: list, rtol: float | None) -> float:
    worst = 0.0
    for (path, a), (_, b) in zip(want, got, strict=True):
        allowed = 0.0 if a.dtype.kind in "biu" else rtol if rtol is not None else _tolerance(a.dtype)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        with np.errstate(invalid="ignore"):
            gaps = np.abs(np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, x - y))
        scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
        difference = float(np.max(gaps, initial=0.0)) / (scale if scale > 0 and a.dtype.kind not in "biu" else 1.0)
        if not difference <= allowed:
            at = tuple(map(int, np.unravel_index(int(np.argmax(np.nan_to_num(gaps, nan=np.inf))), a.shape)))
            raise ShardedMismatchError(
                f"check_sharded, {what}{path}",
                expected=f"{_shown(a[at])} at {at} as on one device"
                + (f", to {allowed:.1g} of the largest element" if allowed else ", exactly"),
                got=f"{_shown(b[at])} over {mesh!r} with arguments cut by {', '.join(map(repr, specs))}",
                mend="look for collectives left out in shard_map, for uses of axis_index or of the shape of a part, "
                "and for keys split by device",
            )
        worst = max(worst, difference)
    return worst


def _shown(x: Any) -> str:
    return f"{x:.7g}" if x.dtype.kind in "fc" else str(x)


def _tolerance(dtype: Any) -> float:
    name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return _TOLERANCES.get(name, 0.1)


def _meshes(leaves: list, args: tuple, mesh: Any, in_shardings: Any) -> tuple[list[Mesh], list[P]]:
    """A mesh of one device and the meshes to compare with it; and a spec for each leaf."""
    given = [mesh] if isinstance(mesh, Mesh) else list(mesh or ())
    shapes = [np.shape(x) for x in leaves]
    specs = _specs(args, given, in_shardings)
    names = given[0].axis_names if given else tuple(dict.fromkeys(a for spec in specs for a in spec.axes))
    pool = max((m.flat_devices for m in given), key=len) if given else tuple(devices())
    sizes = _sizes(names, specs, shapes, len(pool))
    alone, *others = [make_mesh(s, names, AxisType.Auto, devices=pool[: math.prod(s)]) for s in sizes]
    fitting = [m for m in dict.fromkeys([*given, *others]) if _fits(dict(m.shape), specs, shapes)]
    if not any(m.size > 1 for m in fitting):
        raise ArgumentError(
            "check_sharded",
            expected=f"a mesh over several of {len(pool)} devices that cuts the arguments evenly",
            got=f"shapes {shapes} with specs {specs}",
            mend="give arguments with dimensions of 2, 4 or 8 elements, and specs that cut them",
        )
    return [alone, *fitting], specs


def _specs(args: tuple, meshes: Sequence[Mesh], in_shardings: Any) -> list[P]:
    leaves, _ = tree_flatten(args)
    if in_shardings is UNSPECIFIED:
        names = meshes[0].axis_names if meshes else ("x", "y")
        return [P(*names[: np.ndim(x)]) for x in leaves]
    found = broadcast_prefix(
        in_shardings, args, what="check_sharded, in_shardings", is_leaf=lambda s: s is None, lists_as_tuples=True
    )
    return [s.spec if isinstance(s, NamedSharding) else P() if s is None else s for s in found]


def _sizes(names: Sequence, specs: Sequence[P], shapes: Sequence[tuple], count: int) -> list[tuple[int, ...]]:
    """Sizes of the axes: all ones, each axis as large as it can be, alone and among others."""
    choices = []
    for name in names:
        cut = {shape[d] for spec, shape in zip(specs, shapes) for d, axes in enumerate(spec.dims) if name in axes}
        common = math.gcd(*cut) if cut else count
        choices.append([n for n in range(1, count + 1) if common % n == 0] if common else [1])
    every = [s for s in itertools.product(*choices) if math.prod(s) <= count]
    # From one device on; then those that use most devices, the most lopsided first: parts of one element are there.
    by_use = sorted(every, key=lambda s: (-math.prod(s), -max(s, default=1)))
    return list(dict.fromkeys([(1,) * len(names), *by_use]))[:_MOST_MESHES]


def _fits(sizes: dict, specs: Sequence[P], shapes: Sequence[tuple]) -> bool:
    return all(
        shape[d] % math.prod(sizes.get(a, 0) for a in axes) == 0 if all(sizes.get(a) for a in axes) else False
        for spec, shape in zip(specs, shapes)
        for d, axes in enumerate(spec.dims)
    )
