"""The pytest plugin and the notebook extension."""

import re

from tests.as_jax.processes import run

PLUGIN = ("-m", "pytest", "-p", "phalanx.as_jax.pytest_plugin", "-q", "-p", "no:cacheprovider")


def test_tests_and_their_conftest_find_phalanx(tmp_path):
    (tmp_path / "conftest.py").write_text("import jax\nassert jax.jit.__module__ == 'phalanx'\n")
    (tmp_path / "test_it.py").write_text(
        "import jax.numpy as jnp\nfrom flax import nnx\n"
        "def test_sum():\n    assert jnp.ones(3).sum() == 3 and nnx.Linear.__module__ == 'phalanx.nnx'\n"
        "    assert not hasattr(jnp, 'fftt')\n"
    )
    (tmp_path / "flax").mkdir()
    (tmp_path / "flax" / "__init__.py").write_text("")
    done = run(*PLUGIN, "--nnx", "--report", cwd=tmp_path, paths=(str(tmp_path),))
    assert done.returncode == 0, done.stdout
    assert re.search(r"\n  jax.numpy.fftt +test_it\n", done.stdout) and "1 passed" in done.stdout


def test_the_notebook_extension_installs():
    code = "import phalanx.as_jax as extension; extension.load_ipython_extension(None); import jax; print(jax.jit.__module__)"
    assert run("-c", code).stdout == "phalanx\n"
