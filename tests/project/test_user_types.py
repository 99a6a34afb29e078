"""A page of user code passes a type checker, which infers arrays where the library returns them."""

import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.core.array_operators import Operators

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]
STUB = ROOT / "src/phalanx/core/array_method_types.pyi"

PAGE = """
import phalanx
import phalanx.numpy as jnp
from phalanx import nnx

x = jnp.ones((3, 4))
reveal_type(jnp.sum(x).at[0].set(1))
reveal_type(x + 1)
reveal_type(1 - x)
reveal_type(x == 1)
reveal_type(x.sum())
reveal_type(x.T)
reveal_type(x[0, :2].reshape(1, -1))

@phalanx.jit
def scale(x: phalanx.Array, by: float = 2.0) -> phalanx.Array:
    return x * by

reveal_type(scale(x))
scale.lower(x)

class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(4, 8, rngs=rngs)

    def __call__(self, x: phalanx.Array) -> phalanx.Array:
        return jnp.tanh(self.linear(x))

reveal_type(Model(nnx.Rngs(0))(x))
"""


def check(path: Path, page: str) -> list[str]:
    path.write_text(page)
    options = ["--config-file", "/dev/null", "--cache-dir", str(path.parent), "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *options, "--follow-imports", "silent", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "src", check=False)
    return [line for line in done.stdout.splitlines() if line.startswith(str(path))]


@pytest.mark.slow
def test_a_page_of_user_code_type_checks(tmp_path):
    lines = check(tmp_path / "page.py", PAGE)
    assert len(lines) == PAGE.count("reveal_type")
    assert {line.split(": note: ")[-1] for line in lines} == {'Revealed type is "phalanx.runtime.array.Array"'}
    (wrong,) = check(tmp_path / "wrong.py", "import phalanx.numpy as jnp\njnp.ones(3).summ()\n")
    assert 'error: "Array" has no attribute "summ"' in wrong


def test_type_checkers_know_every_operator_and_method_of_arrays():
    phalanx.numpy.ones(1)  # installs them
    text = STUB.read_text()
    own = {"__getattr__", "__len__", "__setitem__", "__module__", "__doc__", "__slots__", "__array_priority__"}
    of_python_3_13 = {"__firstlineno__", "__static_attributes__"}
    installed = {name for name in vars(Operators) if name not in own | of_python_3_13 | {"__array_namespace__"}}
    assert [name for name in sorted(installed) if f"def {name}(" not in text] == []
