"""`nnx.List` and `nnx.Dict`: containers that are modules."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError, TraceContextError


def test_a_list_changes_like_a_list():
    layers = nnx.List([1, 2, 3])
    layers.append(4)
    layers.insert(1, 5)
    del layers[2]
    assert list(layers) == [1, 5, 3, 4] and layers[1:3] == [5, 3] and layers[-1] == 4 and len(layers) == 4
    layers[1:3] = [6, 7]
    assert layers.pop() == 4 and list(layers) == [1, 6, 7] and 6 in layers
    layers.extend([8])
    layers.reverse()
    assert list(layers) == [8, 7, 6, 1]
    with pytest.raises(IndexError):
        layers[4]


def test_a_dict_changes_like_a_dict():
    scales = nnx.Dict({"a": 1}, b=2)
    assert scales.setdefault("c", 3) == 3 and scales.a == 1 and dict(scales) == {"a": 1, "b": 2, "c": 3}
    del scales["a"]
    assert scales == {"b": 2, "c": 3} and "a" not in scales and scales.pop("b") == 2 and len(scales) == 1
    with pytest.raises(KeyError, match="'a'"):
        del scales["a"]
    assert hash(scales) == hash(scales)


def test_marks_of_elements_stay_with_them():
    layers = nnx.List([nnx.data(1), nnx.static("name"), 2, nnx.data(3)])
    assert phalanx.tree.leaves(layers) == [1, 3]
    layers.insert(0, 4)
    assert phalanx.tree.leaves(layers) == [1, 3]
    del layers[1]
    assert phalanx.tree.leaves(layers) == [3] and nnx.state(layers).flat_state().paths == [(3,)]
    doubled = phalanx.tree.map(lambda x: 2 * x, layers)
    assert list(doubled) == [4, "name", 2, 6] and type(doubled) is nnx.List


def test_more_than_ten_elements_keep_their_order():
    layers = nnx.List(nnx.Param(float(i)) for i in range(12))
    assert [v.value for v in phalanx.tree.leaves(layers, is_leaf=lambda x: isinstance(x, nnx.Param))] == list(range(12))
    assert [p for (p,) in nnx.state(layers).flat_state().paths] == list(range(12))
    assert [v.value for v in nnx.merge(*nnx.split(layers))] == list(range(12))


def test_a_list_has_further_attributes():
    class Stack(nnx.List):
        def __init__(self, *layers):
            super().__init__(layers)
            self.scale = nnx.Param(2.0)

    stack = nnx.clone(Stack(nnx.Param(1.0)))
    assert len(stack) == 1 and stack.scale.value == 2.0 and nnx.state(stack).flat_state().paths == [(0,), ("scale",)]


def test_containers_are_modules_whose_changes_compiled_functions_propagate():
    model = nnx.Dict(layers=nnx.List([nnx.Param(jnp.ones(2))]))
    assert [path for path, _ in nnx.iter_modules(model)] == [("layers",), ()]

    @nnx.jit
    def grow(model):
        model.layers.append(nnx.Param(model.layers[0] * 2))

    grow(model)
    assert model.layers[1].value.tolist() == [2.0, 2.0]
    nnx.update(model, {"layers": {1: jnp.zeros(2)}})
    assert model.layers[1].value.tolist() == [0.0, 0.0]
    assert nnx.pop(model.layers, nnx.Param).flat_state().paths == [(0,), (1,)] and len(model.layers) == 0


def test_popping_a_variable_moves_the_later_elements_up():
    layers = nnx.List([nnx.Param(1.0), nnx.Cache(2.0), 3])
    nnx.pop(layers, nnx.Param)
    assert len(layers) == 2 and layers[0].value == 2.0 and layers[1] == 3


def test_a_captured_container_does_not_change():
    scales = nnx.Dict(a=nnx.Param(1.0))
    layers = nnx.List([1])

    def change(x):
        with pytest.raises(TraceContextError, match="setting 'a'"):
            scales.a = 2
        with pytest.raises(TraceContextError, match="setting 1"):
            layers.append(2)
        with pytest.raises(TraceContextError, match="deleting 0"):
            del layers[0]
        return x

    phalanx.jit(change)(1.0)
    assert list(layers) == [1]


def test_arrays_variables_and_modules_are_not_static():
    class Fixed(nnx.Module):
        def __init__(self, value):
            self.value = nnx.static(value)

    @nnx.dataclass
    class Declared(nnx.Pytree):
        value: object = nnx.static()

    for make in Fixed, Declared:
        for value in jnp.ones(2), [nnx.Param(1.0)], nnx.Dropout(0.5):
            with pytest.raises(ArgumentError, match="setting 'value': expected a static value without arrays"):
                make(value)
        table = np.arange(3)
        nnx.check_pytree(made := make(table))
        assert made.value is table and phalanx.tree.leaves(made) == []
    with pytest.raises(ArgumentError) as error:
        Fixed(nnx.Param(1.0))
    assert str(error.value) == (
        "Fixed, setting 'value': expected a static value without arrays, variables and modules, got a Param marked as "
        "static.\n  Fix: omit the mark, so that transformations see the value, or pass a constant as "
        "numpy.asarray(value)."
    )
    with pytest.raises(TypeError, match="expected a module or another nnx.Pytree"):
        nnx.check_pytree([1])
