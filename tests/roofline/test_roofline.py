"""`roofline` counts the operations, bytes and messages of a function without running it."""

import functools
import itertools

import numpy as np
import pytest
from phalanx.experimental.roofline import (
    RooflineResult,
    RooflineShape,
    register_roofline,
    register_standard_roofline,
    roofline,
    roofline_and_grad,
)

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.sharding import PartitionSpec as P

X = jnp.ones((4, 6))


def cost(f, *args):
    return roofline(f)(*args)[1]


def test_elementwise_operations_and_reductions():
    assert cost(lambda x: jnp.sin(x) + x, X).unfused_flops == 2 * 24
    assert cost(jnp.sin, X).unfused_hbm_bytes == 2 * 24 * 4
    assert cost(lambda x: jnp.sum(x, axis=0), X).unfused_flops == 3 * 6
    assert cost(lambda x: lax.cumsum(x, 1), X).unfused_flops == 6
    assert cost(lambda x: x.T.reshape(24), X) == RooflineResult(peak_hbm_bytes=96)


def test_contractions_move_their_operands():
    found = roofline(lambda a, b: a @ b, pin_lhs_in_vmem=True)(X, X.T)[1]
    assert (found.flops, found.hbm_bytes) == (2 * 4 * 6 * 4, 24 * 4)
    assert cost(lambda a, b: a @ b, X, X.T).hbm_bytes == (24 + 24 + 16) * 4


def count_by_loop(n, kernel, out, stride, low, dilation, kernel_dilation):
    places = (o * stride + k * kernel_dilation - low for o in range(out) for k in range(kernel))
    return sum(p % dilation == 0 and 0 <= p // dilation < n for p in places)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolutions_count_products_inside_the_input(stride):
    x, k = jnp.ones((1, 1, 7)), jnp.ones((1, 1, 3))
    for low, dilation, of_kernel in itertools.product([0, 2], [1, 2, 3], [1, 2]):
        options = {"padding": [(low, 1)], "lhs_dilation": (dilation,), "rhs_dilation": (of_kernel,)}
        out, found = roofline(functools.partial(lax.conv_general_dilated, window_strides=(stride,), **options))(x, k)
        assert found.unfused_flops == 2 * count_by_loop(7, 3, out.shape[-1], stride, low, dilation, of_kernel)


def test_gathers_and_scatters_touch_what_they_select():
    x, i = jnp.ones((5, 3)), jnp.array([1, 2])
    assert cost(lambda x: x.at[i].get(mode="clip"), x).unfused_hbm_bytes >= 2 * 6 * 4 + 2 * 4
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    add = lambda x, u: lax.scatter_add(x, i[:, None], u, numbers)
    assert cost(add, x, jnp.ones((2, 3))).unfused_flops == 6
    twice = lambda x: lax.scatter_apply(x, i[:, None], lambda v: jnp.sin(v) + 1, numbers, update_shape=(2, 3))
    assert cost(twice, x).unfused_flops == 12


def test_calls_and_loops_cost_what_their_bodies_cost():
    step = lambda x: jnp.sin(x) * x
    one = cost(step, X).unfused_flops
    looped = cost(lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=5)[0], X)
    assert looped.unfused_flops == 5 * one
    assert looped.peak_hbm_bytes <= 4 * X.nbytes
    assert cost(phalanx.checkpoint(phalanx.jit(step)), X).unfused_flops == one
    branched = lambda x: lax.cond(x[0, 0] > 0, step, jnp.negative, x)
    assert one <= cost(branched, X).unfused_flops <= one + 2


def test_callbacks_cost_their_transfers_only():
    f = lambda x: phalanx.pure_callback(np.sin, x, x)
    assert cost(f, X) == RooflineResult(unfused_hbm_bytes=192, peak_hbm_bytes=96)


def test_collectives_send_along_rings():
    mesh = phalanx.make_mesh((2, 2, 2), ("x", "y", "z"))
    a = phalanx.ShapeDtypeStruct((8, 8), "float32")

    def sent(f, spec, out):
        found = roofline(f, mesh, spec, out)(a)[1]
        return found.ici_bytes, found.ici_latency

    assert sent(lambda x: lax.all_gather(x, "x", axis=0, tiled=True), P("x"), P("x")) == ({"x": 128}, {"x": 2})
    assert sent(lambda x: lax.psum(x, "x"), P("x"), P()) == ({"x": 128}, {"x": 4})
    scatter = lambda x: lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True)
    assert sent(scatter, P(None, "x"), P("x")) == ({"x": 64}, {"x": 2})
    assert sent(lambda x: lax.pmax(x, "x"), P("x"), P()) == ({"x": 4}, {"x": 2})
    swap = lambda x: lax.all_to_all(x, ("x", "y"), split_axis=0, concat_axis=1, tiled=True)
    assert sent(swap, P(None, ("x", "y")), P(("x", "y"))) == ({"x": 64, "y": 64}, {"x": 2, "y": 2})
    rotate = lambda x: lax.ppermute(x, ("x", "y"), perm=((0, 3), (3, 0), (1, 2), (2, 1)))
    assert sent(rotate, P(("x", "y")), P(("x", "y"))) == ({"x": 128, "y": 128}, {"x": 2, "y": 2})


def test_derivatives_are_measured_in_bfloat16():
    mesh = phalanx.make_mesh((2,), ("x",))
    a = phalanx.ShapeDtypeStruct((8, 8), "float32")
    out, forward, backward = roofline_and_grad(jnp.matmul, mesh, (P("x"), P()), P("x"))(a, a)
    assert (out.shape, out.sharding.spec) == ((8, 8), P("x"))
    assert (forward.flops, backward.flops) == (2 * 4 * 8 * 8, 4 * 4 * 8 * 8)
    assert backward.hbm_bytes == forward.hbm_bytes  # two products of half the size
    assert backward.ici_bytes == {"x": 2 * 8 * 8 * 2 // 2}


def test_users_define_the_cost_of_an_operation(capsys):
    p = phalanx.extend.core.Primitive("measured_here")
    p.def_impl(lambda x, *, n: x)
    p.def_abstract_eval(lambda x, *, n: x)
    assert cost(lambda x: p.bind(x, n=3), X).flops == 0
    register_roofline(p)(lambda ctx, x, *, n: RooflineResult(flops=n * x.size))
    assert cost(lambda x: p.bind(x, n=3), X).flops == 72
    register_standard_roofline(p)
    roofline(lambda x: p.bind(x, n=3), print_jaxpr=True)(X)
    assert "measured_here[n=3]" in capsys.readouterr().out
    assert RooflineShape.from_aval(X.aval).bytes == RooflineShape.total_bytes([X.aval]) == 96
    assert 3 * RooflineResult(flops=2) == RooflineResult(flops=6) + RooflineResult.zeros()
