"""The laws of contractions, indexing, windows, transforms and linear algebra, on every case of the table."""

import functools

import pytest
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
    equations,
)

import phalanx
from phalanx.core.primitive import registry

MODULES = ("dot", "conv", "gather", "scatter", "dynamic_slice", "windows", "fft", "rng", "linalg")
ELSEWHERE = {
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


def cases(wanted):
    return pytest.mark.parametrize("case", [c for c in CASES if wanted(c)], ids=repr)


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


@cases(lambda c: c.second and c.reverse)
def test_second_derivatives_agree_with_differences(case: Case):
    check_second_order(case)


@cases(lambda c: c.batched)
def test_mapping_is_a_loop(case: Case):
    check_batched(case)


@cases(lambda c: True)
def test_pieces_along_a_role_make_the_whole(case: Case):
    for equation in equations(case, is_ours):
        laws.check_roles(equation)


@functools.cache
def names_in_cases() -> set[str]:
    with phalanx.enable_x64(True):
        return {e.primitive.name for case in CASES for e in equations(case, is_ours)}


@pytest.mark.parametrize("name", sorted(n for n, p in registry.items() if is_ours(p) and n not in ELSEWHERE))
def test_every_primitive_has_a_case(name):
    assert name in names_in_cases()
