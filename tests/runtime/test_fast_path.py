"""Fast calls: generated code that repeats a call for arguments like those of a call before."""

import collections
import concurrent.futures
import dataclasses
import enum
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.processes import run_python

import phalanx
import phalanx.numpy as jnp
from phalanx.core import get_aval
from phalanx.engine import transfer_guard
from phalanx.engine.buffers import make_argument_sender
from phalanx.engine.traceback_filtering import is_internal, is_user_file
from phalanx.runtime import ArrayType
from phalanx.runtime.compiled_program import plan_transfers
from phalanx.runtime.fast_path import UNLIKE, fast_call
from phalanx.runtime.host_arguments import HostArgument
from phalanx.runtime.transfer import put_shared, put_typed
from phalanx.spmd.call_arguments import Signature
from phalanx.tree import tree_flatten, tree_leaves, tree_structure

Pair = collections.namedtuple("Pair", "first second")


@phalanx.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    weights: object
    depth: int = dataclasses.field(default=2, metadata=dict(static=True))


@phalanx.tree_util.register_pytree_node_class
class Tagged:
    """A node whose data are compared by NumPy, which has no one answer for arrays."""

    def __init__(self, children, tag):
        self.children, self.tag = children, tag

    def tree_flatten(self):
        return self.children, self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        return cls(children, tag)


class Echo:
    """A program whose results are the buffers of its arguments."""

    launch = None

    def __init__(self, types):
        self.out_types = types

    def execute(self, buffers):
        return buffers


def opener(args, kwargs, statics, types, moves):
    """A fast call that returns the buffers that it passes to its program, and None for arguments of another type."""
    tree = tree_structure([0] * len(types))
    call = fast_call(args, kwargs, statics, types, moves, Echo(types), tree)

    def opened(args, kwargs):
        out = call(args, kwargs)
        return None if out is UNLIKE else [x._buffer for x in out]

    return opened


FLOAT, INT = jnp.ones(3), jnp.arange(2)
KEYS = st.sampled_from(["a", "b", "it's", "a\nb", 'say "x"', "ü"]) | st.integers(0, 3)


def nodes(children):
    names = st.dictionaries(KEYS, children, max_size=4).filter(lambda d: len({type(k) for k in d}) < 2)
    return (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | names
        | names.map(collections.OrderedDict)
        | st.tuples(children, children).map(lambda pair: Pair(*pair))
        | st.builds(Model, children, st.integers(1, 2))
        | st.builds(lambda x, tag: Tagged((x,), tag), children, st.sampled_from(["s", "t", None]))
    )


TREES = st.recursive(st.sampled_from([FLOAT, INT, None]), nodes, max_leaves=8)


@given(TREES, TREES)
@settings(deadline=None, max_examples=200)
def test_an_opener_knows_its_own_structure_and_types_and_no_others(one, other):
    known = [x._type for x in tree_leaves(one)]
    open_one = opener((one,), {}, (), known, [])
    assert open_one((one,), {}) == [x._buffer for x in tree_leaves(one)]
    is_alike = tree_structure(one) == tree_structure(other) and known == [x._type for x in tree_leaves(other)]
    assert (open_one((other,), {}) is not None) == is_alike
    assert open_one((one, one), {}) is None


def test_data_that_cannot_be_compared_go_the_long_way():
    args = (Tagged((FLOAT,), np.arange(2)),)
    assert opener(args, {}, (), [FLOAT._type], [])(args, {}) is None


@pytest.mark.parametrize("value", [np.ones(3, np.float32), 2.5, True, np.float32(1)])
def test_data_from_the_host_are_sent_and_others_are_refused(value):
    f = phalanx.jit(lambda x, scale: x * scale)
    f(FLOAT, value), f(FLOAT, value)
    call_alike = f._jit._last[0][0]
    assert np.array_equal(call_alike((FLOAT, value), {}), FLOAT * value)
    for other in ([value], None, np.ones(4, np.float32), "text", 1j):
        assert call_alike((FLOAT, other), {}) is UNLIKE


@pytest.mark.parametrize("shape", [(3,), (5, 7, 2), ()])
def test_a_type_that_was_never_transferred_before_is_sent(shape):
    host = np.ones(shape, np.uint16)
    send = make_argument_sender(phalanx.ShapeDtypeStruct(shape, host.dtype), phalanx.devices()[0])
    assert np.array_equal(np.asarray(send(host)), host)


def test_an_array_from_the_host_is_copied_before_the_call_returns():
    f, host = phalanx.jit(lambda x: x + 1), np.zeros(1 << 16, np.float32)
    for i in range(20):
        host[:] = i
        result = f(host)
        host[:] = -1
        assert np.array_equal(result, np.full(1 << 16, i + 1, np.float32))


def test_a_small_array_from_the_host_is_staged_in_memory_that_no_unfinished_run_reads(monkeypatch):
    monkeypatch.setattr(transfer_guard, "guarded", [])  # Other tests of this process may have set a guard.
    n = 300_000  # a run that outlasts its call
    slow = phalanx.jit(lambda x, y: phalanx.lax.fori_loop(0, 200, lambda i, x: jnp.sin(x) + y[0], x)[0] + y)
    quick = phalanx.jit(lambda x, y: x + y)
    host, large = np.zeros(3, np.float32), jnp.zeros(n)
    expected = []
    for f, x in ((slow, large), (quick, FLOAT)):
        results = []
        for i in range(20):
            host[:] = i
            results.append(f(x, host))
            host[:] = -1
        expected.append(results)
    assert [float(x[1]) for x in expected[1]] == [i + 1.0 for i in range(20)]
    for i, x in enumerate(expected[0]):
        assert np.allclose(x, slow(large, jnp.full(3, float(i))))
    argument = HostArgument(get_aval(host), ArrayType(get_aval(host), FLOAT.sharding, True), put_shared)
    assert argument.is_staged
    first, second = argument.take(host), argument.take(host)
    assert first[0] is not second[0]  # Two threads call at the same time.
    argument.give_back(first, [FLOAT.block_until_ready()._buffer])
    argument.give_back(second, [])
    assert argument.take(host)[0] is first[0]
    assert sum(argument.take(host)[0] is not None for _ in range(20)) == 6  # The others are not given back.


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: (x, x + 1),
        lambda x: (x.reshape(-1, 1), x[:2]),
        lambda x: phalanx.lax.bitcast_convert_type(x, jnp.int32),
        phalanx.lax.optimization_barrier,
        lambda x: phalanx.lax.cond(x[0] > 3, lambda y: y, lambda y: y + 1, x),
        lambda x: phalanx.lax.fori_loop(0, 0, lambda i, y: y + 1, x),
        lambda x: phalanx.vjp(lambda y: y * y, x)[1],
    ],
)
def test_no_result_shares_staging_memory(function):
    f, host = phalanx.jit(function), np.zeros(5, np.float32)
    results = []
    for i in range(12):
        host[:] = i
        results.append(f(host))
        host[:] = -1
    for i, result in enumerate(results):
        expected = tree_leaves(f(jnp.full(5, float(i))))
        assert all(map(np.array_equal, tree_leaves(result), expected))


def test_a_callback_may_keep_its_argument():
    kept = []

    def keep(x):
        kept.append(x)
        return x + 1

    f = phalanx.jit(lambda x: phalanx.pure_callback(keep, phalanx.ShapeDtypeStruct((3,), np.float32), x))
    results = [np.asarray(f(np.full(3, i, np.float32))) for i in range(10)]
    assert [x[0] for x in results] == [i + 1 for i in range(10)]
    assert {float(x[0]) for x in kept} == {*range(10)}


def test_threads_that_share_a_function_do_not_share_staging_memory():
    f, x = phalanx.jit(lambda x, y: x + y), jnp.zeros(3)

    def call(i):
        host = np.full(3, i, np.float32)
        return all(np.array_equal(f(x, host), np.full(3, i)) for _ in range(300))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(8)))


def test_staging_memory_is_not_among_the_live_arrays():
    f, host = phalanx.jit(lambda x: x + 1), np.zeros((11, 3), np.int16)
    for _ in range(3):
        f(host)
    assert not any(x.shape == host.shape for x in phalanx.live_arrays())


@pytest.mark.parametrize("donate", [(), (1,)])
def test_a_repeated_scalar_is_sent_once_unless_it_is_donated(donate):
    f = phalanx.jit(lambda x, scale: (x * scale, scale + 1), donate_argnums=donate)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 0.0, 0.0, -0.0, 2.0):
        product, following = f(FLOAT, scale)
        assert np.array_equal(np.signbit(product), np.signbit(FLOAT * scale))
        assert (product[0], following) == (scale, scale + 1)
    place = put_typed if donate else put_shared
    argument = HostArgument(get_aval(2.0), ArrayType(get_aval(2.0), FLOAT.sharding, True), place)
    scalar = 2.0
    first, second = argument.take(scalar), argument.take(scalar)
    assert (first is second) == (not donate)
    first.delete()
    assert float(np.asarray(argument.take(scalar))) == 2


def test_a_guard_refuses_the_transfer_of_a_repeated_call():
    f, host = phalanx.jit(lambda x, y: x + y), np.ones(3, np.float32)
    for _ in range(3):
        f(FLOAT, host)
    with phalanx.transfer_guard("disallow"), pytest.raises(phalanx.errors.TransferError):
        f(FLOAT, host)


def test_arrays_elsewhere_are_moved():
    mesh = phalanx.sharding.Mesh(phalanx.devices()[:2], ("x",))
    split = phalanx.NamedSharding(mesh, phalanx.P("x"))
    f = phalanx.jit(lambda x: x + 1, in_shardings=split)
    x = jnp.arange(4.0)
    lowered = f.lower(x).compile().program.lowered
    (buffer,) = opener((x,), {}, (), [x._type], plan_transfers([x._type], lowered, str))((x,), {})
    assert [p.shape for p in map(np.asarray, buffer._arrays)] == [(2,), (2,)]
    for _ in range(3):
        assert np.array_equal(f(x), x + 1)


def test_calls_by_keyword_and_with_static_arguments_open_too():
    traced = []

    def affine(x, scale, kind="plain", *, offset, **rest):
        traced.append(kind)
        return scale * x + offset + sum(rest.values()) if kind == "plain" else x

    f = phalanx.jit(affine, static_argnames=("scale", "kind"))
    calls = [
        ((FLOAT, 2), {"offset": FLOAT}),
        ((FLOAT, 2), {"offset": FLOAT, "more": FLOAT}),
        ((FLOAT,), {"scale": 2, "offset": FLOAT}),
        ((FLOAT, 3), {"offset": FLOAT}),
        ((FLOAT, 2.0), {"offset": FLOAT}),
        ((FLOAT, 2), {"offset": FLOAT, "kind": "none"}),
    ]
    for args, kwargs in calls:
        for _ in range(3):
            assert np.array_equal(f(*args, **kwargs), affine(*args, **kwargs))
    count = len(traced)
    call_alike = f._jit._last[0][0]
    for args, kwargs in calls:
        is_last = kwargs.get("kind") == "none"
        assert (call_alike(args, kwargs) is not UNLIKE) == is_last
        f(*args, **kwargs)
    assert len(traced) == count


@pytest.mark.parametrize("pattern", ["AAAA", "ABCD", "AB", "AAB", "AABB", "AAAAAAAB"])
def test_the_signature_of_the_next_call_is_expected(pattern):
    f = phalanx.jit(lambda x: x + 1)
    arrays = {letter: jnp.ones(i + 1) for i, letter in enumerate("ABCD")}
    tried = []
    for letter in pattern * 4:
        f(arrays[letter])

    def record(frame, event, _):
        if event == "call" and frame.f_code.co_filename == "<fast call>":
            tried.append(frame)

    sys.setprofile(record)
    try:
        for letter in pattern * 10:
            f(arrays[letter])
    finally:
        sys.setprofile(None)
    # One call each, and a second one at most where two signatures take turns after the same one.
    failures = len(tried) - len(pattern) * 10
    assert failures <= {"AAB": 20, "AABB": 40, "AAAAAAAB": 20}.get(pattern, 0)
    assert all(np.array_equal(f(x), x + 1) for x in arrays.values())


def test_more_signatures_than_are_remembered_give_right_results():
    f = phalanx.jit(lambda x: x + 1)
    for _ in range(3):
        for n in range(1, 100):
            assert f(np.ones(n, np.float32)).shape == (n,)
    assert len(f._jit._next) <= 64 and len(f._jit._others) <= 64
    f.clear_cache()
    assert not f._jit._next and float(f(np.float32(1))) == 2


def test_a_call_that_fails_after_opening_names_the_argument():
    f = phalanx.jit(lambda state, x: (state["w"] * x, x))
    state = {"w": jnp.ones(3)}
    f(state, FLOAT), f(state, FLOAT)
    state["w"].delete()
    with pytest.raises(phalanx.errors.DeletedArrayError, match=r"state\['w'\]"):
        f(state, FLOAT)


def test_a_large_flat_and_a_deep_structure_open():
    flat = {f"layer{i}": jnp.float32(i) for i in range(300)}
    deep = FLOAT
    for _ in range(300):
        deep = [deep]
    for tree in (flat, deep):
        leaves, _ = tree_flatten(tree)
        assert opener((tree,), {}, (), [x._type for x in leaves], [])((tree,), {}) == [x._buffer for x in leaves]


def test_names_and_keys_reach_the_generated_code_as_constants():
    ran = []

    class Hostile(str):
        def __repr__(self):
            return "'red'] if print('ran') or 1/0 else kwargs['red'"

        def __format__(self, spec):
            ran.append(spec)
            return repr(self)

    class Color(enum.StrEnum):
        RED = "red"

    class Text(str):
        __slots__ = ()

    for kind in (str, Text, Hostile, lambda _: Color.RED):
        by_name = phalanx.jit(lambda **named: named["red"] + 1)
        static = phalanx.jit(lambda x, **named: x + named["red"], static_argnames="red")
        by_key = phalanx.jit(lambda tree: tree["red"] + 1)
        for x in (1.0, 2.0, 3.0):
            assert by_name(**{kind("red"): jnp.float32(x)}) == x + 1
            assert static(jnp.float32(x), **{kind("red"): 1.0}) == x + 1
            assert by_key({kind("red"): jnp.float32(x)}) == x + 1
    assert not ran
    for name in ("it's", 'a"b', "a\nb", "\\", "'] + kwargs['", "\0", "\ud800", "{x}", "ü", ""):
        f = phalanx.jit(lambda **named: sum(named.values()) + 1)
        assert [f(**{name: jnp.float32(x)}) for x in (1.0, 2.0, 3.0)] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("first, second", [(1, True), (1, 1.0), (1.0, np.float32(1)), ("a", enum.StrEnum("A", "a").a)])
def test_equal_static_arguments_of_unlike_types_have_their_own_programs(first, second):
    f = phalanx.jit(lambda x, static: x if type(static) is type(first) else -x, static_argnums=1)
    for _ in range(3):
        assert (f(1.0, first), f(1.0, second)) == (1.0, -1.0)


def test_a_static_argument_that_does_not_equal_itself_is_compiled_anew():
    f = phalanx.jit(lambda x, static: x * (static != static), static_argnums=1)
    for _ in range(3):
        assert f(2.0, float("nan")) == 2.0


@pytest.fixture
def flattenings(monkeypatch):
    """The number of calls whose arguments were flattened, as a list of one entry for each."""
    found, flatten = [], Signature.flatten
    monkeypatch.setattr(Signature, "flatten", lambda *args: found.append(1) or flatten(*args))
    return found


def test_programs_that_are_called_in_turn_read_their_arguments_directly(flattenings):
    f = phalanx.jit(lambda x: x + 1)
    arrays = [jnp.ones(n) for n in (1, 2, 3, 4)]
    for _ in range(3):
        assert [f(x).shape for x in arrays] == [(1,), (2,), (3,), (4,)]
    del flattenings[:]
    for x in (*arrays, *arrays):
        assert f(x).tolist() == [2.0] * x.size
    assert not flattenings
    f.clear_cache()
    assert f(arrays[1]).tolist() == [2.0, 2.0] and flattenings


def test_calls_of_a_compiled_stage_read_their_arguments_directly(flattenings):
    stage = phalanx.jit(lambda x, n, *, y: {"sum": x["a"] * n + y}, static_argnums=1).lower({"a": FLOAT}, 2, y=FLOAT)
    compiled = stage.compile()
    expected = np.full(3, 3.0)
    for args in (({"a": FLOAT}, 2), ({"a": FLOAT},)):  # static arguments may be omitted
        for _ in range(3):
            assert np.array_equal(compiled(*args, y=FLOAT)["sum"], expected)
        del flattenings[:]
        assert np.array_equal(compiled(*args, y=FLOAT)["sum"], expected)
        assert not flattenings
    # Host data, another static value and other types take the general path, which converts or explains.
    assert np.array_equal(compiled({"a": np.ones(3, np.float32)}, y=FLOAT)["sum"], expected)
    for wrong in (({"a": FLOAT}, 3), ({"a": INT}, 2)):
        with pytest.raises(phalanx.errors.ArgumentTypeError, match="arguments of the types that it was compiled for"):
            compiled(*wrong, y=FLOAT)
    with pytest.raises(phalanx.errors.TraceError, match="expected an array, got"):
        phalanx.make_jaxpr(lambda x: compiled({"a": x}, y=FLOAT))(FLOAT)
    with phalanx.no_execution(True), pytest.raises(phalanx.errors.ForbiddenError):
        compiled({"a": FLOAT}, y=FLOAT)
    deleted = jnp.ones(3)
    deleted.delete()
    with pytest.raises(phalanx.errors.DeletedArrayError, match=r"x\['a'\]"):
        compiled({"a": deleted}, y=FLOAT)


def test_a_static_argument_whose_value_changed_is_another_argument():
    class Size:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __hash__(self):
            return self.n

    f = phalanx.jit(lambda x, size: x * size.n, static_argnums=1)
    size = Size(2)
    assert [float(f(1.0, size)) for _ in range(3)] == [2.0] * 3
    assert [float(f(1.0, Size(3))) for _ in range(3)] == [3.0] * 3
    assert [float(f(1.0, Size(2))) for _ in range(3)] == [2.0] * 3


def test_generated_code_is_no_code_of_the_user():
    class Watched(Echo):
        def execute(self, buffers):
            self.caller = sys._getframe(1).f_code
            return buffers

    program = Watched([FLOAT._type])
    call = fast_call((FLOAT,), {}, (), [FLOAT._type], [], program, tree_structure([0]))
    assert call((FLOAT,), {})[0] is not FLOAT and program.caller is call.__code__
    assert is_internal(program.caller) and not is_user_file(program.caller.co_filename)


def test_an_exception_of_a_signal_handler_in_a_donating_call_is_not_replaced():
    # A handler raises when the run has begun, and the argument is donated.
    run_python(
        """
        import random, signal, time
        import phalanx, phalanx.numpy as jnp

        def interrupt(*_):
            raise TimeoutError("from a handler")

        signal.signal(signal.SIGALRM, interrupt)
        donate = phalanx.jit(lambda x: x + 1, donate_argnums=0)
        donate(jnp.zeros(3))
        interrupted, end = 0, time.monotonic() + 30
        while interrupted < 100 and time.monotonic() < end:
            arrays = [jnp.zeros(3) for _ in range(30)]
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-4))
                for x in arrays:
                    donate(x)
                time.sleep(1e-3)
            except TimeoutError:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        assert interrupted >= 20, interrupted
        """
    )
