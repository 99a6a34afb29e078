"""The discrete cosine transform and its inverse, with the names of `scipy.fft`.

A transform of length n is one Fourier transform of n reordered numbers. Builds on `numpy.fft`.

Source: Makhoul (1980), doi:10.1109/TASSP.1980.1163351.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, DTypeError, promotion
from phalanx.numpy.operands import as_tuple, canonical_axes, cast, to_static_int
from phalanx.numpy.shapes.padding import pad_or_truncate
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_inexact_array
from phalanx.typing import Array, ArrayLike

_INVERSE = {2: 3, 3: 2}
_OTHER_NORM = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete cosine transform along an axis.

    Args:
      x: real numbers.
      type: 2, or its inverse 3.
      n: the length of the transform; `x` is truncated or padded with zeros. The size of the axis by default.
      axis: the axis.
      norm: `"backward"` (also None), `"ortho"`, or `"forward"` to divide by 2 n.

    Returns:
      The transform, with `n` elements along the axis. Element k of type 2 is twice the sum of x[j] cos(pi k (2 j + 1) /
      (2 n)).

    Raises:
      ArgumentError: `type` or `norm` is unknown, or `n` is below 1.
      AxisError: the axis is out of bounds.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.dct(jnp.ones(2)).round(4).tolist()
      [4.0, 0.0]
    """
    return _transform("dct", x, type, None if n is None else (n,), (axis,), norm)


def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `dct`.

    Args:
      x, type, n, axis, norm: as in `dct`, except that `"backward"` divides by 2 n.

    Returns:
      The inverse transform, with `n` elements along the axis.

    Raises:
      ArgumentError: `type` or `norm` is unknown, or `n` is below 1.
      AxisError: the axis is out of bounds.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.idct(jnp.array([4.0, 0.0])).tolist()
      [1.0, 1.0]
    """
    return _transform("idct", x, type, None if n is None else (n,), (axis,), norm)


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The discrete cosine transform along several axes.

    Args:
      x, type, norm: as in `dct`.
      s: the length of the transform along each axis.
      axes: the axes. By default all axes, or the last `len(s)` axes if `s` is given.

    Returns:
      The transform, with the given lengths along the axes.

    Raises:
      ArgumentError: `type` or `norm` is unknown, or a length is below 1.
      AxisError: the axis is out of bounds.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.dctn(jnp.ones((1, 2))).round(4).tolist()
      [[8.0, 0.0]]
    """
    return _transform("dctn", x, type, as_tuple(s), as_tuple(axes), norm)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`.

    Args:
      x, type, s, axes, norm: as in `dctn`.

    Returns:
      The transform, with the given lengths along the axes.

    Raises:
      ArgumentError: `type` or `norm` is unknown, or a length is below 1.
      AxisError: the axis is out of bounds.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.idctn(jnp.array([[8.0, 0.0]])).tolist()
      [[1.0, 1.0]]
    """
    return _transform("idctn", x, type, as_tuple(s), as_tuple(axes), norm)


@eager_jit(static_argnames=("name", "type", "s", "axes", "norm"))
def _transform(name: str, x: ArrayLike, type: int, s: tuple | None, axes: tuple | None, norm: str | None) -> Any:
    where = f"fft.{name}"
    check_choice(where, "type", type, tuple(_INVERSE))
    check_choice(where, "norm", norm, tuple(_OTHER_NORM))
    x = to_inexact_array(where, x)
    if x.dtype.kind == "c":
        raise DTypeError(where, expected="real numbers", got=str(x.dtype), fix="transform x.real and x.imag separately")
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    axes = canonical_axes(axes, x.ndim, where)
    lengths = [x.shape[i] for i in axes] if s is None else [to_static_int(n, f"{where}, argument s") for n in s]
    if len(lengths) != len(axes) or any(n < 1 for n in lengths):
        raise ArgumentError(
            f"{where}, argument s",
            expected=f"{len(axes)} lengths of 1 or more",
            got=lengths,
            fix="pass one positive length for each axis",
        )
    # Types 2 and 3 are inverse to each other up to the factor 2 n, which the opposite norm accounts for.
    if name.startswith("i"):
        type, norm = _INVERSE[type], _OTHER_NORM[norm]
    # A multidimensional transform is separable: one transform along each axis.
    for i, n in zip(axes, lengths, strict=True):
        y = pad_or_truncate(jnp.moveaxis(x, i, -1), [n])
        x = jnp.moveaxis((_type_2 if type == 2 else _type_3)(y, n, norm), -1, i)
    return x


def _quarter_wave(x: Array, n: int, sign: int) -> Any:
    wave = np.exp(sign * 0.5j * np.pi * np.arange(n) / n).astype(promotion.join_dtypes(x.dtype, np.complex64))
    return wave.reshape((1,) * (x.ndim - 1) + (n,))


def _ortho_scale(x: Array, n: int, first: float, others: float) -> np.ndarray:
    return np.where(np.arange(n) == 0, first, others).astype(x.dtype).reshape((1,) * (x.ndim - 1) + (n,))


def _type_2(x: Array, n: int, norm: str | None) -> Any:
    # Even elements in order, then odd ones in reverse: the DFT of this sequence, rotated by quarter waves, is the DCT.
    reordered = lax.concatenate([x[..., ::2], lax.rev(x[..., 1::2], (x.ndim - 1,))], x.ndim - 1)
    y = cast(2 * lax.real(jnp.fft.fft(reordered) * _quarter_wave(x, n, -1)), x.dtype)
    if norm == "ortho":
        return y * _ortho_scale(y, n, math.sqrt(1 / (4 * n)), math.sqrt(1 / (2 * n)))
    return y / (2 * n) if norm == "forward" else y


def _type_3(x: Array, n: int, norm: str | None) -> Any:
    """The inverse of `_type_2` times 2 n."""
    if norm == "ortho":
        x = x * _ortho_scale(x, n, math.sqrt(1 / n), math.sqrt(1 / (2 * n)))
    elif norm == "forward":
        x = x / (2 * n)
    mirrored = lax.pad(lax.rev(x[..., 1:], (x.ndim - 1,)), x.dtype.type(0), [(0, 0, 0)] * (x.ndim - 1) + [(1, 0, 0)])
    # There is no complex type of 16 bits, so narrow dtypes are transformed in complex64.
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    z = lax.complex(cast(x, wide), -cast(mirrored, wide)) * _quarter_wave(x, n, 1)
    v = cast(lax.real(jnp.fft.ifft(z)), x.dtype) * n
    # The inverse of the reordering in `_type_2`: even elements from the front, odd ones from the back in reverse.
    half = (n + 1) // 2
    front, back = v[..., :half], pad_or_truncate(lax.rev(v[..., half:], (v.ndim - 1,)), [half])
    return lax.reshape(jnp.stack([front, back], -1), (*v.shape[:-1], 2 * half))[..., :n]
