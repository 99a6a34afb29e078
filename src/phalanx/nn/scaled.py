"""Products in few bits: operands are stored in blocks of small numbers with a scale for each block.

Builds on `lax.scaled_dot`. The formats are MXFP8 (OCP Microscaling Formats specification 1.0) and NVFP4, in which the
scale of a block is itself a small number, beside one for the whole array.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.custom_derivatives import custom_vjp
from phalanx.transforms import vjp


class BlockScaleConfig(NamedTuple):
    """How an operand is stored.

    Args:
      mode: `"mxfp8"` or `"nvfp4"`.
      block_size: number of elements that share a scale.
      data_type: of the elements.
      scale_type: of the scales.
      global_scale: f32[1] or None, a factor for the whole array.
      infer_only: no derivative is needed.

    Examples:
      >>> get_scaled_dot_general_config("nvfp4").block_size
      16
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """Name a format of operands for `scaled_dot_general`.

    Args:
      mode: `"mxfp8"`, blocks of 32 `float8_e4m3fn` with a power of two, or `"nvfp4"`, blocks of 16 `float4_e2m1fn`
        with a `float8_e4m3fn`.
      global_scale: for `"nvfp4"` a factor f32[1] of the whole array, 1 if not given.

    Returns:
      The format.

    Raises:
      ArgumentError: another mode, or a global scale where the format has none.

    Examples:
      >>> get_scaled_dot_general_config("mxfp8").block_size
      32
    """
    if mode == "nvfp4":
        factor = np.ones(1, np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, factor, False)
    if mode != "mxfp8" or global_scale is not None:
        raise ArgumentError(
            "get_scaled_dot_general_config",
            expected='the mode "mxfp8", which has no global scale, or "nvfp4"',
            got=f"{mode!r}" + ("" if global_scale is None else " with a global scale"),
            mend="choose one of these",
        )
    return BlockScaleConfig(mode, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, None, False)


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Any:
    """Product of stacks of matrices stored in blocks along their last dimension.

    Args:
      lhs: num[b, m, k].
      rhs: num[b, n, k].
      lhs_scales: num[b, m, k / block].
      rhs_scales: num[b, n, k / block].
      preferred_element_type: dtype of the result.

    Returns:
      num[b, m, n].

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> x, scale = jnp.ones((1, 2, 32), "float8_e4m3fn"), jnp.full((1, 2, 1), 2, "float8_e8m0fnu")
      >>> phalanx.nn.scaled_matmul(x, x, scale, scale).tolist()
      [[[128.0, 128.0], [128.0, 128.0]]]
    """
    shapes = [aval_of(x).shape for x in (lhs, rhs, lhs_scales, rhs_scales)]
    (left, right), scales = shapes[:2], shapes[2:]
    fits = len(left) == len(right) == 3 and left[0] == right[0] and left[2] == right[2]
    if not fits or any(s[:2] != x[:2] or len(s) != 3 for s, x in zip(scales, (left, right))):
        raise ShapeError(
            "scaled_matmul",
            expected="lhs [b, m, k], rhs [b, n, k], lhs_scales [b, m, blocks] and rhs_scales [b, n, blocks]",
            got=", ".join(str(list(shape)) for shape in shapes),
            mend="transpose rhs, and give one scale for each block along the last dimension",
        )
    return lax.scaled_dot(
        lhs,
        rhs,
        lhs_scale=lhs_scales,
        rhs_scale=rhs_scales,
        dimension_numbers=(((2,), (2,)), ((0,), (0,))),
        preferred_element_type=preferred_element_type,
    )


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Any:
    """General product whose operands are rounded to a format of few bits, in the derivatives too.

    Args:
      lhs, rhs: float operands.
      dimension_numbers: as for `lax.dot_general`.
      preferred_element_type: dtype of the result.
      configs: three formats, for the operands, and for those of the products that the cotangents of `lhs` and of `rhs`
        are; blocks run along the last contracted dimension. None takes the product as it is.
      implementation: only None; the compiler chooses the kernel.

    Returns:
      The product.

    Raises:
      ArgumentError: not three formats, or an implementation is named.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> config = phalanx.nn.get_scaled_dot_general_config("mxfp8")
      >>> x = jnp.ones((2, 32))
      >>> phalanx.nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=[config] * 3).tolist()
      [[32.0, 32.0], [32.0, 32.0]]
    """
    if implementation is not None or (configs is not None and len(configs) != 3):
        raise ArgumentError(
            "scaled_dot_general",
            expected="configs for the operands and the two cotangents, and no implementation",
            got=f"{0 if configs is None else len(configs)} configs, implementation={implementation!r}",
            mend="pass configs=[config] * 3",
        )
    numbers = tuple(tuple(tuple(map(int, dims)) for dims in pair) for pair in dimension_numbers)
    dtype = np.dtype(preferred_element_type)
    if configs is None:
        return lax.dot_general(lhs, rhs, numbers, preferred_element_type=dtype)
    modes = tuple([config.mode for config in configs])
    factors = tuple([config.global_scale for config in configs])
    return _rounded_product(lhs, rhs, factors, numbers, dtype, modes)


@functools.partial(custom_vjp, nondiff_argnums=(3, 4, 5))
def _rounded_product(lhs: Any, rhs: Any, factors: tuple, numbers: Any, dtype: Any, modes: tuple) -> Any:
    (left, right), _ = numbers
    lhs, rhs = _rounded(lhs, left, modes[0], factors[0]), _rounded(rhs, right, modes[0], factors[0])
    return lax.dot_general(lhs, rhs, numbers, preferred_element_type=dtype)


def _forward(lhs: Any, rhs: Any, factors: tuple, numbers: Any, dtype: Any, modes: tuple) -> tuple:
    return _rounded_product(lhs, rhs, factors, numbers, dtype, modes), (lhs, rhs, factors)


def _backward(numbers: Any, dtype: Any, modes: tuple, residuals: tuple, y_bar: Any) -> tuple:
    lhs, rhs, factors = residuals
    (left, right), (left_batch, right_batch) = numbers
    free_left = [d for d in range(lhs.ndim) if d not in left + left_batch]
    free_right = [d for d in range(rhs.ndim) if d not in right + right_batch]
    first = len(left_batch) + len(free_left)

    def bar(which: int, other: Any, free: list, y_dims: range, product: Any, primal: Any) -> Any:
        given = _rounded(y_bar, y_dims, modes[which], factors[which])
        held = _rounded(other, free, modes[which], factors[which])
        return vjp(lambda x: product(x, held), primal)[1](given)[0]

    product = functools.partial(lax.dot_general, dimension_numbers=numbers, preferred_element_type=dtype)
    lhs_bar = bar(1, rhs, free_right, range(first, y_bar.ndim), lambda x, held: product(x, held), lhs)
    rhs_bar = bar(2, lhs, free_left, range(len(left_batch), first), lambda x, held: product(held, x), rhs)
    return lhs_bar, rhs_bar, None


_rounded_product.defvjp(_forward, _backward)


def _rounded(x: Any, dims: Sequence[int], mode: str, factor: Any) -> Any:
    """`x` as its format holds it, blocks along the last of `dims`; as it is where there is none."""
    if not dims:
        return x
    config = get_scaled_dot_general_config(mode, factor)
    dim, shape, size = dims[-1], x.shape, config.block_size
    moved = lax.transpose(x, [*(d for d in range(x.ndim) if d != dim), dim])
    count = -(-shape[dim] // size)
    padded = lax.pad(moved, np.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, count * size - shape[dim], 0)])
    blocks = lax.convert_element_type(lax.reshape(padded, (*padded.shape[:-1], count, size)), np.float32)
    scale = _scales(blocks, config)
    limit = float(dtypes.finfo(config.data_type).max)
    small = lax.clamp(np.float32(-limit), lax.div(blocks, scale), np.float32(limit))
    held = lax.convert_element_type(lax.convert_element_type(small, config.data_type), np.float32)
    back = lax.reshape(lax.mul(held, scale), padded.shape)
    back = lax.slice_in_dim(back, 0, shape[dim], axis=x.ndim - 1)
    order = list(range(x.ndim - 1))
    order.insert(dim, x.ndim - 1)
    return lax.convert_element_type(lax.transpose(back, order), x.dtype)


def _scales(blocks: Any, config: BlockScaleConfig) -> Any:
    """The scale of each block, as its type holds it, repeated over the block."""
    largest = lax.reduce_max(lax.abs(blocks), (blocks.ndim - 1,))
    top = float(dtypes.finfo(config.data_type).max)
    if config.mode == "mxfp8":
        # The largest power of two that leaves the block's largest element with the exponent of the type's largest.
        bits = lax.shift_right_logical(lax.bitcast_convert_type(largest, np.int32), np.int32(23))
        exponent = lax.sub(bits, np.int32(127 + int(np.log2(top))))
        scale = lax.exp2(lax.convert_element_type(lax.clamp(np.int32(-127), exponent, np.int32(127)), np.float32))
    else:
        factor = lax.reshape(lax.convert_element_type(config.global_scale, np.float32), ())
        wanted = lax.div(largest, lax.mul(factor, np.float32(top)))
        wanted = lax.clamp(np.float32(0), wanted, np.float32(float(dtypes.finfo(config.scale_type).max)))
        held = lax.convert_element_type(lax.convert_element_type(wanted, config.scale_type), np.float32)
        scale = lax.mul(held, factor)
    scale = lax.select(lax.gt(scale, np.float32(0)), scale, lax.full_like(scale, 1))
    return lax.broadcast_in_dim(scale, blocks.shape, tuple(range(blocks.ndim - 1)))
