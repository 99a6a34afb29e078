"""Fourier-related transforms with the names of `scipy.fft`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.fft.discrete_cosine import dct as dct, dctn as dctn, idct as idct, idctn as idctn

__getattr__, __dir__ = _publish(globals())
