"""The laws of primitives, on those of random numbers."""

import numpy as np
import pytest
from tests.lax import laws
from tests.lax.cases import Case

from phalanx import random
from phalanx.core.primitive import registry
from phalanx.lax.prng.threefry2x32 import threefry2x32_p

pytestmark = pytest.mark.lengthy

WORDS = [np.arange(6, dtype=np.uint32).reshape(2, 3) * np.uint32(n) for n in (7, 11, 13, 17)]
CASES = [
    Case(threefry2x32_p, tuple(WORDS), {"is_key": False}),
    Case(threefry2x32_p, tuple(WORDS), {"is_key": True}, name="loop"),
    Case(threefry2x32_p, (np.uint32(3), np.uint32(4), *WORDS[2:]), {"is_key": True}, name="scalar key"),
]
NAMES = ("threefry2x32", *(n for n in registry if n.startswith("random_") and n != "random_gamma_grad"))


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_is_written_or_waived_with_a_reason(name):
    laws.check_rules(registry[name])


def test_the_primitives_of_keys_are_complete():
    expected = {"random_seed", "random_split", "random_fold_in", "random_bits", "random_wrap", "random_unwrap"}
    assert set(NAMES) >= expected
    assert random.key(0).shape == ()


@pytest.mark.one_is_quick(group=lambda case: case.primitive.name)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_the_laws_of_threefry(case):
    laws.check_roles(case)
    laws.check_batch(case)
    laws.check_result(case)
    laws.check_compiled(case)
