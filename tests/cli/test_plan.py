"""`phalanx plan`: a function of a script is planned on a mesh that is named on the command line."""

from __future__ import annotations

import json

import pytest

from phalanx.cli import main

SCRIPT = """
import phalanx
import phalanx.numpy as jnp
from phalanx import NamedSharding, P

def planned(mesh):
    x = phalanx.ShapeDtypeStruct((1024, 64), "float32", sharding=NamedSharding(mesh, P("data")))
    return jnp.sum, x

def step(w, x):
    return w @ x

def only(mesh):
    return step

value = 3
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_function_of_a_script_is_planned(script, tmp_path, capsys):
    files = ["--json", str(tmp_path / "plan.json"), "--html", str(tmp_path / "plan.html")]
    assert main(["plan", f"{script}:planned", "--mesh", "data=16,model=2", "--target", "v5p", *files]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("sum on 32 devices ('data': 16, 'model': 2), v5p, compiled by XLA for CPUs, jaxlib ")
    assert "all-reduce" in printed
    assert json.loads((tmp_path / "plan.json").read_text())["num_devices"] == 32
    assert (tmp_path / "plan.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "name, mesh, text",
    [
        ("planned", "2x2x2", "--mesh: expected each axis once, with its size, got '2x2x2'.\n"),
        ("planned", "data=2,data=4", "--mesh: expected each axis once, with its size, got 'data=2,data=4'.\n"),
        ("planned", "data=0", "--mesh: expected each axis once, with its size, got 'data=0'.\n"),
        ("value", "data=2", "SCRIPT:NAME: expected a function that {script} defines, got 'value'.\n"),
        ("planned", "data=2", "plan, argument target: expected cpu, or one of "),
    ],
)
def test_mistakes_on_the_command_line_are_reported(script, capsys, name, mesh, text):
    assert main(["plan", f"{script}:{name}", "--mesh", mesh, "--target", "abacus"]) == 2
    assert capsys.readouterr().err.startswith(text.format(script=script))


def test_sizes_without_names_are_those_of_data_and_model(script, capsys):
    assert main(["plan", f"{script}:planned", "--mesh", "4x2"]) == 0
    assert capsys.readouterr().out.startswith("sum on 8 devices ('data': 4, 'model': 2), compiled by ")


@pytest.mark.parametrize(
    "name, got", [("step", "a function with the parameters (w, x)"), ("only", "a function that returns a function")]
)
def test_a_function_of_another_form_is_an_error(script, capsys, name, got):
    assert main(["plan", f"{script}:{name}", "--mesh", "4x2"]) == 2
    assert capsys.readouterr().err == (
        f"SCRIPT:NAME: expected that {name} takes the mesh and returns a tuple of the function to plan and its arguments, "
        f"got {got}.\n  Fix: write a function in the script such as planned(mesh), which returns ({name}, *arguments) "
        "with a ShapeDtypeStruct and its sharding over the mesh for each array, and name it.\n"
    )


def test_files_that_cannot_be_read_or_written_are_reported(script, tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_bytes(b"x = (\0")
    assert main(["plan", f"{broken}:f", "--mesh", "data=2"]) == 2
    assert capsys.readouterr().err.startswith("SCRIPT:NAME: expected a script without errors of syntax, got ")
    assert main(["plan", f"{script}:planned", "--mesh", "data=2", "--json", str(tmp_path / "none" / "plan.json")]) == 2
    assert capsys.readouterr().err.startswith("phalanx plan: [Errno 2] No such file or directory")


def test_a_script_that_does_not_exist_is_reported(capsys):
    assert main(["plan", "nothing.py:f", "--mesh", "data=2"]) == 2
    assert capsys.readouterr().err == (
        "SCRIPT:NAME: expected the path of a script and the name of a function in it, got 'nothing.py:f'.\n"
        "  Fix: write it as in train.py:planned.\n"
    )
