"""Arrays and programs over the devices of several processes: the checks of `array_checks.py`."""

import ast
from pathlib import Path

import pytest
from tests.distributed.process_group import ProcessGroup

CHECKS = Path(__file__).with_name("array_checks.py")
NAMES = [
    node.name
    for node in ast.parse(CHECKS.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


@pytest.fixture(scope="module", params=["2x4", pytest.param("4x2", marks=pytest.mark.slow)])
def group(request):
    started = ProcessGroup(CHECKS, *map(int, request.param.split("x")))
    yield started
    started.close()


@pytest.mark.parametrize("check", NAMES)
def test_over_processes(group, check):
    group.run(check)
