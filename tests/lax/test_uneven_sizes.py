"""For every case: operands of any size may be split over any number of devices."""

from __future__ import annotations

import pytest
from tests.lax import laws, structured_cases
from tests.lax.cases import CASES, family_of, with_law
from tests.lax.recorded_primitives import equations

pytestmark = pytest.mark.usefixtures("double_precision")


@with_law("uneven", [c for c in CASES if c.name != "low" and not c.primitive.call_like], family_of)
def test_operands_of_any_size_may_be_split(case):
    laws.check_uneven(case)


@pytest.mark.slow
@pytest.mark.parametrize("call", structured_cases.CASES, ids=[c.name for c in structured_cases.CASES])
def test_operands_of_structured_primitives_may_be_split(call):
    for case in equations(call.flat(), call.args, call.name):
        laws.check_uneven(case)
