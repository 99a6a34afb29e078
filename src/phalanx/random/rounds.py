"""Numbers drawn in rounds, until every element has accepted one: loops that each device runs for its own elements.

What an element draws depends on the key, on the round and on the element's position in the whole array. So a part of
the array is drawn from the positions of that part, and a device that has a part stops when its own elements are done,
without asking the others. Builds on `primitives`; `gamma` and `discrete` declare their loops with it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core.aval import aval_of
from phalanx.core.dtypes import KeyDtype
from phalanx.core.errors import ShapeError
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.core.trace import stage
from phalanx.lax.broadcast import dim_names
from phalanx.random.generators import counters
from phalanx.random.primitives import random_bits_p, random_unwrap_p, random_wrap_p
from phalanx.transforms import vmap
from phalanx.transforms.batching import to_dim


class Positions(NamedTuple):
    """Where elements stand in an array of which they are a part, row by row: two words, uint32[*s] or uint32[]."""

    high: Any
    low: Any


def bits_at(key: Any, width: int, at: Any) -> Any:
    """Random bits from a typed key.

    Args:
      key: the key.
      width: how many bits each, 8 to 64.
      at: the shape of the result, or the `Positions` of a part of a larger one.
    """
    if isinstance(at, Positions):
        return key.dtype.impl.bits_at(random_unwrap_p(key), width, at)
    return random_bits_p(key, width=width, shape=at)


class Rounds(Primitive):
    """What a loop of draws ends with: words[*k, w], positions[*s] twice, any[*k, *s] each -> any[*k, *s].

    A subclass writes `draw`. Its result has the type of the first parameter.
    """

    def draw(self, key: Any, at: Any, *parameters: Any) -> Any:
        """The result for one key; `at` is handed to whatever draws."""
        raise NotImplementedError  # each loop defines it

    def of(self, key: Any, *parameters: Any) -> Any:
        """The result for one typed key."""
        high, low = counters(aval_of(parameters[0]).shape)
        return self(random_unwrap_p(key), high, low, *parameters, dtype=key.dtype)

    def by_pieces(self, words: Any, *avals: Any, dtype: KeyDtype) -> bool:
        return dtype.impl.bits_at is not None

    def result(self, words: Any, high: Any, low: Any, first: Any, *rest: Any, dtype: KeyDtype) -> Any:
        shape = (*words.shape[:-1], *low.shape)
        for aval in (first, *rest):
            if aval.shape != shape:
                raise ShapeError(
                    self.name, expected=f"parameters of shape {shape}", got=aval.str_short(), mend="broadcast them"
                )
        return first.update(weak_type=False)

    def roles(self, words: Any, high: Any, low: Any, *rest: Any, dtype: KeyDtype) -> Roles:
        keys, places = dim_names(words.ndim - 1, "key "), dim_names(low.ndim)
        each = [*keys, *places]
        operands = [[*keys, "word"], places if high.ndim else [], places, *([each] * len(rest))]
        return Roles(operands, [each], whole=["word"])

    def lower(self, ctx: Any, *operands: Any, dtype: KeyDtype) -> Any:
        return ctx.call(_program(self, tuple(ctx.avals_in), dtype), operands)[0]

    jvp = ZERO

    def batch(self, *args: Any, dtype: KeyDtype) -> Any:
        operands, dims = args[: len(args) // 2], args[len(args) // 2 :]
        size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)

        def in_front(xs: Sequence, ds: Sequence) -> list:
            return [to_dim(x, d, size, 0) for x, d in zip(xs, ds, strict=True)]

        words, high, low, *parameters = operands
        front = in_front([words, *parameters], [dims[0], *dims[3:]])
        return self(front[0], high, low, *front[1:], dtype=dtype), 0


@functools.lru_cache(maxsize=1024)
def _program(primitive: Rounds, avals: tuple, dtype: KeyDtype) -> Jaxpr:
    """The loop for operands of these types."""

    def draw(words: Any, high: Any, low: Any, *parameters: Any) -> Any:
        at = Positions(high, low) if dtype.impl.bits_at is not None else low.shape
        return primitive.draw(random_wrap_p(words, dtype=dtype), at, *parameters)

    for _ in range(avals[0].ndim - 1):
        draw = vmap(draw, (0, None, None, *([0] * (len(avals) - 3))))
    return stage(lambda *xs: [draw(*xs)], avals, primitive.name)
