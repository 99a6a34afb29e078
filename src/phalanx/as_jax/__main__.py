"""`python -m phalanx.as_jax`: the same as `phalanx run`."""

import sys

from phalanx.as_jax.program_runner import run

raise SystemExit(run(sys.argv[1:]))
