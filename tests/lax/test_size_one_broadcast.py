"""Elementwise functions of `lax` broadcast dimensions of size 1 of operands of equal rank."""

import numpy as np
import pytest

import phalanx
from phalanx import lax
from phalanx.core.error_classes import ShapeError

X, ROW, COLUMN = np.full((3, 4), 0.5, np.float32), np.full((1, 4), 2, np.float32), np.full((3, 1), 3, np.float32)


@pytest.mark.parametrize(
    "function",
    [lax.add, lax.sub, lax.mul, lax.div, lax.pow, lax.max, lax.atan2, lax.eq, lax.lt, lax.nextafter, lax.igamma],
)
def test_dimensions_of_size_one_are_broadcast(function):
    whole = np.broadcast_to(ROW, (3, 4)), np.broadcast_to(COLUMN, (3, 4))
    for x, y, wide in ((X, ROW, (X, whole[0])), (COLUMN, X, (whole[1], X)), (ROW, COLUMN, whole)):
        for call in (function, phalanx.jit(function)):
            np.testing.assert_array_equal(call(x, y), function(*wide))


def test_three_operands_and_derivatives():
    np.testing.assert_array_equal(lax.betainc(ROW, COLUMN, X), lax.betainc(ROW + 0 * X, COLUMN + 0 * X, X))
    np.testing.assert_array_equal(phalanx.grad(lambda y: lax.mul(X, y).sum())(ROW), [[1.5] * 4])
    assert phalanx.vmap(lambda x: lax.add(x, ROW))(np.ones((5, 3, 4), np.float32)).shape == (5, 3, 4)


def test_other_shapes_are_refused():
    for y in (np.ones((2, 4), np.float32), np.ones(4, np.float32)):
        with pytest.raises(
            ShapeError, match="expected operands of equal shapes but for dimensions of size 1, or of rank 0"
        ):
            lax.add(X, y)
