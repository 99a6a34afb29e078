"""States: the variables and arrays of a graph as a nested mapping, apart from its structure.

A `State` is a pytree and a mutable mapping with attribute access; a `FlatState` lists the same leaves by path. Builds
on `filters` and `variable`; `graphs` makes states out of objects and objects out of states.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from phalanx.core.errors import ArgumentError, ShapeError, TreeError
from phalanx.nnx.filters import Filter, first_match, predicates_of
from phalanx.nnx.levels import clock
from phalanx.nnx.variable import Variable
from phalanx.runtime.array import Array
from phalanx.tree import DictKey, register_pytree_node, tree_structure

Path = tuple[Any, ...]


def path_text(path: Path) -> str:
    """A path as users write it: `layers[0].kernel`."""
    return "".join(f".{k}" if isinstance(k, str) and k.isidentifier() else f"[{k!r}]" for k in path).removeprefix(".")


class FlatState(Mapping):
    """The leaves of a state by their paths, in order.

    Args:
      items: pairs (path, leaf).
      sort: whether to sort them by path.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.statelib.FlatState([(("b",), 1), (("a",), 2)]).paths
      [('a',), ('b',)]
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping | Iterable[tuple[Path, Any]], /, *, sort: bool = True):
        pairs = items.items() if isinstance(items, Mapping) else items
        self._items: dict[Path, Any] = dict(sorted(pairs, key=lambda p: _order(p[0])) if sort else pairs)

    paths = property(lambda self: list(self._items))
    leaves = property(lambda self: list(self._items.values()))

    def __getitem__(self, path: Path) -> Any:
        return self._items[path]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, path: object) -> bool:
        return path in self._items

    def keys(self) -> Any:
        """The paths.

        Returns:
          A view of them, in order.
        """
        return self._items.keys()

    def values(self) -> Any:
        """The leaves.

        Returns:
          A view of them, in order.
        """
        return self._items.values()

    def items(self) -> Any:
        """The pairs of both.

        Returns:
          A view of pairs (path, leaf), in order.
        """
        return self._items.items()

    def get(self, path: Path, default: Any = None) -> Any:
        """The leaf at a path.

        Args:
          path: the path.
          default: what there is where it leads nowhere.

        Returns:
          The leaf, or the default.
        """
        return self._items.get(path, default)

    def to_nested_state(self) -> State:
        """The same leaves as a nested mapping.

        Returns:
          A `State`.
        """
        return State.from_flat_path(self._items)

    def split(self, *filters: Filter) -> Any:
        """The leaves that each filter means, the first match counting: one for each filter, which must take all.

        Args:
          *filters: the filters.

        Returns:
          One group of leaves, or several.

        Raises:
          ArgumentError: no filter means a leaf.
        """
        return _one_or_all(_grouped(self._items.items(), filters, "split", exhaustive=True))

    def filter(self, *filters: Filter) -> Any:
        """The leaves that each filter means, the first match counting; what none means is left out.

        Args:
          *filters: the filters.

        Returns:
          One group of leaves, or several.
        """
        return _one_or_all(_grouped(self._items.items(), filters, "filter", exhaustive=False))

    @staticmethod
    def merge(*states: FlatState) -> FlatState:
        """One flat state of several.

        Args:
          *states: the states; where two have a leaf at a path, the later one counts.

        Returns:
          The `FlatState`.
        """
        return FlatState({k: v for s in states for k, v in s.items()})

    def __repr__(self) -> str:
        return f"FlatState({list(self._items.items())!r})"


def _order(path: Path) -> tuple:
    return tuple((0, k, "") if isinstance(k, int) else (1, 0, str(k)) for k in path)


def _grouped(
    items: Iterable[tuple[Path, Any]], filters: tuple, where: str, *, exhaustive: bool
) -> tuple[FlatState, ...]:
    """The leaves sorted into one group for each filter."""
    predicates = predicates_of(filters, where)
    groups: list[list] = [[] for _ in filters]
    for path, leaf in items:
        n = first_match(predicates, path, leaf)
        if n is not None:
            groups[n].append((path, leaf))
        elif exhaustive:
            raise ArgumentError(
                f"{where}, {path_text(path)}",
                expected="a filter that means it",
                got=f"a {type(leaf).__name__}, which none of {', '.join(map(repr, predicates))} means",
                mend="add a filter for it, or `...` as the last one for all that is left",
            )
    return tuple(FlatState(g, sort=False) for g in groups)


def _states_by(items: Iterable[tuple[Path, Any]], filters: tuple, where: str, *, exhaustive: bool) -> tuple[State, ...]:
    """The leaves sorted into one state for each filter."""
    return tuple(State.from_flat_path(g.items()) for g in _grouped(items, filters, where, exhaustive=exhaustive))


def _one_or_all(groups: tuple) -> Any:
    """What users get for their filters: for one of them no tuple."""
    return groups[0] if len(groups) == 1 else groups


class State(MutableMapping):
    """The variables and arrays of a graph, nested as it is: a pytree, and a mapping with its keys as attributes.

    Args:
      mapping: a nested mapping, or pairs (key, value).
      _copy: whether nested mappings are copied.

    Examples:
      >>> from phalanx import nnx
      >>> state = nnx.State({"a": {"b": 1, "c": 2}})
      >>> state.a.b, state["a"]["c"], state.flat_state().paths
      (1, 2, [('a', 'b'), ('a', 'c')])
    """

    __slots__ = ("_mapping", "_owner", "_version", "_watched")

    def __init__(self, mapping: Any = (), /, *, _copy: bool = True):
        if isinstance(mapping, State):
            mapping = mapping._mapping
        object.__setattr__(self, "_mapping", _nested(mapping) if _copy else mapping)
        object.__setattr__(self, "_owner", self)
        object.__setattr__(self, "_version", 0)
        object.__setattr__(self, "_watched", False)

    raw_mapping = property(lambda self: self._mapping)

    def __getitem__(self, key: Any) -> Any:
        found = self._mapping[key]
        if type(found) is dict:
            found = State(found, _copy=False)
            object.__setattr__(found, "_owner", self._owner)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the state has no {name!r}; it has {sorted(map(str, self._mapping))}") from None

    def __setitem__(self, key: Any, value: Any) -> None:
        self._touch()
        self._mapping[key] = _nested(value) if isinstance(value, Mapping) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delitem__(self, key: Any) -> None:
        self._touch()
        del self._mapping[key]

    def __delattr__(self, name: str) -> None:
        del self[name]

    def _touch(self) -> None:
        owner = self._owner
        object.__setattr__(owner, "_version", owner._version + 1)
        clock.time += owner._watched

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._mapping == other._mapping

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: State) -> State:
        return State.merge(self, other)

    def __sub__(self, other: State) -> State:
        gone = other.flat_state()
        return State.from_flat_path((p, x) for p, x in self._leaves() if p not in gone)

    def _leaves(self) -> Iterator[tuple[Path, Any]]:
        return _walked(self._mapping, ())

    def flat_state(self) -> FlatState:
        """The leaves by their paths, sorted.

        Returns:
          A `FlatState`.
        """
        return FlatState(self._leaves())

    @classmethod
    def from_flat_path(cls, flat_state: Mapping | Iterable[tuple[Path, Any]], /) -> State:
        """A state of leaves by their paths.

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
        """A state for each filter, the first match counting; together they must take every leaf.

        Args:
          first, *filters: the filters.

        Returns:
          One state, or a tuple of as many as there are filters.

        Raises:
          ArgumentError: no filter means a leaf.
        """
        return split_state(self, first, *filters)

    def filter(self, first: Filter, /, *filters: Filter) -> Any:
        """A state for each filter, the first match counting; what no filter means is left out.

        Args:
          first, *filters: the filters.

        Returns:
          One state, or a tuple of as many as there are filters.
        """
        return filter_state(self, first, *filters)

    @staticmethod
    def merge(state: Mapping, /, *states: Mapping) -> State:
        """One state of several; where two have a leaf at a path, the later one counts.

        Args:
          state, *states: the states.

        Returns:
          The `State`.
        """
        return merge_state(state, *states)

    def map(self, f: Callable[[Path, Any], Any]) -> State:
        """The state with `f(path, leaf)` in place of each leaf.

        Args:
          f: the function.

        Returns:
          A `State`.
        """
        return State.from_flat_path((p, f(p, x)) for p, x in self._leaves())

    def to_pure_dict(self, extract_fn: Callable | None = None) -> dict:
        """Nested dictionaries of the variables' values.

        Args:
          extract_fn: as in `nnx.to_pure_dict`.

        Returns:
          The dictionaries.
        """
        return to_pure_dict(self, extract_fn)

    def replace_by_pure_dict(self, pure_dict: Mapping, replace_fn: Callable | None = None) -> None:
        """Set the values of the variables from nested dictionaries of them.

        Args:
          pure_dict, replace_fn: as in `nnx.replace_by_pure_dict`, as are the errors.
        """
        replace_by_pure_dict(self, pure_dict, replace_fn)

    def __repr__(self) -> str:
        return f"State({_text(self._mapping, '')})"


def _nested(mapping: Any) -> dict:
    """Nested dictionaries of nested mappings."""
    pairs = mapping.items() if isinstance(mapping, Mapping) else mapping
    return {k: _nested(v) if isinstance(v, Mapping) else v for k, v in pairs}


def _walked(mapping: Mapping, path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in mapping.items():
        if type(value) is dict:
            yield from _walked(value, (*path, key))
        else:
            yield (*path, key), value


def _text(mapping: Any, indent: str) -> str:
    if type(mapping) is not dict:
        return repr(mapping)
    inner = indent + "  "
    texts = {k: _text(v, inner) for k, v in mapping.items()}
    simple = "{" + ", ".join(f"{k!r}: {text}" for k, text in texts.items()) + "}"
    if len(simple) <= 80 and "\n" not in simple:
        return simple
    lines = [_entry(f"{inner}{k!r}: ", mapping[k], text) for k, text in texts.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _entry(head: str, value: Any, text: str) -> str:
    """A key and the text of its value, the lines of an array one below the other."""
    if type(value) is not dict:
        text = text.replace("\n", "\n" + " " * (len(head) + max(0, text.find("Array("))))
    return head + text


@functools.lru_cache(maxsize=4096)
def _sorted(keys: tuple) -> tuple:
    return tuple(sorted(keys, key=lambda k: _order((k,))))


def _sorted_keys(mapping: Mapping) -> tuple:
    return _sorted(tuple(mapping))


def open_state(mapping: dict, leaves: list, shape: list) -> bool:
    """Add the leaves of a state in the order of its tree, and what tells its structure from those of other states.

    Args:
      mapping: the nested dictionaries.
      leaves, shape: added to.

    Returns:
      Whether all leaves are variables and arrays; if not, what was added means nothing.
    """
    keys = _sorted(tuple(mapping))
    shape.append(keys)
    for key in keys:
        value = mapping[key]
        kind = type(value)
        if kind is dict:
            if not open_state(value, leaves, shape):
                return False
        elif kind is Array or isinstance(value, Variable):
            leaves.append(value)
            shape.append(kind is Array)
        else:
            return False
    return True


def _register() -> None:
    # One node for each level, so that `tree.map` over a state costs no more than over the dictionaries it is made of.
    def flatten(state: State) -> tuple:
        keys = _sorted_keys(state._mapping)
        return [_child(state._mapping[k]) for k in keys], keys

    def with_keys(state: State) -> tuple:
        keys = _sorted_keys(state._mapping)
        return [(DictKey(k), _child(state._mapping[k])) for k in keys], keys

    def unflatten(keys: tuple, children: Any) -> State:
        return State(
            {k: x._mapping if type(x) is State else x for k, x in zip(keys, children, strict=True)}, _copy=False
        )

    register_pytree_node(State, flatten, unflatten, with_keys)
    register_pytree_node(
        FlatState,
        lambda s: (list(s.values()), tuple(s.keys())),
        lambda keys, xs: FlatState(zip(keys, xs, strict=True), sort=False),
    )


def _child(value: Any) -> Any:
    return State(value, _copy=False) if type(value) is dict else value


_register()


def to_flat_state(state: State) -> FlatState:
    """The leaves of a state by their paths, sorted.

    Args:
      state: the state.

    Returns:
      The `FlatState`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.to_flat_state(nnx.State({"a": {"b": 1}})).paths
      [('a', 'b')]
    """
    return state.flat_state() if isinstance(state, State) else FlatState(_walked(_nested(state), ()))


def from_flat_state(flat_state: Mapping | Iterable[tuple[Path, Any]], *, cls: type = State) -> Any:
    """A state of leaves by their paths.

    Args:
      flat_state: a `FlatState`, a mapping of paths, or pairs (path, leaf).
      cls: the class of the result.

    Returns:
      A `State`, or an object of `cls`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.from_flat_state({("a", "b"): 1})
      State({'a': {'b': 1}})
    """
    return State.from_flat_path(flat_state) if cls is State else cls(State.from_flat_path(flat_state)._mapping)


def split_state(state: State, first: Filter, /, *filters: Filter) -> Any:
    """A state for each filter, the first match counting; together they must take every leaf.

    Args:
      state: the state.
      first, *filters: the filters.

    Returns:
      One state, or a tuple of as many as there are filters.

    Raises:
      ArgumentError: no filter means a leaf.

    Examples:
      >>> from phalanx import nnx
      >>> params, rest = nnx.split_state(
      ...     nnx.State({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}), nnx.Param, ...
      ... )
      >>> rest
      State({'b': Cache(value=2.0)})
    """
    return _one_or_all(_states_by(state.flat_state().items(), (first, *filters), "split", exhaustive=True))


def filter_state(state: State, first: Filter, /, *filters: Filter) -> Any:
    """A state for each filter, the first match counting; what no filter means is left out.

    Args:
      state: the state.
      first, *filters: the filters.

    Returns:
      One state, or a tuple of as many as there are filters.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.filter_state(nnx.State({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}), nnx.Param)
      State({'a': Param(value=1.0)})
    """
    return _one_or_all(_states_by(state.flat_state().items(), (first, *filters), "filter", exhaustive=False))


def merge_state(state: Mapping, /, *states: Mapping, cls: type = State) -> Any:
    """One state of several; where two have a leaf at a path, the later one counts.

    Args:
      state, *states: the states.
      cls: the class of the result.

    Returns:
      A `State`, or an object of `cls`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.merge_state(nnx.State({"a": 1}), nnx.State({"b": 2}))
      State({'a': 1, 'b': 2})
    """
    if not states and isinstance(state, cls):
        return state
    flat: dict = {}
    for s in (state, *states):
        flat.update(to_flat_state(s).items())
    return from_flat_state(flat, cls=cls)


def map_state(f: Callable[[Path, Any], Any], state: State) -> State:
    """The state with `f(path, leaf)` in place of each leaf.

    Args:
      f: the function.
      state: the state.

    Returns:
      A `State`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.map_state(lambda path, x: x + 1, nnx.State({"a": 1}))
      State({'a': 2})
    """
    return state.map(f)


def _value_of(x: Any) -> Any:
    return x.raw_value if isinstance(x, Variable) else x


def to_pure_dict(state: State, extract_fn: Callable | None = None) -> dict:
    """Nested dictionaries of the values of a state's variables.

    Args:
      state: the state.
      extract_fn: what to take of a leaf; the value of a variable by default.

    Returns:
      The dictionaries.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.to_pure_dict(nnx.State({"a": {"b": nnx.Param(1.0)}}))
      {'a': {'b': 1.0}}
    """
    take = extract_fn or _value_of
    return State.from_flat_path((p, take(x)) for p, x in state._leaves())._mapping


def replace_by_pure_dict(state: State, pure_dict: Mapping, replace_fn: Callable | None = None) -> None:
    """Set the values of a state's variables from nested dictionaries of them.

    Args:
      state: the state.
      pure_dict: the values.
      replace_fn: what a leaf becomes, `(leaf, value) -> leaf`; a copy of the variable with the value by default.

    Raises:
      TreeError: there is a value where the state has no leaf.
      ShapeError: without `replace_fn`, a value has another shape than the one it takes the place of.

    Examples:
      >>> from phalanx import nnx
      >>> state = nnx.State({"a": nnx.Param(1.0)})
      >>> nnx.replace_by_pure_dict(state, {"a": 2.0})
      >>> state
      State({'a': Param(value=2.0)})
    """
    put = replace_fn or (lambda x, v: x.replace(v) if isinstance(x, Variable) else v)
    flat = dict(state._leaves())
    for path, value in _walked(_nested(pure_dict), ()):
        if path not in flat:
            path = tuple(int(k) if isinstance(k, str) and k.isdigit() else k for k in path)
        if path not in flat:
            raise TreeError(
                f"replace_by_pure_dict, {path_text(path)}",
                expected="a path that the state has",
                got="one that it has not",
                mend="take the dictionary from a state of the same structure, with to_pure_dict",
            )
        if replace_fn is None:
            check_shape("replace_by_pure_dict", path, _value_of(flat[path]), value)
        flat[path] = put(flat[path], value)
    state._touch()
    object.__setattr__(state, "_mapping", State.from_flat_path(flat)._mapping)


def check_shape(where: str, path: Path, old: Any, new: Any) -> None:
    """Refuse a value of another shape or structure than the one it takes the place of.

    Raises:
      ShapeError: it has another shape.
      TreeError: it has another structure.
    """
    shape, got = getattr(old, "shape", None), getattr(new, "shape", None)
    if shape is not None and got is not None:
        if tuple(shape) != tuple(got):
            raise ShapeError(
                f"{where}, {path_text(path)}",
                expected=f"a value of shape {tuple(shape)}",
                got=f"one of shape {tuple(got)}",
                mend="pass the state of a module of the same sizes, or set variable.value to change the shape",
            )
    elif shape is None and got is None and tree_structure(old) != tree_structure(new) and old is not None:
        raise TreeError(
            f"{where}, {path_text(path)}",
            expected=f"a value of structure {tree_structure(old)}",
            got=str(tree_structure(new)),
            mend="pass the state of a module of the same structure",
        )


def restore_int_paths(pure_dict: Mapping) -> dict:
    """Nested dictionaries with the integers that were made text, by a checkpoint say, as integers again.

    Args:
      pure_dict: the dictionaries.

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
