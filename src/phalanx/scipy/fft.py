"""The discrete cosine transform, with the names of `scipy.fft`.

By one Fourier transform of the reordered numbers. Builds on `numpy.fft`.

Source: Makhoul (1980), doi:10.1109/TASSP.1980.1163351.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import promotion
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.engine.frames import guard as _guard
from phalanx.numpy.fft import fft, ifft
from phalanx.numpy.operands import as_array, as_tuple, canonical_axes, cast, integer, operand, promote_inexact
from phalanx.numpy.padding import resized
from phalanx.numpy.shapes import moveaxis
from phalanx.runtime.dispatch import eager_program

_INVERSE = {2: 3, 3: 2}
_OTHER_NORM = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The discrete cosine transform along an axis.

    Args:
      x: real numbers.
      type: 2, or its inverse 3.
      n: how many elements are transformed; `x` is cut or filled with zeros.
      axis: the axis.
      norm: `"backward"` (also None), `"ortho"`, or `"forward"` to divide by 2 n.

    Returns:
      Numbers of that length along the axis; of type 2, twice the sum of x[j] cos(pi k (2 j + 1) / (2 n)).

    Raises:
      ArgumentError: there is no such type or norm, or `n` is below 1.
      AxisError: there is no such axis.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.dct(jnp.ones(2)).round(4).tolist()
      [4.0, 0.0]
    """
    return _transform("dct", x, type, None if n is None else (n,), (axis,), norm)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `dct`.

    Args:
      x, type, n, axis, norm: as in `dct`; `"backward"` divides by 2 n here.

    Returns:
      Numbers of that length along the axis.

    Raises:
      ArgumentError: there is no such type or norm, or `n` is below 1.
      AxisError: there is no such axis.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.idct(jnp.array([4.0, 0.0])).tolist()
      [1.0, 1.0]
    """
    return _transform("idct", x, type, None if n is None else (n,), (axis,), norm)


def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """The discrete cosine transform along several axes.

    Args:
      x, type, norm: as in `dct`.
      s: how many elements are transformed along each axis.
      axes: the axes, all (or the last, as many as `s` has) by default.

    Returns:
      Numbers of those lengths along the axes.

    Raises:
      ArgumentError: there is no such type or norm, or a length is below 1.
      AxisError: there is no such axis.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.dctn(jnp.ones((1, 2))).round(4).tolist()
      [[8.0, 0.0]]
    """
    return _transform("dctn", x, type, as_tuple(s), as_tuple(axes), norm)


def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Any:
    """The inverse of `dctn`.

    Args:
      x, type, s, axes, norm: as in `dctn`.

    Returns:
      Numbers of those lengths along the axes.

    Raises:
      ArgumentError: there is no such type or norm, or a length is below 1.
      AxisError: there is no such axis.
      DTypeError: `x` is complex.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import fft
      >>> fft.idctn(jnp.array([[8.0, 0.0]])).tolist()
      [[1.0, 1.0]]
    """
    return _transform("idctn", x, type, as_tuple(s), as_tuple(axes), norm)


@eager_program(static_argnames=("name", "type", "s", "axes", "norm"))
def _transform(name: str, x: Any, type: int, s: tuple | None, axes: tuple | None, norm: str | None) -> Any:
    where = f"fft.{name}"
    for argument, known, got in (("type", tuple(_INVERSE), type), ("norm", tuple(_OTHER_NORM), norm)):
        if got not in known:
            raise ArgumentError(f"{where}, argument {argument}", expected=" or ".join(map(repr, known)), got=repr(got),
                                mend="use one of these")  # fmt: skip
    (x,) = promote_inexact(where, as_array(operand(x, where)))
    if x.dtype.kind == "c":
        raise DTypeError(where, expected="real numbers", got=str(x.dtype), mend="transform both parts")
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    axes = canonical_axes(axes, x.ndim, where)
    lengths = [x.shape[i] for i in axes] if s is None else [integer(n, f"{where}, argument s") for n in s]
    if len(lengths) != len(axes) or any(n < 1 for n in lengths):
        raise ArgumentError(f"{where}, argument s", expected=f"{len(axes)} lengths of 1 or more", got=lengths,
                            mend="give one for each axis")  # fmt: skip
    if name.startswith("i"):
        type, norm = _INVERSE[type], _OTHER_NORM[norm]
    for i, n in zip(axes, lengths, strict=True):
        y = resized(moveaxis(x, i, -1), [n])
        x = moveaxis((_type_2 if type == 2 else _type_3)(y, n, norm), -1, i)
    return x


def _turns(x: Any, n: int, sign: int) -> Any:
    kind = promotion.result_type(x, np.complex64)
    return np.exp(sign * 0.5j * np.pi * np.arange(n) / n).astype(kind)


def _edges(n: int, first: float, others: float, dtype: Any) -> np.ndarray:
    return np.where(np.arange(n) == 0, first, others).astype(dtype)


def _type_2(x: Any, n: int, norm: str | None) -> Any:
    reordered = lax.concatenate([x[..., ::2], lax.rev(x[..., 1::2], (x.ndim - 1,))], x.ndim - 1)
    y = 2 * lax.real(fft(reordered) * _turns(x, n, -1))
    y = cast(y, x.dtype)
    if norm == "ortho":
        return y * _edges(n, math.sqrt(1 / (4 * n)), math.sqrt(1 / (2 * n)), x.dtype)
    return y / (2 * n) if norm == "forward" else y


def _type_3(x: Any, n: int, norm: str | None) -> Any:
    """2 n times the inverse of `_type_2`."""
    if norm == "ortho":
        x = x * _edges(n, math.sqrt(1 / n), math.sqrt(1 / (2 * n)), x.dtype)
    elif norm == "forward":
        x = x / (2 * n)
    mirrored = lax.pad(lax.rev(x[..., 1:], (x.ndim - 1,)), x.dtype.type(0), [(0, 0, 0)] * (x.ndim - 1) + [(1, 0, 0)])
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    z = lax.complex(cast(x, wide), -cast(mirrored, wide)) * _turns(x, n, 1)
    v = cast(lax.real(ifft(z)), x.dtype) * n
    half = (n + 1) // 2
    front, back = v[..., :half], lax.rev(v[..., half:], (v.ndim - 1,))
    pairs = [(0, 0, 0)] * (v.ndim - 1)
    zero = v.dtype.type(0)
    if n == 1:
        return front
    return lax.pad(front, zero, [*pairs, (0, 1 - n % 2, 1)]) + lax.pad(back, zero, [*pairs, (1, n % 2, 1)])


_guard(globals())
