"""Settings that must stand before phalanx is first imported, for the tests and for the doctests of the sources."""

import ctypes
import gc
import importlib
import os
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("PHALANX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
# Threads of BLAS that wait for work take it from the threads of XLA and of the other processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A peer that finds an accelerator would compare another machine's arithmetic.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", os.environ["PHALANX_NUM_CPU_DEVICES"])
# Tests mostly wait for XLA, which compiles for long to make fast what runs once: without its passes, its emitters
# of fused loops (without which the newest jaxlib no longer can do) and in one piece it takes a third of the
# time. With XLA_FLAGS set to nothing, as CI has it on its second Python, programs are compiled as users have them.
QUICKLY_COMPILED = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if version("jaxlib").startswith("0.10."):
    QUICKLY_COMPILED.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(QUICKLY_COMPILED))

# An example may be the one that compiles, so nothing depends on time; CI draws the same examples at each run.
REPEATS = "CI" in os.environ
settings.register_profile(
    "phalanx", deadline=None, derandomize=REPEATS, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("phalanx")
if REPEATS and (draws := sys.modules.get("hypothesis.internal.conjecture.providers")):
    # Left to itself, Hypothesis also draws numbers that stand in the modules imported so far, which are those of the
    # files of tests that the process happened to run before.
    draws._get_local_constants = lambda: draws._local_constants

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SOURCE = Path(__file__).parent / "src"


def pytest_collect_file(file_path: Path) -> None:
    """Import a source file the ordinary way before pytest does.

    Left to itself, pytest runs a module again that its package has imported, so that primitives would be declared
    twice, and puts the module in the place of a function of its name (`phalanx.spmd.jit`).
    """
    if file_path.suffix == ".py" and file_path.stem not in ("__init__", "__main__") and SOURCE in file_path.parents:
        importlib.import_module(".".join(file_path.relative_to(SOURCE).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count as slow what `one_is_quick` says, before anything is chosen by that mark; start with what takes longest.

    Processes take whole files in this order, so that none is left alone with a long one: files with few tests that take
    long, then those with most tests.
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
    """The one name that examples in `phalanx.numpy` use without importing it."""
    import phalanx.numpy

    doctest_namespace["jnp"] = phalanx.numpy


def pytest_collection_finish() -> None:
    """Take what was collected, which lasts as long as the process, out of the collector's sight."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Let compiled programs go, 0.6 MB each, before they come to take gigabytes."""
    if sys.platform == "linux" and int(Path("/proc/self/statm").read_text().split()[1]) * PAGE > 3 * 2**29:
        import phalanx

        phalanx.clear_caches()
        if (jax := sys.modules.get("jax")) is not None:
            jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
