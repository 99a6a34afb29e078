"""Helpers of layers: creation of parameters and of their options, and promotion of operands to one dtype."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from phalanx.core import ArgumentTypeError, DTypeError, dtypes, get_aval, promotion, state
from phalanx.engine.cache import memoize
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax import convert_element_type
from phalanx.nn import initializers
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.sharding.logical_axis_rules import get_spec, using_eager_sharding
from phalanx.nnx.variable import SHARDING_KEYS, Variable
from phalanx.nnx.variable_types import Param
from phalanx.sharding import NamedSharding, Sharding
from phalanx.spmd import jit
from phalanx.typing import Array, DTypeLike, PRNGKey

NO_METADATA: Mapping[str, Any] = MappingProxyType({})

PaddingLike: TypeAlias = str | int | Sequence[int | tuple[int, int]]
"""The name of a padding, a number for all sides, or a number or a pair (before, after) for each spatial dimension."""

Groups: TypeAlias = Sequence[Sequence[int]] | None
"""Groups of members of a mapped axis; None for one group."""

lecun_normal = initializers.lecun_normal()
zeros_init, ones_init = initializers.zeros, initializers.ones


@memoize("nnx.initializers", 256)
def _compile_initializer(init: Callable, shape: tuple, dtype: DTypeLike, sharding: Sharding) -> Callable:
    return jit(lambda key: init(key, shape, dtype), out_shardings=sharding)


def make_parameter(
    kind: type[Variable],
    init: Callable,
    rngs: Rngs,
    shape: Sequence[int],
    dtype: DTypeLike,
    metadata: Mapping[str, Any] = NO_METADATA,
) -> Any:
    """Create a variable with an initial value; if its metadata shard it, each device computes only its shard.

    Args:
      kind: the type of variable.
      init: the initializer, `init(key, shape, dtype)`.
      rngs: random keys, from the stream `params`.
      shape: the shape.
      dtype: the dtype.
      metadata: the metadata of the variable.

    Returns:
      The variable.

    Raises:
      ArgumentTypeError: `rngs` are no `Rngs`, or a size is no integer.
      ShardingError: the metadata have more entries than the parameter has dimensions.
    """
    if not isinstance(rngs, Rngs):
        raise ArgumentTypeError(
            "argument rngs of a layer",
            expected="an nnx.Rngs, for the parameters",
            got=rngs,
            fix="pass rngs=nnx.Rngs(0)",
        )
    shape = tuple(shape)
    if wrong := [n for n in shape if type(n) is not int and not isinstance(n, np.integer)]:
        raise ArgumentTypeError(
            "the number of features of a layer", expected="integers", got=shape, fix=f"replace {wrong[0]!r} by an int"
        )
    key = rngs.params()
    # Without a mesh or names, the initializer runs eagerly; inside of a trace, the variable itself adds the constraint.
    names = next((metadata[k] for k in SHARDING_KEYS if metadata.get(k) is not None), None)
    mesh = metadata.get("mesh") or state.context.mesh
    if names is None or mesh is None or state.trace is not None or not using_eager_sharding():
        return kind(init(key, shape, dtype), **metadata)
    rules = metadata.get("sharding_rules")
    sharding = names if isinstance(names, NamedSharding) else NamedSharding(mesh, get_spec(names, rules))
    sharding.shard_shape(shape, where="out_sharding of a parameter")
    return kind(_compile_initializer(init, shape, dtype, sharding)(key), **metadata)


def flatten_initializer(init: Callable, num_in: int | None) -> Callable:
    """An initializer that treats a kernel as a matrix whose rows are its first `num_in` dimensions.

    With None for `num_in`, it treats a bias as a vector.
    """

    @functools.wraps(init)
    def initialize(key: PRNGKey, shape: tuple, dtype: DTypeLike) -> Array:
        parts = (shape,) if num_in is None else (shape[:num_in], shape[num_in:])
        return init(key, tuple(map(math.prod, parts)), dtype).reshape(shape)

    return initialize


def canonicalize_dtype(*args: Any, dtype: DTypeLike | None = None, inexact: bool = True) -> np.dtype:
    """Return the dtype that a layer computes in.

    Args:
      *args: arrays; entries may be None.
      dtype: the dtype; None for the dtype that the operands promote to.
      inexact: whether it must be a floating or complex dtype, to which integers are promoted.

    Returns:
      The dtype.

    Raises:
      DTypeError: `dtype` is an integer dtype, and `inexact` is set.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nnx
      >>> nnx.nn.dtypes.canonicalize_dtype(np.int8(1), None, np.float16(2))
      dtype('float16')
    """
    if dtype is None:
        # The common case of equal dtypes avoids the promotion table.
        types = {get_aval(x).dtype for x in args if x is not None}
        dtype = types.pop() if len(types) == 1 else promotion.result_type(*[x for x in args if x is not None])
        return np.dtype(dtypes.to_inexact_dtype(dtype) if inexact else dtype)
    if inexact and not dtypes.issubdtype(dtype, np.inexact):
        raise DTypeError(
            "the dtype of a layer",
            expected="a floating or complex dtype",
            got=np.dtype(dtype).name,
            fix="pass dtype='float32', and convert the result",
        )
    return np.dtype(dtype)


@api_boundary  # here rather than where it is public, so that layers hold the object that pickle finds
def promote_dtype(args: Sequence[Any], /, *, dtype: DTypeLike | None = None, inexact: bool = True) -> tuple:
    """Promote operands to one dtype.

    Args:
      args: arrays; entries may be None.
      dtype, inexact: as in `canonicalize_dtype`.

    Returns:
      The promoted operands, with None for None.
    """
    dtype = canonicalize_dtype(*args, dtype=dtype, inexact=inexact)
    return tuple([x if x is None or _has_dtype(x, dtype) else convert_element_type(x, dtype) for x in args])


def _has_dtype(x: object, dtype: np.dtype) -> bool:
    """Whether an operand is an array that has this dtype."""
    aval = getattr(x, "aval", None)
    return aval is not None and aval.dtype == dtype and not aval.weak_type


def as_tuple(x: object) -> tuple:
    """A sequence as a tuple; any other value as a tuple of length 1."""
    return tuple(x) if isinstance(x, Sequence) else (x,)


def value_or_none(variable: Variable | None) -> Any:
    """The value of a variable; None for None."""
    return None if variable is None else variable.value


def without_none(**options: Any) -> dict[str, Any]:
    """The options that are given: those whose value is not None."""
    return {name: value for name, value in options.items() if value is not None}


class Layer(Module):
    """The base class of layers whose constructor arguments are attributes of the same name.

    `_store_options` sets these attributes, so that a constructor contains only the code that is specific to the layer.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The attributes that `_store_options` sets."""

    def _store_options(self, arguments: Mapping[str, Any], names: str) -> None:
        """Set attributes from constructor arguments.

        Args:
          arguments: the arguments by name: `locals()` of the constructor.
          names: the names of the attributes, separated by spaces.
        """
        for name in names.split():
            setattr(self, name, arguments[name])

    def _set_options(self, **options: Any) -> None:
        """Set the attributes for which a value other than None is given."""
        self._store_options(options, " ".join(without_none(**options)))

    def _make_bias(
        self,
        use_bias: bool,
        init: Callable,
        rngs: Rngs,
        shape: Sequence[int],
        dtype: DTypeLike,
        metadata: Mapping[str, Any],
    ) -> None:
        """Set the attribute `bias` to a new parameter, or to None."""
        self.bias = make_parameter(Param, init, rngs, shape, dtype, metadata) if use_bias else None
