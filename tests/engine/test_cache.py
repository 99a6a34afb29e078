"""Caches: their bounds, what they count, and how many entries the library keeps after many retraces."""

import gc
import weakref

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.engine import cache
from phalanx.engine.cache import Cache, cache_sizes, clear_caches, memoize


class Key:
    pass


def test_a_full_cache_drops_the_older_half():
    squares = Cache("test.squares", capacity=4)
    for i in range(5):
        squares[i] = i * i
    assert list(squares) == [2, 3, 4]
    assert squares.get(0) is None and squares.get(4) == 16


def test_a_cache_counts_entries_and_misses_under_its_name():
    first, second = Cache("test.counted", capacity=4), Cache("test.counted", capacity=4)
    first[0] = second[0] = second[1] = "x"
    assert cache_sizes()["test.counted"] == (3, 3, 4, 2)
    del second
    assert cache_sizes()["test.counted"] == (1, 1, 4, 1)


def test_an_entry_of_a_weak_cache_goes_with_its_key():
    bodies, key = Cache("test.bodies", weak="keys"), Key()
    bodies[key] = "body"
    assert bodies.get(key) == "body"
    del key
    assert len(bodies) == 0


def test_an_intern_table_keeps_what_is_in_use_when_it_is_cleared():
    types = Cache("test.types", weak="values")
    made = types.get_or_make(1, Key)
    types.clear()
    assert types.get_or_make(1, Key) is made and types.get_reference(1)() is made
    del made
    assert types.get_reference(1) is None


def test_clearing_empties_tables_memos_and_single_values():
    table, forgotten = Cache("test.table", capacity=4), []
    remembered = memoize("test.memo", 4)(lambda x: [x])
    table[0], first = 1, remembered(0)
    cache.on_clear(lambda: forgotten.append(True))
    clear_caches()
    assert len(table) == 0 and remembered(0) is not first and forgotten
    cache._on_clear.pop()


def test_cache_sizes_name_the_caches_of_every_package():
    phalanx.jit(jnp.sin)(1.0)  # which loads the packages
    packages = {name.split(".")[0] for name in cache_sizes()}
    assert {"core", "runtime", "sharding", "lax", "numpy", "spmd"} <= packages


def retrace(count: int, start: int = 3) -> None:
    f = phalanx.jit(lambda x: jnp.sin(x).sum() + x[0])
    for n in range(start, start + count):
        f.eval_shape(phalanx.ShapeDtypeStruct((n, 2), "float32"))


def total() -> int:
    return sum(size.entries for size in cache_sizes().values())


def test_few_entries_survive_clearing_after_many_retraces():
    retrace(1)
    clear_caches()
    gc.collect()
    before = total()
    retrace(1500)
    clear_caches()
    assert total() - before < 50


@pytest.mark.slow
def test_the_entries_after_ten_thousand_retraces_are_bounded():
    clear_caches()
    f = phalanx.jit(lambda x: jnp.sin(x).sum() + x[0])
    sizes = []
    for n in range(3, 10003):
        f.eval_shape(phalanx.ShapeDtypeStruct((n, 2), "float32"))
        if n % 1000 == 2:
            sizes.append(total())
    # Full caches drop half of their entries at once, so the total goes up and down; unbounded, it would double.
    assert max(sizes[5:]) <= 1.5 * max(sizes[:5])
    clear_caches()


def test_a_type_is_freed_with_its_last_reference():
    gc.disable()
    try:
        aval = phalanx.core.ShapedArray((7, 11, 13), jnp.dtype("float32"))
        assert aval.to_tangent() is aval
        reference = weakref.ref(aval)
        del aval
        assert reference() is None
    finally:
        gc.enable()
