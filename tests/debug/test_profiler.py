"""Profiles: what is recorded, under which names, and what is refused."""

import gzip
import json

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import profiler
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError


def names(folder):
    (file,) = folder.glob("plugins/profile/*/*.xplane.pb")
    planes = profiler.ProfileData.from_file(str(file)).planes
    return {event.name for plane in planes for line in plane.lines for event in line.events}


@profiler.annotate_function
def annotated(x):
    return jnp.sin(x)


def test_a_profile_contains_annotations(tmp_path):
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        with profiler.StepTraceAnnotation("step", step_num=3), profiler.TraceAnnotation("inside"):
            profiler.annotate_function(annotated, name="another")(jnp.ones(8)).block_until_ready()
    assert {"step", "inside", "annotated", "another"} <= names(tmp_path)
    (perfetto,) = tmp_path.glob("plugins/profile/*/perfetto_trace.json.gz")
    assert json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]


def test_a_profile_accepts_options(tmp_path):
    options = profiler.ProfileOptions()
    options.host_tracer_level = 0
    profiler.start_trace(tmp_path, profiler_options=options)
    with profiler.TraceAnnotation("unseen"):
        pass
    profiler.stop_trace()
    assert "unseen" not in names(tmp_path)


def test_unmatched_starts_and_stops_of_profiles_are_errors(tmp_path):
    with pytest.raises(ArgumentError) as caught:
        profiler.stop_trace()
    assert str(caught.value) == (
        "stop_trace: expected a trace being recorded, got none.\n  Fix: call start_trace(log_dir) first."
    )
    with profiler.trace(tmp_path):
        with pytest.raises(
            ArgumentError,
            match="expected no other trace being recorded, since a process can record one at a time, got a trace",
        ):
            profiler.start_trace(tmp_path)
    with pytest.raises(ArgumentError, match="Fix: pass create_perfetto_trace=True and open the file at"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    with pytest.raises(ArgumentError, match="stop_server: expected a running server, got none"):
        profiler.stop_server()


def test_an_annotated_function_keeps_its_behaviour():
    assert annotated.__name__ == "annotated"
    assert profiler.annotate_function(name="x")(lambda a, b=1: a + b)(2, b=3) == 5
    with pytest.raises(ArgumentTypeError, match="annotate_function, argument func"):
        profiler.annotate_function(3)


def test_memory_profiles_are_gzipped(tmp_path):
    held = jnp.ones(1000)
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    assert b"cpu" in gzip.decompress((tmp_path / "memory.prof").read_bytes()).lower()
    assert held.shape == (1000,)


def test_print_environment_info_shows_versions_and_variables(capsys, monkeypatch):
    monkeypatch.setenv("PHALANX_TOLD", "1")
    text = phalanx.print_environment_info(return_string=True)
    assert "jaxlib: " in text
    assert "PHALANX_TOLD=1" in text
    assert phalanx.print_environment_info() is None
    assert capsys.readouterr().out == text + "\n"
