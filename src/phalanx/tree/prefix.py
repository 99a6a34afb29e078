"""Tree prefixes: broadcasting a prefix over a full tree, and errors that name the place where two trees differ.

`vmap`'s axes, `jit`'s shardings and all comparisons of structures use these functions. The work is done in C++; the
walk in Python runs only to write an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from phalanx.engine import TreeError, pytree
from phalanx.tree.key_paths import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey, keystr

_LONGEST_SHOWN = 100
"""Characters of a value's `repr` that an error shows, beyond which it names the type."""


def broadcast_prefix(
    prefix: Any,
    full: Any,
    *,
    what: str = "prefix",
    is_leaf: Callable[[Any], bool] | None = None,
    lists_as_tuples: bool = False,
) -> list[Any]:
    """Repeat each leaf of a prefix for all leaves of the corresponding subtree.

    Args:
      prefix: a tree with leaves where the full tree may have subtrees.
      full: the full tree.
      what: the user's name for the prefix, for errors.
      is_leaf: returns True for nodes of the prefix to treat as leaves.
      lists_as_tuples: whether a list in one tree matches a tuple in the other.

    Returns:
      One value for each leaf of `full`, in order.

    Raises:
      TreeError: `prefix` is not a prefix of `full`; the error names the first place.

    Examples:
      >>> broadcast_prefix({"a": 0, "b": 1}, {"a": ("x", "y"), "b": "z"})
      [0, 0, 1]
    """
    # The common case is two C++ calls; the comparison in Python runs only after `flatten_up_to` has failed.
    values, treedef = pytree.flatten(prefix, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full)
    except ValueError:
        # Tried only after a mismatch, so that calls with matching types do not pay for the conversion.
        if lists_as_tuples:
            prefix = _with_sequences_of(full, prefix, is_leaf)
            return broadcast_prefix(prefix, full, what=what, is_leaf=is_leaf)
        for error in prefix_errors(prefix, full, what=what, is_leaf=is_leaf):
            raise error from None
        raise
    result: list[Any] = []
    for value, subtree in zip(values, subtrees):
        result += [value] * len(pytree.flatten(subtree, None)[0])
    return result


def flatten_axes(
    what: str, treedef: Any, prefix: Any, *, is_leaf: Callable[[Any], bool] | None = None, lists_as_tuples: bool = False
) -> list[Any]:
    """As `broadcast_prefix`, over a structure instead of a full tree.

    Args:
      what: the user's name for `prefix`; errors begin with it.
      treedef: the structure.
      prefix: a tree that is a prefix of the structure.
      is_leaf: returns True for nodes of `prefix` to treat as leaves.
      lists_as_tuples: whether a list in `prefix` matches a tuple in the structure.

    Returns:
      For each leaf of the structure, the corresponding leaf of `prefix`.

    Raises:
      TreeError: `prefix` is not a prefix of the structure.

    Examples:
      >>> flatten_axes("in_axes", pytree.flatten(("x", ["y"]), None)[1], [0, 1], lists_as_tuples=True)
      [0, 1]
    """
    full = treedef.unflatten([LEAF] * treedef.num_leaves)
    return broadcast_prefix(prefix, full, what=what, is_leaf=is_leaf, lists_as_tuples=lists_as_tuples)


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Repeat the leaves of a prefix to the structure of a full tree.

    Args:
      prefix_tree: a tree with leaves where the full tree may have subtrees.
      full_tree: the tree with the structure of the result.
      is_leaf: returns True for nodes of either tree to treat as leaves.

    Returns:
      The tree with the structure of `full_tree` and the leaves of `prefix_tree`.

    Raises:
      TreeError: `prefix_tree` is not a prefix of `full_tree`; the error names the first place.

    Examples:
      >>> tree_broadcast((0, 1), ("x", {"a": "y", "b": ["z"]}))
      (0, {'a': 1, 'b': [1]})
    """
    leaves, treedef = pytree.flatten(full_tree, is_leaf)
    full = treedef.unflatten([LEAF] * len(leaves))
    return treedef.unflatten(broadcast_prefix(prefix_tree, full, is_leaf=is_leaf))


def prefix_errors(
    prefix: Any,
    full: Any,
    *,
    what: str = "prefix",
    is_leaf: Callable[[Any], bool] | None = None,
    blame: Literal["prefix", "full"] = "prefix",
) -> Iterator[TreeError]:
    """Make the errors for all places where one tree is not a prefix of another.

    Args:
      prefix, full: the two trees.
      what: the user's name for the wrong tree.
      is_leaf: returns True for nodes of the prefix to treat as leaves.
      blame: the tree to report as wrong.

    Yields:
      One `TreeError` for each place, in order.

    Examples:
      >>> print(next(prefix_errors({"a": 0}, {"a": 1, "b": 2}, what="in_axes")))
      in_axes: expected a leaf or a dict with keys ['a', 'b'], got a dict with keys ['a'].
        Fix: add 'b'.
    """
    for place in _disagreements(prefix, full, (), is_leaf, exact=False):
        yield place.prefix_error(what) if blame == "prefix" else place.full_error(what)


def equality_errors(expected: Any, got: Any, *, what: str = "tree") -> Iterator[TreeError]:
    """Make the errors for all places where the structure of a tree differs from the expected one.

    Args:
      expected, got: trees or `PyTreeDef`s.
      what: the user's name for `got`.

    Yields:
      One `TreeError` for each place, in order.

    Examples:
      >>> print(next(equality_errors({"w": (1, 2)}, {"w": (1,)}, what="carry")))
      carry['w']: expected a tuple of length 2, got a tuple of length 1.
        Fix: add the element [1].
    """
    for place in _disagreements(_as_tree(expected), _as_tree(got), (), None, exact=True):
        yield place.full_error(what)


class _Leaf:
    """A placeholder for a leaf whose value is unknown."""

    def __repr__(self) -> str:
        return "*"


LEAF = _Leaf()


def _as_tree(tree: Any) -> Any:
    return tree.unflatten([LEAF] * tree.num_leaves) if isinstance(tree, pytree.PyTreeDef) else tree


class _Node(NamedTuple):
    """A node of a tree: its type, its auxiliary data, and its children by their keys."""

    kind: type
    data: Any
    children: dict[Any, Any]


def _flatten_node(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> _Node | None:
    """Flatten a tree by one level; None for a leaf."""
    if is_leaf is not None and is_leaf(tree):
        return None
    opened = pytree.flatten_one_level_with_keys(tree)
    return None if opened is None else _Node(type(tree), opened[1], dict(opened[0]))


class _Disagreement(NamedTuple):
    """A place where two trees differ."""

    path: KeyPath
    prefix: Any
    full: Any

    def prefix_error(self, what: str) -> TreeError:
        """The error if the prefix is wrong."""
        wanted = describe_tree(self.full)
        expected = f"a leaf or {wanted}" if _flatten_node(self.full) else "a leaf, where the full tree has one"
        remedy = self._suggest_tuple() or _suggest_change(self.prefix, self.full)
        return TreeError(what + keystr(self.path), expected=expected, got=describe_tree(self.prefix), fix=remedy)

    def full_error(self, what: str) -> TreeError:
        """The error if the full tree is wrong."""
        return TreeError(
            what + keystr(self.path),
            expected=describe_tree(self.prefix) if _flatten_node(self.prefix) else "a leaf",
            got=describe_tree(self.full),
            fix=_suggest_change(self.full, self.prefix),
        )

    def _suggest_tuple(self) -> str:
        """The remedy for the most frequent mistake, or an empty text.

        `in_axes` or `in_shardings` of a function of one argument is given for the argument instead of for the tuple of
        arguments.
        """
        prefix, full = _flatten_node(self.prefix), _flatten_node(self.full)
        if self.path or prefix is None or full is None or full.kind is not tuple or len(full.children) != 1:
            return ""
        (only,) = full.children.values()
        differences = _disagreements(self.prefix, only, (), lambda leaf: leaf is None, exact=False)
        return "" if prefix.kind is tuple and any(differences) else "wrap it in a tuple of one element: (spec,)"


def _suggest_change(tree: Any, wanted: Any) -> str:
    """The change that makes the outermost node of a tree that of another tree."""
    old, new = _flatten_node(tree), _flatten_node(wanted)
    if new is None:
        return f"replace {describe_tree(tree)} by one leaf"
    if old is not None and {old.kind, new.kind} == {list, tuple}:
        return f"convert it with {new.kind.__name__}()"
    if old is None or old.kind is not new.kind:
        return f"replace {describe_tree(tree)} by {describe_tree(wanted)}"
    missing = [_name_child(key) for key in new.children if key not in old.children]
    unknown = [_name_child(key) for key in old.children if key not in new.children]
    steps = [f"add {', '.join(missing)}"] * bool(missing) + [f"remove {', '.join(unknown)}"] * bool(unknown)
    return " and ".join(steps) or f"give it the data of {describe_tree(wanted)}"


def _name_child(key: Any) -> str:
    """Name a child of a node: by the key in a dict, else as the path to it."""
    return repr(key.key) if isinstance(key, DictKey) else f"the element {keystr((key,))}"


def _disagreements(
    prefix: Any, full: Any, path: KeyPath, is_leaf: Callable[[Any], bool] | None, exact: bool
) -> Iterator[_Disagreement]:
    """Compare two trees; with `exact`, a leaf of the first matches only a leaf of the second."""
    left = _flatten_node(prefix, is_leaf)
    if left is None:
        if exact and _flatten_node(full) is not None:
            yield _Disagreement(path, prefix, full)
        return
    right = _flatten_node(full)
    if right is None or left.kind is not right.kind or not _same_node(left, right):
        yield _Disagreement(path, prefix, full)
        return
    for (key, a), b in zip(left.children.items(), right.children.values()):
        yield from _disagreements(a, b, (*path, key), is_leaf, exact)


def _same_node(left: _Node, right: _Node) -> bool:
    """Compare two nodes of the same type without their children."""
    return list(left.children) == list(right.children) and bool(left.data == right.data)


def _with_sequences_of(full: Any, prefix: Any, is_leaf: Callable[[Any], bool] | None) -> Any:
    """Convert the lists and tuples of a prefix to the types of the corresponding nodes of the full tree."""
    left, right = _flatten_node(prefix, is_leaf), _flatten_node(full)
    if left is None or right is None or left.children.keys() != right.children.keys():
        return prefix
    kinds = {left.kind, right.kind}
    if len(kinds) > 1 and kinds != {list, tuple}:
        return prefix
    children = [_with_sequences_of(right.children[key], child, is_leaf) for key, child in left.children.items()]
    if kinds <= {list, tuple}:
        return right.kind(children)
    return pytree.flatten(prefix, lambda x: x is not prefix)[1].unflatten(children)


def describe_tree(tree: Any) -> str:
    """Describe a tree by its outermost node, for the text of an error.

    Examples:
      >>> describe_tree({"a": 1}), describe_tree([1, 2]), describe_tree(3)
      ("a dict with keys ['a']", 'a list of length 2', 'the leaf 3')
    """
    node = _flatten_node(tree)
    if node is None:
        return "a leaf" if tree is LEAF else f"the leaf {_shorten(tree)}"
    if tree is None:
        return "None"
    keys = list(node.children)
    name = f"{'an' if node.kind.__name__[0].lower() in 'aeiou' else 'a'} {node.kind.__name__}"
    if node.kind in (tuple, list):
        return f"{name} of length {len(keys)}"
    if isinstance(tree, dict):
        return f"{name} with keys {[key.key for key in keys]}"
    if keys and all(isinstance(key, GetAttrKey) for key in keys):
        detail = f" with fields {[key.name for key in keys]}"
    elif all(isinstance(key, SequenceKey | FlattenedIndexKey) for key in keys):
        detail = f" with {len(keys)} children"
    else:
        detail = f" with children {[keystr((key,)) for key in keys]}"
    has_data = node.data is not None and node.data != () and not isinstance(node.data, type)
    return f"{name}{detail}" + (f" and data {_shorten(node.data)}" if has_data else "")


def _shorten(value: Any) -> str:
    """The `repr` of a value, or its type if that is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN and "\n" not in text else f"of type {type(value).__name__}"
