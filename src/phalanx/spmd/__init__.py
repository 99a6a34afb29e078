"""One program, many devices: `jit`, its stages, and placement."""

from phalanx.spmd.inspection import eval_shape as eval_shape
from phalanx.spmd.inspection import make_jaxpr as make_jaxpr
from phalanx.spmd.jit import clear_caches as clear_caches
from phalanx.spmd.jit import jit as jit
from phalanx.spmd.jit import pjit as pjit
