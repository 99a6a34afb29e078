"""Dead code: what results do not need goes, and a program without any is left as it is."""

import gc
import weakref

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.jaxpr import cached_on_jaxpr, dce_jaxpr, remove_dead_code


def operations(program):
    return [eqn.primitive.name for eqn in program.eqns]


def test_a_program_without_dead_code_stays_itself():
    program = phalanx.make_jaxpr(lambda x: lax.sin(x) * x)(1.0)
    assert remove_dead_code(program) is program
    assert dce_jaxpr(program, [True]) == (program, [True])


def test_that_a_function_leaves_a_program_as_it_is_is_found_once():
    calls = []

    @cached_on_jaxpr
    def leave(program):
        calls.append(program)
        return program

    program = phalanx.make_jaxpr(lambda x: lax.sin(x) * x)(1.0)
    assert leave(program) is leave(program) is program and len(calls) == 1
    # A program that held itself would stay until the garbage collector runs.
    found = weakref.ref(program)
    calls.clear()
    del program
    assert found() is None


def test_what_the_results_do_not_need_goes_and_unread_inputs_stay():
    def f(x, y):
        lax.cos(y)
        return lax.sin(x)

    program = phalanx.make_jaxpr(f)(1.0, 2.0)
    smaller = remove_dead_code(program)
    assert operations(program) == ["cos", "sin"] and operations(smaller) == ["sin"]
    assert smaller.invars == program.invars and remove_dead_code(smaller) is smaller
    assert dce_jaxpr(program, [True])[1] == [True, False]


def test_programs_that_equations_hold_lose_theirs_when_they_are_lowered():
    inner = phalanx.jit(lambda x: (lax.sin(x), lax.cos(x)))
    text = phalanx.jit(lambda x: inner(x)[0]).lower(1.0).as_text()
    assert "sine" in text and "cosine" not in text


def test_a_program_without_dead_code_goes_with_its_last_reference():
    program = phalanx.make_jaxpr(lambda x: x + jnp.arange(3.0))(1.0)
    remove_dead_code(program), dce_jaxpr(program, [True])
    gone = weakref.ref(program)
    gc.disable()
    try:
        del program
        assert gone() is None
    finally:
        gc.enable()
