"""Lifting: what all transformations of functions of modules share.

A call's arguments are taken apart (`gather`): each module and variable in them becomes a `Shadow`, a pytree of its
values that knows the structure of all modules of the call. An ordinary transformation is applied to a `Lifted` function
of shadows, which makes modules of its own at the inner trace level, calls the user's function with them, and gives back
`Outputs`: the results and the values that changed, with an `Outcome` that says what they are. The outcome then brings
the changes to the caller's modules. Structures and outcomes are the static side of these pytrees, so that every cache
below keys on them without knowing of modules.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

from phalanx.core.config import state
from phalanx.core.errors import TraceError
from phalanx.nnx.graphs import Graph, GraphDef, NestDef, Walk, build, joint_graph, read
from phalanx.nnx.levels import check_alive, check_level
from phalanx.nnx.objects import Object, _blank
from phalanx.nnx.states import Path, path_text
from phalanx.nnx.variable import Variable, _set_source, _set_value, _set_watched
from phalanx.tree import register_pytree_node, tree_flatten

ROOTS = (Object, Variable)


def is_root(x: Any) -> bool:
    """Whether a value is a module or another object, or a variable."""
    return isinstance(x, ROOTS)


class Shadow:
    """The values of a module's variables and arrays: a pytree whose structure is that of all modules of a call.

    Args:
      definition: the structure of all modules of the call.
      number: which of them this one is.
      values: those of the variables and arrays that were first met in it.
    """

    __slots__ = ("definition", "number", "values")

    def __init__(self, definition: GraphDef, number: int, values: Sequence[Any]):
        self.definition, self.number, self.values = definition, number, values

    def __repr__(self) -> str:
        return f"{self.definition.type.__name__ if self.definition.type else 'module'}#{self.number}"


class _At:
    """The key of a value in a shadow: its path, as users write it."""

    __slots__ = ("path",)

    def __init__(self, path: Path):
        self.path = path

    def __str__(self) -> str:
        text = path_text(self.path)
        return text if text.startswith("[") or not text else f".{text}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return type(other) is _At and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


def shadow_paths(shadow: Shadow) -> list[Path]:
    """The paths of a shadow's values, from its own module on."""
    variables, arrays = shadow.definition.paths
    if not shadow.definition.is_joint:
        return [*variables, *arrays]
    return [p[1:] for paths in (variables, arrays) for p in paths if p[0] == shadow.number]


register_pytree_node(
    Shadow,
    lambda s: (s.values, (s.definition, s.number)),
    lambda aux, values: Shadow(aux[0], aux[1], values),
    lambda s: (list(zip(map(_At, shadow_paths(s)), s.values)), (s.definition, s.number)),
)


class Origin(NamedTuple):
    """What one output value is.

    kind: "out" for a leaf of the result, "variable" for the new value of a variable that came in, "new" for that of a
      variable made inside, "array" for an array that stands in no variable.
    number: of the leaf or of the incoming variable; for "new" and "array" the root it was met in, results after inputs.
    path: in that root.
    variable: the variable, for "new" and "variable".
    """

    kind: str
    number: int
    path: Path = ()
    variable: Any = None


class Rebuild(NamedTuple):
    """How the caller's modules change their structure, and how modules in the result are made.

    root: the structure of all incoming modules afterwards, then of those in the result.
    existing: numbers afterwards -> numbers before, of objects and containers that came in.
    variables: for each variable afterwards the number it came in with, or None for a new one.
    kinds: for each variable afterwards its class and metadata.
    """

    root: Any
    existing: dict[int, int]
    variables: list[int | None]
    kinds: list[tuple[Any, dict]]


class Outcome:
    """The static side of what a lifted function did; two are equal if they are brought back in the same way.

    Args:
      tree: the structure of the result, modules as leaves.
      is_node: for each leaf whether it is a module or variable.
      changed: the numbers of the incoming variables that have new values.
      origins: what each output value is.
      rebuild: how structures change; None where they stay and the result holds no modules.
      num_roots: how many modules came in.
    """

    __slots__ = ("_key", "changed", "is_node", "num_roots", "origins", "rebuild", "tree", "written")

    written: frozenset[
        int
    ]  # what of `changed` got new values in this trace; all of it, unless every value was asked for

    def __init__(self, tree: Any, is_node: tuple, changed: list, origins: list, rebuild: Any, num_roots: int):
        self.tree, self.is_node, self.changed, self.origins = tree, is_node, changed, origins
        self.rebuild, self.num_roots = rebuild, num_roots
        how = None if rebuild is None else (rebuild.root, tuple(rebuild.existing.items()), tuple(rebuild.variables))
        self._key = (tree, is_node, tuple(changed), how)

    @property
    def num_out(self) -> int:
        """How many of the output values are leaves of the result."""
        return self.is_node.count(False)

    def __eq__(self, other: object) -> bool:
        return type(other) is Outcome and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        made = [f"{path_text(o.path)}: {type(o.variable).__name__}" for o in self.origins if o.kind == "new"]
        return f"result {self.tree}" + (f", new variables {', '.join(made)}" if made else "")


class Outputs:
    """What a lifted function gives: its values, with the outcome as their structure."""

    __slots__ = ("outcome", "values")

    def __init__(self, outcome: Any, values: Sequence[Any]):
        self.outcome, self.values = outcome, values


class _Of:
    """The key of an output value: what it is, in words."""

    __slots__ = ("origin",)

    def __init__(self, origin: Origin):
        self.origin = origin

    def __str__(self) -> str:
        if self.origin.kind == "out":
            return f" leaf {self.origin.number}"
        name = type(self.origin.variable).__name__ if self.origin.variable is not None else "array"
        return f", the new value of {name} {path_text(self.origin.path)}"

    __repr__ = __str__


register_pytree_node(
    Outputs,
    lambda o: (o.values, o.outcome),
    lambda outcome, values: Outputs(outcome, values),
    lambda o: (list(zip(map(_Of, o.outcome.origins), o.values)), o.outcome),
)


class Parts:
    """The arguments of a lifted call, taken apart.

    Args:
      leaves: the leaves of the arguments, modules and variables among them.
      tree: the structure of the arguments.
      roots: the modules and variables.
      graph: what they hold.
    """

    __slots__ = ("graph", "leaves", "roots", "tree")

    def __init__(self, leaves: list, tree: Any, roots: list, graph: Graph):
        self.leaves, self.tree, self.roots, self.graph = leaves, tree, roots, graph

    def shadowed(self, values: Sequence[Any] | None = None) -> Any:
        """The arguments with shadows for the modules, holding these values or their own."""
        shadows = iter(self.shadows(self.values() if values is None else values))
        return self.tree.unflatten([next(shadows) if isinstance(x, ROOTS) else x for x in self.leaves])

    def values(self) -> list:
        """The values of all variables, then the other arrays.

        Raises:
          UnexpectedTracerError: a value is left over from a trace that has ended.
        """
        check_alive(self.graph.variables)
        return [*(v._value for v in self.graph.variables), *self.graph.arrays(*self.roots)]

    def shadows(self, values: Sequence[Any]) -> Iterator[Shadow]:
        """A shadow for each root."""
        sizes = [(len(variables), len(refs)) for variables, refs in self.graph.groups]
        return shadows_of(self.graph.definition, sizes, values)

    def paths(self) -> list[tuple[int, Path]]:
        """For each value the number of the root it was first met in, and the path from there."""
        graph = self.graph
        found: list[Path] = [*graph.paths, *graph.ref_paths]
        if not graph.definition.is_joint:
            return [(0, p) for p in found]
        return [(p[0], p[1:]) for p in found]

    def boxes(self) -> list:
        """For each value the variable, or the array itself: what filters look at."""
        return [*self.graph.variables, *self.graph.arrays(*self.roots)]


def shadows_of(definition: GraphDef, sizes: Sequence[tuple[int, int]], values: Sequence[Any]) -> Iterator[Shadow]:
    """A shadow for each module of a call.

    Args:
      definition: the structure of all of them.
      sizes: for each how many variables and how many other arrays it holds.
      values: those of all variables, then the other arrays.
    """
    first, array = 0, sum(n for n, _ in sizes)
    for number, (num_variables, num_arrays) in enumerate(sizes):
        held = [*values[first : first + num_variables], *values[array : array + num_arrays]]
        first, array = first + num_variables, array + num_arrays
        yield Shadow(definition, number, held)


def gather(args: Any) -> Parts:
    """Take arguments apart."""
    leaves, tree = tree_flatten(args, is_leaf=is_root)
    roots = [x for x in leaves if isinstance(x, ROOTS)]
    return Parts(leaves, tree, roots, joint_graph(roots))


class Inside:
    """The modules made inside a transformation from the shadows of a call, until what happened to them is asked.

    Args:
      shadowed: arguments with shadows for modules.
    """

    def __init__(self, shadowed: Any):
        leaves, tree = tree_flatten(shadowed, is_leaf=lambda x: type(x) is Shadow)
        shadows = [x for x in leaves if type(x) is Shadow]
        self.given, self.arrays = _ordered(shadows)
        self.copies: list[Variable] = []
        self.made: dict[int, Any] = {}
        self.roots: list[Any] = []
        self._containers: list[tuple] = []
        self._definition = shadows[0].definition if shadows else None
        if shadows:
            self._build(shadows[0].definition)
        roots = iter(self.roots)
        self.args = tree.unflatten([next(roots) if type(x) is Shadow else x for x in leaves])

    def _build(self, definition: GraphDef) -> None:
        defs, sources = definition.variable_defs, definition.sources or [None] * len(self.given)
        for d, value, where in zip(defs, self.given, sources, strict=True):
            made = object.__new__(d.type)
            made._set_up(value, {k: v.value for k, v in d.metadata} if d.metadata else {})
            _set_source(made, where)
            _set_watched(made, True)
            self.copies.append(made)
        root = build(definition.root, iter(self.copies), iter(self.arrays), self.made, {})
        self.roots = list(root) if definition.is_joint else [root]
        for held in self.made.values():
            if isinstance(held, Object):
                _blank(held, "_watched", True)
            elif isinstance(held, list):
                self._containers.append((held, tuple(held), ()))
            elif isinstance(held, dict):
                self._containers.append((held, tuple(held), tuple(held.values())))

    def is_unchanged(self) -> bool:
        """Whether no structure has changed, as far as can be told without a walk."""
        if self.arrays or self._definition.has_nests or any(x._version for x in self.made.values() if is_root(x)):
            return False
        for held, first, second in self._containers:
            if len(held) != len(first) or not all(map(is_, held, first)):
                return False
            if second and not all(map(is_, held.values(), second)):
                return False
        return True

    def outputs(self, out: Any, every: bool = False) -> Outputs:
        """What happened: the result and the values that changed, or with `every` those of all variables."""
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        is_node = tuple(isinstance(x, ROOTS) for x in leaves)
        values = [x for x, n in zip(leaves, is_node) if not n]
        origins = [Origin("out", i) for i, n in enumerate(is_node) if not n]
        written = [i for i, (v, x) in enumerate(zip(self.copies, self.given)) if not _is_same(v._value, x)]
        changed = [*range(len(self.copies))] if every else written
        values += [self.copies[i]._value for i in changed]
        if changed:
            paths = self._definition.paths[0]
            origins += [Origin("variable", i, paths[i], _emptied(self.copies[i])) for i in changed]
        rebuild = None
        nodes = [x for x, n in zip(leaves, is_node) if n]
        if nodes or (self.roots and not self.is_unchanged()):
            rebuild = self._rebuild(nodes, values, origins)
        outcome = Outcome(tree, is_node, changed, origins, rebuild, len(self.roots))
        outcome.written = frozenset(written)
        return Outputs(outcome, values)

    def _rebuild(self, nodes: list, values: list, origins: list) -> Rebuild | None:
        walk = Walk()
        everything = [*self.roots, *nodes]
        definitions = tuple([walk.visit(x, (n,), everything, n) for n, x in enumerate(everything)])
        root = NestDef("nest", tuple, tuple(range(len(everything))), definitions)
        if not nodes and self._holds_the_same(walk, root):
            return None
        number_of = {id(v): i for i, v in enumerate(self.copies)}
        numbers, kinds = [], []
        for path, v in zip(walk.paths, walk.variables):
            numbers.append(number_of.get(id(v)))
            kinds.append((type(v), v._metadata))
            if numbers[-1] is None:
                values.append(v._value)
                origins.append(Origin("new", path[0], path[1:], _emptied(v)))
        for path, (holder, key) in zip(walk.ref_paths, walk.refs):
            values.append(read(holder, key))
            origins.append(Origin("array", path[0], path[1:]))
        before = {id(x): i for i, x in self.made.items() if not isinstance(x, Variable)}
        existing = {i: before[id(x)] for i, x in enumerate(walk.held) if id(x) in before}
        return Rebuild(root, existing, numbers, kinds)

    def _holds_the_same(self, walk: Walk, root: NestDef) -> bool:
        """Whether a walk found the structure, the variables and the arrays that came in."""
        before = self._definition.root if self._definition is not None else None
        if before != (root if self._definition is not None and self._definition.is_joint else root.children[0]):
            return False
        arrays = [read(holder, key) for holder, key in walk.refs]
        return all(map(is_, walk.variables, self.copies)) and all(map(is_, arrays, self.arrays))


def _ordered(shadows: Sequence[Shadow]) -> tuple[list, list]:
    """The values of the variables, then the other arrays, of all shadows of a call."""
    values: list[Any] = []
    arrays: list[Any] = []
    for shadow in shadows:
        count = shadow.definition.counts[shadow.number]
        values += shadow.values[:count]
        arrays += shadow.values[count:]
    return values, arrays


def _emptied(variable: Variable) -> Variable:
    """A variable of the same kind without the traced value: what filters look at once the trace has ended."""
    return variable.from_metadata(None, variable._metadata)


def _is_same(new: Any, old: Any) -> bool:
    """Whether a value is the one that came in, leaf by leaf."""
    if new is old:
        return True
    if type(new) is not type(old):
        return False
    a, a_tree = tree_flatten(new)
    b, b_tree = tree_flatten(old)
    return len(a) > 1 and a_tree == b_tree and all(map(is_, a, b))


class Lifted:
    """A function of shadows that calls the user's function with modules.

    Args:
      fun: the user's function, called with the positional and keyword arguments that shadows stand in.
      every: give back the values of all variables, not only of those that changed.
    """

    def __init__(self, fun: Callable, every: bool = False):
        self.fun, self.every = fun, every
        self.written: dict[Outcome, frozenset[int]] = {}  # with `every`, by outcome: what got new values
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        inside = Inside((args, kwargs))
        own, named = inside.args
        outputs = inside.outputs(self.fun(*own, **named), self.every)
        if self.every:
            outcome = outputs.outcome
            self.written[outcome] = self.written.get(outcome, frozenset()) | outcome.written
        return outputs


_bodies: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()


def body_for(fun: Callable, key: Any, make: Callable[[Callable], Any]) -> Any:
    """The body of a loop or branch that was made of a user's function before, so that its program is found again.

    Args:
      fun: the user's function; the body must hold it weakly, through what `make` is given.
      key: what else the body depends on.
      make: makes the body from a function that calls the user's.
    """
    try:
        known = _bodies.setdefault(fun, {})
        held: Any = weakref.ref(fun)
    except TypeError:  # a callable without weak references
        return make(fun)
    if key not in known:

        def call(*args: Any, **kwargs: Any) -> Any:
            return held()(*args, **kwargs)

        call.__name__ = getattr(fun, "__name__", type(fun).__name__)
        known[key] = make(call)
    return known[key]


def bring_back(parts: Parts, outputs: Outputs, makers: Sequence[Lifted] = ()) -> Any:
    """Bring the changes to the caller's modules; gives the result with modules of the caller's level in it.

    Args:
      parts: the caller's arguments.
      outputs: what the lifted function gave.
      makers: the functions that gave every variable's value, where only those are to be set that one of them wrote.
    """
    outcome, values = outputs.outcome, list(outputs.values)
    out = values[: outcome.num_out]
    variables = parts.graph.variables
    n = outcome.num_out
    written = frozenset().union(*(m.written.get(outcome, ()) for m in makers)) if makers else outcome.changed
    for i, value in zip(outcome.changed, values[n:]):
        if makers and i not in written:
            continue
        target = variables[i]
        if state.trace is not target._trace:
            check_level(target)
        _set_value(target, value)
    nodes = []
    if outcome.rebuild is not None:
        nodes = _rebuilt(parts, outcome, values[n + len(outcome.changed) :])
    if not any(outcome.is_node):
        return outcome.tree.unflatten(out)
    leaves, made = iter(out), iter(nodes)
    return outcome.tree.unflatten([next(made) if is_node else next(leaves) for is_node in outcome.is_node])


def _rebuilt(parts: Parts, outcome: Outcome, values: list) -> list:
    """Change the structure of the caller's modules; gives the modules of the result."""
    rebuild: Rebuild = outcome.rebuild
    rest = iter(values)
    held = _held(parts.roots)
    variables = []
    for number, (kind, metadata) in zip(rebuild.variables, rebuild.kinds):
        if number is None:
            variables.append(kind.from_metadata(next(rest), metadata))
            continue
        known = parts.graph.variables[number]
        if known._metadata != metadata:
            known.set_metadata(metadata)
        variables.append(known)
    existing = {after: held[before] for after, before in rebuild.existing.items()}
    for target in existing.values():
        if isinstance(target, Object) and state.trace is not target._trace:
            check_level(target, "changing its attributes")
    return list(build(rebuild.root, iter(variables), rest, {}, existing))[outcome.num_roots :]


def _held(roots: Sequence[Any]) -> list:
    """What the numbers of a call's structure stand for."""
    walk = Walk()
    for n, root in enumerate(roots):
        walk.visit(root, (n,), roots, n)
    return walk.held


def refuse_rebuild(what: str, outcome: Outcome) -> None:
    """Refuse a structural change where there is no way to bring it back, such as from one of two branches.

    Raises:
      TraceError: the function changed a structure.
    """
    if outcome.rebuild is None:
        return
    made = [o for o in outcome.origins if o.kind == "new"]
    shown = f"a new {type(made[0].variable).__name__} at {path_text(made[0].path)}" if made else "another structure"
    raise TraceError(
        what,
        expected="modules that keep their structure: the same attributes, variables and sharing",
        got=shown,
        mend="make the attributes before the call, or return values instead of modules",
    )


def to_tree(tree: Any, /) -> Any:
    """A tree of modules as one of arrays, for functions that know of pytrees only; `from_tree` is the way back.

    Args:
      tree: a tree with modules in it; what they share is kept.

    Returns:
      The tree of arrays.

    Examples:
      >>> import phalanx
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> doubled = nnx.from_tree(phalanx.tree.map(lambda x: 2 * x, nnx.to_tree({"a": w, "b": w})))
      >>> doubled["a"].value, doubled["a"] is doubled["b"]
      (6.0, True)
    """
    return gather(tree).shadowed()


def from_tree(tree: Any, /) -> Any:
    """The tree of modules of one of arrays, with variables of its own.

    Args:
      tree: what `to_tree` gave, or a function of it.

    Returns:
      The tree of modules.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.from_tree(nnx.to_tree({"w": nnx.Param(3.0)}))
      {'w': Param(value=3.0)}
    """
    return Inside(tree).args
