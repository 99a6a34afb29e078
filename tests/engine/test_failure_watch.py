"""What the watch knows of launches and of other processes."""

import json
import sys

import numpy as np
import pytest

from phalanx.engine.failure_watch import _find_place, _Group, _Seen


def test_the_hash_of_launches_does_not_depend_on_when_they_are_numbered():
    each, at_once = _Group("all"), _Group("all")
    for i in range(100):
        launch = f"step {i}", bytes([i]) * 8
        each.begun.append(launch)
        at_once.begun.append(launch)
        last = each.launches
    assert at_once.launches == last
    assert [(launch.number, launch.name) for launch in last[-2:]] == [(99, "step 98"), (100, "step 99")]
    assert len({launch.rolling for launch in last}) == len(last) == 32


@pytest.mark.parametrize("is_numbered", [False, True])
def test_a_launch_that_jaxlib_refuses_is_not_counted(is_numbered):
    group = _Group("all")
    group.begun.append(("step", b"1"))
    before = group.launches
    group.begun.append(("refused", b"2"))
    if is_numbered:
        assert group.launches[-1].name == "refused"
    assert group.retract() == is_numbered
    assert group.launches == before


def test_time_counts_as_stuck_once_others_wait_and_a_stop_never():
    seen, record = _Seen(0.0), {"state": "running", "launches": {"all": [[2, 7, "step"]]}}
    seen.update(record | {"sequence": 1}, 1.0)
    seen.update(record | {"sequence": 2}, 9.0)  # It has compiled for 8 s; others wait since then.
    assert seen.unmoved("all", since=9.0) == 0
    seen.update(record | {"sequence": 2}, 20.0)  # It was stopped.
    assert seen.unmoved("all", since=9.0) == 0
    seen.update(record | {"sequence": 3}, 21.0)
    assert seen.unmoved("all", since=9.0) == 0
    assert seen.unmoved("all", since=15.0) == 0  # The wait began during the stop.
    seen.update(record | {"sequence": 4}, 22.0)
    assert seen.unmoved("all", since=9.0) == 1


def test_the_place_of_a_process_is_a_line_of_its_program_also_inside_numpy_and_the_standard_library():
    places = {}

    def note(frame, event, argument):
        places[frame.f_globals["__name__"]] = _find_place(frame)

    sys.setprofile(note)
    try:
        np.indices((2, 2)), json.dumps({}, indent=1)
    finally:
        sys.setprofile(None)
    line = f"{__file__}:{note.__code__.co_firstlineno + 5} (test_the_place_of_a_process_is_a_line_of_its_program"
    inside = {name: place for name, place in places.items() if name.startswith(("numpy.", "json"))}
    assert len(inside) > 1
    assert all(place.startswith(line) for place in inside.values()), inside
