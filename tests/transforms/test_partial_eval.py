"""Splitting programs into known and unknown parts, and keeping less for the backward pass."""

import numpy as np
import pytest
from phalanx.ad_checkpoint import checkpoint_name

import phalanx
import phalanx.numpy as jnp
from phalanx.core import check_jaxpr
from phalanx.core.jaxpr import run_jaxpr
from phalanx.transforms.partial_eval import partial_eval_jaxpr


def program():
    def f(a, b, c):
        d = jnp.sin(a) * 2.0
        e = phalanx.jit(lambda x, y: (jnp.cos(x), x * y))(d, b)
        return d, e[1] + c, e[0]

    return phalanx.make_jaxpr(f)(1.0, 2.0, 3.0)


def rejoin(whole, unknown, **options):
    parts = partial_eval_jaxpr(whole, unknown, **options)
    check_jaxpr(parts.known)
    check_jaxpr(parts.unknown)
    args = [np.float32(0.3), np.float32(0.7), np.float32(-1.1)]
    out = run_jaxpr(parts.known, *(x for x, u in zip(args, unknown) if not u))
    ready, residuals = out[: sum(parts.known_outputs)], out[sum(parts.known_outputs) :]
    later = run_jaxpr(parts.unknown, *residuals, *(x for x, t in zip(args, parts.unknown_inputs) if t))
    ready, later = iter(ready), iter(later)
    joined = []
    for known, late in zip(parts.known_outputs, parts.unknown_outputs):
        value = next(ready) if known else None
        value = next(later) if late else value
        joined.append(float(value))
    np.testing.assert_allclose(joined, [float(x) for x in run_jaxpr(whole, *args)], rtol=1e-6)
    return parts


def test_known_and_unknown_jaxprs_compose_to_the_original():
    whole = program()
    for mask in range(8):
        unknown = [bool(mask & 1), bool(mask & 2), bool(mask & 4)]
        rejoin(whole, unknown)
        rejoin(whole, unknown, unknown_outputs=True)
        rejoin(whole, unknown, instantiated_outputs=True)
        rejoin(whole, unknown, instantiated_inputs=True, policy=lambda *_, **__: False)


def test_partial_evaluation_is_cached_on_the_jaxpr():
    whole = program()
    assert partial_eval_jaxpr(whole, [False, True, False]) is partial_eval_jaxpr(whole, [False, True, False])


def test_inner_jaxprs_are_partially_evaluated():
    parts = rejoin(program(), [False, True, False])
    assert parts.known_outputs == [True, False, True]
    assert "cos" in str(parts.known) and "cos" not in str(parts.unknown)


def saved(f, *args):
    """The types of what the backward pass keeps."""
    _, pull = phalanx.vjp(f, *args)
    return sorted(x.aval.str_short() for x in phalanx.tree.leaves(pull) if hasattr(x, "aval"))


def test_policies_choose_the_residuals():
    w, x = jnp.ones((4, 4)), jnp.ones((2, 4))

    def f(x, w):
        h = checkpoint_name(jnp.sin(x @ w), "hidden")
        return jnp.sum(jnp.cos(h @ w))

    policies = phalanx.checkpoint_policies
    everything = saved(f, x, w)
    nothing = saved(phalanx.checkpoint(f), x, w)
    assert nothing == ["f32[2,4]", "f32[4,4]"]
    assert len(nothing) < len(everything)
    named = saved(phalanx.checkpoint(f, policy=policies.save_only_these_names("hidden")), x, w)
    assert named == ["f32[2,4]", "f32[2,4]", "f32[4,4]"]
    dots = saved(phalanx.checkpoint(f, policy=policies.dots_saveable), x, w)
    assert len(dots) == 4
    want = phalanx.grad(f, (0, 1))(x, w)
    for policy in (
        None,
        policies.dots_saveable,
        policies.everything_saveable,
        policies.save_only_these_names("hidden"),
    ):
        for g, e in zip(phalanx.jit(phalanx.grad(phalanx.checkpoint(f, policy=policy), (0, 1)))(x, w), want):
            np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)


def test_policies_decide_inside_calls_whose_operands_are_known():
    """Such a call was recomputed as a whole, so that its cosine was, too."""

    @phalanx.custom_jvp
    def sin(x):
        return jnp.sin(x)

    @sin.defjvp
    def sin_jvp(primals, tangents):
        y, slope = phalanx.jit(lambda x: (jnp.sin(x), jnp.cos(x)))(*primals)
        return y, slope * tangents[0]

    def repeat(x):
        return phalanx.lax.scan(lambda c, _: (sin(c), None), x, length=3)[0]

    f = phalanx.checkpoint(repeat, policy=lambda primitive, *_, **__: primitive.name == "cos")
    linear = str(phalanx.make_jaxpr(phalanx.linearize(f, 2.0)[1])(1.0))
    assert " cos " not in linear and " sin " not in linear
    np.testing.assert_allclose(phalanx.grad(f)(2.0), phalanx.grad(repeat)(2.0), rtol=1e-6)


def make_sin(fwd):
    """`jnp.sin` with its cosine as the residual, where `fwd` gives one."""

    def rem(slope, x, scale):
        return scale * jnp.sin(x), scale * jnp.cos(x) if slope is None else slope

    fun = lambda x, scale: scale * jnp.sin(x)
    return phalanx.custom_remat(fun, fwd, rem, lambda slope, y_bar: (slope * y_bar,), static_argnums=1)


def save_slope(policy, x, scale):
    return scale * jnp.sin(x), scale * jnp.cos(x)


def test_custom_remat_decides_what_is_saved_and_recomputed():
    sin = make_sin(save_slope)
    f = phalanx.checkpoint(lambda x: sin(sin(x, 1.0), 2.0))
    plain = lambda x: 2.0 * jnp.sin(jnp.sin(x))
    _, linear = phalanx.linearize(f, 0.7)
    text = str(phalanx.make_jaxpr(linear)(1.0))
    assert "sin" not in text and "cos" not in text
    xs = jnp.array([0.1, 0.7, 2.0])
    for transform in (
        phalanx.grad,
        phalanx.jacfwd,
        lambda f: phalanx.grad(phalanx.grad(f)),
        lambda f: phalanx.jit(phalanx.grad(f)),
    ):
        np.testing.assert_allclose(phalanx.vmap(transform(f))(xs), phalanx.vmap(transform(plain))(xs), rtol=1e-5)
    assert float(sin(0.7, 2.0)) == float(f(0.7) * 0 + 2.0 * jnp.sin(0.7))
    # Outside of a checkpoint the function is an ordinary one.
    np.testing.assert_allclose(phalanx.grad(sin)(0.7, 2.0), 2 * np.cos(0.7), rtol=1e-6)


def test_custom_remat_reads_the_policy_of_its_checkpoint():
    policies = phalanx.checkpoint_policies

    def fwd(policy, x, scale):
        saves = isinstance(policy, policies.SaveOnlyTheseNames) and "slope" in policy.saveable_names
        return scale * jnp.sin(x), scale * jnp.cos(x) if saves else None

    sin = make_sin(fwd)
    repeat = lambda x: phalanx.lax.scan(lambda c, _: (sin(c, 1.0), None), x, length=2)[0]
    for names, count in ((("slope",), 0), (("other",), 1)):
        f = phalanx.checkpoint(repeat, policy=policies.save_only_these_names(*names))
        text = str(phalanx.make_jaxpr(phalanx.linearize(f, 4.0)[1])(1.0))
        assert text.count(" cos ") == count
        np.testing.assert_allclose(phalanx.grad(f)(3.0), phalanx.grad(repeat)(3.0), rtol=1e-6)


def test_custom_remat_refuses_another_number_of_cotangents():
    f = phalanx.custom_remat(jnp.sin, lambda _, x: (x, None), lambda _, x: (x, None), lambda _, y_bar: y_bar)
    with pytest.raises(TypeError, match=r"the result of f_bwd = .*: expected a tuple of 1 cotangents"):
        phalanx.grad(phalanx.checkpoint(f))(1.0)


def test_dead_code_elimination_descends_into_calls():
    from phalanx.core.jaxpr import dce_jaxpr

    smaller, used = dce_jaxpr(program(), [False, False, True])
    assert used == [True, False, False]
    assert str(smaller).count("mul") == 1
    check_jaxpr(smaller)


def test_a_known_jaxpr_keeps_its_effects():
    def f(x, y):
        phalanx.debug.print("{}", x)
        return x * y

    assert partial_eval_jaxpr(phalanx.make_jaxpr(f)(1.0, 2.0), [False, True]).known.effects
