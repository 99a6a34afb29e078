"""Signals with the names of `scipy.signal`: `convolution.py`, and `spectra.py` over `windows.py`."""

from phalanx.engine.frames import guard as _guard
from phalanx.scipy.signal.convolution import convolve as convolve
from phalanx.scipy.signal.convolution import convolve2d as convolve2d
from phalanx.scipy.signal.convolution import correlate as correlate
from phalanx.scipy.signal.convolution import correlate2d as correlate2d
from phalanx.scipy.signal.convolution import fftconvolve as fftconvolve
from phalanx.scipy.signal.spectra import csd as csd
from phalanx.scipy.signal.spectra import detrend as detrend
from phalanx.scipy.signal.spectra import istft as istft
from phalanx.scipy.signal.spectra import stft as stft
from phalanx.scipy.signal.spectra import welch as welch

_guard(globals())
