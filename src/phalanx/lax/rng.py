"""Random bits from the compiler's own generators: `rng_bit_generator` and `rng_uniform`.

Builds on the primitive core; called by the `rbg` keys of `phalanx.random`. The generators' values depend on the
backend: where they must not, use threefry keys.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, ShapeError
from phalanx.core.primitive import ZERO, Primitive, Roles, Undefined
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import dim_names, move_dim
from phalanx.lax.creation import full
from phalanx.lax.explicit import placed
from phalanx.runtime import dynamic


class RandomAlgorithm(enum.IntEnum):
    """The generators of the compiler: its default, Threefry, or Philox.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> key = jnp.zeros(4, "uint32")
      >>> lax.rng_bit_generator(key, (3,), algorithm=RandomAlgorithm.RNG_THREE_FRY)[1].shape
      (3,)
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


_NAMES = {0: "DEFAULT", 1: "THREE_FRY", 2: "PHILOX"}


class RngBitGenerator(Primitive, name="rng_bit_generator", multiple=True):
    """The next state of each generator, and an array of random bits from it: key[*k, w] -> key[*k, w], bits[*k, *s]."""

    def by_pieces(self, key, **_):
        return key.ndim > 1

    def result(self, key, *, shape, dtype, algorithm):
        if (key.shape[-1:], key.dtype) not in _KEYS:
            raise DTypeError(
                "lax.rng_bit_generator key",
                expected="uint32[4] or uint64[2]",
                got=key.str_short(),
                mend="concatenate or bitcast the key's words",
            )
        if not dtypes.issubdtype(dtype, np.unsignedinteger):
            raise DTypeError(
                "lax.rng_bit_generator dtype",
                expected="an unsigned integer type",
                got=dtypes.short_name(dtype),
                mend="convert the bits afterwards",
            )
        return [key.update(weak_type=False), ShapedArray((*key.shape[:-1], *shape), dtype)]

    def roles(self, key, *, shape, dtype, algorithm):
        keys, bits = dim_names(key.ndim - 1, "key "), dim_names(len(shape), "bits ")
        return Roles([[*keys, "word"]], [[*keys, "word"], [*keys, *bits]], whole={"word", *bits})

    def lower(self, ctx, key, *, shape, dtype, algorithm):
        if ctx.avals_in[0].ndim > 1:
            return ctx.inline(self._each, key, shape=shape, dtype=dtype, algorithm=algorithm)
        (aval,) = ctx.avals_in
        words = ShapedArray((2,), np.dtype("uint64"))
        if aval.dtype.itemsize == 4:
            pairs = ctx.type(ShapedArray((2, 2), aval.dtype))
            key = hlo.bitcast_convert(ctx.type(words), hlo.reshape(pairs, key))
        bits_aval = ctx.avals_out[1]
        # Narrow bits are cut from 32: the generators make no narrower ones on every backend.
        wide = bits_aval if bits_aval.dtype.itemsize >= 4 else bits_aval.update(dtype=np.dtype("uint32"))
        name = hlo.RngAlgorithmAttr.get(_NAMES[algorithm])
        if wide.is_symbolic:
            sizes = dynamic.sizes(ctx, wide.shape)
            target = "stablehlo.dynamic_rng_bit_generator"
            state, bits = dynamic.custom_call(ctx, target, [key, sizes], [words, wide], {"rng_algorithm": name})
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

    def _each(self, keys, *, shape, dtype, algorithm):
        """Each has its own generator, and the compiler's runs one at a time."""
        from phalanx.lax.shape import concatenate, reshape
        from phalanx.lax.slicing import slice_in_dim

        *sizes, words = np.shape(keys)
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
    """Numbers drawn uniformly from [low, high), from a state that the backend keeps to itself."""

    def result(self, low, high, *, shape):
        if low.dtype != high.dtype or low.shape or high.shape:
            raise ShapeError(
                "lax.rng_uniform bounds",
                expected="two scalars of one dtype",
                got=f"{low.str_short()} and {high.str_short()}",
                mend="scale the result instead",
            )
        return ShapedArray(shape, low.dtype)

    def roles(self, low, high, *, shape):
        names = dim_names(len(shape))
        return Roles([[], []], [names], whole=names)

    def lower(self, ctx, low, high, *, shape):
        sizes = dynamic.sizes(ctx, shape)
        attributes = {"rng_distribution": hlo.RngDistributionAttr.get("UNIFORM")}
        return ctx.op(hlo.RngOp, low, high, sizes, **attributes)

    jvp = Undefined("random numbers have no derivative here; draw from [0, 1) and scale, or use phalanx.random.uniform")
    batch = Undefined("the backend keeps one generator; use phalanx.random.uniform, which takes a key for each example")


rng_uniform_p = RngUniform()


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> list:
    """Random bits from the compiler's generator.

    Args:
      key: the state, uint32[4] or uint64[2].
      shape: the shape of the bits.
      dtype: an unsigned integer type.
      algorithm: the generator; what the default is depends on the backend.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      The next state, and the bits.

    Raises:
      DTypeError: the key or the dtype is none of these.

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
    return [state, placed(bits, out_sharding, "lax.rng_bit_generator, out_sharding")]


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Uniform random numbers from a state that the backend keeps: other ones at each run.

    Args:
      a, b: the bounds, scalars of one dtype.
      shape: the shape of the result.

    Returns:
      Numbers in [a, b).

    Raises:
      ShapeError: the bounds are no scalars of one dtype.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.rng_uniform(np.float32(0), np.float32(1), (3,)).shape
      (3,)
    """
    a_dtype = aval_of(a).dtype
    if type(b) in (int, float):
        b = a_dtype.type(b)
    if type(a) in (int, float):
        a = aval_of(b).dtype.type(a)
    return rng_uniform_p(a, b, shape=tuple(shape))
