"""Vector quantisation, with the names of `scipy.cluster.vq`."""

from __future__ import annotations

from typing import Any

from phalanx import lax
from phalanx.core.errors import ShapeError
from phalanx.engine.frames import guard as _guard
from phalanx.numpy.operands import operand, promote_inexact
from phalanx.numpy.reductions import argmin, min
from phalanx.numpy.reductions import sum as _sum
from phalanx.runtime.dispatch import eager_program


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple:
    """For each observation the nearest code, and how far it is.

    Args:
      obs: observations, num[m, dims], or num[m] in one dimension.
      code_book: codes, num[k, dims], or num[k].
      check_finite: a permission that changes nothing.

    Returns:
      (which code, int[m]; the distances, float[m]).

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.cluster.vq import vq
      >>> vq(jnp.array([1.0, 9.0]), jnp.array([0.0, 10.0]))[0].tolist()
      [0, 1]
    """
    del check_finite
    return tuple(_vq(obs, code_book))


@eager_program
def _vq(obs: Any, code_book: Any) -> tuple:
    x, codes = promote_inexact("cluster.vq", operand(obs, "cluster.vq"), operand(code_book, "cluster.vq"))
    if x.ndim != codes.ndim or x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] != codes.shape[1]):
        raise ShapeError("cluster.vq", expected="two vectors, or matrices with as many columns",
                         got=f"{x.shape} and {codes.shape}", mend="let rows be observations and codes")  # fmt: skip
    if x.ndim == 1:
        x, codes = lax.expand_dims(x, (1,)), lax.expand_dims(codes, (1,))
    squares = _sum(lax.square(lax.expand_dims(x, (1,)) - lax.expand_dims(codes, (0,))), axis=-1)
    return argmin(squares, axis=1), lax.sqrt(min(squares, axis=1))


_guard(globals())
