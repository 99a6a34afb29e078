"""Waits inside jaxlib from which a thread can be called away."""

import signal
import threading

import pytest

from phalanx.engine import interruptible_wait
from phalanx.engine.interruptible_wait import Interrupter


@pytest.fixture
def interrupter():
    return Interrupter(lambda: RuntimeError("process 1 has failed"))


def test_results_and_exceptions_come_from_the_other_thread(interrupter):
    assert interrupter.wait(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        interrupter.wait(lambda: 1 / 0)
    assert interruptible_wait.wait(threading.get_ident) == threading.get_ident()  # of a process alone


def test_a_thread_keeps_its_helper_which_calls_nested_functions_itself(interrupter):
    helper = interrupter.wait(threading.get_ident)
    assert interrupter.wait(lambda: interrupter.wait(threading.get_ident)) == helper
    assert len(interrupter._helpers) == 1


def test_an_interrupt_ends_waits_and_limits_those_to_come(interrupter, monkeypatch):
    monkeypatch.setattr(interruptible_wait, "_LAST_SECONDS", 0.05)
    begun, never = threading.Event(), threading.Event()
    assert not interrupter.calls()
    threading.Thread(target=lambda: (begun.wait(), interrupter.interrupt())).start()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="process 1 has failed"):
            interrupter.wait(lambda: (begun.set(), never.wait()))
    assert interrupter.wait(lambda: "ready") == "ready"
    never.set()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer's signal")
def test_ctrl_c_leaves_a_wait_and_calls_stay_in_order(interrupter):
    def press_ctrl_c(*_):
        raise KeyboardInterrupt

    order, go_on = [], threading.Event()
    before = signal.signal(signal.SIGALRM, press_ctrl_c)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            interrupter.wait(lambda: (go_on.wait(), order.append("left")))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupter.has_left
    threading.Timer(0.05, go_on.set).start()
    assert interrupter.wait(lambda: order.append("next") or len(order)) == 2
    assert order == ["left", "next"] and not interrupter.has_left
