"""What the watch knows of launches and of other processes."""

from phalanx.engine.failure_watch import _Group, _Seen


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


def test_time_counts_as_stuck_once_others_wait_and_a_stop_only_after_the_process_has_gone_on():
    seen, record = _Seen(0.0), {"state": "running", "launches": {"all": [[2, 7, "step"]]}}
    seen.update(record | {"sequence": 1}, 1.0)
    seen.update(record | {"sequence": 2}, 9.0)  # It has compiled for 8 s; others wait since then.
    assert seen.unmoved("all", since=9.0) == 0
    seen.update(record | {"sequence": 2}, 20.0)  # It was stopped.
    assert seen.unmoved("all", since=9.0) == 0
    seen.update(record | {"sequence": 3}, 21.0)
    assert seen.unmoved("all", since=9.0) == 12
