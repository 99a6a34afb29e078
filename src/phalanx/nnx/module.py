"""`Module`, the base class of models and layers, with train and eval modes, sown values and perturbations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import phalanx.numpy as jnp
from phalanx.core import ArgumentTypeError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib import Path, iter_entries, split_merge
from phalanx.nnx.inspection.method_observer import observe_methods
from phalanx.nnx.objects import Pytree, get_attributes, is_root
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import Perturbation, variable_type_from_name
from phalanx.tree import tree_map
from phalanx.typing import PyTree

M = TypeVar("M", bound="Module")  # for annotations of functions of modules
# The attribute that `nnx.capture` adds to modules during a call: a tuple of variables, one for each captured type,
# whose values are dictionaries of the sown values by name. Programs written for Flax read it under this name.
CAPTURED = "__captures__"


class Module(Pytree):
    """The base class of models and layers: define `__init__` and `__call__`, and keep mutable state in variables.

    Attributes may be variables, arrays, other modules, and lists, tuples and dictionaries of these. All other
    attributes are static.

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
        # Calls of the library's layers are observable, and calls of all public methods of users' modules.
        public = [n for n in vars(cls) if not n.startswith("_")]
        observe_methods(cls, ("__call__", *(() if cls.__module__.startswith("phalanx.") else public)))

    def sow(
        self,
        variable_type: type[Variable] | str,
        name: str,
        value: PyTree,
        reduce_fn: Callable[[Any, Any], Any] = lambda so_far, value: (*so_far, value),
        init_fn: Callable[[], Any] = tuple,
        capture_noop: bool | None = None,
    ) -> bool:
        """Store a value in an attribute, by default in a tuple of all sown values, or for an enclosing `nnx.capture`.

        Args:
          variable_type: the type of the variable, or its registered name.
          name: the name of the attribute.
          value: the value.
          reduce_fn: combines the stored value with the new one.
          init_fn: returns the initial stored value.
          capture_noop: whether to do nothing outside of `nnx.capture`; None means False.

        Returns:
          Whether the value was stored. Inside `nnx.capture`, only values of the captured types are.

        Raises:
          ArgumentTypeError: the module has an attribute of this name that is not a variable of this type.
        """
        kind = _get_variable_type(variable_type)
        if CAPTURED in get_attributes(self):
            if (captured := self._captured_variable(kind)) is None:
                return False
            stored = captured.get_raw_value()
            before = stored[name] if name in stored else init_fn()
            # A new dictionary, since a transformation detects changes of a variable by the identity of its leaves.
            captured.set_raw_value({**stored, name: reduce_fn(before, value)})
            return True
        if capture_noop:
            return False
        variable = get_attributes(self).get(name)
        if variable is None:
            setattr(self, name, kind(reduce_fn(init_fn(), value)))
            return True
        # Subclasses are different types for filters, so that the exact type must match.
        if type(variable) is not kind:
            raise self._name_error("sow", kind, name, variable)
        variable.value = reduce_fn(variable.value, value)
        return True

    def perturb(
        self,
        name: str,
        value: PyTree,
        variable_type: str | type[Variable] = Perturbation,
        capture_noop: bool | None = None,
    ) -> Any:
        """Add a variable of zeros to a value; the gradient with respect to the variable is that of the value.

        Args:
          name: the name of the attribute for the variable, which the first call creates.
          value: an array, or a tree of arrays.
          variable_type: the type of the variable, or its registered name.
          capture_noop: whether to return the value unchanged outside of `nnx.capture`; None means False.

        Returns:
          The sum of the value and the variable.

        Raises:
          ArgumentTypeError: the module has an attribute of this name that is not a variable of this type.
        """
        kind = _get_variable_type(variable_type)
        if CAPTURED in get_attributes(self):
            if (captured := self._captured_variable(kind)) is None:
                return value
            stored = captured.get_raw_value()
            if name not in stored:
                stored = {**stored, name: tree_map(jnp.zeros_like, value)}
                captured.set_raw_value(stored)
            return tree_map(lambda x, by: x + by, value, stored[name])
        if capture_noop:
            return value
        variable = get_attributes(self).get(name)
        if variable is None:
            variable = kind(tree_map(jnp.zeros_like, value))
            setattr(self, name, variable)
        # A subclass of the type is accepted, unlike in `sow`: the variable already exists.
        elif not isinstance(variable, kind):
            raise self._name_error("perturb", kind, name, variable)
        return tree_map(lambda x, by: x + by, value, variable.value)

    def _captured_variable(self, kind: type[Variable]) -> Variable | None:
        """The variable of an enclosing `nnx.capture` for sown values of a type, if it captures that type."""
        return next((variable for variable in get_attributes(self)[CAPTURED] if type(variable) is kind), None)

    def _name_error(self, method: str, kind: type[Variable], name: str, attribute: object) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{type(self).__name__}.{method}, argument name",
            expected=f"a new attribute, or one that is a {kind.__name__}",
            got=f"{name!r}, a {type(attribute).__name__}",
            fix=f"choose another name, such as {name + '_' + method!r}",
        )

    def train(self, **attributes: Any) -> None:
        """Set `deterministic` and `use_running_average` to False in all modules that have them.

        Args:
          **attributes: further attributes to set, by name.
        """
        self._set_mode(False, attributes)

    def eval(self, **attributes: Any) -> None:
        """Set `deterministic` and `use_running_average` to True in all modules that have them.

        Args:
          **attributes: further attributes to set, by name.
        """
        self._set_mode(True, attributes)

    def _set_mode(self, is_eval: bool, attributes: Mapping[str, Any]) -> None:
        # Both modes are plain attributes: a model without dropout or batch normalization has neither of them.
        values = {"deterministic": is_eval, "use_running_average": is_eval, **attributes}
        self.set_attributes(**values, raise_if_not_found=False)

    def set_attributes(
        self, *filters: Filter, raise_if_not_found: bool = True, graph: bool | None = None, **attributes: Any
    ) -> None:
        """Set attributes of this module and of all modules inside it that have them.

        Args:
          *filters: the modules to consider; all if omitted.
          raise_if_not_found: whether to raise an error for attributes that no module has.
          graph: False for the tree mode, in which shared variables are errors; None for the default of
            `set_graph_mode`.
          **attributes: values by name.

        Raises:
          ArgumentError: no module has one of the attributes.
        """
        where = f"{type(self).__name__}.set_attributes"
        # A tuple of filters matches if any of them does.
        split_merge.set_attributes(where, self, filters or ..., raise_if_not_found, graph, attributes)

    def iter_modules(self) -> Iterator[tuple[Path, Module]]:
        """Iterate over this module and all modules inside it, children before their parents.

        Returns:
          An iterator of pairs (path, module).
        """
        return iter_modules(self)

    def iter_children(self) -> Iterator[tuple[Hashable, Any]]:
        """Iterate over the variables, modules and other objects that are attributes of this one.

        Returns:
          An iterator of pairs (name, object).
        """
        return iter_children(self)


def _get_variable_type(variable_type: type[Variable] | str) -> type[Variable]:
    if isinstance(variable_type, str):
        return variable_type_from_name(variable_type, allow_register=True)
    return variable_type


def iter_modules(module: PyTree, /, *, graph: bool | None = None) -> Iterator[tuple[Path, Module]]:
    """Iterate over all modules in a graph, children before their parents.

    Args:
      module: a module, or a tree of modules.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Yields:
      Pairs (path, module).

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Sequential(nnx.Dropout(0.5))
      >>> [(path, type(module).__name__) for path, module in nnx.iter_modules(model)]
      [(('layers', 0), 'Dropout'), (('layers',), 'List'), ((), 'Sequential')]
    """
    for path, value in split_merge.iter_graph(module, graph=graph):
        if isinstance(value, Module):
            yield path, value


def iter_children(node: PyTree, /, *, graph: bool | None = None) -> Iterator[tuple[Hashable, Any]]:
    """Iterate over the variables, modules and other objects in the attributes of a module or in a container.

    Args:
      node: a module or a container.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      An iterator of pairs (name, object).

    Examples:
      >>> from phalanx import nnx
      >>> [name for name, child in nnx.iter_children(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))]
      ['bias', 'kernel']
    """
    split_merge.check_mode("iter_children", node, graph)
    return ((key, value) for key, value in iter_entries(node) if is_root(value))


def iter_module_children(node: PyTree, /, *, graph: bool | None = None) -> Iterator[tuple[Hashable, Module]]:
    """Iterate over the modules that are attributes of a module, or elements of a container.

    Args:
      node: a module or a container.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      An iterator of pairs (name, module).

    Examples:
      >>> from phalanx import nnx
      >>> [(i, type(module).__name__) for i, module in nnx.iter_module_children([nnx.Dropout(0.5)])]
      [(0, 'Dropout')]
    """
    split_merge.check_mode("iter_module_children", node, graph)
    return ((key, value) for key, value in iter_entries(node) if isinstance(value, Module))
