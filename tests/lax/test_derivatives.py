"""For every smooth case: derivatives are numerical differences, and reverse mode is the adjoint."""

from __future__ import annotations

import pytest
from tests.lax import laws
from tests.lax.cases import CASES, with_law

pytestmark = pytest.mark.usefixtures("double_precision")


@with_law("derivatives", [c for c in CASES if c.order])
def test_derivatives_equal_finite_differences(case):
    laws.check_derivatives(case)
