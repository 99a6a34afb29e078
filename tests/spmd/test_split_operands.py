"""Operations over split operands give what they give on one device, where XLA's partitioner alone does not."""

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.sharding import NamedSharding, P


def check(fun, sizes, specs, *args, held=None, outs=None):
    """Compare a function with what it gives on one device, over a mesh: specs of arguments, inside, and of results."""
    mesh = auto_mesh(sizes, "xyz"[: len(sizes)])
    want = phalanx.jit(fun)(*args)
    placed = lambda specs: None if specs is None else tuple([NamedSharding(mesh, P(*spec)) for spec in specs])
    hold = lambda args: args if held is None else map(lax.with_sharding_constraint, args, placed(held))
    got = phalanx.jit(lambda *args: fun(*hold(args)), in_shardings=placed(specs), out_shardings=placed(outs))(*args)
    for y, expected in zip(phalanx.tree.leaves(got), phalanx.tree.leaves(want), strict=True):
        assert len(y.devices()) == mesh.size
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("start", [-6, -1, 3, 9])
def test_updates_of_split_dimensions_are_moved_into_bounds(start):
    def update(x, u, i):
        return lax.dynamic_update_slice(x, u, (i, np.int32(0)), allow_negative_indices=False)

    check(update, (2,), [("x",), (), ()], numbers(4, 3), numbers(1, 3), np.int32(start))
    x = numbers(4, 3)
    check(lambda x, w, i: phalanx.vjp(lambda x: x[i], x)[1](w)[0], (2,), [("x",), (), ()], x, x[0], np.int32(start))


@pytest.mark.parametrize("name", ["add", "subtract", "max", "min", "multiply"])
def test_batched_updates_keep_the_operand_on_every_device(name):
    places = np.random.default_rng(1).integers(0, 4, (4, 8)).astype(np.int32)

    def update(x, i, u):
        return getattr(jnp.asarray(x).at[jnp.arange(4)[:, None], i], name)(u)

    check(update, (4, 2), [("x", "y"), ("y", "x"), ("y", "x")], numbers(4, 4), places, numbers(4, 8))


@pytest.mark.parametrize("name", ["add", "max", "multiply"])
def test_updates_that_lie_unevenly_are_taken_once(name):
    places = np.random.default_rng(2).integers(0, 4, 8).astype(np.int32)

    def update(x, i, u):
        return getattr(jnp.asarray(x).at[i[::4]], name)(u[:2])

    check(update, (2, 4), [(), ("y",), ("x",)], numbers(4), places, numbers(8))


def test_dilated_elements_of_split_dimensions_may_be_taken_off():
    check(lambda x: lax.pad(x, np.float32(7), ((-1, 2, 2),)), (2,), [("x",)], numbers(8))

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (2,), [(-1, 2)], (2,), (1,))

    check(convolve, (2,), [(None, None, "x"), ()], numbers(2, 3, 8), numbers(4, 3, 2))


def test_tangents_of_extremes_in_dilated_windows_over_split_dimensions():
    def windows(x, t):
        pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), [(1, 2)], (2,), (1,))
        return phalanx.jvp(pool, (x,), (t,))[1]

    check(windows, (4,), [("x",), ()], numbers(8), numbers(8, seed=1))


def test_negative_padding_takes_off_what_it_says_of_whole_operands():
    check(lambda w, z: lax.pad(w, np.float32(0), ((-2, 1, 0),)) + z[1:], (2,), [(), ("x",)], numbers(8), numbers(8))
    grad = lambda z, w: phalanx.vjp(lambda z: lax.cumprod(z, 0), z)[1](w)[0]
    check(grad, (2,), [("x",), ()], numbers(8), numbers(8, seed=1))


def test_slices_of_split_dimensions_are_moved_into_bounds():
    x, mesh = numbers(8), auto_mesh((2,), "x")
    placed = NamedSharding(mesh, P("x"))
    cut = phalanx.jit(lambda x, i: lax.dynamic_slice(x, (i,), (4,)), in_shardings=(placed, None), out_shardings=placed)
    np.testing.assert_array_equal(cut(x, np.int32(7)), x[4:])


def test_results_of_convolutions_have_their_space_elsewhere_than_operands():
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (1,), dimension_numbers=("HNC", "OIH", "CNH"))

    check(convolve, (2,), [("x",), ()], numbers(8, 2, 3), numbers(4, 3, 2))


def test_windows_may_skip_places_of_dilated_elements():
    def pool(x):
        return lax.reduce_window(x, np.float32(0), lax.add, (3, 3), (1, 3), [(1, 1), (2, 2)], (2, 2), (1, 2))

    check(pool, (2,), [("x",)], numbers(4, 8))
    check(pool, (2,), [(None, "x")], numbers(4, 8))


def test_gradients_of_extremes_in_windows_that_overlap():
    pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (2,), (1,), "VALID")
    check(lambda x, g: phalanx.vjp(pool, x)[1](g)[0], (8,), [("x",), ()], numbers(8), numbers(7, seed=1))


def test_gradients_of_sums_over_windows_of_one_place_with_padding():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (1,), (1,), [(0, 2)])
    check(lambda x, g: phalanx.vjp(pool, x)[1](g)[0], (2,), [("x",), ("x",)], numbers(6), numbers(8))


@pytest.mark.parametrize("kernel", [(), (None, "y"), (None, None, "y")], ids=str)
def test_features_are_added_up_once_where_the_result_is_split_in_space(kernel):
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

    x, w, mesh = numbers(2, 8, 4), numbers(3, 4, 4), auto_mesh((2, 4), "xy")
    placed, of_w, there = (NamedSharding(mesh, P(*spec)) for spec in ((None, None, "y"), kernel, (None, "x")))
    got = phalanx.jit(convolve, in_shardings=(placed, of_w), out_shardings=there)(x, w)
    np.testing.assert_allclose(got, convolve(x, w), rtol=1e-5, atol=1e-5)


def kernel_gradient(convolve):
    return lambda x, w, g: phalanx.vjp(lambda w: convolve(x, w), w)[1](g)[0]


def test_both_operands_of_a_convolution_may_be_dilated():
    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1,), [(1, 2)], (2,), (3,))

    here, mesh = (numbers(2, 3, 4), numbers(4, 3, 3)), auto_mesh((4,), "x")
    got = phalanx.jit(convolve, out_shardings=NamedSharding(mesh, P(None, None, "x")))(*here)
    np.testing.assert_allclose(got, convolve(*here), rtol=1e-5, atol=1e-5)


def test_gradients_of_kernels_over_stretches_of_one_element():
    grad = kernel_gradient(lambda x, w: jnp.convolve(x, w, "full"))
    check(grad, (8,), [("x",), (), ()], numbers(8), numbers(2, seed=1), numbers(9, seed=2))


def test_features_with_several_results_each_are_split_finer_than_there_are_features():
    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=4
        )

    check(convolve, (4, 2), [(None, None, "x"), (None, None, ("x", "y"))], numbers(2, 4, 4), numbers(2, 1, 8))


def both_gradients(convolve):
    return lambda x, w, g: phalanx.vjp(convolve, x, w)[1](g)


def test_gradients_of_convolutions_whose_result_only_propagation_would_split():
    grads = both_gradients(lambda x, w: jnp.convolve(x, w, "full"))
    args = numbers(8), numbers(2, seed=1), numbers(9, seed=2)
    check(grads, (8,), [("x",), (), ()], *args, held=[(), (), ()], outs=[("x",), ()])


@pytest.mark.parametrize("of_x, of_g", [(("x", "y"), ("x",)), ((), (None, "y")), ((None, "y"), (None, "x"))], ids=str)
def test_gradients_of_kernels_are_wanted_split_in_space(of_x, of_g):
    def convolve(x, w):
        return lax.conv_transpose(x, w, (3,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

    args = numbers(4, 6, 4), numbers(3, 4, 8, seed=1), numbers(4, 18, 8, seed=2)
    check(both_gradients(convolve), (2, 3), [of_x, (), of_g], *args, outs=[("x", "y"), ("y", None, "x")])


def test_stretches_of_dilated_elements_end_elsewhere_than_those_of_the_result():
    convolve = lambda x, w: lax.conv_transpose(x, w, (2,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"))
    value_and_gradients = lambda x, w, g: (convolve(x, w), both_gradients(convolve)(x, w, g))
    args = numbers(1, 4, 4), numbers(4, 4, 1, seed=1), numbers(1, 10, 1, seed=2)
    check(value_and_gradients, (2, 2, 2), [(None, ("y", "x")), ("x",), (None, "z")], *args)


def test_gradients_of_mapped_kernels_that_are_split():
    convolve = lambda x, w: lax.conv_transpose(x, w, (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))
    grads = both_gradients(phalanx.vmap(convolve, (3, 3)))
    ins = [(None, None, "x", "y"), (None, None, None, "x"), ("y",)]
    held = [(None, "x", None, "y"), ("x", None, None, "y"), ("y", None, None, "x")]
    args = numbers(1, 8, 2, 4), numbers(2, 2, 2, 4, seed=1), numbers(4, 1, 16, 2, seed=2)
    check(grads, (2, 4), ins, *args, held=held)


@pytest.mark.parametrize("features", [2, 8])
@pytest.mark.parametrize("spec", [(None, None, "x"), (None, "y", "x"), ("y", "x")], ids=str)
def test_groups_of_features_under_windows_of_one_place(features, spec):
    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=2
        )

    args = numbers(8, 8, 2), numbers(1, 1, features, seed=1), numbers(8, 8, features, seed=2)
    check(convolve, (2, 4), [spec, (None, None, "x")], *args[:2])
    check(both_gradients(convolve), (2, 4), [spec, (None, None, "x"), ()], *args)


def test_groups_of_examples_under_windows_of_one_place():
    def convolve(x, w):
        numbers = ("CHN", "HOI", "CNH")
        return lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=numbers, batch_group_count=2)

    args = numbers(1, 16, 4), numbers(1, 8, 1, seed=1), numbers(8, 2, 16, seed=2)
    specs = [(None, None, "y"), (None, ("z", "x")), (None, None, "y")]
    check(both_gradients(convolve), (2, 2, 2), specs, *args, outs=[(None, "y", "z"), (None, "x")])


@pytest.mark.parametrize("out", [("y", None, None, "x"), ("y", None, "x")], ids=str)
def test_results_of_groups_of_examples_are_wanted_split(out):
    def convolve(x, w):
        order = ("WNCH", "OHIW", "NHCW")
        return (lax.conv_general_dilated(x, w, (2, 3), "VALID", dimension_numbers=order, batch_group_count=2),)

    args = numbers(8, 4, 2, 12), numbers(8, 3, 2, 3, seed=1)
    check(convolve, (2, 2), [(None, "y", None, "x"), ("x",)], *args, outs=[out])


@pytest.mark.parametrize("pads", [(-1, 1), (1, -1), (-2, 3)], ids=str)
def test_padding_takes_off_the_start_of_what_is_convolved_on_one_device_too(pads):
    x, w = numbers(2, 8, 16), numbers(8, 8, 5, seed=1)
    low, high = pads
    padded = np.pad(x, ((0, 0), (0, 0), (4, 4)))[:, :, 4 - low : 20 + high]
    want = np.stack([np.einsum("nik,oik->no", padded[:, :, t : t + 5], w) for t in range(12)], -1)
    np.testing.assert_allclose(lax.conv_general_dilated(x, w, (1,), [pads])[..., :12], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [lambda x: x, lambda x: x * 2], ids=["cut", "made"])
@pytest.mark.parametrize("sizes", [(2,), (2, 2)], ids=str)
def test_one_element_is_written_into_what_was_just_split(sizes, step):
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
def test_elements_are_laid_out_over_devices_that_are_more(config):
    spread = lambda x: (lax.pad(x, np.float32(7), (config, (0, 0, 0))),)
    size = spread(numbers(3, 2))[0].shape[0]
    check(spread, (size,), [()], numbers(3, 2), outs=[("x",)])


def test_gradients_of_extremes_among_updates_that_reach_nothing():
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
def test_one_update_of_each_example_is_written_into_what_is_wanted_split(name):
    dims = lax.ScatterDimensionNumbers((2, 3), (), (1,), (0,), (0,))
    update = lambda x, i, u: (getattr(lax, name)(x, i, u, dims, mode="fill"),)
    places = np.array([3, -2, 6, 5], np.int32).reshape(4, 1, 1)
    args = numbers(4, 6, 2), places, numbers(4, 1, 1, 2, seed=1)
    check(update, (2, 4), [(), (), ("y",)], *args, outs=[("y", "x")])


def test_parts_of_indices_may_be_split():
    places = np.random.default_rng(4).integers(0, 4, (4, 4, 2)).astype(np.int32)

    def rows(x, i, g):
        y, pull = phalanx.vjp(lambda x: x[i[..., 0], i[..., 1]], x)
        dims = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
        return y, pull(g), lax.gather(x, i, dims, (1, 1), mode="fill")

    check(rows, (2, 2, 2), [("y", "z"), ("z", None, "x"), ("x",)], numbers(4, 4), places, numbers(4, 4, seed=1))


def test_windows_over_dilated_elements_are_wanted_split():
    pool = lambda x: (lax.reduce_window(x, np.float32(0), lambda a, b: a + b * 1, (3,), (1,), "VALID", (2,), (2,)),)
    check(pool, (3,), [()], numbers(4), outs=[("x",)])


def test_windows_leave_devices_without_a_result():
    pool = lambda x: lax.reduce_window(x, np.float32(0), lax.add, (4, 4), (3, 1), [(2, 0), (2, 1)], (1, 2), (1, 2))
    check(pool, (2, 2, 2), [(("x", "z"), "y")], numbers(4, 12))
    grad = lambda x, g: phalanx.vjp(lambda x: lax.reduce_window(x, np.float32(0), lax.add, (2, 1), (3, 2), "SAME"), x)[
        1
    ](g)
    check(grad, (2, 4), [(("x", "y"),), ()], numbers(8, 4), numbers(3, 2, seed=1), outs=[("x", "y")])


@pytest.mark.parametrize("dims", [(0,), (0, 1)], ids=str)
def test_any_reduction_goes_over_split_dimensions(dims):
    integers = np.random.default_rng(3).integers(0, 99, (8, 4)).astype(np.int32)
    check(lambda x: lax.reduce_xor(x, dims), (2, 4), [("y", "x")], integers)
    both = lambda a, b: a + b + a * b
    check(lambda x: lax.reduce(x, np.float32(0), both, dims), (2, 4), [("y", "x")], numbers(8, 4))


def test_results_without_elements_lie_as_declared():
    mesh = auto_mesh((2, 4), "xy")
    here, there = (NamedSharding(mesh, P(*spec)) for spec in ("xy", "yx"))
    y = phalanx.jit(lambda x: x[:, 2:2], in_shardings=here, out_shardings=there)(numbers(8, 4))
    assert y.shape == np.asarray(y).shape == (8, 0)
    assert y.sharding == there and {s.data.shape for s in y.addressable_shards} == {(2, 0)}
    assert (y + 1).shape == (8, 0)


def test_words_of_keys_may_be_split():
    def draw(words):
        return random.uniform(random.wrap_key_data(words), (8, 4))

    check(draw, (2, 2), [("x",)], np.asarray(random.key_data(random.key(3))))
