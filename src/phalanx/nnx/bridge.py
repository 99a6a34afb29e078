"""The bridge to Flax Linen: Linen modules as NNX modules, and NNX modules in the functional style of Linen.

A Linen module is recognized by its methods `init_with_output` and `apply`, so that nothing of Flax is imported; Linen
itself runs in programs that `phalanx run` serves. Its variables are nested dictionaries by collection. They become
variables of the NNX module, of the types that are registered under the names of the collections.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.nnx.graphlib import GraphDef, Path, format_path, split
from phalanx.nnx.module import Module
from phalanx.nnx.objects import get_attributes, is_array
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.traversals import flatten_mapping, unflatten_mapping
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import variable_name_from_type, variable_type_from_name

F = TypeVar("F", bound=Callable)

_is_initializing = ContextVar("is_initializing", default=False)
_OWN = "to_nnx__"  # the prefix of the attributes of `ToNNX` that are no variables of the Linen module
_BOX = "linen_meta_type"  # the metadata with the class of the Linen box that a value was in


@dataclass
class Functional:
    """A module class and its arguments, as a pair of functions `init` and `apply`.

    Args:
      module_type: the class.
      graphdef: the structure of the module, which `init` sets.
      args, kwargs: the arguments of the constructor, except for `rngs`.
    """

    module_type: Callable[..., Any]
    graphdef: GraphDef | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def init(self, *, rngs: Rngs | None = None) -> Any:
        """Create the module, and return its state.

        Args:
          rngs: random streams for the constructor; None if it has no such parameter.
        """
        streams = {} if rngs is None else {"rngs": rngs}
        self.graphdef, state = split(self.module_type(*self.args, **self.kwargs, **streams))
        return state

    def apply(self, *states: Mapping) -> Any:
        """Return a function that calls the module with states, as `GraphDef.apply` does.

        Args:
          *states: states that together have a leaf at each path.

        Raises:
          ArgumentError: `init` has not been called.
        """
        if self.graphdef is None:
            raise ArgumentError(
                "Functional.apply",
                expected="a structure, which init sets",
                got=None,
                fix="call init before apply: state = functional_module.init(rngs=nnx.Rngs(0))",
            )
        return self.graphdef.apply(*states)


def functional(cls: Callable[..., Any]) -> Callable[..., Functional]:
    """Give a module class the functional style of Linen.

    Args:
      cls: the class.

    Returns:
      A function of the constructor's arguments, except for `rngs`, that returns a `Functional`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.bridge.functional(nnx.Linear)(2, 3)
      >>> state = layer.init(rngs=nnx.Rngs(0))
      >>> y, (graphdef, state) = layer.apply(state)(jnp.ones((1, 2)))
      >>> y.shape
      (1, 3)
    """
    return lambda *args, **kwargs: Functional(cls, None, args, kwargs)


def lazy_init(fn: F, *args: Any, **kwargs: Any) -> F:
    """Create the variables of the Linen modules that a call of a module or of its method reaches.

    Args:
      fn: a module, or a bound method of one.
      *args, **kwargs: the arguments of the call.

    Returns:
      `fn`.

    Raises:
      ArgumentTypeError: `fn` is neither a module nor a method of one.
    """
    if not isinstance(getattr(fn, "__self__", fn), Module):
        raise ArgumentTypeError(
            "nnx.bridge.lazy_init, argument fn",
            expected="a module, or a bound method of one",
            got=fn,
            fix="pass the module, or its method as in lazy_init(model.encode, x)",
        )
    token = _is_initializing.set(True)
    try:
        fn(*args, **kwargs)
    finally:
        _is_initializing.reset(token)
    return fn


class ToNNX(Module):
    """A Linen module as an NNX module, whose variables are attributes of the names that they have in Linen.

    A call with sample arguments creates the variables, as in `model = ToNNX(linen_module, rngs=rngs).lazy_init(x)`. The
    methods of the Linen module are methods of this one.

    Args:
      module: the Linen module.
      rngs: random streams, which are forked, or a key for the stream `params`.
    """

    def __init__(self, module: Any, rngs: Any = None):
        self.to_nnx__module = module
        self.to_nnx__rngs = Rngs(params=rngs) if is_array(rngs) else rngs.fork() if isinstance(rngs, Rngs) else rngs

    def lazy_init(self, *args: Any, **kwargs: Any) -> ToNNX:
        """Create the variables by a call, and return this module.

        Args:
          *args, **kwargs: the arguments of the call.
        """
        return lazy_init(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(get_attributes(self).get(f"{_OWN}module")), name, None)
        if name.startswith("__") or not callable(method):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        bound = functools.partial(self.__call__, method=method)
        bound.__self__ = self  # type: ignore[attr-defined]  # as in a bound method, for `lazy_init`
        return bound

    def __call__(
        self, *args: Any, rngs: Any = None, method: Callable | str | None = None, mutable: Any = None, **kwargs: Any
    ) -> Any:
        """Call the Linen module.

        Args:
          *args, **kwargs: the arguments.
          rngs: random streams, or a key for the stream `params`; None to use the module's.
          method: the method of the Linen module, or its name; None for `__call__`.
          mutable: the collections that the call may change, as in Linen; the variables get their new values.

        Returns:
          The result of the method.

        Raises:
          ArgumentError: two collections have a variable of the same path.
        """
        rngs = self.to_nnx__rngs if rngs is None else rngs
        streams = rngs if isinstance(rngs, Rngs) else {}
        keys = {name: stream() for name, stream in streams.items()} or ({} if rngs is None else {"params": rngs})
        if "params" not in keys and "default" in keys:
            keys["params"] = keys.pop("default")
        if _is_initializing.get():
            result, changed = self.to_nnx__module.init_with_output(keys, *args, method=method, **kwargs)
        else:
            options = dict(rngs=keys, method=method, mutable=mutable or False)
            result = self.to_nnx__module.apply(self._get_collections(), *args, **options, **kwargs)
            result, changed = result if mutable else (result, {})
        self._set_collections(changed)
        return result

    def _get_variables(self) -> dict[Path, Any]:
        attributes = get_attributes(self).items()
        return flatten_mapping({name: value for name, value in attributes if not str(name).startswith(_OWN)})

    def _get_collections(self) -> dict[str, Any]:
        """The variables as Linen has them: by collection, and in boxes where they come from boxes."""
        found = self._get_variables().items()
        named = {(variable_name_from_type(type(v), allow_register=True), *path): _to_linen(v) for path, v in found}
        return unflatten_mapping(named)

    def _set_collections(self, collections: Mapping[str, Any]) -> None:
        """Set variables from Linen's, and create those that are new."""
        new: dict[Path, Variable] = {}
        for collection, variables in collections.items():
            for path, value in flatten_mapping(variables).items():
                if path in new:
                    raise ArgumentError(
                        "nnx.bridge.ToNNX, the variables of the Linen module",
                        expected="a path for each variable, since attributes have no collections",
                        got=f"{format_path(path)} in the collection {collection!r} and in another one",
                        fix="rename one of the variables",
                    )
                new[path] = _to_variable(collection, value)
        known = self._get_variables()
        for path in new.keys() & known.keys():
            known[path].update_from_state(new[path])
        if new.keys() - known.keys():
            for name, value in unflatten_mapping({**new, **known}).items():
                setattr(self, name, value)


def _to_variable(collection: str, value: Any) -> Variable:
    """A variable of the type of a collection, whose metadata is that of the value's box in Linen."""
    kind = variable_type_from_name(collection, allow_register=True)
    if not hasattr(value, "unbox"):
        return kind(value)
    metadata = dict(value.to_nnx_metadata() if hasattr(value, "to_nnx_metadata") else vars(value))
    return kind(metadata.pop("value"), **metadata, **{_BOX: type(value)})


def _to_linen(variable: Variable) -> Any:
    metadata = {"value": variable.value, **variable.get_metadata(exclude_required=True)}
    if _BOX not in metadata:
        return variable.value
    box = metadata.pop(_BOX)
    return box.from_nnx_metadata(metadata) if hasattr(box, "from_nnx_metadata") else box(**metadata)
