"""For every case: operands of any size may be split over any mesh."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.lax import structured_cases
from tests.lax.cases import CASES, family_of
from tests.lax.recorded_primitives import equations
from tests.lax.uneven_law import check_uneven

pytestmark = pytest.mark.usefixtures("double_precision")
TOGETHER = int(os.environ.get("PHALANX_UNEVEN_TOGETHER", 12))  # cases in one program


def split_into_programs(cases: list) -> list:
    cases = sorted(cases, key=family_of)
    return [cases[i : i + TOGETHER] for i in range(0, len(cases), TOGETHER)]


ELEMENTARY = [c for c in CASES if c.name != "low" and not c.primitive.call_like]


def drawn_by_names(cases: list) -> Random:
    return Random(zlib.crc32("".join([case.id for case in cases]).encode()))


@pytest.mark.one_is_quick(group=lambda cases: family_of(cases[0]))
@pytest.mark.parametrize("cases", split_into_programs(ELEMENTARY), ids=lambda cases: cases[0].id)
def test_operands_of_any_size_may_be_split(cases):
    check_uneven(cases, drawn_by_names(cases))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(structured_cases.CASES), TOGETHER))
def test_operands_of_structured_primitives_may_be_split(first):
    cases = []
    for call in structured_cases.CASES[first : first + TOGETHER]:
        order = int(call.reverse and not call.fixed and call.operation != "scatter_mul")
        cases += [replace(case, order=order) for case in equations(call.flat(), call.args, call.name)]
    check_uneven(cases, drawn_by_names(cases))


@pytest.mark.slow
@settings(max_examples=5)
@given(st.sampled_from(ELEMENTARY), st.randoms(use_true_random=False))
def test_any_sizes_and_placements_of_an_operation(case, random):
    check_uneven([case], random)
