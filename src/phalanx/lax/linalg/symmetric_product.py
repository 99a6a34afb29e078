"""The symmetric product `alpha a a^T + beta c`."""

from __future__ import annotations

from typing import Any

from phalanx.core import ShapeError, add_tangents, get_aval
from phalanx.lax.elementwise import convert_element_type, mul
from phalanx.lax.linalg.matrix_stacks import check_matrices, matmul, swap_last_dims, tril
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike


@eager_jit(static_argnames=("alpha", "beta", "symmetrize_output"))
def symmetric_product(
    a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Any:
    """Compute alpha a a^T + beta c: num[*b, n, k], num[*b, n, n] -> num[*b, n, n].

    Args:
      a_matrix: the matrices to multiply by their transposes.
      c_matrix: symmetric matrices.
      alpha, beta: the factors.
      symmetrize_output: whether to make the result exactly symmetric, from its lower triangle.

    Returns:
      The sum.

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.symmetric_product(np.ones((2, 3)), np.eye(2), beta=1.0).tolist()
      [[4.0, 3.0], [3.0, 4.0]]
    """
    a, c = get_aval(a_matrix), get_aval(c_matrix)
    check_matrices("lax.linalg.symmetric_product", a)
    if c.shape != (*a.shape[:-1], a.shape[-2]) or c.dtype != a.dtype:
        raise ShapeError(
            "lax.linalg.symmetric_product operands",
            expected="num[*b, n, k] and num[*b, n, n] of one dtype",
            got=f"{a.str_short()} and {c.str_short()}",
            fix="pass an n by n matrix c for each n by k matrix a",
        )
    product = mul(matmul(convert_element_type(a_matrix, a.dtype), swap_last_dims(a_matrix)), a.dtype.type(alpha))
    if beta:
        product = add_tangents(product, mul(c_matrix, a.dtype.type(beta)))
    if symmetrize_output:
        product = add_tangents(tril(product), swap_last_dims(tril(product, -1)))
    return product
