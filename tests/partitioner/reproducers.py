"""The smallest known programs that show each defect in `phalanx.partitioner.workarounds`.

A reproducer has the name of its entry. It passes where the result over several devices is that of one device, or where
no device communicates, and raises otherwise. Specs are written as tuples of axis names of a mesh over "x", "y" and "z".
"""

import functools

import numpy as np
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.sharding import NamedSharding, P
from phalanx.testing import assert_collectives, collectives


def assert_same_when_sharded(fun, sizes, in_specs, *args, constraints=None, out_specs=None):
    """Compare a function over a mesh with the same function on one device.

    Args:
      fun: the function.
      sizes: the sizes of the mesh axes "x", "y", "z".
      in_specs: a spec for each argument.
      *args: the arguments, as NumPy arrays.
      constraints: specs to which the arguments are constrained inside the function; None for none.
      out_specs: specs of the results; None leaves them to the partitioner.
    """
    mesh = auto_mesh(sizes, "xyz"[: len(sizes)])
    want = phalanx.jit(fun)(*args)
    place = lambda specs: None if specs is None else tuple([NamedSharding(mesh, P(*spec)) for spec in specs])
    constrain = lambda args: (
        args if constraints is None else map(lax.with_sharding_constraint, args, place(constraints))
    )
    sharded = phalanx.jit(
        lambda *args: fun(*constrain(args)), in_shardings=place(in_specs), out_shardings=place(out_specs)
    )
    for y, expected in zip(phalanx.tree.leaves(sharded(*args)), phalanx.tree.leaves(want), strict=True):
        assert len(y.devices()) == mesh.size
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(*shape, seed=0, below=4):
    return np.random.default_rng(seed).integers(0, below, shape).astype(np.int32)


def assert_local(fun, *shapes, spec=("x",), devices=2):
    """Assert that a function of arguments sharded by one spec over some devices does not communicate."""
    mesh = auto_mesh((devices,), ("x",))
    sharding = NamedSharding(mesh, P(*spec))
    assert_collectives(fun, *[phalanx.ShapeDtypeStruct(shape, np.float32, sharding=sharding) for shape in shapes])


# --- slices and padding ---


def dynamic_slice_start():
    take = lambda x, i: (lax.dynamic_slice(x, (i,), (4,)),)
    assert_same_when_sharded(take, (2,), [("x",), ()], numbers(8), np.int32(7), out_specs=[("x",)])


def dynamic_update_slice_start():
    write = lambda x, u, i: lax.dynamic_update_slice(x, u, (i,), allow_negative_indices=False)
    assert_same_when_sharded(write, (2,), [("x",), (), ()], numbers(4), numbers(1), np.int32(9))


def single_element_update():
    mesh = auto_mesh((2,), "x")
    replicated, sharded = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))

    def write(x, i, constrain):
        y = constrain(x)
        return y.at[i].set(7), y.at[i].add(7), lax.dynamic_update_slice(y, np.full(1, 7, np.float32), (i,))

    constrain = lambda x: lax.with_sharding_constraint(x, sharded)
    for size in (-8, -1, 0, 3, 4, 9):
        want = phalanx.jit(lambda x, i: write(x, i, lambda x: x))(numbers(8), np.int32(size))
        got = phalanx.jit(lambda x, i: write(x, i, constrain), in_shardings=(replicated, replicated))
        np.testing.assert_array_equal(np.stack(got(numbers(8), np.int32(size))), np.stack(want))


def interior_padding():
    pad = lambda x: (lax.pad(x, np.float32(7), ((3, 0, 1), (0, 0, 0))),)
    assert_same_when_sharded(pad, (8,), [()], numbers(3, 2), out_specs=[("x",)])


def negative_padding():
    pad = lambda w, z: lax.pad(w, np.float32(0), ((-2, 1, 0),)) + z[1:]
    assert_same_when_sharded(pad, (2,), [(), ("x",)], numbers(8), numbers(8))


# --- gather and scatter ---


def sharded_index_vectors():
    dims = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
    take = lambda x, i: lax.gather(x, i, dims, (1, 1))
    assert_same_when_sharded(take, (2, 2), [(None, "x"), (None, "y")], numbers(8, 8), integers(4, 2))


def uneven_scatter_updates():
    add = lambda x, i, u: jnp.asarray(x).at[i[::4]].add(u[:2])
    assert_same_when_sharded(add, (2, 4), [(), ("y",), ("x",)], numbers(4), integers(8, seed=2), numbers(8))


def uneven_scatter_batch():
    assert_local(phalanx.vmap(lambda x, u: x.at[u.astype("int32")].add(u)), (5, 4), (5, 2))


def batched_scatter_operand():
    add = lambda x, i, u: jnp.asarray(x).at[jnp.arange(4)[:, None], i].add(u)
    specs = [("x", "y"), ("y", "x"), ("y", "x")]
    assert_same_when_sharded(add, (4, 2), specs, numbers(4, 4), integers(4, 8, seed=1), numbers(4, 8))


# --- windows ---


def window_spatial_sharding():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (4, 4), (3, 1), [(2, 0), (2, 1)], (1, 2), (1, 2))
    assert_same_when_sharded(pool, (2, 2, 2), [(("x", "z"), "y")], numbers(4, 12))


def strided_dilated_windows():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (2,), (3,), [(2, 1)], (3,))
    assert_same_when_sharded(pool, (4,), [("x",)], numbers(4))


def variadic_windows():
    pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), [(1, 2)], (2,), (1,))
    tangent = lambda x, t: phalanx.jvp(pool, (x,), (t,))[1]
    assert_same_when_sharded(tangent, (4,), [("x",), ()], numbers(8), numbers(8, seed=1))


def window_padding():
    pool = lambda x: lax.reduce_window(x, np.float32(2), lax.add, (3,), (1,), [(1, 1)])
    assert_same_when_sharded(pool, (4,), [("x",)], numbers(8))
    pool = lambda x, start: lax.reduce_window(x, start, lambda a, b: 2 * a * b, (2,), (1,), "SAME")
    assert_same_when_sharded(pool, (4,), [("x",), ()], numbers(11), numbers())


def two_bit_integers():
    def reduce(dtype, x):
        small = x.astype(dtype)
        rows = [small.sum(0), small.max(0), jnp.take(small, jnp.array([3, 1]), 0)[0]]
        return [y.astype(int) for y in (*rows, jnp.cumsum(small, 0), small.at[jnp.array([1, 9])].add(1))]

    for dtype in (jnp.int2, jnp.uint2):
        assert_same_when_sharded(functools.partial(reduce, dtype), (8,), [("x",)], integers(17, 3))


def overlapping_select_and_scatter():
    pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), "VALID")
    gradient = lambda x, g: phalanx.vjp(pool, x)[1](g)[0]
    assert_same_when_sharded(gradient, (8,), [("x",), ()], numbers(8), numbers(7, seed=1))


# --- convolutions ---


def conv_dilated_lhs_and_rhs():
    convolve = lambda x, w: (lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (3,)),)
    args = numbers(2, 3, 4), numbers(4, 3, 3)
    assert_same_when_sharded(convolve, (4,), [(), ()], *args, out_specs=[(None, None, "x")])


def conv_groups():
    convolve = lambda x: lax.conv_general_dilated(
        x, np.ones((4, 2, 3), np.float32), (1,), "SAME", feature_group_count=2
    )
    assert_local(convolve, (4, 4, 8))


def conv_mapped():
    convolve = phalanx.vmap(lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"))
    assert_local(convolve, (4, 2, 4, 8), (4, 4, 4, 3))


def conv_spatial_sharding():
    convolve = lambda x, w: jnp.convolve(x, w, "full")
    gradients = lambda x, w, g: phalanx.vjp(convolve, x, w)[1](g)
    args = numbers(8), numbers(2, seed=1), numbers(9, seed=2)
    specs = [(), (), ()]
    assert_same_when_sharded(gradients, (8,), [("x",), (), ()], *args, constraints=specs, out_specs=[("x",), ()])


def conv_output_dims():
    order = ("HNC", "OIH", "CNH")
    convolve = lambda x, w: lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (1,), dimension_numbers=order)
    assert_same_when_sharded(convolve, (2,), [("x",), ()], numbers(8, 2, 3), numbers(4, 3, 2))


# --- reductions ---


def all_reduce_nan():
    x = np.array([np.nan, 1], np.float32)
    assert_same_when_sharded(lambda x: jnp.max(x), (2,), [("x",)], x)
    assert_same_when_sharded(lambda x: jnp.max(x), (2,), [("x",)], x[::-1].copy())


def all_reduce_complex():
    assert_same_when_sharded(
        lambda x: jnp.max(x), (2,), [("x",)], (numbers(4) + 1j * numbers(4, seed=1)).astype(np.complex64)
    )


def all_reduce_any_function():
    for reduce in (lax.reduce_and, lax.reduce_or, lax.reduce_xor):
        assert_same_when_sharded(lambda x, reduce=reduce: reduce(x, (0,)), (2,), [("x",)], integers(8, below=99))
    function = lambda a, b: a + b + a * b
    assert_same_when_sharded(lambda x: lax.reduce(x, np.float32(0), function, (0,)), (2,), [("x",)], numbers(8))


# --- operations that XLA gathers ---


def gathered_elementwise():
    assert_local(lax.erf, (4, 8))
    assert_local(lax.igamma, (4, 8), (4, 8))


def uneven_reshape():
    assert_local(lambda x: jnp.sin(x.reshape(22, 3)).reshape(11, 6), (11, 6), devices=4)


def uneven_moves():
    rows = NamedSharding(auto_mesh((8,), ("x",)), P("x"))
    x = phalanx.ShapeDtypeStruct((17, 6), np.float32, sharding=rows)
    sent = collectives(lambda x: jnp.flip(x, 0) * jnp.roll(x, 1, 0), x).bytes
    assert sent == 3 * 24 + 24, sent  # a shard, and a row


def uneven_slices():
    rows = NamedSharding(auto_mesh((8,), ("x",)), P("x"))
    x = phalanx.ShapeDtypeStruct((17, 6), np.float32, sharding=rows)
    start = phalanx.ShapeDtypeStruct((), np.int32)
    cut = lambda x, i: lax.dynamic_slice_in_dim(x, i, 2)
    write = lambda x, i: lax.dynamic_update_slice_in_dim(x, jnp.ones((2, 6), np.float32), i, 0)
    sent = [collectives(f, x, start).bytes for f in (cut, write)]
    assert sent == [2 * 24, 0], sent


def shared_fill():
    window = (3, 1), (1, 1), "SAME"

    def reduce(x):
        windows = [lax.reduce_window(x, i, f, *window) for i, f in ((0.0, lax.add), (-np.inf, lax.max), (1.0, lax.mul))]
        kernel = jnp.ones((3, 1, 1, 1))
        pool = lax.conv_general_dilated(
            x[..., None, None], kernel, (1, 1), "SAME", dimension_numbers=("HWNC", "HWIO", "HWNC")
        )
        return windows, [f(x, axis=0) for f in (lax.cumsum, lax.cummax, lax.cumprod)], pool

    for rows in (8, 11):
        assert_same_when_sharded(reduce, (4,), [("x",)], numbers(rows, 3) - 3)


def uneven_windows():
    rows = NamedSharding(auto_mesh((8,), ("x",)), P("x"))
    x = phalanx.ShapeDtypeStruct((5, 6), np.float32, sharding=rows)
    found = collectives(lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"), x)
    assert found.bytes == 2 * 24, found  # a row from each neighbour


def gathered_fft():
    assert_local(jnp.fft.fft, (4, 8))


def gathered_ffi_call():
    results = phalanx.ShapeDtypeStruct((3, 3), np.float32), phalanx.ShapeDtypeStruct((), np.int32)
    call = phalanx.ffi.ffi_call("lapack_spotrf_ffi", results, vmap_method="broadcast_all")
    assert_local(phalanx.vmap(lambda x: call(x, uplo=np.uint8(ord("L")))[0]), (4, 3, 3))


def gathered_rejection_sampling():
    assert_local(lambda a: random.poisson(random.key(0), a), (4, 8))
    assert_local(lambda a: random.gamma(random.key(0), a), (4, 8))


def gathered_rng_bit_generator():
    generate = phalanx.vmap(lambda key: lax.rng_bit_generator(key, (8,))[1])
    mesh = auto_mesh((2,), ("x",))
    keys = phalanx.ShapeDtypeStruct((4, 4), np.uint32, sharding=NamedSharding(mesh, P("x")))
    assert_collectives(generate, keys)


def gathered_top_k():
    assert_local(functools.partial(lax.top_k, k=2), (4, 2, 8))


def gathered_triangular_solve():
    matrix = np.eye(3, dtype=np.float32)
    assert_local(lambda b: lax.linalg.triangular_solve(matrix, b, left_side=True), (3, 4), spec=(None, "x"))


def gathered_tridiagonal_solve():
    diagonal = np.ones(3, np.float32)
    solve = lambda b: lax.linalg.tridiagonal_solve(0 * diagonal, diagonal, 0 * diagonal, b)
    assert_local(solve, (3, 4), spec=(None, "x"))


def gathered_while():
    halve = lambda x: lax.while_loop(lambda x: x > 1, lambda x: x / 2, x)
    assert_local(phalanx.vmap(halve), (8,))
