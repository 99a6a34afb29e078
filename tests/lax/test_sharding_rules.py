"""For every case: the pieces along each dimension role make the whole."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.custom_batching import custom_vmap
from phalanx.experimental.custom_partitioning import custom_partitioning
from phalanx.experimental.xla_metadata import xla_metadata_call
from tests.lax import laws, structured_cases
from tests.lax.cases import CASES, family_of, with_law
from tests.lax.recorded_primitives import equations
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.primitive import registry
from phalanx.custom_rules import linear_call
from phalanx.sharding import P

pytestmark = pytest.mark.usefixtures("double_precision")


@with_law("sharding_rule", [c for c in CASES if c.name != "low"], family_of)
def test_shards_along_a_factor_make_the_whole_result(case):
    laws.check_roles(case)


@pytest.mark.slow
@pytest.mark.parametrize("call", structured_cases.CASES, ids=[c.name for c in structured_cases.CASES])
def test_shards_along_a_factor_of_structured_primitives_make_the_whole_result(call):
    for case in equations(call.flat(), call.args, call.name):
        laws.check_result(case)
        laws.check_roles(case)


def numbers(*shape):
    return np.random.RandomState(sum(shape)).uniform(0.1, 1.0, shape)


def with_rule(kind, **options):
    """A function with a rule of its own, of the given kind."""
    fun = kind(lambda x, w: jnp.tanh(x @ w))
    if kind is phalanx.custom_jvp:
        fun.defjvps(None, None)
    elif kind is phalanx.custom_vjp:
        fun.defvjp(lambda x, w: (fun(x, w), None), lambda _, g: (g, g), **options)
    elif kind is custom_vmap:
        fun.def_vmap(lambda size, mapped, x, w: (jnp.tanh(x @ w), True))
    return fun


def mapped(fun, in_specs, out_specs, **options):
    """A call of `fun` on each of four devices, two along "i" and two along "j"."""

    def call(*args):
        mesh = auto_mesh((2, 2), ("i", "j"))
        return phalanx.shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)(*args)

    return call


def halved_below(x, y):
    """`x`, halved until it is less than a hundredth of `y`."""
    return lax.while_loop(lambda c: c * 100 > y, lambda c: c / 2, x)


X, W, XS, INDEX = numbers(4, 6), numbers(6, 8), numbers(3, 4, 6), np.int32(1)

# One call of each primitive that holds a program, its arguments, and what its roles print as.
MATMUL = custom_partitioning(lambda x, w: x @ w)
MATMUL.def_partition(lambda *_: None, sharding_rule="i j, j k -> i k")

CALLS = {
    "jit": (phalanx.jit(lambda x, w: jnp.tanh(x @ w)), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"),
    "jit of a sum": (
        phalanx.jit(lambda x, w: jnp.sum((x @ w) ** 2, 1)), (X, W), "[(0, 1), (1, 2)], [(0,)], reduced={2: 'sum'}, whole={1}"
    ),
    "jit of a product": (phalanx.jit(lambda x, w: -(x @ w).T), (X, W), "[(0, 1), (1, 2)], [(2, 0)], reduced={1: 'sum'}, whole=set()"),
    "jit of two results": (phalanx.jit(lambda x: (x * 2, x.max(0))), (X,), "[(0, 1)], [(0, 1), (1,)], reduced={0: 'max'}, whole=set()"),
    "jit of a part and a whole": (
        phalanx.jit(lambda x, b: (x.sum(0), b * 2)), (X, numbers(6)), "[(0, 1), (2,)], [(1,), (2,)], reduced={}, whole={0}"
    ),
    "jit of a mean": (phalanx.jit(lambda x: x.mean(0)), (X,), "[(0, 1)], [(1,)], reduced={}, whole={0}"),
    "jit with its transpose": (phalanx.jit(lambda x: x + x.T), (numbers(4, 4),), "[(0, 0)], [(0, 0)], reduced={}, whole={0}"),
    "jit of what broadcasts": (phalanx.jit(lambda x: x + lax.iota(np.float32, 6)), (X,), "[(0, 1)], [(0, 1)], reduced={}, whole={1}"),
    "jit with an unread argument": (phalanx.jit(lambda x, w: 2 * x), (X, W), "[(0, 1), (2, 3)], [(0, 1)], reduced={}, whole=set()"),
    "jit in jit": (
        phalanx.jit(lambda x, w: phalanx.jit(jnp.dot)(x, w) * 2), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"
    ),
    "remat2": (phalanx.checkpoint(lambda x, w: x @ w), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={1: 'sum'}, whole=set()"),
    "custom_partitioning": (MATMUL, (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={1: 'sum'}, whole=set()"),
    "custom_jvp_call": (with_rule(phalanx.custom_jvp), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"),
    "custom_vjp_call": (with_rule(phalanx.custom_vjp), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"),
    "custom_vjp_fwd": (
        lambda x, w: phalanx.vjp(with_rule(phalanx.custom_vjp, optimize_remat=True), x, w)[0],
        (X, W), "[(0, 1), (2, 3)], [(0, 3)], reduced={}, whole={1, 2}",
    ),
    "custom_vmap_call": (with_rule(custom_vmap), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"),
    "xla_metadata_call": (
        xla_metadata_call(lambda x, w: x @ w, tag="layer"), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={1: 'sum'}, whole=set()"
    ),
    "composite": (
        lax.composite(lambda x, w: jnp.tanh(x @ w), "my.layer"), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"
    ),
    "cond": (
        lambda i, x: lax.cond(i, jnp.sin, lambda x: x.cumsum(0), x), (INDEX, X), "[(), (0, 1)], [(0, 1)], reduced={}, whole={0}"
    ),
    "cond of sums": (
        lambda i, x: lax.switch(i, [lambda x: x.sum(0), lambda x: (2 * x).sum(0)], x), (INDEX, X),
        "[(), (0, 1)], [(1,)], reduced={0: 'sum'}, whole=set()",
    ),
    "cond of a sum and a maximum": (
        lambda i, x: lax.switch(i, [lambda x: x.sum(0), lambda x: x.max(0)], x), (INDEX, X),
        "[(), (0, 1)], [(1,)], reduced={}, whole={0}",
    ),
    "cond that reads different operands": (
        lambda i, x, y: lax.switch(i, [lambda x, y: x, lambda x, y: y.sum(0)], x, y), (INDEX, X, XS),
        "[(), (0, 1), (2, 0, 1)], [(0, 1)], reduced={}, whole={2}",
    ),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x)), (X,),
        "[(), (0, 1)], [(), (0, 1)], reduced={}, whole=set()",
    ),
    "while any": (
        lambda x: lax.while_loop(lambda c: (c > 0).any(), lambda c: c - 1, x), (X,), "[(0, 1)], [(0, 1)], reduced={}, whole={0, 1}"
    ),
    "while_each": (
        lambda x, y: phalanx.vmap(phalanx.vmap(halved_below), (0, None))(x, y), (X, numbers(6)), "[(0,), (1, 0)], [(1, 0)], reduced={}, whole=set()"
    ),
    "scan": (
        lambda h, xs: lax.scan(lambda h, x: (h + x, (h * x).sum(1)), h, xs), (X, XS),
        "[(0, 1), (2, 0, 1)], [(0, 1), (3, 0)], reduced={1: 'sum'}, whole={2, 3}",
    ),
    "scan with a sum in the carry": (
        lambda h, xs: lax.scan(lambda h, x: (h + x.sum(0), -x), h, xs), (numbers(6), XS),
        "[(0,), (1, 2, 0)], [(0,), (3, 4, 0)], reduced={}, whole={1, 2, 3, 4}",
    ),
    "scan that mixes its carry": (
        lambda w, h, xs: lax.scan(lambda h, x: (jnp.tanh(h @ w) + x, h), h, xs), (numbers(6, 6), X, XS),
        "[(0, 1), (2, 1), (3, 2, 1)], [(2, 1), (4, 2, 5)], reduced={}, whole={0, 1, 3, 4, 5}",
    ),
    "shard_map": (mapped(lambda x, w: jnp.tanh(x @ w), (P("i"), P()), P("i")), (X, W), "[(0, 1), (1, 2)], [(0, 2)], reduced={}, whole={1}"),
    "shard_map over two axes": (
        mapped(lambda x: jnp.sin(x) * x.sum(1, keepdims=True), P(("j", "i")), P(("j", "i"))), (numbers(8, 3),),
        "[(0, 1)], [(0, 1)], reduced={}, whole={1}",
    ),
    "shard_map of a sum": (
        mapped(lambda x, w: lax.psum(x.T @ x, "i") @ w, (P("i"), P(None, "j")), P(None, "j")), (X, W),
        "[(0, 1), (1, 2)], [(1, 2)], reduced={}, whole={0, 1}",
    ),
    "shard_map of a sum alone": (
        mapped(lambda x, w: lax.psum(x @ w, ("i", "j")), (P(None, ("i", "j")), P(("i", "j"))), P()), (numbers(3, 8), numbers(8, 2)),
        "[(0, 1), (1, 2)], [(0, 2)], reduced={1: 'sum'}, whole=set()",
    ),
    "shard_map of a sum over some": (
        mapped(lambda x: lax.psum(x.sum(0, keepdims=True), "i"), P(("i", "j")), P("j")), (numbers(8, 2),),
        "[(0, 1)], [(2, 1)], reduced={}, whole={0, 2}",
    ),
    "shard_map of a sum that is not checked": (
        mapped(lambda x: lax.psum(x.sum(0), "i"), P("i"), P(), check_vma=False), (X,), "[(0, 1)], [(1,)], reduced={}, whole={0}"
    ),
    "shard_map that sums pieces": (
        mapped(lambda x: lax.psum(x, "i") * 2, P("i", "j"), P(None, "j")), (numbers(4, 8),), "[(0, 1)], [(0, 1)], reduced={}, whole={0}"
    ),
    "shard_map that sends pieces": (
        mapped(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]), P("i", "j"), P("i", "j")), (numbers(4, 8),), "[(0, 1)], [(0, 1)], reduced={}, whole={0}"
    ),
    "shard_map that asks where it runs": (
        mapped(lambda x: x + lax.axis_index("i"), P("i", "j"), P("i", "j")), (numbers(4, 8),), "[(0, 1)], [(0, 1)], reduced={}, whole={0}"
    ),
    "shard_map of pieces that belong together": (
        mapped(lambda x, y: jnp.outer(x, y), (P("i"), P("i")), P("i")), (X[:, 0], W[:, 0]), "[(0,), (1,)], [(0, 1)], reduced={}, whole={0, 1}"
    ),
    "shard_map that joins otherwise": (
        mapped(lambda x: x * 2, P("i", "j"), P("j", "i")), (numbers(4, 4),), "[(0, 1)], [(0, 1)], reduced={}, whole={0, 1}"
    ),
    "shard_map that sums in a call": (
        mapped(lambda x: phalanx.jit(lambda x: lax.psum(x.sum(0), "i"))(x), P("i", "j"), P("j")), (numbers(4, 8),),
        "[(0, 1)], [(1,)], reduced={}, whole={0}",
    ),
    "custom_linear_solve": (
        lambda a, c, b: lax.custom_linear_solve(lambda x: a * x, b, lambda matvec, b: b / c), (X[0], X[0], X[0]),
        "[(0,), (0,), (0,)], [(0,)], reduced={}, whole=set()",
    ),
    "linear_call": (
        lambda r, x: linear_call(lambda r, x: x * r, lambda r, c: c * r, r, x), (X[0], X[0]),
        "[(0,), (0,)], [(0,)], reduced={}, whole=set()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_shards_along_a_factor_of_a_jaxpr_make_the_whole_result(name):
    fun, args, wanted = CALLS[name]
    roles = laws.check_program_sharding_rule(fun, args)
    assert str(roles) == f"ShardingRule({wanted})"


def test_every_call_like_primitive_has_a_case():
    holders = {n for n, p in registry.items() if p.call_like and type(p).__module__.startswith("phalanx.")}
    # Known by its transpose only; takes its roles from its reduction, not its program.
    assert holders - {"custom_linear", "reduce"} <= set(CALLS)
