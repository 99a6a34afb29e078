"""Normalization layers: `BatchNorm`, `LayerNorm`, `RMSNorm`, `InstanceNorm` and `GroupNorm`.

Statistics are computed in at least 32 bits. Eager calls run as one compiled program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ShapeError, promotion
from phalanx.nnx.layers.linear_layers import check_features
from phalanx.nnx.layers.parameter_init import (
    NO_METADATA,
    Groups,
    Layer,
    make_parameter,
    ones_init,
    promote_dtype,
    value_or_none,
    zeros_init,
)
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable_types import BatchStat, Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, AxisName, DTypeLike

Axes = int | Sequence[int]


def _dims(axes: Axes, ndim: int) -> tuple[int, ...]:
    return tuple(sorted({a % ndim for a in ((axes,) if isinstance(axes, int) else axes)}))


def _mean(x: Any, dims: tuple, mask: Any, axis_name: Any, groups: Any) -> Any:
    # The mean over a mapped axis is the mean of the means, since all members have equally many elements.
    mean = jnp.mean(x, dims, where=mask)
    return mean if axis_name is None else lax.pmean(mean, axis_name, axis_index_groups=groups)


def _squared(x: Any) -> Any:
    # The variance of complex numbers is E[|x - E[x]|^2], a real number, as in NumPy.
    return jnp.square(jnp.abs(x)) if jnp.iscomplexobj(x) else jnp.square(x)


def compute_statistics(
    x: Array,
    dims: tuple,
    mask: ArrayLike | None = None,
    axis_name: Any = None,
    groups: Any = None,
    fast: bool = True,
    centered: bool = True,
) -> tuple[Any, Any]:
    """Compute the mean and the variance over dimensions, and over a mapped axis.

    Args:
      x: the array.
      dims: the dimensions.
      mask: the elements to use; None for all.
      axis_name, groups: the mapped axis, and groups of its members.
      fast: whether to compute E[x^2] - E[x]^2, which reads `x` once, instead of E[(x - E[x])^2].
      centered: whether to subtract the mean; False returns the mean square.

    Returns:
      The mean and the variance without these dimensions; the mean is None if not `centered`.
    """
    # Sums over many elements of float16 or bfloat16 would lose most of their digits.
    x = jnp.asarray(x, promotion.result_type(jnp.asarray(x).dtype, np.dtype("float32")))
    if mask is not None:
        mask = jnp.asarray(mask, bool)
    # The mean square needs no mean.
    if not centered:
        return None, _mean(_squared(x), dims, mask, axis_name, groups)
    mean = _mean(x, dims, mask, axis_name, groups)
    if fast:
        square = _mean(_squared(x), dims, mask, axis_name, groups)
        # Rounding can make the difference slightly negative for inputs of almost constant value.
        return mean, jnp.maximum(0.0, square - _squared(mean))
    return mean, _mean(_squared(x - jnp.expand_dims(mean, dims)), dims, mask, axis_name, groups)


def normalize(
    x: Array,
    mean: Any,
    var: Any,
    scale: Array | None,
    bias: Array | None,
    dims: tuple,
    features: tuple,
    epsilon: Any,
    dtype: DTypeLike | None,
    promote: Callable,
) -> Any:
    """Compute (x - mean) / sqrt(var + epsilon) * scale + bias; the statistics are broadcast over `dims`."""
    (out, *_) = promote((x, scale, bias), dtype=dtype)
    spread = [n if d in features else 1 for d, n in enumerate(x.shape)]
    y = x if mean is None else x - jnp.expand_dims(mean, dims)
    factor = lax.rsqrt(jnp.expand_dims(var, dims) + epsilon)
    y = y * (factor if scale is None else factor * scale.reshape(spread))
    return jnp.asarray(y if bias is None else y + bias.reshape(spread), out.dtype)


@eager_jit(static_argnames=("dims", "features", "epsilon", "groups", "fast", "centered"))
def _normalize_over(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mask: Array | None,
    dims: tuple,
    features: tuple,
    epsilon: float,
    dtype: DTypeLike | None,
    axis_name: AxisName,
    groups: Groups,
    fast: bool,
    centered: bool,
    promote: Callable,
) -> Any:
    """Normalize an array by its statistics over `dims`."""
    mean, var = compute_statistics(x, dims, mask, axis_name, groups, fast, centered)
    return normalize(x, mean, var, scale, bias, dims, features, epsilon, dtype, promote)


_normalize_jit = eager_jit(normalize, static_argnames=("dims", "features", "epsilon"))
_compute_statistics_jit = eager_jit(compute_statistics, static_argnames=("dims", "groups", "fast", "centered"))


@eager_jit(static_argnames=("momentum",))
def _update_average(average: Any, value: Any, momentum: float) -> Any:
    return jnp.asarray(momentum * average + (1 - momentum) * value, average.dtype)


# The constructor arguments of all normalizations that are attributes, in order.
_OPTIONS = (
    "num_features num_groups group_size use_running_average axis momentum epsilon dtype param_dtype use_bias use_scale "
    "reduction_axes feature_axes axis_name axis_index_groups use_fast_variance promote_dtype"
).split()


class _Normalization(Layer):
    """The base class of normalizations: creates scale and bias, and stores the constructor arguments."""

    def _initialize(self, arguments: Mapping[str, Any]) -> None:
        """Create the parameters, and set attributes.

        Args:
          arguments: `locals()` of the constructor.
        """
        shape, rngs = (arguments["num_features"],), arguments["rngs"]
        for name in ("scale", "bias"):
            used, init = arguments.get(f"use_{name}"), arguments.get(f"{name}_init")
            metadata, dtype = arguments.get(f"{name}_metadata", NO_METADATA), arguments["param_dtype"]
            if used is not None:
                setattr(self, name, make_parameter(Param, init, rngs, shape, dtype, metadata) if used else None)
        self._store_options(arguments, " ".join(name for name in _OPTIONS if name in arguments))

    def _apply(self, x: Any, mask: Any, dims: tuple | None = None, centered: bool = True) -> Any:
        """Normalize over dimensions, by default `reduction_axes`."""
        x = jnp.asarray(x)
        features = _dims(self.feature_axes, x.ndim)
        check_features(f"nnx.{type(self).__name__}", x, features[-1:], (self.num_features,))
        dims = _dims(self.reduction_axes, x.ndim) if dims is None else dims
        return _normalize_over(
            x,
            value_or_none(self.scale),
            value_or_none(getattr(self, "bias", None)),
            mask,
            dims,
            features,
            self.epsilon,
            self.dtype,
            self.axis_name,
            self.axis_index_groups,
            self.use_fast_variance,
            centered,
            self.promote_dtype,
        )


class BatchNorm(_Normalization):
    """Normalize each feature over the batch, or by running averages of its statistics in evaluation.

    Args:
      num_features: the number of features.
      use_running_average: whether to use the running averages without updating them; None to decide in each call.
      axis: the dimension of the features.
      momentum: the weight of the previous running average.
      epsilon: added to the variance.
      dtype: the dtype of the result; None to promote input and parameters.
      param_dtype: the dtype of the parameters.
      use_bias, use_scale: whether to add a bias, and to multiply by a scale.
      bias_init, scale_init: their initializers.
      axis_name: a mapped axis over which the batch is distributed.
      axis_index_groups: groups of members of the axis.
      use_fast_variance: whether to compute the variance as E[x^2] - E[x]^2, which reads the input once.
      promote_dtype: promotes the operands to one dtype.
      rngs: random keys, from the stream `params`.
      bias_metadata, scale_metadata: the metadata of the variables.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.BatchNorm(2, momentum=0.5, rngs=nnx.Rngs(0))
      >>> _ = layer(jnp.array([[1.0, 2.0], [3.0, 2.0]]))
      >>> layer.mean.value.tolist()
      [1.0, 1.0]

    Source: S. Ioffe and C. Szegedy (2015), arXiv:1502.03167.
    """

    def __init__(
        self,
        num_features: int,
        *,
        use_running_average: bool | None = False,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        axis_name: str | None = None,
        axis_index_groups: Groups = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        # float32 whatever the dtype of the parameters: averages of many steps would stop changing in 16 bits.
        self.mean = BatchStat(jnp.zeros((num_features,), np.float32))
        self.var = BatchStat(jnp.ones((num_features,), np.float32))
        self._initialize(locals())

    def __call__(self, x: ArrayLike, use_running_average: bool | None = None, *, mask: ArrayLike | None = None) -> Any:
        """Normalize, and update the running averages unless they are used.

        Args:
          x: num[..., num_features, ...].
          use_running_average: whether to use the running averages; None for the setting of the layer.
          mask: the elements to use for the statistics; None for all.

        Returns:
          An array of the shape of `x`.

        Raises:
          ArgumentError: `use_running_average` is set neither in the layer nor in the call.
          ShapeError: the number of features differs from that of the layer.
        """
        # The argument of a call wins over the attribute, which `train` and `eval` set.
        running = self.use_running_average if use_running_average is None else use_running_average
        if running is None:
            raise ArgumentError(
                "nnx.BatchNorm, argument use_running_average",
                expected="True or False",
                got=None,
                fix="call model.train() or model.eval(), or pass use_running_average=True or False",
            )
        x = jnp.asarray(x)
        check_features("nnx.BatchNorm", x, (self.axis,), self.mean.value.shape)
        features = _dims(self.axis, x.ndim)
        dims = tuple(d for d in range(x.ndim) if d not in features)
        if running:
            mean, var = self.mean.value, self.var.value
        else:
            mean, var = _compute_statistics_jit(
                x, dims, mask, self.axis_name, self.axis_index_groups, self.use_fast_variance
            )
            self.mean.value = _update_average(self.mean.value, mean, self.momentum)
            self.var.value = _update_average(self.var.value, var, self.momentum)
        return _normalize_jit(
            x,
            mean,
            var,
            value_or_none(self.scale),
            value_or_none(self.bias),
            dims,
            features,
            self.epsilon,
            self.dtype,
            self.promote_dtype,
        )

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Set the options that `nnx.view` can change.

        Args:
          use_running_average: whether to use the running averages without updating them.
        """
        self._set_options(use_running_average=use_running_average)


class LayerNorm(_Normalization):
    """Normalize the features of each example.

    Args:
      num_features: the number of features.
      epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name, axis_index_groups,
        use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `BatchNorm`.
      reduction_axes: the dimensions to normalize over.
      feature_axes: the dimension of scale and bias.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.LayerNorm(2, rngs=nnx.Rngs(0))
      >>> layer(jnp.array([1.0, 3.0])).round(3).tolist()
      [-1.0, 1.0]

    Source: J. L. Ba, J. R. Kiros and G. E. Hinton (2016), arXiv:1607.06450.
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Groups = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals())

    def __call__(self, x: ArrayLike, *, mask: ArrayLike | None = None) -> Any:
        """Normalize.

        Args:
          x: num[..., num_features].
          mask: the elements to use for the statistics; None for all.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: the number of features differs from that of the layer.
        """
        return self._apply(x, mask)


class RMSNorm(_Normalization):
    """Divide the features of each example by their root mean square.

    Args:
      num_features, epsilon, dtype, param_dtype, use_scale, scale_init, reduction_axes, feature_axes, axis_name,
        axis_index_groups, use_fast_variance, promote_dtype, rngs, scale_metadata: as in `LayerNorm`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.RMSNorm(2, rngs=nnx.Rngs(0))
      >>> [round(y, 3) for y in layer(jnp.array([1.0, 7.0])).tolist()]
      [0.2, 1.4]

    Source: B. Zhang and R. Sennrich (2019), arXiv:1910.07467.
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        use_scale: bool = True,
        scale_init: Callable = ones_init,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Groups = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals())

    def __call__(self, x: ArrayLike, mask: ArrayLike | None = None) -> Any:
        """Normalize.

        Args:
          x, mask: as in `LayerNorm`, which also lists the errors.

        Returns:
          An array of the shape of `x`.
        """
        return self._apply(x, mask, centered=False)


class InstanceNorm(_Normalization):
    """Normalize each feature of each example over all other dimensions.

    Args:
      num_features, epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name,
        axis_index_groups, use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `LayerNorm`.
      feature_axes: the dimension of the features; the examples are the first dimension.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> y = nnx.InstanceNorm(1, rngs=nnx.Rngs(0))(jnp.array([[[1.0], [3.0]]]))
      >>> y.round(3).tolist()
      [[[-1.0], [1.0]]]

    Source: D. Ulyanov, A. Vedaldi and V. Lempitsky (2016), arXiv:1607.08022.
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Groups = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals())

    def __call__(self, x: ArrayLike, *, mask: ArrayLike | None = None) -> Any:
        """Normalize num[examples, ..., num_features].

        Args:
          x: the array.
          mask: the elements to use for the statistics; None for all.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: there are more or fewer features, or they are in the dimension of the examples.
        """
        features = _dims(self.feature_axes, np.ndim(x))
        # Dimension 0 holds the examples, which are not to be mixed.
        if 0 in features:
            raise ShapeError(
                "nnx.InstanceNorm, inputs",
                expected="examples in dimension 0, and features elsewhere",
                got=f"features in dimension {features}",
                fix="move them with jnp.moveaxis(x, 0, -1)",
            )
        return self._apply(x, mask, tuple(d for d in range(1, np.ndim(x)) if d not in features))


@eager_jit(static_argnames=("dims", "num_groups", "epsilon", "groups", "fast"))
def _normalize_groups(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mask: Array | None,
    dims: tuple,
    num_groups: int,
    epsilon: float,
    dtype: DTypeLike | None,
    axis_name: AxisName,
    groups: Groups,
    fast: bool,
    promote: Callable,
) -> Any:
    """Normalize groups of channels of num[*batch, channels] by the statistics over `dims` and each group."""
    size = x.shape[-1] // num_groups
    split = lambda a: a.reshape(*a.shape[:-1], num_groups, size)
    if mask is not None:
        mask = split(jnp.broadcast_to(mask, x.shape))
    # The channels are split in two dimensions, so the one inside of a group is reduced in their place.
    kept = tuple(d for d in dims if d != x.ndim - 1)
    statistics = compute_statistics(split(x), (*kept, x.ndim), mask, axis_name, groups, fast)
    # One value per group is repeated for the channels of the group.
    mean, var = (jnp.repeat(s, size, axis=-1) for s in statistics)
    return normalize(x, mean, var, scale, bias, kept, (x.ndim - 1,), epsilon, dtype, promote)


class GroupNorm(_Normalization):
    """Normalize groups of channels of each example.

    Args:
      num_features: the number of channels.
      num_groups: the number of groups; None if `group_size` is given.
      group_size: the number of channels in a group.
      epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name, axis_index_groups,
        use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `LayerNorm`.
      reduction_axes: the dimensions to normalize over, including the last one; None for all but the first.

    Raises:
      ArgumentError: both or neither of `num_groups` and `group_size` are given, or the number of channels is
        not a multiple of the number of groups.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.GroupNorm(4, num_groups=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.array([[1.0, 3.0, 10.0, 30.0]])).round(3).tolist()
      [[-1.0, 1.0, -1.0, 1.0]]

    Source: Y. Wu and K. He (2018), arXiv:1803.08494.
    """

    def __init__(
        self,
        num_features: int,
        num_groups: int | None = 32,
        group_size: int | None = None,
        *,
        epsilon: float = 1e-6,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        reduction_axes: Axes | None = None,
        axis_name: str | None = None,
        axis_index_groups: Groups = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        if (num_groups is None) == (group_size is None):
            raise ArgumentError(
                "nnx.GroupNorm",
                expected="one of num_groups and group_size",
                got=f"num_groups={num_groups}, group_size={group_size}",
                fix="pass num_groups=None with group_size, or group_size=None with num_groups",
            )
        parts = num_groups if num_groups is not None else group_size
        if not parts or num_features % parts:
            raise ArgumentError(
                f"nnx.GroupNorm, argument {'num_groups' if num_groups is not None else 'group_size'}",
                expected=f"a divisor of num_features={num_features}",
                got=parts,
                fix=f"choose a divisor of {num_features}, such as {math.gcd(num_features, parts or 1)}",
            )
        num_groups = num_groups if num_groups is not None else num_features // parts
        group_size = num_features // num_groups
        self._initialize(locals())

    def __call__(self, x: ArrayLike, *, mask: ArrayLike | None = None) -> Any:
        """Normalize num[examples, ..., num_features].

        Args:
          x: the array.
          mask: the elements to use for the statistics; None for all.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: the number of channels differs from that of the layer.
          ArgumentError: `reduction_axes` does not include the channels.
        """
        x = jnp.asarray(x)
        check_features("nnx.GroupNorm", x, (-1,), (self.num_features,))
        dims = tuple(range(1, x.ndim)) if self.reduction_axes is None else _dims(self.reduction_axes, x.ndim)
        if x.ndim - 1 not in dims:
            raise ArgumentError(
                "nnx.GroupNorm, argument reduction_axes",
                expected="dimensions that include the last one",
                got=self.reduction_axes,
                fix="pass reduction_axes that include -1, the channels",
            )
        return _normalize_groups(
            x,
            value_or_none(self.scale),
            value_or_none(self.bias),
            mask,
            dims,
            self.num_groups,
            self.epsilon,
            self.dtype,
            self.axis_name,
            self.axis_index_groups,
            self.use_fast_variance,
            self.promote_dtype,
        )
