"""Choosing and mapping: where, select, piecewise, and functions applied along axes or to every element.

Built on `lax.select_n` and on `vmap`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.engine.frames import boundary
from phalanx.numpy.bodies import to_bool
from phalanx.numpy.creation import array
from phalanx.numpy.operands import (
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    operand,
    promote,
)
from phalanx.runtime.dispatch import eager_program
from phalanx.runtime.placement import scalar_array


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """`x` where a condition holds, else `y`; with the condition alone, where it holds.

    Args:
      condition: booleans, or numbers that are compared with 0.
      x: what to take where it holds.
      y: what to take elsewhere.
      size: with the condition alone, how many positions to give, as in `nonzero`.
      fill_value: with the condition alone, for places beyond the last position.

    Returns:
      An array of the shape that the three broadcast to, or the tuple of positions.

    Raises:
      ArgumentError: one of `x` and `y` is given without the other.
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.where(jnp.array([True, False]), 1, 2).tolist()
      [1, 2]
    """
    if x is None or y is None:
        if x is not None or y is not None:
            raise ArgumentError("where", expected="both x and y, or neither", got="one of them", mend="give the other")
        from phalanx.numpy.taking import nonzero

        return nonzero(condition, size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ArgumentError(
            "where, argument size", expected="None where x and y are given", got=size, mend="leave it out"
        )
    a, b = getattr(x, "aval", None), getattr(condition, "aval", None)
    if a is not None and b is not None and a is getattr(y, "aval", None) and b.shape == a.shape and b.dtype == np.bool_:
        return lax.select_n_p(condition, y, x)
    if state.trace is None:  # A number that is placed already leaves one execution to do.
        x, y = (scalar_array(v) if type(v) is float else v for v in (x, y))
    return _where(condition, x, y)


@eager_program
def _where(condition: Any, x: Any, y: Any) -> Any:
    condition = to_bool(operand(condition, "where, argument condition"))
    x, y = promote("where", x, y)
    shape = broadcast_shapes(condition.shape, np.shape(x), np.shape(y), where="where")
    if condition.shape:
        condition = broadcast_to_shape(condition, shape)
    elif shape and not (np.shape(x) == shape or np.shape(y) == shape):
        x = broadcast_to_shape(x, shape)
    x, y = (v if np.shape(v) == shape or not np.shape(v) else broadcast_to_shape(v, shape) for v in (x, y))
    return lax.select_n_p(condition, y, x)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """For each place, the choice of the first condition that holds there.

    Args:
      condlist: arrays of booleans.
      choicelist: as many arrays or scalars, which broadcast with the conditions.
      default: what to take where no condition holds.

    Returns:
      An array of the shape they broadcast to, in the dtype that the choices and `default` promote to.

    Raises:
      ArgumentError: the two have different lengths, or none.

    Examples:
      >>> jnp.select([jnp.array([True, False])], [jnp.array([1, 2])], 9).tolist()
      [1, 9]
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(
            "select, argument choicelist", expected=f"{len(condlist)} choices, at least one", got=len(choicelist),
            mend="give one choice for each condition",
        )  # fmt: skip
    return _select(list(condlist), list(choicelist), default)


@eager_program
def _select(conditions: list, choices: list, default: Any) -> Any:
    *choices, out = promote("select", *choices, default)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = where(condition, choice, out)
    return out


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """For each element, the function of the last condition that holds for it.

    Args:
      x: an array or a scalar.
      condlist: conditions of the shape of `x`, or one of them.
      funclist: functions or values, one for each condition and perhaps one more for where none holds, else 0.
      args, kw: passed to the functions, which get all of `x`.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      ArgumentError: the number of functions is wrong.

    Examples:
      >>> x = jnp.array([-1.0, 2.0])
      >>> jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: x * 10]).tolist()
      [1.0, 20.0]
    """
    x = operand(x, "piecewise")
    if hasattr(condlist, "aval") or isinstance(condlist, np.ndarray):
        conditions = [condlist] if condlist.ndim <= x.ndim and condlist.shape == x.shape else list(condlist)
    else:
        conditions = list(condlist) if condlist and not isinstance(condlist[0], bool) else [array(condlist)]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            "piecewise, argument funclist", expected=f"{len(conditions)} or {len(conditions) + 1} functions",
            got=len(functions), mend="give one for each condition",
        )  # fmt: skip
    default = functions.pop() if len(functions) > len(conditions) else 0
    out = _applied(default, x, args, kw)
    for condition, function in zip(conditions, functions, strict=True):
        out = where(condition, _applied(function, x, args, kw), out)
    return out


def _applied(function: Any, x: Any, args: tuple, kw: dict) -> Any:
    value = function(x, *args, **kw) if callable(function) else function
    value = operand(value, "piecewise")
    return broadcast_to_shape(value.astype(x.dtype) if value.dtype != x.dtype else value, x.shape)


def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of vectors applied to those along an axis.

    Args:
      func1d: takes a vector, `args` and `kwargs`.
      axis: along which the vectors lie.
      arr: of rank 1 or more.
      args, kwargs: passed to the function.

    Returns:
      An array with the dimensions of the function's result in place of the axis.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.apply_along_axis(jnp.sum, 0, jnp.array([[1, 2], [3, 4]])).tolist()
      [4, 6]
    """
    from phalanx.transforms import vmap

    x = operand(arr, "apply_along_axis")
    axis = canonical_axis(axis, x.ndim, "apply_along_axis")

    def function(v: Any) -> Any:
        return func1d(v, *args, **kwargs)

    for _ in range(x.ndim - axis - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    for _ in range(axis):
        function = vmap(function, in_axes=0, out_axes=0)
    return function(x)


def apply_over_axes(func: Callable, a: Any, axes: Any) -> Any:
    """A reduction applied over axes one after the other, which stay with size 1.

    Args:
      func: takes an array and `axis=`, as `sum` does.
      a: an array.
      axes: an axis or several, in the order of application.

    Returns:
      An array of the rank of `a`.

    Raises:
      AxisError: there is no such axis.
      ShapeError: a result has not the rank of `a`, or one less.

    Examples:
      >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 2)), [0, 1]).tolist()
      [[4.0]]
    """
    x = operand(a, "apply_over_axes")
    for axis in canonical_axes(axes if isinstance(axes, tuple | list) else (axes,), x.ndim, "apply_over_axes"):
        y = func(x, axis=axis)
        if y.ndim == x.ndim - 1:
            y = lax.expand_dims(y, (axis,))
        if y.ndim != x.ndim:
            raise ShapeError(
                "apply_over_axes, argument func", expected=f"a result of rank {x.ndim} or one less", got=y.shape,
                mend="reduce along the given axis only",
            )  # fmt: skip
        x = y
    return x


_SIGNATURE = re.compile(r"^\s*(\([^()]*\)\s*(,\s*\([^()]*\)\s*)*)->\s*(\([^()]*\)\s*(,\s*\([^()]*\)\s*)*)$")


def _parse_signature(signature: str) -> tuple[list, list]:
    """The names of the core dimensions of each argument and each result.

    Raises:
      ArgumentError: the text is no signature.
    """
    if not _SIGNATURE.match(signature):
        raise ArgumentError(
            "vectorize, argument signature", expected="a text such as '(m,n),(n)->(m)'", got=repr(signature),
            mend="name the core dimensions of each argument and result in parentheses",
        )  # fmt: skip
    sides = signature.split("->")
    return tuple(  # type: ignore[return-value]
        [tuple(n.strip() for n in part.split(",") if n.strip()) for part in re.findall(r"\(([^()]*)\)", side)]
        for side in sides
    )


def vectorize(pyfunc: Callable, *, excluded: Any = frozenset(), signature: str | None = None) -> Callable:
    """Let a function of elements, or of arrays of a few core dimensions, broadcast over all other dimensions.

    Args:
      pyfunc: the function.
      excluded: positions or names of arguments to pass as they are.
      signature: the core dimensions, such as `"(m,n),(n)->(m)"`; none by default.

    Returns:
      The broadcasting function.

    Raises:
      ArgumentError: the signature is malformed, or disagrees with the arguments.

    Examples:
      >>> dot = jnp.vectorize(jnp.vdot, signature="(n),(n)->()")
      >>> dot(jnp.ones((2, 3)), jnp.ones(3)).tolist()
      [3.0, 3.0]
    """
    excluded = frozenset(excluded)
    parsed = _parse_signature(signature) if signature is not None else None

    @boundary
    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        fixed = {i: x for i, x in enumerate(args) if i in excluded or x is None}
        names = [n for n in kwargs if n not in excluded]
        arrays = [x for i, x in enumerate(args) if i not in fixed] + [kwargs[n] for n in names]

        def function(*xs: Any) -> Any:
            count = len(xs) - len(names)
            given = iter(xs[:count])
            positional = [fixed[i] if i in fixed else next(given) for i in range(len(args))]
            named = {n: v for n, v in kwargs.items() if n in excluded} | dict(zip(names, xs[count:], strict=True))
            return pyfunc(*positional, **named)

        return _vectorized(function, arrays, parsed, excluded)

    return vectorized


def _vectorized(function: Callable, args: list, parsed: tuple | None, excluded: frozenset) -> Any:
    from phalanx.transforms import vmap

    args = [operand(x, f"vectorize, argument {i}") for i, x in enumerate(args)]
    cores = parsed[0] if parsed is not None else [()] * len(args)
    if len(cores) != len(args):
        raise ArgumentError(
            "vectorize", expected=f"{len(cores)} arguments, as the signature has", got=len(args),
            mend="name arguments to be passed as they are in excluded",
        )  # fmt: skip
    sizes: dict[str, Any] = {}
    shapes = []
    for i, (x, core) in enumerate(zip(args, cores, strict=True)):
        if x.ndim < len(core):
            raise ShapeError(
                f"vectorize, argument {i}", expected=f"the core dimensions ({','.join(core)})", got=x.shape,
                mend="add the missing dimensions",
            )  # fmt: skip
        cut = x.ndim - len(core)
        for name, n in zip(core, x.shape[cut:], strict=True):
            if sizes.setdefault(name, n) != n:
                raise ShapeError(
                    f"vectorize, argument {i}", expected=f"{sizes[name]} for the core dimension {name}", got=n,
                    mend="give arguments whose core dimensions agree",
                )  # fmt: skip
        shapes.append(x.shape[:cut])
    loop = broadcast_shapes(*shapes, where="vectorize")
    checked = _checked(function, parsed, sizes)
    # Dimensions of size 1 are mapped by none, so that nothing is repeated that need not be.
    squeezed = [lax.squeeze(x, tuple(i for i, d in enumerate(s) if d == 1 and loop[len(loop) - len(s) + i] != 1))
                if any(d == 1 and loop[len(loop) - len(s) + i] != 1 for i, d in enumerate(s)) else x
                for x, s in zip(args, shapes, strict=True)]  # fmt: skip
    for d in range(len(loop)):
        at = len(loop) - 1 - d
        axes = []
        for s in shapes:
            i = at - (len(loop) - len(s))
            axes.append(0 if i >= 0 and not (s[i] == 1 and loop[at] != 1) else None)
        if any(a is not None for a in axes):
            checked = vmap(checked, in_axes=tuple(axes))
    return checked(*squeezed)


def _checked(function: Callable, parsed: tuple | None, sizes: dict) -> Callable:
    if parsed is None:
        return function

    def checked(*xs: Any) -> Any:
        out = function(*xs)
        results = out if isinstance(out, tuple | list) else (out,)
        if len(results) != len(parsed[1]):
            raise ArgumentError(
                "vectorize", expected=f"{len(parsed[1])} results, as the signature has", got=len(results),
                mend="change the signature",
            )  # fmt: skip
        for core, y in zip(parsed[1], results, strict=True):
            found = np.shape(y)
            agrees = len(found) == len(core) and all(sizes.get(n, d) == d for n, d in zip(core, found, strict=True))
            if not agrees:
                raise ShapeError(
                    "vectorize", expected=f"a result with core dimensions ({','.join(core)})", got=found,
                    mend="change the signature or the function",
                )  # fmt: skip
        return out

    return checked


def frompyfunc(func: Callable, /, nin: int, nout: int, *, identity: Any = None) -> Callable:
    """A ufunc of a function of scalars: it broadcasts, and has reduce, accumulate, outer and at.

    Args:
      func: takes scalars, and can be traced.
      nin: its number of arguments.
      nout: its number of results.
      identity: its neutral element, if it has one.

    Returns:
      A function of arrays; with two arguments it has the methods of binary ufuncs.

    Examples:
      >>> double = jnp.frompyfunc(lambda x: 2 * x, 1, 1)
      >>> double(jnp.arange(3)).tolist()
      [0, 2, 4]
    """
    from phalanx.numpy.ufunc_methods import equip

    mapped = vectorize(func)

    def ufunc(*args: Any) -> Any:
        if len(args) != nin:
            raise ArgumentError(f"{func.__name__}", expected=f"{nin} arguments", got=len(args), mend="give as many")
        return mapped(*args)

    ufunc.__name__ = func.__name__
    ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.identity = nin, nout, nin + nout, identity  # type: ignore[attr-defined]
    if nin == 2:
        equip(ufunc, identity, None, None)
    return ufunc


class _Recognising(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return callable(x) and hasattr(x, "nin") and hasattr(x, "nout") and not isinstance(x, np.ufunc)


class ufunc(metaclass=_Recognising):
    """A function of elements that broadcasts: `jnp.add` and its kin are such; a call makes one, as `frompyfunc` does.

    Binary ones have the methods `reduce`, `accumulate`, `outer`, `at` and `reduceat`.

    Args:
      func: the function of scalars.
      nin, nout: number of its arguments and results.
      identity: its neutral element, if it has one.

    Examples:
      >>> isinstance(jnp.add, jnp.ufunc), isinstance(jnp.sum, jnp.ufunc)
      (True, False)
      >>> jnp.ufunc(lambda x, y: x * y, 2, 1, identity=1).reduce(jnp.arange(1, 5)).item()
      24
    """

    def __new__(cls, func: Callable, /, nin: int, nout: int, *, identity: Any = None) -> Any:
        return frompyfunc(func, nin, nout, identity=identity)
