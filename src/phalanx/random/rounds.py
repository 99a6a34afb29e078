"""Numbers drawn in rounds, until every element has accepted one: loops that each device runs for its own elements.

What an element draws depends on the key, on the round and on the element's position in the whole array. So a part of
the array is drawn from the positions of that part, and a device that has a part stops when its own elements are done,
without asking the others. Where a generator draws whole arrays only (`rbg`), each device draws the whole, as it does
for any of its arrays, and takes its part. Builds on `primitives`; `gamma` and `discrete` declare their loops with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx import lax
from phalanx.core.aval import aval_of
from phalanx.core.dtypes import KeyDtype
from phalanx.core.errors import ShapeError
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.core.trace import stage
from phalanx.lax.broadcast import dim_names
from phalanx.random.generators import counters
from phalanx.random.primitives import random_bits_p, random_unwrap_p, random_wrap_p
from phalanx.symbolic import is_constant_shape
from phalanx.transforms import vmap
from phalanx.transforms.batching import to_dim


class Positions(NamedTuple):
    """Where elements stand in an array of which they are a part, row by row: two words, uint32[*s] or uint32[]."""

    high: Any
    low: Any


class Taken(NamedTuple):
    """The part of an array of the shape `whole` at places `low`, row by row, uint32[*s]."""

    whole: tuple
    low: Any


_TAKE = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def bits_at(key: Any, width: int, at: Any) -> Any:
    """Random bits from a typed key.

    Args:
      key: the key.
      width: how many bits each, 8 to 64.
      at: the shape of the result, or the `Positions` of a part of a larger one, or what is `Taken` from it.
    """
    if isinstance(at, Positions):
        return key.dtype.impl.bits_at(random_unwrap_p(key), width, at)
    if isinstance(at, Taken):
        drawn = lax.reshape(random_bits_p(key, width=width, shape=at.whole), (math.prod(at.whole),))
        return lax.gather(drawn, lax.expand_dims(at.low, (at.low.ndim,)), _TAKE, (1,), mode="clip")
    return random_bits_p(key, width=width, shape=at)


class Rounds(Primitive):
    """What a loop of draws ends with: words[*k, w], positions[*s] twice, any[*k, *s] each -> any[*k, *s].

    The positions are those of a part of an array of the shape `whole`.

    A subclass writes `draw`. Its result has the type of the first parameter.
    """

    def draw(self, key: Any, at: Any, *parameters: Any) -> Any:
        """The result for one key; `at` is handed to whatever draws."""
        raise NotImplementedError  # each loop defines it

    def of(self, key: Any, *parameters: Any) -> Any:
        """The result for one typed key."""
        whole = aval_of(parameters[0]).shape
        high, low = counters(whole)
        return self(random_unwrap_p(key), high, low, *parameters, dtype=key.dtype, whole=whole)

    def by_pieces(self, words: Any, high: Any, *avals: Any, dtype: KeyDtype, whole: tuple) -> bool:
        return dtype.impl.bits_at is not None or (is_constant_shape(whole) and not high.ndim)

    def result(self, words: Any, high: Any, low: Any, first: Any, *rest: Any, dtype: KeyDtype, whole: tuple) -> Any:
        shape = (*words.shape[:-1], *low.shape)
        for aval in (first, *rest):
            if aval.shape != shape:
                raise ShapeError(
                    self.name, expected=f"parameters of shape {shape}", got=aval.str_short(), mend="broadcast them"
                )
        return first.update(weak_type=False)

    def roles(self, words: Any, high: Any, low: Any, *rest: Any, dtype: KeyDtype, whole: tuple) -> Roles:
        keys, places = dim_names(words.ndim - 1, "key "), dim_names(low.ndim)
        each = [*keys, *places]
        operands = [[*keys, "word"], places if high.ndim else [], places, *([each] * len(rest))]
        return Roles(operands, [each], whole=["word"])

    def lower(self, ctx: Any, *operands: Any, dtype: KeyDtype, whole: tuple) -> Any:
        return ctx.call(_program(self, tuple(ctx.avals_in), dtype, whole), operands)[0]

    jvp = ZERO

    def batch(self, *args: Any, dtype: KeyDtype, whole: tuple) -> Any:
        operands, dims = args[: len(args) // 2], args[len(args) // 2 :]
        size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)

        def in_front(xs: Sequence, ds: Sequence) -> list:
            return [to_dim(x, d, size, 0) for x, d in zip(xs, ds, strict=True)]

        words, high, low, *parameters = operands
        front = in_front([words, *parameters], [dims[0], *dims[3:]])
        return self(front[0], high, low, *front[1:], dtype=dtype, whole=whole), 0


@functools.lru_cache(maxsize=1024)
def _program(primitive: Rounds, avals: tuple, dtype: KeyDtype, whole: tuple) -> Jaxpr:
    """The loop for operands of these types, which are parts of arrays of the shape `whole`."""

    def draw(words: Any, high: Any, low: Any, *parameters: Any) -> Any:
        if dtype.impl.bits_at is not None:
            at: Any = Positions(high, low)
        else:
            at = whole if low.shape == whole else Taken(whole, low)
        return primitive.draw(random_wrap_p(words, dtype=dtype), at, *parameters)

    for _ in range(avals[0].ndim - 1):
        draw = vmap(draw, (0, None, None, *([0] * (len(avals) - 3))))
    return stage(lambda *xs: [draw(*xs)], avals, primitive.name)
