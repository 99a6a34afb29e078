"""Convolution and correlation of vectors."""

from __future__ import annotations

from typing import Any

from phalanx import lax
from phalanx.core import ShapeError, dtypes, promotion
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.numpy.operands import cast, check_choice, promote, to_operand
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike


def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Discrete linear convolution of two vectors.

    Args:
      a, v: vectors.
      mode: `"full"`, `"same"` or `"valid"`.
      precision: precision of the products, as in `lax.conv`.
      preferred_element_type: dtype of the accumulator and of the result.

    Returns:
      A vector of m + n - 1 elements (`"full"`), max(m, n) elements (`"same"`), or the max(m, n) - min(m, n) + 1
      elements of full overlap (`"valid"`). Integers are converted to floating point.

    Raises:
      ArgumentError: `mode` is unknown.
      ShapeError: an operand is not a vector, or is empty.

    Examples:
      >>> jnp.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
      [1.0, 3.0, 2.0]
    """
    return _convolve("convolve", a, v, mode, precision, preferred_element_type)


def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Cross-correlation of two vectors, with the second one conjugated.

    Args:
      a, v, mode, precision, preferred_element_type: as in `convolve`.

    Returns:
      A vector of the same length and dtype as the result of `convolve`.

    Raises:
      ArgumentError: `mode` is unknown.
      ShapeError: an operand is not a vector, or is empty.

    Examples:
      >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0])).tolist()
      [2.0, 3.0]
    """
    return _convolve("correlate", a, v, mode, precision, preferred_element_type)


@eager_jit(static_argnames=("name", "mode", "precision", "preferred"))
def _convolve(name: str, a: Array, v: Array, mode: str, precision: PrecisionLike, preferred: DTypeLike | None) -> Any:
    check_choice(f"{name}, argument mode", mode, ("full", "same", "valid"))
    x, y = promote(name, to_operand(a, name), to_operand(v, name))
    if x.ndim != 1 or y.ndim != 1 or 0 in (x.shape[0], y.shape[0]):
        raise ShapeError(
            name,
            expected="vectors that are not empty",
            got=f"shapes {x.shape} and {y.shape}",
            fix="pass two non-empty vectors, for example after .ravel()",
        )
    own = x.dtype
    if own.kind in "biu":
        x, y = (cast(z, dtypes.to_inexact_dtype(own)) for z in (x, y))
    swap = x.shape[0] < y.shape[0]
    y = lax.conj(y) if name == "correlate" and own.kind == "c" else y
    # The longer operand is the input and the shorter one the kernel: convolution is symmetric.
    x, y = (y, x) if swap else (x, y)
    # XLA's convolution is a correlation: a convolution reverses the kernel, and a correlation whose operands were
    # exchanged reverses its result.
    kernel = lax.rev(y, (0,)) if name == "convolve" else y
    preferred = None if preferred is None else dtypes.canonicalize_dtype(preferred)
    is_narrower = preferred is not None and promotion.join_dtypes(preferred, x.dtype) != preferred
    n = y.shape[0]
    pads = {"full": (n - 1, n - 1), "valid": (0, 0), "same": (n // 2, n - n // 2 - 1)}[mode]
    out = lax.conv_general_dilated(
        x[None, None, :],
        kernel[None, None, :],
        (1,),
        [pads],
        precision=precision,
        # A dtype that cannot hold the sums, such as that of small integers, is the dtype of the result only.
        preferred_element_type=None if is_narrower else preferred,
    )[0, 0]
    out = cast(out, preferred) if is_narrower else out
    return lax.rev(out, (0,)) if name == "correlate" and swap else out
