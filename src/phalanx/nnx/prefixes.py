"""Prefixes of arguments that hold modules: `StateAxes`, `StateSharding`, and what they say of each variable.

A transformation's option (`in_axes`, `in_shardings`, ...) is a prefix of the arguments; where it meets a module it is
one value for all its variables, or says by filters, or by a `State` of the same paths, what holds for which. Used by
every lifted transformation; that no variable is reached with two different values is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from phalanx.core.errors import ArgumentError
from phalanx.nnx.filters import AnyOf, Everything, OfType, first_match, predicates_of
from phalanx.nnx.graphs import entries, graph_of
from phalanx.nnx.lifting import ROOTS, Outcome, Parts
from phalanx.nnx.objects import Object
from phalanx.nnx.states import Path, State, path_text
from phalanx.nnx.variable import Static, Variable
from phalanx.tree import flatten_axes


class Carry:
    """What `scan` carries from one iteration to the next, where it stands in `in_axes` and `out_axes`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> sums = nnx.scan(lambda c, x: (c + x, c + x), in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
      >>> sums(0.0, jnp.arange(3.0))[1].tolist()
      [0.0, 1.0, 3.0]
    """


class ByFilter(Mapping):
    """What holds for which variable of a module: a mapping from filters, or a `State` of the same paths.

    Args:
      table: a mapping from filters to values, pairs of both, or a state with a value for each variable.
    """

    __slots__ = ("_exact", "_filters", "_predicates", "_values")

    def __init__(self, table: Any, /):
        self._exact: dict[Path, Any] | None = None
        self._filters: tuple = ()
        self._values: tuple = ()
        if isinstance(table, State):
            self._exact = {p: x.raw_value if isinstance(x, Variable) else x for p, x in table._leaves()}
        else:
            pairs: Iterable = table.items() if isinstance(table, Mapping) else table
            pairs = tuple(pairs)
            self._filters = tuple(f for f, _ in pairs)
            self._values = tuple(v for _, v in pairs)
        self._predicates = predicates_of(self._filters, type(self).__name__)

    filters = property(lambda self: self._filters)

    def pick(self, path: Path, box: Any, where: str) -> Any:
        """What holds for a variable or an array at a path.

        Raises:
          ArgumentError: nothing was said of it.
        """
        if self._exact is not None:
            if path in self._exact:
                return self._exact[path]
            raise ArgumentError(
                f"{where}, {path_text(path)}",
                expected=f"a value for it in the state that {type(self).__name__} was given",
                got="none",
                mend="take the state from the module itself, with nnx.state and nnx.map_state",
            )
        n = first_match(self._predicates, path, box)
        if n is None:
            raise ArgumentError(
                f"{where}, {path_text(path)}",
                expected="a filter that means it",
                got=f"a {type(box).__name__}, which none of {', '.join(map(repr, self._predicates))} means",
                mend="add a filter for it, or `...` as the last one for all that is left",
            )
        return self._values[n]

    def check_used(self, items: Iterable[tuple[Path, Any]], where: str) -> None:
        """Refuse a path, a tag or a predicate that means no variable, which is most likely a mistake.

        A kind of variable may be missing: prefixes are written for many models, and variables are made inside.

        Raises:
          ArgumentError: there is one.
        """
        met = {first_match(self._predicates, path, box) for path, box in items}
        for n in range(len(self._filters)):
            if n not in met and not isinstance(self._predicates[n], OfType | Everything | AnyOf):
                raise ArgumentError(
                    f"{where}, filter {self._predicates[n]!r}",
                    expected="a filter that means at least one variable",
                    got="none",
                    mend="drop the filter, or correct it",
                )

    def __getitem__(self, filter: Any) -> Any:
        for f, v in zip(self._filters, self._values):
            if f == filter:
                return v
        raise KeyError(filter)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._filters)

    def __len__(self) -> int:
        return len(self._filters)

    def _key(self) -> tuple:
        exact = None if self._exact is None else tuple((p, Static(v)) for p, v in sorted(self._exact.items(), key=str))
        return type(self), self._filters, tuple(map(Static, self._values)), exact

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self._exact is not None:
            return f"{type(self).__name__}({ {path_text(p): v for p, v in self._exact.items()}!r})"
        return f"{type(self).__name__}({dict(zip(map(repr, self._predicates), self._values))!r})"


class StateAxes(ByFilter):
    """For `vmap`, `scan` and `pmap`: the dimension along which the variables of a module are mapped, by filter.

    Args:
      table: a mapping from filters to dimensions (None for variables that are the same for all), pairs of both, or a
        state with a dimension for each variable.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> axes = nnx.StateAxes({nnx.Param: 0, ...: None})
      >>> model = {"w": nnx.Param(jnp.arange(3.0)), "n": nnx.Cache(jnp.array(2.0))}
      >>> nnx.vmap(lambda m: m["w"] * m["n"], in_axes=({"w": 0, "n": None},))(model).tolist()
      [0.0, 2.0, 4.0]
    """

    __slots__ = ()
    axes = property(lambda self: self._values)


class StateSharding(ByFilter):
    """For `jit` and `shard_map`: the sharding or spec of the variables of a module, by filter.

    Args:
      table: a mapping from filters to shardings or specs, pairs of both, or a state with one for each variable.

    Examples:
      >>> from phalanx import nnx
      >>> from phalanx.sharding import P
      >>> specs = nnx.StateSharding({nnx.Param: P("model"), ...: P()})
      >>> specs.pick(("w",), nnx.Param(1.0), "here")
      PartitionSpec('model')
    """

    __slots__ = ()
    shardings = property(lambda self: self._values)


def prefix(node: Any, filter_map: Any, /, *, graph: bool | None = None) -> ByFilter:
    """What holds for each variable of a module, to stand for the module in `in_axes`, `in_specs` and their kin.

    Args:
      node: the module.
      filter_map: a mapping from filters to values, or a function `(path, variable) -> value`.
      graph: taken for compatibility.

    Returns:
      A `StateAxes`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
      >>> nnx.prefix(model, {nnx.Param: 0, ...: None}).pick(("scale",), model.scale, "here")
      0
    """
    table = filter_map if isinstance(filter_map, ByFilter) or callable(filter_map) else StateAxes(filter_map)
    choose = table if callable(table) else lambda path, box: table.pick(path, box, "prefix")
    return StateAxes(State.from_flat_path((path, choose(path, box)) for path, box in graph_of(node).entries(node)))


def _is_leaf(x: Any) -> bool:
    return x is None or x is Carry


class InputPrefix:
    """A prefix of a call's arguments, spread over its leaves and over the values of its modules.

    Args:
      where: the transformation and option, for messages.
      prefix: the option.
      parts: the arguments, as `(args, kwargs)`.
      default: what holds for keyword arguments.

    Raises:
      TreeError: it is no prefix.
      ArgumentError: a filter means nothing, a variable is meant by no filter, or reached with two different values.
    """

    def __init__(self, where: str, prefix: Any, parts: Parts, default: Any = None):
        args_tree, kwargs_tree = parts.tree.children()
        self.leaves = flatten_axes(where, args_tree, prefix, is_leaf=_is_leaf, lists_as_tuples=True)
        self.leaves += [default] * kwargs_tree.num_leaves
        self.where = where
        self.roots = [s for s, x in zip(self.leaves, parts.leaves, strict=True) if isinstance(x, ROOTS)]
        self.arrays = [s for s, x in zip(self.leaves, parts.leaves, strict=True) if not isinstance(x, ROOTS)]
        boxes = list(zip(parts.paths(), parts.boxes(), strict=True))
        self.values = [pick(self.roots[n], path, box, where) for (n, path), box in boxes]
        _check_aliasing(where, parts, self.roots, self.values)
        for n, spec in enumerate(self.roots):
            if isinstance(spec, ByFilter):
                spec.check_used([(path, box) for (m, path), box in boxes if m == n], where)

    def shadowed(self, parts: Parts) -> Any:
        """The prefix as a tree of the arguments' structure with shadows for the modules."""
        shadows = iter(parts.shadows(self.values))
        filled = [next(shadows) if isinstance(x, ROOTS) else s for x, s in zip(parts.leaves, self.leaves, strict=True)]
        return parts.tree.unflatten(filled)


def pick(spec: Any, path: Path, box: Any, where: str) -> Any:
    """What a module's prefix says of a variable or an array."""
    return spec.pick(path, box, where) if isinstance(spec, ByFilter) else spec


def output_specs(where: str, prefix: Any, outcome: Outcome, inputs: InputPrefix) -> list:
    """What holds for each output value: results by their own prefix, changed variables as they came in.

    Args:
      where: the transformation and option, for messages.
      prefix: the option for the result.
      outcome: what the function gave.
      inputs: the option for the arguments.
    """
    leaves = flatten_axes(where, outcome.tree, prefix, is_leaf=_is_leaf, lists_as_tuples=True)
    nodes = [s for s, is_node in zip(leaves, outcome.is_node, strict=True) if is_node]
    specs = []
    for origin in outcome.origins:
        if origin.kind == "out":
            specs.append(leaves[origin.number])
        elif origin.kind == "variable":
            specs.append(inputs.values[origin.number])
        elif origin.number < outcome.num_roots:
            specs.append(pick(inputs.roots[origin.number], origin.path, origin.variable, inputs.where))
        else:
            specs.append(pick(nodes[origin.number - outcome.num_roots], origin.path, origin.variable, where))
    return specs


def _check_aliasing(where: str, parts: Parts, roots: list, values: list) -> None:
    """Refuse a variable that is reached on two ways with different values of the prefix."""
    if not parts.graph.definition.has_refs or (
        not any(isinstance(s, ByFilter) for s in roots) and all(_agree(s, roots[0]) for s in roots)
    ):
        return
    first = {id(v): n for n, v in enumerate(parts.graph.variables)}
    places = parts.paths()
    for number, root in enumerate(parts.roots):
        for path, variable in all_paths(root):
            n = first[id(variable)]
            spec = pick(roots[number], path, variable, where)
            if not _agree(spec, values[n]):
                raise ArgumentError(
                    f"{where}, {type(variable).__name__}",
                    expected="the same on every way that leads to a variable",
                    got=f"{values[n]!r} for {_place(places[n])} and {spec!r} for {_place((number, path))}",
                    mend="pass the shared variable in one place only, or give both places the same",
                )


def _agree(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def _place(place: tuple[int, Path]) -> str:
    number, path = place
    return f"{path_text(path) or 'the variable itself'} of module {number}"


def all_paths(root: Any) -> Iterator[tuple[Path, Variable]]:
    """Every way to every variable, other than in circles."""
    yield from _ways(root, (), frozenset())


def _ways(x: Any, path: Path, above: frozenset) -> Iterator[tuple[Path, Variable]]:
    if isinstance(x, Variable):
        yield path, x
        return
    if id(x) in above:
        return
    for key, value in entries(x):
        if isinstance(value, Object | Variable | dict | State | list | tuple):
            yield from _ways(value, (*path, key), above | {id(x)})
