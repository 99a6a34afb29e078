"""Convolutions and their transposes, over any number of spatial dimensions, channels last.

Builds on `lax.conv_general_dilated` and `parameters`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError
from phalanx.nnx.layers.linear import checked_features
from phalanx.nnx.layers.parameters import (
    NO_METADATA,
    as_tuple,
    held,
    lecun_normal,
    parameter,
    promote_dtype,
    zeros_init,
)
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import Param
from phalanx.runtime.dispatch import eager_program

# Paddings that are made before the convolution, with the mode of `jnp.pad` that makes them.
_PADDED_BEFORE = {"CIRCULAR": "wrap", "REFLECT": "reflect", "CAUSAL": "constant"}


def _each(where: str, x: Any, ndim: int) -> tuple[int, ...]:
    """A number for each spatial dimension; None is 1."""
    if x is None:
        return (1,) * ndim
    if isinstance(x, int):
        return (x,) * ndim
    if len(x) != ndim:
        raise ArgumentError(where, expected=f"a number, or {ndim}, one for each spatial dimension", got=tuple(x),
                            mend="kernel_size counts the spatial dimensions")  # fmt: skip
    return tuple(x)


def canonical_padding(where: str, padding: Any, ndim: int) -> Any:
    """Padding as a name, or as a pair of numbers for each spatial dimension."""
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID", "SAME_LOWER", *_PADDED_BEFORE):
            raise ArgumentError(
                where, expected=f"one of {['SAME', 'VALID', 'SAME_LOWER', *_PADDED_BEFORE]}, or numbers",
                got=repr(padding), mend="write it in capitals",
            )  # fmt: skip
        return padding
    if isinstance(padding, int):
        return ((padding, padding),) * ndim
    pairs = tuple((p, p) if isinstance(p, int) else tuple(p) for p in padding)
    if len(pairs) != ndim or any(len(p) != 2 for p in pairs):
        raise ArgumentError(where, expected=f"{ndim} numbers or pairs of them", got=padding,
                            mend="give (before, after) for each spatial dimension")  # fmt: skip
    return pairs


def _layout(ndim: int) -> lax.ConvDimensionNumbers:
    """Channels last: num[batch, *spatial, channels], num[*spatial, in, out]."""
    spatial = tuple(range(1, ndim - 1))
    array = (0, ndim - 1, *spatial)
    return lax.ConvDimensionNumbers(array, (ndim - 1, ndim - 2, *range(ndim - 2)), array)


def _check_mask(where: str, mask: Any, shape: tuple) -> None:
    if mask is not None and np.shape(mask) != shape:
        raise ArgumentError(f"{where}, argument mask", expected=f"the kernel's shape {shape}",
                            got=f"shape {np.shape(mask)}", mend="give one number for each weight")  # fmt: skip


@eager_program(static_argnames=("strides", "padding", "input_dilation", "kernel_dilation", "groups"))
def _convolved(
    x: Any, kernel: Any, bias: Any, mask: Any, strides: tuple, padding: Any, input_dilation: tuple,
    kernel_dilation: tuple, groups: int, dtype: Any, precision: Any, preferred: Any, placed: Any, promote: Callable,
    convolve: Callable,
) -> Any:  # fmt: skip
    """The convolution of num[batch, *spatial, channels] with a kernel, plus a bias."""
    x, kernel, bias = promote((x, kernel if mask is None else kernel * mask, bias), dtype=dtype)
    if padding in _PADDED_BEFORE:
        reach = [(n - 1) * d for n, d in zip(kernel.shape, kernel_dilation)]
        halves = [(r, 0) if padding == "CAUSAL" else (r // 2, r - r // 2) for r in reach]
        x = jnp.pad(x, [(0, 0), *halves, (0, 0)], mode=_PADDED_BEFORE[padding])
        padding = "VALID"
    options: dict[str, Any] = {} if preferred is None else {"preferred_element_type": preferred}
    if placed is not None:
        options["out_sharding"] = placed
    y = convolve(
        x, kernel, strides, padding, lhs_dilation=input_dilation, rhs_dilation=kernel_dilation,
        dimension_numbers=_layout(x.ndim), feature_group_count=groups, precision=precision, **options,
    )  # fmt: skip
    return y if bias is None else y + bias


def _as_batch(x: Any, spatial: int) -> tuple[Any, tuple]:
    """An array with any number of leading dimensions as one with a single one, and what they were."""
    lead = x.shape[: x.ndim - spatial - 1]
    return (x if len(lead) == 1 else x.reshape(math.prod(lead), *x.shape[len(lead) :])), lead


class Conv(Module):
    """A convolution: num[*batch, *spatial, in_features] -> num[*batch, *spatial, out_features].

    Args:
      in_features: how many channels come in.
      out_features: how many go out.
      kernel_size: the window, a number for each spatial dimension; one number for one dimension.
      strides: the distance of windows.
      padding: `"SAME"`, `"VALID"`, `"CIRCULAR"`, `"REFLECT"`, `"CAUSAL"` (one dimension only), a number, or pairs.
      input_dilation: the distance at which inputs are laid out.
      kernel_dilation: the distance at which the window looks.
      feature_group_count: into how many groups the channels are parted.
      use_bias, dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      mask: factors of the weights, of the kernel's shape.
      conv_general_dilated: what convolves.

    Raises:
      ArgumentError: the channels do not fall into that many groups, or an argument has the wrong length.

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
        padding: Any = "SAME",
        input_dilation: int | Sequence[int] | None = 1,
        kernel_dilation: int | Sequence[int] | None = 1,
        feature_group_count: int = 1,
        use_bias: bool = True,
        mask: Any = None,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        precision: Any = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        conv_general_dilated: Callable = lax.conv_general_dilated,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: Any = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.kernel_size = as_tuple(kernel_size)
        if in_features % feature_group_count or out_features % feature_group_count:
            raise ArgumentError(
                "nnx.Conv, argument feature_group_count", expected="a divisor of in_features and out_features, "
                f"{in_features} and {out_features}", got=feature_group_count, mend="change the number of channels",
            )  # fmt: skip
        self.kernel_shape = (*self.kernel_size, in_features // feature_group_count, out_features)
        _check_mask("nnx.Conv", mask, self.kernel_shape)
        ndim = len(self.kernel_size)
        self.strides = _each("nnx.Conv, argument strides", strides, ndim)
        self.input_dilation = _each("nnx.Conv, argument input_dilation", input_dilation, ndim)
        self.kernel_dilation = _each("nnx.Conv, argument kernel_dilation", kernel_dilation, ndim)
        self.padding = canonical_padding("nnx.Conv, argument padding", padding, ndim)
        if self.padding == "CAUSAL" and ndim != 1:
            raise ArgumentError("nnx.Conv, argument padding", expected="one spatial dimension for 'CAUSAL'",
                                got=f"kernel_size={self.kernel_size}", mend="pad by numbers")  # fmt: skip
        self.kernel = parameter(Param, kernel_init, rngs.params(), self.kernel_shape, param_dtype, kernel_metadata)
        self.bias = None
        if use_bias:
            self.bias = parameter(Param, bias_init, rngs.params(), (out_features,), param_dtype, bias_metadata)
        self.in_features = in_features
        self.out_features = out_features
        self.feature_group_count = feature_group_count
        self.use_bias = use_bias
        self.mask = mask
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.precision = precision
        self.kernel_init = kernel_init
        self.bias_init = bias_init
        self.conv_general_dilated = conv_general_dilated
        self.promote_dtype = promote_dtype
        self.preferred_element_type = preferred_element_type

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        """Convolve.

        Args:
          inputs: num[*batch, *spatial, in_features]; the batch may have any number of dimensions, or none.
          out_sharding: how the result is to lie.

        Returns:
          num[*batch, *spatial, out_features], the spatial sizes as padding and strides make them.

        Raises:
          ShapeError: the channels are not as many as the layer was made for.
        """
        kernel = self.kernel.value
        checked_features("nnx.Conv", inputs, (-1,), (kernel.shape[-2] * self.feature_group_count,))
        x, lead = _as_batch(jnp.asarray(inputs), len(self.kernel_size))
        y = _convolved(
            x, kernel, held(self.bias), self.mask, self.strides, self.padding, self.input_dilation,
            self.kernel_dilation, self.feature_group_count, self.dtype, self.precision, self.preferred_element_type,
            out_sharding, self.promote_dtype, self.conv_general_dilated,
        )  # fmt: skip
        return y if len(lead) == 1 else y.reshape(*lead, *y.shape[1:])


@eager_program(static_argnames=("strides", "padding", "dilation", "flipped"))
def _transposed(
    x: Any, kernel: Any, bias: Any, mask: Any, strides: tuple, padding: Any, dilation: tuple, flipped: bool,
    dtype: Any, precision: Any, preferred: Any, promote: Callable,
) -> Any:  # fmt: skip
    """The transposed convolution of num[batch, *spatial, channels] with a kernel, plus a bias."""
    x, kernel, bias = promote((x, kernel if mask is None else kernel * mask, bias), dtype=dtype)
    options: dict[str, Any] = {} if preferred is None else {"preferred_element_type": preferred}
    y = lax.conv_transpose(
        x, kernel, strides, "VALID" if padding == "CIRCULAR" else padding, rhs_dilation=dilation,
        dimension_numbers=_layout(x.ndim), transpose_kernel=flipped, precision=precision, **options,
    )  # fmt: skip
    if padding == "CIRCULAR":
        for dim, (n, s) in enumerate(zip(x.shape[1:-1], strides), 1):
            y = _wrapped(y, dim, n * s, flipped)
    return y if bias is None else y + bias


def _wrapped(y: Any, dim: int, period: int, flipped: bool) -> Any:
    """Fold a dimension onto a circle of the given length, so that what overlaps is added.

    The result is turned so that its middle is the middle of the array, as with padding on both sides.
    """
    size = y.shape[dim]
    before = -(-(size - period) // 2) if flipped else (size - period) // 2
    before %= period
    rounds = -(-(size + (period - before) % period) // period)
    ahead = (period - before) % period
    padding = [(0, 0)] * y.ndim
    padding[dim] = (ahead, rounds * period - size - ahead)
    y = jnp.pad(y, padding)
    shape = (*y.shape[:dim], rounds, period, *y.shape[dim + 1 :])
    return y.reshape(shape).sum(dim)


class ConvTranspose(Module):
    """A transposed convolution, which makes the spatial dimensions larger by the strides.

    Args:
      in_features, out_features, kernel_size: as in `Conv`.
      strides: how far inputs are laid out from each other.
      padding: `"SAME"`, `"VALID"`, `"CIRCULAR"`, a number, or pairs.
      kernel_dilation: the distance at which the window looks.
      use_bias, mask, dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type,
        rngs, kernel_metadata, bias_metadata: as in `Conv`.
      transpose_kernel: flip the kernel and change its channels, as the gradient of a convolution does.

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
        padding: Any = "SAME",
        kernel_dilation: int | Sequence[int] | None = None,
        use_bias: bool = True,
        mask: Any = None,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        precision: Any = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        transpose_kernel: bool = False,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: Any = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.kernel_size = as_tuple(kernel_size)
        channels = (out_features, in_features) if transpose_kernel else (in_features, out_features)
        self.kernel_shape = (*self.kernel_size, *channels)
        _check_mask("nnx.ConvTranspose", mask, self.kernel_shape)
        ndim = len(self.kernel_size)
        self.strides = _each("nnx.ConvTranspose, argument strides", strides, ndim)
        self.kernel_dilation = _each("nnx.ConvTranspose, argument kernel_dilation", kernel_dilation, ndim)
        self.padding = canonical_padding("nnx.ConvTranspose, argument padding", padding, ndim)
        if self.padding in ("CAUSAL", "REFLECT"):
            raise ArgumentError("nnx.ConvTranspose, argument padding", expected="another padding for a transpose",
                                got=repr(padding), mend="slice the result of 'VALID'")  # fmt: skip
        self.kernel = parameter(Param, kernel_init, rngs.params(), self.kernel_shape, param_dtype, kernel_metadata)
        self.bias = None
        if use_bias:
            self.bias = parameter(Param, bias_init, rngs.params(), (out_features,), param_dtype, bias_metadata)
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = use_bias
        self.mask = mask
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.precision = precision
        self.kernel_init = kernel_init
        self.bias_init = bias_init
        self.transpose_kernel = transpose_kernel
        self.promote_dtype = promote_dtype
        self.preferred_element_type = preferred_element_type

    def __call__(self, inputs: Any) -> Any:
        """Convolve.

        Args:
          inputs: num[*batch, *spatial, in_features].

        Returns:
          num[*batch, *larger, out_features].

        Raises:
          ShapeError: the channels are not as many as the layer was made for.
        """
        kernel = self.kernel.value
        checked_features("nnx.ConvTranspose", inputs, (-1,), (kernel.shape[-1 if self.transpose_kernel else -2],))
        x, lead = _as_batch(jnp.asarray(inputs), len(self.kernel_size))
        y = _transposed(
            x, kernel, held(self.bias), self.mask, self.strides, self.padding, self.kernel_dilation,
            self.transpose_kernel, self.dtype, self.precision, self.preferred_element_type, self.promote_dtype,
        )  # fmt: skip
        return y if len(lead) == 1 else y.reshape(*lead, *y.shape[1:])
