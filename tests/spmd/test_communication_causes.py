"""Causes of collectives, and the option `communication` that refuses those that nobody asked for."""

from __future__ import annotations

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn
from phalanx.errors import ArgumentError, ShardingError
from phalanx.sharding import NamedSharding, P, communication, make_mesh, set_mesh
from phalanx.spmd.communication_causes import CAUSES, primitive_names
from phalanx.testing import CommunicationError, assert_collectives, collectives

SUM, GATHER, EXCHANGE = "implied all-reduce", "asked all-gather", "asked all-to-all"
PARTIAL = "implied all-gather"
UNASKED = "unasked"

GRID, ROW = auto_mesh((4, 2), "xy"), auto_mesh((8,), "x")


def on(mesh, *spec, shape=(8, 8), dtype=np.float32):
    return phalanx.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def constrain(x, mesh, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def per_shard(f, in_spec, out_spec):
    return phalanx.shard_map(f, mesh=GRID, in_specs=in_spec, out_specs=out_spec, check_vma=False)


def mean_square(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def in_scopes(x, w):
    with phalanx.named_scope("block:0"):
        y = x.T @ x
    with phalanx.named_scope("block:1"):
        return y, jnp.sum(jnp.sin(x @ w)), x.sum(0)


def sum_and_max(x):
    return lax.reduce((x, x), (0.0, -np.inf), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (0,))


def smallest_and_its_partner(x):
    pick = lambda a, b: tuple(jnp.where(a[0] < b[0], u, v) for u, v in zip(a, b, strict=True))
    return lax.reduce((x, 2 * x), (np.inf, np.inf), pick, (0,))


def call_host(x):
    return phalanx.pure_callback(np.negative, phalanx.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


def chain(x, w):
    return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]


ROWS, COLUMNS, WHOLE = on(GRID, "x"), on(GRID, None, "x"), on(GRID)
INDICES = on(GRID, "x", shape=(8,), dtype=np.int32)

# A name, a function, its arguments, the causes and kinds of its collectives, and the specs of its results.
LOCAL = [
    ("elementwise", jnp.tanh, [ROWS]),
    ("sum of a whole dimension", lambda x: x.sum(1), [ROWS]),
    ("rows times a whole matrix", jnp.matmul, [ROWS, WHOLE]),
    ("one operand whole", jnp.add, [ROWS, WHOLE]),
    ("sort of whole rows", lambda x: jnp.sort(x, 1), [ROWS]),
    ("rows taken at split indices", lambda x, i: x[i], [WHOLE, INDICES]),
    ("reshape of a major dimension", lambda x: x.reshape(64), [ROWS]),
    ("loop over whole matrices", chain, [ROWS, on(GRID, shape=(3, 8, 8))]),
    ("slicing to a constraint", lambda x: constrain(x + 1, GRID, "x"), [WHOLE]),
]
SUMS = [
    ("sum", lambda x: x.sum(0), [ROWS], [SUM]),
    ("mean of all", jnp.mean, [on(GRID, "x", "y")], [SUM, SUM]),
    ("contraction", jnp.matmul, [COLUMNS, ROWS], [SUM]),
    ("softmax", lambda x: nn.softmax(x, 0), [ROWS], [SUM, SUM]),
    ("logsumexp", lambda x: nn.logsumexp(x, 0), [ROWS], [SUM, SUM]),
    ("any", lambda x: jnp.any(x > 1, 0), [ROWS], [SUM]),
    ("gradient of a data-parallel loss", phalanx.grad(mean_square), [WHOLE, ROWS], [SUM]),
    ("loop of contractions", chain, [COLUMNS, on(GRID, None, "x", shape=(3, 8, 8))], [SUM]),
    ("scattered additions", lambda x, i, u: x.at[i].add(u), [WHOLE, INDICES, ROWS], [SUM]),
    ("sums in scopes with colons", in_scopes, [ROWS, WHOLE], [SUM]),
    ("argmax", lambda x: jnp.argmax(x, 0), [ROWS], [PARTIAL, PARTIAL]),
    ("argmin of all", jnp.argmin, [ROWS], [PARTIAL, PARTIAL]),
    ("reduce by add", lambda x: lax.reduce(x, 0.0, lax.add, (0,)), [ROWS], [SUM]),
    ("reduce from a traced value", lambda x, i: lax.reduce(x, i, lax.max, (0,)), [ROWS, on(GRID, shape=())], [SUM]),
    ("reduce of pairs", sum_and_max, [ROWS], [SUM, SUM]),
    ("reduce of coupled pairs", smallest_and_its_partner, [ROWS], [PARTIAL, PARTIAL]),
    ("batched expm", phalanx.scipy.linalg.expm, [on(GRID, "x", shape=(8, 4, 4))], [SUM]),
    ("sum, then constrained", lambda x, w: constrain(x @ w, GRID, "x"), [COLUMNS, ROWS], [SUM]),
]
REQUESTS = [
    ("constraint on an argument", lambda x: constrain(x, GRID) * 2, [ROWS], [GATHER]),
    ("constraint that gathers", lambda x: constrain(jnp.tanh(x), GRID) * 2, [ROWS], [GATHER]),
    ("constraint that exchanges", lambda x: constrain(jnp.tanh(x), GRID, None, "x") * 2, [ROWS], [EXCHANGE]),
    ("constraint on one axis", lambda x: constrain(jnp.tanh(x), ROW) * 2, [on(ROW, "x")], [GATHER]),
    ("constraint behind a sum", lambda x: constrain(x.T.sum(0)[:, None] * x, GRID, None, "x"), [ROWS], [EXCHANGE]),
    ("gathered parameters", lambda x, w: x @ constrain(w, GRID), [ROWS, ROWS], [GATHER]),
    ("device_put", lambda x: phalanx.device_put(jnp.tanh(x), NamedSharding(GRID, P())) * 2, [ROWS], [GATHER]),
    ("psum", per_shard(lambda x: lax.psum(x, "x"), P("x"), P()), [ROWS], ["asked all-reduce"]),
    ("all_gather", per_shard(lambda x: lax.all_gather(x, "x", tiled=True), P("x"), P()), [ROWS], [GATHER]),
    (
        "ppermute",
        per_shard(lambda x: lax.ppermute(x, "x", [(0, 1)]), P("x"), P("x")),
        [ROWS],
        ["asked collective-permute"],
    ),
    ("host call", lambda x: call_host(constrain(x, GRID)), [ROWS], [GATHER, "asked all-reduce"]),
    ("in_specs", per_shard(lambda x: 2 * x, P(None, "x"), P(None, "x")), [ROWS], [EXCHANGE]),
    ("in_specs of a result", lambda x: per_shard(lambda x: 2 * x, P(), P())(jnp.tanh(x)), [ROWS], [GATHER]),
]
# Of these only the causes are compared, because versions of XLA choose other collectives.
CONFLICTS = [
    ("rows of both operands", jnp.matmul, [ROWS, ROWS]),
    ("one side of a contraction", jnp.matmul, [WHOLE, ROWS]),
    ("different dimensions", jnp.add, [ROWS, COLUMNS]),
    ("reverse", lambda x: x[::-1], [ROWS]),
    ("reverse behind a constraint", lambda x: constrain(jnp.tanh(x), GRID, "x")[::-1], [ROWS]),
    ("reverse behind a shard_map", lambda x: per_shard(lambda x: 2 * x, P("x"), P("x"))(x)[::-1], [ROWS]),
    ("roll", lambda x: jnp.roll(x, 1, 0), [ROWS]),
    ("concatenate", lambda x: jnp.concatenate([x, x]), [ROWS]),
    ("sort", lambda x: jnp.sort(x, 0), [ROWS]),
    ("reduce by another function", lambda x: lax.reduce(x, 0.0, lambda a, b: a + 2 * b, (0,)), [ROWS]),
    ("loop over split rows", lambda x: lax.map(jnp.sin, x), [ROWS]),
    ("cumsum", lambda x: jnp.cumsum(x, 0), [ROWS]),
    ("one row", lambda x: x[0], [ROWS]),
    ("rows of a split table", lambda x, i: x[i], [ROWS, on(GRID, shape=(8,), dtype=np.int32)]),
    ("merged minor dimension", lambda x: x.reshape(64), [COLUMNS]),
]


@pytest.mark.parametrize(("f", "args"), [pytest.param(*row[1:], id=row[0]) for row in LOCAL])
def test_parallel_operations_are_allowed_in_every_mode(f, args):
    assert collectives(phalanx.jit(f, communication="asked"), *args) == ()


@pytest.mark.parametrize(("f", "args", "expected"), [pytest.param(*row[1:], id=row[0]) for row in (*SUMS, *REQUESTS)])
def test_sums_are_implied_and_requests_are_asked(f, args, expected):
    # Programs are lowered with names for requests only if communication is restricted; the report is the same.
    for mode in ("implied", "any"):
        found = collectives(phalanx.jit(f, communication=mode), *args)
        assert [f"{c.cause} {c.kind}" for c in found] == expected


@pytest.mark.parametrize(("f", "args"), [pytest.param(*row[1:], id=row[0]) for row in CONFLICTS])
def test_what_conflicting_shardings_cause_is_unasked(f, args):
    found = collectives(f, *args)
    assert {c.cause for c in found} == {UNASKED}
    with pytest.raises(ShardingError) as error:
        phalanx.jit(f, communication="implied").lower(*args).compile()
    assert {word for word in error.value.got.split() if word in CAUSES} == {UNASKED}
    assert f"got {len(found)} other" in str(error.value)


def test_declared_results_are_asked_even_where_xla_reshards_before_them():
    for mesh, mode in ((GRID, "any"), (GRID, "asked"), (ROW, "any"), (ROW, "asked")):
        there = NamedSharding(mesh, P(None, "x"))
        f = phalanx.jit(lambda x: jnp.tanh(x) * 2, out_shardings=there, communication=mode)
        assert [f"{c.cause} {c.kind}" for c in collectives(f, on(mesh, "x"))] == [EXCHANGE]


def multiply(x, w):
    return jnp.tanh(x @ w)


LINE = f"{__file__}:{multiply.__code__.co_firstlineno + 1}"


def test_the_error_names_line_bytes_and_shardings_and_its_fix_works():
    f = phalanx.jit(multiply, communication="implied")
    with pytest.raises(ShardingError) as error:
        f.lower(ROWS, on(GRID, "x", shape=(8, 4))).compile()
    assert str(error.value) == (
        "communication of multiply: expected only collectives that the program asks for, and sums over split "
        "dimensions, got 1 other, which send 128 bytes in one run:\n"
        f"    unasked all-gather of 128 bytes over 'x', at {LINE}: operand 1, f32[8,4] from argument w, is split as "
        "P('x',), but dot_general needs P().\n"
        f"  Fix: pass operand 1 of dot_general, f32[8,4], at {LINE} through lax.with_sharding_constraint(x, "
        'NamedSharding(mesh, P())); or allow them with communication="any".'
    )
    fixed = phalanx.jit(lambda x, w: multiply(x, constrain(w, GRID)), communication="implied")
    assert [c.cause for c in collectives(fixed, ROWS, on(GRID, "x", shape=(8, 4)))] == ["asked"]


def test_in_the_mode_asked_sums_are_refused_too():
    with pytest.raises(ShardingError, match=r"only collectives that the program asks for, got 1 other") as error:
        phalanx.jit(lambda x: x.sum(0), communication="asked").lower(ROWS).compile()
    assert error.value.fix.endswith(
        'through lax.with_sharding_constraint(x, NamedSharding(mesh, P())); or allow them with communication="implied"'
    )
    f = phalanx.jit(lambda x: constrain(x, GRID).sum(0), communication="asked")
    assert [c.cause for c in collectives(f, ROWS)] == ["asked"]


def test_the_mode_is_an_option_of_jit_a_context_and_a_configuration():
    x = phalanx.device_put(np.ones((8, 8), np.float32), NamedSharding(GRID, P("x")))
    reverse = phalanx.jit(lambda x: x[::-1])
    before = reverse(x)  # a program that is compiled without the mode
    for f in (reverse, lambda x: jnp.flip(x, 0)):  # and an eager operation
        with communication("implied"), pytest.raises(ShardingError, match="unasked collective-permute"):
            f(x)
    with communication("implied"):
        moved = phalanx.device_put(x, NamedSharding(GRID, P(None, "x")))
        assert float(jnp.sum(moved)) == 64
        with communication("any"):
            assert (reverse(x) == before).all()
        any_of = phalanx.jit(lambda x: x[::-1], communication="any")
        assert (np.asarray(any_of(x)) == np.asarray(before)).all()
    phalanx.config.update("communication", "asked")
    try:
        with pytest.raises(ShardingError, match="communication of"):
            phalanx.jit(lambda x: jnp.sum(x, 0))(x)
    finally:
        phalanx.config.update("communication", "any")
    for refused in (lambda: communication("none"), lambda: phalanx.jit(jnp.sin, communication="none")):
        with pytest.raises(ArgumentError, match="option communication: expected one of 'any', 'implied', 'asked'"):
            refused()


def last_first(x):
    return x[::-1]


def test_over_explicit_axes_the_error_is_raised_while_tracing():
    line = f"{__file__}:{last_first.__code__.co_firstlineno + 1}"
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        x = phalanx.device_put(np.ones((8, 8), np.float32), P("x"))
        with pytest.raises(ShardingError) as error:
            phalanx.jit(last_first, communication="implied").trace(x)
        assert str(error.value) == (
            "communication of last_first: expected only collectives that the program asks for, and sums over split "
            f"dimensions, got 1 operand to reshard:\n    rev at {line}: operand 0, f32[8,8], is split as P('x',), but "
            f"rev needs P().\n  Fix: pass operand 0 of rev, f32[8,8], at {line} through phalanx.reshard(x, P()); or "
            'allow them with communication="any".'
        )
        fixed = phalanx.jit(lambda x: last_first(phalanx.reshard(x, P())), communication="implied")
        assert [c.cause for c in collectives(fixed, x)] == ["asked"]
        total = lambda x: x.sum(0)
        assert [c.cause for c in collectives(phalanx.jit(total, communication="implied"), x)] == ["implied"]
        with pytest.raises(ShardingError, match=r"reduce_sum at .*is split as P\('x',\)"):
            phalanx.jit(total, communication="asked").trace(x)


def test_collectives_are_allowed_by_their_causes():
    x = phalanx.device_put(np.ones((8, 8), np.float32), NamedSharding(GRID, P("x")))
    assert_collectives(lambda x: x.sum(0), x, allowed=("asked", "implied"), required=("implied",))
    assert_collectives(lambda x: x.sum(0), x, allowed={"implied": "x"})
    with pytest.raises(CommunicationError, match="got unasked collective-permute"):
        assert_collectives(lambda x: x[::-1], x, allowed=("asked", "implied"))
    with pytest.raises(CommunicationError, match="got implied all-reduce"):
        assert_collectives(lambda x: x.sum(0), x, allowed={"implied": "y"})


def test_colons_in_the_names_of_scopes_do_not_separate_primitives():
    assert primitive_names("jit(f)/block:0/dot_general") == ["dot_general"]
    combined = "jit(f)/(block:0/dot_general:transpose(jvp(block:1))/scatter_add:reduce_sum)"
    assert primitive_names(combined) == ["dot_general", "scatter_add", "reduce_sum"]


def test_a_program_is_checked_where_it_is_compiled():
    lowered = phalanx.jit(lambda x: x[::-1]).lower(ROWS)
    with communication("implied"), pytest.raises(ShardingError, match="unasked collective-permute"):
        lowered.compile()
    lowered.compile()
    with communication("implied"):
        phalanx.jit(lambda x: x[::-1], communication="any").lower(ROWS).compile()
        lowered = phalanx.jit(lambda x: x[::-1]).lower(ROWS)
    with pytest.raises(ShardingError, match="unasked collective-permute"):
        lowered.compile()


def test_the_option_applies_to_programs_and_not_to_the_calls_in_them():
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        x = phalanx.device_put(np.ones((8, 8), np.float32), P("x"))
        inner = phalanx.jit(lambda x: x.sum(0), communication="asked")
        assert float(phalanx.jit(lambda x: inner(x).max())(x)) == 8
        with pytest.raises(ShardingError, match='communication="implied"'):
            inner(x)
        with pytest.raises(ShardingError, match=r"reduce_sum at .*is split as P\('x',\)"):
            phalanx.jit(inner, communication="asked")(x)
    x = phalanx.device_put(np.ones((8, 8), np.float32), NamedSharding(GRID, P("x")))
    reverse = phalanx.jit(lambda x: x[::-1], communication="implied")
    with pytest.raises(ShardingError, match="unasked"):
        phalanx.vmap(reverse, in_axes=1)(x)  # a program of its own, since nothing compiles the call with others


def test_constants_of_conditions_and_of_bodies_of_loops_are_told_apart():
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        c, limit = (phalanx.device_put(np.ones((8, 8), np.float32), P(None, "y")) for _ in range(2))
        w = phalanx.device_put(np.ones((8, 8), np.float32), P("x"))
        step = lambda c: (c[0] * 2, c[1] + w)
        f = lambda *c: lax.while_loop(lambda c: jnp.sum(c[0] * limit) < 99, step, c)
        assert {c.cause for c in collectives(phalanx.jit(f, communication="implied"), c, w)} == {"implied"}


def test_a_loop_over_slices_needs_whole_operands():
    f = lambda x: lax.map(jnp.sin, x)
    with pytest.raises(ShardingError, match=r"operand 0, f32\[8,8\] from argument x, is split as P\('x',\)") as error:
        phalanx.jit(f, communication="asked").lower(ROWS).compile()
    assert "pass operand 0 of scan" in error.value.fix
    fixed = phalanx.jit(lambda x: f(constrain(x, GRID)), communication="asked")
    assert [c.cause for c in collectives(fixed, ROWS)] == ["asked"]


def test_the_error_of_an_eager_index_names_what_the_user_wrote():
    x = phalanx.device_put(np.ones((8, 8), np.float32), NamedSharding(GRID, P("x")))
    with communication("implied"), pytest.raises(ShardingError, match=r"^communication of getitem: "):
        x[0]
