"""Imports point down; only `engine` imports jaxlib, and nothing imports jax or flax."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "phalanx"


def imported(text: str) -> set[str]:
    """List the top-level packages that a program imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def breaches(path: str, text: str) -> set[str]:
    """List the packages that the file at `path` imports and may not."""
    banned = {"jax", "flax", "optax", "orbax", "pickle"}
    return imported(text) & (banned if path.startswith("engine/") else {*banned, "jaxlib"})


def test_jaxlib_is_imported_in_the_engine_only_and_jax_nowhere():
    files = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    assert {path: bad for path, text in files.items() if (bad := breaches(path, text))} == {}


def test_the_checker_sees_a_late_import():
    late = "def f():\n    from jaxlib import xla_client\n"
    assert breaches("core/a.py", late) == {"jaxlib"}
    assert breaches("engine/a.py", late) == set()
    assert breaches("engine/a.py", "import jax.numpy as jnp") == {"jax"}


def test_names_of_core_are_imported_from_the_package():
    """`phalanx/__init__.py` is exempt, since its table names the defining file of what it imports on first use."""
    outside = [path for path in SOURCE.rglob("*.py") if SOURCE / "core" not in path.parents and path.parent != SOURCE]
    found = {
        f"{path.relative_to(SOURCE)}: {alias.name}"
        for path in outside
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("phalanx.core.")
        for alias in node.names
        if hasattr(phalanx.core, alias.name)
    }
    assert len(outside) > 400 and found == set()


def test_imports_only_point_down():
    pytest.importorskip("importlinter")
    program = "import sys; sys.argv = ['lint-imports', '--no-cache']; from importlinter.cli import lint_imports_command as c; c()"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert run.returncode == 0, run.stdout + run.stderr


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(SOURCE.parent), "PYTHONUTF8": "1"}
