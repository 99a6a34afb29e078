"""Special functions that are algorithms of several steps: the decorator that turns an implementation into a public
function.

The decorator promotes and broadcasts the operands, computes in 32 bits at least, and writes the docstring. Series and
continued fractions that several functions share are defined here too. Builds on `numpy.operands`; `error_functions`,
`exponential_integrals` and `hypergeometric` call it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.docstrings import family
from phalanx.custom_rules import custom_jvp
from phalanx.numpy.operands import as_array, broadcast_operands, cast
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_real, to_inexact_operands
from phalanx.typing import Array, ArrayLike

_documented = family(
    """
    Args:
      {takes}

    Returns:
      {gives} for each element{shape}{outside}.

    Raises:
      DTypeError: {operand} is complex.

    Examples:
      >>> from phalanx.scipy import special
      >>> {call}
      {value}
    """
)


def elementwise(
    example: str, value: str, result: str = "The value", outside: str = "", **operands: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator of functions of real arrays of one shape and of one dtype of 32 or 64 bits.

    Args:
      example, value: the arguments of a call in the docstring, and its result, rounded to as many decimals.
      result: a description of the result.
      outside: the result outside of the domain, if it is not an error.
      **operands: descriptions of operands that are not just real numbers.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        name, signature = body.__name__, inspect.signature(body)
        has_one_operand, call = len(signature.parameters) == 1, f"special.{name}({example})"
        places = len(value.rstrip("]").rpartition(".")[2])
        _documented(
            takes="\n  ".join(f"{n}: {operands.get(n, 'real numbers')}." for n in signature.parameters),
            gives=result,
            shape="" if has_one_operand else ", in the broadcast shape",
            outside=outside and f"; {outside}",
            operand="`x`" if has_one_operand else "an operand",
            call=f"[round(v.item(), {places}) for v in {call}]" if "[" in value else f"round({call}.item(), {places})",
            value=value,
        )(body)

        @eager_jit
        def run(*args: ArrayLike) -> Any:
            xs = broadcast_operands(name, *to_inexact_operands(name, *args))
            dtype = dtypes.canonicalize_dtype(xs[0].dtype)
            check_real(name, xs[0])
            # Series of 16-bit terms would lose all accuracy; only the result is rounded to the dtype of the operands.
            wide = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
            out = body(*(as_array(cast(x, wide)) for x in xs))
            return tuple(cast(y, dtype) for y in out) if isinstance(out, tuple) else cast(out, dtype)

        @functools.wraps(body)
        def function(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
            return run(*(signature.bind(*args, **kwargs).args if kwargs else args))

        return function

    return decorate


def with_derivatives(*rules: Callable[..., Any] | None) -> Callable[[Callable[..., Any]], Any]:
    """Make a decorator that gives a function the rules `rule(tangent, y, *operands)`, one for each operand.

    None says that the derivative with respect to an operand is zero.
    """

    def decorate(f: Callable[..., Any]) -> Any:
        function = custom_jvp(f)
        function.defjvps(*rules)
        return function

    return decorate


def repeat(n: int, step: Callable[[Array, Any], Any], start: Any) -> Array:
    """Apply `step(k, state)` for k = 1, ..., n, with k in the dtype of the state.

    The number of steps is static, so the loop has a reverse-mode derivative too.
    """
    # k is converted to the real dtype of the state, so that no step promotes it.
    dtype = (start[0] if isinstance(start, tuple) else start).dtype
    real = np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype
    return lax.fori_loop(1, n + 1, lambda k, state: step(cast(k, real), state), start)


def sum_terms(n: int, ratio: Callable[[Array], Array], first: Array) -> Array:
    """Sum n + 1 terms of a series, where term k is `ratio(k)` times the one before it."""

    def step(k: Array, state: tuple) -> tuple:
        term = state[0] * ratio(k)
        return term, state[1] + term

    return repeat(n, step, (first, first))[1]


def evaluate_polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Evaluate a polynomial with the coefficient of the highest power first, by Horner's rule."""
    return functools.reduce(lambda total, c: total * x + c, coefficients[1:], lax.full_like(x, coefficients[0]))


def incomplete_gamma_fraction(a: float | Array, z: Array, terms: int) -> Array:
    """Gamma(a, z) z^-a exp(z) as the continued fraction 1/(z+1-a- 1(1-a)/(z+3-a- 2(2-a)/(z+5-a- ...))).

    It is evaluated from its last term (Source: DLMF 8.9.2).
    """

    def step(i: Array, tail: Array) -> Array:
        k = terms + 1 - i
        return k * (k - a) / (z + 2 * k + 1 - a - tail)

    return 1 / (z + 1 - a - repeat(terms, step, z * 0))
