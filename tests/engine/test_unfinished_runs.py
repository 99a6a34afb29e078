"""The count of unfinished runs, which decides whether a launch or a wait may block on another process."""

import pytest

from phalanx.engine import unfinished_runs


class Result:
    """A result of a run, as jaxlib's arrays are."""

    deleted = ready = False

    def is_deleted(self):
        return self.deleted

    def is_ready(self):
        assert not self.deleted
        return self.ready


class Token:
    """The token of a run, as jaxlib's are; records that it is awaited."""

    def __init__(self, awaited):
        self.awaited = awaited

    def block_until_ready(self):
        self.awaited.append(self)


@pytest.fixture
def start(monkeypatch):
    """A function that adds a run and returns its result."""
    monkeypatch.setattr(unfinished_runs._Runs, "unfinished", type(unfinished_runs._Runs.unfinished)())
    monkeypatch.setattr(unfinished_runs._Runs, "has_others", False)

    def add(awaited, has_result=True):
        result = Result()
        unfinished_runs.add(unfinished_runs.Run(Token(awaited), result if has_result else None))
        return result

    return add


def test_a_run_is_finished_when_its_result_is_ready(start):
    assert unfinished_runs.all_finished()
    first, second = start([]), start([])
    second.ready = True
    assert not unfinished_runs.all_finished()
    first.ready = True
    assert unfinished_runs.all_finished() and not unfinished_runs._Runs.unfinished


@pytest.mark.parametrize("lose", ["deleted", "dropped", "without a result", "not counted"])
def test_a_run_whose_result_tells_nothing_counts_as_unfinished(lose, start):
    result = start([], has_result=lose != "without a result")
    result.ready, result.deleted = True, lose == "deleted"
    if lose == "dropped":
        result = None
    if lose == "not counted":
        unfinished_runs.start_others()
    assert not unfinished_runs.all_finished()
    unfinished_runs.abandon()
    assert unfinished_runs.all_finished()


def test_many_unfinished_runs_are_awaited_by_halves(start):
    awaited = []
    for _ in range(15):
        start(awaited)
        unfinished_runs.make_room()
    assert not awaited
    start(awaited)
    unfinished_runs.make_room()
    assert len(awaited) == 8 == len(unfinished_runs._Runs.unfinished)
