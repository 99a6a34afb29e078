"""`Module`: the base of models and layers, with modes, sown values and perturbations.

A module is an ordinary Python object; what makes it more than an `Object` are these methods. Layers derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import phalanx.numpy as jnp
from phalanx.core.errors import ArgumentTypeError
from phalanx.nnx import functional
from phalanx.nnx.filters import Filter
from phalanx.nnx.objects import Object
from phalanx.nnx.observing import observe_methods
from phalanx.nnx.states import Path
from phalanx.nnx.variable import Perturbation, Variable, variable_type_from_name
from phalanx.tree import tree_map

# The attribute that `capturing` gives modules during a call: a variable for each kind that is captured, by name.
CAPTURED = "_captured"


class Module(Object):
    """The base of models and layers: write `__init__` and `__call__`, keep what changes in variables.

    Attributes may be variables, arrays, other modules, and lists, tuples and dictionaries of these; all else is static.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Scale(nnx.Module):
      ...     def __init__(self, size: int):
      ...         self.by = nnx.Param(jnp.ones(size))
      ...
      ...     def __call__(self, x):
      ...         return x * self.by
      >>> Scale(2)(jnp.arange(2.0)).tolist()
      [0.0, 1.0]
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        # Of our own layers the call; of a user's module all that it says to others.
        public = [n for n in vars(cls) if not n.startswith("_")]
        observe_methods(cls, ("__call__", *(() if cls.__module__.startswith("phalanx.") else public)))

    def sow(
        self,
        variable_type: type[Variable] | str,
        name: str,
        value: Any,
        reduce_fn: Callable[[Any, Any], Any] = lambda so_far, value: (*so_far, value),
        init_fn: Callable[[], Any] = tuple,
        capture_noop: bool | None = None,
    ) -> bool:
        """Store a value in an attribute of its own: by default in a tuple that grows; inside `nnx.capture` for that.

        Args:
          variable_type: the kind of variable, or its name.
          name: the attribute.
          value: the value.
          reduce_fn: joins what is stored with the value.
          init_fn: what is stored at first.
          capture_noop: whether to store nothing outside of `nnx.capture`; None for False.

        Returns:
          Whether it is stored, which inside `nnx.capture` only what is captured is.

        Raises:
          ArgumentTypeError: the attribute is something else.
        """
        kind = _kind(variable_type)
        if CAPTURED in self.__dict__:
            if (captured := self._captured_of(kind)) is None:
                return False
            stored = captured.get_raw_value()
            before = stored[name] if name in stored else init_fn()
            captured.set_raw_value({**stored, name: reduce_fn(before, value)})
            return True
        if capture_noop:
            return False
        held = self.__dict__.get(name)
        if held is None:
            setattr(self, name, kind(reduce_fn(init_fn(), value)))
            return True
        if type(held) is not kind:
            raise self._taken_name("sow", kind, name, held)
        held.value = reduce_fn(held.value, value)
        return True

    def perturb(
        self,
        name: str,
        value: Any,
        variable_type: str | type[Variable] = Perturbation,
        capture_noop: bool | None = None,
    ) -> Any:
        """Add a variable of zeros to a value, so that the variable's gradient is that of the value; see `nnx.capture`.

        Args:
          name: the attribute that holds the variable, made at the first call.
          value: an array, or a tree of them.
          variable_type: the kind of variable, or its name.
          capture_noop: whether to give the value as it is outside of `nnx.capture`; None for False.

        Returns:
          The value with the variable added.

        Raises:
          ArgumentTypeError: the attribute is something else.
        """
        kind = _kind(variable_type)
        if CAPTURED in self.__dict__:
            if (captured := self._captured_of(kind)) is None:
                return value
            stored = captured.get_raw_value()
            if name not in stored:
                stored = {**stored, name: tree_map(jnp.zeros_like, value)}
                captured.set_raw_value(stored)
            return tree_map(lambda x, by: x + by, value, stored[name])
        if capture_noop:
            return value
        held = self.__dict__.get(name)
        if held is None:
            held = kind(tree_map(jnp.zeros_like, value))
            setattr(self, name, held)
        elif not isinstance(held, kind):
            raise self._taken_name("perturb", kind, name, held)
        return tree_map(lambda x, by: x + by, value, held.value)

    def _captured_of(self, kind: type[Variable]) -> Variable | None:
        """What `nnx.capture` gave this module for values of a kind, if it captures them."""
        return next((held for held in self.__dict__[CAPTURED] if type(held) is kind), None)

    def _taken_name(self, method: str, kind: type[Variable], name: str, held: Any) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{type(self).__name__}.{method}, argument name",
            expected=f"an attribute of kind {kind.__name__}, or none yet",
            got=f"{name!r}, a {type(held).__name__}",
            mend="choose another name",
        )

    def train(self, **attributes: Any) -> None:
        """Set `deterministic` and `use_running_average` to False, and the given attributes, wherever they are.

        Args:
          **attributes: names and values.
        """
        self.set_attributes(
            **{"deterministic": False, "use_running_average": False, **attributes}, raise_if_not_found=False
        )

    def eval(self, **attributes: Any) -> None:
        """Set `deterministic` and `use_running_average` to True, and the given attributes, wherever they are.

        Args:
          **attributes: names and values.
        """
        self.set_attributes(
            **{"deterministic": True, "use_running_average": True, **attributes}, raise_if_not_found=False
        )

    def set_attributes(
        self, *filters: Filter, raise_if_not_found: bool = True, graph: bool | None = None, **attributes: Any
    ) -> None:
        """Set attributes in this module and in all inside it that have them.

        Args:
          *filters: in which modules; all of them without.
          raise_if_not_found: refuse attributes that no module has.
          **attributes: names and values.

        Raises:
          ArgumentError: no module has one of the attributes.
        """
        functional.set_attributes(
            self,
            *filters,
            raise_if_not_found=raise_if_not_found,
            where=f"{type(self).__name__}.set_attributes",
            **attributes,
        )

    def iter_modules(self) -> Iterator[tuple[Path, Module]]:
        """This module and all inside it with their paths, the inner ones first.

        Returns:
          An iterator of pairs (path, module).
        """
        return functional.iter_modules(self)

    def iter_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes of this one, by name.

        Returns:
          An iterator of pairs (name, module).
        """
        return functional.iter_children(self)


def _kind(variable_type: Any) -> type[Variable]:
    if isinstance(variable_type, str):
        return variable_type_from_name(variable_type, allow_register=True)
    return variable_type
