"""Discrete Fourier transforms, as rows of a table over `lax.fft`.

`lax.fft` transforms up to three trailing dimensions at once: other axes are moved to the end, and transforms over more
axes are composed. A norm multiplies the result by a factor relative to what XLA computes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, AxisError, dtypes
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import arange
from phalanx.numpy.operands import (
    as_tuple,
    canonical_axes,
    cast,
    complex_result_dtype,
    promote_inexact,
    to_operand,
    to_static_int,
)
from phalanx.numpy.shapes.padding import pad_or_truncate
from phalanx.numpy.shapes.rearranging import roll
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike, ShardingLike

_static = eager_jit(static_argnames=("name", "kind", "s", "axes", "norm", "n", "axis"))


def _scale(norm: str | None, lengths: Sequence[int], inverse: bool, name: str) -> float:
    """The factor of a norm, relative to XLA's transforms: unscaled forward, scaled by 1/n inverse."""
    n = math.prod(lengths)
    if norm in (None, "backward"):
        return 1.0
    if norm == "ortho":
        return math.sqrt(n) if inverse else 1 / math.sqrt(n)
    if norm == "forward":
        return float(n) if inverse else 1 / n
    raise ArgumentError(
        f"fft.{name}, argument norm",
        expected="'backward', 'ortho' or 'forward'",
        got=repr(norm),
        fix="pass norm='backward', 'ortho' or 'forward', or leave it out",
    )


@_static
def _transform(name: str, kind: str, a: Array, s: Any, axes: tuple[int, ...], norm: str | None) -> Any:
    x = to_operand(a, f"fft.{name}")
    if kind == "RFFT" and x.dtype.kind == "c":
        raise ArgumentError(
            f"fft.{name}", expected="real numbers", got=str(x.dtype), fix="use fft, or take the real part"
        )
    (x,) = promote_inexact(f"fft.{name}", x)
    # XLA has no transforms in half precision.
    x = cast(x, np.dtype(np.float32)) if x.dtype.itemsize < 4 else x
    if axes is None:
        axes = tuple(range(x.ndim - len(s), x.ndim)) if s is not None else tuple(range(x.ndim))
    axes = canonical_axes(axes, x.ndim, f"fft.{name}")
    if not axes:
        return cast(x, x.dtype if kind == "RFFT" else complex_result_dtype(x.dtype))
    # StableHLO limits a transform to three dimensions.
    if len(axes) > 3:
        return _transform_in_steps(name, kind, x, s, axes, norm)
    trailing = tuple(range(x.ndim - len(axes), x.ndim))
    moved = axes != trailing
    # `lax.fft` transforms trailing dimensions only.
    x = moveaxis(x, axes, trailing) if moved else x
    lengths = [x.shape[i] for i in trailing] if s is None else [to_static_int(n, f"fft.{name}, argument s") for n in s]
    if len(lengths) != len(axes):
        raise ArgumentError(
            f"fft.{name}, argument s", expected=f"{len(axes)} lengths", got=s, fix="give one for each axis"
        )
    if s is None and kind == "IRFFT":
        lengths[-1] = 2 * (lengths[-1] - 1)
    if any(not is_symbolic(n) and n < 1 for n in lengths):
        raise ArgumentError(
            f"fft.{name}",
            expected="lengths of 1 or more",
            got=tuple(lengths),
            fix="pass positive lengths with n= or s=",
        )
    # A complex-to-real transform of length n reads the n // 2 + 1 non-negative frequencies.
    taken = [n // 2 + 1 if kind == "IRFFT" and i == len(lengths) - 1 else n for i, n in enumerate(lengths)]
    # As in NumPy, a given length truncates the input or pads it with zeros.
    x = pad_or_truncate(x, taken)
    if kind != "RFFT" and x.dtype.kind != "c":
        x = cast(x, complex_result_dtype(x.dtype))
    y = lax.fft(x, kind, tuple(lengths))
    # XLA scales inverse transforms by 1/n, which is the norm "backward".
    factor = _scale(norm, lengths, kind in ("IFFT", "IRFFT"), name)
    y = y * y.dtype.type(factor) if factor != 1.0 else y
    return moveaxis(y, trailing, axes) if moved else y


def _transform_in_steps(name: str, kind: str, x: Array, s: Any, axes: tuple, norm: str | None) -> Any:
    """Transform more than three axes, three at a time.

    The last axis is the one with half of the frequencies: a real-to-complex transform must begin with it, and a
    complex-to-real transform must end with it.
    """
    last, first = axes[-3:], axes[:-3]
    s_last, s_first = (None, None) if s is None else (s[-3:], s[:-3])
    if kind == "IRFFT":
        return _transform(name, kind, _transform(name, "IFFT", x, s_first, first, norm), s_last, last, norm)
    x = _transform(name, kind, x, s_last, last, norm)
    return _transform(name, "IFFT" if kind == "IFFT" else "FFT", x, s_first, first, norm)


_DOC = """{doc}

    Args:
      {args}
      norm: `"backward"`, `"ortho"` or `"forward"`: the direction that is scaled by 1/n, or both by 1/sqrt(n).

    Returns:
      {returns}

    Raises:
      ArgumentError: the operand, a length or `norm` is not valid for this transform.
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.fft.{name}({example}
      {result}
    """
_ARGS = {
    1: """n: length {of} along the axis; the input is truncated or padded with zeros to match.
      axis: axis to transform.""",
    2: """s: lengths {of} along the axes; the input is truncated or padded with zeros to match.
      axes: axes to transform; by default the last `len(s)` axes, or all.""",
}
_RETURNS = {
    "FFT": "A complex array of the shape of `a`, except along axes with a given length.",
    "RFFT": "A complex array with the n // 2 + 1 non-negative frequencies along the last of the axes.",
    "IRFFT": "A real array; the last of the axes has the given length, or 2 (m - 1) for m input elements.",
}


def _declare(
    name: str, kind: str, rank: int, run: Callable, doc: str, example: str, result: str
) -> Callable[..., Array]:
    """Make the public function `name`, which calls `run(name, a, lengths, axes, norm)`."""

    def one_dimensional(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
        if isinstance(axis, tuple | list):
            raise AxisError(f"fft.{name}, argument axis", expected="one axis", got=axis, fix=f"use fft.{name}n")
        return run(a, None if n is None else (to_static_int(n, f"fft.{name}, argument n"),), (axis,), norm)

    def several_dimensions(
        a: ArrayLike,
        s: Sequence[int] | None = None,
        axes: Axis = (-2, -1) if rank == 2 else None,
        norm: str | None = None,
    ) -> Array:
        return run(a, as_tuple(s), as_tuple(axes), norm)

    function: Callable[..., Array] = one_dimensional if rank == 1 else several_dimensions
    args = _ARGS[min(rank, 2)].format(of="of the result" if kind == "IRFFT" else "of the transform")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(
        doc=doc,
        args=f"a: {'real numbers' if kind == 'RFFT' else 'array of numbers'}.\n      {args}",
        returns=_RETURNS.get(kind, _RETURNS["FFT"]),
        name=name,
        example=example,
        result=result,
    )
    return function  # type: ignore[return-value]


def _row(name: str, kind: str, rank: int, doc: str, example: str, result: str) -> Callable[..., Array]:
    return _declare(name, kind, rank, functools.partial(_transform, name, kind), doc, example, result)


def _hfft(a: ArrayLike, s: tuple | None, axes: tuple, norm: str | None) -> Array:
    # The transform of a Hermitian signal is the inverse transform of its conjugate, with the opposite scaling.
    (x,) = promote_inexact("fft.hfft", to_operand(a, "fft.hfft"))
    conjugate = lax.conj(cast(x, complex_result_dtype(x.dtype)))
    return _transform("hfft", "IRFFT", conjugate, s, axes, _swap_norm(norm))


def _ihfft(a: ArrayLike, s: tuple | None, axes: tuple, norm: str | None) -> Array:
    x = array(a) if isinstance(a, list | tuple) else a
    return lax.conj(_transform("ihfft", "RFFT", x, s, axes, _swap_norm(norm)))


def _swap_norm(norm: str | None) -> str | None:
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


fft = _row("fft", "FFT", 1, "One-dimensional discrete Fourier transform.", "jnp.ones(2)).tolist()", "[(2+0j), 0j]")
ifft = _row("ifft", "IFFT", 1, "Inverse of `fft`.", "jnp.ones(2)).tolist()", "[(1+0j), 0j]")
rfft = _row("rfft", "RFFT", 1, "Fourier transform of a real signal.", "jnp.ones(4)).tolist()", "[(4+0j), 0j, 0j]")
irfft = _row("irfft", "IRFFT", 1, "Inverse of `rfft`.", "jnp.fft.rfft(jnp.ones(2))).tolist()", "[1.0, 1.0]")
hfft = _declare(
    "hfft",
    "IRFFT",
    1,
    _hfft,
    "Fourier transform of a signal with Hermitian symmetry; the result is real.",
    "jnp.ones(2)).tolist()",
    "[2.0, 0.0]",
)
ihfft = _declare("ihfft", "RFFT", 1, _ihfft, "Inverse of `hfft`.", "jnp.ones(2)).shape", "(2,)")
fftn = _row("fftn", "FFT", 3, "Fourier transform over several axes.", "jnp.ones((2, 2)))[0, 0].item()", "(4+0j)")
ifftn = _row("ifftn", "IFFT", 3, "Inverse of `fftn`.", "jnp.ones((2, 2)))[0, 0].item()", "(1+0j)")
rfftn = _row(
    "rfftn", "RFFT", 3, "Fourier transform of a real array over several axes.", "jnp.ones((2, 2))).shape", "(2, 2)"
)
irfftn = _row("irfftn", "IRFFT", 3, "Inverse of `rfftn`.", "jnp.ones((2, 2))).shape", "(2, 2)")
fft2 = _row("fft2", "FFT", 2, "Fourier transform over two axes.", "jnp.ones((2, 2)))[0, 0].item()", "(4+0j)")
ifft2 = _row("ifft2", "IFFT", 2, "Inverse of `fft2`.", "jnp.ones((2, 2)))[0, 0].item()", "(1+0j)")
rfft2 = _row(
    "rfft2", "RFFT", 2, "Fourier transform of a real array over two axes.", "jnp.ones((2, 2))).shape", "(2, 2)"
)
irfft2 = _row("irfft2", "IRFFT", 2, "Inverse of `rfft2`.", "jnp.ones((2, 2))).shape", "(2, 2)")


def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: ShardingLike | None = None) -> Array:
    """Sample frequencies of `fft`, for samples spaced by `d`.

    Args:
      n: the number of samples.
      d: spacing of the samples.
      dtype: dtype of the result; the default floating-point dtype if None.
      device: device or sharding on which to place the result.

    Returns:
      float[n] in cycles per unit of `d`: the non-negative frequencies in increasing order, then the negative ones.

    Raises:
      ArgumentTypeError: `n` is not an integer.

    Examples:
      >>> jnp.fft.fftfreq(4).tolist()
      [0.0, 0.25, -0.5, -0.25]
    """
    dtype = dtypes.requested_dtype(dtype or float, "fftfreq")
    n = to_static_int(n, "fft.fftfreq, argument n")
    # The number of non-negative frequencies.
    half = (n - 1) // 2 + 1
    # NumPy cannot make an array of symbolic length: the frequencies in increasing order are rotated instead.
    if is_symbolic(n):
        return _to_frequencies(roll(arange(-(n // 2), half, dtype=dtype, device=device), half), n * d)
    i = np.concatenate([np.arange(half), np.arange(-(n // 2), 0)])
    return _to_frequencies(array(i, dtype=dtype, device=device), n * d)


def _to_frequencies(places: Array, length: Any) -> Any:
    """Divide positions by the length, keeping their dtype if both are floating-point."""
    y = places / length
    return cast(y, places.dtype) if all(dtypes.issubdtype(v.dtype, np.floating) for v in (y, places)) else y


def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: ShardingLike | None = None
) -> Array:
    """Sample frequencies of `rfft`, for samples spaced by `d`.

    Args:
      n: the number of samples.
      d: spacing of the samples.
      dtype: dtype of the result; the default floating-point dtype if None.
      device: device or sharding on which to place the result.

    Returns:
      float[n // 2 + 1] in cycles per unit of `d`, increasing from 0.

    Raises:
      ArgumentTypeError: `n` is not an integer.

    Examples:
      >>> jnp.fft.rfftfreq(4).tolist()
      [0.0, 0.25, 0.5]
    """
    n = to_static_int(n, "fft.rfftfreq, argument n")
    dtype = dtypes.requested_dtype(dtype or float, "rfftfreq")
    return _to_frequencies(arange(0, n // 2 + 1, dtype=dtype, device=device), n * d)


def fftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """Shift the zero-frequency component to the center.

    Args:
      x: an array in the frequency order of `fft`.
      axes: an axis or several, all by default.

    Returns:
      An array of the shape of `x`.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.fft.fftshift(jnp.array([0, 1, 2, 3])).tolist()
      [2, 3, 0, 1]
    """
    x = to_operand(x, "fft.fftshift")
    axes = canonical_axes(axes, x.ndim, "fft.fftshift")
    return roll(x, tuple(x.shape[i] // 2 for i in axes), axes)


def ifftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """Inverse of `fftshift`.

    Args:
      x: an array with the zero frequency in the center.
      axes: an axis or several, all by default.

    Returns:
      An array of the shape of `x`.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.fft.ifftshift(jnp.array([2, 3, 0, 1])).tolist()
      [0, 1, 2, 3]
    """
    x = to_operand(x, "fft.ifftshift")
    axes = canonical_axes(axes, x.ndim, "fft.ifftshift")
    return roll(x, tuple(-(x.shape[i] // 2) for i in axes), axes)
