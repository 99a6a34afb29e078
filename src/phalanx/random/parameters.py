"""What every distribution does with its arguments: check dtypes, broadcast parameters, place the result.

Builds on `keys`; the modules of distributions call it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.docstrings import family
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.lax.explicit import placed as placed
from phalanx.random.keys import single_key, static_shape
from phalanx.random.primitives import random_split_p
from phalanx.runtime.dispatch import eager_program


def float_dtype(where: str, dtype: Any, *, allow_complex: bool = False) -> Any:
    """The dtype of a distribution over the real (or complex) numbers."""
    dtype = dtypes.requested_dtype(float if dtype is None else dtype, f"random.{where}")
    if not dtypes.issubdtype(dtype, np.inexact if allow_complex else np.floating):
        expected = "a floating or complex dtype" if allow_complex else "a floating dtype"
        raise ArgumentError(f"random.{where}, dtype", expected=expected, got=str(dtype), mend="pass e.g. 'float32'")
    return dtype


def int_dtype(where: str, dtype: Any) -> Any:
    """The dtype of a distribution over the integers."""
    dtype = dtypes.requested_dtype(int if dtype is None else dtype, f"random.{where}")
    if not dtypes.issubdtype(dtype, np.integer):
        raise ArgumentError(
            f"random.{where}, dtype", expected="an integer dtype", got=str(dtype), mend="pass e.g. 'int32'"
        )
    return dtype


def as_dtype(x: Any, dtype: Any) -> Any:
    """An array, a tracer or a scalar as an array of a dtype."""
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    return lax.convert_element_type(x, dtype)


def broadcast_to(x: Any, shape: tuple) -> Any:
    """An array repeated to a shape, aligned at the last dimension."""
    have = aval_of(x).shape
    return x if have == shape else lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - len(have), len(shape))))


def parameters(where: str, shape: Any, dtype: Any, **values: Any) -> tuple[tuple, list]:
    """The shape of the result, and the parameters with that shape.

    Args:
      where: the distribution, for messages.
      shape: the user's argument; None for the common shape of the parameters.
      dtype: what the parameters are converted to.
      **values: the parameters by name.

    Returns:
      The shape, and the parameters as arrays.

    Raises:
      ShapeError: a parameter cannot be broadcast to the shape.
    """
    arrays = [as_dtype(x, dtype) for x in values.values()]
    shapes = [aval_of(x).shape for x in arrays]
    if shape is None:
        shape = lax.broadcast_shapes(*shapes)
    else:
        shape = static_shape(where, shape)
        for name, have in zip(values, shapes, strict=True):
            if not _fits(have, shape):
                raise ShapeError(
                    f"random.{where}, {name}",
                    expected=f"a shape that broadcasts to {shape}",
                    got=str(have),
                    mend=f"give a shape that ends in the shape of {name}, or leave shape out",
                )
    return shape, [broadcast_to(x, shape) for x in arrays]


def _fits(have: tuple, shape: tuple) -> bool:
    if len(have) > len(shape):
        return False
    return all(a in (1, b) for a, b in zip(reversed(have), reversed(shape), strict=False))


def distribution(*static: str) -> Callable:
    """Make an eager call of a distribution one compiled program, which also places the result.

    Args:
      *static: names of parameters that are static, beside `shape`, `dtype` and `out_sharding`.

    Returns:
      A decorator.
    """
    names = ("shape", "dtype", "out_sharding", *static)

    def wrap(fun: Callable) -> Callable:
        eager = eager_program(fun, static_argnames=names)

        @functools.wraps(fun)
        def draw(*args: Any, **kwargs: Any) -> Any:
            if "out_sharding" not in kwargs or kwargs["out_sharding"] is None or state.trace is not None:
                return eager(*args, **kwargs)
            # No device ever holds more than its own piece.
            return _compiled(fun, names, kwargs.pop("out_sharding"))(*args, **kwargs)

        return draw

    return wrap


_reals = family(
    """
    Args:
      key: a key.{own}
      shape: the shape of the result{default}.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating.{misfit}

    Examples:
      >>> from phalanx import random
      >>> random.{name}(random.key(0), {values}(3,)).shape
      (3,)
    """
)


def reals(*values: float, **own: str) -> Callable:
    """Make the decorator that completes the docstring of a distribution of real numbers.

    Args:
      *values: its own parameters in the example.
      **own: their names, and what they are; all broadcast to the shape.
    """

    def complete(fun: Callable) -> Callable:
        is_told = inspect.signature(fun).parameters["shape"].default is None
        return _reals(
            own="".join(f"\n  {name}: {what}, broadcast to the shape." for name, what in own.items()),
            default="; that of the parameters if None" if is_told else "",
            misfit="\n  ShapeError: a parameter does not broadcast to the shape." if own else "",
            values="".join(f"{value}, " for value in values),
        )(fun)

    return complete


@functools.lru_cache(maxsize=512)
def _compiled(fun: Callable, names: tuple, out_sharding: Any) -> Callable:
    from phalanx.spmd import jit

    static = [n for n in names if n != "out_sharding" and n in inspect.signature(fun).parameters]
    return jit(fun, static_argnames=static, out_shardings=out_sharding)


def key_of(where: str, key: Any) -> Any:
    """The typed key of a distribution's first argument."""
    return single_key(where, key)[0]


def new_keys(key: Any, num: int) -> list:
    """The single keys that `key` splits into."""
    keys = random_split_p(key, shape=(num,))
    return [lax.index_in_dim(keys, i, 0, keepdims=False) for i in range(num)]
