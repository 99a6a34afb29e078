"""Lifting: the mechanism that all transformations of functions of modules share.

1. `flatten_arguments` replaces each module and variable in the arguments by a `PureModule`, a pytree of its values
   whose static part is the structure of all modules in the call.
2. The ordinary transformation is applied to a `Lifted` function of these pytrees. It builds new modules in the inner
   trace (`InnerModules`) and calls the user's function with them.
3. The lifted function returns `Outputs`: the results and the values that changed, with an `OutputSpec` as static part.
4. `write_back` applies the changes to the caller's modules.

Structures and output specs are static parts of pytrees, so that the caches of the transformations depend on them
without any code for modules. Arguments that a user declares static are bound before step 1 (`bind_static`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeVar

from phalanx.core import ArgumentError, Ref, TraceError, state
from phalanx.nnx.graph_mode import FULL, GraphMode, resolve_mode
from phalanx.nnx.graphlib import (
    Graph,
    GraphDef,
    NestDef,
    Path,
    State,
    Walk,
    build,
    check_is_tree,
    clone,
    describe_difference,
    format_path,
    get_entry,
    get_joint_graph,
)
from phalanx.nnx.objects import ROOTS, Pytree, is_root, set_slot
from phalanx.nnx.trace_level import check_not_leaked, check_trace_level
from phalanx.nnx.variable import Variable, _set_source, _set_value, _set_watched
from phalanx.nnx.variable_refs import read_refs
from phalanx.tree import PyTreeDef, register_pytree_with_keys, tree_flatten
from phalanx.typing import PyTree

F = TypeVar("F", bound=Callable)


class PureModule:
    """The values of a module's variables and arrays: a pytree whose static part is the structure of the whole call.

    Args:
      definition: the structure of all modules in the call.
      number: the number of this module among them.
      values: the values of its variables and arrays, except values that an earlier module contains as well.
    """

    __slots__ = ("definition", "number", "values")

    def __init__(self, definition: GraphDef, number: int, values: Sequence[Any]):
        self.definition, self.number, self.values = definition, number, values

    @property
    def variable_numbers(self) -> range:
        """The numbers of its variables among all variables of the call."""
        counts = self.definition.counts
        start = sum(counts[: self.number])
        return range(start, start + counts[self.number])

    def __repr__(self) -> str:
        return f"{self.definition.type.__name__ if self.definition.type else 'module'}#{self.number}"


class _LeafKey(NamedTuple):
    """The pytree key of a value in a module; its text is the path, so that errors show `model.layers[0].kernel`."""

    path: Path

    def __str__(self) -> str:
        text = format_path(self.path)
        return text if text.startswith("[") or not text else f".{text}"

    __repr__ = __str__


def get_leaf_paths(pure: PureModule) -> list[Path]:
    """The paths of the values of a `PureModule`, relative to the module."""
    variables, arrays = pure.definition.paths
    if not pure.definition.is_joint:
        return [*variables, *arrays]
    return [p[1:] for paths in (variables, arrays) for p in paths if p[0] == pure.number]


def make_state(paths: Sequence[Path], values: Sequence[Any]) -> Any:
    """A state of values by path; for a variable, whose path is empty, its value alone."""
    return values[0] if paths == [()] else State.from_flat_path(zip(paths, values, strict=True))


register_pytree_with_keys(
    PureModule,
    lambda m: (list(zip(map(_LeafKey, get_leaf_paths(m)), m.values)), (m.definition, m.number)),
    lambda aux, values: PureModule(aux[0], aux[1], values),
    lambda m: (m.values, (m.definition, m.number)),
)


def is_pure(x: object) -> bool:
    """Whether a value represents a module inside a transformation."""
    return type(x) is PureModule


class OutputOrigin(NamedTuple):
    """The meaning of one output value.

    kind: "out" for a leaf of the result, "variable" for the new value of an existing variable, "new" for the value of a
      variable that the function created, "array" for an array outside of variables.
    number: the number of the leaf or of the existing variable; for "new" and "array", the number of the module that
      contains it, counting first the modules of the arguments and then the modules of the result.
    path: the path in that module.
    variable: for "variable" and "new", a variable of the same type and metadata without a value.
    """

    kind: str
    number: int
    path: Path = ()
    variable: Any = None


class StructureChange(NamedTuple):
    """The changes of the structure of the caller's modules, and the structure of modules in the result.

    root: the new structure of the modules in the arguments, followed by those in the result.
    existing: the number of each existing object and container: new number -> old number.
    variables: for each variable its old number, or None for a new variable.
    kinds: the type and metadata of each variable.
    """

    root: NestDef
    existing: dict[int, int]
    variables: list[int | None]
    kinds: list[tuple[type[Variable], dict[str, Any]]]


class OutputSpec:
    """The static part of the outputs of a lifted function; two are equal if `write_back` treats them in the same way.

    Args:
      tree: the structure of the result, with modules as leaves.
      is_node: whether each leaf is a module or variable.
      changed: the numbers of the existing variables that have new values.
      origins: the meaning of each output value.
      rebuild: the change of structure; None if no structure changes and the result contains no module.
      num_roots: the number of modules in `rebuild` that are arguments; the others are results.
      metadata: new metadata of existing variables by number, unless `rebuild` contains it.
    """

    __slots__ = ("_key", "changed", "is_node", "metadata", "num_roots", "origins", "rebuild", "tree", "written")

    # The part of `changed` that was set in this trace. It differs from `changed` if all values are returned, as in
    # branches. It is not part of the key, since traces of the same branch may set different variables.
    written: frozenset[int]

    def __init__(
        self,
        tree: PyTreeDef,
        is_node: tuple[bool, ...],
        changed: list[int],
        origins: list[OutputOrigin],
        rebuild: StructureChange | None,
        num_roots: int,
        metadata: Sequence[tuple[int, dict[str, Any]]] = (),
    ):
        self.tree, self.is_node, self.changed, self.origins = tree, is_node, changed, origins
        self.rebuild, self.num_roots, self.metadata = rebuild, num_roots, metadata
        change = None if rebuild is None else (rebuild.root, tuple(rebuild.existing.items()), tuple(rebuild.variables))
        self._key = (tree, is_node, tuple(changed), change)

    @property
    def num_out(self) -> int:
        """The number of output values that are leaves of the result."""
        return self.is_node.count(False)

    def __eq__(self, other: object) -> bool:
        return type(other) is OutputSpec and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        new = [f"{format_path(o.path)}: {type(o.variable).__name__}" for o in self.origins if o.kind == "new"]
        return f"result {self.tree}" + (f", new variables {', '.join(new)}" if new else "")


class Outputs:
    """The output values of a lifted function: a pytree with an `OutputSpec` as static part."""

    __slots__ = ("outcome", "values")

    def __init__(self, outcome: Any, values: Sequence[Any]):
        self.outcome, self.values = outcome, values


@dataclasses.dataclass(eq=False, repr=False)
class _OutputKey:
    """The pytree key of an output value; its text describes the value in error messages."""

    origin: OutputOrigin

    def __str__(self) -> str:
        if self.origin.kind == "out":
            return f" leaf {self.origin.number}"
        name = type(self.origin.variable).__name__ if self.origin.variable is not None else "array"
        return f", the new value of {name} {format_path(self.origin.path)}"

    __repr__ = __str__


register_pytree_with_keys(
    Outputs,
    lambda o: (list(zip(map(_OutputKey, o.outcome.origins), o.values)), o.outcome),
    lambda outcome, values: Outputs(outcome, values),
    lambda o: (o.values, o.outcome),
)


class LiftedArguments:
    """The flattened arguments of a lifted call.

    Args:
      leaves: the leaves of the arguments, with modules and variables as leaves.
      tree: the structure of the arguments.
      roots: the modules and variables among the leaves.
      graph: their joint graph.
    """

    __slots__ = ("graph", "leaves", "roots", "tree")

    def __init__(self, leaves: list[Any], tree: PyTreeDef, roots: list[Any], graph: Graph):
        self.leaves, self.tree, self.roots, self.graph = leaves, tree, roots, graph

    def to_pure(self, values: Sequence[Any] | None = None) -> Any:
        """The arguments with a `PureModule` for each module; `values` replace the values of the modules if given."""
        pure = self.pure_modules(self.values() if values is None else values)
        return self.tree.unflatten([next(pure) if isinstance(x, ROOTS) else x for x in self.leaves])

    def values(self) -> list[Any]:
        """The values of all variables, then the other arrays.

        Raises:
          UnexpectedTracerError: a variable holds a tracer of a trace that has ended.
        """
        check_not_leaked(self.graph.variables)
        return [*(v._value for v in self.graph.variables), *self.graph.arrays(*self.roots)]

    def pure_modules(self, values: Sequence[Any]) -> Iterator[PureModule]:
        """A `PureModule` for each root."""
        return make_pure_modules(self.graph.definition, [(len(v), len(refs)) for v, refs in self.graph.groups], values)

    def paths(self) -> list[tuple[int, Path]]:
        """For each value the number of the first root that contains it, and the path from there."""
        found: list[Any] = [*self.graph.paths, *self.graph.ref_paths]
        return [(p[0], p[1:]) for p in found] if self.graph.definition.is_joint else [(0, p) for p in found]

    def variables_and_arrays(self) -> list[Any]:
        """For each value its variable, or the array itself, for filters."""
        return [*self.graph.variables, *self.graph.arrays(*self.roots)]


def make_pure_modules(
    definition: GraphDef, sizes: Sequence[tuple[int, int]], values: Sequence[Any]
) -> Iterator[PureModule]:
    """Make a `PureModule` for each module of a call.

    Args:
      definition: the structure of all modules.
      sizes: for each module the number of its variables and of its other arrays.
      values: the values of all variables, then the other arrays.
    """
    start, array_start = 0, sum(n for n, _ in sizes)
    for number, (num_variables, num_arrays) in enumerate(sizes):
        module_values = [*values[start : start + num_variables], *values[array_start : array_start + num_arrays]]
        start, array_start = start + num_variables, array_start + num_arrays
        yield PureModule(definition, number, module_values)


def flatten_arguments(args: PyTree, mode: GraphMode = FULL, where: str = "") -> LiftedArguments:
    """Flatten arguments, with modules and variables as leaves.

    Args:
      args: the arguments.
      mode: the mode of the transformation.
      where: the transformation, for error messages.

    Raises:
      ArgumentError: in tree mode, a variable occurs twice.
    """
    leaves, tree = tree_flatten(args, is_leaf=is_root)
    roots = [x for x in leaves if isinstance(x, ROOTS)]
    graph = get_joint_graph(roots)
    if not mode.graph:
        check_is_tree(where, graph.definition)
    return LiftedArguments(leaves, tree, roots, graph)


NO_ARGUMENTS = flatten_arguments(())


class InnerModules:
    """The modules built inside a transformation, and the changes that the user's function makes to them.

    A change of a value is found by identity: a variable that still holds its initial tracer was not written. A change
    of structure is found by the versions of the objects; plain containers are compared element by element.

    Args:
      pure: arguments with a `PureModule` for each module.
      mode: the mode of the transformation.
    """

    def __init__(self, pure: PyTree, mode: GraphMode = FULL):
        self._mode = mode
        leaves, tree = tree_flatten(pure, is_leaf=is_pure)
        pure_modules = [x for x in leaves if is_pure(x)]
        parts = [(x.values, len(x.variable_numbers)) for x in pure_modules]
        self.initial_values = [value for values, count in parts for value in values[:count]]
        self.arrays = [array for values, count in parts for array in values[count:]]
        self._sizes = [(count, len(values) - count) for values, count in parts]
        # In the order of `definition.variable_defs`, which is the order of the numbers in an `OutputSpec`.
        self.variables: list[Variable] = []
        self.built: dict[int, Any] = {}
        self.roots: list[Any] = []
        self._containers: list[tuple] = []  # lists, dictionaries and views of their values, with their elements
        self._definition = pure_modules[0].definition if pure_modules else None
        if self._definition is not None:
            self._build(self._definition)
        roots = iter(self.roots)
        self.args = tree.unflatten([next(roots) if is_pure(x) else x for x in leaves])

    def _build(self, definition: GraphDef) -> None:
        defs, sources = definition.variable_defs, definition.sources or [None] * len(self.initial_values)
        for d, value, where in zip(defs, self.initial_values, sources, strict=True):
            variable = object.__new__(d.type)
            variable._initialize(value, {k: v.value for k, v in d.metadata} if d.metadata else {})
            _set_source(variable, where)  # errors name the line that created the caller's variable
            # Changes of metadata must increase the version, which `is_unchanged` reads.
            _set_watched(variable, True)
            self.variables.append(variable)
        root = build(definition.root, iter(self.variables), iter(self.arrays), self.built, {})
        self.roots = list(root) if definition.is_joint else [root]
        for x in self.built.values():
            if isinstance(x, Pytree):
                set_slot(x, "_watched", True)
            elif isinstance(x, list | dict):
                self._containers += [(y, tuple(y)) for y in ((x,) if isinstance(x, list) else (x, x.values()))]

    def pure_modules(self, values: Sequence[Any]) -> Iterator[PureModule]:
        """The modules with these values of all variables, followed by the other arrays."""
        return make_pure_modules(self._definition, self._sizes, values)

    def current_arrays(self, where: str) -> list[Any]:
        """The arrays outside of variables, which the function may have replaced by others.

        Raises:
          TraceError: there are more or fewer than before.
        """
        if not self.arrays:
            return self.arrays
        arrays = get_joint_graph(self.roots).arrays(*self.roots)
        if len(arrays) != len(self.arrays):
            raise TraceError(
                where,
                expected=f"modules that keep their structure, with {len(self.arrays)} arrays outside of variables",
                got=f"{len(arrays)} arrays",
                fix="set the attributes to arrays before the loop, or hold the values in variables",
            )
        return arrays

    def path(self, number: int) -> Path:
        """The path of a variable; its first key is the number of the argument if there are several modules."""
        return self._definition.paths[0][number]

    def is_unchanged(self) -> bool:
        """Whether the structure is certainly unchanged, without a traversal."""
        if self.arrays or self._definition.has_nests or any(x._version for x in self.built.values() if is_root(x)):
            return False
        return all(len(now) == len(before) and all(map(is_, now, before)) for now, before in self._containers)

    def outputs(self, out: PyTree, all_values: bool = False) -> Outputs:
        """The outputs of the lifted function.

        Args:
          out: the result of the user's function.
          all_values: whether to return the values of all variables, instead of changed values only.
        """
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        is_node = tuple(isinstance(x, ROOTS) for x in leaves)
        nodes = [x for x, n in zip(leaves, is_node) if n]
        # Assigning an equal but new value counts as written; a value that was set and restored does not.
        written = [i for i, v in enumerate(self.variables) if not _is_same(v._value, self.initial_values[i])]
        # A reference is changed in place, and no output of a transformation.
        changed = [i for i, v in enumerate(self.variables) if not v.in_refs] if all_values else written
        values = [x for x, n in zip(leaves, is_node) if not n] + [self.variables[i]._value for i in changed]
        origins = [OutputOrigin("out", i) for i, n in enumerate(is_node) if not n]
        for i in changed:
            variable = self.variables[i]
            origins.append(OutputOrigin("variable", i, self._definition.paths[0][i], _without_value(variable)))
        rebuild, metadata, num_roots = None, [], len(self.roots)
        if not self._mode.updates:
            self.check_result(nodes)
            rebuild = self._get_structure_change([], nodes, values, origins) if nodes else None
            num_roots = 0
            metadata = [(i, v._metadata) for i, v in enumerate(self.variables) if v._version]
        elif nodes or (self.roots and not self.is_unchanged()):
            rebuild = self._get_structure_change(self.roots, nodes, values, origins)
        outcome = OutputSpec(tree, is_node, changed, origins, rebuild, num_roots, metadata)
        outcome.written = frozenset(written)
        return Outputs(outcome, values)

    def check_result(self, nodes: list[Any], mode: GraphMode = FULL) -> None:
        """Check that modules in the result have no variable of an argument, and form a tree in tree mode.

        Raises:
          ArgumentError: they do, or do not.
        """
        graph = get_joint_graph(nodes)
        if not (self._mode.graph and mode.graph):
            check_is_tree("the result", graph.definition)
        own = {id(v) for v in self.variables}
        for path, variable in zip(graph.paths, graph.variables):
            if id(variable) in own:
                raise ArgumentError(
                    f"the result, {type(variable).__name__} {format_path(path)}",
                    expected="a variable that is not also part of an argument, since graph_updates=False",
                    got="a variable of an argument",
                    fix="do not return it, since its changes reach the caller's module; or return nnx.clone(module), "
                    "or pass graph=True and graph_updates=True",
                )

    def _get_structure_change(
        self, roots: list[Any], nodes: list[Any], values: list[Any], origins: list[OutputOrigin]
    ) -> StructureChange | None:
        """The change of structure, None if there is none; appends the values and origins of new leaves."""
        walk = Walk()
        root = walk.visit_roots([*roots, *nodes])
        if not nodes and self._has_initial_structure(walk, root):
            return None
        number_of = {id(v): i for i, v in enumerate(self.variables)}
        numbers = [number_of.get(id(v)) for v in walk.variables]
        new = [(path, v) for path, v, n in zip(walk.paths, walk.variables, numbers) if n is None]
        _check_not_captured(new)
        # References of the arguments are changed in place; for a new one, the caller gets its value.
        arrays = [(path, get_entry(*ref)) for path, ref in zip(walk.ref_paths, walk.refs)]
        own_refs = {id(x) for x in self.arrays if isinstance(x, Ref)} if roots else ()
        arrays = [(path, read_refs(x)) for path, x in arrays if id(x) not in own_refs]
        values += [read_refs(v._value) for _, v in new] + [x for _, x in arrays]
        origins += [OutputOrigin("new", path[0], path[1:], _without_value(v)) for path, v in new]
        origins += [OutputOrigin("array", path[0], path[1:]) for path, _ in arrays]
        # Objects and containers that came from the arguments keep their identity for the caller.
        old_numbers = {id(x): i for i, x in self.built.items() if not isinstance(x, Variable)} if roots else {}
        existing = {i: old_numbers[id(x)] for i, x in enumerate(walk.numbered) if id(x) in old_numbers}
        return StructureChange(root, existing, numbers, [(type(v), v._metadata) for v in walk.variables])

    def _has_initial_structure(self, walk: Walk, root: NestDef) -> bool:
        """Whether a traversal found the structure, the variables and the arrays of the arguments."""
        definition = self._definition
        if definition is None or definition.root != (root if definition.is_joint else root.children[0]):
            return False
        arrays = [get_entry(*ref) for ref in walk.refs]
        return all(map(is_, [*walk.variables, *arrays], [*self.variables, *self.arrays]))


def _check_not_captured(variables: Sequence[tuple[Path, Variable]]) -> None:
    """Check that new variables were created inside the transformation.

    Raises:
      TraceContextError: one was created outside; the caller would receive a copy of it.
    """
    for _, variable in variables:
        if variable._trace is not state.trace:
            check_trace_level(variable, "returning it")


def _without_value(variable: Variable) -> Variable:
    """A variable of the same type and metadata for filters; an output spec must not keep tracers or arguments alive."""
    kept = variable.from_metadata(None, variable._metadata)
    set_slot(kept, "_trace", None)  # the trace has the names of its arguments, which need the arguments themselves
    return kept


def _is_same(new: PyTree, old: PyTree) -> bool:
    """Whether a value is the initial one; pytrees are compared leaf by leaf."""
    if new is old:
        return True
    (a, a_tree), (b, b_tree) = tree_flatten(new), tree_flatten(old)
    return len(a) > 1 and a_tree == b_tree and all(map(is_, a, b))


class Lifted:
    """A function of `PureModule`s that calls the user's function with modules.

    Args:
      fun: the user's function.
      all_values: whether to return the values of all variables, instead of changed values only.
      mode: the mode of the transformation.
    """

    def __init__(self, fun: Callable, all_values: bool = False, mode: GraphMode = FULL):
        self.fun, self.all_values, self.mode = fun, all_values, mode
        # With `all_values`: for each output spec, the variables that some trace has set.
        self.written: dict[OutputSpec, frozenset[int]] = {}
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        # New modules for each trace: an exception in the user's function leaves the caller's modules unchanged.
        inside = InnerModules((args, kwargs), self.mode)
        inner_args, inner_kwargs = inside.args
        outputs = inside.outputs(self.fun(*inner_args, **inner_kwargs), self.all_values)
        if self.all_values:
            self.note_written(outputs.outcome)
        return outputs

    def note_written(self, outcome: OutputSpec) -> None:
        """Record the variables that a trace has set."""
        self.written[outcome] = self.written.get(outcome, frozenset()) | outcome.written


def call_lifted(
    where: str,
    apply: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    mode: GraphMode = FULL,
    makers: Sequence[Lifted] = (),
) -> Any:
    """Call a transformed lifted function with the caller's modules, and update these.

    Args:
      where: the transformation, for error messages.
      apply: the transformed function, from pure arguments to `Outputs`.
      args, kwargs: the caller's arguments.
      mode: the mode of the transformation.
      makers: as in `write_back`.

    Returns:
      The result, with the caller's modules in it.
    """
    parts = flatten_arguments((args, kwargs), mode, where)
    pure_args, pure_kwargs = parts.to_pure()
    return write_back(parts, apply(*pure_args, **pure_kwargs), makers)


def cached_partial(
    f: Callable, *cached_args: Any, graph: bool | None = None, graph_updates: bool | None = None
) -> Callable:
    """Bind the first arguments of a function: copies of the modules, which share their variables.

    Modules whose structure is unchanged are never traversed again, so that nothing else remains to be cached.

    Args:
      f: the function.
      *cached_args: its first arguments.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The function of the other arguments.

    Raises:
      ArgumentError: in a mode without shared references or updates of the structure, in which nothing can be cached.
      TraceError: when called, if the function changes the structure of a bound module.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.cached_partial(lambda w, x: w * x, nnx.Param(2.0))(3.0)
      6.0
    """
    if not resolve_mode(graph, graph_updates).updates:
        raise ArgumentError(
            "cached_partial",
            expected="graph=True and graph_updates=True",
            got="another mode",
            fix="pass functools.partial(f, module): in this mode no structure is written back",
        )
    bound = clone(cached_args, variables=False, graph=True)
    definition = flatten_arguments(bound).graph.definition

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        out = f(*bound, *args, **kwargs)
        now = flatten_arguments(bound).graph.definition
        if now is not definition:
            raise TraceError(
                "cached_partial",
                expected="bound modules that keep their structure",
                got=describe_difference(definition, now),
                fix="pass the module in each call instead of binding it, so that changes of its structure reach it",
            )
        return out

    return call


def write_back(parts: LiftedArguments, outputs: Outputs, makers: Sequence[Lifted] = ()) -> Any:
    """Apply the changes to the caller's modules.

    Args:
      parts: the caller's arguments.
      outputs: the outputs of the lifted function.
      makers: lifted functions that return the values of all variables, such as branches. Only variables that one of
        them has set are updated.

    Returns:
      The result, with the caller's modules in it.
    """
    outcome, values = outputs.outcome, list(outputs.values)
    start = outcome.num_out
    written = frozenset().union(*(m.written.get(outcome, ()) for m in makers)) if makers else outcome.changed
    for i, value in zip(outcome.changed, values[start:]):
        if not makers or i in written:
            # The graph was computed before the call, and the caller's modules still have that structure.
            target = parts.graph.variables[i]
            if state.trace is not target._trace:
                check_trace_level(target)
            _set_value(target, value)
    for i, metadata in outcome.metadata:
        if parts.graph.variables[i]._metadata != metadata:
            parts.graph.variables[i].set_metadata(metadata)
    return build_result(outcome, values, parts)


def build_result(outcome: OutputSpec, values: Sequence[Any], parts: LiftedArguments = NO_ARGUMENTS) -> Any:
    """Build the result of a lifted function, after changing the structure of the caller's modules.

    Args:
      outcome: the output spec.
      values: the output values: leaves of the result, changed variables, new variables and arrays.
      parts: the caller's arguments; not needed if the output spec has no module of the arguments.
    """
    leaves, rest = iter(values[: outcome.num_out]), iter(values[outcome.num_out + len(outcome.changed) :])
    nodes = iter(()) if outcome.rebuild is None else _change_structure(parts, outcome, rest)
    return outcome.tree.unflatten([next(nodes if is_node else leaves) for is_node in outcome.is_node])


def _change_structure(parts: LiftedArguments, outcome: OutputSpec, values: Iterator[Any]) -> Iterator[Any]:
    """Change the structure of the caller's modules, and return the modules of the result."""
    rebuild: Any = outcome.rebuild
    walk = Walk()  # assigns the numbers that `existing` refers to
    walk.visit_roots(parts.roots if outcome.num_roots else ())
    variables = []
    for number, (kind, metadata) in zip(rebuild.variables, rebuild.kinds):
        variable = kind.from_metadata(next(values), metadata) if number is None else parts.graph.variables[number]
        if variable._metadata != metadata:
            variable.set_metadata(metadata)
        variables.append(variable)
    existing = {new: walk.numbered[old] for new, old in rebuild.existing.items()}
    for target in existing.values():
        if isinstance(target, Pytree):
            check_trace_level(target, "changing its attributes")
    return iter(build(rebuild.root, iter(variables), values, {}, existing)[outcome.num_roots :])


def check_structure_kept(where: str, outcome: OutputSpec) -> None:
    """Check that a function does not change the structure of a module, for loops, which cannot write a change back.

    Raises:
      TraceError: the function changes a structure.
    """
    if outcome.rebuild is None:
        return
    new = [o for o in outcome.origins if o.kind == "new"]
    got = f"a new {type(new[0].variable).__name__} at {format_path(new[0].path)}" if new else "another structure"
    advice = f"create {format_path(new[0].path)}" if new else "change the attributes"
    raise TraceError(
        where,
        expected="modules that keep their structure: the same attributes, variables and shared references",
        got=got,
        fix=f"{advice} before the loop, or carry an array instead of an attribute",
    )


def to_tree(tree: PyTree, /) -> PyTree:
    """Convert a tree of modules to a tree of arrays, for functions that handle pytrees only.

    Args:
      tree: a tree that contains modules; shared references are preserved.

    Returns:
      The tree of arrays, which `from_tree` converts back.

    Examples:
      >>> import phalanx
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> doubled = nnx.from_tree(phalanx.tree.map(lambda x: 2 * x, nnx.to_tree({"a": w, "b": w})))
      >>> doubled["a"].value, doubled["a"] is doubled["b"]
      (6.0, True)
    """
    return flatten_arguments(tree).to_pure()


def from_tree(tree: PyTree, /) -> PyTree:
    """Convert the result of `to_tree` to a tree of modules with new variables.

    Args:
      tree: the result of `to_tree`, possibly with other arrays.

    Returns:
      The tree of modules.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.from_tree(nnx.to_tree({"w": nnx.Param(3.0)}))
      {'w': Param(
        value=3.0
      )}
    """
    return InnerModules(tree).args
