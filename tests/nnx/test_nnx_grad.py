"""`nnx.vjp` and `nnx.jvp`: derivatives of functions of modules in forward and reverse mode."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import TreeError


class Scaled(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.array([1.0, 2.0]))
        self.calls = nnx.BatchStat(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls.value += 1
        return self.w * x**2


x = jnp.array([3.0, 4.0])


def test_cotangents_come_as_modules_and_changes_stay():
    model = Scaled()
    y, f_vjp = nnx.vjp(lambda m, x: m(x), model, x)
    m_bar, x_bar = f_vjp(jnp.array([1.0, 10.0]))
    assert y.tolist() == [9.0, 32.0] and type(m_bar) is Scaled
    assert m_bar.w.value.tolist() == [9.0, 160.0] and x_bar.tolist() == [6.0, 160.0]
    assert m_bar.calls.value.dtype == phalanx.float0 and int(model.calls.value) == 1


def test_a_shared_parameter_gets_the_sum_once():
    model = Scaled()
    _, f_vjp = nnx.vjp(lambda a, b: a.w.value + 2 * b.w.value, model, model)
    a_bar, b_bar = f_vjp(jnp.ones(2))
    assert a_bar is b_bar and a_bar.w.value.tolist() == [3.0, 3.0]


def test_vjp_with_aux_returns_a_function_of_the_primals():
    y, f_vjp, aux = nnx.vjp(lambda m, x: (m(x).sum(), m.w), has_aux=True)(Scaled(), x)
    assert float(y) == 41.0 and aux.value.tolist() == [1.0, 2.0] and f_vjp(1.0)[1].tolist() == [6.0, 16.0]


@pytest.mark.parametrize("as_state", [False, True])
def test_jvp_along_a_module_or_a_state(as_state):
    model = Scaled()
    direction = nnx.clone(model)
    direction.w.value = jnp.array([1.0, 0.0])
    tangent = nnx.state(direction, nnx.Param) if as_state else direction
    y, y_dot = nnx.jvp(lambda m, x: m(x), (model, x), (tangent, jnp.array([0.0, 1.0])))
    assert y.tolist() == [9.0, 32.0] and y_dot.tolist() == [9.0, 16.0] and int(model.calls.value) == 1


def test_jvp_inside_jit_and_grad():
    @nnx.jit
    def curvature(model):
        slope = lambda m: nnx.jvp(lambda x: (m.w * x**3).sum(), (x,), (jnp.ones(2),))[1]
        return nnx.grad(slope)(model)

    assert np.allclose(curvature(Scaled()).w.value, 3 * np.square(x))


def test_jvp_refuses_a_second_direction_of_a_shared_variable():
    w = nnx.Param(jnp.ones(2))
    with pytest.raises(TreeError) as error:
        nnx.jvp(lambda a, b: (a.value * b.value).sum(), (w, w), (w, w))
    assert str(error.value) == (
        "jvp, argument tangents: expected an empty state, since earlier arguments contain all variables of this one, "
        "got one with a value.\n  Fix: start from nnx.state(module), or from the state in inputs_bar, and set the values in it."
    )
    assert len(phalanx.ShapeDtypeStruct((3, 2), "float32")) == 3
    with pytest.raises(TypeError, match="len.. of a ShapeDtypeStruct of rank 0"):
        bool(phalanx.ShapeDtypeStruct((), "float32"))


def test_jvp_refuses_directions_of_another_structure():
    model = Scaled()
    with pytest.raises(
        TreeError,
        match=r"^jvp, argument tangents: expected a state with paths of the module, such as calls, got one with v",
    ):
        nnx.jvp(lambda m: m(x), (model,), (nnx.State({"v": x}),))
    with pytest.raises(TreeError, match=r"^jvp, argument tangents: expected 2 tangents, one for each argument, got 1"):
        nnx.jvp(lambda m, x: m(x), (model, x), (model,))


def test_make_jaxpr_shows_the_program_and_changes_nothing():
    model = Scaled()
    program = nnx.make_jaxpr(lambda n, m, x: m(x * n), static_argnums=0)(2, model, x)
    assert [a.str_short() for a in program.in_avals] == ["i32[]", "f32[2]", "f32[2]"]
    assert [a.str_short() for a in program.out_avals] == ["f32[2]", "i32[]"]
    assert int(model.calls.value) == 0
