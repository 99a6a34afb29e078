"""Random bits from the generators of XLA: `rng_bit_generator` and `rng_uniform`.

The values depend on the backend; use threefry keys for reproducible values. Called by the `rbg` keys of
`phalanx.random`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ZERO, DTypeError, Primitive, ShapedArray, ShapeError, ShardingRule, Undefined, dtypes, get_aval
from phalanx.engine.mlir import hlo
from phalanx.lax.control_flow.scan import map as map_elements
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.shape import dim_names, move_dim, reshape
from phalanx.lax.shape.concatenate import concatenate
from phalanx.lax.shape.iota_and_full import full
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.runtime import dynamic_shapes
from phalanx.symbolic import is_symbolic
from phalanx.typing import ArrayLike, DTypeLike, PRNGKey, ShardingLike


class RandomAlgorithm(enum.IntEnum):
    """The generators of XLA: its default, Threefry, or Philox.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> key = jnp.zeros(4, "uint32")
      >>> lax.rng_bit_generator(key, (3,), algorithm=RandomAlgorithm.RNG_THREE_FRY)[1].shape
      (3,)
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class RngBitGenerator(Primitive, name="rng_bit_generator", multiple=True):
    """Return the next state of each generator, and random bits: key[*k, w] -> key[*k, w], bits[*k, *s]."""

    def abstract_eval(self, key, *, shape, dtype, algorithm):
        if (key.shape[-1:], key.dtype) not in _KEYS:
            raise DTypeError(
                "lax.rng_bit_generator key",
                expected="uint32[4] or uint64[2]",
                got=key.str_short(),
                fix="concatenate or bitcast the words of the key to this type",
            )
        if not dtypes.issubdtype(dtype, np.unsignedinteger):
            raise DTypeError(
                "lax.rng_bit_generator dtype",
                expected="an unsigned integer type",
                got=dtypes.short_name(dtype),
                fix="pass an unsigned dtype such as 'uint32', and convert the bits",
            )
        return [key.update(weak_type=False), ShapedArray((*key.shape[:-1], *shape), dtype)]

    def sharding_rule(self, key, *, shape, dtype, algorithm):
        keys, bits = dim_names(key.ndim - 1, "key "), dim_names(len(shape), "bits ")
        return ShardingRule([[*keys, "word"]], [[*keys, "word"], [*keys, *bits]], whole={"word", *bits})

    def lower(self, ctx, key, *, shape, dtype, algorithm):
        if ctx.avals_in[0].ndim > 1:
            return ctx.inline(self._generate_each, key, shape=shape, dtype=dtype, algorithm=algorithm)
        (aval,) = ctx.avals_in
        # StableHLO's state is uint64[2]; a uint32[4] key is converted to it and back.
        words = ShapedArray((2,), np.dtype("uint64"))
        if aval.dtype.itemsize == 4:
            pairs = ctx.type(ShapedArray((2, 2), aval.dtype))
            key = hlo.bitcast_convert(ctx.type(words), hlo.reshape(pairs, key))
        bits_aval = ctx.avals_out[1]
        # Not every backend generates bits narrower than 32, so that narrow ones are truncated.
        wide = bits_aval if bits_aval.dtype.itemsize >= 4 else bits_aval.update(dtype=np.dtype("uint32"))
        name = hlo.RngAlgorithmAttr.get(RandomAlgorithm(algorithm).name.removeprefix("RNG_"))
        # A symbolic shape is an operand of a custom call, which shape refinement replaces.
        if wide.is_symbolic:
            state, bits = dynamic_shapes.custom_call(
                ctx,
                "stablehlo.dynamic_rng_bit_generator",
                [key, dynamic_shapes.sizes(ctx, wide.shape)],
                [words, wide],
                {"rng_algorithm": name},
            )
        else:
            state, bits = hlo.rng_bit_generator(ctx.type(words), ctx.type(wide), name, key)
        if aval.dtype.itemsize == 4:
            pairs = ctx.type(ShapedArray((2, 2), aval.dtype))
            state = hlo.reshape(ctx.type(aval), hlo.bitcast_convert(pairs, state))
        if wide is not bits_aval:
            bits = hlo.convert(ctx.type(bits_aval), bits)
        return [state, bits]

    jvp = ZERO

    def batch(self, key, b, **params):
        return self(move_dim(key, b, 0), **params), [0, 0]

    def _generate_each(self, keys, *, shape, dtype, algorithm):
        """Run the generator for each key in turn: StableHLO's operation has a single state."""
        # The batch of keys is unrolled: a loop would run the generators one after the other as well.
        *sizes, words = np.shape(keys)
        if any(map(is_symbolic, sizes)):
            keys = reshape(keys, (math.prod(sizes), words))
            states, bits = map_elements(lambda key: self(key, shape=shape, dtype=dtype, algorithm=algorithm), keys)
            return [reshape(states, (*sizes, words)), reshape(bits, (*sizes, *shape))]
        drawn = []
        for i in range(math.prod(sizes)):
            key = reshape(slice_in_dim(reshape(keys, (math.prod(sizes), words)), i, i + 1), (words,))
            state, bits = self(key, shape=shape, dtype=dtype, algorithm=algorithm)
            drawn.append((reshape(state, (1, words)), reshape(bits, (1, *shape))))
        if not drawn:
            return [keys, full((*sizes, *shape), 0, dtype)]
        states, bits = (concatenate(parts, 0) for parts in zip(*drawn, strict=True))
        return [reshape(states, (*sizes, words)), reshape(bits, (*sizes, *shape))]


_KEYS = {((4,), np.dtype("uint32")), ((2,), np.dtype("uint64"))}

rng_bit_generator_p = RngBitGenerator()


class RngUniform(Primitive, name="rng_uniform"):
    """Draw uniform numbers in [low, high) from the hidden state of the backend."""

    def abstract_eval(self, low, high, *, shape):
        if low.dtype != high.dtype or low.shape or high.shape:
            raise ShapeError(
                "lax.rng_uniform bounds",
                expected="two scalars of one dtype",
                got=f"{low.str_short()} and {high.str_short()}",
                fix="pass two scalars of one dtype, and scale the result to arrays of bounds",
            )
        return ShapedArray(shape, low.dtype)

    def sharding_rule(self, low, high, *, shape):
        names = dim_names(len(shape))
        return ShardingRule([[], []], [names], whole=names)

    def lower(self, ctx, low, high, *, shape):
        uniform = hlo.RngDistributionAttr.get("UNIFORM")
        return ctx.op(hlo.RngOp, low, high, dynamic_shapes.sizes(ctx, shape), rng_distribution=uniform)

    jvp = Undefined("rng_uniform has no derivative; draw from [0, 1) and scale, or use phalanx.random.uniform")
    batch = Undefined("the backend has a single generator; use phalanx.random.uniform, with a key for each example")


rng_uniform_p = RngUniform()


def rng_bit_generator(
    key: PRNGKey,
    shape: Sequence[int],
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: ShardingLike | None = None,
) -> list:
    """Generate random bits by a generator of XLA.

    Args:
      key: the state, uint32[4] or uint64[2].
      shape: the shape of the bits.
      dtype: an unsigned integer type.
      algorithm: the generator; the default depends on the backend.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      The next state, and the bits.

    Raises:
      DTypeError: the key or the dtype is of another type.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> state, bits = lax.rng_bit_generator(np.zeros(4, np.uint32), (3,))
      >>> state.shape, bits.shape
      ((4,), (3,))
    """
    state, bits = rng_bit_generator_p(
        key, shape=tuple(shape), dtype=dtypes.canonicalize_dtype(dtype), algorithm=int(algorithm)
    )
    return [state, apply_out_sharding(bits, out_sharding, "lax.rng_bit_generator, out_sharding")]


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Any:
    """Draw uniform random numbers from the hidden state of the backend, different in each call.

    Args:
      a, b: the bounds, scalars of one dtype.
      shape: the shape of the result.

    Returns:
      Numbers in [a, b).

    Raises:
      ShapeError: the bounds are not scalars of one dtype.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.rng_uniform(np.float32(0), np.float32(1), (3,)).shape
      (3,)
    """
    # A Python bound takes the dtype of the other bound.
    if type(b) in (int, float):
        b = get_aval(a).dtype.type(b)
    if type(a) in (int, float):
        a = get_aval(b).dtype.type(a)
    return rng_uniform_p(a, b, shape=tuple(shape))
