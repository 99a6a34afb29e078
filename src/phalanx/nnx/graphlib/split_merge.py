"""Functions of graphs: `split`, `merge`, `update`, `state`, `clone`, `pop`, iteration and related functions.

`split` and `state` share their variables with the module, so that nothing is copied. `clone`, `merge(..., copy=True)`
and pytree functions create new variables.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, TypeAlias

from phalanx.core import ArgumentError, ArgumentTypeError, TreeError
from phalanx.nnx.filters import Filter, Predicate, to_predicate
from phalanx.nnx.graph_mode import is_tree_mode
from phalanx.nnx.graphlib.graph_build import StructureMismatch, build, build_from_leaves, build_nested
from phalanx.nnx.graphlib.graph_def import GraphDef, check_is_tree
from phalanx.nnx.graphlib.graph_state import GraphState
from phalanx.nnx.graphlib.graph_walk import Graph, Walk, find_origins, get_entry, get_graph, iter_entries
from phalanx.nnx.graphlib.ref_map import RefMap
from phalanx.nnx.graphlib.states import (
    FlatState,
    Key as Key,
    Path,
    State,
    check_shape,
    format_paths,
    missing_path_error,
    split_leaves,
    to_flat_state,
    unwrap_single,
)
from phalanx.nnx.objects import Pytree, get_attributes, is_array, is_root, mark_structure_changed
from phalanx.nnx.trace_level import check_trace_level
from phalanx.nnx.variable import Variable, get_raw_value
from phalanx.nnx.variable_refs import read_refs
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree

PureState: TypeAlias = tuple[GraphDef, State]
"""The result of `split` without filters."""


def _get_state(graph: Graph, node: PyTree) -> Any:
    if not isinstance(node, Pytree) and (isinstance(node, Variable) or is_array(node)):
        return node
    return State.from_flat_path(graph.leaves(node))


def _get_graph(where: str, node: PyTree, graph: bool | None) -> Graph:
    """The graph of a node, after a check in tree mode."""
    check_mode(where, node, graph)
    return get_graph(node)


def check_mode(where: str, node: PyTree, graph: bool | None) -> None:
    """Check in tree mode that a node is a tree; `where` is the caller, for error messages."""
    if is_tree_mode(graph):
        check_is_tree(where, get_graph(node).definition)


def _get_definition(found: Graph, graph: bool | None) -> GraphDef:
    return found.definition.as_tree if is_tree_mode(graph) else found.definition


def graphdef(node: PyTree, /, *, graph: bool | None = None) -> GraphDef:
    """Return the structure of a module, or of a tree of modules.

    Args:
      node: the module or the tree.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The `GraphDef`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.graphdef([nnx.Param(1.0)]) is nnx.graphdef([nnx.Param(2.0)])
      True
    """
    return _get_definition(_get_graph("graphdef", node, graph), graph)


def split(node: PyTree, *filters: Filter, graph: bool | None = None) -> tuple:
    """Split a module into its structure and its variables and arrays.

    Args:
      node: a module, or a tree of modules.
      *filters: one state is returned for each filter; each leaf goes to the first filter that matches it. Without
        filters, one state with all leaves is returned.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      `(graphdef, state, ...)`. The states contain the variables of the module, not copies.

    Raises:
      ArgumentError: no filter matches a leaf, or `...` is not the last filter.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Model(nnx.Module):
      ...     def __init__(self):
      ...         self.w, self.n = nnx.Param(jnp.ones(2)), nnx.BatchStat(0)
      >>> graphdef, params, rest = nnx.split(Model(), nnx.Param, ...)
      >>> list(params), list(rest)
      (['w'], ['n'])
    """
    found = _get_graph("split", node, graph)
    definition = _get_definition(found, graph)
    if not filters:
        return definition, _get_state(found, node)
    return (definition, *split_leaves(found.leaves(node), filters, "split", exhaustive=True))


def unpack(node: PyTree, *filters: Filter, graph: bool | None = None) -> Any:
    """Split a module into states that contain its structure, which `nnx.merge` puts together again.

    Args:
      node: a module, or a tree of modules.
      *filters: as in `nnx.split`.
      graph: as in `nnx.split`.

    Returns:
      A `GraphState`, or a tuple with one for each filter if there are several.

    Raises:
      ArgumentError: no filter matches a leaf, or `...` is not the last filter.

    Examples:
      >>> from phalanx import nnx
      >>> params, rest = nnx.unpack([nnx.Param(1.0), nnx.Cache(2.0)], nnx.Param, ...)
      >>> nnx.merge(params, rest)
      [Param(
        value=1.0
      ), Cache(
        value=2.0
      )]
    """
    graphdef, *states = split(node, *filters, graph=graph)
    found = tuple(GraphState(graphdef, state) for state in states)
    return found[0] if len(found) == 1 else found


def merge(
    graphdef: GraphDef | GraphState, /, *states: Mapping, copy: bool = False, recreate_variables: bool = True
) -> Any:
    """Build a module from its structure and states: the inverse of `split`.

    Args:
      graphdef: the structure; omitted if the states are `GraphState`s.
      *states: states that together have a leaf at each path.
      copy: whether to copy the variables of the states, or to use them in the module.
      recreate_variables: False to put values that are no variables into the module as they are; by default, they become
        the values of new variables.

    Returns:
      The module, or the tree of modules.

    Raises:
      TreeError: a leaf is missing, or there is a leaf at a path that the structure does not have.
      ArgumentTypeError: `graphdef` is not a `GraphDef`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.merge(*nnx.split({"a": nnx.Param(1.0)}))
      {'a': Param(
        value=1.0
      )}
    """
    if isinstance(graphdef, GraphState):
        states = (graphdef, *states)
        graphdef = graphdef._graphdef
    if not isinstance(graphdef, GraphDef):
        raise ArgumentTypeError(
            "merge, argument graphdef",
            expected="a GraphDef",
            got=graphdef,
            fix="pass the first element of the result of nnx.split: nnx.merge(graphdef, state)",
        )
    if graphdef.paths[0] == [()] or graphdef.paths[1] == [()]:  # the root itself is a variable or an array
        # A filter that does not match the root gives an empty state.
        leaf = next((s for s in states if not (isinstance(s, State) and not s)), states[0])
        return build_from_leaves(graphdef, {(): leaf}, "merge", copy, recreate_variables)
    if len(states) == 1 and type(states[0]) is State and not copy and recreate_variables:
        # The common case avoids paths. If the state does not fit, the slower code below reports where.
        with contextlib.suppress(StructureMismatch):
            return build_nested(graphdef.root, states[0]._mapping, {})
    leaves = [leaf for s in states for leaf in (s.leaves_by_path() if type(s) is State else to_flat_state(s).items())]
    leaf_at = dict(leaves)
    if len(leaf_at) < len(leaves):
        counts = collections.Counter(path for path, _ in leaves)
        raise TreeError(
            "merge",
            expected="each leaf in one of the states",
            got=f"several values of {format_paths([path for path, count in counts.items() if count > 1])}",
            fix="pass the states of one nnx.split, or join overlapping states with nnx.merge_state",
        )
    return build_from_leaves(graphdef, leaf_at, "merge", copy, recreate_variables)


def state(node: PyTree, *filters: Filter, graph: bool | None = None) -> Any:
    """Return the variables and arrays of a module.

    Args:
      node: a module, or a tree of modules.
      *filters: the leaves to return; leaves that no filter matches are omitted.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      A state, or a tuple with one for each filter if there are several.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Param)
      State({
        'a': Param(
          value=1.0
        )
      })
    """
    found = _get_graph("state", node, graph)
    if not filters:
        return _get_state(found, node)
    return unwrap_single(split_leaves(found.leaves(node), filters, "state", exhaustive=False))


def variables(node: PyTree, *filters: Filter, graph: bool | None = None) -> Any:
    """Return the variables of a module, without arrays outside of variables.

    Args:
      node: a module, or a tree of modules.
      *filters: the variables to return.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      A state, or a tuple with one for each filter if there are several.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variables({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Cache)
      State({
        'b': Cache(
          value=2.0
        )
      })
    """
    found = _get_graph("variables", node, graph)
    items = list(zip(found.paths, found.variables))
    return unwrap_single(split_leaves(items, filters or (...,), "variables", exhaustive=False))


def update(node: PyTree, state: Any, /, *states: Any) -> None:
    """Set variables and arrays of a module from states.

    Args:
      node: a module, or a tree of modules.
      state, *states: states, or nested mappings of variables or values. Leaves of the module that they do not contain
        are unchanged. A variable at a path that the module does not have becomes a new attribute.

    Raises:
      ShapeError: a value has another shape than the value it replaces.
      TreeError: a value is at a path that the module does not have.
      TraceContextError: the module was created in another trace.

    Examples:
      >>> from phalanx import nnx
      >>> model = {"a": nnx.Param(1.0)}
      >>> nnx.update(model, {"a": 2.0})
      >>> model["a"].value
      2.0
    """
    found = get_graph(node)
    targets = dict(zip(found.paths, found.variables))
    refs = dict(zip(found.ref_paths, found.refs))
    # The leaves are applied in order, so that later states override earlier ones.
    for path, leaf in itertools.chain.from_iterable(_iter_leaves(s, (), targets) for s in (state, *states)):
        target = targets.get(path)
        if target is None:
            _set_array_or_new_variable(node, targets, refs, path, leaf)
        # States share their variables with the module, so that updating a module with its own state is common.
        elif target is not leaf:
            check_shape("update", path, target._value, get_raw_value(leaf))
            if isinstance(leaf, Variable):
                target.update_from_state(leaf)
            else:
                target.set_raw_value(leaf)


def _iter_leaves(tree: Any, path: Path, targets: Mapping[Path, Any]) -> Iterator[tuple[Path, Any]]:
    """Iterate over the leaves of nested mappings; a mapping at the path of a variable is the variable's value."""
    if isinstance(tree, State) and not path:
        yield from tree.leaves_by_path()
    elif path in targets or not isinstance(tree, Mapping):
        yield path, tree
    else:
        for key, value in tree.items():
            yield from _iter_leaves(value, (*path, key), targets)


def _set_array_or_new_variable(
    node: PyTree, targets: Mapping[Path, Any], refs: Mapping[Path, tuple], path: Path, leaf: Any
) -> None:
    if path in refs:
        holder, key = refs[path]
        holder = node if type(holder) is int else holder
        check_shape("update", path, get_entry(holder, key), leaf)
    else:
        holder, key = (_find_holder if isinstance(leaf, Variable) else _find_static)(node, path), path[-1:]
        if holder is None:
            raise missing_path_error("update", "module", path, [*targets, *refs])
        (key,) = key
    _set_entry(holder, key, leaf)


def _set_entry(holder: Any, key: Hashable, value: Any) -> None:
    if isinstance(holder, Pytree):
        holder.__setattr__(key, value)  # type: ignore[arg-type]  # `setattr` does not accept the indices of an `nnx.List`
    else:
        holder[key] = value


def _find_holder(node: Any, path: Path) -> Any:
    """The object or container for a new variable; dictionaries are created where the path leads to nothing."""
    holder = node
    for key in path[:-1]:
        entries = dict(iter_entries(holder))
        if key not in entries and isinstance(holder, Pytree | dict):
            _set_entry(holder, key, {})
            entries = dict(iter_entries(holder))
        holder = entries.get(key)
    return holder if isinstance(holder, Pytree | dict | list) else None


def _find_static(node: Any, path: Path) -> Any:
    """The object or dictionary that has a static value at a path; None if there is none."""
    holder: Any = None
    for key in path:
        holder, node = node, dict(iter_entries(node)).get(key, node)
        if node is holder:
            return None
    return holder if isinstance(holder, Pytree | dict | list) and not iter_entries(node) else None


def clone(node: PyTree, variables: bool = True, *, arrays: bool = False, graph: bool | None = None) -> Any:
    """Copy a module.

    Args:
      node: a module, or a tree of modules.
      variables: whether to copy variables, or to share them with the original.
      arrays: whether to copy arrays as well. Arrays are immutable, so that a copy is only needed if they are donated.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The new module.

    Examples:
      >>> from phalanx import nnx
      >>> a = {"w": nnx.Param(1.0)}
      >>> nnx.clone(a)["w"] is a["w"]
      False
    """
    found = _get_graph("clone", node, graph)

    def copy_arrays(x: Any) -> Any:
        return tree_map(lambda leaf: leaf.copy() if hasattr(leaf, "copy") else leaf, read_refs(x)) if arrays else x

    def copy(variable: Variable) -> Variable:
        return variable.copy(copy_arrays(variable._value)) if arrays else variable.copy()

    copies = list(builtins.map(copy, found.variables)) if variables else found.variables
    return build(found.definition.root, iter(copies), iter([copy_arrays(x) for x in found.arrays(node)]), {}, {})


def pop(node: PyTree, *filters: Filter) -> Any:
    """Remove variables and arrays from a module, and return them.

    Args:
      node: a module, or a tree of modules.
      *filters: the variables and arrays to remove; at least one filter.

    Returns:
      A state, or a tuple with one for each filter if there are several.

    Raises:
      ArgumentError: no filter is given.

    Examples:
      >>> from phalanx import nnx
      >>> class Model(nnx.Module):
      ...     def __init__(self):
      ...         self.a, self.b = nnx.Param(1.0), nnx.Intermediate(2.0)
      >>> model = Model()
      >>> nnx.pop(model, nnx.Intermediate), hasattr(model, "b")
      (State({
        'b': Intermediate(
          value=2.0
        )
      }), False)
    """
    if not filters:
        raise ArgumentError(
            "pop, argument filters",
            expected="at least one filter",
            got="none",
            fix="pass the type of variables to remove, as in nnx.pop(model, nnx.Intermediate)",
        )
    found = get_graph(node)
    states = split_leaves(found.leaves(node), filters, "pop", exhaustive=False)
    removed = {id(v) for s in states for _, v in s.leaves_by_path()}
    if removed:
        _remove(node, removed, set())
    return unwrap_single(states)


def _remove(node: Any, removed: set[int], seen: set[int]) -> Any:
    """Remove all references to some variables from a node; returns the node, or a new tuple in place of a tuple."""
    if id(node) in seen or not isinstance(node, Pytree | State | dict | list | tuple):
        return node
    seen.add(id(node))
    if isinstance(node, list | tuple):
        # Identity is used throughout: variables are unhashable, and `==` compares their values.
        kept = [_remove(x, removed, seen) for x in node if id(x) not in removed]
        if isinstance(node, list):
            node[:] = kept
        is_kept = len(kept) == len(node) and all(x is y for x, y in zip(kept, node))
        return node if is_kept else tuple(kept)
    entries: Any = get_attributes(node) if isinstance(node, Pytree) else node
    changed = False
    # In reverse, since the elements of an `nnx.List` after a removed one move up.
    for name, value in reversed(list(entries.items())):
        if id(value) in removed:
            if isinstance(node, Pytree):
                check_trace_level(node, f"popping {name!r}")
            del (node if isinstance(node, MutableSequence) else entries)[name]
            changed = True
        elif (new := _remove(value, removed, seen)) is not value and not isinstance(value, State):
            entries[name] = new
            changed = True
    if changed and isinstance(node, Pytree):
        mark_structure_changed(node)
    return node


def iter_graph(node: PyTree, /, *, graph: bool | None = None) -> Iterator[tuple[Path, Any]]:
    """Iterate over all values in a graph, children before their parents and shared values once.

    Args:
      node: a module, or a tree of modules.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Yields:
      Pairs (path, value).

    Examples:
      >>> from phalanx import nnx
      >>> [path for path, _ in nnx.iter_graph({"a": [nnx.Param(1.0)]})]
      [('a', 0), ('a',), ()]
    """
    check_mode("iter_graph", node, graph)
    yield from _iter_postorder(node, (), set())


def _iter_postorder(x: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Any]]:
    if isinstance(x, Pytree | Variable | list | dict):
        if id(x) in seen:
            return
        seen.add(id(x))
    for key, value in iter_entries(x):
        yield from _iter_postorder(value, (*path, key), seen)
    yield path, x


def iter_objects(where: str, node: PyTree, only: Filter, graph: bool | None) -> Iterator[Any]:
    """Iterate over the objects in a graph that a filter matches; `where` is the caller, for error messages."""
    check_mode(where, node, graph)
    predicate = to_predicate(only)
    return (x for path, x in _iter_postorder(node, (), set()) if isinstance(x, Pytree) and predicate(path, x))


def find_duplicates(node: PyTree, /, *, only: Filter = ...) -> list[list[Path]]:
    """Find variables and objects that are reached along several paths.

    Args:
      node: a module, or a tree of modules.
      only: the variables and objects to consider.

    Returns:
      The paths of each such variable or object.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> nnx.find_duplicates({"a": w, "b": w})
      [[('a',), ('b',)]]
    """
    paths: dict[int, list[Path]] = {}
    _collect_paths(node, (), to_predicate(only), paths)
    return [found for found in paths.values() if len(found) > 1]


def _collect_paths(x: Any, path: Path, predicate: Predicate, paths: dict[int, list[Path]]) -> None:
    if is_root(x):
        is_known = id(x) in paths
        paths.setdefault(id(x), []).extend([path] if predicate(path, x) else [])
        if is_known:
            return
    for key, value in iter_entries(x):
        _collect_paths(value, (*path, key), predicate, paths)


def map(
    f: Callable[[Path, Any], Any], node: PyTree, /, *, graph: bool | None = None, recreate_variables: bool = True
) -> Any:
    """Copy a graph, with `f(path, leaf)` in place of each variable and array.

    Args:
      f: the function. If it returns a value for a variable, the result has a variable of the same type with that value.
      node: a module, or a tree of modules.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.
      recreate_variables: False to put values that `f` returns for variables in place of the variables.

    Returns:
      The new graph.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.map(lambda path, w: w.value + 1, {"a": nnx.Param(1.0)})
      {'a': Param(
        value=2.0
      )}
    """
    found = _get_graph("map", node, graph)
    # A variable that `f` returns replaces the original one; any other value is set in a copy.
    mapped = [
        y if isinstance(y := f(p, v), Variable) or not recreate_variables else v.copy(y)
        for p, v in zip(found.paths, found.variables, strict=True)
    ]
    arrays = [f(p, x) for p, x in zip(found.ref_paths, found.arrays(node), strict=True)]
    return build(found.definition.root, iter(mapped), iter(arrays), {}, {})


def recursive_map(f: Callable[[Path, Any], Any], node: PyTree, /, *, graph: bool | None = None) -> Any:
    """Copy a graph, with `f(path, node)` in place of each node and leaf, children before their parents.

    Args:
      f: the function; it receives copies, which it may change or replace.
      node: a module, or a tree of modules.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The new graph.

    Examples:
      >>> from phalanx import nnx
      >>> model = [nnx.Dropout(0.5), nnx.Dropout(0.1)]
      >>> off = lambda path, x: nnx.identity if isinstance(x, nnx.Dropout) else x
      >>> nnx.recursive_map(off, model) == [nnx.identity, nnx.identity]
      True
    """
    return _map_postorder(f, clone(node, variables=False, graph=graph), (), {})


def _map_postorder(f: Callable[[Path, Any], Any], x: Any, path: Path, done: dict[int, Any]) -> Any:
    key = id(x) if is_root(x) else None
    if key in done:
        return done[key]
    if isinstance(x, Pytree):
        # Attributes are written to `__dict__` directly, since the copies are not visible to anyone yet; one change of
        # structure is counted for all of them below.
        for name, value in list(get_attributes(x).items()):
            if is_root(value) or isinstance(value, list | dict | tuple) or is_array(value):
                get_attributes(x)[name] = _map_postorder(f, value, (*path, name), done)
        mark_structure_changed(x)
    elif isinstance(x, list | tuple):
        elements = [_map_postorder(f, v, (*path, i), done) for i, v in enumerate(x)]
        x = type(x)(*elements) if hasattr(x, "_fields") else type(x)(elements)
    elif isinstance(x, dict):
        x = type(x)({k: _map_postorder(f, v, (*path, k), done) for k, v in x.items()})
    out = f(path, x)
    if key is not None:
        done[key] = out
    return out


class _Caller:
    """A path of attributes to call on a module that is built for each call."""

    def __init__(self, graphdef_state: tuple, path: Path):
        self._graphdef_state, self._path = graphdef_state, path

    def __getattr__(self, name: str) -> _Caller:
        return _Caller(self._graphdef_state, (*self._path, name))

    def __getitem__(self, key: Any) -> _Caller:
        return _Caller(self._graphdef_state, (*self._path, key))

    def __call__(self, *args: Any, **kwargs: Any) -> tuple:
        # A copy, so that the states which the caller holds are not changed.
        module = merge(*self._graphdef_state, copy=True)
        target = module
        for key in self._path:
            target = getattr(target, key) if isinstance(key, str) and hasattr(target, key) else target[key]
        return target(*args, **kwargs), split(module)


def call(graphdef_state: tuple, /) -> Any:
    """Call methods of a module that is given as `(graphdef, state)`, without changing the state.

    Args:
      graphdef_state: the result of `split`.

    Returns:
      A callable whose attributes are the methods of the module. Calls return `(result, (graphdef, new_state))`.

    Examples:
      >>> from phalanx import nnx
      >>> class Counter(nnx.Module):
      ...     def __init__(self):
      ...         self.n = nnx.Cache(0)
      ...
      ...     def step(self, by):
      ...         self.n.value += by
      ...         return self.n.value
      >>> result, (graphdef, state) = nnx.call(nnx.split(Counter())).step(2)
      >>> result, state
      (2, State({
        'n': Cache(
          value=2
        )
      }))
    """
    return _Caller(tuple(graphdef_state), ())


def _apply(self: GraphDef, state: Mapping, *states: Mapping) -> Any:
    """Call methods of the module with this structure and these states, as `nnx.call` does.

    Args:
      state, *states: the states.

    Returns:
      A callable whose attributes are the methods of the module.
    """
    return call((self, state, *states))


# `apply` builds a module, which `graph_def` cannot do: this file builds on it.
GraphDef.apply = _apply


def set_attributes(
    where: str, node: PyTree, filters: Filter, raise_if_not_found: bool, graph: bool | None, values: Mapping[str, Any]
) -> None:
    """Set attributes of all modules in a graph that have them; `where` is the caller, for error messages."""
    remaining = set(values)
    for module in iter_objects(where, node, filters, graph):
        for name, value in values.items():
            if hasattr(module, name):
                remaining.discard(name)
                if getattr(module, name) is not value:
                    setattr(module, name, value)
    if remaining and raise_if_not_found:
        raise ArgumentError(
            where,
            expected="attributes of some module",
            got=", ".join(sorted(remaining)),
            fix=f"correct the name {sorted(remaining)[0]!r} or the filters, or pass raise_if_not_found=False",
        )


def flatten(
    node: PyTree,
    /,
    *,
    ref_index: MutableMapping[Any, int] | None = None,
    ref_outer_index: Mapping[Any, int] | None = None,
    with_paths: bool = True,
    graph: bool | None = None,
) -> tuple[GraphDef, Any]:
    """Return the structure of a module and its leaves by path.

    Args:
      node: a module, or a tree of modules.
      ref_index: a `RefMap`, which receives the numbers of the objects, variables and references. What it contains
        already becomes a shared reference.
      ref_outer_index: the numbers of originals of which objects are copies; `unflatten` updates these.
      with_paths: whether to return the paths of the leaves.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The `GraphDef`, and the `FlatState` or the list of leaves.

    Examples:
      >>> from phalanx import nnx
      >>> graphdef, leaves = nnx.graph.flatten({"a": [nnx.Param(1.0)]})
      >>> leaves.paths
      [('a', 0)]
    """
    if ref_index is None and ref_outer_index is None:
        found = _get_graph("flatten", node, graph)
        definition, leaves = found.definition, found.leaves(node)
    else:
        numbers: MutableMapping[Any, int] = RefMap() if ref_index is None else ref_index
        walk = Walk(numbers)
        root = walk.visit(node, (), [node], 0)
        definition, leaves = GraphDef(root, find_origins(walk, ref_outer_index or {})), walk.leaves()
        # References inside variables are numbered after everything else: the definition does not refer to them.
        refs = [ref for v in walk.variables if v.in_refs for ref in tree_leaves(v._value)]
        numbers.update(RefMap((x, i) for i, x in enumerate([*walk.numbered, *refs]) if is_root(x) or is_array(x)))
    return definition, FlatState(leaves) if with_paths else [leaf for _, leaf in leaves]


def unflatten(
    graphdef: GraphDef,
    state: Mapping | list[Any],
    /,
    *,
    index_ref: MutableMapping[int, Any] | None = None,
    outer_index_outer_ref: Mapping[int, Any] | None = None,
    copy_variables: bool = False,
    recreate_variables: bool = True,
) -> Any:
    """Build a module from its structure and leaves: the inverse of `flatten`.

    Args:
      graphdef: the structure.
      state: a state, a flat state, or the list of leaves that `flatten` returns with `with_paths=False`.
      index_ref: an `IndexMap` of what is built already by number, which receives what is built.
      outer_index_outer_ref: an `IndexMap` of the originals, which are updated instead of building copies of them.
      copy_variables: whether to copy the variables of the state, as the option `copy` of `merge`.
      recreate_variables: as in `merge`.

    Returns:
      The module, or the tree of modules.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.graph.unflatten(*nnx.graph.flatten({"a": nnx.Param(1.0)}))
      {'a': Param(
        value=1.0
      )}
    """
    if isinstance(state, list):
        state = dict(zip(itertools.chain(*graphdef.paths), state, strict=True))
    leaves = dict(state.leaves_by_path() if isinstance(state, State) else state.items())
    originals = outer_index_outer_ref or {}
    existing = {i: originals[origin] for i, origin in graphdef.origins if origin in originals}
    built: dict[int, Any] = dict(index_ref or {})
    modes = copy_variables, recreate_variables
    merged = build_from_leaves(graphdef, leaves, "unflatten", *modes, built=built, existing=existing)
    if index_ref is not None:
        index_ref.update(built)
    return merged
