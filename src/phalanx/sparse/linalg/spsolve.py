"""`spsolve`: the direct solution of a sparse linear system, by SciPy on the host."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, DTypeError, ShapeDtypeStruct, ShapeError
from phalanx.lax.callback import pure_callback
from phalanx.sparse.matrix_formats import CSR, csr_matvec
from phalanx.typing import Array, ArrayLike


def spsolve(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, b: ArrayLike, tol: float = 1e-6, reorder: int = 1
) -> Array:
    """Solve a sparse linear system by a direct method.

    The system is solved by `scipy.sparse.linalg.spsolve` on the host, on every platform. Derivatives by `data` and `b`
    come from the equation.

    Args:
      data, indices, indptr: the square matrix in the compressed row format, as in `CSR`: inexact[nse], int[nse] and
        int[n + 1].
      b: inexact[n], the right-hand side, of the dtype of `data`.
      tol: the tolerance of solvers that test for singular matrices; SciPy's does not.
      reorder: the ordering of such solvers, from 0 to 3; SciPy chooses its own.

    Returns:
      inexact[n], NaN if the matrix is singular.

    Raises:
      ShapeError: the shapes do not fit.
      DTypeError: the dtypes of `data` and `b` differ.
      ArgumentError: `reorder` is none of 0 to 3.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> a = sparse.CSR.fromdense(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
      >>> sparse.linalg.spsolve(a.data, a.indices, a.indptr, jnp.ones(2)).tolist()
      [0.5, 0.25]
    """
    data, indices, indptr, b = map(jnp.asarray, (data, indices, indptr, b))
    _check(data, indices, indptr, b)
    if reorder not in (0, 1, 2, 3):
        raise ArgumentError("spsolve, argument reorder", expected="0, 1, 2 or 3", got=repr(reorder), fix="pass 1")
    matrix = CSR((data, indices, indptr), shape=(b.size, b.size))
    fixed = lax.stop_gradient(data)

    def solve(transpose: bool, _: Any, c: Array) -> Array:
        # The host is called for each example of a batch.
        call = functools.partial(_solve_on_host, transpose)
        result = ShapeDtypeStruct(c.shape, c.dtype)
        return pure_callback(call, result, fixed, indices, indptr, c, vmap_method="sequential")

    return lax.custom_linear_solve(
        functools.partial(csr_matvec, matrix), b, functools.partial(solve, False), functools.partial(solve, True)
    )


def _check(data: Array, indices: Array, indptr: Array, b: Array) -> None:
    shapes = [x.shape for x in (data, indices, indptr, b)]
    if b.ndim != 1 or indptr.shape != (b.size + 1,) or data.ndim != 1 or data.shape != indices.shape:
        raise ShapeError(
            "spsolve, arguments (data, indices, indptr, b)",
            expected="shapes [nse], [nse], [n + 1] and [n]",
            got=", ".join(str(list(s)) for s in shapes),
            fix="pass the buffers of a square CSR matrix, and one right-hand side; map over others with vmap",
        )
    if data.dtype != b.dtype:
        raise DTypeError(
            "spsolve, arguments data and b",
            expected="one dtype",
            got=f"{data.dtype} and {b.dtype}",
            fix=f"convert with b.astype({str(data.dtype)!r})",
        )


def _solve_on_host(transpose: bool, data: Any, indices: Any, indptr: Any, b: Any) -> np.ndarray:
    # SciPy is imported here, because it takes longer than the whole library.
    scipy_sparse, solvers = (importlib.import_module(name) for name in ("scipy.sparse", "scipy.sparse.linalg"))
    data, indices, indptr, b = (np.asarray(x) for x in (data, indices, indptr, b))
    matrix = scipy_sparse.csr_matrix((data, indices, indptr), shape=(b.size, b.size))
    return solvers.spsolve(matrix.T.tocsr() if transpose else matrix, b).astype(b.dtype)
