"""Initializers: functions `(key, shape, dtype)` that return the initial values of parameters.

Builds on `phalanx.random`, `lax` and `lax.linalg`; called by models and the layers of `nnx`. The LeCun, Glorot
and He families are `variance_scaling` with fixed arguments.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from phalanx import lax, random
from phalanx.core import ArgumentError, DTypeError, ShapeError, dtypes
from phalanx.engine import api_boundary, publish as _publish
from phalanx.lax.shape import broadcast_to_shape, canonicalize_shape
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.nn.axis_reductions import resolve_dims
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import static_size
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, ShardingLike

Axes = int | Sequence[int]


class Initializer(Protocol):
    """A function that returns the initial value of a parameter.

    Examples:
      >>> from phalanx import nn, random
      >>> init: Initializer = nn.initializers.normal(0.1)
      >>> init(random.key(0), (2, 3)).shape
      (2, 3)
    """

    def __call__(
        self,
        key: PRNGKey,
        shape: Sequence[int],
        dtype: DTypeLike | None = None,
        out_sharding: ShardingLike | None = None,
    ) -> Any:
        """Return the initial value.

        Args:
          key: the random key; ignored by deterministic initializers.
          shape: the shape of the array.
          dtype: its dtype; the dtype given to the constructor of the initializer, or the default floating dtype, if
            None.
          out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.
        """


def _dtype(dtype: DTypeLike | None) -> Any:
    """Canonicalize a `dtype` argument."""
    return np.dtype(dtypes.canonicalize_dtype(np.float64 if dtype is None else dtype))


def _inexact_dtype(where: str, dtype: DTypeLike | None) -> np.dtype:
    found = _dtype(dtype)
    if not dtypes.issubdtype(found, np.inexact):
        raise DTypeError(
            f"{where} dtype",
            expected="a floating or complex dtype",
            got=dtypes.short_name(found),
            fix="initialize in float32 and convert the result",
        )
    return found


def _with_out_sharding(init: Callable) -> Initializer:
    """Add the argument `out_sharding` to an initializer of (key, shape, dtype)."""

    @api_boundary
    @functools.wraps(init)
    def initialize(
        key: PRNGKey,
        shape: Sequence[int],
        dtype: DTypeLike | None = init.__defaults__[0],
        out_sharding: ShardingLike | None = None,
    ) -> Any:
        # Products of the sizes of NumPy may wrap.
        sizes = tuple(map(static_size, canonicalize_shape(shape)))
        return apply_out_sharding(init(key, sizes, dtype), out_sharding, "initializer, out_sharding")

    vars(initialize).pop("__wrapped__")  # its signature lacks out_sharding
    return initialize


class _MadeInitializer:
    """An initializer that knows how it was made, so that it can be pickled and compared.

    Args:
      init: the initializer.
      name, arguments: the name of the function of this module that made it, and its arguments that are no defaults.
    """

    def __init__(self, init: Callable, name: str, arguments: dict[str, Any]):
        self._init, self._recipe = init, (name, tuple(arguments.items()))
        self.__name__, self.__signature__ = "init", inspect.signature(init)  # the name that Linen modules print

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._init(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _MadeInitializer):
            return self is other
        # The hashes differ for arguments that cannot be compared, such as arrays.
        return hash(self) == hash(other) and self._recipe == other._recipe

    def __hash__(self) -> int:
        try:
            return hash(self._recipe)
        except TypeError:
            return id(self)

    def __reduce__(self) -> tuple:
        return _remake, self._recipe

    def __repr__(self) -> str:
        name, arguments = self._recipe
        return f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments)})"


def _remake(name: str, arguments: tuple) -> Any:
    return globals()[name](**dict(arguments))


def _make_picklable(make: Callable) -> Any:
    """Let the results of a function that makes initializers be pickled and compared."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def create(*args: Any, **kwargs: Any) -> Any:
        init = make(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        arguments = {k: given[k] for k, p in signature.parameters.items() if k in given and given[k] is not p.default}
        return _MadeInitializer(init, make.__name__, arguments)

    return create


def _random_initializer(name: str, dtype: DTypeLike | None, draw: Callable[..., Array]) -> Initializer:
    """Make an initializer from a function of (key, shape, dtype), which receives a floating or complex dtype."""

    @_with_out_sharding
    def init(key: PRNGKey, shape: tuple, dtype: DTypeLike | None = dtype) -> Array:
        return draw(key, shape, _inexact_dtype(f"nn.initializers.{name}", dtype))

    return init


@_with_out_sharding
def zeros(key: PRNGKey, shape: Sequence[int], dtype: DTypeLike | None = None) -> Any:
    """Initialize with zeros.

    Args:
      key: ignored.
      shape: the shape of the array.
      dtype: its dtype.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      The array.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.zeros(None, (2,)).tolist()
      [0.0, 0.0]
    """
    return lax.full(shape, 0, _dtype(dtype))


@_with_out_sharding
def ones(key: PRNGKey, shape: Sequence[int], dtype: DTypeLike | None = None) -> Any:
    """Initialize with ones.

    Args:
      key: ignored.
      shape: the shape of the array.
      dtype: its dtype.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      The array.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.ones(None, (2,)).tolist()
      [1.0, 1.0]
    """
    return lax.full(shape, 1, _dtype(dtype))


@_make_picklable
def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer that returns a constant.

    Args:
      value: a number, or an array that broadcasts to the shape.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn
      >>> nn.initializers.constant(7)(None, (2,)).tolist()
      [7.0, 7.0]
    """

    @_with_out_sharding
    def init(key: PRNGKey, shape: tuple, dtype: DTypeLike | None = dtype) -> Any:
        return broadcast_to_shape(lax.convert_element_type(value, _dtype(dtype)), shape)

    return init


@eager_jit(static_argnames=("shape", "dtype", "distribution", "low", "high", "factor"))
def _draw(
    key: PRNGKey, shape: tuple, dtype: np.dtype, distribution: str, low: float, high: float, factor: float
) -> Any:
    """Draw scaled random numbers, as one compiled program."""
    if distribution == "uniform":
        x = random.uniform(key, shape, dtype, low, high)
    elif distribution == "normal":
        x = random.normal(key, shape, dtype)
    else:
        x = random.truncated_normal(key, low, high, shape, dtype)
    return lax.mul(x, np.asarray(factor, dtype)[()])


@eager_jit(static_argnames=("shape", "dtype", "distribution", "factor"))
def _draw_complex(key: PRNGKey, shape: tuple, dtype: np.dtype, distribution: str, factor: float) -> Any:
    """Draw complex random numbers of uniform phase: uniform over the unit disk, or normal truncated at radius 2."""
    part = np.dtype("float32") if dtype == np.dtype("complex64") else np.dtype("float64")
    # Modulus and phase are drawn independently.
    keys = random.split(key)
    first, second = (lax.squeeze(lax.slice_in_dim(keys, i, i + 1), (0,)) for i in (0, 1))
    u = random.uniform(first, shape, part)
    if distribution == "uniform":
        radius = lax.sqrt(u)
    else:  # the squared radius of a complex normal number is exponential; truncate it at 2^2
        radius = lax.sqrt(lax.neg(lax.log1p(lax.mul(u, part.type(math.expm1(-4.0))))))
    phase = random.uniform(second, shape, part, 0.0, 2 * math.pi)
    z = lax.complex(lax.mul(radius, lax.cos(phase)), lax.mul(radius, lax.sin(phase)))
    return lax.mul(z, dtype.type(factor))


@_make_picklable
def uniform(scale: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer of uniform numbers.

    Args:
      scale: the upper bound; the lower one is 0.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.uniform(10.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    return _random_initializer(
        "uniform", dtype, lambda key, shape, dtype: _draw(key, shape, dtype, "uniform", 0.0, 1.0, scale)
    )


@_make_picklable
def normal(stddev: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer of normal numbers.

    Args:
      stddev: the standard deviation.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.normal(5.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    return _random_initializer(
        "normal", dtype, lambda key, shape, dtype: _draw(key, shape, dtype, "normal", 0.0, 0.0, stddev)
    )


@_make_picklable
def truncated_normal(
    stddev: float = 1e-2, dtype: DTypeLike | None = None, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Make an initializer of truncated normal numbers.

    Args:
      stddev: the standard deviation before truncation.
      dtype: the dtype, if the call of the initializer gives none.
      lower, upper: the bounds, in standard deviations.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.truncated_normal(5.0)(random.key(0), (2, 3)).shape
      (2, 3)
    """

    return _random_initializer(
        "truncated_normal",
        dtype,
        lambda key, shape, dtype: _draw(key, shape, dtype, "truncated_normal", lower, upper, stddev),
    )


def _fans(shape: tuple, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """The numbers of inputs of an output and of outputs of an input, each times the size of the receptive field."""
    if len(shape) < 2 and in_axis == -2:  # the default
        raise ShapeError(
            "nn.initializers.variance_scaling shape",
            expected="at least 2 dimensions, inputs and outputs",
            got=shape,
            fix="use initializers.normal or initializers.uniform for vectors",
        )
    if min(shape, default=0) < 0:
        raise ShapeError(
            "nn.initializers.variance_scaling shape",
            expected="sizes of at least 0",
            got=shape,
            fix=f"check the number of features {min(shape)}",
        )
    ndim = len(shape)
    names = ("in", "out", "batch")
    ins, outs, batch = (
        set(resolve_dims(f"nn.initializers.variance_scaling {name}", axes, ndim))
        for name, axes in zip(names, (in_axis, out_axis, batch_axis), strict=True)
    )
    num_in, num_out, num_batch = (math.prod(shape[a] for a in axes) for axes in (ins, outs, batch))
    # The receptive field is a quotient, since an embedding counts one dimension as both inputs and outputs.
    field = math.prod(shape) / max(num_in * num_out * num_batch, 1)
    return num_in * field, num_out * field


# Standard deviations of normal numbers truncated at 2 standard deviations: real, and complex truncated by modulus.
_CUT_STDDEV = 0.87962566103423978
_CUT_STDDEV_COMPLEX = math.sqrt(1 - 4 * math.exp(-4) / (1 - math.exp(-4)))


@_make_picklable
def variance_scaling(
    scale: float,
    mode: Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"],
    distribution: Literal["truncated_normal", "normal", "uniform"],
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """Make an initializer whose variance is `scale` divided by the number of inputs, of outputs, or by their mean.

    Args:
      scale: the factor, positive.
      mode: the divisor: `"fan_in"` (inputs of an output), `"fan_out"`, or their mean `"fan_avg"` or `"fan_geo_avg"`.
      distribution: `"truncated_normal"` (truncated at 2 standard deviations), `"normal"` or `"uniform"`.
      in_axis, out_axis: the axis or axes of inputs and of outputs; all other axes are the receptive field.
      batch_axis: axes that are neither inputs, outputs nor receptive field.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer.

    Raises:
      ArgumentError: `mode` or `distribution` is unknown, or `scale` is negative.
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
            raise ArgumentError(
                f"nn.initializers.variance_scaling {name}",
                expected=" or ".join(map(repr, known)),
                got=repr(value),
                fix=f"pass {name}={known[0]!r}",
            )
    if scale < 0:
        raise ArgumentError(
            "nn.initializers.variance_scaling scale",
            expected="a variance of at least 0",
            got=scale,
            fix="pass a positive scale",
        )

    def draw(key: PRNGKey, shape: tuple, dtype: np.dtype) -> Array:
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        # In the order of `modes`.
        fan = ((fan_in, fan_out, (fan_in + fan_out) / 2, math.sqrt(fan_in * fan_out)))[modes.index(mode)]
        if dtypes.issubdtype(dtype, np.complexfloating):
            stddev = math.sqrt(scale / fan) if fan else 0.0
            if distribution == "normal":
                return _draw(key, shape, dtype, "normal", 0.0, 0.0, stddev)
            # The uniform distribution over the unit disk has variance 1/2.
            factor = stddev * math.sqrt(2) if distribution == "uniform" else stddev / _CUT_STDDEV_COMPLEX
            return _draw_complex(key, shape, dtype, distribution, factor)
        # Rounded after each step, as in JAX: in 16 bits, the factor would differ in its last digit otherwise.
        variance, cut = np.asarray([scale / fan if fan else 0.0, _CUT_STDDEV], dtype)
        if distribution == "uniform":
            return _draw(key, shape, dtype, "uniform", -1.0, 1.0, float(np.sqrt(np.asarray(3, dtype) * variance)))
        if distribution == "normal":
            return _draw(key, shape, dtype, "normal", 0.0, 0.0, float(np.sqrt(variance)))
        return _draw(key, shape, dtype, "truncated_normal", -2.0, 2.0, float(np.sqrt(variance) / cut))

    return _random_initializer("variance_scaling", dtype, draw)


def _scaled(name: str, title: str, source: str, scale: float, mode: str, distribution: str) -> Any:
    """Make a constructor that is `variance_scaling` with its first three arguments fixed."""

    def make(
        in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
    ) -> Initializer:
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


@eager_jit(static_argnames=("shape", "dtype", "column_axis", "factor"))
def _orthogonal(key: PRNGKey, shape: tuple, dtype: np.dtype, column_axis: int, factor: float) -> Any:
    columns = shape[column_axis]
    rows = math.prod(shape) // columns if columns else 0
    # QR of a tall matrix; a wide one is its transpose.
    tall = (max(rows, columns), min(rows, columns))
    q, r = lax.linalg.qr(random.normal(key, tall, dtype), full_matrices=False)
    # Fixing the signs of the diagonal of R makes the decomposition unique, and Q uniform over orthogonal matrices.
    eye = lax.eq(lax.broadcasted_iota(np.int32, r.shape, 0), lax.broadcasted_iota(np.int32, r.shape, 1))
    diagonal = lax.reduce_sum(lax.select(eye, r, lax.full(r.shape, 0, dtype)), (0,))
    q = lax.mul(q, lax.broadcast_in_dim(lax.sign(diagonal), tall, (1,)))
    q = lax.transpose(q, (1, 0)) if columns <= rows else q
    # Undo the flattening of the row dimensions, then move the columns to their axis.
    q = lax.reshape(q, (columns, *tuple(n for a, n in enumerate(shape) if a != column_axis)))
    order = [*range(1, len(shape))]
    order.insert(column_axis, 0)
    return lax.mul(lax.transpose(q, order), np.asarray(factor, dtype)[()])


@_make_picklable
def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer of orthogonal matrices, uniformly distributed.

    Args:
      scale: the norm of the rows or the columns, whichever are fewer.
      column_axis: the axis of the columns; all other axes are flattened to the rows.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.orthogonal()(random.key(0), (3, 4)).shape
      (3, 4)

    Source: A. M. Saxe, J. L. McClelland and S. Ganguli (2013), arXiv:1312.6120.
    """

    def draw(key: PRNGKey, shape: tuple, dtype: np.dtype) -> Array:
        if len(shape) < 2:
            raise ShapeError(
                "nn.initializers.orthogonal shape",
                expected="at least 2 dimensions",
                got=shape,
                fix="use initializers.normal or initializers.uniform for vectors",
            )
        # LAPACK has no decomposition in 16 bits.
        computed = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
        return lax.convert_element_type(_orthogonal(key, shape, computed, column_axis % len(shape), scale), dtype)

    return _random_initializer("orthogonal", dtype, draw)


@_make_picklable
def delta_orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """Make an initializer of convolution kernels that are orthogonal at the centre and 0 elsewhere.

    Args:
      scale: the norm of the rows at the centre.
      column_axis: the axis of the columns of the matrix at the centre.
      dtype: the dtype, if the call of the initializer gives none.

    Returns:
      The initializer, for 3 to 5 dimensions: spatial ones, inputs, outputs.

    Raises:
      ShapeError: the initializer is called with another rank, or with more inputs than outputs.

    Examples:
      >>> from phalanx import nn, random
      >>> nn.initializers.delta_orthogonal()(random.key(0), (3, 3, 2, 4)).shape
      (3, 3, 2, 4)

    Source: L. Xiao et al. (2018), arXiv:1806.05393.
    """

    def draw(key: PRNGKey, shape: tuple, dtype: np.dtype) -> Array:
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ShapeError(
                "nn.initializers.delta_orthogonal shape",
                expected="3 to 5 dimensions, the last at least as large as the one before",
                got=shape,
                fix="use initializers.orthogonal for kernels of other shapes",
            )
        centre = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        # All spatial positions are zero except the centre.
        padding = [((n - 1) // 2, n - 1 - (n - 1) // 2, 0) for n in shape[:-2]]
        centre = lax.reshape(centre, (*[1] * len(padding), *shape[-2:]))
        return lax.pad(centre, dtype.type(0), [*padding, (0, 0, 0), (0, 0, 0)])

    return _random_initializer("delta_orthogonal", dtype, draw)


__getattr__, __dir__ = _publish(globals())
