"""Functions under the names of SciPy, on arrays. Each submodule is loaded on first use."""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(
    globals(), modules="cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats"
)
