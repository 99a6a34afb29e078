"""The former `pjit`, with `in_axis_resources` and `out_axis_resources` in place of the shardings of `jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax
from phalanx.core import ArgumentError
from phalanx.engine.traceback_filtering import guard_namespace as _guard
from phalanx.sharding import UNSPECIFIED, PartitionSpec as PartitionSpec
from phalanx.spmd.jit import jit
from phalanx.typing import PyTree

# Older programs mark arguments that are arrays over a mesh already with FROM_GDA. Their sharding is used anyway.
FROM_GDA = UNSPECIFIED


def pjit(
    fun: Callable,
    in_axis_resources: PyTree = UNSPECIFIED,
    out_axis_resources: PyTree = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Compile a function for a mesh: `jit` with its former name and signature.

    Args:
      fun: the function.
      in_axis_resources: the specs or shardings of the arguments, as a tree prefix; `in_shardings` of `jit`.
      out_axis_resources: the specs or shardings of the results; `out_shardings` of `jit`.
      static_argnums, donate_argnums, options: as for `jit`.

    Returns:
      The compiled function, as from `jit`.

    Raises:
      ArgumentError: the former and the current name of an argument are both used.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import PartitionSpec
      >>> with phalanx.make_mesh((2,), ("x",)):
      ...     y = pjit(lambda x: 2 * x, PartitionSpec("x"), PartitionSpec("x"))(jnp.arange(4))
      >>> [shard.data.tolist() for shard in y.addressable_shards]
      [[0, 2], [4, 6]]
    """
    spelling = {}
    for old, new, value in (
        ("in_axis_resources", "in_shardings", in_axis_resources),
        ("out_axis_resources", "out_shardings", out_axis_resources),
    ):
        if value is UNSPECIFIED:
            continue
        if new in options:
            raise ArgumentError(
                f"pjit, {old}", expected=f"{old} or {new}", got="both", fix=f"leave {old} out: it is the former name"
            )
        options[new], spelling[new] = value, old
    compiled: Any = jit(fun, static_argnums=static_argnums, donate_argnums=donate_argnums, **options)
    # Under `with mesh:`, None means replicated, unlike in `jit`.
    compiled._jit.set_former_options(none_replicates=True, spelling=spelling)
    return compiled


def with_sharding_constraint(x: PyTree, axis_resources: PyTree) -> Any:
    """`lax.with_sharding_constraint` with its former signature.

    Args:
      x: a pytree of arrays.
      axis_resources: the specs or shardings of the arrays, as a tree prefix of `x`.

    Returns:
      The same pytree, with these shardings.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, NamedSharding, PartitionSpec
      >>> mesh = phalanx.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
      >>> here = NamedSharding(mesh, PartitionSpec("x"))
      >>> phalanx.jit(lambda x: with_sharding_constraint(2 * x, here))(jnp.arange(2)).tolist()
      [0, 2]
    """
    return lax.with_sharding_constraint(x, axis_resources)


_guard(globals())
