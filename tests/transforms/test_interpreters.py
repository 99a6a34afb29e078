"""Interpreters that users write over programs, with the names of `extend.core`; and checks of single derivatives."""

import functools

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, test_util
from phalanx.extend import core


def evaluate(program, *args):
    env = dict(zip([*program.jaxpr.constvars, *program.jaxpr.invars], [*program.consts, *args], strict=True))
    read = lambda atom: atom.val if isinstance(atom, core.Literal) else env[atom]
    for eqn in program.jaxpr.eqns:
        out = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out], strict=True))
    return [read(v) for v in program.jaxpr.outvars]


def body(x, y):
    z = lax.cond(x > 0, lambda: x * y, lambda: phalanx.jit(jnp.cos)(y))
    return lax.scan(lambda c, k: (jnp.sin(c) + k, c), z, jnp.arange(3.0))[0] + 2.0


def test_custom_interpreter_evaluates_a_jaxpr():
    program = phalanx.make_jaxpr(body)(1.0, 2.0)
    for args in ((1.0, 2.0), (-1.0, 2.0)):
        (got,) = evaluate(program, *args)
        np.testing.assert_allclose(got, body(*args), rtol=1e-6)
        np.testing.assert_allclose(core.jaxpr_as_fun(program)(*args)[0], got, rtol=1e-6)
    run = lambda x: evaluate(program, x, 2.0)[0]
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(run))(1.0), phalanx.grad(body)(1.0, 2.0), rtol=1e-6)
    xs = jnp.array([1.0, -1.0])
    np.testing.assert_allclose(phalanx.vmap(run)(xs), [body(x, 2.0) for x in xs], rtol=1e-6)


def test_custom_interpreter_inverts_a_jaxpr():
    inverses = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh}

    def inverse(fun):
        def inverted(y):
            program = phalanx.make_jaxpr(fun)(y)
            env = dict(zip(program.jaxpr.outvars, [y], strict=True))
            for eqn in reversed(program.jaxpr.eqns):
                env[eqn.invars[0]] = inverses[eqn.primitive](env[eqn.outvars[0]])
            return env[program.jaxpr.invars[0]]

        return inverted

    f = lambda x: jnp.exp(jnp.tanh(x))
    assert float(inverse(f)(f(0.5))) == pytest.approx(0.5, rel=1e-5)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(inverse(f)))(f(0.5)), 1 / phalanx.grad(f)(0.5), rtol=1e-4)


def test_extend_core_exposes_jaxprs_and_primitives():
    program = phalanx.make_jaxpr(body)(1.0, 2.0)
    assert isinstance(program, core.ClosedJaxpr)
    assert isinstance(program.jaxpr.eqns[0], core.JaxprEqn)
    names = {eqn.primitive.name: len(list(core.jaxprs_in_params(eqn.params))) for eqn in program.eqns}
    assert (names["cond"], names["scan"]) == (2, 1)
    assert len(list(core.subjaxprs(program))) == 3
    assert core.primitives.exp_p is lax.exp_p
    assert "scan_p" in dir(core.primitives)
    with pytest.raises(AttributeError, match="has no attribute 'nothing_p'"):
        core.primitives.nothing_p


@pytest.mark.parametrize("args", [(0.5, np.float32(1.5)), (np.complex64(1 + 2j), np.complex64(2 - 1j))])
def test_check_jvp_and_check_vjp_accept_correct_derivatives(args):
    f = lambda x, y: {"a": jnp.sin(x) * y, "b": (x * x,)}
    test_util.check_jvp(f, functools.partial(phalanx.jvp, f), args)
    test_util.check_vjp(f, functools.partial(phalanx.vjp, f), args)


def test_check_grads_rejects_wrong_derivatives():
    f = lambda x: x**3
    with pytest.raises(AssertionError, match="the derivative, beside differences"):
        test_util.check_jvp(f, lambda p, t: (f(*p), 4 * p[0] ** 2 * t[0]), (1.5,))
    with pytest.raises(AssertionError, match="the result beside the derivative"):
        test_util.check_jvp(f, lambda p, t: (p[0], 3 * p[0] ** 2 * t[0]), (1.5,))
    with pytest.raises(AssertionError, match="the derivative, beside differences"):
        test_util.check_vjp(f, lambda x: (f(x), lambda ct: (4 * x**2 * ct,)), (1.5,))
    with pytest.raises(AssertionError, match="the result of f_vjp"):
        test_util.check_vjp(f, lambda x: (x, lambda ct: (3 * x**2 * ct,)), (1.5,))
    with pytest.raises(AssertionError, match="the structure PyTreeDef"):
        test_util.check_jvp(f, lambda p, t: (f(*p), (t[0],)), (1.5,))


def test_dlpack_module():
    np.testing.assert_array_equal(phalanx.dlpack.from_dlpack(np.arange(3.0, dtype=np.float32)), np.arange(3.0))
