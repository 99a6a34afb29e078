"""`import phalanx` loads no other module, lists every public name, and shows type checkers the same names."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import phalanx
from phalanx.alias_modules import ALIAS_MODULES, find_submodules

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "phalanx"
PUBLIC = [name for name in dir(phalanx) if not name.startswith("_")]


def modules_after(statement: str) -> set[str]:
    """The modules that a statement loads in a fresh interpreter."""
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
    "package", ["tree", "core", "runtime", "sharding", "transforms", "lax", "numpy", "random", "nn", "spmd", "optim"]
)
def test_no_package_loads_heavy_dependencies(package):
    heavy = {"jax", "flax", "scipy", "opt_einsum", "rich", "tensorstore"}
    tops = {name.split(".")[0] for name in modules_after(f"import phalanx.{package}")}
    assert tops.isdisjoint(heavy), tops & heavy


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_can_be_imported(name):
    assert getattr(phalanx, name) is not None


def test_type_checkers_see_the_names_of_the_table():
    (block,) = [node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    typed = {}
    for statement in block.body:
        for alias in statement.names:
            assert alias.asname == alias.name
            typed[alias.name] = statement.module
    aliases = {f"phalanx.{module}" for module in ALIAS_MODULES}
    names = {name: module for name, module in phalanx._NAMES.items() if module not in aliases}
    assert typed == names | dict.fromkeys(phalanx._PACKAGES, "phalanx")


def test_dir_lists_the_top_level_alias_modules():
    assert set(find_submodules("")) == {name for name in ALIAS_MODULES if "." not in name}
    assert set(find_submodules("")) <= set(dir(phalanx))
    assert all(getattr(phalanx, name).__name__ == f"phalanx.{name}" for name in find_submodules(""))


@pytest.mark.parametrize("module", sorted(ALIAS_MODULES))
def test_an_alias_module_shows_its_names_and_no_others(module):
    found = importlib.import_module(f"phalanx.{module}")
    assert all(hasattr(found, name) for name in dir(found))
    assert dir(found) == sorted(dir(found)) and not any(re.match("_[^_]", name) for name in dir(found))
    with pytest.raises(AttributeError, match=rf"^module 'phalanx.{module}' has no attribute 'jitt'$"):
        found.jitt


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
def test_common_imports_of_jax_programs_work(statement):
    exec(statement, {})


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'phalanx' has no attribute 'jitt'$"):
        phalanx.jitt


def test_version_equals_the_version_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert phalanx.__version__ == project["version"]
