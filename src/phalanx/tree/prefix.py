"""Trees that are prefixes of other trees: spreading one over the other, and naming the place where they disagree.

Builds on `phalanx.engine.pytree`. `vmap`'s axes, `jit`'s shardings and every check that two trees have one structure
are written with these; the fast road is C++, and the walk in Python is taken only to write an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from phalanx.engine import pytree
from phalanx.engine.errors import TreeError
from phalanx.tree.paths import FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey, keystr

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
    """Spread the leaves of a prefix over the leaves of a full tree.

    Args:
      prefix: a tree whose leaves stand where the full tree has subtrees.
      full: the full tree.
      what: the name of the prefix in errors, as the user knows it.
      is_leaf: says of a node of the prefix that it is to be taken as a leaf.
      lists_as_tuples: whether a list in one tree may stand for a tuple in the other.

    Returns:
      One value for each leaf of `full`, in order.

    Raises:
      TreeError: the prefix is none; the error names the first place.

    Examples:
      >>> broadcast_prefix({"a": 0, "b": 1}, {"a": ("x", "y"), "b": "z"})
      [0, 0, 1]
    """
    values, treedef = pytree.flatten(prefix, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full)
    except ValueError:
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
    """As `broadcast_prefix`, over the leaves of a structure where the tree is not at hand.

    Args:
      what: the name of `prefix`, as the user knows it; errors begin with it.
      treedef: the structure.
      prefix: a tree whose structure is a prefix of that.
      is_leaf: says of a node of `prefix` that it is to be taken as a leaf.
      lists_as_tuples: whether a list of `prefix` may stand where the structure has a tuple.

    Returns:
      For each leaf of the structure the leaf of `prefix` that stands for it.

    Raises:
      TreeError: `prefix` does not fit the structure.

    Examples:
      >>> flatten_axes("in_axes", pytree.flatten(("x", ["y"]), None)[1], [0, 1], lists_as_tuples=True)
      [0, 1]
    """
    full = treedef.unflatten([LEAF] * treedef.num_leaves)
    return broadcast_prefix(prefix, full, what=what, is_leaf=is_leaf, lists_as_tuples=lists_as_tuples)


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Give a prefix the structure of a full tree, repeating its leaves.

    Args:
      prefix_tree: a tree whose leaves stand where the full tree has subtrees.
      full_tree: the tree whose structure the result has.
      is_leaf: says of a node of either tree that it is to be taken as a leaf.

    Returns:
      The tree with the structure of `full_tree` and the leaves of `prefix_tree`.

    Raises:
      TreeError: the prefix is none; the error names the first place.

    Examples:
      >>> tree_broadcast((0, 1), ("x", {"a": "y", "b": ["z"]}))
      (0, {'a': 1, 'b': [1]})
    """
    leaves, treedef = pytree.flatten(full_tree, is_leaf)
    values = broadcast_prefix(prefix_tree, treedef.unflatten([LEAF] * len(leaves)), is_leaf=is_leaf)
    return treedef.unflatten(values)


def prefix_errors(
    prefix: Any,
    full: Any,
    *,
    what: str = "prefix",
    is_leaf: Callable[[Any], bool] | None = None,
    blame: Literal["prefix", "full"] = "prefix",
) -> Iterator[TreeError]:
    """The errors, ready to be raised, for the places where a tree is no prefix of another.

    Args:
      prefix, full: the tree that should be a prefix, and of what.
      what: the name of the tree that is blamed, as the user knows it.
      is_leaf: says of a node of the prefix that it is to be taken as a leaf.
      blame: the tree that is taken to be the wrong one, and which the errors show.

    Yields:
      One `TreeError` for each such place, in order.

    Examples:
      >>> print(next(prefix_errors({"a": 0}, {"a": 1, "b": 2}, what="in_axes")))
      in_axes: expected a leaf or a dict with keys ['a', 'b'], got a dict with keys ['a'].
        To mend: add 'b'.
    """
    for place in _disagreements(prefix, full, (), is_leaf, exact=False):
        yield place.prefix_error(what) if blame == "prefix" else place.full_error(what)


def equality_errors(expected: Any, got: Any, *, what: str = "tree") -> Iterator[TreeError]:
    """The errors, ready to be raised, for the places where a tree differs in structure from the one expected.

    Args:
      expected, got: trees or `PyTreeDef`s.
      what: the name of `got`, as the user knows it.

    Yields:
      One `TreeError` for each such place, in order.

    Examples:
      >>> print(next(equality_errors({"w": (1, 2)}, {"w": (1,)}, what="carry")))
      carry['w']: expected a tuple of length 2, got a tuple of length 1.
        To mend: give it the structure that is expected here.
    """
    for place in _disagreements(_as_tree(expected), _as_tree(got), (), None, exact=True):
        yield place.full_error(what)


class _Leaf:
    """What stands for a leaf whose value is not known."""

    def __repr__(self) -> str:
        return "*"


LEAF = _Leaf()


def _as_tree(tree: Any) -> Any:
    return tree.unflatten([LEAF] * tree.num_leaves) if isinstance(tree, pytree.PyTreeDef) else tree


@dataclass(frozen=True)
class _Node:
    """One node opened: its type, its own data, and its children by their keys."""

    kind: type
    data: Any
    children: dict[Any, Any]


def _opened(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> _Node | None:
    """Open a node; None for a leaf."""
    if is_leaf is not None and is_leaf(tree):
        return None
    opened = pytree.flatten_one_level_with_keys(tree)
    if opened is None:
        return None
    pairs, data = opened
    return _Node(type(tree), data, dict(pairs))


@dataclass(frozen=True)
class _Disagreement:
    """A place where `full` does not continue as `prefix` does."""

    path: KeyPath
    prefix: Any
    full: Any

    def prefix_error(self, what: str) -> TreeError:
        """Write the error for a reader who should change the prefix."""
        wanted = described(self.full)
        expected = f"a leaf or {wanted}" if _opened(self.full) else "a leaf, where the full tree has one"
        return TreeError(
            what + keystr(self.path), expected=expected, got=described(self.prefix), mend=self._mend_prefix()
        )

    def full_error(self, what: str) -> TreeError:
        """Write the error for a reader who should change the full tree."""
        return TreeError(
            what + keystr(self.path),
            expected=described(self.prefix) if _opened(self.prefix) else "a leaf",
            got=described(self.full),
            mend="give it the structure that is expected here",
        )

    def _mend_prefix(self) -> str:
        prefix, full = _opened(self.prefix), _opened(self.full)
        if full is None or prefix is None:
            return "put one leaf here"
        if not self.path and full.kind is tuple and len(full.children) == 1:
            (only,) = full.children.values()
            if prefix.kind is not tuple or not any(
                _disagreements(self.prefix, only, (), lambda leaf: leaf is None, exact=False)
            ):
                return "wrap it in a tuple of one element: (spec,)"
        if prefix.kind is full.kind is dict:
            missing = [repr(key.key) for key in full.children if key not in prefix.children]
            unknown = [repr(key.key) for key in prefix.children if key not in full.children]
            steps = [f"add {', '.join(missing)}"] * bool(missing) + [f"remove {', '.join(unknown)}"] * bool(unknown)
            return " and ".join(steps)
        return "give it the structure that is expected here, or one leaf for all of it"


def _disagreements(
    prefix: Any, full: Any, path: KeyPath, is_leaf: Callable[[Any], bool] | None, exact: bool
) -> Iterator[_Disagreement]:
    """Walk two trees side by side; with `exact`, a leaf of the first asks for a leaf of the second."""
    left = _opened(prefix, is_leaf)
    if left is None:
        if exact and _opened(full) is not None:
            yield _Disagreement(path, prefix, full)
        return
    right = _opened(full)
    if right is None or left.kind is not right.kind or not _same_node(left, right):
        yield _Disagreement(path, prefix, full)
        return
    for (key, a), b in zip(left.children.items(), right.children.values()):
        yield from _disagreements(a, b, (*path, key), is_leaf, exact)


def _same_node(left: _Node, right: _Node) -> bool:
    """Compare two nodes of one type without their children."""
    return list(left.children) == list(right.children) and bool(left.data == right.data)


def _with_sequences_of(full: Any, prefix: Any, is_leaf: Callable[[Any], bool] | None) -> Any:
    """Turn the lists and tuples of a prefix into those that the full tree has at their places."""
    left, right = _opened(prefix, is_leaf), _opened(full)
    if left is None or right is None or left.children.keys() != right.children.keys():
        return prefix
    kinds = {left.kind, right.kind}
    if len(kinds) > 1 and kinds != {list, tuple}:
        return prefix
    children = [_with_sequences_of(right.children[key], child, is_leaf) for key, child in left.children.items()]
    if kinds <= {list, tuple}:
        return right.kind(children)
    spots = iter(children)
    top = pytree.flatten(prefix, lambda x: x is not prefix)[1]
    return top.unflatten(spots)


def described(tree: Any) -> str:
    """Name what stands at a place in a tree, for the text of an error.

    Examples:
      >>> described({"a": 1}), described([1, 2]), described(3)
      ("a dict with keys ['a']", 'a list of length 2', 'the leaf 3')
    """
    node = _opened(tree)
    if node is None:
        return _described_leaf(tree)
    if tree is None:
        return "None"
    name, keys = node.kind.__name__, list(node.children)
    if node.kind in (tuple, list):
        return f"a {name} of length {len(keys)}"
    if isinstance(tree, dict):
        return f"{_article(name)} {name} with keys {[key.key for key in keys]}"
    if keys and all(isinstance(key, GetAttrKey) for key in keys):
        detail = f" with fields {[key.name for key in keys]}"
    elif all(isinstance(key, SequenceKey | FlattenedIndexKey) for key in keys):
        detail = f" with {len(keys)} children"
    else:
        detail = f" with children {[keystr((key,)) for key in keys]}"
    has_data = node.data is not None and node.data != () and not isinstance(node.data, type)
    return f"{_article(name)} {name}{detail}" + (f" and data {_shortened(node.data)}" if has_data else "")


def _described_leaf(leaf: Any) -> str:
    return "a leaf" if leaf is LEAF else f"the leaf {_shortened(leaf)}"


def _shortened(value: Any) -> str:
    """Show a value, or its type where the value would fill the screen."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN and "\n" not in text else f"of type {type(value).__name__}"


def _article(name: str) -> str:
    return "an" if name[:1].lower() in "aeiou" else "a"
