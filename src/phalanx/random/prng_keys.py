"""Random keys: the public functions `key`, `split`, `fold_in`, `bits` and conversions, and the primitives they bind.

A typed key is an array with a key dtype, a raw key an array of uint32 words; a function returns the kind it was given.
A primitive acts on each key of an array. It is lowered to a function that is emitted once for each type, so that a
model that draws many arrays of one shape contains the generator once. Builds on `prng_implementations`; each
distribution checks its key by `single_key`.
"""

from __future__ import annotations

import warnings
from typing import Any, NewType

import numpy as np

from phalanx import lax
from phalanx.core import (
    ZERO,
    ArgumentError,
    ArgumentTypeError,
    KeyDtype,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    dtypes,
    get_aval,
    physical_aval,
    state,
    threefry_partitionable,
    trace_to_jaxpr,
)
from phalanx.engine.cache import memoize
from phalanx.lax.prng.key_words import check_keys, random_unwrap_p, random_wrap_p
from phalanx.lax.shape import dim_names
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.random.prng_implementations import Generator, find_generator
from phalanx.runtime.array import Array
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_symbolic
from phalanx.transforms import move_mapped_dim, vmap
from phalanx.typing import ArrayLike, DTypeLike, PRNGKey as KeyLike, Shape, ShardingLike

Key = NewType("Key", Array)  # for annotations: an array of keys
_UINT32 = np.dtype(np.uint32)


@memoize("random.generator_programs", 4096)
def _program(primitive: KeyPrimitive, avals: tuple, params: tuple, partitionable: bool) -> Any:
    """Trace the function that a primitive computes on the words of its operands, under `threefry_partitionable`."""
    # Keys are lowered as arrays of words with hidden last dimensions; the function of one key is mapped over all keys.
    with threefry_partitionable(partitionable):
        fun = primitive.on_words(*avals, **dict(params))
        for _ in range(avals[0].ndim):
            fun = vmap(fun)
        return trace_to_jaxpr(lambda *xs: [fun(*xs)], [physical_aval(a) for a in avals], primitive.name)


class KeyPrimitive(Primitive):
    """Base of the primitives that act on each key; a subclass defines `on_words`, a function of one key."""

    takes_keys = True
    consumes_keys = True

    def on_words(self, *avals: Any, **params: Any) -> Any:
        """Return the function of the words of one element of each operand."""
        raise NotImplementedError

    def lower(self, ctx: LoweringContext, *operands: Any, partitionable: bool = True, **params: Any) -> Any:
        return ctx.call(_program(self, tuple(ctx.avals_in), tuple(params.items()), partitionable), operands)[0]

    def sharding_rule(self, *avals: ShapedArray, shape: tuple = (), **params: Any) -> ShardingRule:
        ndim = avals[0].ndim
        names = dim_names(ndim + len(shape))
        # Keys are independent of each other; what is made from one key is not split.
        return ShardingRule([names[:ndim]] * len(avals), [names], whole=names[ndim:])

    jvp = ZERO

    def batch(self, *args: Any, **params: Any) -> Any:
        # All operands have the same leading dimensions, which map elementwise: the new one is put in front.
        operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
        if len(operands) == 1:
            return self(*operands, **params), mapped[0]
        size = next(x.shape[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        front = [move_mapped_dim(x, d, size, 0) for x, d in zip(operands, mapped, strict=True)]
        return self(*front, **params), 0


class RandomSeed(KeyPrimitive, name="random_seed"):
    """Make keys from integer seeds: int[*s] -> key[*s]."""

    def abstract_eval(self, seeds: ShapedArray, *, dtype: KeyDtype) -> Any:
        if not dtypes.issubdtype(seeds.dtype, np.integer):
            raise ArgumentTypeError(
                "random.key seed",
                expected="an integer",
                got=seeds.str_short(),
                fix="pass an int or an integer array of rank 0",
            )
        return ShapedArray(seeds.shape, dtype)

    def on_words(self, seeds: ShapedArray, *, dtype: KeyDtype) -> Any:
        return lambda seed: dtype.impl.seed(*seed_words(seed))


class _CountingPrimitive(KeyPrimitive):
    """Base of the primitives that number what they draw, which depends on the option `threefry_partitionable`.

    Its value when they are applied is a parameter, since a program is lowered after the block that sets the option.
    """

    def __call__(self, keys: Any, **params: Any) -> Any:
        params.setdefault("partitionable", state.context.threefry_partitionable)
        return super().__call__(keys, **params)

    def printed_params(self, params: dict) -> dict:
        shown = super().printed_params(params)
        return {name: value for name, value in shown.items() if name != "partitionable" or not value}


class RandomSplit(_CountingPrimitive, name="random_split"):
    """Split each key into an array of keys of shape `shape`: key[*k] -> key[*k, *shape]."""

    def abstract_eval(self, keys: ShapedArray, *, shape: tuple, partitionable: bool) -> Any:
        check_keys("random.split", keys)
        return keys.with_shape((*keys.shape, *shape))

    def on_words(self, keys: ShapedArray, *, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.in_context.split(key, shape)


class RandomFoldIn(KeyPrimitive, name="random_fold_in"):
    """Make a new key from each key and an integer: key[*k], uint32[*k] -> key[*k]."""

    consumes_keys = False

    def abstract_eval(self, keys: ShapedArray, data: ShapedArray) -> Any:
        check_keys("random.fold_in", keys)
        if keys.shape != data.shape:
            raise ShapeError(
                "random.fold_in",
                expected="one integer for each key",
                got=f"{keys.str_short()}, {data.str_short()}",
                fix="map over several keys and integers with phalanx.vmap",
            )
        return keys

    def on_words(self, keys: ShapedArray, data: ShapedArray) -> Any:
        return lambda key, value: keys.dtype.impl.fold_in(key, *seed_words(value))


class RandomBits(_CountingPrimitive, name="random_bits"):
    """Draw random bits from each key: key[*k] -> uint[*k, *shape]."""

    def abstract_eval(self, keys: ShapedArray, *, width: int, shape: tuple, partitionable: bool) -> Any:
        check_keys("random.bits", keys)
        return ShapedArray((*keys.shape, *shape), np.dtype(f"uint{width}"))

    def on_words(self, keys: ShapedArray, *, width: int, shape: tuple) -> Any:
        return lambda key: keys.dtype.impl.in_context.bits(key, width, shape)


class RandomUse(KeyPrimitive, name="random_use"):
    """The same keys, recorded as consumed by a sampler that reads their words."""

    def abstract_eval(self, keys: ShapedArray) -> Any:
        return keys

    def on_words(self, keys: ShapedArray) -> Any:
        return lambda key: key


def seed_words(seed: ArrayLike) -> tuple[Any, Any]:
    """Split an integer array into its high and low 32 bits."""
    # A seed of 32 bits or less has a high word of 0, as in JAX.
    low = lax.convert_element_type(seed, _UINT32)
    if dtypes.itemsize_bits(seed.dtype) < 64:
        return np.uint32(0), low
    wide = lax.convert_element_type(seed, np.dtype(np.uint64))
    return lax.convert_element_type(lax.shift_right_logical(wide, np.uint64(32)), _UINT32), low


random_seed_p = RandomSeed()
random_split_p = RandomSplit()
random_fold_in_p = RandomFoldIn()
random_bits_p = RandomBits()
random_use_p = RandomUse()


def use_key(key: Array) -> Array:
    """Record under the option `debug_key_reuse` that a sampler consumes a key whose words it reads."""
    return random_use_p(key) if state.context.debug_key_reuse else key


def split_key(key: Array, num: int) -> list[Array]:
    """Split a typed key, or each key of an array, into `num` keys."""
    keys = random_split_p(key, shape=(num,))
    return [lax.index_in_dim(keys, i, key.ndim, keepdims=False) for i in range(num)]


_key_dtype = memoize("random.key_dtype", 256)(KeyDtype)


def key_dtype(impl_spec: str | Generator | KeyDtype | None = None) -> KeyDtype:
    """Return the dtype of the keys of a generator.

    Args:
      impl_spec: the generator, its name, or its key dtype; the option `default_prng_impl` if None.

    Returns:
      The extended dtype.

    Raises:
      ArgumentError: there is no such generator.

    Examples:
      >>> from phalanx import random
      >>> random.key_dtype("rbg")
      key<rbg>
    """
    impl = state.context.default_prng_impl if impl_spec is None else impl_spec
    if isinstance(impl, KeyDtype):
        return impl
    return _key_dtype(impl if isinstance(impl, Generator) else find_generator(str(impl)))


def key(seed: ArrayLike, *, impl: str | Generator | KeyDtype | None = None, dtype: KeyDtype | None = None) -> Array:
    """Make a typed key from a seed.

    Args:
      seed: an integer, or an integer array of rank 0. Only the lowest 32 bits are used, unless `enable_x64` is on.
      impl: the name of a generator: "threefry2x32", "rbg" or "unsafe_rbg".
      dtype: the dtype of the key, instead of `impl`.

    Returns:
      A key array of shape ().

    Raises:
      ArgumentTypeError: `seed` is not an integer.
      ArgumentError: `impl` is not the name of a generator, or both `impl` and `dtype` are given.
      ShapeError: `seed` is an array of higher rank.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.key(7)).tolist()
      [0, 7]
    """
    if dtype is not None and impl is not None:
        raise ArgumentError(
            "random.key", expected="impl or dtype", got="both", fix="leave out impl, which dtype implies"
        )
    made = key_dtype(dtype if dtype is not None else impl)
    offset = state.context.random_seed_offset
    # A concrete seed is split into words on the host, without a compiled program.
    if isinstance(seed, int | np.integer | np.bool_):
        return random_wrap_p(made.impl.seed(*_host_words(seed + offset if offset else seed)), dtype=made)
    aval = get_aval(seed)
    if aval.ndim:
        raise ShapeError(
            "random.key", expected="one seed", got=aval.str_short(), fix="map over several seeds with vmap"
        )
    return random_seed_p(lax.add(seed, aval.dtype.type(offset)) if offset else seed, dtype=made)


def _host_words(seed: int) -> tuple[np.uint32, np.uint32]:
    """Split a Python seed, which must fit in int64, into its high and low word."""
    # A NumPy seed of at most 32 bits has no high word, and a negative one is not sign-extended into it.
    is_narrow = isinstance(seed, np.generic) and seed.dtype.itemsize < 8
    seed = int(seed)
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError("random.key", expected="a seed of 64 bits", got=seed, fix="take it modulo 2**63")
    high = (seed >> 32) % 2**32 if state.context.enable_x64 and not is_narrow else 0
    return np.uint32(high), np.uint32(seed % 2**32)


def PRNGKey(seed: ArrayLike, *, impl: str | Generator | KeyDtype | None = None) -> Array:
    """Make a raw key from a seed: an array of uint32 words. Prefer `key`, which makes a typed key.

    Under the option `enable_custom_prng` the key is typed, too.

    Args:
      seed: an integer, or an integer array of rank 0. Only the lowest 32 bits are used, unless `enable_x64` is on.
      impl: the name of a generator.

    Returns:
      A uint32 array of the generator's key shape.

    Raises:
      ArgumentTypeError: `seed` is not an integer.
      ArgumentError: `impl` is not the name of a generator.

    Examples:
      >>> from phalanx import random
      >>> random.PRNGKey(7).tolist()
      [0, 7]
    """
    made = key(seed, impl=impl)
    return made if state.context.enable_custom_prng else random_unwrap_p(made)


def wrap_key_data(
    key_bits_array: ArrayLike, *, impl: str | Generator | KeyDtype | None = None, dtype: KeyDtype | None = None
) -> Array:
    """Convert raw key data to typed keys.

    Args:
      key_bits_array: uint32 data; the last dimension is the words of a key.
      impl: the name of the generator.
      dtype: the dtype of the keys, instead of `impl`.

    Returns:
      A key array with the leading dimensions of the data.

    Raises:
      ShapeError: the data do not have the shape or dtype of such keys.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.wrap_key_data(np.zeros((3, 2), np.uint32)).shape
      (3,)
    """
    return random_wrap_p(key_bits_array, dtype=key_dtype(impl if dtype is None else dtype))


def key_data(keys: KeyLike) -> Array:
    """Return the words of keys: key[*k] -> uint32[*k, *key_shape]. Raw keys are returned unchanged.

    Args:
      keys: a key array.

    Returns:
      A uint32 array.

    Raises:
      ArgumentTypeError: `keys` is not a key array.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.key(1, impl="rbg")).tolist()
      [0, 1, 0, 1]
    """
    return random_unwrap_p(as_keys("key_data", keys)[0])


def key_impl(keys: KeyLike) -> str:
    """Return the name of the generator of keys.

    Args:
      keys: a key array.

    Returns:
      The name; the name of the default generator for raw keys.

    Raises:
      ArgumentTypeError: `keys` is not a key array.

    Examples:
      >>> from phalanx import random
      >>> random.key_impl(random.key(0))
      'threefry2x32'
    """
    return as_keys("key_impl", keys)[0].dtype.impl.name


def _discourage_raw_key(where: str, level: str) -> None:
    """Warn or raise about a raw key, as the option `legacy_prng_key` says."""
    error = ArgumentError(
        f"random.{where}, key",
        expected=f"a typed key, since legacy_prng_key is {level!r}",
        got="a raw key, an array of uint32 words",
        fix="make keys with phalanx.random.key(seed), or convert raw ones with random.wrap_key_data",
    )
    if level == "error":
        raise error
    warnings.warn(str(error), UserWarning, stacklevel=4)


def as_keys(where: str, keys: KeyLike) -> tuple[Any, bool]:
    """Convert a key argument to typed keys; return them and whether they were raw."""
    dtype = getattr(keys, "dtype", None)
    if isinstance(dtype, KeyDtype):
        return keys, False
    # A raw key is recognized by its dtype and by the key shape of the default generator.
    made = key_dtype()
    shape = getattr(keys, "shape", None)
    if dtype == np.uint32 and shape is not None and tuple(shape[-1:]) == made.key_shape:
        if state.context.legacy_prng_key != "allow":
            _discourage_raw_key(where, state.context.legacy_prng_key)
        return random_wrap_p(keys, dtype=made), True
    raise ArgumentTypeError(
        f"random.{where}, key",
        expected=f"a typed key, or uint32{list(made.key_shape)}, the words of a {made.impl.name} key",
        got=get_aval(keys).str_short() if dtype is not None else repr(keys),
        fix="make a key with phalanx.random.key(seed)",
    )


def single_key(where: str, key: KeyLike) -> tuple[Any, bool]:
    """Convert a key argument to one typed key of rank 0; return it and whether it was raw."""
    keys, is_raw = as_keys(where, key)
    if keys.ndim:
        raise ShapeError(
            f"random.{where}, key",
            expected="a single key",
            got=f"keys of shape {tuple(keys.shape)}",
            fix="map over several keys with vmap",
        )
    return keys, is_raw


def check_shape(where: str, shape: Shape) -> tuple:
    """Convert a shape argument to a tuple, and check that its sizes are not negative."""
    if isinstance(shape, int | np.integer) or is_symbolic(shape):
        shape = (shape,)
    try:
        sizes = tuple(d if is_symbolic(d) else d.__index__() for d in shape)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(
            f"random.{where}, shape",
            expected="a tuple of ints",
            got=repr(shape),
            fix="pass a tuple of Python ints, such as (2, 3)",
        ) from None
    if any(not is_symbolic(d) and d < 0 for d in sizes):
        raise ShapeError(
            f"random.{where}, shape", expected="sizes that are not negative", got=sizes, fix="pass sizes of at least 0"
        )
    return sizes


def split(key: KeyLike, num: int | Shape = 2) -> Any:
    """Split a key into new keys; the old key should not be used again.

    Args:
      key: the random key.
      num: the number of new keys, or the shape of the array of keys.

    Returns:
      A key array of shape `(num,)` or `num`; raw if `key` is.

    Raises:
      ArgumentTypeError: `key` is not a key.
      ShapeError: `key` is an array of several keys, or `num` is negative.

    Examples:
      >>> from phalanx import random
      >>> first, second = random.split(random.key(0))
      >>> random.split(first, (2, 3)).shape
      (2, 3)
    """
    typed, is_raw = single_key("split", key)
    new = random_split_p(typed, shape=check_shape("split", num))
    return random_unwrap_p(new) if is_raw else new


def fold_in(key: KeyLike, data: ArrayLike) -> Any:
    """Make a new key from a key and an integer, such as the number of a training step.

    Args:
      key: the random key.
      data: an integer, or an integer array of rank 0; only the lowest 32 bits are used.

    Returns:
      A key; raw if `key` is.

    Raises:
      ArgumentTypeError: `key` is not a key, or `data` is not an integer.
      ShapeError: `key` or `data` is an array of several.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.fold_in(random.key(0), 1)).shape
      (2,)
    """
    typed, is_raw = single_key("fold_in", key)
    new = random_fold_in_p(typed, _fold_data(data))
    return random_unwrap_p(new) if is_raw else new


def _fold_data(data: Array) -> Array:
    if isinstance(data, int | float):
        return np.uint32(int(data) % 2**32)
    aval = get_aval(data)
    if aval.ndim or not (dtypes.issubdtype(aval.dtype, np.integer) or dtypes.issubdtype(aval.dtype, np.floating)):
        error = ShapeError if aval.ndim else ArgumentTypeError
        raise error(
            "random.fold_in, data", expected="one integer", got=aval.str_short(), fix="map over several with vmap"
        )
    return lax.convert_element_type(data, np.dtype(np.uint32))


def clone(key: KeyLike) -> Any:
    """Copy a key, so that the copy may be used again under the option `debug_key_reuse`.

    Args:
      key: the random key.

    Returns:
      The key.

    Raises:
      ArgumentTypeError: `key` is not a key.

    Examples:
      >>> from phalanx import random
      >>> random.clone(random.key(0)).dtype
      key<fry>
    """
    typed, is_raw = as_keys("clone", key)
    if is_raw or not state.context.debug_key_reuse:
        return key
    # A new array over the same words, which is not recorded as consumed.
    return random_wrap_p(random_unwrap_p(typed), dtype=typed.dtype)


def bits(
    key: KeyLike, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Sample uniformly random bits as unsigned integers.

    Args:
      key: the random key.
      shape: the shape of the result.
      dtype: an unsigned dtype; uint32 (uint64 under `enable_x64`) if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not unsigned.
      ShapeError: `key` is an array of several keys.

    Examples:
      >>> from phalanx import random
      >>> random.bits(random.key(0), (2,), "uint8").dtype
      dtype('uint8')
    """
    typed, _ = single_key("bits", key)
    dtype = dtypes.requested_dtype(
        np.uint64 if dtype is None and state.context.enable_x64 else dtype or np.uint32, "bits"
    )
    if not dtypes.issubdtype(dtype, np.unsignedinteger):
        raise ArgumentError(
            "random.bits, dtype",
            expected="an unsigned dtype",
            got=str(dtype),
            fix="pass an unsigned dtype such as 'uint32'",
        )
    # Generators draw bytes at least; narrower integers are truncated.
    width = dtypes.itemsize_bits(dtype)
    drawn = random_bits_p(typed, width=max(width, 8), shape=check_shape("bits", shape))
    return apply_out_sharding(lax.convert_element_type(drawn, dtype) if width < 8 else drawn, out_sharding)
