"""Artifacts of unknown origin: bytes that crash, stall or stuff the parser of StableHLO are errors, in Python and in the shell."""

import hashlib
import json
import shutil
import struct
import sys

import numpy as np
import pytest
from tests.export.corpus import DATA

import phalanx
import phalanx.numpy as jnp
from phalanx import cli, export
from phalanx.engine import isolated_parser
from phalanx.export import ArtifactError, artifact_reader
from phalanx.export.artifact_format import MAGIC, VERSION, split_artifact

CRASHERS = sorted((DATA / "crashers").iterdir())


def around(program, artifact="v1-trees", **changes):
    """An artifact of the corpus with another program, and a digest that agrees."""
    header, _, _ = split_artifact(memoryview((DATA / f"{artifact}.phalanx").read_bytes()))
    text = json.dumps(header | changes).encode()
    data = struct.pack("<8sIIQQ", MAGIC, VERSION, len(text), len(program), 0) + text + program
    return data + hashlib.sha256(data).digest()


def program_of(name):
    return bytes(split_artifact(memoryview((DATA / f"{name}.phalanx").read_bytes()))[1])


@pytest.mark.parametrize("path", sorted(DATA.glob("*.phalanx")), ids=lambda path: path.stem)
def test_every_artifact_of_the_corpus_verifies(path):
    assert (
        export.verify(path.read_bytes()).mlir_module_serialized
        == export.deserialize(path.read_bytes()).mlir_module_serialized
    )


@pytest.mark.parametrize("path", CRASHERS, ids=lambda path: path.name)
def test_bytes_that_break_the_parser_are_an_error(path):
    with pytest.raises(ArtifactError, match=r"^portable artifact: expected a program "):
        export.verify(around(path.read_bytes()), seconds=2)


def test_there_are_artifacts_that_crash_the_parser():
    assert [p.name for p in CRASHERS] == ["aborts", "never-ends", "reads-elsewhere", "takes-all-memory"]


@pytest.mark.parametrize("command", ["inspect", "verify", "run"])
def test_no_command_crashes_with_the_parser(command, tmp_path, capsys):
    path = tmp_path / "hostile"
    path.write_bytes(around((DATA / "crashers" / "reads-elsewhere").read_bytes()))
    assert cli.main(["export", command, str(path)]) == 1
    assert "portable artifact: expected a program" in capsys.readouterr().err


def test_a_signal_a_timeout_and_a_silent_exit_have_different_errors():
    def refusal(returncode):
        with pytest.raises(ArtifactError) as error:
            isolated_parser._understood(b"", returncode, 1)
        return str(error.value)

    assert refusal(-11) == (
        "portable artifact: expected a program that the parser can read, got one at which the parser ends with SIGSEGV.\n"
        "  Fix: do not use this file, which is damaged or malicious."
    )
    assert "SIGXCPU, since it did not end in time" in refusal(-24)
    assert "exit status 3" in refusal(3) and "signal 99" in refusal(-99)


def test_a_child_process_that_fails_to_start_is_not_an_artifact_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match=r"^the process that parses programs did not start: 1$"):
        isolated_parser.parse_isolated([program_of("v1-trees")])


def test_a_program_with_other_types_than_its_header_is_an_error():
    altered = around(program_of("v1-trees"), **{"in": ["float32[4,2]", "float32[3,5]"]})
    text = (
        "program of exported network: expected a main of type (tensor<4x2xf32>, tensor<3x5xf32>) -> "
        "(tensor<2xf32>, tensor<f32>, tensor<i32>), as its header declares, got (tensor<4x2xf32>, tensor<3x4xf32>) -> "
        "(tensor<2xf32>, tensor<f32>, tensor<i32>).\n  Fix: export the function again: this file was not written by phalanx."
    )
    for read in (
        export.verify,
        lambda b: export.deserialize(b).call({"w": np.ones((4, 2), "f4")}, np.ones((3, 5), "f4")),
    ):
        with pytest.raises(ArtifactError) as error:
            read(altered)
        assert str(error.value) == text


def test_a_derivative_is_verified_too():
    exported = export.export(phalanx.jit(jnp.sin))(np.ones(3, "f4"))
    derivative = exported.vjp()
    object.__setattr__(derivative, "mlir_module_serialized", b"ML\xefR nothing")
    with pytest.raises(ArtifactError, match=r"^portable artifact: expected a program in StableHLO"):
        export.verify(exported.serialize(vjp_order=1))
    assert export.verify(exported.serialize()).fun_name == "sin"


def test_constraints_that_take_long_to_decide_are_refused(monkeypatch):
    monkeypatch.setattr(artifact_reader, "MAX_WORK", 1_000_000)
    constraints = [f"mod(a,{k}) + floordiv(b,{k + 1}) >= max(c,{k})" for k in range(2, 12)]
    for read in (export.deserialize, export.verify):
        with pytest.raises(ArtifactError) as error:
            read(around(program_of("v1-trees"), constraints=constraints))
        assert str(error.value) == (
            "deserialize, constraints: expected constraints of dimension variables that are decided in a few seconds, "
            "got 10 that take longer.\n"
            "  Fix: export the function again with fewer or simpler constraints, if the file is your own."
        )


def test_names_in_a_file_cannot_steer_the_terminal(tmp_path, capsys):
    path = tmp_path / "hostile"
    path.write_bytes(around(program_of("v1-trees"), name="\x1b[2Jf\nplatforms: forged\u202e"))
    assert cli.main(["export", "inspect", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("\\x1b[2Jf\\nplatforms: forged\\u202e: ")
