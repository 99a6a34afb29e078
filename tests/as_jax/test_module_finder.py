"""What `import jax` and its submodules are when Phalanx serves them."""

import json
import re
from pathlib import Path

import pytest
from tests.as_jax.processes import run

from phalanx.as_jax.private_names import PRIVATE_NAMES
from phalanx.as_jax.public_names import JAX_VERSION, ONLY_IN_PHALANX

NAMESPACES = re.findall(r"^\| `phalanx\.([\w.]+)` \|", Path("docs/public_api.md").read_text(), re.MULTILINE)

# Programs that run in one process whose `import jax` finds Phalanx, since starting one takes a while.
PROGRAMS = {}

# Runs each program by itself, and prints for each what it printed, or its error.
RUN_ALL = """
import contextlib, io, json, sys, traceback
results = {}
for name, code in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(code, {"__name__": name})
        except BaseException:
            out.write(traceback.format_exc())
    results[name] = out.getvalue().splitlines()
print(json.dumps(results))
"""


def program(code):
    """Have the program run with the others; the test gets the lines that it printed."""

    def decorate(test):
        PROGRAMS[test.__name__] = code
        return test

    return decorate


@pytest.fixture(scope="module")
def all_printed():
    done = run("-m", "phalanx", "run", "-c", RUN_ALL, json.dumps(PROGRAMS))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def printed(request, all_printed):
    return all_printed[request.function.__name__]


MODULES = [f"jax.{name}" for name in NAMESPACES if name not in ONLY_IN_PHALANX]


@program(f"""
import importlib, jax
for name in {MODULES}:
    found = eval(name)  # as an attribute, without an import
    shown = importlib.import_module(name.replace("jax", "phalanx", 1))
    assert importlib.import_module(name) is found and found.__name__ == name and found.__doc__ == shown.__doc__
    assert set(dir(shown)) <= {{*dir(found)}} and found.__all__ == [n for n in dir(found) if n[0] != "_"]
for name in {sorted(ONLY_IN_PHALANX)}:
    assert importlib.util.find_spec("jax." + name) is None, name
    assert not hasattr(jax, name) or name == "checkpoint", name
import phalanx
assert jax.checkpoint is phalanx.remat
assert jax.Array is phalanx.Array and jax.numpy.sum is phalanx.numpy.sum and jax.numpy is not phalanx.numpy
assert not hasattr(jax.lax, "Primitive") and not hasattr(jax.lax, "shape")
""")
def test_every_public_module_is_served(printed):
    assert printed == []


@program("""
import inspect
import numpy as np
from jax._src.api_util import infer_argnums_and_argnames
from jax._src.numpy.util import promote_dtypes_complex
signature = inspect.signature(lambda a, b, /, c, *, d: None)
print(infer_argnums_and_argnames(signature, (0, 2), None), infer_argnums_and_argnames(signature, None, ("c", "d")))
print([x.dtype.name for x in promote_dtypes_complex(np.float32(1), 2)])
from jax.experimental import pallas
print(pallas.cdiv(7, 2))
try:
    pallas.pallas_call(lambda x_ref, o_ref: None, out_shape=None)
except NotImplementedError as error:
    print(error)
""")
def test_private_helpers_do_what_libraries_expect_of_them(printed):
    assert printed[:3] == ["((0, 2), ('c',)) ((2,), ('c', 'd'))", "['complex64', 'complex64']", "4"]
    assert printed[3].startswith("jax.experimental.pallas: expected operations of Phalanx") and "ffi_call" in printed[4]


ROWS = [(row.module, entry.partition("=")[0]) for row in PRIVATE_NAMES for entry in row.names.split()]


@program(f"""
import importlib
for module, name in {ROWS}:
    found = importlib.import_module(module)
    assert dir(found) if name == "*" else hasattr(found, name), (module, name)
""")
def test_every_row_of_the_tables_leads_somewhere(printed):
    assert len(set(ROWS)) == len(ROWS)
    assert printed == []


@program("""
import numpy as np
import jax
from jax._src import xla_bridge
from jax._src.lib import jax_mlir_ext
jax.numpy.ones(3)
print(xla_bridge.backends_are_initialized(), callable(jax_mlir_ext.register_dialects))
program = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
backend = xla_bridge.get_backend(None)
print(type(backend.compile_and_load(program, backend.devices()[:1])).__name__)
""")
def test_a_tutorial_can_compile_programs_of_its_own(printed):
    assert printed == ["True True", "LoadedExecutable"]


@program("""
import types, numpy, jax
import jax.scipy.stats.multivariate_normal as normal
print(normal.np is numpy)
def walk(module, depth):
    assert depth < 6, module.__name__
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, types.ModuleType) and value.__name__ == f"{module.__name__}.{name}":
            walk(value, depth + 1)
walk(jax, 0)
""")
def test_the_tree_of_modules_ends(printed):
    assert printed == ["True"]


@program("""
import jax.scipy.stats.norm as norm
import jax.numpy as jnp, jax, sys
from jax import lax, tree_util
from jax.experimental.shard_map import shard_map
from jax.scipy.stats import norm as same
namespace = {}
exec("from jax.numpy import *", namespace)
print(norm is same is jax.scipy.stats.norm, lax is sys.modules["jax.lax"], namespace["sin"] is jnp.sin, "jnp" in namespace)
print(sorted(m for m in sys.modules if m.split(".")[0] == "flax"))
""")
def test_forms_of_import(printed):
    assert printed == ["True True True False", "[]"]


@program("""
import importlib.metadata as metadata, importlib.util, jax, jax.version
print(jax.__version__, jax.version.__version__, metadata.version("jax"), metadata.distribution("jax").name)
print(jax.__version_info__, importlib.util.find_spec("jax").name, metadata.version("jaxlib") == __import__("jaxlib").__version__)
""")
def test_the_version_of_jax_is_told_in_every_way(printed):
    numbers = tuple(map(int, JAX_VERSION.split(".")))
    assert printed == [f"{JAX_VERSION} {JAX_VERSION} {JAX_VERSION} jax", f"{numbers} jax True"]


@program("""
import jax
for statement in ("jax.numpy.fftt", "from jax import jitt", "import jax.absent", "import jax._src.absent", "jax._src.core.absent"):
    try:
        exec(statement)
    except (AttributeError, ImportError) as error:
        print(type(error).__name__, str(error).partition(" (")[0])
""")
def test_an_unknown_name_is_the_usual_error(printed):
    assert printed == [
        "AttributeError module 'jax.numpy' has no attribute 'fftt'",
        "ImportError cannot import name 'jitt' from 'jax'",
        "ModuleNotFoundError No module named 'jax.absent'",
        "ModuleNotFoundError No module named 'jax._src.absent'",
        "AttributeError module 'jax._src.core' has no attribute 'absent'",
    ]


@program("""
from unittest import mock
import jax, jax.numpy as jnp, phalanx
with mock.patch("jax.numpy.sin", lambda x: "patched"), mock.patch.object(jax, "device_count", lambda: 64):
    print(jnp.sin(0), jax.device_count(), phalanx.numpy.sin(0))
jax.added = 1
print(jnp.sin(0.0), jax.device_count() < 64, jax.added, hasattr(phalanx, "added"))
del jax.added
print(hasattr(jax, "added"))
""")
def test_monkeypatching_changes_the_served_module_only(printed):
    assert printed == ["patched 64 0.0", "0.0 True 1 False", "False"]


@program("""
import jax
from jax._src import compiler

def refuse(backend, *args):
    raise RuntimeError(f"no compilation for {backend.platform}")

compile = compiler.backend_compile_and_load
compiler.backend_compile_and_load = refuse
try:
    jax.jit(lambda x: x + 12345)(1)
except RuntimeError as error:
    print(error)
compiler.backend_compile_and_load = compile
print(jax.jit(lambda x: x + 12345)(1), dict(jax._src.xla_bridge._backends))
""")
def test_a_replaced_compiler_is_called(printed):
    assert printed[0] == "no compilation for cpu" and printed[1].startswith("12346 {'cpu': ")


@program("""
import copy, pickle, jax, jax.numpy as jnp
for thing in (jnp.sin, jax.Array, jax.random.normal, jax.nn.relu):
    assert pickle.loads(pickle.dumps(thing)) is thing and copy.deepcopy(thing) is thing, thing
print(pickle.loads(pickle.dumps({"x": jnp.arange(3), "key": jax.sharding.PartitionSpec("a")})))
""")
def test_what_is_in_the_modules_can_be_pickled(printed):
    assert printed == ["{'x': Array([0, 1, 2], dtype=int32), 'key': P('a',)}"]


@program("""
import types, jax.numpy
print(type(jax) is type(jax.numpy) is types.ModuleType, jax.numpy.sin is vars(jax.numpy)["sin"])
""")
def test_a_look_up_costs_what_it_does_in_a_plain_module(printed):
    assert printed == ["True True"]


@pytest.fixture
def fake_jax(tmp_path):
    """A package that passes for the real jax, and says when it is loaded."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('the real jax is loaded')")
    return str(tmp_path)


@pytest.fixture
def fake_flax(tmp_path):
    (tmp_path / "flax").mkdir()
    (tmp_path / "flax" / "__init__.py").write_text("name = 'the real flax'")
    return str(tmp_path)


def test_an_installed_jax_stays_unloaded(fake_jax):
    code = "import jax, jax.numpy; print(jax.jit.__module__)"
    assert run("-c", code, paths=(fake_jax,)).stdout.splitlines()[0] == "the real jax is loaded"
    assert run("-m", "phalanx", "run", "-c", code, paths=(fake_jax,)).stdout == "phalanx\n"


def test_a_jax_that_is_loaded_already_is_an_error(fake_jax):
    code = "import jax, phalanx.as_jax; phalanx.as_jax.install()"
    done = run("-c", code, paths=(fake_jax,))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "phalanx.errors.ImportOrderError: phalanx.as_jax.install(): expected a process that has not imported jax yet, "
        f"got jax from {fake_jax}/jax/__init__.py.\n"
        "  Fix: call install() before the first import of it, or start the program with 'phalanx run'.\n"
    )


def test_install_twice_is_install_once(fake_flax):
    code = """
import phalanx.as_jax, sys
for _ in range(2):
    phalanx.as_jax.install()
import jax
phalanx.as_jax.install(flax_nnx=True)
import flax.nnx
print(len([f for f in sys.meta_path if type(f).__name__ == "ModuleFinder"]), flax.nnx.Linear.__module__)
"""
    done = run("-c", code, paths=(fake_flax,))
    assert done.stderr == "" and done.stdout == "1 phalanx.nnx\n"


def test_flax_nnx_is_served_on_request_and_the_rest_of_flax_is_not(fake_flax):
    code = "import flax, flax.nnx as nnx\nfrom flax import nnx as same\nprint(flax.name, nnx is same, nnx.Linear.__module__)"
    done = run("-m", "phalanx", "run", "--nnx", "-c", code, paths=(fake_flax,))
    assert done.stderr == "" and done.stdout == "the real flax True phalanx.nnx\n"


@pytest.mark.parametrize("options", [(), ("--nnx",)])
def test_flax_is_served_where_it_is_not_installed(options):
    code = """
import importlib.machinery
find, importlib.machinery.PathFinder.find_spec = importlib.machinery.PathFinder.find_spec, None
importlib.machinery.PathFinder.find_spec = lambda name, *more: None if name == "flax" else find(name, *more)
from flax import nnx
import flax.nnx
from flax import serialization, struct, traverse_util
from flax.core import FrozenDict, freeze
from flax.training import train_state
import flax.jax_utils
import phalanx.flax.core
print(nnx.Linear.__module__, nnx is flax.nnx, FrozenDict is phalanx.flax.core.FrozenDict, train_state.TrainState.__name__)
try:
    import flax.linen
except ModuleNotFoundError as error:
    print(error.name)
"""
    done = run("-m", "phalanx", "run", *options, "-c", code)
    assert done.stderr == "" and done.stdout == "phalanx.nnx True True TrainState\nflax.linen\n"


@program("""
import importlib
for name in "ad_checkpoint example_libraries.stax example_libraries.optimizers experimental.checkify experimental.sparse.linalg".split():
    found = importlib.import_module(f"jax.{name}")
    assert [n for n in dir(found) if n[0] != "_"], name
""")
def test_modules_below_alias_modules_are_served(printed):
    assert printed == []
