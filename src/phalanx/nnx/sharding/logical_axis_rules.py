"""Sharding of values by the names of their dimensions: the metadata `out_sharding` and logical axis rules.

`variable` shards a new variable with `shard_by_names`; `partitioning` handles whole trees.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from phalanx.core import ShapeDtypeStruct, ShardingError, state
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.nnx.settings import Setting
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec

DimNames: TypeAlias = Sequence[str | tuple[str, ...] | None]
"""The mesh axis or logical name of each dimension, a tuple of several, or None."""

AxisRules: TypeAlias = Mapping[str, Any] | Sequence[tuple[str, Any]]
"""The mesh axis, a tuple of axes, or None for each logical name."""

_NO_RULES: Mapping[str, Any] = {}
_rules = contextvars.ContextVar("phalanx.nnx.logical_axis_rules", default=_NO_RULES)


@contextlib.contextmanager
def logical_axis_rules(rules: AxisRules) -> Iterator[None]:
    """Set the mesh axes of logical names in `out_sharding`, for a `with` block.

    Args:
      rules: a mesh axis, a tuple of axes, or None for each logical name.

    Returns:
      A context manager.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.logical_axis_rules({"embed": "model"}):
      ...     nnx.get_partition_spec({"w": nnx.Param(1.0, out_sharding=("embed", None))})["w"].value
      P('model', None)
    """
    # Inner blocks extend and override the rules of outer blocks.
    token = _rules.set({**_rules.get(), **dict(rules)})
    try:
        yield
    finally:
        _rules.reset(token)


class use_eager_sharding(Setting):
    """Set whether variables with `out_sharding` are sharded on creation: at once, or for a `with` block or a function.

    Args:
      value: whether they are sharded.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.use_eager_sharding(False):
      ...     nnx.using_eager_sharding()
      False
    """

    _option = "flax_always_shard_variable"


def using_eager_sharding() -> bool:
    """Whether variables with `out_sharding` are sharded on creation.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.using_eager_sharding()
      True
    """
    return use_eager_sharding.current_value()


def get_spec(names: DimNames, rules: AxisRules | None = None) -> PartitionSpec:
    """The partition spec of dimension names, with logical names replaced by mesh axes."""
    table = {**_rules.get(), **(dict(rules) if rules else {})}
    return PartitionSpec(
        *(tuple(table.get(n, n) for n in d) if isinstance(d, tuple) else table.get(d, d) for d in names)
    )


def shard_by_names(
    value: Any, names: DimNames | NamedSharding, mesh: Mesh | None = None, rules: AxisRules | None = None
) -> Any:
    """Shard a value over a mesh according to the names of its dimensions.

    Inside of a trace this is a sharding constraint, otherwise a transfer. Without a mesh the value is not changed.

    Args:
      value: an array or a shape.
      names: the name of each dimension.
      mesh: the mesh; None for the mesh in context.
      rules: mesh axes of logical names, in addition to `logical_axis_rules`.

    Returns:
      The sharded value.

    Raises:
      ShardingError: there are more names than dimensions.
    """
    mesh = mesh if mesh is not None else state.context.mesh
    if mesh is None or not use_eager_sharding.current_value() or not hasattr(value, "ndim"):
        return value
    if isinstance(names, NamedSharding):
        sharding = names
    else:
        spec = get_spec(names, rules)
        if len(spec) > value.ndim:
            raise ShardingError(
                "out_sharding of a variable",
                expected=f"at most {value.ndim} entries for a value of shape {tuple(value.shape)}",
                got=repr(tuple(names)),
                fix=f"pass one name or None for each dimension, such as out_sharding={tuple(names)[: value.ndim]}",
            )
        sharding = NamedSharding(mesh, spec)
    if isinstance(value, ShapeDtypeStruct):
        return value.update(sharding=sharding)
    is_array = isinstance(value, Array)
    return apply_out_sharding(value, sharding, "out_sharding of a variable") if is_array else value
