"""Arrays and programs over 2 processes with 4 devices each: the checks of `array_checks.py`."""

from pathlib import Path

import pytest

from tests.distributed.process_group import ProcessGroup

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def group():
    started = ProcessGroup(HERE / "array_checks.py", count=2, devices=4)
    yield started
    started.close()


def test_one(group):
    group.run("devices_of_all_processes")
