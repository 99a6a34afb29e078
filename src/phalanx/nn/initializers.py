"""Initializers: functions `(key, shape, dtype)` that make the first values of parameters.

Builds on `phalanx.random`, `lax` and `lax.linalg`; called by models and the layers of `nnx`. The families that keep the
variance of signals (lecun, glorot, he) are `variance_scaling` with other names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.engine.frames import boundary
from phalanx.engine.frames import guard as _guard
from phalanx.lax.broadcast import static_shape
from phalanx.lax.explicit import placed
from phalanx.nn.operands import dims_of
from phalanx.runtime.dispatch import eager_program

Axes = int | Sequence[int]


class Initializer(Protocol):
    """A function that makes the first value of a parameter.

    Examples:
      >>> from phalanx import nn, random
      >>> init: Initializer = nn.initializers.normal(0.1)
      >>> init(random.key(0), (2, 3)).shape
      (2, 3)
    """

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
        """Make an array.

        Args:
          key: a random key; initializers that draw nothing do not read it.
          shape: the shape of the array.
          dtype: its dtype; that given to the initializer's maker when left out, or the default floating one.
          out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.
        """


def _dtype(dtype: Any, default: Any = None) -> Any:
    """A dtype argument in canonical form."""
    found = dtypes.canonicalize_dtype(np.float64 if dtype is None and default is None else dtype or default)
    return np.dtype(found)


def _inexact(where: str, dtype: Any, default: Any) -> Any:
    dtype = _dtype(dtype, default)
    if not dtypes.issubdtype(dtype, np.inexact):
        raise DTypeError(f"{where} dtype", expected="a floating or complex dtype", got=dtypes.short_name(dtype),
                         mend="initialise in float32 and convert")  # fmt: skip
    return dtype


def _laid_out(init: Callable) -> Initializer:
    """An initializer of (key, shape, dtype) that takes `out_sharding` too."""

    @boundary
    @functools.wraps(init)
    def laid(key: Any, shape: Sequence[int], dtype: Any = init.__defaults__[0], out_sharding: Any = None) -> Any:
        return placed(init(key, static_shape(shape), dtype), out_sharding, "initializer, out_sharding")

    return laid


@_laid_out
def zeros(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """Zeros.

    Args:
      key: not read.
      shape: the shape.
      dtype: the dtype.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.zeros(None, (2,)).tolist()
      [0.0, 0.0]
    """
    return lax.full(shape, 0, _dtype(dtype))


@_laid_out
def ones(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """Ones.

    Args:
      key: not read.
      shape: the shape.
      dtype: the dtype.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The array.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.ones(None, (2,)).tolist()
      [1.0, 1.0]
    """
    return lax.full(shape, 1, _dtype(dtype))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """Make an initializer of one value.

    Args:
      value: a number, or an array that broadcasts to the shape.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.constant(7)(None, (2,)).tolist()
      [7.0, 7.0]
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        dtype = _dtype(dtype)
        given = lax.convert_element_type(value, dtype)
        ndim = aval_of(given).ndim
        return lax.broadcast_in_dim(given, shape, tuple(range(len(shape) - ndim, len(shape))))

    return init


@eager_program(static_argnames=("shape", "dtype", "distribution", "low", "high", "factor"))
def _draw(key: Any, shape: tuple, dtype: Any, distribution: str, low: float, high: float, factor: float) -> Any:
    """Scaled random numbers, as one program."""
    from phalanx import random

    if distribution == "uniform":
        x = random.uniform(key, shape, dtype, low, high)
    elif distribution == "normal":
        x = random.normal(key, shape, dtype)
    else:
        x = random.truncated_normal(key, low, high, shape, dtype)
    return lax.mul(x, np.asarray(factor, dtype)[()])


@eager_program(static_argnames=("shape", "dtype", "distribution", "factor"))
def _draw_complex(key: Any, shape: tuple, dtype: Any, distribution: str, factor: float) -> Any:
    """Complex random numbers whose phase is uniform; `uniform` ones fill the unit disk."""
    from phalanx import random

    part = np.dtype("float32") if dtype == np.dtype("complex64") else np.dtype("float64")
    keys = random.split(key)
    first, second = (lax.squeeze(lax.slice_in_dim(keys, i, i + 1), (0,)) for i in (0, 1))
    u = random.uniform(first, shape, part)
    if distribution == "uniform":
        radius = lax.sqrt(u)
    else:  # the squared size of a normal number is exponential; cut it where the size is 2
        radius = lax.sqrt(lax.neg(lax.log1p(lax.mul(u, part.type(math.expm1(-4.0))))))
    phase = random.uniform(second, shape, part, 0.0, 2 * math.pi)
    z = lax.complex(lax.mul(radius, lax.cos(phase)), lax.mul(radius, lax.sin(phase)))
    return lax.mul(z, dtype.type(factor))


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of uniform numbers.

    Args:
      scale: the upper bound; the lower one is 0.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.uniform(10.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.uniform"
        return _draw(key, shape, _inexact(where, dtype, None), "uniform", 0.0, 1.0, scale)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Make an initializer of normal numbers.

    Args:
      stddev: the standard deviation.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.normal(5.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.normal"
        return _draw(key, shape, _inexact(where, dtype, None), "normal", 0.0, 0.0, stddev)

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Make an initializer of normal numbers cut off at bounds.

    Args:
      stddev: the standard deviation before they are cut off.
      dtype: the dtype, where the call gives none.
      lower, upper: the bounds, in standard deviations.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.truncated_normal(5.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.truncated_normal"
        dtype = _inexact(where, dtype, None)
        return _draw(key, shape, dtype, "truncated_normal", lower, upper, stddev)

    return init


def _fans(shape: tuple, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs an output has and how many outputs an input has, receptive field included."""
    if len(shape) < 2:
        raise ShapeError(
            "nn.initializers.variance_scaling shape", expected="at least 2 dimensions, inputs and outputs", got=shape,
            mend="use normal or uniform for vectors",
        )  # fmt: skip
    ndim = len(shape)
    names = ("in", "out", "batch")
    ins, outs, batch = (
        set(dims_of(f"nn.initializers.variance_scaling {name}", axes, ndim))
        for name, axes in zip(names, (in_axis, out_axis, batch_axis), strict=True)
    )
    num_in, num_out, num_batch = (math.prod(shape[a] for a in axes) for axes in (ins, outs, batch))
    # A quotient, since an embedding counts one dimension as both inputs and outputs.
    field = math.prod(shape) / (num_in * num_out * num_batch)
    return num_in * field, num_out * field


# Cut off at 2 standard deviations, normal numbers have these ones (real; complex, by size).
_CUT_STDDEV = 0.87962566103423978
_CUT_STDDEV_COMPLEX = math.sqrt(1 - 4 * math.exp(-4) / (1 - math.exp(-4)))


def variance_scaling(
    scale: Any,
    mode: Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"],
    distribution: Literal["truncated_normal", "normal", "uniform"],
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """Make an initializer whose variance is `scale` over the number of inputs, outputs, or a mean of them.

    Args:
      scale: the factor, positive.
      mode: what it is divided by: `"fan_in"` (inputs of an output), `"fan_out"`, `"fan_avg"` or `"fan_geo_avg"`.
      distribution: `"truncated_normal"` (cut off at 2 standard deviations), `"normal"` or `"uniform"`.
      in_axis, out_axis: the axis or axes of inputs and of outputs; the others are the receptive field.
      batch_axis: axes that are neither.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer.

    Raises:
      ArgumentError: there is no such mode or distribution, or the scale is negative.
      AxisError: an axis is out of bounds.

    Examples:
      >>> from phalanx import nn, random
      >>> init = nn.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")
      >>> init(random.key(0), (3, 4)).shape
      (3, 4)
    """
    modes = ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
    distributions = ("truncated_normal", "normal", "uniform")
    for name, value, known in (("mode", mode, modes), ("distribution", distribution, distributions)):
        if value not in known:
            raise ArgumentError(f"nn.initializers.variance_scaling {name}", expected=" or ".join(map(repr, known)),
                                got=repr(value), mend="use one of these")  # fmt: skip
    if scale < 0:
        raise ArgumentError("nn.initializers.variance_scaling scale", expected="a variance of at least 0", got=scale,
                            mend="negate the parameter itself, if that is meant")  # fmt: skip

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.variance_scaling"
        dtype = _inexact(where, dtype, None)
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        means = (fan_in, fan_out, (fan_in + fan_out) / 2, math.sqrt(fan_in * fan_out))
        fan = means[modes.index(mode)]
        stddev = math.sqrt(scale / fan) if fan else 0.0
        if dtypes.issubdtype(dtype, np.complexfloating) and distribution != "normal":
            # The disk has the variance 1/2.
            factor = stddev * math.sqrt(2) if distribution == "uniform" else stddev / _CUT_STDDEV_COMPLEX
            return _draw_complex(key, shape, dtype, distribution, factor)
        if distribution == "uniform":
            return _draw(key, shape, dtype, "uniform", -1.0, 1.0, math.sqrt(3) * stddev)
        if distribution == "normal":
            return _draw(key, shape, dtype, "normal", 0.0, 0.0, stddev)
        return _draw(key, shape, dtype, "truncated_normal", -2.0, 2.0, stddev / _CUT_STDDEV)

    return init


def _scaled(name: str, title: str, source: str, scale: float, mode: Any, distribution: Any) -> Any:
    """One of the families: `variance_scaling` with its first three arguments given."""

    def make(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Make the {title} initializer: `variance_scaling({scale}, {mode!r}, {distribution!r})`.

    Args:
      in_axis, out_axis, batch_axis, dtype: as in `variance_scaling`.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.{name}()(random.key(0), (3, 4)).shape
      (3, 4)

    Source: {source}.
    """
    return make


_GLOROT = "X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural networks (2010)"
_LECUN = "Y. LeCun et al., Efficient BackProp (1998)"
_HE = "K. He et al. (2015), arXiv:1502.01852"

glorot_uniform = _scaled("glorot_uniform", "Glorot uniform", _GLOROT, 1.0, "fan_avg", "uniform")
glorot_normal = _scaled("glorot_normal", "Glorot normal", _GLOROT, 1.0, "fan_avg", "truncated_normal")
lecun_uniform = _scaled("lecun_uniform", "LeCun uniform", _LECUN, 1.0, "fan_in", "uniform")
lecun_normal = _scaled("lecun_normal", "LeCun normal", _LECUN, 1.0, "fan_in", "truncated_normal")
he_uniform = _scaled("he_uniform", "He uniform", _HE, 2.0, "fan_in", "uniform")
he_normal = _scaled("he_normal", "He normal", _HE, 2.0, "fan_in", "truncated_normal")
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


@eager_program(static_argnames=("shape", "dtype", "column_axis", "factor"))
def _orthogonal(key: Any, shape: tuple, dtype: Any, column_axis: int, factor: float) -> Any:
    from phalanx import random

    columns = shape[column_axis]
    rows = math.prod(shape) // columns if columns else 0
    tall = (max(rows, columns), min(rows, columns))
    q, r = lax.linalg.qr(random.normal(key, tall, dtype), full_matrices=False)
    # The signs of R's diagonal make the decomposition unique, and Q uniform over orthogonal matrices.
    eye = lax.eq(lax.broadcasted_iota(np.int32, r.shape, 0), lax.broadcasted_iota(np.int32, r.shape, 1))
    diagonal = lax.reduce_sum(lax.select(eye, r, lax.full(r.shape, 0, dtype)), (0,))
    q = lax.mul(q, lax.broadcast_in_dim(lax.sign(diagonal), tall, (1,)))
    if columns <= rows:
        q = lax.transpose(q, (1, 0))
    others = tuple(n for a, n in enumerate(shape) if a != column_axis)
    q = lax.reshape(q, (columns, *others))
    order = [*range(1, len(shape))]
    order.insert(column_axis, 0)
    return lax.mul(lax.transpose(q, order), np.asarray(factor, dtype)[()])


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of orthogonal matrices, uniformly distributed.

    Args:
      scale: the length of their rows or columns, whichever are fewer.
      column_axis: the axis of the columns; all others together are the rows.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.orthogonal()(random.key(0), (3, 4)).shape
      (3, 4)

    Source: A. M. Saxe, J. L. McClelland and S. Ganguli (2013), arXiv:1312.6120.
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.orthogonal"
        dtype = _inexact(where, dtype, None)
        if len(shape) < 2:
            raise ShapeError(f"{where} shape", expected="at least 2 dimensions", got=shape,
                             mend="use normal or uniform for vectors")  # fmt: skip
        return _orthogonal(key, shape, dtype, column_axis % len(shape), scale)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Make an initializer of convolution kernels that are orthogonal at their centre and 0 elsewhere.

    Args:
      scale: the length of the rows at the centre.
      column_axis: the axis of the columns of the matrix at the centre.
      dtype: the dtype, where the call gives none.

    Returns:
      The initializer, for 3 to 5 dimensions: spatial ones, inputs, outputs.

    Raises:
      ShapeError: when it is called with another rank, or more inputs than outputs.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.delta_orthogonal()(random.key(0), (3, 3, 2, 4)).shape
      (3, 3, 2, 4)

    Source: L. Xiao et al. (2018), arXiv:1806.05393.
    """

    @_laid_out
    def init(key: Any, shape: tuple, dtype: Any = dtype) -> Any:
        where = "nn.initializers.delta_orthogonal"
        dtype = _inexact(where, dtype, None)
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ShapeError(
                f"{where} shape",
                expected="3 to 5 dimensions, the last at least as large as the one before",
                got=shape,
                mend="use orthogonal for other kernels",
            )
        centre = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        padding = [((n - 1) // 2, n - 1 - (n - 1) // 2, 0) for n in shape[:-2]]
        centre = lax.reshape(centre, (*[1] * len(padding), *shape[-2:]))
        return lax.pad(centre, dtype.type(0), [*padding, (0, 0, 0), (0, 0, 0)])

    return init


_guard(globals())
