"""Every failure of a process becomes a Python exception in all others, which names it; nothing hangs and nothing aborts.

The programs run three at a time, as processes of `phalanx launch`, and the tests look at what they printed.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.distributed import failing_sequence
from tests.distributed.process_group import free_address, launch

PROGRAM = Path(__file__).with_name("failing_program.py")
DELETED = Path(__file__).with_name("deleted_argument.py")
PATIENT = 60.0  # a heartbeat timeout that no process of a busy machine misses
LATE = 30.0  # seconds that an idle machine does not need


class Scenario(NamedTuple):
    """A failure: the process that fails, the time without a sign of life, and what the others say about it."""

    victim: int
    heartbeat: float
    kind: str
    text: str
    status: int = 1
    processes: int = 2
    devices: int = 2


HERE = r"\S+failing_program\.py:\d+(?::\d+)?"
SCENARIOS = {
    "killed": Scenario(1, 5.0, "dead", r"to be alive, got no sign of life for \d+\.\d s: it is dead or stopped", 137),
    "killed first": Scenario(0, 5.0, "dead", "expected process 0 to be alive, got no sign of life", 137),
    "killed of three": Scenario(1, 5.0, "dead", "expected process 1 to be alive, got no sign of life", 137, 3),
    "stopped": Scenario(1, 5.0, "dead", rf"it is dead or stopped.*, and it was last at {HERE} \(\w+\)\.$"),
    "stuck": Scenario(
        1,
        PATIENT,
        "stuck",
        r"expected process 1 to come to launch \d+, step, got alive for \d\.\d s without doing so; the last launch that it "
        rf"reported is number \d+, \S+, and it was last at {HERE} \(load_batch\)\.$",
    ),
    "raising": Scenario(1, PATIENT, "raised", rf"got ValueError: bad batch; .*, and it was last at {HERE} \(fail\)\.$"),
    "leaving": Scenario(1, PATIENT, "left", r"to come to launch \d+, step, got the end of its program"),
    "reordering": Scenario(1, PATIENT, "order", "to launch step as number .*, got a launch of other_step"),
    # The message that it receives is larger than that of its own collective, for which Gloo would end the process.
    "colliding": Scenario(1, PATIENT, "order", "to launch step as number .*, got a launch of "),
    "colliding alone": Scenario(1, PATIENT, "order", "to launch step as number .*, got a launch of ", devices=1),
    "colliding-longer": Scenario(1, PATIENT, "order", "to launch step as number .*, got a launch of ", devices=1),
    "coordinator": Scenario(
        0,
        PATIENT,
        "coordinator",
        "expected process 0 to hold the coordination service, itself or in its launcher, got a lost connection to it.",
    ),
    "callback": Scenario(
        0, PATIENT, "raised", rf"got ValueError: bad callback; .*, and it was last at {HERE} \(broken\)"
    ),
}
SCENARIOS["callback-of-integers"] = SCENARIOS["callback"]
SCENARIOS |= {
    f"{name} of three": scenario._replace(processes=3)
    for name, scenario in SCENARIOS.items()
    if name not in ("killed of three", "killed", "colliding alone", "colliding-longer")
}
SLOW = [name for name in SCENARIOS if name.endswith(" of three") and name != "killed of three"]
SLOW += ["stopped"]
# In a sequence of exchanges beside the launches: the kind of the failure, and what the other process says about it.
SEQUENCES = {
    "killed": ("dead", "got no sign of life for"),
    "stuck": ("stuck", "to come to launch 1, checkpoint.save, step 0, got alive for"),
    "leaving": ("left", "to come to launch 1, the write, got the end of its program"),
}
# Of the programs that differ: the line that each process shows as its own.
DIFFERING = {
    "different": [rf"b:f32\[8,16\] = {f} a  # {HERE} \(.*\)" for f in ("sin", "cos")],
    "constants": [
        rf"constant 0: \[{value} 7\.\] of float32\[2\] with digest {digest}"
        for value, digest in (("0\\.", "57378e2d"), ("1\\.", "f4674352"))
    ],
}
DIFFERENT = Scenario(1, PATIENT, "", "")


def run(name):
    scenario = SCENARIOS.get(name, DIFFERENT)
    # A stopped or stuck process does not end by itself; the others need the heartbeat timeout to notice a dead one.
    grace = "1" if name.split()[0] in ("stopped", "stuck") else str(scenario.heartbeat + LATE)
    options = ["-n", scenario.processes, "--devices", scenario.devices, "--grace", grace]
    return launch(options, [PROGRAM, name.split()[0], scenario.victim, scenario.heartbeat, free_address()])


def run_sequence(name, folder):
    return launch(
        ["-n", 2, "--devices", 2, "--grace", 1 if name == "stuck" else 5 + LATE],
        [failing_sequence.__file__, name, folder],
    )


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(3) as pool:
        folders = {name: tmp_path_factory.mktemp(name) for name in SEQUENCES}
        sequences = {("sequence", name): pool.submit(run_sequence, name, folder) for name, folder in folders.items()}
        yield sequences | {
            name: pool.submit(run, name) for name in [*SCENARIOS, *DIFFERING] if name in wanted or name not in SLOW
        }


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SCENARIOS])
def test_the_failure_of_a_process_is_raised_in_all_others(name, runs):
    scenario, done = SCENARIOS[name], runs[name].result()
    output = done.stdout + done.stderr
    others = [i for i in range(scenario.processes) if i != scenario.victim]
    failed = float(re.search(r"failing ([\d.]+)", output)[1])
    for process in others:
        time, kind, named = re.search(rf"^\[{process}\] noticed ([\d.]+) (\w+) (\d)$", output, re.M).groups()
        assert (kind, int(named)) == (scenario.kind, scenario.victim), output
        assert float(time) - failed < (scenario.heartbeat if kind == "dead" else 3.0) + LATE
        error = re.search(rf"^\[{process}\] \S+\.ProcessFailure: (.*)$", output, re.M)[1]
        assert re.search(scenario.text, error), error
        assert f"[{process}]   Fix: look at the output of process {named}, and start all processes again" in output
    assert done.returncode == scenario.status, output
    assert not re.search(r"^\[\d\] received", output, re.M), output
    assert "fatal errors" not in output and "terminate called" not in output


@pytest.mark.parametrize("program", ["colliding", "colliding-longer"])
def test_a_process_that_gloo_would_end_raises_too(program, runs):
    output = runs[program].result().stdout + runs[program].result().stderr
    assert re.search(r"^\[1\] noticed [\d.]+ order 0$", output, re.M), output
    assert re.search(
        r"^\[1\] \S+ProcessFailure: launch \d+ of process 1, \S+: expected process 0 to launch ", output, re.M
    )


def test_a_process_inside_a_tiny_program_on_its_only_device_prints_the_failure_and_ends(runs):
    output = runs["colliding alone"].result().stderr
    error = r"^\[1\] \S+ProcessFailure: launch \d+ of process 1, \S+: expected process 0 to launch "
    assert re.search(error, output, re.M), output
    assert re.search(rf"^\[1\] It ended this process, which was at {HERE} \(\w+\), inside jaxlib\.$", output, re.M), (
        output
    )


def test_a_process_whose_argument_was_deleted_raises_and_may_go_on():
    done = launch(["-n", 2, "--devices", 1], [DELETED])
    expected = "f, argument x: expected an array with live buffers, got f32[2], deleted or donated."
    lines = [line for line in done.stdout.splitlines() if "Gloo" not in line]
    assert sorted(lines) == ["[0] [2.0]", f"[0] {expected}", "[1] [2.0]"], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_processes_form_another_program_after_the_loss_of_the_service(runs):
    done = runs["coordinator"].result()
    for process in (0, 1):
        assert re.findall(rf"^\[{process}\] (?:refused|again) (.*)$", done.stdout, re.M) == [
            "distributed.initialize, after the loss of the coordination service: expected coordinator_address, "
            "num_processes, process_id of the program that the remaining processes form, got none, and the environment "
            "describes the program that has failed.   Fix: number these processes from 0 and choose an unused port.",
            "4.0",
        ], done.stdout + done.stderr


@pytest.mark.parametrize("name", DIFFERING)
def test_different_programs_are_an_error_before_they_run(name, runs):
    done = runs[name].result()
    for here, there in ((0, 1), (1, 0)):
        ours, theirs = DIFFERING[name][here], DIFFERING[name][there]
        lines = [line.partition("] ")[2] for line in done.stderr.splitlines() if line.startswith(f"[{here}]")]
        error = "\n".join(lines[next(i for i, line in enumerate(lines) if "ProgramMismatchError" in line) :])
        assert re.fullmatch(
            r"\S+ProgramMismatchError: launch of <lambda> over processes 0, 1: expected the same program in all of them, "
            rf"here \(process {here}\)\n    {ours}, got in process {there}\n    {theirs}\.\n"
            "  Fix: let all processes run the same operations on the same shapes and dtypes, in the same order.",
            error,
        ), done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_process_that_fails_while_the_others_wait_beside_their_launches_is_named(name, runs):
    done, (kind, text) = runs["sequence", name].result(), SEQUENCES[name]
    found = re.search(r"^\[0\] noticed (\w+) 1 in launch 1 of process 0, (.*)$", done.stdout, re.M)
    assert found and found[1] == kind and text in found[2], done.stdout + done.stderr
    assert done.returncode == (137 if name == "killed" else 1) and "terminate called" not in done.stderr
