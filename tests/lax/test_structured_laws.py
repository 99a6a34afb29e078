"""The laws of contractions, indexing, windows, transforms and linear algebra, on every case of the table."""

import pytest
from structured_cases import CASES
from structured_checks import (
    Case,
    check_adjoint,
    check_batched,
    check_derivative,
    check_peer,
    check_second_order,
    check_staged,
)

import phalanx


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
