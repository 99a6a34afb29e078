"""Resharding by compiled programs: any sharding to any other of the same devices, within the memory of one part more."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.meshes import auto_mesh
from tests.strategies import specs

import phalanx
import phalanx.numpy as jnp
from phalanx import grad, jit, lax
from phalanx.core.aval import ShapedArray
from phalanx.core.trace import trace_to_jaxpr
from phalanx.engine import compiler
from phalanx.runtime import compiled_program
from phalanx.runtime.array import ArrayType
from phalanx.runtime.reshard_lowering import SLICED_FROM
from phalanx.sharding import AxisType, Mesh, NamedSharding, P, make_mesh
from phalanx.sharding.reshard_plan import plan_reshard
from phalanx.spmd import array_resharding
from phalanx.spmd.communication import list_collectives
from phalanx.spmd.device_put import device_put
from phalanx.testing import collectives

pytestmark = pytest.mark.lengthy

SIZES = [(8,), (4, 2), (2, 4), (2, 2, 2), (1, 4, 2), (2, 3), (3, 2), (6,), (2,), (1, 1)]


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


@st.composite
def ends(draw, ndim=3):
    """Two shardings: over one mesh, or over two of the same devices in different orders and shapes."""
    sizes = draw(st.sampled_from(SIZES))
    mesh = other = make_mesh(sizes, tuple("abc"[: len(sizes)]))
    if draw(st.booleans()):
        order = draw(st.permutations(mesh.flat_devices))
        shape = draw(st.sampled_from([s for s in SIZES if math.prod(s) == mesh.size]))
        other = Mesh(np.array(order, dtype=object).reshape(shape), tuple("pqr"[: len(shape)]))
    return tuple(NamedSharding(m, draw(specs(m, ndim))) for m in (mesh, other))


def is_one_order(case):
    return case[0].mesh.flat_devices == case[1].mesh.flat_devices


def compiled(held, wanted, shape):
    aval = ShapedArray(shape, np.dtype(np.float32))
    return array_resharding.compile_exchange([ArrayType(aval, held, True)], [ArrayType(aval, wanted, True)], [False])


def is_placed(x, value, sharding):
    places = sharding.devices_indices_map(value.shape)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), value[places[shard.device]])
    return x.sharding is sharding


@settings(max_examples=20, deadline=None)
@given(ends())
def test_a_compiled_reshard_needs_memory_for_one_additional_shard(case):
    """Temporary memory of the program that would run stays within the larger of the two parts; values arrive."""
    held, wanted = case
    value = np.arange(48 * 24 * 48, dtype=np.float32).reshape(48, 24, 48)
    x = device_put(value, held)
    (moved,) = array_resharding._exchange([x], [ArrayType(x.aval, wanted, True)], [False])
    assert is_placed(moved, value, wanted) and is_placed(x, value, held)
    if held.mesh.size == 1:
        return
    (program,) = [
        array_resharding._programs.get(key)
        for key in array_resharding._programs
        if key[0] == (x._type,) and key[1][0].sharding is wanted
    ]
    part = max(math.prod(s.shard_shape(value.shape)) * 4 for s in case)
    assert compiler.memory_stats(program.executable).temp_size_in_bytes <= part + 4096


@settings(max_examples=100, deadline=None)
@given(ends())
def test_each_step_of_a_plan_is_one_collective_without_larger_shards(case):
    """Each stop cuts, carries minor axes to another dimension, permutes parts, or gathers; no part outgrows the ends."""
    held, wanted = case
    stops = plan_reshard(*(s.tiling(3) for s in case), held.mesh.axis_sizes).tilings if is_one_order(case) else ()
    assert max((math.prod(t.parts) for t in stops), default=0) <= 8
    fewest = min(math.prod(s.tiling(3).parts) for s in case)
    for before, after in itertools.pairwise(stops):
        parts = [t.parts for t in (before, after)]
        assert math.prod(before.parts) >= fewest
        grown = [b % a == 0 for a, b in zip(*parts, strict=True)]
        shrunk = [a % b == 0 for a, b in zip(*parts, strict=True)]
        assert all(g or s for g, s in zip(grown, shrunk, strict=True))
        if all(grown):  # each device has already what it keeps, or all get as much from another
            ratio = np.array(parts[1]) // np.array(parts[0])
            assert parts[0] == parts[1] or np.array_equal(after.coordinates // ratio, before.coordinates)
        elif not all(shrunk):  # an all-to-all
            assert math.prod(parts[0]) == math.prod(parts[1])
            assert sum(a != b for a, b in zip(*parts, strict=True)) == 2


def kinds(mesh, before, after, shape=(64, 64)):
    found = list_collectives(compiled(NamedSharding(mesh, before), NamedSharding(mesh, after), shape))
    return [(c.kind, c.bytes * math.prod(c.loops)) for c in found]


def test_a_reshard_uses_the_cheapest_collectives(mesh):
    part = 64 * 64 * 4 // 8
    assert kinds(mesh, P(), P("x", "y")) == []
    assert kinds(mesh, P("x"), P("x", "y")) == []
    assert kinds(mesh, P("x", "y"), P("x")) == [("all-gather", 2 * part)]
    assert kinds(mesh, P("x"), P(None, "x")) == [("all-to-all", 2 * part)]
    assert kinds(mesh, P(("x", "y")), P(("y", "x"))) == [("collective-permute", part)]
    assert kinds(mesh, P("x", "y"), P("y", "x")) == [("all-to-all", part), ("collective-permute", part)]


def test_a_three_dimensional_reshard_builds_no_replica(mesh):
    """P('y', None, 'x') to P(None, ('x', 'y'), None): XLA by itself gathers the whole array first."""
    shape, ends = (32, 32, 32), (P("y", None, "x"), P(None, ("x", "y"), None))
    whole = 32**3 * 4
    found = kinds(mesh, *ends, shape)
    assert {kind for kind, _ in found} <= {"all-to-all", "collective-permute"}
    assert all(size == whole // 8 for _, size in found)
    value = np.arange(32**3, dtype=np.float32).reshape(shape)
    x, target = device_put(value, NamedSharding(mesh, ends[0])), NamedSharding(mesh, ends[1])
    (moved,) = array_resharding._exchange([x], [ArrayType(x.aval, target, True)], [False])
    assert is_placed(moved, value, target)


UNEVEN_MOVES = [
    (P(("x", "y")), P(None, "x")),
    (P(("y", "x")), P(None, "y")),
    (P(None, ("x", "y")), P("x")),
    (P(None, "y"), P(("x", "y"))),
    (P("x", "y"), P(("y", "x"))),
]


@pytest.mark.parametrize(("before", "after"), UNEVEN_MOVES, ids=str)
@pytest.mark.parametrize("order", [1, -1], ids=["in one order", "backwards"])
def test_resharding_uneven_parts_sends_no_more_than_a_part(mesh, before, after, order):
    """XLA by itself gathers the whole array where it is padded or cut."""
    shape, other = (201, 203), Mesh(mesh.devices[::order], mesh.axis_names)
    held, wanted = NamedSharding(mesh, before), NamedSharding(other, after)
    part = max(math.prod(s.shard_shape(s.padded_shape(shape))) * 4 for s in (held, wanted))
    found = list_collectives(compiled(held, wanted, shape))
    assert found and all(c.bytes <= part * 1.05 for c in found), (part, found)  # padded for both ends


@pytest.mark.parametrize(("before", "after"), UNEVEN_MOVES, ids=str)
def test_uneven_values_of_inferred_sharding_are_resharded_as_arguments_are(before, after):
    mesh, value = auto_mesh((4, 2), "xy"), np.arange(201 * 203, dtype=np.float32).reshape(201, 203)
    held, wanted = NamedSharding(mesh, before), NamedSharding(mesh, after)
    x = device_put(value, held)
    program = jit(lambda x: lax.with_sharding_constraint(x + 1, wanted) * 2).lower(x).compile()
    np.testing.assert_array_equal(program(x), (value + 1) * 2)
    part = max(math.prod(s.shard_shape(s.padded_shape(value.shape))) * 4 for s in (held, wanted))
    found = collectives(program)
    assert found and all(c.bytes <= part * 1.05 for c in found), (part, found)


@pytest.mark.parametrize("shape", [(32, 32), (8, 12), (8, 8), (4, 2), (32, 8, 3), (24, 8), (8, 8, 3)], ids=str)
def test_resharding_in_slices_keeps_the_values(mesh, shape):
    value = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    for before, after in [(P("x"), P(None, "y")), (P("x", "y"), P("x")), (P("y"), P("x", "y")), (P("x", "y"), P("y"))]:
        if any(n % 4 for n in shape[:2]) and before == P("x"):
            continue
        held, wanted = NamedSharding(mesh, before), NamedSharding(mesh, after)
        program = compiled(held, wanted, shape)
        (out,) = program([device_put(value, held)._buffer])
        np.testing.assert_array_equal(np.asarray(out), value)


# --- inside programs ---


@pytest.mark.one_is_quick(group=lambda kind: "a kind of axis")
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_values_of_known_sharding_are_resharded_without_replicas(kind):
    """From an argument to a constraint or a result, elementwise operations between them included."""
    mesh = make_mesh((4, 2), ("x", "y"), kind)
    there, whole = NamedSharding(mesh, P(None, ("x", "y"), None)), 32**3 * 4
    place = (
        (lambda x: lax.with_sharding_constraint(x, there))
        if kind is AxisType.Auto
        else (lambda x: phalanx.reshard(x, there))
    )
    x = device_put(np.arange(32**3, dtype=np.float32).reshape(32, 32, 32), NamedSharding(mesh, P("y", None, "x")))
    for f in [
        jit(lambda x: x, out_shardings=there),
        jit(lambda x: jnp.tanh(x * 2) + x, out_shardings=there),
        jit(lambda x: jnp.cumsum(place(x + 1), axis=0)),
        jit(lambda x: jit(jnp.sin)(place(x))),
        jit(grad(lambda x: jnp.sum(place(x) ** 2)), in_shardings=x.sharding),
    ]:
        found = collectives(f, x)
        assert all(c.bytes < whole for c in found), found
        np.testing.assert_allclose(f(x), f(device_put(np.asarray(x), x.sharding)), rtol=1e-6)
    assert set(collectives(jit(lambda x: x, out_shardings=there), x).kinds) <= {"all-to-all", "collective-permute"}


@st.composite
def pairs(draw, kind, ndim=3):
    """Two shardings over one mesh of eight devices."""
    sizes = draw(st.sampled_from([(8,), (4, 2), (2, 4), (2, 2, 2)]))
    mesh = make_mesh(sizes, tuple("abc"[: len(sizes)]), kind)
    return tuple(NamedSharding(mesh, draw(specs(mesh, ndim))) for _ in range(2))


CUBE = (64, 64, 64)
MOVES = {
    "a result": (AxisType.Auto, lambda s, t, **how: jit(lambda x: x, in_shardings=s, out_shardings=t, **how)),
    "a constraint": (
        AxisType.Auto,
        lambda s, t, **how: jit(lambda x: lax.with_sharding_constraint(x, t), in_shardings=s, **how),
    ),
    "an operand": (
        AxisType.Auto,
        lambda s, t, **how: jit(lambda x: abs(lax.with_sharding_constraint(x, t)), in_shardings=s, **how),
    ),
    "a checkpoint": (
        AxisType.Auto,
        lambda s, t, **how: jit(
            phalanx.checkpoint(lambda x: abs(lax.with_sharding_constraint(x, t))), in_shardings=s, **how
        ),
    ),
    "reshard": (AxisType.Explicit, lambda s, t, **how: jit(lambda x: phalanx.reshard(x, t), in_shardings=s, **how)),
}


def excess(program, held, wanted, shape=CUBE, itemsize=4):
    """Bytes of a device's memory beyond its parts of both ends and the larger part once more."""
    memory = compiler.memory_stats(program.executable)
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    parts = [math.prod(s.shard_shape(shape)) * itemsize for s in (held, wanted)]
    return peak - memory.alias_size_in_bytes - sum(parts) - max(parts)


@pytest.mark.parametrize("way", MOVES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_reshard_inside_a_program_needs_memory_for_one_additional_shard(way, data):
    kind, make = MOVES[way]
    held, wanted = data.draw(pairs(kind))
    value = np.arange(math.prod(CUBE), dtype=np.float32).reshape(CUBE)
    compiled = make(held, wanted).lower(device_put(value, held)).compile()
    assert excess(compiled.program, held, wanted) <= 4096
    moved = compiled(device_put(value, held))
    assert moved.sharding.is_equivalent_to(wanted, 3) and is_placed(moved, value, moved.sharding)


@settings(max_examples=12, deadline=None)
@given(pairs(AxisType.Auto))
def test_transposed_batched_and_donated_reshards_need_no_more_memory(case):
    held, wanted = case
    x = phalanx.ShapeDtypeStruct(CUBE, np.float32, sharding=held)
    back = jit(
        lambda y_bar: phalanx.linear_transpose(lambda x: lax.with_sharding_constraint(x, wanted), x)(y_bar)[0],
        in_shardings=held,
    )
    assert excess(back.lower(x).compile().program, held, wanted) <= 4096
    given_up = jit(lambda x: lax.with_sharding_constraint(x, wanted), in_shardings=held, donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It may be that nothing can take the buffers.
        assert excess(given_up.lower(x).compile().program, held, wanted) <= 4096
    stack = (3, 32, 64, 64)
    many = [s.with_dim(0) for s in case]
    mapped = phalanx.vmap(lambda x: lax.with_sharding_constraint(x, wanted))
    program = jit(mapped, in_shardings=many[0], out_shardings=many[1]).lower(
        phalanx.ShapeDtypeStruct(stack, np.float32)
    )
    assert excess(program.compile().program, *many, stack) <= 4096


def test_resharding_in_slices_keeps_the_memory_bound(mesh):
    """At once, XLA takes a part to send and one that arrives, and has both ends still."""
    held, wanted = (NamedSharding(mesh, P(*spec)) for spec in [("x",), (None, "x")])
    program = trace_to_jaxpr(lambda x: [x], [ShapedArray(CUBE, np.dtype(np.float32))], "move")
    at_once, sliced = (
        compiled_program.lower(program, mesh.flat_devices, [held], [wanted], slice_threshold=least).compile()
        for least in (2**40, SLICED_FROM)
    )
    part = math.prod(CUBE) * 4 // 4
    assert part // 2 < excess(at_once, held, wanted) < part and excess(sliced, held, wanted) <= 4096
    assert [(c.kind, c.bytes, c.loops) for c in list_collectives(at_once)] == [("all-to-all", part, ())]
    assert [(c.kind, c.bytes, c.loops) for c in list_collectives(sliced)] == [("all-to-all", part // 2, (2,))]


def test_only_large_arguments_are_resharded_in_slices(mesh):
    held, wanted = (
        NamedSharding(mesh.with_axis_types(dict.fromkeys("xy", AxisType.Auto)), P(*spec))
        for spec in [("x",), (None, "x")]
    )
    move = lambda x: lax.with_sharding_constraint(x, wanted)
    for f, size, loops in [
        (move, 16, ()),
        (lambda x: move(jnp.sin(x)), 128, ()),
        (lambda x: jnp.sin(move(x)), 128, (2,)),
        (phalanx.checkpoint(lambda x: move(x) + 1), 128, (2,)),
    ]:
        found = collectives(jit(f, in_shardings=held), phalanx.ShapeDtypeStruct((size,) * 3, np.float32))
        assert [(c.kind, c.loops) for c in found] == [("all-to-all", loops)]


def test_a_sliced_reshard_has_the_source_line_of_the_user(mesh):
    auto = mesh.with_axis_types(dict.fromkeys("xy", AxisType.Auto))
    held, wanted = NamedSharding(auto, P("x")), NamedSharding(auto, P(None, "x"))

    def f(x):
        return lax.with_sharding_constraint(x, wanted)

    (found,) = collectives(jit(f, in_shardings=held), phalanx.ShapeDtypeStruct(CUBE, np.float32))
    line = f.__code__.co_firstlineno + 1
    assert str(found) == (
        f"asked all-to-all of {64**3 * 4 // 4 // 2:,} bytes over 'x', in a loop of 2, at {__file__}:{line}"
    )


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "complex64", "int4", "float8_e4m3fn", "uint16"])
def test_every_dtype_can_be_resharded_in_slices(mesh, dtype):
    held, wanted = (NamedSharding(mesh, P(*spec)) for spec in [("x",), (None, "y")])
    value = np.arange(12 * 8 * 3).reshape(12, 8, 3).astype(jnp.dtype(dtype))
    x = device_put(value, held)
    (moved,) = array_resharding._exchange([x], [ArrayType(x.aval, wanted, True)], [False])
    assert is_placed(moved, value, wanted)


def test_nested_calls_reshard_without_replicas(mesh):
    """What lies known goes into inner functions and comes out of them, whichever of them says where it goes."""
    mesh = mesh.with_axis_types(dict.fromkeys("xy", AxisType.Auto))
    held, there = NamedSharding(mesh, P("y", None, "x")), NamedSharding(mesh, P(None, ("x", "y")))
    x = device_put(np.arange(64**3, dtype=np.float32).reshape(CUBE), held)
    place = lambda x: lax.with_sharding_constraint(x, there)
    for f in [jit(place), jit(lambda x: x, out_shardings=there), jit(lambda x: x, in_shardings=there)]:
        compiled = jit(lambda x, f=f: f(x)).lower(x).compile()
        assert excess(compiled.program, held, there) <= 4096
        np.testing.assert_array_equal(compiled(x), x)
    found = collectives(jit(lambda x: place(jit(jnp.sin, out_shardings=held)(x)) + jit(place)(2 * x)), x)
    assert set(found.kinds) == {"all-to-all"} and max(c.bytes for c in found) == 64**3 * 4 // 8
    turned = jit(lambda x: place(jnp.flip(x, 1).transpose(2, 1, 0)[..., None].sum(-1)))
    found = collectives(turned, x)
    assert "all-gather" not in found.kinds and max(c.bytes for c in found) == 64**3 * 4 // 8
    inner = jit(place)
    text = jit(lambda x: inner(x + 1) + inner(x + 2)).lower(x).as_text()
    assert text.count("func.func private") == 1  # both come from the same sharding


@settings(max_examples=25, deadline=None)
@given(ends())
def test_a_compiled_identity_reaches_any_sharding(case):
    held, wanted = case
    value = np.arange(48 * 24 * 48, dtype=np.float32).reshape(48, 24, 48)
    f = jit(lambda x: x, in_shardings=held, out_shardings=wanted)
    if held.mesh.flat_devices == wanted.mesh.flat_devices and held.mesh.size > 1:
        assert is_placed(f(value), value, wanted)
        larger = max(math.prod(s.shard_shape(value.shape)) * 4 for s in case)
        assert all(c.bytes <= larger for c in collectives(f, value))
    else:
        np.testing.assert_array_equal(f(value), value)
