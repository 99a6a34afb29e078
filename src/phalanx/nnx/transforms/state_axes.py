"""`StateAxes` and `StateSharding`: options of transformations that assign a value to each variable of a module.

An option of a transformation (`in_axes`, `in_shardings`, `in_specs`, ...) is a pytree prefix of the arguments. For a
module it is a single value for all variables, or a `StateAxes` or `StateSharding` that assigns values by filter or by
path. A variable that is reached along several paths must have the same value on all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter, PathContains, PathIn, first_match, to_predicates
from phalanx.nnx.graph_mode import is_tree_mode
from phalanx.nnx.graphlib import Path, State, check_is_tree, format_path, get_graph, iter_entries, unwrap_key
from phalanx.nnx.objects import ROOTS, Pytree, is_root
from phalanx.nnx.transforms.lifting import InnerModules, LiftedArguments, OutputSpec
from phalanx.nnx.variable import Static, Variable, get_raw_value, is_variable
from phalanx.runtime import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, to_sharding
from phalanx.spmd import device_put
from phalanx.tree import flatten_axes, tree_flatten, tree_map_with_path
from phalanx.typing import PyTree


class Carry:
    """Marks the carry in `in_axes` and `out_axes` of `scan`: the value passed from one iteration to the next.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> sums = nnx.scan(lambda c, x: (c + x, c + x), in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
      >>> sums(0.0, jnp.arange(3.0))[1].tolist()
      [0.0, 1.0, 3.0]
    """


class FilterMap(Mapping):
    """A value for each variable of a module: a mapping from filters, or a `State` with the same paths.

    Args:
      table: a mapping from filters to values, pairs (filter, value), or a state with a value for each variable.
    """

    __slots__ = ("_filters", "_predicates", "_values", "_values_by_path")

    def __init__(self, table: State | Mapping[Filter, Any] | Iterable[tuple[Filter, Any]], /):
        self._values_by_path: dict[Path, Any] | None = None
        pairs: tuple = ()
        if isinstance(table, State):
            self._values_by_path = {p: get_raw_value(x) for p, x in table.leaves_by_path()}
        else:
            pairs = tuple(table.items() if isinstance(table, Mapping) else table)
        self._filters, self._values = tuple(f for f, _ in pairs), tuple(v for _, v in pairs)
        self._predicates = to_predicates(self._filters, type(self).__name__)

    filters = property(lambda self: self._filters)

    def resolve(self, path: Path, leaf: Any, where: str) -> Any:
        """Return the value for a variable or array.

        Args:
          path: the path of the variable in the module.
          leaf: the variable or array.
          where: the transformation and option, for error messages.

        Returns:
          The value.

        Raises:
          ArgumentError: there is no value for it.
        """
        if self._values_by_path is not None:
            if path in self._values_by_path:
                return self._values_by_path[path]
            raise ArgumentError(
                f"{where}, {format_path(path)}",
                expected=f"a value for this path in the state given to {type(self).__name__}",
                got="none",
                fix=f"start from the module: {type(self).__name__}(nnx.map_state(function, nnx.state(module)))",
            )
        # Predicates see the variable without its value if it is an output, since the trace has ended by then.
        n = first_match(self._predicates, path, leaf)
        if n is None:
            raise ArgumentError(
                f"{where}, {format_path(path)}",
                expected="a filter that matches it",
                got=f"a {type(leaf).__name__}, which none of {', '.join(map(repr, self._predicates))} matches",
                fix=f"add the filter nnx.{type(leaf).__name__}, or `...` as the last filter for all other variables",
            )
        return self._values[n]

    def check_filters_match(self, items: Iterable[tuple[Path, Any]], where: str) -> None:
        """Check that each path matches a variable; otherwise it is most likely misspelled.

        Other filters may match nothing: options are written for many models, and variables are created inside.

        Raises:
          ArgumentError: a path matches no variable.
        """
        matched = {first_match(self._predicates, path, leaf) for path, leaf in items}
        for n in range(len(self._filters)):
            if n not in matched and isinstance(self._predicates[n], PathContains | PathIn):
                raise ArgumentError(
                    f"{where}, filter {self._predicates[n]!r}",
                    expected="a filter that matches at least one variable",
                    got="none",
                    fix=f"remove {self._predicates[n]!r}, or correct it; nnx.state(module) shows the paths",
                )

    def __getitem__(self, filter: Filter) -> Any:
        for f, v in zip(self._filters, self._values):
            if f == filter:
                return v
        raise KeyError(filter)

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._filters)

    def __len__(self) -> int:
        return len(self._filters)

    def _key(self) -> Hashable:
        by_path = self._values_by_path
        exact = None if by_path is None else tuple((p, Static(v)) for p, v in sorted(by_path.items(), key=str))
        return type(self), self._filters, tuple(map(Static, self._values)), exact

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self._values_by_path is not None:
            return f"{type(self).__name__}({ {format_path(p): v for p, v in self._values_by_path.items()}!r})"
        return f"{type(self).__name__}({dict(zip(map(repr, self._predicates), self._values))!r})"


class StateAxes(FilterMap):
    """The dimensions along which the variables of a module are mapped, for `vmap`, `scan` and `pmap`.

    Args:
      table: a mapping from filters to dimensions (None for variables that are not mapped), pairs (filter, dimension),
        or a state with a dimension for each variable.

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

    @property
    def state(self) -> State | None:
        """The dimension of each variable as a nested state; None for filters."""
        return None if self._values_by_path is None else State.from_flat_path(self._values_by_path)


class StateSharding(FilterMap):
    """The shardings or specs of the variables of a module, for `jit` and `shard_map`.

    Args:
      table: a mapping from filters to shardings or specs, pairs (filter, sharding), or a state with one for each
        variable.

    Examples:
      >>> from phalanx import nnx
      >>> from phalanx.sharding import P
      >>> specs = nnx.StateSharding({nnx.Param: P("model"), ...: P()})
      >>> specs.resolve(("w",), nnx.Param(1.0), "shard_map, in_specs")
      P('model',)
    """

    __slots__ = ()
    shardings = property(lambda self: self._values)


def prefix(node: PyTree, filter_map: Any, /, *, graph: bool | None = None) -> Any:
    """Assign a value to each variable of a module, to be used for the module in `in_axes`, `in_specs` and so on.

    Args:
      node: a module, or a tree of modules and variables.
      filter_map: a mapping from filters to values, or a function `(path, variable) -> value`.
      graph: True for a `StateAxes`, False for a module with the values as attributes; None for the default of
        `set_graph_mode`.

    Returns:
      The tree with a `StateAxes` or a module of values for each module, and a value for each variable and array.

    Raises:
      ArgumentError: no filter matches a variable or, in tree mode, a variable occurs twice.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
      >>> nnx.prefix(model, {nnx.Param: 0, ...: None}).resolve(("scale",), model.scale, "vmap, in_axes")
      0
    """
    table = filter_map if isinstance(filter_map, FilterMap) or callable(filter_map) else StateAxes(filter_map)
    choose = table if callable(table) else lambda path, leaf: table.resolve(path, leaf, "prefix")
    if is_tree_mode(graph):
        check_is_tree("prefix", get_graph(node).definition)
        return tree_map_with_path(lambda path, x: choose(tuple(map(unwrap_key, path)), x), node, is_leaf=is_variable)

    def assign(key_path: tuple, x: Any) -> Any:
        start = tuple(map(unwrap_key, key_path))
        if not isinstance(x, Pytree):
            return choose(start, x)
        # A shared variable has a value at each of its paths.
        leaves = {**dict(iter_all_paths(x)), **dict(get_graph(x).leaves(x))}
        return StateAxes(State.from_flat_path((path, choose((*start, *path), leaf)) for path, leaf in leaves.items()))

    return tree_map_with_path(assign, node, is_leaf=is_root)


def is_prefix_leaf(x: object) -> bool:
    """Whether a value is a leaf of a prefix: None, `Carry`, or a module of values for a module."""
    return x is None or x is Carry or isinstance(x, Pytree)


class InputPrefix:
    """An option broadcast to the leaves of the arguments, and to the values of the modules among them.

    Args:
      where: the transformation and option, for error messages.
      prefix: the option.
      parts: the arguments, as `(args, kwargs)`.
      default: the value for keyword arguments.

    Raises:
      TreeError: the option is not a prefix of the arguments.
      ArgumentError: a filter matches no variable, a variable is matched by no filter, or a variable that is reached
        along several paths has different values.
    """

    def __init__(self, where: str, prefix: Any, parts: LiftedArguments, default: Any = None):
        args_tree, kwargs_tree = parts.tree.children()
        self.leaves = flatten_axes(where, args_tree, prefix, is_leaf=is_prefix_leaf, lists_as_tuples=True)
        # As in `vmap`, options refer to positional arguments only.
        self.leaves += [default] * kwargs_tree.num_leaves
        self.where = where
        self.roots = [s for s, x in zip(self.leaves, parts.leaves, strict=True) if isinstance(x, ROOTS)]
        self.arrays = [s for s, x in zip(self.leaves, parts.leaves, strict=True) if not isinstance(x, ROOTS)]
        leaves = list(zip(parts.paths(), parts.variables_and_arrays(), strict=True))
        self.values = [resolve_prefix(self.roots[n], path, leaf, where) for (n, path), leaf in leaves]
        _check_shared_variables(where, parts, self.roots, self.values)
        for n, spec in enumerate(self.roots):
            if isinstance(spec, FilterMap):
                spec.check_filters_match([(path, leaf) for (m, path), leaf in leaves if m == n], where)

    def to_pure(self, parts: LiftedArguments) -> Any:
        """The option as a tree of the structure of the arguments, with a `PureModule` for each module."""
        pure = parts.pure_modules(self.values)
        leaves = zip(parts.leaves, self.leaves, strict=True)
        return parts.tree.unflatten([next(pure) if isinstance(x, ROOTS) else s for x, s in leaves])


def resolve_prefix(spec: Any, path: Path, leaf: Any, where: str) -> Any:
    """The value for a variable or array of a module, from the option for the module."""
    if isinstance(spec, Pytree):
        return _follow(spec, path, where)
    return spec.resolve(path, leaf, where) if isinstance(spec, FilterMap) else spec


def _follow(spec: Pytree, path: Path, where: str) -> Any:
    """The value at a path of a module of values; a value in place of a container holds for all leaves in it."""
    value: Any = spec
    for n, key in enumerate(path):
        entries = dict(iter_entries(value))
        if not entries and not isinstance(value, Pytree | dict | list | tuple | State):
            return value
        if key not in entries:
            raise ArgumentError(
                f"{where}, {format_path(path)}",
                expected=f"a value at this path of the {type(spec).__name__} given as a prefix",
                got=f"none at {format_path(path[: n + 1])}",
                fix="make the prefix from the module: nnx.prefix(module, function, graph=False)",
            )
        value = entries[key]
    return value


def get_output_prefixes(where: str, prefix: Any, outcome: OutputSpec, inputs: InputPrefix) -> list[Any]:
    """The value of an option for each output value.

    Changed variables have the value of the corresponding input, and new variables that of the module which contains
    them, so that `out_axes` describes the result of the function only.

    Args:
      where: the transformation and option, for error messages.
      prefix: the option for the result.
      outcome: the output spec of the function.
      inputs: the option for the arguments.
    """
    # The structure of the result is known only after tracing, so that the prefix is broadcast here.
    leaves = flatten_axes(where, outcome.tree, prefix, is_leaf=is_prefix_leaf, lists_as_tuples=True)
    nodes = [s for s, is_node in zip(leaves, outcome.is_node, strict=True) if is_node]
    specs = []
    for origin in outcome.origins:
        if origin.kind == "out":
            specs.append(leaves[origin.number])
        elif origin.kind == "variable":
            specs.append(inputs.values[origin.number])
        elif origin.number < outcome.num_roots:
            specs.append(resolve_prefix(inputs.roots[origin.number], origin.path, origin.variable, inputs.where))
        else:
            spec = nodes[origin.number - outcome.num_roots]
            specs.append(resolve_prefix(spec, origin.path, origin.variable, where))
    return specs


def check_returned_variables(
    where: str, inside: InnerModules, out: PyTree, prefix: PyTree, inputs: InputPrefix
) -> None:
    """Check that a variable of the arguments has the same value in the option for the result, if it is returned.

    Args:
      where: the transformation and option, for error messages.
      inside: the modules built inside the transformation.
      out: the result of the user's function.
      prefix: the option for the result.
      inputs: the option for the arguments.

    Raises:
      ArgumentError: the values differ; the variable would have to be mapped in two ways.
    """
    leaves, tree = tree_flatten(out, is_leaf=is_root)
    if not any(map(is_root, leaves)):
        return
    number_of = {id(v): n for n, v in enumerate(inside.variables)}
    for leaf, spec in zip(leaves, flatten_axes(where, tree, prefix, is_leaf=is_prefix_leaf, lists_as_tuples=True)):
        for path, variable in iter_all_paths(leaf) if is_root(leaf) else ():
            number = number_of.get(id(variable))
            if number is None:
                continue
            value, expected = resolve_prefix(spec, path, variable, where), inputs.values[number]
            if not _is_equal(value, expected):
                raise ArgumentError(
                    f"{where}, {type(variable).__name__} {format_path(path)}".rstrip(),
                    expected=f"{expected!r}, which {inputs.where} has for this variable of an argument",
                    got=repr(value),
                    fix=f"pass {expected!r} for it in the option for the result, or return a copy: nnx.clone(module)",
                )


def place_variables(parts: LiftedArguments, inputs: InputPrefix, mesh: Mesh | None = None) -> bool:
    """Move the caller's variables to the shardings that an option declares, so that no later call moves them again.

    Args:
      parts: the arguments.
      inputs: the option `in_shardings` or `in_specs`, broadcast to the arguments.
      mesh: the mesh of bare specs; None for the mesh in context.

    Returns:
      Whether a variable was moved.
    """
    moved = False
    for variable, spec in zip(parts.graph.variables, inputs.values):
        value = variable._value
        if not isinstance(value, Array) or not isinstance(spec, Sharding | PartitionSpec):
            continue
        is_bare = mesh is not None and isinstance(spec, PartitionSpec)
        sharding = NamedSharding(mesh, spec) if is_bare else to_sharding(spec, where=inputs.where)
        if not value.sharding.is_equivalent_to(sharding, value.ndim):
            variable.set_raw_value(device_put(value, sharding))
            moved = True
    return moved


def _check_shared_variables(where: str, parts: LiftedArguments, roots: Sequence[Any], values: Sequence[Any]) -> None:
    """Check that a variable that is reached along several paths has the same value on all of them."""
    # Without shared references, or with one value for all modules, there is nothing to compare; this is the common
    # case.
    if not parts.graph.definition.has_refs or (
        not any(isinstance(s, FilterMap | Pytree) for s in roots) and all(_is_equal(s, roots[0]) for s in roots)
    ):
        return
    first = {id(v): n for n, v in enumerate(parts.graph.variables)}
    places = parts.paths()
    for number, root in enumerate(parts.roots):
        for path, variable in iter_all_paths(root):
            n = first[id(variable)]
            spec = resolve_prefix(roots[number], path, variable, where)
            if not _is_equal(spec, values[n]):
                first_place, place = _format_place(places[n]), _format_place((number, path))
                raise ArgumentError(
                    f"{where}, {type(variable).__name__}",
                    expected="the same value on all paths to a shared variable",
                    got=f"{values[n]!r} for {first_place} and {spec!r} for {place}",
                    fix=f"give {place} the value {values[n]!r}, or pass the variable only once",
                )


def _is_equal(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def _format_place(place: tuple[int, Path]) -> str:
    number, path = place
    return f"{format_path(path) or 'the variable itself'} of module {number}"


def iter_all_paths(x: Any, path: Path = (), parents: frozenset[int] = frozenset()) -> Iterator[tuple[Path, Variable]]:
    """Iterate over the variables of a module along all paths that lead to them, except along cycles."""
    if isinstance(x, Variable):
        yield path, x
    elif id(x) not in parents:
        for key, value in iter_entries(x):
            if isinstance(value, Pytree | Variable | dict | State | list | tuple):
                yield from iter_all_paths(value, (*path, key), parents | {id(x)})
