"""Products over dimensions: `reduce_prod`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phalanx.core import Primitive, get_aval
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import NUMBER, constant_like, mul_p
from phalanx.lax.indexing.static_slice import pad_p
from phalanx.lax.reductions.cumulative import cumprod_p
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.reductions.reduction_family import _over_dims, reduction
from phalanx.lax.shape import drop_dims, reshape_p, transpose_p


def product_jvp(self: Primitive, primals: Sequence, tangents: Sequence, *, dims: tuple) -> tuple:
    """The derivative of a product: each tangent times the product of all other elements.

    The product of the others is the product of the elements before and of the elements after it. Dividing the whole
    product by the element would fail at zeros.
    """
    (x,), (t,) = primals, tangents
    y = self(x, dims=dims)
    aval = get_aval(x)
    kept = drop_dims(range(aval.ndim), dims)
    shape = (*(aval.shape[d] for d in kept), math.prod(aval.shape[d] for d in dims))
    x, t = (reshape_p(transpose_p(v, permutation=(*kept, *dims)), shape=shape) for v in (x, t))
    last = len(shape) - 1
    config = [(0, 0, 0)] * last
    one = constant_like(x, 1)
    # Exclusive prefix products from both ends: shifted by one, with 1 at the end.
    before = pad_p(cumprod_p(x, dim=last, reverse=False), one, config=(*config, (1, -1, 0)))
    after = pad_p(cumprod_p(x, dim=last, reverse=True), one, config=(*config, (-1, 1, 0)))
    return y, reduce_sum_p(mul_p(t, mul_p(before, after)), dims=(last,))


#                         name          StableHLO op  dtypes  partials  neutral element   derivative
reduce_prod_p = reduction("reduce_prod", hlo.MulOp, NUMBER, "prod", lambda dtype: 1, product_jvp)


reduce_prod = _over_dims(reduce_prod_p, "Product", 30)
