"""What programs for Flax use beside `flax.nnx`: dataclasses as pytrees, nested dictionaries, state dicts and msgpack.

`phalanx.flax.struct`, `traverse_util`, `core`, `training.train_state`, `jax_utils` and `serialization` have the names
of the modules of Flax. `core`, `training` and `serialization` are alias modules; the files here have the definitions.
Flax Linen is not part of Phalanx; `phalanx run` runs the real one.
"""

import importlib
from types import ModuleType

_MODULES = ("core", "jax_utils", "nnx", "serialization", "struct", "training", "traverse_util")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'phalanx.flax' has no attribute {name!r}")
    return importlib.import_module("phalanx.nnx" if name == "nnx" else f"phalanx.flax.{name}")


def __dir__() -> list[str]:
    return list(_MODULES)
