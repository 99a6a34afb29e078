"""`checkify` returns the first failure of a function's checks through every call and transformation."""

import numpy as np
import pytest
from phalanx.experimental import checkify

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError
from phalanx.sharding import PartitionSpec as P


def positive(x):
    checkify.check(jnp.all(x > 0), "not positive: {}", x)
    return 2 * x


def outcome(f, *args, errors=checkify.user_checks):
    return checkify.checkify(f, errors=errors)(*map(jnp.asarray, args))[0].get()


def body(carry, x):
    checkify.check(carry + x < 5, "{} + {x}", carry, x=x)
    return carry + x, carry


CALLS = {
    "direct": positive,
    "jit": phalanx.jit(positive),
    "nested jit": phalanx.jit(lambda x: phalanx.jit(positive)(x) + 1),
    "checkpoint": phalanx.checkpoint(positive),
    "grad": phalanx.grad(positive),
    "grad of checkpoint": phalanx.grad(phalanx.checkpoint(lambda x: jnp.sin(positive(x)))),
    "vmap": lambda x: phalanx.vmap(positive)(jnp.stack([x + 9, x, 2 * x])),
    "cond": lambda x: lax.cond(x < 5, positive, lambda x: x, x),
    "switch": lambda x: lax.switch(1, [lambda x: x, positive, lambda x: -x], x),
    "scan": lambda x: lax.scan(lambda c, y: (c, positive(c + y)), x, jnp.arange(4.0))[1],
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, y: positive(y), x),
    "while body": lambda x: lax.while_loop(lambda y: y < 3, lambda y: positive(y) * 0 + 3, x),
    "while condition": lambda x: lax.while_loop(lambda y: positive(y) < 3, lambda y: y + 3, x),
    "composite": lax.composite(positive, name="test.positive"),
    "nested checkify": lambda x: checkify.check_error(checkify.checkify(positive)(x)[0]),
    "compiled nested checkify": lambda x: checkify.check_error(phalanx.jit(checkify.checkify(positive))(x)[0]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "compiled"])
def test_a_failure_is_found_in_every_call(name, wrap):
    checked = wrap(checkify.checkify(CALLS[name]))
    assert checked(jnp.float32(1.0))[0].get() is None
    assert checked(jnp.float32(-1.0))[0].get() == "not positive: -1.0 (`check` failed)"


def test_loops_keep_the_first_failure_and_the_results():
    xs = jnp.arange(6.0)
    err, (last, ys) = phalanx.jit(checkify.checkify(lambda xs: lax.scan(body, 0.0, xs)))(xs)
    assert err.get() == "3.0 + 3.0 (`check` failed)"
    np.testing.assert_array_equal(ys, [0, 0, 1, 3, 6, 10])
    # The condition of the iteration that would follow is checked, too.
    f = lambda x: lax.while_loop(lambda y: 1 / y < 2, lambda y: y - 1, x)
    assert outcome(f, 2.0, errors=checkify.div_checks) == "division by zero"


def test_mapping_a_checked_function_gives_an_outcome_for_each_row():
    err, _ = phalanx.vmap(checkify.checkify(positive))(jnp.array([1.0, -1.0, -2.0]))
    assert err.get() == (
        "at mapped index 1: not positive: -1.0 (`check` failed)\nat mapped index 2: not positive: -2.0 (`check` failed)"
    )
    with pytest.raises(checkify.JaxRuntimeError, match="not positive: -1.0"):
        checkify.check_error(err)
    nested, _ = phalanx.vmap(phalanx.vmap(checkify.checkify(positive)))(jnp.array([[1.0, -1.0], [2.0, 3.0]]))
    assert nested.get() == "at mapped index 0, 1: not positive: -1.0 (`check` failed)"


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_devices_report_their_failures(check_vma, compiled):
    mesh = phalanx.make_mesh((4, 2), ("a", "b"))
    mapped = phalanx.shard_map(
        lambda x: lax.scan(body, 0.0, x)[0][None], mesh=mesh, in_specs=P("a"), out_specs=P("a"), check_vma=check_vma
    )
    err, _ = checkify.checkify(phalanx.jit(mapped) if compiled else mapped)(jnp.arange(8.0))
    assert err.get().splitlines()[::2] == [
        "at mapped index 2: 2.0 + 3.0 (`check` failed)",
        "at mapped index 4: 4.0 + 5.0 (`check` failed)",
        "at mapped index 6: 0.0 + 6.0 (`check` failed)",
    ]
    err, _ = checkify.checkify(phalanx.pmap(positive))(jnp.arange(8.0))
    assert err.get() == "at mapped index 0: not positive: 0.0 (`check` failed)"


def test_explicit_axes():
    mesh = phalanx.make_mesh((4,), ("x",), axis_types=(phalanx.sharding.AxisType.Explicit,))
    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(jnp.arange(8.0) - 1, phalanx.NamedSharding(mesh, P("x")))
        for f in (
            lambda x: lax.cond(x.sum() > 0, positive, lambda x: x / 0, x),
            lambda x: lax.fori_loop(0, 3, lambda i, x: positive(x), x),
            lambda x: lax.while_loop(lambda x: x.sum() < 1000, positive, x),
        ):
            err, _ = phalanx.jit(checkify.checkify(f, checkify.all_checks))(x)
            assert err.get() == "not positive: [-1.  0.  1.  2.  3.  4.  5.  6.] (`check` failed)"


@phalanx.custom_vjp
def scaled(x, y):
    return positive(x) * y


scaled.defvjp(lambda x, y: (positive(x) * y, (x, y)), lambda saved, g: (g * saved[1], g * saved[0]))


@phalanx.custom_jvp
def doubled(x, y):
    return positive(x) * y


doubled.defjvp(lambda primals, tangents: (positive(primals[0]) * primals[1], tangents[0] * primals[1]))


@pytest.mark.parametrize("f", [scaled, doubled], ids=["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "compiled"])
def test_custom_derivatives_stay_and_return_the_error_of_the_value(f, wrap):
    def loss(x):
        err, y = checkify.checkify(lambda x: f(x, 3.0))(x)
        return y, err

    slope, err = wrap(phalanx.grad(loss, has_aux=True))(-1.0)
    assert (float(slope), err.get()) == (3.0, "not positive: -1.0 (`check` failed)")
    slopes, err = wrap(phalanx.vmap(phalanx.grad(loss, has_aux=True)))(jnp.array([1.0, -1.0]))
    assert slopes.tolist() == [3.0, 3.0]
    assert err.get() == "at mapped index 1: not positive: -1.0 (`check` failed)"


def test_custom_rules_do_not_hold_the_operands_of_a_call():
    f = phalanx.custom_jvp(lambda x, n: x * n, nondiff_argnums=(1,))
    f.defjvp(lambda n, primals, tangents: (f(*primals, n), tangents[0] * n))
    with phalanx.checking_leaks():
        assert float(phalanx.jit(lambda x: phalanx.jit(lambda: f(x, x))())(2.0)) == 4.0


def test_a_batched_loop_with_checks_is_an_error():
    loop = lambda x: lax.while_loop(lambda y: y < 3, lambda y: positive(y - 1) + 2, x)
    with pytest.raises(ArgumentError) as e:
        outcome(phalanx.vmap(loop), jnp.array([0.5, 2.0]))
    assert str(e.value) == (
        "checkify of a while loop under vmap: expected a loop that ends for all examples at once, got "
        "checkify-of-vmap-of-while, whose checks would also see examples that have ended.\n"
        "  Fix: apply vmap to the checked function: vmap(checkify(f))."
    )
    err, _ = phalanx.vmap(checkify.checkify(loop))(jnp.array([0.5, 2.0]))
    assert err.get() == "at mapped index 0: not positive: -0.5 (`check` failed)"


def test_a_check_raises_where_nothing_is_traced_and_is_refused_where_it_is_compiled():
    assert float(positive(1.0)) == 2.0
    with pytest.raises(checkify.JaxRuntimeError, match="^not positive: -1.0 ") as e:
        positive(-1.0)
    assert e.value.__cause__.__notes__[0].startswith(f"The check is at {__file__}:")
    with pytest.raises(ArgumentError) as e:
        phalanx.jit(positive)(1.0)
    line = positive.__code__.co_firstlineno + 1
    assert str(e.value) == (
        f"checkify.check at {__file__}:{line}:4 (positive): expected a check in a function that checkify transforms, got one "
        "that is to be compiled. Cannot abstractly evaluate a check that has not been functionalized.\n"
        "  Fix: call checkify.checkify(f) and compile that, or use debug_check, which does nothing elsewhere."
    )
    debug = lambda x: checkify.debug_check(x > 0, "not positive")
    assert debug(-1.0) is None and phalanx.jit(debug)(-1.0) is None
    assert outcome(phalanx.jit(debug), -1.0) == "not positive (`check` failed)"
    assert outcome(phalanx.jit(debug), -1.0, errors=checkify.nan_checks) is None


def test_bad_arguments():
    with pytest.raises(TypeError, match="argument pred: expected a boolean scalar"):
        checkify.check(jnp.ones(2) > 0, "")
    with pytest.raises(TypeError, match="expected pytrees of arrays. Formatting arguments"):
        checkify.check(True, "{}", "text")
    with pytest.raises(TypeError, match="argument error: expected an Error"):
        checkify.check_error("text")


def index(x, i):
    return x[i]


OUT_OF_BOUNDS = [
    (lambda x: x[2], 0, 2, "index 2 is out of bounds for axis 0 with size 2"),
    (lambda x: x[0, -4], 1, 3, "index -1 is out of bounds for axis 1 with size 3"),
    (lambda x: x[jnp.array([0, 1, 5])], 0, 2, "index 5 is out of bounds for axis 0 with size 2"),
    (lambda x: x[jnp.array([0, 1]), jnp.array([0, 3])], 1, 3, "index 3 is out of bounds for axis 1 with size 3"),
    (lambda x: x.at[2].set(0), 0, 2, "index 2 is out of bounds for axis 0 with size 2"),
    (lambda x: x.at[-3].add(0), 0, 2, "index -1 is out of bounds for axis 0 with size 2"),
    (lambda x: x.at[0, jnp.array([7])].multiply(2), 1, 3, "index 7 is out of bounds for axis 1 with size 3"),
    (lambda x: lax.dynamic_slice(x, (0, 2), (1, 2)), 1, 3, "index 2 is out of bounds for axis 1 with size 3"),
    (lambda x: lax.dynamic_update_slice(x, x, (1, 0)), 0, 2, "index 1 is out of bounds for axis 0 with size 2"),
]


@pytest.mark.parametrize("case", range(len(OUT_OF_BOUNDS)))
def test_indices_out_of_bounds(case):
    f, axis, size, message = OUT_OF_BOUNDS[case]
    x = jnp.ones((2, 3))
    expected = f"out-of-bounds indexing for array of shape (2, 3): {message}. "
    with phalanx.numpy_rank_promotion("raise"):
        assert outcome(f, x, errors=checkify.index_checks) == expected
    assert outcome(phalanx.jit(f), x, errors=checkify.all_checks) == expected
    assert outcome(lambda x: x[1, 2] + x[jnp.array([-1])] + x.at[1].set(x[0]), x, errors=checkify.index_checks) is None


@pytest.mark.parametrize(
    "f, message",
    [
        (lambda x: jnp.sin(x / 0), "division by zero"),
        (lambda x: x // 0, "division by zero"),
        (lambda x: jnp.log(-x), "nan generated by primitive: log."),
        (lambda x: jnp.sin(jnp.exp(1000 * x)), "nan generated by primitive: sin."),
        (lambda x: jnp.zeros(3) @ jnp.full(3, jnp.inf), "nan generated by primitive: dot_general."),
        (lambda x: jnp.where(x > 0, x, jnp.nan), None),
        (lambda x: jnp.nan_to_num(jnp.where(x < 0, x, jnp.nan)), None),
    ],
)
def test_checks_of_operations(f, message):
    assert outcome(f, 1.0, errors=checkify.all_checks) == message
    assert outcome(phalanx.jit(f), 1.0, errors=checkify.automatic_checks) == message
    assert outcome(f, 1.0, errors=set()) is None


def test_the_first_of_several_failures_wins_and_categories_choose():
    def f(x):
        checkify.check(x < 0, "not negative")
        return jnp.sin(x / 0)[()]

    assert outcome(f, 1.0, errors=checkify.all_checks) == "not negative (`check` failed)"
    assert outcome(f, 1.0, errors=checkify.automatic_checks) == "division by zero"
    assert outcome(f, 1.0, errors=checkify.nan_checks) == "nan generated by primitive: sin."
    err, _ = checkify.checkify(f, checkify.all_checks)(jnp.float32(1.0))
    assert outcome(lambda: checkify.check_error(err), errors=checkify.div_checks) is None
    assert outcome(lambda: checkify.check_error(err)) == "not negative (`check` failed)"


def test_calls_without_checks_stay_as_they_are():
    f = phalanx.jit(lambda x: jnp.sin(x))
    assert str(phalanx.make_jaxpr(checkify.checkify(f))(1.0).eqns[0]) == str(phalanx.make_jaxpr(f)(1.0).eqns[0])


def test_python_may_branch_on_known_arguments():
    err, y = phalanx.jit(checkify.checkify(lambda x, flag: positive(x) if flag else x), static_argnums=1)(1.0, True)
    assert (err.get(), float(y)) == (None, 2.0)
    assert checkify.checkify(lambda text: len(text))("four")[1] == 4
