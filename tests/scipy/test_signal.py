"""Convolutions and spectra against SciPy."""

import numpy as np
import pytest
import scipy.signal

import phalanx
from phalanx.errors import ArgumentError, AxisError, ShapeError
from phalanx.scipy import signal

rng = np.random.default_rng(0)


def random(*shape, kind=np.float32):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(kind).kind == "c" else x).astype(kind)


def close(ours, theirs, tol=2e-4):
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tol, atol=tol)


SHAPES = [((7,), (3,)), ((7,), (4,)), ((3,), (6,)), ((4, 5), (2, 3)), ((3, 4), (4, 6)), ((3, 4, 5), (2, 2, 3))]


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolutions(name, mode, kind):
    for left, right in SHAPES:
        x, y = random(*left, kind=kind), random(*right, kind=kind)
        for method in ("auto", "fft"):
            close(getattr(signal, name)(x, y, mode, method), getattr(scipy.signal, name)(x, y, mode, "fft"))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
def test_convolve2d_and_correlate2d(mode, boundary):
    for kind in (np.float32, np.complex64):
        x, y = random(5, 6, kind=kind), random(3, 4, kind=kind)
        for name in ("convolve2d", "correlate2d"):
            wanted = getattr(scipy.signal, name)(x, y, mode, boundary, 1.5)
            close(getattr(signal, name)(x, y, mode, boundary, 1.5), wanted)


def test_fftconvolve_along_axes_and_derivatives():
    x, y = random(2, 6, 3), random(1, 3, 3)
    for mode in ("full", "same", "valid"):
        close(signal.fftconvolve(x, y, mode, axes=[1]), scipy.signal.fftconvolve(x, y, mode, axes=[1]))
        close(signal.fftconvolve(x, y, mode), scipy.signal.fftconvolve(x, y, mode))
    assert signal.convolve(np.arange(3), np.arange(2)).dtype == np.float32
    for method in ("direct", "fft"):
        convolve = lambda a, b, method=method: signal.convolve(a, b, "same", method)
        phalanx.test_util.check_grads(convolve, (x[0], y[0]), 1, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["linear", "constant"])
def test_detrend(kind):
    x = random(3, 11).cumsum(1)
    for axis in (0, -1):
        close(signal.detrend(x, axis, kind), scipy.signal.detrend(x, axis, kind), 1e-4)
    close(signal.detrend(x, bp=[4, 6], type=kind), scipy.signal.detrend(x, bp=[4, 6], type=kind), 1e-4)


SPECTRA = [
    dict(nperseg=16), dict(nperseg=15, noverlap=4, nfft=20), dict(nperseg=16, window="hamming", scaling="spectrum"),
    dict(window=("kaiser", 5.0), nperseg=16, detrend="linear"), dict(nperseg=16, detrend=False, return_onesided=False),
    dict(window=np.hanning(12).astype(np.float32), average="median"), dict(nperseg=16, fs=100.0), dict(nperseg=100),
]  # fmt: skip


@pytest.mark.parametrize("options", SPECTRA, ids=range(len(SPECTRA)))
def test_welch_and_csd(options):
    x, y = random(2, 100), random(2, 100)
    for ours, theirs in zip(signal.welch(x, **options), scipy.signal.welch(x, **options)):
        close(ours, theirs)
    for ours, theirs in zip(signal.csd(x, y, **options), scipy.signal.csd(x, y, **options)):
        close(ours, theirs)


def test_csd_of_complex_signals_and_unequal_lengths():
    z = random(60, 2, kind=np.complex64)
    options = dict(nperseg=8, axis=0, return_onesided=False)
    for ours, theirs in zip(signal.csd(z, z[::-1], **options), scipy.signal.csd(z, z[::-1], **options)):
        close(ours, theirs)
    x, y = random(50), random(40)
    for ours, theirs in zip(signal.csd(x, y, nperseg=16), scipy.signal.csd(x, y, nperseg=16)):
        close(ours, theirs)
    assert signal.welch(x, nperseg=16)[1].dtype == np.float32


TRANSFORMS = [
    dict(nperseg=16), dict(nperseg=15, noverlap=11, fs=50.0), dict(nperseg=16, window="blackman", boundary="even"),
    dict(nperseg=16, boundary="odd"), dict(nperseg=16, boundary="constant", padded=False),
    dict(nperseg=16, boundary=None), dict(nperseg=16, nfft=24, detrend="constant"), dict(nperseg=16, return_onesided=False),
]  # fmt: skip


@pytest.mark.parametrize("options", TRANSFORMS, ids=range(len(TRANSFORMS)))
def test_stft(options):
    x = random(2, 90)
    for ours, theirs in zip(signal.stft(x, **options), scipy.signal.stft(x, **options)):
        close(ours, theirs)


BACK = [
    dict(nperseg=16),
    dict(nperseg=15, noverlap=11, fs=50.0),
    dict(nperseg=16, nfft=24),
    dict(nperseg=16, window="hamming"),
]


@pytest.mark.parametrize("options", BACK, ids=range(len(BACK)))
def test_istft_inverts_stft(options):
    x = random(2, 90)
    z = scipy.signal.stft(x, **options)[2]
    close(signal.istft(z, **options)[1], scipy.signal.istft(z, **options)[1])
    close(signal.istft(z[0], **options)[0], scipy.signal.istft(z[0], **options)[0])
    close(signal.istft(signal.stft(x, **options)[2], **options)[1][:, :90], x)


def test_stft_along_other_axes_and_its_derivatives():
    x = random(64, 2)
    for ours, theirs in zip(signal.stft(x, nperseg=8, axis=0), scipy.signal.stft(x, nperseg=8, axis=0)):
        close(ours, theirs)
    z = scipy.signal.stft(x[:, 0], nperseg=8)[2]
    close(signal.istft(z.T, time_axis=0, freq_axis=1)[1], scipy.signal.istft(z)[1])
    close(signal.istft(z, boundary=False)[1][4:-4], scipy.signal.istft(z)[1])
    power = lambda x: (abs(signal.stft(x, nperseg=8)[2]) ** 2).sum()
    phalanx.test_util.check_grads(power, (x[:, 0],), 1, modes=("rev",), rtol=2e-2)


REFUSED = {
    "signal.convolve(X, X[0])": (ShapeError, "signal.convolve: expected arrays of one rank that are not empty, got"),
    "signal.convolve(X, X, 'x')": (ArgumentError, "signal.convolve, argument mode: expected 'full' or 'same' or 'valid'"),
    "signal.convolve(X, X, method='x')": (ArgumentError, "signal.convolve, argument method"),
    "signal.correlate(X[:1], X[:, :2], 'valid')": (ShapeError, "expected one array that is at least as large in each"),
    "signal.convolve2d(X[0], X[0])": (ShapeError, "signal.convolve2d: expected arrays of rank 2"),
    "signal.convolve2d(X, X, boundary='x')": (ArgumentError, "signal.convolve2d, argument boundary"),
    "signal.fftconvolve(X, X, axes=2)": (AxisError, "signal.fftconvolve, argument axis"),
    "signal.welch(X, nperseg=0)": (ArgumentError, "signal.csd, argument nperseg: expected a length from 1 to 4, got 0"),
    "signal.welch(X, nperseg=3, noverlap=3)": (ArgumentError, "signal.csd, argument noverlap: expected fewer than the 3"),
    "signal.welch(X, nperseg=3, nfft=2)": (ArgumentError, "signal.csd, argument nfft: expected 3 or more"),
    "signal.welch(X, window='x')": (ArgumentError, "signal.csd, argument window: expected 'hann' or"),
    "signal.welch(X, scaling='x')": (ArgumentError, "signal.csd, argument scaling"),
    "signal.welch(X, window=X[0], nperseg=3)": (ShapeError, "signal.csd, argument window: expected a vector of 3"),
    "signal.stft(X, boundary='x')": (ArgumentError, "signal.stft, argument boundary"),
    "signal.istft(X[0])": (ShapeError, "signal.istft: expected frequencies and times"),
    "signal.istft(X, time_axis=0, freq_axis=0)": (ArgumentError, "signal.istft, argument time_axis"),
    "signal.detrend(X, type='x')": (ArgumentError, "signal.detrend, argument type: expected 'linear' or 'constant'"),
    "signal.detrend(X, bp=9)": (ArgumentError, "signal.detrend, argument bp: expected indices from 0 to 4"),
    "signal.detrend(X, overwrite_data=True)": (ArgumentError, "signal.detrend, argument overwrite_data"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_arguments_are_errors(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(expression, {"signal": signal, "X": np.ones((3, 4), np.float32)})
