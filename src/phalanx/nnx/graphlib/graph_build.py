"""Construction of objects from a `GraphDef` and leaves: the inverse of the traversal in `graph_walk`.

`build` takes the leaves in order, `build_from_leaves` looks them up by path, and `build_nested` takes them from nested
dictionaries, which is the fast path of `nnx.merge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.core import Ref, TreeError, new_ref
from phalanx.nnx.graphlib.graph_def import (
    LEAF,
    ArrayRefDef,
    ContainerDef,
    Definition,
    GraphDef,
    NestDef,
    ObjectDef,
    VariableDef,
)
from phalanx.nnx.graphlib.states import Path, format_paths
from phalanx.nnx.objects import allocate, get_attributes, is_array, mark_structure_changed, set_slot
from phalanx.nnx.variable import Variable


def build(
    node: Any, variables: Iterator[Any], arrays: Iterator[Any], built: dict[int, Any], existing: Mapping[int, Any]
) -> Any:
    """Build the value of a definition.

    Args:
      node: the definition.
      variables, arrays: the variables and the other arrays, in the order of the definition.
      built: receives objects, containers and variables by number; a `RefDef` is looked up in it.
      existing: objects and containers to update instead of creating new ones, by number.
    """
    match node[0]:
        case "static":
            return node.value.value
        case "variable":
            return built.setdefault(node.index, next(variables))
        case "ref":
            return built[node.index]
        case "leaf":
            return next(arrays)
        case "array_ref":
            return _build_array_ref(node, arrays, built, existing)
        case "object":
            return _build_object(node, variables, arrays, built, existing)
    children = (build(c, variables, arrays, built, existing) for c in node.children)
    return _build_container(node, children, built, existing)


def _build_array_ref(
    node: ArrayRefDef, arrays: Iterator[Any], built: dict[int, Any], existing: Mapping[int, Any]
) -> Any:
    if node.index not in existing:
        x = next(arrays)
        built[node.index] = x if isinstance(x, Ref) else new_ref(x)
    else:
        built[node.index] = existing[node.index]
    return built[node.index]


def _build_object(
    node: ObjectDef, variables: Iterator[Any], arrays: Iterator[Any], built: dict[int, Any], existing: Mapping[int, Any]
) -> Any:
    is_new = node.index not in existing
    target = built[node.index] = _allocate(node) if is_new else existing[node.index]
    attributes = get_attributes(target)
    for name, child in zip(node.keys, node.children):
        value = child.value.value if child[0] == "static" else build(child, variables, arrays, built, existing)
        before = attributes.get(name, LEAF)  # `LEAF` is a default that no attribute has as its value
        # Replacing an array by an array leaves the structure, and with it cached graphs and compiled programs, valid.
        if not is_new and before is not value and not (is_array(value) and is_array(before)):
            mark_structure_changed(target)
        attributes[name] = value
    # All names of the definition are set by now, so that a difference in number means attributes to delete.
    if not is_new and len(attributes) != len(node.keys):
        for name in set(attributes) - set(node.keys):
            del attributes[name]
        mark_structure_changed(target)
    return target


def _allocate(node: ObjectDef) -> Any:
    target = allocate(node.type)
    if node.marks:
        set_slot(target, "_marks", dict(node.marks))
    return target


def _build_container(
    node: ContainerDef | NestDef, elements: Iterator[Any], built: dict[int, Any], existing: Mapping[int, Any]
) -> Any:
    """Build a list, a dictionary or a nest from an iterator that builds its elements."""
    if isinstance(node, NestDef):
        return tuple(elements) if node.structure is tuple else node.structure.value.unflatten(list(elements))
    # Registered before its elements are built, since they may refer back to it.
    target = built[node.index] = existing[node.index] if node.index in existing else node.type()
    children = list(elements)
    # Graphs compare elements by identity: they stay valid if a container gets the same elements again.
    target.clear()
    if isinstance(target, list):
        target.extend(children)
    else:
        target.update(zip(node.keys, children))
    return target


def build_from_leaves(
    definition: GraphDef,
    leaf_at: Mapping[Path, Any],
    where: str,
    copy: bool = False,
    recreate_variables: bool = True,
    built: dict[int, Any] | None = None,
    existing: Mapping[int, Any] | None = None,
) -> Any:
    """Build the object of a definition from leaves by path.

    Args:
      definition: the structure.
      leaf_at: variables or values by path.
      where: the caller, for error messages.
      copy: whether to copy variables.
      recreate_variables: whether other values at the paths of variables become the values of new variables.
      built: objects of earlier definitions by number, to which this definition may refer; receives the new ones.
      existing: objects, containers and variables to update instead of creating new ones, by number.

    Raises:
      TreeError: a leaf is missing, or there is a leaf at a path that the structure does not have.
    """
    variable_paths, array_paths = definition.paths
    # Checked before anything is built: an error must not leave half of a module behind.
    missing = [p for p in (*variable_paths, *array_paths) if p not in leaf_at]
    if missing:
        raise TreeError(
            where,
            expected=f"a leaf for each of the {definition.num_leaves} paths of {definition!r}",
            got=f"no leaf at {format_paths(missing)}",
            fix="pass all states that nnx.split returned, as in nnx.merge(graphdef, params, rest)",
        )
    if len(leaf_at) != definition.num_leaves:
        known = {*variable_paths, *array_paths}
        raise TreeError(
            where,
            expected=f"leaves at the paths of {definition!r} only",
            got=f"additional leaves at {format_paths([p for p in leaf_at if p not in known])}",
            fix="pass only the states that nnx.split returned together with this graphdef",
        )
    definitions = zip(definition.variable_defs, variable_paths, strict=True)
    # References are leaves of the state themselves.
    existing = {i: x for i, x in (existing or {}).items() if not isinstance(x, Ref)}
    variables = (
        _to_variable(d, leaf_at[p], copy, existing.get(d.index))
        if recreate_variables or isinstance(leaf_at[p], Variable)
        else leaf_at[p]
        for d, p in definitions
    )
    arrays = (leaf_at[p] for p in array_paths)
    return build(definition.root, variables, arrays, {} if built is None else built, existing)


class StructureMismatch(Exception):
    """A state does not fit a structure. `nnx.merge` then calls `build_from_leaves`, which finds the path to report."""


def build_nested(node: Definition | Any, leaf: Any, built: dict[int, Any]) -> Any:
    """Build the value of a definition from nested dictionaries, without computing any path.

    Args:
      node: the definition.
      leaf: the dictionary, variable or value for this definition.
      built: receives objects, containers and variables by number.

    Raises:
      StructureMismatch: the dictionaries do not fit the definition.
    """
    match node[0]:
        case "static":
            return node.value.value
        case "ref":
            return built[node.index]
        case "leaf" if leaf is not None:
            return leaf
        case "array_ref" if leaf is not None:
            return _build_array_ref(node, iter([leaf]), built, {})
        case "variable" if leaf is not None:
            return built.setdefault(node.index, _to_variable(node, leaf, False))
        # A state omits objects and containers without leaves.
        case "object" if leaf is None or type(leaf) is dict:
            return _build_nested_object(node, leaf or {}, built)
        case "container" | "nest" if leaf is None or type(leaf) is dict:
            return _build_nested_container(node, leaf or {}, built)
    raise StructureMismatch


def _build_nested_object(node: ObjectDef, leaves: dict, built: dict[int, Any]) -> Any:
    target = built[node.index] = _allocate(node)
    attributes = get_attributes(target)
    num_used = 0
    for name, child in zip(node.keys, node.children):
        leaf = leaves.get(name)
        # A leaf of the state that no attribute uses is detected by counting, which is cheaper than a set difference.
        num_used += leaf is not None
        attributes[name] = child.value.value if child[0] == "static" else build_nested(child, leaf, built)
    if num_used != len(leaves):
        raise StructureMismatch
    return target


def _build_nested_container(node: Any, leaves: dict, built: dict[int, Any]) -> Any:
    if sum(k in leaves for k in node.keys) != len(leaves):
        raise StructureMismatch
    children = (build_nested(c, leaves.get(k), built) for k, c in zip(node.keys, node.children))
    return _build_container(node, children, built, {})


def _to_variable(node: VariableDef, leaf: Any, copy: bool, existing: Variable | None = None) -> Variable:
    if existing is not None:
        existing.update_from_state(_to_variable(node, leaf, False))
        return existing
    if isinstance(leaf, Variable):
        return leaf.copy() if copy else leaf
    return node.type.from_metadata(leaf, {k: v.value for k, v in node.metadata})
