"""Keys: both kinds, the numbers of the peer, batches of keys, and what is refused."""

import numpy as np
import pytest

import phalanx
from phalanx import random
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, PhalanxError, ShapeError

IMPLS = ["threefry2x32", "rbg", "unsafe_rbg"]


def words(keys):
    return np.asarray(random.key_data(keys)).tolist()


def threefry(key, counter):
    """The hash of the paper in Python's integers."""
    mask = 2**32 - 1
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = ((c + k) & mask for c, k in zip(counter, key, strict=True))
    for cycle in range(5):
        for r in rotations[cycle % 2]:
            x = (x + y) & mask
            y = ((y << r | y >> (32 - r)) & mask) ^ x
        x = (x + schedule[(cycle + 1) % 3]) & mask
        y = (y + schedule[(cycle + 2) % 3] + cycle + 1) & mask
    return [x, y]


@pytest.mark.parametrize(
    ("key", "counter", "hashed"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_known_answers_of_random123(key, counter, hashed):
    from phalanx.lax.prng.threefry2x32 import threefry2x32_p

    for is_key in (False, True):
        out = threefry2x32_p(*(np.uint32(x) for x in (*key, *counter)), is_key=is_key)
        assert tuple(int(x) for x in out) == hashed == tuple(threefry(key, counter))


def test_a_bit_depends_on_its_key_and_position_only():
    key = random.wrap_key_data(np.array([5, 7], np.uint32))
    bits = np.asarray(random.bits(key, (2, 3)))
    for position, value in enumerate(bits.ravel().tolist()):
        high, low = threefry((5, 7), (0, position))
        assert value == high ^ low
    assert words(random.split(key, 3)) == [threefry((5, 7), (0, i)) for i in range(3)]
    assert words(random.fold_in(key, 9)) == threefry((5, 7), (0, 9))


def test_typed_and_raw_keys_give_equal_bits():
    typed, raw = random.key(3), random.PRNGKey(3)
    assert raw.dtype == np.uint32 and raw.shape == (2,) and raw.tolist() == words(typed) == [0, 3]
    assert random.split(raw).dtype == np.uint32
    assert random.split(raw, (2, 2)).tolist() == words(random.split(typed, (2, 2)))
    assert random.fold_in(raw, 1).tolist() == words(random.fold_in(typed, 1))
    assert random.bits(raw, (4,)).tolist() == random.bits(typed, (4,)).tolist()
    assert random.bits(np.asarray(raw), (4,)).tolist() == random.bits(typed, (4,)).tolist()
    assert words(random.clone(typed)) == words(typed)
    assert random.wrap_key_data(raw).dtype == typed.dtype == random.key_dtype("threefry2x32")
    assert random.key_impl(typed) == random.key_impl(raw) == "threefry2x32"
    assert phalanx.dtypes.issubdtype(typed.dtype, phalanx.dtypes.prng_key)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**40 + 5, np.int32(-3), np.uint32(7), True])
@pytest.mark.parametrize("x64", [False, True])
def test_seeds_equal_jax(seed, x64):
    jax = pytest.importorskip("jax")
    with phalanx.enable_x64(x64), jax.enable_x64(x64):
        expected = np.asarray(jax.random.key_data(jax.random.key(seed))).tolist()
        assert words(random.key(seed)) == expected
        if not isinstance(seed, bool) and (x64 or abs(int(seed)) < 2**31):
            assert words(phalanx.jit(random.key)(seed)) == expected


@pytest.mark.parametrize("impl", IMPLS[:2])
def test_keys_and_bits_equal_jax(impl):
    jax = pytest.importorskip("jax")
    ours, theirs = random.key(42, impl=impl), jax.random.key(42, impl=impl)
    assert (
        words(random.split(ours, (2, 3))) == np.asarray(jax.random.key_data(jax.random.split(theirs, (2, 3)))).tolist()
    )
    assert words(random.fold_in(ours, 7)) == np.asarray(jax.random.key_data(jax.random.fold_in(theirs, 7))).tolist()
    for dtype in ("uint8", "uint16", "uint32"):
        for shape in ((), (5,), (2, 3, 4), (0, 3)):
            expected = np.asarray(jax.random.bits(theirs, shape, dtype))
            np.testing.assert_array_equal(np.asarray(random.bits(ours, shape, dtype)), expected)
    with phalanx.enable_x64(True), jax.enable_x64(True):
        np.testing.assert_array_equal(np.asarray(random.bits(ours, (7,))), np.asarray(jax.random.bits(theirs, (7,))))


@pytest.mark.one_is_quick(group=lambda impl: "a kind")
@pytest.mark.parametrize("impl", IMPLS)
def test_arrays_of_keys_act_key_by_key(impl):
    keys = random.split(random.key(0, impl=impl), 4)
    one = [random.wrap_key_data(w, impl=impl) for w in np.asarray(random.key_data(keys))]
    assert words(phalanx.vmap(random.split)(keys)) == [words(random.split(k)) for k in one]
    drawn = phalanx.vmap(lambda k: random.bits(k, (3,)))(keys)
    assert drawn.tolist() == [random.bits(k, (3,)).tolist() for k in one]
    folded = phalanx.vmap(random.fold_in)(keys, np.arange(4))
    assert words(folded) == [words(random.fold_in(k, i)) for i, k in enumerate(one)]
    folded = phalanx.vmap(random.fold_in, in_axes=(None, 0))(one[0], np.arange(4))
    assert words(folded) == [words(random.fold_in(one[0], i)) for i in range(4)]
    assert words(phalanx.vmap(lambda s: random.key(s, impl=impl))(np.arange(2))) == [
        words(random.key(s, impl=impl)) for s in range(2)
    ]


def test_keys_pass_through_operations_that_move_elements():
    keys = random.split(random.key(0), 6)
    data = np.asarray(random.key_data(keys))
    assert words(phalanx.lax.reshape(keys, (2, 3))) == data.reshape(2, 3, 2).tolist()
    assert words(phalanx.jit(lambda k: phalanx.lax.rev(k, (0,)))(keys)) == data[::-1].tolist()
    assert words(phalanx.lax.concatenate([keys, keys], 0)) == np.concatenate([data, data]).tolist()
    assert words(phalanx.lax.index_in_dim(keys, 2, keepdims=False)) == data[2].tolist()
    assert words(phalanx.numpy.full_like(keys, keys[1], shape=2)) == [data[1].tolist()] * 2

    def step(key, _):
        key, sub = phalanx.lax.unstack(random.split(key))
        return key, random.bits(sub)

    last, drawn = phalanx.lax.scan(step, random.key(1), None, length=3)
    key, expected = random.key(1), []
    for _ in range(3):
        key, bits = step(key, None)
        expected.append(int(bits))
    assert words(last) == words(key) and drawn.tolist() == expected


def test_loops_stack_keys():
    keys = random.split(random.key(0), 4)
    each = phalanx.vmap(random.split)
    assert words(phalanx.lax.map(random.split, keys)) == words(each(keys))
    stacked = lambda ks: phalanx.lax.scan(lambda c, k: (c, random.split(k)), 0, ks, reverse=True, unroll=2)[1]
    assert words(phalanx.jit(stacked)(keys)) == words(each(keys))
    assert words(phalanx.vmap(stacked)(keys.reshape(2, 2))) == words(phalanx.vmap(each)(keys.reshape(2, 2)))


@pytest.mark.parametrize("key", [random.key(0), random.PRNGKey(0)])
def test_eager_split_is_one_dispatch(key, monkeypatch):
    from phalanx.engine import cache
    from phalanx.runtime import eager_dispatch

    made = []
    prepare = eager_dispatch.compile_operation
    monkeypatch.setattr(eager_dispatch, "compile_operation", lambda p, *rest: made.append(p.name) or prepare(p, *rest))
    cache.clear_caches()
    random.split(key)
    assert made == ["random_split"]


def test_jaxprs_print_key_dtypes():
    program = str(phalanx.make_jaxpr(lambda k: random.bits(random.fold_in(k, 1), (3,)))(random.key(0)))
    assert "key<fry>[]" in program
    assert "random_fold_in" in program and "random_bits" in program


def text(fun):
    with pytest.raises(PhalanxError) as error:
        fun()
    return type(error.value), str(error.value)


def test_errors():
    key = random.key(0)
    keys = random.split(key)
    assert text(lambda: random.bits(1, (3,))) == (
        ArgumentTypeError,
        "random.bits, key: expected a typed key, or uint32[2], the words of a threefry2x32 key, got 1.\n"
        "  Fix: make a key with phalanx.random.key(seed).",
    )
    assert text(lambda: random.split(np.zeros(3, np.uint32))) == (
        ArgumentTypeError,
        "random.split, key: expected a typed key, or uint32[2], the words of a threefry2x32 key, got u32[3].\n"
        "  Fix: make a key with phalanx.random.key(seed).",
    )
    assert text(lambda: random.bits(keys, (3,))) == (
        ShapeError,
        "random.bits, key: expected a single key, got keys of shape (2,).\n  Fix: map over several keys with vmap.",
    )
    assert text(lambda: random.key(1.5)) == (
        ArgumentTypeError,
        "random.key seed: expected an integer, got ~f32[].\n  Fix: pass an int or an integer array of rank 0.",
    )
    assert text(lambda: random.key(np.arange(3))) == (
        ShapeError,
        "random.key: expected one seed, got i32[3].\n  Fix: map over several seeds with vmap.",
    )
    assert text(lambda: random.key(2**63)) == (
        ArgumentError,
        "random.key: expected a seed of 64 bits, got 9223372036854775808.\n  Fix: take it modulo 2**63.",
    )
    assert text(lambda: random.key(0, impl="mersenne")) == (
        ArgumentError,
        "random key, impl: expected one of 'threefry2x32', 'rbg', 'unsafe_rbg', got 'mersenne'.\n"
        "  Fix: pass impl='threefry2x32', or leave it out for the option default_prng_impl.",
    )
    assert text(lambda: random.split(key, -1)) == (
        ShapeError,
        "random.split, shape: expected sizes that are not negative, got (-1,).\n  Fix: pass sizes of at least 0.",
    )
    assert text(lambda: random.bits(key, (2.5,))) == (
        ArgumentTypeError,
        "random.bits, shape: expected a tuple of ints, got (2.5,).\n  Fix: pass a tuple of Python ints, such as (2, 3).",
    )
    assert text(lambda: random.bits(key, (2,), "int32")) == (
        ArgumentError,
        "random.bits, dtype: expected an unsigned dtype, got int32.\n  Fix: pass an unsigned dtype such as 'uint32'.",
    )
    assert text(lambda: random.fold_in(key, 1j)) == (
        ArgumentTypeError,
        "random.fold_in, data: expected one integer, got ~c64[].\n  Fix: map over several with vmap.",
    )
    assert text(lambda: random.wrap_key_data(np.zeros(3, np.uint32))) == (
        ShapeError,
        "random.wrap_key_data: expected uint32 data whose last dimensions are (2,), the words of a threefry2x32 key, "
        "got u32[3].\n  Fix: pass key_data of such keys, or name their generator with impl.",
    )
    assert text(lambda: phalanx.lax.add(keys, keys))[1].startswith("lax.add: expected ")


def test_keys_of_unsafe_rbg_are_drawn_as_in_jax():
    peer = pytest.importorskip("jax")
    for make in (lambda r, key: r.split(key, (2, 3)), lambda r, key: r.fold_in(key, 7)):
        want = peer.random.key_data(make(peer.random, peer.random.key(5, impl="unsafe_rbg")))
        np.testing.assert_array_equal(random.key_data(make(random, random.key(5, impl="unsafe_rbg"))), want)


def test_a_key_can_be_formatted():
    key = random.key(0)
    assert f"{key}" == str(key) and f"{random.split(key)}".startswith("Array((2,), dtype=key<fry>)")
