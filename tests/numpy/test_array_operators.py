"""Operators and methods of arrays and tracers, with scalars, NumPy data and unknown types as the other operand."""

import operator

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.array_operators import Operators
from phalanx.core.error_classes import ArgumentTypeError
from phalanx.core.trace import Tracer
from phalanx.numpy.array_methods import methods


def subclasses(kind):
    return [kind, *(s for k in kind.__subclasses__() for s in subclasses(k))]


def test_tracer_attributes_do_not_hide_array_methods():
    hidden = [(k.__name__, name) for k in subclasses(Tracer) for name in methods() if name in vars(k)]
    assert hidden == []


@pytest.mark.parametrize(
    "call", ["x.var(0)", "x.trace()", "x.T", "x.sum()", "x.at[0].set(1.0)", "x.astype('int32')", "x.size", "abs(x)"]
)
def test_methods_work_under_every_transformation(call):
    function = lambda x: jnp.sum(1.0 * eval(call, {"x": x}))
    x = jnp.arange(4.0).reshape(2, 2)
    wanted = np.asarray(function(x))
    np.testing.assert_allclose(np.asarray(phalanx.jit(function)(x)), wanted)
    np.testing.assert_allclose(np.asarray(phalanx.vmap(function)(x[None]))[0], wanted)
    np.testing.assert_allclose(np.asarray(phalanx.value_and_grad(function)(x)[0]), wanted)


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split())
@pytest.mark.parametrize("other", [2, 2.5, np.float32(2), np.array([1.0, 2.0], np.float32)], ids=repr)
def test_operators_accept_scalars_and_numpy_data_on_both_sides(name, other):
    op = getattr(operator, name)
    x = np.array([3.0, 5.0], np.float32)
    for swap in (False, True):
        a, b = (other, jnp.asarray(x)) if swap else (jnp.asarray(x), other)
        wanted = op(other, x) if swap else op(x, other)
        got = op(a, b)
        assert isinstance(got, phalanx.Array)
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6)


def test_unknown_types_can_implement_the_reflected_operator():
    class Stranger:
        def __radd__(self, other):
            return "mine"

    assert jnp.ones(2) + Stranger() == "mine"
    with pytest.raises(TypeError):
        jnp.ones(2) + [1, 2]


def test_functions_reject_lists():
    with pytest.raises(ArgumentTypeError) as error:
        jnp.add([1, 2], 3)
    assert str(error.value) == (
        "add: expected an array or a scalar, got [1, 2] of type list.\n  Fix: convert it with phalanx.numpy.asarray."
    )


def test_arrays_do_not_change_in_place():
    x = jnp.ones(2)
    with pytest.raises(TypeError, match=r"x\.at\[index\]\.set\(value\)"):
        x[0] = 1.0
    x += 1
    assert x.tolist() == [2.0, 2.0]


def test_integer_powers_are_multiplications():
    names = lambda f: [e.primitive.name for e in phalanx.make_jaxpr(f)(jnp.ones(2)).eqns]
    assert names(lambda x: x**2) == ["integer_pow"]
    assert names(lambda x: x**3) == ["integer_pow"]
    assert names(lambda x: x**0.5) == ["pow"]


@pytest.mark.parametrize(
    "function, count",
    [(lambda x: x + x, 1), (lambda x: x * 2.0, 1), (lambda x: 1 - x, 1), (jnp.sin, 1), (lambda x: x > 0, 1),
     (lambda x: jnp.where(x > 0, x, 0.0), 2), (lambda x: jnp.mean(x), 2), (lambda x: jnp.clip(x, 0, 1), 1),
     (lambda x: x @ x.T, 2), (lambda x: jnp.einsum("ij,jk->ik", x, x), 1), (lambda x: x + x[0], 4),
     (lambda x: jnp.zeros_like(x), 1), (lambda x: x.reshape(-1), 1), (lambda x: jnp.maximum(x, 0), 1)],
)  # fmt: skip
def test_a_call_is_recorded_as_few_operations(function, count):
    assert len(phalanx.make_jaxpr(function)(jnp.ones((2, 2))).eqns) == count


def test_importing_numpy_installs_the_operators():
    assert Operators.__add__ is methods()["__add__"] or callable(Operators.__add__)


@pytest.mark.parametrize("dtype", "bool int8 uint8 int16 uint16 uint32 float16 bfloat16 complex64".split())
def test_operators_accept_numpy_scalars_of_the_same_dtype(dtype):
    x = jnp.ones(2, dtype)
    one = x.dtype.type(1)
    for out in (x * one, one * x, x[0] * one, phalanx.jit(lambda x: x * one)(x)):
        assert out.dtype == dtype and np.all(np.asarray(out).astype(complex) == 1)
    assert (x == one).all()


@pytest.mark.parametrize("exponent", [np.int64(3), np.uint8(3), np.int32(3)])
def test_a_numpy_integer_as_exponent_is_static(exponent):
    for base in (jnp.array([-2.0, 0.0]), jnp.array([2, 3], jnp.uint8)):
        for power in (lambda x: x**exponent, lambda x: jnp.power(x, exponent)):
            assert [e.primitive.name for e in phalanx.make_jaxpr(power)(base).eqns] == ["integer_pow"]
            assert power(base).dtype == base.dtype and power(base).tolist() == (np.asarray(base) ** 3).tolist()
    assert phalanx.grad(lambda x: x**exponent)(-2.0) == 12.0


@pytest.mark.parametrize("power", [lambda x, n: x**n, jnp.power], ids=["operator", "function"])
def test_an_integer_numpy_array_of_rank_0_is_a_static_exponent(power):
    x = np.array([-2.0, 3.0], np.float32)
    assert str(phalanx.make_jaxpr(lambda x: power(x, np.array(3)))(x).eqns[0].primitive) == "integer_pow"
    assert power(jnp.asarray(x), np.array(3)).tolist() == [-8.0, 27.0]
