"""`debug.breakpoint` stops where it was called, with the values of the variables there."""

import sys

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError


def stopped(x, ordered):
    y = {"twice": x * 2}
    label = "ordered" if ordered else "free"  # noqa: F841
    phalanx.debug.breakpoint(ordered=ordered, more=y["twice"] + 1)
    return y["twice"]


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit, lambda f: phalanx.jit(f, static_argnums=1)])
def test_the_debugger_sees_the_callers_variables(wrap, monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append((sys._getframe(1), sys._getframe(1).f_lineno)))
    f = phalanx.jit(lambda x: stopped(x, False)) if wrap is phalanx.jit else wrap(stopped)
    f(jnp.arange(2.0), *([] if wrap is phalanx.jit else [True]))
    phalanx.effects_barrier()
    ((frame, at),) = stops
    seen = frame.f_globals
    np.testing.assert_array_equal(seen["x"], [0.0, 1.0])
    np.testing.assert_array_equal(seen["y"]["twice"], [0.0, 2.0])
    np.testing.assert_array_equal(seen["more"], [1.0, 3.0])
    assert isinstance(seen["x"], np.ndarray)
    assert seen["label"] == ("free" if wrap is phalanx.jit else "ordered")
    assert seen["jnp"] is jnp
    line = stopped.__code__.co_firstlineno + 3
    assert (frame.f_code.co_filename, at) == (__file__, line)


def test_other_debugger_backends_are_an_error():
    with pytest.raises(ArgumentError) as e:
        phalanx.debug.breakpoint(backend="web")
    assert str(e.value) == (
        "debug.breakpoint, argument backend: expected None or 'cli', got 'web'.\n  Fix: leave backend out, or pass backend='cli'."
    )
