"""Run programs, libraries and tests that were written for JAX, unmodified.

After `install()`, `import jax` finds Phalanx in this process and in the Python processes that it starts. A real JAX may
be installed, and stays unloaded. `phalanx run SCRIPT` and the pytest plugin call `install()` for programs that cannot.

`module_finder` serves the modules. A name is looked up in `public_names` and `private_names`, which list what Phalanx
has in another place than JAX, and then in Phalanx's module of the same name. Only these files and the standard library
are loaded here: every process that such a program starts imports this package.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import phalanx
from phalanx.as_jax.module_finder import ModuleFinder, ModuleLoader

__all__ = ["format_missing_names", "install", "load_ipython_extension", "missing_names"]

_STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child_startup")
_SERVED = "PHALANX_AS_JAX"  # read by child_startup/sitecustomize.py and engine/runtime_errors.py


def install(*, flax_nnx: bool = False) -> None:
    """Serve `import jax` from Phalanx, in this process and in its child processes.

    Child processes find a `sitecustomize` module on `PYTHONPATH`, which this function extends in `os.environ`; it
    serves the same names there, under `multiprocessing`'s spawn as under `subprocess`.

    Args:
      flax_nnx: serve `import flax.nnx` from `phalanx.nnx` even if Flax is installed; the rest of Flax is the real one.
        Where it is not installed, `flax.nnx` and what `phalanx.flax` has are always served.

    Raises:
      ImportOrderError: the real package has been imported in this process already.

    Examples:
      >>> import phalanx.as_jax
      >>> phalanx.as_jax.install()  # doctest: +SKIP
      >>> import jax.numpy as jnp  # doctest: +SKIP
      >>> jnp.arange(3) + 1  # doctest: +SKIP
      Array([1, 2, 3], dtype=int32)
    """
    trees = {"jax": "phalanx"} | ({"flax.nnx": "phalanx.nnx"} if flax_nnx else {})
    for name in trees:
        loaded = sys.modules.get(name)
        if loaded is not None and not isinstance(loaded.__loader__, ModuleLoader):
            raise phalanx.errors.ImportOrderError(
                "phalanx.as_jax.install()",
                expected=f"a process that has not imported {name} yet",
                got=f"{name} from {getattr(loaded, '__file__', 'an unknown place')}",
                fix="call install() before the first import of it, or start the program with 'phalanx run'",
            )
    finder = _find_installed()
    if finder is None:
        finder = ModuleFinder()
        sys.meta_path.insert(0, finder)
    finder.trees |= trees
    finder.fallbacks["flax"] = {"flax": "phalanx.flax", "flax.nnx": "phalanx.nnx"}
    os.environ[_SERVED] = ",".join(finder.trees)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _STARTUP not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_STARTUP, *filter(None, paths)])


def missing_names() -> dict[str, list[str]]:
    """List the names of JAX that were asked for in vain in this process.

    Returns:
      For each name, such as `jax.numpy.fftt`, the modules that asked for it.

    Examples:
      >>> missing_names()
      {}
    """
    finder = _find_installed()
    return {} if finder is None else {name: sorted(users) for name, users in sorted(finder.missing.items())}


def format_missing_names() -> str:
    """Format `missing_names()` as lines of text, for a bug report."""
    missing = missing_names()
    if not missing:
        return "Phalanx has every name of JAX that this program asked for."
    width = max(map(len, missing))
    lines = [f"  {name:{width}}  {', '.join(users)}" for name, users in missing.items()]
    return "\n".join(["Names of JAX that Phalanx does not have, and the modules that asked for them:", *lines])


def load_ipython_extension(ipython: Any) -> None:
    """Serve `import jax` in a notebook: `%load_ext phalanx.as_jax` in a cell before the first import of JAX."""
    install()


def __dir__() -> list[str]:
    return list(__all__)


def _find_installed() -> ModuleFinder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, ModuleFinder)), None)
