"""`fwd_and_bwd`: the forward and the backward pass of a function as two compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import is_sequence
from phalanx.spmd.jit import jit
from phalanx.transforms import select_argnums, vjp
from phalanx.typing import PyTree


def fwd_and_bwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, jitted: bool = True) -> tuple:
    """Split `vjp` of a function into two functions, one for the forward and one for the backward pass.

    Args:
      fun: the function to differentiate.
      argnums: positions of the arguments to differentiate with respect to.
      has_aux: whether `fun` returns `(result, aux)`.
      jitted: whether to compile the two functions.

    Returns:
      `(forward, backward)`: `forward(*args)` returns `(result, residuals)`, and `backward(residuals, cotangent)`
      returns the cotangents of the arguments.

    Examples:
      >>> import phalanx
      >>> forward, backward = fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
      >>> z, residuals = forward(2.0, 3.0)
      >>> [float(x_bar) for x_bar in backward(residuals, 1.0)]
      [3.0, 2.0]
    """

    def forward(*args: Any) -> tuple:
        wanted, fill = select_argnums(args, argnums)
        return vjp(lambda *c: fun(*fill(c)), *wanted, has_aux=has_aux)

    def backward_half(residuals: Callable, cotangent: PyTree) -> Any:
        cts = residuals(cotangent)
        return cts if is_sequence(argnums) else cts[0]

    return (jit(forward), jit(backward_half)) if jitted else (forward, backward_half)
