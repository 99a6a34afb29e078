"""`phalanx launch`: processes of this machine, their output, failures and signals."""

import os
import signal
import subprocess
import sys

import pytest

from phalanx import cli

COMMAND = [sys.executable, "-m", "phalanx", "launch"]


@pytest.fixture
def launch(tmp_path):
    """Run a program under `phalanx launch`; returns the exit status and the sorted lines of output and errors."""

    def start(program, *options, arguments=()):
        (tmp_path / "program.py").write_text(program)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environ.pop("PHALANX_NUM_CPU_DEVICES", None)
        return subprocess.Popen(
            [*COMMAND, *options, "program.py", *arguments],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, sorted(out.splitlines()), err.splitlines()


def test_processes_share_all_devices_and_their_output_is_prefixed(launch):
    program = (
        "import phalanx, sys\n"
        "phalanx.distributed.initialize()\n"
        "print(phalanx.device_count(), phalanx.process_index(), *sys.argv[1:])\n"
    )
    assert finish(launch(program, "-n", "2", "--devices", "3", arguments=("a", "-n"))) == (
        0,
        ["[0] 6 0 a -n", "[1] 6 1 a -n"],
        [],
    )


def test_the_status_is_that_of_the_first_failure_and_the_others_are_ended(launch):
    program = "import os, sys, time\nif os.environ['PHALANX_PROCESS_ID'] == '1': sys.exit(7)\ntime.sleep(600)\n"
    assert finish(launch(program, "-n", "2", "--grace", "0.1")) == (
        7,
        [],
        [
            "phalanx launch: process 1 of 2 ended with status 7",
            "phalanx launch: ending process 0, 0.1 s after the failure",
        ],
    )


def error_of_first_process(lines, name):
    """The line of the only error of a class that process 0 printed."""
    (error,) = [line for line in lines if line.startswith(f"[0] phalanx.errors.{name}: ")]
    return error


@pytest.mark.parametrize("end", ["raise RuntimeError('bad import')", "sys.exit()"])
def test_an_end_before_initialize_is_named_to_those_that_wait(launch, end):
    program = (
        "import os, sys, phalanx\n"
        f"if os.environ['PHALANX_PROCESS_ID'] == '1': {end}\n"
        "phalanx.distributed.initialize()\n"
    )
    status, _, errors = finish(launch(program, "-n", "2"))
    assert status == 1
    error = error_of_first_process(errors, "CoordinationError")
    code = int("raise" in end)
    assert error.endswith(f" within 300 s, got process 1 of 2 ended with status {code}.")


@pytest.mark.parametrize("step", ["client.start_all_platforms", "make_cpu_collectives"])
def test_a_death_inside_initialize_is_named_to_the_others(launch, step):
    program = (
        "import os, phalanx\n"
        "from phalanx.distributed import session\n"
        f"if os.environ['PHALANX_PROCESS_ID'] == '1': session.{step} = lambda *_: os._exit(9)\n"
        "phalanx.distributed.initialize(heartbeat_timeout_seconds=3)\n"
    )
    status, _, errors = finish(launch(program, "-n", "2"))
    assert status == 9
    error = error_of_first_process(errors, "ProcessFailure")
    assert "expected process 1 to be alive" in error


def test_processes_learn_that_nobody_reads_their_output(launch):
    started = launch("while True: print('x' * 1000)\n", "-n", "2")
    started.stdout.readline()
    started.stdout.close()
    assert started.wait(timeout=60) == 1
    assert "BrokenPipeError" in started.stderr.read()
    started.stderr.close()


def test_a_signal_while_processes_are_started_reaches_all():
    code = (
        "import sys\n"
        "from phalanx.cli.launch import _Launcher\n"
        "launcher = _Launcher([sys.executable, '-c', 'import time; time.sleep(600)'], devices=None, grace=600)\n"
        "launcher.pass_on(15, None)\n"
        "sys.exit(launcher.run_once(2, 0))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environ, timeout=60).returncode == 128 + signal.SIGTERM


def test_a_failed_program_is_started_again(launch, tmp_path):
    program = (
        "import os, pathlib\n"
        "mark = pathlib.Path('mark' + os.environ['PHALANX_PROCESS_ID'])\n"
        "if not mark.exists(): mark.touch(); os.kill(os.getpid(), 9)\n"
        "print('done', os.environ['PHALANX_RESTART_COUNT'])\n"
    )
    status, out, err = finish(launch(program, "-n", "2", "--restarts", "2"))
    assert (status, out) == (0, ["[0] done 1", "[1] done 1"])
    assert err.count("phalanx launch: start again, 1 of 2") == 1
    ended = "phalanx launch: process {} of 2 ended by signal SIGKILL"
    assert ended.format(0) in err or ended.format(1) in err  # whichever was first


def test_a_failed_program_is_started_again_with_fewer_processes(launch):
    program = (
        "import os, sys\n"
        "count, number = os.environ['PHALANX_NUM_PROCESSES'], os.environ['PHALANX_PROCESS_ID']\n"
        "if int(number) == int(count) - 1 > 0: sys.exit(3)\n"
        "print(count)\n"
    )
    status, out, err = finish(launch(program, "-n", "3", "--restarts", "2", "--min-processes", "1"))
    assert status == 0 and out == ["[0] 1", "[0] 2", "[0] 3", "[1] 3"]
    for again in ("1 of 2, with 2 processes", "2 of 2, with 1 process"):
        assert f"phalanx launch: start again, {again}" in err


def test_signals_are_passed_on(launch):
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    process = launch(program, "-n", "2")
    lines = sorted(process.stdout.readline() for _ in range(2))
    process.send_signal(signal.SIGTERM)
    assert lines == ["[0] ready\n", "[1] ready\n"]
    assert finish(process) == (128 + signal.SIGTERM, ["[0] saved", "[1] saved"], [])


def test_processes_do_not_outlive_the_launcher(launch):
    process = launch("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n", "-n", "1")
    child = int(process.stdout.readline().split()[1])
    process.kill()
    process.communicate(timeout=60)
    with pytest.raises(ProcessLookupError):
        for _ in range(600):
            os.kill(child, 0)
            signal.sigtimedwait([], 0.1)


@pytest.mark.parametrize(
    "words, message",
    [
        (["-n", "0", "a.py"], "-n must be at least 1"),
        (["-n", "2"], "name a script, or a module with -m"),
        (["-n", "2", "--min-processes", "-5", "a.py"], "--min-processes must be from 1 to -n = 2, got -5"),
        (["-n", "2", "--min-processes", "0", "a.py"], "--min-processes must be from 1 to -n = 2, got 0"),
        (["-n", "2", "--min-processes", "3", "a.py"], "--min-processes must be from 1 to -n = 2, got 3"),
        (["-n", "2", "--restarts", "-1", "a.py"], "--restarts must be at least 0"),
        (["-n", "2", "--devices", "0", "a.py"], "--devices must be at least 1"),
        (["a.py"], "the following arguments are required: -n/--processes"),
    ],
)
def test_wrong_arguments(words, message, capsys):
    with pytest.raises(SystemExit):
        cli.main(["launch", *words])
    assert capsys.readouterr().err.endswith(f"phalanx launch: error: {message}\n")
