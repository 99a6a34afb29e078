"""Options: names, environment, context managers, threads, and the context that caches key on."""

import doctest
import importlib
import subprocess
import sys
import threading

import pytest

from phalanx.core.config import config, state, state_extra
from phalanx.core.error_classes import ArgumentError
from phalanx.runtime import engine_options

options = importlib.import_module("phalanx.core.config")  # `phalanx.core.config` is the object of that name.


def test_update_takes_both_spellings_and_reads_back():
    try:
        config.update("jax_enable_x64", True)
        assert config.enable_x64 is config.jax_enable_x64 is config.x64_enabled is True
        assert config.read("jax_enable_x64") is True
        assert config.values["enable_x64"] is True
        assert "enable_x64" in dir(config)
    finally:
        config.update("enable_x64", False)
    assert config.enable_x64 is False


def test_context_managers_nest_and_restore():
    plain = state.context
    with options.enable_x64(True):
        wide = state.context
        assert wide is not plain and wide.enable_x64
        with options.enable_x64(False), options.default_matmul_precision("float32"):
            assert not config.enable_x64
            assert config.default_matmul_precision == "float32"
        assert state.context is wide
    assert state.context is plain
    with options.enable_x64():
        assert state.context is wide


def test_context_managers_decorate():
    @options.debug_nans(True)
    def inside(depth):
        return config.debug_nans and (depth == 0 or inside(depth - 1))

    assert inside(3)
    assert not config.debug_nans


def test_an_option_that_does_not_change_meaning_leaves_the_context_alone():
    plain = state.context
    with options.log_compiles(True):
        assert config.log_compiles
        assert state.context is plain


def test_checking_leaks():
    with options.checking_leaks():
        assert config.check_tracer_leaks
    assert not config.check_tracer_leaks


def test_extras_are_part_of_the_context():
    plain = state.context
    with state_extra(mesh="m", axes=("i",)):
        first = state.context
        assert (first.mesh, first.axes) == ("m", ("i",))
        with options.enable_x64(True):
            assert state.context.mesh == "m"
    assert state.context is plain
    with state_extra(axes=("i",)), state_extra(mesh="m"):
        assert state.context is first


def test_a_global_update_reaches_threads_and_an_override_does_not():
    steps = [threading.Event() for _ in range(3)]
    seen = {}

    def other():
        seen["start"] = (config.enable_x64, config.debug_nans)
        with options.debug_nans(False):
            steps[0].set()
            assert steps[1].wait(600)
            seen["inside"] = (state.context.enable_x64, state.context.debug_nans)
        seen["after"] = config.debug_nans

    with options.enable_x64(True):
        thread = threading.Thread(target=other)
        thread.start()
        assert steps[0].wait(600)
        seen["mine"] = config.enable_x64
    try:
        config.update("debug_nans", True)
        config.update("enable_x64", True)
        steps[1].set()
        thread.join()
    finally:
        config.update("debug_nans", False)
        config.update("enable_x64", False)
    assert seen == {"start": (False, False), "mine": True, "inside": (True, False), "after": True}


def test_the_environment_sets_options():
    program = "from phalanx import config; print(config.enable_x64, config.num_cpu_devices, config.platforms)"
    out = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path), "PHALANX_ENABLE_X64": "true", "PHALANX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == "True 8 None\n"


def test_an_observer_may_refuse(monkeypatch):
    def refuse(value):
        raise ArgumentError("option num_cpu_devices", expected="a start", got="a running client", fix="restart")

    option = engine_options.num_cpu_devices
    before = config.num_cpu_devices
    monkeypatch.setattr(option, "on_update", refuse)
    with pytest.raises(ArgumentError, match="a running client"):
        config.update("num_cpu_devices", 4)
    assert config.num_cpu_devices == before


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "enable_x46",
            True,
            "config.update: expected the name of an option, got 'enable_x46'.\n  Fix: write enable_x64.",
        ),
        (
            "enable_x64",
            "maybe",
            "option enable_x64: expected True or False, got 'maybe'.\n  Fix: call config.update('enable_x64', True).",
        ),
        (
            "numpy_rank_promotion",
            "never",
            "option numpy_rank_promotion: expected one of 'allow', 'warn', 'raise', got 'never'.\n"
            "  Fix: for example, config.update('numpy_rank_promotion', 'raise').",
        ),
        (
            "num_cpu_devices",
            0,
            "option num_cpu_devices: expected int of at least 1, got 0.\n  Fix: call config.update('num_cpu_devices', 1), or more.",
        ),
        (
            "platforms",
            3,
            "option platforms: expected a string or None, got 3.\n  Fix: call config.update('platforms', '3').",
        ),
        (
            "default_device",
            3,
            "option default_device: expected a device, the name of a platform or None, got 3.\n"
            "  Fix: pass one of phalanx.devices(), or 'cpu'.",
        ),
        (
            "threefry_partitionable",
            False,
            "option threefry_partitionable: expected True, got False.\n"
            "  Fix: leave it on: the other numbering depends on how arrays are split.",
        ),
    ],
)
def test_bad_updates_say_what_would_do(name, value, text):
    with pytest.raises(ArgumentError) as error:
        config.update(name, value)
    assert str(error.value) == text


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="config has no option 'nonsense'"):
        config.nonsense
    with pytest.raises(ArgumentError, match="call of config.update"):
        config.enable_x64 = True


@pytest.mark.parametrize("name", sorted(config.values))
def test_the_docstring_of_an_option_tells_what_it_takes_and_its_example_runs(name):
    option = getattr(options, name, None) or getattr(engine_options, name)
    assert all(f"{section}:\n" in option.__doc__ for section in ("Args", "Returns", "Raises", "Examples"))
    example = doctest.DocTestParser().get_doctest(
        option.__doc__, vars(engine_options) | vars(options), name, None, None
    )
    assert doctest.DocTestRunner().run(example) == (0, 1)
