"""Pytree structures as JSON data: nested lists of text, numbers and None.

Reading runs no code from the file. A container class of the user's is registered under a name in both the writing and
the reading process, and its registered function rebuilds the container from data. Builds on `tree`; `artifact_writer`
and `artifact_reader` call it.
"""

from __future__ import annotations

import base64
import importlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from phalanx.core import ArgumentError, PhalanxError
from phalanx.engine import ArtifactError, PyTreeDef
from phalanx.export.artifact_format import malformed_error
from phalanx.numpy import linalg
from phalanx.numpy.sorting import sets
from phalanx.tree import tree_structure

Class = TypeVar("Class", bound=type)

_WHERE = "structure of the arguments or results"


class TreeSerializationError(PhalanxError, ValueError):
    """A container among the arguments or results cannot be written into an artifact.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> from phalanx import export, tree
      >>> class Bag(list):
      ...     pass
      >>> tree.register_pytree_node(Bag, lambda bag: (tuple(bag), None), lambda _, xs: Bag(xs))
      >>> try:
      ...     export.export(phalanx.jit(sum))(Bag([1, 2])).serialize()
      ... except TreeSerializationError as error:
      ...     print(type(error).__name__)
      TreeSerializationError
    """


class _Container(NamedTuple):
    name: str
    node_type: type
    write: Callable[[Any], bytes]  # the node's auxiliary data -> bytes
    make: Callable[[bytes, Sequence[Any]], Any]  # those bytes and the children -> the container


_by_type: dict[type, _Container] = {}
_by_name: dict[str, _Container] = {}


def register_pytree_node_serialization(
    nodetype: Class,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes | bytearray],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Class:
    """Register how a pytree node class is written into artifacts and read back.

    Args:
      nodetype: the class, which is registered as a pytree node too.
      serialized_name: the name of the class in artifacts. Keep it for as long as the artifacts must be readable.
      serialize_auxdata: maps the auxiliary data of a node to bytes.
      deserialize_auxdata: the inverse of `serialize_auxdata`.
      from_children: rebuilds a container from its auxiliary data and children; `nodetype.tree_unflatten` by default.

    Returns:
      The class, so that the function can be used as a decorator with the other arguments bound.

    Raises:
      ArgumentError: the class or the name is registered already, or there is no function to rebuild containers.

    Examples:
      >>> from phalanx import export, tree
      >>> class Box:
      ...     def __init__(self, x):
      ...         self.x = x
      >>> tree.register_pytree_node(Box, lambda box: ((box.x,), None), lambda _, xs: Box(*xs))
      >>> export.register_pytree_node_serialization(
      ...     Box,
      ...     serialized_name="docs.Box",
      ...     serialize_auxdata=lambda data: b"",
      ...     deserialize_auxdata=lambda blob: None,
      ...     from_children=lambda data, xs: Box(*xs),
      ... ).__name__
      'Box'
    """
    make = from_children or getattr(nodetype, "tree_unflatten", None)
    if make is None:
        raise ArgumentError(
            f"register_pytree_node_serialization of {nodetype.__name__}",
            expected="from_children, or a class with tree_unflatten",
            got="neither",
            fix="pass from_children=lambda data, children: ...",
        )
    _register(
        _Container(
            serialized_name,
            nodetype,
            lambda data: bytes(serialize_auxdata(data)),
            lambda data, children: make(deserialize_auxdata(data), children),
        )
    )
    return nodetype


def register_namedtuple_serialization(nodetype: Class, *, serialized_name: str) -> Class:
    """Register the name of a named tuple in artifacts. The class that reads must have the same fields.

    Args:
      nodetype: the class.
      serialized_name: its name in artifacts.

    Returns:
      The class.

    Raises:
      ArgumentError: `nodetype` is not a named tuple, or the class or the name is registered already.

    Examples:
      >>> from typing import NamedTuple
      >>> class Point(NamedTuple):
      ...     x: float
      ...     y: float
      >>> register_namedtuple_serialization(Point, serialized_name="doc.Point").__name__
      'Point'
    """
    fields = getattr(nodetype, "_fields", None)
    if fields is None:
        raise ArgumentError(
            "register_namedtuple_serialization, nodetype",
            expected="a named tuple",
            got=nodetype,
            fix="use register_pytree_node_serialization for other classes",
        )

    def make(data: bytes, children: Sequence[Any]) -> Any:
        if data != ",".join(fields).encode() or len(children) != len(fields):
            expected = f"{serialized_name} with the fields {', '.join(fields)}"
            raise malformed_error(expected, repr(data.decode(errors="replace")), _WHERE)
        return nodetype(*children)

    _register(_Container(serialized_name, nodetype, lambda _: ",".join(fields).encode(), make))
    return nodetype


def _register(container: _Container) -> None:
    if container.node_type in _by_type or container.name in _by_name:
        raise ArgumentError(
            f"serialization of {container.node_type.__name__} as {container.name!r}",
            expected="a class and a name that are not registered yet",
            got=f"{(container.node_type if container.node_type in _by_type else container.name)!r}, registered before",
            fix="register each class once, and pass a serialized_name that no other class has",
        )
    _by_type[container.node_type] = _by_name[container.name] = container


def write_tree(structure: PyTreeDef) -> Any:
    """A structure as nested lists: "*" for a leaf, None, or a list of the kind of a node and its children."""
    data = structure.node_data()
    children = [write_tree(child) for child in structure.children()]
    if data is None:
        return "*"
    kind, extra = data
    if kind is type(None):
        return None
    if kind is tuple or kind is list:
        return [kind.__name__, *children]
    # JSON turns all keys into strings. Keys are stored in a list instead, which preserves ints and bools.
    if kind is dict:
        for key in extra:
            if type(key) not in (str, int, bool):
                raise _unwritable_error(f"a dict with the key {key!r}", "make the keys strings or ints")
        return ["dict", list(extra), *children]
    if kind not in _by_type:
        _register_optimizer_states()
    container = _by_type.get(kind)
    if container is None:
        raise _unwritable_error(f"a {kind.__module__}.{kind.__qualname__}", _registration_of(kind))
    return ["node", container.name, base64.b64encode(container.write(extra)).decode(), *children]


def _register_optimizer_states() -> None:
    """Register the states of `phalanx.optim` by their public names, once an artifact has a container of another class.

    This package is below `optim`, which need not be imported where an artifact is read.
    """
    optim = importlib.import_module("phalanx.optim")
    for name in dir(optim):
        kind = getattr(optim, name)
        if isinstance(kind, type) and hasattr(kind, "_fields") and kind not in _by_type:
            register_namedtuple_serialization(kind, serialized_name=f"phalanx.optim.{name}")


def _registration_of(kind: type) -> str:
    """What a user writes to register a class."""
    package, name = kind.__module__.split(".")[0].strip("_"), kind.__name__
    if kind.__module__.startswith("phalanx.nnx"):
        return "pass the values as dicts, phalanx.nnx.to_pure_dict(phalanx.nnx.state(module))"
    call = f"{name}, serialized_name={f'{package}.{name}'!r}"
    if hasattr(kind, "_fields"):
        call = f"register_namedtuple_serialization({call})"
    else:
        call = f"register_pytree_node_serialization({call}, serialize_auxdata=..., deserialize_auxdata=...)"
    return f"call phalanx.export.{call} here, and where the artifact is read"


def _unwritable_error(got: str, fix: str) -> TreeSerializationError:
    return TreeSerializationError(
        f"serialize, {_WHERE}", expected="tuples, lists, dicts and registered containers", got=got, fix=fix
    )


# A leaf of the example tree from which `tree_structure` computes the structure; its value is irrelevant.
_LEAF = object()


def read_tree(data: Any) -> PyTreeDef:
    """The inverse of `write_tree`.

    Raises:
      ArtifactError: the data do not describe a structure, or name a container that is not registered in this process.
    """
    try:
        return tree_structure(_read_node(data))
    # `tree_structure` sorts the keys of a dict.
    except (ValueError, TypeError) as error:  # a dict with keys that cannot be sorted
        raise malformed_error("a tree structure", repr(data), _WHERE) from error


def _read_node(data: Any) -> Any:
    """A container with `_LEAF` as its leaves."""
    if data is None or data == "*":
        return None if data is None else _LEAF
    match data:
        case ["tuple", *children]:
            return tuple(map(_read_node, children))
        case ["list", *children]:
            return list(map(_read_node, children))
        case ["dict", list(keys), *children]:
            # By `repr`, since 1 == True would count as one key, while a tree with both cannot exist.
            is_unique = len(set(map(repr, keys))) == len(children)
            if is_unique and all(type(key) in (str, int, bool) for key in keys):
                return dict(zip(keys, map(_read_node, children), strict=True))
        case ["node", str(name), str(auxdata), *children]:
            return _read_container(name, auxdata, list(map(_read_node, children)))
    raise malformed_error("a tree structure", repr(data), _WHERE)


def _read_container(name: str, auxdata: str, children: list[Any]) -> Any:
    if name not in _by_name and name.startswith("phalanx.optim."):
        _register_optimizer_states()
    container = _by_name.get(name)
    if container is None:
        raise ArtifactError(
            f"deserialize, {_WHERE}",
            expected="containers that are registered in this process",
            got=repr(name),
            fix="import the module that registers it with phalanx.export before reading the artifact",
        )
    try:
        return container.make(base64.b64decode(auxdata, validate=True), children)
    except ArtifactError:
        raise
    except Exception as error:  # the registered code may fail in any way on data that it did not write
        raise malformed_error(f"the data of a {name}", repr(auxdata), _WHERE) from error


def _one_line_key(key: object) -> str:
    if not isinstance(key, str) or "\n" in key or not key:
        raise _unwritable_error(f"an OrderedDict with the key {key!r}", "make the keys strings without newlines")
    return key


register_pytree_node_serialization(
    OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=lambda keys: "\n".join(map(_one_line_key, keys)).encode(),
    deserialize_auxdata=lambda data: data.decode().split("\n") if data else [],
    from_children=lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
)

# Results of `phalanx.numpy`. The names are written into artifacts, so they stay when a class moves to another module.
_class: type
for _class in (linalg.EigResult, linalg.EighResult, linalg.QRResult, linalg.SVDResult, linalg.SlogdetResult):
    register_namedtuple_serialization(_class, serialized_name=f"phalanx.numpy.linalg.{_class.__name__}")
for _class in (sets.UniqueAllResult, sets.UniqueCountsResult, sets.UniqueInverseResult):
    register_namedtuple_serialization(_class, serialized_name=f"phalanx.numpy.{_class.__name__}")
