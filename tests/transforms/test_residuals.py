"""What differentiation keeps from the forward pass, as it is shown to the user."""

from __future__ import annotations

import re

import numpy as np
import pytest
from phalanx.ad_checkpoint import checkpoint_name, print_saved_residuals, saved_residuals

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.errors import TracerBoolConversionError, TreeError
from phalanx.sharding import AxisType, PartitionSpec as P

X = np.ones((3, 4), np.float32)
W = np.ones((4, 5), np.float32)


def layer(params, x):
    hidden = checkpoint_name(jnp.tanh(x @ params["w"]), "hidden")
    return jnp.sin(hidden).sum()


def kept(fun):
    origins = [(aval, re.sub(r" from \S+py:.*", "", origin)) for aval, origin in saved_residuals(fun, {"w": W}, x=X)]
    return [f"{aval.str_short()} {origin}" for aval, origin in origins]


def test_residuals_are_described_by_their_operation_or_argument():
    assert kept(layer) == [
        "f32[4,5] from the argument params['w']",
        "f32[3,4] from the argument x",
        "f32[3,5] output of mul",
        "f32[3,5] output of cos",
    ]


def test_residuals_follow_the_checkpoint_policy():
    nothing = phalanx.checkpoint(layer)
    assert kept(nothing) == ["f32[4,5] from the argument params['w']", "f32[3,4] from the argument x"]
    policy = phalanx.checkpoint_policies.save_only_these_names("hidden")
    named = phalanx.checkpoint(layer, policy=policy)
    assert "f32[3,5] named 'hidden'" in kept(named)


def test_print_saved_residuals_shows_source_lines(capsys):
    print_saved_residuals(lambda x: jnp.sin(x) * 2, phalanx.ShapeDtypeStruct((2,), "float32"))
    out = capsys.readouterr().out
    assert re.match(r"f32\[2\] output of cos from \S+test_residuals\.py:\d+:\d+ \(test_print.*\.<lambda>\)\n$", out)


def test_residuals_name_the_line_of_their_operation():
    """Inside jit and checkpoint too: those of the call were shown once."""
    line = layer.__code__.co_firstlineno
    policy = phalanx.checkpoint_policies.dots_saveable
    for fun in (layer, phalanx.jit(layer), phalanx.checkpoint(layer, policy=policy)):
        lines = {int(o.split(":")[1]) for _, o in saved_residuals(fun, {"w": W}, x=X) if "py:" in o}
        assert lines <= {line + 1, line + 2} and line + 1 in lines


def test_checkpoint_accepts_static_argnames():
    f = phalanx.checkpoint(lambda x, flag: jnp.sin(x) if flag else x, static_argnames="flag")
    assert round(float(phalanx.grad(f)(2.0, flag=True)), 4) == -0.4161
    assert float(phalanx.grad(f)(2.0, flag=False)) == 1.0


KEEP_ALL = phalanx.checkpoint_policies.everything_saveable
MESH = phalanx.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def twice(c, t):
    return jnp.sin(c) * t, jnp.cos(c)


HOLDING = {
    "scan": lambda x: lax.scan(twice, jnp.sin(x), jnp.arange(3.0))[0] * 2,
    "scan of scan": lambda x: lax.scan(lambda c, t: (lax.scan(twice, c * t, jnp.ones(2))[0], None), x, jnp.ones(3))[0],
    "jit": lambda x: phalanx.jit(lambda x: jnp.cos(jnp.sin(x)))(jnp.sin(x)),
    "jit of scan": lambda x: phalanx.jit(HOLDING["scan"])(jnp.exp(x)),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda x: jnp.sin(jnp.sin(x)), lambda x: x * 2, jnp.cos(x)),
    "checkpoint": lambda x: phalanx.checkpoint(HOLDING["scan"], policy=KEEP_ALL)(jnp.sin(x)),
    "while": lambda x: x * lax.stop_gradient(lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, jnp.exp(x))),
    "shard_map": lambda x: phalanx.shard_map(
        lambda x: lax.scan(twice, x, jnp.arange(3.0))[0] * lax.psum(x, "x"),
        mesh=MESH,
        in_specs=P("x"),
        out_specs=P("x"),
    )(jnp.sin(x)),
}


@pytest.mark.parametrize("name", HOLDING)
def test_checkpoint_saves_no_values_from_inner_loops_and_calls(name):
    kept = saved_residuals(phalanx.checkpoint(HOLDING[name]), jnp.linspace(0.1, 1.0, 8))
    assert {origin for _, origin in kept} <= {"from the argument x"}


def test_checkpoint_does_not_change_derivatives():
    x = jnp.linspace(0.1, 1.0, 8)

    def derivatives(change):
        fun = lambda x: sum((change(f)(x) ** 2).sum() for f in HOLDING.values())
        return phalanx.grad(fun)(x), phalanx.jvp(phalanx.grad(fun), (x,), (x,))[1]

    want = phalanx.jit(lambda: derivatives(lambda f: f))()
    for policy in (None, phalanx.checkpoint_policies.dots_saveable, lambda *_, **__: True):
        got = phalanx.jit(lambda policy=policy: derivatives(lambda f: phalanx.checkpoint(f, policy=policy)))()
        for g, w in zip(got, want):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


def test_checkpointed_loop_segments_use_the_memory_of_one_segment():
    """The carries of the inner loops were kept, all of them."""
    segment = lambda c, _: (lax.fori_loop(0, 10, lambda i, c: jnp.sin(c) * c, c), None)

    def bytes_of(body):
        fun = lambda x: lax.scan(body, x, None, length=10)[0].sum()
        program = phalanx.jit(phalanx.grad(fun)).lower(jnp.ones(1000)).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert bytes_of(phalanx.checkpoint(segment)) < bytes_of(segment) / 3


def test_checkpoint_policy_must_return_a_bool():
    with pytest.raises(TypeError, match="checkpoint, argument policy: expected a function, got 'dots'"):
        phalanx.checkpoint(jnp.sin, policy="dots")
    factory = phalanx.checkpoint_policies.save_only_these_names
    with pytest.raises(TypeError, match="save_only_these_names and similar functions must be called with names"):
        phalanx.grad(phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=factory))(1.0)


def test_static_argnums_must_be_argument_positions():
    with pytest.raises(ValueError) as e:
        phalanx.checkpoint(lambda x, flag: x, static_argnums=5)(1.0, True)
    assert str(e.value) == (
        "checkpoint, argument static_argnums: expected positions below 2, the number of positional arguments, got 5.\n"
        "  Fix: pass the static arguments by position, or list their names in static_argnames."
    )


def test_the_linear_program_of_a_checkpoint_can_be_read_and_its_operations_counted():
    _, push = phalanx.linearize(phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x))), 2.0)
    program = str(push.func.args[0])
    assert (program.count(" sin "), program.count(" cos ")) == (1, 2)
    calls = []
    evaluate = lax.cos_p.impl
    lax.cos_p.def_impl(lambda x, **params: calls.append(1) or evaluate(x, **params))
    try:
        assert push(1.0) == push(1.0)
    finally:
        lax.cos_p.def_impl(evaluate)
    push(1.0)
    assert len(calls) == 4
    assert lax.cos_p.run is None


def test_checkpoint_traces_a_function_once_for_each_type_and_context():
    calls = []
    f = phalanx.checkpoint(lambda x, n: calls.append(n) or jnp.sin(x) * n, static_argnums=1)
    for _ in range(3):
        assert float(f(0.0, 2)) == 0.0
        assert float(phalanx.grad(f)(0.0, 2)) == 2.0
    assert calls == [2]
    f(0.0, 2.0)
    f(jnp.zeros(3), 2)
    assert calls == [2, 2.0, 2]

    @phalanx.jit
    def g(y):
        return phalanx.checkpoint(lambda x: x * y)(1.0)

    assert float(g(2.0)) == 2.0 and float(g(3.0)) == 3.0


def test_checkpoint_stages_eagerly_too():
    with pytest.raises(TracerBoolConversionError):
        phalanx.checkpoint(lambda x: x if x > 0 else -x)(1.0)


@pytest.mark.parametrize("flags", [(False, True), ({"w": False}, True), ((False,), True)])
def test_prevent_cse_chooses_arguments(flags):
    weights = {"w": jnp.ones((3, 3))} if flags[0] is not False else jnp.ones((3, 3))

    def lower(flags):
        layer = phalanx.checkpoint(
            lambda w, x: x @ (w["w"] if isinstance(w, dict) else w) + np.arange(3.0), prevent_cse=flags
        )
        loss = lambda w, x: (layer(w, layer(w, x)) ** 2).sum()
        return phalanx.jit(phalanx.grad(loss, (0, 1))).lower(weights, jnp.ones(3)).as_text()

    # The second argument and the cotangent, but not the weights.
    assert [line.count("%") for line in lower(flags).splitlines() if "optimization_barrier" in line] == [3, 3]
    assert [line.count("%") for line in lower(True).splitlines() if "optimization_barrier" in line] == [4, 4]


def test_prevent_cse_must_fit_the_arguments():
    with pytest.raises(TreeError, match="argument prevent_cse: expected True or False, or a container of 1 of them"):
        phalanx.checkpoint(lambda x: x, prevent_cse=(True, False))(1.0)
