"""From jaxprs to results: lowering to StableHLO, compiling, running on buffers, and the arrays that users hold.

`core` defines jaxprs and primitives; the packages above define operations. `array` and `transfer` are about data on
devices, `lowering` emits modules, and `compiled_program`, `eager_dispatch` and `eager_jit` compile and run them. Other
packages import from here what they need of several of these files. Builds on `engine`.
"""

from phalanx.runtime.array import Array as Array
from phalanx.runtime.in_flight import effects_barrier as effects_barrier
