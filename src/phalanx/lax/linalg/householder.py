"""Products of Householder reflectors, in LAPACK's packed form: `geqrf_p`, `householder_product`, `ormqr`."""

from __future__ import annotations

from typing import Any

from phalanx.core import Primitive, RuleError, ShapedArray, ShapeError, Undefined, Zero, is_linear
from phalanx.lax.elementwise import conj
from phalanx.lax.linalg.library_kernels import call_kernel
from phalanx.lax.linalg.matrix_stacks import batch_in_front, check_matrices, is_complex, stack_sharding_rule
from phalanx.lax.linalg.qr import emit_leading
from phalanx.symbolic import min_dim
from phalanx.typing import ArrayLike


class Geqrf(Primitive, name="geqrf", multiple=True):
    """The packed QR decomposition of LAPACK: R with the vectors of the reflectors below it, and their factors."""

    def abstract_eval(self, x):
        check_matrices("lax.linalg.geqrf", x)
        *batch, m, n = x.shape
        return [x.update(weak_type=False), ShapedArray((*batch, min_dim(m, n)), x.dtype)]

    def sharding_rule(self, x):
        return stack_sharding_rule([x], x.ndim - 2, [x.ndim, x.ndim - 1])

    def lower(self, ctx, x):
        return call_kernel(ctx, "geqrf", [x], ctx.avals_in, ctx.avals_out, len(ctx.avals_in[0].shape) - 2)

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.qr")
    batch = batch_in_front


geqrf_p = Geqrf()


class HouseholderProduct(Primitive, name="householder_product"):
    """The leading columns of a product of reflectors I - tau v v^H: num[*b, m, n], num[*b, k] -> num[*b, m, n]."""

    def abstract_eval(self, a, taus):
        check_matrices("lax.linalg.householder_product", a)
        *batch, m, n = a.shape
        if taus.dtype != a.dtype or taus.shape[:-1] != tuple(batch) or m < n or taus.shape[-1] > n:
            raise ShapeError(
                "lax.linalg.householder_product operands",
                expected="num[*b, m, n] with m >= n and num[*b, k] with n >= k, of one dtype",
                got=f"{a.str_short()} and {taus.str_short()}",
                fix="pass the reflectors as columns, in the packed form of LAPACK's geqrf",
            )
        return a.update(weak_type=False)

    def sharding_rule(self, a, taus):
        return stack_sharding_rule([a, taus], a.ndim - 2, [a.ndim])

    def lower(self, ctx, a, taus):
        aval = ctx.aval_out
        return call_kernel(ctx, "orgqr", [a, taus], ctx.avals_in, [aval], aval.ndim - 2)[0]

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.qr")
    batch = batch_in_front


householder_product_p = HouseholderProduct()


class Ormqr(Primitive, name="ormqr"):
    """Multiply `c` by the Q of reflectors, or its adjoint, from the left or the right."""

    def abstract_eval(self, a, taus, c, *, left, transpose):
        check_matrices("lax.linalg.ormqr", a)
        side = c.shape[-2 if left else -1] if c.ndim == a.ndim else None
        if not (
            a.dtype == taus.dtype == c.dtype and side == a.shape[-2] and taus.shape[:-1] == a.shape[:-2] == c.shape[:-2]
        ):
            raise ShapeError(
                "lax.linalg.ormqr operands",
                expected="num[*b, m, n], num[*b, k] and c with m rows (columns if not left), of one dtype",
                got=", ".join(v.str_short() for v in (a, taus, c)),
                fix="pass equal leading dimensions, and left=False if Q multiplies from the right",
            )
        return c.update(weak_type=False)

    def sharding_rule(self, a, taus, c, *, left, transpose):
        return stack_sharding_rule([a, taus, c], a.ndim - 2, [c.ndim])

    def lower(self, ctx, a, taus, c, *, left, transpose):
        aval = ctx.aval_out
        a_aval, taus_aval, c_aval = ctx.avals_in
        count = taus_aval.shape[-1]
        # LAPACK reads one column for each factor.
        a = emit_leading(ctx, a, a_aval, -1, count)
        avals = [a_aval.with_shape((*a_aval.shape[:-1], count)), taus_aval, c_aval]
        attributes = {"left": left, "transpose": transpose}
        return call_kernel(ctx, "ormqr", [a, taus, c], avals, [aval], aval.ndim - 2, cpu=attributes, cuda=attributes)[0]

    def jvp(self, primals, tangents, **params):
        a, taus, c = primals
        if any(type(t) is not Zero for t in tangents[:2]):
            raise RuleError(
                "derivative of lax.linalg.ormqr",
                expected="reflectors without a tangent",
                got="a tangent of a or taus",
                fix="differentiate lax.linalg.qr and multiply by its Q",
            )
        return self(a, taus, c, **params), self(a, taus, tangents[2], **params)

    def transpose(self, y_bar, a, taus, c, *, left, transpose):
        # Only the multiplication of `c` is linear; the reflectors are not differentiable.
        if not is_linear(c):
            return None, None, None
        # The transpose of multiplication by Q is Q^T = conj(Q^H), where `transpose` selects Q^H.
        c_bar = (
            conj(self(a, taus, conj(y_bar), left=left, transpose=not transpose))
            if is_complex(c.dtype)
            else self(a, taus, y_bar, left=left, transpose=not transpose)
        )
        return None, None, c_bar

    batch = batch_in_front


ormqr_p = Ormqr()


def householder_product(a: ArrayLike, taus: ArrayLike) -> Any:
    """Compute the product of elementary reflectors.

    Args:
      a: num[*b, m, n], the vector of each reflector below the diagonal of its column, as in LAPACK's geqrf.
      taus: num[*b, k], the factor of each reflector.

    Returns:
      The first n columns of the product (I - taus[0] v0 v0^H) (I - taus[1] v1 v1^H) ...

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.householder_product(np.zeros((2, 2), np.float32), np.zeros(2, np.float32)).tolist()
      [[1.0, 0.0], [-0.0, 1.0]]
    """
    return householder_product_p(a, taus)


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Any:
    """Multiply matrices by the Q of reflectors without computing Q.

    Args:
      a, taus: the reflectors, as in `householder_product`.
      c: the matrices to multiply.
      left: whether Q multiplies from the left.
      transpose: whether to multiply by the adjoint of Q.

    Returns:
      The product, of the shape of `c`.

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.ormqr(
      ...     np.zeros((2, 2), np.float32), np.zeros(2, np.float32), np.ones((2, 1), np.float32)
      ... ).tolist()
      [[1.0], [1.0]]
    """
    return ormqr_p(a, taus, c, left=bool(left), transpose=bool(transpose))
