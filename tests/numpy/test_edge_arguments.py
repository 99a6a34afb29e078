"""Arguments at the edge of their domain: traced positions, unordered axes, placement, strict promotion, subnormals."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax

A = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("axis", [(2, 0), (2, 1, 0), (1, 2)])
def test_average_takes_weights_over_axes_in_any_order(axis):
    weights = np.random.default_rng(0).uniform(size=[A.shape[i] for i in axis]).astype(np.float32)
    np.testing.assert_allclose(jnp.average(A, axis, weights), np.average(A, axis, weights), rtol=1e-5)


@pytest.mark.parametrize("obj", [0, 2, -1, [2, 0, 2], [1]])
def test_insert_takes_positions_that_are_traced(obj):
    obj, values = np.array(obj), np.array([7.0, 8.0, 9.0][: max(np.size(obj), 1)], np.float32)
    values = values[0] if obj.ndim == 0 else values
    insert = phalanx.jit(lambda a, i, v: jnp.insert(a, i, v))
    np.testing.assert_array_equal(insert(A[0, 0], obj, values), np.insert(A[0, 0], obj, values))
    insert = phalanx.jit(lambda a, i, v: jnp.insert(a, i, v, axis=0))
    np.testing.assert_array_equal(insert(A[0], obj, 5.0), np.insert(A[0], obj, 5.0, axis=0))


def test_tri_takes_a_traced_diagonal_and_one_beyond_32_bits():
    for k in (-1, 0, 2):
        np.testing.assert_array_equal(phalanx.jit(lambda k: jnp.tri(3, 4, k))(k), np.tri(3, 4, k))
    np.testing.assert_array_equal(jnp.tri(3, 4, 2**33), np.ones((3, 4)))


def test_take_along_axis_selects_by_comparison():
    places = np.array([[1, 0], [3, -1], [2, 2]])
    for x in (A[0], A[0] > 5):
        np.testing.assert_array_equal(
            jnp.take_along_axis(x, places, 1, mode="one_hot"), np.take_along_axis(x, places, 1)
        )


def test_array_like_a_placed_one_is_placed_alike():
    x = phalanx.device_put(jnp.ones(4), phalanx.devices()[-1])
    for like in (jnp.zeros_like, jnp.ones_like, lambda x: jnp.full_like(x, 3.0)):
        assert like(x).devices() == x.devices()
        assert like(lax.expand_dims(x, (0,))).devices() == x.devices()
    assert jnp.zeros_like(x, shape=(2, 3)).devices() == lax.full_like(x, 1, shape=()).devices() == x.devices()
    assert lax.full_like(x, 3.0).devices() == lax.full((2,), 1, sharding=x.sharding).devices() == x.devices()
    assert jnp.zeros_like(jnp.ones(4)).devices() == jnp.ones(4).devices()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_spacing_of_small_numbers_is_subnormal(dtype):
    with phalanx.enable_x64(True):
        limits = jnp.finfo(dtype)
        least = float(limits.smallest_subnormal)
        x = jnp.array([0.0, least, 3 * least, float(limits.tiny), 2 * float(limits.tiny), 1.0, np.inf], dtype)
        wanted = [least, least, least, least, 2 * least, float(limits.eps), np.nan]
        np.testing.assert_array_equal(np.asarray(jnp.spacing(x)).astype(float), wanted)


def test_slope_of_i0_at_0_is_0():
    assert phalanx.grad(jnp.i0)(0.0) == 0
    np.testing.assert_allclose(phalanx.grad(jnp.i0)(-1.0), -0.565159, rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda: jnp.frexp(jnp.ones(3, "bfloat16"))[0],
        lambda: jnp.histogram(jnp.ones(3), bins=np.arange(-5, 6))[0],
        lambda: jnp.var(jnp.ones(3, "bfloat16"), mean=jnp.ones(1, "bfloat16")),
        lambda: jnp.cov(jnp.ones((3, 5)), aweights=jnp.ones(5)),
        lambda: jnp.unpackbits(jnp.packbits(jnp.ones((3, 8), bool), axis=1), axis=1),
    ],
)
def test_functions_promote_nothing_inside_that_users_did_not_mix(function):
    with phalanx.numpy_dtype_promotion("strict"), phalanx.numpy_rank_promotion("raise"):
        function()


def test_results_of_rare_arguments():
    xp, fp = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])
    assert jnp.interp(3.5, xp, fp, left="extrapolate") == 30
    assert jnp.interp(0.5, xp, fp, left="extrapolate") == 5
    assert jnp.diff(A, n=0, prepend=1).shape == A.shape
    assert jnp.linspace(np.zeros(2), 1.0, 0, retstep=True)[1].shape == ()
    assert jnp.convolve(*[np.ones(2, np.uint8)] * 2, preferred_element_type="uint8").tolist() == [1, 2, 1]
    assert jnp.int8(2).view(bool) and jnp.bool_(True).view("int8") == 1
    assert jnp.isclose(phalanx.random.key(0), phalanx.random.key(0))
    assert phalanx.jit(jnp.iscomplexobj)([1 + 1j])
    assert not phalanx.dtypes.issubdtype("float32", object)
    assert jnp.cumulative_sum(np.array([0, 1, 0]), dtype=bool).tolist() == [False, True, True]


def test_objects_with_jax_array_are_operands_of_operators():
    class Three:
        def __jax_array__(self):
            return jnp.array(3.0)

    np.testing.assert_array_equal(Three() * jnp.arange(3.0), [0, 3, 6])
    np.testing.assert_array_equal(jnp.arange(3.0) - Three(), [-3, -2, -1])


@pytest.mark.parametrize("value", [jnp.array([3.0, 4.0]), np.array([3.0, 4.0], np.float32)], ids=["array", "numpy"])
def test_objects_with_jax_array_are_arguments_of_programs(value):
    class Held:
        def __jax_array__(self):
            return value

    double = phalanx.jit(lambda x: x * 2)
    for function in (double, double, phalanx.vmap(double), lax.neg, phalanx.device_put):
        np.testing.assert_array_equal(function(Held()), function(value))
    np.testing.assert_array_equal(phalanx.grad(lambda x: double(x).sum())(Held()), [2, 2])


def test_elementwise_functions_that_numpy_has_as_ufuncs_are_ufuncs():
    assert isinstance(jnp.add, jnp.ufunc) and isinstance(jnp.frompyfunc(max, 2, 1), jnp.ufunc)
    assert [
        n for n in dir(jnp) if isinstance(getattr(jnp, n), jnp.ufunc) and not hasattr(getattr(np, n), "types")
    ] == []


def test_arrays_of_keys_are_created_from_words():
    keys = phalanx.random.split(phalanx.random.key(1))
    for create, word in ((jnp.zeros, 0), (jnp.ones, 1), (lambda shape, dtype: jnp.full(shape, 7, dtype), 7)):
        made = create(keys.shape, dtype=keys.dtype)
        assert made.dtype == keys.dtype
        np.testing.assert_array_equal(phalanx.random.key_data(made), np.full((2, 2), word))


def test_residual_of_attention_has_the_dtype_of_the_query():
    q = jnp.ones((1, 2, 1, 4), "bfloat16")
    out, residual = phalanx.nn.dot_product_attention(q, q, q, return_residual=True)
    assert out.dtype == residual.dtype == jnp.bfloat16


def test_python_scalars_among_numpy_scalars_are_weakly_typed():
    assert jnp.array([0, np.int16(1)]).dtype == "int16"
    assert jnp.array([[np.float16(3), 4], [1, 2]]).dtype == "float16"


def test_unique_groups_complex_numbers_with_a_nan_part():
    x = np.array([np.nan + 1j, 1 + np.nan * 1j, 2, np.nan], np.complex64)
    found, counts = jnp.unique(x, return_counts=True)
    assert (found.shape, counts.tolist()) == ((2,), [1, 3])


def test_a_requested_half_precision_is_the_dtype_of_the_computation():
    program = phalanx.make_jaxpr(lambda x: jnp.mean(x, dtype="float16"))(jnp.ones(3, "float16"))
    assert [eqn.primitive.name for eqn in program.eqns] == ["reduce_sum", "div"]


def test_sinc_is_0_at_infinities():
    np.testing.assert_array_equal(jnp.sinc(jnp.array([np.inf, -np.inf])), [0, 0])
    np.testing.assert_array_equal(jnp.sinc(jnp.array([np.inf + 0j, -np.inf + 1.5j])), [0, 0])


def test_gathers_map_over_dimensions_of_size_0():
    x, i = np.zeros((0, 4), "float32"), np.zeros((0, 4), "int32")
    assert phalanx.vmap(lambda x, i: x[i], in_axes=0)(x, i).shape == (0, 4)


def test_load_reads_pickles_only_where_they_are_allowed(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], object))
    assert jnp.load(tmp_path / "a.npy", allow_pickle=True)[0] == {}
    with pytest.raises(ValueError, match="allow_pickle=False"):
        jnp.load(tmp_path / "a.npy")


def test_lax_functions_take_dtypes_arrays_and_mixed_dtypes_as_documented():
    assert (lax.dtype(np.float64), lax.dtype("int8"), lax.dtype(jnp.bfloat16)) == ("float32", "int8", jnp.bfloat16)
    assert lax.dot(jnp.ones(3, "complex64"), jnp.ones(3)).dtype == "complex64"
    assert lax.dot(jnp.ones(3, "uint8"), jnp.ones(3, "float16")).dtype == "float16"
    np.testing.assert_array_equal(lax.dynamic_slice(jnp.arange(4), (1,), jnp.array([2])), [1, 2])
    assert isinstance(lax.squeeze(2.0, ()), phalanx.Array)
    pads = lax.padtype_to_pads(np.array([8]), np.array([3]), np.array([2]), "SAME")
    assert [type(n) for n in pads[0]] == [int, int]
    program = phalanx.make_jaxpr(lambda x: lax.reduce(x, np.array(0, "int32"), lax.bitwise_or, (0,)))(jnp.arange(3))
    assert program.eqns[0].primitive.name == "reduce_or"


def test_a_container_that_shows_the_attributes_of_its_array_is_an_operand():
    @phalanx.tree_util.register_pytree_node_class
    class Parameter:
        def __init__(self, value):
            self.value = value

        def __getattr__(self, name):
            return getattr(object.__getattribute__(self, "value"), name)

        def __jax_array__(self):
            return self.value

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    w = Parameter(jnp.ones((3, 5)))
    for fun in (lambda x: jnp.matmul(x, w), lambda x: jnp.dot(x, w).sum(0), lambda x: jnp.sum(w) + x):
        expected = fun(np.ones((2, 3), np.float32)).tolist()
        assert phalanx.jit(fun)(jnp.ones((2, 3))).tolist() == expected == fun(jnp.ones((2, 3))).tolist()
    # Also around the tracers of a transformation.
    x = jnp.arange(2.0)
    apply = lambda x, w: x @ Parameter(w) + jnp.max(Parameter(w))
    want = np.einsum("i,bij->bj", x, np.ones((3, 2, 2))) + 1
    np.testing.assert_array_equal(phalanx.vmap(apply, (None, 0))(x, jnp.ones((3, 2, 2))), want)
    assert phalanx.grad(lambda w: apply(x, w)[0])(jnp.eye(2)).tolist() == [[0.5, 0.0], [1.0, 0.5]]


def test_a_range_that_counts_from_0_is_an_iota_where_the_dtype_holds_it():
    assert "iota" in str(phalanx.make_jaxpr(lambda: jnp.arange(5.0))())
    assert "iota" in str(phalanx.make_jaxpr(lambda: jnp.arange(5, dtype="bfloat16"))())
    assert jnp.arange(0.0, 4.5).tolist() == [0, 1, 2, 3, 4]
    # bfloat16 has 8 bits: above 256 the numbers are rounded as NumPy rounds them.
    assert jnp.arange(300, dtype="bfloat16").tolist() == np.arange(300).astype(jnp.bfloat16).tolist()


BIG = np.arange(300, dtype=np.float32)
OF_INTEGERS = {
    "roll": lambda n: jnp.roll(BIG, n(100)),
    "traced roll": lambda n: phalanx.jit(jnp.roll)(BIG, jnp.asarray(n(100))),
    "unravel_index": lambda n: jnp.unravel_index(n(100), (30, 40)),
    "unravel_index of an array": lambda n: jnp.unravel_index(np.array([5, 0, 127], n), (30, 40)),
    "ravel_multi_index": lambda n: jnp.ravel_multi_index((np.array([n(20)]), np.array([n(30)])), (30, 40)),
    "wrapped ravel_multi_index": lambda n: jnp.ravel_multi_index(
        (jnp.asarray(n(20)), jnp.asarray(n(30))), (300, 400), mode="clip"
    ),
    "tril_indices": lambda n: jnp.tril_indices(4, n(127)),
    "triu_indices": lambda n: jnp.triu_indices(4, n(127)),
    "diagonal": lambda n: jnp.diagonal(BIG.reshape(100, 3), n(-128 if n is np.int8 else 100)),
    "kaiser": lambda n: jnp.kaiser(np.array(n(3)), 2.0),
    "unpackbits": lambda n: jnp.unpackbits(np.array([7], np.uint8), count=np.array(n(3))),
    "var": lambda n: jnp.var(BIG[:3], ddof=100 if n is int else np.array(n(100))),
    "cov": lambda n: jnp.cov(BIG[:6].reshape(2, 3), ddof=np.array(n(100))),
    "he_normal": lambda n: phalanx.nn.initializers.he_normal()(phalanx.random.key(0), (n(100), n(3), n(3))),
}


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint32, np.int64])
@pytest.mark.parametrize("name", OF_INTEGERS)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_integers_of_numpy_whose_products_wrap_are_taken_by_value(name, kind):
    want = OF_INTEGERS[name](int)
    if name == "diagonal" and kind is np.int8:
        want = jnp.zeros(0)
    for x, y in zip(phalanx.tree.leaves(OF_INTEGERS[name](kind)), phalanx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("exponent", [200, 140, -140, 250, -260])
def test_ldexp_by_a_constant_does_not_overflow_on_the_way(exponent):
    x = np.array([0, 1e-37, -1e-37, 1e37, 1], np.float32)
    with np.errstate(over="ignore"):
        want = np.ldexp(x.astype(np.float64), exponent).astype(np.float32)
    want[np.abs(want) < 1.2e-38] = 0  # subnormal
    for function in (lambda x: jnp.ldexp(x, exponent), lambda x: jnp.ldexp(x, np.full(5, exponent))):
        np.testing.assert_allclose(phalanx.jit(function)(x), want, rtol=1e-6)
        np.testing.assert_allclose(lax.map(function, np.stack([x, x]))[1], want, rtol=1e-6)
    slope = phalanx.grad(lambda x: jnp.ldexp(x, 3))(1.0)
    assert slope == 8
