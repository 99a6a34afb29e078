"""A process that is about to be preempted: all processes learn of it at the same step."""

import re

from tests.distributed import preempted_program
from tests.distributed.process_group import launch


def test_sigterm_on_one_process_reaches_all_at_the_same_step():
    done = launch(["-n", 3, "--devices", 2], [preempted_program.__file__])
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^\[(\d)\] saves step (\d+) with \[([\d.]+)\]$", done.stdout, re.M)
    assert sorted(number for number, *_ in found) == ["0", "1", "2"], done.stdout + done.stderr
    ((step, value),) = {(int(step), float(value)) for _, step, value in found}
    assert step == value > 3
