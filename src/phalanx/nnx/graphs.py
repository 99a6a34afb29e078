"""Graphs: the structure of objects as an interned `GraphDef`, and what they hold, found by one walk.

`graph_of` walks an object and keeps the result on it; the walk is not repeated until the clock has moved and the
version of an object in the graph with it, or a plain list or dictionary in it holds something else. `build` is the way
back: objects from a definition and variables. Shared references and cycles are kept by numbering what has an identity.
Builds on `objects` and `variable`; `functional` and all lifted transformations build on this.
"""

from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

from phalanx.core.errors import TreeError
from phalanx.nnx.levels import clock
from phalanx.nnx.objects import Dict, List, Object, _blank, blank, is_array, touch
from phalanx.nnx.states import Path, State, path_text
from phalanx.nnx.variable import Static, Variable, static_items
from phalanx.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
    flatten_one_level_with_keys,
    is_tree_node,
    register_static,
)


class ObjectDef(NamedTuple):
    """An object: its class, its number, what its attributes are marked as, and its attributes by name."""

    tag: str
    type: type
    index: int
    marks: tuple
    names: tuple
    children: tuple


class ContainerDef(NamedTuple):
    """A list or a dictionary, which has an identity."""

    tag: str
    type: type
    index: int
    keys: tuple
    children: tuple


class NestDef(NamedTuple):
    """A tuple, or another node of trees without an identity, one level of it."""

    tag: str
    structure: Any
    keys: tuple
    children: tuple


class VariableDef(NamedTuple):
    """A variable: its kind, its number and its metadata."""

    tag: str
    type: Any
    index: int
    metadata: tuple


class RefDef(NamedTuple):
    """What was met before, by its number."""

    tag: str
    index: int


class StaticDef(NamedTuple):
    """A value that is part of the structure."""

    tag: str
    value: Static


LEAF = ("leaf",)
_SIMPLE = frozenset(
    {str, int, float, bool, complex, bytes, type(None), type, types.FunctionType, types.BuiltinFunctionType}
)
_CONTAINERS = frozenset({list, dict, List, Dict})


class GraphDef:
    """The structure of a graph: classes, static attributes, kinds and metadata of variables, and what is shared.

    Interned: two graphs of the same structure have the same `GraphDef`. A pytree without leaves.

    Examples:
      >>> from phalanx import nnx
      >>> graphdef, state = nnx.split({"w": nnx.Param(1.0)})
      >>> isinstance(graphdef, nnx.GraphDef), nnx.merge(graphdef, state)
      (True, {'w': Param(value=1.0)})
    """

    __slots__ = ("__weakref__", "_counts", "_defs", "_has_nests", "_has_refs", "_paths", "root", "sources")

    root: Any
    sources: list | None  # where the variables of the first such graph were made, for messages
    _paths: Any
    _defs: Any
    _counts: Any
    _has_nests: bool | None
    _has_refs: bool | None
    # By hash. A dictionary keyed by structures would keep alive a module that holds a function of itself.
    _interned: dict[int, list[weakref.ref[GraphDef]]] = {}

    def __new__(cls, root: Any) -> GraphDef:
        key = hash(root)
        bucket = cls._interned.setdefault(key, [])
        for ref in bucket:
            known = ref()
            if known is not None and known.root == root:
                return known
        found = object.__new__(cls)
        found.root = root
        found._paths = found._defs = found._counts = found._has_nests = found._has_refs = found.sources = None

        def forget(ref: weakref.ref, interned: dict = cls._interned) -> None:
            held = interned.get(key)
            if held is not None and ref in held:
                held.remove(ref)
                if not held:
                    del interned[key]

        bucket.append(weakref.ref(found, forget))
        return found

    @property
    def paths(self) -> tuple[list[Path], list[Path]]:
        """The paths of the variables, and those of the arrays that stand in no variable, both in order."""
        if self._paths is None:
            self._paths = ([], [])
            _collect(self.root, (), *self._paths)
        return self._paths

    @property
    def is_joint(self) -> bool:
        """Whether this is the structure of several roots, or of one that is no object, each at its number."""
        return self.root[0] == "nest"

    @property
    def counts(self) -> list[int]:
        """For each root how many variables were first met in it."""
        if self._counts is None:
            if not self.is_joint:
                self._counts = [len(self.paths[0])]
            else:
                self._counts = [0] * len(self.root.children)
                for path in self.paths[0]:
                    self._counts[path[0]] += 1
        return self._counts

    @property
    def has_nests(self) -> bool:
        """Whether it holds pytrees that might change without anybody noticing."""
        if self._has_nests is None:
            self._has_nests = _has(self.root, lambda n: n[0] == "nest" and n.structure is not tuple)
        return self._has_nests

    @property
    def has_refs(self) -> bool:
        """Whether anything in it is shared."""
        if self._has_refs is None:
            self._has_refs = _has(self.root, lambda n: n[0] == "ref")
        return self._has_refs

    @property
    def variable_defs(self) -> list[VariableDef]:
        """The definitions of the variables, in order."""
        if self._defs is None:
            self._defs = list(_variable_defs(self.root))
        return self._defs

    @property
    def num_leaves(self) -> int:
        """How many variables and arrays there are."""
        return sum(map(len, self.paths))

    @property
    def type(self) -> Any:
        """The class of the outermost object."""
        return getattr(self.root, "type", None)

    def apply(self, state: Any, *states: Any) -> Any:
        """A function that calls the module of this structure and these states (see `nnx.call`).

        Args:
          state, *states: the states.

        Returns:
          What `nnx.call` gives.
        """
        from phalanx.nnx.functional import call

        return call((self, state, *states))

    def __reduce__(self) -> tuple:
        return GraphDef, (self.root,)

    def __repr__(self) -> str:
        roots = self.root.children if self.is_joint else (self.root,)
        name = ", ".join(d.type.__name__ for d in roots if hasattr(d, "type")) or "tree"
        return f"GraphDef({name}, {len(self.paths[0])} variables, {len(self.paths[1])} arrays)"


register_static(GraphDef)


def _has(node: Any, test: Any) -> bool:
    """Whether a definition, or one inside it, is as asked."""
    if test(node):
        return True
    return node[0] in ("object", "container", "nest") and any(_has(c, test) for c in node.children)


def _collect(node: Any, path: Path, variables: list, arrays: list) -> None:
    if node is LEAF or node == LEAF:
        arrays.append(path)
    elif node.tag == "variable":
        variables.append(path)
    elif node.tag in ("object", "container", "nest"):
        for key, child in zip(node.names if node.tag == "object" else node.keys, node.children, strict=True):
            _collect(child, (*path, key), variables, arrays)


class Graph:
    """What a walk found.

    definition: the structure.
    variables, paths: each variable once, in order, and where it was first met.
    refs, ref_paths: arrays that stand in no variable, as (holder, key), and where they are; a root, which a graph must
      not keep alive, is given by its number.
    groups: for each root, those of the variables and of the refs that were first met in it.
    nodes, versions: all that has a version but the root, and the versions at the time of the walk.
    lists, dicts, nests: plain containers, which nobody watches, with what they held.
    joints: what others remember about this graph together with further ones.
    """

    __slots__ = (
        "_ids", "definition", "dicts", "groups", "joints", "lists", "nests", "nodes", "paths", "ref_paths", "refs",
        "root_version", "time", "variables", "versions",
    )  # fmt: skip

    definition: GraphDef
    variables: list[Variable]
    paths: list[Path]
    refs: list[tuple[Any, Any]]
    ref_paths: list[Path]
    nodes: list[Any]
    versions: list[int]
    root_version: int
    time: int
    lists: list[tuple]
    dicts: list[tuple]
    nests: list[tuple]
    joints: dict[Any, Any]
    groups: list[tuple[list, list]]
    _ids: frozenset[int] | None

    def is_fresh(self, root: Any) -> bool:
        """Whether the structure is still the one that was walked."""
        now = clock.time
        if self.time != now:
            if root._version != self.root_version or [n._version for n in self.nodes] != self.versions:
                return False
            self.time = now
        for held, seen in self.lists:
            if len(held) != len(seen) or not all(map(is_, held, seen)):
                return False
        for keyed, keys, values in self.dicts:
            if len(keyed) != len(keys) or not (all(map(is_, keyed.values(), values)) and all(map(is_, keyed, keys))):
                return False
        for nest, children in self.nests:
            now_held = [child for _, child in flatten_one_level_with_keys(nest)[0]]
            if len(now_held) != len(children) or not all(map(is_, now_held, children)):
                return False
        return True

    def ids(self) -> frozenset[int]:
        """The addresses of the variables."""
        if self._ids is None:
            self._ids = frozenset(map(id, self.variables))
        return self._ids

    def without(self, roots: Sequence[Any]) -> Graph:
        """The same without the roots that are variables, which whoever remembers this must not keep alive."""
        return self._with([([], []) if isinstance(r, Variable) else g for r, g in zip(roots, self.groups)])

    def of_variables(self, roots: Sequence[Any]) -> Graph:
        """The same with other variables in the place of the roots that are some."""
        return self._with([([r], []) if isinstance(r, Variable) else g for r, g in zip(roots, self.groups)])

    def _with(self, groups: list[tuple[list, list]]) -> Graph:
        made = copy.copy(self)
        made.groups = groups
        made.variables = [v for variables, _ in groups for v in variables]
        made.nodes, made.versions = [], []  # a graph of several roots is as fresh as the graphs of its roots
        return made

    def arrays(self, *roots: Any) -> list:
        """The arrays that stand in no variable."""
        return [read(roots[holder] if type(holder) is int else holder, key) for holder, key in self.refs]

    def entries(self, *roots: Any) -> Iterator[tuple[Path, Any]]:
        """Every variable and every other array with its path."""
        yield from zip(self.paths, self.variables)
        if self.refs:
            yield from zip(self.ref_paths, self.arrays(*roots))


def read(holder: Any, key: Any) -> Any:
    """What an object or a container holds under a name or an index."""
    return holder.__dict__[key] if isinstance(holder, Object) else holder[key]


class Walk:
    """One walk over one or several roots, which number what they share once."""

    def __init__(self) -> None:
        self.indices: dict[int, int] = {}
        self.held: list[Any] = []
        self.variables: list[Variable] = []
        self.paths: list[Path] = []
        self.refs: list[tuple[Any, Any]] = []
        self.ref_paths: list[Path] = []
        self.nodes: list[Any] = []
        self.lists: list[tuple] = []
        self.dicts: list[tuple] = []
        self.nests: list[tuple] = []
        self.first_met: dict[int, Path] = {}

    def visit(self, x: Any, path: Path, holder: Any = None, key: Any = None, as_data: bool = False) -> Any:
        """The definition of what stands at a place."""
        kind = type(x)
        if kind in _SIMPLE:
            if as_data and isinstance(x, int | float | complex):
                return self._leaf(path, holder, key)
            return StaticDef("static", Static(x))
        if isinstance(x, Variable):
            return self._variable(x, path)
        if isinstance(x, Object):
            return self._object(x, path)
        if is_array(x):
            return self._leaf(path, holder, key)
        if kind in _CONTAINERS:
            return self._container(x, path, as_data)
        if is_tree_node(kind):
            return self._nest(x, path, as_data)
        return StaticDef("static", Static(x))

    def _number(self, x: Any, path: Path) -> int:
        index = self.indices[id(x)] = len(self.held)
        self.held.append(x)
        return index

    def _variable(self, x: Variable, path: Path) -> Any:
        index = self.indices.get(id(x))
        if index is not None:
            return RefDef("ref", index)
        self.variables.append(x)
        self.paths.append(path)
        self.nodes.append(x)
        metadata = x._metadata
        return VariableDef("variable", type(x), self._number(x, path), static_items(metadata) if metadata else ())

    def _object(self, x: Object, path: Path) -> Any:
        index = self.indices.get(id(x))
        if index is not None:
            return RefDef("ref", index)
        index = self._number(x, path)
        self.nodes.append(x)
        own = x.__dict__
        names = tuple(sorted(own))
        marks = x._marks
        children = []
        for name in names:
            value = own[name]
            if type(value) in _SIMPLE and name not in marks:
                children.append(StaticDef("static", Static(value)))
            elif marks and marks.get(name) is False:
                children.append(StaticDef("static", Static(value)))
            else:
                children.append(self.visit(value, (*path, name), x, name, name in marks))
        return ObjectDef("object", type(x), index, tuple(marks.items()), names, tuple(children))

    def _container(self, x: Any, path: Path, as_data: bool) -> Any:
        index = self.indices.get(id(x))
        if index is not None:
            return RefDef("ref", index)
        index = self._number(x, path)
        keys: Sequence[Any]
        if isinstance(x, list):
            keys, values = range(len(x)), tuple(x)
            self.lists.append((x, values))
        else:
            keys, values = tuple(x), tuple(x.values())
            self.dicts.append((x, keys, values))
        children = tuple([self.visit(v, (*path, k), x, k, as_data) for k, v in zip(keys, values)])
        return ContainerDef("container", type(x), index, tuple(keys), children)

    def _nest(self, x: Any, path: Path, as_data: bool) -> Any:
        if type(x) is tuple:
            keys: Sequence[Any] = range(len(x))
            values: Sequence[Any] = x
            structure: Any = tuple
        else:
            if type(x) is State:
                self.nodes.append(x._owner)
            opened = flatten_one_level_with_keys(x)
            assert opened is not None, "the caller asked whether it is a node"
            keys, values = [_bare(k) for k, _ in opened[0]], [v for _, v in opened[0]]
            structure = Static(_one_level(x))
            if not isinstance(x, tuple | State):
                self.nests.append((x, values))
        children = tuple([self.visit(v, (*path, k), values, i, as_data) for i, (k, v) in enumerate(zip(keys, values))])
        if structure is tuple and all(type(c) is StaticDef for c in children):
            return StaticDef("static", Static(x))
        return NestDef("nest", structure, tuple(keys), children)

    def _leaf(self, path: Path, holder: Any, key: Any) -> Any:
        self.refs.append((holder, key))
        self.ref_paths.append(path)
        return LEAF

    def finish(self, roots: Sequence[Any], definition: Any, starts: Any = None) -> Graph:
        """What was found, as a graph with these roots."""
        graph = Graph()
        graph.time = clock.time
        for node in self.nodes:
            if not node._watched:
                _blank(node, "_watched", True)
        numbers = {id(root): n for n, root in enumerate(roots)}
        graph.nodes = [n for n in self.nodes if id(n) not in numbers]
        graph.versions = [n._version for n in graph.nodes]
        graph.root_version = getattr(roots[0], "_version", 0) if roots else 0
        graph.definition = GraphDef(definition)
        if graph.definition.sources is None:
            graph.definition.sources = [v._source for v in self.variables]
        graph.variables, graph.paths = self.variables, self.paths
        graph.refs = [(numbers.get(id(holder), holder), key) for holder, key in self.refs]
        graph.ref_paths = self.ref_paths
        graph.lists, graph.dicts, graph.nests = self.lists, self.dicts, self.nests
        graph.groups = [(graph.variables, graph.refs)] if starts is None else _grouped(graph, starts)
        graph.joints = {}
        graph._ids = None
        return graph


def _grouped(graph: Graph, starts: list[tuple[int, int]]) -> list[tuple[list, list]]:
    """The variables and the refs of each root, given where each root's begin."""
    ends = [*starts[1:], (len(graph.variables), len(graph.refs))]
    return (
        [(graph.variables[v:v_end], graph.refs[r:r_end]) for (v, r), (v_end, r_end) in zip(starts, ends, strict=True)]
        if starts
        else []
    )


def entries(x: Any) -> Any:
    """What a module or a container holds, by attribute, key or number."""
    if isinstance(x, Object):
        return sorted(x.__dict__.items())
    if isinstance(x, dict | State):
        return x.items()
    return enumerate(x) if isinstance(x, list | tuple) else ()


def _one_level(x: Any) -> Any:
    """The structure of one node, its children as leaves."""
    from phalanx.tree import tree_structure

    return tree_structure(x, is_leaf=lambda y: y is not x)


def _bare(key: Any) -> Any:
    if isinstance(key, GetAttrKey):
        return key.name
    if isinstance(key, SequenceKey):
        return key.idx
    return key.key if isinstance(key, DictKey | FlattenedIndexKey) else key


def graph_of(node: Any) -> Graph:
    """The graph of an object or of a tree of objects; that of an object is kept on it while its structure stays."""
    if not isinstance(node, Object):
        walk = Walk()
        return walk.finish((node,), walk.visit(node, (), [node], 0))
    graph = node._graph
    if graph is None or not graph.is_fresh(node):
        walk = Walk()
        graph = walk.finish((node,), walk._object(node, ()))
        _blank(node, "_graph", graph)
    return graph


_MOST_JOINTS = 8
_of_variables: dict[tuple, Graph] = {}  # the joint graphs of roots without an object among them


def joint_graph(roots: Sequence[Any]) -> Graph:
    """The graph of several roots, what they share numbered once; found again while their structures stay."""
    if len(roots) == 1 and isinstance(roots[0], Object):
        return graph_of(roots[0])
    graphs, lone, key = [], [], []
    for root in roots:
        if isinstance(root, Object):
            graphs.append(graph_of(root))
            key.append(graphs[-1])
        else:
            metadata = root._metadata
            lone.append(root)
            key.append((type(root), static_items(metadata) if metadata else ()))
    if lone:
        ids = {*map(id, lone)}
        if len(ids) < len(lone) or not all(ids.isdisjoint(g.ids()) for g in graphs):
            return _walk_together(roots)  # a variable that is in another root, too
    known = graphs[0].joints if graphs else _of_variables
    found = known.get(tuple(key))
    if found is None:
        if len(known) >= _MOST_JOINTS * (1 if graphs else 16):
            known.clear()
        made = _walk_together(roots)
        known[tuple(key)] = made.without(roots) if lone else made
        return made
    return found.of_variables(roots) if lone else found


def _walk_together(roots: Sequence[Any]) -> Graph:
    walk = Walk()
    definitions, starts = [], []
    for n, root in enumerate(roots):
        starts.append((len(walk.variables), len(walk.refs)))
        definitions.append(walk.visit(root, (n,), roots, n))
    return walk.finish(roots, NestDef("nest", tuple, tuple(range(len(roots))), tuple(definitions)), starts)


def build(
    node: Any, variables: Iterator[Any], arrays: Iterator[Any], made: dict[int, Any], existing: dict[int, Any]
) -> Any:
    """The object of a definition.

    Args:
      node: the definition.
      variables, arrays: what stands for the variables and the other arrays, in order.
      made: the numbered things so far, written to.
      existing: objects and containers that are to be changed instead of made, by number.
    """
    tag = node[0]
    if tag == "static":
        return node.value.value
    if tag == "variable":
        out = made[node.index] = next(variables)
        return out
    if tag == "ref":
        return made[node.index]
    if tag == "leaf":
        return next(arrays)
    if tag == "object":
        return _build_object(node, variables, arrays, made, existing)
    if tag == "container":
        return _build_container(node, variables, arrays, made, existing)
    children = [build(c, variables, arrays, made, existing) for c in node.children]
    return tuple(children) if node.structure is tuple else node.structure.value.unflatten(children)


def _build_object(node: ObjectDef, variables: Any, arrays: Any, made: dict, existing: dict) -> Any:
    target = existing.get(node.index)
    is_new = target is None
    if is_new:
        target = blank(node.type)
        if node.marks:
            _blank(target, "_marks", dict(node.marks))
    made[node.index] = target
    own = target.__dict__
    for name, child in zip(node.names, node.children):
        value = child.value.value if child[0] == "static" else build(child, variables, arrays, made, existing)
        if is_new:
            own[name] = value
        elif own.get(name, LEAF) is not value:
            if not (is_array(value) and is_array(own.get(name))):
                touch(target)
            own[name] = value
    if not is_new and len(own) != len(node.names):
        for name in set(own) - set(node.names):
            del own[name]
        touch(target)
    return target


def _build_container(node: ContainerDef, variables: Any, arrays: Any, made: dict, existing: dict) -> Any:
    target = existing.get(node.index)
    if target is None:
        target = node.type()
    made[node.index] = target
    children = [build(c, variables, arrays, made, existing) for c in node.children]
    if isinstance(target, list):
        if len(target) != len(children) or not all(map(is_, target, children)):
            target[:] = children
    elif tuple(target) != node.keys or not all(map(is_, target.values(), children)):
        target.clear()
        target.update(zip(node.keys, children))
    return target


def build_from_leaves(
    definition: GraphDef, leaf_at: Any, where: str, copy: bool = False, made: dict[int, Any] | None = None
) -> Any:
    """The object of a definition, its variables and arrays looked up by path.

    Args:
      definition: the structure.
      leaf_at: a flat mapping from paths to variables or values.
      where: the caller, for messages.
      copy: whether variables are copied.
      made: the numbered things of definitions before this one, where it goes on counting; written to.

    Raises:
      TreeError: a path has no leaf, or a leaf no place.
    """
    variable_paths, array_paths = definition.paths
    missing = [p for p in (*variable_paths, *array_paths) if p not in leaf_at]
    if missing:
        raise TreeError(
            where,
            expected=f"a leaf for each of the {definition.num_leaves} places of {definition!r}",
            got=f"none at {', '.join(map(path_text, missing[:5]))}{', ...' if len(missing) > 5 else ''}",
            mend="pass all states that `split` gave",
        )
    if len(leaf_at) != definition.num_leaves:
        places = {*variable_paths, *array_paths}
        spare = [path_text(p) for p in leaf_at if p not in places]
        raise TreeError(
            where,
            expected=f"leaves where {definition!r} has places",
            got=f"further ones at {', '.join(spare[:5])}{', ...' if len(spare) > 5 else ''}",
            mend="pass the states of this graph only",
        )
    variables = [
        _as_variable(d, leaf_at[p], copy) for d, p in zip(definition.variable_defs, variable_paths, strict=True)
    ]
    arrays = [leaf_at[p] for p in array_paths]
    return build(definition.root, iter(variables), iter(arrays), {} if made is None else made, {})


class Misfit(Exception):
    """A state that does not fit a structure; who catches it finds out where, and says so."""


def build_nested(node: Any, leaf: Any, made: dict[int, Any]) -> Any:
    """The object of a definition, its leaves taken from nested dictionaries as it goes down: what `merge` mostly does.

    Args:
      node: the definition.
      leaf: the dictionary, variable or value that stands at its place.
      made: the numbered things so far, written to.

    Raises:
      Misfit: they do not fit.
    """
    tag = node[0]
    if tag == "static":
        return node.value.value
    if tag == "ref":
        return made[node.index]
    if tag in ("variable", "leaf"):
        if leaf is None:
            raise Misfit
        if tag == "leaf":
            return leaf
        out = made[node.index] = _as_variable(node, leaf, False)
        return out
    held = {} if leaf is None else leaf
    if type(held) is not dict:
        raise Misfit
    return _nested_object(node, held, made) if tag == "object" else _nested_container(node, held, made)


def _nested_object(node: ObjectDef, held: dict, made: dict) -> Any:
    target = made[node.index] = blank(node.type)
    if node.marks:
        _blank(target, "_marks", dict(node.marks))
    own = target.__dict__
    used = 0
    for name, child in zip(node.names, node.children):
        found = held.get(name)
        used += found is not None
        own[name] = child.value.value if child[0] == "static" else build_nested(child, found, made)
    if used != len(held):
        raise Misfit
    return target


def _nested_container(node: Any, held: dict, made: dict) -> Any:
    if sum(k in held for k in node.keys) != len(held):
        raise Misfit
    if node[0] == "nest":
        children = [build_nested(c, held.get(k), made) for k, c in zip(node.keys, node.children)]
        return tuple(children) if node.structure is tuple else node.structure.value.unflatten(children)
    target = made[node.index] = node.type()
    children = [build_nested(c, held.get(k), made) for k, c in zip(node.keys, node.children)]
    if isinstance(target, list):
        target.extend(children)
    else:
        target.update(zip(node.keys, children))
    return target


def _variable_defs(node: Any) -> Iterator[VariableDef]:
    """The definitions of the variables, in order."""
    if node[0] == "variable":
        yield node
    elif node[0] in ("object", "container", "nest"):
        for child in node.children:
            yield from _variable_defs(child)


def _as_variable(node: VariableDef, leaf: Any, copy: bool) -> Variable:
    if isinstance(leaf, Variable):
        return leaf.copy() if copy else leaf
    return node.type.from_metadata(leaf, {k: v.value for k, v in node.metadata})
