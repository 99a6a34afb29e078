"""Conversion between nested mappings and flat mappings from paths, for parameters outside of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from phalanx.core import ArgumentTypeError
from phalanx.tree import register_static

Path: TypeAlias = tuple[Any, ...]


@register_static
class _EmptyNode:
    """Represents an empty mapping in a flat mapping; a pytree without leaves."""

    def __repr__(self) -> str:
        return "empty_node"


empty_node = _EmptyNode()


def flatten_mapping(
    xs: Mapping[Any, Any],
    /,
    *,
    keep_empty_nodes: bool = False,
    is_leaf: Callable[[Path, Any], bool] | None = None,
    sep: str | None = None,
) -> dict[Any, Any]:
    """Flatten a nested mapping to a mapping from paths to leaves.

    Args:
      xs: the nested mapping.
      keep_empty_nodes: whether to represent empty mappings by `empty_node`; by default they are omitted.
      is_leaf: whether to treat a mapping as a leaf, `(path, mapping) -> bool`.
      sep: joins the keys of a path to a string; if omitted, paths are tuples.

    Returns:
      A dictionary.

    Raises:
      ArgumentTypeError: `xs` is not a mapping.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.flatten_mapping({"a": {"b": 1}, "c": 2}, sep="/")
      {'a/b': 1, 'c': 2}
    """
    if not isinstance(xs, Mapping):
        raise ArgumentTypeError(
            "flatten_mapping, argument xs",
            expected="a mapping",
            got=f"a {type(xs).__name__}",
            fix="pass a dictionary or an nnx.State; nnx.state(module) returns the state of a module",
        )

    def leaves(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if not isinstance(node, Mapping) or (is_leaf is not None and is_leaf(path, node)):
            yield path, node
        elif node:
            for key, value in node.items():
                yield from leaves(value, (*path, key))
        elif keep_empty_nodes and path:
            yield path, empty_node

    return {path if sep is None else sep.join(map(str, path)): leaf for path, leaf in leaves(xs, ())}


def unflatten_mapping(
    xs: Mapping[Any, Any] | Iterable[tuple[Any, Any]], /, *, sep: str | None = None
) -> dict[Any, Any]:
    """Nest a mapping from paths to leaves: the inverse of `flatten_mapping`.

    Args:
      xs: the flat mapping, or pairs (path, leaf).
      sep: the separator of keys, if paths are strings.

    Returns:
      Nested dictionaries.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.unflatten_mapping({("a", "b"): 1, ("c",): 2})
      {'a': {'b': 1}, 'c': 2}
    """
    pairs = xs.items() if isinstance(xs, Mapping) else xs
    root: dict[Any, Any] = {}
    for path, leaf in pairs:
        *parents, last = path if sep is None else path.split(sep)
        node = root
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = {} if leaf is empty_node else leaf
    return root


def flatten_to_sequence(
    xs: Mapping[Any, Any], /, *, is_leaf: Callable[[Path, Any], bool] | None = None
) -> list[tuple[Path, Any]]:
    """Flatten a nested mapping to pairs (path, leaf).

    Args:
      xs: the nested mapping.
      is_leaf: as in `flatten_mapping`.

    Returns:
      A list of pairs.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.flatten_to_sequence({"a": {"b": 1}, "c": 2})
      [(('a', 'b'), 1), (('c',), 2)]
    """
    return list(flatten_mapping(xs, is_leaf=is_leaf).items())
