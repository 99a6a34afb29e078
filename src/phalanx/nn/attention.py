"""Scaled dot-product attention with multiple heads, grouped keys, masks and local windows.

Builds on `lax` and the softmax; called by models and the attention layers of `nnx`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, DTypeError, ShapeError, get_aval, promotion
from phalanx.nn.softmax import logsumexp, softmax
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic
from phalanx.typing import Array, ArrayLike, DimSize


def _scale(depth: DimSize, dtype: np.dtype) -> Any:
    """1 / sqrt(depth)."""
    if is_symbolic(depth):
        return lax.rsqrt(lax.convert_element_type(depth, dtype))
    return dtype.type(1 / math.sqrt(depth))


def _positions(shape: tuple, dim: int) -> Any:
    return lax.broadcasted_iota(np.int32, shape, dim)


def _full_mask(
    mask: Array, shape: tuple, is_causal: bool, query_lengths: Array, key_lengths: Array, window: tuple | None
) -> Any:
    """Combine all masks: bool[batch, head, query, key], or None if every query attends to every key."""
    # Masks are combined by `and`; none of them is materialized if there are no others.
    parts = [] if mask is None else [_fit("mask", mask, shape)]
    plane = shape[2:]
    if is_causal:
        parts.append(lax.broadcast_in_dim(lax.ge(_positions(plane, 0), _positions(plane, 1)), shape, (2, 3)))
    if window is not None:
        left, right = window
        ahead = lax.sub(_positions(plane, 1), _positions(plane, 0))
        near = lax.bitwise_and(lax.le(ahead, right), lax.ge(ahead, -left))
        parts.append(lax.broadcast_in_dim(near, shape, (2, 3)))
    for lengths, dim in ((query_lengths, 2), (key_lengths, 3)):
        if lengths is not None:
            limit = lax.broadcast_in_dim(lax.convert_element_type(lengths, np.int32), shape, (0,))
            parts.append(lax.lt(_positions(shape, dim), limit))
    return functools.reduce(lax.bitwise_and, parts) if parts else None


def _fit(name: str, x: Array, shape: tuple) -> Any:
    """Broadcast a bias or mask to [batch, head, query, key]."""
    given = get_aval(x).shape
    dims = range(4 - len(given), 4)
    if len(given) > 4 or any(n not in (1, shape[i]) for n, i in zip(given, dims, strict=True)):
        raise ShapeError(
            f"nn.dot_product_attention {name}",
            expected=f"the last of 4 dimensions (batch, heads, queries, keys), or all, that broadcast to {shape}",
            got=get_aval(x).str_short(),
            fix=f"reshape {name}, with a dimension of size 1 where it is the same for all",
        )
    return lax.broadcast_in_dim(x, shape, tuple(dims))


def _check(query: Array, key: ArrayLike, value: ArrayLike) -> None:
    q, k, v = map(get_aval, (query, key, value))
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and k.shape == v.shape[:3] + k.shape[3:]
        and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
        and q.shape[2] % k.shape[2] == 0
        and q.dtype == k.dtype == v.dtype
    )
    if not fits:
        raise ShapeError(
            "nn.dot_product_attention operands",
            expected="query [batch, queries, heads, depth], key and value [batch, keys, key heads, depth], all without "
            "or all with batch, of one dtype, the heads a multiple of the key heads",
            got=", ".join(a.str_short() for a in (q, k, v)),
            fix="transpose the operands to [batch, positions, heads, depth]",
        )


@eager_jit(static_argnames=("scale", "is_causal", "local_window_size", "implementation", "return_residual"))
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Scaled dot-product attention: the mean of the values weighted by softmax(scale query . key + bias).

    Args:
      query: real[batch, queries, heads, depth], or without batch.
      key: real[batch, keys, key heads, depth]; heads is a multiple of key heads, and each group of heads shares one.
      value: real[batch, keys, key heads, depth].
      bias: added to the products; broadcasts to [batch, heads, queries, keys].
      mask: True where a query attends to a key; broadcasts to [batch, heads, queries, keys].
      scale: factor of the products; 1 / sqrt(depth) if None.
      is_causal: whether a query attends only to the keys at its own position and before.
      query_seq_lengths: int32[batch], the number of queries of each sequence; the result is 0 for the padding.
      key_value_seq_lengths: int32[batch], the number of keys of each sequence.
      local_window_size: the number of positions before and after itself to which a query attends: one number for
        both, or a pair.
      implementation: None or `"xla"`, which are the same.
      return_residual: also return the logarithm of the sum of exponentials, [batch, queries, heads] like `query`.

    Returns:
      An array like `query`, with the depth of `value`; with `return_residual` a pair.

    Raises:
      ShapeError: the shapes do not fit.
      ArgumentError: `implementation` is unknown.
      DTypeError: the mask is not boolean.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> x = np.ones((2, 3, 4, 8), np.float32)
      >>> nn.dot_product_attention(x, x, x, is_causal=True).shape
      (2, 3, 4, 8)

    Source: A. Vaswani et al. (2017), arXiv:1706.03762; shared keys: J. Ainslie et al. (2023), arXiv:2305.13245.
    """
    if implementation not in (None, "xla"):
        raise ArgumentError(
            "nn.dot_product_attention implementation",
            expected="None or 'xla'",
            got=repr(implementation),
            fix="leave implementation out; XLA chooses a fused kernel where it has one",
        )
    alone = get_aval(query).ndim == 3
    if alone:
        query, key, value = (lax.expand_dims(v, (0,)) for v in (query, key, value))
    _check(query, key, value)
    batch, queries, heads, depth = get_aval(query).shape
    keys, key_heads = get_aval(key).shape[1:3]
    shape = (batch, heads, queries, keys)
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    # Query heads that share a key head form a group, so that keys and values need not be repeated.
    grouped = lax.reshape(query, (batch, queries, key_heads, heads // key_heads, depth))
    # Scores and softmax are computed in float32 at least.
    wide = promotion.join_dtypes(get_aval(query).dtype, np.float32)
    scores = lax.dot_general(grouped, key, (((4,), (3,)), ((0, 2), (0, 2))), preferred_element_type=wide)
    # [batch, key head, query, group, key] becomes [batch, head, query, key].
    scores = lax.reshape(lax.transpose(scores, (0, 1, 3, 2, 4)), shape)
    scores = lax.mul(scores, _scale(depth, scores.dtype) if scale is None else scores.dtype.type(scale))
    if bias is not None:
        scores = lax.add(scores, lax.convert_element_type(_fit("bias", bias, shape), scores.dtype))
    if mask is not None and get_aval(mask).dtype != np.bool_:
        raise DTypeError(
            "nn.dot_product_attention, argument mask",
            expected="booleans",
            got=get_aval(mask).str_short(),
            fix="pass a comparison such as mask > 0, or pass numbers to add as bias",
        )
    may_meet = _full_mask(mask, shape, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    if may_meet is not None:
        # With -inf, a query that attends to no key would become NaN. The factor leaves room below for the maximum that
        # the softmax subtracts.
        never = lax.full(shape, -0.7 * float(np.finfo(np.float32).max), scores.dtype)
        scores = lax.select(may_meet, scores, never)
    weights = lax.convert_element_type(softmax(scores, -1), get_aval(key).dtype)
    weights = lax.reshape(weights, (batch, key_heads, heads // key_heads, queries, keys))
    out = lax.dot_general(weights, value, (((4,), (1,)), ((0, 1), (0, 2))))
    out = lax.reshape(lax.transpose(out, (0, 3, 1, 2, 4)), (batch, queries, heads, get_aval(value).shape[3]))
    if query_seq_lengths is not None:
        # Padding queries would attend to something arbitrary; their result is set to 0.
        counts = lax.lt(_positions(out.shape, 1), lax.broadcast_in_dim(query_seq_lengths, out.shape, (0,)))
        out = lax.select(counts, out, lax.full(out.shape, 0, out.dtype))
    if alone:
        out = lax.squeeze(out, (0,))
    if not return_residual:
        return out
    residual = lax.convert_element_type(lax.transpose(logsumexp(scores, -1), (0, 2, 1)), query.dtype)
    return out, (lax.squeeze(residual, (0,)) if alone else residual)
