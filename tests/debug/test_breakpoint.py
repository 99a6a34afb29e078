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
    phalanx.debug.breakpoint(ordered=ordered, more=y["twice"] + 1, num_frames=1)
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


def outer(x, note, **options):
    z = x - 1

    @phalanx.jit
    def inner(y):
        w = y * 3
        phalanx.debug.breakpoint(**options)
        return w

    return inner(z) + len(note)


def stack_above(frame):
    found = []
    while frame is not None:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found


def test_the_debugger_moves_to_the_functions_around(monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(stack_above(sys._getframe(1))))
    phalanx.jit(lambda x: outer(x, "text", num_frames=2))(jnp.arange(2.0))
    phalanx.effects_barrier()
    (inner_frame, _), (outer_frame, line), *_ = stops[0]
    assert (inner_frame.f_code.co_name, outer_frame.f_code.co_name) == ("inner", "outer")
    np.testing.assert_array_equal(inner_frame.f_globals["w"], [-3.0, 0.0])
    np.testing.assert_array_equal(outer_frame.f_globals["x"], [0.0, 1.0])
    np.testing.assert_array_equal(outer_frame.f_globals["z"], [-1.0, 0.0])
    assert outer_frame.f_globals["note"] == "text" and outer_frame.f_code.co_filename == __file__
    assert line == outer.__code__.co_firstlineno + 9
    stops.clear()
    phalanx.jit(lambda x: outer(x, "text", num_frames=1, filter_frames=False))(jnp.arange(2.0))
    phalanx.effects_barrier()
    assert [f.f_code.co_name for f, _ in stops[0][:2]] != ["inner", "outer"]


def test_the_debuggers_commands(monkeypatch, capsys):
    import io
    import pdb

    commands = iter(["up\np x\nup\ndown\ndown\np w.tolist()\nc\n"])

    def stop():
        debugger = pdb.Pdb(stdin=io.StringIO(next(commands)), stdout=sys.stdout, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    outer(jnp.arange(2.0), "text")
    phalanx.effects_barrier()
    sys.settrace(None)
    shown = capsys.readouterr().out
    assert "array([0., 1.], dtype=float32)" in shown and "[-3.0, 0.0]" in shown


def test_a_token_orders_the_stop(monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(float(sys._getframe(1).f_globals["x"])))

    def f(x):
        return 2 * phalanx.debug.breakpoint(token=x)

    assert float(phalanx.jit(phalanx.grad(f))(3.0)) == 2.0
    assert phalanx.vmap(f)(jnp.arange(2.0)).tolist() == [0.0, 2.0]
    phalanx.jit(lambda x: (phalanx.debug.breakpoint(token=x), x)[1])(7.0)
    phalanx.effects_barrier()
    assert stops.count(0.0) == stops.count(1.0) == 1 and 7.0 not in stops
    with pytest.raises(ArgumentError, match="argument token: expected None, since ordered=True already determines"):
        phalanx.debug.breakpoint(token=1.0, ordered=True)


def test_other_debugger_backends_are_an_error():
    with pytest.raises(ArgumentError) as e:
        phalanx.debug.breakpoint(backend="web")
    assert str(e.value) == (
        "debug.breakpoint, argument backend: expected None or 'cli', got 'web'.\n  Fix: leave backend out, or pass backend='cli'."
    )


def test_a_variable_that_contains_itself_is_shown_as_it_is(monkeypatch):
    cycle = {"x": jnp.ones(2)}
    cycle["again"] = [cycle]
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_globals["cycle"]))
    phalanx.debug.breakpoint(num_frames=1)
    assert stops[0] is cycle
    assert recursions_left() > 100  # jaxlib would have lost count


def recursions_left():
    try:
        return 1 + recursions_left()
    except RecursionError:
        return 0
