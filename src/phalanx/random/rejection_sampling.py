"""Rejection sampling: loops that draw in rounds until every element has accepted a sample.

The numbers that an element draws depend only on the key, on the round, and on the position of the element in the whole
array. Each device of a mesh can therefore run the loop for its own shard, from the positions of that shard, and stop
as soon as its elements are done, without communication. A generator that can only draw whole arrays (`rbg`) draws the
whole array on each device, of which the device takes its shard.

Builds on `prng_keys`; `continuous_distributions` and `discrete_distributions` declare their loops with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from phalanx import lax
from phalanx.core import (
    ZERO,
    Jaxpr,
    KeyDtype,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    get_aval,
    state,
    threefry_partitionable,
    trace_to_jaxpr,
)
from phalanx.engine import ir, memoize
from phalanx.lax.prng.key_words import random_unwrap_p, random_wrap_p
from phalanx.lax.shape import dim_names
from phalanx.random.prng_implementations import position_counters
from phalanx.random.prng_keys import random_bits_p, split_key
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms import move_mapped_dim, vmap
from phalanx.typing import Array, Shape


class Positions(NamedTuple):
    """Row-major positions of the elements of a shard in the whole array.

    Args:
      high: the high words, uint32[*s] or uint32[].
      low: the low words, uint32[*s].
    """

    high: Array
    low: Array


class SelectedPositions(NamedTuple):
    """Elements selected from an array that can only be drawn as a whole.

    Args:
      whole: the shape of that array.
      low: the row-major positions of the elements in it, uint32[*s].
    """

    whole: tuple
    low: Array


SampleShape: TypeAlias = Shape | Positions | SelectedPositions
"""The elements to draw: a shape, or a part of a larger array."""

_TAKE = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def bits_at(key: Array, width: int, at: SampleShape) -> Array:
    """Draw random bits from a typed key.

    Args:
      key: the key, or an array with a key for each element (see `keys_of_elements`).
      width: the number of bits of each element: 8, 16, 32 or 64.
      at: the shape of the result, or the part of a larger array to draw.
    """
    if key.ndim:
        return random_bits_p(key, width=width, shape=())
    if isinstance(at, Positions):
        return key.dtype.impl.in_context.bits_at(random_unwrap_p(key), width, at)
    if isinstance(at, SelectedPositions):
        whole = lax.reshape(random_bits_p(key, width=width, shape=at.whole), (math.prod(at.whole),))
        return lax.gather(whole, lax.expand_dims(at.low, (at.low.ndim,)), _TAKE, (1,), mode="clip")
    return random_bits_p(key, width=width, shape=at)


def keys_of_elements(key: Array, at: SampleShape) -> Array:
    """A key for each element, as `random.split` makes them; the key itself if its generator has none at positions."""
    split_at = key.dtype.impl.in_context.split_at
    if not isinstance(at, Positions) or split_at is None:
        return key
    return random_wrap_p(split_at(random_unwrap_p(key), at), dtype=key.dtype)


class RejectionLoop(Primitive):
    """Base of the sampling loops: key words[*k, w], positions[*s] twice, parameters[*k, *s] -> samples[*k, *s].

    The positions belong to a shard of an array of the shape `whole`. A subclass defines `draw`; its result has the
    type of the first parameter.
    """

    def draw(self, key: Array, at: SampleShape, *parameters: Array) -> Array:
        """Run the loop for one typed key, drawing the elements `at`."""
        raise NotImplementedError  # each loop defines it

    def sample(self, key: Array, *parameters: Array) -> Array:
        """Apply the primitive to one typed key and parameters that have the shape of the result."""
        whole = get_aval(parameters[0]).shape
        high, low = position_counters(whole)
        # The option is a parameter, since a program is lowered after the block that sets it.
        partitionable = state.context.threefry_partitionable
        params = {"dtype": key.dtype, "whole": whole, "partitionable": partitionable}
        return self(random_unwrap_p(key), high, low, *parameters, **params)

    def abstract_eval(
        self, words: ShapedArray, high: ShapedArray, low: ShapedArray, first: ShapedArray, *rest: ShapedArray, **_: Any
    ) -> ShapedArray:
        shape = (*words.shape[:-1], *low.shape)
        for aval in (first, *rest):
            if aval.shape != shape:
                raise ShapeError(
                    self.name,
                    expected=f"parameters of shape {shape}",
                    got=aval.str_short(),
                    fix=f"broadcast each parameter to {shape} with lax.broadcast_in_dim",
                )
        return first.update(weak_type=False)

    def sharding_rule(
        self, words: ShapedArray, high: ShapedArray, low: ShapedArray, *rest: ShapedArray, **_: Any
    ) -> ShardingRule:
        keys, positions = dim_names(words.ndim - 1, "key "), dim_names(low.ndim)
        each = [*keys, *positions]
        # Examples and positions are parallel factors; the words of a key are not sharded.
        operands = [[*keys, "word"], positions if high.ndim else [], positions, *([each] * len(rest))]
        return ShardingRule(operands, [each], whole=["word"])

    def lower(
        self, ctx: LoweringContext, *operands: ir.Value, dtype: KeyDtype, whole: tuple, partitionable: bool
    ) -> ir.Value:
        return ctx.call(_trace_loop(self, tuple(ctx.avals_in), dtype, partitionable, whole), operands)[0]

    jvp = ZERO

    def batch(self, *args: Any, **params: Any) -> tuple:
        operands, dims = args[: len(args) // 2], args[len(args) // 2 :]
        size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)

        # Positions are counted within one example, so they have no mapped dimension.
        words, high, low, *parameters = operands
        mapped = zip((words, *parameters), (dims[0], *dims[3:]), strict=True)
        front = [move_mapped_dim(x, d, size, 0) for x, d in mapped]
        return self(front[0], high, low, *front[1:], **params), 0


@memoize("random.rejection_loops", 1024)
def _trace_loop(primitive: RejectionLoop, avals: tuple, dtype: KeyDtype, partitionable: bool, whole: tuple) -> Jaxpr:
    """Trace a loop for operands of these types, which are shards of arrays of the shape `whole`.

    Args:
      partitionable: the value of the option `threefry_partitionable`.
    """
    draws_at = dtype.impl.under(partitionable).bits_at is not None  # whether it can draw the bits at given positions

    def draw(words: Array, high: Array, low: Array, *parameters: Array) -> Array:
        if draws_at:
            at: SampleShape = Positions(high, low)
        else:
            at = whole if low.shape == whole else SelectedPositions(whole, low)
        return primitive.draw(random_wrap_p(words, dtype=dtype), at, *parameters)

    # One `vmap` for each dimension of the array of keys; positions are the same for all keys.
    for _ in range(avals[0].ndim - 1):
        draw = vmap(draw, (0, None, None, *([0] * (len(avals) - 3))))
    with threefry_partitionable(partitionable):
        return trace_to_jaxpr(lambda *xs: [draw(*xs)], avals, primitive.name)


def sample_until_accepted(
    key: Array, propose: Callable[..., tuple], num_keys: int, start: Array, is_done: Array
) -> Array:
    """Repeat a proposal until each element has accepted one; the body of a rejection sampler.

    Args:
      key: the typed key; each round splits it into the key of the next round and the keys of its proposals.
      propose: from `num_keys` keys and a mask of the elements that draw, to (acceptances, proposed values), both of the
        shape of `start`.
      num_keys: the number of keys of a proposal.
      start: the values of the elements that never draw.
      is_done: the elements that never draw.

    Returns:
      The accepted values.
    """

    def step(state: tuple) -> tuple:
        key, done, value = state
        key, *keys = split_key(key, 1 + num_keys)
        accepted, proposal = propose(*keys, lax.bitwise_not(done))
        # An element that is done keeps its value: later rounds draw for all elements.
        taken = lax.bitwise_and(accepted, lax.bitwise_not(done))
        return key, lax.bitwise_or(done, accepted), lax.select(taken, proposal, value)

    return lax.while_loop(lambda state: any_element(lax.bitwise_not(state[1])), step, (key, is_done, start))[2]


def any_element(mask: Array) -> Array:
    """Whether any element of a mask is true."""
    return lax.reduce_or(mask, tuple(range(mask.ndim)))


def count_arrivals(
    key: Array,
    waiting_time: Callable[[Array], Array],
    is_in_time: Callable[[Array], Array],
    start: Array,
    *,
    draws_first: bool = False,
) -> Array:
    """Count arrivals before a deadline by adding up random waiting times; the body of the counting samplers.

    Args:
      key: the typed key; each round splits it into the key of the next round and its own.
      waiting_time: from a key to waiting times of the shape of `start`.
      is_in_time: whether a time of arrival still counts.
      start: the time at which each element starts; infinity for the elements that never draw.
      draws_first: whether a round draws with the first of both keys instead of the second.

    Returns:
      The counts, in the dtype of `start`.
    """
    one, zero = lax.full_like(start, 1), lax.full_like(start, 0)

    def step(state: tuple) -> tuple:
        key, time, count = state
        own, after = split_key(key, 2)[:: 1 if draws_first else -1]
        time = lax.add(time, waiting_time(own))
        return after, time, lax.add(count, lax.select(is_in_time(time), one, zero))

    return lax.while_loop(lambda state: any_element(is_in_time(state[1])), step, (key, start, zero))[2]
