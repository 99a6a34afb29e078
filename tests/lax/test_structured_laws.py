"""The laws of contractions, indexing, windows, transforms and linear algebra, on every case of the table."""

import functools

import numpy as np
import pytest
from tests.lax import cases as cases_of_one, laws
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
from phalanx.lax import conv_general_dilated_p
from phalanx.lax.convolution.conv_dimension_numbers import ConvDimensionNumbers
from phalanx.lax.convolution.conv_general_dilated import shift_past

MODULES = ("dot", "conv", "gather", "scatter", "dynamic_slice", "windows", "fft", "rng", "linalg")
ELSEWHERE = {
    "rng_bit_generator": "its results are compared with nothing: tests/lax/test_contraction_indexing_windows.py",
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


NUMBERS = (0, 2, 1), (2, 1, 0), (0, 2, 1)
# Which of input, kernel and result have a mapped dimension, as vmap or a derivative makes it.
KINDS = ["xy", "wy", "xwy", "xw", "xy wy", "xw xwy", "xwy wy xy"]


@pytest.mark.one_is_quick(group=lambda kinds, **_: kinds)
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2)], ids=["plain", "features", "batch"])
def test_mapped_dimensions_of_a_convolution_are_what_vmap_and_sums_make(groups, kinds):
    x, w = np.random.default_rng(0).normal(size=(4, 6, 7)), np.random.default_rng(1).normal(size=(4, 6 // groups[0], 3))
    x, w = (np.transpose(a, np.argsort(spec)) for a, spec in zip((x, w), NUMBERS))
    params = dict(window_strides=(1,), padding=((1, 1),), lhs_dilation=(1,), rhs_dilation=(1,), precision=None)
    params |= dict(preferred_element_type=None, feature_group_count=groups[0], batch_group_count=groups[1])
    params |= dict(dimension_numbers=ConvDimensionNumbers(*NUMBERS), mapped=())
    want = functools.partial(conv_general_dilated_p, **params)
    sizes = [2, 3, 1, 2]
    for size, kind in zip(sizes, kinds.split()):
        x, w = (np.stack([a * (i + 1) for i in range(size)], 1) if n in kind else a for n, a in (("x", x), ("w", w)))
        # The dimension stands second in all that have it.
        places = tuple([1 if n in kind else None for n in "xwy"])
        params["mapped"] = (*(tuple(map(shift_past, m, places)) for m in params["mapped"]), places)
        beside = [tuple([shift_past(d, b) for d in s]) for s, b in zip(params["dimension_numbers"], places)]
        params["dimension_numbers"] = ConvDimensionNumbers(*beside)
        want = mapped_once(want, places)
    case = cases_of_one.Case(conv_general_dilated_p, (x, w), params, order=1)
    np.testing.assert_allclose(conv_general_dilated_p(x, w, **params), want(x, w), rtol=1e-12, atol=1e-12)
    laws.check_roles(case)
    laws.check_derivatives(case)


def mapped_once(f, places):
    """`f` over one dimension more, by taking the members one by one."""

    def g(x, w):
        size = x.shape[1] if places[0] else w.shape[1]
        part = lambda a, place, i: np.take(a, i, 1) if place else a
        found = [f(part(x, places[0], i), part(w, places[1], i)) for i in range(size)]
        return np.stack(found, 1) if places[2] else np.sum(found, 0)

    return g
