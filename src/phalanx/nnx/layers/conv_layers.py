"""Convolution layers, over any number of spatial dimensions, with channels last: `Conv` and `ConvTranspose`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.nnx.layers.linear_layers import check_features
from phalanx.nnx.layers.parameter_init import (
    NO_METADATA,
    Layer,
    PaddingLike,
    as_tuple,
    lecun_normal,
    make_parameter,
    promote_dtype,
    value_or_none,
    without_none,
    zeros_init,
)
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable_types import Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike

# Paddings that are applied before the convolution, with their mode of `jnp.pad`.
_PADDED_BEFORE = {"CIRCULAR": "wrap", "REFLECT": "reflect", "CAUSAL": "constant"}


def _to_spatial_tuple(where: str, x: Any, ndim: int) -> tuple[int, ...]:
    """A number for each spatial dimension; None means 1."""
    if x is None:
        return (1,) * ndim
    sizes = (x,) * ndim if isinstance(x, int) else tuple(x)
    if min(sizes, default=1) < 1:
        raise ArgumentError(where, expected="numbers of at least 1", got=x, fix="pass 1 for adjacent elements")
    if len(sizes) != ndim:
        raise ArgumentError(
            where,
            expected=f"a number, or {ndim}, one for each spatial dimension",
            got=sizes,
            fix="kernel_size counts the spatial dimensions",
        )
    return sizes


def canonical_padding(where: str, padding: PaddingLike, ndim: int) -> Any:
    """Convert padding to a name, or to a pair of numbers for each spatial dimension."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID", "SAME_LOWER", *_PADDED_BEFORE):
            raise ArgumentError(
                where,
                expected=f"one of {['SAME', 'VALID', 'SAME_LOWER', *_PADDED_BEFORE]}, or numbers",
                got=repr(padding),
                fix="pass 'SAME' to keep the spatial sizes",
            )
        return padding.upper()
    if isinstance(padding, int):
        return ((padding, padding),) * ndim
    pairs = tuple((p, p) if isinstance(p, int) else tuple(p) for p in padding)
    if len(pairs) != ndim or any(len(p) != 2 for p in pairs):
        raise ArgumentError(
            where,
            expected=f"{ndim} numbers or pairs of them",
            got=padding,
            fix="give (before, after) for each spatial dimension",
        )
    return pairs


def _channels_last(ndim: int) -> lax.ConvDimensionNumbers:
    """The dimension numbers of num[batch, *spatial, channels] and num[*spatial, in, out]."""
    spatial = tuple(range(1, ndim - 1))
    array = (0, ndim - 1, *spatial)
    return lax.ConvDimensionNumbers(array, (ndim - 1, ndim - 2, *range(ndim - 2)), array)


@eager_jit(static_argnames=("strides", "padding", "input_dilation", "kernel_dilation", "groups"))
def _convolve(
    x: Array,
    kernel: Array,
    bias: Array | None,
    mask: Array | None,
    strides: tuple,
    padding: PaddingLike,
    input_dilation: tuple,
    kernel_dilation: tuple,
    groups: int,
    dtype: DTypeLike | None,
    precision: PrecisionLike,
    preferred: DTypeLike | None,
    placed: ShardingLike | None,
    promote: Callable,
    convolve: Callable,
) -> Any:
    """Convolve num[batch, *spatial, channels] with a kernel, and add a bias."""
    x, kernel, bias = promote((x, kernel if mask is None else kernel * mask, bias), dtype=dtype)
    # XLA pads with zeros only, so periodic, mirrored and causal padding precede a convolution without padding.
    if padding in _PADDED_BEFORE:
        # The extent of the window beyond its first element, in input elements.
        reach = [(n - 1) * d for n, d in zip(kernel.shape, kernel_dilation)]
        # Causal padding precedes the input only, so that no output depends on later inputs.
        halves = [(r, 0) if padding == "CAUSAL" else (r // 2, r - r // 2) for r in reach]
        x = jnp.pad(x, [(0, 0), *halves, (0, 0)], mode=_PADDED_BEFORE[padding])
        padding = "VALID"
    y = convolve(
        x,
        kernel,
        strides,
        padding,
        lhs_dilation=input_dilation,
        rhs_dilation=kernel_dilation,
        dimension_numbers=_channels_last(x.ndim),
        feature_group_count=groups,
        precision=precision,
        **without_none(preferred_element_type=preferred, out_sharding=placed),
    )
    return y if bias is None else y + bias


class _Convolution(Layer):
    """The base class of convolutions: creates kernel and bias, and stores the constructor arguments."""

    def _create_parameters(self, where: str, arguments: Mapping[str, Any], channels: tuple[int, int]) -> None:
        """Check the arguments of the constructor, and create kernel and bias.

        Args:
          where: the name of the layer, for error messages.
          arguments: `locals()` of the constructor.
          channels: the last two dimensions of the kernel.
        """
        shape = self.kernel_shape = (*as_tuple(arguments["kernel_size"]), *channels)
        mask, ndim = arguments["mask"], len(shape) - 2
        if mask is not None and np.shape(mask) != shape:
            raise ArgumentError(
                f"{where}, argument mask",
                expected=f"the kernel's shape {shape}",
                got=f"shape {np.shape(mask)}",
                fix="give one number for each weight",
            )
        for name in ("strides", "input_dilation", "kernel_dilation"):
            _to_spatial_tuple(f"{where}, argument {name}", arguments.get(name), ndim)
        self._check_padding(canonical_padding(f"{where}, argument padding", arguments["padding"], ndim), ndim)
        rngs, dtype, metadata = (arguments[name] for name in ("rngs", "param_dtype", "kernel_metadata"))
        self.kernel = make_parameter(Param, arguments["kernel_init"], rngs, shape, dtype, metadata)
        use_bias, init, metadata = (arguments[name] for name in ("use_bias", "bias_init", "bias_metadata"))
        self._make_bias(use_bias, init, rngs, (arguments["out_features"],), dtype, metadata)

    def _check_padding(self, padding: Any, ndim: int) -> None:
        """Check that the layer supports the padding in `ndim` spatial dimensions."""

    def _get_window(self, where: str, *names: str) -> tuple[tuple[int, ...], ...]:
        """The attributes of these names, with a number for each spatial dimension."""
        ndim, values = len(self.kernel_size), [getattr(self, name) for name in names]
        # By far the most common value avoids the checks.
        return tuple(
            [
                (1,) * ndim if x == 1 else _to_spatial_tuple(f"{where}, attribute {name}", x, ndim)
                for name, x in zip(names, values)
            ]
        )

    def _apply(self, where: str, inputs: Any, num_channels: int, convolve: Callable, *options: Any) -> Any:
        """Convolve an array with any number of batch dimensions, which are flattened to one."""
        check_features(where, inputs, (-1,), (num_channels,))
        x = jnp.asarray(inputs)
        if x.ndim <= len(self.kernel_size):
            raise ShapeError(
                f"{where}, inputs",
                expected=f"{len(self.kernel_size)} spatial dimensions before the features, as in kernel_size",
                got=f"shape {x.shape}",
                fix="reshape the inputs to (*batch, *spatial, features)",
            )
        lead = x.shape[: x.ndim - len(self.kernel_size) - 1]
        x = x if len(lead) == 1 else x.reshape(math.prod(lead), *x.shape[len(lead) :])
        bias = value_or_none(self.bias)
        (strides,) = self._get_window(where, "strides")
        padding = self.padding
        if padding not in ("SAME", "VALID"):
            padding = canonical_padding(f"{where}, attribute padding", padding, len(self.kernel_size))
        y = convolve(x, self.kernel.value, bias, self.mask, strides, padding, *options)
        return y if len(lead) == 1 else y.reshape(*lead, *y.shape[1:])


class Conv(_Convolution):
    """A convolution: num[*batch, *spatial, in_features] -> num[*batch, *spatial, out_features].

    Args:
      in_features: the number of input channels.
      out_features: the number of output features.
      kernel_size: the size of the window in each spatial dimension; an integer for one dimension.
      strides: the distance between windows.
      padding: `"SAME"`, `"VALID"`, `"CIRCULAR"`, `"REFLECT"`, `"CAUSAL"` (one dimension only), a number, or pairs.
      input_dilation: the distance between input elements, with zeros between them.
      kernel_dilation: the distance between the elements of a window.
      feature_group_count: the number of groups of channels.
      use_bias, dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      mask: factors of the weights, of the shape of the kernel.
      conv_general_dilated: computes the convolution, by default `lax.conv_general_dilated`.

    Raises:
      ArgumentError: the number of channels is not a multiple of the number of groups, or an argument has the wrong
        length.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.Conv(3, 8, kernel_size=(3, 3), strides=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((5, 32, 32, 3))).shape
      (5, 16, 16, 8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] | None = 1,
        *,
        padding: PaddingLike = "SAME",
        input_dilation: int | Sequence[int] | None = 1,
        kernel_dilation: int | Sequence[int] | None = 1,
        feature_group_count: int = 1,
        use_bias: bool = True,
        mask: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        precision: PrecisionLike = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        conv_general_dilated: Callable = lax.conv_general_dilated,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        if in_features % feature_group_count or out_features % feature_group_count:
            raise ArgumentError(
                "nnx.Conv, argument feature_group_count",
                expected=f"a divisor of in_features and out_features, {in_features} and {out_features}",
                got=feature_group_count,
                fix="change feature_group_count, or the numbers of channels to multiples of it",
            )
        self._create_parameters("nnx.Conv", locals(), (in_features // feature_group_count, out_features))
        kernel_size = as_tuple(kernel_size)
        self._store_options(
            locals(),
            "in_features out_features kernel_size strides padding input_dilation kernel_dilation feature_group_count "
            "use_bias mask dtype param_dtype precision conv_general_dilated promote_dtype preferred_element_type",
        )

    def _check_padding(self, padding: Any, ndim: int) -> None:
        if padding == "CAUSAL" and ndim != 1:
            raise ArgumentError(
                "nnx.Conv, argument padding",
                expected="one spatial dimension for 'CAUSAL'",
                got=f"{ndim} dimensions in kernel_size",
                fix="pass padding as pairs (before, after) for each spatial dimension",
            )

    def __call__(self, inputs: ArrayLike, out_sharding: ShardingLike | None = None) -> Any:
        """Convolve.

        Args:
          inputs: num[*batch, *spatial, in_features]; the batch may have any number of dimensions, or none.
          out_sharding: the sharding of the result.

        Returns:
          num[*batch, *spatial, out_features]; the spatial sizes depend on padding and strides.

        Raises:
          ShapeError: the number of channels differs from that of the layer.
        """
        return self._apply(
            "nnx.Conv",
            inputs,
            self.kernel.value.shape[-2] * self.feature_group_count,
            _convolve,
            *self._get_window("nnx.Conv", "input_dilation", "kernel_dilation"),
            self.feature_group_count,
            self.dtype,
            self.precision,
            self.preferred_element_type,
            out_sharding,
            self.promote_dtype,
            self.conv_general_dilated,
        )


@eager_jit(static_argnames=("strides", "padding", "dilation", "flipped"))
def _convolve_transposed(
    x: Array,
    kernel: Array,
    bias: Array | None,
    mask: Array | None,
    strides: tuple,
    padding: PaddingLike,
    dilation: tuple,
    flipped: bool,
    dtype: DTypeLike | None,
    precision: PrecisionLike,
    preferred: DTypeLike | None,
    promote: Callable,
) -> Any:
    """Compute the transposed convolution of num[batch, *spatial, channels] with a kernel, and add a bias."""
    x, kernel, bias = promote((x, kernel if mask is None else kernel * mask, bias), dtype=dtype)
    y = lax.conv_transpose(
        x,
        kernel,
        strides,
        "VALID" if padding == "CIRCULAR" else padding,
        rhs_dilation=dilation,
        dimension_numbers=_channels_last(x.ndim),
        transpose_kernel=flipped,
        precision=precision,
        **without_none(preferred_element_type=preferred),
    )
    if padding == "CIRCULAR":
        for dim, (n, s) in enumerate(zip(x.shape[1:-1], strides), 1):
            y = _wrap_periodically(y, dim, n * s, flipped)
    return y if bias is None else y + bias


def _wrap_periodically(y: Any, dim: int, period: int, flipped: bool) -> Any:
    """Wrap a dimension periodically, adding the elements that coincide.

    The result is rotated so that its center is the center of the array, as for padding on both sides.
    """
    size = y.shape[dim]
    # The offset of the center. A flipped kernel rounds it up and not down, as for SAME padding.
    before = -(-(size - period) // 2) if flipped else (size - period) // 2
    # The number of elements before the first period, which are added to its end.
    before %= period
    # Padded to whole periods, so that a reshape and a sum add the elements that coincide.
    rounds = -(-(size + (period - before) % period) // period)
    ahead = (period - before) % period
    padding = [(0, 0)] * y.ndim
    padding[dim] = (ahead, rounds * period - size - ahead)
    y = jnp.pad(y, padding)
    shape = (*y.shape[:dim], rounds, period, *y.shape[dim + 1 :])
    return y.reshape(shape).sum(dim)


class ConvTranspose(_Convolution):
    """A transposed convolution, which enlarges the spatial dimensions by the strides.

    Args:
      in_features, out_features, kernel_size: as in `Conv`.
      strides: the distance between input elements in the result.
      padding: `"SAME"`, `"VALID"`, `"CIRCULAR"`, a number, or pairs.
      kernel_dilation: the distance between the elements of a window.
      use_bias, mask, dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type,
        rngs, kernel_metadata, bias_metadata: as in `Conv`.
      transpose_kernel: whether to flip the kernel and swap its channels, as in the gradient of a convolution.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.ConvTranspose(3, 8, kernel_size=(3, 3), strides=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((5, 16, 16, 3))).shape
      (5, 32, 32, 8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] | None = None,
        *,
        padding: PaddingLike = "SAME",
        kernel_dilation: int | Sequence[int] | None = None,
        use_bias: bool = True,
        mask: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        precision: PrecisionLike = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        transpose_kernel: bool = False,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        channels = (out_features, in_features) if transpose_kernel else (in_features, out_features)
        kernel_size = as_tuple(kernel_size)
        self._store_options(
            locals(),
            "kernel_size in_features out_features strides padding kernel_dilation use_bias mask dtype param_dtype "
            "precision transpose_kernel promote_dtype preferred_element_type",
        )
        self._create_parameters("nnx.ConvTranspose", locals(), channels)

    def _check_padding(self, padding: Any, ndim: int) -> None:
        if padding in ("CAUSAL", "REFLECT"):
            raise ArgumentError(
                "nnx.ConvTranspose, argument padding",
                expected="another padding for a transpose",
                got=repr(padding),
                fix="slice the result of 'VALID'",
            )

    def __call__(self, inputs: ArrayLike) -> Any:
        """Convolve.

        Args:
          inputs: num[*batch, *spatial, in_features].

        Returns:
          num[*batch, *larger, out_features].

        Raises:
          ShapeError: the number of channels differs from that of the layer.
        """
        return self._apply(
            "nnx.ConvTranspose",
            inputs,
            self.kernel.value.shape[-1 if self.transpose_kernel else -2],
            _convolve_transposed,
            *self._get_window("nnx.ConvTranspose", "kernel_dilation"),
            self.transpose_kernel,
            self.dtype,
            self.precision,
            self.preferred_element_type,
            self.promote_dtype,
        )
