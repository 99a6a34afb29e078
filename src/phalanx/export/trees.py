"""Tree structures as data: how the containers of arguments and results are written into artifacts.

A structure becomes nested lists of text, numbers and None, and is read back without running anything from the file: a
container of a class that was registered here is made by the code that registered it, found by its name. Builds on
`tree`; `format` calls it.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from phalanx.core.errors import ArgumentError, PhalanxError
from phalanx.engine.stablehlo import ArtifactError
from phalanx.tree import tree_structure

Class = TypeVar("Class", bound=type)


class TreeSerializationError(PhalanxError, ValueError):
    """A container in the arguments or results cannot be written into an artifact.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

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
    write: Callable[[Any], bytes]
    make: Callable[[bytes, Sequence[Any]], Any]  # data and children to the container


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
    """Say how a container that is registered as a tree node is written into artifacts.

    Args:
      nodetype: the class.
      serialized_name: what artifacts call it; keep it as long as the artifacts are to be read.
      serialize_auxdata: takes the node's data that is not its children, and gives bytes.
      deserialize_auxdata: the inverse.
      from_children: takes that data and the children, and gives the container; `nodetype.tree_unflatten` by default.

    Returns:
      The class, so that this serves as a decorator with the other arguments bound.

    Raises:
      ArgumentError: the class or the name is taken already.

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
            mend="pass from_children=lambda data, children: ...",
        )
    return _register(
        _Container(
            serialized_name,
            nodetype,
            lambda data: bytes(serialize_auxdata(data)),
            lambda data, children: make(deserialize_auxdata(data), children),
        )
    )


def register_namedtuple_serialization(nodetype: Class, *, serialized_name: str) -> Class:
    """Say what artifacts call a named tuple; its fields are those of the class that reads it.

    Args:
      nodetype: the class.
      serialized_name: the name in artifacts.

    Returns:
      The class.

    Raises:
      ArgumentError: it is no named tuple, or the class or the name is taken already.

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
            mend="use register_pytree_node_serialization for other classes",
        )

    def make(data: bytes, children: Sequence[Any]) -> Any:
        if data != ",".join(fields).encode() or len(children) != len(fields):
            raise _wrong(f"{serialized_name} with the fields {', '.join(fields)}", data.decode(errors="replace"))
        return nodetype(*children)

    return _register(_Container(serialized_name, nodetype, lambda _: ",".join(fields).encode(), make))


def _register(container: _Container) -> Any:
    for table, key in ((_by_type, container.node_type), (_by_name, container.name)):
        if key in table:
            raise ArgumentError(
                f"serialization of {container.node_type.__name__} as {container.name!r}",
                expected="a class and a name that are not taken",
                got=f"{key!r}, registered before",
                mend="register each class once, under a name of its own",
            )
    _by_type[container.node_type] = _by_name[container.name] = container
    return container.node_type


def write_tree(structure: Any) -> Any:
    """A structure as nested lists: "*" for a leaf, None, or a kind with its children."""
    data = structure.node_data()
    children = [write_tree(child) for child in structure.children()]
    if data is None:
        return "*"
    kind, extra = data
    if kind is type(None):
        return None
    if kind is tuple or kind is list:
        return [kind.__name__, *children]
    if kind is dict:
        for key in extra:
            if type(key) not in (str, int, bool):
                raise _unwritable(f"a dict with the key {key!r}", "use keys that are text or ints")
        return ["dict", list(extra), *children]
    container = _by_type.get(kind) or _own(_own_name(kind))
    if container is None:
        raise _unwritable(
            f"a {kind.__module__}.{kind.__qualname__}",
            "register it with phalanx.export.register_pytree_node_serialization, or, if it is a named tuple, with "
            "register_namedtuple_serialization",
        )
    return ["node", container.name, base64.b64encode(container.write(extra)).decode(), *children]


# The named tuples that functions of ours give; their rooms are loaded where one is met.
_OWN: Final = {
    **{f"phalanx.numpy.linalg.{r}Result": "linalg" for r in ("Eig", "Eigh", "QR", "SVD", "Slogdet")},
    **{f"phalanx.numpy.Unique{r}Result": "sets" for r in ("All", "Counts", "Inverse")},
}


def _own_name(kind: type) -> str:
    """What artifacts call a named tuple of ours."""
    return f"{kind.__module__.removesuffix('.sets')}.{kind.__qualname__}"


def _own(name: str) -> _Container | None:
    """The registered named tuple of ours that artifacts call so."""
    if name not in _OWN:
        return None
    if name not in _by_name:
        from phalanx.numpy import linalg, sets

        room = linalg if _OWN[name] == "linalg" else sets
        register_namedtuple_serialization(getattr(room, name.rpartition(".")[2]), serialized_name=name)
    return _by_name[name]


def _unwritable(got: str, mend: str) -> TreeSerializationError:
    return TreeSerializationError(
        "serialize, structure of the arguments or results",
        expected="tuples, lists, dicts and registered containers",
        got=got,
        mend=mend,
    )


_LEAF = object()


def read_tree(data: Any) -> Any:
    """The structure that `write_tree` wrote.

    Raises:
      ArtifactError: the data spell no structure, or name a container that is not registered here.
    """
    try:
        return tree_structure(_read(data))
    except (ValueError, TypeError) as error:  # keys that cannot be sorted
        raise _wrong("a tree structure", data) from error


def _read(data: Any) -> Any:
    if data is None or data == "*":
        return None if data is None else _LEAF
    if not isinstance(data, list) or not data:
        raise _wrong("a tree structure", data)
    kind = data[0]
    if kind == "tuple" or kind == "list":
        children = [_read(child) for child in data[1:]]
        return tuple(children) if kind == "tuple" else children
    if kind == "dict" and len(data) >= 2 and isinstance(data[1], list):
        keys = data[1]
        if len(set(map(repr, keys))) == len(data) - 2 and all(type(key) in (str, int, bool) for key in keys):
            return dict(zip(keys, map(_read, data[2:]), strict=True))
    if kind == "node" and len(data) >= 3 and isinstance(data[1], str) and isinstance(data[2], str):
        return _read_container(data[1], data[2], [_read(child) for child in data[3:]])
    raise _wrong("a tree structure", data)


def _read_container(name: str, data: str, children: list) -> Any:
    container = _by_name.get(name) or _own(name)
    if container is None:
        raise ArtifactError(
            "deserialize, structure of the arguments or results",
            expected="containers that are registered here",
            got=repr(name),
            mend="import the module that registers it with phalanx.export before reading the artifact",
        )
    try:
        return container.make(base64.b64decode(data, validate=True), children)
    except ArtifactError:
        raise
    except Exception as error:  # whatever the registered code makes of data that it did not write
        raise _wrong(f"the data of a {name}", data) from error


def _wrong(expected: str, got: Any) -> ArtifactError:
    text = repr(got)
    return ArtifactError(
        "deserialize, structure of the arguments or results",
        expected=expected,
        got=text if len(text) <= 80 else f"{text[:77]}...",
        mend="export it again: the file was not written by phalanx",
    )


register_pytree_node_serialization(
    OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=lambda keys: "\n".join(map(_text_key, keys)).encode(),
    deserialize_auxdata=lambda data: data.decode().split("\n") if data else [],
    from_children=lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
)


def _text_key(key: Any) -> str:
    if not isinstance(key, str) or "\n" in key or not key:
        raise _unwritable(f"an OrderedDict with the key {key!r}", "use keys that are text of one line")
    return key
