"""`sharded_jit`: a compiled function whose arguments and results are cut into given numbers of pieces.

A count of pieces for each dimension says over how many devices it is split; all counts of one array together make the
number of partitions, which is the same throughout a function. Written with `jit` over a mesh whose axes are the prime
factors of that number, so that any counts can be spelt as a `PartitionSpec`. Older programs import it from
`interpreters.sharded_jit`; newer ones name the axes of a mesh and use `jit`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, ShardingError, check_function
from phalanx.core.source import code_position
from phalanx.engine import client
from phalanx.lax import with_sharding_constraint as constrain
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.sharding.spec import check_rank
from phalanx.spmd.arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.pmap import is_per_device, make_mesh, wanted_axes
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_map


class _Enclosing(threading.local):
    """The number of partitions of the function that is being traced, if any."""

    count: int | None = None


_enclosing = _Enclosing()


def _is_parts(x: Any) -> bool:
    return x is None or isinstance(x, PartitionSpec)


def _check_counts(where: str, parts: Any) -> None:
    """Refuse what does not count pieces."""
    if not _is_parts(parts) or any(n is not None and not (isinstance(n, int) and n > 0) for n in parts or ()):
        raise ArgumentTypeError(
            where,
            expected="a PartitionSpec of counts, or None",
            got=repr(parts),
            mend="write PartitionSpec(2, 1) for two pieces of dimension 0",
        )


def _check_fits(where: str, parts: Any, shape: Sequence[int]) -> None:
    """Refuse counts of more dimensions than an array has, or that do not cut it into pieces of one size."""
    if parts is None:
        return
    check_rank(parts, len(shape), f"an array of shape {tuple(shape)}", where=where)
    for size, n in zip(shape, parts, strict=False):
        if size % (n or 1):
            raise ShardingError(
                where,
                expected=f"a dimension of a size that {n} divides",
                got=f"{size} for {parts}",
                mend="pad the array, or cut another dimension",
            )


def _count(parts: Any) -> int | None:
    """The number of partitions that the counts of one array make; None for an array that stands whole everywhere."""
    return None if parts is None else math.prod(n for n in parts if n is not None)


def _primes(n: int) -> list[int]:
    """The prime factors of n, the smallest first."""
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


def _axes(count: int) -> list[tuple[str, int]]:
    """The mesh axes that stand for so many partitions."""
    return [(f"parts_{i}", p) for i, p in enumerate(_primes(count))] or [("parts_0", 1)]


def _spec(parts: Any, axes: Sequence[tuple[str, int]]) -> PartitionSpec:
    """The axes that split each dimension into its count of pieces."""
    if parts is None:
        return PartitionSpec()
    left = list(axes)
    dims = []
    for n in parts:
        names = []
        for p in _primes(n or 1):
            axis = next(a for a in left if a[1] == p)
            left.remove(axis)
            names.append(axis[0])
        dims.append(tuple(names) or None)
    return PartitionSpec(*dims)


class ShardedJit(Jit):
    """What is behind a partitioned function."""

    def __init__(self, fun: Callable, in_parts: Any, out_parts: Any, count: int | None, static: Any):
        super().__init__(fun, Signature(fun, static, None, None, None, "sharded_jit"))
        self._what = f"sharded_jit of {self._name}"
        self._parts = {"in_parts": in_parts, "out_parts": out_parts}
        self._count = self._consistent(count)

    def _consistent(self, given: int | None) -> int:
        """The one number of partitions that all counts make."""
        known = None if given is None else ("num_partitions", given)
        for what, tree in self._parts.items():
            for parts in tree_flatten(tree, _is_parts)[0]:
                _check_counts(f"{self._what}, {what}", parts)
                here = _count(parts)
                if here is not None and known is not None and known[1] != here:
                    raise _inconsistent(f"{self._what}, {what}", parts, here, *known)
                known = (what, here) if known is None and here is not None else known
        return 1 if known is None else known[1]

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        self._check_even("in_parts", call.dynamic()[0])
        axes = _axes(self._count)
        inside = is_per_device()
        mesh = wanted_axes(self._what, axes) if inside else make_mesh(_devices(self._what, self._count), axes)

        def traced(*args: Any, **kwargs: Any) -> Any:
            before, _enclosing.count = _enclosing.count, self._count
            try:
                out = self._fun(*args, **kwargs)
            finally:
                _enclosing.count = before
            self._check_even("out_parts", out)
            return out

        named = {
            what: tree_map(lambda p: NamedSharding(mesh, _spec(p, axes)), tree, is_leaf=_is_parts)
            for what, tree in self._parts.items()
        }
        shardings = {"in_shardings": named["in_parts"], "out_shardings": named["out_parts"], "brings": True}
        return traced, {**self._options, **shardings}

    def _check_even(self, what: str, values: Any) -> None:
        """Refuse values that do not fall into the pieces they are to have."""
        where = f"{self._what}, {what}"
        prefix = broadcast_prefix(self._parts[what], values, what=where, is_leaf=_is_parts, lists_as_tuples=True)
        for parts, (path, x) in zip(prefix, tree_flatten_with_path(values)[0], strict=True):
            _check_fits(f"{where}{keystr(path)}", parts, np.shape(x))

    def __repr__(self) -> str:
        return f"<sharded_jit of {code_position(self._fun)}>"


def _devices(what: str, count: int) -> list:
    devices = client.local_devices()
    if count > len(devices):
        raise ArgumentError(
            what,
            expected=f"at most {len(devices)} partitions, one for each device",
            got=str(count),
            mend="ask for fewer pieces, or set config.num_cpu_devices before the first operation",
        )
    return list(devices)


def _inconsistent(where: str, parts: Any, here: int, other: str, count: int) -> ShardingError:
    return ShardingError(
        where,
        expected=f"{count} pieces in all, as {other} has",
        got=f"{here} in {parts}",
        mend="let the counts of each array have one product; None leaves an array whole",
    )


def sharded_jit(
    fun: Callable, in_parts: Any, out_parts: Any, num_partitions: int | None = None, static_argnums: Any = ()
) -> Callable:
    """Compile a function for arguments and results that are cut into pieces.

    Args:
      fun: a function of arrays or pytrees of them.
      in_parts: for the arguments, as a prefix of their tree, the number of pieces of each dimension, as a
        `PartitionSpec` of ints, or None for an argument that stands whole on each device.
      out_parts: the same for the result.
      num_partitions: the number of devices; found from the counts if left out.
      static_argnums: positional arguments whose values are part of the program.

    Returns:
      The compiled function; inside a `pmap` it runs on that many devices for each row.

    Raises:
      ShardingError: the counts of two arrays make different numbers of pieces.
      ArgumentError: there are fewer devices than pieces.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.sharding import PartitionSpec as P
      >>> add = sharded_jit(lambda x, y: x + y, in_parts=(P(1, 1), None), out_parts=P(1, 1))
      >>> add(jnp.ones((2, 2)), 1.0).tolist()
      [[2.0, 2.0], [2.0, 2.0]]
    """
    check_function("sharded_jit, argument fun", fun)
    return ShardedJit(fun, in_parts, out_parts, num_partitions, static_argnums).function()


def with_sharding_constraint(x: Any, parts: Any) -> Any:
    """Cut a value inside a partitioned function into pieces.

    Args:
      x: an array or a pytree of them.
      parts: the number of pieces of each dimension as a `PartitionSpec` of ints, or None for a value that stands whole.

    Returns:
      The same value.

    Raises:
      ArgumentError: no `sharded_jit` is around it.
      ShardingError: the counts make another number of pieces than those of the function, or the value does not fall
        into so many of one size.

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
            "with_sharding_constraint of counts",
            expected="a call inside a function that sharded_jit compiles",
            got="one outside",
            mend="use lax.with_sharding_constraint with a sharding",
        )
    _check_counts("with_sharding_constraint", parts)
    here = _count(parts)
    if here is not None and here != count:
        raise _inconsistent("with_sharding_constraint", parts, here, "sharded_jit", count)
    for leaf in tree_leaves(x):
        _check_fits("with_sharding_constraint", parts, np.shape(leaf))
    axes = _axes(count)
    mesh = state.context.mesh if is_per_device() else make_mesh(_devices("sharded_jit", count), axes)
    sharding = NamedSharding(mesh, _spec(parts, axes))
    return tree_map(lambda leaf: constrain(leaf, sharding), x)
