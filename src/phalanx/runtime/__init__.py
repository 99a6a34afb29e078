"""How a program comes to run: lowered to StableHLO, compiled, run on buffers, and arrays made of the results.

What a program is stands in `core`; the rules of operations are above. `array` and `placement` are what users hold,
`lowering` asks each primitive for its operations, `dispatch` compiles, runs and remembers. Builds on `engine`.
"""

from __future__ import annotations

from phalanx.runtime.array import Array as Array
from phalanx.runtime.runs import effects_barrier as effects_barrier
