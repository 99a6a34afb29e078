"""Derivative rules of primitives by parts, as users register them: one function for each operand, or for a linear one.

Each function fills `primitive_jvps`, and for linear operations `primitive_transposes`, of `rule_tables`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Jaxpr, Primitive, ShapedArray, Zero, add_tangents as _add, instantiate, is_linear, vector_space
from phalanx.extend.rule_tables import find_rule, primitive_jvps, primitive_transposes
from phalanx.transforms.jvp_trace import jvp_jaxpr as _jvp_jaxpr
from phalanx.transforms.transpose_jaxpr import transpose_flat

Rule = Callable[..., Any]


def zero_tangents(primitive: Primitive, results: Any) -> Any:
    """Zero tangents for the result, or the list of results, of a primitive."""
    return [Zero.like(y) for y in results] if primitive.multiple else Zero.like(results)


def defjvp(primitive: Primitive, *jvprules: Rule | None) -> None:
    """Register the derivative of a primitive of one result, operand by operand.

    Args:
      primitive: the primitive.
      jvprules: for each operand `rule(tangent, *operands, **params)`, which returns the tangent of the result that
        the tangent of this operand causes; None where there is none.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> square_p = Primitive("my_square")
      >>> _ = square_p.def_impl(lambda x: x * x)
      >>> defjvp(square_p, lambda t, x: 2 * x * t)
      >>> float(phalanx.jvp(square_p.bind, (3.0,), (1.0,))[1])
      6.0
    """
    defjvp2(primitive, *[rule and functools.partial(_without_result, rule) for rule in jvprules])


def _without_result(rule: Rule, tangent: Any, result: Any, *operands: Any, **params: Any) -> Any:
    return rule(tangent, *operands, **params)


def defjvp2(primitive: Primitive, *jvprules: Rule | None) -> None:
    """Register the derivative of a primitive of one result, operand by operand, in terms of the result.

    Args:
      primitive: the primitive.
      jvprules: for each operand `rule(tangent, result, *operands, **params)`, as for `defjvp`; None where there is
        none.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> exp_p = Primitive("my_exp")
      >>> _ = exp_p.def_impl(jnp.exp)
      >>> defjvp2(exp_p, lambda t, y, x: y * t)
      >>> float(phalanx.jvp(exp_p.bind, (0.0,), (2.0,))[1])
      2.0
    """

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        parts = [
            rule(t, y, *primals, **params)
            for rule, t in zip(jvprules, tangents, strict=True)
            if rule is not None and type(t) is not Zero
        ]
        return y, functools.reduce(_add, parts, Zero.like(y))

    primitive_jvps[primitive] = rule


def defjvp_zero(primitive: Primitive) -> None:
    """Register the derivative of a primitive that is locally constant.

    Args:
      primitive: the primitive.
    """

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        return y, zero_tangents(primitive, y)

    primitive_jvps[primitive] = rule


def deflinear2(primitive: Primitive, transpose_rule: Rule) -> None:
    """Register the derivative and the transpose of a primitive that is linear jointly in all of its operands.

    Args:
      primitive: the primitive.
      transpose_rule: `rule(cotangent, *operands, **params)`, in which linear operands are `UndefinedPrimal`; returns a
        cotangent, or None, for each operand.

    Examples:
      >>> import phalanx
      >>> from phalanx.extend.core import Primitive
      >>> triple_p = Primitive("triple")
      >>> _ = triple_p.def_impl(lambda x: 3 * x)
      >>> _ = triple_p.def_abstract_eval(lambda x: x)
      >>> deflinear2(triple_p, lambda ct, x: [triple_p.bind(ct)])
      >>> float(phalanx.grad(triple_p.bind)(1.0))
      3.0
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            return y, zero_tangents(primitive, y)
        return y, primitive.bind(*map(instantiate, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def deflinear(primitive: Primitive, transpose_rule: Rule) -> None:
    """`deflinear2` with a transpose rule that does not receive the operands.

    Args:
      primitive: the primitive.
      transpose_rule: `rule(cotangent, **params)` returns a cotangent for each operand.
    """
    deflinear2(primitive, lambda y_bar, *operands, **params: transpose_rule(y_bar, **params))


def defbilinear(primitive: Primitive, lhs_rule: Rule, rhs_rule: Rule) -> None:
    """Register the derivative and the transpose of a primitive that is linear in each of its two operands.

    Args:
      primitive: the primitive.
      lhs_rule: `rule(cotangent, x, y, **params)` returns the cotangent of the first operand, which is
        `UndefinedPrimal`.
      rhs_rule: the same for the second one.

    Examples:
      >>> import phalanx
      >>> from phalanx.extend.core import Primitive
      >>> times_p = Primitive("times")
      >>> _ = times_p.def_impl(lambda x, y: x * y)
      >>> _ = times_p.def_abstract_eval(lambda x, y: x)
      >>> defbilinear(times_p, lambda ct, x, y: times_p.bind(ct, y), lambda ct, x, y: times_p.bind(x, ct))
      >>> [float(g) for g in phalanx.grad(times_p.bind, argnums=(0, 1))(2.0, 3.0)]
      [3.0, 2.0]
    """

    def transpose(y_bar: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if is_linear(x):
            return lhs_rule(y_bar, x, y, **params), None
        return None, rhs_rule(y_bar, x, y, **params)

    defjvp(
        primitive,
        lambda t, x, y, **params: primitive.bind(t, y, **params),
        lambda t, x, y, **params: primitive.bind(x, t, **params),
    )
    primitive_transposes[primitive] = transpose


def get_primitive_transpose(primitive: Primitive) -> Rule:
    """The transpose rule of a primitive.

    Args:
      primitive: the primitive.

    Returns:
      The rule, in the convention of `primitive_transposes`.

    Raises:
      RuleError: it has none.
    """
    if find_rule(primitive, "transpose") is None:
        primitive.transpose(None)  # which raises
    return primitive_transposes[primitive]


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents.

    Args:
      x, y: arrays or `Zero`s.

    Returns:
      The sum; a `Zero` if both are.

    Examples:
      >>> float(add_tangents(1.0, Zero.from_primal_value(1.0)))
      1.0
    """
    return _add(x, y)


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two arrays of one type.

    Args:
      x, y: the arrays.

    Returns:
      The sum.
    """
    return vector_space.add(x, y)


def zeros_like_aval(aval: ShapedArray) -> Any:
    """An array of zeros of a type.

    Args:
      aval: the type.

    Returns:
      The array.
    """
    return vector_space.zeros(aval)


def instantiate_zeros(tangent: Any) -> Any:
    """An array of zeros in place of a symbolic zero.

    Args:
      tangent: an array or a `Zero`.

    Returns:
      An array.

    Examples:
      >>> float(instantiate_zeros(Zero.from_primal_value(1.0)))
      0.0
    """
    return instantiate(tangent)


def is_undefined_primal(x: Any) -> bool:
    """Whether an operand of a transpose rule is the placeholder of a linear one, whose cotangent the rule returns.

    Args:
      x: the operand.

    Returns:
      True or False.
    """
    return is_linear(x)


def jvp_jaxpr(
    jaxpr: Jaxpr, nonzeros: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr that computes the outputs of a jaxpr and their tangents.

    Args:
      jaxpr: the jaxpr.
      nonzeros: for each input, whether it has a tangent.
      instantiate: for each output (or one bool for all), whether its tangent is computed even if it is zero.

    Returns:
      The jaxpr (inputs, their tangents) -> (outputs, their tangents), without the tangents that are zero, and for each
      output whether it has one.
    """
    return _jvp_jaxpr(jaxpr, tuple(nonzeros), instantiate)


def backward_pass(
    jaxpr: Jaxpr, transform_stack: Any, consts: Sequence[Any], primals_in: Sequence[Any], cotangents_in: Sequence[Any]
) -> list[Any]:
    """The cotangents of the linear inputs of a jaxpr.

    Args:
      jaxpr: a jaxpr that is linear in all inputs.
      transform_stack: not used.
      consts: the values of its constants.
      primals_in: an `UndefinedPrimal` for each input.
      cotangents_in: the cotangents of the outputs, arrays or `Zero`s.

    Returns:
      A cotangent, an array or a `Zero`, for each input.
    """
    return transpose_flat(jaxpr, consts, cotangents_in)
