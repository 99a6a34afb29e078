"""The fix in the error for communication that a program did not ask for: applied as it is written, it is accepted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nnx
from phalanx.core import iterate_jaxprs
from phalanx.errors import ShardingError
from phalanx.sharding import NamedSharding, P, make_mesh, set_mesh
from phalanx.spmd.sharding_conflicts import format_line

mesh = auto_mesh((4, 2), "xy")
ITEM = re.compile(r"pass operand (\d) of (\w+), \S+, at (\S+):(\d+) through (.*?\)\)?)(?=; )")


def array(*spec, shape=(8, 8), dtype="float32"):
    values = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
    return phalanx.device_put(values, NamedSharding(mesh, P(*spec)))


X, COLUMNS = array("x"), array(None, "x")
LAYERS = array(None, "x", shape=(3, 8, 8))
UNEVEN = array("x", shape=(10, 8))
ROW_NUMBERS = array(shape=(5,), dtype="int32")


def nested(ask, x, w):
    return phalanx.jit(lambda x, w: x @ ask(w))(x, w).sum()


def loop(ask, x, ws):
    return lax.scan(lambda c, w: (jnp.tanh(c @ ask(w)), None), x, ws)[0]


def sliced_layers(ask, x, ws):
    return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ask(ws))[0]


def recomputed(ask, x, ws):
    layer = phalanx.checkpoint(lambda c, w: jnp.tanh(c @ ask(w)))
    return phalanx.grad(lambda ws: jnp.mean(lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0] ** 2))(ws)


def own_gradient(ask, x):
    square = phalanx.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, y_bar: (2 * ask(x)[::-1] * y_bar,))
    return phalanx.grad(lambda x: square(x).sum())(x)


def behind_shard_map(ask, x):
    y = phalanx.shard_map(lambda x: lax.psum(x, "y"), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x"))(x)
    return ask(y)[::-1]


def while_loop(ask, x):
    return lax.while_loop(lambda c: c.sum() < 100, lambda c: ask(c)[::-1] * 2 + 1, x)


def convolution(ask, x, w):
    return lax.conv_general_dilated(ask(x[None]), w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# A name, a program and its arguments. `ask` stands for what the fix says.
PROGRAMS = [
    ("two operands of one size", lambda ask, x, w: jnp.tanh(x @ ask(w)), [X, array("x")]),
    ("different dimensions", lambda ask, x, y: x + ask(y), [X, COLUMNS]),
    ("a jit in a jit", nested, [X, array("x")]),
    ("weights in a scan", loop, [X, LAYERS]),
    ("layers split over devices", sliced_layers, [X, array("y", shape=(4, 8, 8))]),
    ("a gradient with remat", recomputed, [X, LAYERS]),
    ("custom_vjp", own_gradient, [X]),
    ("shard_map", behind_shard_map, [X]),
    ("while_loop", while_loop, [X]),
    ("gather", lambda ask, x, i: ask(x)[i], [X, ROW_NUMBERS]),
    ("fft", lambda ask, x: jnp.abs(jnp.fft.fft(ask(x))), [COLUMNS]),
    ("sort", lambda ask, x: jnp.sort(ask(x), axis=0), [X]),
    ("uneven", lambda ask, x, y: x + ask(y), [UNEVEN, array(None, "x", shape=(10, 8))]),
    ("uneven reshape", lambda ask, x: ask(x).reshape(5, 16), [UNEVEN]),
    ("convolution", convolution, [array("x", shape=(8, 6, 4)), array(shape=(3, 3, 4, 5))]),
    ("lu", lambda ask, a: lax.linalg.lu(ask(a))[0], [array(None, "x", shape=(8, 8, 8))]),
]


def refuse(program, args, **options):
    """The error for a program without what its fix says, and the fix as a function."""
    with pytest.raises(ShardingError, match="communication of") as error:
        phalanx.jit(lambda *args: program(lambda x: x, *args), communication="implied", **options)(*args)
    found = ITEM.findall(error.value.fix)
    assert len(found) == 1 and {file for _, _, file, _ in [item[:4] for item in found]} == {__file__}
    return error.value, eval(f"lambda x: {found[0][4]}", globals())  # the fix is code


@pytest.mark.parametrize("program, args", [pytest.param(f, a, id=n) for n, f, a in PROGRAMS])
def test_a_program_with_the_fix_of_its_error_is_accepted(program, args):
    error, fix = refuse(program, args)
    assert re.search(r"unasked [a-z-]+ of [\d,]+ bytes over 'x'|over 'y'", error.got)
    assert re.search(r"is split as P\(.*\), but \w+ needs P\(.*\)", error.got)
    fixed = phalanx.jit(lambda *args: program(fix, *args), communication="implied")
    plain = phalanx.jit(lambda *args: program(lambda x: x, *args))
    np.testing.assert_allclose(fixed(*args), plain(*args), rtol=1e-5, atol=1e-6)


def test_modules_are_accepted_with_the_fix():
    model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
    model.kernel[...] = array("x")

    def run(ask):
        return nnx.jit(lambda model, x: jnp.tanh(x @ ask(model.kernel[...])), communication="implied")(model, X)

    with pytest.raises(ShardingError, match="from argument model.kernel, is split as P") as error:
        run(lambda x: x)
    run(eval(f"lambda x: {ITEM.findall(error.value.fix)[0][4]}", globals()))


def test_the_fix_is_a_bare_spec_where_a_mesh_is_in_context():
    program = lambda ask, x: ask(x)[::-1]
    assert "through lax.with_sharding_constraint(x, NamedSharding(mesh, P()));" in refuse(program, [X])[0].fix
    with set_mesh(mesh):
        error, fix = refuse(program, [X])
        assert "through lax.with_sharding_constraint(x, P());" in error.fix
        phalanx.jit(lambda x: program(fix, x), communication="implied")(X)
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        there = phalanx.device_put(np.ones((8, 8), np.float32), P("x"))
        error, fix = refuse(program, [there])
        assert "through phalanx.reshard(x, P());" in error.fix
        phalanx.jit(lambda x: program(fix, x), communication="implied")(there)


def test_recomputed_operations_have_the_lines_of_the_computation():
    layer = lambda x, w: jnp.sin(x @ w)
    line = f"{__file__}:{layer.__code__.co_firstlineno}"
    program = phalanx.make_jaxpr(phalanx.grad(lambda w: phalanx.checkpoint(layer)(w, w).sum()))(np.ones((4, 4)))
    eqns = [eqn for jaxpr in iterate_jaxprs(program.jaxpr) for eqn in jaxpr.eqns]
    assert {format_line(eqn) for eqn in eqns if eqn.primitive.name in ("dot_general", "sin", "cos")} == {line}
