"""The engine's C++ pytrees: a registry, the structures of trees, and the keys of paths.

`phalanx.tree` has the public functions. The registry is separate from that of jax, so that both can register the same
types in one process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxlib._jax import pytree as _pytree
from jaxlib._jax.pytree import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    PyTreeDef as PyTreeDef,
    SequenceKey as SequenceKey,
)

registry = _pytree.PyTreeRegistry()
# A PyTreeDef pickles its nodes and the global name of its registry, which consists of these two attributes.
registry.__module__ = __name__
registry.__name__ = "registry"

flatten = registry.flatten
"""`flatten(tree, is_leaf=None) -> (leaves, treedef)`: the C++ call itself, positional arguments only."""

flatten_with_path = registry.flatten_with_path
"""`flatten_with_path(tree, is_leaf=None) -> ([(path, leaf), ...], treedef)`; the predicate takes path and value."""

flatten_one_level = registry.flatten_one_level
"""`flatten_one_level(tree) -> (children, data)`, or None for a leaf: the outermost node taken off."""


def treedef_tuple(treedefs: Iterable[Any]) -> Any:
    """Make the structure of a tuple from the structures of its elements."""
    return _pytree.treedef_tuple(registry, list(treedefs))


def all_leaves(values: Iterable[Any]) -> bool:
    """Whether no value is a node."""
    return _pytree.all_leaves(registry, values)


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any] | None:
    """Flatten a tree by one level: pairs (key, child) and the node's auxiliary data, or None for a leaf."""
    opened: tuple[Iterable[tuple[Any, Any]], Any] | None = registry.flatten_one_level_with_keys(tree)
    if opened is None or not isinstance(opened[1], type):
        return opened
    # jaxlib 0.10 gives every field of a named tuple the key of the first field.
    fields: tuple[str, ...] = opened[1]._fields  # type: ignore[attr-defined]
    return tuple((GetAttrKey(name), child) for name, child in zip(fields, tree)), opened[1]
