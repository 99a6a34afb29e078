"""Spectra over short segments of signals: Welch's estimates, the short-time Fourier transform and its inverse; trends.

Builds on `numpy.fft` and `windows`; `signal` shows them.

Source: Welch (1967), doi:10.1109/TAU.1967.1161901; Griffin & Lim (1984), doi:10.1109/TASSP.1984.1164317.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.creation import array
from phalanx.numpy.fft import fft, ifft, irfft, rfft
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import (
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axis,
    cast,
    operand,
    promote_inexact,
)
from phalanx.numpy.padding import pad
from phalanx.numpy.reductions import mean as _mean
from phalanx.numpy.reductions import sum as _sum
from phalanx.numpy.shapes import moveaxis
from phalanx.numpy.statistics import median as _median
from phalanx.runtime.dispatch import eager_program
from phalanx.scipy.signal.convolution import refused
from phalanx.scipy.signal.windows import window_of


class _Segments(NamedTuple):
    """How a signal is taken apart."""

    length: int
    overlap: int
    nfft: int

    @property
    def step(self) -> int:
        return self.length - self.overlap


def _segments(name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, longest: int, default: int) -> _Segments:
    given = None if isinstance(window, str | tuple) else np.shape(window)[0]
    length = given if nperseg is None and given is not None else int(default if nperseg is None else nperseg)
    if given is None and length > longest:
        length = longest
    overlap = length // 2 if noverlap is None else int(noverlap)
    size = length if nfft is None else int(nfft)
    for argument, holds, told, got in (
        ("nperseg", 0 < length <= longest, f"a length from 1 to {longest}", length),
        ("noverlap", overlap < length, f"fewer than the {length} of a segment", overlap),
        ("nfft", size >= length, f"{length} or more, as a segment has", size),
    ):
        if not holds:
            raise ArgumentError(f"signal.{name}, argument {argument}", expected=told, got=got, mend="leave it out")
    return _Segments(length, overlap, size)


def _trend_taken(x: Any, kind: Any) -> Any:
    if not kind:
        return x
    return kind(x) if callable(kind) else _detrended(x, kind, (0,))


def _spectra(x: Any, window: Any, cut: _Segments, trend: Any, onesided: bool) -> Any:
    """The transforms of the segments of the last dimension: [..., segments, frequencies]."""
    count = (x.shape[-1] - cut.overlap) // cut.step
    places = np.arange(count)[:, None] * cut.step + np.arange(cut.length)
    parts = _trend_taken(x[..., places], trend) * window
    return rfft(parts, cut.nfft) if onesided else fft(parts, cut.nfft)


def _onesided(asked: bool, *xs: Any) -> bool:
    return asked and not any(x.dtype.kind == "c" for x in xs)


def _frequencies(cut: _Segments, fs: Any, onesided: bool) -> Any:
    k = np.arange(cut.nfft // 2 + 1) if onesided else np.fft.fftfreq(cut.nfft, 1 / cut.nfft)
    return array((k / cut.nfft).astype(dtypes.canonicalize_dtype(np.float64))) * fs


def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple:  # fmt: skip
    """The cross power spectral density of two signals, by the method of Welch.

    Args:
      x, y: the signals, whose other dimensions broadcast; the shorter is filled with zeros. None for `y` is `x` itself.
      fs: the sampling frequency.
      window: `"hann"`, `"hamming"`, `"blackman"`, `"bartlett"`, `"boxcar"`, `("kaiser", beta)`, or a vector.
      nperseg: the length of a segment, 256 or that of the window by default.
      noverlap: by how much segments overlap, half of them by default.
      nfft: the length of the transforms, filled with zeros.
      detrend: what is taken from each segment: `"constant"`, `"linear"`, False, or a function.
      return_onesided: give frequencies from 0 only, for real signals.
      scaling: `"density"` (per unit of frequency) or `"spectrum"`.
      axis: along which the signals run.
      average: `"mean"` or `"median"` of the segments.

    Returns:
      (the frequencies, the density with frequencies along the axis).

    Raises:
      ArgumentError: an argument is none of those named, or lengths do not fit.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> x = jnp.array([1.0, -1.0, 1.0, -1.0])
      >>> signal.csd(x, x, nperseg=4, window="boxcar", detrend=False)[1].real.tolist()
      [0.0, 0.0, 4.0]
    """
    for argument, known, got in (
        ("scaling", ("density", "spectrum"), scaling),
        ("average", ("mean", "median"), average),
    ):
        if got not in known:
            raise refused("csd", argument, known, got)
    options = nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    if isinstance(window, str | tuple):
        return tuple(_csd(x, y, fs, None, window, *options))
    return tuple(_csd(x, y, fs, window, None, *options))


@eager_program(
    static_argnames=(
        "named", "nperseg", "noverlap", "nfft", "detrend", "return_onesided", "scaling", "axis", "average",
    )
)  # fmt: skip
def _csd(
    x: Any, y: Any, fs: Any, window: Any, named: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any,
    return_onesided: bool, scaling: str, axis: int, average: str,
) -> tuple:  # fmt: skip
    same = y is None or y is x
    given = [as_array(operand(v, "signal.csd")) for v in ((x,) if same else (x, y))]
    given = [as_array(v) for v in promote_inexact("signal.csd", *given)]
    axes = [canonical_axis(axis, v.ndim, "signal.csd") for v in given]
    given = [moveaxis(v, i, -1) for v, i in zip(given, axes)]
    longest = max(v.shape[-1] for v in given)
    window = named if window is None else window
    cut = _segments("csd", window, nperseg, noverlap, nfft, longest, 256)
    values = window_of(window, cut.length, "csd")
    real = np.dtype(given[0].dtype.name.replace("complex128", "float64").replace("complex64", "float32"))
    values = cast(as_array(operand(values, "signal.csd")), real)
    given = [pad(v, [(0, 0)] * (v.ndim - 1) + [(0, longest - v.shape[-1])]) for v in given]
    onesided = _onesided(return_onesided, *given)
    first, *others = (_spectra(v, values, cut, detrend, onesided) for v in given)
    product = lax.conj(first) * (others[0] if others else first)
    weight = 1 / (fs * _sum(values * values)) if scaling == "density" else 1 / lax.square(_sum(values))
    product = product * weight
    if onesided:  # what stands at negative frequencies too
        twice = np.full(product.shape[-1], 2.0)
        twice[0] = 1
        twice[-1] = 1 if cut.nfft % 2 == 0 else 2
        product = product * twice.astype(real)
    product = _middle(product) if average == "median" else _mean(product, axis=-2)
    rank = broadcast_shapes(*(v.shape[:-1] for v in given))
    return _frequencies(cut, fs, onesided), moveaxis(product, -1, axes[0] if len(rank) + 1 == given[0].ndim else -1)


def _middle(x: Any) -> Any:
    """The median over segments, divided by what it is of an exponential distribution of mean 1."""
    odd = 2 * np.arange(1.0, (x.shape[-2] - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (odd + 1) - 1 / odd)
    return lax.complex(_median(lax.real(x), axis=-2), _median(lax.imag(x), axis=-2)) / bias


def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple:  # fmt: skip
    """The power spectral density of a signal, by the method of Welch.

    Args:
      x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average: as in `csd`.

    Returns:
      (the frequencies, the density, which is real).

    Raises:
      ArgumentError: an argument is none of those named, or lengths do not fit.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> x = jnp.array([1.0, -1.0, 1.0, -1.0])
      >>> signal.welch(x, nperseg=4, window="boxcar", detrend=False)[1].tolist()
      [0.0, 0.0, 4.0]
    """
    frequencies, density = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return frequencies, density.real


_EXTENSIONS = {"even": ("reflect", {}), "odd": ("reflect", {"reflect_type": "odd"}), "constant": ("edge", {}),
               "zeros": ("constant", {}), None: None}  # fmt: skip


def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1,
) -> tuple:  # fmt: skip
    """The short-time Fourier transform.

    Args:
      x: the signal.
      fs, window, nperseg, noverlap, nfft, return_onesided, axis: as in `csd`.
      detrend: what is taken from each segment: False for nothing, `"constant"`, `"linear"` or a function.
      boundary: how the signal goes on at both ends for half a segment: `"zeros"`, `"even"`, `"odd"`, `"constant"`, or
        None where it does not.
      padded: fill with zeros to a whole number of segments.

    Returns:
      (the frequencies, the times of the middles of segments, the transform with frequencies along the axis and times
      last).

    Raises:
      ArgumentError: an argument is none of those named, or lengths do not fit.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.stft(jnp.ones(8), nperseg=4)[2].shape
      (3, 5)
    """
    if boundary not in _EXTENSIONS:
        raise refused("stft", "boundary", tuple(_EXTENSIONS), boundary)
    options = nperseg, noverlap, nfft, detrend, return_onesided, boundary, padded, axis
    if isinstance(window, str | tuple):
        return tuple(_stft(x, fs, None, window, *options))
    return tuple(_stft(x, fs, window, None, *options))


@eager_program(
    static_argnames=("named", "nperseg", "noverlap", "nfft", "detrend", "return_onesided", "boundary", "padded", "axis")
)
def _stft(
    x: Any, fs: Any, window: Any, named: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any,
    return_onesided: bool, boundary: Any, padded: bool, axis: int,
) -> tuple:  # fmt: skip
    (x,) = promote_inexact("signal.stft", as_array(operand(x, "signal.stft")))
    axis = canonical_axis(axis, x.ndim, "signal.stft")
    x = moveaxis(x, axis, -1)
    window = named if window is None else window
    cut = _segments("stft", window, nperseg, noverlap, nfft, x.shape[-1], 256)
    values = cast(as_array(operand(window_of(window, cut.length, "stft"), "signal.stft")), _real_of(x))
    edge = [(0, 0)] * (x.ndim - 1)
    if boundary is not None:
        mode, more = _EXTENSIONS[boundary]
        x = pad(x, [*edge, (cut.length // 2, cut.length // 2)], mode, **more)
    if padded:
        x = pad(x, [*edge, (0, (-(x.shape[-1] - cut.length) % cut.step) % cut.length)])
    onesided = _onesided(return_onesided, x)
    z = _spectra(x, values, cut, detrend, onesided) / _sum(values)
    times = np.arange(z.shape[-2]) * cut.step + cut.length / 2 - (cut.length / 2 if boundary is not None else 0)
    times = array(times.astype(dtypes.canonicalize_dtype(np.float64))) / fs
    return _frequencies(cut, fs, onesided), times, moveaxis(moveaxis(z, -2, -1), -2, axis)


def _real_of(x: Any) -> Any:
    return np.dtype(f"float{4 * x.dtype.itemsize}") if x.dtype.kind == "c" else x.dtype


def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple:  # fmt: skip
    """The signal of a short-time Fourier transform.

    Args:
      Zxx: what `stft` gives.
      fs, window, noverlap: as they were given to `stft`.
      nperseg, nfft: likewise; by default those that the number of frequencies tells.
      input_onesided: whether `Zxx` has frequencies from 0 only.
      boundary: whether the signal was continued at its ends.
      time_axis, freq_axis: along which times and frequencies run.

    Returns:
      (the times, the signal).

    Raises:
      ArgumentError: lengths do not fit, or there is no such window.
      AxisError: there is no such axis.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.istft(signal.stft(jnp.ones(8), nperseg=4)[2])[1].round(4).tolist()
      [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if np.ndim(Zxx) < 2:
        raise ShapeError("signal.istft", expected="frequencies and times", got=np.shape(Zxx), mend="add a dimension")
    options = nperseg, noverlap, nfft, input_onesided, bool(boundary), time_axis, freq_axis
    if isinstance(window, str | tuple):
        return tuple(_istft(Zxx, fs, None, window, *options))
    return tuple(_istft(Zxx, fs, window, None, *options))


@eager_program(
    static_argnames=("named", "nperseg", "noverlap", "nfft", "input_onesided", "boundary", "time_axis", "freq_axis")
)
def _istft(
    z: Any, fs: Any, window: Any, named: Any, nperseg: Any, noverlap: Any, nfft: Any, input_onesided: bool,
    boundary: bool, time_axis: int, freq_axis: int,
) -> tuple:  # fmt: skip
    z = as_array(operand(z, "signal.istft"))
    z = cast(z, promotion.result_type(z, np.complex64))
    time, freq = (canonical_axis(i, z.ndim, "signal.istft") for i in (time_axis, freq_axis))
    if time == freq:
        raise ArgumentError("signal.istft, argument time_axis", expected="another axis than freq_axis", got=time_axis,
                            mend="name both")  # fmt: skip
    z = moveaxis(z, (freq, time), (-2, -1))
    count = z.shape[-1]
    told = 2 * (z.shape[-2] - 1) if input_onesided else z.shape[-2]
    length = told if nperseg is None else int(nperseg)
    size = (told + 1 if input_onesided and length == told + 1 else told) if nfft is None else int(nfft)
    window = named if window is None else window
    cut = _segments("istft", window, length, noverlap, size, length, length)
    values = cast(as_array(operand(window_of(window, cut.length, "istft"), "signal.istft")), _real_of(z))
    parts = irfft(z, cut.nfft, axis=-2) if input_onesided else ifft(z, cut.nfft, axis=-2)
    parts = moveaxis(parts, -1, -2)[..., : cut.length] * (values * _sum(values))
    total = cut.length + (count - 1) * cut.step
    places = np.arange(count)[:, None] * cut.step + np.arange(cut.length)
    x = lax.full((*parts.shape[:-2], total), 0, parts.dtype).at[..., places].add(parts)
    norm = lax.full((total,), 0, values.dtype).at[places].add(broadcast_to_shape(values * values, places.shape))
    if boundary:
        half = cut.length // 2
        x, norm = x[..., half : total - half], norm[half : total - half]
    x = x / where(norm > 1e-10, norm, 1)
    times = array(np.arange(x.shape[-1]).astype(dtypes.canonicalize_dtype(np.float64))) / fs
    place = min(time, freq) if z.ndim > 2 else 0
    return times, moveaxis(x, -1, place) if x.ndim > 1 and place != x.ndim - 1 else x


@eager_program(static_argnames=("axis", "type", "bp"))
def _detrend(data: Any, axis: int, type: str, bp: tuple) -> Any:
    (x,) = promote_inexact("signal.detrend", as_array(operand(data, "signal.detrend")))
    axis = canonical_axis(axis, x.ndim, "signal.detrend")
    n = x.shape[axis]
    if any(not 0 <= b <= n for b in bp):
        raise ArgumentError("signal.detrend, argument bp", expected=f"places from 0 to {n}", got=bp, mend="check them")
    return moveaxis(_detrended(moveaxis(x, axis, -1), type, bp), -1, axis)


def _detrended(x: Any, type: str, bp: tuple) -> Any:
    """Without the mean of the last dimension, or the straight line through each of its stretches."""
    if type == "constant":
        return x - _mean(x, axis=-1, keepdims=True)
    n = x.shape[-1]
    ends = sorted({0, *bp, n})
    parts = []
    for start, stop in zip(ends[:-1], ends[1:]):
        size = stop - start
        ramp = np.arange(1, size + 1) / size
        basis = np.linalg.qr(np.stack([ramp, np.ones(size)], 1))[0] if size > 1 else np.ones((1, 1))
        basis = array(basis.astype(_real_of(x)))
        part = x[..., start:stop]
        share = lax.dot_general(part, cast(basis, x.dtype), (((x.ndim - 1,), (0,)), ((), ())), precision="highest")
        line = lax.dot_general(share, cast(basis, x.dtype), (((x.ndim - 1,), (1,)), ((), ())), precision="highest")
        parts.append(part - line)
    return lax.concatenate(parts, x.ndim - 1) if parts else x


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None) -> Any:
    """A signal without its trend.

    Args:
      data: the signal.
      axis: along which it runs.
      type: `"linear"`: without the straight line that fits best; `"constant"`: without the mean.
      bp: for `"linear"`, the places where a new line begins.
      overwrite_data: must be None.

    Returns:
      An array of the shape of `data`, in floating point.

    Raises:
      ArgumentError: there is no such type, or a place is outside; or `overwrite_data` is given.
      AxisError: there is no such axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> abs(signal.detrend(jnp.array([1.0, 2.0, 3.0])).round(4)).tolist()
      [0.0, 0.0, 0.0]
    """
    if overwrite_data is not None:
        raise refused("detrend", "overwrite_data", (None,), overwrite_data)
    if type not in ("linear", "constant"):
        raise refused("detrend", "type", ("linear", "constant"), type)
    return _detrend(data, axis, type, tuple(int(b) for b in np.atleast_1d(bp)))
