"""The types of variables, by the role of their values in a model, and their names in `sow`, `perturb` and checkpoints.

Filters select variables by these types. Builds on `variable`.
"""

from __future__ import annotations

import functools
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.variable import MISSING, Variable


class Param(Variable):
    """A trainable parameter.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Param(1.0)
      Param(
        value=1.0
      )
    """


class BatchStat(Variable):
    """A running statistic, such as the mean of batch normalization.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.BatchStat(0.0)
      BatchStat(
        value=0.0
      )
    """


class Cache(Variable):
    """A value that a module stores between calls, such as the keys and values of attention.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Cache(0.0)
      Cache(
        value=0.0
      )
    """


class Intermediate(Variable):
    """A value stored by `Module.sow`.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Intermediate(0.0)
      Intermediate(
        value=0.0
      )
    """


class Perturbation(Intermediate):
    """A zero that `Module.perturb` adds to a value, to take the gradient with respect to the value.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.Perturbation(0.0)
      Perturbation(
        value=0.0
      )
    """


class LoRAParam(Param):
    """A parameter of a low-rank adaptation.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.LoRAParam(0.0)
      LoRAParam(
        value=0.0
      )
    """


class OptState(Variable):
    """A part of the state of an optimizer.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptState(0)
      OptState(
        value=0
      )
    """


class OptArray(OptState):
    """An array of the state of an optimizer that does not correspond to a parameter.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptArray(0)
      OptArray(
        value=0
      )
    """


class OptVariable(OptState):
    """An array of the state of an optimizer that corresponds to a parameter.

    Args:
      value, **metadata: as in `Variable`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.OptVariable(0.0)
      OptVariable(
        value=0.0
      )
    """


_names: dict[str, type[Variable]] = {
    "params": Param,
    "batch_stats": BatchStat,
    "cache": Cache,
    "intermediates": Intermediate,
    "perturbations": Perturbation,
}


def register_variable_name(name: str, typ: type[Variable] = MISSING, *, overwrite: bool = False) -> Any:
    """Register a name for a variable type, to be used in `sow`, `perturb` and checkpoint converters.

    Args:
      name: the name.
      typ: the class; if omitted, a decorator is returned.
      overwrite: whether to replace an existing registration of the name.

    Returns:
      The class, or a decorator.

    Raises:
      ArgumentError: the name is registered for another class.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_type_from_name("params") is nnx.Param
      True
    """
    if typ is MISSING:
        # Called as a decorator: `@register_variable_name("name")`.
        return functools.partial(register_variable_name, name, overwrite=overwrite)
    if _names.get(name, typ) is not typ and not overwrite:
        raise ArgumentError(
            "register_variable_name, argument name",
            expected="a name that is not registered",
            got=f"{name!r}, which is registered for {_names[name].__name__}",
            fix=f"choose another name, or replace {_names[name].__name__} with overwrite=True",
        )
    _names[name] = typ
    return typ


def variable_type_from_name(name: str, /, *, base: type = Variable, allow_register: bool = False) -> type[Variable]:
    """Return the variable type that is registered under a name.

    Args:
      name: the name.
      base: the base class of a new type.
      allow_register: whether to create and register a type if there is none of this name.

    Returns:
      The class.

    Raises:
      ArgumentError: no type of this name is registered, and `allow_register` is False.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_type_from_name("batch_stats") is nnx.BatchStat
      True
    """
    if name not in _names:
        if not allow_register:
            raise ArgumentError(
                "variable_type_from_name, argument name",
                expected=f"one of {sorted(_names)}",
                got=repr(name),
                fix=f"register the class with nnx.register_variable_name({name!r}, cls)",
            )
        _names[name] = type(name, (base,), {})
    return _names[name]


def variable_name_from_type(typ: type[Variable], /, *, allow_register: bool = False) -> str:
    """Return the name under which a variable type is registered.

    Args:
      typ: the class.
      allow_register: whether to register the class under its class name if it is not registered.

    Returns:
      The name.

    Raises:
      ArgumentError: the class is not registered, and `allow_register` is False.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.variable_name_from_type(nnx.Param)
      'params'
    """
    names = {kind: name for name, kind in reversed(_names.items())}
    if typ not in names and not allow_register:
        raise ArgumentError(
            "variable_name_from_type, argument typ",
            expected=f"one of {sorted(k.__name__ for k in _names.values())}",
            got=typ.__name__,
            fix=f"register the class with nnx.register_variable_name(name, {typ.__name__})",
        )
    if typ not in names:
        _names[typ.__name__] = typ
    return names.get(typ, typ.__name__)
