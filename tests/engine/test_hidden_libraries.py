"""Frames of libraries that ask for it are hidden as those of Phalanx are."""

import traceback

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.source_info import format_source
from phalanx.engine import traceback_filtering


@pytest.fixture
def library(tmp_path):
    """A module with a function that calls what it is given, in a file of its own whose frames are hidden."""
    file = str(tmp_path / "library.py")
    namespace = {"phalanx": phalanx, "jnp": jnp}
    exec(compile("def call(f, x):\n    return jnp.sin(phalanx.jit(f)(x))\n", file, "exec"), namespace)
    traceback_filtering.exclude_file(file)
    yield namespace["call"]
    traceback_filtering.include_file(file)


def fail(x):
    return jnp.dot(x, jnp.ones((3, 2)))


def test_their_frames_are_not_in_tracebacks(library):
    guarded = traceback_filtering.api_boundary(lambda: library(fail, jnp.ones(4)))
    with pytest.raises(phalanx.errors.ShapeError) as caught:
        guarded()
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert names == ["test_their_frames_are_not_in_tracebacks", "<lambda>", "fail"]


def test_operations_come_from_their_callers(library):
    eqn = phalanx.make_jaxpr(lambda x: library(jnp.cos, x))(1.0).eqns[-1]
    assert eqn.primitive.name == "sin" and "test_hidden_libraries" in format_source(eqn.source)


def test_included_again_they_are_shown(library):
    file = library.__code__.co_filename
    traceback_filtering.include_file(file)
    with pytest.raises(phalanx.errors.ShapeError) as caught:
        library(fail, jnp.ones(4))
    assert file in [frame.filename for frame in traceback.extract_tb(caught.tb)]
