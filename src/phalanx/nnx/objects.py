"""Objects: the base of modules and of everything else that is a node of a graph, with reference semantics.

An ordinary Python object whose attributes are data (arrays, variables, other objects, lists, tuples and dictionaries of
them) or static. Writing an attribute of an object that a cached graph has seen advances the object's version and the
clock, unless one array takes the place of another. Builds on `levels` and `variable`; `module` and `rngs` derive from
`Object`, which users know as `Pytree`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from phalanx.core import source
from phalanx.core.aval import ShapeDtypeStruct
from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError
from phalanx.engine.frames import boundaries
from phalanx.nnx.levels import check_level, clock
from phalanx.nnx.variable import MISSING, Static, Variable
from phalanx.runtime.array import Array
from phalanx.tree import DictKey, GetAttrKey, SequenceKey, register_pytree_node, tree_leaves

T = TypeVar("T")

_ARRAYS = (Array, np.ndarray, ShapeDtypeStruct)


def is_array(x: Any) -> bool:
    """Whether a value is an array or stands for one."""
    return isinstance(x, _ARRAYS)


class Marked:
    """A value with what the user said of it: data, or static."""

    __slots__ = ("is_data", "value")

    def __init__(self, value: Any, is_data: bool):
        self.value, self.is_data = value, is_data


def data(value: Any = MISSING, /, **kwargs: Any) -> Any:
    """Mark an attribute's value as data, so that numbers in it are leaves: `self.scale = nnx.data(2.0)`.

    Args:
      value: the value; left out, a field of a dataclass is declared.
      **kwargs: options of `dataclasses.field`.

    Returns:
      The marked value, or the field.

    Examples:
      >>> from phalanx import nnx
      >>> class Scale(nnx.Module):
      ...     def __init__(self):
      ...         self.by = nnx.data(2.0)
      >>> nnx.state(Scale())
      State({'by': 2.0})
    """
    return _mark(value, True, kwargs)


def static(value: Any = MISSING, /, **kwargs: Any) -> Any:
    """Mark an attribute's value as static, so that it is part of the structure: `self.table = nnx.static(array)`.

    Args:
      value: the value, compared by identity where it is not hashable; left out, a field of a dataclass is declared.
      **kwargs: options of `dataclasses.field`.

    Returns:
      The marked value, or the field.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nnx
      >>> class Lookup(nnx.Module):
      ...     def __init__(self):
      ...         self.table = nnx.static(np.arange(3))
      >>> nnx.state(Lookup())
      State({})
    """
    return _mark(value, False, kwargs)


def _mark(value: Any, is_data: bool, kwargs: dict) -> Any:
    if value is MISSING:
        metadata = {**kwargs.pop("metadata", {}), "static": not is_data}
        return dataclasses.field(**kwargs, metadata=metadata)
    return Marked(value, is_data)


def is_data(value: Any, /) -> bool:
    """Whether a value is data by itself: an array, a variable, an object, or a container of such.

    Args:
      value: anything.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.is_data(1.0), nnx.is_data([nnx.Param(1.0)])
      (False, True)
    """
    if isinstance(value, Variable | Object) or is_array(value):
        return True
    return bool(has_data(value))


def has_data(value: Any, /) -> list[Any]:
    """What of a value is data: its arrays, variables and objects.

    Args:
      value: any tree.

    Returns:
      A list of them, empty where there are none.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.has_data([1, nnx.Param(1.0)])
      [Param(value=1.0)]
    """
    return [x for x in tree_leaves(value, is_leaf=_is_root) if _is_root(x) or is_array(x)]


def register_data_type(kind: type[T], /) -> type[T]:
    """Make the values of a class data, so that an attribute of that class is a leaf and not part of the structure.

    Args:
      kind: a class whose instances stand for arrays; also a decorator.

    Returns:
      The class.

    Examples:
      >>> from phalanx import nnx
      >>> @nnx.register_data_type
      ... class Handle:
      ...     pass
      >>> nnx.is_data(Handle())
      True
    """
    global _ARRAYS
    _ARRAYS = (*_ARRAYS, kind)
    return kind


def _is_root(x: Any) -> bool:
    return isinstance(x, Variable | Object)


def dataclass(cls: Any = MISSING, /, **kwargs: Any) -> Any:
    """Make a subclass of `nnx.Pytree` or `nnx.Module` a dataclass that keeps its identity semantics.

    Args:
      cls: the class; left out, a decorator is given.
      **kwargs: options of `dataclasses.dataclass`.

    Returns:
      The class, or a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> @nnx.dataclass
      ... class Point(nnx.Pytree):
      ...     x: int
      >>> Point(3).x
      3
    """
    if cls is MISSING:
        return lambda c: dataclass(c, **kwargs)
    return dataclasses.dataclass(cls, **{"eq": False, "repr": False, **kwargs})


class Object:
    """A Python object that is a node of a graph; users derive from it under the name `Pytree`.

    Examples:
      >>> from phalanx import nnx
      >>> class Point(nnx.Pytree):
      ...     def __init__(self):
      ...         self.x = nnx.Param(1.0)
      >>> nnx.state(Point())
      State({'x': Param(value=1.0)})
    """

    __slots__ = ("__dict__", "__weakref__", "_graph", "_marks", "_source", "_trace", "_version", "_watched")

    _marked_fields: dict[str, bool] = {}
    _marks: dict[str, bool]
    _version: int
    _watched: bool
    _trace: Any
    _graph: Any

    def __init_subclass__(cls, **kwargs: Any):
        registered = kwargs.pop("pytree", True)
        super().__init_subclass__(**kwargs)
        marks = dict(cls._marked_fields)
        for name, hint in vars(cls).get("__annotations__", {}).items():
            declared = vars(cls).get(name)
            if isinstance(declared, dataclasses.Field) and "static" in declared.metadata:
                marks[name] = not declared.metadata["static"]
            elif (mark := _mark_of_hint(hint)) is not None:
                marks[name] = mark
        cls._marked_fields = marks
        if cls.__module__.startswith("phalanx."):
            boundaries(cls)
        if registered:
            _register(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return blank(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if state.trace is not self._trace:
            check_level(self, f"setting {name!r}")
        if type(value) is Marked:
            self._marks = {**self._marks, name: value.is_data}
            value = value.value
        elif type(value) in (list, tuple) and any(type(x) is Marked for x in value):
            raise ArgumentTypeError(
                f"{type(self).__name__}, setting {name!r}",
                expected="nnx.data or nnx.static around the whole value of an attribute",
                got=f"around parts of a {type(value).__name__}",
                mend="mark the whole, or leave the marks away: containers of arrays, variables and modules are data",
            )
        elif self._marks and name in self._marks and name not in self._marked_fields:
            self._marks = {k: v for k, v in self._marks.items() if k != name}
        if self._watched:
            old = self.__dict__.get(name, MISSING)
            if old is value:
                return
            if not (is_array(old) and is_array(value)):
                touch(self)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if state.trace is not self._trace:
            check_level(self, f"deleting {name!r}")
        touch(self)
        object.__delattr__(self, name)

    def __getstate__(self) -> tuple:
        return dict(self.__dict__), self._marks

    def __setstate__(self, saved: tuple) -> None:
        self.__dict__.update(saved[0])
        object.__setattr__(self, "_marks", saved[1])

    def __repr__(self) -> str:
        seen: dict[int, Any] = {}
        text = _shown(self, "", seen)
        variables = [v for v in seen.values() if isinstance(v, Variable)]
        return text.replace("(\n", f"(  # {_counted(variables)}\n", 1) if variables else text


_blank = object.__setattr__


def blank(cls: Any) -> Any:
    """An object of a class without attributes, at the current trace level; `__init__` is not called."""
    self = object.__new__(cls)
    _blank(self, "_trace", state.trace)
    _blank(self, "_graph", None)
    _blank(self, "_marks", cls._marked_fields)
    _blank(self, "_version", 0)
    _blank(self, "_watched", False)
    _blank(self, "_source", source.current_traceback())
    return self


def touch(target: Object) -> None:
    """Say that the structure of an object has changed."""
    # The version first: who sees the new time must find the new version.
    _blank(target, "_version", target._version + 1)
    clock.time += 1


def _mark_of_hint(hint: Any) -> bool | None:
    text = hint if isinstance(hint, str) else getattr(hint, "__metadata__", ("",))[0]
    if not isinstance(text, str):
        return None
    text = text.rsplit("nnx.", 1)[-1]
    return True if text.startswith("Data[") or text == "nnx-data" else False if text.startswith("Static[") else None


class _Annotation:
    """What `nnx.Data[int]` makes: the type, marked as data or static for attributes annotated with it."""

    def __init__(self, text: str):
        self._text = text

    def __getitem__(self, hint: Any) -> Any:
        from typing import Annotated

        return Annotated[hint, self._text]


Data = _Annotation("Data[]")
StaticHint = _Annotation("Static[]")


class List(list):
    """A list of data that may be an attribute of a module; a plain list may, too.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.List([1.0, 2.0])[1]
      2.0
    """


class Dict(dict):
    """A dictionary of data that may be an attribute of a module, with its keys as attributes.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Dict(a=1).a
      1
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} has no key {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def attributes(target: Object) -> list[tuple[str, Any]]:
    """The attributes of an object in the order of their names."""
    return sorted(target.__dict__.items())


def _register(cls: type) -> None:
    """Make the objects of a class nodes of trees: data are children, the rest is structure; sharing is not kept."""

    def split(target: Any) -> tuple[list, tuple]:
        children, fixed = [], []
        marks = target._marks
        for name, value in attributes(target):
            if marks.get(name, is_data(value)):
                children.append((GetAttrKey(name), _partly(value)))
            else:
                fixed.append((name, Static(value)))
        return children, (tuple(k.name for k, _ in children), tuple(fixed), tuple(marks.items()))

    def flatten(target: Any) -> tuple:
        children, aux = split(target)
        return [x for _, x in children], aux

    def unflatten(aux: tuple, children: Any) -> Any:
        names, fixed, marks = aux
        made = blank(cls)
        made.__dict__.update(zip(names, children), **{k: v.value for k, v in fixed})
        _blank(made, "_marks", dict(marks))
        return made

    register_pytree_node(cls, flatten, unflatten, split)


class _Partly:
    """A container of data some of whose elements are static, such as the functions of a `Sequential`, as a tree's node.

    Args:
      value: the container, which is what the node becomes again.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def _is_fixed(x: Any) -> bool:
    return (callable(x) or isinstance(x, str)) and not _is_root(x) and not is_array(x)


def _partly(value: Any) -> Any:
    is_container = type(value) in (list, tuple, dict, List, Dict)
    return _Partly(value) if is_container and any(map(_is_fixed, tree_leaves(value, is_leaf=_is_root))) else value


def _split_partly(node: _Partly) -> tuple[list, tuple]:
    value = node.value
    keys = tuple(sorted(value)) if isinstance(value, dict) else tuple(range(len(value)))
    key_of = DictKey if isinstance(value, dict) else SequenceKey
    fixed = tuple((k, Static(value[k])) for k in keys if _is_fixed(value[k]))
    named = [(key_of(k), _partly(value[k])) for k in keys if not _is_fixed(value[k])]
    return named, (type(value), keys, fixed)


def _joined_partly(aux: tuple, parts: Any) -> Any:
    kind, keys, fixed = aux
    static, given = {k: v.value for k, v in fixed}, iter(parts)
    values = [static[k] if k in static else next(given) for k in keys]
    return kind(zip(keys, values)) if issubclass(kind, dict) else kind(values)


def _register_containers() -> None:
    register_pytree_node(
        _Partly,
        lambda node: ([x for _, x in _split_partly(node)[0]], _split_partly(node)[1]),
        _joined_partly,
        _split_partly,
    )
    register_pytree_node(
        List,
        lambda x: (list(x), None),
        lambda _, xs: List(xs),
        lambda x: ([(SequenceKey(i), v) for i, v in enumerate(x)], None),
    )
    register_pytree_node(
        Dict,
        lambda x: ([x[k] for k in sorted(x)], tuple(sorted(x))),
        lambda keys, xs: Dict(zip(keys, xs)),
        lambda x: ([(DictKey(k), x[k]) for k in sorted(x)], tuple(sorted(x))),
    )


_register_containers()


def _shown(value: Any, indent: str, seen: dict[int, Any]) -> str:
    """An object and what it holds as text, a line for each attribute; what was shown already is not shown again."""
    inner = indent + "  "
    if isinstance(value, Object):
        name = type(value).__name__
        if id(value) in seen:
            return f"{name}(...)"
        seen[id(value)] = value
        lines = [f"{inner}{k}={_shown(v, inner, seen)}" for k, v in value.__dict__.items()]
        return _block(f"{name}(", lines, f"{indent})")
    if isinstance(value, Variable):
        seen[id(value)] = value
        shown = [_shown(value._value, indent, seen), *(f"{k}={v!r}" for k, v in value._metadata.items())]
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, list | tuple | Mapping) and any(map(_is_root, tree_leaves(value, is_leaf=_is_root))):
        if isinstance(value, Mapping):
            head, tail, named = "{", "}", [(f"{k!r}: ", v) for k, v in value.items()]
        elif hasattr(value, "_fields"):
            head, tail, named = f"{type(value).__name__}(", ")", [(f"{k}=", v) for k, v in value._asdict().items()]
        else:
            head, tail = "[]" if isinstance(value, list) else "()"
            named = [("", v) for v in value]
        return _block(head, [f"{inner}{k}{_shown(v, inner, seen)}" for k, v in named], indent + tail)
    if isinstance(value, Array) and hasattr(value, "is_deleted"):
        is_number = not value.shape and isinstance(value.dtype, np.dtype) and not value.is_deleted()
        return repr(value) if is_number else f"Array({value.aval})"
    if isinstance(value, type):
        return value.__name__
    return f"{type(value).__name__}({value.aval})" if hasattr(value, "aval") else repr(value)


def _block(head: str, lines: list[str], tail: str) -> str:
    return head + "\n" + ",\n".join(lines) + "\n" + tail if lines else head + tail.strip()


def _counted(variables: Iterable[Variable]) -> str:
    """How many numbers the variables of each kind hold, and in how many bytes."""
    totals: dict[str, list[int]] = {}
    for v in variables:
        total = totals.setdefault(type(v).__name__, [0, 0])
        for x in tree_leaves(v._value):
            if is_array(x) or hasattr(x, "aval"):
                size = math.prod(x.shape)
                total[0] += size
                total[1] += size * x.dtype.itemsize
    return ", ".join(f"{kind}: {size:,} ({bytes_text(nbytes)})" for kind, (size, nbytes) in totals.items())


def bytes_text(nbytes: float) -> str:
    """A number of bytes as people read it."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes:.0f} B"


def children(target: Object) -> Iterator[tuple[str, Any]]:
    """The attributes that are objects."""
    for name, value in attributes(target):
        if isinstance(value, Object):
            yield name, value
