"""Sets of live objects."""

import gc
import threading

from phalanx.engine.live_objects import LiveObjects


class Member:
    def __eq__(self, other):
        return True

    __hash__ = None


def test_members_are_distinct_and_are_not_kept_alive():
    found, first, second = LiveObjects(), Member(), Member()
    found.add(first), found.add(second), found.add(first)
    assert len(list(found)) == 2
    del first
    gc.collect()
    assert [member is second for member in found] == [True]


def test_members_may_be_added_while_another_thread_iterates():
    found, kept, done = LiveObjects(), [], threading.Event()

    def add():
        while not done.is_set() and len(kept) < 100_000:
            kept.append(Member())
            found.add(kept[-1])

    thread = threading.Thread(target=add)
    thread.start()
    try:
        counts = [sum(1 for _ in found) for _ in range(200)]
    finally:
        done.set()
        thread.join()
    assert counts == sorted(counts)
