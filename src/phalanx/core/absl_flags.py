"""The options as command-line flags of Abseil, `--jax_<option>`, for programs that parse their arguments with it.

`absl` is imported by these functions only, so that Phalanx does not depend on it. They serve the methods
`config_with_absl` and `parse_flags_with_absl` of `phalanx.config`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any


def define_flags(values: Mapping[str, Any]) -> None:
    """Define a flag for each option that has none yet.

    Args:
      values: the value of each option; a truth value makes a flag that takes no argument.
    """
    from absl import flags

    for name, value in values.items():
        if f"jax_{name}" not in flags.FLAGS:
            define = flags.DEFINE_bool if isinstance(value, bool) else flags.DEFINE_string
            define(f"jax_{name}", None, f"The option {name} of phalanx.config.")


def apply_when_parsed(apply: Callable[[], None]) -> None:
    """Call `apply` once `absl.app.run` has parsed the command line, or now if it has."""
    from absl import app

    app.call_after_init(apply)


def parse_own_flags() -> None:
    """Parse the arguments before `--` that begin with `--jax`, and leave all others to the program."""
    from absl import flags

    own = [a for a in itertools.takewhile(lambda a: a != "--", sys.argv) if a.startswith(("--jax", "--nojax"))]
    flags.FLAGS(["", *own], known_only=True)


def given_flags(names: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options whose flags were given on the command line."""
    from absl import flags

    found = {name: flags.FLAGS[f"jax_{name}"] for name in names if f"jax_{name}" in flags.FLAGS}
    return {name: flag.value for name, flag in found.items() if flag.present}
