"""Graphs taken apart and put together: `split`, `merge`, `update`, `state`, `clone`, `pop`, iteration and kin.

What users call; `graphs` does the walking. A split or `state` shares its variables with the module, so that nothing is
copied; `clone`, `merge(..., copy=True)` and any function of pytrees make new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from phalanx.core.errors import ArgumentError, ArgumentTypeError, TreeError
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graphs import (
    Graph,
    GraphDef,
    Misfit,
    Walk,
    build,
    build_from_leaves,
    build_nested,
    entries,
    graph_of,
    read,
)
from phalanx.nnx.levels import check_level
from phalanx.nnx.objects import Object, is_array, touch
from phalanx.nnx.states import Path, State, _one_or_all, _states_by, check_shape, path_text, to_flat_state
from phalanx.nnx.variable import Variable
from phalanx.tree import tree_map


def _state_of(graph: Graph, node: Any) -> State:
    return State.from_flat_path(graph.entries(node))


def graphdef(node: Any, /, *, graph: bool | None = None) -> GraphDef:
    """The structure of a module, or of a tree of modules.

    Args:
      node: the module.
      graph: taken for compatibility.

    Returns:
      The `GraphDef`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.graphdef([nnx.Param(1.0)]) is nnx.graphdef([nnx.Param(2.0)])
      True
    """
    return graph_of(node).definition


def split(node: Any, *filters: Filter, graph: bool | None = None) -> tuple:
    """The structure of a module, and its variables and arrays.

    Args:
      node: a module, or a tree of modules.
      *filters: which leaves go into which state, the first match counting; one state with all of them without.
      graph: taken for compatibility.

    Returns:
      `(graphdef, state, ...)` with a state for each filter, whose variables are those of the module.

    Raises:
      ArgumentError: no filter means a leaf, or `...` is not the last one.

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
    found = graph_of(node)
    if not filters:
        return found.definition, _state_of(found, node)
    return (found.definition, *_states_by(found.entries(node), filters, "split", exhaustive=True))


def merge(graphdef: GraphDef, /, *states: Any, copy: bool = False, recreate_variables: bool = True) -> Any:
    """The module of a structure and states: the inverse of `split`.

    Args:
      graphdef: the structure.
      *states: states that together have a leaf for each place.
      copy: whether the module's variables are new ones, or those of the states.
      recreate_variables: taken for compatibility.

    Returns:
      The module, or the tree of modules.

    Raises:
      TreeError: a place has no leaf, or a leaf no place.
      ArgumentTypeError: `graphdef` is no `GraphDef`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.merge(*nnx.split({"a": nnx.Param(1.0)}))
      {'a': Param(value=1.0)}
    """
    if not isinstance(graphdef, GraphDef):
        raise ArgumentTypeError(
            "merge, argument graphdef", expected="a GraphDef", got=graphdef, mend="pass what `split` gave first"
        )
    if graphdef.paths[0] == [()] or graphdef.paths[1] == [()]:
        return build_from_leaves(graphdef, {(): states[0]}, "merge", copy)
    if len(states) == 1 and type(states[0]) is State and not copy:
        with contextlib.suppress(Misfit):  # the road below finds out where it does not fit
            return build_nested(graphdef.root, states[0]._mapping, {})
    flat: dict[Path, Any] = {}
    for s in states:
        flat.update(s._leaves() if type(s) is State else to_flat_state(s).items())
    return build_from_leaves(graphdef, flat, "merge", copy)


def state(node: Any, *filters: Filter, graph: bool | None = None) -> Any:
    """The variables and arrays of a module.

    Args:
      node: a module, or a tree of modules.
      *filters: which leaves; a leaf that no filter means is left out.
      graph: taken for compatibility.

    Returns:
      A state, or a tuple with one for each filter where there are several.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Param)
      State({'a': Param(value=1.0)})
    """
    found = graph_of(node)
    if not filters:
        return _state_of(found, node)
    return _one_or_all(_states_by(found.entries(node), filters, "state", exhaustive=False))


def variables(node: Any, *filters: Filter, graph: bool | None = None) -> Any:
    """The variables of a module, without its other arrays.

    Args:
      node: a module, or a tree of modules.
      *filters: which variables.
      graph: taken for compatibility.

    Returns:
      A state, or a tuple with one for each filter where there are several.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variables({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Cache)
      State({'b': Cache(value=2.0)})
    """
    found = graph_of(node)
    items = list(zip(found.paths, found.variables))
    return _one_or_all(_states_by(items, filters or (...,), "variables", exhaustive=False))


def update(node: Any, state: Any, /, *states: Any) -> None:
    """Set the variables and arrays of a module from states.

    Args:
      node: a module, or a tree of modules.
      state, *states: states, or nested mappings of variables or values; what they do not have stays as it is. A
        variable where the module has none becomes a new attribute.

    Raises:
      ShapeError: a value has another shape than the one it takes the place of.
      TreeError: a value stands where the module has nothing.
      TraceContextError: the module belongs to another trace level.

    Examples:
      >>> from phalanx import nnx
      >>> model = {"a": nnx.Param(1.0)}
      >>> nnx.update(model, {"a": 2.0})
      >>> model["a"].value
      2.0
    """
    found = graph_of(node)
    targets = dict(zip(found.paths, found.variables))
    refs = dict(zip(found.ref_paths, found.refs))
    for path, leaf in _flat_leaves(targets, state, *states):
        target = targets.get(path)
        if target is None:
            _set_leaf(node, refs, path, leaf)
        elif isinstance(leaf, Variable):
            if target is not leaf:
                check_shape("update", path, target._value, leaf._value)
                target.update_from_state(leaf)
        else:
            check_shape("update", path, target._value, leaf)
            target.set_raw_value(leaf)


def _flat_leaves(targets: dict, *states: Any) -> Iterator[tuple[Path, Any]]:
    for s in states:
        if isinstance(s, Variable) or is_array(s):
            yield (), s
        elif isinstance(s, State):
            yield from s._leaves()
        else:
            yield from _open_mapping(s, (), targets)


def _open_mapping(mapping: Any, path: Path, targets: dict) -> Iterator[tuple[Path, Any]]:
    """The leaves of nested mappings; a mapping that is a variable's value is a leaf."""
    if path in targets or not isinstance(mapping, Mapping):
        yield path, mapping
        return
    for key, value in mapping.items():
        yield from _open_mapping(value, (*path, key), targets)


def _set_leaf(node: Any, refs: dict, path: Path, leaf: Any) -> None:
    """Set an array that stands in no variable, or a new variable."""
    if path in refs:
        holder, key = refs[path]
        holder = node if type(holder) is int else holder
        check_shape("update", path, read(holder, key), leaf)
    elif isinstance(leaf, Variable):
        holder, key = _at(node, path[:-1]), path[-1]
    else:
        raise TreeError(
            f"update, {path_text(path)}",
            expected="a path that the module has",
            got="one that it has not",
            mend="correct the path, or pass a variable to make a new attribute",
        )
    if isinstance(holder, Object):
        setattr(holder, key, leaf)
    else:
        holder[key] = leaf


def _at(node: Any, path: Path) -> Any:
    for key in path:
        node = getattr(node, key) if isinstance(node, Object) else node[key]
    return node


def clone(node: Any, variables: bool = True, *, arrays: bool = False, graph: bool | None = None) -> Any:
    """A module of the same structure with variables of its own.

    Args:
      node: a module, or a tree of modules.
      variables: whether variables are copied, or shared with the original.
      arrays: whether arrays are copied too; they cannot change, so that sharing them is safe unless they are donated.
      graph: taken for compatibility.

    Returns:
      The new module.

    Examples:
      >>> from phalanx import nnx
      >>> a = {"w": nnx.Param(1.0)}
      >>> nnx.clone(a)["w"] is a["w"]
      False
    """
    found = graph_of(node)

    def copied(x: Any) -> Any:
        return tree_map(lambda leaf: leaf.copy() if hasattr(leaf, "copy") else leaf, x) if arrays else x

    boxes = [v.copy(copied(v._value)) for v in found.variables] if variables else found.variables
    return build(found.definition.root, iter(boxes), iter([copied(x) for x in found.arrays(node)]), {}, {})


def pop(node: Any, *filters: Filter) -> Any:
    """Take variables out of a module.

    Args:
      node: a module, or a tree of modules.
      *filters: which variables; at least one.

    Returns:
      A state, or a tuple with one for each filter where there are several.

    Raises:
      ArgumentError: no filter is given.

    Examples:
      >>> from phalanx import nnx
      >>> class Model(nnx.Module):
      ...     def __init__(self):
      ...         self.a, self.b = nnx.Param(1.0), nnx.Intermediate(2.0)
      >>> model = Model()
      >>> nnx.pop(model, nnx.Intermediate), hasattr(model, "b")
      (State({'b': Intermediate(value=2.0)}), False)
    """
    if not filters:
        raise ArgumentError(
            "pop",
            expected="at least one filter",
            got="none",
            mend="pass the kind to take out, such as nnx.Intermediate",
        )
    found = graph_of(node)
    states = _states_by(list(zip(found.paths, found.variables)), filters, "pop", exhaustive=False)
    gone = {id(v) for s in states for _, v in s._leaves()}
    if gone:
        _remove(node, gone, set())
    return _one_or_all(states)


def _remove(node: Any, gone: set[int], seen: set[int]) -> Any:
    """A node without any reference to some variables: itself, changed, or a new one if it is a tuple."""
    if id(node) in seen or not isinstance(node, Object | State | dict | list | tuple):
        return node
    seen.add(id(node))
    if isinstance(node, tuple):
        kept = [_remove(x, gone, seen) for x in node if id(x) not in gone]
        return node if len(kept) == len(node) and all(x is y for x, y in zip(kept, node)) else tuple(kept)
    if isinstance(node, list):
        kept = [_remove(x, gone, seen) for x in node if id(x) not in gone]
        if len(kept) != len(node) or any(x is not y for x, y in zip(kept, node)):
            node[:] = kept
        return node
    held: Any = node.__dict__ if isinstance(node, Object) else node
    changed = False
    for name, value in list(held.items()):
        if id(value) in gone:
            if isinstance(node, Object):
                check_level(node, f"popping {name!r}")
            del held[name]
            changed = True
        elif (new := _remove(value, gone, seen)) is not value and not isinstance(value, State):
            held[name] = new
            changed = True
    if changed and isinstance(node, Object):
        touch(node)
    return node


def iter_graph(node: Any, /, *, graph: bool | None = None) -> Iterator[tuple[Path, Any]]:
    """All there is in a graph with its path, what is inside before what it is in, each shared thing once.

    Args:
      node: a module, or a tree of modules.
      graph: taken for compatibility.

    Yields:
      Pairs (path, value).

    Examples:
      >>> from phalanx import nnx
      >>> [path for path, _ in nnx.iter_graph({"a": [nnx.Param(1.0)]})]
      [('a', 0), ('a',), ()]
    """
    yield from _iterate(node, (), set())


def _iterate(x: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Any]]:
    if isinstance(x, Object | Variable | list | dict):
        if id(x) in seen:
            return
        seen.add(id(x))
    for key, value in entries(x):
        yield from _iterate(value, (*path, key), seen)
    yield path, x


def iter_modules(module: Any, /, *, graph: bool | None = None) -> Iterator[tuple[Path, Any]]:
    """All modules in a graph with their paths, the inner ones first.

    Args:
      module: a module, or a tree of modules.
      graph: taken for compatibility.

    Yields:
      Pairs (path, module).

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Sequential(nnx.Dropout(0.5))
      >>> [(path, type(module).__name__) for path, module in nnx.iter_modules(model)]
      [(('layers', 0), 'Dropout'), ((), 'Sequential')]
    """
    from phalanx.nnx.module import Module

    for path, value in iter_graph(module):
        if isinstance(value, Module):
            yield path, value


def iter_children(node: Any, /, *, graph: bool | None = None) -> Iterator[tuple[Any, Any]]:
    """The modules that are attributes of a module, or elements of a container, by name.

    Args:
      node: a module.
      graph: taken for compatibility.

    Yields:
      Pairs (name, module).

    Examples:
      >>> from phalanx import nnx
      >>> [(i, type(module).__name__) for i, module in nnx.iter_children([nnx.Dropout(0.5)])]
      [(0, 'Dropout')]
    """
    from phalanx.nnx.module import Module

    items = node.__dict__ if isinstance(node, Object) else node
    for key, value in sorted(items.items()) if isinstance(items, dict) else enumerate(items):
        if isinstance(value, Module):
            yield key, value


def find_duplicates(node: Any, /, *, only: Filter = ...) -> list[list[Path]]:
    """The paths of what is reached on more than one way.

    Args:
      node: a module, or a tree of modules.
      only: which variables and objects to look at.

    Returns:
      For each such thing its paths.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> nnx.find_duplicates({"a": w, "b": w})
      [[('a',), ('b',)]]
    """
    predicate = to_predicate(only)
    places: dict[int, list[Path]] = {}
    _find(node, (), predicate, places)
    return [paths for paths in places.values() if len(paths) > 1]


def _find(x: Any, path: Path, predicate: Any, places: dict[int, list[Path]]) -> None:
    if isinstance(x, Object | Variable):
        met = id(x) in places
        if predicate(path, x):
            places.setdefault(id(x), []).append(path)
        else:
            places.setdefault(id(x), [])
        if met:
            return
    for key, value in entries(x):
        _find(value, (*path, key), predicate, places)


def map(
    f: Callable[[Path, Any], Any], node: Any, /, *, graph: bool | None = None, recreate_variables: bool = True
) -> Any:
    """A graph of the same structure with `f(path, leaf)` in place of each variable and array.

    Args:
      f: the function; what is no variable becomes the value of one like the old.
      node: a module, or a tree of modules.
      graph, recreate_variables: taken for compatibility.

    Returns:
      The new graph.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.map(lambda path, w: w.value + 1, {"a": nnx.Param(1.0)})
      {'a': Param(value=2.0)}
    """
    found = graph_of(node)
    boxes = [
        y if isinstance(y := f(p, v), Variable) else v.copy(y)
        for p, v in zip(found.paths, found.variables, strict=True)
    ]
    arrays = [f(p, x) for p, x in zip(found.ref_paths, found.arrays(node), strict=True)]
    return build(found.definition.root, iter(boxes), iter(arrays), {}, {})


def recursive_map(f: Callable[[Path, Any], Any], node: Any, /, *, graph: bool | None = None) -> Any:
    """A graph with `f(path, node)` in place of each node and leaf, the inner ones first.

    Args:
      f: the function; it is given copies, which it may change or replace.
      node: a module, or a tree of modules.
      graph: taken for compatibility.

    Returns:
      The new graph.

    Examples:
      >>> from phalanx import nnx
      >>> model = [nnx.Dropout(0.5), nnx.Dropout(0.1)]
      >>> off = lambda path, x: nnx.identity if isinstance(x, nnx.Dropout) else x
      >>> nnx.recursive_map(off, model) == [nnx.identity, nnx.identity]
      True
    """
    return _recursive(f, clone(node, variables=False), (), {})


def _recursive(f: Callable, x: Any, path: Path, done: dict[int, Any]) -> Any:
    if id(x) in done and isinstance(x, Object | Variable):
        return done[id(x)]
    if isinstance(x, Object):
        for name, value in list(x.__dict__.items()):
            if isinstance(value, Object | Variable | list | dict | tuple) or is_array(value):
                x.__dict__[name] = _recursive(f, value, (*path, name), done)
        touch(x)
    elif isinstance(x, list | tuple):
        made = [_recursive(f, v, (*path, i), done) for i, v in enumerate(x)]
        x = type(x)(*made) if hasattr(x, "_fields") else type(x)(made)
    elif isinstance(x, dict):
        x = type(x)({k: _recursive(f, v, (*path, k), done) for k, v in x.items()})
    out = f(path, x)
    if isinstance(x, Object | Variable):
        done[id(x)] = out
    return out


class _Caller:
    """The path of attributes that is to be called on a module put together for the call."""

    def __init__(self, parts: tuple, path: Path):
        self._parts, self._path = parts, path

    def __getattr__(self, name: str) -> _Caller:
        return _Caller(self._parts, (*self._path, name))

    def __getitem__(self, key: Any) -> _Caller:
        return _Caller(self._parts, (*self._path, key))

    def __call__(self, *args: Any, **kwargs: Any) -> tuple:
        module = merge(self._parts[0], *self._parts[1:], copy=True)
        target = module
        for key in self._path:
            target = getattr(target, key) if isinstance(key, str) and hasattr(target, key) else target[key]
        return target(*args, **kwargs), split(module)


def call(graphdef_state: tuple, /) -> _Caller:
    """Methods of a module that is given as `(graphdef, state)`, without changing the state.

    Args:
      graphdef_state: what `split` gave.

    Returns:
      Something to call, or to take a method from and call: it gives `(result, (graphdef, new_state))`.

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
      (2, State({'n': Cache(value=2)}))
    """
    return _Caller(tuple(graphdef_state), ())


def set_attributes(node: Any, *filters: Filter, raise_if_not_found: bool = True, where: str, **values: Any) -> None:
    """Set attributes of all modules in a graph that have them."""
    predicates = [to_predicate(f) for f in filters] or [to_predicate(...)]
    remaining = set(values)
    for path, module in iter_graph(node):
        if not isinstance(module, Object) or not any(p(path, module) for p in predicates):
            continue
        for name, value in values.items():
            if hasattr(module, name):
                remaining.discard(name)
                if getattr(module, name) is not value:
                    setattr(module, name, value)
    if remaining and raise_if_not_found:
        raise ArgumentError(
            where,
            expected="attributes that some module has",
            got=", ".join(sorted(remaining)),
            mend="correct the name or the filters, or pass raise_if_not_found=False",
        )


def set_metadata(node: Any, /, *, only: Filter = ..., **metadata: Any) -> None:
    """Set metadata of all variables in a module.

    Args:
      node: a module, or a tree of modules.
      only: of which variables.
      **metadata: names and values.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> nnx.set_metadata([w], tag="slow")
      >>> w.tag
      'slow'
    """
    predicate = to_predicate(only)
    found = graph_of(node)
    for path, variable in zip(found.paths, found.variables, strict=True):
        if predicate(path, variable):
            variable.set_metadata(**metadata)


def flatten(node: Any, /, **_: Any) -> tuple[GraphDef, Any]:
    """The structure of a module and its leaves by path.

    Args:
      node: a module, or a tree of modules.
      **_: taken for compatibility.

    Returns:
      The `GraphDef` and the `FlatState`.

    Examples:
      >>> from phalanx import nnx
      >>> graphdef, leaves = nnx.graph.flatten({"a": [nnx.Param(1.0)]})
      >>> leaves.paths
      [('a', 0)]
    """
    found = graph_of(node)
    return found.definition, _state_of(found, node).flat_state()


def unflatten(graphdef: GraphDef, state: Any, /, **_: Any) -> Any:
    """The module of a structure and leaves: the inverse of `flatten`.

    Args:
      graphdef: the structure.
      state: a state or a flat state.
      **_: taken for compatibility.

    Returns:
      The module, or the tree of modules.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.graph.unflatten(*nnx.graph.flatten({"a": nnx.Param(1.0)}))
      {'a': Param(value=1.0)}
    """
    flat = dict(state.items()) if not isinstance(state, State) else dict(state._leaves())
    return build_from_leaves(graphdef, flat, "unflatten")


class SplitContext:
    """Several modules taken apart one after the other, what they share numbered once.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     _, first = ctx.split([w])
      ...     _, second = ctx.split({"again": w})
      >>> len(first), len(second)
      (1, 0)
    """

    def __init__(self) -> None:
        self._walk = Walk()

    def split(self, node: Any, *filters: Filter) -> tuple:
        """As `nnx.split`; what an earlier split of this context met is a reference to it, and in no state.

        Args:
          node, *filters: as in `nnx.split`.

        Returns:
          `(graphdef, state, ...)`.
        """
        walk = self._walk
        first, first_ref = len(walk.variables), len(walk.refs)
        definition = walk.visit(node, (), [node], 0)
        leaves = list(zip(walk.paths[first:], walk.variables[first:]))
        refs = zip(walk.ref_paths[first_ref:], walk.refs[first_ref:])
        leaves += [(path, read(holder, key)) for path, (holder, key) in refs]
        return GraphDef(definition), *_states_by(leaves, filters or (...,), "split", exhaustive=True)


class MergeContext:
    """Several modules put together one after the other, what they share made once.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split([w]), ctx.split([w])
      >>> with nnx.merge_context() as ctx:
      ...     (a,), (b,) = (ctx.merge(*part) for part in parts)
      >>> a is b
      True
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def merge(self, graphdef: GraphDef, /, *states: Any) -> Any:
        """As `nnx.merge`, in the order in which they were split.

        Args:
          graphdef, *states: as in `nnx.merge`.

        Returns:
          The module, or the tree of modules.
        """
        flat = {path: leaf for s in states for path, leaf in to_flat_state(s).items()}
        return build_from_leaves(graphdef, flat, "merge", made=self._made)


@contextlib.contextmanager
def split_context() -> Iterator[SplitContext]:
    """Take several modules apart, what they share in one of the states only.

    Returns:
      A context manager that gives a `SplitContext`.

    Examples:
      >>> from phalanx import nnx
      >>> a = {"w": nnx.Param(1.0)}
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split(a), ctx.split([a["w"]])
      >>> len(parts[0][1]), len(parts[1][1])
      (1, 0)
    """
    yield SplitContext()


@contextlib.contextmanager
def merge_context() -> Iterator[MergeContext]:
    """Put together what was taken apart in a `split_context`.

    Returns:
      A context manager that gives a `MergeContext`.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split([w])
      >>> with nnx.merge_context() as ctx:
      ...     ctx.merge(*parts)
      [Param(value=1.0)]
    """
    yield MergeContext()
