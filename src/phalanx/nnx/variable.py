"""Variables: the boxes in which modules keep what changes, and their kinds.

A `Variable` holds one value (an array, or any pytree), metadata, the trace it belongs to and the line that made it. It
stands for its value in arithmetic; it is a node of pytrees, with its value as the child. Builds on `core` only;
everything else in `nnx` is about finding, moving and lifting variables.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.core import source
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError
from phalanx.core.trace import Tracer
from phalanx.engine.frames import boundary
from phalanx.nnx.levels import check_level, clock, dead_error
from phalanx.nnx.placing import placed
from phalanx.runtime.array import Array
from phalanx.tree import GetAttrKey, register_pytree_node, tree_leaves, tree_map

MISSING: Any = object()
HOOKS = ("on_get_value", "on_set_value", "on_create_value", "on_add_axis", "on_remove_axis")
# Metadata under which the mesh axes of a value's dimensions are found, in the order of preference.
SHARDING_KEYS = ("out_sharding", "sharding", "sharding_names")


class Static:
    """A value that is part of a structure: compared by type too, since 1 is not True, and by identity if unhashable."""

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
        return a is b or (type(a) is type(b) and _is_hashable(a) and bool(a == b))

    def __repr__(self) -> str:
        return repr(self.value)


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


class VariableMetadata:
    """A value on its way into a `Variable`, with the metadata that the variable is to have.

    Args:
      value: the value.
      metadata: names and values.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Param(nnx.VariableMetadata(1.0, {"unit": "m"})).unit
      'm'
    """

    __slots__ = ("metadata", "value")

    def __init__(self, value: Any, metadata: Mapping[str, Any]):
        self.value, self.metadata = value, dict(metadata)


class Variable:
    """A box for a value that changes, with metadata.

    Args:
      value: an array, or any pytree.
      eager_sharding: False for a variable that is not placed where it is made, whatever `use_eager_sharding` says.
      hijax, ref: taken for compatibility.
      **metadata: names and values. `out_sharding` (a tuple of mesh axes, one for each dimension) places the value
        where a mesh is in context; `on_get_value`, `on_set_value` and `on_create_value` are hooks
        `hook(variable, value) -> value`, `on_add_axis` and `on_remove_axis` are called when `vmap` or `scan` change
        the number of dimensions.

    Raises:
      TraceContextError: the value is set inside a transformation that the variable comes from outside of.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> count = nnx.Variable(jnp.zeros(2), unit="steps")
      >>> count.value += 1
      >>> (count * 2).tolist(), count.unit
      ([2.0, 2.0], 'steps')
    """

    __slots__ = ("__weakref__", "_metadata", "_source", "_trace", "_value", "_version", "_watched")
    __array_ufunc__ = None
    __array_priority__ = 200

    _hooked = False
    _value: Any
    _metadata: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls._hooked = any(hasattr(cls, name) for name in HOOKS)
        _register(cls)

    def __init__(
        self, value: Any, *, eager_sharding: bool | None = None, hijax: Any = None, ref: Any = None, **metadata: Any
    ):
        if type(value) is VariableMetadata:
            metadata = {**value.metadata, **metadata}
            value = value.value
        elif isinstance(value, Variable):
            value = value.raw_value
        for key in SHARDING_KEYS[1:]:  # Older spellings, which would hide the value's own `sharding`.
            if key in metadata:
                metadata["out_sharding"] = metadata.pop(key)
        self._set_up(value, metadata)
        self._source = source.current_traceback()
        hook = self._hook("on_create_value")
        if hook is not None:
            self._value = hook(self, self._value)
        if metadata and eager_sharding is not False and self.sharding_names is not None:
            self._value = placed(self._value, self.sharding_names, metadata.get("mesh"), metadata.get("sharding_rules"))

    def _set_up(self, value: Any, metadata: dict) -> None:
        # Past `__setattr__`, which would take most of the time.
        _set_value(self, value)
        _set_metadata(self, metadata)
        _set_trace(self, state.trace)
        _set_source(self, None)
        _set_version(self, 0)
        _set_watched(self, False)

    @classmethod
    def from_metadata(cls, value: Any, attributes: Mapping[str, Any]) -> Variable:
        """A variable with this value and metadata, as it is: no hook is called, nothing is placed.

        Args:
          value: the value.
          attributes: the metadata.

        Returns:
          The variable.
        """
        self = object.__new__(cls)
        self._set_up(value, dict(attributes))
        return self

    # Values

    @property
    def value(self) -> Any:
        """The value, as `on_get_value` shows it."""
        value = self._value
        if type(value) is not Array and isinstance(value, Tracer) and not value._trace.alive:
            raise dead_error(self)
        if self._metadata or self._hooked:
            hook = self._hook("on_get_value")
            if hook is not None:
                return hook(self, value)
        return value

    @value.setter
    def value(self, value: Any) -> None:
        self.set_value(value)

    @property
    def raw_value(self) -> Any:
        """The value, past all hooks."""
        return self._value

    @raw_value.setter
    def raw_value(self, value: Any) -> None:
        self.set_raw_value(value)

    def get_value(self, *, index: Any = MISSING) -> Any:
        """The value, or what `index` picks of it.

        Args:
          index: what to pick, as in `value[index]`; `...` for all of it.

        Returns:
          The value, or its part.
        """
        value = self.value
        return value if index is MISSING or _is_whole(value, index) else value[index]

    def set_value(self, value: Any, *, index: Any = MISSING) -> None:
        """Set the value, or what `index` picks of it, as `on_set_value` wants it.

        Args:
          value: the value, or a variable that has it.
          index: where to put it, as in `value[index]`; all of the value where it is left out.
        """
        if state.trace is not self._trace:
            check_level(self)
        if isinstance(value, Variable):
            value = value.value
        if self._metadata or self._hooked:
            hook = self._hook("on_set_value")
            if hook is not None:
                value = hook(self, value)
        if index is not MISSING and not _is_whole(self._value, index):
            value = _replaced(self._value, index, value)
        _set_value(self, value)

    def get_raw_value(self) -> Any:
        """The value, past all hooks."""
        return self._value

    def set_raw_value(self, value: Any) -> None:
        """Set the value, past all hooks."""
        if state.trace is not self._trace:
            check_level(self)
        _set_value(self, value)

    def create_value(self, value: Any) -> Any:
        """What `on_create_value` makes of a value."""
        hook = self._hook("on_create_value")
        return value if hook is None else hook(self, value)

    def _hook(self, name: str) -> Callable | None:
        hook = self._metadata.get(name)
        if hook is None:
            own = getattr(type(self), name, None) if self._hooked else None
            return own
        if isinstance(hook, tuple | list):
            return _chained(tuple(hook)) if hook else None
        return hook

    # Metadata

    def get_metadata(self, name: str | None = None, default: Any = MISSING) -> Any:
        """All metadata, or that of one name.

        Args:
          name: the name; None for all.
          default: what there is where the name is not.

        Returns:
          A dict of all, or one value.

        Raises:
          ArgumentError: there is none of this name and no default.
        """
        if name is None:
            return dict(self._metadata)
        if name not in self._metadata and default is MISSING:
            raise ArgumentError(
                f"{type(self).__name__}.get_metadata",
                expected=f"one of {sorted(self._metadata)}",
                got=repr(name),
                mend="pass a default",
            )
        return self._metadata.get(name, default)

    def has_metadata(self, name: str) -> bool:
        """Whether there is metadata of this name."""
        return name in self._metadata

    def set_metadata(self, *args: Any, **metadata: Any) -> None:
        """Set metadata: `set_metadata(name, value)` or `set_metadata(name=value)`; one mapping replaces all.

        Args:
          *args: a name and a value, or a mapping.
          **metadata: names and values.
        """
        if state.trace is not self._trace:
            check_level(self, "setting metadata")
        if len(args) == 1:
            self._metadata = {**args[0], **metadata}
        else:
            self._metadata = {**self._metadata, **(dict([args]) if args else {}), **metadata}
        self._touch()

    def del_metadata(self, name: str) -> None:
        """Remove metadata."""
        if state.trace is not self._trace:
            check_level(self, "removing metadata")
        self._metadata = {k: v for k, v in self._metadata.items() if k != name}
        self._touch()

    def _touch(self) -> None:
        if self._watched:
            self._version += 1
            clock.time += 1

    @property
    def sharding_names(self) -> Any:
        """The mesh axes of the value's dimensions, as the metadata say; None without."""
        return next((self._metadata[k] for k in SHARDING_KEYS if self._metadata.get(k) is not None), None)

    def add_axis(self, axis_index: Any, axis_name: Any) -> None:
        """Tell the hook `on_add_axis` of a new dimension."""
        hook = self._hook("on_add_axis")
        if hook is not None:
            hook(self, axis_index, axis_name)

    def remove_axis(self, axis_index: Any, axis_name: Any) -> None:
        """Tell the hook `on_remove_axis` of a dimension that goes."""
        hook = self._hook("on_remove_axis")
        if hook is not None:
            hook(self, axis_index, axis_name)

    type = property(lambda self: type(self))
    var_type = type

    # Copies

    def copy(self, value: Any = MISSING, **updates: Any) -> Any:
        """Another variable of the same kind, value and metadata, those given replaced.

        Args:
          value: the new value.
          **updates: new metadata.

        Returns:
          The variable.
        """
        made = self.from_metadata(self._value if value is MISSING else value, {**self._metadata, **updates})
        made._source = self._source
        return made

    replace = copy

    def to_state(self) -> Any:
        """A copy, as a leaf of a `State`."""
        return self.copy()

    def copy_from(self, other: Variable) -> None:
        """Take over the value and the metadata of another variable of the same kind.

        Args:
          other: the variable.

        Raises:
          ArgumentError: it is of another kind.
        """
        if type(self) is not type(other):
            raise ArgumentError(
                f"{type(self).__name__}.copy_from",
                expected=f"a {type(self).__name__}",
                got=f"a {type(other).__name__}",
                mend="copy the value alone: variable.value = other.value",
            )
        self.update_from_state(other)

    def update_from_state(self, variable_state: Variable) -> None:
        """Take over the value and the metadata of another variable, past all hooks."""
        if state.trace is not self._trace:
            check_level(self)
        self._value = variable_state._value
        if variable_state._metadata != self._metadata:
            self._metadata = dict(variable_state._metadata)
            self._touch()

    def __copy__(self) -> Variable:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Variable:
        return self.copy(tree_map(lambda x: x, self._value))

    def __reduce__(self) -> tuple:
        return _rebuilt, (type(self), self._value, self._metadata)

    # What stands for the value

    def __phalanx_array__(self) -> Any:
        return self.value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        return np.asarray(self.value, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Reached only where no class has the name. `aval` would make a variable pass for an array.
        if name[:1] == "_" or name == "aval":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        metadata = self._metadata
        return metadata[name] if name in metadata else getattr(self.value, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTABLE or hasattr(type(self), name):
            object.__setattr__(self, name, value)
            return
        raise ArgumentError(
            f"{type(self).__name__}.{name} = ...",
            expected="an assignment to .value",
            got=f"one to {name!r}",
            mend=f"set metadata with variable.set_metadata({name}=...)",
        )

    def __getitem__(self, index: Any) -> Any:
        value = self.value
        return value if _is_whole(value, index) else value[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.set_value(value, index=index)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __contains__(self, item: Any) -> bool:
        return item in self.value

    __hash__ = None  # type: ignore[assignment]

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __repr__(self) -> str:
        shown = [f"value={self._value!r}", *(f"{k}={v!r}" for k, v in self._metadata.items())]
        return f"{type(self).__name__}({', '.join(shown)})"


_SETTABLE = frozenset(Variable.__slots__)
_set_value, _set_metadata, _set_trace, _set_source, _set_version, _set_watched = (
    vars(Variable)[name].__set__ for name in ("_value", "_metadata", "_trace", "_source", "_version", "_watched")
)


def _is_whole(value: Any, index: Any) -> bool:
    """Whether `variable[index]` is the value itself: `...`, of anything but a dictionary that has such a key."""
    return index is Ellipsis and (type(value) is Array or not isinstance(value, Mapping))


def _replaced(value: Any, index: Any, part: Any) -> Any:
    """`value` with `part` at `index`: a new array, or the container changed in place."""
    if hasattr(value, "at"):
        return value.at[index].set(part)
    value[index] = part
    return value


def _chained(hooks: tuple) -> Callable:
    """Several hooks as one: each takes the value that the one before it gave; axis hooks are just called in turn."""

    def chain(variable: Variable, value: Any, *axis_name: Any) -> Any:
        for hook in hooks:
            out = hook(variable, value, *axis_name)
            value = value if axis_name else out
        return value

    return chain


def _rebuilt(cls: type[Variable], value: Any, metadata: dict) -> Variable:
    return cls.from_metadata(value, metadata)


def _unary(function: Callable) -> Callable:
    return boundary(lambda self: function(self.value))


def _binary(function: Callable) -> Callable:
    return boundary(lambda self, other: function(self.value, other.value if isinstance(other, Variable) else other))


def _reflected(function: Callable) -> Callable:
    return boundary(lambda self, other: function(other, self.value))


def _in_place(function: Callable) -> Callable:
    def update(self: Variable, other: Any) -> Variable:
        self.value = function(self.value, other)
        return self

    return update


def _install() -> None:
    """Give variables the operators of their values."""
    cls: Any = Variable
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
        function = getattr(operator, f"{name}_" if name in ("and", "or") else name)
        setattr(Variable, f"__{name}__", _binary(function))
        setattr(Variable, f"__r{name}__", _reflected(function))
        setattr(Variable, f"__i{name}__", _in_place(function))
    cls.__divmod__ = _binary(divmod)
    cls.__rdivmod__ = _reflected(divmod)
    for name in "eq ne lt le gt ge".split():
        setattr(Variable, f"__{name}__", _binary(getattr(operator, name)))
    for name in "neg pos invert".split():
        setattr(Variable, f"__{name}__", _unary(getattr(operator, name)))
    for name, function in {"abs": abs, "bool": bool, "int": int, "float": float, "complex": complex}.items():
        setattr(Variable, f"__{name}__", _unary(function))
    cls.__index__ = _unary(operator.index)
    cls.__round__ = lambda self, ndigits=None: round(self.value, ndigits)
    cls.__format__ = lambda self, spec: format(self.value, spec)
    cls.__str__ = Variable.__repr__


def static_items(metadata: Mapping[str, Any]) -> tuple:
    """Metadata as what is hashed and compared."""
    return tuple((k, Static(metadata[k])) for k in sorted(metadata)) if metadata else ()


def _register(cls: type[Variable]) -> None:
    def unflatten(items: tuple, children: Any) -> Variable:
        return cls.from_metadata(children[0], {k: v.value for k, v in items})

    key = GetAttrKey("value")
    register_pytree_node(
        cls,
        lambda v: ((v._value,), static_items(v._metadata)),
        unflatten,
        lambda v: (((key, v._value),), static_items(v._metadata)),
    )


_install()
_register(Variable)


class Param(Variable):
    """A parameter that is trained.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Param(1.0)
      Param(value=1.0)
    """


class BatchStat(Variable):
    """A running statistic, such as those of batch normalisation.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.BatchStat(0.0)
      BatchStat(value=0.0)
    """


class Cache(Variable):
    """What a module remembers between calls, such as the keys and values of attention.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Cache(0.0)
      Cache(value=0.0)
    """


class Intermediate(Variable):
    """A value that `Module.sow` stores.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Intermediate(0.0)
      Intermediate(value=0.0)
    """


class Perturbation(Intermediate):
    """What `Module.perturb` adds to a value, so that the value's gradient can be taken.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Perturbation(0.0)
      Perturbation(value=0.0)
    """


class LoRAParam(Param):
    """A parameter of a low-rank adaptation.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.LoRAParam(0.0)
      LoRAParam(value=0.0)
    """


class OptState(Variable):
    """A part of an optimiser's state.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptState(0)
      OptState(value=0)
    """


class OptArray(OptState):
    """An array of an optimiser's state that belongs to no parameter.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptArray(0)
      OptArray(value=0)
    """


class OptVariable(OptState):
    """An array of an optimiser's state that belongs to a parameter.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptVariable(0.0)
      OptVariable(value=0.0)
    """


_names: dict[str, type[Variable]] = {}


def register_variable_name(name: str, typ: Any = MISSING, *, overwrite: bool = False) -> Any:
    """Give a kind of variable a name by which `sow`, `perturb` and converters may call it.

    Args:
      name: the name.
      typ: the class; left out, a decorator is given.
      overwrite: whether another class may lose this name.

    Returns:
      The class, or a decorator.

    Raises:
      ArgumentError: the name is taken.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_type_from_name("params") is nnx.Param
      True
    """
    if typ is MISSING:
        return functools.partial(register_variable_name, name, overwrite=overwrite)
    if _names.get(name, typ) is not typ and not overwrite:
        raise ArgumentError(
            "register_variable_name",
            expected="a free name",
            got=f"{name!r}, that of {_names[name].__name__}",
            mend="choose another name, or pass overwrite=True",
        )
    _names[name] = typ
    return typ


def variable_type_from_name(name: str, /, *, base: type = Variable, allow_register: bool = False) -> type[Variable]:
    """The kind of variable of a name.

    Args:
      name: the name.
      base: what a new kind is derived from.
      allow_register: make a new kind where there is none of this name.

    Returns:
      The class.

    Raises:
      ArgumentError: there is none, and none may be made.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_type_from_name("batch_stats") is nnx.BatchStat
      True
    """
    if name not in _names:
        if not allow_register:
            raise ArgumentError(
                "variable_type_from_name",
                expected=f"one of {sorted(_names)}",
                got=repr(name),
                mend="register the class with register_variable_name",
            )
        _names[name] = type(name.capitalize(), (base,), {})
    return _names[name]


def variable_name_from_type(typ: type[Variable], /, *, allow_register: bool = False) -> str:
    """The name of a kind of variable.

    Args:
      typ: the class.
      allow_register: name it after its class where it has no name.

    Returns:
      The name.

    Raises:
      ArgumentError: it has no name, and may get none.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_name_from_type(nnx.Param)
      'params'
    """
    for name, kind in _names.items():
        if kind is typ:
            return name
    if not allow_register:
        raise ArgumentError(
            "variable_name_from_type",
            expected=f"one of {sorted(k.__name__ for k in _names.values())}",
            got=typ.__name__,
            mend="register the class with register_variable_name",
        )
    _names[typ.__name__] = typ
    return typ.__name__


for _name, _kind in {
    "params": Param,
    "batch_stats": BatchStat,
    "cache": Cache,
    "intermediates": Intermediate,
    "perturbations": Perturbation,
}.items():
    register_variable_name(_name, _kind)


def as_pure(tree: Any) -> Any:
    """A tree with the values of its variables in their place.

    Args:
      tree: a pytree, such as a `State`.

    Returns:
      The tree of values.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.as_pure({"a": nnx.Param(1.0)})
      {'a': 1.0}
    """
    return tree_map(
        lambda x: x.raw_value if isinstance(x, Variable) else x, tree, is_leaf=lambda x: isinstance(x, Variable)
    )


def is_plain(value: Any) -> bool:
    """Whether a value is one leaf, and not a tree of them."""
    kind = type(value)
    if kind is Array or isinstance(value, Tracer):
        return True
    leaves = tree_leaves(value)
    return len(leaves) == 1 and leaves[0] is value
