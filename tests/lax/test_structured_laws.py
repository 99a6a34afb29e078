"""The laws of contractions, indexing, windows, transforms and linear algebra, on every case of the table."""

import functools

import numpy as np
import pytest
from tests.lax import cases as cases_of_one
from tests.lax import laws
from tests.lax.structured_cases import CASES
from tests.lax.structured_checks import (
    Case,
    check_adjoint,
    check_batched,
    check_derivative,
    check_peer,
    check_second_order,
    check_staged,
)

import phalanx
from phalanx.core.primitive import registry
from phalanx.lax.conv import conv_general_dilated_p, grouped_conv_p

MODULES = ("dot", "conv", "gather", "scatter", "dynamic_slice", "windows", "fft", "rng", "linalg")
ELSEWHERE = {
    "grouped_conv": "what a convolution in groups is lowered to: the test below, and tests/lax/test_locality.py",
    "rng_bit_generator": "its results are compared with nothing: tests/lax/test_structured.py",
    "rng_uniform": "its results are not reproducible",
    "select_and_gather_add": "made by the derivative of maxima: the derivatives of reduce_window",
    "select_and_scatter_add": "made by the derivative of maxima: the derivatives of reduce_window",
}


def is_ours(primitive):
    return type(primitive).__module__.removeprefix("phalanx.lax.").split(".")[0] in MODULES


@pytest.fixture(autouse=True)
def _wide_numbers():
    with phalanx.enable_x64(True):
        yield


def cases(wanted, alike=lambda case: case.operation):
    """A mark that runs a test on every case of which `wanted` is true; of cases that are alike, one is quick."""
    walk = pytest.mark.parametrize("case", [c for c in CASES if wanted(c)], ids=repr)
    return lambda test: pytest.mark.one_is_quick(group=alike)(walk(test))


@cases(lambda c: True)
def test_compiled_and_eager_values_agree(case: Case):
    check_staged(case)


@cases(lambda c: c.peer)
def test_values_agree_with_the_peer(case: Case):
    peer = pytest.importorskip("jax")
    with peer.enable_x64(True):
        check_peer(case, peer)


@cases(lambda c: c.derivative)
def test_tangents_agree_with_differences(case: Case):
    check_derivative(case)


@cases(lambda c: c.reverse)
def test_transpose_is_the_adjoint(case: Case):
    check_adjoint(case)


# Values that are known are differentiated as they come, by other steps than those of a program.
@pytest.mark.slow
@pytest.mark.parametrize("case", {c.operation: c for c in CASES if c.reverse}.values(), ids=repr)
def test_transpose_is_the_adjoint_of_each_operation_at_once(case: Case):
    check_adjoint(case, at_once=True)


@cases(lambda c: c.second and c.reverse)
def test_second_derivatives_agree_with_differences(case: Case):
    check_second_order(case)


@cases(lambda c: c.batched, alike=lambda case: case.operation.split("_")[0])
def test_mapping_is_a_loop(case: Case):
    check_batched(case)


@functools.cache
def names_in_cases() -> set[str]:
    with phalanx.enable_x64(True):
        programs = [phalanx.make_jaxpr(case.flat())(*case.args) for case in CASES]
    return {e.primitive.name for p in programs for e in p.eqns} | {c.primitive.name for c in cases_of_one.CASES}


@pytest.mark.parametrize("name", sorted(n for n, p in registry.items() if is_ours(p) and n not in ELSEWHERE))
def test_every_primitive_has_a_case(name):
    assert name in names_in_cases()


@pytest.mark.parametrize("numbers", [((0, 1, 2), (0, 1, 2), (0, 1, 2)), ((0, 2, 1), (2, 1, 0), (0, 2, 1))], ids=str)
def test_groups_that_are_a_dimension_are_those_of_the_convolution(numbers):
    lhs, rhs, out = numbers
    x, w = np.random.default_rng(0).normal(size=(2, 6, 7)), np.random.default_rng(1).normal(size=(4, 3, 3))
    x, w = (np.transpose(a, np.argsort(spec)) for a, spec in ((x, lhs), (w, rhs)))
    params = dict(window_strides=(1,), padding=((1, 1),), lhs_dilation=(1,), rhs_dilation=(1,), precision=None)
    params |= dict(preferred_element_type=None, dimension_numbers=numbers)
    whole = conv_general_dilated_p(x, w, feature_group_count=2, batch_group_count=1, **params)
    args = [np.reshape(a, (*a.shape[:d], 2, -1, *a.shape[d + 1 :])) for a, d in ((x, lhs[1]), (w, rhs[0]))]
    grouped = grouped_conv_p(*args, **params)
    np.testing.assert_allclose(np.reshape(grouped, whole.shape), whole, rtol=1e-12)
    laws.check_roles(cases_of_one.Case(grouped_conv_p, tuple(args), params))
