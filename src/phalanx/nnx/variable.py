"""Variables: references to the mutable state of modules, and their types.

A `Variable` holds one value (an array or any pytree), its metadata, the trace it belongs to and the source line that
created it. It can be used like its value in arithmetic, and it is a pytree node whose child is the value. All other
files of `nnx` find, copy or transform variables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from phalanx.core import ArgumentError, Trace, Tracer, current_scope, is_same_static, source_info, state
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.nnx.sharding.logical_axis_rules import shard_by_names
from phalanx.nnx.trace_level import check_trace_level, ended_trace_error, structure_version
from phalanx.nnx.tree_text import TreeText, format_size
from phalanx.nnx.variable_refs import (
    MODES,
    VarDefaults as VarDefaults,
    read_refs,
    to_refs,
    var_defaults as var_defaults,
    write_refs,
)
from phalanx.runtime.array import Array
from phalanx.tree import GetAttrKey, register_pytree_node, tree_map
from phalanx.typing import PyTree

MISSING: Any = object()
A = TypeVar("A")  # for annotations and base classes such as `nnx.Variable[nnx.A]`
HOOKS = ("on_get_value", "on_set_value", "on_create_value", "on_add_axis", "on_remove_axis")
# Metadata keys for the mesh axes of a value's dimensions, in order of preference.
SHARDING_KEYS = ("out_sharding", "sharding", "sharding_names")


class Static:
    """A value in the static part of a pytree, with equality that is safe for cache keys.

    Two values are equal if they give the same program, as static arguments do: `1` and `True` do not. Unhashable values
    are compared by identity; their hash is their address.
    """

    __slots__ = ("_hash", "value")

    def __init__(self, value: Any):
        self.value = value
        try:
            self._hash = hash(value)
        except TypeError:
            self._hash = id(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if type(other) is not Static or self._hash != other._hash:
            return False
        a, b = self.value, other.value
        return a is b or (self._hash != id(a) and is_same_static(a, b))

    def __reduce__(self) -> tuple:
        return Static, (self.value,)  # hashes of text and addresses differ between processes

    def __repr__(self) -> str:
        return repr(self.value)


class VariableMetadata:
    """A value together with the metadata of the `Variable` that will be created from it.

    Args:
      value: the value.
      metadata: metadata by name.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Param(nnx.VariableMetadata(1.0, {"unit": "m"})).unit
      'm'
    """

    __slots__ = ("metadata", "value")

    def __init__(self, value: PyTree, metadata: Mapping[str, Any]):
        self.value, self.metadata = value, dict(metadata)


class Variable:
    """A mutable reference to a value, with metadata.

    Args:
      value: an array, or any pytree.
      eager_sharding: whether the value is sharded on creation; None follows `use_eager_sharding`.
      hijax, ref: whether plain transformations such as `phalanx.jit` change the variable too: its arrays are then held
        in mutable references, which `raw_value` is with `ref=True`. None for the defaults of `var_defaults`.
      **metadata: metadata by name. `out_sharding` (a tuple of mesh axes, one for each dimension) shards the value over
        the mesh in context. `on_get_value`, `on_set_value` and `on_create_value` are hooks
        `hook(variable, value) -> value`; `on_add_axis` and `on_remove_axis` are called when `vmap` or `scan` add or
        remove a dimension.

    Raises:
      TraceContextError: the value is set inside a transformation that the variable was created outside of.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> count = nnx.Variable(jnp.zeros(2), unit="steps")
      >>> count.value += 1
      >>> (count * 2).tolist(), count.unit
      ([2.0, 2.0], 'steps')
    """

    required_metadata = frozenset({*MODES, "eager_sharding"})
    __slots__ = ("__weakref__", "_metadata", "_source", "_trace", "_value", "_version", "_watched")
    # NumPy arrays leave `array * variable` to the reflected operator of the variable.
    __array_ufunc__ = None
    __array_priority__ = 200

    _hooked = False
    _value: Any
    _metadata: dict[str, Any]
    _source: object
    _trace: Trace | None

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        # Most types define no hooks. This flag lets `value` skip the lookup of five attributes.
        cls._hooked = any(hasattr(cls, name) for name in HOOKS)
        # A type may define how its value is read and set. All reads go through `value` and indices, all others call
        # the base class, so that the usual types pay nothing for this.
        if cls.get_value is not Variable.get_value:
            cls.value = property(lambda self: self.get_value(), lambda self, value: self.set_value(value))  # type: ignore[assignment]
            cls.__getitem__ = lambda self, index: self.get_value(index=index)  # type: ignore[method-assign]
        _register(cls)

    def __init__(
        self,
        value: PyTree,
        *,
        eager_sharding: bool | None = None,
        hijax: bool | None = None,
        ref: bool | None = None,
        **metadata: Any,
    ):
        read = current_scope().read
        if read("flax_hijax_variable") if hijax is None else hijax:
            metadata["hijax"] = True
        if read("flax_ref_variable") if ref is None else ref:
            metadata["ref"] = True
        # An initializer of `with_metadata` returns the value together with its metadata.
        if type(value) is VariableMetadata:
            metadata = {**value.metadata, **metadata}
            value = value.value
        elif isinstance(value, Variable):
            value = read_refs(value._value)
        for key in SHARDING_KEYS[1:]:  # older names, which as metadata would shadow `value.sharding`
            if key in metadata:
                metadata["out_sharding"] = metadata.pop(key)
        self._initialize(value, metadata)
        self._source = source_info.current_traceback()
        _set_value(self, self.create_value(value))
        if metadata and eager_sharding is not False and (names := self.sharding_names) is not None:
            self._value = shard_by_names(self._value, names, metadata.get("mesh"), metadata.get("sharding_rules"))
        if "hijax" in metadata or "ref" in metadata:
            self._value = to_refs(self._value)

    def _initialize(self, value: PyTree, metadata: dict[str, Any]) -> None:
        # The slots are set directly: `__setattr__` would take most of the time of creating a variable.
        _set_value(self, value)
        _set_metadata(self, metadata)
        _set_trace(self, state.trace)
        _set_source(self, None)
        _set_version(self, 0)
        _set_watched(self, False)

    @classmethod
    def from_metadata(cls, value: PyTree, attributes: Mapping[str, Any]) -> Variable:
        """Create a variable without calling hooks and without sharding the value.

        Args:
          value: the value.
          attributes: the metadata.

        Returns:
          The variable.
        """
        self = object.__new__(cls)
        self._initialize(value, dict(attributes))
        if "hijax" in attributes or "ref" in attributes:
            self._metadata = _without_false_modes(attributes)
            if self.in_refs:
                _set_value(self, to_refs(value))
        return self

    hijax = property(lambda self: "hijax" in self._metadata, doc="Whether plain transformations change it.")
    ref = property(lambda self: "ref" in self._metadata, doc="Whether `raw_value` is a mutable reference.")

    @property
    def in_refs(self) -> bool:
        """Whether the arrays are held in mutable references."""
        return "hijax" in self._metadata or "ref" in self._metadata

    # --- the value ---

    def _read(self) -> Any:
        value = self._value
        # The exact type is compared first: for a concrete array, the common case, `isinstance` is not called.
        if type(value) is not Array and isinstance(value, Tracer) and not value._trace.alive:
            raise ended_trace_error(self)
        metadata = self._metadata
        if metadata or self._hooked:
            if "hijax" in metadata or "ref" in metadata:
                value = read_refs(value)
            if (hook := self._get_hook("on_get_value")) is not None:
                return hook(self, value)
        return value

    value = property(
        _read,
        lambda self, value: self.set_value(value),
        doc="The value, as `get_value` and `set_value` of the type read and set it.",
    )

    def get_value(self, *, index: Any = MISSING) -> Any:
        """Return the value after the hook `on_get_value`, or a part of it; a type may override this method.

        Args:
          index: as in `value[index]`; `...` for the whole value.

        Returns:
          The value or the part.
        """
        value = self._read()
        return value if index is MISSING or _is_whole(value, index) else value[index]

    def set_value(self, value: PyTree, *, index: Any = MISSING) -> None:
        """Set the value, or a part of it, after the hook `on_set_value`; a type may override this method.

        Args:
          value: the new value, or a variable that holds it.
          index: as in `value[index] = ...`; the whole value if omitted.
        """
        metadata = self._metadata
        in_refs = metadata and ("hijax" in metadata or "ref" in metadata)
        if state.trace is not self._trace and not in_refs:
            check_trace_level(self)
        if isinstance(value, Variable):
            value = value.value
        if (metadata or self._hooked) and (hook := self._get_hook("on_set_value")) is not None:
            value = hook(self, value)
        # The hook receives the part, not the whole value, as in Flax.
        if index is not MISSING and not _is_whole(self._value, index):
            value = _replace_part(read_refs(self._value) if in_refs else self._value, index, value)
        _set_value(self, write_refs(type(self).__name__, self._value, value) if in_refs else value)

    def get_raw_value(self) -> Any:
        """Return the value without calling hooks."""
        return read_refs(self._value) if self._metadata and self.hijax and not self.ref else self._value

    def set_raw_value(self, value: PyTree) -> None:
        """Set the value without calling hooks."""
        if self._metadata and self.in_refs:
            _set_value(self, write_refs(type(self).__name__, self._value, read_refs(value)))
            return
        check_trace_level(self)
        _set_value(self, read_refs(value))

    raw_value = property(get_raw_value, set_raw_value, doc="The value, without calling hooks.")

    def create_value(self, value: PyTree) -> Any:
        """Return a value after the hook `on_create_value`."""
        hook = self._get_hook("on_create_value")
        return value if hook is None else hook(self, value)

    def _get_hook(self, name: str) -> Callable | None:
        """The hook in the metadata or, if there is none, in the class."""
        hook = self._metadata.get(name)
        if hook is None:
            return getattr(type(self), name, None) if self._hooked else None
        return _chain_hooks(hook) if isinstance(hook, tuple | list) else hook

    # --- metadata ---

    def get_metadata(self, name: str | None = None, default: Any = MISSING, *, exclude_required: bool = False) -> Any:
        """Return all metadata, or one entry.

        Args:
          name: the name of the entry; None for all.
          default: the result if there is no entry of this name.
          exclude_required: without a name, whether to leave out the modes, `hijax`, `ref` and `eager_sharding`.

        Returns:
          A dictionary of all metadata, or the entry.

        Raises:
          ArgumentError: there is no entry of this name, and no default.
        """
        if name is None:
            left_out = self.required_metadata if exclude_required else ()
            return {k: v for k, v in self._metadata.items() if k not in left_out}
        if name not in self._metadata and default is MISSING:
            raise ArgumentError(
                f"{type(self).__name__}.get_metadata",
                expected=f"one of {sorted(self._metadata)}",
                got=repr(name),
                fix=f"pass a default, as in variable.get_metadata({name!r}, None)",
            )
        return self._metadata.get(name, default)

    def has_metadata(self, name: str) -> bool:
        """Whether the metadata has an entry of this name."""
        return name in self._metadata

    def set_metadata(self, *args: Any, **metadata: Any) -> None:
        """Set metadata: `set_metadata(name, value)` or `set_metadata(name=value)`.

        Args:
          *args: a name and a value, or a mapping that replaces all metadata.
          **metadata: entries by name.
        """
        check_trace_level(self, "setting metadata")
        kept = args[0] if len(args) == 1 else {**self._metadata, **(dict([args]) if args else {})}
        modes = {mode: True for mode in MODES if mode in self._metadata}
        self._metadata = _without_false_modes({**modes, **kept, **metadata})
        if any(mode in modes or mode in self._metadata for mode in MODES):
            self._value = to_refs(self._value) if self.in_refs else read_refs(self._value)
        self._mark_structure_changed()

    def del_metadata(self, name: str) -> None:
        """Remove an entry of the metadata."""
        check_trace_level(self, "removing metadata")
        self._metadata = {k: v for k, v in self._metadata.items() if k != name}
        self._mark_structure_changed()

    def _mark_structure_changed(self) -> None:
        if self._watched:
            self._version += 1
            structure_version.count += 1

    @property
    def sharding_names(self) -> Any:
        """The mesh axes of the value's dimensions, from the metadata; None if not given."""
        return next((self._metadata[k] for k in SHARDING_KEYS if self._metadata.get(k) is not None), None)

    def add_axis(self, axis_index: int, axis_name: Hashable) -> None:
        """Call the hook `on_add_axis` for a new dimension."""
        self._call_axis_hook("on_add_axis", axis_index, axis_name)

    def remove_axis(self, axis_index: int, axis_name: Hashable) -> None:
        """Call the hook `on_remove_axis` for a removed dimension."""
        self._call_axis_hook("on_remove_axis", axis_index, axis_name)

    def _call_axis_hook(self, name: str, axis_index: int, axis_name: Hashable) -> None:
        if (hook := self._get_hook(name)) is not None:
            hook(self, axis_index, axis_name)

    type = property(lambda self: type(self))
    var_type = type

    @classmethod
    def counted_type(cls) -> Any:
        """The type under which the sizes of variables of this type are shown."""
        return cls

    # --- copies ---

    def copy(self, value: PyTree = MISSING, **updates: Any) -> Any:
        """Create a variable of the same type, value and metadata.

        Args:
          value: a new value; the same value if omitted.
          **updates: metadata to replace.

        Returns:
          The new variable.
        """
        metadata = self._metadata
        if value is MISSING:
            value = self._value
        if metadata or updates:
            value = read_refs(value)  # A copy has new references.
            metadata = {**metadata, **updates}
        copied = self.from_metadata(value, metadata)
        copied._source = self._source
        return copied

    replace = copy

    def to_state(self) -> Any:
        """Return a copy, to be used as a leaf of a `State`."""
        return self.copy()

    def copy_from(self, other: Variable) -> None:
        """Copy the value and the metadata of another variable of the same type.

        Args:
          other: the variable.

        Raises:
          ArgumentError: the variable has another type.
        """
        if type(self) is not type(other):
            raise ArgumentError(
                f"{type(self).__name__}.copy_from",
                expected=f"a {type(self).__name__}",
                got=f"a {type(other).__name__}",
                fix="copy the value alone: variable.value = other.value",
            )
        self.update_from_state(other)

    def update_from_state(self, variable_state: Variable) -> None:
        """Copy the value and the metadata of another variable, without calling hooks."""
        self.set_raw_value(variable_state._value)
        if variable_state._metadata != self._metadata:
            modes = {mode: True for mode in MODES if mode in self._metadata}
            self._metadata = {**variable_state._metadata, **modes}
            self._mark_structure_changed()

    def __copy__(self) -> Variable:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Variable:
        return self.copy(tree_map(lambda x: x, self._value))

    def __reduce__(self) -> tuple:
        return type(self).from_metadata, (read_refs(self._value), self._metadata)

    # --- use in place of the value ---

    def __phalanx_array__(self) -> Any:
        return self.value

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.asarray(self.value, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Called only for names that no class defines. `aval` must not reach the value: an object with an attribute
        # `aval` counts as an array, and functions of arrays would then skip the conversion of the variable.
        if name[:1] == "_" or name == "aval":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        metadata = self._metadata
        return metadata[name] if name in metadata else getattr(self.value, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Properties such as `value` are attributes of the class, and are set through their setters.
        if name in _SETTABLE or hasattr(type(self), name):
            object.__setattr__(self, name, value)
            return
        raise ArgumentError(
            f"{type(self).__name__}.{name} = ...",
            expected="an assignment to .value",
            got=f"an assignment to {name!r}",
            fix=f"set metadata with variable.set_metadata({name}=...)",
        )

    def __getitem__(self, index: Any) -> Any:
        value = self.value
        return value if _is_whole(value, index) else value[index]

    def __setitem__(self, index: Any, value: PyTree) -> None:
        self.set_value(value, index=index)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator:
        return iter(self.value)

    def __contains__(self, item: object) -> bool:
        return item in self.value

    __hash__ = None  # type: ignore[assignment]

    def __class_getitem__(cls, item: object) -> Any:
        return cls

    def _to_text(self, text: TreeText) -> str:
        value = read_refs(self._value)
        fields = [("value=", value), *((f"{k}=", v) for k, v in self._metadata.items())]
        comment = f" # {size}" if (size := format_size(value)) else ""
        return text.block(type(self).__name__, fields, ("(", ")"), comment)

    def __repr__(self) -> str:
        return TreeText().format(self)


_SETTABLE = frozenset(Variable.__slots__)
_set_value, _set_metadata, _set_trace, _set_source, _set_version, _set_watched = (
    vars(Variable)[name].__set__ for name in ("_value", "_metadata", "_trace", "_source", "_version", "_watched")
)


def _without_false_modes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without `hijax` and `ref` that are false: their presence tells that the value is in references."""
    return {k: v for k, v in metadata.items() if v or k not in MODES}


def _is_whole(value: object, index: object) -> bool:
    """Whether `variable[index]` is the value itself: the index is `...`, which a dictionary may have as a key."""
    return index is Ellipsis and (type(value) is Array or not isinstance(value, Mapping))


def _replace_part(value: Any, index: Any, part: Any) -> Any:
    """`value` with `part` at `index`: a new array, or the same container changed in place."""
    if hasattr(value, "at"):
        return value.at[index].set(part)
    value[index] = part
    return value


def _chain_hooks(hooks: Sequence[Callable]) -> Callable:
    """Compose hooks: each value hook receives the result of the previous one; axis hooks are called in turn."""

    def chain(variable: Variable, value: Any, *axis_name: Hashable) -> Any:
        for hook in hooks:
            out = hook(variable, value, *axis_name)
            value = value if axis_name else out
        return value

    return chain


# --- operators, which apply to the value ---


def _unary(function: Callable) -> Callable:
    return api_boundary(lambda self: function(self.value))


def _binary(function: Callable) -> Callable:
    return api_boundary(lambda self, other: function(self.value, other.value if isinstance(other, Variable) else other))


def _reflected(function: Callable) -> Callable:
    return api_boundary(lambda self, other: function(other, self.value))


def _in_place(function: Callable) -> Callable:
    def update(self: Variable, other: Any) -> Variable:
        self.value = function(self.value, other)
        return self

    return update


def _operators() -> Iterator[tuple[str, Callable]]:
    """The operator methods of `Variable`, by name."""
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
        function = getattr(operator, f"{name}_" if name in ("and", "or") else name)
        yield f"__{name}__", _binary(function)
        yield f"__r{name}__", _reflected(function)
        # In-place operators set the value and return the variable itself, so that `model.w += x` keeps the attribute.
        yield f"__i{name}__", _in_place(function)
    for name in "eq ne lt le gt ge".split():
        yield f"__{name}__", _binary(getattr(operator, name))
    for name in "neg pos invert index".split():
        yield f"__{name}__", _unary(getattr(operator, name))
    for conversion in (abs, bool, int, float, complex):
        yield f"__{conversion.__name__}__", _unary(conversion)
    yield "__divmod__", _binary(divmod)
    yield "__rdivmod__", _reflected(divmod)
    yield "__round__", lambda self, ndigits=None: round(self.value, ndigits)
    yield "__format__", lambda self, spec: format(self.value, spec)
    yield "__str__", Variable.__repr__


for _name, _method in _operators():
    setattr(Variable, _name, _method)


def freeze_metadata(metadata: Mapping[str, Any]) -> tuple[tuple[str, Static], ...]:
    """Metadata as a hashable tuple, for the static part of pytrees."""
    return tuple((k, Static(metadata[k])) for k in sorted(metadata)) if metadata else ()


def _register(cls: type[Variable]) -> None:
    """Register a variable type as a pytree node whose child is the value."""

    # The value is flattened as it is, without hooks: a transformation must return the stored value unchanged.
    key = GetAttrKey("value")
    register_pytree_node(
        cls,
        lambda v: ((v._value,), freeze_metadata(v._metadata)),
        lambda items, children: cls.from_metadata(children[0], {k: v.value for k, v in items}),
        lambda v: (((key, v._value),), freeze_metadata(v._metadata)),
    )


_register(Variable)


class _HijaxVariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Variable) and instance.hijax


class HijaxVariable(metaclass=_HijaxVariableType):
    """The class of all variables with `hijax=True`, whatever their type, for `isinstance`.

    Examples:
      >>> from phalanx import nnx
      >>> isinstance(nnx.Param(1.0, hijax=True), nnx.variablelib.HijaxVariable)
      True
    """


def is_variable(x: object) -> bool:
    """Whether a value is a variable."""
    return isinstance(x, Variable)


def unwrap(x: Any) -> Any:
    """The value of a variable, after its hooks; any other value is returned as it is."""
    return x.value if isinstance(x, Variable) else x


def get_raw_value(x: Any) -> Any:
    """The value of a variable, without its hooks; any other value is returned as it is."""
    return x.raw_value if isinstance(x, Variable) else x


def as_pure(tree: PyTree) -> PyTree:
    """Replace each variable in a tree by its value.

    Args:
      tree: a pytree, such as a `State`.

    Returns:
      The tree of values.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.as_pure({"a": nnx.Param(1.0)})
      {'a': 1.0}
    """
    return tree_map(get_raw_value, tree, is_leaf=is_variable)
