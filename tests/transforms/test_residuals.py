"""What differentiation keeps from the forward pass, as it is shown to the user."""

from __future__ import annotations

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx.ad_checkpoint import checkpoint_name, print_saved_residuals, saved_residuals

X = np.ones((3, 4), np.float32)
W = np.ones((4, 5), np.float32)


def layer(params, x):
    hidden = checkpoint_name(jnp.tanh(x @ params["w"]), "hidden")
    return jnp.sin(hidden).sum()


def kept(fun):
    return [f"{aval.str_short()} {origin.split(' at ')[0]}" for aval, origin in saved_residuals(fun, {"w": W}, x=X)]


def test_each_value_is_named_by_its_operation_or_argument():
    assert kept(layer) == [
        "f32[4,5] the argument params['w']",
        "f32[3,4] the argument x",
        "f32[3,5] sub",
        "f32[3,5] cos",
    ]


def test_a_policy_shows():
    nothing = phalanx.checkpoint(layer)
    assert sorted(kept(nothing)) == ["f32[3,4] the argument x", "f32[4,5] the argument params['w']"]
    policy = phalanx.checkpoint_policies.save_only_these_names("hidden")
    named = phalanx.checkpoint(layer, policy=policy)
    assert "f32[3,5] 'hidden', a name given" in kept(named)


def test_they_are_printed_with_their_lines(capsys):
    print_saved_residuals(lambda x: jnp.sin(x) * 2, phalanx.ShapeDtypeStruct((2,), "float32"))
    out = capsys.readouterr().out
    assert out.startswith("f32[2] from cos at ") and "test_residuals.py:" in out


def test_the_lines_are_those_of_the_operations():
    """Inside jit and checkpoint too: those of the call were shown once."""
    line = layer.__code__.co_firstlineno
    policy = phalanx.checkpoint_policies.dots_saveable
    for fun in (layer, phalanx.jit(layer), phalanx.checkpoint(layer, policy=policy)):
        lines = {int(o.split(":")[-1].split()[0]) for _, o in saved_residuals(fun, {"w": W}, x=X) if " at " in o}
        assert lines <= {line + 1, line + 2} and line + 1 in lines


def test_checkpoint_takes_static_arguments_by_name():
    f = phalanx.checkpoint(lambda x, flag: jnp.sin(x) if flag else x, static_argnames="flag")
    assert round(float(phalanx.grad(f)(2.0, flag=True)), 4) == -0.4161
    assert float(phalanx.grad(f)(2.0, flag=False)) == 1.0
