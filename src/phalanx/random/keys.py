"""Random keys as users make, split and combine them, in both kinds: typed, and raw arrays of uint32 words.

A function that is given a raw key gives raw keys back. Builds on `primitives`; each distribution takes its key through
`single_key`.
"""

from __future__ import annotations

import functools
from typing import Any, NewType

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.dtypes import KeyDtype
from phalanx.core.errors import ArgumentError, ArgumentTypeError, ShapeError
from phalanx.lax.explicit import placed
from phalanx.random.generators import Generator, generator_of
from phalanx.random.primitives import (
    random_bits_p,
    random_fold_in_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
)
from phalanx.runtime.array import Array
from phalanx.symbolic import is_symbolic

Key = NewType("Key", Array)  # for annotations: an array of keys


@functools.cache
def _key_dtype(generator: Generator) -> KeyDtype:
    return KeyDtype(generator)


def key_dtype(impl_spec: Any = None) -> KeyDtype:
    """The dtype of keys of a generator.

    Args:
      impl_spec: the name of the generator, the generator itself, or its key dtype; if None, the option
        `default_prng_impl`.

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
    return _key_dtype(impl if isinstance(impl, Generator) else generator_of(str(impl)))


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A typed key from a seed.

    Args:
      seed: an integer, or an integer array of rank 0; without `enable_x64` its lowest 32 bits count.
      impl: the name of a generator: "threefry2x32", "rbg" or "unsafe_rbg".
      dtype: the dtype of the key, in place of `impl`.

    Returns:
      A key array of shape ().

    Raises:
      ArgumentTypeError: `seed` is no integer.
      ArgumentError: `impl` is no generator, or `dtype` is given as well.
      ShapeError: `seed` is an array of higher rank.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.key(7)).tolist()
      [0, 7]
    """
    if dtype is not None and impl is not None:
        raise ArgumentError("random.key", expected="impl or dtype", got="both", mend="leave one out")
    made = key_dtype(dtype if dtype is not None else impl)
    if isinstance(seed, int | np.integer | np.bool_):
        return random_wrap_p(made.impl.seed(*_host_words(seed)), dtype=made)
    aval = aval_of(seed)
    if aval.ndim:
        raise ShapeError(
            "random.key", expected="one seed", got=aval.str_short(), mend="map over several seeds with vmap"
        )
    return random_seed_p(seed, dtype=made)


def _host_words(seed: Any) -> tuple[np.uint32, np.uint32]:
    """The words of a seed that is known, which `int64` must hold."""
    is_narrow = isinstance(seed, np.generic) and seed.dtype.itemsize < 8
    seed = int(seed)
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError("random.key", expected="a seed of 64 bits", got=seed, mend="take it modulo 2**63")
    high = (seed >> 32) % 2**32 if state.context.enable_x64 and not is_narrow else 0
    return np.uint32(high), np.uint32(seed % 2**32)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A raw key from a seed: an array of uint32 words; `key` makes a typed one.

    Args:
      seed: an integer, or an integer array of rank 0; without `enable_x64` its lowest 32 bits count.
      impl: the name of a generator.

    Returns:
      A uint32 array of the generator's key shape.

    Raises:
      ArgumentTypeError: `seed` is no integer.
      ArgumentError: `impl` is no generator.

    Examples:
      >>> from phalanx import random
      >>> random.PRNGKey(7).tolist()
      [0, 7]
    """
    return random_unwrap_p(key(seed, impl=impl))


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Typed keys from their words.

    Args:
      key_bits_array: uint32 data whose last dimension holds the words of a key.
      impl: the name of the generator.
      dtype: in place of `impl`, the dtype of keys of that generator.

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


def key_data(keys: Any) -> Any:
    """The words of keys: key[*k] -> uint32[*k, *key_shape]; raw keys are given back as they are.

    Args:
      keys: a key array.

    Returns:
      A uint32 array.

    Raises:
      ArgumentTypeError: `keys` are no keys.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.key(1, impl="rbg")).tolist()
      [0, 1, 0, 1]
    """
    keys, is_raw = as_keys("key_data", keys)
    return random_unwrap_p(keys)


def key_impl(keys: Any) -> Any:
    """The name of the generator of keys.

    Args:
      keys: a key array.

    Returns:
      The name, or for raw keys that of the default generator.

    Raises:
      ArgumentTypeError: `keys` are no keys.

    Examples:
      >>> from phalanx import random
      >>> random.key_impl(random.key(0))
      'threefry2x32'
    """
    return as_keys("key_impl", keys)[0].dtype.impl.name


def as_keys(where: str, keys: Any) -> tuple[Any, bool]:
    """Typed keys of a typed or raw argument, and whether it was raw."""
    dtype = getattr(keys, "dtype", None)
    if isinstance(dtype, KeyDtype):
        return keys, False
    made = key_dtype()
    shape = getattr(keys, "shape", None)
    if dtype == np.uint32 and shape is not None and tuple(shape[-1:]) == made.key_shape:
        return random_wrap_p(keys, dtype=made), True
    raise ArgumentTypeError(
        f"random.{where}, key",
        expected=f"a typed key, or uint32{list(made.key_shape)}, the words of a {made.impl.name} key",
        got=aval_of(keys).str_short() if dtype is not None else repr(keys),
        mend="make a key with phalanx.random.key(seed)",
    )


def single_key(where: str, key: Any) -> tuple[Any, bool]:
    """The typed key of rank 0 of a typed or raw argument, and whether it was raw."""
    keys, is_raw = as_keys(where, key)
    if keys.ndim:
        raise ShapeError(
            f"random.{where}, key",
            expected="a single key",
            got=f"keys of shape {tuple(keys.shape)}",
            mend="map over several keys with vmap",
        )
    return keys, is_raw


def static_shape(where: str, shape: Any) -> tuple:
    """A shape argument as a tuple, with each size checked."""
    if isinstance(shape, int | np.integer) or is_symbolic(shape):
        shape = (shape,)
    try:
        sizes = tuple(d if is_symbolic(d) else d.__index__() for d in shape)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(
            f"random.{where}, shape", expected="a tuple of ints", got=repr(shape), mend="pass a static shape"
        ) from None
    if any(not is_symbolic(d) and d < 0 for d in sizes):
        raise ShapeError(
            f"random.{where}, shape", expected="sizes that are not negative", got=sizes, mend="pass 0 or more"
        )
    return sizes


def split(key: Any, num: Any = 2) -> Any:
    """New keys from one, which should not be used again.

    Args:
      key: a key.
      num: how many, or the shape of the array of them.

    Returns:
      A key array of shape `(num,)` or `num`; raw if `key` is.

    Raises:
      ArgumentTypeError: `key` is no key.
      ShapeError: `key` is an array of several keys, or `num` is negative.

    Examples:
      >>> from phalanx import random
      >>> first, second = random.split(random.key(0))
      >>> random.split(first, (2, 3)).shape
      (2, 3)
    """
    typed, is_raw = single_key("split", key)
    new = random_split_p(typed, shape=static_shape("split", num))
    return random_unwrap_p(new) if is_raw else new


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer, such as the number of a step.

    Args:
      key: a key.
      data: an integer, or an integer array of rank 0, of which the lowest 32 bits count.

    Returns:
      A key; raw if `key` is.

    Raises:
      ArgumentTypeError: `key` is no key, or `data` no integer.
      ShapeError: `key` or `data` is an array of several.

    Examples:
      >>> from phalanx import random
      >>> random.key_data(random.fold_in(random.key(0), 1)).shape
      (2,)
    """
    typed, is_raw = single_key("fold_in", key)
    new = random_fold_in_p(typed, _fold_data(data))
    return random_unwrap_p(new) if is_raw else new


def _fold_data(data: Any) -> Any:
    if isinstance(data, int):
        return np.uint32(data % 2**32)
    aval = aval_of(data)
    if aval.ndim or not dtypes.issubdtype(aval.dtype, np.integer):
        error = ShapeError if aval.ndim else ArgumentTypeError
        raise error(
            "random.fold_in, data", expected="one integer", got=aval.str_short(), mend="map over several with vmap"
        )
    return lax.convert_element_type(data, np.dtype(np.uint32))


def clone(key: Any) -> Any:
    """The same key, marked as free to be used again where `KeyReuseError`s are raised.

    Args:
      key: a key.

    Returns:
      The key.

    Raises:
      ArgumentTypeError: `key` is no key.

    Examples:
      >>> from phalanx import random
      >>> random.clone(random.key(0)).dtype
      key<fry>
    """
    typed, is_raw = as_keys("clone", key)
    if is_raw or not state.context.debug_key_reuse:
        return key
    return random_wrap_p(random_unwrap_p(typed), dtype=typed.dtype)


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Uniformly random bits as unsigned integers.

    Args:
      key: a key.
      shape: the shape of the result.
      dtype: an unsigned dtype; uint32 (uint64 under `enable_x64`) if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

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
            "random.bits, dtype", expected="an unsigned dtype", got=str(dtype), mend="pass e.g. 'uint32'"
        )
    width = dtypes.itemsize_bits(dtype)
    drawn = random_bits_p(typed, width=max(width, 8), shape=static_shape("bits", shape))
    return placed(lax.convert_element_type(drawn, dtype) if width < 8 else drawn, out_sharding)
