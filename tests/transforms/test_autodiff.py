"""Derivatives: forward, reverse, mixed and repeated, against formulas and numerical differences."""

import math

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import (
    ArgumentError,
    ArgumentTypeError,
    ConcretizationTypeError,
    ConversionError,
    DTypeError,
    RuleError,
    ShapeError,
    TracerArrayConversionError,
    TreeError,
    UnexpectedTracerError,
)
from phalanx.core.source_info import format_code_position


def f(x):
    return jnp.sin(x) * jnp.exp(-x * x)


def df(x):
    return np.exp(-x * x) * (np.cos(x) - 2 * x * np.sin(x))


POINTS = [-1.3, 0.2, 0.9]


@pytest.mark.parametrize("x", POINTS)
def test_grad_is_the_derivative(x):
    np.testing.assert_allclose(phalanx.grad(f)(x), df(x), rtol=1e-5)


@pytest.mark.parametrize("x", POINTS)
def test_every_mode_gives_the_same_derivative(x):
    y, y_dot = phalanx.jvp(f, (x,), (1.0,))
    _, push = phalanx.linearize(f, x)
    _, pull = phalanx.vjp(f, x)
    want = df(x)
    for got in (
        y_dot,
        push(1.0),
        pull(1.0)[0],
        phalanx.jacfwd(f)(x),
        phalanx.jacrev(f)(x),
        phalanx.jit(phalanx.grad(f))(x),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(y, np.sin(x) * np.exp(-x * x), rtol=1e-5)


@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_of_higher_order(order):
    g = jnp.sin
    for _ in range(order):
        g = phalanx.grad(g)
    want = {2: -np.sin(0.7), 3: -np.cos(0.7)}[order]
    np.testing.assert_allclose(g(0.7), want, rtol=1e-5)
    np.testing.assert_allclose(phalanx.jit(g)(0.7), want, rtol=1e-5)


def test_forward_over_reverse_and_reverse_over_forward_agree():
    x = np.array([0.3, -0.5, 1.1], np.float32)

    def g(v):
        return jnp.sum(jnp.sin(v) * jnp.cumsum(v) ** 2)

    want = phalanx.hessian(g)(x)
    np.testing.assert_allclose(phalanx.jacrev(phalanx.jacfwd(g))(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(phalanx.jacrev(phalanx.jacrev(g))(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(want, np.asarray(want).T, rtol=1e-4, atol=1e-5)


def test_python_control_flow_on_concrete_values_under_grad():
    def g(x):
        return x * x if x > 0 else -3.0 * x

    assert float(phalanx.grad(g)(2.0)) == 4.0
    assert float(phalanx.grad(g)(-2.0)) == -3.0
    assert float(phalanx.grad(phalanx.grad(g))(2.0)) == 2.0


def test_converting_a_differentiated_value_to_a_python_number_is_an_error():
    with pytest.raises(ConcretizationTypeError) as error:
        phalanx.grad(math.sin)(1.0)
    assert str(error.value) == (
        "conversion of a differentiated value to float: expected a value without a derivative, since a "
        "Python number has none, got ~f32[] traced by sin.\n"
        "  Fix: compute with phalanx.numpy instead of math, or convert lax.stop_gradient(x)."
    )
    with pytest.raises(ConcretizationTypeError, match="to complex"):
        phalanx.grad(lambda x: phalanx.grad(lambda y: y * abs(complex(x)))(1.0))(2.0)
    # Whichever way Python comes by the number, but for `item`, which asks for it as it is.
    for use, take in (("float", float), ("complex", complex), ("a list", lambda x: x.tolist()), ("float", math.ceil)):
        for derivative in (phalanx.grad, lambda f: lambda x: phalanx.jvp(f, (x,), (1.0,))):
            with pytest.raises(ConcretizationTypeError, match=f"^conversion of a differentiated value to {use}: "):
                derivative(lambda x, take=take: x * take(x))(1.5)


def test_conditions_and_printing_see_the_concrete_value_under_grad():
    seen = []

    def f(x, n):
        seen.extend(
            [int(x), bool(x), bool(x > 1), 1 if x < 2 else 2, f"{x:.1f}", range(x.astype(int)), "ab"[x.astype(int)]]
        )
        assert x.item() == 1.5
        seen.extend([jnp.floor(x).astype(int).item(), jnp.argmax(jnp.stack([x, x])).tolist()])
        still = lax.stop_gradient(x)
        seen.extend([float(still), still.item(), still.tolist(), float(n), n.item()])
        return x * n

    assert float(phalanx.grad(f)(1.5, jnp.float32(2))) == 2.0
    assert seen == [1, True, True, 1, "1.5", range(1), "b", 1, 0, 1.5, 1.5, 1.5, 2.0, 2.0]


def test_gradient_has_the_structure_of_the_arguments():
    params = {"w": np.ones((2, 3), np.float32), "b": (np.zeros(3, np.float32), None)}

    def loss(p, x):
        return jnp.sum((x @ p["w"] + p["b"][0]) ** 2)

    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    value, g = phalanx.value_and_grad(loss)(params, x)
    y = x @ params["w"]
    np.testing.assert_allclose(value, (y**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(g["w"], x.T @ (2 * y), rtol=1e-6)
    np.testing.assert_allclose(g["b"][0], (2 * y).sum(0), rtol=1e-6)
    assert g["b"][1] is None


def test_argnums_select_the_differentiated_arguments():
    def g(a, b, c):
        return a * b + b * c

    assert [float(v) for v in phalanx.grad(g, (0, 2))(2.0, 3.0, 5.0)] == [3.0, 3.0]
    assert float(phalanx.grad(g, -1)(2.0, 3.0, 5.0)) == 3.0


def test_has_aux_returns_the_auxiliary_output():
    def g(x):
        return x * x, {"twice": 2 * x, "what": "no array"}

    gradient, aux = phalanx.grad(g, has_aux=True)(3.0)
    assert float(gradient) == 6.0 and float(aux["twice"]) == 6.0
    (value, aux), gradient = phalanx.value_and_grad(g, has_aux=True)(3.0)
    assert float(value) == 9.0 and float(aux["twice"]) == 6.0
    out, out_dot, aux = phalanx.jvp(g, (3.0,), (1.0,), has_aux=True)
    assert (float(out), float(out_dot), float(aux["twice"])) == (9.0, 6.0, 6.0)
    out, pull, aux = phalanx.vjp(g, 3.0, has_aux=True)
    assert (float(out), float(pull(1.0)[0]), float(aux["twice"])) == (9.0, 6.0, 6.0)


def test_complex_derivatives():
    z = np.complex64(1 + 2j)
    np.testing.assert_allclose(phalanx.grad(lambda v: v * v, holomorphic=True)(z), 2 * z, rtol=1e-6)
    # A real function of a complex number: the conjugate of the direction of steepest ascent.
    np.testing.assert_allclose(phalanx.grad(lambda v: jnp.abs(v) ** 2)(z), 2 * np.conj(z), rtol=1e-5)


def test_integers_have_float0_gradients_where_allowed():
    g = phalanx.grad(lambda x, n: x * n, (0, 1), allow_int=True)(2.0, 3)
    assert float(g[0]) == 3.0
    assert np.asarray(g[1]).dtype == phalanx.float0


def test_linear_transpose_needs_shapes_only():
    shape = phalanx.ShapeDtypeStruct((3,), "float32")
    (got,) = phalanx.linear_transpose(lambda x: 2 * jnp.cumsum(x), shape)(np.ones(3, np.float32))
    np.testing.assert_allclose(got, [6, 4, 2])


def test_jitted_function_can_return_a_vjp_function():
    _, pull = phalanx.jit(lambda x: phalanx.vjp(jnp.sin, x))(0.5)
    np.testing.assert_allclose(pull(1.0)[0], np.cos(0.5), rtol=1e-6)


def test_unused_arguments_have_zero_gradients():
    g = phalanx.grad(lambda a, b: a * 2.0, (0, 1))(1.0, np.ones(3, np.float32))
    np.testing.assert_allclose(g[1], np.zeros(3))


def test_errors_of_grad_name_the_function_and_the_parameter():
    def scaled(x):
        return x * 2.0

    with pytest.raises(ShapeError) as e:
        phalanx.grad(scaled)(np.ones(3, np.float32))
    assert str(e.value) == (
        f"grad, the result of {format_code_position(scaled)}: expected a scalar, got f32[3].\n"
        "  Fix: reduce it with .sum() or .mean(), or use jacrev, jacfwd or vjp for array results."
    )
    with pytest.raises(DTypeError) as e:
        phalanx.grad(scaled)(3)
    assert str(e.value) == (
        f"grad of {format_code_position(scaled)}, argument x: expected a real or complex floating-point dtype, "
        "got ~i32[].\n"
        "  Fix: convert the argument to float32, choose others by argnums, or pass allow_int=True."
    )

    def pair(params):
        return params["w"], params["b"]

    with pytest.raises(ArgumentTypeError) as e:
        phalanx.grad(pair)({"w": 1.0, "b": jnp.ones(2)})
    assert str(e.value) == (
        f"grad, the result of {format_code_position(pair)}: expected one scalar, got a pytree of 2 leaves: ~f32[], "
        "f32[2].\n"
        "  Fix: return a scalar; with has_aux=True it may return (scalar, aux)."
    )
    with pytest.raises(DTypeError) as e:
        phalanx.grad(pair)({"w": 1.0, "b": 2})
    assert str(e.value).startswith(f"grad of {format_code_position(pair)}, argument params['b']: expected a real or")
    with pytest.raises(ArgumentError) as e:
        phalanx.grad(jnp.sin, 3)(1.0)
    assert "expected positions below 1, the number of positional arguments, got 3." in str(e.value)


def test_errors_of_jvp_and_vjp_describe_the_mismatch_in_words():
    def model(params):
        return {"y": params["w"] * 2.0, "z": (params["w"], params["w"])}

    at, w = format_code_position(model), np.ones(3, np.float32)
    with pytest.raises(TreeError) as e:
        phalanx.jvp(model, ({"w": w},), ({"b": w},))
    assert str(e.value) == (
        f"jvp of {at}, tangents[0]: expected a dict with keys ['w'], as in primals[0], got a dict with keys ['b'].\n"
        "  Fix: pass one tangent for each leaf of primals."
    )
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.jvp(model, {"w": w}, (1.0,))
    assert str(e.value) == (
        f"jvp of {at}, argument primals: expected a tuple or list with one entry for each argument of the function, "
        "got a dict.\n"
        "  Fix: wrap it in a tuple: (primal,)."
    )
    with pytest.raises(ShapeError) as e:
        phalanx.jvp(model, ({"w": w},), ({"w": w[:2]},))
    assert str(e.value) == (
        f"jvp of {at}, tangents[0]['w']: expected a value of type f32[3] for primals[0]['w'], got f32[2].\n"
        "  Fix: pass a value of shape [3]."
    )
    with pytest.raises(TreeError) as e:
        phalanx.linearize(model, {"w": w})[1]({"w": (w, w)})
    assert str(e.value) == (
        f"linearize of {at}, tangents[0]['w']: expected a leaf, as in primals[0]['w'], got a tuple of length 2.\n"
        "  Fix: pass one tangent for each argument that the function was linearized at."
    )
    pull = phalanx.vjp(model, {"w": w})[1]
    with pytest.raises(TreeError) as e:
        pull({"y": w, "z": [w, w]})
    assert str(e.value) == (
        f"vjp of {at}, cotangent['z']: expected a tuple of length 2, as in the result['z'], got a list of length 2.\n"
        "  Fix: pass one cotangent for each leaf of the result."
    )
    with pytest.raises(DTypeError) as e:
        pull({"y": w, "z": (w, np.ones(3, np.int32))})
    assert str(e.value) == (
        f"vjp of {at}, cotangent['z'][1]: expected a value of type f32[3] for the result['z'][1], got i32[3].\n"
        "  Fix: convert it with .astype."
    )
    with pytest.raises(ArgumentTypeError) as e:
        pull(w, w)
    assert str(e.value) == (
        f"the vjp function of {at}: expected one argument, a cotangent with the structure of the result, "
        "got 2 arguments.\n"
        "  Fix: pass the cotangents of several results as one tuple."
    )


def test_derivatives_are_weakly_typed_where_their_primals_are():
    half = jnp.ones(2, "bfloat16")
    assert (phalanx.grad(lambda x: x**2)(3.0) * half).dtype == "bfloat16"
    assert phalanx.jit(lambda x: phalanx.grad(jnp.sin)(x) * half)(3.0).dtype == "bfloat16"
    assert not phalanx.grad(lambda x: x**2)(jnp.float32(3)).weak_type
    y, y_dot = phalanx.jvp(lambda x: 2 * x, (3.0,), (1.0,))
    assert y.weak_type and y_dot.weak_type
    assert phalanx.vjp(jnp.sin, 3.0)[1](1.0)[0].weak_type
    assert phalanx.linearize(jnp.sin, 3.0)[1](1.0).weak_type
    assert phalanx.linear_transpose(lambda x: 2 * x, 1.0)(3.0)[0].weak_type


def test_constant_derivatives_are_arrays():
    for found in (
        phalanx.grad(jnp.sign)(2.0),
        phalanx.jvp(jnp.floor, (2.5,), (1.0,))[1],
        phalanx.linearize(jnp.floor, 2.5)[1](1.0),
        phalanx.linear_transpose(lambda x: x + 1, 1.0)(3.0)[0],
        phalanx.jacrev(lambda x: 3.0)(2.0),
        phalanx.jacfwd(lambda x: 3.0)(2.0),
        phalanx.jacrev(lambda x: {"a": 3.0})(jnp.ones(2))["a"],
    ):
        assert isinstance(found, phalanx.Array)


def test_jacrev_of_integers_is_float0():
    jacobian = phalanx.jacrev(lambda x: x * 2.0, allow_int=True)(jnp.array([1, 2, 3]))
    assert jacobian.shape == (3, 3) and jacobian.dtype == phalanx.dtypes.float0
    mapped = phalanx.vmap(phalanx.grad(lambda x: x * 2.0, allow_int=True))(jnp.arange(3))
    assert mapped.shape == (3,) and mapped.dtype == phalanx.dtypes.float0


def magnitude(x):
    return jnp.abs(x)


def test_jacfwd_refuses_complex_arguments_unless_holomorphic():
    with pytest.raises(DTypeError) as e:
        phalanx.jacfwd(magnitude)(jnp.array([1 + 2j]))
    assert str(e.value) == (
        f"jacfwd of {format_code_position(magnitude)}, argument x: expected a real dtype, since one direction for each element gives half of a complex "
        "derivative, got c64[1].\n"
        "  Fix: pass holomorphic=True if the function is holomorphic, else use jvp or jacrev."
    )


def test_argnums_may_be_numpy_integers():
    assert float(phalanx.grad(lambda x, y: x * y, argnums=np.int64(1))(3.0, 4.0)) == 3.0


def test_cotangents_of_another_shape_are_refused():
    with pytest.raises(ShapeError) as e:
        phalanx.vjp(magnitude, jnp.ones(3))[1](jnp.ones(2))
    assert str(e.value) == (
        f"vjp of {format_code_position(magnitude)}, cotangent: expected a value of type f32[3] for the result, "
        "got f32[2].\n"
        "  Fix: pass a value of shape [3]."
    )


def test_linear_transpose_accepts_integers_and_refuses_nonlinear_functions():
    (back,) = phalanx.linear_transpose(lambda x: jnp.cumsum(x[::2]), jnp.arange(5))(jnp.arange(3))
    assert back.tolist() == [3, 0, 3, 0, 2] and back.dtype == "int32"
    with pytest.raises(RuleError) as e:
        phalanx.linear_transpose(lambda x: x * x, 1.0)(3.0)
    assert str(e.value) == (
        "transposition: expected operations that are linear in the transposed arguments, got a product or quotient of two "
        "such values, one of type ~f32[].\n"
        "  Fix: transpose the linearization instead (phalanx.vjp), or make the function linear."
    )


def test_jacrev_refuses_complex_results_unless_holomorphic():
    """The rows of such a Jacobian would silently be real parts."""

    def rotate(x):
        return {"y": x * (1 + 1j)}

    with pytest.raises(DTypeError) as e:
        phalanx.jacrev(rotate)(np.ones(2, np.float32))
    assert str(e.value) == (
        f"jacrev, the result['y'] of {format_code_position(rotate)}: expected a real dtype, since one row for each "
        "element gives half of a complex derivative, got c64[2].\n  Fix: pass holomorphic=True if the function is holomorphic, else use vjp, or "
        "return y.real and y.imag."
    )
    z = np.array([1j, 2.0], np.complex64)
    np.testing.assert_allclose(phalanx.jacrev(lambda x: x**2, holomorphic=True)(z), np.diag(2 * z), rtol=1e-6)


def returns_no_pair(x):
    return x


def test_errors_name_the_function_that_the_user_wrote():
    for derivative in (phalanx.grad, phalanx.jacfwd, phalanx.jacrev, phalanx.value_and_grad):
        with pytest.raises(ArgumentTypeError, match="the result of returns_no_pair at .*test_autodiff.py"):
            derivative(returns_no_pair, has_aux=True)(1.0)


def test_argnums_must_be_integers():
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.grad(lambda x: x, argnums="x")(1.0)
    assert str(e.value) == (
        "argnums: expected an int, or a sequence of them, got 'x'.\n  Fix: give positions, counted from 0."
    )


@pytest.mark.parametrize("transform", [phalanx.vmap, phalanx.grad, lambda f: lambda x: phalanx.jvp(f, (x,), (x,))])
def test_error_for_a_leaked_tracer_names_the_line_that_created_it(transform):
    kept = []

    def leak(x):
        kept.append(jnp.sin(x))
        return jnp.sum(x)

    line = f"test_autodiff.py:{leak.__code__.co_firstlineno + 1}:20 "
    x = jnp.ones(3)
    transform(leak)(x)
    with pytest.raises(UnexpectedTracerError, match=line):
        kept[0] + 1
    with phalanx.checking_leaks():
        with pytest.raises(UnexpectedTracerError, match="held by a list, made at .*" + line):
            transform(leak)(x)
        transform(lambda x: jnp.sum(x * jnp.sin(x)))(x)
    with pytest.raises(TracerArrayConversionError, match="made at .*test_autodiff.py"):
        transform(lambda x: np.sin(x + 1))(x)


def test_a_python_bool_selects_in_a_derivative():
    assert float(phalanx.grad(lambda x: phalanx.lax.select(True, 3 * x, x))(1.0)) == 3


def test_cotangents_of_integers_have_no_effect():
    y, f_vjp = phalanx.vjp(lambda x: (2 * x, jnp.argsort(x)), jnp.arange(3.0))
    assert f_vjp(phalanx.tree.map(jnp.ones_like, y))[0].tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match=r"cotangent\[1\]: expected a value of type float0\[3\]"):
        f_vjp((y[0], jnp.ones(4, int)))


def test_float0_results_of_compiled_functions_compare_like_those_of_numpy():
    pullback = phalanx.vjp(lambda x, y: x + y, 2, 1)[1]
    zero = np.zeros((), phalanx.float0)
    assert all(t.dtype == phalanx.float0 and bool(t == zero) for t in phalanx.jit(pullback)(zero))


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit])
def test_a_function_that_enters_64_bit_is_differentiated_at_a_python_float(wrap):
    def f(x):
        with phalanx.enable_x64(True):
            return (np.arange(3.0) * jnp.sin(x) * 2.0).sum()

    value, slope = wrap(phalanx.value_and_grad(f))(0.5)
    assert (value.dtype, slope.dtype, slope.weak_type) == (np.float64, np.float32, True)
    np.testing.assert_allclose([value, slope], [6 * np.sin(0.5), 6 * np.cos(0.5)], 1e-6)
    np.testing.assert_allclose(phalanx.jacfwd(f)(0.5), 6 * np.cos(0.5), 1e-6)


def test_array_copies_its_argument_and_tangents_under_eager_derivatives():
    x = jnp.ones(3)
    y, y_dot = phalanx.jvp(jnp.array, (x,), (x,))
    assert y is not x and y_dot is not x
    y, back = phalanx.vjp(lambda x: jnp.array(x, np.float32), x)
    assert y is not x and back(x)[0] is not x
    # Values of a jaxpr are immutable: a copy would only add an operation.
    assert not phalanx.make_jaxpr(lambda x: jnp.array(x))(x).eqns


def test_jvp_returns_tangents_that_pass_through_as_they_were_given():
    assert phalanx.jvp(lambda x: x, (2.0,), (1.0,)) == (2.0, 1.0)
    assert type(phalanx.jvp(lambda x: x, (2.0,), (1.0,))[1]) is float
    given = np.ones(2)
    assert phalanx.jvp(lambda x: {"a": x}, (given,), (given,))[1]["a"] is given
    y, y_dot = phalanx.jvp(lambda x: x * 2.0, (np.float32(2),), (1.0,))
    assert (y.weak_type, y_dot.weak_type) == (False, False)


@pytest.mark.parametrize(
    ("primal", "vector"), [(2.0, 1), (2.0, True), (2.0, 1j), (2j, 1.0), (jnp.float32(2), jnp.float16(1))]
)
def test_vectors_of_another_kind_of_number_are_refused_in_every_mode(primal, vector):
    for call in (
        lambda: phalanx.jvp(f, (primal,), (vector,)),
        lambda: phalanx.linearize(f, primal)[1](vector),
        lambda: phalanx.vjp(f, primal)[1](vector),
    ):
        with pytest.raises(DTypeError) as error:
            call()
        assert isinstance(error.value, TypeError) and isinstance(error.value, ValueError)


@pytest.mark.parametrize("argnums", [(), (0, 0), (0, -2), 2])
def test_argnums_name_each_argument_once(argnums):
    with pytest.raises(ConversionError) as error:
        phalanx.grad(lambda x, y: x * y, argnums)(2.0, 3.0)
    assert isinstance(error.value, TypeError) and isinstance(error.value, ValueError)


def test_jacrev_refuses_results_that_are_integers():
    with pytest.raises(DTypeError, match="a real floating-point dtype"):
        phalanx.jacrev(lambda x: jnp.round(x).astype(int))(jnp.ones(2))


def test_the_pair_of_a_result_and_aux_may_be_a_list():
    (value, aux), gradient = phalanx.value_and_grad(lambda x: [x * x, "aux"], has_aux=True)(3.0)
    assert (float(value), aux, float(gradient)) == (9.0, "aux", 6.0)


def test_the_truth_of_a_traced_vector_is_undefined():
    with pytest.raises(ShapeError) as error:
        phalanx.jit(lambda x: 1 if x else 2)(jnp.ones(2))
    assert str(error.value) == (
        "conversion to bool, by if, while, and, or, not, or bool(): expected an array of one element, got f32[2] traced by "
        "<lambda>, its argument x.\n  Fix: reduce it with .any() or .all()."
    )


def test_generator_functions_are_refused():
    def generate(x):
        yield x

    for transform in (phalanx.jit, phalanx.grad, phalanx.vmap, phalanx.make_jaxpr):
        with pytest.raises(ArgumentTypeError, match="generator function"):
            transform(generate)
