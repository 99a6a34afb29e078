"""Conversion between arrays of typed keys and their words: `random_wrap_p` and `random_unwrap_p`.

Both reinterpret a buffer; they compute nothing. `phalanx.random` defines the primitives that use the words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import (
    ZERO,
    DTypeError,
    KeyDtype,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    get_aval,
    physical_aval,
)
from phalanx.engine import Cache, ir
from phalanx.lax.shape import dim_names, move_dim
from phalanx.runtime import Array, ArrayType, LoweringContext, compile_operation, transfer, wrap_buffer
from phalanx.sharding import NamedSharding
from phalanx.typing import PRNGKey

_UINT32 = np.dtype(np.uint32)


def check_keys(where: str, keys: ShapedArray) -> None:
    """Check that operands are typed keys."""
    if not isinstance(keys.dtype, KeyDtype):
        raise DTypeError(
            where, expected="typed keys", got=keys.str_short(), fix="make them with phalanx.random.key or wrap_key_data"
        )


class RandomWrap(Primitive, name="random_wrap"):
    """Convert words to typed keys: uint32[*k, *key_shape] -> key[*k]."""

    takes_keys = True

    def abstract_eval(self, words: ShapedArray, *, dtype: KeyDtype) -> Any:
        rank = len(dtype.key_shape)
        if words.dtype != _UINT32 or words.shape[words.ndim - rank :] != dtype.key_shape:
            raise ShapeError(
                "random.wrap_key_data",
                expected=f"uint32 data whose last dimensions are {dtype.key_shape}, the words of a "
                f"{dtype.impl.name} key",
                got=words.str_short(),
                fix="pass key_data of such keys, or name their generator with impl",
            )
        return ShapedArray(words.shape[: words.ndim - rank], dtype)

    def sharding_rule(self, words: ShapedArray, *, dtype: KeyDtype) -> ShardingRule:
        names = dim_names(words.ndim)
        kept = names[: words.ndim - len(dtype.key_shape)]
        return ShardingRule([names], [kept], whole=names[len(kept) :])

    def lower(self, ctx: LoweringContext, words: ir.Value, *, dtype: KeyDtype) -> Any:
        return words

    jvp = ZERO

    def batch(self, words: Array, b: int, *, dtype: KeyDtype) -> Any:
        return self(move_dim(words, b, 0), dtype=dtype), 0

    def run(self, words: Array, *, dtype: KeyDtype) -> Any:
        if type(words) is not Array:
            sharding, committed = transfer.default_placement()
            words = transfer.put(words, sharding, committed=committed)
        return _reinterpret(self, words, self.abstract_eval(words.aval, dtype=dtype), dtype=dtype)


class RandomUnwrap(Primitive, name="random_unwrap"):
    """Convert typed keys to their words: key[*k] -> uint32[*k, *key_shape]."""

    takes_keys = True

    def abstract_eval(self, keys: ShapedArray) -> Any:
        check_keys("random.key_data", keys)
        return physical_aval(keys)

    def sharding_rule(self, keys: ShapedArray) -> ShardingRule:
        names, words = dim_names(keys.ndim), dim_names(len(keys.dtype.key_shape), "word")
        return ShardingRule([names], [[*names, *words]], whole=words)

    def lower(self, ctx: LoweringContext, keys: PRNGKey) -> Any:
        return keys

    jvp = ZERO

    def batch(self, keys: PRNGKey, b: int) -> Any:
        return self(keys), b

    def run(self, keys: PRNGKey) -> Any:
        return _reinterpret(self, keys, self.abstract_eval(get_aval(keys)))


def _reinterpret(primitive: Primitive, x: Array, aval: ShapedArray, **params: Any) -> Array:
    """Reinterpret an array as another type over the same buffer; by a compiled program if it is sharded."""
    held = x._type
    # A spec without entries replicates arrays of every rank.
    if len(held.sharding.device_set) == 1 or (isinstance(held.sharding, NamedSharding) and not held.sharding.spec):
        return wrap_buffer(x._live(), ArrayType(aval, held.sharding, held.committed))
    key = (primitive, held, *params.values())
    if (call := _calls.get(key)) is None:
        call = _calls[key] = compile_operation(primitive, (held,), params)
    return call((x,))[0]


_calls: Cache[Any, Any] = Cache("random.key_conversions", 1024)


random_wrap_p = RandomWrap()


random_unwrap_p = RandomUnwrap()
