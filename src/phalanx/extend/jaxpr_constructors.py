"""Jaxprs and equations built by hand, with the constructors of JAX, and the types of mapped values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import core
from phalanx.core import Atom, Effects, Eqn, Primitive, ShapedArray, Var, dtypes, get_aval, no_effects
from phalanx.runtime.array import Array

array_types = {Array, np.ndarray, np.generic}


class _AnyJaxpr(type):
    """The class of the classes with JAX's constructors, of which every jaxpr is an instance."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, core.Jaxpr)


class Jaxpr(metaclass=_AnyJaxpr):
    """A jaxpr, as its parts in the order of JAX's constructor; every jaxpr of Phalanx is an instance.

    Args:
      constvars: the variables of the constants, whose values `ClosedJaxpr` binds.
      invars: the input variables.
      outvars: variables or literals that are the results.
      eqns: the equations.
      effects: the effects of evaluating it; by default the effects of the equations.
      debug_info: a record with the function's name, or None.

    Examples:
      >>> import phalanx
      >>> from phalanx.extend.core import ClosedJaxpr
      >>> program = phalanx.make_jaxpr(lambda x: x + 1)(1)
      >>> same = Jaxpr([], program.invars, program.outvars, program.eqns)
      >>> ClosedJaxpr(same, []).in_avals == program.in_avals
      True
    """

    def __new__(  # type: ignore[misc]
        cls,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[Eqn],
        effects: Effects | None = None,
        debug_info: Any = None,
    ) -> core.Jaxpr:
        name = getattr(debug_info, "func_name", "fn")
        effects = no_effects.union(*(e.effects for e in eqns)) if effects is None else frozenset(effects)
        return core.Jaxpr(invars, eqns, outvars, constvars, [None] * len(constvars), effects, name)


class ClosedJaxpr(metaclass=_AnyJaxpr):
    """A jaxpr with the values of its constants; every jaxpr of Phalanx is an instance.

    Args:
      jaxpr: the jaxpr.
      consts: a value for each of its constant variables.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(lambda x: x + 1)(1)
      >>> ClosedJaxpr(program.jaxpr, program.consts) is program
      True
    """

    def __new__(cls, jaxpr: core.Jaxpr, consts: Sequence[Any]) -> core.Jaxpr:  # type: ignore[misc]
        same = len(consts) == len(jaxpr.consts) and all(map(lambda x, y: x is y, consts, jaxpr.consts))
        return jaxpr if same else jaxpr.replace(consts=list(consts))


def new_jaxpr_eqn(
    invars: Sequence[Atom],
    outvars: Sequence[Var],
    primitive: Primitive,
    params: dict[str, Any],
    effects: Effects = no_effects,
    source_info: Any = None,
    ctx: Any = None,
) -> Eqn:
    """Make an equation.

    Args:
      invars: the operands.
      outvars: the variables of the results.
      primitive: the operation.
      params: its parameters.
      effects: its effects.
      source_info: the `source_info` of another equation, by default the line of the caller.
      ctx: accepted as in JAX.

    Returns:
      The equation.

    Examples:
      >>> from phalanx import lax
      >>> x, y = (Var(get_aval(1.0)) for _ in range(2))
      >>> new_jaxpr_eqn([x], [y], lax.sin_p, {}).primitive
      sin
    """
    source = core.current_traceback() if source_info is None else getattr(source_info, "traceback", source_info)
    return Eqn(primitive, list(invars), list(outvars), dict(params), source, frozenset(effects))


def gensym(suffix: str = "") -> Callable[[ShapedArray], Var]:
    """A function that makes variables; they need no names, which printing chooses.

    Args:
      suffix: accepted as in JAX.

    Returns:
      A function from a type to a variable.

    Examples:
      >>> gensym()(get_aval(1.0)).aval
      ShapedArray(float32[], weak_type=True)
    """
    return Var


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of one example of a batch.

    Args:
      size: the number of examples.
      axis: the mapped dimension of the batch, or None if there is none.
      aval: the type of the batch.

    Returns:
      The type without the dimension.

    Examples:
      >>> mapped_aval(2, 0, get_aval(np.zeros((2, 3), np.float32)))
      ShapedArray(float32[3])
    """
    return aval if axis is None else aval.without_dim(axis)


def unmapped_aval(size: int, axis: int | None, aval: ShapedArray, explicit_mesh_axis: Any = None) -> ShapedArray:
    """The type of a batch.

    Args:
      size: the number of examples.
      axis: the mapped dimension of the batch, or None if there is none.
      aval: the type of one example.
      explicit_mesh_axis: the Explicit mesh axes that shard the dimension, if any.

    Returns:
      The type with the dimension.

    Examples:
      >>> unmapped_aval(2, 0, get_aval(np.zeros(3, np.float32)))
      ShapedArray(float32[2,3])
    """
    return aval if axis is None else aval.with_dim(axis, size, explicit_mesh_axis)


def valid_jaxtype(x: Any) -> bool:
    """Whether a value can be an operand: an array, a tracer, NumPy data, or a Python scalar.

    Args:
      x: any object.

    Returns:
      True or False.

    Examples:
      >>> valid_jaxtype(1.0), valid_jaxtype("text")
      (True, False)
    """
    try:
        get_aval(x)
    except TypeError:
        return False
    return True


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an operand, or of an object with a shape and a dtype.

    Args:
      x: the operand.

    Returns:
      Its type.

    Examples:
      >>> shaped_abstractify(1.0)
      ShapedArray(float32[], weak_type=True)
    """
    return get_aval(x)


def primal_dtype_to_tangent_dtype(dtype: Any) -> Any:
    """The dtype of the tangents of values of a dtype: itself if it is inexact, else `float0`.

    Args:
      dtype: the dtype.

    Returns:
      The dtype.

    Examples:
      >>> primal_dtype_to_tangent_dtype(np.dtype("float32"))
      dtype('float32')
    """
    return dtypes.to_tangent_dtype(dtype)
