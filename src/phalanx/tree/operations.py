"""Functions on pytrees: flattening, unflattening, mapping and reducing.

Builds on `phalanx.engine.pytree`; where two trees differ, `prefix.py` finds the place and writes the error. On hot
paths `phalanx.engine.pytree.flatten`, the C++ function itself, saves the Python frame of `tree_flatten`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeAlias

from phalanx.engine import ArgumentError, TreeError, pytree
from phalanx.tree.key_paths import KeyPath
from phalanx.tree.prefix import describe_tree, prefix_errors

PyTreeDef: TypeAlias = pytree.PyTreeDef
IsLeaf: TypeAlias = Callable[[Any], bool] | None

_UNSPECIFIED: Any = object()
_CONTAINERS = (list, tuple, dict)


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
    """Flatten a tree into its leaves and its structure.

    Dictionaries are flattened in the order of their sorted keys; `None` is a node without children.

    Args:
      tree: a leaf, or nested tuples, lists, dicts, named tuples, `None` and values of registered types.
      is_leaf: returns True for nodes to treat as leaves.

    Returns:
      The leaves in order, and the `PyTreeDef` that `tree_unflatten` takes.

    Examples:
      >>> tree_flatten({"b": 1, "a": (2, None)})
      ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
    """
    try:
        return pytree.flatten(tree, is_leaf)
    except (SystemError, RecursionError) as error:
        raise _explain_recursion(error) from None


def _explain_recursion(error: Exception) -> Exception:
    """The error for a tree without end, which jaxlib reports as an error of Python's own."""
    return _endless_error() if "cyclical" in f"{error} {error.__cause__}" else error


def _endless_error() -> TreeError:
    return TreeError(
        "flattening of a tree",
        expected="nodes that do not contain themselves",
        got="a cycle, or a tree that is deeper than Python's limit of recursion",
        fix="take the reference to the outer node out of the inner one, or register its class as a node without it",
    )


def refuse_endless_container(tree: Any) -> None:
    """Raise the error of `tree_flatten` for lists, tuples and dicts that contain themselves, before jaxlib meets them.

    Where Python's limit of recursion is reached while jaxlib compares keys of a dict, it loses count of the recursion,
    so that every further call in the thread fails.

    Raises:
      TreeError: there is such a container.
    """
    if find_endless_container(tree) is not None:
        raise _endless_error()


def find_endless_container(tree: Any, deepest: int | None = None) -> Any:
    """Find a container that contains itself, or is nested too deeply, before jaxlib meets it.

    jaxlib walks a cycle until Python's limit of recursion, and with `is_leaf` it loses count of the recursion there.

    Args:
      tree: a list, tuple or dict, or any other value, which is not looked into.
      deepest: the number of containers that may be within each other; None for any.

    Returns:
      The container, or None.
    """
    around: set[int] = set()  # the current one
    waiting = [(tree, False)] if isinstance(tree, _CONTAINERS) else []
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            around.remove(id(node))
            continue
        if id(node) in around or len(around) == deepest:
            return node
        around.add(id(node))
        waiting.append((node, True))
        children = node.values() if isinstance(node, dict) else node
        waiting += [(child, False) for child in children if isinstance(child, _CONTAINERS)]
    return None


def tree_unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    """Build a tree from its structure and its leaves.

    Args:
      treedef: the structure, from `tree_flatten` or `tree_structure`.
      leaves: one value for each leaf of the structure, in order.

    Returns:
      The tree.

    Raises:
      TreeError: there are more or fewer values than the structure has leaves.

    Examples:
      >>> tree_unflatten(tree_structure({"b": 0, "a": (0, None)}), [2, 1])
      {'a': (2, None), 'b': 1}
    """
    try:
        return treedef.unflatten(leaves)
    except ValueError as error:
        count = len(leaves) if isinstance(leaves, Sized) else None
        if count is None or count == treedef.num_leaves:
            raise
        raise TreeError(
            "tree_unflatten, leaves",
            expected=f"{_count_leaves(treedef.num_leaves)} for {treedef}",
            got=_count_leaves(count),
            fix="pass one value for each leaf of the structure",
        ) from error


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in the order of `tree_flatten`.

    Args:
      tree, is_leaf: as for `tree_flatten`.

    Returns:
      A list of the leaves.

    Examples:
      >>> tree_leaves({"b": 1, "a": [2, 3]})
      [2, 3, 1]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The structure of a tree, a `PyTreeDef`: hashable, and equal for trees that differ only in their leaves.

    Args:
      tree, is_leaf: as for `tree_flatten`.

    Returns:
      The `PyTreeDef`.

    Examples:
      >>> tree_structure([1, (2, 3)])
      PyTreeDef([*, (*, *)])
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply a function to each leaf of a tree, or to the corresponding leaves of several.

    Args:
      f: takes a leaf of `tree` and the corresponding subtree of each tree in `rest`.
      tree: the tree whose structure the result has.
      rest: trees of which `tree` is a prefix.
      is_leaf: returns True for nodes of `tree` to treat as leaves.

    Returns:
      A tree of the results, with the structure of `tree`.

    Raises:
      TreeError: `tree` is not a prefix of a tree in `rest`; the error names the first place.

    Examples:
      >>> tree_map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"a": 10, "b": (20,)})
      {'a': 11, 'b': (22,)}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    if not rest:
        return treedef.unflatten(map(f, leaves))
    return treedef.unflatten(map(f, leaves, *_flatten_rest("tree.map", treedef, tree, rest, is_leaf)))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], Any]:
    """As `tree_flatten`, with the path of each leaf.

    Args:
      tree: the tree.
      is_leaf: returns True for nodes to treat as leaves.
      is_leaf_takes_path: whether `is_leaf` is called as `is_leaf(path, node)`.

    Returns:
      A list of pairs (path, leaf), and the `PyTreeDef`.

    Examples:
      >>> tree_flatten_with_path({"a": [5]})[0]
      [((DictKey(key='a'), SequenceKey(idx=0)), 5)]
    """
    takes_path = is_leaf is None or is_leaf_takes_path
    try:
        return pytree.flatten_with_path(tree, is_leaf if takes_path else lambda _, node: is_leaf(node))
    except (SystemError, RecursionError) as error:
        raise _explain_recursion(error) from None


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves of a tree with their paths.

    Args:
      tree, is_leaf, is_leaf_takes_path: as for `tree_flatten_with_path`.

    Returns:
      A list of pairs (path, leaf).

    Examples:
      >>> tree_leaves_with_path((7, {"a": 8}))
      [((SequenceKey(idx=0),), 7), ((SequenceKey(idx=1), DictKey(key='a')), 8)]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """As `tree_map`, for a function that takes the path of the leaf first.

    Args:
      f: takes the path, a leaf of `tree` and the corresponding subtree of each tree in `rest`.
      tree, rest: as for `tree_map`.
      is_leaf, is_leaf_takes_path: as for `tree_flatten_with_path`.

    Returns:
      A tree of the results, with the structure of `tree`.

    Raises:
      TreeError: as `tree_map`.

    Examples:
      >>> tree_map_with_path(lambda path, x: f"{path[0].key}={x}", {"a": 1, "b": 2})
      {'a': 'a=1', 'b': 'b=2'}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = _flatten_rest("tree.map_with_path", treedef, tree, rest, None if is_leaf_takes_path else is_leaf)
    return treedef.unflatten(f(path, leaf, *others) for (path, leaf), *others in zip(pairs, *columns))


def _flatten_rest(where: str, treedef: Any, tree: Any, rest: tuple[Any, ...], is_leaf: IsLeaf) -> list[list[Any]]:
    """Flatten each tree of `rest` up to the leaves of the first tree."""
    try:
        # C++ reports no path, so the mismatch is searched again in Python, but only for the error.
        return [treedef.flatten_up_to(other) for other in rest]
    except ValueError:
        for position, other in enumerate(rest, start=1):
            for error in prefix_errors(tree, other, what=f"{where}, tree {position}", is_leaf=is_leaf, blame="full"):
                raise error from None
        raise


def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _UNSPECIFIED, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves of a tree from left to right.

    Args:
      function: takes the combination of the leaves so far and the next leaf.
      tree: the tree.
      initializer: the initial value; the first leaf if it is not given.
      is_leaf: returns True for nodes to treat as leaves.

    Returns:
      The combination of all leaves; the initializer if there are none.

    Raises:
      TypeError: the tree has no leaves and there is no initializer.

    Examples:
      >>> tree_reduce(lambda x, y: x + y, {"a": 1, "b": [2, 3]})
      6
    """
    leaves = tree_flatten(tree, is_leaf)[0]
    return functools.reduce(function, leaves, *([] if initializer is _UNSPECIFIED else [initializer]))


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _UNSPECIFIED, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves of a tree pairwise and in order, so that the depth of the combination is logarithmic.

    Args:
      operation: an associative function of two arguments.
      tree: the tree.
      identity: the result for a tree without leaves.
      is_leaf: returns True for nodes to treat as leaves.

    Returns:
      The combination of all leaves; the identity if there are none.

    Raises:
      TypeError: the tree has no leaves and there is no identity.

    Examples:
      >>> tree_reduce_associative(lambda x, y: f"({x}{y})", ["a", "b", "c", "d", "e"])
      '((ab)(c(de)))'
    """
    leaves = tree_flatten(tree, is_leaf)[0]
    if not leaves and identity is _UNSPECIFIED:
        raise TypeError("tree.reduce_associative of a tree without leaves needs an identity")
    return _combine(operation, leaves) if leaves else identity


def _combine(operation: Callable[[Any, Any], Any], leaves: list[Any]) -> Any:
    """Split the leaves in the middle and combine the results of both halves."""
    if len(leaves) == 1:
        return leaves[0]
    # A balanced tree of combinations lets independent halves run in parallel, and rounding errors grow with the depth
    # only.
    middle = len(leaves) // 2
    return operation(_combine(operation, leaves[:middle]), _combine(operation, leaves[middle:]))


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves of a tree are truthy.

    Args:
      tree, is_leaf: as for `tree_flatten`.

    Returns:
      A bool; True for a tree without leaves.

    Examples:
      >>> tree_all({"a": True, "b": [1, 0]})
      False
    """
    return all(tree_flatten(tree, is_leaf)[0])


def tree_transpose(outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any) -> Any:
    """Transpose an outer tree of inner trees to an inner tree of outer trees.

    Args:
      outer_treedef: the structure of the outer tree.
      inner_treedef: the structure of the inner trees; None takes that of the first one.
      pytree_to_transpose: the tree.

    Returns:
      A tree of the inner structure whose leaves have the outer structure.

    Raises:
      TreeError: the tree is not an outer tree of inner trees; the error names the first place.

    Examples:
      >>> tree_transpose(tree_structure([0, 0]), None, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
      {'a': [1, 3], 'b': [2, 4]}
    """
    outer = outer_treedef.unflatten([0] * outer_treedef.num_leaves)
    subtrees = _flatten_rest("tree.transpose", outer_treedef, outer, (pytree_to_transpose,), None)[0]
    if inner_treedef is None:
        if not subtrees:
            raise ArgumentError(
                "tree.transpose, inner_treedef",
                expected="a structure, since the outer tree has no leaf to infer it from",
                got="None",
                fix="pass tree.structure(inner), where inner is a tree of the inner structure",
            )
        inner_treedef = tree_structure(subtrees[0])
    inner = inner_treedef.unflatten([0] * inner_treedef.num_leaves)
    rows = _flatten_rest("tree.transpose, inner", inner_treedef, inner, tuple(subtrees), None)
    columns = zip(*rows) if rows else [()] * inner_treedef.num_leaves
    return inner_treedef.unflatten(outer_treedef.unflatten(column) for column in columns)


def treedef_tuple(treedefs: Iterable[Any]) -> Any:
    """The structure of a tuple whose elements have these structures.

    Args:
      treedefs: the structures of the elements, in order.

    Returns:
      The `PyTreeDef` of the tuple.

    Examples:
      >>> treedef_tuple([tree_structure(1), tree_structure([2])])
      PyTreeDef((*, [*]))
    """
    return pytree.treedef_tuple(treedefs)


def treedef_children(treedef: Any) -> list[Any]:
    """The structures of the children of a structure; none for a leaf.

    Args:
      treedef: the structure.

    Returns:
      A list of `PyTreeDef`s, in order.

    Examples:
      >>> treedef_children(tree_structure((1, [2])))
      [PyTreeDef(*), PyTreeDef([*])]
    """
    return treedef.children()


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a structure is a single leaf; False for every node, `None` included.

    Args:
      treedef: the structure.

    Returns:
      A bool.

    Examples:
      >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure(None))
      (True, False)
    """
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether none of the values of an iterable is a node.

    Args:
      iterable: the values.
      is_leaf: returns True for nodes to treat as leaves.

    Returns:
      A bool; True for no values.

    Examples:
      >>> all_leaves([1, "a"]), all_leaves([1, (2,)]), all_leaves([None])
      (True, False, False)
    """
    if is_leaf is None:
        return pytree.all_leaves(iterable)
    # A node that `is_leaf` accepts is its own only leaf; an empty node has no leaves.
    return all(len(leaves := tree_flatten(x, is_leaf)[0]) == 1 and leaves[0] is x for x in iterable)


def is_tree_node(typ: type) -> bool:
    """Whether values of a type are nodes: of a built-in container, a named tuple or a registered type.

    Args:
      typ: the type.

    Returns:
      A bool.

    Examples:
      >>> is_tree_node(dict), is_tree_node(int)
      (True, False)
    """
    return pytree.registry.is_node(typ)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any]:
    """Flatten a tree by one level: its children, and its auxiliary data, such as the keys of a dict.

    Args:
      tree: a value that is a node.

    Returns:
      The children, and the auxiliary data.

    Raises:
      TreeError: the value is a leaf.

    Examples:
      >>> flatten_one_level({"b": 1, "a": (2,)})
      (((2,), 1), ('a', 'b'))
    """
    return _check_node("flatten_one_level", tree, pytree.registry.flatten_one_level(tree))


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
    """As `flatten_one_level`, with the key of each child.

    Args:
      tree: a value that is a node.

    Returns:
      Pairs (key, child), and the auxiliary data.

    Raises:
      TreeError: the value is a leaf.

    Examples:
      >>> flatten_one_level_with_keys([5])
      (((SequenceKey(idx=0), 5),), None)
    """
    return _check_node("flatten_one_level_with_keys", tree, pytree.flatten_one_level_with_keys(tree))


def _check_node(where: str, tree: Any, opened: Any) -> Any:
    if opened is None:
        raise TreeError(
            where,
            expected="a node of a tree",
            got=describe_tree(tree),
            fix="pass a container, or check all_leaves([x])",
        )
    return opened


def _count_leaves(leaves: int) -> str:
    return "1 leaf" if leaves == 1 else f"{leaves} leaves"
