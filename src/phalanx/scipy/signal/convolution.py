"""Convolutions and correlations of arrays of one rank, direct or by Fourier transforms.

Builds on `lax.conv_general_dilated` and `numpy.fft`; `signal` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.fft import fftn, ifftn, irfftn, rfftn
from phalanx.numpy.operands import as_array, broadcast_shapes, canonical_axes, cast, operand, promote_inexact
from phalanx.numpy.padding import pad
from phalanx.runtime.dispatch import eager_program

_MODES = ("full", "same", "valid")
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def refused(name: str, argument: str, known: Sequence, got: Any) -> ArgumentError:
    """The error of an argument that is none of those known."""
    return ArgumentError(
        f"signal.{name}, argument {argument}", expected=" or ".join(map(repr, known)), got=repr(got), mend="use one"
    )


def _operands(name: str, in1: Any, in2: Any, mode: str, rank: int | None = None) -> list:
    if mode not in _MODES:
        raise refused(name, "mode", _MODES, mode)
    xs = [as_array(x) for x in promote_inexact(f"signal.{name}", *(operand(v, f"signal.{name}") for v in (in1, in2)))]
    told = "arrays of one rank" if rank is None else f"arrays of rank {rank}"
    if xs[0].ndim != xs[1].ndim or (rank is not None and xs[0].ndim != rank) or not all(x.size for x in xs):
        raise ShapeError(f"signal.{name}", expected=f"{told} that are not empty",
                         got=" and ".join(str(x.shape) for x in xs), mend="reshape one")  # fmt: skip
    return xs


def _turned(x: Any) -> Any:
    x = lax.rev(x, tuple(range(x.ndim)))
    return lax.conj(x) if x.dtype.kind == "c" else x


def _is_smaller(x: Any, y: Any, dims: Sequence[int], name: str) -> bool:
    """Whether the first array must slide over the second, where one has to lie within the other."""
    if all(x.shape[i] >= y.shape[i] for i in dims):
        return False
    if not all(x.shape[i] <= y.shape[i] for i in dims):
        raise ShapeError(f"signal.{name}", expected="one array that is at least as large in each dimension",
                         got=f"{x.shape} and {y.shape}", mend="use mode='same'")  # fmt: skip
    return True


def _cut(full: Any, x: Any, y: Any, dims: Sequence[int], mode: str) -> Any:
    """The part of a full convolution that the mode asks for."""
    if mode == "full":
        return full
    starts, stops = [0] * full.ndim, list(full.shape)
    for i in dims:
        size = x.shape[i] if mode == "same" else x.shape[i] - y.shape[i] + 1
        starts[i] = (full.shape[i] - size) // 2
        stops[i] = starts[i] + size
    return lax.slice(full, starts, stops)


def _direct(x: Any, y: Any, mode: str, precision: Any) -> Any:
    """The convolution, as a correlation with what is turned round."""
    rank = x.ndim
    if rank == 0:
        return x * y
    edges = []
    for k in y.shape:
        low = {"full": k - 1, "same": k - 1 - (k - 1) // 2, "valid": 0}[mode]
        edges.append((low, {"full": k - 1, "same": k - 1 - low, "valid": 0}[mode]))
    batch = lambda v: lax.expand_dims(v, (0, 1))
    out = lax.conv_general_dilated(
        batch(x), batch(lax.rev(y, tuple(range(rank)))), (1,) * rank, edges, precision=precision
    )
    return lax.squeeze(out, (0, 1))


@eager_program(static_argnames=("name", "mode", "method", "precision"))
def _convolved(name: str, in1: Any, in2: Any, mode: str, method: str, precision: Any) -> Any:
    if method not in ("auto", "direct", "fft"):
        raise refused(name, "method", ("auto", "direct", "fft"), method)
    x, y = _operands(name, in1, in2, mode)
    dims = range(x.ndim)
    swapped = mode == "valid" and _is_smaller(x, y, dims, name)
    if name == "correlate":
        y = _turned(y)
    if swapped:
        x, y = y, x
    if method == "fft":
        return _by_fft(x, y, mode, tuple(dims))
    return _direct(x, y, mode, precision)


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """The convolution of two arrays of one rank.

    Args:
      in1, in2: the arrays.
      mode: `"full"`; `"same"`, the middle of it in the shape of `in1`; `"valid"`, where one lies within the other.
      method: `"direct"` (also `"auto"`) or `"fft"`.
      precision: of the products, as in `lax.conv`.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: there is no such mode or method.
      ShapeError: the ranks differ, an array is empty, or neither lies within the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
      [1.0, 3.0, 2.0]
    """
    return _convolved("convolve", in1, in2, mode, method, precision)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """The correlation of two arrays of one rank, the second conjugated.

    Args:
      in1, in2, mode, method, precision: as in `convolve`.

    Returns:
      The correlation, in floating point.

    Raises:
      ArgumentError: there is no such mode or method.
      ShapeError: the ranks differ, an array is empty, or neither lies within the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.correlate(jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0])).tolist()
      [0.0, 1.0, 2.0]
    """
    return _convolved("correlate", in1, in2, mode, method, precision)


@eager_program(static_argnames=("name", "mode", "boundary", "precision"))
def _in_a_plane(name: str, in1: Any, in2: Any, mode: str, boundary: str, fillvalue: Any, precision: Any) -> Any:
    if boundary not in _BOUNDARIES:
        raise refused(name, "boundary", tuple(_BOUNDARIES), boundary)
    x, y = _operands(name, in1, in2, mode, rank=2)
    swapped = mode == "valid" and _is_smaller(x, y, (0, 1), name)
    y = _turned(y) if name == "correlate2d" else y
    if swapped:
        x, y = y, x
    if mode == "valid":
        return _direct(x, y, "valid", precision)
    width = [(k - 1, k - 1) for k in y.shape]
    options = {"constant_values": cast(fillvalue, x.dtype)} if boundary == "fill" else {}
    full = _direct(pad(x, width, _BOUNDARIES[boundary], **options), y, "valid", precision)
    if mode == "same" and name == "correlate2d":  # whose middle SciPy takes from the other side
        return full[y.shape[0] // 2 :, y.shape[1] // 2 :][: x.shape[0], : x.shape[1]]
    return _cut(full, x, y, (0, 1), mode)


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Any:
    """The convolution of two matrices.

    Args:
      in1, in2: the matrices.
      mode, precision: as in `convolve`.
      boundary: what lies around `in1`: `"fill"` (`fillvalue`), `"wrap"` (the other side), `"symm"` (its mirror image).
      fillvalue: the constant.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: there is no such mode or boundary.
      ShapeError: an operand is no matrix, or empty, or neither lies within the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.convolve2d(jnp.ones((1, 2)), jnp.ones((1, 2)), boundary="wrap").tolist()
      [[2.0, 2.0, 2.0]]
    """
    return _in_a_plane("convolve2d", in1, in2, mode, boundary, fillvalue, precision)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Any:
    """The correlation of two matrices, the second conjugated.

    Args:
      in1, in2, mode, boundary, fillvalue, precision: as in `convolve2d`.

    Returns:
      The correlation, in floating point.

    Raises:
      ArgumentError: there is no such mode or boundary.
      ShapeError: an operand is no matrix, or empty, or neither lies within the other.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.correlate2d(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 0.0]])).tolist()
      [[0.0, 1.0, 2.0]]
    """
    return _in_a_plane("correlate2d", in1, in2, mode, boundary, fillvalue, precision)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | None = None) -> Any:
    """The convolution of two arrays of one rank by Fourier transforms.

    Args:
      in1, in2: the arrays.
      mode: as in `convolve`.
      axes: along which to convolve, all by default; the other dimensions broadcast.

    Returns:
      The convolution, in floating point.

    Raises:
      ArgumentError: there is no such mode.
      AxisError: there is no such axis.
      ShapeError: the ranks differ, an array is empty, or shapes do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.fftconvolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).round(4).tolist()
      [1.0, 3.0, 2.0]
    """
    return _fftconvolve(in1, in2, mode, axes if axes is None or isinstance(axes, int) else tuple(axes))


@eager_program(static_argnames=("mode", "axes"))
def _fftconvolve(in1: Any, in2: Any, mode: str, axes: Any) -> Any:
    x, y = _operands("fftconvolve", in1, in2, mode)
    dims = canonical_axes(axes, x.ndim, "signal.fftconvolve")
    others = [i for i in range(x.ndim) if i not in dims]
    broadcast_shapes(*([v.shape[i] for i in others] for v in (x, y)), where="signal.fftconvolve")
    if mode == "valid" and _is_smaller(x, y, dims, "fftconvolve"):
        x, y = y, x
    return _by_fft(x, y, mode, dims)


def _by_fft(x: Any, y: Any, mode: str, dims: tuple) -> Any:
    if not dims:
        return x * y
    sizes = tuple(x.shape[i] + y.shape[i] - 1 for i in dims)
    forward, backward = (fftn, ifftn) if x.dtype.kind == "c" else (rfftn, irfftn)
    full = backward(forward(x, sizes, dims) * forward(y, sizes, dims), sizes, dims)
    return _cut(cast(full, x.dtype), x, y, dims, mode)
