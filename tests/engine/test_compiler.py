import gc
import subprocess
import sys

import numpy as np
import pytest
from tests.engine.programs import ADD_ONE, Along, Aval, compiled, parse, put, run

from phalanx.engine import buffers, client, compiler, runtime_errors

SPLIT = """
module @split {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%x: tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x2xf32> {
    %y = stablehlo.multiply %x, %x : tensor<8x2xf32>
    return %y : tensor<8x2xf32>
  }
}
"""


def test_a_program_runs_on_one_device():
    (result,) = run(compiled(ADD_ONE), [put(np.arange(8, dtype="f4"))], [Aval((8,), "f4")])
    np.testing.assert_array_equal(buffers.to_host(result), np.arange(1, 9))


def test_the_partitioner_chooses_the_result_sharding_it_may_choose():
    executable = compiled(SPLIT, num_devices=4)
    parameters, results = compiler.executable_shardings(executable)
    assert [str(sharding) for sharding in parameters + results] == ["{devices=[4,1]<=[4]}"] * 2
    devices = client.devices("cpu")[:4]
    pieces = [np.full((2, 2), i, "f4") for i in range(4)]
    x = buffers.put_shards(Aval((8, 2), "f4"), Along(devices), pieces, devices)
    (y,) = run(executable, [x], [Aval((8, 2), "f4")], devices)
    assert [buffers.to_host(piece)[0, 0] for piece in buffers.shards(y)] == [0, 1, 4, 9]


def test_a_result_sharding_that_is_written_is_kept():
    written = SPLIT.replace(
        "-> tensor<8x2xf32> {", "-> (tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {"
    )
    _, results = compiler.executable_shardings(compiled(written, num_devices=4, propagate_to_outputs=[False]))
    assert [str(sharding) for sharding in results] == ["{replicated}"]


def test_one_device_has_no_shardings():
    assert compiler.executable_shardings(compiled(ADD_ONE)) == (None, None)


def test_the_compiled_program_can_be_looked_at():
    executable = compiled(ADD_ONE)
    assert compiler.hlo_text(executable).startswith("HloModule add_one")
    assert compiler.cost_analysis(executable)["flops"] == 8
    stats = compiler.memory_stats(executable)
    assert (stats.argument_size_in_bytes, stats.output_size_in_bytes) == (32, 32)


@pytest.mark.parametrize("options", [{"xla_cpu_enable_fast_math": True}, {"xla_backend_optimization_level": 1}])
def test_options_of_xla_are_handed_on(options):
    compiled(ADD_ONE, options=options)


@pytest.mark.parametrize(
    "options, got",
    [
        ({"xla_make_it_fast": True}, "True (No such compile option: 'xla_make_it_fast')"),
        (
            {"xla_backend_optimization_level": "high"},
            "'high' (While setting option xla_backend_optimization_level, 'high' is not a valid int32 value.)",
        ),
    ],
)
def test_bad_options_are_named(options, got):
    with pytest.raises(compiler.CompilerOptionError) as error:
        compiled(ADD_ONE, options=options)
    (name,) = options
    assert isinstance(error.value, runtime_errors.XlaRuntimeError)
    assert str(error.value) == (
        f"compiler_options['{name}']: expected an option that XLA knows, with a value of its type, got {got}.\n"
        f"  Fix: check the spelling of '{name}' among XLA's flags, or leave the option out."
    )


def test_an_option_of_another_kind_is_refused():
    with pytest.raises(compiler.CompilerOptionError) as error:
        compiled(ADD_ONE, options={"xla_dump_to": ["a"]})
    assert str(error.value) == (
        "compiler_options['xla_dump_to']: expected a str, bool, int or float, got ['a'].\n  Fix: convert it, for example with str(['a'])."
    )


def test_xla_flags_are_heeded(tmp_path):
    code = "from tests.engine.programs import ADD_ONE, compiled; compiled(ADD_ONE)"
    environment = {"PYTHONPATH": ":".join(sys.path), "XLA_FLAGS": f"--xla_dump_to={tmp_path}"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert any("add_one" in path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("effort", [compiler.CompilerEffortLevel.O1, "O1", 19])
def test_effort_levels_reach_xla(effort):
    options = compiler.make_compile_options(client.devices("cpu")[:1], [True], {"optimization_level": effort})
    assert options.executable_build_options.optimization_level == 19
    assert options.executable_build_options.memory_fitting_level == 29
    assert not options.env_option_overrides


def test_an_unknown_effort_level_is_refused():
    with pytest.raises(compiler.CompilerOptionError) as error:
        compiler.make_compile_options(client.devices("cpu")[:1], [True], {"memory_fitting_level": "O9"})
    assert str(error.value) == (
        "compiler_options['memory_fitting_level']: expected a CompilerEffortLevel, or the name of one: UNKNOWN, O0, O1, "
        "O2, O3, got 'O9'.\n  Fix: pass 'O2' for XLA's default effort."
    )


def test_an_interrupt_while_xla_compiles_leaves_the_module_alive(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler, "backend_compile_and_load", interrupt)
    module = parse(ADD_ONE)
    before = sys.getrefcount(module)
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_module(module, client.devices("cpu")[:1])
    gc.collect()
    # XLA's threads may still read it, whoever else drops it.
    assert sys.getrefcount(module) > before
