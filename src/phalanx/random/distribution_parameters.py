"""Arguments of distributions: check the key and the dtype, broadcast the parameters, shard the result.

Every sampler of `phalanx.random` is made by `distribution`, so that its body holds only the mathematics. Builds on
`prng_keys`; called by the modules of distributions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ConversionError, ShapeError, dtypes, get_aval
from phalanx.core.docstrings import family
from phalanx.lax.shape import broadcast_to_shape
from phalanx.lax.sharding.out_sharding import apply_out_sharding
from phalanx.random.prng_keys import check_shape, single_key
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape


def _dtype_check(default: type, kind: type, expected: str, example: str) -> Callable[[str, DTypeLike | None], np.dtype]:
    def check(name: str, dtype: DTypeLike | None) -> np.dtype:
        found = dtypes.requested_dtype(default if dtype is None else dtype, f"random.{name}")
        if not dtypes.issubdtype(found, kind):
            raise ConversionError(
                f"random.{name}, dtype", expected=expected, got=str(found), fix=f"pass a dtype such as {example}"
            )
        return found

    return check


# Each takes the name of the distribution and its `dtype` argument, and returns the canonical dtype of the samples.
float_dtype = _dtype_check(float, np.floating, "a floating dtype", "'float32'")
inexact_dtype = _dtype_check(float, np.inexact, "a floating or complex dtype", "'float32' or 'complex64'")
int_dtype = _dtype_check(int, np.integer, "an integer dtype", "'int32'")


def as_dtype(x: ArrayLike | Sequence[Any], dtype: DTypeLike) -> Array:
    """Convert a parameter, which may be a list of numbers, to an array of `dtype`."""
    return lax.convert_element_type(np.asarray(x) if isinstance(x, list | tuple) else x, dtype)


def broadcast_parameters(name: str, shape: Shape | None, dtype: DTypeLike, **values: ArrayLike) -> tuple[tuple, list]:
    """Convert the parameters of a distribution to `dtype` and broadcast them to the shape of the samples.

    Args:
      name: the distribution, for error messages.
      shape: the `shape` argument of the user; None for the common shape of the parameters.
      dtype: the dtype of the parameters.
      **values: the parameters by name.

    Returns:
      The shape, and the broadcast parameters.

    Raises:
      ShapeError: a parameter cannot be broadcast to the shape.
    """
    arrays = [as_dtype(x, dtype) for x in values.values()]
    shapes = [get_aval(x).shape for x in arrays]
    if shape is None:
        shape = lax.broadcast_shapes(*shapes)
    else:
        shape = check_shape(name, shape)
        for parameter, old in zip(values, shapes, strict=True):
            if not is_broadcastable(old, shape):
                raise ShapeError(
                    f"random.{name}, {parameter}",
                    expected=f"a shape that broadcasts to {shape}",
                    got=str(old),
                    fix=f"give a shape that ends in the shape of {parameter}, or leave shape out",
                )
    return shape, [broadcast_to_shape(x, shape) for x in arrays]


def is_broadcastable(old: tuple, new: tuple) -> bool:
    """Whether an array of shape `old` broadcasts to the shape `new`."""
    return len(old) <= len(new) and all(a in (1, b) for a, b in zip(reversed(old), reversed(new), strict=False))


def distribution(
    *static: str, dtype: Callable[[str, DTypeLike | None], np.dtype] | None = None, parameters: Sequence[str] = ()
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Make a sampler a public function: check its arguments, compile eager calls, apply `out_sharding`.

    The decorated function receives a typed key of rank 0, the canonical `dtype`, a `shape` of integers, and the
    parameters converted and broadcast. An eager call is one compiled program, so that with `out_sharding` each device
    draws only its own shard.

    Args:
      *static: names of static parameters besides `shape`, `dtype`, `method` and `out_sharding`.
      dtype: the check of the argument `dtype`; None for a function that has none or checks it itself.
      parameters: the names of the parameters to convert to `dtype` and to broadcast to `shape`.

    Returns:
      A decorator.
    """

    def decorate(sampler: Callable[..., Array]) -> Callable[..., Array]:
        signature, name = inspect.signature(sampler), sampler.__name__.lstrip("_")

        @functools.wraps(sampler)
        def sample(*args: Any, **kwargs: Any) -> Array:
            # Arguments are bound by name once, so that the checks below need not know the signature.
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            out_sharding = given.pop("out_sharding", None)
            given["key"] = single_key(name, given["key"])[0]
            if dtype is not None:
                given["dtype"] = dtype(name, given["dtype"])
            if parameters:
                values = {p: given[p] for p in parameters}
                given["shape"], arrays = broadcast_parameters(name, given["shape"], given["dtype"], **values)
                given.update(zip(parameters, arrays, strict=True))
            elif given.get("shape") is not None:
                given["shape"] = check_shape(name, given["shape"])
            return apply_out_sharding(sampler(*bound.args, **bound.kwargs), out_sharding)

        # The constraint to `out_sharding` is part of the compiled program: XLA propagates it back to the random bits,
        # and no device holds more than its shard.
        return eager_jit(sample, static_argnames=("shape", "dtype", "method", "out_sharding", *static))

    return decorate


_real_doc = family(
    """
    Args:
      key: the random key.{parameters_doc}
      shape: the shape of the result{default_shape}.
      dtype: a floating dtype; the default floating dtype if None.{method_doc}
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating{method_error}.{shape_error}

    Examples:
      >>> from phalanx import random
      >>> random.{name}(random.key(0), {values}(3,)).shape
      (3,){source}
    """
)


_METHOD_DOC = """
  method: `"exact"` for rejection sampling, or `"approximate"` for a formula without a loop, which is faster; its
    distribution function is off by 0.0008 at most, and its derivative is that of the formula."""


def real_distribution(*example: float, source: str = "", **parameters: str) -> Callable[..., Any]:
    """Make the decorator of a distribution over the real numbers: `distribution`, and the rest of its docstring.

    Args:
      *example: a value for each parameter in the example of the docstring.
      source: the publication of the algorithm.
      **parameters: the names of the parameters with their descriptions; all broadcast to the shape.
    """

    def decorate(sampler: Callable[..., Array]) -> Callable[..., Array]:
        taken = inspect.signature(sampler).parameters
        has_default_shape, has_method = taken["shape"].default is None, "method" in taken
        # The docstring is completed before the sampler is wrapped, since the wrapper copies it.
        documented = _real_doc(
            parameters_doc="".join(f"\n  {name}: {text}, broadcast to the shape." for name, text in parameters.items()),
            default_shape="; the common shape of the parameters if None" if has_default_shape else "",
            method_doc=_METHOD_DOC if has_method else "",
            method_error=", or `method` is unknown" if has_method else "",
            shape_error="\n  ShapeError: a parameter does not broadcast to the shape." if parameters else "",
            values="".join(f"{value}, " for value in example),
            source=f"\n\nSource: {source}." if source else "",
        )(sampler)
        return distribution(dtype=float_dtype, parameters=tuple(parameters))(documented)

    return decorate
