"""Settings that must stand before phalanx is first imported, for the tests and for the doctests of the sources."""

import os

from hypothesis import settings

os.environ.setdefault("PHALANX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
# A peer that finds an accelerator would compare another machine's arithmetic.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# An example may be the one that compiles, so no time limit; CI draws the same examples at each run.
settings.register_profile("phalanx", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("phalanx")
