"""For every case: the pieces along each dimension role make the whole."""

from __future__ import annotations

import pytest
from tests.lax import laws, structured_cases
from tests.lax.cases import CASES, with_law
from tests.lax.recorded import equations

import phalanx


@pytest.fixture(autouse=True)
def double_precision():
    with phalanx.enable_x64(True):
        yield


@with_law("roles", [c for c in CASES if c.name != "low"])
def test_pieces_along_a_role_make_the_whole(case):
    laws.check_roles(case)


@pytest.mark.parametrize("call", structured_cases.CASES, ids=[c.name for c in structured_cases.CASES])
def test_pieces_along_a_role_of_structured_operations_make_the_whole(call):
    for case in equations(call.flat(), call.args, call.name):
        laws.check_result(case)
        laws.check_roles(case)
