"""After the failure of a process, the others go on as another program, without being started again."""

import re

import pytest
from tests.distributed import elastic_program
from tests.distributed.process_group import free_address, launch


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_the_remaining_processes_form_another_program(victim, tmp_path, capsys):
    elastic_program.train(tmp_path / "whole", None)
    total = re.match(r"total ([\d.-]+) from step 8 with 8 devices", capsys.readouterr().out)[1]
    done = launch(
        ["-n", 3, "--devices", 2, "--grace", 300], [elastic_program.__file__, tmp_path / "run", free_address(), victim]
    )
    ends = re.findall(r"^\[(\d)\] total ([\d.-]+) from step 8 with 4 devices$", done.stdout, re.M)
    assert sorted(number for number, _ in ends) == sorted({"0", "1", "2"} - {str(victim)}), done.stderr
    for _, found in ends:
        assert float(found) == pytest.approx(float(total), abs=1e-4)
    assert done.returncode == 137 and done.stderr.count("Traceback") == 0, done.stderr
