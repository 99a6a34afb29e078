"""The example libraries of JAX: `optimizers`, triples of functions, and `stax`, layers as pairs of functions.

New programs use `phalanx.optim` and `phalanx.nnx`.
"""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals(), modules="optimizers stax")
