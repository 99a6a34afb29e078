"""Options: names, environment, context managers, threads, and the context that caches key on."""

import asyncio
import doctest
import importlib
import logging
import subprocess
import sys
import threading

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.config import (
    captured_constants_warn_bytes,
    config,
    disable_most_optimizations,
    disallow_mesh_context_manager,
    dump_ir_to,
    high_dynamic_range_gumbel,
    memory_fitting_level,
    optimization_level,
    random_seed_offset,
    state,
    state_extra,
)
from phalanx.core.error_classes import ArgumentError
from phalanx.engine.compiler import make_compile_options
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


def test_flags_of_absl_set_options():
    pytest.importorskip("absl")
    show = "print(config.enable_x64, config.default_matmul_precision, config.debug_nans)"
    flags = ["--jax_enable_x64", "--jax_default_matmul_precision=highest"]
    for program, argv in {
        f"config.parse_flags_with_absl(); {show}": [*flags, "--other=3", "--", "--jax_debug_nans"],
        f"config.config_with_absl(); app.run(lambda argv: {show})": flags,
    }.items():
        out = subprocess.run(
            [sys.executable, "-c", f"from absl import app; from phalanx import config; {program}", *argv],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout == "True highest False\n"


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


def test_options_of_the_peer_are_accepted_with_its_defaults():
    peer = pytest.importorskip("jax").config.values
    internal = {"jax_platform_name", "jax_threefry_partitionable"}
    names = {name.removeprefix("jax_") for name in peer if name.startswith("jax_") and name not in internal}
    unknown = [name for name in sorted(names) if not hasattr(config, name)]
    assert unknown == []
    assert config.jax_scan3 is False and config.read("jax_skip_slow_tests") is False
    config.update("jax_use_rgv3", False)
    assert config.use_rgv3 is False
    config.update("jax_use_rgv3", True)


def test_a_name_of_no_option_is_an_attribute_error():
    with pytest.raises(AttributeError, match="config.update: expected the name of an option, got 'jax_no_such'"):
        config.update("jax_no_such", 1)
    with pytest.raises(AttributeError):
        config.no_such


def test_environment_variables_of_the_peer_set_options():
    code = "import phalanx.numpy as jnp; from phalanx import config; print(jnp.ones(1).dtype, config.use_magma)"
    environment = {"PYTHONPATH": ":".join(sys.path), "JAX_ENABLE_X64": "1", "JAX_USE_MAGMA": "on"}
    run = lambda **more: subprocess.run(
        [sys.executable, "-c", code], env=environment | more, capture_output=True, text=True, check=True
    ).stdout.split()
    assert run() == ["float64", "on"]
    assert run(PHALANX_ENABLE_X64="0") == ["float32", "on"]


def test_no_tracing_and_no_execution_forbid_what_they_name():
    f = phalanx.jit(lambda x: x + 1)
    assert f(1.0) == 2.0
    with phalanx.no_tracing():
        assert f(2.0) == 3.0
        with pytest.raises(RuntimeError, match="a trace of <lambda>: .* got one that needs it, under no_tracing"):
            f(jnp.ones(3))
    compiled = f.lower(1.0).compile()
    with phalanx.no_execution():
        for call in (lambda: f(2.0), lambda: compiled(2.0), lambda: lax.neg(2.0)):
            with pytest.raises(RuntimeError, match="under no_execution"):
                call()
    assert f(2.0) == 3.0


def test_options_of_keys_change_what_they_name():
    with phalanx.enable_custom_prng():
        assert phalanx.random.PRNGKey(3) == phalanx.random.key(3)
    raw = phalanx.random.PRNGKey(0)
    with phalanx.legacy_prng_key("error"), pytest.raises(ArgumentError) as error:
        phalanx.random.normal(raw)
    assert str(error.value) == (
        "random.normal, key: expected a typed key, since legacy_prng_key is 'error', got a raw key, an array of uint32 "
        "words.\n  Fix: make keys with phalanx.random.key(seed), or convert raw ones with random.wrap_key_data."
    )
    with phalanx.legacy_prng_key("warn"), pytest.warns(UserWarning, match="expected a typed key"):
        phalanx.random.normal(raw)
    five, seven = phalanx.random.key(5), phalanx.random.gumbel(phalanx.random.key(7), (3,), mode="high")
    with random_seed_offset(2):
        assert phalanx.random.key(3) == phalanx.random.key(np.int32(3)) == five
        assert phalanx.jit(phalanx.random.key)(3) == five
    with high_dynamic_range_gumbel():
        assert (phalanx.random.gumbel(phalanx.random.key(7), (3,)) == seven).all()


def test_sums_of_16_bits_can_be_forbidden():
    x = jnp.ones((1, 3), "bfloat16")
    with phalanx.allow_f16_reductions(False):
        assert lax.reduce_sum(x, [0]).shape == (3,)
        for call in (lax.reduce_sum, phalanx.jit(lax.reduce_sum, static_argnums=1)):
            with pytest.raises(ArgumentError) as error:
                call(x, (1,))
            assert str(error.value) == (
                "lax.reduce_sum: expected numbers of at least 32 bits; 16-bit sums are not allowed, since "
                "allow_f16_reductions is False, got bf16[1,3].\n  Fix: sum in float32: jnp.sum(x, dtype='float32')."
            )


@pytest.mark.parametrize(
    "index", [-4, 3, np.index_exp[None, ..., 3], np.index_exp[[0, 1], 3], np.index_exp[:9, -4, None]]
)
def test_integers_beyond_the_bounds_can_be_forbidden(index):
    x, check = jnp.ones((3, 3)), phalanx.config.check_static_indices
    assert check is False and x[index].size
    phalanx.config.update("check_static_indices", True)
    try:
        for read in (lambda x: x[index], phalanx.jit(lambda x: x[index]), lambda x: x.at[index].get()):
            with pytest.raises(
                IndexError, match=r"expected an index from -3 to 2 for dimension [01], since check_static"
            ):
                read(x)
        assert x[2, -3] == 1 and x.at[index].get(mode="clip").size
    finally:
        phalanx.config.update("check_static_indices", False)


def test_large_constants_are_reported(monkeypatch):
    constant = jnp.ones(1000)
    with captured_constants_warn_bytes(100), pytest.warns(UserWarning) as caught:
        phalanx.jit(lambda x: x + constant)(1.0)
    assert str(caught[0].message) == (
        "<lambda> closes over constants of 4000 bytes in all, the largest of them f32[1000], which each of its programs "
        "holds; pass them as arguments, or set captured_constants_warn_bytes to a larger number"
    )


def test_programs_can_be_written_to_a_folder(tmp_path):
    with dump_ir_to(str(tmp_path)):
        phalanx.jit(lambda x: x * 3, inline=False)(np.float32(2))
    (file,) = tmp_path.iterdir()
    assert file.name == "0000__lambda_.mlir" and "stablehlo.multiply" in file.read_text()


def test_levels_of_effort_reach_the_compiler():
    double = lambda x: jnp.sin(x) * 2
    for option in (optimization_level("O1"), memory_fitting_level("O0"), disable_most_optimizations()):
        with option:
            np.testing.assert_allclose(phalanx.jit(double)(1.0), np.sin(1.0) * 2, rtol=1e-6)
    options = make_compile_options(phalanx.devices()[:1], [True], None, ("O1", "O3")).executable_build_options
    assert (options.optimization_level, options.memory_fitting_level) == (19, 39)


def test_a_mesh_can_be_forbidden_as_a_context_manager():
    mesh = phalanx.make_mesh((1,), ("x",))
    with disallow_mesh_context_manager(), pytest.raises(RuntimeError, match="`with mesh:`: expected a call"), mesh:
        pass


def test_checks_run_on_each_traced_function():
    with phalanx.enable_checks():
        assert phalanx.jit(phalanx.grad(lambda x: x * x))(3.0) == 6.0


def test_the_level_of_the_logger_is_an_option():
    config.update("logging_level", "ERROR")
    assert logging.getLogger("phalanx").level == logging.ERROR
    config.update("logging_level", None)


def test_an_update_is_not_lost_while_other_threads_enter_and_leave_blocks():
    mesh, stop, stale = phalanx.make_mesh((8,), ("a",)), threading.Event(), []

    def enter_and_leave():
        while not stop.is_set():
            with mesh, options.enable_x64(True), state_extra(axes=()):
                pass

    def read():
        for _ in range(20):
            for value in (True, False):
                config.update("debug_key_reuse", value)
                stale.extend(1 for scope in list(options._scopes) if scope.context.debug_key_reuse is not value)

    threads = [threading.Thread(target=enter_and_leave) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        read()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
        config.update("debug_key_reuse", False)
    assert not stale


def test_blocks_may_be_left_in_another_order_than_they_were_entered():
    mesh, plain = phalanx.make_mesh((8,), ("a",)), state.context
    first, second, third = options.enable_x64(True), options.enable_x64(False), options.log_compiles(True)
    for block in (first, mesh, second, third):
        block.__enter__()
    first.__exit__()
    assert not config.enable_x64
    assert config.log_compiles
    assert state.context.mesh is mesh
    mesh.__exit__()
    third.__exit__()
    second.__exit__()
    assert state.context is plain
    assert not config.log_compiles


def test_each_asyncio_task_has_its_own_options_and_mesh():
    meshes = [phalanx.make_mesh((8,), ("a",)), phalanx.make_mesh((4, 2), ("a", "b"))]
    plain = state.context

    async def work(i, entered):
        with phalanx.set_mesh(meshes[i]), options.enable_x64(i == 1):
            entered[i].set()
            await entered[1 - i].wait()
            x = phalanx.jit(lambda x: x + 1)(np.ones(3))
            inherited = await asyncio.create_task(read_mesh())
            return x.dtype.name, phalanx.sharding.get_mesh(), inherited

    async def read_mesh():
        return phalanx.sharding.get_mesh()

    async def work_together():
        entered = [asyncio.Event(), asyncio.Event()]
        return await asyncio.gather(work(0, entered), work(1, entered))

    found = asyncio.run(work_together())
    assert found == [("float32", meshes[0], meshes[0]), ("float64", meshes[1], meshes[1])]
    assert state.context is plain


def test_a_mesh_set_without_a_block_lasts_until_the_block_around_it_ends():
    one, two, three = (phalanx.make_mesh((8,), (name,)) for name in "abc")
    with phalanx.set_mesh(one):
        phalanx.set_mesh(two)
        with phalanx.set_mesh(three):
            assert phalanx.sharding.get_mesh() is three
        assert phalanx.sharding.get_mesh() is two
    assert phalanx.sharding.get_mesh().empty
    phalanx.set_mesh(one)
    with phalanx.set_mesh(two):
        pass
    assert phalanx.sharding.get_mesh() is one
    phalanx.set_mesh(None)
    assert phalanx.sharding.get_mesh().empty


def test_the_global_value_of_an_option_is_that_outside_of_blocks():
    with phalanx.numpy_rank_promotion("raise"):
        assert (phalanx.numpy_rank_promotion.value, phalanx.numpy_rank_promotion.get_global()) == ("raise", "allow")
