"""Vector quantization with the names of `scipy.cluster.vq`."""

from __future__ import annotations

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError
from phalanx.engine.public_namespace import publish as _publish
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_inexact_operands
from phalanx.typing import ArrayLike


@eager_jit(static_argnames=("check_finite",))
def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple:
    """Assign each observation to the nearest code of a code book.

    Args:
      obs: observations, num[m, dims], or num[m] in one dimension.
      code_book: codes, num[k, dims], or num[k].
      check_finite: accepted for compatibility with SciPy, and ignored.

    Returns:
      (the index of the nearest code, int[m]; its distance, float[m]).

    Raises:
      ShapeError: the number of dimensions or columns differs.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.cluster.vq import vq
      >>> vq(jnp.array([1.0, 9.0]), jnp.array([0.0, 10.0]))[0].tolist()
      [0, 1]
    """
    x, codes = to_inexact_operands("cluster.vq", obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] != codes.shape[1]):
        raise ShapeError(
            "cluster.vq",
            expected="two vectors, or matrices with as many columns",
            got=f"{x.shape} and {codes.shape}",
            fix="pass obs of shape [m, n] and code_book of shape [k, n], or two vectors",
        )
    if x.ndim == 1:
        x, codes = lax.expand_dims(x, (1,)), lax.expand_dims(codes, (1,))
    # All pairs at once: [m, 1, n] - [1, k, n].
    squares = jnp.sum(lax.square(lax.expand_dims(x, (1,)) - lax.expand_dims(codes, (0,))), axis=-1)
    # The square root is monotonic, so only the smallest square needs one.
    return jnp.argmin(squares, axis=1), lax.sqrt(jnp.min(squares, axis=1))


__getattr__, __dir__ = _publish(globals())
