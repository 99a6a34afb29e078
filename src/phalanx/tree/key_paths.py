"""Paths into trees: their keys, and their format.

Builds on `phalanx.engine.pytree`. Errors about pytrees show paths as `keystr` formats them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from phalanx.engine import pytree

DictKey: TypeAlias = pytree.DictKey
SequenceKey: TypeAlias = pytree.SequenceKey
GetAttrKey: TypeAlias = pytree.GetAttrKey
FlattenedIndexKey: TypeAlias = pytree.FlattenedIndexKey

KeyEntry: TypeAlias = Any
"""One step of a path: one of the four key types, or a key that the flatten function of a registered type returns."""

KeyPath: TypeAlias = tuple[KeyEntry, ...]
"""The steps from the root of a tree to a place in it."""


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Format a path.

    Args:
      keys: the path.
      simple: format keys without brackets, quotes and dots.
      separator: the text between two keys.

    Returns:
      The text. By default it is the Python expression that follows the name of the tree.

    Examples:
      >>> path = (DictKey("layers"), SequenceKey(0), GetAttrKey("w"))
      >>> keystr(path)
      "['layers'][0].w"
      >>> keystr(path, simple=True, separator="/")
      'layers/0/w'
    """
    return separator.join([_bare(key) for key in keys] if simple else map(str, keys))


def leaf_path(tree: Any, i: int) -> str:
    """The formatted path of leaf `i` of a tree; it walks the whole tree, so only errors use it."""
    return keystr(pytree.flatten_with_path(tree, None)[0][i][0])


def _bare(key: KeyEntry) -> str:
    """Format a key without its decoration."""
    match key:
        case DictKey() | FlattenedIndexKey():
            return str(key.key)
        case SequenceKey():
            return str(key.idx)
        case GetAttrKey():
            return key.name
        case _:
            return str(key)
