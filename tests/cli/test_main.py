"""The command line: what it prints without a command, where it finds the demo, how it refuses."""

import os
import subprocess
import sys

import pytest

from phalanx import cli
from phalanx.cli import demo
from phalanx.core.error_classes import ArgumentError


def test_without_a_command_the_help_is_printed(capsys):
    assert cli.main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_an_unknown_command_is_an_error(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["dance"])
    assert stop.value.code == 2
    assert "argument COMMAND: invalid choice: 'dance'" in capsys.readouterr().err


def test_the_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("phalanx ")


def test_options_after_a_command_belong_to_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--help"])
    assert stop.value.code == 0
    assert "--mesh DxM" in capsys.readouterr().out


def test_a_missing_example_is_an_error_that_lists_the_searched_paths(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "_PLACES", (tmp_path / "train_lm.py",))
    with pytest.raises(ArgumentError) as caught:
        demo.find_example()
    assert str(caught.value) == (
        "phalanx demo: expected the example train_lm.py in the installation, "
        f"got no file at {tmp_path / 'train_lm.py'}.\n"
        "  Fix: install phalanx from its wheel or its repository, or run examples/train_lm.py from a clone."
    )


def test_help_does_not_load_the_engine():
    check = (
        "import sys\nfrom phalanx import cli\ncli.main([])\n"
        "assert not {'jaxlib', 'numpy', 'rich'} & set(sys.modules), sorted(sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, env=env)
