"""From jaxprs to results: lowering to StableHLO, compiling, running on buffers, and the arrays that users hold.

`core` defines jaxprs and primitives; the packages above define operations. `array` and `transfer` are about data on
devices, `lowering` and `module_lowering` emit modules, and `compiled_program`, `compiled_call`, `eager_dispatch` and
`eager_jit` compile and run them. Builds on `engine`.
"""

from __future__ import annotations

from phalanx.runtime.array import Array as Array
from phalanx.runtime.in_flight import effects_barrier as effects_barrier
