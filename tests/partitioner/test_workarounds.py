"""Each entry of the table of workarounds has a reproducer, works, and is still needed by the installed jaxlib."""

import subprocess
import sys

import jaxlib
import pytest
from tests.partitioner import reproducers

from phalanx.core.primitive import registry
from phalanx.partitioner.partitioned_lowering import IN_BYTES, PER_SHARD, RULES
from phalanx.partitioner.workarounds import WORKAROUNDS, is_active, without

INSTALLED = ".".join(jaxlib.__version__.split(".")[:2])
# A process of its own for reproducers in which XLA ends the process.
RUN = (
    "import conftest; from tests.partitioner import reproducers; from phalanx.partitioner.workarounds import without\n"
)


@pytest.mark.parametrize("name", WORKAROUNDS)
def test_reproducer_passes_with_the_workaround(name):
    getattr(reproducers, name)()


@pytest.mark.parametrize("name", WORKAROUNDS)
def test_installed_jaxlib_needs_the_workaround_if_the_table_says_so(name):
    entry = WORKAROUNDS[name]
    if _shows_defect(entry):
        assert INSTALLED in entry.seen_in, f"jaxlib {INSTALLED} has the defect too: add it to `seen_in` of {name!r}"
        return
    others = [version for version in entry.seen_in if version != INSTALLED]
    assert INSTALLED not in entry.seen_in, (
        f"jaxlib {jaxlib.__version__} does not need {name!r} any more: take {INSTALLED} out of `seen_in`, "
        + (f"which keeps it for {others}" if others else "and delete the entry with the branch that asks for it")
    )
    pytest.skip(f"jaxlib {INSTALLED} does not need {name!r}: delete it when {others} are no longer supported")


def _shows_defect(entry):
    names = [entry.name] if entry.hidden_by is None else [entry.name, entry.hidden_by]
    if entry.effect == "crash":
        code = f"{RUN}with without(*{names}): reproducers.{entry.name}()"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300).returncode != 0
    with without(*names):
        try:
            getattr(reproducers, entry.name)()
        except Exception:
            return True
    return False


def test_table_and_rules_name_existing_primitives():
    named = {p for entry in WORKAROUNDS.values() for p in entry.primitives}
    assert named == {*RULES, *PER_SHARD, *IN_BYTES}
    assert named <= registry.keys()


def test_each_per_shard_primitive_is_listed_under_its_workaround():
    for primitive, (workaround, _) in PER_SHARD.items():
        assert primitive in WORKAROUNDS[workaround].primitives


def test_without_disables_one_workaround_for_the_length_of_a_block():
    with without("gathered_fft"):
        assert not is_active("gathered_fft") and is_active("gathered_top_k")
    assert is_active("gathered_fft")
    with pytest.raises(AssertionError, match="no workaround is named 'fft'"):
        is_active("fft")


def test_programs_for_one_device_do_not_load_the_rules():
    code = (
        "import sys, phalanx, phalanx.numpy as jnp\n"
        "phalanx.jit(lambda x: jnp.sort(x)[0] + x.at[0].set(1)[1])(jnp.arange(4.0))\n"
        "assert not [name for name in sys.modules if name.startswith('phalanx.partitioner')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
