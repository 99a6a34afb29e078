"""Functions over an axis: the softmax family, sums of exponentials, standardisation, one-hot encoding.

Each is one compiled program when called on concrete arrays. Builds on `lax`; called by models, losses and `nnx`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError
from phalanx.custom_derivatives import custom_jvp
from phalanx.lax.explicit import laid_out, placed
from phalanx.lax.named_axes import apart
from phalanx.nn.operands import Axis, dims_of, inexact, masked, spread, total
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import is_symbolic, static_size


def _top(x: Any, dims: tuple, names: tuple) -> Any:
    """The largest element over dimensions and named axes."""
    top = lax.reduce_max(x, dims)
    return lax.pmax(top, names) if names else top


def _sum(x: Any, dims: tuple, names: tuple) -> Any:
    """The sum over dimensions and named axes."""
    return lax.psum(total(x, dims), names) if names else total(x, dims)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _softmax(x: Any, dims: tuple, names: tuple) -> Any:
    shape = x.shape
    e = lax.exp(lax.sub(x, spread(_top(x, dims, names), shape, dims)))
    return lax.div(e, spread(_sum(e, dims, names), shape, dims))


@_softmax.defjvp
def _softmax_jvp(dims: tuple, names: tuple, primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    y = _softmax(x, dims, names)
    moved = lax.mul(y, x_dot)
    return y, lax.sub(moved, lax.mul(y, spread(_sum(moved, dims, names), y.shape, dims)))


@eager_program(static_argnames=("axis",))
def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """Exponentials that sum to 1: exp(x) / sum(exp(x)).

    Args:
      x: real[*s].
      axis: the axis or axes summed over, names of axes in scope among them; None for all.
      where: a mask of the elements that take part.

    Returns:
      Values in [0, 1]; 0 for elements that do not take part.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.softmax(np.array([1.0, 1.0])).tolist()
      [0.5, 0.5]
    """
    x = inexact(x)
    axis, names = apart(axis)
    dims = dims_of("nn.softmax", axis, x.ndim)
    if where is None:
        return _softmax(x, dims, names)
    return masked(_softmax(masked(x, where, _least(x)), dims, names), where, 0)


@eager_program(static_argnames=("axis",))
def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Any:
    """The logarithm of `softmax`: x - logsumexp(x).

    Args:
      x: real[*s].
      axis: the axis or axes summed over, names of axes in scope among them; None for all.
      where: a mask of the elements that take part.

    Returns:
      Values that are not positive; -inf for elements that do not take part.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.log_softmax(np.array([0.0, -np.inf])).tolist()
      [0.0, -inf]
    """
    x = inexact(x)
    shape = x.shape
    axis, names = apart(axis)
    dims = dims_of("nn.log_softmax", axis, x.ndim)
    x = masked(x, where, _least(x))
    shifted = lax.sub(x, spread(_top(lax.stop_gradient(x), dims, names), shape, dims))
    log_total = lax.log(_sum(lax.exp(shifted), dims, names))
    return masked(lax.sub(shifted, spread(log_total, shape, dims)), where, -np.inf)


def _least(x: Any) -> float:
    """A number whose exponential is 0, but not -inf: nothing at all to sum over must not become NaN."""
    return float(dtypes.finfo(aval_of(x).dtype).min)


@eager_program(static_argnames=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """The logarithm of a sum of exponentials: log(sum(b exp(a))), without overflow.

    Args:
      a: num[*s].
      axis: the axis or axes summed over, names of axes in scope among them; None for all.
      b: factors of the exponentials, broadcast with `a`.
      keepdims: keep the axes summed over, with size 1.
      return_sign: return the logarithm of the size of the sum, and its sign (phase if complex).
      where: a mask of the elements that take part.

    Returns:
      The logarithm, NaN for a negative sum; with `return_sign` a pair.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> round(float(nn.logsumexp(np.array([1000.0, 1000.0]))), 2)
      1000.69
    """
    a = inexact(a)
    if b is not None:
        dtype = dtypes.to_inexact_dtype(promotion.result_type(a, b))
        b = inexact(b)
        shape = lax.broadcast_shapes(aval_of(a).shape, aval_of(b).shape)
        a, b = (_broadcast(lax.convert_element_type(v, dtype), shape) for v in (a, b))
        a = lax.select(lax.ne(b, dtype.type(0)), a, lax.full(shape, -np.inf, dtype))
    shape, dtype = aval_of(a).shape, aval_of(a).dtype
    axis, names = apart(axis)
    dims = dims_of("nn.logsumexp", axis, len(shape))
    a = masked(a, where, -np.inf)
    is_complex = dtypes.issubdtype(dtype, np.complexfloating)
    top = _top(lax.stop_gradient(lax.real(a) if is_complex else a), dims, names)
    # An infinite maximum would give inf - inf.
    top = lax.select(lax.is_finite(top), top, lax.full(top.shape, 0, top.dtype))
    e = lax.exp(lax.sub(a, lax.convert_element_type(spread(top, shape, dims), dtype)))
    whole = _sum(e if b is None else lax.mul(e, b), dims, names)
    sign = lax.sign(whole)
    if return_sign or (b is not None and not is_complex):
        size = lax.abs(whole)
    else:
        size = whole
    out = lax.log(size)
    out = lax.add(out, lax.convert_element_type(top, aval_of(out).dtype))
    if b is not None and not return_sign and not is_complex:
        negative = lax.lt(whole, 0)
        out = lax.select(negative, lax.full(aval_of(out).shape, np.nan, dtype), out)
    if keepdims:
        kept = tuple(1 if d in dims else n for d, n in enumerate(shape))
        out, sign = lax.reshape(out, kept), lax.reshape(sign, kept)
    return (out, sign) if return_sign else out


def _broadcast(x: Any, shape: tuple) -> Any:
    ndim = aval_of(x).ndim
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - ndim, len(shape))))


@eager_program(static_argnames=("axis", "keepdims"))
def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Any:
    """The logarithm of a mean of exponentials: log(mean(exp(x))), without overflow.

    Args:
      x: real[*s].
      axis: the axis or axes averaged over, names of axes in scope among them; None for all.
      where: a mask of the elements that take part.
      keepdims: keep the axes averaged over, with size 1.

    Returns:
      The logarithm.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> float(nn.logmeanexp(np.array([1000.0, 1000.0])))
      1000.0
    """
    x = inexact(x)
    log_total = logsumexp(x, axis=axis, keepdims=keepdims, where=where)
    shape = aval_of(x).shape
    axis, names = apart(axis)
    dims = dims_of("nn.logmeanexp", axis, len(shape))
    if where is None:
        count = math.prod([*(shape[d] for d in dims), *(lax.axis_size(name) for name in names)])
        return lax.sub(log_total, math.log(count) if count else -math.inf)  # of nothing: -inf + inf, NaN
    taking_part = lax.convert_element_type(
        lax.broadcast_like(lax.convert_element_type(where, bool), x), aval_of(x).dtype
    )
    return lax.sub(log_total, lax.reshape(lax.log(_sum(taking_part, dims, names)), aval_of(log_total).shape))


@eager_program(static_argnames=("axis", "algorithm"))
def standardize(
    x: Any,
    axis: Axis = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """Shift and scale to mean 0 and variance 1: (x - mean) / sqrt(variance + epsilon).

    Args:
      x: num[*s].
      axis: the axis or axes that mean and variance are taken over, names of axes in scope among them; None for all.
      mean: the mean, if it is known; it broadcasts with `x`.
      variance: the variance, if it is known.
      epsilon: a small number for the variance's sake.
      where: a mask of the elements that mean and variance are taken of.
      algorithm: `"fast"` takes the variance as mean(x^2) - mean(x)^2, `"stable"` as mean((x - mean)^2).

    Returns:
      The standardised array.

    Raises:
      ArgumentError: there is no such algorithm.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> np.round(nn.standardize(np.array([1.0, 3.0])), 3).tolist()
      [-1.0, 1.0]
    """
    from phalanx import numpy as jnp

    if algorithm not in ("fast", "stable"):
        raise ArgumentError("nn.standardize algorithm", expected="'fast' or 'stable'", got=repr(algorithm),
                            mend="use one of these")  # fmt: skip
    x = inexact(x)
    axis, names = apart(axis)
    dims = dims_of("nn.standardize", axis, x.ndim)
    is_plain = mean is None and variance is None and where is None and not names
    if is_plain and not dtypes.issubdtype(x.dtype, np.complexfloating):
        return _standardize(x, dims, epsilon, algorithm)
    over = (*dims, *names)
    size = (lambda v: jnp.square(jnp.abs(v))) if jnp.iscomplexobj(x) else jnp.square
    if mean is None:
        mean = jnp.mean(x, over, keepdims=True, where=where)
    if variance is None and algorithm == "fast":
        variance = jnp.mean(size(x), over, keepdims=True, where=where) - size(jnp.asarray(mean))
    elif variance is None:
        variance = jnp.mean(size(x - mean), over, keepdims=True, where=where)
    return jnp.subtract(x, mean) * lax.rsqrt(jnp.asarray(variance + epsilon, x.dtype))


def _standardize(x: Any, dims: tuple, epsilon: Any, algorithm: str) -> Any:
    """The plain case, in as few operations as the formula has; in 32 bits at least, where squares do not overflow."""
    shape, dtype = x.shape, x.dtype
    if dtype.itemsize < 4:
        x = lax.convert_element_type(x, np.float32)
    count = math.prod(shape[d] for d in dims)
    count = lax.convert_element_type(count, x.dtype) if is_symbolic(count) else float(count)
    mean = lax.div(lax.reduce_sum(x, dims), count)
    shifted = lax.sub(x, spread(mean, shape, dims))
    if algorithm == "fast":
        variance = lax.sub(lax.div(lax.reduce_sum(lax.square(x), dims), count), lax.square(mean))
    else:
        variance = lax.div(lax.reduce_sum(lax.square(shifted), dims), count)
    if not isinstance(epsilon, int | float):
        epsilon = lax.convert_element_type(epsilon, x.dtype)
    out = lax.mul(shifted, spread(lax.rsqrt(lax.add(variance, epsilon)), shape, dims))
    return out if dtype.itemsize >= 4 else lax.convert_element_type(out, dtype)


@eager_program(static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x: Any, num_classes: int, dtype: Any, axis: int) -> Any:
    shape = aval_of(x).shape
    whole = (*shape[:axis], num_classes, *shape[axis:])
    here = lax.broadcast_in_dim(x, whole, tuple(d for d in range(len(whole)) if d != axis))
    return lax.convert_element_type(lax.eq(here, lax.broadcasted_iota(aval_of(x).dtype, whole, axis)), dtype)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int | str = -1, out_sharding: Any = None) -> Any:
    """Encode indices as unit vectors.

    Args:
      x: int[*s].
      num_classes: the length of the vectors.
      dtype: their dtype; the default floating one when left out.
      axis: where the new axis stands in the result; or the name of an axis in scope, of whose members each gets the
        entries of its own class.
      out_sharding: how the result lies, a sharding or a spec; what the type of `x` tells if not given.

    Returns:
      An array with 1 at the index and 0 elsewhere; all 0 for an index out of bounds.

    Raises:
      AxisError: there is no such axis in the result.
      ArgumentError: a named axis has another number of members than there are classes.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.one_hot(np.array([1, 3]), 3).tolist()
      [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    x = np.asarray(x) if isinstance(x, list | tuple) else x
    if type(num_classes) is int and num_classes < 0:
        raise ArgumentError(
            "nn.one_hot, argument num_classes", expected="a number >= 0", got=num_classes, mend="give the number"
        )
    aval = aval_of(x)
    if aval.dtype == np.dtype(bool):
        x = lax.convert_element_type(x, np.int32)
    dtype = dtypes.canonicalize_dtype(np.float64 if dtype is None else dtype)
    if isinstance(axis, str):
        members = lax.axis_size(axis)
        if num_classes != members:
            raise ArgumentError("nn.one_hot, argument num_classes", expected=f"{members}, the size of axis {axis!r}",
                                got=num_classes, mend="name an axis with a member for each class")  # fmt: skip
        own = lax.convert_element_type(lax.axis_index(axis), aval_of(x).dtype)
        own = lax.convert_element_type(lax.eq(x, own), dtype)
        return placed(own, out_sharding, "nn.one_hot, out_sharding")
    (dim,) = dims_of("nn.one_hot", axis, aval.ndim + 1)
    encode = lambda x: _one_hot(x, static_size(num_classes), dtype, dim)
    return encode(x) if out_sharding is None else laid_out(encode, (x,), out_sharding, "nn.one_hot, out_sharding")
