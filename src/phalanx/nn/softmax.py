"""Functions over an axis: the softmax family, sums of exponentials, standardisation, one-hot encoding.

An eager call is one compiled program. Builds on `lax`; called by models, losses and `nnx`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, dtypes, get_aval, promotion
from phalanx.custom_rules import custom_jvp
from phalanx.lax.collectives.named_axes import split_axis_names
from phalanx.lax.shape import broadcast_to_shape
from phalanx.lax.sharding.out_sharding import apply_out_sharding, call_with_out_sharding
from phalanx.nn.axis_reductions import Axis, apply_mask, as_inexact, broadcast_reduced, resolve_dims, sum_widened
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike


def _top(x: Array, dims: tuple, names: tuple) -> Any:
    """The largest element over dimensions and named axes."""
    top = lax.reduce_max(x, dims)
    return lax.pmax(top, names) if names else top


def _sum(x: Array, dims: tuple, names: tuple) -> Any:
    """The sum over dimensions and named axes."""
    return lax.psum(sum_widened(x, dims), names) if names else sum_widened(x, dims)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _softmax(x: Array, dims: tuple, names: tuple) -> Any:
    # Subtracting the maximum does not change the result, and prevents overflow.
    e = lax.exp(lax.sub(x, broadcast_reduced(_top(x, dims, names), x.shape, dims)))
    return lax.div(e, broadcast_reduced(_sum(e, dims, names), x.shape, dims))


@_softmax.defjvp
def _softmax_jvp(dims: tuple, names: tuple, primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    y = _softmax(x, dims, names)
    # The Jacobian is diag(y) - y y^T; the derivative of the subtracted maximum cancels.
    moved = lax.mul(y, x_dot)
    return y, lax.sub(moved, lax.mul(y, broadcast_reduced(_sum(moved, dims, names), y.shape, dims)))


@eager_jit(static_argnames=("axis",))
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Any:
    """Exponentials that sum to 1: exp(x) / sum(exp(x)).

    Args:
      x: real[*s].
      axis: the axis or axes to sum over, which may include names of mapped or mesh axes; None for all dimensions.
      where: a mask of the elements to include.

    Returns:
      Values in [0, 1]; 0 for masked elements.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.softmax(np.array([1.0, 1.0])).tolist()
      [0.5, 0.5]
    """
    x = as_inexact(x)
    axis, names = split_axis_names(axis)
    dims = resolve_dims("nn.softmax", axis, x.ndim)
    if where is None:
        return _softmax(x, dims, names)
    return apply_mask(_softmax(apply_mask(x, where, _least(x)), dims, names), where, 0)


@eager_jit(static_argnames=("axis",))
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Any:
    """The logarithm of `softmax`: x - logsumexp(x).

    Args:
      x: real[*s].
      axis: the axis or axes to sum over, which may include names of mapped or mesh axes; None for all dimensions.
      where: a mask of the elements to include.

    Returns:
      Values of at most 0; -inf for masked elements.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.log_softmax(np.array([0.0, -np.inf])).tolist()
      [0.0, -inf]
    """
    x = as_inexact(x)
    axis, names = split_axis_names(axis)
    dims = resolve_dims("nn.log_softmax", axis, x.ndim)
    x = apply_mask(x, where, _least(x))
    shifted = lax.sub(x, broadcast_reduced(_top(lax.stop_gradient(x), dims, names), x.shape, dims))
    log_total = lax.log(_sum(lax.exp(shifted), dims, names))
    return apply_mask(lax.sub(shifted, broadcast_reduced(log_total, x.shape, dims)), where, -np.inf)


def _least(x: Array) -> float:
    """A finite number whose exponential is 0: with -inf, a row without any element would become NaN."""
    return float(dtypes.finfo(get_aval(x).dtype).min)


@eager_jit(static_argnames=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """The logarithm of a sum of exponentials: log(sum(b exp(a))), without overflow.

    Args:
      a: num[*s].
      axis: the axis or axes to sum over, which may include names of mapped or mesh axes; None for all dimensions.
      b: factors of the exponentials, broadcast with `a`.
      keepdims: keep the reduced axes, with size 1.
      return_sign: return the logarithm of the absolute value of the sum, and its sign (phase if complex).
      where: a mask of the elements to include.

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
    a = as_inexact(a)
    if b is not None:
        dtype = dtypes.to_inexact_dtype(promotion.result_type(a, b))
        b = as_inexact(b)
        shape = lax.broadcast_shapes(get_aval(a).shape, get_aval(b).shape)
        a, b = (broadcast_to_shape(lax.convert_element_type(v, dtype), shape) for v in (a, b))
        # A factor of 0 removes the term even where exp(a) is infinite.
        a = lax.select(lax.ne(b, dtype.type(0)), a, lax.full(shape, -np.inf, dtype))
    shape, dtype = get_aval(a).shape, get_aval(a).dtype
    axis, names = split_axis_names(axis)
    dims = resolve_dims("nn.logsumexp", axis, len(shape))
    a = apply_mask(a, where, -np.inf)
    is_complex = dtypes.issubdtype(dtype, np.complexfloating)
    top = _top(lax.stop_gradient(lax.real(a) if is_complex else a), dims, names)
    # An infinite maximum would give inf - inf = NaN.
    top = lax.select(lax.is_finite(top), top, lax.full(top.shape, 0, top.dtype))
    e = lax.exp(lax.sub(a, lax.convert_element_type(broadcast_reduced(top, shape, dims), dtype)))
    whole = _sum(e if b is None else lax.mul(e, b), dims, names)
    # Factors may make the sum negative: its logarithm is NaN, unless the sign is returned separately.
    sign = lax.sign(whole)
    size = lax.abs(whole) if return_sign or (b is not None and not is_complex) else whole
    out = lax.log(size)
    out = lax.add(out, lax.convert_element_type(top, get_aval(out).dtype))
    if b is not None and not return_sign and not is_complex:
        out = lax.select(lax.lt(whole, 0), lax.full(get_aval(out).shape, np.nan, dtype), out)
    if keepdims:
        kept = tuple(1 if d in dims else n for d, n in enumerate(shape))
        out, sign = lax.reshape(out, kept), lax.reshape(sign, kept)
    return (out, sign) if return_sign else out


@eager_jit(static_argnames=("axis", "keepdims"))
def logmeanexp(x: ArrayLike, axis: Axis = None, where: ArrayLike | None = None, keepdims: bool = False) -> Any:
    """The logarithm of a mean of exponentials: log(mean(exp(x))), without overflow.

    Args:
      x: real[*s].
      axis: the axis or axes to average over, which may include names of mapped or mesh axes; None for all dimensions.
      where: a mask of the elements to include.
      keepdims: keep the reduced axes, with size 1.

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
    x = as_inexact(x)
    log_total = logsumexp(x, axis=axis, keepdims=keepdims, where=where)
    shape = get_aval(x).shape
    axis, names = split_axis_names(axis)
    dims = resolve_dims("nn.logmeanexp", axis, len(shape))
    if where is None:
        count = math.prod([*(shape[d] for d in dims), *(lax.axis_size(name) for name in names)])
        return lax.sub(log_total, math.log(count) if count else -math.inf)  # without elements -inf + inf = NaN
    taking_part = lax.convert_element_type(
        lax.broadcast_like(lax.convert_element_type(where, bool), x), get_aval(x).dtype
    )
    return lax.sub(log_total, lax.reshape(lax.log(_sum(taking_part, dims, names)), get_aval(log_total).shape))


@eager_jit(static_argnames=("axis", "algorithm"))
def standardize(
    x: ArrayLike,
    axis: Axis = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: float | Array = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """Shift and scale to mean 0 and variance 1: (x - mean) / sqrt(variance + epsilon).

    Args:
      x: num[*s].
      axis: the axis or axes of mean and variance, which may include names of mapped or mesh axes; None for all.
      mean: the mean, which broadcasts with `x`; computed if None.
      variance: the variance, which broadcasts with `x`; computed if None.
      epsilon: a small number added to the variance, which avoids a division by zero.
      where: a mask of the elements included in mean and variance.
      algorithm: the formula of the variance: `"fast"` for mean(x^2) - mean(x)^2, `"stable"` for mean((x - mean)^2).

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
    if algorithm not in ("fast", "stable"):
        raise ArgumentError(
            "nn.standardize algorithm",
            expected="'fast' or 'stable'",
            got=repr(algorithm),
            fix="pass algorithm='fast', or 'stable' for data far from 0",
        )
    x = as_inexact(x)
    axis, names = split_axis_names(axis)
    dims = resolve_dims("nn.standardize", axis, x.ndim)
    is_plain = mean is None and variance is None and where is None and not names
    if is_plain and not dtypes.issubdtype(x.dtype, np.complexfloating):
        return _standardize(x, dims, epsilon, algorithm)
    over = (*dims, *names)
    size = (lambda v: jnp.square(jnp.abs(v))) if jnp.iscomplexobj(x) else jnp.square
    mean = jnp.mean(x, over, keepdims=True, where=where) if mean is None else mean
    if variance is None and algorithm == "fast":
        variance = jnp.maximum(jnp.mean(size(x), over, keepdims=True, where=where) - size(jnp.asarray(mean)), 0)
    elif variance is None:
        variance = jnp.mean(size(x - mean), over, keepdims=True, where=where)
    return jnp.subtract(x, mean) * lax.rsqrt(jnp.asarray(variance + epsilon, x.dtype))


def _standardize(x: Array, dims: tuple, epsilon: float | Array, algorithm: str) -> Any:
    """The common case without mask or given statistics; in float32 at least, where squares do not overflow."""
    shape, dtype = x.shape, x.dtype
    x = lax.convert_element_type(x, np.float32) if dtype.itemsize < 4 else x
    count = math.prod(shape[d] for d in dims)
    count = lax.convert_element_type(count, x.dtype) if is_symbolic(count) else float(count)
    mean = lax.div(lax.reduce_sum(x, dims), count)
    shifted = lax.sub(x, broadcast_reduced(mean, shape, dims))
    # One pass over x, which XLA fuses; "stable" needs the mean first.
    if algorithm == "fast":
        variance = lax.sub(lax.div(lax.reduce_sum(lax.square(x), dims), count), lax.square(mean))
        variance = lax.max(variance, lax.full_like(variance, 0))  # which rounding may make negative
    else:
        variance = lax.div(lax.reduce_sum(lax.square(shifted), dims), count)
    if not isinstance(epsilon, int | float):
        epsilon = lax.convert_element_type(epsilon, x.dtype)
    out = lax.mul(shifted, broadcast_reduced(lax.rsqrt(lax.add(variance, epsilon)), shape, dims))
    return out if dtype.itemsize >= 4 else lax.convert_element_type(out, dtype)


@eager_jit(static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x: Array, num_classes: int, dtype: np.dtype, axis: int) -> Any:
    shape = get_aval(x).shape
    out_shape = (*shape[:axis], num_classes, *shape[axis:])
    # A comparison with an iota, which XLA fuses into the consumer; no array of the result is scattered into.
    indices = lax.broadcast_in_dim(x, out_shape, tuple(d for d in range(len(out_shape)) if d != axis))
    return lax.convert_element_type(lax.eq(indices, lax.broadcasted_iota(get_aval(x).dtype, out_shape, axis)), dtype)


def one_hot(
    x: ArrayLike,
    num_classes: int,
    *,
    dtype: DTypeLike | None = None,
    axis: int | str = -1,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Encode indices as unit vectors.

    Args:
      x: int[*s].
      num_classes: the length of the vectors.
      dtype: their dtype; the default floating one when left out.
      axis: the position of the new axis in the result; or the name of a mapped or mesh axis, along which each member
        gets the entries of the class of its index.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from `x` if None.

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
            "nn.one_hot, argument num_classes",
            expected="a number >= 0",
            got=num_classes,
            fix="pass the number of classes, such as x.max() + 1",
        )
    aval = get_aval(x)
    x = lax.convert_element_type(x, np.int32) if aval.dtype == np.dtype(bool) else x
    dtype = dtypes.canonicalize_dtype(np.float64 if dtype is None else dtype)
    if isinstance(axis, str):
        members = lax.axis_size(axis)
        if num_classes != members:
            raise ArgumentError(
                "nn.one_hot, argument num_classes",
                expected=f"{members}, the size of axis {axis!r}",
                got=num_classes,
                fix="name an axis with a member for each class",
            )
        index = lax.convert_element_type(lax.axis_index(axis), get_aval(x).dtype)
        entry = lax.convert_element_type(lax.eq(x, index), dtype)
        return apply_out_sharding(entry, out_sharding, "nn.one_hot, out_sharding")
    (dim,) = resolve_dims("nn.one_hot", axis, aval.ndim + 1)
    return call_with_out_sharding(
        lambda x: _one_hot(x, static_size(num_classes), dtype, dim), (x,), out_sharding, "nn.one_hot, out_sharding"
    )
