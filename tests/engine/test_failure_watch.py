"""The record of a group's launches, by which processes find the first one that differs."""

from phalanx.engine.failure_watch import _Group


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
