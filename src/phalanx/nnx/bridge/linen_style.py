"""NNX modules in the style of Linen: methods create variables and submodules, and `apply` gives them their values.

A module of this kind is a dataclass without variables. `init` and `apply` work on a copy of it, which is bound to a
`Scope` for the time of the call: the random streams, and whether variables are created for the first time. The given
variables of submodules that do not exist yet wait in an attribute of the submodule's name, as `GivenVariables`; when
the submodule is assigned to the attribute, it receives them.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.nnx import module as nnx_module
from phalanx.nnx.bridge.linen_variables import get_collections, to_linen_var, to_variable
from phalanx.nnx.bridge.to_nnx import ToNNX, linen_call
from phalanx.nnx.containers import Dict
from phalanx.nnx.filters import Not
from phalanx.nnx.graphlib import clone, iter_entries, iter_graph, state, update
from phalanx.nnx.objects import Pytree, get_attributes, is_root, sort_names
from phalanx.nnx.rngs import Rngs, RngState
from phalanx.nnx.transforms.lifted_eval_shape import eval_shape
from phalanx.nnx.transforms.lifted_jit import jit
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import Param, variable_type_from_name
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PRNGKey

F = TypeVar("F", bound=Callable)


class AttrPriority(enum.IntEnum):
    """The order in which attributes are visited; a shared submodule has the path of the first one."""

    HIGH = 0
    INIT_PARENT = 20  # the attributes of submodules that a compact method creates
    DEFAULT = 50
    LOW = 100


class Scope(Pytree):
    """What the modules of a call of `Module.init` or `Module.apply` share.

    Args:
      rngs: the random streams.
      mutable: the argument `mutable` of `apply`.
    """

    def __init__(self, rngs: Rngs, mutable: Any):
        self.rngs, self.mutable = rngs, mutable
        self.initializes = self.is_set_up = False

    def copy(self) -> Scope:
        """Return a scope for a submodule, with the same streams."""
        scope = Scope(self.rngs, self.mutable)
        scope.initializes = self.initializes
        return scope


class GivenVariables(Dict):
    """The variables of a submodule that does not exist yet."""


@dataclasses.dataclass
class ModuleContext:
    """The module whose method is running.

    module: the module.
    in_compact: whether the method is compact.
    type_counter: the number of submodules without names by class.
    """

    module: Module
    in_compact: bool
    type_counter: collections.Counter = dataclasses.field(default_factory=collections.Counter)


_context: ContextVar[ModuleContext | None] = ContextVar("bridge_module", default=None)


@contextmanager
def _enter(module: Module, in_compact: bool) -> Iterator[None]:
    token = _context.set(ModuleContext(module, in_compact))
    try:
        yield
    finally:
        _context.reset(token)


def current_context() -> ModuleContext | None:
    """Return the module whose method is running and whether the method is compact; None outside of modules."""
    return _context.get()


def current_module() -> Module | None:
    """Return the module whose method is running; None outside of modules."""
    context = _context.get()
    return None if context is None else context.module


class _ModuleType(type):
    """Takes the arguments `name` and `parent` of a submodule, and assigns it to an attribute of its parent."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        context, parent, name = _context.get(), None, None
        if context is not None:
            name = kwargs.get("name") if "name" in inspect.get_annotations(cls) else kwargs.pop("name", None)
            _check_placement(cls.__name__, context, kwargs.get("parent"), name)
            parent = kwargs.pop("parent", context.module)
            if parent is not None:
                parent._get_scope(cls.__name__)
            if name is None and context.in_compact:
                name = _count_name(context, cls)
        module = type.__call__(cls, *args, **kwargs)
        if parent is not None and name is not None:
            setattr(parent, name, module)
            parent.set_attr_priority(name, AttrPriority.INIT_PARENT)
        return module


def _check_placement(where: str, context: ModuleContext, parent: object, name: object) -> None:
    """Check the arguments `parent` and `name` of a submodule.

    Raises:
      ArgumentTypeError: `name` is no text.
      ArgumentError: a compact method chooses another parent.
    """
    if name is not None and not isinstance(name, str):
        raise ArgumentTypeError(
            f"{where}, argument name", expected="a str", got=name, fix=f"pass a name such as {where.lower()!r}"
        )
    if context.in_compact and parent is not None:
        raise ArgumentError(
            f"{where}, argument parent",
            expected="None, or no such argument, in a compact method",
            got=f"a {type(parent).__name__}",
            fix="omit parent, so that the submodule belongs to the module whose method is running",
        )


def _count_name(context: ModuleContext, cls: type) -> str:
    number = context.type_counter[cls]
    context.type_counter[cls] += 1
    return f"{cls.__name__}_{number}"


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Module(nnx_module.Module, metaclass=_ModuleType):
    """A module in the style of Linen: a dataclass whose methods create variables and submodules.

    Variables and submodules are created in `setup`, or in a method that is decorated with `compact`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Dense(nnx.bridge.Module):
      ...     features: int
      ...
      ...     @nnx.bridge.compact
      ...     def __call__(self, x):
      ...         w = self.param("w", nnx.initializers.ones, (x.shape[-1], self.features))
      ...         return x @ w
      >>> variables = Dense(2).init(0, jnp.ones((1, 3)))
      >>> Dense(2).apply(variables, jnp.ones((1, 3))).tolist()
      [[3.0, 3.0]]
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls, *args, **kwargs)
        get_attributes(self).update(scope=None, attr_priorities={})
        return self

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**{"pytree": False, **kwargs})
        dataclasses.dataclass(repr=False)(cls)
        cls.__hash__ = object.__hash__  # type: ignore[method-assign]  # a dataclass with `==` has no hash

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if type(value) is GivenVariables:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r} yet, but variables for it")
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if self.scope is not None and name != "scope":
            given = get_attributes(self).get(name)
            if type(given) is GivenVariables:
                _give(value, given)
            for leaf in tree_leaves(value, is_leaf=is_root):
                if isinstance(leaf, Module):
                    leaf._bind(self.scope)
        super().__setattr__(name, value)

    def _bind(self, scope: Scope | None) -> None:
        """Bind this module and the ones inside it to a scope, and call `setup`; None to release them."""
        for _, module in list(iter_graph(self, graph=True)):
            if isinstance(module, Module) and (scope is None or module.scope is None):
                module.scope = None if scope is None else scope.copy()
        for _, module in list(iter_graph(self, graph=True)) if scope is not None else ():
            if isinstance(module, Module) and hasattr(module, "setup") and not module.scope.is_set_up:
                module.scope.is_set_up = True
                with _enter(module, in_compact=False):
                    module.setup()

    def _sorted_names(self) -> list[Any]:
        priorities = self.attr_priorities
        return sorted(sort_names(get_attributes(self)), key=lambda k: priorities.get(k, AttrPriority.DEFAULT))

    def set_attr_priority(self, name: str, value: AttrPriority) -> None:
        """Set the place of an attribute in the order in which attributes are visited."""
        self.attr_priorities = {**self.attr_priorities, name: value}

    def _get_scope(self, method: str) -> Scope:
        if self.scope is None:
            raise ArgumentError(
                f"{type(self).__name__}.{method}",
                expected="a module that init or apply has bound",
                got="a module outside of a call",
                fix="call init or apply, as in module.apply(variables, x)",
            )
        return self.scope

    def is_initializing(self) -> bool:
        """Whether the module runs in a call of `init`."""
        return self.scope is not None and self.scope.initializes

    def make_rng(self, name: str = "default") -> PRNGKey:
        """Return the next key of a random stream of the call.

        Args:
          name: the stream.
        """
        return self._get_scope("make_rng").rngs[name]()

    def param(self, name: str, init_fn: Callable, *init_args: Any, unbox: bool = True, **init_kwargs: Any) -> Param:
        """Return the parameter of a name; created by `init_fn` unless it is given.

        Args:
          name: the attribute.
          init_fn: a function of a key and of the following arguments.
          *init_args, **init_kwargs: the arguments.
          unbox: accepted for Linen; the parameter is a variable with its metadata.

        Raises:
          ArgumentError: the module is in no call, or has another attribute of this name.
        """
        rngs = self._get_scope("param").rngs
        return self._get_variable(Param, name, lambda: init_fn(rngs["params"](), *init_args, **init_kwargs))

    def variable(
        self,
        col: str,
        name: str,
        init_fn: Callable | None = None,
        *init_args: Any,
        unbox: bool = True,
        **init_kwargs: Any,
    ) -> Variable:
        """Return the variable of a name; created by `init_fn` unless it is given.

        Args:
          col: the collection: the name under which the type of the variable is registered.
          name: the attribute.
          init_fn: a function of the following arguments.
          *init_args, **init_kwargs: the arguments.
          unbox: accepted for Linen; the result is a variable with its metadata.

        Raises:
          ArgumentError: the module is in no call, has another attribute of this name, or there is no `init_fn`.
        """
        self._get_scope("variable")
        kind = variable_type_from_name(col, allow_register=True)
        init = None if init_fn is None else functools.partial(init_fn, *init_args, **init_kwargs)
        return self._get_variable(kind, name, init)

    def _get_variable(self, kind: type[Variable], name: str, init: Callable | None) -> Any:
        found = getattr(self, name, None)
        if isinstance(found, kind):
            return found
        if found is not None or init is None:
            raise ArgumentError(
                f"{type(self).__name__}, the variable {name!r}",
                expected=f"a {kind.__name__}, or no attribute of this name" if init else "a given variable or init_fn",
                got=f"one of type {type(found).__name__}" if init else "neither",
                fix=f"choose another name, such as {name + '_value'!r}" if init else "pass init_fn",
            )
        variable = kind(init())
        setattr(self, name, variable)
        return variable

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the module, in nested dictionaries by collection."""
        return MappingProxyType(_get_collections(self))

    def apply(
        self,
        variables: Mapping[str, Mapping],
        *args: Any,
        rngs: Any = None,
        method: Callable | str = "__call__",
        mutable: Any = False,
        _initialize: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call a method of a copy of the module that has the given variables.

        Args:
          variables: the variables, in nested dictionaries by collection.
          *args, **kwargs: the arguments of the method.
          rngs: random streams; a seed or a key for the stream `default`, or a mapping by stream.
          method: the method, or its name.
          mutable: unless False, the variables after the call are returned, too.

        Returns:
          The result, or the pair of the result and the variables after the call.

        Raises:
          ArgumentTypeError: the method is no function.
        """
        module = clone(self, graph=True)
        for collection, values in variables.items():
            _give(
                module,
                tree_map(functools.partial(to_variable, collection), values, is_leaf=lambda x: hasattr(x, "unbox")),
            )
        if not isinstance(rngs, Rngs):
            rngs = Rngs(**rngs) if isinstance(rngs, dict) else Rngs(rngs)
        scope = Scope(rngs, mutable)
        scope.initializes = _initialize
        token = linen_call.set((_initialize, mutable))
        try:
            module._bind(scope)
            with _enter(module, in_compact=False):
                result = module._get_method(method)(*args, **kwargs)
        finally:
            linen_call.reset(token)
            module._bind(None)
        return result if mutable is False else (result, _get_collections(module))

    def _get_method(self, method: Callable | str) -> Callable:
        function = getattr(self, method) if isinstance(method, str) else getattr(method, "__func__", method)
        if not callable(function):
            raise ArgumentTypeError(
                f"{type(self).__name__}.apply, argument method",
                expected="a method, or the name of one",
                got=method,
                fix=f"pass a function of the module, as in method={type(self).__name__}.__call__",
            )
        return function if isinstance(method, str) else functools.partial(function, self)

    def init(self, rngs: Any = None, *args: Any, method: Callable | str = "__call__", **kwargs: Any) -> dict[str, Any]:
        """Return the variables that a call of a method creates.

        Args:
          rngs, method: as in `apply`.
          *args, **kwargs: the arguments of the method.

        Returns:
          Nested dictionaries by collection.
        """
        return self.init_with_output(rngs, *args, method=method, **kwargs)[1]

    def init_with_output(
        self, rngs: Any = None, *args: Any, method: Callable | str = "__call__", mutable: Any = True, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Return the result of a method and the variables that it creates.

        Args:
          rngs, method: as in `apply`.
          *args, **kwargs: the arguments of the method.
          mutable: accepted for Linen; all variables are returned.

        Returns:
          The result, and nested dictionaries by collection.
        """
        return self.apply({}, *args, rngs=rngs, method=method, mutable=True, _initialize=True, **kwargs)


def _get_collections(module: Module) -> dict[str, Any]:
    return get_collections(state(module, Not(RngState), graph=True), to_linen_var)


def _give(node: Any, given: Mapping) -> None:
    """Set variables of a module and of the ones inside it from nested mappings; those of absent ones wait."""
    if isinstance(node, Variable | nnx_module.Module) and not isinstance(node, Module | ToNNX):
        update(node, dict(given))
        return
    for name, value in given.items():
        known = dict(iter_entries(node)).get(name)
        if isinstance(value, Mapping) and known is not None:
            _give(known, value)
        elif isinstance(node, Pytree):
            node.__setattr__(name, GivenVariables(value) if isinstance(value, Mapping) else value)
        else:
            node[name] = value


def compact(f: F) -> F:
    """Let a method of a `Module` create variables and submodules; a submodule without a name is named by its class.

    Args:
      f: the method.

    Raises:
      ArgumentTypeError: when called, if the object is no `Module`.
    """

    @functools.wraps(f)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, Module):
            raise ArgumentTypeError(
                "nnx.bridge.compact, argument self",
                expected="an nnx.bridge.Module",
                got=f"a {type(self).__name__}",
                fix="derive the class from nnx.bridge.Module, or create its variables in __init__",
            )
        with _enter(self, in_compact=True):
            return f(self, *args, **kwargs)

    return call  # type: ignore[return-value]


def _place(where: str, make: Callable[[Scope], Any], name: str | None, named_by: type | None = None) -> Any:
    """Create a submodule of the module whose method is running; `named_by` is the class for its name."""
    context = _context.get()
    if context is None or context.module.scope is None:
        raise ArgumentError(
            f"nnx.bridge.{where}",
            expected="a call in a method of an nnx.bridge.Module",
            got="a call outside of one",
            fix="call it in setup, or in a method decorated with nnx.bridge.compact",
        )
    module = make(context.module.scope)
    if context.in_compact:
        setattr(context.module, name or _count_name(context, named_by or type(module)), module)
    return module


def nnx_in_bridge_mdl(factory: Callable[[Rngs], Any], name: str | None = None) -> Any:
    """Create an NNX module as a submodule of the `Module` whose method is running.

    Args:
      factory: creates the module from random streams.
      name: the attribute in a compact method; None for a name by its class.

    Returns:
      The module; outside of `init`, its variables are the given ones, and its streams those of the call.

    Raises:
      ArgumentError: there is no such method.
    """

    def make(scope: Scope) -> Any:
        if scope.initializes:
            return factory(scope.rngs)
        module = eval_shape(factory, scope.rngs if len(scope.rngs) else Rngs(0), graph=True)
        if len(scope.rngs):
            update(module, jit(lambda rngs: state(factory(rngs), RngState, graph=True))(scope.rngs))
        return module

    return _place("nnx_in_bridge_mdl", make, name)


def linen_in_bridge_mdl(linen_module: Any, name: str | None = None) -> ToNNX:
    """Create a Linen module as a submodule of the `Module` whose method is running.

    Args:
      linen_module: the Linen module.
      name: the attribute in a compact method; None for a name by its class.

    Returns:
      A `ToNNX` of the module.

    Raises:
      ArgumentError: there is no such method.
    """
    return _place("linen_in_bridge_mdl", lambda scope: ToNNX(linen_module, scope.rngs), name, type(linen_module))
