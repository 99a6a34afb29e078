"""`Pytree`, the base class of modules, and the marks that make attributes data or static.

Objects are ordinary Python objects with reference semantics. Their attributes are data (arrays, variables, other
objects, and lists, tuples and dictionaries of these) or static. Setting an attribute of an object that a cached graph
contains increases the object's version and the global structure version, unless one array replaces another.
`Module` and `Rngs` derive from `Pytree`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import numpy as np

from phalanx.core import ArgumentError, ArgumentTypeError, Ref, ShapeDtypeStruct, Trace, source_info, state
from phalanx.engine.traceback_filtering import api_boundary_class
from phalanx.nnx.trace_level import check_trace_level, structure_version
from phalanx.nnx.tree_text import TreeText, format_size
from phalanx.nnx.variable import MISSING, Static, Variable
from phalanx.nnx.variable_refs import read_refs
from phalanx.runtime.array import Array
from phalanx.tree import (
    DictKey,
    GetAttrKey,
    KeyEntry,
    SequenceKey,
    is_tree_node,
    register_pytree_with_keys,
    tree_leaves,
)
from phalanx.tree.operations import find_endless_container
from phalanx.typing import PyTree

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, complex, type(None), type})  # never data without a mark
_array_types: tuple[type, ...] = (Array, np.ndarray, ShapeDtypeStruct, Ref)


def is_array(x: object) -> bool:
    """Whether a value is an array, a shape, or of a type registered with `register_data_type`."""
    return isinstance(x, _array_types)


# --- marks: data or static ---


_DERIVED: Any = 1  # the mark of an attribute that is data since it was a child of a pytree, not by the user's choice


class MarkedValue:
    """The result of `nnx.data(value)` or `nnx.static(value)`, which `Pytree.__setattr__` unpacks."""

    __slots__ = ("is_data", "value")

    def __init__(self, value: Any, is_data: bool):
        self.value, self.is_data = value, is_data


def data(value: PyTree = MISSING, /, **kwargs: Any) -> Any:
    """Mark the value of an attribute as data, so that numbers in it are leaves: `self.scale = nnx.data(2.0)`.

    Args:
      value: the value; if omitted, a dataclass field is declared.
      **kwargs: options of `dataclasses.field`.

    Returns:
      The marked value, or the field.

    Examples:
      >>> from phalanx import nnx
      >>> class Scale(nnx.Module):
      ...     def __init__(self):
      ...         self.by = nnx.data(2.0)
      >>> nnx.state(Scale())
      State({
        'by': 2.0
      })
    """
    return _mark(value, True, kwargs)


def static(value: PyTree = MISSING, /, **kwargs: Any) -> Any:
    """Mark the value of an attribute as static, i.e. as part of the structure: `self.table = nnx.static(array)`.

    Args:
      value: the value, which is compared by identity if it is not hashable; if omitted, a dataclass field is declared.
        Arrays of a device, variables and modules are refused when the attribute is set.
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


def _mark(value: Any, is_data: bool, kwargs: dict[str, Any]) -> Any:
    if value is MISSING:
        return dataclasses.field(**{**kwargs, "metadata": {**kwargs.get("metadata", {}), "static": not is_data}})
    return MarkedValue(value, is_data)


class _Annotation:
    """`nnx.Data` and `nnx.Static`: `nnx.Data[int]` is the type annotation of an attribute that is data."""

    def __init__(self, text: str):
        self._text = text

    def __getitem__(self, hint: Any) -> Any:
        return Annotated[hint, self._text]


Data = _Annotation("Data[]")
StaticHint = _Annotation("Static[]")


def _mark_from_annotation(hint: object) -> bool | None:
    """Whether a type annotation, possibly given as text, marks an attribute as data; None if it has no mark."""
    text = hint if isinstance(hint, str) else getattr(hint, "__metadata__", ("",))[0]
    text = text.rsplit("nnx.", 1)[-1] if isinstance(text, str) else ""
    return True if text.startswith("Data[") or text == "nnx-data" else False if text.startswith("Static[") else None


def is_data(value: PyTree, /) -> bool:
    """Whether a value is data without a mark: an array, a variable, an object, or a container of these.

    Args:
      value: any value.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.is_data(1.0), nnx.is_data([nnx.Param(1.0)])
      (False, True)
    """
    return is_root(value) or is_array(value) or (type(value) not in _PLAIN and bool(has_data(value)))


def has_data(value: PyTree, /) -> list[Any]:
    """Return the arrays, variables and objects in a value.

    Args:
      value: any tree.

    Returns:
      A list, empty if the value contains no data.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.has_data([1, nnx.Param(1.0)])
      [Param(
        value=1.0
      )]
    """
    return [x for x in tree_leaves(value, is_leaf=is_root) if is_root(x) or is_array(x)]


def register_data_type(kind: type[T], /) -> type[T]:
    """Register a class whose instances are data, so that attributes of the class are leaves; also a decorator.

    Args:
      kind: a class whose instances represent arrays.

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
    global _array_types
    _array_types = (*_array_types, kind)
    return kind


def is_root(x: object) -> bool:
    """Whether a value is a variable, a module or another object, which transformations pass by reference."""
    return isinstance(x, ROOTS)


def dataclass(cls: type[T] = MISSING, /, **kwargs: Any) -> Any:
    """Make a subclass of `nnx.Pytree` or `nnx.Module` a dataclass, compared by identity.

    Args:
      cls: the class; if omitted, a decorator is returned.
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
    # `eq=False` keeps objects hashable by identity, and `repr=False` the text of `Pytree.__repr__`.
    return dataclasses.dataclass(cls, **{"eq": False, "repr": False, **kwargs})


# --- objects ---


class _Slots:
    """The storage of an object."""

    __slots__ = ("__dict__", "__weakref__", "_graph", "_marks", "_source", "_trace", "_version", "_watched")


# The attributes of an object as a dictionary, without counting a change of structure.
get_attributes: Callable[[Pytree], dict[Any, Any]] = vars(_Slots)["__dict__"].__get__


class Pytree(_Slots):
    """A Python object that is a node of a graph, and of trees.

    Examples:
      >>> from phalanx import nnx
      >>> class Point(nnx.Pytree):
      ...     def __init__(self):
      ...         self.x = nnx.Param(1.0)
      >>> nnx.state(Point())
      State({
        'x': Param(
          value=1.0
        )
      })
    """

    __slots__ = ()

    @property
    def __dict__(self) -> dict[Any, Any]:  # type: ignore[override]
        """The attributes. The caller may change them, so that the structure counts as changed."""
        if self._watched:
            mark_structure_changed(self)
        return get_attributes(self)

    _marked_fields: dict[str, bool] = {}
    _marks: dict[str, bool]
    _version: int  # the number of structural changes of this object
    _watched: bool  # whether a cached graph contains this object, so that changes must be counted
    _trace: Trace | None
    _graph: Any

    def __init_subclass__(cls, **kwargs: Any):
        # `class Cell(nnx.Pytree, pytree=False)` is an object without pytree registration, as in Flax.
        registered = kwargs.pop("pytree", True)
        super().__init_subclass__(**kwargs)
        # Marks of annotations and dataclass fields are inherited, and hold for all instances of the class.
        marks = dict(cls._marked_fields)
        for name, hint in vars(cls).get("__annotations__", {}).items():
            declared = vars(cls).get(name)
            if isinstance(declared, dataclasses.Field) and "static" in declared.metadata:
                marks[name] = not declared.metadata["static"]
            elif (mark := _mark_from_annotation(hint)) is not None:
                marks[name] = mark
        cls._marked_fields = marks
        if cls.__module__.startswith("phalanx."):
            # Frames of the library are hidden from users' tracebacks; users' modules keep their frames.
            api_boundary_class(cls)
        if registered:
            _register(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return allocate(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if state.trace is not self._trace:
            check_trace_level(self, f"setting {name!r}")
        if type(value) is MarkedValue:
            if self._watched and self._marks.get(name) is not value.is_data:
                mark_structure_changed(self)
            self._marks = {**self._marks, name: value.is_data}
            value = value.value
        elif type(value) in (list, tuple) and any(type(x) is MarkedValue for x in value):
            raise ArgumentError(
                f"{type(self).__name__}, setting {name!r}",
                expected="nnx.data or nnx.static around the whole value of an attribute",
                got=f"marked elements inside a {type(value).__name__}",
                fix=f"mark the whole value, as in self.{name} = nnx.data([...]), mark elements of an nnx.List, or omit "
                "the marks: lists of arrays, variables and modules are data without them",
            )
        # A mark holds for all values of the attribute, until one is marked otherwise.
        if self._marks and self._marks.get(name) is False:
            _check_static(self, name, value)
        if self._watched:
            old = get_attributes(self).get(name, MISSING)
            # Replacing one array by another is a change of value, not of structure: the graph refers to the attribute.
            if old is not value and not (is_array(old) and is_array(value)):
                mark_structure_changed(self)
        if type(name) is str:
            object.__setattr__(self, name, value)
        else:  # an index of a `List`, or a key of a `Dict`
            get_attributes(self)[name] = value

    def __delattr__(self, name: str) -> None:
        check_trace_level(self, f"deleting {name!r}")
        mark_structure_changed(self)
        if self._marks and name in self._marks and name not in self._marked_fields:
            self._marks = {k: v for k, v in self._marks.items() if k != name}
        if type(name) is str:
            object.__delattr__(self, name)
        else:
            del get_attributes(self)[name]

    def _sorted_names(self) -> list[Any]:
        """The names of the attributes in the order in which functions of graphs visit them."""
        return sort_names(get_attributes(self))

    def __getstate__(self) -> tuple:
        # The trace, the version and the cached graph belong to this process and are created anew by `allocate`.
        return dict(get_attributes(self)), self._marks

    def __setstate__(self, saved: tuple) -> None:
        get_attributes(self).update(saved[0])
        object.__setattr__(self, "_marks", saved[1])

    def _to_text(self, text: TreeText) -> str:
        marks, values = self._marks, get_attributes(self).items()
        items = [(f"{k}=", v) for k, v in values if not str(k).startswith("_") or marks.get(k, is_data(v))]
        return self._to_block(text, items, ("(", ")"), _format_sizes(self))

    def _to_block(
        self, text: TreeText, items: Iterable[tuple[str, Any]], brackets: tuple[str, str], comment: str = ""
    ) -> str:
        if text.has_shown(self):
            return f"{type(self).__name__}(...)"
        with text.inside(self, abbreviates=brackets == ("(", ")")):
            return text.block(type(self).__name__, items, brackets, comment)

    def __repr__(self) -> str:
        return TreeText().format(self)


ROOTS = (Pytree, Variable)
_DATA_TYPES = (Variable, Pytree, *_array_types)  # the usual ones
set_slot = object.__setattr__


def _check_static(target: Pytree, name: str, value: Any) -> None:
    """Check that a value marked as static has no state, which transformations would neither see nor update.

    NumPy arrays are accepted: they are constants, compared by identity.

    Raises:
      ArgumentError: the value contains an array of a device, a variable or a module.
    """
    found = next((x for x in has_data(value) if is_root(x) or isinstance(x, Array)), None)
    if found is not None:
        raise ArgumentError(
            f"{type(target).__name__}, setting {name!r}",
            expected="a static value without arrays, variables and modules",
            got=f"{'an array' if isinstance(found, Array) else f'a {type(found).__name__}'} marked as static",
            fix=f"omit the mark, so that transformations see the value, or pass a constant as numpy.asarray({name})",
        )


def check_pytree(pytree: Pytree) -> None:
    """Check that no attribute marked as static contains arrays, variables or modules.

    Args:
      pytree: a module or another object.

    Raises:
      ArgumentTypeError: it is no object.
      ArgumentError: an attribute does.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.check_pytree(nnx.PReLU())
    """
    if not isinstance(pytree, Pytree):
        raise ArgumentTypeError(
            "nnx.check_pytree", expected="a module or another nnx.Pytree", got=pytree, fix="pass the module"
        )
    for name, is_data_mark in pytree._marks.items():
        if is_data_mark is False and name in pytree.__dict__:
            _check_static(pytree, name, pytree.__dict__[name])


def allocate(cls: type[Pytree]) -> Any:
    """Create an object without attributes in the current trace; `__init__` is not called."""
    self = object.__new__(cls)
    set_slot(self, "_trace", state.trace)
    set_slot(self, "_graph", None)
    set_slot(self, "_marks", cls._marked_fields)
    set_slot(self, "_version", 0)
    set_slot(self, "_watched", False)
    set_slot(self, "_source", source_info.current_traceback())
    return self


def mark_structure_changed(target: Pytree) -> None:
    """Count a structural change of an object."""
    # The object's version is increased first: a thread that sees the new global version must find this one changed.
    set_slot(target, "_version", target._version + 1)
    structure_version.count += 1


class Object(Pytree, pytree=False):
    """A `Pytree` that is a leaf for functions of trees; functions of `nnx` see its attributes.

    Examples:
      >>> from phalanx import nnx, tree
      >>> class Counter(nnx.Object):
      ...     pass
      >>> tree.all_leaves([Counter()])
      True
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**{"pytree": False, **kwargs})


# --- objects and containers as pytree nodes; shared references are not preserved ---


def sort_names(attributes: Iterable[Any]) -> list[Any]:
    """The names of attributes in order; the indices of a `List` before its other attributes."""
    try:
        return sorted(attributes)
    except TypeError:
        return sorted(attributes, key=lambda name: (type(name).__name__, name))


_CONTAINERS = frozenset({list, dict, tuple})


def _check_is_acyclic(where: str, value: Any) -> None:
    """Check that a container does not contain itself: pytrees would be walked without end.

    Raises:
      ArgumentError: it does.
    """
    if (found := find_endless_container(value)) is not None:
        raise ArgumentError(
            where,
            expected=f"a {type(found).__name__} that does not contain itself, since a pytree has no cycles",
            got="a cycle",
            fix="refer to the object that has this attribute, and pass it to nnx functions in graph mode only",
        )


def _make_key(name: Any) -> KeyEntry:
    return GetAttrKey(name) if type(name) is str else SequenceKey(name) if type(name) is int else DictKey(name)


def _register(cls: type) -> None:
    """Register a class of objects as a pytree node: data attributes are children, the others are static."""

    def flatten_with_keys(target: Pytree) -> tuple[list, tuple]:
        # Attributes are sorted by name, so that the order in which `__init__` sets them does not matter.
        values, marks = get_attributes(target), target._marks
        names, children, fixed = [], [], []
        for name in sort_names(values):
            value, mark = values[name], marks.get(name)
            if type(value) in _CONTAINERS:
                _check_is_acyclic(f"{cls.__name__}.{name}", value)
            if is_data(value) if mark is None else mark:
                names.append(name)
                children.append((_make_key(name), _separate_static(value)))
            else:
                fixed.append((name, Static(value)))
        given = tuple((k, mark) for k, mark in marks.items() if mark is not _DERIVED) if marks else ()
        return children, (tuple(names), tuple(fixed), given)

    def unflatten(aux: tuple, children: Any) -> Pytree:
        names, fixed, marks = aux
        target = allocate(cls)
        values = get_attributes(target)
        values.update(zip(names, children))
        values.update((k, v.value) for k, v in fixed)
        # A child may be anything, such as a dimension of `in_axes`, and must remain one when it is flattened again.
        derived = {n: _DERIVED for n in names if not isinstance(values[n], _DATA_TYPES) and not is_data(values[n])}
        if marks or derived:
            set_slot(target, "_marks", {**derived, **dict(marks)})
        return target

    register_pytree_with_keys(cls, flatten_with_keys, unflatten)


class _MixedContainer:
    """A pytree node for a container of data with static elements, such as the functions in a `Sequential`.

    Args:
      value: the container; unflattening the node returns a container, not a `_MixedContainer`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def _is_static_element(x: object) -> bool:
    return (callable(x) or isinstance(x, str)) and not is_root(x) and not is_array(x)


def _separate_static(value: PyTree) -> PyTree:
    if type(value) not in (list, tuple, dict):
        return value
    return _MixedContainer(value) if any(map(_is_static_element, tree_leaves(value, is_leaf=is_root))) else value


def _flatten_mixed(node: _MixedContainer) -> tuple[list, tuple]:
    value = node.value
    key_type, keys = (DictKey, sorted(value)) if isinstance(value, dict) else (SequenceKey, range(len(value)))
    fixed = tuple((k, Static(value[k])) for k in keys if _is_static_element(value[k]))
    children = [(key_type(k), _separate_static(value[k])) for k in keys if not _is_static_element(value[k])]
    return children, (type(value), tuple(keys), fixed)


def _unflatten_mixed(aux: tuple, children: Iterable[Any]) -> Any:
    kind, keys, fixed = aux
    # The keys are stored in order, so that static and other elements are interleaved as before.
    static_values, rest = dict(fixed), iter(children)
    values = [static_values[k].value if k in static_values else next(rest) for k in keys]
    return kind(zip(keys, values)) if issubclass(kind, dict) else kind(values)


register_pytree_with_keys(_MixedContainer, _flatten_mixed, _unflatten_mixed)


def _collect_variables(value: Any, by_type: dict[Any, list[Any]], seen: set[int]) -> None:
    """Collect the values of the variables in a value by the type under which they are counted."""
    if is_root(value) or type(value) in _CONTAINERS:
        if id(value) in seen:
            return
        seen.add(id(value))
    if isinstance(value, Variable):
        by_type.setdefault(value.counted_type(), []).append(read_refs(value._value))
    elif isinstance(value, Pytree):
        attributes = get_attributes(value)
        for name in value._sorted_names():
            _collect_variables(attributes[name], by_type, seen)
    elif type(value) in _CONTAINERS:
        for x in value.values() if type(value) is dict else value:
            _collect_variables(x, by_type, seen)
    elif is_tree_node(type(value)):
        for x in filter(is_root, tree_leaves(value, is_leaf=is_root)):
            _collect_variables(x, by_type, seen)


def _format_sizes(module: Pytree) -> str:
    """The number of elements and bytes of the variables of each type, and of all if there are several types."""
    by_type: dict[Any, list[Any]] = {}
    _collect_variables(module, by_type, set())
    sizes = {kind.__name__: size for kind, values in by_type.items() if (size := format_size(values))}
    if len(sizes) > 1:
        sizes["Total"] = format_size(list(by_type.values()))
    return " # " + ", ".join(f"{kind}: {size}" for kind, size in sizes.items()) if sizes else ""
