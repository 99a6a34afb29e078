"""A pytest plugin that runs tests written for JAX on Phalanx: `pytest -p phalanx.as_jax.pytest_plugin`.

pytest registers a plugin named by `-p` before it imports installed plugins and `conftest.py`, so `import jax` finds
Phalanx in all of these. The line `addopts = "-p phalanx.as_jax.pytest_plugin"` in a project's settings does the same.
"""

from __future__ import annotations

import pytest

import phalanx
from phalanx import as_jax
from phalanx.as_jax.public_names import JAX_VERSION


def pytest_addoption(parser: pytest.Parser) -> None:
    """Serve `import jax` from now on, and declare the options."""
    as_jax.install()
    group = parser.getgroup("phalanx", "tests written for JAX, on Phalanx")
    group.addoption("--nnx", action="store_true", help="serve flax.nnx from phalanx.nnx even if Flax is installed")
    group.addoption("--report", action="store_true", help="list the names of JAX that were not found")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Serve what the options ask for, before the first `conftest.py`."""
    if early_config.known_args_namespace.nnx:
        as_jax.install(flax_nnx=True)


def pytest_report_header() -> str:
    """Say in the header of the report what `jax` is."""
    return f"jax: {JAX_VERSION}, served by phalanx {phalanx.__version__}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the names that were not found, under `--report`."""
    if config.option.report:
        terminalreporter.write_line(as_jax.format_missing_names())
