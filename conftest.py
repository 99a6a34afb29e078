"""Settings for tests and doctests that must be made before phalanx is first imported."""

import ctypes
import doctest
import functools
import gc
import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("PHALANX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
# Idle BLAS threads spin, which slows the threads of XLA and of other test processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# On an accelerator, the peer would compute with other rounding.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", os.environ["PHALANX_NUM_CPU_DEVICES"])
# Most test time is XLA optimizing programs that run once. Without LLVM's expensive passes, without fusion emitters
# (which the newest jaxlib requires) and without splitting modules, compiling takes a third of the time. CI sets
# XLA_FLAGS to the empty string on its second Python, where programs are compiled as users have them.
QUICKLY_COMPILED = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if version("jaxlib").startswith("0.10."):
    QUICKLY_COMPILED.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(QUICKLY_COMPILED))

# Any example may be the one that compiles, so there is no deadline. CI draws the same examples in each run.
REPEATS = "CI" in os.environ
settings.register_profile(
    "phalanx", deadline=None, derandomize=REPEATS, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("phalanx")
if REPEATS and (draws := sys.modules.get("hypothesis.internal.conjecture.providers")):
    # By default, Hypothesis also draws constants of all imported modules, which depend on the test files that the
    # process happened to run before.
    draws._get_local_constants = lambda: draws._local_constants

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SOURCE = Path(__file__).parent / "src"


def pytest_collect_file(file_path: Path) -> None:
    """Import a source file the ordinary way before pytest does.

    Otherwise pytest would execute a module that its package has already imported, which declares primitives twice,
    and would replace a function by the module of its name (`phalanx.spmd.jit`).
    """
    if file_path.suffix == ".py" and file_path.stem not in ("__init__", "__main__") and SOURCE in file_path.parents:
        importlib.import_module(".".join(file_path.relative_to(SOURCE).with_suffix("").parts))


def find_examples_where_defined(module: ModuleType, thing: object) -> bool:
    """Whether doctest reads the examples of `thing` in `module`: in the file that defines it, not in its namespace."""
    from phalanx.engine.defining_module import defining_module

    defined = defining_module(thing)
    return belongs_to_module(module, thing) if defined is None else defined == module.__name__


belongs_to_module = functools.partial(doctest.DocTestFinder()._from_module)
doctest.DocTestFinder._from_module = lambda self, module, thing: find_examples_where_defined(module, thing)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases as slow by `one_is_quick`, before tests are selected by mark, and sort files by expected duration.

    Processes take whole files in this order, so that none is left with a long file at the end: files marked `lengthy`,
    then files with the most tests.
    """
    seen = set()
    for item in items:
        for mark in item.iter_markers("one_is_quick"):
            group = item.path, item.originalname, mark.kwargs["group"](**item.callspec.params)
            if group in seen:
                item.add_marker("slow")
            seen.add(group)
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.get_closest_marker("lengthy") is None, -counts[item.path]))


@pytest.fixture(autouse=True, scope="session")
def names_of_examples(doctest_namespace: dict) -> None:
    """Examples in `phalanx.numpy` use `jnp` without importing it."""
    import phalanx.numpy

    doctest_namespace["jnp"] = phalanx.numpy


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Run a test with 64-bit types."""
    import phalanx

    with phalanx.enable_x64(True):
        yield


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which live as long as the process, from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Free compiled programs, 0.6 MB each, before they take gigabytes."""
    if sys.platform == "linux" and int(Path("/proc/self/statm").read_text().split()[1]) * PAGE > 3 * 2**29:
        import phalanx

        phalanx.clear_caches()
        if (jax := sys.modules.get("jax")) is not None:
            jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
