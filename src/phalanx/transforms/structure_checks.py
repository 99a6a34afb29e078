"""Errors for trees that do not match: the carry of a loop, the tangents of `jvp`, the result of a custom rule.

A mismatch is reported at the first place where the two trees differ, in words (`expected a tuple of length 2, as in
init['h'], got a leaf`). Callers describe the value that is wrong and the value it must match as functions of the path
to that place, so that the text is composed only when an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.core import ArgumentTypeError, ShapedArray, ShardingError, TreeError
from phalanx.tree import PyTreeDef, equality_errors, tree_flatten, tree_leaves, tree_structure, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree

# From the path of a place in a tree, such as "['w'][0]", to the words that name this place in an error.
PathLabel = Callable[[str], str]


def check_same_structure(
    where: PathLabel, expected: PyTreeDef, got: PyTreeDef | PyTree, source: PathLabel, fix: str
) -> None:
    """Refuse a tree whose structure differs from the expected one.

    Args:
      where: names a place in the tree that is checked.
      expected: the structure it must have.
      got: its structure, or the tree itself.
      source: names the same place in the tree that the expected structure comes from.
      fix: an imperative that tells the user what to change.

    Raises:
      TreeError: the structures differ; the error names the first place.
    """
    found = got if isinstance(got, PyTreeDef) else tree_structure(got)
    if found == expected:
        return
    for error in equality_errors(expected, got, what=""):
        path = error.where
        raise TreeError(where(path), expected=f"{error.expected}, as in {source(path)}", got=error.got, fix=fix)
    # Both trees print alike and differ in the data of a custom node that compares unequal to itself.
    raise TreeError(where(""), expected=f"the structure of {source('')}, {expected}", got=str(found), fix=fix)


def check_same_types(
    where: PathLabel,
    expected_tree: PyTreeDef,
    expected: Sequence[ShapedArray],
    tree: PyTreeDef,
    avals: Sequence[ShapedArray],
    source: PathLabel,
) -> None:
    """Refuse a result whose structure, or the type of one of whose leaves, differs from what it must match.

    Args:
      where: names a place in the result.
      expected_tree, expected: the structure and the leaf types that it must have.
      tree, avals: the structure and the leaf types that it has.
      source: names the same place in the value that it must match.

    Raises:
      TreeError: the structures differ.
      ArgumentTypeError: the shape or dtype of a leaf differs.
      ShardingError: the sharding of a leaf over Explicit axes differs.
    """
    check_same_structure(where, expected_tree, tree, source, f"return a value with the structure of {source('')}")
    for i, (want, got) in enumerate(zip(expected, avals)):
        if got.matches(want) and got.type_sharding is want.type_sharding:
            continue
        path = leaf_path(tree_unflatten(tree, list(range(len(avals)))), i)
        if got.matches(want):
            fix = f"reshard it to {want.type_sharding and want.type_sharding.spec} with phalanx.reshard"
        elif got.shape == want.shape:
            fix = f"convert it to {want.dtype.name} with .astype"
        else:
            fix = f"give it the shape {list(want.shape)}"
        raise (ShardingError if got.matches(want) else ArgumentTypeError)(
            where(path), expected=f"type {want.str_short()}, as in {source(path)}", got=got.str_short(), fix=fix
        )


def broadcast_flags(flags: PyTree, values: PyTree, where: str) -> list[bool]:
    """A flag for each leaf of some values, from a prefix of them, in which a tuple may stand for any container.

    Args:
      flags: the prefix, of bools.
      values: the values.
      where: the argument, for the error.

    Raises:
      TreeError: a container has another number of children than the values there.
    """
    if isinstance(flags, bool):
        return [flags] * len(tree_leaves(values))
    given, parts = (tree_flatten(tree, is_leaf=lambda x, tree=tree: x is not tree)[0] for tree in (flags, values))
    if len(given) != len(parts) or any(each is flags for each in given):
        raise TreeError(
            where,
            expected=f"True or False, or a container of {len(parts)} of them",
            got=repr(flags),
            fix="pass a tuple with a flag, or a tuple of flags, for each argument",
        )
    return [flag for each in zip(given, parts, strict=True) for flag in broadcast_flags(*each, where)]
