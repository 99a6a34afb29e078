"""The function that `vjp` returns: which arguments it keeps, and the logs of rules of custom derivatives."""

import numpy as np
import pytest
from phalanx.ad import NotNeeded, NotSaveable

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ArgumentTypeError, RuleError, TreeError

W, X = jnp.arange(16.0).reshape(4, 4), jnp.arange(12.0).reshape(3, 4)


def logged(scale=1.0):
    """x sin(y), whose rule logs the cotangent and y."""
    f = phalanx.custom_vjp(lambda x, y: scale * x * jnp.sin(y))

    def bwd(residuals, ct):
        x, y = residuals
        return (scale * jnp.sin(y) * ct, scale * x * jnp.cos(y) * ct), {"f": {"ct": ct, "y": y}}

    f.defvjp_with_logs(lambda x, y: (f(x, y), (x, y)), bwd)
    return f


def logs_of(f, *args, ct=1.0):
    bars, logs = phalanx.vjp(f, *args)[1].with_logs(ct)
    assert np.allclose(bars[0], phalanx.vjp(f, *args)[1](ct)[0])  # a plain call drops them
    return logs


def test_rules_log_values_of_the_backward_pass():
    f = logged()
    assert logs_of(f, 2.0, 3.0) == {"f": {"ct": 1.0, "y": 3.0}}
    assert logs_of(lambda x: f(x, 3.0) * 4, 2.0) == {"f": {"ct": 4.0, "y": 3.0}}
    assert float(phalanx.grad(f)(2.0, 0.5)) == pytest.approx(np.sin(0.5))
    assert logs_of(jnp.sin, 1.0) == {}


def test_logs_leave_compiled_functions_and_rematerialization():
    f = logged()
    assert logs_of(phalanx.jit(f), 2.0, 3.0)["f"]["y"] == 3.0
    assert logs_of(phalanx.checkpoint(lambda x: f(x, 3.0) * 2), 2.0) == {"f": {"ct": 2.0, "y": 3.0}}
    staged = phalanx.jit(lambda x, ct: phalanx.vjp(lambda x: f(x, 3.0), x)[1].with_logs(ct)[1])
    assert staged(2.0, 5.0) == {"f": {"ct": 5.0, "y": 3.0}}


def test_logs_of_loops_and_batches_are_stacked():
    f, xs = logged(), jnp.arange(1.0, 4.0)
    loop = lambda xs: phalanx.lax.scan(lambda c, x: (c + x * f(x, 2.0), None), 0.0, xs)[0]
    logs = logs_of(loop, xs)["f"]
    assert logs["ct"].tolist() == [1.0, 2.0, 3.0] and logs["y"].tolist() == [2.0] * 3
    logs = logs_of(lambda x: phalanx.vmap(f, in_axes=(0, None))(x, 2.0), xs, ct=xs)["f"]
    assert logs["ct"].tolist() == [1.0, 2.0, 3.0] and logs["y"].shape == (3,)
    one = lambda x, ct: phalanx.vjp(lambda x: f(x, 2.0), x)[1].with_logs(ct)[1]["f"]["ct"]
    assert phalanx.vmap(one)(xs, xs).tolist() == [1.0, 2.0, 3.0]


def test_a_gradient_inside_a_rule_keeps_its_logs_to_itself():
    inner, outer = logged(), phalanx.custom_vjp(lambda x: x)
    outer.defvjp_with_logs(lambda x: (x, x), lambda x, ct: ((phalanx.grad(inner)(x, 1.0) * ct,), {"outer": ct}))
    assert logs_of(outer, 2.0) == {"outer": 1.0}


def test_logs_in_branches_are_an_error_only_where_they_are_asked_for():
    f = logged()
    g = lambda x: phalanx.lax.cond(x > 0, lambda x: f(x, 0.5), lambda x: x, x)
    assert float(phalanx.grad(g)(1.0)) == pytest.approx(np.sin(0.5))
    with pytest.raises(
        RuleError, match=r"with_logs: expected logs .*, got the log 'f' of a rule inside cond or switch"
    ):
        phalanx.vjp(g, 1.0)[1].with_logs(1.0)


def test_custom_gradient_logs_too():
    f = phalanx.custom_gradient(with_logs=True)(lambda x, y: (x * y, lambda g: ((g * y, g * x), {"x": x})))
    assert float(phalanx.grad(f)(3.0, 4.0)) == 4.0 and logs_of(f, 3.0, 4.0) == {"x": 3.0}


def test_a_rule_that_logs_returns_a_pair_with_a_dict():
    f = phalanx.custom_vjp(lambda x: x)
    f.defvjp_with_logs(lambda x: (x, None), lambda _, ct: ((ct,), [1.0]))
    with pytest.raises(ArgumentTypeError, match=r"bwd rule .*, logs: expected None or a dict, got \[1.0\]"):
        phalanx.grad(f)(1.0)
    f.defvjp_with_logs(lambda x: (x, None), lambda _, ct: (ct,))
    with pytest.raises(ArgumentTypeError, match=r"expected a pair \(cotangents, logs\)"):
        phalanx.grad(f)(1.0)


def test_arguments_that_a_vjp_keeps_can_be_taken_out_and_put_back():
    y, f_vjp = phalanx.jit(lambda w, x: phalanx.vjp(lambda w, x: (x @ w) * 2, w, x))(W, X)
    whole = f_vjp(jnp.ones_like(y))
    _, f_vjp = phalanx.vjp(lambda p, x: (x @ p["w"]) * 2, {"w": W, "b": X}, X)
    assert f_vjp.args_res[0]["w"] is W and isinstance(f_vjp.args_res[0]["b"], NotNeeded)
    assert f_vjp.opaque_residuals == []
    f_vjp.args_res[1] = None
    with pytest.raises(ArgumentError) as error:
        f_vjp(jnp.ones_like(y))
    assert str(error.value) == (
        "a vjp function, args_res[1]: expected the argument at which the function was differentiated, got None, since it "
        "is not-saveable or was taken out.\n  Fix: put it there before the call: f_vjp.args_res[n] = argument."
    )
    f_vjp.args_res[1] = X
    np.testing.assert_allclose(f_vjp(jnp.ones_like(y))[0]["w"], whole[0])
    f_vjp.args_res[1] = X[:2]
    with pytest.raises(ArgumentTypeError, match=r"of type f32\[3,4\], got f32\[2,4\]"):
        f_vjp(jnp.ones_like(y))


def test_saveable_args_choose_the_arguments_that_a_vjp_may_keep():
    matmul = lambda w, x: x @ w
    _, f_vjp = phalanx.vjp(matmul, W, X, saveable_args=False)
    assert phalanx.tree.leaves(f_vjp) == [] and f_vjp.args_res == [NotSaveable(), NotSaveable()]
    _, f_vjp = phalanx.vjp(matmul, W, X, saveable_args=(False, True))
    call = phalanx.jit(lambda f_vjp, w, ct: (f_vjp.args_res.__setitem__(0, w), f_vjp(ct))[1])
    np.testing.assert_allclose(call(f_vjp, W, jnp.ones((3, 4)))[0], X.T @ np.ones((3, 4)))
    with pytest.raises(TreeError, match="saveable_args: expected True or False, or a container of 2 of them"):
        phalanx.vjp(matmul, W, X, saveable_args=(True,))
    assert phalanx.vjp(jnp.sin, 3.0)[1].opaque_residuals
