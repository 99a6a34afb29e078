"""Operations on sharded operands have the results of one device where XLA's partitioner alone gives others."""

import numpy as np
import pytest
from tests.meshes import auto_mesh
from tests.partitioner.reproducers import assert_same_when_sharded, numbers

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.sharding import NamedSharding, P


@pytest.mark.parametrize("start", [-6, -1, 3, 9])
def test_dynamic_update_slice_clamps_starts_along_sharded_dims(start):
    def update(x, u, i):
        return lax.dynamic_update_slice(x, u, (i, np.int32(0)), allow_negative_indices=False)

    assert_same_when_sharded(update, (2,), [("x",), (), ()], numbers(4, 3), numbers(1, 3), np.int32(start))
    x = numbers(4, 3)
    assert_same_when_sharded(
        lambda x, w, i: phalanx.vjp(lambda x: x[i], x)[1](w)[0], (2,), [("x",), (), ()], x, x[0], np.int32(start)
    )


@pytest.mark.parametrize("name", ["add", "subtract", "max", "min", "multiply"])
def test_batched_scatter_keeps_the_operand_of_every_device(name):
    places = np.random.default_rng(1).integers(0, 4, (4, 8)).astype(np.int32)

    def update(x, i, u):
        return getattr(jnp.asarray(x).at[jnp.arange(4)[:, None], i], name)(u)

    assert_same_when_sharded(update, (4, 2), [("x", "y"), ("y", "x"), ("y", "x")], numbers(4, 4), places, numbers(4, 8))


@pytest.mark.parametrize("name", ["add", "max", "multiply"])
def test_scatter_applies_unevenly_sharded_updates_once(name):
    places = np.random.default_rng(2).integers(0, 4, 8).astype(np.int32)

    def update(x, i, u):
        return getattr(jnp.asarray(x).at[i[::4]], name)(u[:2])

    assert_same_when_sharded(update, (2, 4), [(), ("y",), ("x",)], numbers(4), places, numbers(8))


def test_negative_padding_crops_dilated_sharded_dims():
    assert_same_when_sharded(lambda x: lax.pad(x, np.float32(7), ((-1, 2, 2),)), (2,), [("x",)], numbers(8))

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (2,), [(-1, 2)], (2,), (1,))

    assert_same_when_sharded(convolve, (2,), [(None, None, "x"), ()], numbers(2, 3, 8), numbers(4, 3, 2))


def test_jvp_of_reduce_window_max_with_dilation_along_sharded_dims():
    def windows(x, t):
        pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), [(1, 2)], (2,), (1,))
        return phalanx.jvp(pool, (x,), (t,))[1]

    assert_same_when_sharded(windows, (4,), [("x",), ()], numbers(8), numbers(8, seed=1))


def test_negative_padding_crops_replicated_operands():
    assert_same_when_sharded(
        lambda w, z: lax.pad(w, np.float32(0), ((-2, 1, 0),)) + z[1:], (2,), [(), ("x",)], numbers(8), numbers(8)
    )
    grad = lambda z, w: phalanx.vjp(lambda z: lax.cumprod(z, 0), z)[1](w)[0]
    assert_same_when_sharded(grad, (2,), [("x",), ()], numbers(8), numbers(8, seed=1))


def test_dynamic_slice_clamps_starts_along_sharded_dims():
    x, mesh = numbers(8), auto_mesh((2,), "x")
    placed = NamedSharding(mesh, P("x"))
    cut = phalanx.jit(lambda x, i: lax.dynamic_slice(x, (i,), (4,)), in_shardings=(placed, None), out_shardings=placed)
    np.testing.assert_array_equal(cut(x, np.int32(7)), x[4:])


def test_convolution_with_transposed_output_dims_sharded_in_space():
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (1,), dimension_numbers=("HNC", "OIH", "CNH"))

    assert_same_when_sharded(convolve, (2,), [("x",), ()], numbers(8, 2, 3), numbers(4, 3, 2))


def test_strided_windows_over_dilated_sharded_dims():
    def pool(x):
        return lax.reduce_window(x, np.float32(0), lax.add, (3, 3), (1, 3), [(1, 1), (2, 2)], (2, 2), (1, 2))

    assert_same_when_sharded(pool, (2,), [("x",)], numbers(4, 8))
    assert_same_when_sharded(pool, (2,), [(None, "x")], numbers(4, 8))


@pytest.mark.parametrize(
    ("n", "size", "stride", "dilation", "high"), [(3, 3, 2, 2, 6), (3, 3, 3, 1, 6), (3, 2, 3, 2, 6), (6, 3, 3, 2, 6)]
)
def test_gradient_of_sums_of_dilated_windows(n, size, stride, dilation, high):
    pool = lambda x: lax.reduce_window(
        x, np.float32(0), lax.add, (size,), (stride,), [(0, high)], window_dilation=(dilation,)
    )
    assert_same_when_sharded(phalanx.grad(lambda x: jnp.sin(pool(x)).sum()), (3,), [("x",)], numbers(n))


def test_gradient_of_max_over_overlapping_windows():
    pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), "VALID")
    assert_same_when_sharded(
        lambda x, g: phalanx.vjp(pool, x)[1](g)[0], (8,), [("x",), ()], numbers(8), numbers(7, seed=1)
    )


def test_gradient_of_reduce_window_sum_with_window_of_one_and_padding():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (1,), (1,), [(0, 2)])
    assert_same_when_sharded(lambda x, g: phalanx.vjp(pool, x)[1](g)[0], (2,), [("x",), ("x",)], numbers(6), numbers(8))


@pytest.mark.parametrize("kernel", [(), (None, "y"), (None, None, "y")], ids=str)
def test_convolution_sums_sharded_features_once_when_the_result_is_sharded_in_space(kernel):
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

    x, w, mesh = numbers(2, 8, 4), numbers(3, 4, 4), auto_mesh((2, 4), "xy")
    placed, of_w, there = (NamedSharding(mesh, P(*spec)) for spec in ((None, None, "y"), kernel, (None, "x")))
    got = phalanx.jit(convolve, in_shardings=(placed, of_w), out_shardings=there)(x, w)
    np.testing.assert_allclose(got, convolve(x, w), rtol=1e-5, atol=1e-5)


def kernel_gradient(convolve):
    return lambda x, w, g: phalanx.vjp(lambda w: convolve(x, w), w)[1](g)[0]


def test_convolution_with_dilated_lhs_and_rhs():
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (3,))

    here, mesh = (numbers(2, 3, 4), numbers(4, 3, 3)), auto_mesh((4,), "x")
    got = phalanx.jit(convolve, out_shardings=NamedSharding(mesh, P(None, None, "x")))(*here)
    np.testing.assert_allclose(got, convolve(*here), rtol=1e-5, atol=1e-5)


def test_kernel_gradient_with_one_spatial_element_per_device():
    grad = kernel_gradient(lambda x, w: jnp.convolve(x, w, "full"))
    assert_same_when_sharded(grad, (8,), [("x",), (), ()], numbers(8), numbers(2, seed=1), numbers(9, seed=2))


def test_depthwise_convolution_with_output_features_sharded_finer_than_groups():
    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=4
        )

    assert_same_when_sharded(
        convolve, (4, 2), [(None, None, "x"), (None, None, ("x", "y"))], numbers(2, 4, 4), numbers(2, 1, 8)
    )


def both_gradients(convolve):
    return lambda x, w, g: phalanx.vjp(convolve, x, w)[1](g)


def test_convolution_gradients_whose_result_is_sharded_by_propagation():
    grads = both_gradients(lambda x, w: jnp.convolve(x, w, "full"))
    args = numbers(8), numbers(2, seed=1), numbers(9, seed=2)
    assert_same_when_sharded(grads, (8,), [("x",), (), ()], *args, constraints=[(), (), ()], out_specs=[("x",), ()])


@pytest.mark.parametrize("of_x, of_g", [(("x", "y"), ("x",)), ((), (None, "y")), ((None, "y"), (None, "x"))], ids=str)
def test_kernel_gradients_with_spatially_sharded_results(of_x, of_g):
    def convolve(x, w):
        return lax.conv_transpose(x, w, (3,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

    args = numbers(4, 6, 4), numbers(3, 4, 8, seed=1), numbers(4, 18, 8, seed=2)
    assert_same_when_sharded(
        both_gradients(convolve), (2, 3), [of_x, (), of_g], *args, out_specs=[("x", "y"), ("y", None, "x")]
    )


def test_conv_transpose_shard_boundaries_differ_between_input_and_result():
    convolve = lambda x, w: lax.conv_transpose(x, w, (2,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"))
    value_and_gradients = lambda x, w, g: (convolve(x, w), both_gradients(convolve)(x, w, g))
    args = numbers(1, 4, 4), numbers(4, 4, 1, seed=1), numbers(1, 10, 1, seed=2)
    assert_same_when_sharded(value_and_gradients, (2, 2, 2), [(None, ("y", "x")), ("x",), (None, "z")], *args)


def test_gradients_of_sharded_kernels_under_vmap():
    convolve = lambda x, w: lax.conv_transpose(x, w, (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))
    grads = both_gradients(phalanx.vmap(convolve, (3, 3)))
    ins = [(None, None, "x", "y"), (None, None, None, "x"), ("y",)]
    held = [(None, "x", None, "y"), ("x", None, None, "y"), ("y", None, None, "x")]
    args = numbers(1, 8, 2, 4), numbers(2, 2, 2, 4, seed=1), numbers(4, 1, 16, 2, seed=2)
    assert_same_when_sharded(grads, (2, 4), ins, *args, constraints=held)


@pytest.mark.parametrize("features", [2, 8])
@pytest.mark.parametrize("spec", [(None, None, "x"), (None, "y", "x"), ("y", "x")], ids=str)
def test_feature_groups_with_windows_of_size_one(features, spec):
    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=2
        )

    args = numbers(8, 8, 2), numbers(1, 1, features, seed=1), numbers(8, 8, features, seed=2)
    assert_same_when_sharded(convolve, (2, 4), [spec, (None, None, "x")], *args[:2])
    assert_same_when_sharded(both_gradients(convolve), (2, 4), [spec, (None, None, "x"), ()], *args)


def test_batch_groups_with_windows_of_size_one():
    def convolve(x, w):
        numbers = ("CHN", "HOI", "CNH")
        return lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=numbers, batch_group_count=2)

    args = numbers(1, 16, 4), numbers(1, 8, 1, seed=1), numbers(8, 2, 16, seed=2)
    specs = [(None, None, "y"), (None, ("z", "x")), (None, None, "y")]
    assert_same_when_sharded(
        both_gradients(convolve), (2, 2, 2), specs, *args, out_specs=[(None, "y", "z"), (None, "x")]
    )


@pytest.mark.parametrize("out", [("y", None, None, "x"), ("y", None, "x")], ids=str)
def test_batch_group_convolution_with_sharded_result(out):
    def convolve(x, w):
        order = ("WNCH", "OHIW", "NHCW")
        return (lax.conv_general_dilated(x, w, (2, 3), "VALID", dimension_numbers=order, batch_group_count=2),)

    args = numbers(8, 4, 2, 12), numbers(8, 3, 2, 3, seed=1)
    assert_same_when_sharded(convolve, (2, 2), [(None, "y", None, "x"), ("x",)], *args, out_specs=[out])


@pytest.mark.parametrize("pads", [(-1, 1), (1, -1), (-2, 3)], ids=str)
def test_negative_padding_crops_the_input_of_a_convolution_on_one_device(pads):
    x, w = numbers(2, 8, 16), numbers(8, 8, 5, seed=1)
    low, high = pads
    padded = np.pad(x, ((0, 0), (0, 0), (4, 4)))[:, :, 4 - low : 20 + high]
    want = np.stack([np.einsum("nik,oik->no", padded[:, :, t : t + 5], w) for t in range(12)], -1)
    np.testing.assert_allclose(lax.conv_general_dilated(x, w, (1,), [pads])[..., :12], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [lambda x: x, lambda x: x * 2], ids=["cut", "made"])
@pytest.mark.parametrize("sizes", [(2,), (2, 2)], ids=str)
def test_single_element_updates_of_freshly_sharded_operands(sizes, step):
    def write(x, i):
        y = step(x)
        return y.at[i].set(7), y.at[i].add(7), lax.dynamic_update_slice(y, np.full(1, 7, np.float32), (i,))

    mesh = auto_mesh(sizes, "xy"[: len(sizes)])
    whole, halves = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))
    written = lambda x, i: write(lax.with_sharding_constraint(x, halves), i)
    made = lambda x, i: phalanx.tree.map(lambda y: lax.with_sharding_constraint(y, halves), write(x, i))
    for i in (-8, -1, 0, 3, 4, 9):
        want = phalanx.jit(write)(numbers(8), np.int32(i))
        for f in (written, made):
            got = phalanx.jit(f, in_shardings=(whole, whole))(numbers(8), np.int32(i))
            np.testing.assert_array_equal(np.stack(got), np.stack(want))


@pytest.mark.parametrize("config", [(3, 0, 1), (1, 0, 2), (0, 1, 2), (-1, 0, 2), (0, -3, 4)], ids=str)
def test_interior_padding_over_more_devices_than_elements(config):
    spread = lambda x: (lax.pad(x, np.float32(7), (config, (0, 0, 0))),)
    size = spread(numbers(3, 2))[0].shape[0]
    assert_same_when_sharded(spread, (size,), [()], numbers(3, 2), out_specs=[("x",)])


def test_scatter_min_gradient_with_all_updates_out_of_bounds():
    def grads(x, i, u, g):
        y, pull = phalanx.vjp(lambda x, u: x.at[i].min(u, mode="drop"), x, u)
        return y, pull(g)

    x = numbers(4, 2)
    x[1] = np.nan
    indices = np.array([7, 9], np.int32)
    got = grads(jnp.asarray(x), indices, numbers(2, 2, seed=1), numbers(4, 2, seed=2))
    want = phalanx.jit(grads)(x, indices, numbers(2, 2, seed=1), numbers(4, 2, seed=2))
    for y, expected in zip(phalanx.tree.leaves(got), phalanx.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", ["scatter_add", "scatter_sub"])
def test_batched_scatter_with_one_update_per_example_into_a_sharded_result(name):
    dims = lax.ScatterDimensionNumbers((2, 3), (), (1,), (0,), (0,))
    update = lambda x, i, u: (getattr(lax, name)(x, i, u, dims, mode="fill"),)
    places = np.array([3, -2, 6, 5], np.int32).reshape(4, 1, 1)
    args = numbers(4, 6, 2), places, numbers(4, 1, 1, 2, seed=1)
    assert_same_when_sharded(update, (2, 4), [(), (), ("y",)], *args, out_specs=[("y", "x")])


def test_gather_and_scatter_with_sharded_index_vectors():
    places = np.random.default_rng(4).integers(0, 4, (4, 4, 2)).astype(np.int32)

    def rows(x, i, g):
        y, pull = phalanx.vjp(lambda x: x[i[..., 0], i[..., 1]], x)
        dims = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
        return y, pull(g), lax.gather(x, i, dims, (1, 1), mode="fill")

    assert_same_when_sharded(
        rows, (2, 2, 2), [("y", "z"), ("z", None, "x"), ("x",)], numbers(4, 4), places, numbers(4, 4, seed=1)
    )


def test_gather_and_scatter_with_a_single_index_that_is_split():
    def rows(x, i, u):
        gathers = lax.GatherDimensionNumbers((1,), (0,), (0,))
        scatters = lax.ScatterDimensionNumbers((1,), (0,), (0,))
        return (
            lax.gather(x, i, gathers, (1, 10), mode="clip"),
            lax.scatter_max(x, i, u, scatters),
            lax.scatter_add(x, i, u, scatters),
        )

    places = np.random.default_rng(4).integers(0, 4, (12, 1)).astype(np.int32)
    splits = [("x", "y"), ("x", "y"), ("y", "x")]
    assert_same_when_sharded(rows, (2, 3), splits, numbers(4, 10), places, numbers(12, 10, seed=1))


def test_reduce_window_over_dilated_elements_with_sharded_result():
    pool = lambda x: (lax.reduce_window(x, np.float32(0), lambda a, b: a + b * 1, (3,), (1,), "VALID", (2,), (2,)),)
    assert_same_when_sharded(pool, (3,), [()], numbers(4), out_specs=[("x",)])


def test_reduce_window_leaves_some_devices_without_a_result():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (4, 4), (3, 1), [(2, 0), (2, 1)], (1, 2), (1, 2))
    assert_same_when_sharded(pool, (2, 2, 2), [(("x", "z"), "y")], numbers(4, 12))
    grad = lambda x, g: phalanx.vjp(lambda x: lax.reduce_window(x, np.float32(0), lax.add, (2, 1), (3, 2), "SAME"), x)[
        1
    ](g)
    assert_same_when_sharded(
        grad, (2, 4), [(("x", "y"),), ()], numbers(8, 4), numbers(3, 2, seed=1), out_specs=[("x", "y")]
    )


@pytest.mark.parametrize("dims", [(0,), (0, 1)], ids=str)
def test_reductions_without_an_all_reduce_over_sharded_dims(dims):
    integers = np.random.default_rng(3).integers(0, 99, (8, 4)).astype(np.int32)
    assert_same_when_sharded(lambda x: lax.reduce_xor(x, dims), (2, 4), [("y", "x")], integers)
    both = lambda a, b: a + b + a * b
    assert_same_when_sharded(lambda x: lax.reduce(x, np.float32(0), both, dims), (2, 4), [("y", "x")], numbers(8, 4))


def test_empty_results_have_the_declared_sharding():
    mesh = auto_mesh((2, 4), "xy")
    here, there = (NamedSharding(mesh, P(*spec)) for spec in ("xy", "yx"))
    y = phalanx.jit(lambda x: x[:, 2:2], in_shardings=here, out_shardings=there)(numbers(8, 4))
    assert y.shape == np.asarray(y).shape == (8, 0)
    assert y.sharding == there and {s.data.shape for s in y.addressable_shards} == {(2, 0)}
    assert (y + 1).shape == (8, 0)


def test_key_data_may_be_sharded_along_its_words():
    def draw(words):
        return random.uniform(random.wrap_key_data(words), (8, 4))

    assert_same_when_sharded(draw, (2, 2), [("x",)], np.asarray(random.key_data(random.key(3))))


@pytest.mark.parametrize(("shape", "split"), [((34, 3), (17, 6)), ((18, 6), (27, 4)), ((17, 6), (34, 3))])
def test_uneven_dims_are_split_and_merged_in_different_units(shape, split):
    merge = lambda x: x.reshape(split).reshape(-1)
    assert_same_when_sharded(lambda x: (merge(x), merge(x)[::-1]), (8,), [("x",)], numbers(*shape))


def test_bits_of_another_width_are_added_to_merged_uneven_dims():
    def combine(x, bits):
        total = x.reshape(102, 2) + lax.bitcast_convert_type(bits, np.uint16)
        return total.sum(0), total.reshape(51, 4)

    ones, bits = np.ones((17, 6, 2), np.uint16), np.arange(102, dtype=np.uint32)
    assert_same_when_sharded(combine, (8,), [("x",), ()], ones, bits)


def test_strided_slices_of_one_uneven_row():
    rows = lambda x: [lax.slice(x, (i, 0), (i + 1, 2), (3, 1)) for i in range(5)]
    assert_same_when_sharded(rows, (8,), [("x",)], numbers(5, 2))
