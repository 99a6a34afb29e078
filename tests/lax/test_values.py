"""For every case: the type rule is true, the value is that of NumPy or SciPy, compiled is eager."""

from __future__ import annotations

import pytest
from tests.lax import laws
from tests.lax.cases import CASES, with_law

pytestmark = pytest.mark.usefixtures("double_precision")


@with_law("abstract_eval", CASES)
def test_the_type_rule_is_true(case):
    laws.check_result(case)


@with_law("oracle", [c for c in CASES if c.oracle is not None])
def test_values_agree_with_numpy_and_scipy(case):
    laws.check_oracle(case)


@with_law("compiled", CASES)
def test_compiled_equals_eager(case):
    laws.check_compiled(case)
