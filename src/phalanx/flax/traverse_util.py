"""Nested dictionaries as flat ones, whose keys are paths, and functions of paths and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.engine.public_namespace import publish as _publish
from phalanx.flax.frozen_dict import FrozenDict
from phalanx.nnx.traversals import empty_node as empty_node, flatten_mapping, unflatten_mapping


def flatten_dict(
    xs: Mapping[Any, Any],
    keep_empty_nodes: bool = False,
    is_leaf: Callable[[tuple, Any], bool] | None = None,
    sep: str | None = None,
) -> dict[Any, Any]:
    """Flatten nested dictionaries to one whose keys are paths.

    Args:
      xs: a dictionary, a `FrozenDict` or another mapping.
      keep_empty_nodes: whether an empty dictionary has the entry `empty_node`; otherwise it is omitted.
      is_leaf: `is_leaf(path, mapping)`, whether a dictionary is a value.
      sep: joins the keys of a path to text; None for paths that are tuples.

    Returns:
      The dictionary.

    Raises:
      ArgumentTypeError: `xs` is no mapping.

    Examples:
      >>> from phalanx.flax import traverse_util
      >>> traverse_util.flatten_dict({"a": 1, "b": {"c": 2}}, sep="/")
      {'a': 1, 'b/c': 2}
    """
    return flatten_mapping(xs, keep_empty_nodes=keep_empty_nodes, is_leaf=is_leaf, sep=sep)


def unflatten_dict(xs: Mapping[Any, Any], sep: str | None = None) -> dict[Any, Any]:
    """Nest a dictionary whose keys are paths: the inverse of `flatten_dict`.

    Args:
      xs: the flat dictionary.
      sep: what joins the keys of a path; None for paths that are tuples.

    Returns:
      The nested dictionaries.

    Examples:
      >>> from phalanx.flax import traverse_util
      >>> traverse_util.unflatten_dict({"a": 1, "b/c": 2}, sep="/")
      {'a': 1, 'b': {'c': 2}}
    """
    return unflatten_mapping(xs, sep=sep)


def path_aware_map(f: Callable[[tuple, Any], Any], nested_dict: Mapping[Any, Any]) -> Any:
    """Replace each value of nested dictionaries by `f(path, value)`.

    Args:
      f: the function.
      nested_dict: a dictionary or a `FrozenDict`.

    Returns:
      Nested dictionaries, frozen if the argument is.

    Examples:
      >>> from phalanx.flax import traverse_util
      >>> traverse_util.path_aware_map(lambda path, x: "/".join(path), {"a": 1, "b": {"c": 2}})
      {'a': 'a', 'b': {'c': 'b/c'}}
    """
    flat = flatten_dict(nested_dict, keep_empty_nodes=True)
    mapped = unflatten_dict({path: x if x is empty_node else f(path, x) for path, x in flat.items()})
    return FrozenDict(mapped) if isinstance(nested_dict, FrozenDict) else mapped


__getattr__, __dir__ = _publish(globals(), also="empty_node")
