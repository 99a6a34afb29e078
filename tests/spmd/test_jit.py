"""Compiled functions: what is traced when, static and donated arguments, constants, errors."""

import contextvars
import copy
import dataclasses
import functools
import gc
import itertools
import pickle
import threading
import weakref
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from phalanx.tree_util import tree_structure

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import (
    ArgumentError,
    ArgumentTypeError,
    ConcretizationTypeError,
    DeletedArrayError,
    TraceError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeError,
    UnexpectedTracerError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def counted():
    """A compiled function and the list of its traces."""
    traces = []

    @phalanx.jit
    def f(x, *rest, **named):
        traces.append(1)
        return x * 2 + sum(rest) + sum(named.values())

    return f, traces


def test_a_call_with_equal_types_is_not_traced_again():
    f, traces = counted()
    for x in (X, X + 1, jnp.asarray(X)):
        np.testing.assert_allclose(f(x), np.asarray(x) * 2)
    assert len(traces) == 1
    f(X.astype(np.int32))
    f(X[0])
    assert len(traces) == 3


def test_python_scalars_are_weak_and_do_not_retrace():
    f, traces = counted()
    assert f(1).dtype == np.int32 and f(2.0).dtype == np.float32
    f(3)
    f(4.5)
    assert len(traces) == 2


def test_keyword_and_positional_calls_are_cached_separately():
    @phalanx.jit
    def f(a, b=1.0):
        return a - (b["k"] if isinstance(b, dict) else b)

    assert float(f(3.0, b=2.0)) == 1.0
    assert float(f(3.0, {"k": 2.0})) == 1.0
    assert float(f(a=3.0, b=2.0)) == 1.0
    assert float(f((5.0), 1.0)) == 4.0


def test_options_are_part_of_the_key():
    f, traces = counted()
    assert f(np.ones(2)).dtype == np.float32
    with phalanx.enable_x64(True):
        assert f(np.ones(2)).dtype == np.float64
    assert f(np.ones(2)).dtype == np.float32
    assert len(traces) == 2


def test_static_arguments_are_compile_time_values():
    f = phalanx.jit(lambda x, n, *, mode: x**n if mode == "power" else x * n, static_argnums=1, static_argnames="mode")
    np.testing.assert_allclose(f(X, 3, mode="power"), X**3)
    np.testing.assert_allclose(f(X, 3, mode="times"), X * 3)
    g = phalanx.jit(lambda x, n: [x] * n, static_argnames="n")
    assert len(g(X, 2)) == 2 and len(g(X, n=3)) == 3


class Pair(NamedTuple):
    scale: object
    shift: object = 0


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: object
    note: object = dataclasses.field(default="", compare=False)


@pytest.mark.parametrize(
    "values",
    [
        (0.0, -0.0, 0, False),
        ((1,), (True,), (1.0,)),
        (complex(0, -0.0), 0j),
        (Pair(1), Pair(True), Pair(1.0), Pair((0.0,)), Pair((-0.0,))),
        (Settings(1), Settings(1.0), Settings(Settings(0.0)), Settings(Settings(-0.0))),
        (frozenset([1]), frozenset([True])),
    ],
    ids=str,
)
def test_static_arguments_that_are_equal_but_not_the_same_have_programs_of_their_own(values):
    traced = []
    f = phalanx.jit(lambda x, value: (traced.append(repr(value)), x)[1], static_argnums=1)
    for value in values * 3:
        f(1.0, copy.copy(value))
    assert traced == [*map(repr, values)]


def test_nan_as_a_static_argument_is_traced_once():
    traced = []
    f = phalanx.jit(lambda x, value: (traced.append(value), x)[1], static_argnums=1)
    for value in [np.nan, float("nan"), float("nan")]:
        f(1.0, value)
    assert len(traced) == 1


def test_static_arguments_must_be_hashable():
    def scale(x, factors):
        return x * len(factors)

    with pytest.raises(ArgumentTypeError) as e:
        phalanx.jit(scale, static_argnums=1)(X, [1, 2])
    assert isinstance(e.value, ValueError) and str(e.value).startswith("jit of scale at ")
    assert ", static argument factors: expected a hashable value, since it is part of the cache key of the" in str(
        e.value
    )
    assert str(e.value).endswith("pass a tuple instead of a list, or do not mark the argument as static.")


def second(p):
    return p["a"][1]


def test_donated_buffers_are_reused_and_deleted():
    f = phalanx.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = jnp.ones(1000), jnp.ones(1000)
    pointer = x.unsafe_buffer_pointer()
    z = f(x, y)
    assert z.unsafe_buffer_pointer() == pointer
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(ArgumentError) as e:
        f(x, y)
    assert str(e.value) == (
        "<lambda>, argument x: expected an array with live buffers, got f32[1000], deleted or donated.\n"
        "  Fix: use the result of the call to which it was donated, or remove the argument from donate_argnums."
    )
    with pytest.raises(ArgumentError, match="^use of an array: .* deleted or donated"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match=r"^second, argument p\['a'\]\[1\]: .* deleted or donated"):
        phalanx.jit(second)({"a": [y, x]})
    assert repr(x) == "Array(f32[1000], deleted)"


def test_large_constants_are_arguments_of_the_program():
    big = np.arange(5000, dtype=np.float32)
    lowered = phalanx.jit(lambda x: x + big).lower(big)
    assert len(lowered.as_text()) < 2000
    np.testing.assert_allclose(phalanx.jit(lambda x: x + big)(big), 2 * big)
    np.testing.assert_allclose(phalanx.jit(lambda x: x + jnp.asarray(big))(big), 2 * big)


def test_methods_and_decorators():
    class Model:
        def __init__(self, w):
            self.w = w

        @phalanx.jit
        def double(x):
            return 2 * x

        @phalanx.jit
        def fixed():
            return jnp.ones(2)

    assert float(Model.double(2.0)) == 4.0
    f = phalanx.jit(static_argnums=0)(lambda n, x: x + n)
    assert float(f(2, 1.0)) == 3.0

    class Layer:
        scale = 3.0

        def plain(self, x):
            return x * self.scale

        apply = phalanx.jit(plain, static_argnums=0)

    assert float(Layer().apply(2.0)) == 6.0


def test_programs_are_freed_with_their_function():
    class Held:
        pass

    def make():
        held = Held()
        f = phalanx.jit(lambda x: (held, x * 2)[1])
        f(1.0)
        return weakref.ref(held)

    ref = make()
    gc.collect()
    assert ref() is None


def test_nested_functions_share_their_program():
    inner = phalanx.jit(lambda x: jnp.sin(x) * 2)
    text = phalanx.jit(lambda x: inner(inner(x))).lower(X).as_text()
    assert text.count("stablehlo.sine") == 1 and text.count("call @") == 2


def test_disable_jit_runs_the_python_function():
    f, traces = counted()
    with phalanx.disable_jit(True):
        f(X)
        f(X)
    assert len(traces) == 2


def test_debug_nans_names_the_operation():
    with phalanx.debug_nans(True), pytest.raises(FloatingPointError) as e:
        phalanx.jit(lambda x: jnp.log(x) * 2)(-1.0)
    assert str(e.value) == "invalid value (nan) encountered in log"
    with phalanx.debug_infs(True), pytest.raises(FloatingPointError, match=r"invalid value \(inf\) encountered in div"):
        jnp.ones(2) / jnp.zeros(2)


def test_conversions_of_traced_values_are_errors_with_a_fix():
    cases = [
        (lambda x: 1 if x.sum() > 0 else 2, TracerBoolConversionError, "choose with phalanx.numpy.where, lax.cond"),
        (lambda x: np.sin(x), TracerArrayConversionError, "call the phalanx.numpy function instead of the numpy one"),
        (lambda x: range(x[0, 0].astype(int)), TracerIntegerConversionError, "loop with lax.fori_loop"),
        (lambda x: float(x.sum()), ConcretizationTypeError, "keep the computation in phalanx.numpy"),
        (lambda x: x.sum().item(), ConcretizationTypeError, "keep the computation in phalanx.numpy"),
    ]
    for f, error, fix in cases:
        with pytest.raises(error) as e:
            phalanx.jit(f)(X)
        assert fix in str(e.value)
        assert "traced by <lambda>" in str(e.value)
        assert "test_jit.py" in str(e.value) or error is TracerArrayConversionError


def test_leaked_tracers_name_the_line_that_made_them():
    leaked = []

    @phalanx.jit
    def leak(x):
        leaked.append(jnp.sin(x))
        return x

    leak(X)
    uses = (lambda v: v + 1, lambda v: phalanx.jit(lambda y: y + v)(X), lambda v: v[0], lambda v: jnp.vstack(v), bool)
    for use in uses:
        with pytest.raises(UnexpectedTracerError) as e:
            use(leaked[0])
        assert "since the tracing of leak has ended" in str(e.value)
        assert "test_jit.py" in str(e.value) and "leak)" in str(e.value)
    with phalanx.checking_leaks(), pytest.raises(UnexpectedTracerError) as e:
        phalanx.jit(lambda x: (leaked.append(jnp.cos(x)), x)[1])(X)
    assert ", held by a list, made at" in str(e.value) and "test_jit.py" in str(e.value)
    keeper = type("Keeper", (), {})()
    with phalanx.checking_leaks(), pytest.raises(UnexpectedTracerError, match="vmap of .*, held by a Keeper as 'kept'"):
        phalanx.vmap(lambda x: setattr(keeper, "kept", x))(X)
    with phalanx.checking_leaks():
        phalanx.jit(phalanx.vmap(phalanx.grad(lambda x: jnp.sin(x).sum() * 2)))(X)


def test_a_tracer_in_another_thread_is_refused():
    errors = []

    def f(x):
        def use():
            with pytest.raises(UnexpectedTracerError) as e:
                x[0]
            errors.append(str(e.value))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return x + 1

    assert phalanx.jit(f)(X).shape == X.shape
    (text,) = errors
    assert text.startswith(
        "use of a leaked tracer: expected a value of the current computation, since the tracing of f goes on in another "
        "thread, got f32[2,3] traced by f"
    )


def test_a_node_may_be_rebuilt_as_something_else_where_no_shardings_are_declared():
    class Node:
        pass

    phalanx.tree_util.register_pytree_node(Node, lambda node: ((1.0,), None), lambda _, children: None)
    assert phalanx.jit(lambda node: node)(Node()) is None
    place = phalanx.sharding.SingleDeviceSharding(phalanx.devices()[0])
    with pytest.raises(TreeError) as e:
        phalanx.jit(lambda node: node, in_shardings=place)(Node())
    assert str(e.value).split("in_shardings: ")[1] == (
        "expected nodes that are rebuilt with as many leaves as they had, 1 in all, got 0 leaves.\n"
        "  Fix: correct the functions that flatten and unflatten the node, or leave in_shardings out."
    )


def test_bad_results_are_named_by_path():
    with pytest.raises(TraceError) as e:
        phalanx.jit(lambda x: {"a": x, "b": "text"})(X)
    assert str(e.value) == (
        "output['b']: expected an array or a scalar, got 'text' of type str.\n"
        "  Fix: return only arrays from a transformed function; pass other results by has_aux or a closure."
    )
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.jit(lambda x: x)("text")
    assert "expected an array or a scalar, got 'text' of type str" in str(e.value)
    with pytest.raises(ArgumentTypeError, match="jit, argument fun: expected a function"):
        phalanx.jit(3)


def test_bad_options_are_errors():
    with pytest.raises(ArgumentError, match=r"static_argnums: expected positions below 1"):
        phalanx.jit(lambda x: x, static_argnums=3)
    with pytest.raises(ArgumentError, match=r"static_argnames: expected names .*: x, got 'y'"):
        phalanx.jit(lambda x: x, static_argnames="y")
    for name in ("a", "rest"):
        with pytest.raises(ArgumentError, match=f"donate_argnames: expected names .* by name: b, got '{name}'"):
            phalanx.jit(lambda a, /, b, *rest, **named: b, donate_argnames=name)
    with pytest.raises(ArgumentError, match="which are in static_argnums too"):
        phalanx.jit(lambda x: x, static_argnums=0, donate_argnums=0)


def test_positions_and_names_of_static_arguments_are_taken_as_they_are_if_both_are_given():
    traced = []

    def f(x, y):
        traced.append((isinstance(x, phalanx.core.Tracer), isinstance(y, phalanx.core.Tracer)))
        return 1

    by_position = phalanx.jit(f, static_argnums=1, static_argnames=())
    by_position(2, "text"), by_position(1, y=2)
    by_name = phalanx.jit(f, static_argnums=(), static_argnames="y")
    by_name(2, 3), by_name(1, y="text")
    assert traced == [(True, False), (True, True), (True, True), (True, False)]


def test_a_program_of_many_operations():
    def f(x):
        for _ in range(20_000):
            x = phalanx.lax.sin(x)
        return x

    traced = phalanx.jit(f).trace(np.float32(1))
    assert len(traced.jaxpr.eqns) == 20_000
    assert str(traced.jaxpr).count("= sin ") == 20_000
    assert traced.lower().as_text().count("stablehlo.sine") == 20_000


def test_a_hit_runs_no_tracing_code_whatever_the_arguments_are():
    count = []

    @partial(phalanx.jit, static_argnames="n")
    def f(x, y, *, n):
        count.append(1)
        return x * n + y

    x = jnp.ones(3)
    for _ in range(3):
        for y in (x, 2.0, np.float32(3), np.ones(3, np.float32)):
            assert f(x, y, n=2)[0] == 2 + np.ravel(y)[0]
            assert f(x, y, n=3)[0] == 3 + np.ravel(y)[0]
    assert len(count) == 6  # per n: an array, strong or weak scalars; NumPy data is an array that is elsewhere


def test_calls_alternate_between_kinds_of_arguments():
    f = phalanx.jit(lambda x, k=1.0: phalanx.tree.map(lambda v: v * k, x))
    one, two = jnp.ones(2), (jnp.ones(3), jnp.zeros(()))
    for _ in range(3):
        assert f(one).tolist() == [1, 1]
        assert [v.tolist() for v in f(two)] == [[1, 1, 1], 0]
        assert [v.tolist() for v in f(two, k=2.0)] == [[2, 2, 2], 0]
        assert [v.tolist() for v in f(((one,), {"k": one}))[0]] == [[1, 1]]
        assert f(one, 3).tolist() == [3, 3]


def test_repeated_host_data_is_a_cache_hit_and_a_container_in_its_place_is_not():
    @phalanx.tree_util.register_pytree_node_class
    class Box:
        """A node that looks like an array of the type that the last call was given."""

        aval = phalanx.typeof(jnp.ones(3))

        def tree_flatten(self):
            return (np.full(3, 5.0, np.float32),), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return children[0]

    traced = []

    @phalanx.jit
    def total(state, batch):
        traced.append(tree_structure(batch))
        return state, sum(leaf.sum() for leaf in phalanx.tree.leaves(batch))

    state = {"a": jnp.ones(2), "b": jnp.zeros(2)}
    batches = [
        np.ones(3, np.float32),
        np.full(3, 2.0, np.float32),
        jnp.full(3, np.float32(3)),
        np.full(3, 4.0, np.float32),
    ]
    assert [float(total(state, batch)[1]) for batch in batches] == [3, 6, 9, 12]
    assert [float(total(state, np.full(3, n, np.float64))[1]) for n in (1, 2)] == [3, 6]  # 64 bits are not enabled
    assert len(traced) == 1
    assert float(total(state, Box())[1]) == 15 and float(total(state, [np.ones(3, np.float32)])[1]) == 3
    assert float(total(state, 2.5)[1]) == 2.5 and float(total(state, np.float32(1.5))[1]) == 1.5
    assert len(traced) == 5
    with pytest.raises(ArgumentTypeError, match="batch"):
        total(state, np.array(["text"]))


def test_clear_cache_drops_the_fast_path_of_the_last_call():
    count = []
    f = phalanx.jit(lambda x: (count.append(1), x + 1)[1])
    x = jnp.ones(2)
    f(x), f(x)
    f.clear_cache()
    f(x), f(x)
    assert len(count) == 2


def test_programs_with_unused_inputs_and_constants_are_cache_hits():
    table = jnp.arange(1000.0)
    f = phalanx.jit(lambda x, unused, i: x + table[i])
    for i in range(3):
        assert f(jnp.ones(()), jnp.zeros(7), i) == 1 + i
    with pytest.raises(ArgumentError, match="deleted"):
        x = jnp.ones(())
        x.delete()
        f(x, jnp.zeros(7), 1)


def test_an_inlined_function_is_part_of_the_program_that_calls_it():
    inner = phalanx.jit(lambda x: x * 2 + 1, inline=True)
    program = phalanx.make_jaxpr(lambda x: inner(x) + 1)(1.0)
    assert [e.primitive.name for e in program.eqns] == ["mul", "add", "add"]
    assert phalanx.make_jaxpr(phalanx.jit(lambda x: x * 2))(1.0).eqns[0].primitive.name == "jit"


def test_an_argument_that_is_not_an_array_is_named_in_the_error():
    f = phalanx.jit(lambda x, *, options: x)
    wanted = (
        "<lambda>, argument options['mode']: expected an array or a scalar, got 'fast' of type str.\n"
        "  Fix: convert it with phalanx.numpy.asarray, or pass it as a static argument."
    )
    for call in (f, f.lower, lambda x, options: phalanx.vmap(lambda v: f(v, options=options))(x[None])):
        with pytest.raises(ArgumentTypeError) as e:
            call(X, options={"mode": "fast"})
        assert str(e.value) == wanted


def test_a_traced_argument_is_named():
    with pytest.raises(
        TracerBoolConversionError, match=r"got ~f32\[\] traced by <lambda>, its argument params\['on'\]\."
    ):
        phalanx.jit(lambda params: 1 if params["on"] else 0)({"on": 1.0})
    with pytest.raises(ConcretizationTypeError, match=r"conversion of a traced value to text: .*, its argument x\."):
        phalanx.jit(lambda x: f"{x:.2f}")(1.0)
    seen = []
    phalanx.jit(lambda x: seen.append(f"{x}"))(1.0)
    assert seen == ["JitTracer(~float32[])"]
    assert float(phalanx.grad(lambda x: x if f"{x:.1f}" == "2.0" else 0 * x)(2.0)) == 1.0


class TestCallsLikeTheOneBefore:
    """A call opens its arguments as the call before it did, until that fails once."""

    STRUCTURES = (
        lambda x: (x, x),
        lambda x: {"a": x, "b": x},
        lambda x: {"b": x, "a": x},
        lambda x: {"a": x, "c": x},
        lambda x: OrderedDict(a=x, b=x),
        lambda x: [x, x],
        lambda x: [x, (x,)],
        lambda x: [x, None, x],
        lambda x: [x, x, x],
        lambda x: [x, np.ones(3, np.float32)],
        lambda x: x,
        lambda x: None,
    )

    def test_every_argument_structure_may_follow_every_other(self):
        double = phalanx.jit(lambda tree: phalanx.tree.map(lambda x: 2 * x, tree))
        x = jnp.ones(3)
        for first, second in itertools.permutations(self.STRUCTURES, 2):
            double_here = phalanx.jit(lambda tree: phalanx.tree.map(lambda x: 2 * x, tree))
            for make in (first, first, second, second, first):
                for f in (double, double_here):
                    out = f(make(x))
                    assert tree_structure(out) == tree_structure(make(x))
                    for y in phalanx.tree.leaves(out):
                        assert np.array_equal(y, [2, 2, 2])

    def test_the_numbers_and_the_names_of_arguments_may_change(self):
        f = phalanx.jit(lambda *args, **kwargs: (len(args), {k: 2 * x for k, x in kwargs.items()}, sum(args)))
        x = jnp.ones(())
        for args, kwargs in [((x,), {}), ((x,), {}), ((x, x), {}), ((x,), {"k": x}), ((), {"k": x}), ((x,), {})]:
            assert f(*args, **kwargs) == (len(args), dict.fromkeys(kwargs, 2), len(args))

    def test_a_failing_argument_reader_transfers_no_values(self):
        f = phalanx.jit(lambda tree: phalanx.tree.map(lambda x: x + 1, tree))
        x = jnp.arange(3.0)
        f((x, x))
        f((x, x))
        out = f({"a": x, "b": [x]})
        assert not isinstance(x._host, np.ndarray)  # where the value is kept once somebody asked for it
        assert np.array_equal(out["b"][0], [1, 2, 3])
        assert repr(x) == "Array([0., 1., 2.], dtype=float32)"


@pytest.mark.parametrize("count", [1, 8])
def test_donating_an_array_that_is_also_another_argument_is_an_error(count):
    add = phalanx.jit(lambda x, y: x + y, donate_argnums=0)
    mesh = phalanx.sharding.Mesh(phalanx.devices()[:count], ("x",))
    x = phalanx.device_put(jnp.ones(8), phalanx.NamedSharding(mesh, phalanx.P("x")))
    with pytest.raises(DeletedArrayError) as e:
        add(x, x)
    assert str(e.value) == (
        "call of a compiled function: expected a donated array to be passed once, got one that is another "
        "argument too.\n  Fix: copy it with x.copy(), or remove it from donate_argnums."
    )
    both = phalanx.jit(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))
    y = x.copy()
    with pytest.raises(ArgumentError, match="expected a donated array to be passed once"):
        both(y, y)
    assert add(x, x.copy()).tolist() == [2.0] * 8


def test_two_jits_of_one_function_share_programs():
    """Programs often write `jit(f)(x)` in a loop; wrappers of other functions and options share nothing."""
    traced = []

    def f(x, by=2):
        traced.append(by)
        return x * by

    assert [phalanx.jit(f)(1.0).item() for _ in range(3)] == [2.0] * 3 and traced == [2]
    assert phalanx.jit(f, static_argnums=1)(1.0, 3) == 3 and phalanx.jit(f, static_argnums=1)(1.0, 3) == 3
    assert traced == [2, 3] and phalanx.jit(f, donate_argnums=())(1.0) == 2 and traced == [2, 3, 2]

    @functools.wraps(f)
    def twice(x):
        return 2 * f(x)

    assert phalanx.jit(twice)(1.0) == 4 and phalanx.jit(f)(1.0) == 2 and traced == [2, 3, 2, 2]
    assert not len(pickle.loads(pickle.dumps(vars(f)))["_phalanx_programs"].known)  # what pickles functions takes these
    phalanx.clear_caches()
    assert phalanx.jit(f)(1.0) == 2 and traced == [2, 3, 2, 2, 2]


def test_cloudpickle_writes_compiled_functions_without_their_programs():
    cloudpickle = pytest.importorskip("cloudpickle")
    inner = phalanx.jit(lambda x, by: x * by, static_argnums=1)
    fs = {
        "jit": phalanx.jit(lambda x: inner(x, 2) + 1),
        "grad": phalanx.grad(phalanx.checkpoint(lambda x: inner(x, 3) ** 2)),
        "jit of grad": phalanx.jit(phalanx.grad(jnp.sin)),
        "pmap": phalanx.pmap(lambda x: x),
    }
    x = {name: jnp.ones(1) if name == "pmap" else 2.0 for name in fs}
    values = {name: f(x[name]).item() for name, f in fs.items()}
    loaded = pickle.loads(cloudpickle.dumps(fs))
    assert {name: f(x[name]).item() for name, f in loaded.items()} == values
    assert loaded["jit"].lower(1).compile()(1) == 3 and phalanx.grad(loaded["jit"])(1.0) == 2 and fs["jit"](4) == 9
    with phalanx.enable_x64(True):  # the options of this process, not those of a copy
        assert loaded["jit"](2.0).dtype == np.float64
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(contextvars.ContextVar("another"))


@pytest.mark.parametrize("inline, primitive", [("JAX_EARLY", "mul"), ("AUTO", "jit"), ("XLA_LATE", "jit")])
def test_inline_takes_members_of_an_enum(inline, primitive):
    f = phalanx.jit(lambda x: x * 2, inline=phalanx.Inline[inline])
    assert [eqn.primitive.name for eqn in phalanx.make_jaxpr(lambda x: f(x))(1.0).eqns] == [primitive]


def test_a_device_excludes_a_backend_and_shardings():
    device = phalanx.devices()[0]
    sharding = phalanx.sharding.SingleDeviceSharding(device)
    for options in ({"backend": "cpu"}, {"in_shardings": sharding}, {"out_shardings": sharding}):
        with pytest.raises(ArgumentError, match="not both"):
            phalanx.jit(lambda x: x, device=device, **options)
