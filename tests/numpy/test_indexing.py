"""Indexing and updates mean what they mean in NumPy, for index expressions made by Hypothesis."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.errors import NonConcreteBooleanIndexError

SHAPES = [(5,), (3, 4), (2, 3, 4), (2, 1, 3, 2)]


def arrays_of_integers(n, batch):
    return st.lists(st.integers(-n, n - 1), min_size=int(np.prod(batch)), max_size=int(np.prod(batch))).map(
        lambda v: np.array(v, np.int32).reshape(batch)
    )


@st.composite
def slices(draw, n):
    bound = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(bound), draw(bound), draw(st.none() | st.integers(-3, 3).filter(bool)))


@st.composite
def expressions(draw, masks=True):
    shape = draw(st.sampled_from(SHAPES))
    batch = draw(st.sampled_from([(), (2,), (1,), (2, 2)]))
    entries = []
    dim = 0
    count = draw(st.integers(0, len(shape)))
    while dim < count:
        n = shape[dim]
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "array", "mask", "bool"]))
        if kind == "mask" and masks and draw(st.booleans()):
            entries.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
            if entries[-1].sum() != 2 or batch != (2,):
                entries[-1] = draw(st.integers(-n, n - 1))
        elif kind == "int":
            entries.append(draw(st.integers(-n, n - 1)))
        elif kind == "array":
            size = draw(st.sampled_from([batch, batch[1:], (1,) * len(batch)]))
            entries.append(draw(arrays_of_integers(n, size)))
        else:
            entries.append(draw(slices(n)))
        dim += 1
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))) if count == len(shape) else len(entries), Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return shape, tuple(entries)


def split(index):
    """The expression with its integer arrays taken out, and these."""
    arrays = [e for e in index if isinstance(e, np.ndarray) and e.dtype != bool]

    def join(values):
        found = iter(values)
        return tuple(next(found) if isinstance(e, np.ndarray) and e.dtype != bool else e for e in index)

    return arrays, join


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(expressions())
@example(((3, 4), (None, np.array([0, 0]), Ellipsis, 0)))
def test_reading_is_that_of_numpy(case):
    shape, index = case
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    wanted = x[index]
    arrays, join = split(index)
    for converted in (index, join([jnp.asarray(a) for a in arrays])):
        np.testing.assert_array_equal(np.asarray(jnp.asarray(x)[converted]), wanted)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(expressions(masks=False))
def test_reading_is_the_same_compiled(case):
    shape, index = case
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    arrays, join = split(index)
    got = phalanx.jit(lambda x, arrays: x[join(arrays)])(x, arrays)
    np.testing.assert_array_equal(np.asarray(got), x[index])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(expressions(), st.sampled_from(["set", "add", "multiply", "max"]), st.booleans(), st.booleans())
@example(((3, 4), (None, np.array([0, 1]), Ellipsis, 0)), "add", True, True)
def test_updating_is_that_of_numpy(case, how, wide, traced):
    shape, index = case
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    value = np.float32(3.0)
    if wide:
        value = np.random.default_rng(0).integers(1, 9, size=x[index].shape).astype(np.float32)
    wanted = x.copy()
    if how == "set":
        ones = np.zeros(shape, np.int32)
        np.add.at(ones, index, 1)
        if wide and ones.max(initial=0) > 1:
            return  # which of several values stays is not said
        wanted[index] = value
    else:
        {"add": np.add, "multiply": np.multiply, "max": np.maximum}[how].at(wanted, index, value)
    arrays, join = split(index)
    converted = join([jnp.asarray(a) for a in arrays]) if traced else index
    got = getattr(jnp.asarray(x).at[converted], how)(value)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6)


def test_reading_takes_as_few_operations_as_it_can():
    x, i = np.zeros((4, 3), np.float32), np.int32(1)
    trace = lambda f, *args: [e.primitive.name for e in phalanx.make_jaxpr(f)(*args).eqns]
    assert trace(lambda x: x[1:3], x) == ["slice"]
    assert trace(lambda x: x[0], x) == ["slice", "squeeze"]
    assert trace(lambda x: x[::-1], x) == ["rev"]
    assert len(trace(lambda x: x[..., None], x)) == 1
    assert trace(lambda x: x[:], x) == []
    assert trace(lambda x, i: x[i], x, i) == ["dynamic_slice", "squeeze"]
    assert trace(lambda x: x.at[1:3].set(0.0), x)[-1] == "dynamic_update_slice"
    assert trace(lambda x: x[np.array([2, 0])], x) == ["gather"]


def test_indices_out_of_bounds_are_moved_in_for_reading_and_left_out_for_updates():
    x = jnp.arange(4.0)
    assert x[9].item() == 3.0 and x[-9].item() == 0.0
    assert x[jnp.array([9, -9])].tolist() == [3.0, 0.0]
    assert x.at[9].set(7.0).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert x.at[jnp.array([9, 1])].add(7.0).tolist() == [0.0, 8.0, 2.0, 3.0]
    assert x.at[jnp.array([9, 1])].add(7.0, mode="clip").tolist() == [0.0, 8.0, 2.0, 10.0]
    assert x.at[9].set(7.0, mode="clip").tolist() == [0.0, 1.0, 2.0, 7.0]
    assert np.isnan(x.at[9].get(mode="fill").item())
    assert x.at[jnp.array([9, 1])].get(mode="fill", fill_value=-1).tolist() == [-1.0, 1.0]
    assert x.at[jnp.int32(9)].get(mode="fill", fill_value=-1).item() == -1.0
    assert x.at[jnp.array([-1])].get(mode="fill", fill_value=-1, wrap_negative_indices=False).tolist() == [-1.0]


@pytest.mark.parametrize(
    "how, wanted",
    [("divide", [0, 0.5, 2]), ("power", [0, 1, 2]), ("subtract", [0, -1, 2]), ("min", [0, 1, 2]), ("mul", [0, 2, 2])],
)
def test_each_update_with_a_static_and_a_traced_index(how, wanted):
    x = jnp.arange(3.0)
    for i in (1, jnp.int32(1), jnp.array([1])):
        assert getattr(x.at[i], how)(2.0).tolist() == wanted
    assert x.at[jnp.array([1])].apply(jnp.exp2).tolist() == x.at[1].apply(jnp.exp2).tolist() == [0.0, 2.0, 2.0]


def test_a_mask_that_is_traced_may_update_but_not_read():
    x = jnp.arange(4.0)
    assert phalanx.jit(lambda x: x.at[x > 1].set(9.0))(x).tolist() == [0.0, 1.0, 9.0, 9.0]
    assert phalanx.jit(lambda x: x.at[x > 1].add(1))(x).tolist() == [0.0, 1.0, 3.0, 4.0]
    with pytest.raises(NonConcreteBooleanIndexError):
        phalanx.jit(lambda x: x[x > 1])(x)
    assert phalanx.grad(lambda x: x[x > 1].sum())(x).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_derivatives_of_reading_and_updating():
    x = jnp.arange(6.0).reshape(2, 3)
    i = jnp.array([1, 1, 0])
    assert phalanx.grad(lambda x: (x[i, jnp.arange(3)] ** 2).sum())(x).tolist() == [[0, 0, 4], [6, 8, 0]]
    assert phalanx.grad(lambda x: (x[1, ::-1][:2] ** 2).sum())(x).tolist() == [[0, 0, 0], [0, 8, 10]]
    assert phalanx.grad(lambda x: x.at[0].set(2.0).sum())(x).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert phalanx.grad(lambda v: x.at[i].add(v).sum())(jnp.ones(3)).tolist() == [3, 3, 3]
    assert phalanx.grad(lambda x, i: (x[i] ** 2).sum())(x, 1).tolist() == [[0, 0, 0], [6, 8, 10]]


def test_vmap_over_the_array_and_over_the_index():
    x = jnp.arange(12.0).reshape(3, 4)
    i = jnp.array([0, 2, 3])
    assert phalanx.vmap(lambda r, i: r[i])(x, i).tolist() == [0.0, 6.0, 11.0]
    assert phalanx.vmap(lambda i: x[:, i])(i).tolist() == x[:, i].T.tolist()
    assert phalanx.vmap(lambda r, i: r.at[i].set(-1.0))(x, i)[1].tolist() == [4.0, 5.0, -1.0, 7.0]


def test_iteration_gives_the_pieces():
    assert [v.item() for v in jnp.arange(70)] == list(range(70))
    assert phalanx.jit(lambda x: sum(v for v in x))(jnp.arange(4)).item() == 6


def test_eager_loops_over_places_share_their_programs(monkeypatch):
    from phalanx.engine import compiler

    compiled = []
    compile_module = compiler.compile_module
    monkeypatch.setattr(compiler, "compile_module", lambda *a, **k: compiled.append(1) or compile_module(*a, **k))
    x, rows, y = jnp.arange(37.0), jnp.arange(39.0).reshape(13, 3), np.zeros(37, np.float32)
    z = jnp.zeros(37)
    for i in range(12):
        assert x[i].item() == i and x[i : i + 3].tolist() == [i, i + 1, i + 2]
        assert rows[i, jnp.array([0, 2])].tolist() == [3 * i, 3 * i + 2]
        z, y[i] = z.at[i].set(i), i
        z, y[i : i + 2] = z.at[i : i + 2].add(1), y[i : i + 2] + 1
    assert z.tolist() == y.tolist()
    assert len(compiled) <= 24


MESSAGES = {
    "too many": (
        lambda x: x[0, 0, 0],
        "index expression: expected at most 2 indices for an array of shape (2, 3), got 3.\n"
        "  To mend: leave out the last ones.",
    ),
    "two ellipses": (
        lambda x: x[..., ...],
        "index expression: expected at most one Ellipsis, got 2.\n  To mend: leave one out.",
    ),
    "a list": (
        lambda x: x[[0, 1]],
        "index expression: expected integers, slices, arrays, None or Ellipsis, got the sequence [0, 1].\n"
        "  To mend: index with an array: x[jnp.array([0, 1])].",
    ),
    "a float": (
        lambda x: x[1.0],
        "index expression: expected integers, slices, arrays of integers or booleans, None or Ellipsis, got 1.0 of type "
        "float.\n  To mend: convert the index to an integer with .astype(int).",
    ),
    "floats": (
        lambda x: x[jnp.ones(2)],
        "index expression: expected integers, slices, arrays of integers or booleans, None or Ellipsis, got f32[2].\n"
        "  To mend: convert the index to an integer with .astype(int).",
    ),
    "a mask of another shape": (
        lambda x: x[np.array([True])],
        "index expression: expected a mask of the shape (2,) of the dimensions it is about, got (1,).\n"
        "  To mend: broadcast the mask.",
    ),
    "a step of 0": (
        lambda x: x[::0],
        "index expression: expected a slice step other than 0, got 0.\n  To mend: leave it out.",
    ),
    "values of another shape": (
        lambda x: x.at[0].set(jnp.ones(2)),
        "at[], argument values: expected shapes that broadcast: equal dimensions, or 1, got (2,) and (3,).\n"
        "  To mend: reshape one operand, or insert dimensions with x[:, None].",
    ),
    "a mode": (
        lambda x: x.at[0].set(1.0, mode="wrap"),
        "at[], argument mode: expected 'fill', 'drop', 'clip' or 'promise_in_bounds', got 'wrap'.\n"
        "  To mend: use one of these.",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_wrong_is_said(name):
    function, text = MESSAGES[name]
    with pytest.raises((IndexError, ValueError)) as error:
        function(jnp.zeros((2, 3)))
    assert str(error.value) == text


def test_modes_may_be_given_as_those_of_lax():
    x = jnp.arange(3.0)
    clip, fill = lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP
    for index in (7, jnp.array([7])):
        assert float(x.at[index].set(9.0, mode=clip)[2]) == 9.0
        assert float(x.at[index].set(9.0, mode=fill).sum()) == 3.0
        assert float(x.at[index].get(mode=clip).sum()) == 2.0
        assert np.isnan(x.at[index].get(mode=fill)).all()


def test_negative_indices_that_do_not_wrap_are_out_of_bounds():
    x = jnp.arange(3.0)
    for index in (-1, np.int32(-1), jnp.array([-1])):
        assert x.at[index].set(9.0, wrap_negative_indices=False).tolist() == [0.0, 1.0, 2.0]
        assert x.at[index].set(9.0, mode="clip", wrap_negative_indices=False).tolist() == [9.0, 1.0, 2.0]
        assert float(x.at[index].get(mode="clip", wrap_negative_indices=False).sum()) == 0.0
        assert np.isnan(x.at[index].get(mode="fill", wrap_negative_indices=False)).all()


def test_take_with_clip_moves_negative_indices_to_zero_as_numpy_does():
    x, i = np.arange(3.0), np.array([7, -1, -9, 1])
    assert jnp.take(x, i, mode="clip").tolist() == np.take(x, i, mode="clip").tolist()


def test_nothing_is_taken_from_nothing():
    x, none = jnp.zeros((0, 3)), jnp.zeros(0, int)
    assert x[none].shape == (0, 3) and x[:, jnp.array([1])].shape == (0, 1) and jnp.take(x, none, 0).shape == (0, 3)
    assert (
        x.at[none].set(1).shape == x.at[jnp.array([0])].add(1).shape == jnp.take_along_axis(x, none[:, None], 0).shape
    )
    assert jnp.unique(x).shape == jnp.setdiff1d(none, none).shape == (0,) and jnp.linalg.inv(x[:, :0]).shape == (0, 0)
    for read in (lambda: x[0], lambda: x[jnp.array([0])], lambda: jnp.take(x, jnp.array([1]), 0, mode="clip")):
        with pytest.raises(IndexError):
            read()
