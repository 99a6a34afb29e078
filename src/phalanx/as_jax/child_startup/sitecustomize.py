"""Serves `import jax` from Phalanx in the Python processes that a program served by Phalanx starts.

`phalanx.as_jax.install` puts this directory on `PYTHONPATH`, so that Python imports this file at startup, before any
code of the program. It takes the directory off `sys.path` again, and hands over to the `sitecustomize` of the
environment.
"""

import importlib
import importlib.util
import os
import sys


def main() -> None:
    """Do what the docstring of this file says."""
    own = sys.modules[__name__]
    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != directory]
    # A child process may belong to an environment without Phalanx.
    if "PHALANX_AS_JAX" in os.environ and importlib.util.find_spec("phalanx") is not None:
        served = os.environ["PHALANX_AS_JAX"].split(",")
        importlib.import_module("phalanx.as_jax").install(flax_nnx="flax.nnx" in served)
    del sys.modules[__name__]
    try:
        importlib.import_module(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)  # The import system expects it there when this file has run.


if __name__ == "sitecustomize":
    main()
