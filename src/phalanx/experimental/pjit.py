"""`pjit` in its older spelling: `in_axis_resources` and `out_axis_resources` for what `jit` calls shardings.

Builds on `phalanx.spmd.jit`, which does the work; programs written before the two functions became one import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx import lax
from phalanx.core.errors import ArgumentError
from phalanx.engine.frames import guard as _guard
from phalanx.sharding import UNSPECIFIED
from phalanx.sharding import PartitionSpec as PartitionSpec
from phalanx.spmd.jit import jit

# Old programs say so of an argument that lies over a mesh already; whatever lies somewhere is taken where it lies.
FROM_GDA = UNSPECIFIED


def pjit(
    fun: Callable,
    in_axis_resources: Any = UNSPECIFIED,
    out_axis_resources: Any = UNSPECIFIED,
    static_argnums: Any = None,
    donate_argnums: Any = None,
    **options: Any,
) -> Any:
    """Compile a function for a mesh: `jit` under its older name and signature.

    Args:
      fun: the function.
      in_axis_resources: the specs or shardings of the arguments, a tree prefix of them; `in_shardings` of `jit`.
      out_axis_resources: the specs or shardings of the results; `out_shardings` of `jit`.
      static_argnums, donate_argnums, options: as for `jit`.

    Returns:
      The compiled function, as from `jit`.

    Raises:
      ArgumentError: both spellings of one argument are given.

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
                f"pjit, {old}", expected=f"{old} or {new}", got="both", mend=f"leave {old} out, the older name"
            )
        options[new], spelling[new] = value, old
    compiled = jit(fun, static_argnums=static_argnums, donate_argnums=donate_argnums, **options)
    compiled._jit.spell(**spelling)
    return compiled


def with_sharding_constraint(x: Any, axis_resources: Any) -> Any:
    """`lax.with_sharding_constraint` under its older signature.

    Args:
      x: a tree of arrays.
      axis_resources: the specs or shardings, a tree prefix of it.

    Returns:
      The tree, lying so.

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
