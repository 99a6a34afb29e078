"""Random programs compute the same in every style of parallelism; `make fuzz` tries more of them."""

import pytest
from tests.spmd import random_programs
from tests.spmd.random_programs import Program


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_transformation_computes_the_same_random_program(seed):
    random_programs.check(seed)


def test_small_random_programs_agree():
    random_programs.check(0, depth=1, styles=1)


def test_a_wrong_style_is_detected_and_the_program_shrunk(monkeypatch):
    wrong = lambda v, a, f: v + (random_programs.lax.axis_index(a) > 0) * 1e-2
    monkeypatch.setitem(random_programs.STEPS, "right", lambda v, a, f: v * 1.01)
    monkeypatch.setitem(random_programs.STEPS, "wrong", wrong)
    monkeypatch.setitem(random_programs.STYLES, "dropping axes", lambda f: lambda x: random_programs.plain(f)(x[::-1]))
    program = Program((("right", "x", Program()), ("wrong", "y", Program((("right", "x", Program()),)))))
    least, error = random_programs.shrink(program, "dropping axes")
    assert isinstance(error, AssertionError) and "dropping axes" in str(error)
    assert least == Program()
