"""Fourier transforms: `numpy.fft`.

Built on `lax.fft`, which transforms up to three trailing dimensions at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.errors import ArgumentError, AxisError
from phalanx.engine.frames import guard as _guard
from phalanx.numpy.creation import array
from phalanx.numpy.operands import as_tuple, canonical_axes, cast, integer, operand, promote_inexact
from phalanx.numpy.padding import resized
from phalanx.numpy.ranges import arange
from phalanx.numpy.shapes import moveaxis, roll
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic

_static = eager_program(static_argnames=("name", "kind", "s", "axes", "norm", "n", "axis"))


def _scale(norm: str | None, lengths: Sequence[int], inverse: bool, name: str) -> float:
    """The factor a norm asks for, beside what the transform does by itself."""
    n = math.prod(lengths)
    if norm in (None, "backward"):
        return 1.0
    if norm == "ortho":
        return math.sqrt(n) if inverse else 1 / math.sqrt(n)
    if norm == "forward":
        return float(n) if inverse else 1 / n
    raise ArgumentError(
        f"fft.{name}, argument norm", expected="'backward', 'ortho' or 'forward'", got=repr(norm), mend="use one"
    )


@_static
def _transform(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    x = operand(a, f"fft.{name}")
    if kind == "RFFT" and x.dtype.kind == "c":
        raise ArgumentError(
            f"fft.{name}", expected="real numbers", got=str(x.dtype), mend="use fft, or take the real part"
        )
    (x,) = promote_inexact(f"fft.{name}", x)
    x = cast(x, np.dtype(np.float32)) if x.dtype.itemsize < 4 else x
    if axes is None:
        axes = tuple(range(x.ndim - len(s), x.ndim)) if s is not None else tuple(range(x.ndim))
    axes = canonical_axes(axes, x.ndim, f"fft.{name}")
    if not axes:
        return cast(x, x.dtype if kind == "RFFT" else promotion.result_type(x, np.complex64))
    if len(axes) > 3:
        return _many(name, kind, x, s, axes, norm)
    trailing = tuple(range(x.ndim - len(axes), x.ndim))
    moved = axes != trailing
    x = moveaxis(x, axes, trailing) if moved else x
    lengths = [x.shape[i] for i in trailing] if s is None else [integer(n, f"fft.{name}, argument s") for n in s]
    if len(lengths) != len(axes):
        raise ArgumentError(
            f"fft.{name}, argument s", expected=f"{len(axes)} lengths", got=s, mend="give one for each axis"
        )
    if s is None and kind == "IRFFT":
        lengths[-1] = 2 * (lengths[-1] - 1)
    if any(not is_symbolic(n) and n < 1 for n in lengths):
        raise ArgumentError(f"fft.{name}", expected="lengths of 1 or more", got=tuple(lengths), mend="give s= or n=")
    taken = [n // 2 + 1 if kind == "IRFFT" and i == len(lengths) - 1 else n for i, n in enumerate(lengths)]
    x = resized(x, taken)
    if kind != "RFFT" and x.dtype.kind != "c":
        x = cast(x, promotion.result_type(x, np.complex64))
    y = lax.fft(x, kind, tuple(lengths))
    factor = _scale(norm, lengths, kind in ("IFFT", "IRFFT"), name)
    y = y * y.dtype.type(factor) if factor != 1.0 else y
    return moveaxis(y, trailing, axes) if moved else y


def _many(name: str, kind: str, x: Any, s: Any, axes: tuple, norm: str | None) -> Any:
    """Over more than three axes: three by three; the real one is the last, and comes first for a real transform."""
    s = None if s is None else tuple(s)
    split = -3
    last, first = axes[split:], axes[:split]
    s_last, s_first = (None, None) if s is None else (s[split:], s[:split])
    if kind == "IRFFT":
        x = _transform(name, "IFFT", x, s_first, first, norm)
        return _transform(name, kind, x, s_last, last, norm)
    x = _transform(name, kind, x, s_last, last, norm)
    return _transform(name, "IFFT" if kind == "IFFT" else "FFT", x, s_first, first, norm)


def _one(name: str, kind: str, a: Any, n: Any, axis: Any, norm: str | None) -> Any:
    if isinstance(axis, tuple | list):
        raise AxisError(f"fft.{name}, argument axis", expected="one axis", got=axis, mend=f"use fft.{name}n")
    return _transform(name, kind, a, None if n is None else (integer(n, f"fft.{name}, argument n"),), (axis,), norm)


_DOC = """{doc}

    Args:
      {args}
      norm: `"backward"`, `"ortho"` or `"forward"`: where the factors 1/n go.

    Returns:
      {gives}

    Raises:
      ArgumentError: an argument has a value that is not taken.
      AxisError: there is no such axis.

    Examples:
      >>> {example}
      {result}
    """


# What transforms between complex numbers give, those of real ones, and those to real ones.
_GIVES = {
    "": "Complex numbers in the shape of `a`, but for the lengths that are given.",
    "r": "Complex numbers: along the last of the axes the n // 2 + 1 whose frequencies are not negative.",
    "ir": "Real numbers: along the last of the axes as many as is said, or 2 (m - 1) for the m of `a`.",
}


def _documented(function: Any, many: bool, example: str, result: str) -> None:
    is_of_real = function.__name__ in ("rfft", "ihfft", "rfftn", "rfft2")
    is_to_real = function.__name__ in ("irfft", "hfft", "irfftn", "irfft2")
    cut = (
        " of the result, for which `a` is cut or filled with zeros" if is_to_real else ", to cut or fill with zeros to"
    )
    args = [
        f"a: {'real numbers' if is_of_real else 'numbers'}.",
        f"{'s: the length along each axis' if many else 'n: the length'}{cut}.",
        "axes: along which to transform; if None the last ones, as many as lengths, or all."
        if many
        else "axis: along which to transform.",
    ]
    function.__doc__ = _DOC.format(
        doc=function.__doc__, args="\n      ".join(args), example=example, result=result,
        gives=_GIVES["ir" if is_to_real else "r" if is_of_real else ""],
    )  # fmt: skip


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The discrete Fourier transform along an axis."""
    return _one("fft", "FFT", a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`."""
    return _one("ifft", "IFFT", a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform of real numbers, whose second half says nothing new."""
    return _one("rfft", "RFFT", a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`."""
    return _one("irfft", "IRFFT", a, n, axis, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real transform of numbers with Hermitian symmetry."""
    (x,) = promote_inexact("fft.hfft", operand(a, "fft.hfft"))
    return _one("hfft", "IRFFT", lax.conj(cast(x, promotion.result_type(x, np.complex64))), n, axis, _swapped(norm))


def _swapped(norm: str | None) -> str | None:
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`."""
    return lax.conj(_one("ihfft", "RFFT", array(a) if isinstance(a, list | tuple) else a, n, axis, _swapped(norm)))


def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform along several axes."""
    return _transform("fftn", "FFT", a, as_tuple(s), as_tuple(axes), norm)


def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`."""
    return _transform("ifftn", "IFFT", a, as_tuple(s), as_tuple(axes), norm)


def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform of real numbers along several axes."""
    return _transform("rfftn", "RFFT", a, as_tuple(s), as_tuple(axes), norm)


def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`."""
    return _transform("irfftn", "IRFFT", a, as_tuple(s), as_tuple(axes), norm)


def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform along two axes."""
    return _transform("fft2", "FFT", a, as_tuple(s), as_tuple(axes), norm)


def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `fft2`."""
    return _transform("ifft2", "IFFT", a, as_tuple(s), as_tuple(axes), norm)


def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform of real numbers along two axes."""
    return _transform("rfft2", "RFFT", a, as_tuple(s), as_tuple(axes), norm)


def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `rfft2`."""
    return _transform("irfft2", "IRFFT", a, as_tuple(s), as_tuple(axes), norm)


_documented(fft, False, "jnp.fft.fft(jnp.ones(2)).tolist()", "[(2+0j), 0j]")
_documented(ifft, False, "jnp.fft.ifft(jnp.ones(2)).tolist()", "[(1+0j), 0j]")
_documented(rfft, False,
            "jnp.fft.rfft(jnp.ones(4)).tolist()", "[(4+0j), 0j, 0j]")  # fmt: skip
_documented(irfft, False, "jnp.fft.irfft(jnp.fft.rfft(jnp.ones(2))).tolist()", "[1.0, 1.0]")
_documented(hfft, False, "jnp.fft.hfft(jnp.ones(2)).tolist()",
            "[2.0, 0.0]")  # fmt: skip
_documented(ihfft, False, "jnp.fft.ihfft(jnp.ones(2)).shape", "(2,)")
_documented(fftn, True, "jnp.fft.fftn(jnp.ones((2, 2)))[0, 0].item()", "(4+0j)")
_documented(ifftn, True, "jnp.fft.ifftn(jnp.ones((2, 2)))[0, 0].item()", "(1+0j)")
_documented(rfftn, True, "jnp.fft.rfftn(jnp.ones((2, 2))).shape", "(2, 2)")
_documented(irfftn, True, "jnp.fft.irfftn(jnp.ones((2, 2))).shape", "(2, 2)")
_documented(fft2, True, "jnp.fft.fft2(jnp.ones((2, 2)))[0, 0].item()", "(4+0j)")
_documented(ifft2, True, "jnp.fft.ifft2(jnp.ones((2, 2)))[0, 0].item()", "(1+0j)")
_documented(rfft2, True, "jnp.fft.rfft2(jnp.ones((2, 2))).shape", "(2, 2)")
_documented(irfft2, True, "jnp.fft.irfft2(jnp.ones((2, 2))).shape", "(2, 2)")


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft`, for samples at distance `d`.

    Args:
      n: the number of samples.
      d: their distance.
      dtype: of the result, the default floating-point one if None.
      device: a device or sharding to place it on.

    Returns:
      float[n] in cycles per unit of `d`: from 0 up, then the negative ones, also upwards.

    Raises:
      ArgumentTypeError: `n` is no integer.

    Examples:
      >>> jnp.fft.fftfreq(4).tolist()
      [0.0, 0.25, -0.5, -0.25]
    """
    dtype = dtypes.requested_dtype(dtype or float, "fftfreq")
    n = integer(n, "fft.fftfreq, argument n")
    half = (n - 1) // 2 + 1
    if is_symbolic(n):
        return _over(roll(arange(-(n // 2), half, dtype=dtype, device=device), half), n * d)
    i = np.concatenate([np.arange(half), np.arange(-(n // 2), 0)])
    return _over(array(i, dtype=dtype, device=device), n * d)


def _over(places: Any, length: Any) -> Any:
    """Places as frequencies, in their dtype where that is one of real numbers, whatever the length's."""
    y = places / length
    return cast(y, places.dtype) if all(dtypes.issubdtype(v.dtype, np.floating) for v in (y, places)) else y


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`, for samples at distance `d`.

    Args:
      n: the number of samples.
      d: their distance.
      dtype: of the result, the default floating-point one if None.
      device: a device or sharding to place it on.

    Returns:
      float[n // 2 + 1] in cycles per unit of `d`, from 0 up.

    Raises:
      ArgumentTypeError: `n` is no integer.

    Examples:
      >>> jnp.fft.rfftfreq(4).tolist()
      [0.0, 0.25, 0.5]
    """
    n = integer(n, "fft.rfftfreq, argument n")
    dtype = dtypes.requested_dtype(dtype or float, "rfftfreq")
    return _over(arange(0, n // 2 + 1, dtype=dtype, device=device), n * d)


def fftshift(x: Any, axes: Any = None) -> Any:
    """The zero frequency moved to the middle.

    Args:
      x: frequencies or what belongs to them, in the order that `fft` gives.
      axes: an axis or several, all by default.

    Returns:
      An array of the shape of `x`.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.fft.fftshift(jnp.array([0, 1, 2, 3])).tolist()
      [2, 3, 0, 1]
    """
    x = operand(x, "fft.fftshift")
    axes = canonical_axes(axes, x.ndim, "fft.fftshift")
    return roll(x, tuple(x.shape[i] // 2 for i in axes), axes)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`.

    Args:
      x: frequencies or what belongs to them, with 0 in the middle.
      axes: an axis or several, all by default.

    Returns:
      An array of the shape of `x`.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.fft.ifftshift(jnp.array([2, 3, 0, 1])).tolist()
      [0, 1, 2, 3]
    """
    x = operand(x, "fft.ifftshift")
    axes = canonical_axes(axes, x.ndim, "fft.ifftshift")
    return roll(x, tuple(-(x.shape[i] // 2) for i in axes), axes)


_guard(globals())
