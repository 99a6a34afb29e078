"""Listeners of events, and the events of tracing, lowering, compiling and the compilation cache."""

import pytest

import phalanx
from phalanx import monitoring


@pytest.fixture(autouse=True)
def no_listeners():
    yield
    monitoring.clear_event_listeners()


def test_each_kind_of_record_reaches_its_listeners():
    seen = []
    listener = lambda *values, **metadata: seen.append((*values, metadata))
    monitoring.register_event_listener(listener)
    monitoring.register_event_duration_secs_listener(listener)
    monitoring.register_event_time_span_listener(listener)
    monitoring.register_scalar_listener(listener)
    monitoring.record_event("a", n=1)
    monitoring.record_event_duration_secs("b", 2.0)
    monitoring.record_event_time_span("c", 3.0, 4.0)
    monitoring.record_scalar("d", 5)
    assert seen == [("a", {"n": 1}), ("b", 2.0, {}), ("c", 3.0, 4.0, {}), ("d", 5, {})]
    monitoring.unregister_event_listener(listener)
    monitoring.unregister_event_duration_listener(listener)
    monitoring.unregister_event_time_span_listener(listener)
    monitoring.unregister_scalar_listener(listener)
    monitoring.record_event("a")
    assert len(seen) == 4


def test_a_listener_that_is_not_registered_is_an_error():
    with pytest.raises(AssertionError, match="^argument callback: expected a registered listener, got"):
        monitoring.unregister_event_listener(print)


def test_a_first_call_reports_its_stages_and_a_second_none():
    seen = []
    monitoring.register_event_duration_secs_listener(lambda event, s, **metadata: seen.append((event, metadata)))

    @phalanx.jit
    def double(x):
        return x + x

    double(1.5)
    assert [(event.rpartition("/")[2], m["fun_name"]) for event, m in seen] == [
        ("jaxpr_trace_duration", "double"),
        ("jaxpr_to_mlir_module_duration", "double"),
        ("backend_compile_duration", "jit_double"),
    ]
    del seen[:]
    double(2.5)
    assert not seen


def test_the_compilation_cache_reports_misses_and_hits(tmp_path):
    seen = []
    monitoring.register_event_listener(lambda event, **_: seen.append(event.rpartition("/")[2]))
    before = phalanx.config.jax_compilation_cache_dir, phalanx.config.jax_persistent_cache_min_compile_time_secs
    phalanx.config.update("jax_compilation_cache_dir", str(tmp_path))
    phalanx.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    try:
        for _ in range(2):
            phalanx.jit(lambda x: x * 7 - 3).lower(1.5).compile()
            phalanx.clear_caches()
    finally:
        phalanx.config.update("jax_compilation_cache_dir", before[0])
        phalanx.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    assert seen == ["compile_requests_use_cache", "cache_misses", "compile_requests_use_cache", "cache_hits"]
