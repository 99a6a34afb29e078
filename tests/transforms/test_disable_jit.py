"""Under `disable_jit` Python runs everything: compiled functions, loops and choices may branch on values."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import TracerBoolConversionError

XS = np.array([1.0, -2.0, 3.0], np.float32)


def branching(x):
    return x * 2 if x > 0 else -x


PROGRAMS = {
    "jit": lambda: phalanx.jit(branching)(3.0),
    "scan": lambda: lax.scan(lambda c, x: (c + branching(x), {"y": branching(x), "none": None}), 0.0, XS),
    "scan backwards": lambda: lax.scan(lambda c, x: (branching(x) + c / 2, c), 0.0, XS, reverse=True),
    "scan without inputs": lambda: lax.scan(lambda c, _: (branching(c), c), 1.0, length=3),
    "map": lambda: lax.map(branching, XS),
    "while_loop": lambda: lax.while_loop(lambda c: bool(c < 9), branching, 1.0),
    "fori_loop": lambda: lax.fori_loop(0, 3, lambda i, c: c + float(i), 0.0),
    "cond": lambda: lax.cond(XS[0] > 0, branching, lambda x: x, 3.0),
    "switch": lambda: lax.switch(7, [lambda x: x, branching], 3.0),
    "grad": lambda: phalanx.grad(lambda x: lax.fori_loop(0, 3, lambda i, c: branching(c), x))(2.0),
}
EXPECTED = {
    "jit": 6.0, "scan": (10.0, {"y": [2.0, 2.0, 6.0], "none": None}), "scan backwards": (4.5, [5.0, 6.0, 0.0]),
    "scan without inputs": (8.0, [1.0, 2.0, 4.0]), "map": [2.0, 2.0, 6.0], "while_loop": 16.0, "fori_loop": 3.0,
    "cond": 6.0, "switch": 6.0, "grad": 8.0,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_disable_jit_gives_concrete_values(name):
    with phalanx.disable_jit():
        out = PROGRAMS[name]()
    assert phalanx.tree.map(lambda x: np.asarray(x).tolist(), out) == EXPECTED[name]
    with pytest.raises(Exception, match="conversion of a traced value"):
        phalanx.jit(lambda _: PROGRAMS[name]())(0.0) if name != "jit" else PROGRAMS[name]()


def test_traced_values_are_staged_under_disable_jit():
    with phalanx.disable_jit():
        out = phalanx.vmap(lambda n: lax.while_loop(lambda c: c < n, lambda c: c + 2, 0.0))(XS)
        np.testing.assert_array_equal(out, [2.0, 0.0, 4.0])
        out = phalanx.vmap(lambda p: lax.cond(p > 0, jnp.sin, jnp.cos, p))(XS)
        np.testing.assert_allclose(out, np.where(XS > 0, np.sin(XS), np.cos(XS)), rtol=1e-6)
        with pytest.raises(TracerBoolConversionError):
            phalanx.vmap(branching)(XS)


def test_scan_of_length_zero_under_disable_jit():
    with phalanx.disable_jit():
        carry, ys = lax.scan(lambda c, x: (c + x, x * 2), 1.0, np.zeros((0, 2), np.float32)[:, 0])
    assert float(carry) == 1.0 and ys.shape == (0,)


def test_constants_are_evaluated_at_compile_time_beside_traced_values():
    @phalanx.jit
    def f(x):
        with phalanx.ensure_compile_time_eval():
            table = jnp.arange(4.0) @ jnp.arange(4.0)
            slope = phalanx.grad(jnp.sin)(0.0)
            kept = x if table > 3 else -x  # a Python decision about a concrete value
            return jnp.sin(kept) * table + slope

    np.testing.assert_allclose(f(1.0), np.sin(1.0) * 14 + 1, rtol=1e-6)
    assert [str(eqn.primitive) for eqn in phalanx.make_jaxpr(f.__wrapped__)(1.0).eqns][:2] == ["sin", "mul"]
    np.testing.assert_allclose(phalanx.vmap(phalanx.grad(f))(jnp.ones(2)), 14 * np.cos([1.0, 1.0]), rtol=1e-6)


def test_a_loop_under_disable_jit_does_not_change_numpy_arrays_of_its_caller():
    start = np.array(1.0, np.float32)

    def body(carry):
        x, total = carry
        x += 1
        return x, total + x

    def loop():
        return lax.while_loop(lambda c: c[0] < 4, body, (start, start))

    with phalanx.disable_jit():
        assert [float(x) for x in loop()] == [4.0, 10.0]
    assert [float(x) for x in loop()] == [4.0, 10.0] and start == 1


def test_while_loop_under_disable_jit_carries_arrays():
    seen = []

    def body(carry):
        seen.append(carry)
        return carry[0] + 1, 5

    with phalanx.disable_jit():
        out = lax.while_loop(lambda carry: carry[0] < 2, body, (0, 3))
    assert all(isinstance(x, phalanx.Array) and x.weak_type for carry in [*seen, out] for x in carry)
    assert [tuple(map(int, carry)) for carry in [*seen, out]] == [(0, 3), (1, 5), (2, 5)]
