"""The only package that imports jaxlib: clients, devices, buffers, MLIR, compiling and executing.

Other packages import from here what they need of several of its files.
"""

import os as _os

# jaxlib's C++ side reads the level when it is loaded and would otherwise log at INFO.
_os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
