"""Spectral estimation over short segments: Welch's method and the short-time Fourier transform; removal of trends.

Builds on `numpy.fft`.

Source: Welch (1967), doi:10.1109/TAU.1967.1161901; Griffin & Lim (1984), doi:10.1109/TASSP.1984.1164317.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.numpy.operands import (
    align_ranks,
    as_array,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axis,
    cast,
    to_operand,
)
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_complex, to_inexact_array, to_inexact_operands
from phalanx.typing import Array, ArrayLike

_WINDOWS = {
    "hann": np.hanning,
    "hamming": np.hamming,
    "blackman": np.blackman,
    "bartlett": np.bartlett,
    "boxcar": np.ones,
    "kaiser": np.kaiser,
}


def _make_window(window: str | tuple[Any, ...] | ArrayLike, nperseg: int, name: str) -> Array | np.ndarray:
    """The periodic window of a name, of a name and parameters, or an array, computed on the host.

    Raises:
      ArgumentError: the name is unknown.
      ShapeError: the length of an array differs from the length of the segments.
    """
    if isinstance(window, str | tuple):
        kind, *parameters = (window,) if isinstance(window, str) else window
        if kind not in _WINDOWS or (kind == "kaiser") != (len(parameters) == 1):
            names = [repr(k) for k in _WINDOWS if k != "kaiser"]
            raise ArgumentError(
                f"signal.{name}, argument window",
                expected=" or ".join([*names, "('kaiser', beta)", "an array"]),
                got=repr(window),
                fix="pass window='hann', ('kaiser', 8.6), or an array of the length of a segment",
            )
        # A periodic window is a symmetric one that is longer by an element, without its last element.
        return np.asarray(_WINDOWS[kind](nperseg + 1, *parameters), np.float64)[:-1]
    values = as_array(to_operand(window, f"signal.{name}"))
    if values.ndim != 1 or values.shape[0] != nperseg:
        raise ShapeError(
            f"signal.{name}, argument window",
            expected=f"a vector of {nperseg}",
            got=values.shape,
            fix=f"pass nperseg={values.shape[0] if values.ndim else 1}, or omit it",
        )
    return values


class _Segments(NamedTuple):
    """The length, overlap and transform length of the segments of a signal, and the window that weights them."""

    length: int
    overlap: int
    nfft: int
    window: Array

    @property
    def step(self) -> int:
        return self.length - self.overlap


def _segments(
    name: str,
    window: ArrayLike | None,
    named: str | tuple[Any, ...] | None,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    longest: int,
    default: int,
    dtype: np.dtype,
) -> _Segments:
    given = None if window is None else np.shape(window)[0]
    length = given if nperseg is None and given is not None else int(default if nperseg is None else nperseg)
    # A signal that is shorter than a segment is one segment, unless a window fixes the length.
    if given is None and length > longest:
        length = longest
    overlap = length // 2 if noverlap is None else int(noverlap)
    size = length if nfft is None else int(nfft)
    for argument, holds, expected, got in (
        ("nperseg", 0 < length <= longest, f"a length from 1 to {longest}", length),
        ("noverlap", overlap < length, f"fewer than the {length} of a segment", overlap),
        ("nfft", size >= length, f"{length} or more, as a segment has", size),
    ):
        if not holds:
            raise ArgumentError(
                f"signal.{name}, argument {argument}",
                expected=expected,
                got=got,
                fix=f"omit {argument} to use its default",
            )
    values = _make_window(named if window is None else window, length, name)
    return _Segments(length, overlap, size, cast(as_array(to_operand(values, f"signal.{name}")), dtype))


def _split_window(window: str | tuple[Any, ...] | ArrayLike) -> tuple[Any, Any]:
    """An array, which is an operand of the compiled program, and a name, which is static; one of them is None."""
    return (None, window) if isinstance(window, str | tuple) else (window, None)


def _remove_trend(x: Array, kind: str | None) -> Any:
    if not kind:
        return x
    return kind(x) if callable(kind) else _detrend_last(x, kind, (0,))


def _spectra(x: Array, cut: _Segments, trend: str | Callable[[Array], Array] | bool, onesided: bool) -> Any:
    """The Fourier transforms of the segments of the last dimension: [..., segments, frequencies]."""
    count = (x.shape[-1] - cut.overlap) // cut.step
    places = np.arange(count)[:, None] * cut.step + np.arange(cut.length)
    parts = jnp.multiply(*align_ranks(_remove_trend(x[..., places], trend), cut.window))
    return jnp.fft.rfft(parts, cut.nfft) if onesided else jnp.fft.fft(parts, cut.nfft)


def _frequencies(cut: _Segments, fs: float | Array, onesided: bool) -> Any:
    k = np.arange(cut.nfft // 2 + 1) if onesided else np.fft.fftfreq(cut.nfft, 1 / cut.nfft)
    return jnp.array((k / cut.nfft).astype(dtypes.canonicalize_dtype(np.float64))) * fs


def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: float | Array = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | Callable[[Array], Array] | bool = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple:
    """The cross power spectral density of two signals by Welch's method.

    Args:
      x, y: the signals; the shorter one is padded with zeros, and other dimensions broadcast. `y=None` denotes `x`.
      fs: the sampling frequency.
      window: `"hann"`, `"hamming"`, `"blackman"`, `"bartlett"`, `"boxcar"`, `("kaiser", beta)`, or a vector.
      nperseg: the length of a segment; by default 256, or the length of the window.
      noverlap: the overlap of segments, half of their length by default.
      nfft: the length of the transforms, with zero padding; by default `nperseg`.
      detrend: the trend to remove from each segment: `"constant"`, `"linear"`, a function, or False for none.
      return_onesided: whether to return only nonnegative frequencies, for real signals.
      scaling: `"density"` (per unit of frequency) or `"spectrum"`.
      axis: the axis of the signals.
      average: `"mean"` or `"median"` of the segments.

    Returns:
      (the frequencies, the density with frequencies along the axis).

    Raises:
      ArgumentError: an option is unknown, or the lengths do not fit each other.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> x = jnp.array([1.0, -1.0, 1.0, -1.0])
      >>> signal.csd(x, x, nperseg=4, window="boxcar", detrend=False)[1].real.tolist()
      [0.0, 0.0, 4.0]
    """
    check_choice("signal.csd", "scaling", scaling, ("density", "spectrum"))
    check_choice("signal.csd", "average", average, ("mean", "median"))
    options = nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    return _csd(x, y, fs, *_split_window(window), *options)


@eager_jit(
    static_argnames=("named", "nperseg", "noverlap", "nfft", "detrend", "return_onesided", "scaling", "axis", "average")
)
def _csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: float | Array,
    window: str | tuple[Any, ...] | ArrayLike,
    named: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: str | Callable[[Array], Array] | bool,
    return_onesided: bool,
    scaling: str,
    axis: int,
    average: str,
) -> tuple:
    signals = (x,) if y is None or y is x else (x, y)
    given = [as_array(v) for v in to_inexact_operands("signal.csd", *signals)]
    axes = [canonical_axis(axis, v.ndim, "signal.csd") for v in given]
    given = [jnp.moveaxis(v, i, -1) for v, i in zip(given, axes)]
    longest = max(v.shape[-1] for v in given)
    real = _real_of(given[0])
    cut = _segments("csd", window, named, nperseg, noverlap, nfft, longest, 256, real)
    # Signals of different lengths have the same segments, as in SciPy.
    given = [jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, longest - v.shape[-1])]) for v in given]
    # The transform of a real signal is symmetric, so half of it says all.
    onesided = return_onesided and all(v.dtype.kind != "c" for v in given)
    first, *others = (_spectra(v, cut, detrend, onesided) for v in given)
    # The periodogram of each segment is too noisy; the average over segments below reduces its variance.
    product = lax.conj(first) * (others[0] if others else first)
    values = cut.window
    # So that white noise has one density, and a sine one peak in the spectrum, under any window.
    power = fs * jnp.sum(values * values) if scaling == "density" else lax.square(jnp.sum(values))
    product = product / cast(power, product.dtype)
    if onesided:  # add the power at negative frequencies
        k = np.arange(cut.nfft // 2 + 1)
        # The frequency 0, and the Nyquist frequency of an even length, have no negative counterpart.
        sides = np.where((k == 0) | (2 * k == cut.nfft), 1, 2).astype(product.dtype)
        product = jnp.multiply(*align_ranks(product, sides))
    product = _unbiased_median(product) if average == "median" else jnp.mean(product, axis=-2)
    rank = broadcast_shapes(*(v.shape[:-1] for v in given))
    return _frequencies(cut, fs, onesided), jnp.moveaxis(product, -1, axes[0] if len(rank) + 1 == given[0].ndim else -1)


def _unbiased_median(x: Array) -> Any:
    """The median over segments, divided by the median of an exponential distribution of mean 1, which is its bias."""
    odd = 2 * np.arange(1.0, (x.shape[-2] - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (odd + 1) - 1 / odd)
    return lax.complex(jnp.median(lax.real(x), axis=-2), jnp.median(lax.imag(x), axis=-2)) / bias


def welch(
    x: ArrayLike,
    fs: float | Array = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | Callable[[Array], Array] | bool = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple:
    """The power spectral density of a signal by Welch's method.

    Args:
      x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average: as in `csd`.

    Returns:
      (the frequencies, the density, which is real).

    Raises:
      ArgumentError: an option is unknown, or the lengths do not fit each other.
      AxisError: the axis is out of bounds.

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
    # The spectrum of a signal with itself is real; its imaginary part is rounding.
    return frequencies, density.real


_EXTENSIONS = {
    "even": ("reflect", {}),
    "odd": ("reflect", {"reflect_type": "odd"}),
    "constant": ("edge", {}),
    "zeros": ("constant", {}),
    None: None,
}


def stft(
    x: ArrayLike,
    fs: float | Array = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | Callable[[Array], Array] | bool = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple:
    """The short-time Fourier transform.

    Args:
      x: the signal.
      fs, window, nperseg, noverlap, nfft, return_onesided, axis: as in `csd`.
      detrend: the trend to remove from each segment: `"constant"`, `"linear"`, a function, or False for none.
      boundary: the extension of the signal by half a segment at both ends: `"zeros"`, `"even"`, `"odd"`, `"constant"`,
        or None for no extension.
      padded: whether to pad with zeros to a whole number of segments.

    Returns:
      (the frequencies, the center times of the segments, the transform with frequencies along the axis and times
      last).

    Raises:
      ArgumentError: an option is unknown, or the lengths do not fit each other.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.stft(jnp.ones(8), nperseg=4)[2].shape
      (3, 5)
    """
    check_choice("signal.stft", "boundary", boundary, tuple(_EXTENSIONS))
    options = nperseg, noverlap, nfft, detrend, return_onesided, boundary, padded, axis
    return _stft(x, fs, *_split_window(window), *options)


@eager_jit(
    static_argnames=("named", "nperseg", "noverlap", "nfft", "detrend", "return_onesided", "boundary", "padded", "axis")
)
def _stft(
    x: ArrayLike,
    fs: float | Array,
    window: str | tuple[Any, ...] | ArrayLike,
    named: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: str | Callable[[Array], Array] | bool,
    return_onesided: bool,
    boundary: str | None,
    padded: bool,
    axis: int,
) -> tuple:
    x = to_inexact_array("signal.stft", x)
    axis = canonical_axis(axis, x.ndim, "signal.stft")
    x = jnp.moveaxis(x, axis, -1)
    cut = _segments("stft", window, named, nperseg, noverlap, nfft, x.shape[-1], 256, _real_of(x))
    edge = [(0, 0)] * (x.ndim - 1)
    if boundary is not None:
        mode, more = _EXTENSIONS[boundary]
        # The first and the last segment are then centred at the ends of the signal.
        x = jnp.pad(x, [*edge, (cut.length // 2, cut.length // 2)], mode, **more)
    if padded:
        x = jnp.pad(x, [*edge, (0, (-(x.shape[-1] - cut.length) % cut.step) % cut.length)])
    onesided = return_onesided and x.dtype.kind != "c"
    z = _spectra(x, cut, detrend, onesided)
    z = z / cast(jnp.sum(cut.window), z.dtype)
    # The centers of the segments; an extended signal begins half a segment earlier.
    times = np.arange(z.shape[-2]) * cut.step + cut.length / 2 - (cut.length / 2 if boundary is not None else 0)
    times = jnp.array(times.astype(dtypes.canonicalize_dtype(np.float64))) / fs
    return _frequencies(cut, fs, onesided), times, jnp.moveaxis(jnp.moveaxis(z, -2, -1), -2, axis)


def _real_of(x: Array) -> Any:
    return np.dtype(f"float{4 * x.dtype.itemsize}") if x.dtype.kind == "c" else x.dtype


def istft(
    Zxx: ArrayLike,
    fs: float | Array = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple:
    """The inverse of the short-time Fourier transform.

    Args:
      Zxx: the result of `stft`.
      fs, window, noverlap: the arguments of `stft`.
      nperseg, nfft: the arguments of `stft`; by default derived from the number of frequencies.
      input_onesided: whether `Zxx` has only nonnegative frequencies.
      boundary: whether the signal was extended at its ends.
      time_axis, freq_axis: the axes of times and frequencies.

    Returns:
      (the times, the signal).

    Raises:
      ArgumentError: lengths do not fit, or the window is unknown.
      AxisError: the axis is out of bounds.
      ShapeError: the rank is below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> signal.istft(signal.stft(jnp.ones(8), nperseg=4)[2])[1].round(4).tolist()
      [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if np.ndim(Zxx) < 2:
        raise ShapeError(
            "signal.istft",
            expected="frequencies and times",
            got=np.shape(Zxx),
            fix="pass the result of signal.stft, frequencies by times",
        )
    options = nperseg, noverlap, nfft, input_onesided, bool(boundary), time_axis, freq_axis
    return _istft(Zxx, fs, *_split_window(window), *options)


@eager_jit(
    static_argnames=("named", "nperseg", "noverlap", "nfft", "input_onesided", "boundary", "time_axis", "freq_axis")
)
def _istft(
    z: ArrayLike,
    fs: float | Array,
    window: str | tuple[Any, ...] | ArrayLike,
    named: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    input_onesided: bool,
    boundary: bool,
    time_axis: int,
    freq_axis: int,
) -> tuple:
    z = to_complex(as_array(to_operand(z, "signal.istft")))
    time, freq = (canonical_axis(i, z.ndim, "signal.istft") for i in (time_axis, freq_axis))
    if time == freq:
        raise ArgumentError(
            "signal.istft, argument time_axis",
            expected="another axis than freq_axis",
            got=time_axis,
            fix="pass different axes, such as time_axis=-1 and freq_axis=-2",
        )
    z = jnp.moveaxis(z, (freq, time), (-2, -1))
    count = z.shape[-1]
    inferred = 2 * (z.shape[-2] - 1) if input_onesided else z.shape[-2]
    length = inferred if nperseg is None else int(nperseg)
    size = (inferred + 1 if input_onesided and length == inferred + 1 else inferred) if nfft is None else int(nfft)
    cut = _segments("istft", window, named, length, noverlap, size, length, length, _real_of(z))
    parts = jnp.fft.irfft(z, cut.nfft, axis=-2) if input_onesided else jnp.fft.ifft(z, cut.nfft, axis=-2)
    parts = jnp.moveaxis(parts, -1, -2)[..., : cut.length]
    parts = jnp.multiply(*align_ranks(parts, cut.window * jnp.sum(cut.window)))
    total = cut.length + (count - 1) * cut.step
    places = np.arange(count)[:, None] * cut.step + np.arange(cut.length)
    # Overlap-add of the windowed segments, normalized by the overlap-added squares of the window.
    x = lax.full((*parts.shape[:-2], total), 0, parts.dtype).at[..., places].add(parts)
    squares = broadcast_to_shape(lax.square(cut.window), places.shape)
    norm = lax.full((total,), 0, squares.dtype).at[places].add(squares)
    if boundary:
        half = cut.length // 2
        x, norm = x[..., half : total - half], norm[half : total - half]
    x = jnp.divide(*align_ranks(x, jnp.where(norm > 1e-10, norm, 1)))
    times = jnp.array(np.arange(x.shape[-1]).astype(dtypes.canonicalize_dtype(np.float64))) / fs
    place = min(time, freq) if z.ndim > 2 else 0
    return times, jnp.moveaxis(x, -1, place) if x.ndim > 1 and place != x.ndim - 1 else x


@eager_jit(static_argnames=("axis", "type", "bp"))
def _detrend(data: ArrayLike, axis: int, type: str, bp: tuple) -> Any:
    x = to_inexact_array("signal.detrend", data)
    axis = canonical_axis(axis, x.ndim, "signal.detrend")
    n = x.shape[axis]
    if any(not 0 <= b <= n for b in bp):
        raise ArgumentError(
            "signal.detrend, argument bp",
            expected=f"indices from 0 to {n}",
            got=bp,
            fix=f"pass breakpoints between 0 and {n}",
        )
    return jnp.moveaxis(_detrend_last(jnp.moveaxis(x, axis, -1), type, bp), -1, axis)


def _detrend_last(x: Array, type: str, bp: tuple) -> Any:
    """Subtract the mean of the last dimension, or the least-squares line between consecutive breakpoints."""
    if type == "constant":
        return x - jnp.mean(x, axis=-1, keepdims=True)
    n = x.shape[-1]
    ends = sorted({0, *bp, n})
    parts = []
    for start, stop in zip(ends[:-1], ends[1:]):
        size = stop - start
        ramp = np.arange(1, size + 1) / size
        # An orthonormal basis of the lines over a segment; subtracting the projection on it removes the trend.
        basis = np.linalg.qr(np.stack([ramp, np.ones(size)], 1))[0] if size > 1 else np.ones((1, 1))
        basis, part = jnp.array(basis.astype(x.dtype)), x[..., start:stop]
        share = jnp.matmul(part, basis, precision="highest")
        parts.append(part - jnp.matmul(share, basis.T, precision="highest"))
    return lax.concatenate(parts, x.ndim - 1) if parts else x


def detrend(
    data: ArrayLike, axis: int = -1, type: str = "linear", bp: int | Sequence[int] = 0, overwrite_data: None = None
) -> Array:
    """Remove the trend of a signal.

    Args:
      data: the signal.
      axis: the axis of the signal.
      type: `"linear"` to subtract the least-squares line, or `"constant"` to subtract the mean.
      bp: the breakpoints for `"linear"`, indices at which a new line begins.
      overwrite_data: must be None.

    Returns:
      An array of the shape of `data`, in floating point.

    Raises:
      ArgumentError: `type` is unknown, or a breakpoint is out of bounds; or `overwrite_data` is given.
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import signal
      >>> abs(signal.detrend(jnp.array([1.0, 2.0, 3.0])).round(4)).tolist()
      [0.0, 0.0, 0.0]
    """
    check_choice("signal.detrend", "overwrite_data", overwrite_data, (None,))
    check_choice("signal.detrend", "type", type, ("linear", "constant"))
    return _detrend(data, axis, type, tuple(int(b) for b in np.atleast_1d(bp)))
