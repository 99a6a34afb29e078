"""What all layers share: how a parameter is made where it will lie, and how operands come to one dtype.

Builds on `variable` and `spmd.jit`; called by the files of this folder only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from phalanx.core import dtypes, promotion
from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.lax import convert_element_type
from phalanx.nn import initializers
from phalanx.nnx.placing import spec_of, using_eager_sharding
from phalanx.nnx.variable import SHARDING_KEYS, Variable
from phalanx.sharding import NamedSharding
from phalanx.spmd import jit

NO_METADATA: Mapping[str, Any] = MappingProxyType({})

lecun_normal = initializers.lecun_normal()
zeros_init, ones_init = initializers.zeros, initializers.ones


@functools.lru_cache(maxsize=256)
def _compiled(init: Callable, shape: tuple, dtype: Any, sharding: Any) -> Callable:
    return jit(lambda key: init(key, shape, dtype), out_shardings=sharding)


def parameter(
    kind: type[Variable],
    init: Callable,
    key: Any,
    shape: Sequence[int],
    dtype: Any,
    metadata: Mapping[str, Any] = NO_METADATA,
) -> Any:
    """A variable with its first value; where its metadata say how it lies on a mesh, it is drawn there.

    Args:
      kind: the kind of variable.
      init: `init(key, shape, dtype)` makes the value.
      key: the random key.
      shape: the shape.
      dtype: the dtype.
      metadata: of the variable.

    Returns:
      The variable.
    """
    names = next((metadata[k] for k in SHARDING_KEYS if metadata.get(k) is not None), None)
    mesh = metadata.get("mesh") or state.context.mesh
    shape = tuple(shape)
    if names is None or mesh is None or state.trace is not None or not using_eager_sharding():
        return kind(init(key, shape, dtype), **metadata)
    rules = metadata.get("sharding_rules")
    sharding = names if isinstance(names, NamedSharding) else NamedSharding(mesh, spec_of(names, rules))
    return kind(_compiled(init, shape, dtype, sharding)(key), **metadata)


def flattened(init: Callable, num_in: int) -> Callable:
    """An initializer that sees a kernel as a matrix: all dimensions before `num_in`, and all from there."""

    @functools.wraps(init)
    def initialise(key: Any, shape: tuple, dtype: Any) -> Any:
        return init(key, (math.prod(shape[:num_in]), math.prod(shape[num_in:])), dtype).reshape(shape)

    return initialise


def promote_dtype(args: Sequence[Any], /, *, dtype: Any = None, inexact: bool = True) -> tuple:
    """Bring operands to one dtype, that of the computation.

    Args:
      args: arrays, or None.
      dtype: the dtype; None for the one that the operands promote to.
      inexact: whether it must be a floating or complex one.

    Returns:
      The operands; None stays None.
    """
    if dtype is None:
        types = {aval_of(x).dtype for x in args if x is not None}
        dtype = types.pop() if len(types) == 1 else promotion.result_type(*[x for x in args if x is not None])
        if inexact:
            dtype = dtypes.to_inexact_dtype(dtype)
    dtype = np.dtype(dtype)
    return tuple([x if x is None or _has(x, dtype) else convert_element_type(x, dtype) for x in args])


def _has(x: Any, dtype: Any) -> bool:
    """Whether an operand is an array of this dtype already."""
    aval = getattr(x, "aval", None)
    return aval is not None and aval.dtype == dtype and not aval.weak_type


def as_tuple(x: Any) -> tuple:
    """A sequence as a tuple; one thing as a tuple of it."""
    return tuple(x) if isinstance(x, Sequence) else (x,)


def held(variable: Variable | None) -> Any:
    """The value of a variable that may be missing."""
    return None if variable is None else variable.value
