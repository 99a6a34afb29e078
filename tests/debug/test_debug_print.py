"""`debug.print` where there is no standard output."""

import phalanx


def test_nothing_is_printed_without_a_standard_output(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)  # as under pythonw
    phalanx.debug.print("x {}", 1)
    phalanx.jit(lambda x: phalanx.debug.print("x {}", x))(1)
    phalanx.effects_barrier()
