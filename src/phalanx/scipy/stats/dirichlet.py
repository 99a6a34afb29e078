"""The Dirichlet distribution over shares that sum to 1. Builds on `scipy.special`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ShapeError
from phalanx.numpy.bodies import choose
from phalanx.numpy.joining import concatenate
from phalanx.numpy.operands import operand, promote_inexact
from phalanx.numpy.reductions import sum
from phalanx.numpy.shapes import reshape
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.special import gammaln, xlogy


@eager_program
def logpdf(x: Any, alpha: Any) -> Any:
    """The logarithm of the density of the Dirichlet distribution.

    Args:
      x: the shares, num[k, *batch], or without the last one num[k - 1, *batch].
      alpha: the concentrations, num[k].

    Returns:
      num[*batch]; -inf where the shares are negative or do not sum to 1.

    Raises:
      ShapeError: `alpha` is no vector, or `x` does not fit it.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import dirichlet
      >>> round(dirichlet.logpdf(jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])).item(), 4)
      0.4292
    """
    x, alpha = promote_inexact("stats.dirichlet", operand(x, "stats.dirichlet"), operand(alpha, "stats.dirichlet"))
    k = alpha.shape[0] if alpha.ndim == 1 else -1
    if x.ndim == 0 or x.shape[0] not in (k, k - 1):
        raise ShapeError(
            "stats.dirichlet", expected="concentrations [k] and shares of [k, ...] or [k - 1, ...]",
            got=f"{alpha.shape} and {x.shape}", mend="let the first dimension of x count the shares",
        )  # fmt: skip
    if x.shape[0] == k - 1:
        x = concatenate([x, 1 - sum(x, axis=0, keepdims=True)], 0)
    tolerance = max(10 * float(dtypes.finfo(x.dtype).eps) * k, 1e-6)
    inside = (lax.abs(sum(x, axis=0) - 1) < tolerance) & lax.reduce_and(x >= 0, (0,))
    column = reshape(alpha, (k,) + (1,) * (x.ndim - 1))
    safe = choose(lax.broadcast_in_dim(inside, x.shape, tuple(range(1, x.ndim))), x, 1.0)
    value = sum(xlogy(column - 1, safe), axis=0) - (sum(gammaln(alpha)) - gammaln(sum(alpha)))
    return choose(inside, value, -np.inf)


def pdf(x: Any, alpha: Any) -> Any:
    """The density of the Dirichlet distribution.

    Args:
      x, alpha: as in `logpdf`.

    Returns:
      num[*batch].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import dirichlet
      >>> round(dirichlet.pdf(jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])).item(), 4)
      1.536
    """
    return lax.exp(logpdf(x, alpha))
