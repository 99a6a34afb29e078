"""`GraphDef`: the structure of a graph of objects as an interned, hashable value.

A definition is a tree of the named tuples below. Everything that has an identity (objects, lists, dictionaries,
variables) is numbered in the order of the traversal; a second occurrence is a `RefDef` with that number, so that shared
references and cycles are preserved. `graph_walk` creates definitions, `graph_build` builds objects from them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from phalanx.core import ArgumentError
from phalanx.nnx.graphlib.states import Path, format_path
from phalanx.nnx.variable import Static
from phalanx.tree import is_tree_node, register_static


class ObjectDef(NamedTuple):
    """An object: its class, its number, the marks of its attributes, and its attributes by name."""

    tag: str
    type: type
    index: int
    marks: tuple
    keys: tuple
    children: tuple


class ContainerDef(NamedTuple):
    """A list or a dictionary, which has an identity."""

    tag: str
    type: type
    index: int
    keys: tuple
    children: tuple


class NestDef(NamedTuple):
    """One level of a tuple, or of another pytree node without identity."""

    tag: str
    structure: Any
    keys: tuple
    children: tuple


class VariableDef(NamedTuple):
    """A variable: its type, its number and its metadata."""

    tag: str
    type: Any
    index: int
    metadata: tuple


class RefDef(NamedTuple):
    """Another occurrence of the object, container or variable of this number."""

    tag: str
    index: int


class StaticDef(NamedTuple):
    """A static value."""

    tag: str
    value: Static


class ArrayRefDef(NamedTuple):
    """A mutable array reference outside of a variable, which has an identity."""

    tag: str
    index: int


class LeafDef(NamedTuple):
    """An array outside of a variable."""

    tag: str = "leaf"


class TreeNodeDef(NamedTuple):
    """The leaves of a structure that was made in tree mode, by path."""

    tag: str
    path_index: tuple[tuple[Path, int], ...]


LEAF = LeafDef()
Definition: TypeAlias = ObjectDef | ContainerDef | NestDef | VariableDef | RefDef | StaticDef | ArrayRefDef | LeafDef
_PARENTS = ("object", "container", "nest")
_NUMBERED = ("object", "container", "variable", "array_ref")
_ARRAYS = ("leaf", "array_ref")


class GraphDef:
    """The structure of a graph: classes, static attributes, types and metadata of variables, and shared references.

    Definitions are interned: graphs of equal structure have the same `GraphDef` object. A pytree without leaves.

    Examples:
      >>> from phalanx import nnx
      >>> graphdef, state = nnx.split({"w": nnx.Param(1.0)})
      >>> isinstance(graphdef, nnx.GraphDef), nnx.merge(graphdef, state)
      (True, {'w': Param(
        value=1.0
      )})
    """

    root: Any
    # Where the variables of the first graph with this structure were created, for error messages.
    sources: list | None
    # Set by `split_merge`, which builds on this file: `graphdef.apply(*states)` is `nnx.call((graphdef, *states))`.
    apply: Callable[..., Any]
    # Keyed by the hash of the definition. As a key, a definition would stay alive with everything that its static
    # attributes refer to, such as bound methods of the module itself.
    _interned: dict[int, list[weakref.ref[GraphDef]]] = {}

    # The numbers of objects that are copies, and of their originals; see `split_context`.
    origins: tuple[tuple[int, int], ...]
    is_tree: bool  # whether it was made in tree mode

    def __new__(cls, root: Definition, origins: tuple[tuple[int, int], ...] = (), is_tree: bool = False) -> GraphDef:
        # The hash of a deep structure is computed once per traversal, and never by the caches of transformations, which
        # hash the interned `GraphDef` by its address.
        key = hash(root)
        bucket = cls._interned.setdefault(key, [])
        for ref in bucket:
            known = ref()
            if known is not None and known.root == root and (known.origins, known.is_tree) == (origins, is_tree):
                return known
        created = object.__new__(cls)
        created.root = root
        created.origins, created.is_tree = origins, is_tree
        created.sources = None

        # Removes the entry when the last reference to the definition is gone. The default argument keeps the table
        # reachable while the interpreter shuts down and clears class attributes.
        # Runs when the definition is freed, and must not refer to it.
        def forget(ref: weakref.ref, interned: dict = cls._interned) -> None:
            remaining = interned.get(key)
            if remaining is not None and ref in remaining:
                remaining.remove(ref)
                if not remaining:
                    del interned[key]

        bucket.append(weakref.ref(created, forget))
        return created

    @functools.cached_property
    def paths(self) -> tuple[list[Path], list[Path]]:
        """The paths of the variables, and of the arrays outside of variables, in order."""
        paths = [(path, d[0]) for path, d in _iter_definitions(self.root)]
        return [p for p, tag in paths if tag == "variable"], [p for p, tag in paths if tag in _ARRAYS]

    def __class_getitem__(cls, kind: object) -> type[GraphDef]:
        """Annotate the class of the module: `nnx.GraphDef[Model]`."""
        return cls

    @functools.cached_property
    def as_tree(self) -> GraphDef:
        """The same structure, made in tree mode."""
        return GraphDef(self.root, self.origins, is_tree=True)

    @property
    def nodes(self) -> list[Any]:
        """The definitions of objects, containers and variables, and the references to them; one node in tree mode."""
        if self.is_tree:
            return [TreeNodeDef("tree", tuple((path, i) for i, path in enumerate(itertools.chain(*self.paths))))]
        return [d for _, d in _iter_definitions(self.root) if d[0] not in ("static", "leaf")]

    @property
    def is_joint(self) -> bool:
        """Whether this is the structure of several roots, or of one that is not an object."""
        return self.root[0] == "nest"

    @functools.cached_property
    def counts(self) -> list[int]:
        """The number of variables of each root, not counting variables that an earlier root contains as well."""
        if not self.is_joint:
            return [len(self.paths[0])]
        # The first key of a path in a joint structure is the number of the root.
        per_root = collections.Counter(path[0] for path in self.paths[0])
        return [per_root[n] for n in range(len(self.root.children))]

    @functools.cached_property
    def has_nests(self) -> bool:
        """Whether it contains pytree nodes other than tuples, which may be changed without increasing any version."""
        return any(d[0] == "nest" and d.structure is not tuple for _, d in _iter_definitions(self.root))

    @functools.cached_property
    def has_refs(self) -> bool:
        """Whether it contains shared references."""
        return any(d[0] == "ref" for _, d in _iter_definitions(self.root))

    @functools.cached_property
    def tree_violation(self) -> tuple[str, Path, Path] | None:
        """The first variable or cycle that makes this graph no tree of pytree nodes, with two paths to it, or None."""
        numbered: dict[int, tuple[Path, Any]] = {}
        for path, d in _iter_definitions(self.root):
            if d[0] == "object" and not is_tree_node(d.type):
                return f"the {d.type.__name__}", path, path
            if d[0] != "ref":
                if d[0] in _NUMBERED:
                    numbered[d.index] = path, d
                continue
            first, target = numbered[d.index]
            if path[: len(first)] == first:
                return f"the cycle through the {target.type.__name__}", first, path
            for inner, v in _iter_definitions(target):
                if v[0] == "variable":
                    return f"the {v.type.__name__}", (*first, *inner), (*path, *inner)
        return None

    @functools.cached_property
    def variable_defs(self) -> list[VariableDef]:
        """The definitions of the variables, in order."""
        return [d for _, d in _iter_definitions(self.root) if d[0] == "variable"]

    @property
    def num_leaves(self) -> int:
        """The number of variables and arrays."""
        return sum(map(len, self.paths))

    @property
    def type(self) -> Any:
        """The class of the outermost object."""
        return getattr(self.root, "type", None)

    def __reduce__(self) -> tuple:
        return GraphDef, (self.root, self.origins, self.is_tree)

    def __deepcopy__(self, memo: object) -> GraphDef:
        return self

    def __repr__(self) -> str:
        roots = self.root.children if self.is_joint else (self.root,)
        name = ", ".join(d.type.__name__ for d in roots if hasattr(d, "type")) or "tree"
        return f"GraphDef({name}, {len(self.paths[0])} variables, {len(self.paths[1])} arrays)"


register_static(GraphDef)


def _iter_definitions(definition: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Iterate over a definition and all definitions inside it with their paths, in the order of the traversal."""
    yield path, definition
    if definition[0] in _PARENTS:
        for key, child in zip(definition.keys, definition.children, strict=True):
            yield from _iter_definitions(child, (*path, key))


def check_is_tree(where: str, definition: GraphDef) -> None:
    """Check that a structure is a tree of pytree nodes, as `graph=False` requires.

    Raises:
      ArgumentError: a variable occurs twice, there is a cycle, or a class is no pytree node.
    """
    if definition.tree_violation is None:
        return
    name, first, second = definition.tree_violation
    if first == second:
        raise ArgumentError(
            f"{where}, graph=False",
            expected="objects that are pytree nodes",
            got=f"{name} at {format_path(first) or 'the root'}, whose class was declared with pytree=False",
            fix="pass graph=True, or declare the class without pytree=False",
        )
    raise ArgumentError(
        f"{where}, graph=False",
        expected="a tree, in which each variable occurs once",
        got=f"{name} at {format_path(first) or 'the root'} again at {format_path(second)}",
        fix="pass graph=True, which preserves shared references, or create a second variable with nnx.clone",
    )


def describe_difference(expected: GraphDef, got: GraphDef) -> str:
    """The first difference between two structures, in words.

    Args:
      expected, got: the structures, which differ.

    Returns:
      Text such as `layers: a list of 2 elements instead of 3`.
    """
    return _find_difference(expected.root, got.root, ()) or "a difference in metadata or shared references"


def _find_difference(a: Any, b: Any, path: Path) -> str:
    place = format_path(path) or "the module"
    if a == b:
        return ""
    # Types are compared by identity: two classes of the same name from a reloaded module differ.
    if a[0] != b[0] or (a[0] in ("object", "container", "variable") and a.type is not b.type):
        return f"{place}: {_describe(b)} instead of {_describe(a)}"
    if a[0] == "static":
        return f"{place}: the static value {b.value!r} instead of {a.value!r}"
    if a[0] not in _PARENTS:
        return ""
    if a.keys != b.keys:
        extra = [str(k) for k in b.keys if k not in a.keys]
        missing = [str(k) for k in a.keys if k not in b.keys]
        changes = [f"with {', '.join(extra)}"] * bool(extra) + [f"without {', '.join(missing)}"] * bool(missing)
        return f"{place}: {' and '.join(changes) or 'keys in another order'}"
    differences = (_find_difference(x, y, (*path, k)) for k, x, y in zip(a.keys, a.children, b.children))
    return next(filter(None, differences), "")


def _describe(definition: Any) -> str:
    if definition[0] in ("object", "container", "variable"):
        return f"a {definition.type.__name__}"
    words = {"nest": "a container", "ref": "a shared reference", "leaf": "an array", "array_ref": "a reference"}
    return words.get(definition[0]) or f"the static value {definition.value!r}"
