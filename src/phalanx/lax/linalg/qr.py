"""Orthogonal-triangular decompositions: `qr`, and the Householder forms behind it.

Builds on `matrices` and `triangular`; called by `phalanx.numpy.linalg`, `phalanx.scipy.linalg` and the orthogonal
initializers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import RuleError, ShapeError
from phalanx.core.primitive import Primitive, Undefined
from phalanx.core.tangent import Zero, is_linear
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import add, mul, sign, sub
from phalanx.lax.linalg.kernels import emit_triangle, kernel
from phalanx.lax.linalg.matrices import (
    INT32,
    adjoint,
    batch_in_front,
    check_matrices,
    diagonal,
    eye_mask,
    is_complex,
    masked,
    matmul,
    scale_rows,
    stack_roles,
    take_rows,
    transposed,
    tril,
    unit_vectors,
)
from phalanx.lax.linalg.triangular import triangular_solve
from phalanx.lax.parts import conj, real
from phalanx.lax.shape import concatenate
from phalanx.lax.slicing import slice_in_dim
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import min_dim


class Qr(Primitive, name="qr", multiple=True):
    """Q and R with x = Q R, or x P = Q R with a vector of pivots.

    Derivative: S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions with application in
    optimum experimental design (2010), arXiv:1001.1654; wide matrices by their leading square part.
    """

    def result(self, x, *, pivoting, full_matrices, magma):
        check_matrices("lax.linalg.qr", x)
        *batch, m, n = x.shape
        inner = m if full_matrices else min_dim(m, n)
        out = [ShapedArray((*batch, m, inner), x.dtype), ShapedArray((*batch, inner, n), x.dtype)]
        return [*out, ShapedArray((*batch, n), INT32)] if pivoting else out

    def roles(self, x, *, pivoting, full_matrices, magma):
        return stack_roles([x], x.ndim - 2, [x.ndim, x.ndim, x.ndim - 1][: 2 + pivoting])

    def lower(self, ctx, x, *, pivoting, full_matrices, magma):
        (aval,) = ctx.avals_in
        *batch, m, n = aval.shape
        num_batch, inner, small = len(batch), m if full_matrices else min_dim(m, n), min_dim(m, n)
        if small == 0:
            out = [ctx.inline(unit_vectors, avals=[], aval=a)[0] for a in ctx.avals_out[:2]]
            return [*out, *(ctx.iota(a, a.ndim - 1) for a in ctx.avals_out[2:])]
        taus_aval = ShapedArray((*batch, small), aval.dtype)
        pivots_aval = ShapedArray((*batch, n), INT32)
        if pivoting:
            free = ctx.constant(0, pivots_aval)
            results = [aval, pivots_aval, taus_aval]
            packed, pivots, taus = kernel(
                ctx, "geqp3", [x, free], [aval, pivots_aval], results, num_batch, cuda={"magma": magma}
            )
        else:
            packed, taus = kernel(ctx, "geqrf", [x], [aval], [aval, taus_aval], num_batch)
        r_aval = ctx.avals_out[1]
        r = packed if inner == m else _leading(ctx, packed, aval, -2, inner)
        r = emit_triangle(ctx, r, r_aval, lower=False)
        q_aval = ctx.avals_out[0]
        own = min_dim(n, inner)
        reflectors = _leading(ctx, packed, aval, -1, own)
        if inner != own:  # the remaining columns complete the basis
            zero = ctx.constant(0, ShapedArray((), aval.dtype))
            none = [0] * aval.ndim
            reflectors = ctx.pad(reflectors, zero, none, [*none[:-1], inner - own], none, q_aval)
        (q,) = kernel(ctx, "orgqr", [reflectors, taus], [q_aval, taus_aval], [q_aval], num_batch)
        return [q, r, hlo.subtract(pivots, ctx.constant(1, pivots_aval))] if pivoting else [q, r]

    def jvp(self, primals, tangents, *, pivoting, full_matrices, magma):
        (x,), (x_dot,) = primals, tangents
        m, n = np.shape(x)[-2:]
        if full_matrices and m > n:
            raise RuleError(
                "derivative of lax.linalg.qr",
                expected="full_matrices=False, or no more rows than columns",
                got=f"full_matrices=True for {aval_of(x).str_short()}",
                mend="the columns that complete the basis are not determined by x; use full_matrices=False",
            )
        out = self(x, pivoting=pivoting, full_matrices=full_matrices, magma=magma)
        q, r = out[:2]
        if pivoting:
            x_dot = transposed(take_rows(transposed(x_dot), out[2]))
        k = min_dim(m, n)
        lead, lead_dot = (v if n == k else slice_in_dim(v, 0, k, axis=np.ndim(v) - 1) for v in (r, x_dot))
        right = triangular_solve(lead, lead_dot)
        inner = matmul(adjoint(q), right)
        low = tril(inner, -1)
        turn = sub(low, adjoint(low))  # the skew-Hermitian q^H q_dot
        if is_complex(q.dtype):
            diag = masked(inner, eye_mask(np.shape(inner)))
            turn = add(turn, mul(sub(diag, conj(diag)), q.dtype.type(0.5)))
        q_dot = add(matmul(q, sub(turn, inner)), right)
        r_dot = matmul(sub(inner, turn), lead)
        if n != k:
            rest_dot = slice_in_dim(x_dot, k, n, axis=np.ndim(x_dot) - 1)
            rest = slice_in_dim(r, k, n, axis=np.ndim(r) - 1)
            rest = sub(matmul(adjoint(q), rest_dot), matmul(turn, rest))
            r_dot = concatenate([r_dot, rest], np.ndim(r) - 1)
        return out, [q_dot, r_dot, *map(Zero.like, out[2:])]

    batch = batch_in_front


def _leading(ctx: Any, x: Any, aval: ShapedArray, dim: int, size: int) -> Any:
    """The first `size` entries along `dim`, as IR."""
    limits = list(aval.shape)
    if limits[dim] == size:
        return x
    limits[dim] = size
    return ctx.slice(x, [0] * len(limits), limits, [1] * len(limits), aval.with_shape(tuple(limits)))


qr_p = Qr()


class Geqrf(Primitive, name="geqrf", multiple=True):
    """The QR decomposition as LAPACK packs it: R with the vectors of the reflectors below it, and their factors."""

    def result(self, x):
        check_matrices("lax.linalg.geqrf", x)
        *batch, m, n = x.shape
        return [x.update(weak_type=False), ShapedArray((*batch, min_dim(m, n)), x.dtype)]

    def roles(self, x):
        return stack_roles([x], x.ndim - 2, [x.ndim, x.ndim - 1])

    def lower(self, ctx, x):
        return kernel(ctx, "geqrf", [x], ctx.avals_in, ctx.avals_out, len(ctx.avals_in[0].shape) - 2)

    jvp = Undefined("reflectors are an intermediate form; differentiate lax.linalg.qr")
    batch = batch_in_front


geqrf_p = Geqrf()


class HouseholderProduct(Primitive, name="householder_product"):
    """The leading columns of a product of reflectors I - tau v v^H: num[*b, m, n], num[*b, k] -> num[*b, m, n]."""

    def result(self, a, taus):
        check_matrices("lax.linalg.householder_product", a)
        *batch, m, n = a.shape
        if taus.dtype != a.dtype or taus.shape[:-1] != tuple(batch) or m < n or taus.shape[-1] > n:
            raise ShapeError(
                "lax.linalg.householder_product operands",
                expected="num[*b, m, n] with m >= n and num[*b, k] with n >= k, of one dtype",
                got=f"{a.str_short()} and {taus.str_short()}",
                mend="give the reflectors as columns, as LAPACK's geqrf does",
            )
        return a.update(weak_type=False)

    def roles(self, a, taus):
        return stack_roles([a, taus], a.ndim - 2, [a.ndim])

    def lower(self, ctx, a, taus):
        aval = ctx.aval_out
        return kernel(ctx, "orgqr", [a, taus], ctx.avals_in, [aval], aval.ndim - 2)[0]

    jvp = Undefined("reflectors are an intermediate form; differentiate lax.linalg.qr")
    batch = batch_in_front


householder_product_p = HouseholderProduct()


class Ormqr(Primitive, name="ormqr"):
    """`c` multiplied by the Q that reflectors stand for, or its adjoint, from the left or the right."""

    def result(self, a, taus, c, *, left, transpose):
        check_matrices("lax.linalg.ormqr", a)
        side = c.shape[-2 if left else -1] if c.ndim == a.ndim else None
        if not (
            a.dtype == taus.dtype == c.dtype and side == a.shape[-2] and taus.shape[:-1] == a.shape[:-2] == c.shape[:-2]
        ):
            raise ShapeError(
                "lax.linalg.ormqr operands",
                expected="num[*b, m, n], num[*b, k] and c with m rows (columns if not left), of one dtype",
                got=", ".join(v.str_short() for v in (a, taus, c)),
                mend="check the side, and the leading dimensions",
            )
        return c.update(weak_type=False)

    def roles(self, a, taus, c, *, left, transpose):
        return stack_roles([a, taus, c], a.ndim - 2, [c.ndim])

    def lower(self, ctx, a, taus, c, *, left, transpose):
        aval = ctx.aval_out
        a_aval, taus_aval, c_aval = ctx.avals_in
        count = taus_aval.shape[-1]
        a = _leading(ctx, a, a_aval, -1, count)
        avals = [a_aval.with_shape((*a_aval.shape[:-1], count)), taus_aval, c_aval]
        asked = {"left": left, "transpose": transpose}
        return kernel(ctx, "ormqr", [a, taus, c], avals, [aval], aval.ndim - 2, cpu=asked, cuda=asked)[0]

    def jvp(self, primals, tangents, **params):
        a, taus, c = primals
        if any(type(t) is not Zero for t in tangents[:2]):
            raise RuleError(
                "derivative of lax.linalg.ormqr",
                expected="reflectors without a tangent",
                got="one with",
                mend="differentiate lax.linalg.qr and multiply by its Q",
            )
        return self(a, taus, c, **params), self(a, taus, tangents[2], **params)

    def transpose(self, y_bar, a, taus, c, *, left, transpose):
        if not is_linear(c):
            return None, None, None
        # Q^T = conj(Q^H), and Q^H is what `transpose` asks for.
        c_bar = (
            conj(self(a, taus, conj(y_bar), left=left, transpose=not transpose))
            if is_complex(c.dtype)
            else self(a, taus, y_bar, left=left, transpose=not transpose)
        )
        return None, None, c_bar

    batch = batch_in_front


ormqr_p = Ormqr()


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple:
    """QR decomposition: Q with orthonormal columns and upper triangular R with x = Q R.

    Args:
      x: num[*b, m, n].
      pivoting: reorder the columns so that the diagonal of R decreases; x[:, p] = Q R.
      full_matrices: make Q square; otherwise it has min(m, n) columns, and only that form has a derivative if m > n.
      use_magma: whether pivoting on CUDA devices is MAGMA's or LAPACK's on the host; None for what is there.

    Returns:
      Q, R, and with `pivoting` the order p of the columns.

    Raises:
      ShapeError: `x` is no matrix.
      DTypeError: its dtype is not one that LAPACK has.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> q, r = lax.linalg.qr(np.ones((3, 2), np.float32), full_matrices=False)
      >>> q.shape, r.shape
      ((3, 2), (2, 2))
    """
    magma = "auto" if use_magma is None else "on" if use_magma else "off"
    return tuple(qr_p(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices), magma=magma))


def householder_product(a: Any, taus: Any) -> Any:
    """Multiply elementary reflectors out.

    Args:
      a: num[*b, m, n], the vector of each reflector below the diagonal of its column, as LAPACK's geqrf leaves it.
      taus: num[*b, k], the factor of each reflector.

    Returns:
      The first n columns of the product (I - taus[0] v0 v0^H) (I - taus[1] v1 v1^H) ...

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.householder_product(np.zeros((2, 2), np.float32), np.zeros(2, np.float32)).tolist()
      [[1.0, 0.0], [-0.0, 1.0]]
    """
    return householder_product_p(a, taus)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Multiply by the Q of reflectors without forming it.

    Args:
      a, taus: the reflectors, as in `householder_product`.
      c: the matrices that are multiplied.
      left: whether Q stands left of `c`.
      transpose: multiply by the adjoint of Q.

    Returns:
      The product, shaped like `c`.

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.ormqr(
      ...     np.zeros((2, 2), np.float32), np.zeros(2, np.float32), np.ones((2, 1), np.float32)
      ... ).tolist()
      [[1.0], [1.0]]
    """
    return ormqr_p(a, taus, c, left=bool(left), transpose=bool(transpose))


@eager_program(static_argnames=())
def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """Cholesky factor after a rank-one update: upper R' with R'^H R' = R^H R + w w^H.

    Args:
      r_matrix: num[*b, n, n], upper triangular with a positive diagonal.
      w_vector: num[*b, n].

    Returns:
      The new upper triangular factor, with a positive diagonal.

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.cholesky_update(np.eye(1, dtype=np.float32) * 3, np.array([4.0], np.float32)).tolist()
      [[5.0]]
    """
    from phalanx.lax.shape import reshape

    r, w = aval_of(r_matrix), aval_of(w_vector)
    check_matrices("lax.linalg.cholesky_update", r, square=True)
    if w.shape != r.shape[:-1] or w.dtype != r.dtype:
        raise ShapeError(
            "lax.linalg.cholesky_update operands",
            expected="num[*b, n, n] and num[*b, n] of one dtype",
            got=f"{r.str_short()} and {w.str_short()}",
            mend="check the last dimensions",
        )
    row = reshape(conj(w_vector) if is_complex(w.dtype) else w_vector, (*w.shape[:-1], 1, w.shape[-1]))
    _, updated = qr(concatenate([r_matrix, row], r.ndim - 2), full_matrices=False)
    return scale_rows(updated, sign(real(diagonal(updated)) if is_complex(r.dtype) else diagonal(updated)))
