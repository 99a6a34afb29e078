"""Linen modules as NNX modules.

A Linen module is recognized by its methods `init_with_output` and `apply`, so that nothing of Flax is imported; Linen
itself runs in programs that `phalanx run` serves. Its variables become attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.nnx.bridge.linen_variables import get_collections, to_linen, to_variable
from phalanx.nnx.graphlib import Path, State, format_path
from phalanx.nnx.module import Module
from phalanx.nnx.objects import get_attributes, is_array
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.traversals import flatten_mapping, unflatten_mapping
from phalanx.nnx.variable import Variable

F = TypeVar("F", bound=Callable)

# Of the enclosing `lazy_init`, or `apply` of a `Module`: whether variables are created, and which collections change.
linen_call: ContextVar[tuple[bool, Any]] = ContextVar("linen_call", default=(False, False))
_OWN = "to_nnx__"  # the prefix of the attributes of `ToNNX` that are no variables of the Linen module


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
    token = linen_call.set((True, False))
    try:
        fn(*args, **kwargs)
    finally:
        linen_call.reset(token)
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
          mutable: the collections that the call may change, as in Linen; the variables get their new values. None for
            those of the call of `apply` of an enclosing `nnx.bridge.Module`, if any.

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
        initializes, default_mutable = linen_call.get()
        if initializes:
            result, changed = self.to_nnx__module.init_with_output(keys, *args, method=method, **kwargs)
        else:
            mutable = (default_mutable if mutable is None else mutable) or False
            options = dict(rngs=keys, method=method, mutable=mutable)
            result = self.to_nnx__module.apply(self._get_collections(), *args, **options, **kwargs)
            result, changed = result if mutable else (result, {})
        self._set_collections(changed)
        return result

    def _get_variables(self) -> dict[Path, Any]:
        attributes = get_attributes(self).items()
        return flatten_mapping({name: value for name, value in attributes if not str(name).startswith(_OWN)})

    def _get_collections(self) -> dict[str, Any]:
        """The variables as Linen has them: by collection, and in boxes where they come from boxes."""
        return get_collections(State.from_flat_path(self._get_variables().items()), to_linen)

    def _set_collections(self, collections: Mapping[str, Any]) -> None:
        """Set variables from Linen's, and create new ones."""
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
                new[path] = to_variable(collection, value)
        known = self._get_variables()
        for path in new.keys() & known.keys():
            known[path].update_from_state(new[path])
        if new.keys() - known.keys():
            for name, value in unflatten_mapping({**new, **known}).items():
                setattr(self, name, value)
