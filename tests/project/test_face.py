"""`import phalanx` is only a face: it loads nothing, names everything, and says the same to type checkers."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import phalanx

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "phalanx"
PUBLIC = [name for name in dir(phalanx) if not name.startswith("_")]


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter; tell which modules it loaded."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SOURCE.parent)
    return set(run.stdout.split())


def test_import_loads_nothing_heavy():
    loaded = modules_after("import phalanx")
    assert {name for name in loaded if name.split(".")[0] == "phalanx"} == {"phalanx"}
    assert loaded.isdisjoint({"numpy", "jaxlib", "ml_dtypes", "scipy", "jax", "flax"})


def test_the_command_line_loads_nothing_heavy():
    assert modules_after("import phalanx.cli").isdisjoint({"numpy", "jaxlib", "scipy", "rich"})


@pytest.mark.parametrize(
    "room", ["tree", "core", "runtime", "sharding", "transforms", "lax", "numpy", "random", "nn", "spmd", "optim"]
)
def test_no_room_loads_what_it_may_not_need(room):
    heavy = {"jax", "flax", "scipy", "opt_einsum", "rich", "tensorstore"}
    tops = {name.split(".")[0] for name in modules_after(f"import phalanx.{room}")}
    assert tops.isdisjoint(heavy), tops & heavy


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_there(name):
    assert getattr(phalanx, name) is not None


def test_the_names_given_to_type_checkers_are_those_of_the_table():
    (block,) = [node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    typed = {}
    for statement in block.body:
        for alias in statement.names:
            assert alias.asname == alias.name
            typed[alias.name] = statement.module
    assert {name: module for name, module in typed.items() if name in phalanx._NAMES} == phalanx._NAMES
    modules = {name: f"{module}.{name}" for name, module in typed.items() if name not in phalanx._NAMES}
    assert modules == phalanx._MODULES


@pytest.mark.parametrize(
    "statement",
    [
        "from phalanx.custom_derivatives import SymbolicZero, custom_jvp",
        "from phalanx.dtypes import bfloat16, issubdtype, prng_key",
        "from phalanx.errors import ConcretizationTypeError, JaxRuntimeError, ShardingError",
        "from phalanx.experimental import enable_x64, host_callback, io_callback, mesh_utils",
        "from phalanx.experimental.global_device_array import GlobalDeviceArray",
        "from phalanx.experimental import PartitionSpec",
        "from phalanx.experimental.maps import Mesh, mesh, thread_resources, xmap",
        "from phalanx.experimental.multihost_utils import broadcast_one_to_all, process_allgather, sync_global_devices",
        "from phalanx.experimental.pjit import FROM_GDA, PartitionSpec, pjit, with_sharding_constraint",
        "from phalanx.interpreters.sharded_jit import PartitionSpec, sharded_jit",
        "from phalanx.interpreters import pxla",
        "from phalanx import host_count, host_id, tree_map, tree_multimap",
        "from phalanx.stages import Compiled, Lowered, Traced, Wrapped",
        "from phalanx.test_util import check_grads",
        "from phalanx.typing import ArrayLike, DTypeLike",
    ],
)
def test_programs_of_the_field_find_their_imports(statement):
    exec(statement, {})


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'phalanx' has no attribute 'jitt'$"):
        phalanx.jitt


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert phalanx.__version__ == project["version"]
