"""Change the metadata of all variables in a graph: `set_metadata` and `with_vars`."""

from __future__ import annotations

from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graphlib import split_merge
from phalanx.nnx.graphlib.graph_walk import get_graph
from phalanx.nnx.graphlib.states import Path, format_path
from phalanx.nnx.variable import Variable
from phalanx.typing import PyTree


def set_metadata(node: PyTree, /, *, only: Filter = ..., **metadata: Any) -> None:
    """Set metadata of all variables in a module.

    Args:
      node: a module, or a tree of modules.
      only: the variables whose metadata is set.
      **metadata: metadata by name.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> nnx.set_metadata([w], tag="slow")
      >>> w.tag
      'slow'
    """
    predicate = to_predicate(only)
    found = get_graph(node)
    for path, variable in zip(found.paths, found.variables, strict=True):
        if predicate(path, variable):
            variable.set_metadata(**metadata)


def with_vars(
    node: PyTree,
    /,
    *,
    hijax: bool | None = None,
    ref: bool | None = None,
    only: Filter = ...,
    allow_duplicates: bool = False,
) -> Any:
    """Copy a module, with variables that plain transformations change too, or do not change.

    Args:
      node: a module, or a tree of modules.
      hijax, ref: as in `nnx.Variable`; None to leave a mode as it is.
      only: the variables to change. All others, and those that have the modes already, are shared with the original.
      allow_duplicates: whether variables that are changed may occur several times.

    Returns:
      The new module.

    Raises:
      ArgumentError: a variable that is changed occurs several times.

    Examples:
      >>> import phalanx
      >>> from phalanx import nnx
      >>> count = nnx.with_vars(nnx.Variable(0), hijax=True)
      >>> @phalanx.jit
      ... def step(count):
      ...     count.value += 1
      >>> step(count)
      >>> int(count.value)
      1
    """
    modes = {name: value for name, value in (("hijax", hijax), ("ref", ref)) if value is not None}
    predicate = to_predicate(only)

    def is_changed(path: Path, x: Any) -> bool:
        return isinstance(x, Variable) and any(getattr(x, k) != v for k, v in modes.items()) and predicate(path, x)

    def change(path: Path, x: Any) -> Any:
        return x.copy(**modes) if is_changed(path, x) else x

    if not allow_duplicates and (duplicates := split_merge.find_duplicates(node, only=is_changed)):
        raise ArgumentError(
            "with_vars",
            expected="each variable that is changed once",
            got=f"the same variable at {' and '.join(format_path(path) for path in duplicates[0])}",
            fix="pass allow_duplicates=True, which keeps it shared",
        )
    return split_merge.map(
        lambda path, x: x.copy(**modes) if is_changed(path, x) else x, node, recreate_variables=False
    )
