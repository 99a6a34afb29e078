"""The traversal of objects: a `Graph` lists the variables and arrays of an object and has its structure.

The graph of an object is cached on the object. It is valid as long as no object in it has changed its structure, which
the global structure version rules out with one comparison in most cases. Plain lists and dictionaries do not count
their changes, so their elements are compared by identity. `split_merge` and all transformations use this file.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import types
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import is_, itemgetter
from typing import Any

from phalanx.core import Ref
from phalanx.engine.cache import Cache
from phalanx.nnx.graphlib.graph_def import (
    LEAF,
    ArrayRefDef,
    ContainerDef,
    Definition,
    GraphDef,
    NestDef,
    ObjectDef,
    RefDef,
    StaticDef,
    VariableDef,
)
from phalanx.nnx.graphlib.states import Path, State
from phalanx.nnx.objects import Pytree, get_attributes, is_array, set_slot
from phalanx.nnx.trace_level import structure_version
from phalanx.nnx.variable import Static, Variable, freeze_metadata
from phalanx.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    SequenceKey,
    flatten_one_level_with_keys,
    is_tree_node,
    tree_structure,
)
from phalanx.typing import PyTree

_STATIC_TYPES = frozenset(
    {str, int, float, bool, complex, bytes, type(None), type, types.FunctionType, types.BuiltinFunctionType}
)
_CONTAINERS = frozenset({list, dict})


@dataclasses.dataclass(slots=True, eq=False)
class Graph:
    """The result of a traversal.

    definition: the structure.
    variables, paths: each variable once, in order, and the path at which it was first reached.
    refs, ref_paths: the arrays outside of variables, as (holder, key), and their paths. A holder that is a root is
      given by its number, since a graph that is cached on its root must not keep the root alive.
    groups: for each root, its variables and refs, except the ones that an earlier root contains as well.
    nodes, versions: everything with a version except the root, and the versions at the time of the traversal.
    containers: lists, dictionaries and views of the values of dictionaries, whose changes are not counted, with their
      elements.
    nests: other pytree nodes whose changes are not counted, with their elements.
    joints: a cache of the graphs of this root together with other ones.
    """

    definition: GraphDef
    variables: list[Variable]
    paths: list[Path]
    refs: list[tuple[Any, Hashable]]
    ref_paths: list[Path]
    groups: list[tuple[list, list]]
    nodes: list[Any]
    versions: list[int]
    root_version: int
    seen_version: int
    containers: list[tuple]
    nests: list[tuple]
    joints: dict[tuple, Graph] = dataclasses.field(default_factory=dict)
    _ids: frozenset[int] | None = None

    def is_fresh(self, root: Any) -> bool:
        """Whether the structure of the root is unchanged since the traversal."""
        now = structure_version.count
        if self.seen_version != now:
            # Some object has changed its structure since the last check: compare the versions of this graph's nodes.
            if root._version != self.root_version or [n._version for n in self.nodes] != self.versions:
                return False
            self.seen_version = now
        # Plain lists and dictionaries have no version. Comparing their elements by identity is enough, since an element
        # that is an object has a version, and an array is not part of the structure.
        for elements, seen in self.containers:
            if len(elements) != len(seen) or not all(map(is_, elements, seen)):
                return False
        for nest, children in self.nests:
            elements = [child for _, child in flatten_one_level_with_keys(nest)[0]]
            if len(elements) != len(children) or not all(map(is_, elements, children)):
                return False
        return True

    def ids(self) -> frozenset[int]:
        """The addresses of the variables."""
        if self._ids is None:
            self._ids = frozenset(map(id, self.variables))
        return self._ids

    def with_root_variables(self, roots: Sequence[Any], *, keep: bool = True) -> Graph:
        """A copy with these variables for the roots that are variables, or without them for a cache."""
        graph = copy.copy(self)
        graph.groups = [([r] if keep else [], []) if isinstance(r, Variable) else g for r, g in zip(roots, self.groups)]
        graph.variables = [*itertools.chain.from_iterable(map(itemgetter(0), graph.groups))]
        # Its versions are not compared: its cache key contains the graphs of its roots, which `get_joint_graph` has
        # checked.
        graph.nodes, graph.versions = [], []
        return graph

    def arrays(self, *roots: Any) -> list[Any]:
        """The arrays outside of variables."""
        return [get_entry(roots[holder] if type(holder) is int else holder, key) for holder, key in self.refs]

    def leaves(self, *roots: Any) -> Iterator[tuple[Path, Any]]:
        """Iterate over the variables, then the other arrays, with their paths."""
        yield from zip(self.paths, self.variables)
        if self.refs:
            yield from zip(self.ref_paths, self.arrays(*roots))


def get_entry(holder: Any, key: Hashable) -> Any:
    """The attribute of an object, or the element of a container."""
    return get_attributes(holder)[key] if isinstance(holder, Pytree) else holder[key]


class Walk:
    """One traversal of one or several roots. Each object is visited once, even if several roots contain it.

    Args:
      known: the numbers of objects that count as visited.
    """

    def __init__(self, known: Mapping[Any, int] | None = None) -> None:
        self.indices: dict[int, int] = {}
        self.numbered: list[Any] = []  # also keeps temporary objects alive, so that no address is used twice
        for x, number in known.items() if known else ():
            self.indices[id(x)] = number
            self.numbered += [None] * (number + 1 - len(self.numbered))
            self.numbered[number] = x
        self.variables: list[Variable] = []
        self.paths: list[Path] = []
        self.refs: list[tuple[Any, Any]] = []
        self.ref_paths: list[Path] = []
        self.nodes: list[Any] = []
        self.containers: list[tuple] = []
        self.starts: list[tuple[int, int]] = []  # the numbers of variables and of refs before each root
        self.nests: list[tuple] = []

    def visit(self, x: Any, path: Path, holder: Any = None, key: Hashable = None, as_data: bool = False) -> Definition:
        """Return the definition of a value.

        Args:
          x: the value.
          path: its path from the root.
          holder, key: the object or container that contains it, and its name or index there.
          as_data: whether numbers are leaves, because an attribute is marked as data.
        """
        kind = type(x)
        # The most frequent types of attributes are tested first, by exact type; subclasses of `int` such as enums are
        # static through the last line.
        if kind in _STATIC_TYPES:
            if as_data and isinstance(x, int | float | complex):
                return self._leaf(path, holder, key)
            return StaticDef("static", Static(x))
        if (index := self.indices.get(id(x))) is not None:
            return RefDef("ref", index)
        if isinstance(x, Variable):
            return self._variable(x, path)
        if isinstance(x, Pytree):
            return self._object(x, path)
        if is_array(x):
            leaf = self._leaf(path, holder, key)
            return ArrayRefDef("array_ref", self._number(x)) if isinstance(x, Ref) else leaf
        if kind in _CONTAINERS:
            return self._container(x, path, as_data)
        # Tuples and other pytree nodes have no identity, and are flattened one level at a time.
        if is_tree_node(kind):
            return self._nest(x, path, as_data)
        return StaticDef("static", Static(x))

    def _number(self, x: Any) -> int:
        index = self.indices[id(x)] = len(self.numbered)
        self.numbered.append(x)
        return index

    def visit_roots(self, roots: Sequence[Any]) -> NestDef:
        """The joint definition of several roots. The first key of a path in it is the number of the root."""
        definitions = []
        for n, root in enumerate(roots):
            self.starts.append((len(self.variables), len(self.refs)))
            definitions.append(self.visit(root, (n,), roots, n))
        return NestDef("nest", tuple, tuple(range(len(roots))), tuple(definitions))

    def _variable(self, x: Variable, path: Path) -> Definition:
        self.variables.append(x)
        self.paths.append(path)
        self.nodes.append(x)
        return VariableDef("variable", type(x), self._number(x), freeze_metadata(x._metadata))

    def _object(self, x: Pytree, path: Path) -> Definition:
        index = self._number(x)
        self.nodes.append(x)
        attributes = get_attributes(x)
        # Sorted, so that objects whose attributes were set in another order have the same definition.
        names = tuple(x._sorted_names())
        marks = x._marks
        children: list[Definition] = []
        for name in names:
            value = attributes[name]
            children.append(
                StaticDef("static", Static(value))
                if marks.get(name) is False or (type(value) in _STATIC_TYPES and name not in marks)
                else self.visit(value, (*path, name), x, name, name in marks)
            )
        return ObjectDef("object", type(x), index, tuple(marks.items()), names, tuple(children))

    def _container(self, x: Any, path: Path, as_data: bool) -> Definition:
        index = self._number(x)
        keys: Sequence[Any]
        if isinstance(x, list):
            keys, values = range(len(x)), tuple(x)
            self.containers.append((x, values))
        else:
            keys, values = tuple(x), tuple(x.values())
            # A view of the values follows the dictionary, so that both can be compared like lists.
            self.containers += [(x, keys), (x.values(), values)]
        children = tuple([self.visit(v, (*path, k), x, k, as_data) for k, v in zip(keys, values)])
        return ContainerDef("container", type(x), index, tuple(keys), children)

    def _nest(self, x: Any, path: Path, as_data: bool) -> Definition:
        keys: Sequence[Any]
        values: Sequence[Any]
        structure: Any = tuple
        if type(x) is tuple:
            keys, values = range(len(x)), x
        else:
            # A nested state shares the version of its outermost state, which counts all changes.
            if type(x) is State:
                self.nodes.append(x._owner)
            children_with_keys, _ = flatten_one_level_with_keys(x)
            keys, values = [unwrap_key(k) for k, _ in children_with_keys], [v for _, v in children_with_keys]
            structure = Static(tree_structure(x, is_leaf=lambda y: y is not x))
            # Tuples are immutable and states count their changes; all other pytree nodes may change unnoticed.
            if not isinstance(x, tuple | State):
                self.nests.append((x, values))
        children = tuple([self.visit(v, (*path, k), values, i, as_data) for i, (k, v) in enumerate(zip(keys, values))])
        # A tuple of static values is static as a whole, which keeps definitions of options such as kernel sizes small.
        if structure is tuple and all(type(c) is StaticDef for c in children):
            return StaticDef("static", Static(x))
        return NestDef("nest", structure, tuple(keys), children)

    def _leaf(self, path: Path, holder: Any, key: Hashable) -> Definition:
        self.refs.append((holder, key))
        self.ref_paths.append(path)
        return LEAF

    def leaves(self, start: int = 0, ref_start: int = 0) -> list[tuple[Path, Any]]:
        """The variables from a number on, then the other arrays from a number on, with their paths."""
        arrays = (get_entry(*ref) for ref in self.refs[ref_start:])
        return [*zip(self.paths[start:], self.variables[start:]), *zip(self.ref_paths[ref_start:], arrays)]

    def finish(self, roots: Sequence[Any], definition: Definition) -> Graph:
        """Return the graph of the visited roots.

        Args:
          roots: the roots.
          definition: their structure.
        """
        seen_version = structure_version.count
        for node in self.nodes:
            # From now on, structural changes of these objects increase the global version.
            set_slot(node, "_watched", True)
        numbers = {id(root): n for n, root in enumerate(roots)}
        nodes = [n for n in self.nodes if id(n) not in numbers]
        refs = [(numbers.get(id(holder), holder), key) for holder, key in self.refs]
        structure = GraphDef(definition)
        # Definitions are interned, so that only the first graph of a structure sets the sources.
        if structure.sources is None:
            structure.sources = [v._source for v in self.variables]
        bounds = itertools.pairwise([*(self.starts or [(0, 0)]), (len(self.variables), len(refs))])
        return Graph(
            structure,
            self.variables,
            self.paths,
            refs,
            self.ref_paths,
            groups=[(self.variables[v:v_end], refs[r:r_end]) for (v, r), (v_end, r_end) in bounds],
            nodes=nodes,
            versions=[n._version for n in nodes],
            # The root is not among `nodes`: a graph that is cached on its root would otherwise refer to it in a cycle,
            # and only the garbage collector could free the model.
            root_version=getattr(roots[0], "_version", 0) if roots else 0,
            seen_version=seen_version,
            containers=self.containers,
            nests=self.nests,
        )


def find_origins(walk: Walk, originals: Mapping[Any, int]) -> tuple[tuple[int, int], ...]:
    """The numbers of the visited objects that are copies, and of their originals."""
    return tuple((i, originals[x]) for i, x in enumerate(walk.numbered) if x in originals) if originals else ()


def iter_entries(x: Any) -> Iterable[tuple[Any, Any]]:
    """Iterate over the attributes of an object, or the elements of a container, by name, key or index."""
    if isinstance(x, Pytree):
        return [(name, get_attributes(x)[name]) for name in x._sorted_names()]
    if isinstance(x, dict | State):
        return x.items()
    return enumerate(x) if isinstance(x, list | tuple) else ()


def unwrap_key(key: KeyEntry) -> Hashable:
    """The name, key or index in a pytree key."""
    if isinstance(key, GetAttrKey):
        return key.name
    if isinstance(key, SequenceKey):
        return key.idx
    return key.key if isinstance(key, DictKey | FlattenedIndexKey) else key


def get_graph(node: PyTree) -> Graph:
    """The graph of an object or of a tree of objects; the graph of an object is cached on the object."""
    # A list or dictionary of modules has no slot for a cached graph, and may change without notice.
    if not isinstance(node, Pytree):
        walk = Walk()
        return walk.finish((node,), walk.visit(node, (), [node], 0))
    graph = node._graph
    if graph is None or not graph.is_fresh(node):
        walk = Walk()
        graph = walk.finish((node,), walk._object(node, ()))
        set_slot(node, "_graph", graph)
    return graph


# A model is passed together with few sets of other objects, such as its optimizer and its metrics. More entries mean
# that these are created anew for each call, and would only keep them alive.
_MAX_JOINTS = 8
_variable_graphs: Cache[tuple, Graph] = Cache(
    "nnx.joint_graphs", 128
)  # for calls with variables only, which have no object to cache the graph on


def get_joint_graph(roots: Sequence[Any]) -> Graph:
    """The graph of several roots, in which everything that they share is numbered once.

    The result is cached on the first object among the roots. The key consists of the graphs of the objects, which are
    identical only while their structures are unchanged, and of the types and metadata of the variables. If a variable
    is a root and is also contained in another root, the roots are traversed again in each call.

    Args:
      roots: objects and variables.
    """
    # By far the most common call, which needs no key.
    if len(roots) == 1 and isinstance(roots[0], Pytree):
        return get_graph(roots[0])
    graphs, variables, key = [], [], []
    for root in roots:
        if isinstance(root, Pytree):
            graphs.append(get_graph(root))
            key.append(graphs[-1])
        else:
            variables.append(root)
            metadata = root._metadata
            key.append((type(root), freeze_metadata(metadata)) if metadata else type(root))
    if variables:
        ids = {*map(id, variables)}
        # A cached joint graph replaces its root variables by this call's, which is only correct if no other
        # root contains them.
        if len(ids) < len(variables) or not all(ids.isdisjoint(g.ids()) for g in graphs):
            return _walk_roots(roots)
    cache = graphs[0].joints if graphs else _variable_graphs
    found = cache.get(tuple(key))
    if found is None:
        # A key contains graphs, which are replaced when a structure changes, so that old entries are never found again.
        if len(cache) >= _MAX_JOINTS * (1 if graphs else 16):
            cache.clear()
        graph = _walk_roots(roots)
        # Variables that are roots differ from call to call. Only their types and metadata are in the key, so the cached
        # graph omits them, and `with_root_variables` inserts the variables of each call.
        cache[tuple(key)] = graph.with_root_variables(roots, keep=False) if variables else graph
        return graph
    return found.with_root_variables(roots) if variables else found


def _walk_roots(roots: Sequence[Any]) -> Graph:
    walk = Walk()
    return walk.finish(roots, walk.visit_roots(roots))
