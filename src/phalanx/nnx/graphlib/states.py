"""States: the variables and arrays of a graph as a nested mapping, separate from the structure.

A `State` is a pytree and a mutable mapping with attribute access. A `FlatState` lists the same leaves by path. The
other files of `graphlib` convert objects to states and back.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from typing import Any, TypeAlias

from phalanx.core import ArgumentError, ShapeError, TreeError
from phalanx.engine.cache import memoize
from phalanx.nnx.filters import Filter, first_match, to_predicates
from phalanx.nnx.trace_level import structure_version
from phalanx.nnx.tree_text import TreeText
from phalanx.nnx.variable import Variable, get_raw_value
from phalanx.runtime.array import Array
from phalanx.tree import DictKey, PyTreeDef, register_pytree_node, tree_structure
from phalanx.typing import PyTree

Key: TypeAlias = Any  # the name of an attribute, an index, or a key of a dictionary
Path: TypeAlias = tuple[Key, ...]
Items: TypeAlias = Mapping[Path, Any] | Iterable[tuple[Path, Any]]
"""Leaves by path: a mapping, or pairs (path, leaf)."""


def format_path(path: Path) -> str:
    """A path as an expression, such as `layers[0].kernel`."""
    return "".join(f".{k}" if isinstance(k, str) and k.isidentifier() else f"[{k!r}]" for k in path).removeprefix(".")


def format_paths(paths: Sequence[Path]) -> str:
    """The first five of several paths, separated by commas."""
    return ", ".join(map(format_path, paths[:5])) + (", ..." if len(paths) > 5 else "")


class FlatState(Mapping):
    """The leaves of a state by path. Iteration yields pairs (path, leaf), as in Flax.

    Args:
      items: a mapping, or pairs (path, leaf).
      sort: whether to sort the leaves by path.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.statelib.FlatState([(("b",), 1), (("a",), 2)]).paths
      [('a',), ('b',)]
    """

    __slots__ = ("_items",)

    def __init__(self, items: Items, /, *, sort: bool = True):
        pairs = items.items() if isinstance(items, Mapping) else items
        self._items: dict[Path, Any] = dict(sorted(pairs, key=lambda p: _sort_key(p[0])) if sort else pairs)

    paths = property(lambda self: list(self._items))
    leaves = property(lambda self: list(self._items.values()))

    def __getitem__(self, path: Any) -> Any:
        # By number, as in Flax, or by path.
        if isinstance(path, int):
            return list(self)[path]
        return FlatState(list(self)[path], sort=False) if isinstance(path, slice) else self._items[path]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def keys(self) -> KeysView[Path]:
        """Return the paths.

        Returns:
          A view of the paths, in order.
        """
        return self._items.keys()

    def values(self) -> ValuesView[Any]:
        """Return the leaves.

        Returns:
          A view of the leaves, in order.
        """
        return self._items.values()

    def items(self) -> ItemsView[Path, Any]:
        """Return the leaves with their paths.

        Returns:
          A view of pairs (path, leaf), in order.
        """
        return self._items.items()

    def get(self, path: Path, default: Any = None) -> Any:
        """Return the leaf at a path.

        Args:
          path: the path.
          default: the result if there is no leaf at the path.

        Returns:
          The leaf, or the default.
        """
        return self._items.get(path, default)

    def to_nested_state(self) -> State:
        """Return the leaves as a nested mapping.

        Returns:
          A `State`.
        """
        return State.from_flat_path(self._items)

    def split(self, *filters: Filter) -> Any:
        """Split the leaves by filters; each leaf goes to the first filter that matches it.

        Args:
          *filters: the filters.

        Returns:
          A `FlatState`, or a tuple with one for each filter if there are several.

        Raises:
          ArgumentError: no filter matches a leaf.
        """
        return unwrap_single(_group_leaves(self._items.items(), filters, "split", exhaustive=True))

    def filter(self, *filters: Filter) -> Any:
        """Select leaves by filters; leaves that no filter matches are omitted.

        Args:
          *filters: the filters.

        Returns:
          A `FlatState`, or a tuple with one for each filter if there are several.
        """
        return unwrap_single(_group_leaves(self._items.items(), filters, "filter", exhaustive=False))

    @staticmethod
    def merge(*states: FlatState) -> FlatState:
        """Combine several flat states.

        Args:
          *states: the states; if several have a leaf at the same path, the last one is used.

        Returns:
          The `FlatState`.
        """
        return FlatState({k: v for s in states for k, v in s.items()})

    def _to_text(self, text: TreeText) -> str:
        return text.block("FlatState", (("", item) for item in self._items.items()), ("([", "])"))

    def __repr__(self) -> str:
        return TreeText().format(self)


def _sort_key(path: Path) -> tuple:
    """Integers in numerical order, before all other keys."""
    return tuple((0, k, "") if isinstance(k, int) else (1, 0, str(k)) for k in path)


def _group_leaves(
    items: Iterable[tuple[Path, Any]], filters: tuple[Filter, ...], where: str, *, exhaustive: bool
) -> tuple[FlatState, ...]:
    """One group of leaves for each filter; with `exhaustive`, a filter must match every leaf."""
    predicates = to_predicates(filters, where)
    groups: list[list] = [[] for _ in filters]
    # Each leaf is tested against the filters in order: the first match counts.
    for path, leaf in items:
        n = first_match(predicates, path, leaf)
        if n is not None:
            groups[n].append((path, leaf))
        elif exhaustive:
            raise ArgumentError(
                f"{where}, {format_path(path)}",
                expected="a filter that matches it",
                got=f"a {type(leaf).__name__}, which none of {', '.join(map(repr, predicates))} matches",
                fix=f"add the filter nnx.{type(leaf).__name__}, or `...` as the last filter to match all other leaves",
            )
    return tuple(FlatState(g, sort=False) for g in groups)


def split_leaves(
    items: Iterable[tuple[Path, Any]], filters: tuple[Filter, ...], where: str, *, exhaustive: bool
) -> tuple[State, ...]:
    """One state of leaves for each filter, or the leaf itself if it is the root.

    With `exhaustive`, a filter must match every leaf.
    """
    groups = [g._items for g in _group_leaves(items, filters, where, exhaustive=exhaustive)]
    return tuple(g[()] if () in g else State.from_flat_path(g) for g in groups)


def unwrap_single(groups: tuple) -> Any:
    """The only element of a tuple of length 1; otherwise the tuple."""
    return groups[0] if len(groups) == 1 else groups


class State(MutableMapping):
    """The variables and arrays of a graph as a nested mapping: a pytree whose keys are also attributes.

    Args:
      mapping: a nested mapping, or pairs (key, value).
      _copy: whether to copy nested mappings.

    Examples:
      >>> from phalanx import nnx
      >>> state = nnx.State({"a": {"b": 1, "c": 2}})
      >>> state.a.b, state["a"]["c"], state.flat_state().paths
      (1, 2, [('a', 'b'), ('a', 'c')])
    """

    # `state.a` is a new State that refers to a dictionary inside of `state`. `_owner` is the outermost state, which
    # counts the structural changes of all of them.
    __slots__ = ("_mapping", "_owner", "_version", "_watched")

    def __init__(self, mapping: Mapping | Iterable[tuple[Hashable, Any]] = (), /, *, _copy: bool = True):
        if isinstance(mapping, State):
            mapping = mapping._mapping
        object.__setattr__(self, "_mapping", _copy_nested(mapping) if _copy else mapping)
        object.__setattr__(self, "_owner", self)
        object.__setattr__(self, "_version", 0)
        object.__setattr__(self, "_watched", False)

    raw_mapping = property(lambda self: self._mapping)

    def __getitem__(self, key: Hashable) -> Any:
        found = self._mapping[key]
        if type(found) is dict:
            # Nested states are created on access: they share the dictionary, so that setting an entry changes the outer
            # state.
            found = State(found, _copy=False)
            object.__setattr__(found, "_owner", self._owner)
        return found

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look for special methods before `_mapping` is set, whose lookup would recurse without end.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the state has no {name!r}; it has {sorted(map(str, self._mapping))}") from None

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self._mark_structure_changed()
        self._mapping[key] = _copy_nested(value) if isinstance(value, Mapping) else value

    def __delitem__(self, key: Hashable) -> None:
        self._mark_structure_changed()
        del self._mapping[key]

    __setattr__ = __setitem__
    __delattr__ = __delitem__

    def _mark_structure_changed(self) -> None:
        owner = self._owner
        object.__setattr__(owner, "_version", owner._version + 1)
        # `_watched` is a bool: a state that no cached graph contains does not invalidate the graphs of other objects.
        structure_version.count += owner._watched

    def __reduce__(self) -> tuple:
        # The owner and the version belong to this process; a copy of a nested state is a state of its own.
        return State, (self._mapping,)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._mapping == other._mapping

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: State) -> State:
        return State.merge(self, other)

    def __sub__(self, other: State) -> State:
        removed = other.flat_state()
        return State.from_flat_path((p, x) for p, x in self.leaves_by_path() if p not in removed)

    def leaves_by_path(self) -> Iterator[tuple[Path, Any]]:
        """Iterate over the leaves in the order of the nested mapping, without sorting them.

        Returns:
          An iterator of pairs (path, leaf).
        """
        return _iter_leaves(self._mapping, ())

    def flat_state(self) -> FlatState:
        """Return the leaves by path, sorted.

        Returns:
          A `FlatState`.
        """
        return FlatState(self.leaves_by_path())

    @classmethod
    def from_flat_path(cls, flat_state: Items, /) -> State:
        """Create a state from leaves by path.

        Args:
          flat_state: a mapping of paths, or pairs (path, leaf).

        Returns:
          The `State`.
        """
        root: dict = {}
        pairs: Any = flat_state.items() if isinstance(flat_state, Mapping) else flat_state
        for path, leaf in pairs:
            node = root
            for key in path[:-1]:
                node = node.setdefault(key, {})
            node[path[-1]] = leaf
        return cls(root, _copy=False)

    def split(self, first: Filter, /, *filters: Filter) -> Any:
        """Split the state by filters, as `nnx.split_state` does.

        Args:
          first, *filters: the filters, which must match all leaves.

        Returns:
          A state, or a tuple with one for each filter if there are several.

        Raises:
          ArgumentError: no filter matches a leaf.
        """
        return split_state(self, first, *filters)

    def filter(self, first: Filter, /, *filters: Filter) -> Any:
        """Select leaves by filters, as `nnx.filter_state` does.

        Args:
          first, *filters: the filters; leaves that none of them matches are omitted.

        Returns:
          A state, or a tuple with one for each filter if there are several.
        """
        return filter_state(self, first, *filters)

    @staticmethod
    def merge(state: Mapping, /, *states: Mapping) -> State:
        """Combine several states; if several have a leaf at the same path, the last one is used.

        Args:
          state, *states: the states.

        Returns:
          The `State`.
        """
        return merge_state(state, *states)

    def map(self, f: Callable[[Path, Any], Any]) -> State:
        """Replace each leaf by `f(path, leaf)`.

        Args:
          f: the function.

        Returns:
          A new `State`.
        """
        return State.from_flat_path((p, f(p, x)) for p, x in self.leaves_by_path())

    def to_pure_dict(self, extract_fn: Callable | None = None) -> dict:
        """Return nested dictionaries of the values of the variables.

        Args:
          extract_fn: as in `nnx.to_pure_dict`.

        Returns:
          The dictionaries.
        """
        return to_pure_dict(self, extract_fn)

    def replace_by_pure_dict(self, pure_dict: Mapping, replace_fn: Callable | None = None) -> None:
        """Set the values of the variables from nested dictionaries.

        Args:
          pure_dict, replace_fn: as in `nnx.replace_by_pure_dict`, which also lists the errors.
        """
        replace_by_pure_dict(self, pure_dict, replace_fn)

    def _to_text(self, text: TreeText) -> str:
        return _NestedState(self._mapping)._to_text(text, type(self).__name__, ("({", "})"))

    def __repr__(self) -> str:
        return TreeText().format(self)


def _copy_nested(mapping: Mapping | Iterable[tuple[Hashable, Any]]) -> dict:
    """Copy nested mappings to nested dictionaries."""
    pairs = mapping.items() if isinstance(mapping, Mapping) else mapping
    return {k: _copy_nested(v) if isinstance(v, Mapping) else v for k, v in pairs}


def _iter_leaves(mapping: Mapping, path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in mapping.items():
        if type(value) is dict:
            yield from _iter_leaves(value, (*path, key))
        else:
            yield (*path, key), value


class _NestedState:
    """A nested dictionary of a state, for its text."""

    def __init__(self, mapping: dict):
        self._mapping = mapping

    def _to_text(self, text: TreeText, name: str = "", brackets: tuple[str, str] = ("{", "}")) -> str:
        items = [(f"{k!r}: ", _NestedState(v) if type(v) is dict else v) for k, v in self._mapping.items()]
        return text.block(name, items, brackets)


# --- states as pytrees ---


@memoize("nnx.sorted_keys", 4096)
def _sort_keys(keys: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    return tuple(sorted(keys, key=lambda k: _sort_key((k,))))


def flatten_state(mapping: dict, leaves: list[Any], shape: list[Any]) -> bool:
    """Append the leaves of a state, in pytree order, and a description of its structure. A fast path for `nnx.jit`.

    Args:
      mapping: the nested dictionaries.
      leaves: receives the leaves.
      shape: receives hashable values that distinguish states of different structure.

    Returns:
      Whether all leaves are variables and arrays. If not, the appended values must not be used.
    """
    keys = _sort_keys(tuple(mapping))
    shape.append(keys)
    for key in keys:
        value = mapping[key]
        kind = type(value)
        if kind is dict:
            if not flatten_state(value, leaves, shape):
                return False
        elif kind is Array or isinstance(value, Variable):
            leaves.append(value)
            # Variables are distinguished by the joint graph, so that it is enough to tell them from arrays here.
            shape.append(kind is Array)
        else:
            return False
    return True


def _flatten(state: State) -> tuple:
    keys = _sort_keys(tuple(state._mapping))
    return [_as_node(state._mapping[k]) for k in keys], keys


def _flatten_with_keys(state: State) -> tuple:
    children, keys = _flatten(state)
    return [(DictKey(k), x) for k, x in zip(keys, children)], keys


def _unflatten(keys: tuple, children: Iterable[Any]) -> State:
    return State({k: x._mapping if type(x) is State else x for k, x in zip(keys, children, strict=True)}, _copy=False)


def make_unflatten(tree: PyTreeDef) -> Callable[[Iterable[Any]], Any]:
    """The function `tree.unflatten`. For a state of leaves, it calls no Python function for each level of the mapping.

    Args:
      tree: the structure.
    """
    layout = _get_layout(tree)
    if not layout:
        return tree.unflatten
    return lambda leaves: State(_fill(layout, iter(leaves)), _copy=False)


def _get_layout(tree: PyTreeDef) -> Any:
    """The keys of a state, each with the layout of its value: None for a leaf, () for a node that is no state."""
    node = tree.node_data()
    if node is None:
        return None if tree.num_leaves else ()
    inner = [_get_layout(child) for child in tree.children()]
    return () if node[0] is not State or () in inner else tuple(zip(node[1], inner))


def _fill(layout: tuple, leaves: Iterator[Any]) -> dict:
    return {key: next(leaves) if inner is None else _fill(inner, leaves) for key, inner in layout}


def _as_node(value: Any) -> Any:
    return State(value, _copy=False) if type(value) is dict else value


# Each level of the mapping is a pytree node, so that `tree.map` over a state is as fast as over nested dictionaries.
register_pytree_node(State, _flatten, _unflatten, _flatten_with_keys)
register_pytree_node(
    FlatState,
    lambda s: (list(s.values()), tuple(s.keys())),
    lambda keys, children: FlatState(zip(keys, children, strict=True), sort=False),
)


# --- functions of states ---


def to_flat_state(state: Mapping) -> FlatState:
    """Return the leaves of a state by path, sorted.

    Args:
      state: a state, or nested dictionaries.

    Returns:
      The `FlatState`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.to_flat_state(nnx.State({"a": {"b": 1}})).paths
      [('a', 'b')]
    """
    if isinstance(state, FlatState):
        return state
    return state.flat_state() if isinstance(state, State) else FlatState(_iter_leaves(_copy_nested(state), ()))


def from_flat_state(flat_state: Items, *, cls: type = State) -> Any:
    """Create a state from leaves by path.

    Args:
      flat_state: a `FlatState`, a mapping of paths, or pairs (path, leaf).
      cls: the class of the result.

    Returns:
      A `State`, or an instance of `cls`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.from_flat_state({("a", "b"): 1})
      State({
        'a': {
          'b': 1
        }
      })
    """
    return State.from_flat_path(flat_state) if cls is State else cls(State.from_flat_path(flat_state)._mapping)


def split_state(state: State, first: Filter, /, *filters: Filter) -> Any:
    """Split a state by filters; each leaf goes to the first filter that matches it.

    Args:
      state: the state.
      first, *filters: the filters, which must match all leaves.

    Returns:
      A state, or a tuple with one for each filter if there are several.

    Raises:
      ArgumentError: no filter matches a leaf.

    Examples:
      >>> from phalanx import nnx
      >>> params, rest = nnx.split_state(
      ...     nnx.State({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}), nnx.Param, ...
      ... )
      >>> rest
      State({
        'b': Cache(
          value=2.0
        )
      })
    """
    return unwrap_single(split_leaves(state.flat_state().items(), (first, *filters), "split", exhaustive=True))


def filter_state(state: State, first: Filter, /, *filters: Filter) -> Any:
    """Select leaves of a state by filters; leaves that no filter matches are omitted.

    Args:
      state: the state.
      first, *filters: the filters; each leaf goes to the first one that matches it.

    Returns:
      A state, or a tuple with one for each filter if there are several.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.filter_state(nnx.State({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}), nnx.Param)
      State({
        'a': Param(
          value=1.0
        )
      })
    """
    return unwrap_single(split_leaves(state.flat_state().items(), (first, *filters), "filter", exhaustive=False))


def merge_state(state: Mapping, /, *states: Mapping, cls: type = State) -> Any:
    """Combine several states; if several have a leaf at the same path, the last one is used.

    Args:
      state, *states: the states.
      cls: the class of the result.

    Returns:
      A `State`, or an instance of `cls`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.merge_state(nnx.State({"a": 1}), nnx.State({"b": 2}))
      State({
        'a': 1,
        'b': 2
      })
    """
    if not states and isinstance(state, cls):
        return state
    return from_flat_state({path: x for s in (state, *states) for path, x in to_flat_state(s).items()}, cls=cls)


def diff(state: State, other: State) -> State:
    """Return the leaves of a state at paths that another state does not have.

    Args:
      state, other: the states.

    Returns:
      A new `State`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.statelib.diff(nnx.State({"a": 1, "b": 2}), nnx.State({"b": 3}))
      State({
        'a': 1
      })
    """
    return state - other


def map_state(f: Callable[[Path, Any], Any], state: State) -> State:
    """Replace each leaf of a state by `f(path, leaf)`.

    Args:
      f: the function.
      state: the state.

    Returns:
      A new `State`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.map_state(lambda path, x: x + 1, nnx.State({"a": 1}))
      State({
        'a': 2
      })
    """
    return state.map(f)


def to_pure_dict(state: State, extract_fn: Callable[[Any], Any] | None = None) -> dict:
    """Return nested dictionaries of the values of a state's variables.

    Args:
      state: the state.
      extract_fn: applied to each leaf; by default it returns the value of a variable.

    Returns:
      The dictionaries.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.to_pure_dict(nnx.State({"a": {"b": nnx.Param(1.0)}}))
      {'a': {'b': 1.0}}
    """
    extract = extract_fn or get_raw_value
    return state.map(lambda _, x: extract(x))._mapping


def replace_by_pure_dict(state: State, pure_dict: Mapping, replace_fn: Callable[[Any, Any], Any] | None = None) -> None:
    """Set the values of a state's variables from nested dictionaries.

    Args:
      state: the state.
      pure_dict: the values. Integer keys may be given as text, as in checkpoints.
      replace_fn: returns the new leaf, `(leaf, value) -> leaf`; by default a copy of the variable with the value.

    Raises:
      TreeError: there is a value at a path where the state has no leaf.
      ShapeError: without `replace_fn`, a value has another shape than the value it replaces.

    Examples:
      >>> from phalanx import nnx
      >>> state = nnx.State({"a": nnx.Param(1.0)})
      >>> nnx.replace_by_pure_dict(state, {"a": 2.0})
      >>> state
      State({
        'a': Param(
          value=2.0
        )
      })
    """
    replace = replace_fn or (lambda x, v: x.replace(v) if isinstance(x, Variable) else v)
    # The values are collected first: if one of them is unsuitable, the state is not changed.
    flat = dict(state.leaves_by_path())
    for path, value in _iter_leaves(_copy_nested(pure_dict), ()):
        if path not in flat:
            path = tuple(int(k) if isinstance(k, str) and k.isdigit() else k for k in path)
        if path not in flat:
            raise missing_path_error("replace_by_pure_dict", "state", path, flat)
        if replace_fn is None:
            check_shape("replace_by_pure_dict", path, get_raw_value(flat[path]), value)
        flat[path] = replace(flat[path], value)
    state._mark_structure_changed()
    object.__setattr__(state, "_mapping", State.from_flat_path(flat)._mapping)


def missing_path_error(where: str, kind: str, path: Path, known: Iterable[Path]) -> TreeError:
    """The error for a value at a path that a state or module does not have; shows up to five known paths.

    Args:
      where: the caller.
      kind: "state" or "module".
      path: the path.
      known: the paths of the state or module.
    """
    paths = list(known)
    advice = f"correct the path; the {kind} has {format_paths(paths)}" if paths else f"pass a {kind} that has leaves"
    if kind == "module":
        advice += ". To create an attribute, pass a variable such as nnx.Param(value)"
    return TreeError(
        f"{where}, {format_path(path)}",
        expected=f"a path of the {kind}",
        got="a path that it does not have",
        fix=advice,
    )


def check_shape(where: str, path: Path, old: PyTree, new: PyTree) -> None:
    """Check that a value has the same shape or structure as the value it replaces.

    Raises:
      ShapeError: the shapes differ.
      TreeError: the structures differ.
    """
    shape, new_shape = getattr(old, "shape", None), getattr(new, "shape", None)
    if shape is not None and new_shape is not None:
        if tuple(shape) != tuple(new_shape):
            raise ShapeError(
                f"{where}, {format_path(path)}",
                expected=f"a value of shape {tuple(shape)}",
                got=f"a value of shape {tuple(new_shape)}",
                fix="pass the state of a module of the same sizes, or assign to variable.value to change the shape",
            )
    # Values without a shape, such as tuples of arrays, must have equal structures.
    elif shape is None and new_shape is None and tree_structure(old) != tree_structure(new) and old is not None:
        raise TreeError(
            f"{where}, {format_path(path)}",
            expected=f"a value of structure {tree_structure(old)}",
            got=str(tree_structure(new)),
            fix="pass the state of a module whose variable holds a value of the same structure",
        )


def restore_int_paths(pure_dict: Mapping) -> dict:
    """Convert keys that are integers written as text back to integers, for instance after loading a checkpoint.

    Args:
      pure_dict: nested dictionaries.

    Returns:
      The new dictionaries.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.restore_int_paths({"layers": {"0": 1.0}})
      {'layers': {0: 1.0}}
    """
    return {
        int(k) if isinstance(k, str) and k.isdigit() else k: restore_int_paths(v) if isinstance(v, Mapping) else v
        for k, v in pure_dict.items()
    }
