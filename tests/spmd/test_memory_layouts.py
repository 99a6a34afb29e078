"""Arrays whose dimensions have another order in memory than the row-major one: no operation may see the difference."""

import copy
import pickle

import numpy as np
import pytest
from phalanx.experimental import serialize_executable
from phalanx.experimental.layout import Format, Layout
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.sharding import NamedSharding, P, SingleDeviceSharding

X = np.arange(24.0, dtype=np.float32).reshape(4, 6)
COLUMNS = Layout((1, 0))
PLACES = {
    "one device": lambda: SingleDeviceSharding(phalanx.devices()[1]),
    "both": lambda: NamedSharding(auto_mesh((2, 2), ("x", "y")), P("x", "y")),
    "uneven": lambda: NamedSharding(auto_mesh((4,), ("x",)), P(None, "x")),
}

equal = np.testing.assert_array_equal


@pytest.fixture(params=PLACES)
def sharding(request):
    return PLACES[request.param]()


def order(x):
    return x.format.layout.major_to_minor


def test_values_do_not_depend_on_the_layout(sharding):
    y = phalanx.device_put(X, Format(COLUMNS, sharding))
    assert order(y) == (1, 0) and y.sharding == sharding
    cases = [
        (lambda x: x, X),
        (lambda x: x + 1, X + 1),
        (lambda x: -x, -X),
        (lambda x: x.T, X.T),
        (lambda x: x[1:3, 2], X[1:3, 2]),
        (lambda x: x[0], X[0]),
        (lambda x: x.reshape(6, 4), X.reshape(6, 4)),
        (lambda x: x.astype("int32"), X.astype("int32")),
        (lambda x: lax.add(x, x), 2 * X),
        (lambda x: jnp.concatenate([x, x]), np.concatenate([X, X])),
        (lambda x: jnp.sum(x, 0), X.sum(0)),
        (phalanx.vmap(lambda row: row * 2), 2 * X),
        (phalanx.grad(lambda x: (x * x).sum()), 2 * X),
        (copy.deepcopy, X),
        (lambda x: copy.deepcopy(x) + 1, X + 1),
        (lambda x: pickle.loads(pickle.dumps(x)), X),
        (lambda x: phalanx.device_put(x, phalanx.devices()[3]), X),
        (lambda x: phalanx.device_put(x, NamedSharding(auto_mesh((2, 2), ("x", "y")), P("y", "x"))), X),
        (lambda x: phalanx.device_put(x, sharding) * 2, 2 * X),
    ]
    for fun, want in cases:
        equal(fun(y), want)
    double = phalanx.jit(lambda x: x * 2)
    for _ in range(3):  # the slow path, a hit, and the generated code for repeated calls
        equal(double(y), 2 * X)
        equal(double(X), 2 * X)
    for shard in y.addressable_shards:
        assert shard.data.shape == X[shard.index].shape
        equal(shard.data + 1, X[shard.index] + 1)
    mine = [x for x in phalanx.live_arrays() if x.shape == X.shape and x.dtype == X.dtype and order(x) == (1, 0)]
    for x in mine:
        equal(x + 1, np.asarray(x) + 1)


def test_compiled_functions_take_and_return_layouts(sharding):
    fun = phalanx.jit(lambda x: x * 2, in_shardings=Format(COLUMNS, sharding), out_shardings=Format(COLUMNS, sharding))
    compiled = fun.lower(X).compile()
    assert compiled.input_formats[0][0].layout.major_to_minor == (1, 0)
    assert compiled.output_formats.layout.major_to_minor == (1, 0)
    assert compiled.output_formats.sharding == sharding
    shape = phalanx.eval_shape(fun, X)
    assert shape == fun.lower(X).out_info and shape.sharding == sharding
    assert shape.format == Format(COLUMNS, sharding)
    rows, columns = (phalanx.device_put(X, Format(layout, sharding)) for layout in (None, COLUMNS))
    for argument in (X, rows, columns):
        for _ in range(3):
            for run in (fun, compiled):
                y = run(argument)
                assert order(y) == (1, 0)
                equal(y, 2 * X)
                equal(y - X, X)
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    equal(loaded(rows) - X, X)
    assert order(loaded(columns)) == (1, 0)


def test_the_compiler_chooses_layouts_that_are_left_to_it():
    transpose = phalanx.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO))
    y = transpose(X)
    assert order(y) == (1, 0) and order(phalanx.jit(lambda x: x.T)(X)) == (0, 1)
    equal(y + 1, X.T + 1)


def test_a_donated_array_of_another_layout_is_used_up(sharding):
    columns = Format(COLUMNS, sharding)
    for given, declared in ((columns, columns), (Format(None, sharding), columns)):
        x = phalanx.device_put(X, given)
        fun = phalanx.jit(lambda x: x + 1, in_shardings=declared, out_shardings=declared, donate_argnums=0)
        equal(fun(x), X + 1)
    equal(phalanx.device_put(phalanx.device_put(X, columns), phalanx.devices()[2], donate=True), X)


def test_constraints_have_layouts(sharding):
    y = lax.with_sharding_constraint(X, Format(COLUMNS, sharding))
    assert order(y) == (1, 0)
    equal(lax.with_sharding_constraint(y, Format(Layout((0, 1)), sharding)) + 1, X + 1)
    inside = phalanx.jit(lambda x: phalanx.device_put(x, Format(COLUMNS, sharding)) * 2)
    equal(inside(y), 2 * X)
    assert "@LayoutConstraint" in inside.lower(X).as_text()


def test_layouts_that_do_not_fit():
    sharding = PLACES["one device"]()
    with pytest.raises(ValueError) as error:
        phalanx.device_put({"a": X}, Format(Layout((0, 1, 2)), sharding))
    assert str(error.value) == (
        "device_put, device['a']: expected a permutation of the dimensions of f32[4,6], got (0, 1, 2).\n"
        "  Fix: pass Layout((0, 1)) for the row-major layout."
    )
    with pytest.raises(ValueError) as error:
        phalanx.device_put(X, Format(Layout.AUTO, sharding))
    assert str(error.value) == (
        "device_put, device: expected a layout that is concrete, since the array is made now, got Layout.AUTO.\n"
        "  Fix: leave the layout out, or declare it in in_shardings or out_shardings of jit."
    )
    with pytest.raises(ValueError, match=r"in_shardings\[0\]: expected a permutation of the dimensions of f32\[4,6\]"):
        phalanx.jit(lambda x: x, in_shardings=Format(Layout((0,)), sharding))(X)
    ref = phalanx.new_ref(jnp.zeros(()))
    with pytest.raises(ValueError, match="expected a function without mutable array references, since layouts are"):
        phalanx.jit(lambda x: x + ref[...], out_shardings=Format(COLUMNS, sharding)).lower(X)
