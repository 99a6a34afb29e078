"""The forward and backward halves of a function's derivative, as two compiled functions.

Builds on `transforms.autodiff` and `jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.spmd.jit import jit
from phalanx.transforms.autodiff import choose, is_sequence, vjp


def fwd_and_bwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, jitted: bool = True) -> tuple:
    """The forward and backward halves of `vjp` as two functions.

    Args:
      fun: a function.
      argnums: the arguments whose cotangents are wanted.
      has_aux: whether `fun` returns `(result, aux)`.
      jitted: whether the two are compiled.

    Returns:
      `(forward, backward)`: `forward(*args)` gives `(result, residuals)`, `backward(residuals, cotangent)` the
      cotangents.

    Examples:
      >>> import phalanx
      >>> forward, backward = fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
      >>> z, residuals = forward(2.0, 3.0)
      >>> [float(x_bar) for x_bar in backward(residuals, 1.0)]
      [3.0, 2.0]
    """

    def forward(*args: Any) -> tuple:
        wanted, fill = choose(args, argnums)
        return vjp(lambda *c: fun(*fill(c)), *wanted, has_aux=has_aux)

    def backward_half(residuals: Callable, cotangent: Any) -> Any:
        cts = residuals(cotangent)
        return cts if is_sequence(argnums) else cts[0]

    return (jit(forward), jit(backward_half)) if jitted else (forward, backward_half)
