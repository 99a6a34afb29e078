"""Parameters of public functions have the names and positions that they have in JAX, so that calls by keyword port."""

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys

import pytest

MODULES = """
jax jax.numpy jax.numpy.linalg jax.numpy.fft jax.lax jax.lax.linalg jax.nn jax.nn.initializers jax.random jax.tree
jax.tree_util jax.flatten_util jax.scipy.special jax.scipy.linalg jax.scipy.stats jax.scipy.signal jax.scipy.ndimage
jax.scipy.optimize jax.scipy.fft jax.scipy.integrate jax.scipy.interpolate jax.scipy.sparse.linalg jax.sharding
jax.export jax.debug jax.image jax.ops jax.dlpack jax.dtypes jax.ad_checkpoint jax.custom_batching
jax.custom_derivatives jax.test_util jax.ffi jax.profiler jax.distributed jax.experimental.checkify
jax.experimental.jet jax.experimental.ode jax.experimental.sparse jax.experimental.shard_map
jax.experimental.multihost_utils jax.experimental.mesh_utils jax.example_libraries.optimizers
jax.example_libraries.stax
""".split()

# What differs, with the reason.
DIFFERENT = {
    "jax.numpy.isneginf": {"out"},  # by keyword only; it must be None
    "jax.numpy.isposinf": {"out"},
    "jax.numpy.issubdtype": {"arg1", "arg2"},  # the same function as jax.dtypes.issubdtype, with its names
    "jax.make_mesh": {"axis_shapes"},  # by keyword; the first parameter is axis_sizes, as in `AbstractMesh`
    "jax.test_util.check_jvp": {"err_msg"},  # the message says what was compared
    "jax.test_util.check_vjp": {"err_msg"},
    "jax.scipy.special.log_ndtr": {"series_order"},  # the number of terms follows from the dtype
    "jax.profiler.start_server": {"requires_backend"},  # a server needs no devices
    "jax.distributed.initialize": {"partition_index", "slice_index"},  # slices are of TPUs
}

PRINT_SIGNATURES = """
import importlib, inspect, json, sys
found = {}
for module in sys.argv[1].split():
    space = importlib.import_module(module)
    for name in dir(space):
        function = getattr(space, name, None)
        if name.startswith("_") or not inspect.isroutine(inspect.unwrap(function)):
            continue
        try:
            parameters = inspect.signature(function).parameters.values()
        except (ValueError, TypeError):
            continue
        found[f"{module}.{name}"] = [(p.name, p.kind.name) for p in parameters]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def signatures():
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    command = [sys.executable, "-W", "ignore", "-c", PRINT_SIGNATURES, " ".join(MODULES)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


def find_differences(function, theirs):
    """The parameters of JAX that a function of ours has not, by keyword or by position."""
    ours = inspect.signature(function).parameters
    kinds = {p.kind.name for p in ours.values()}
    positional = [n for n, p in ours.items() if p.kind.name in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    for i, (name, kind) in enumerate(theirs):
        by_keyword = kind in ("KEYWORD_ONLY", "POSITIONAL_OR_KEYWORD") and not name.startswith("_")
        by_position = kind in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD") and "VAR_POSITIONAL" not in kinds
        if (
            by_keyword
            and "VAR_KEYWORD" not in kinds
            and (name not in ours or ours[name].kind.name == "POSITIONAL_ONLY")
        ) or (by_position and (i >= len(positional) or (by_keyword and positional[i] != name))):
            yield name


@pytest.mark.parametrize("module", MODULES)
def test_parameters_have_the_names_of_jax(module, signatures):
    space = importlib.import_module(module.replace("jax", "phalanx", 1))
    functions = {n: t for n, t in signatures.items() if n.rpartition(".")[0] == module}
    found = {}
    for full_name, theirs in functions.items():
        function = getattr(space, full_name.rpartition(".")[2], None)
        if function is None:  # the page on the names of JAX says why
            continue
        different = set(find_differences(function, theirs)) - DIFFERENT.get(full_name, set())
        if different:
            found[full_name] = sorted(different)
    assert not found
