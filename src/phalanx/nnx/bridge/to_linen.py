"""NNX modules as Linen modules: `ToLinen`, a class that exists in programs that use Linen.

The class derives from Linen's `Module`. Phalanx does not import Flax, so that it takes Linen from the modules that the
program has loaded.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.core import ArgumentTypeError, MissingExtraError
from phalanx.nnx.bridge.linen_variables import get_collections, to_linen_var
from phalanx.nnx.filters import Not
from phalanx.nnx.graphlib import State, format_path, merge_state, state, update
from phalanx.nnx.rngs import Rngs, RngState
from phalanx.tree import tree_map


@functools.cache
def make_to_linen() -> Any:  # noqa: C901  # the class is written inside, since its base is imported by the user
    """Return the class `ToLinen`.

    Raises:
      MissingExtraError: the program has not imported Linen.
    """
    linen = sys.modules.get("flax.linen")
    if linen is None:
        raise MissingExtraError(
            "nnx.bridge.ToLinen",
            expected="a program that has imported flax.linen",
            got="none",
            fix="run the program with phalanx run --nnx, and import flax.linen before nnx.bridge.ToLinen is used",
        )
    base: Any = linen.Module

    class ToLinen(base):
        """An NNX module as a Linen module, whose variables are in collections named by their types.

        Args:
          nnx_class: the class of the module.
          args, kwargs: the arguments of its constructor, except for `rngs`.
          skip_rng: whether the constructor has no parameter `rngs`.
          metadata_fn: gives the value of a variable in Linen, by default in an `NNXMeta` if it has metadata; None for
            the bare value.
        """

        nnx_class: Callable[..., Any]
        args: Sequence = ()
        kwargs: Mapping[str, Any] = linen.FrozenDict({})
        skip_rng: bool = False
        metadata_fn: Callable[[Any], Any] | None = to_linen_var

        @linen.compact
        def __call__(self, *args: Any, nnx_method: Callable | str | None = None, **kwargs: Any) -> Any:
            options = dict(self.kwargs)
            if not self.skip_rng:
                streams = {name: self.make_rng(name) for name in self.scope.rngs}
                options["rngs"] = Rngs(**({} if self.is_initializing() else {"default": 0}), **streams)
            module = self.nnx_class(*self.args, **options)
            if self.is_initializing():
                self._put_variables(module)  # the values before the call
            else:
                _set_values(module, self.variables)
            result = _get_method(module, nnx_method)(*args, **kwargs)
            if not self.is_initializing():
                self._put_variables(module)
            return result

        def __getattr__(self, name: str) -> Any:
            if name in self.kwargs:
                return self.kwargs[name]
            method = getattr(self.nnx_class, name, None)
            if not callable(method):
                return super().__getattr__(name)
            bound = functools.partial(self.__call__, nnx_method=method)
            bound.__self__ = self  # type: ignore[attr-defined]  # as in a bound method
            return bound

        def _put_variables(self, module: Any) -> None:
            found = get_collections(state(module, Not(RngState)), self.metadata_fn or (lambda v: v.value))
            for collection, variables in found.items():
                if self.is_mutable_collection(collection):
                    for name, value in variables.items():
                        self.put_variable(collection, name, value)

    ToLinen.__module__, ToLinen.__qualname__ = "phalanx.nnx.bridge", "ToLinen"
    return ToLinen


def _set_values(module: Any, collections: Mapping[str, Mapping]) -> None:
    """Set the variables of a module from the ones of Linen; unknown ones are reported and left out."""
    unbox = functools.partial(
        tree_map, lambda x: x.unbox() if hasattr(x, "unbox") else x, is_leaf=lambda x: hasattr(x, "unbox")
    )
    known = {path for path, _ in state(module).leaves_by_path()}
    given = merge_state(*[State(unbox(dict(c))) for c in collections.values()]) if collections else State({})
    leaves = list(given.leaves_by_path())
    if unknown := [format_path(path) for path, _ in leaves if path not in known]:
        warnings.warn(f"nnx.bridge.ToLinen: the module has no variables {', '.join(unknown)}", stacklevel=2)
    update(module, State.from_flat_path([(path, x) for path, x in leaves if path in known]))


def _get_method(module: Any, method: Callable | str | None) -> Callable:
    found = getattr(type(module), method or "__call__", None) if isinstance(method, str | None) else method
    if not callable(found):
        raise ArgumentTypeError(
            "nnx.bridge.ToLinen, argument nnx_method",
            expected=f"a method of {type(module).__name__}, or the name of one",
            got=method,
            fix=f"pass a function such as {type(module).__name__}.__call__",
        )
    return functools.partial(found, module)


def to_linen(
    nnx_class: Callable[..., Any],
    *args: Any,
    metadata_fn: Callable[[Any], Any] | None = to_linen_var,
    name: str | None = None,
    skip_rng: bool = False,
    abstract_init: bool = True,
    **kwargs: Any,
) -> Any:
    """Return an NNX module as a Linen module: a `ToLinen` with the arguments of the constructor written out.

    Args:
      nnx_class: the class of the module.
      *args, **kwargs: the arguments of its constructor, except for `rngs`.
      metadata_fn, skip_rng: as of `ToLinen`.
      name: the name of the Linen module.
      abstract_init: accepted for Flax; without effect.

    Raises:
      MissingExtraError: the program has not imported Linen.
    """
    options = {"metadata_fn": metadata_fn, "skip_rng": skip_rng, "name": name}
    return make_to_linen()(nnx_class, args=args, kwargs=sys.modules["flax.linen"].FrozenDict(kwargs), **options)
