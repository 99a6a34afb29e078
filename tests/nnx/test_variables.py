"""Variables: values, metadata, hooks, arithmetic, and the trace that they belong to."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError, TraceContextError, UnexpectedTracerError


def test_a_variable_can_be_used_like_its_value():
    v = nnx.Param(jnp.arange(4.0))
    assert (v + 1).tolist() == [1, 2, 3, 4] and (1 - v).tolist() == [1, 0, -1, -2] and (v @ v) == 14
    assert (v > 1).tolist() == [False, False, True, True] and (-v)[1] == -1 and v.shape == (4,) and v[1:].shape == (3,)
    assert jnp.sin(v).shape == (4,) and (jnp.ones(4) * v).tolist() == [0, 1, 2, 3] and v.sum() == 6
    assert (np.ones(4) + v).tolist() == [1, 2, 3, 4] and np.asarray(v).shape == (4,) and len(v) == 4
    assert float(nnx.Variable(2.5)) == 2.5 and [1, 2][nnx.Variable(1)] == 2 and bool(nnx.Variable(0)) is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(v)


def test_values_can_be_set_as_a_whole_or_by_index():
    v = nnx.Variable(jnp.zeros(3))
    v.value = jnp.ones(3)
    v[1] = 5.0
    assert v[...].tolist() == [1, 5, 1]
    v[...] = jnp.zeros(3)
    v += 2
    assert v.get_value(index=0) == 2 and type(v) is nnx.Variable
    v.set_value(7.0, index=2)
    assert v.raw_value.tolist() == [2, 2, 7]


def test_metadata_are_attributes_and_set_explicitly():
    v = nnx.Param(1.0, unit="m")
    assert v.unit == "m" and v.get_metadata() == {"unit": "m"} and v.has_metadata("unit")
    v.set_metadata(unit="s", tag=1)
    v.set_metadata("tag", 2)
    v.del_metadata("unit")
    assert v.get_metadata() == {"tag": 2} and v.get_metadata("unit", None) is None
    with pytest.raises(ArgumentError, match=r"Param.get_metadata: expected one of \['tag'\], got 'unit'"):
        v.get_metadata("unit")
    with pytest.raises(ArgumentError, match=r"Param.unit = \.\.\.: expected an assignment to .value"):
        v.unit = 3
    assert repr(v) == "Param(\n  value=1.0,\n  tag=2\n)"


def test_hooks_transform_values_on_access():
    v = nnx.Variable(
        1.0,
        on_get_value=lambda v, x: x * 2,
        on_set_value=[lambda v, x: x + 1, lambda v, x: x * 10],
        on_create_value=lambda v, x: x + 0.5,
    )
    assert (v.raw_value, v.value, v[...]) == (1.5, 3.0, 3.0)
    v.value = 2.0
    assert (v.raw_value, v.value) == (30.0, 60.0)
    v.raw_value = 1.0
    assert v.value == 2.0


def test_a_kind_may_have_hooks_of_its_own():
    class Positive(nnx.Variable):
        def on_set_value(self, value):
            return abs(value)

    v = Positive(-1)
    assert v.value == -1
    v.value = -3
    assert v.value == 3


def test_copies_are_of_the_same_kind():
    v = nnx.Param(1.0, unit="m")
    w = v.replace(2.0, tag="t")
    assert type(w) is nnx.Param and w.get_metadata() == {"unit": "m", "tag": "t"} and v.value == 1.0
    v.copy_from(w)
    assert v.value == 2.0 and v.tag == "t"
    with pytest.raises(ArgumentError, match="expected a Param, got a Cache"):
        v.copy_from(nnx.Cache(1.0))
    assert nnx.as_pure({"a": v}) == {"a": 2.0}


def test_variable_types_have_registered_names():
    assert nnx.variable_type_from_name("batch_stats") is nnx.BatchStat
    assert nnx.variable_name_from_type(nnx.Param) == "params"
    with pytest.raises(
        ArgumentError,
        match="register_variable_name, argument name: expected a name that is not registered, got 'params'",
    ):
        nnx.register_variable_name("params", nnx.Cache)


class Counter(nnx.Module):
    def __init__(self):
        self.inner = [{"n": nnx.BatchStat(jnp.array(0))}]


def test_a_change_from_another_level_names_variable_origin_and_transformation():
    counter = Counter()

    @phalanx.jit
    def bump(x):
        counter.inner[0]["n"].value += x
        return x

    with pytest.raises(TraceContextError) as error:
        bump(1)
    assert str(error.value).startswith(
        "BatchStat inner[0]['n'], setting its value: expected the trace in which it was created, outside of any "
        "transformation, at "
    )
    assert "test_variables.py" in str(error.value) and "got a change inside the tracing of bump" in str(error.value)

    @phalanx.jit
    def grow(x):
        counter.more = 1
        return x

    with pytest.raises(TraceContextError, match="^Counter, setting 'more': expected the trace in which it was created"):
        grow(1)
    assert not hasattr(counter, "more")


def test_reading_a_leaked_tracer_names_the_variable():
    counter, kept = Counter(), []

    @phalanx.jit
    def leak(x):
        kept.append(nnx.Cache(x + 1))
        return x

    leak(1.0)
    with pytest.raises(
        UnexpectedTracerError, match="Cache, reading its value: expected a value of the current computation"
    ):
        kept[0].value
    counter.held = kept[0]
    with pytest.raises(UnexpectedTracerError, match="Cache held, reading its value"):
        counter.held.value


def test_a_type_defines_how_its_value_is_read_and_set():
    class Shifted(nnx.Param):
        def get_value(self, **kwargs):
            return super().get_value(**kwargs) + 3

        def set_value(self, value, **kwargs):
            super().set_value(value * 10, **kwargs)

    x = Shifted(jnp.array([1, 2]))
    assert x.value.tolist() == x[...].tolist() == x.get_value().tolist() == [4, 5]
    assert int(x[0]) == int(x.get_value(index=0)) == 4 and (x + 1).tolist() == [5, 6]
    x.value = jnp.array([1, 1])
    x[1] = 7
    assert x.get_raw_value().tolist() == [10, 70]
    model = nnx.Dict(x=x)

    @nnx.jit
    def read(model):
        return model.x.value

    assert read(model).tolist() == [13, 73] and x.raw_value.tolist() == [10, 70]
