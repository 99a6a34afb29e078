"""The leaves of a tree under their names in a checkpoint, and the tree with other values.

A name is the path of keys, joined by "/": `layers/0/kernel`; "~" and "/" in a key are written "~0" and "~1", as in a
JSON pointer. Modules of `nnx` are entered through their state and `Variable`s through their value, so that a module,
its state and a tree of plain dicts with the same keys have the same names. Builds on `tree` and `nnx`; `saving` and
`loading` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from phalanx import nnx
from phalanx.core import ArgumentError, Ref
from phalanx.tree import flatten_one_level_with_keys, is_tree_node, keystr, tree_flatten_with_path, tree_unflatten

Rebuild: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""A function from values by name to the tree with these values; it updates modules and references in place."""


class NamedLeaf(NamedTuple):
    """A leaf of a tree: its name, its value (of a `Ref`, the reference), and the variable that contains it, if any."""

    name: str
    value: Any
    variable: nnx.Variable | None

    @property
    def elements(self) -> Any:
        """The value; of a `Ref`, its contents."""
        return self.value[...] if isinstance(self.value, Ref) else self.value


def flatten_named(tree: Any, where: str) -> tuple[list[NamedLeaf], Rebuild]:
    """Flatten a tree to its named leaves.

    Args:
      tree: any pytree; modules, variables and references may be anywhere in it.
      where: the operation and argument, for errors.

    Returns:
      The leaves, and the function that rebuilds the tree.

    Raises:
      ArgumentError: two leaves have the same name.
    """
    leaves, rebuild = _flatten(tree, (), None)
    names: set[str] = set()
    for leaf in leaves:
        if leaf.name in names:
            raise ArgumentError(
                where,
                expected="leaves with different paths",
                got=f"two leaves with the path {leaf.name!r}",
                fix="rename one of the keys; 1 and '1' are the same key in a checkpoint",
            )
        names.add(leaf.name)
    return leaves, rebuild


def _flatten(tree: Any, prefix: tuple[str, ...], variable: nnx.Variable | None) -> tuple[list[NamedLeaf], Rebuild]:
    entries, treedef = tree_flatten_with_path(tree, is_leaf=_is_stateful)
    leaves: list[NamedLeaf] = []
    rebuilds: list[Rebuild] = []
    for path, node in entries:
        found, rebuild = _flatten_leaf(node, (*prefix, *map(_format_key, path)), variable)
        leaves += found
        rebuilds.append(rebuild)
    return leaves, lambda values: tree_unflatten(treedef, [rebuild(values) for rebuild in rebuilds])


def _flatten_leaf(node: Any, keys: tuple[str, ...], variable: Any) -> tuple[list[NamedLeaf], Rebuild]:
    name = "/".join(keys)
    match node:
        case nnx.Pytree():
            leaves, rebuild_state = _flatten(nnx.state(node), keys, None)

            def update_module(values: Mapping[str, Any]) -> Any:
                nnx.update(node, rebuild_state(values))
                return node

            return leaves, update_module
        case nnx.Variable():
            leaves, rebuild_value = _flatten(node.get_raw_value(), keys, node)
            return leaves, lambda values: node.copy(rebuild_value(values))
        case Ref():

            def update_reference(values: Mapping[str, Any]) -> Any:
                node[...] = values[name]
                return node

            return [NamedLeaf(name, node, variable)], update_reference
    return [NamedLeaf(name, node, variable)], lambda values: values[name]


def _is_stateful(node: Any) -> bool:
    return isinstance(node, (nnx.Pytree, nnx.Variable))


def _format_key(key: Any) -> str:
    return _escape(keystr((key,), simple=True))


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def join_keys(keys: Sequence[str]) -> str:
    """The name of the leaf below some keys."""
    return "/".join(map(_escape, keys))


def split_name(name: str) -> list[str]:
    """The keys of a name: the inverse of `join_keys`."""
    return [key.replace("~1", "/").replace("~0", "~") for key in name.split("/")]


def describe_structure(tree: Any, prefix: tuple[str, ...] = ()) -> Any:
    """Describe the containers of a tree as JSON data, in which a leaf is its name.

    Args:
      tree: the tree, as for `flatten_named`.
      prefix: the formatted keys above it.

    Returns:
      None, a name, `{"list": [...]}`, `{"tuple": [...]}` or `{"dict": [[key, ...], ...]}`. Containers of other classes
      become dicts of their children.
    """
    if isinstance(tree, nnx.Pytree):
        return describe_structure(nnx.state(tree), prefix)
    if isinstance(tree, nnx.Variable):
        return describe_structure(tree.get_raw_value(), prefix)
    if tree is None:
        return None
    if not is_tree_node(type(tree)):
        return "/".join(prefix)
    children, _ = flatten_one_level_with_keys(tree)
    described = [(key, describe_structure(child, (*prefix, _format_key(key)))) for key, child in children]
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [child for _, child in described]}
    return {"dict": [[_json_key(key), child] for key, child in described]}


def _json_key(key: Any) -> Any:
    """The key of a dict as it is if JSON has it, any other key as text."""
    bare = getattr(key, "key", None)
    return bare if type(bare) in (str, int, bool) else keystr((key,), simple=True)


def build_structure(structure: Any, make_leaf: Callable[[str], Any]) -> Any:
    """Build the containers that `describe_structure` describes, with a leaf for each name."""
    match structure:
        case None:
            return None
        case str(name):
            return make_leaf(name)
        case {"list": children}:
            return [build_structure(child, make_leaf) for child in children]
        case {"tuple": children}:
            return tuple([build_structure(child, make_leaf) for child in children])
        case {"dict": pairs}:
            return {key: build_structure(child, make_leaf) for key, child in pairs}
    raise ValueError(f"no container: {structure!r}")


def nest_names(names: Sequence[str]) -> Any:
    """The structure of nested dicts with these leaves, for formats that store names only.

    Below a leaf there can be no dict: of leaves `x` and `x/y/z`, the second one has the key "x.y.z".
    """
    if list(names) == [""]:
        return ""
    root: dict[str, Any] = {}
    for keys in sorted(name.split("/") for name in names):  # `x` comes before `x/y`
        node, depth = root, 0
        while depth < len(keys) - 1 and isinstance(child := node.setdefault(keys[depth], {}), dict):
            node, depth = child, depth + 1
        node[".".join(keys[depth:])] = "/".join(keys)
    return _as_structure(root)


def _as_structure(node: Any) -> Any:
    if isinstance(node, str):
        return node
    return {"dict": [[split_name(key)[0], _as_structure(child)] for key, child in node.items()]}
