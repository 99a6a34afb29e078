"""The multinomial distribution of counts. Builds on `scipy.special`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.numpy.bodies import choose
from phalanx.numpy.operands import operand, promote_inexact
from phalanx.numpy.reductions import all, sum
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.special import gammaln, xlogy


@eager_program
def logpmf(x: Any, n: Any, p: Any) -> Any:
    """The logarithm of the probability of the multinomial distribution.

    Args:
      x: the counts, num[*batch, k].
      n: the number of trials, broadcasting with the batch.
      p: the probabilities, num[*batch, k].

    Returns:
      num[*batch]; -inf where the counts are no whole numbers from 0 that sum to `n`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import multinomial
      >>> round(multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.5, 0.5])).item(), 4)
      -0.9808
    """
    x, n, p = promote_inexact("stats.multinomial", *(operand(v, "stats.multinomial") for v in (x, n, p)))
    inside = all((x >= 0) & (x == lax.floor(x)), axis=-1) & (sum(x, axis=-1) == n)
    value = gammaln(n + 1) + sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return choose(lax.broadcast_in_dim(inside, np.shape(value), ()) if not inside.ndim else inside, value, -np.inf)


def pmf(x: Any, n: Any, p: Any) -> Any:
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
