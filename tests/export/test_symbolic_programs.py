"""Programs with symbolic shapes: exported once, called with many sizes, checked against the function itself."""

import re

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nn, random
from phalanx.core.error_classes import ArgumentError
from phalanx.export import SymbolicScope, deserialize, symbolic_args_specs, symbolic_shape


def array(*dims, dtype="f4"):
    return np.random.default_rng(0).standard_normal(dims).astype(dtype)


def exported(fun, shapes, constraints=(), vjp_order=0):
    """`fun` exported for float32 arrays of these shapes and read back from bytes."""
    scope = SymbolicScope(constraints)
    specs = [phalanx.ShapeDtypeStruct(symbolic_shape(s, scope=scope), "float32") for s in shapes]
    return deserialize(export.export(phalanx.jit(fun))(*specs).serialize(vjp_order))


def agrees(found, fun, *args, rtol=1e-5):
    for got, want in zip(phalanx.tree.leaves(found.call(*args)), phalanx.tree.leaves(fun(*args)), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)


def test_one_artifact_accepts_many_sizes():
    def fun(x, w):
        h = jnp.tanh(x @ w)
        return h / x.shape[0], h.reshape(-1), jnp.arange(x.shape[0] * 2), h.mean()

    found = exported(fun, ["b, n", "n, 3"], vjp_order=1)
    assert found.uses_shape_variables and [str(a) for a in found.out_avals] == [
        "float32[b,3]",
        "float32[3*b]",
        "int32[2*b]",
        "float32[]",
    ]
    for b, n in [(1, 1), (2, 5), (7, 4)]:
        agrees(found, fun, array(b, n), array(n, 3))
    gradient = phalanx.grad(lambda x, w: found.call(x, w)[3])(array(4, 2), array(2, 3))
    np.testing.assert_allclose(gradient, phalanx.grad(lambda x, w: fun(x, w)[3])(array(4, 2), array(2, 3)), rtol=1e-5)


def block(x, p):
    """Attention and an MLP over x: f32[batch, time, width]."""
    q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, p["qkv"]), 2, 0)
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k) * q.shape[-1] ** -0.5
    weights = nn.softmax(jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -1e9), axis=-1)
    x = x + jnp.einsum("bhqt,bthk,hkd->bqd", weights, v, p["out"])
    return x + nn.gelu(x @ p["up"]) @ p["down"]


def test_a_transformer_with_symbolic_batch_and_length_and_its_gradient():
    p = {"qkv": array(2, 8, 3, 2, 4), "out": array(2, 2, 4, 8), "up": array(2, 8, 16), "down": array(2, 16, 8)}

    def model(p, x):
        y, _ = lax.scan(lambda x, p: (block(x, p), None), x, p)
        return (y * y).mean()

    args = symbolic_args_specs((p, array(2, 3, 8)), (None, "b, t, _"))
    found = deserialize(export.export(phalanx.jit(model))(*args).serialize(1))
    for b, t in [(1, 1), (2, 5)]:
        x = array(b, t, 8)
        agrees(found, model, p, x, rtol=1e-4)
        got, want = phalanx.grad(found.call)(p, x), phalanx.grad(model)(p, x)
        for leaf, other in zip(phalanx.tree.leaves(got), phalanx.tree.leaves(want), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=1e-3, atol=1e-5)


def test_a_scan_over_a_symbolic_length():
    def running(xs):
        return lax.scan(lambda c, x: (c * 0.5 + x.sum(), c), jnp.float32(0), xs)

    found = exported(running, ["t, n"], vjp_order=1)
    for t, n in [(1, 2), (6, 3)]:
        agrees(found, running, array(t, n))
    np.testing.assert_allclose(
        phalanx.grad(lambda x: found.call(x)[0])(array(4, 2)),
        phalanx.grad(lambda x: running(x)[0])(array(4, 2)),
        rtol=1e-5,
    )


def test_reshapes_with_division_and_slices_with_symbolic_bounds():
    def fun(x):
        n = x.shape[0]
        pairs = x.reshape(n // 2, 2)
        return pairs.sum(1), x[: n // 2], x[n - 2 :], x[1:-1], x[::2], jnp.pad(x, (n, 1)), jnp.concatenate([x, x[:1]])

    found = exported(fun, ["n"], constraints=["mod(n, 2) == 0", "n >= 4"])
    for n in (4, 8):
        agrees(found, fun, array(n))
    with pytest.raises(phalanx.errors.ShapeError) as error:
        found.call(array(5))
    assert str(error.value) == (
        "call of exported fun, argument x: expected sizes with mod(n, 2) == 0, got n = 5.\n"
        "  Fix: pass arguments whose sizes fit each other and the constraints of the export."
    )


def test_random_numbers_of_symbolic_shape():
    def noisy(x):
        return x + random.normal(random.key(0), x.shape)

    found = exported(noisy, ["b, 3"])
    for b in (1, 4):
        agrees(found, noisy, array(b, 3))


def test_a_variable_is_solved_from_another_argument():
    found = exported(lambda x, y: x + y[: x.shape[0]], ["n", "2*n + 1"])
    agrees(found, lambda x, y: x + y[:3], array(3), array(7))
    with pytest.raises(phalanx.errors.ShapeError) as error:
        found.call(array(3), array(8))
    assert str(error.value) == (
        "call of exported <lambda>, argument y: expected a size of 2*n + 1 for dimension 0 of y, with n = 3, got 8.\n"
        "  Fix: pass arguments whose sizes fit each other and the constraints of the export."
    )
    with pytest.raises(
        phalanx.errors.ShapeError, match=re.escape("argument x: expected an array of type f32[n], got f32[2,2].")
    ):
        found.call(array(2, 2), array(5))


def test_a_variable_that_sizes_do_not_determine_is_an_error():
    with pytest.raises(ValueError) as error:
        exported(lambda x: x, ["a*b"])
    assert str(error.value) == (
        "export of <lambda>, shapes of the arguments: expected sizes that determine the dimension variable a, got only dimension 0 of "
        "x with size a*b, from which it does not follow.\n"
        "  Fix: give some argument a dimension of size a or a multiple of it."
    )


def test_calling_a_symbolic_export_inside_a_more_specific_one():
    inner = exported(lambda x, y: (x @ y).sum(0), ["a, b", "b, c"], constraints=["a >= 2"], vjp_order=1)

    def outer(x):
        return inner.call(x, x.T) * 2

    found = exported(outer, ["2*k, 4"], vjp_order=1)
    assert [str(a) for a in found.out_avals] == ["float32[2*k]"]
    for k in (1, 3):
        agrees(found, lambda x: (x @ x.T).sum(0) * 2, array(2 * k, 4))
    np.testing.assert_allclose(
        phalanx.grad(lambda x: found.call(x).sum())(array(4, 4)),
        phalanx.grad(lambda x: (x @ x.T).sum() * 2)(array(4, 4)),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    with pytest.raises(phalanx.errors.ShapeError, match="expected sizes with a >= 2, got a = 1 from dimension 0 of x"):
        exported(lambda x, y: inner.call(x, y), ["1, n", "n, n"])


def test_undecided_checks_are_made_by_the_program():
    from phalanx.engine import mlir, stablehlo

    inner = exported(lambda x: x.sum(), ["a"], constraints=["a >= 4"])
    found = exported(lambda x: inner.call(x) + 1, ["n"])
    agrees(found, lambda x: x.sum() + 1, array(5))
    with pytest.raises(Exception, match="expected sizes with a >= 4, got a = 3 from dimension 0 of x"):
        found.call(array(3))
    module = stablehlo.deserialize(found.mlir_module_serialized, mlir.make_context())
    assert "shape_assertion" in str(module)


def test_assumptions_are_stored_in_the_artifact():
    scope = SymbolicScope()
    specs = [phalanx.ShapeDtypeStruct(symbolic_shape(s, scope=scope), "float32") for s in ("b", "c")]
    scope.assume("b >= c")
    found = deserialize(export.export(phalanx.jit(lambda x, y: x[: y.shape[0]] + y))(*specs).serialize())
    assert found.constraints == ("b >= c",)
    agrees(found, lambda x, y: x[:2] + y, array(3), array(2))
    with pytest.raises(phalanx.errors.ShapeError, match="expected sizes with b >= c, got b = 2, c = 3"):
        found.call(array(2), array(3))


def test_several_platforms_and_symbolic_shapes():
    def solve(a, b):
        return lax.linalg.triangular_solve(a @ a.T + jnp.eye(3), b, left_side=True, lower=True)

    scope = SymbolicScope()
    specs = [phalanx.ShapeDtypeStruct(symbolic_shape(s, scope=scope), "float32") for s in ("3, 3", "3, n")]
    found = deserialize(export.export(phalanx.jit(solve), platforms=["cuda", "cpu"])(*specs).serialize())
    agrees(found, solve, array(3, 3), array(3, 2), rtol=1e-4)


def test_empty_arrays_where_they_are_allowed():
    found = exported(lambda x: (x.sum(), x * 2), ["b, 3"], constraints=["b >= 0"])
    agrees(found, lambda x: (x.sum(), x * 2), array(0, 3))
    with pytest.raises(phalanx.errors.ShapeError, match="expected sizes with b >= 1, got b = 0 from dimension 0 of x"):
        exported(lambda x: x * 2, ["b, 3"]).call(array(0, 3))


def test_a_constraint_on_a_variable_that_no_argument_has_is_refused():
    shape = phalanx.ShapeDtypeStruct(export.symbolic_shape("m", constraints=["m >= m1"]), np.float32)
    with pytest.raises(ArgumentError) as error:
        export.export(phalanx.jit(lambda x: x))(shape)
    assert str(error.value) == (
        "export of <lambda>, constraint 'm >= m1': expected variables of the shapes of the arguments: m, got m1.\n"
        "  Fix: correct the name, or give an argument a dimension of size m1."
    )
