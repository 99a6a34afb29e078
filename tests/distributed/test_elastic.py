"""After the failure of processes, the others go on, without being started again."""

import re

import pytest
from tests.distributed import elastic_program, live_program
from tests.distributed.process_group import free_address, launch
from tests.processes import run_python


@pytest.mark.parametrize("victims", [(1, 2), pytest.param((0,), marks=pytest.mark.slow)])
def test_the_remaining_processes_form_another_program(victims, tmp_path, capsys):
    """As in docs/several_processes.md."""
    elastic_program.train(tmp_path / "whole")
    total = re.match(r"total ([\d.-]+) from step 8 with 8 devices", capsys.readouterr().out)[1]
    done = launch(["-n", 4, "--devices", 2, "--grace", 300], [elastic_program.__file__, tmp_path / "run", *victims])
    ends = re.findall(rf"^\[(\d)\] total ([\d.-]+) from step 8 with {8 - 2 * len(victims)} devices$", done.stdout, re.M)
    assert sorted(int(number) for number, _ in ends) == sorted({0, 1, 2, 3} - set(victims)), done.stderr
    for _, found in ends:
        assert float(found) == pytest.approx(float(total), abs=1e-4)
    assert done.returncode == 137 and done.stderr.count("Traceback") == 0, done.stderr


def test_blocks_of_live_devices_succeed_in_all_processes_or_in_none():
    done = launch(["-n", 3, "--devices", 2, "--grace", 300], [live_program.__file__])
    for process in (0, 1):
        lines = re.findall(rf"^\[{process}\] (block .*)$", done.stdout, re.M)
        assert lines == [
            "block 0 sum 15.0 on [0, 0, 1, 1, 2, 2]",
            f"block 1 {'ValueError' if process == 1 else 'ProcessFailureError of [1, 1]'}",
            "block 2 ProcessFailureError of [2, 2]",
            "block 3 sum 6.0 on [0, 0, 1, 1]",
        ], done.stdout + done.stderr
        assert re.search(rf"^\[{process}\] outside: ProcessFailure of process 2$", done.stdout, re.M), done.stdout
    assert "expected all processes to come to the end of the block, got process 1: ValueError: bad batch" in done.stdout
    assert done.returncode == 137 and done.stderr.count("Traceback") == 0, done.stderr


def test_a_process_that_did_not_wait_long_enough_may_call_initialize_again():
    text = run_python(
        f"""
    import subprocess, sys
    import phalanx

    initialize, address = phalanx.distributed.initialize, {free_address()!r}
    for _ in range(2):
        try:
            initialize(address, 2, 0, initialization_timeout=0.5)
        except phalanx.errors.CoordinationError as error:
            print(error.got)
    other = f"import phalanx; phalanx.distributed.initialize({{address!r}}, 2, 1); phalanx.distributed.shutdown()"
    late = subprocess.Popen([sys.executable, "-c", other])
    initialize(address, 2, 0)
    phalanx.distributed.shutdown()
    print(phalanx.device_count(), late.wait())
    """,
        num_devices=2,
    )
    assert [line for line in text.splitlines() if "Gloo" not in line] == [
        *["process 0 waiting for the others"] * 2,
        "4 0",
    ]
