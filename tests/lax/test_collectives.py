"""Collectives under vmap: their values against NumPy on the stacked operands, their derivatives, nesting and errors."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, AxisError, DTypeError, ShapeError, UnboundAxisError
from phalanx.sharding import Mesh, P

N = 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3, N, 8)).astype(np.float32)  # members in front; dimension 1 of an operand is one per member
GROUPS = [[2, 0], [1, 3]]
Y = RNG.normal(size=(2, 3, 6, 5)).astype(
    np.float32
)  # members of "i" and "j"; dimension 0 of an operand is one per pair


def over(f, *args, in_axes=0):
    return phalanx.vmap(f, in_axes, axis_name="i")(*args)


def by_group(f, x, groups):
    """Apply a function of stacked members to each group by itself."""
    out = [None] * len(x)
    for g in groups:
        for i, y in zip(g, f(x[list(g)]), strict=True):
            out[i] = y
    return np.stack(out)


def gathered(x, dim, tiled):
    y = np.concatenate(x, dim) if tiled else np.stack(x, dim)
    return np.stack([y] * len(x))


def scattered(x, dim, tiled):
    parts = np.split(x.sum(0), len(x), dim)
    return np.stack([p if tiled else p.squeeze(dim) for p in parts])


def exchanged(x, split, concat, tiled):
    n = len(x)
    sent = [np.split(m, n, split) for m in x]
    if tiled:
        return np.stack([np.concatenate([sent[s][t] for s in range(n)], concat) for t in range(n)])
    return np.stack([np.stack([sent[s][t].squeeze(split) for s in range(n)], concat) for t in range(n)])


def spread(f):
    return lambda x: np.stack([f(x)] * len(x))


# name: collective of (operand, axis, options), the same in NumPy, whether it takes groups
CASES = {
    "psum": (lambda x, a, **k: lax.psum(x, a, **k), spread(lambda x: x.sum(0)), True),
    "pmean": (lambda x, a, **k: lax.pmean(x, a, **k), spread(lambda x: x.mean(0)), True),
    "pmax": (lambda x, a, **k: lax.pmax(x, a, **k), spread(lambda x: x.max(0)), True),
    "pmin": (lambda x, a, **k: lax.pmin(x, a, **k), spread(lambda x: x.min(0)), True),
    "pbroadcast": (lambda x, a: lax.pbroadcast(x, a, 2), spread(lambda x: x[2]), False),
    "ppermute": (
        lambda x, a: lax.ppermute(x, a, [(0, 1), (3, 0)]),
        lambda x: np.stack([x[3], x[0], *np.zeros_like(x[2:])]),
        False,
    ),
    "pshuffle": (lambda x, a: lax.pshuffle(x, a, [1, 3, 0, 2]), lambda x: x[[1, 3, 0, 2]], False),
    "pswapaxes": (lambda x, a: lax.pswapaxes(x, a, 1), lambda x: x.swapaxes(0, 2), False),
    "psum_scatter": (
        lambda x, a: lax.psum_scatter(x, a, scatter_dimension=1), lambda x: scattered(x, 1, False), False
    ),
    "psum_scatter, tiled": (
        lambda x, a, **k: lax.psum_scatter(x, a, scatter_dimension=2, tiled=True, **k),
        lambda x: scattered(x, 2, True),
        True,
    ),
    "all_to_all, tiled": (
        lambda x, a, **k: lax.all_to_all(x, a, 1, 2, tiled=True, **k), lambda x: exchanged(x, 1, 2, True), True
    ),
}  # fmt: skip
for dim in range(4):
    CASES[f"all_gather {dim}"] = (
        lambda x, a, dim=dim, **k: lax.all_gather(x, a, axis=dim, **k), lambda x, dim=dim: gathered(x, dim, False), True
    )  # fmt: skip
for dim in range(3):
    CASES[f"all_gather {dim}, tiled"] = (
        lambda x, a, dim=dim, **k: lax.all_gather(x, a, axis=dim, tiled=True, **k),
        lambda x, dim=dim: gathered(x, dim, True),
        True,
    )
    CASES[f"all_to_all 1 to {dim}"] = (
        lambda x, a, dim=dim: lax.all_to_all(x, a, 1, dim), lambda x, dim=dim: exchanged(x, 1, dim, False), False
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_collectives_equal_operations_on_stacked_operands(name):
    f, want, _ = CASES[name]
    np.testing.assert_allclose(over(lambda x: f(x, "i"), X), want(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(phalanx.jit(phalanx.vmap(phalanx.jit(lambda x: f(x, "i")), axis_name="i"))(X),
                               want(X), rtol=1e-5, atol=1e-6)  # fmt: skip
    same = np.stack([X[0]] * N)
    got = phalanx.vmap(lambda x: f(x, "i"), None, axis_name="i", axis_size=N)(X[0])
    np.testing.assert_allclose(got, want(same), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dim", [0, 1, 3])
def test_collectives_under_vmap_over_another_axis(name, dim):
    f, want, _ = CASES[name]
    x = np.stack([X, 2 * X - 1], dim + 1)
    inner = phalanx.vmap(lambda x: f(x, "i"), dim)
    np.testing.assert_allclose(over(inner, x), np.stack([want(X), want(2 * X - 1)], 1), rtol=1e-5, atol=1e-6)
    outer = phalanx.vmap(phalanx.vmap(lambda x: f(x, "i"), axis_name="i"), dim + 1)
    np.testing.assert_allclose(outer(x), np.stack([want(X), want(2 * X - 1)]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_axis_index_groups_are_independent(name):
    f, want, _ = CASES[name]
    got = over(lambda x: f(x, "i", axis_index_groups=GROUPS), X)
    np.testing.assert_allclose(got, by_group(want, X, GROUPS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax", "pmin"])
def test_reductions_accept_groups_of_different_sizes(name):
    f, want, _ = CASES[name]
    groups = [[3], [0, 2, 1]]
    got = over(lambda x: f(x, "i", axis_index_groups=groups), X)
    np.testing.assert_allclose(got, by_group(want, X, groups), rtol=1e-5, atol=1e-6)


PAIRS = {
    "psum": (lambda x, a: lax.psum(x, a), spread(lambda x: x.sum(0))),
    "pmean": (lambda x, a: lax.pmean(x, a), spread(lambda x: x.mean(0))),
    "pmax": (lambda x, a: lax.pmax(x, a), spread(lambda x: x.max(0))),
    "ppermute": (lambda x, a: lax.ppermute(x, a, [(0, 5), (5, 1), (2, 2)]),
                 lambda x: np.stack([0 * x[0], x[5], x[2], 0 * x[0], 0 * x[0], x[0]])),
    "all_gather": (lambda x, a: lax.all_gather(x, a, axis=1), lambda x: gathered(x, 1, False)),
    "psum_scatter": (lambda x, a: lax.psum_scatter(x, a), lambda x: scattered(x, 0, False)),
    "all_to_all": (lambda x, a: lax.all_to_all(x, a, 0, 1), lambda x: exchanged(x, 0, 1, False)),
    "axis_index": (lambda x, a: lax.axis_index(a), lambda x: np.arange(6)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("axes", [("i", "j"), ("j", "i")])
@pytest.mark.parametrize("staged", [False, True])
def test_one_collective_over_two_axes(name, axes, staged):
    f, want = PAIRS[name]
    g = phalanx.vmap(phalanx.vmap(lambda x: f(x, axes), axis_name="j"), axis_name="i")
    flat = Y if axes == ("i", "j") else Y.swapaxes(0, 1)
    y = want(flat.reshape(6, *Y.shape[2:]))
    y = y.reshape(*flat.shape[:2], *y.shape[1:])
    got = (phalanx.jit(g) if staged else g)(Y)
    np.testing.assert_allclose(got, y if axes == ("i", "j") else y.swapaxes(0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_collectives_equal_finite_differences(name):
    f, want, _ = CASES[name]
    g = phalanx.vmap(lambda x: f(x, "i"), axis_name="i")
    x, t = X.astype(np.float64), RNG.normal(size=X.shape)
    bar = RNG.normal(size=want(X).shape)
    eps = 1e-6
    slope = (want(x + eps * t) - want(x - eps * t)) / (2 * eps)
    _, y_dot = phalanx.jvp(g, (X,), (t.astype(np.float32),))
    np.testing.assert_allclose(y_dot, slope, rtol=1e-3, atol=1e-4)
    (x_bar,) = phalanx.vjp(g, X)[1](bar.astype(np.float32))
    assert np.vdot(np.asarray(x_bar), t) == pytest.approx(np.vdot(bar, slope), rel=1e-3)
    # The member's own view: each pulls its part of the cotangent back, and collectives are transposed among members.
    own = over(lambda x, b: phalanx.vjp(lambda x: f(x, "i"), x)[1](b)[0], X, bar.astype(np.float32))
    np.testing.assert_allclose(own, x_bar, rtol=1e-4, atol=1e-5)


def test_pmax_divides_the_derivative_among_ties():
    x = np.array([1.0, 3.0, 3.0, 2.0], np.float32)
    g = phalanx.grad(lambda x: over(lambda x: lax.pmax(x, "i"), x)[0])
    np.testing.assert_allclose(g(x), [0, 0.5, 0.5, 0])


def test_psum_of_constants_is_folded():
    def f(x):
        assert lax.psum(1, "i") == N
        assert type(lax.psum(1, "i")) is int
        assert lax.axis_size("i") == N
        assert lax.pmax(2, "i") == 2
        assert lax.psum(1, "i", axis_index_groups=GROUPS) == 2
        return x.reshape(lax.psum(1, "i") // 4, -1)

    assert over(f, X).shape == (N, 1, 96)
    text = str(phalanx.make_jaxpr(phalanx.vmap(lambda x: x * lax.psum(2.0, "i"), axis_name="i"))(X))
    assert "psum" not in text


def test_psum_of_pytrees_booleans_and_integers():
    got = over(lambda x: lax.psum({"a": x, "b": (x > 0, 3)}, "i"), np.arange(4))
    assert [np.asarray(v).tolist() for v in (got["a"], *got["b"])] == [[6] * 4, [3] * 4, [12] * 4]
    assert over(lambda x: lax.pmean(x, "i"), np.arange(4)).tolist() == [1.5] * 4


def test_collectives_inside_jit_of_unmapped_values():
    def named(x):
        return jnp.ones(()) * lax.axis_index("i")

    def custom(f):
        ruled = phalanx.custom_jvp(f)
        ruled.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return ruled

    for wrap in (phalanx.jit, phalanx.remat, custom, lambda f: phalanx.jit(custom(f))):
        got = phalanx.vmap(wrap(named), None, axis_name="i", axis_size=3)(1.0)
        assert got.tolist() == [0, 1, 2]


def test_collectives_inside_scan_while_and_cond():
    def scanned(x):
        return lax.scan(lambda c, t: (c + lax.psum(t, "i"), c * lax.axis_index("i")), jnp.ones(()), x)

    x = X[:, 0, 0]
    totals = np.cumsum(np.concatenate([[1], x.sum(0)]))
    carry, ys = over(scanned, x)
    np.testing.assert_allclose(carry, [totals[-1]] * N, rtol=1e-5)
    np.testing.assert_allclose(ys, np.arange(N)[:, None] * totals[:-1], rtol=1e-5)
    grad = phalanx.grad(lambda x: over(scanned, x)[0].sum())(x)
    np.testing.assert_allclose(grad, np.full_like(x, N), rtol=1e-6)

    def looped(limit):
        return lax.while_loop(lambda c: lax.pmax(c, "i") < 10, lambda c: c + lax.axis_index("i"), limit)

    assert over(looped, np.zeros(3, np.int32)).tolist() == [0, 5, 10]

    def branched(x, flag):
        return lax.cond(flag, lambda x: lax.pmean(x, "i"), lambda x: x * lax.axis_index("i"), x)

    for flag, want in ((True, [1.5] * N), (False, [0, 1, 4, 9])):
        got = phalanx.jit(phalanx.vmap(branched, (0, None), axis_name="i"))(np.arange(4.0), flag)
        np.testing.assert_allclose(got, want)
    np.testing.assert_allclose(over(branched, np.arange(4.0), np.array([1, 0, 1, 0], bool)), [1.5, 1, 1.5, 9])


def test_per_member_gradients_are_averaged_in_custom_rules():
    @phalanx.custom_vjp
    def same(x):
        return x

    same.defvjp(lambda x: (x, None), lambda _, bar: (lax.pmean(bar, "i"),))

    def loss(x):
        return over(lambda x, w: w * same(x), x, np.arange(4, dtype=np.float32)).sum()

    for f in (loss, phalanx.jit(loss)):
        np.testing.assert_allclose(phalanx.grad(f)(np.ones(4, np.float32)), [1.5] * 4)


def test_repeated_axis_name_refers_to_the_innermost_vmap():
    f = phalanx.vmap(phalanx.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")
    np.testing.assert_allclose(f(Y), np.broadcast_to(Y.sum(1, keepdims=True), Y.shape), rtol=1e-5)


def test_error_for_an_unbound_axis_name_lists_the_names_in_scope():
    with pytest.raises(UnboundAxisError) as e:
        over(lambda x: phalanx.vmap(lambda y: lax.psum(y, "k"), axis_name="j")(x), X)
    assert isinstance(e.value, NameError)
    assert str(e.value) == (
        "lax.psum axis_name: expected the name of an axis in scope ('i', 'j'), got 'k'.\n"
        "  Fix: call the function under vmap or pmap with axis_name='k', or under a shard_map over a mesh with this "
        "axis, or use a name in scope."
    )
    with pytest.raises(UnboundAxisError) as e:
        lax.axis_index("k")
    assert str(e.value) == (
        "lax.axis_index axis_name: expected the name of an axis in scope (none is in scope), got 'k'.\n"
        "  Fix: call the function under vmap or pmap with axis_name='k', or under a shard_map over a mesh with this "
        "axis."
    )
    program = phalanx.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", N)])(1.0)
    with pytest.raises(UnboundAxisError) as e:
        phalanx.jit(lambda x: phalanx.core.run_jaxpr(program, x))(1.0)
    assert str(e.value) == (
        "lax.psum over 'i': expected a program inside the vmap or shard_map that binds these axes, got a program outside "
        "of it.\n  Fix: call it under vmap(..., axis_name='i')."
    )


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: lax.psum(x, ("i", "i")), ArgumentError,
         "lax.psum axis_name: expected each name once, got ('i', 'i').\n  Fix: remove the repeated name."),
        (lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [1, 3]]), ArgumentError,
         "lax.psum axis_index_groups: expected groups that contain each of the 4 positions along the axis once, got "
         "[[0, 1], [1, 3]].\n  Fix: list each of the positions 0 to 3 in exactly one group."),
        (lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1, 2], [3]]), ArgumentError,
         "lax.all_gather axis_index_groups: expected groups of one size, since it determines the shape of the result, "
         "got sizes 3, 1.\n  Fix: divide the 4 positions evenly among the groups."),
        (lambda x: lax.psum_scatter(x, "i"), ShapeError,
         "lax.psum_scatter: expected dimension 0 of a size equal to the number of members, 4, got f32[3,4,8].\n"
         "  Fix: pad or reshape the operand, or give tiled=True to send more than one slice."),
        (lambda x: lax.ppermute(x, "i", [1, 2, 3, 0]), ArgumentError,
         "lax.ppermute perm: expected pairs of different sources and different destinations in [0, 4), got "
         "[1, 2, 3, 0].\n"
         "  Fix: send from each position at most once, and to each position at most once; to pass a list of positions, "
         "call pshuffle."),
        (lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]), ArgumentError,
         "lax.ppermute perm: expected pairs of different sources and different destinations in [0, 4), got "
         "[(0, 1), (0, 2)].\n  Fix: send from each position at most once, and to each position at most once."),
        (lambda x: lax.pshuffle(x, "i", [0, 0, 1, 2]), ArgumentError,
         "lax.pshuffle perm: expected a permutation of the 4 positions, got [0, 0, 1, 2].\n"
         "  Fix: list each position once, or call ppermute with pairs."),
    ],
)  # fmt: skip
def test_collective_error_messages(f, error, text):
    with pytest.raises(error) as e:
        over(f, X)
    assert str(e.value) == text


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("psum_scatter, tiled", "ppermute")])
def test_collectives_match_jax(name):
    jax = pytest.importorskip("jax")
    f = CASES[name][0]
    theirs = {k: getattr(jax.lax, k) for k in ("psum", "pbroadcast", "pmean", "pmax", "pmin", "ppermute", "pshuffle", "pswapaxes",
              "psum_scatter", "all_gather", "all_to_all")}  # fmt: skip
    ours = over(lambda x: f(x, "i"), X)
    with pytest.MonkeyPatch.context() as patch:
        for k, v in theirs.items():
            patch.setattr(lax, k, v)
        want = jax.vmap(lambda x: f(x, "i"), axis_name="i")(X)
    np.testing.assert_allclose(ours, np.asarray(want), rtol=1e-5, atol=1e-6)


def test_ragged_all_to_all_exchanges_slices():
    n, rows = 4, 6
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 3, (n, n))
    starts = rng.integers(0, rows - 2, (n, n))
    places = np.concatenate([np.zeros((1, n), int), np.cumsum(sizes, 0)[:-1]])  # by receiver, one after the other
    x, want = rng.normal(size=(n, rows, 2)).astype("float32"), np.full((n, 9, 2), -1, "float32")
    for i in range(n):
        for j in range(n):
            want[j, places[i, j] : places[i, j] + sizes[i, j]] = x[i, starts[i, j] : starts[i, j] + sizes[i, j]]
    send = lambda *args: lax.ragged_all_to_all(*args, axis_name="i")
    got = phalanx.vmap(send, axis_name="i")(x, np.full_like(want, -1), starts, sizes, places, sizes.T)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        ((X[0], X[0, 0], *[np.zeros(N, int)] * 4), ShapeError,
         "lax.ragged_all_to_all: expected an operand and an output of at least one dimension that differ in the first one "
         "only, got f32[3,4,8] and f32[4,8].\n  Fix: give both the dtype of the operand, and equal shapes from the second dimension on."),
        ((X[0], X[0], *[np.zeros(N, int)] * 3, np.zeros(2, int)), ShapeError,
         "lax.ragged_all_to_all recv_sizes: expected one number for each of the 4 members, got i32[2].\n"
         "  Fix: pass a vector of length 4."),
        ((X[0], X[0], np.zeros(N, "float32"), *[np.zeros(N, int)] * 3), DTypeError,
         "lax.ragged_all_to_all input_offsets: expected integers, of one dtype for all offsets and sizes, got f32[4].\n"
         "  Fix: convert them with .astype."),
    ],
)  # fmt: skip
def test_ragged_all_to_all_error_messages(args, kind, text):
    with pytest.raises(kind) as e:
        over(lambda _: lax.ragged_all_to_all(*args, axis_name="i"), X)
    assert str(e.value) == text


@pytest.mark.parametrize("name", ["psum", "pmean", "pmax", "pmin"])
def test_integers_in_axis_name_are_dimensions(name):
    x = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    reduce = {"psum": np.sum, "pmean": np.mean, "pmax": np.max, "pmin": np.min}[name]
    over = lambda *axes: phalanx.vmap(lambda x: getattr(lax, name)(x, axes), axis_name="i")(x)
    np.testing.assert_allclose(over("i", -1)[0], reduce(x, (0, 2)), rtol=1e-5)
    np.testing.assert_allclose(over(0, 1), reduce(x, (1, 2)), rtol=1e-5)
    with pytest.raises(AxisError, match=rf"lax.{name} axis_name: expected dimensions in \[-2, 2\), got 2"):
        over("i", 2)


def test_psum_and_pmean_over_dimensions_have_the_dtypes_of_named_ones():
    assert phalanx.vmap(lambda x: lax.psum(x, ("i", 0)), axis_name="i")(np.ones((2, 3), bool)).tolist() == [6, 6]
    assert lax.pmean(np.array([1, 2]), 0) == 1.5


def test_all_gather_result_may_be_typed_as_shared():
    mesh = Mesh(np.array(phalanx.devices()[:4]), "d")
    view = dict(mesh=mesh, in_specs=P("d"), out_specs=P())
    x = np.arange(8)
    f = phalanx.shard_map(lambda x: lax.all_gather(x, "d", tiled=True, to="invarying"), **view)
    assert f(x).tolist() == x.tolist()
    for to in ("reduced", "invarying"):
        options = {"to": to, "axis_index_groups": [[0, 1], [2, 3]]}
        with pytest.raises(ArgumentError) as error:
            phalanx.shard_map(lambda x, o=options: lax.all_gather(x, "d", tiled=True, **o), **view)(x)
        assert str(error.value) == (
            f"lax.all_gather, to: expected 'varying', or without groups 'invarying' or 'reduced', got {to!r}.\n"
            "  Fix: drop the argument `to`, or drop axis_index_groups."
        )
