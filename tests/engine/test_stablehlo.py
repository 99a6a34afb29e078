import numpy as np
import pytest
from tests.engine.programs import ADD_ONE, parse

from phalanx.engine import client, mlir, stablehlo


def test_a_program_survives_being_written_and_read():
    artifact = stablehlo.serialize(parse(ADD_ONE))
    assert b"StableHLO_v" in artifact[:20]
    again = stablehlo.deserialize(artifact, mlir.make_context())
    assert str(again) == str(parse(ADD_ONE))


@pytest.mark.parametrize("weeks", [0, 4, 12, 1000])
def test_an_older_reader_can_be_written_for(weeks):
    version = stablehlo.version_for_weeks(weeks)
    artifact = stablehlo.serialize(parse(ADD_ONE), version)
    assert f"StableHLO_v{version}".encode() in artifact[:30] or f"StableHLO_v{version[:-2]}".encode() in artifact[:30]
    stablehlo.deserialize(artifact, mlir.make_context())


def test_shardings_are_written_with_the_program():
    text = """
module @split {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}
"""
    again = stablehlo.deserialize(stablehlo.serialize(parse(text)), mlir.make_context())
    assert str(again) == str(parse(text))


@pytest.mark.parametrize("damage", [lambda a: b"", lambda a: a[: len(a) // 2], lambda a: b"MLIR" + a[4:]])
def test_bytes_that_are_no_program_are_an_error(damage, capfd):
    with pytest.raises(stablehlo.ArtifactError) as error:
        stablehlo.deserialize(damage(stablehlo.serialize(parse(ADD_ONE))), mlir.make_context())
    assert str(error.value).startswith("portable artifact: expected a program in StableHLO 0.9.0 to ")
    assert capfd.readouterr().err == ""


SYMBOLIC = """
module @symbolic {
  func.func public @main(%x: tensor<4xf32>) -> tensor<?xf32> {
    %y = stablehlo.concatenate %x, %x, dim = 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<?xf32>
    return %y : tensor<?xf32>
  }
}
"""


def test_shapes_are_refined_from_the_arguments():
    refined = stablehlo.refine_shapes(parse(SYMBOLIC), mlir.make_context())
    assert "-> tensor<8xf32>" in str(refined)


def test_the_interpreter_agrees():
    (result,) = stablehlo.interpret(parse(ADD_ONE), [np.arange(8, dtype="f4")])
    np.testing.assert_array_equal(result, np.arange(1, 9))


def test_a_program_can_be_seen_as_hlo_before_it_is_compiled():
    assert "HloModule add_one" in stablehlo.to_hlo_text(parse(ADD_ONE))
    assert stablehlo.cost_analysis(parse(ADD_ONE), client.devices("cpu")[0])["flops"] == 8


def test_an_interrupt_among_the_custom_calls_is_not_translated(monkeypatch):
    text = """
module @calls {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = "stablehlo.case"(%i) ({
      %z = stablehlo.custom_call @inner(%x) : (tensor<8xf32>) -> tensor<8xf32>
      stablehlo.return %z : tensor<8xf32>
    }) : (tensor<i32>) -> tensor<8xf32>
    %z = stablehlo.custom_call @outer(%y) : (tensor<8xf32>) -> tensor<8xf32>
    return %z : tensor<8xf32>
  }
}
""".replace('%y = "', '%i = stablehlo.constant dense<0> : tensor<i32>\n    %y = "')
    module = parse(text)
    assert stablehlo.custom_calls(module) == ["inner", "outer"]

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stablehlo.ir, "StringAttr", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stablehlo.custom_calls(module)
