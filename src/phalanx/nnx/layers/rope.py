"""Rotary position embeddings: queries and keys are rotated by their positions, so that products depend on distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ShapeError
from phalanx.nnx.layers.multi_head_attention import dot_product_attention
from phalanx.nnx.layers.parameter_init import Layer
from phalanx.nnx.variable import Variable
from phalanx.typing import ArrayLike


class RoPE(Layer):
    """Rotate each pair of features (i, i + size/2) by the angle position * theta^(-2 i / size).

    Args:
      theta: the base of the angles; the slowest pair is rotated by about 1 / theta per position.
      embedding_size: the number of features, to precompute a table; None to compute the angles in each call.
      max_seq_len: the number of positions in the table; required with `embedding_size`.

    Raises:
      ArgumentError: one of `embedding_size` and `max_seq_len` is missing, or the size is odd or below 2.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.RoPE()(jnp.array([[1.0, 0.0], [1.0, 0.0]])).tolist()
      [[1.0, 0.0], [0.5403..., 0.8414...]]

    Source: J. Su et al. (2021), arXiv:2104.09864.
    """

    def __init__(self, theta: float = 10_000.0, embedding_size: int | None = None, max_seq_len: int | None = None):
        self.theta = theta
        self.cached_sin: Variable | None = None
        self.cached_cos: Variable | None = None
        if (embedding_size is None) != (max_seq_len is None):
            raise ArgumentError(
                "nnx.RoPE, arguments embedding_size and max_seq_len",
                expected="both, for a table, or neither",
                got=f"{embedding_size} and {max_seq_len}",
                fix="give the other, too",
            )
        if embedding_size is not None:
            sin, cos = self._compute_angles(np.arange(max_seq_len), embedding_size)
            self.cached_sin, self.cached_cos = Variable(jnp.asarray(sin)), Variable(jnp.asarray(cos))

    def _compute_angles(self, positions: Any, size: int) -> tuple[Any, Any]:
        """Sines and cosines: float32[*positions, size / 2] each."""
        if size < 2 or size % 2:
            raise ArgumentError(
                "nnx.RoPE, number of features",
                expected="an even number of them, to turn in pairs",
                got=size,
                fix="add one, or turn a part of the features",
            )
        # Computed in float64 and rounded once.
        speed = np.asarray(self.theta ** (-np.arange(0, size, 2) / size), np.float32)
        angles = positions.astype(np.float32)[..., None] * speed
        xp = np if isinstance(angles, np.ndarray) else jnp
        return xp.sin(angles), xp.cos(angles)

    def __call__(self, x: ArrayLike, input_positions: Any = None) -> Any:
        """Rotate the features.

        Args:
          x: real[*batch, length, size].
          input_positions: the positions, broadcastable to int[*batch, length]; None for 0, 1, 2, ...

        Returns:
          The rotated features, of the dtype that `x` and float32 promote to.

        Raises:
          ArgumentError: `size` is odd.
          ShapeError: the shapes of `x` and of the table or of the positions do not match.
        """
        x = jnp.asarray(x)
        if x.ndim < 2:
            raise ShapeError(
                "nnx.RoPE, argument x",
                expected="at least 2 dimensions, length and features",
                got=f"shape {x.shape}",
                fix="add a dimension for the position",
            )
        length, size = x.shape[-2:]
        if self.cached_sin is None or self.cached_cos is None or input_positions is not None:
            positions = jnp.arange(length) if input_positions is None else self._fit(input_positions, x.shape[:-1])
            sin, cos = self._compute_angles(positions, size)
        else:
            longest, half = self.cached_sin.value.shape
            if length > longest or size != 2 * half:
                raise ShapeError(
                    "nnx.RoPE, argument x",
                    expected=f"at most {longest} positions of {2 * half} features, as in the table",
                    got=f"shape {x.shape}",
                    fix="make a larger table, or none: nnx.RoPE(theta)",
                )
            sin, cos = self.cached_sin.value[:length], self.cached_cos.value[:length]
        # Pairs are (i, i + size/2), not neighboring features: the rotation is then two elementwise products of halves.
        left, right = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def _fit(self, positions: Any, shape: tuple) -> Any:
        positions = jnp.asarray(positions)
        short = len(shape) - positions.ndim
        if short < 0 or any(n not in (1, m) for n, m in zip(positions.shape, shape[short:], strict=True)):
            raise ShapeError(
                "nnx.RoPE, argument input_positions",
                expected=f"a shape that broadcasts to {shape}",
                got=positions.shape,
                fix="give one position for each row of x",
            )
        return positions


def dot_product_attention_with_rope(
    query: Any, key: Any, value: Any, *, rope: RoPE, input_positions: Any = None, **kwargs: Any
) -> Any:
    """Compute attention of rotated queries and keys.

    To use it as the `attention_fn` of `MultiHeadAttention`, bind `rope` with `functools.partial`. The cache of a
    decoding layer then contains keys without rotation, and the layer passes the position of the query.

    Args:
      query: num[*batch, queries, heads, depth].
      key: num[*batch, keys, key heads, depth].
      value: num[*batch, keys, key heads, depth].
      rope: the rotation.
      input_positions: the positions of the queries, broadcastable to int[*batch, queries], and of the keys if there are
        as many; None for 0, 1, 2, ...
      **kwargs: as in `dot_product_attention`.

    Returns:
      num[*batch, queries, heads, depth].

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> x = jnp.ones((2, 3, 4, 8))
      >>> nnx.dot_product_attention_with_rope(x, x, x, rope=nnx.RoPE(), is_causal=True).shape
      (2, 3, 4, 8)
    """

    def turn(x: Any, positions: Any) -> Any:
        if positions is not None:
            positions = jnp.expand_dims(jnp.asarray(positions), -2)  # the same for all heads
        return jnp.swapaxes(rope(jnp.swapaxes(x, -2, -3), positions), -2, -3)

    own = input_positions if key.shape[-3] == query.shape[-3] else None
    return dot_product_attention(turn(query, input_positions), turn(key, own), value, **kwargs)
