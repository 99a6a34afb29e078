"""The connection of a process to the others of its program, without others."""

import threading

from phalanx.engine.coordination import Coordinator


def test_threads_that_use_a_sequence_first_take_the_same_lock(monkeypatch):
    create, both = threading.RLock, threading.Barrier(2, timeout=60)

    def create_in_both() -> threading.RLock:
        both.wait()
        return create()

    coordinator, locks = Coordinator(None, process_id=0, num_processes=2), []
    threads = [threading.Thread(target=lambda: locks.append(coordinator._lock_of("checkpoint"))) for _ in range(2)]
    monkeypatch.setattr(threading, "RLock", create_in_both)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert locks[0] is locks[1]
