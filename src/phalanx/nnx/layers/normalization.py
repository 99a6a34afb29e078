"""Normalisations: of features over a batch, a layer, a group, an instance; and of a layer's own weights.

Statistics are computed in at least 32 bits. Each call is one compiled program when eager. Builds on `parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core import promotion
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.nnx.layers.linear import checked_features
from phalanx.nnx.layers.parameters import NO_METADATA, held, ones_init, parameter, promote_dtype, zeros_init
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import BatchStat, Param
from phalanx.runtime.dispatch import eager_program

Axes = int | Sequence[int]


def _dims(axes: Axes, ndim: int) -> tuple[int, ...]:
    return tuple(sorted({a % ndim for a in ((axes,) if isinstance(axes, int) else axes)}))


def _mean(x: Any, dims: tuple, mask: Any, axis_name: Any, groups: Any) -> Any:
    mean = jnp.mean(x, dims, where=mask)
    return mean if axis_name is None else lax.pmean(mean, axis_name, axis_index_groups=groups)


def _squared(x: Any) -> Any:
    return jnp.square(jnp.abs(x)) if jnp.iscomplexobj(x) else jnp.square(x)


def statistics(
    x: Any, dims: tuple, mask: Any = None, axis_name: Any = None, groups: Any = None, fast: bool = True,
    centred: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean and the variance over some dimensions, and over the members of a mapped axis.

    Args:
      x: the array.
      dims: the dimensions.
      mask: which elements count.
      axis_name, groups: the axis, and groups of its members.
      fast: compute E[x^2] - E[x]^2, which reads `x` once, and not E[(x - E[x])^2].
      centred: False for a mean of 0.

    Returns:
      Both, without these dimensions; None in the place of a mean of 0.
    """
    x = jnp.asarray(x, promotion.promote_types(jnp.asarray(x).dtype, np.dtype("float32")))
    if mask is not None:
        mask = jnp.asarray(mask, bool)
    if not centred:
        return None, _mean(_squared(x), dims, mask, axis_name, groups)
    mean = _mean(x, dims, mask, axis_name, groups)
    if fast:
        square = _mean(_squared(x), dims, mask, axis_name, groups)
        return mean, jnp.maximum(0.0, square - _squared(mean))
    return mean, _mean(_squared(x - jnp.expand_dims(mean, dims)), dims, mask, axis_name, groups)


def normalised(
    x: Any, mean: Any, var: Any, scale: Any, bias: Any, dims: tuple, features: tuple, epsilon: Any, dtype: Any,
    promote: Callable,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with the statistics repeated over `dims`."""
    (out, *_) = promote((x, scale, bias), dtype=dtype)
    spread = [n if d in features else 1 for d, n in enumerate(x.shape)]
    y = x if mean is None else x - jnp.expand_dims(mean, dims)
    factor = lax.rsqrt(jnp.expand_dims(var, dims) + epsilon)
    y = y * (factor if scale is None else factor * scale.reshape(spread))
    return jnp.asarray(y if bias is None else y + bias.reshape(spread), out.dtype)


@eager_program(static_argnames=("dims", "features", "epsilon", "groups", "fast", "centred"))
def _normalise_over(
    x: Any, scale: Any, bias: Any, mask: Any, dims: tuple, features: tuple, epsilon: float, dtype: Any, axis_name: Any,
    groups: Any, fast: bool, centred: bool, promote: Callable,
) -> Any:  # fmt: skip
    """The normalisation of an array by its own statistics."""
    mean, var = statistics(x, dims, mask, axis_name, groups, fast, centred)
    return normalised(x, mean, var, scale, bias, dims, features, epsilon, dtype, promote)


_normalised_at_once = eager_program(normalised, static_argnames=("dims", "features", "epsilon"))
_statistics_at_once = eager_program(statistics, static_argnames=("dims", "groups", "fast", "centred"))


@eager_program(static_argnames=("momentum",))
def _moved(average: Any, value: Any, momentum: float) -> Any:
    return jnp.asarray(momentum * average + (1 - momentum) * value, average.dtype)


class _Normalization(Module):
    """What the normalisations of features share: parameters and options."""

    scale: Param | None
    bias: Param | None
    num_features: int
    num_groups: int
    epsilon: float
    momentum: float
    dtype: Any
    axis: int
    reduction_axes: Any
    feature_axes: Any
    axis_name: Any
    axis_index_groups: Any
    use_fast_variance: bool
    use_running_average: bool | None
    promote_dtype: Callable

    def _set_up(
        self, size: int, rngs: Rngs, param_dtype: Any, scale: Callable | None, bias: Callable | None,
        scale_metadata: Mapping, bias_metadata: Mapping, **options: Any,
    ) -> None:  # fmt: skip
        """Make scale and bias, where they have an initializer, and keep the options."""
        self.scale = self.bias = None
        if scale is not None:
            self.scale = parameter(Param, scale, rngs.params(), (size,), param_dtype, scale_metadata)
        if bias is not None:
            self.bias = parameter(Param, bias, rngs.params(), (size,), param_dtype, bias_metadata)
        self.param_dtype = param_dtype
        for name, value in options.items():
            setattr(self, name, value)

    def _apply(self, x: Any, mask: Any, dims: tuple, features: tuple, centred: bool = True) -> Any:
        return _normalise_over(
            x, held(self.scale), held(self.bias), mask, dims, features, self.epsilon, self.dtype, self.axis_name,
            self.axis_index_groups, self.use_fast_variance, centred, self.promote_dtype,
        )  # fmt: skip


class BatchNorm(_Normalization):
    """Normalise each feature over the batch; at evaluation by running averages of its statistics.

    Args:
      num_features: how many features.
      use_running_average: use the averages, and leave them; None if each call says it.
      axis: the dimension of the features.
      momentum: the part of an average that stays.
      epsilon: added to the variance.
      dtype: the dtype of the result; None for that of input and parameters.
      param_dtype: the dtype of the parameters.
      use_bias, use_scale: whether there are such parameters.
      bias_init, scale_init: their initializers.
      axis_name: a mapped axis over whose members the batch is spread.
      axis_index_groups: groups of these members.
      use_fast_variance: compute E[x^2] - E[x]^2.
      promote_dtype: what brings operands to one dtype.
      rngs: where keys come from, the stream `params`.
      bias_metadata, scale_metadata: metadata of the variables.

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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        axis_name: str | None = None,
        axis_index_groups: Any = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.mean = BatchStat(jnp.zeros((num_features,), np.float32))
        self.var = BatchStat(jnp.ones((num_features,), np.float32))
        self._set_up(
            num_features, rngs, param_dtype, scale_init if use_scale else None, bias_init if use_bias else None,
            scale_metadata, bias_metadata, num_features=num_features, use_running_average=use_running_average,
            axis=axis, momentum=momentum, epsilon=epsilon, dtype=dtype, axis_name=axis_name, use_scale=use_scale,
            use_bias=use_bias, axis_index_groups=axis_index_groups, use_fast_variance=use_fast_variance,
            promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, x: Any, use_running_average: bool | None = None, *, mask: Any = None) -> Any:
        """Normalise, and, unless the running averages are used, advance them.

        Args:
          x: num[..., num_features, ...].
          use_running_average: use the averages; None for the layer's own setting.
          mask: which elements count for the statistics.

        Returns:
          An array of the shape of `x`.

        Raises:
          ArgumentError: neither says whether to use the averages.
          ShapeError: there are more or fewer features.
        """
        running = self.use_running_average if use_running_average is None else use_running_average
        if running is None:
            raise ArgumentError(
                "nnx.BatchNorm, argument use_running_average", expected="True or False", got=None,
                mend="call model.train() or model.eval(), or pass it to the layer or to the call",
            )  # fmt: skip
        x = jnp.asarray(x)
        checked_features("nnx.BatchNorm", x, (self.axis,), self.mean.value.shape)
        features = _dims(self.axis, x.ndim)
        dims = tuple(d for d in range(x.ndim) if d not in features)
        if running:
            mean, var = self.mean.value, self.var.value
        else:
            mean, var = _statistics_at_once(
                x, dims, mask, self.axis_name, self.axis_index_groups, self.use_fast_variance
            )
            self.mean.value = _moved(self.mean.value, mean, self.momentum)
            self.var.value = _moved(self.var.value, var, self.momentum)
        return _normalised_at_once(
            x, mean, var, held(self.scale), held(self.bias), dims, features, self.epsilon, self.dtype,
            self.promote_dtype,
        )  # fmt: skip


class LayerNorm(_Normalization):
    """Normalise the features of each example.

    Args:
      num_features: how many features.
      epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name, axis_index_groups,
        use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `BatchNorm`.
      reduction_axes: the dimensions that are normalised.
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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Any = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._set_up(
            num_features, rngs, param_dtype, scale_init if use_scale else None, bias_init if use_bias else None,
            scale_metadata, bias_metadata, num_features=num_features, epsilon=epsilon, dtype=dtype, use_bias=use_bias,
            use_scale=use_scale, reduction_axes=reduction_axes, feature_axes=feature_axes, axis_name=axis_name,
            axis_index_groups=axis_index_groups, use_fast_variance=use_fast_variance, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """Normalise.

        Args:
          x: num[..., num_features].
          mask: which elements count for the statistics.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: there are more or fewer features.
        """
        x = jnp.asarray(x)
        features = _dims(self.feature_axes, x.ndim)
        checked_features(f"nnx.{type(self).__name__}", x, features[-1:], (self.num_features,))
        return self._apply(x, mask, _dims(self.reduction_axes, x.ndim), features)


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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        use_scale: bool = True,
        scale_init: Callable = ones_init,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Any = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._set_up(
            num_features, rngs, param_dtype, scale_init if use_scale else None, None, scale_metadata, NO_METADATA,
            num_features=num_features, epsilon=epsilon, dtype=dtype, use_scale=use_scale,
            reduction_axes=reduction_axes, feature_axes=feature_axes, axis_name=axis_name,
            axis_index_groups=axis_index_groups, use_fast_variance=use_fast_variance, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """Normalise.

        Args:
          x, mask: as in `LayerNorm`, as are the errors.

        Returns:
          An array of the shape of `x`.
        """
        x = jnp.asarray(x)
        features = _dims(self.feature_axes, x.ndim)
        checked_features("nnx.RMSNorm", x, features[-1:], (self.num_features,))
        return self._apply(x, mask, _dims(self.reduction_axes, x.ndim), features, centred=False)


class InstanceNorm(_Normalization):
    """Normalise each feature of each example over all other dimensions.

    Args:
      num_features, epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name,
        axis_index_groups, use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `LayerNorm`.
      feature_axes: the dimension of the features; that of the examples is the first.

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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        feature_axes: Axes = -1,
        axis_name: str | None = None,
        axis_index_groups: Any = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._set_up(
            num_features, rngs, param_dtype, scale_init if use_scale else None, bias_init if use_bias else None,
            scale_metadata, bias_metadata, num_features=num_features, epsilon=epsilon, dtype=dtype, use_bias=use_bias,
            use_scale=use_scale, feature_axes=feature_axes, axis_name=axis_name, axis_index_groups=axis_index_groups,
            use_fast_variance=use_fast_variance, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """Normalise num[examples, ..., num_features].

        Args:
          x: the array.
          mask: which elements count for the statistics.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: there are more or fewer features, or they are in the dimension of the examples.
        """
        x = jnp.asarray(x)
        features = _dims(self.feature_axes, x.ndim)
        checked_features("nnx.InstanceNorm", x, features[-1:], (self.num_features,))
        if 0 in features:
            raise ShapeError("nnx.InstanceNorm, inputs", expected="examples in dimension 0, and features elsewhere",
                             got=f"features in dimension {features}", mend="move them")  # fmt: skip
        return self._apply(x, mask, tuple(d for d in range(1, x.ndim) if d not in features), features)


@eager_program(static_argnames=("dims", "num_groups", "epsilon", "groups", "fast"))
def _normalise_groups(
    x: Any, scale: Any, bias: Any, mask: Any, dims: tuple, num_groups: int, epsilon: float, dtype: Any,
    axis_name: Any, groups: Any, fast: bool, promote: Callable,
) -> Any:  # fmt: skip
    """The normalisation of groups of channels: num[*batch, channels], by statistics over `dims` and each group."""
    size = x.shape[-1] // num_groups
    split = lambda a: a.reshape(*a.shape[:-1], num_groups, size)
    if mask is not None:
        mask = split(jnp.broadcast_to(mask, x.shape))
    mean, var = statistics(split(x), (*[d for d in dims if d != x.ndim - 1], x.ndim), mask, axis_name, groups, fast)
    mean, var = (jnp.repeat(s, size, axis=-1) for s in (mean, var))
    kept = tuple(d for d in dims if d != x.ndim - 1)
    return normalised(x, mean, var, scale, bias, kept, (x.ndim - 1,), epsilon, dtype, promote)


class GroupNorm(_Normalization):
    """Normalise groups of channels of each example.

    Args:
      num_features: how many channels.
      num_groups: into how many groups they fall; None if `group_size` is given.
      group_size: how many channels a group has.
      epsilon, dtype, param_dtype, use_bias, use_scale, bias_init, scale_init, axis_name, axis_index_groups,
        use_fast_variance, promote_dtype, rngs, bias_metadata, scale_metadata: as in `LayerNorm`.
      reduction_axes: the dimensions that are normalised, the last one among them; None for all but the first.

    Raises:
      ArgumentError: both or neither of `num_groups` and `group_size` are given, or the channels do not fall into
        such groups.

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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Callable = zeros_init,
        scale_init: Callable = ones_init,
        reduction_axes: Axes | None = None,
        axis_name: str | None = None,
        axis_index_groups: Any = None,
        use_fast_variance: bool = True,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        if (num_groups is None) == (group_size is None):
            raise ArgumentError(
                "nnx.GroupNorm", expected="one of num_groups and group_size",
                got=f"num_groups={num_groups}, group_size={group_size}", mend="pass None for the other",
            )  # fmt: skip
        parts = num_groups if num_groups is not None else group_size
        if not parts or num_features % parts:
            raise ArgumentError(
                f"nnx.GroupNorm, argument {'num_groups' if num_groups is not None else 'group_size'}",
                expected=f"a divisor of num_features={num_features}", got=parts, mend="choose another number",
            )  # fmt: skip
        number = num_groups if num_groups is not None else num_features // parts
        self._set_up(
            num_features, rngs, param_dtype, scale_init if use_scale else None, bias_init if use_bias else None,
            scale_metadata, bias_metadata, num_features=num_features, num_groups=number,
            group_size=num_features // number, epsilon=epsilon, dtype=dtype, use_bias=use_bias, use_scale=use_scale,
            reduction_axes=reduction_axes, axis_name=axis_name, axis_index_groups=axis_index_groups,
            use_fast_variance=use_fast_variance, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """Normalise num[examples, ..., num_features].

        Args:
          x: the array.
          mask: which elements count for the statistics.

        Returns:
          An array of the shape of `x`.

        Raises:
          ShapeError: there are more or fewer channels.
          ArgumentError: `reduction_axes` leaves the channels out.
        """
        x = jnp.asarray(x)
        checked_features("nnx.GroupNorm", x, (-1,), (self.num_features,))
        dims = tuple(range(1, x.ndim)) if self.reduction_axes is None else _dims(self.reduction_axes, x.ndim)
        if x.ndim - 1 not in dims:
            raise ArgumentError("nnx.GroupNorm, argument reduction_axes", expected="the last dimension among them",
                                got=self.reduction_axes, mend="add -1")  # fmt: skip
        return _normalise_groups(
            x, held(self.scale), held(self.bias), mask, dims, self.num_groups, self.epsilon, self.dtype,
            self.axis_name, self.axis_index_groups, self.use_fast_variance, self.promote_dtype,
        )  # fmt: skip
