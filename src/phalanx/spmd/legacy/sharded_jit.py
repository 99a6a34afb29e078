"""`sharded_jit`: `jit` with shardings that are given as numbers of shards per dimension instead of mesh axes.

The product of the numbers of shards of an array is the number of partitions, which is the same for all arrays of a
function. Implemented as `jit` over a mesh whose axes are the prime factors of that number, so that any numbers of
shards correspond to a `PartitionSpec` over the mesh. Older programs import it from `phalanx.interpreters.sharded_jit`;
new programs should use `jit` with a `NamedSharding`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, ArgumentTypeError, ShardingError, check_function, state
from phalanx.engine import client
from phalanx.lax import with_sharding_constraint as constrain
from phalanx.sharding import NamedSharding, PartitionSpec, check_rank, prime_factors
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.row_maps import is_per_device, make_mesh, require_mesh_axes
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_map
from phalanx.typing import PyTree


class _Enclosing(threading.local):
    """The number of partitions of the innermost `sharded_jit` being traced, or None."""

    count: int | None = None


_enclosing = _Enclosing()


def _is_parts(x: object) -> bool:
    return x is None or isinstance(x, PartitionSpec)


def _check_counts(where: str, parts: Any, known: tuple[str, int] | None) -> int | None:
    """Check the numbers of shards in `parts`, and return their product, or None for a replicated array.

    Args:
      where: the argument, for errors.
      parts: None or a `PartitionSpec` of positive numbers of shards.
      known: the number of partitions, if it is known, and the argument that determines it.
    """
    if not _is_parts(parts) or any(n is not None and not (isinstance(n, int) and n > 0) for n in parts or ()):
        raise ArgumentTypeError(
            where,
            expected="a PartitionSpec of numbers of shards, or None",
            got=repr(parts),
            fix="write PartitionSpec(2, 1), for example, to split dimension 0 of a matrix into two shards",
        )
    count = None if parts is None else math.prod(n for n in parts if n is not None)
    if known is not None and count not in (None, known[1]):
        other, wanted = known
        raise ShardingError(
            where,
            expected=f"{wanted} shards in total, as in {other}",
            got=f"{count} in {parts}",
            fix=f"choose numbers of shards with the product {wanted}, or None to replicate the array",
        )
    return count


def _check_fits(where: str, parts: PartitionSpec | None, shape: Sequence[int]) -> None:
    """Check that `parts` has at most as many entries as `shape`."""
    if parts is not None:
        check_rank(parts, len(shape), f"an array of shape {tuple(shape)}", where=where)


def _axes(count: int) -> list[tuple[str, int]]:
    """Names and sizes of the mesh axes for a number of partitions: one axis for each prime factor."""
    return [(f"parts_{i}", p) for i, p in enumerate(prime_factors(count))] or [("parts_0", 1)]


def _spec(parts: PartitionSpec | None, axes: Sequence[tuple[str, int]]) -> PartitionSpec:
    """Convert numbers of shards to a spec over the mesh axes."""
    # The unused axes of each size: an axis can split one dimension.
    left = {size: [name for name, n in axes if n == size] for _, size in axes}
    return PartitionSpec.of_dims([tuple(left[p].pop(0) for p in prime_factors(n or 1)) for n in parts or ()])


class ShardedJit(Jit):
    """The state of a function compiled by `sharded_jit`."""

    def __init__(
        self, fun: Callable, in_parts: PyTree, out_parts: PyTree, count: int | None, static: int | Sequence[int] | None
    ):
        super().__init__(fun, Signature(fun, static, what="sharded_jit"))
        self._parts = {"in_parts": in_parts, "out_parts": out_parts}
        # The number of partitions, and the argument that determines it.
        known = None if count is None else ("num_partitions", count)
        for what, tree in self._parts.items():
            for parts in tree_flatten(tree, _is_parts)[0]:
                here = _check_counts(f"{self._what}, {what}", parts, known)
                known = (what, here) if known is None and here is not None else known
        self._count = 1 if known is None else known[1]

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        self._check_even("in_parts", call.dynamic()[0])
        axes = _axes(self._count)
        if is_per_device():
            mesh = require_mesh_axes(self._what, axes)
        else:
            mesh = make_mesh(_devices(self._what, self._count), axes)

        def traced(*args: Any, **kwargs: Any) -> Any:
            # For `with_sharding_constraint`, which has no other access to the number of partitions.
            before, _enclosing.count = _enclosing.count, self._count
            try:
                out = self._fun(*args, **kwargs)
            finally:
                _enclosing.count = before
            self._check_even("out_parts", out)
            return out

        named = tree_map(lambda p: NamedSharding(mesh, _spec(p, axes)), self._parts, is_leaf=_is_parts)
        shardings = {"in_shardings": named["in_parts"], "out_shardings": named["out_parts"], "moves_committed": True}
        return traced, {**self._options, **shardings}

    def _check_even(self, what: str, values: PyTree) -> None:
        """Check that the arguments or results have the shapes that `in_parts` or `out_parts` require."""
        where = f"{self._what}, {what}"
        prefix = broadcast_prefix(self._parts[what], values, what=where, is_leaf=_is_parts, lists_as_tuples=True)
        for parts, (path, x) in zip(prefix, tree_flatten_with_path(values)[0], strict=True):
            _check_fits(f"{where}{keystr(path)}", parts, np.shape(x))


def _devices(what: str, count: int) -> list:
    devices = client.local_devices()
    if count > len(devices):
        raise ArgumentError(
            what,
            expected=f"at most {len(devices)} partitions, one for each device",
            got=str(count),
            fix=f"use at most {len(devices)} partitions, or set config.num_cpu_devices before the first operation",
        )
    return list(devices)


def sharded_jit(
    fun: Callable,
    in_parts: PyTree,
    out_parts: PyTree,
    num_partitions: int | None = None,
    static_argnums: int | Sequence[int] | None = (),
) -> Callable:
    """Compile a function for arguments and results that are split into given numbers of shards.

    Args:
      fun: a function of pytrees of arrays.
      in_parts: a tree prefix of the tuple of arguments. Each leaf is a `PartitionSpec` with the number of shards of
        each dimension as ints, or None for a replicated argument.
      out_parts: the same for the result.
      num_partitions: the number of devices; inferred from `in_parts` and `out_parts` if not given.
      static_argnums: positions of arguments that are compile-time constants.

    Returns:
      The compiled function. Inside a `pmap` it uses this number of devices for each row.

    Raises:
      ShardingError: the total numbers of shards of two arrays differ.
      ArgumentError: there are fewer devices than shards.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.sharding import PartitionSpec as P
      >>> add = sharded_jit(lambda x, y: x + y, in_parts=(P(1, 1), None), out_parts=P(1, 1))
      >>> add(jnp.ones((2, 2)), 1.0).tolist()
      [[2.0, 2.0], [2.0, 2.0]]
    """
    check_function("sharded_jit, argument fun", fun)
    return ShardedJit(fun, in_parts, out_parts, num_partitions, static_argnums).function()


def with_sharding_constraint(x: PyTree, parts: PartitionSpec | None) -> Any:
    """Constrain the sharding of a value inside a function compiled by `sharded_jit`.

    Args:
      x: a pytree of arrays.
      parts: a `PartitionSpec` with the number of shards of each dimension as ints, or None to replicate the value.

    Returns:
      The same value.

    Raises:
      ArgumentError: the call is not inside a function compiled by `sharded_jit`.
      ShardingError: the total number of shards differs from the function's number of partitions, or there are more
        numbers than dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> f = sharded_jit(
      ...     lambda x: with_sharding_constraint(2 * x, PartitionSpec(1)), None, None, num_partitions=1
      ... )
      >>> f(jnp.arange(2)).tolist()
      [0, 2]
    """
    count = _enclosing.count
    if count is None:
        raise ArgumentError(
            "with_sharding_constraint of sharded_jit",
            expected="a call inside a function compiled by sharded_jit",
            got="a call outside",
            fix="use lax.with_sharding_constraint(x, NamedSharding(mesh, spec))",
        )
    _check_counts("with_sharding_constraint", parts, ("sharded_jit", count))
    for leaf in tree_leaves(x):
        _check_fits("with_sharding_constraint", parts, np.shape(leaf))
    axes = _axes(count)
    mesh = state.context.mesh if is_per_device() else make_mesh(_devices("sharded_jit", count), axes)
    return constrain(x, NamedSharding(mesh, _spec(parts, axes)))
