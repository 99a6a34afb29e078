"""Convolution and correlation of N-dimensional arrays, direct or by Fourier transforms.

Builds on `lax.conv_general_dilated` and `numpy.fft`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError
from phalanx.lax import PrecisionLike
from phalanx.numpy.operands import as_array, broadcast_shapes, canonical_axes, cast
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_inexact_operands
from phalanx.typing import Array, ArrayLike, Axis

_MODES = ("full", "same", "valid")
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def _operands(name: str, in1: Array, in2: Array, mode: str, rank: int | None = None) -> list:
    check_choice(f"signal.{name}", "mode", mode, _MODES)
    xs = [as_array(x) for x in to_inexact_operands(f"signal.{name}", in1, in2)]
    expected = "arrays of one rank" if rank is None else f"arrays of rank {rank}"
    if xs[0].ndim != xs[1].ndim or (rank is not None and xs[0].ndim != rank) or not all(x.size for x in xs):
        raise ShapeError(
            f"signal.{name}",
            expected=f"{expected} that are not empty",
            got=" and ".join(str(x.shape) for x in xs),
            fix="reshape one of them with x.reshape(...), or insert dimensions with x[None]",
        )
    return xs


def _must_swap(x: Array, y: Array, dims: Sequence[int], name: str) -> bool:
    """Whether to swap the arrays, so that the second one fits inside of the first, for mode `"valid"`.

    Raises:
      ShapeError: neither array fits inside of the other.
    """
    if all(x.shape[i] >= y.shape[i] for i in dims):
        return False
    if not all(x.shape[i] <= y.shape[i] for i in dims):
        raise ShapeError(
            f"signal.{name}",
            expected="one array that is at least as large in each dimension",
            got=f"{x.shape} and {y.shape}",
            fix="pass mode='same' or mode='full'",
        )
    return True


def _arrange(name: str, in1: Array, in2: Array, mode: str, rank: int | None = None) -> tuple[Array, Array]:
    """The operands of a convolution that computes the convolution or correlation `name`, the larger one first."""
    x, y = _operands(name, in1, in2, mode, rank)
    # Swapping changes a correlation, so the second array is reversed before the swap.
    swapped = mode == "valid" and _must_swap(x, y, range(x.ndim), name)
    if name.startswith("correlate"):
        y = jnp.conjugate(lax.rev(y, tuple(range(y.ndim))))
    return (y, x) if swapped else (x, y)


def _crop(full: Array, x: Array, y: Array, dims: Sequence[int], mode: str) -> Any:
    """The part of a full convolution that `mode` selects."""
    if mode == "full":
        return full
    starts, stops = [0] * full.ndim, list(full.shape)
    for i in dims:
        size = x.shape[i] if mode == "same" else x.shape[i] - y.shape[i] + 1
        starts[i] = (full.shape[i] - size) // 2
        stops[i] = starts[i] + size
    return lax.slice(full, starts, stops)


def _direct(x: Array, y: Array, mode: str, precision: PrecisionLike) -> Any:
    """The convolution as a correlation with the reversed second array."""
    rank = x.ndim
    if rank == 0:
        return x * y
    edges = [{"full": (k - 1, k - 1), "same": (k // 2, (k - 1) // 2), "valid": (0, 0)}[mode] for k in y.shape]
    batch = lambda v: lax.expand_dims(v, (0, 1))
    out = lax.conv_general_dilated(
        batch(x), batch(lax.rev(y, tuple(range(rank)))), (1,) * rank, edges, precision=precision
    )
    return lax.squeeze(out, (0, 1))


@eager_jit(static_argnames=("name", "mode", "method", "precision"))
def _convolve(name: str, in1: ArrayLike, in2: ArrayLike, mode: str, method: str, precision: PrecisionLike) -> Any:
    check_choice(f"signal.{name}", "method", method, ("auto", "direct", "fft"))
    x, y = _arrange(name, in1, in2, mode)
    return _by_fft(x, y, mode, tuple(range(x.ndim))) if method == "fft" else _direct(x, y, mode, precision)


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Convolve two arrays of one rank.

    Args:
      in1, in2: the arrays.
      mode: `"full"`; `"same"` for the center of it with the shape of `in1`; `"valid"` for complete overlap only.
      method: `"direct"` (also `"auto"`) or `"fft"`.
      precision: the precision of the products, as in `lax.conv`.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: `mode` or `method` is unknown.
      ShapeError: the ranks differ, an array is empty, or neither fits inside of the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
      [1.0, 3.0, 2.0]
    """
    return _convolve("convolve", in1, in2, mode, method, precision)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Correlate two arrays of one rank; the second one is conjugated.

    Args:
      in1, in2, mode, method, precision: as in `convolve`.

    Returns:
      The correlation, in floating point.

    Raises:
      ArgumentError: `mode` or `method` is unknown.
      ShapeError: the ranks differ, an array is empty, or neither fits inside of the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.correlate(jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0])).tolist()
      [0.0, 1.0, 2.0]
    """
    return _convolve("correlate", in1, in2, mode, method, precision)


@eager_jit(static_argnames=("name", "mode", "boundary", "precision"))
def _convolve_2d(
    name: str, in1: ArrayLike, in2: ArrayLike, mode: str, boundary: str, fillvalue: ArrayLike, precision: PrecisionLike
) -> Any:
    check_choice(f"signal.{name}", "boundary", boundary, tuple(_BOUNDARIES))
    x, y = _arrange(name, in1, in2, mode, rank=2)
    if mode == "valid":
        return _direct(x, y, "valid", precision)
    # Extending the first array by the size of the second reduces every boundary to mode 'valid'.
    width = [(k - 1, k - 1) for k in y.shape]
    options = {"constant_values": cast(fillvalue, x.dtype)} if boundary == "fill" else {}
    full = _direct(jnp.pad(x, width, _BOUNDARIES[boundary], **options), y, "valid", precision)
    if mode == "same" and name == "correlate2d":  # for correlations SciPy rounds the offset of the center up
        return full[y.shape[0] // 2 :, y.shape[1] // 2 :][: x.shape[0], : x.shape[1]]
    return _crop(full, x, y, (0, 1), mode)


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Convolve two matrices.

    Args:
      in1, in2: the matrices.
      mode, precision: as in `convolve`.
      boundary: the values outside of `in1`: `"fill"` (`fillvalue`), `"wrap"` (periodic), `"symm"` (mirrored).
      fillvalue: the constant for `"fill"`.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: `mode` or `boundary` is unknown.
      ShapeError: an operand is not a matrix, or is empty, or neither fits inside of the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.convolve2d(jnp.ones((1, 2)), jnp.ones((1, 2)), boundary="wrap").tolist()
      [[2.0, 2.0, 2.0]]
    """
    return _convolve_2d("convolve2d", in1, in2, mode, boundary, fillvalue, precision)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Correlate two matrices; the second one is conjugated.

    Args:
      in1, in2, mode, boundary, fillvalue, precision: as in `convolve2d`.

    Returns:
      The correlation, in floating point.

    Raises:
      ArgumentError: `mode` or `boundary` is unknown.
      ShapeError: an operand is not a matrix, or is empty, or neither fits inside of the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.correlate2d(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 0.0]])).tolist()
      [[0.0, 1.0, 2.0]]
    """
    return _convolve_2d("correlate2d", in1, in2, mode, boundary, fillvalue, precision)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Sequence[int] | None = None) -> Array:
    """Convolve two arrays of one rank by Fourier transforms.

    Args:
      in1, in2: the arrays.
      mode: as in `convolve`.
      axes: the axes of the convolution, all by default; other dimensions broadcast.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: `mode` is unknown.
      AxisError: the axis is out of bounds.
      ShapeError: the ranks differ, an array is empty, or the shapes do not broadcast.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.fftconvolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).round(4).tolist()
      [1.0, 3.0, 2.0]
    """
    return _fftconvolve(in1, in2, mode, axes if axes is None or isinstance(axes, int) else tuple(axes))


@eager_jit(static_argnames=("mode", "axes"))
def _fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str, axes: Axis) -> Any:
    x, y = _operands("fftconvolve", in1, in2, mode)
    dims = canonical_axes(axes, x.ndim, "signal.fftconvolve")
    others = [i for i in range(x.ndim) if i not in dims]
    broadcast_shapes(*([v.shape[i] for i in others] for v in (x, y)), where="signal.fftconvolve")
    if mode == "valid" and _must_swap(x, y, dims, "fftconvolve"):
        x, y = y, x
    return _by_fft(x, y, mode, dims)


def _by_fft(x: Array, y: Array, mode: str, dims: tuple) -> Any:
    if not dims:
        return x * y
    # Padding to the full size makes the circular convolution of the transform a linear one.
    sizes = tuple(x.shape[i] + y.shape[i] - 1 for i in dims)
    forward, backward = (jnp.fft.fftn, jnp.fft.ifftn) if x.dtype.kind == "c" else (jnp.fft.rfftn, jnp.fft.irfftn)
    full = backward(forward(x, sizes, dims) * forward(y, sizes, dims), sizes, dims)
    return _crop(cast(full, x.dtype), x, y, dims, mode)
