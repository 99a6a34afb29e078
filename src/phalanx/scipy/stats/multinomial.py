"""The multinomial distribution. Builds on `scipy.special`."""

from __future__ import annotations

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.numpy.operands import align_ranks
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_inexact_operands
from phalanx.scipy.special import gammaln, xlogy
from phalanx.typing import Array, ArrayLike


@eager_jit
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The log probability of the multinomial distribution.

    Args:
      x: the counts, num[*batch, k].
      n: the number of trials, broadcasting with the batch.
      p: the probabilities, num[*batch, k].

    Returns:
      num[*batch]; -inf if the counts are not nonnegative integers that sum to `n`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multinomial
      >>> round(multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.5, 0.5])).item(), 4)
      -0.9808
    """
    x, n, p = to_inexact_operands("stats.multinomial", x, n, p)
    inside = jnp.all((x >= 0) & (x == lax.floor(x)), axis=-1) & (jnp.sum(x, axis=-1) == n)
    value = gammaln(n + 1) + jnp.sum(xlogy(*align_ranks(x, p)) - gammaln(x + 1), axis=-1)
    return select_where(
        lax.broadcast_in_dim(inside, np.shape(value), ()) if not inside.ndim else inside, value, -np.inf
    )


def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The probability of the multinomial distribution.

    Args:
      x, n, p: as in `logpmf`.

    Returns:
      num[*batch].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multinomial
      >>> round(multinomial.pmf(jnp.array([1, 2]), 3, jnp.array([0.5, 0.5])).item(), 4)
      0.375
    """
    return lax.exp(logpmf(x, n, p))
