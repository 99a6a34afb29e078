"""For every case: mapping over any combination of dimensions is the loop over the examples."""

from __future__ import annotations

import pytest
from tests.lax import laws
from tests.lax.cases import CASES, family_of, with_law

pytestmark = pytest.mark.usefixtures("double_precision")


@with_law("batch", [c for c in CASES if c.args and c.name != "low"], family_of)
def test_vmap_equals_a_loop(case):
    laws.check_batch(case)
