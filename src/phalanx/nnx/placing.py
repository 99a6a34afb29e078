"""Placing a value by the names of its dimensions: what `out_sharding` of a variable means where a mesh is in context.

Builds on `sharding` and `lax`; called by `variable` when a variable is made and by `partitioning` for whole trees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phalanx.core.aval import ShapeDtypeStruct
from phalanx.core.config import state
from phalanx.core.errors import ShardingError
from phalanx.lax.explicit import placed as lying
from phalanx.runtime.array import Array
from phalanx.sharding import NamedSharding, PartitionSpec

_rules: list[dict[str, Any]] = [{}]
_eager: list[bool] = [True]


@contextlib.contextmanager
def logical_axis_rules(rules: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Say for a block which mesh axes the logical names in `out_sharding` stand for.

    Args:
      rules: for each logical name a mesh axis, several, or None.

    Returns:
      A context manager.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.logical_axis_rules({"embed": "model"}):
      ...     nnx.get_partition_spec({"w": nnx.Param(1.0, out_sharding=("embed", None))})["w"].value
      PartitionSpec('model', None)
    """
    _rules.append({**_rules[-1], **dict(rules)})
    try:
        yield
    finally:
        _rules.pop()


class use_eager_sharding(contextlib.ContextDecorator):
    """Say whether variables with `out_sharding` are placed when they are made: at once, and for a `with` block.

    Args:
      value: whether they are.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.use_eager_sharding(False):
      ...     nnx.using_eager_sharding()
      False
    """

    def __init__(self, value: bool, /):
        self._before = _eager[0]
        _eager[0] = value

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        _eager[0] = self._before


def using_eager_sharding() -> bool:
    """Whether variables with `out_sharding` are placed when they are made.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.using_eager_sharding()
      True
    """
    return _eager[0]


def spec_of(names: Any, rules: Any = None) -> PartitionSpec:
    """The partition spec of dimension names, logical ones translated."""
    table = {**_rules[-1], **(dict(rules) if rules else {})}
    return PartitionSpec(
        *(tuple(table.get(n, n) for n in d) if isinstance(d, tuple) else table.get(d, d) for d in names)
    )


def placed(value: Any, names: Any, mesh: Any = None, rules: Any = None) -> Any:
    """A value spread over the mesh as the names of its dimensions say.

    While tracing, the spread is a constraint; at once, a move. Without a mesh the value stays where it is.

    Raises:
      ShardingError: there are more names than dimensions.
    """
    mesh = mesh if mesh is not None else state.context.mesh
    if mesh is None or not _eager[0] or not hasattr(value, "ndim"):
        return value
    if isinstance(names, NamedSharding):
        sharding = names
    else:
        spec = spec_of(names, rules)
        if len(spec) > value.ndim:
            raise ShardingError(
                "out_sharding of a variable",
                expected=f"at most {value.ndim} entries for a value of shape {tuple(value.shape)}",
                got=repr(tuple(names)),
                mend="name each dimension once",
            )
        sharding = NamedSharding(mesh, spec)
    if isinstance(value, ShapeDtypeStruct):
        return value.update(sharding=sharding)
    return lying(value, sharding, "out_sharding of a variable") if isinstance(value, Array) else value
