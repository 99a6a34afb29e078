"""Extension points for libraries that define operations or work on programs themselves, with the names of JAX.

`phalanx.extend.core` has jaxprs and primitives, `linear_util` functions with transformations around them; the rules of
primitives are in `phalanx.interpreters`.
"""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals(), modules="backend core linear_util mlir random sharding source_info_util")
