"""Signal processing with the names of `scipy.signal`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.signal.signal_convolution import (
    convolve as convolve,
    convolve2d as convolve2d,
    correlate as correlate,
    correlate2d as correlate2d,
    fftconvolve as fftconvolve,
)
from phalanx.scipy.signal.spectra import csd as csd, detrend as detrend, istft as istft, stft as stft, welch as welch

__getattr__, __dir__ = _publish(globals())
