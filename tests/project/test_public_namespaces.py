"""Public namespaces show their public names only, and give their name to what users import from them."""

import ast
import gc
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import optim
from phalanx.engine.defining_module import defining_module

PAGE = Path(__file__).parents[2] / "docs" / "public_api.md"
NAMESPACES = re.findall(r"^\| `(phalanx[\w.]*)` \|", PAGE.read_text(), re.MULTILINE)


def is_public_module(module: types.ModuleType, name: str) -> bool:
    path = f"{module.__name__}.{name}"
    has_modules = module.__name__ in ("phalanx", "phalanx.nnx", "phalanx.scipy.stats")  # listed in their own tables
    return has_modules or any(n == path or n.startswith(f"{path}.") for n in NAMESPACES)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_dir_shows_public_names_only(namespace):
    module = importlib.import_module(namespace)
    names = [name for name in dir(module) if not name.startswith("__")]
    assert names
    for name in names:
        thing = getattr(module, name)
        assert not name.startswith("_"), name
        if inspect.ismodule(thing):
            assert is_public_module(module, name), name
        else:
            home = (getattr(thing, "__module__", None) or "numpy").partition(".")[0]
            assert (
                home in ("phalanx", "numpy", "jax", "jaxlib", "ml_dtypes", "builtins") or namespace == "phalanx.typing"
            ), name


@pytest.mark.parametrize(
    "thing, name",
    [
        (jnp.sum, "phalanx.numpy"),
        (jnp.add, "phalanx.numpy"),
        (jnp.linalg.norm, "phalanx.numpy.linalg"),
        (phalanx.lax.scan, "phalanx.lax"),
        (phalanx.jit, "phalanx"),
        (phalanx.grad, "phalanx"),
        (phalanx.nnx.Linear, "phalanx.nnx"),
        (phalanx.NamedSharding, "phalanx"),
        (phalanx.Array, "phalanx"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_public_objects_name_the_module_that_users_import_them_from(thing, name):
    assert thing.__module__ == name
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert defining_module(thing).startswith("phalanx.")


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_exceptions_name_the_namespace_that_users_catch_them_from(namespace):
    module = importlib.import_module(namespace)
    for name in dir(module):
        thing = getattr(module, name)
        if isinstance(thing, type) and issubclass(thing, BaseException) and thing.__module__.startswith("phalanx"):
            assert thing.__module__ in NAMESPACES, (name, thing)
            assert getattr(importlib.import_module(thing.__module__), thing.__name__) is thing
            assert pickle.loads(pickle.dumps(thing)) is thing and defining_module(thing).startswith("phalanx.")


def test_a_traceback_shows_the_public_name_of_an_error():
    code = "import phalanx.numpy as jnp; jnp.ones(2) + jnp.ones(3)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-2].startswith("phalanx.errors.ShapeError: add: ")


def test_a_traceback_names_the_public_module():
    with pytest.raises(TypeError) as caught:
        jnp.sum(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert "sum() takes" in str(caught.value)


def test_a_lazy_name_does_not_make_boundaries_of_the_functions_beside_it():
    code = (
        "from phalanx.core import primitive\n"
        "import phalanx.core\n"
        "zero = primitive.ZERO\n"
        "phalanx.core.trace_state_clean, phalanx.core.max_dim\n"
        "assert primitive.ZERO is zero is phalanx.core.ZERO\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("namespace", [jnp, optim])
def test_names_for_type_checkers_are_in_the_table_of_lazy_imports(namespace):
    body = ast.parse(Path(namespace.__file__).read_text()).body
    (block,) = [node for node in body if isinstance(node, ast.If)]
    typed = {(alias.asname, node.module, alias.name) for node in block.body for alias in node.names}
    (call,) = [node.value for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    table = ast.literal_eval(next(keyword.value for keyword in call.keywords if keyword.arg == "lazy"))
    entries = {(entry, module) for module, names in table.items() for entry in names.split()}
    lazy = {
        (
            entry.partition("=")[0],
            module if "phalanx." in module else f"{namespace.__name__}.{module}",
            entry.split("=")[-1],
        )
        for entry, module in entries
    }
    assert typed <= lazy


def test_naming_an_optimizer_of_modules_loads_no_rules_of_updates():
    program = "import sys\nfrom phalanx.nnx import Optimizer\nprint(sorted(m for m in sys.modules if '.optim.' in m))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "['phalanx.optim.gradient_transformation', 'phalanx.optim.tree_arithmetic']\n"


def test_a_first_training_step_loads_nothing_for_rarer_programs():
    rare = {
        "engine.coordination": "programs over several processes",
        "engine.hlo_parser": "reports on communication",
        "engine.offline_compiler": "plans",
        "lax.linalg": "decompositions",
        "random.discrete_distributions": "samplers",
        "sharding.legacy_sharding_spec": "programs of 2021",
        "spmd.background_compilation": "warm",
        "spmd.row_maps": "pmap",
        "symbolic.simplex": "comparisons of symbolic dimensions",
    }
    program = (
        "import gc, sys\n"
        "from phalanx import numpy as jnp\n"
        "from phalanx.nnx import Linear, Module, MultiMetric, Optimizer, Param, Rngs, jit, relu, value_and_grad\n"
        "assert gc.isenabled()\n"
        "model = Linear(2, 3, rngs=Rngs(0))\n"
        "jit(value_and_grad(lambda model, x: relu(model(x)).sum()))(model, jnp.ones((4, 2)))\n"
        "print(*(m.removeprefix('phalanx.') for m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert rare.keys() & set(done.stdout.split()) == set()


def test_an_import_leaves_its_objects_to_full_collections():
    program = (
        "import gc, sys\n"
        "import phalanx\n"
        "phalanx.jit\n"
        "young = {id(x) for generation in (0, 1) for x in gc.get_objects(generation)}\n"
        "assert not young & set(map(id, map(vars, (sys.modules['phalanx.spmd.jit'], sys.modules['numpy']))))\n"
        "assert gc.isenabled() and not gc.get_freeze_count()\n"
    )
    frozen_by_python = gc.get_freeze_count()  # Python 3.12 starts with some, which must stay frozen
    if not frozen_by_python:
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_importing_numpy_leaves_operations_to_their_first_use():
    program = (
        "import gc, sys\n"
        "import phalanx.numpy as jnp\n"
        "assert 'phalanx.lax' not in sys.modules\n"
        "assert jnp.add.reduce(jnp.arange(3)) + 1 == 4 and gc.isenabled()\n"
        "assert jnp.absolute.__name__ == 'absolute' and jnp.absolute is not jnp.abs\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
