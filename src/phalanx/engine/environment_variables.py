"""Environment variables of options: `PHALANX_NAME`, or `JAX_NAME` as programs for JAX set it."""

from __future__ import annotations

import os


def option_variables(name: str) -> tuple[str, str]:
    """The environment variables that set an option when Phalanx is loaded; the first one that is set counts."""
    return f"PHALANX_{name.upper()}", f"JAX_{name.upper()}"


def read_option_variable(*names: str) -> str | None:
    """The text of the first environment variable that sets an option.

    Args:
      *names: the option, and other spellings of it.

    Returns:
      The text; None if no variable is set.

    Examples:
      >>> import os
      >>> os.environ["JAX_AN_EXAMPLE"] = "7"
      >>> read_option_variable("an_example")
      '7'
    """
    variables = (variable for name in names for variable in option_variables(name))
    return next((os.environ[variable] for variable in variables if variable in os.environ), None)
