"""`python -m phalanx`: the command line of `phalanx.cli`."""

from phalanx.cli import main

raise SystemExit(main())
