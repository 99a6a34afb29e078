"""Each checker of the laws fails where its law is broken."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.test_util import check_grads
from tests.lax import laws
from tests.lax.cases import Case

import phalanx
from phalanx import lax
from phalanx.core.primitive import Primitive, ShardingRule, Undefined
from phalanx.engine.mlir import hlo
from phalanx.lax.shape.broadcast import ELEMENTWISE
from phalanx.lax.shape.dims import dim_names
from phalanx.spmd.jit_primitive import jit_p

X = np.array([[0.5, 1.5, -1.0], [2.0, 0.25, 3.0]])


pytestmark = pytest.mark.usefixtures("double_precision")


class Double(Primitive, name="test_double"):
    """2 x, with true rules, which the tests below break one by one."""

    def abstract_eval(self, x):
        return x

    def sharding_rule(self, x):
        return ShardingRule([dim_names(x.ndim)], [dim_names(x.ndim)])

    def lower(self, ctx, x):
        return hlo.add(x, x)

    def jvp(self, primals, tangents):
        return self(*primals), self(*tangents)

    def transpose(self, y_bar, x):
        return (self(y_bar),)

    batch = ELEMENTWISE


def broken(rule, **members):
    """A case of `Double` with another rule."""
    kind = type(f"Broken{rule}", (Double,), {"name": f"test_broken_{rule}", **members})
    return Case(kind(), (X,), {}, lambda x: 2 * x, order=2)


def test_the_true_primitive_passes_every_law():
    case = Case(Double(), (X,), {}, lambda x: 2 * x, order=2)
    for check in (laws.check_result, laws.check_oracle, laws.check_compiled, laws.check_derivatives, laws.check_batch,
                  laws.check_roles):  # fmt: skip
        check(case)


def test_a_wrong_type_is_found():
    case = broken("type", run=lambda self, x: lax.convert_element_type(x, "float32"))
    with pytest.raises(AssertionError, match=r"f32\[2,3\], not f64\[2,3\]"):
        laws.check_result(case)


def test_a_wrong_value_is_found():
    with pytest.raises(AssertionError, match="result 0 beside its oracle"):
        laws.check_oracle(broken("value", lower=lambda self, ctx, x: hlo.multiply(x, x)))


def test_a_compiled_program_that_differs_is_found():
    with pytest.raises(AssertionError, match="compiled result 0 beside the eager one"):
        laws.check_compiled(broken("run", run=lambda self, x: lax.mul(x, 3.0)))


def test_a_wrong_derivative_is_found():
    jvp = lambda self, primals, tangents: (self(*primals), lax.mul(tangents[0], 3.0))
    with pytest.raises(AssertionError, match="forward derivative of result 0, beside differences"):
        laws.check_derivatives(broken("jvp", jvp=jvp))


def test_a_wrong_second_derivative_is_found():
    case = Case(lax.sin_p, (X,))
    wrong = phalanx.custom_jvp(lambda x: lax.sin(x))
    wrong.defjvp(lambda p, t: (lax.sin(p[0]), lax.mul(t[0], lax.stop_gradient(lax.cos(p[0])))))
    check_grads(wrong, case.args, 1)
    with pytest.raises(AssertionError, match="derivative of the forward derivative of result 0"):
        check_grads(wrong, case.args, 2)


def test_a_wrong_transpose_is_found():
    with pytest.raises(AssertionError, match="reverse derivative, beside the forward one"):
        laws.check_derivatives(broken("transpose", transpose=lambda self, y_bar, x: (y_bar,)))


def test_a_wrong_batching_rule_is_found():
    with pytest.raises(AssertionError, match="mapped over"):
        laws.check_batch(broken("batch", batch=lambda self, x, b: (self(x), 0)))


def test_a_wrong_sharding_rule_is_found():
    roles = lambda self, x, *, dim, reverse: ShardingRule([dim_names(x.ndim)], [dim_names(x.ndim)])
    primitive = type("BrokenRoles", (type(lax.cumsum_p),), {"name": "test_broken_roles", "sharding_rule": roles})()
    with pytest.raises(AssertionError, match="split along 'd0'"):
        laws.check_roles(Case(primitive, (X,), {"dim": 0, "reverse": False}))


def test_a_wrong_sharding_rule_of_a_jaxpr_is_found(monkeypatch):
    roles = lambda self, x, **_: ShardingRule([dim_names(x.ndim)], [dim_names(x.ndim)])
    monkeypatch.setattr(type(jit_p), "sharding_rule", roles)
    with pytest.raises(AssertionError, match="split along 'd0'"):
        laws.check_program_sharding_rule(phalanx.jit(lambda x: lax.cumsum(x)), [X])


def test_a_lost_dimension_is_found():
    roles = lambda self, x, *, dims: ShardingRule([dim_names(x.ndim)], [["d1"]])
    primitive = type("BrokenSum", (type(lax.reduce_sum_p),), {"name": "test_broken_sum", "sharding_rule": roles})()
    with pytest.raises(AssertionError, match="'d0' is lost, and neither reduced nor whole"):
        laws.check_roles(Case(primitive, (X,), {"dims": (0,)}))


def test_an_empty_reason_is_found():
    case = broken("reason", transpose=Undefined("no"))
    with pytest.raises(AssertionError, match="says nothing"):
        laws.check_rules(case.primitive)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_check_grads_checks_a_function_that_has_reverse_mode_only(factor):
    f = phalanx.custom_vjp(lambda x: lax.sin(x))
    f.defvjp(lambda x: (lax.sin(x), x), lambda x, y_bar: (factor * lax.cos(x) * y_bar,))
    if factor == 1.0:
        return check_grads(f, (X,), 1, modes=["rev"])
    with pytest.raises(AssertionError, match="reverse derivative, beside the differences"):
        check_grads(f, (X,), 1, modes=["rev"])
