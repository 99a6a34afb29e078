"""`MultiHeadAttention`, with masks, dropout, and a cache for autoregressive decoding."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, nn, numpy as jnp, random
from phalanx.core import ArgumentError, ShapeError
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.nnx.layers.dropout import draw_key, fork_stream
from phalanx.nnx.layers.linear_layers import LinearGeneral
from phalanx.nnx.layers.norm_layers import LayerNorm
from phalanx.nnx.layers.parameter_init import NO_METADATA, Layer, lecun_normal, promote_dtype, zeros_init
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs, RngStream
from phalanx.nnx.variable_types import Cache, Intermediate
from phalanx.typing import ArrayLike, DTypeLike, ShardingLike

# --- masks ---


def make_attention_mask(
    query_input: Any,
    key_input: Any,
    pairwise_fn: Callable = jnp.multiply,
    extra_batch_dims: int = 0,
    dtype: DTypeLike = np.float32,
) -> Any:
    """Make a mask for pairs of queries and keys: `pairwise_fn(query_input, key_input)` for each pair.

    Args:
      query_input: num[*batch, queries].
      key_input: num[*batch, keys].
      pairwise_fn: the function of two inputs.
      extra_batch_dims: the number of leading dimensions of size 1 to add.
      dtype: the dtype of the mask.

    Returns:
      num[*batch, 1, queries, keys].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.make_attention_mask(jnp.array([1, 1]), jnp.array([1, 0])).tolist()
      [[[1.0, 0.0], [1.0, 0.0]]]
    """
    mask = pairwise_fn(jnp.expand_dims(jnp.asarray(query_input), -1), jnp.expand_dims(jnp.asarray(key_input), -2))
    return jnp.expand_dims(mask, (-3, *range(extra_batch_dims))).astype(dtype)


def make_causal_mask(x: Any, extra_batch_dims: int = 0, dtype: DTypeLike = np.float32) -> Any:
    """Make a mask with which each position attends to itself and to earlier positions.

    Args:
      x: num[*batch, length]; only its shape is used.
      extra_batch_dims, dtype: as in `make_attention_mask`.

    Returns:
      num[*batch, 1, length, length].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.make_causal_mask(jnp.ones(2)).tolist()
      [[[1.0, 0.0], [1.0, 1.0]]]
    """
    positions = jnp.broadcast_to(jnp.arange(np.shape(x)[-1], dtype=np.int32), np.shape(x))
    return make_attention_mask(positions, positions, jnp.greater_equal, extra_batch_dims, dtype)


def combine_masks(*masks: Any, dtype: DTypeLike = np.float32) -> Any:
    """Combine masks with a logical and.

    Args:
      *masks: masks with equal numbers of dimensions; entries may be None.
      dtype: the dtype of the mask.

    Returns:
      The mask; None if all are None.

    Raises:
      ShapeError: the masks have different numbers of dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.combine_masks(jnp.array([True, True]), None, jnp.array([False, True])).tolist()
      [0.0, 1.0]
    """
    given = [jnp.asarray(m) for m in masks if m is not None]
    if not given:
        return None
    if len({m.ndim for m in given}) > 1:
        raise ShapeError(
            "nnx.combine_masks",
            expected="masks of as many dimensions each",
            got=f"{[m.ndim for m in given]} dimensions",
            fix="give them a batch dimension",
        )
    return functools.reduce(jnp.logical_and, given[1:], given[0].astype(bool)).astype(dtype)


# --- the function ---


def dot_product_attention_weights(
    query: Any,
    key: Any,
    bias: Any = None,
    mask: ArrayLike | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: DTypeLike | None = None,
    precision: PrecisionLike = None,
    module: Module | None = None,
    promote_dtype: Callable = promote_dtype,
    is_causal: bool = False,
) -> Any:
    """Compute the weights of attention.

    Args:
      query, key, bias, mask, broadcast_dropout, dropout_rng, dropout_rate, deterministic, dtype, precision, module,
        promote_dtype, is_causal: as in `dot_product_attention`.

    Returns:
      num[*batch, heads, queries, keys], whose sum over keys is 1 before dropout.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> x = jnp.ones((1, 2, 1, 4))
      >>> nnx.dot_product_attention_weights(x, x).tolist()
      [[[[0.5, 0.5], [0.5, 0.5]]]]
    """
    query, key = promote_dtype((query, key), dtype=dtype)
    if query.shape[-2] != key.shape[-2]:
        # Grouped-query attention: consecutive query heads share a key head.
        key = jnp.repeat(key, query.shape[-2] // key.shape[-2], axis=-2)
    scores = jnp.einsum("...qhd,...khd->...hqk", query / math.sqrt(query.shape[-1]), key, precision=precision)
    if bias is not None:
        scores = scores + bias
    if is_causal:
        causal = jnp.tri(scores.shape[-2], scores.shape[-1], dtype=bool)
        mask = causal if mask is None else jnp.logical_and(mask, causal)
    if mask is not None:
        scores = jnp.where(mask, scores, float(jnp.finfo(scores.dtype).min))
    # A row without any allowed key has uniform weights, since the lowest finite number is used instead of -inf.
    weights = nn.softmax(scores).astype(scores.dtype)
    if module is not None:
        module.sow(Intermediate, "attention_weights", weights)
    if deterministic or dropout_rate == 0.0:
        return weights
    shape = list(weights.shape)
    # One mask for all examples and heads, as in the original Transformer implementations, is cheaper to draw.
    if broadcast_dropout:  # The same for all examples and heads, as Transformer models do.
        shape[:-2] = [1] * (len(shape) - 2)
    stays = random.bernoulli(draw_key("dot_product_attention", dropout_rng, "dropout"), 1.0 - dropout_rate, shape)
    return weights * (stays.astype(weights.dtype) / jnp.asarray(1.0 - dropout_rate, weights.dtype))


@api_boundary  # here rather than where it is public, so that layers hold the object that pickle finds
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: ArrayLike | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: DTypeLike | None = None,
    precision: PrecisionLike = None,
    module: Module | None = None,
    promote_dtype: Callable = promote_dtype,
    is_causal: bool = False,
) -> Any:
    """Compute attention: for each query, the mean of the values weighted by softmax(query . key / sqrt(depth) + bias).

    Args:
      query: num[*batch, queries, heads, depth].
      key: num[*batch, keys, key heads, depth]; the number of heads is a multiple of the number of key heads.
      value: num[*batch, keys, key heads, depth].
      bias: added to the products; broadcasts to [*batch, heads, queries, keys].
      mask: whether a query attends to a key; broadcasts to the same shape.
      broadcast_dropout: whether to drop the same weights in all examples and heads.
      dropout_rng: the random key of dropout.
      dropout_rate: the fraction of weights to drop.
      deterministic: whether to disable dropout.
      dtype: the dtype of the computation.
      precision: the precision of the products.
      module: the module that sows the weights under the name `attention_weights`; None for none.
      promote_dtype: promotes the operands to one dtype.
      is_causal: whether a query attends only to keys at the same or earlier positions.

    Returns:
      num[*batch, queries, heads, depth].

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> x = jnp.ones((2, 3, 4, 8))
      >>> nnx.dot_product_attention(x, x, x).shape
      (2, 3, 4, 8)

    Source: A. Vaswani et al. (2017), arXiv:1706.03762.
    """
    query, key, value = promote_dtype((query, key, value), dtype=dtype)
    batch = query.shape[:-3]
    if (
        query.ndim < 3
        or key.shape[:-3] != batch
        or value.shape[:-1] != key.shape[:-1]
        or query.shape[-2] % key.shape[-2]
    ):
        raise ShapeError(
            "nnx.dot_product_attention, operands",
            expected="query [*batch, queries, heads, depth], key and value [*batch, keys, key heads, depth], the heads "
            "a multiple of the key heads",
            got=", ".join(str(tuple(x.shape)) for x in (query, key, value)),
            fix="check the order of the dimensions",
        )
    drops = dropout_rate > 0.0 and not deterministic
    if not drops and module is None and precision is None and key.shape[-1] == query.shape[-1]:
        return _attend_without_dropout(query, key, value, bias, mask, is_causal)
    weights = dot_product_attention_weights(
        query,
        key,
        bias,
        mask,
        broadcast_dropout,
        dropout_rng,
        dropout_rate,
        deterministic,
        dtype,
        precision,
        module,
        promote_dtype,
        is_causal,
    )
    if value.shape[-2] != query.shape[-2]:
        value = jnp.repeat(value, query.shape[-2] // value.shape[-2], axis=-2)
    return jnp.einsum("...hqk,...khd->...qhd", weights, value, precision=precision)


def _attend_without_dropout(query: Any, key: Any, value: Any, bias: Any, mask: Any, is_causal: bool) -> Any:
    """Compute attention without dropout as one program, for any number of batch dimensions."""
    batch, size = query.shape[:-3], math.prod(query.shape[:-3])
    joined = lambda x: x if len(batch) == 1 else x.reshape(size, *x.shape[len(batch) :])

    def pairs(x: Any) -> Any:
        x = jnp.asarray(x)
        if len(batch) == 1 and x.ndim == 4:
            return x
        x = x.reshape((1,) * (len(batch) + 3 - x.ndim) + x.shape)
        return joined(jnp.broadcast_to(x, (*batch, *x.shape[-3:])))

    bias, mask = (None if x is None else pairs(x) for x in (bias, mask))
    mask = None if mask is None else mask.astype(bool)  # masks of nnx may have numbers as elements
    out = nn.dot_product_attention(joined(query), joined(key), joined(value), bias, mask, is_causal=is_causal)
    return out if len(batch) == 1 else out.reshape(*batch, *out.shape[1:])


# --- the layer ---


class MultiHeadAttention(Layer):
    """Multi-head attention: projections of queries, keys and values, attention, and a projection of the result.

    Args:
      num_heads: the number of heads.
      in_features: the number of features of the queries.
      qkv_features: the number of features of all heads together; None for `in_features`.
      out_features: the number of output features; None for `in_features`.
      num_kv_heads: the number of heads of keys and values, shared by groups of query heads; None for `num_heads`.
      in_kv_features: the number of features of keys and values; None for `in_features`.
      dtype, param_dtype, precision, kernel_init, bias_init, use_bias, kernel_metadata, bias_metadata: as in `Linear`,
        for the projections of queries, keys and values.
      broadcast_dropout: whether to drop the same weights in all examples and heads.
      dropout_rate: the fraction of weights to drop.
      deterministic: whether to disable dropout; None to decide in each call.
      out_kernel_init, out_bias_init, out_kernel_metadata, out_bias_metadata: the same for the projection of the result.
      attention_fn: computes attention, with the arguments of `dot_product_attention`.
      decode: whether to process one position per call, and to keep keys and values in a cache.
      normalize_qk: whether to normalize queries and keys with `LayerNorm`.
      qkv_promote_dtype, out_promote_dtype, ln_promote_dtype: promotes the operands to one dtype.
      qkv_dot_general, out_dot_general, qkv_dot_general_cls, out_dot_general_cls: as in `LinearGeneral`.
      rngs: random keys, from the streams `params`, and `dropout` if `dropout_rate` is not 0.
      keep_rngs: whether to keep a random stream for dropout, so that calls need none.
      query_ln_scale_metadata, key_ln_scale_metadata: metadata of the scales of the normalizations.

    Raises:
      ArgumentError: the number of features is not a multiple of the number of heads.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.MultiHeadAttention(num_heads=2, in_features=8, decode=False, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((3, 5, 8)), mask=nnx.make_causal_mask(jnp.ones((3, 5)))).shape
      (3, 5, 8)

    Source: A. Vaswani et al. (2017), arXiv:1706.03762.
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        out_features: int | None = None,
        num_kv_heads: int | None = None,
        in_kv_features: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        broadcast_dropout: bool = True,
        dropout_rate: float = 0.0,
        deterministic: bool | None = None,
        precision: PrecisionLike = None,
        kernel_init: Callable = lecun_normal,
        out_kernel_init: Callable | None = None,
        bias_init: Callable = zeros_init,
        out_bias_init: Callable | None = None,
        use_bias: bool = True,
        attention_fn: Callable = dot_product_attention,
        decode: bool | None = None,
        normalize_qk: bool = False,
        qkv_promote_dtype: Callable = promote_dtype,
        out_promote_dtype: Callable = promote_dtype,
        ln_promote_dtype: Callable = promote_dtype,
        qkv_dot_general: Callable | None = None,
        out_dot_general: Callable | None = None,
        qkv_dot_general_cls: Any = None,
        out_dot_general_cls: Any = None,
        rngs: Rngs,
        keep_rngs: bool = True,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        out_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        out_bias_metadata: Mapping[str, Any] = NO_METADATA,
        query_ln_scale_metadata: Mapping[str, Any] = NO_METADATA,
        key_ln_scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        qkv_features = in_features if qkv_features is None else qkv_features
        out_features = in_features if out_features is None else out_features
        in_kv_features = in_features if in_kv_features is None else in_kv_features
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self._store_options(
            locals(),
            "num_heads in_features qkv_features out_features in_kv_features num_kv_heads dtype param_dtype "
            "broadcast_dropout dropout_rate deterministic precision use_bias attention_fn decode normalize_qk "
            "qkv_promote_dtype out_promote_dtype ln_promote_dtype qkv_dot_general out_dot_general qkv_dot_general_cls "
            "out_dot_general_cls",
        )
        self._check()
        self.head_dim = qkv_features // num_heads
        common: dict[str, Any] = dict(
            dtype=dtype, param_dtype=param_dtype, precision=precision, use_bias=use_bias, rngs=rngs
        )

        def projection(features: int, heads: int) -> LinearGeneral:
            return LinearGeneral(
                features,
                (heads, self.head_dim),
                kernel_init=kernel_init,
                bias_init=bias_init,
                promote_dtype=qkv_promote_dtype,
                dot_general=qkv_dot_general,
                dot_general_cls=qkv_dot_general_cls,
                kernel_metadata=kernel_metadata,
                bias_metadata=bias_metadata,
                **common,
            )

        self.query = projection(in_features, num_heads)
        self.key = projection(in_kv_features, num_kv_heads)
        self.value = projection(in_kv_features, num_kv_heads)
        self.query_ln = self.key_ln = None
        if normalize_qk:
            norm: dict[str, Any] = dict(
                use_bias=False, dtype=dtype, param_dtype=param_dtype, promote_dtype=ln_promote_dtype, rngs=rngs
            )
            self.query_ln = LayerNorm(self.head_dim, scale_metadata=query_ln_scale_metadata, **norm)
            self.key_ln = LayerNorm(self.head_dim, scale_metadata=key_ln_scale_metadata, **norm)
        self.out = LinearGeneral(
            (num_heads, self.head_dim),
            out_features,
            axis=(-2, -1),
            kernel_init=out_kernel_init or kernel_init,
            bias_init=out_bias_init or bias_init,
            promote_dtype=out_promote_dtype,
            dot_general=out_dot_general,
            dot_general_cls=out_dot_general_cls,
            kernel_metadata=out_kernel_metadata,
            bias_metadata=out_bias_metadata,
            **common,
        )
        self.rngs = fork_stream("nnx.MultiHeadAttention", rngs, "dropout") if dropout_rate > 0 and keep_rngs else None
        self.cached_key: Cache | None = None
        self.cached_value: Cache | None = None
        self.cache_index: Cache | None = None

    def _check(self) -> None:
        for name, whole, parts in (
            ("qkv_features", self.qkv_features, self.num_heads),
            ("num_heads", self.num_heads, self.num_kv_heads),
        ):
            if whole % parts:
                raise ArgumentError(
                    f"nnx.MultiHeadAttention, argument {name}",
                    expected=f"a multiple of {'num_heads' if name == 'qkv_features' else 'num_kv_heads'}={parts}",
                    got=whole,
                    fix=f"change {name}, such as {name}={parts * max(1, whole // parts)}",
                )

    def __call__(
        self,
        inputs_q: Any,
        inputs_k: Any = None,
        inputs_v: Any = None,
        *,
        mask: ArrayLike | None = None,
        deterministic: bool | None = None,
        rngs: Rngs | RngStream | None = None,
        sow_weights: bool = False,
        decode: bool | None = None,
        is_causal: bool = False,
        out_sharding: ShardingLike | None = None,
        qkv_sharding: Any = None,
        input_positions: Any = None,
    ) -> Any:
        """Compute attention.

        Args:
          inputs_q: num[*batch, queries, in_features].
          inputs_k: num[*batch, keys, in_kv_features]; None for `inputs_q`.
          inputs_v: num[*batch, keys, in_kv_features]; None for `inputs_k`.
          mask: whether a query attends to a key; broadcasts to [*batch, heads, queries, keys].
          deterministic: whether to disable dropout; None for the setting of the layer.
          rngs: random streams for dropout; None to use the layer's.
          sow_weights: whether to sow the weights under the name `attention_weights`.
          decode: whether to process one position with the cache; None for the setting of the layer.
          is_causal: whether a query attends only to keys at the same or earlier positions.
          out_sharding: the sharding of the result.
          qkv_sharding: the sharding of queries, keys and values.
          input_positions: the positions of the queries, for an `attention_fn` with this parameter; None for its
            default, or for the next position when decoding.

        Returns:
          num[*batch, queries, out_features].

        Raises:
          ArgumentError: values without keys, `deterministic` unset with dropout, decoding without a cache, or
            positions for an `attention_fn` without this parameter.
          ShapeError: an input has the wrong number of features, or, when decoding, another shape than the cache.
        """
        if inputs_k is None:
            if inputs_v is not None:
                raise ArgumentError(
                    "nnx.MultiHeadAttention, argument inputs_k",
                    expected="keys for the values",
                    got=None,
                    fix="pass inputs_k as well, the inputs of the keys",
                )
            inputs_k = inputs_q
        inputs_v = inputs_k if inputs_v is None else inputs_v
        query = self.query(inputs_q, out_sharding=qkv_sharding)
        key = self.key(inputs_k, out_sharding=qkv_sharding)
        value = self.value(inputs_v, out_sharding=qkv_sharding)
        if self.query_ln is not None and self.key_ln is not None:
            query, key = self.query_ln(query), self.key_ln(key)
        takes_positions = _takes(self.attention_fn, "input_positions")
        if input_positions is not None and not takes_positions:
            raise ArgumentError(
                "nnx.MultiHeadAttention, argument input_positions",
                expected="None, since attention_fn takes none",
                got=f"shape {np.shape(input_positions)}",
                fix="make it with attention_fn=partial(nnx.dot_product_attention_with_rope, rope=nnx.RoPE())",
            )
        if self.decode if decode is None else decode:
            if takes_positions and input_positions is None and self.cache_index is not None:
                input_positions = jnp.expand_dims(self.cache_index.value, -1)
            key, value, seen = self._update_cache(query, key, value)
            mask = combine_masks(mask, seen)
        drops = self._has_dropout(deterministic)
        dropout_rng = draw_key(self, self.rngs if rngs is None else rngs, "dropout") if drops else None
        options = {"is_causal": is_causal} if is_causal or _takes(self.attention_fn, "is_causal") else {}
        if input_positions is not None:
            options["input_positions"] = input_positions
        x = self.attention_fn(
            query,
            key,
            value,
            mask=mask,
            dropout_rng=dropout_rng,
            dropout_rate=self.dropout_rate,
            broadcast_dropout=self.broadcast_dropout,
            deterministic=not drops,
            dtype=self.dtype,
            precision=self.precision,
            module=self if sow_weights else None,
            **options,
        )
        return self.out(x, out_sharding=out_sharding)

    def _has_dropout(self, deterministic: bool | None) -> bool:
        """Whether a call drops weights."""
        if self.dropout_rate == 0:
            return False
        decided = self.deterministic if deterministic is None else deterministic
        if decided is None:
            raise ArgumentError(
                "nnx.MultiHeadAttention, argument deterministic",
                expected="True or False, since dropout_rate is not 0",
                got=None,
                fix="call model.train() or model.eval(), or pass it to the layer or to the call",
            )
        return not decided

    def _update_cache(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Store one position in the cache; returns all keys, all values, and a mask of the stored positions."""
        if self.cached_key is None or self.cached_value is None or self.cache_index is None:
            raise ArgumentError(
                "nnx.MultiHeadAttention, decoding",
                expected="a cache",
                got="none",
                fix="call layer.init_cache((batch, max_length, in_features)) first",
            )
        *batch, length, heads, depth = self.cached_key.value.shape
        if key.shape != (*batch, 1, heads, depth) or query.shape[:-2] != (*batch, 1):
            raise ShapeError(
                "nnx.MultiHeadAttention, inputs when decoding",
                expected=f"one position of shape {(*batch, 1, self.in_features)}, as the cache was made for",
                got=f"shape {(*query.shape[:-2], self.in_features)}",
                fix="feed one position at a time, or call init_cache with the new shape",
            )
        # Positions behind the index hold zeros or stale values, which the mask excludes.
        index = self.cache_index.value
        start = (*[0] * len(batch), index, 0, 0)
        for cache, new in ((self.cached_key, key), (self.cached_value, value)):
            cache.value = lax.dynamic_update_slice(cache.value, new.astype(cache.value.dtype), start)
        self.cache_index.value = index + 1
        seen = jnp.broadcast_to(jnp.arange(length) <= index, (*batch, 1, 1, length))
        return self.cached_key.value, self.cached_value.value, seen

    def set_view(
        self,
        deterministic: bool | None = None,
        decode: bool | None = None,
        batch_size: int | Sequence[int] | None = None,
        max_length: int | None = None,
    ) -> None:
        """Set the options that `nnx.view` can change.

        Args:
          deterministic: whether to disable dropout.
          decode: whether to process one position per call with the cache.
          batch_size: the number of sequences in a new cache; requires max_length.
          max_length: the maximum length of decoded sequences.
        """
        self._set_options(deterministic=deterministic, decode=decode)
        if batch_size is not None and max_length is not None:
            batch = (batch_size,) if isinstance(batch_size, int) else tuple(batch_size)
            self.init_cache((*batch, max_length, self.in_features))
        elif batch_size is not None or max_length is not None:
            raise ArgumentError(
                "MultiHeadAttention, a view of it",
                expected="batch_size and max_length together, for a cache",
                got=f"batch_size={batch_size} and max_length={max_length}",
                fix="pass both, such as batch_size=8 and max_length=128",
            )

    def init_cache(self, input_shape: Sequence[int], dtype: DTypeLike = np.float32) -> None:
        """Create an empty cache for decoding.

        Args:
          input_shape: (*batch, length, in_features), with the maximum length of decoded sequences.
          dtype: the dtype of the cache.
        """
        shape = (*input_shape[:-1], self.num_kv_heads, self.head_dim)
        self.cached_key = Cache(jnp.zeros(shape, dtype))
        self.cached_value = Cache(jnp.zeros(shape, dtype))
        self.cache_index = Cache(jnp.zeros((), np.int32))


def _takes(fun: Callable, name: str) -> bool:
    return name in _names_of_own if fun is dot_product_attention else name in inspect.signature(fun).parameters


_names_of_own = frozenset(inspect.signature(dot_product_attention).parameters)
