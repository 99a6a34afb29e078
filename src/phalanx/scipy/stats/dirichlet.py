"""The Dirichlet distribution over vectors of probabilities. Builds on `scipy.special`."""

from __future__ import annotations

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, dtypes
from phalanx.numpy.operands import promote_inexact, to_operand
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.special import gammaln, xlogy
from phalanx.typing import Array, ArrayLike


@eager_jit
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The log density of the Dirichlet distribution.

    Args:
      x: vectors of probabilities, num[k, *batch], or without the last probability num[k - 1, *batch].
      alpha: the concentration parameters, num[k].

    Returns:
      num[*batch]; -inf if probabilities are negative or do not sum to 1.

    Raises:
      ShapeError: `alpha` is not a vector, or the first dimension of `x` does not match it.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import dirichlet
      >>> round(dirichlet.logpdf(jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])).item(), 4)
      0.4292
    """
    x, alpha = promote_inexact(
        "stats.dirichlet", to_operand(x, "stats.dirichlet"), to_operand(alpha, "stats.dirichlet")
    )
    k = alpha.shape[0] if alpha.ndim == 1 else -1
    if x.ndim == 0 or x.shape[0] not in (k, k - 1):
        raise ShapeError(
            "stats.dirichlet",
            expected="concentrations [k] and shares of [k, ...] or [k - 1, ...]",
            got=f"{alpha.shape} and {x.shape}",
            fix="pass x with the probabilities along its first dimension",
        )
    if x.shape[0] == k - 1:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)], 0)
    # Probabilities computed in floating point sum to 1 only up to rounding, which grows with k.
    tolerance = max(10 * float(dtypes.finfo(x.dtype).eps) * k, 1e-6)
    inside = (lax.abs(jnp.sum(x, axis=0) - 1) < tolerance) & lax.reduce_and(x >= 0, (0,))
    column = jnp.reshape(alpha, (k,) + (1,) * (x.ndim - 1))
    safe = select_where(lax.broadcast_in_dim(inside, x.shape, tuple(range(1, x.ndim))), x, 1.0)
    value = jnp.sum(xlogy(column - 1, safe), axis=0) - (jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha)))
    return select_where(inside, value, -np.inf)


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
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
