"""`import phalanx.nnx` imports names lazily, and type checkers see the same names as users."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx import nnx

FACE = Path(nnx.__file__)


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=FACE.parents[2]
    )
    return done.stdout


def test_importing_it_loads_nothing():
    program = (
        "import sys; import phalanx.nnx; print(*(m for m in sys.modules if m.split('.')[0] in ('phalanx', 'numpy')))"
    )
    assert run(program).split() == ["phalanx", "phalanx.nnx"]


def test_types_of_values_name_the_public_module_before_their_names_are_used():
    program = (
        "from phalanx import nnx; model = nnx.BatchNorm(1, rngs=nnx.Rngs(0)); stream = nnx.Rngs(0).default; "
        "print(*(type(x) for x in (model.scale, model.mean, stream, stream.key, nnx.state(model))))"
    )
    names = ("Param", "BatchStat", "RngStream", "RngKey", "State")
    assert run(program).strip() == " ".join(f"<class 'phalanx.nnx.{name}'>" for name in names)


def test_names_for_type_checkers_match_the_lazy_import_tables():
    (block,) = [node for node in ast.parse(FACE.read_text()).body if isinstance(node, ast.If)]
    typed = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            typed |= {alias.asname: (node.module, alias.name) for alias in node.names}
        else:
            typed[node.targets[0].id] = typed[node.value.id]
    tables = {**nnx._NAMES, **{name: tuple(m.rsplit(".", 1)) for name, m in nnx._MODULES.items()}}
    assert typed == tables


@pytest.mark.parametrize("name", dir(nnx))
def test_each_name_is_there(name):
    assert getattr(nnx, name) is not None


def test_no_function_has_the_name_of_a_module():
    """Importing the module would put it in the function's place."""
    modules = {path.stem for path in FACE.parent.iterdir()}
    assert modules & set(nnx._NAMES) == set()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'phalanx.nnx' has no attribute 'Lienar'$"):
        nnx.Lienar


def test_the_names_of_flax_are_there():
    flax = pytest.importorskip("flax.nnx")
    # Other libraries' wrappers, variables that are mutable references, and the inside of the graph mechanism.
    left_out = set(
        "A M var_defaults vars_as with_vars deprecations extract module "
        "proxy_caller reprlib tracers training transforms wrappers annotations".split()
    )
    missing = {name for name in dir(flax) if not name.startswith("_")} - set(dir(nnx)) - left_out
    assert missing <= set(dir(phalanx.nn)) | {"tp", "typing"}, missing
