"""Paths into trees: the keys they are made of, and how a path is written.

Builds on `phalanx.engine.pytree`; the errors of every room above show places in trees as `keystr` writes them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from phalanx.engine import pytree

DictKey: TypeAlias = pytree.DictKey
SequenceKey: TypeAlias = pytree.SequenceKey
GetAttrKey: TypeAlias = pytree.GetAttrKey
FlattenedIndexKey: TypeAlias = pytree.FlattenedIndexKey

KeyEntry: TypeAlias = Any
"""One step of a path: one of the four key types, or what a registered node gives as a key."""

KeyPath: TypeAlias = tuple[KeyEntry, ...]
"""The steps from the root of a tree to a place in it."""


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Write a path as text.

    Args:
      keys: the path.
      simple: whether to write the bare keys, without brackets, quotes and dots.
      separator: what to put between two keys.

    Returns:
      The text; it is the Python expression that follows the tree's name, unless `simple` or `separator` is given.

    Examples:
      >>> path = (DictKey("layers"), SequenceKey(0), GetAttrKey("w"))
      >>> keystr(path)
      "['layers'][0].w"
      >>> keystr(path, simple=True, separator="/")
      'layers/0/w'
    """
    return separator.join([_bare(key) for key in keys] if simple else map(str, keys))


def leaf_path(tree: Any, i: int) -> str:
    """The path of leaf `i` of a tree, as text: for errors, since it walks the tree."""
    return keystr(pytree.flatten_with_path(tree, None)[0][i][0])


def _bare(key: KeyEntry) -> str:
    """Write one key without its decoration."""
    match key:
        case DictKey() | FlattenedIndexKey():
            return str(key.key)
        case SequenceKey():
            return str(key.idx)
        case GetAttrKey():
            return key.name
        case _:
            return str(key)
