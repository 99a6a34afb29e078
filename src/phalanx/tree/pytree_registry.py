"""Registration of types as pytree nodes: with functions, with methods, as dataclasses, or as static values.

This module alone writes to the registry in `phalanx.engine.pytree`. It registers `OrderedDict` and `defaultdict`; the
packages above register their types.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from phalanx.engine import ArgumentError, ArgumentTypeError, pytree
from phalanx.tree.key_paths import DictKey, KeyEntry

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[KeyEntry, Any]], Any]] | None = None,
) -> None:
    """Register a type as a pytree node.

    Args:
      nodetype: the type; its subclasses are not included.
      flatten_func: returns the children, and auxiliary data that is hashable and comparable. Data that compare equal,
        such as `1` and `1.0`, are the same structure: they share a compiled program.
      unflatten_func: takes the auxiliary data and the children, and returns the value.
      flatten_with_keys_func: like `flatten_func` with pairs (key, child); without it, paths have the children's
        indices.

    Raises:
      ArgumentError: the type is registered already.
      ArgumentTypeError: `nodetype` is not a type, or a function is not callable.

    Examples:
      >>> from phalanx import tree
      >>> class Pair:
      ...     def __init__(self, x, y):
      ...         self.x, self.y = x, y
      >>> tree.register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda _, children: Pair(*children))
      >>> tree.leaves(Pair(1, 2))
      [1, 2]
    """
    _check_type("register_pytree_node", nodetype)
    functions = {"flatten_func": flatten_func, "unflatten_func": unflatten_func}
    if flatten_with_keys_func is not None:
        functions["flatten_with_keys_func"] = flatten_with_keys_func
    for name, function in functions.items():
        if not callable(function):
            raise ArgumentTypeError(
                f"register_pytree_node, {name}",
                expected="a function",
                got=function,
                fix="pass the function itself, not the result of calling it",
            )
    _register(
        "register_pytree_node",
        pytree.registry.register_node,
        nodetype,
        flatten_func,
        unflatten_func,
        flatten_with_keys_func,
    )


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[KeyEntry, Any]], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Register a type as a pytree node whose children have keys.

    Args:
      nodetype: the type; its subclasses are not included.
      flatten_with_keys: returns pairs (key, child), and auxiliary data that is hashable and comparable.
      unflatten_func: takes the auxiliary data and the children, and returns the value.
      flatten_func: like `flatten_with_keys` without the keys, if that is faster.

    Raises:
      ArgumentError: the type is registered already.
      ArgumentTypeError: `nodetype` is not a type, or a function is not callable.

    Examples:
      >>> from phalanx import tree
      >>> class Cell:
      ...     def __init__(self, value):
      ...         self.value = value
      >>> tree.register_pytree_with_keys(
      ...     Cell, lambda c: (((tree.DictKey("value"), c.value),), None), lambda _, xs: Cell(*xs)
      ... )
      >>> tree.flatten_with_path(Cell(1))[0]
      [((DictKey(key='value'),), 1)]
    """

    # The registry needs both functions. Dropping the keys is the slower way to flatten, which `flatten_func` avoids.
    def without_keys(node: T) -> tuple[Iterable[Any], Any]:
        pairs, data = flatten_with_keys(node)
        return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Class) -> Class:
    """Register a class with methods `tree_flatten` and `tree_unflatten` (a classmethod) as a node; a decorator.

    Args:
      cls: the class.

    Returns:
      The class.

    Examples:
      >>> from phalanx import tree
      >>> @tree.register_pytree_node_class
      ... class Point:
      ...     def __init__(self, x):
      ...         self.x = x
      ...
      ...     def tree_flatten(self):
      ...         return (self.x,), None
      ...
      ...     @classmethod
      ...     def tree_unflatten(cls, data, children):
      ...         return cls(*children)
      >>> tree.leaves(Point(1))
      [1]
    """
    _check_methods("register_pytree_node_class", cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, cls.tree_flatten, cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: Class) -> Class:
    """Register a class with methods `tree_flatten_with_keys` and `tree_unflatten` (a classmethod); a decorator.

    If there is a method `tree_flatten`, it is used where keys are not needed.

    Args:
      cls: the class.

    Returns:
      The class.

    Examples:
      >>> from phalanx import tree
      >>> @tree.register_pytree_with_keys_class
      ... class Named:
      ...     def __init__(self, x):
      ...         self.x = x
      ...
      ...     def tree_flatten_with_keys(self):
      ...         return ((tree.DictKey("x"), self.x),), None
      ...
      ...     @classmethod
      ...     def tree_unflatten(cls, data, children):
      ...         return cls(*children)
      >>> tree.flatten_with_path(Named(1))[0]
      [((DictKey(key='x'),), 1)]
    """
    _check_methods("register_pytree_with_keys_class", cls, "tree_flatten_with_keys", "tree_unflatten")
    flatten, unflatten = cls.tree_flatten_with_keys, cls.tree_unflatten  # type: ignore[attr-defined]
    register_pytree_with_keys(cls, flatten, unflatten, getattr(cls, "tree_flatten", None))
    return cls


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Register a dataclass as a node: data fields are children, meta fields are part of the structure; a decorator.

    Without lists of fields, the fields declared with `tree.static()` (or `metadata={"static": True}`) are meta fields,
    and the others are data fields.

    Args:
      nodetype: a dataclass, or a class whose constructor takes the listed fields by keyword.
      data_fields: names of the fields that are children.
      meta_fields: names of the fields that are part of the structure; their values are hashable and comparable, and
        those that compare equal share a compiled program.
      drop_fields: names of fields that are neither; the constructor sets them when a value is rebuilt. A field that is
        no argument of the constructor must be listed here.

    Returns:
      The class.

    Raises:
      ArgumentError: a field is listed twice, missing, unknown or no argument of the constructor, or the class is
        registered already.
      ArgumentTypeError: one list of fields is given without the other, or neither for a class that is not a dataclass.

    Examples:
      >>> import dataclasses
      >>> from phalanx import tree
      >>> @tree.register_dataclass
      ... @dataclasses.dataclass
      ... class Layer:
      ...     w: float
      ...     name: str = tree.static(default="layer")
      >>> tree.flatten_with_path(Layer(1.0))[0]
      [((GetAttrKey(name='w'),), 1.0)]
    """
    _check_type("register_dataclass", nodetype)
    dropped = set(drop_fields)
    data, meta = _fields(nodetype, data_fields, meta_fields, dropped)
    _check_fields(nodetype, data, meta, dropped, are_listed=data_fields is not None)
    _register("register_dataclass", pytree.registry.register_dataclass_node, nodetype, list(data), list(meta))
    return nodetype


def register_static(cls: Class) -> Class:
    """Register a class whose values have no children and are part of the structure; a decorator.

    Args:
      cls: a class whose values are hashable and comparable.

    Returns:
      The class.

    Examples:
      >>> from phalanx import tree
      >>> @tree.register_static
      ... class Mode(str):
      ...     pass
      >>> tree.leaves([Mode("train"), 1])
      [1]
    """
    register_pytree_node(cls, lambda value: ((), value), lambda value, _: value)
    return cls


def static(**kwargs: Any) -> Any:
    """Declare a dataclass field that is part of the structure under `register_dataclass`.

    Args:
      kwargs: as for `dataclasses.field`.

    Returns:
      The field.

    Examples:
      >>> from phalanx import tree
      >>> tree.static(default=3).metadata["static"]
      True
    """
    return dataclasses.field(metadata={"static": True, **kwargs.pop("metadata", {})}, **kwargs)


def _fields(
    nodetype: type, data: Sequence[str] | None, meta: Sequence[str] | None, dropped: set[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Complete the lists of fields from the declarations of a dataclass."""
    if data is not None and meta is not None:
        return data, meta
    if (data is None) != (meta is None):
        raise ArgumentTypeError(
            "register_dataclass",
            expected="data_fields and meta_fields, or neither",
            got="data_fields alone" if meta is None else "meta_fields alone",
            fix="pass both lists, [] for a kind without fields",
        )
    if not dataclasses.is_dataclass(nodetype):
        raise ArgumentTypeError(
            "register_dataclass, nodetype",
            expected="a dataclass, since no fields are listed",
            got=nodetype,
            fix="decorate the class with dataclasses.dataclass, or pass data_fields and meta_fields",
        )
    fields = [field for field in dataclasses.fields(nodetype) if field.name not in dropped]
    is_static = {field.name: bool(field.metadata.get("static", False)) for field in fields}
    return [name for name in is_static if not is_static[name]], [name for name in is_static if is_static[name]]


def _check_fields(
    nodetype: type, data: Sequence[str], meta: Sequence[str], dropped: set[str], *, are_listed: bool
) -> None:
    """Raise for fields listed twice, and for lists that do not match a dataclass's constructor."""
    where = f"register_dataclass of {nodetype.__name__}"
    listed = [*data, *meta]
    if twice := sorted({name for name in listed if listed.count(name) > 1}):
        raise ArgumentError(
            where,
            expected="each field in one list",
            got=f"{twice} twice",
            fix=f"remove {', '.join(map(repr, twice))} from data_fields or from meta_fields",
        )
    if not dataclasses.is_dataclass(nodetype):
        return
    init = {field.name for field in dataclasses.fields(nodetype) if field.init}
    if missing := sorted(init - set(listed) - dropped):
        raise ArgumentError(
            where,
            expected="each field of the constructor in data_fields or meta_fields",
            got=f"no {missing}",
            fix="add them to one of the lists, or to drop_fields if their defaults are right",
        )
    if unknown := sorted(set(listed) - init):
        raise ArgumentError(
            where,
            expected="fields of the constructor only",
            got=unknown,
            fix=f"remove {', '.join(map(repr, unknown))} from data_fields or from meta_fields"
            if are_listed
            else f"add {', '.join(map(repr, unknown))} to drop_fields, which the constructor then sets",
        )


def _check_type(where: str, nodetype: Any) -> None:
    if not isinstance(nodetype, type):
        raise ArgumentTypeError(
            f"{where}, nodetype", expected="a class", got=nodetype, fix="pass the class itself, not one of its values"
        )


def _register(where: str, method: Callable[..., None], nodetype: type, *args: Any) -> None:
    # The registry refuses a class that it has. A named tuple, which is a node by default, may be registered once.
    try:
        method(nodetype, *args)
    except ValueError as error:
        raise ArgumentError(
            f"{where}, nodetype",
            expected="a class that is not a node yet",
            got=nodetype,
            fix=f"register {nodetype.__name__} once, where it is defined",
        ) from error


def _check_methods(where: str, cls: type, *names: str) -> None:
    for name in names:
        if not hasattr(cls, name):
            raise ArgumentTypeError(
                f"{where}, {cls.__name__}",
                expected=f"a method {name}",
                got="none",
                fix=f"define {name} in {cls.__name__}, or register the class with register_pytree_node",
            )


# Dictionaries of the standard library. An OrderedDict keeps its order, a defaultdict is sorted by keys like a dict.
register_pytree_with_keys(
    OrderedDict,
    lambda node: (tuple(zip(map(DictKey, node), node.values())), tuple(node)),
    lambda keys, children: OrderedDict(zip(keys, children)),
    lambda node: (tuple(node.values()), tuple(node)),
)
register_pytree_with_keys(
    defaultdict,
    lambda node: (tuple([(DictKey(key), node[key]) for key in sorted(node)]), _flatten_sorted(node)[1]),
    lambda data, children: defaultdict(data[0], zip(data[1], children)),
    lambda node: _flatten_sorted(node),
)


def _flatten_sorted(node: defaultdict[Any, Any]) -> tuple[Any, Any]:
    keys = tuple(sorted(node))
    return tuple([node[key] for key in keys]), (node.default_factory, keys)
