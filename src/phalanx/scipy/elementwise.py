"""Special functions that are algorithms: operands brought to one dtype and shape, and computed in 32 bits at least.

Builds on `numpy.operands`; the files of algorithms call it, and `special` shows what they make.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.docstrings import family
from phalanx.core.errors import DTypeError
from phalanx.numpy.operands import as_array, broadcast_operands, cast, operand, promote_inexact
from phalanx.runtime.dispatch import eager_program

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


def elementwise(example: str, value: str, gives: str = "The value", outside: str = "", **operands: str) -> Callable:
    """Make the decorator of a body that takes real arrays of one shape, in 32 or 64 bits: its public function.

    Args:
      example, value: the arguments of a call, and what it gives, to as many places.
      gives: what it gives.
      outside: what it gives outside of its domain.
      **operands: what an operand is, where it is not just real numbers.
    """
    return functools.partial(_public, example, value, gives, outside, operands)


def _public(example: str, value: str, gives: str, outside: str, operands: dict, body: Callable) -> Callable:
    name, signature = body.__name__, inspect.signature(body)
    is_alone, call = len(signature.parameters) == 1, f"special.{name}({example})"
    places = len(value.rstrip("]").rpartition(".")[2])
    _documented(
        takes="\n  ".join(f"{n}: {operands.get(n, 'real numbers')}." for n in signature.parameters),
        gives=gives,
        shape="" if is_alone else ", in the broadcast shape",
        outside=outside and f"; {outside}",
        operand="`x`" if is_alone else "an operand",
        call=f"[round(v.item(), {places}) for v in {call}]" if "[" in value else f"round({call}.item(), {places})",
        value=value,
    )(body)

    @eager_program
    def run(*args: Any) -> Any:
        xs = broadcast_operands(name, *promote_inexact(name, *(operand(x, name) for x in args)))
        dtype = dtypes.canonicalize_dtype(xs[0].dtype)
        if dtype.kind == "c":
            raise DTypeError(name, expected="real numbers", got=str(dtype), mend="take the real part")
        wide = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
        out = body(*(as_array(cast(x, wide)) for x in xs))
        return tuple(cast(y, dtype) for y in out) if isinstance(out, tuple) else cast(out, dtype)

    @functools.wraps(body)
    def function(*args: Any, **given: Any) -> Any:
        out = run(*(signature.bind(*args, **given).args if given else args))
        return tuple(out) if isinstance(out, list | tuple) else out

    return function


def times(n: int, step: Callable, start: Any) -> Any:
    """`step(k, state)` for k = 1 .. n, k in the dtype of the state: a loop that can be differentiated both ways."""
    dtype = (start[0] if isinstance(start, tuple) else start).dtype
    real = np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype
    return lax.fori_loop(1, n + 1, lambda k, state: step(cast(k, real), state), start)


def polynomial(coefficients: Any, x: Any) -> Any:
    """The polynomial whose coefficients are given from the highest power, by Horner's rule."""
    total = lax.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def gamma_fraction(a: Any, z: Any, terms: int) -> Any:
    """Gamma(a, z) z^-a exp(z): 1/(z+1-a- 1(1-a)/(z+3-a- 2(2-a)/(z+5-a- ...))), from its end (Source: DLMF 8.9.2)."""

    def step(i: Any, tail: Any) -> Any:
        k = terms + 1 - i
        return k * (k - a) / (z + 2 * k + 1 - a - tail)

    return 1 / (z + 1 - a - times(terms, step, z * 0))
