"""Functions applied over leading dimensions or along axes: `vectorize`, `apply_along_axis`, `frompyfunc`."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, ShapeError
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.numpy.operands import broadcast_shapes, canonical_axes, canonical_axis, to_operand
from phalanx.numpy.ufuncs.ufunc_methods import equip
from phalanx.transforms import vmap
from phalanx.typing import Array, ArrayLike, Axis


def apply_along_axis(func1d: Callable, axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    """Apply a function to the one-dimensional slices along an axis.

    Args:
      func1d: function of a vector, `args` and `kwargs`; it is mapped with `vmap`.
      axis: axis along which the slices are taken.
      arr: array of rank 1 or more.
      args, kwargs: passed to `func1d`.

    Returns:
      An array in which the axis is replaced by the dimensions of the function's result.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.apply_along_axis(jnp.sum, 0, jnp.array([[1, 2], [3, 4]])).tolist()
      [4, 6]
    """
    x = to_operand(arr, "apply_along_axis")
    axis = canonical_axis(axis, x.ndim, "apply_along_axis")

    def function(v: Array) -> Any:
        return func1d(v, *args, **kwargs)

    # Map the dimensions behind the axis, last one first, then those before it: the order of dimensions is kept.
    for _ in range(x.ndim - axis - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    for _ in range(axis):
        function = vmap(function, in_axes=0, out_axes=0)
    return function(x)


def apply_over_axes(func: Callable, a: ArrayLike, axes: Axis) -> Array:
    """Apply a reduction over several axes in turn, keeping them with size 1.

    Args:
      func: a reduction that takes an array and `axis=`, such as `sum`.
      a: an array.
      axes: the axis or axes, in order of application.

    Returns:
      An array of the rank of `a`.

    Raises:
      AxisError: an axis is out of range.
      ShapeError: the rank of a result is neither that of `a` nor one less.

    Examples:
      >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 2)), [0, 1]).tolist()
      [[4.0]]
    """
    x = to_operand(a, "apply_over_axes")
    for axis in canonical_axes(axes if isinstance(axes, tuple | list) else (axes,), x.ndim, "apply_over_axes"):
        y = func(x, axis=axis)
        if y.ndim == x.ndim - 1:
            y = lax.expand_dims(y, (axis,))
        if y.ndim != x.ndim:
            raise ShapeError(
                "apply_over_axes, argument func",
                expected=f"a result of rank {x.ndim} or one less",
                got=y.shape,
                fix="reduce along the given axis only",
            )
        x = y
    return x


_SIGNATURE = re.compile(r"^\s*(\([^()]*\)\s*(,\s*\([^()]*\)\s*)*)->\s*(\([^()]*\)\s*(,\s*\([^()]*\)\s*)*)$")


def _parse_signature(signature: str) -> tuple[list, list]:
    """The names of the core dimensions of each argument and each result.

    Raises:
      ArgumentError: the string is not a signature.
    """
    if not _SIGNATURE.match(signature):
        raise ArgumentError(
            "vectorize, argument signature",
            expected="a string such as '(m,n),(n)->(m)'",
            got=repr(signature),
            fix="name the core dimensions of each argument and result in parentheses",
        )
    return tuple(  # type: ignore[return-value]
        [tuple(n.strip() for n in part.split(",") if n.strip()) for part in re.findall(r"\(([^()]*)\)", side)]
        for side in signature.split("->")
    )


def vectorize(
    pyfunc: Callable, *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable:
    """Vectorize a function of scalars, or of arrays with core dimensions, over leading dimensions.

    Args:
      pyfunc: the function.
      excluded: positions or names of arguments that are passed through unmapped.
      signature: core dimensions, for example `"(m,n),(n)->(m)"`; none by default.

    Returns:
      The vectorized function.

    Raises:
      ArgumentError: the signature is malformed or does not match the arguments.

    Examples:
      >>> dot = jnp.vectorize(jnp.vdot, signature="(n),(n)->()")
      >>> dot(jnp.ones((2, 3)), jnp.ones(3)).tolist()
      [3.0, 3.0]
    """
    excluded = frozenset(excluded)
    parsed = _parse_signature(signature) if signature is not None else None

    @api_boundary
    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        # None and excluded arguments are passed through unmapped.
        fixed = {i: x for i, x in enumerate(args) if i in excluded or x is None}
        if parsed is not None and any(x is None and i not in excluded for i, x in fixed.items()):
            raise ArgumentError(
                "vectorize",
                expected=f"arrays with the core dimensions of {signature}",
                got="None",
                fix="add the position of the argument to excluded",
            )
        names = [n for n in kwargs if n not in excluded]
        arrays = [x for i, x in enumerate(args) if i not in fixed] + [kwargs[n] for n in names]

        def function(*xs: Any) -> Any:
            count = len(xs) - len(names)
            given = iter(xs[:count])
            positional = [fixed[i] if i in fixed else next(given) for i in range(len(args))]
            named = {n: v for n, v in kwargs.items() if n in excluded} | dict(zip(names, xs[count:], strict=True))
            return pyfunc(*positional, **named)

        return _call_vectorized(function, arrays, parsed, excluded)

    return vectorized


def _call_vectorized(function: Callable, args: list, parsed: tuple | None, excluded: frozenset) -> Any:
    args = [to_operand(x, f"vectorize, argument {i}") for i, x in enumerate(args)]
    cores = parsed[0] if parsed is not None else [()] * len(args)
    if len(cores) != len(args):
        raise ArgumentTypeError(
            "vectorize",
            expected=f"{len(cores)} arguments, as the signature has",
            got=len(args),
            fix="name arguments to be passed as they are in excluded",
        )
    sizes: dict[str, Any] = {}
    shapes = []
    for i, (x, core) in enumerate(zip(args, cores, strict=True)):
        if x.ndim < len(core):
            raise ShapeError(
                f"vectorize, argument {i}",
                expected=f"the core dimensions ({','.join(core)})",
                got=x.shape,
                fix="add the missing dimensions to the argument, or remove them from the signature",
            )
        cut = x.ndim - len(core)
        for name, n in zip(core, x.shape[cut:], strict=True):
            # Dimensions of one name must be equal; core dimensions do not broadcast.
            if sizes.setdefault(name, n) != n:
                raise ShapeError(
                    f"vectorize, argument {i}",
                    expected=f"{sizes[name]} for the core dimension {name}",
                    got=n,
                    fix="give arguments whose core dimensions agree",
                )
        shapes.append(x.shape[:cut])
    loop = broadcast_shapes(*shapes, where="vectorize")
    with_check = _check_results(function, parsed, sizes)
    # Dimensions of size 1 are squeezed and left unmapped, so that broadcasting copies nothing.
    squeezed = [
        lax.squeeze(x, tuple(i for i, d in enumerate(s) if d == 1 and loop[len(loop) - len(s) + i] != 1))
        if any(d == 1 and loop[len(loop) - len(s) + i] != 1 for i, d in enumerate(s))
        else x
        for x, s in zip(args, shapes, strict=True)
    ]
    # From the last loop dimension to the first: each `vmap` adds a leading dimension.
    for at in reversed(range(len(loop))):
        places = [at - (len(loop) - len(s)) for s in shapes]
        axes = tuple(0 if i >= 0 and (s[i] != 1 or loop[at] == 1) else None for i, s in zip(places, shapes))
        if any(a is not None for a in axes):
            with_check = vmap(with_check, in_axes=axes)
    return with_check(*squeezed)


def _check_results(function: Callable, parsed: tuple | None, sizes: dict) -> Callable:
    if parsed is None:
        return function

    def with_check(*xs: Any) -> Any:
        out = function(*xs)
        results = out if isinstance(out, tuple | list) else (out,)
        if len(results) != len(parsed[1]):
            raise ArgumentError(
                "vectorize",
                expected=f"{len(parsed[1])} results, as the signature has",
                got=len(results),
                fix="name one parenthesized result in the signature for each value returned",
            )
        for core, y in zip(parsed[1], results, strict=True):
            found = np.shape(y)
            if len(found) != len(core) or any(sizes.get(n, d) != d for n, d in zip(core, found, strict=True)):
                raise ShapeError(
                    "vectorize",
                    expected=f"a result with core dimensions ({','.join(core)})",
                    got=found,
                    fix="change the signature or the function",
                )
        return out

    return with_check


def frompyfunc(func: Callable, /, nin: int, nout: int, *, identity: ArrayLike | None = None) -> Callable:
    """Turn a function of scalars into a ufunc: it broadcasts, and has `reduce`, `accumulate`, `outer` and `at`.

    Args:
      func: a traceable function of scalars.
      nin: number of arguments.
      nout: number of results.
      identity: neutral element of the function, if it has one.

    Returns:
      A function of arrays with the methods of ufuncs.

    Raises:
      ArgumentError: a count is negative; or, at a call, the function has another number of arguments or results.

    Examples:
      >>> double = jnp.frompyfunc(lambda x: 2 * x, 1, 1)
      >>> double(jnp.arange(3)).tolist()
      [0, 2, 4]
    """
    return ufunc(func, nin, nout, identity=identity)


class _UfuncMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return type(x) is cls or (isinstance(x, FunctionType) and hasattr(x, "reduceat"))


class ufunc(metaclass=_UfuncMeta):
    """The class of elementwise functions such as `jnp.add`; calling it is the same as calling `frompyfunc`.

    Binary ufuncs have the methods `reduce`, `accumulate`, `outer`, `at` and `reduceat`. Two ufuncs of the same function
    are equal, and their attributes cannot be set.

    Args:
      func: the function of scalars.
      nin, nout: number of arguments and results.
      identity: neutral element of the function, if it has one.

    Examples:
      >>> isinstance(jnp.add, jnp.ufunc), isinstance(jnp.sum, jnp.ufunc)
      (True, False)
      >>> jnp.ufunc(lambda x, y: x * y, 2, 1, identity=1).reduce(jnp.arange(1, 5)).item()
      24
    """

    _func: Callable
    _mapped: Callable
    nin: int
    nout: int
    identity: Any

    def __init__(self, func: Callable, /, nin: int, nout: int, *, identity: Any = None):
        for name, count in (("nin", nin), ("nout", nout)):
            if operator.index(count) < 0:
                raise ArgumentError(
                    f"frompyfunc, argument {name}",
                    expected="a number of at least 0",
                    got=count,
                    fix=f"pass the number of {'arguments' if name == 'nin' else 'results'} of the function",
                )
        vars(self).update(_func=func, _mapped=vectorize(func), nin=nin, nout=nout, __name__=func.__name__)
        equip(self, identity, None, None)

    def __call__(self, *args: Any) -> Any:
        """Apply the function to each element of the arguments, which broadcast.

        Args:
          *args: arrays, as many as `nin`.

        Returns:
          An array, or a tuple of `nout` arrays.

        Raises:
          ArgumentError: the number of arguments or of results is another one.
        """
        if len(args) != self.nin:
            raise ArgumentError(
                f"{self._func.__name__}",
                expected=f"{self.nin} arguments",
                got=len(args),
                fix=f"call it with {self.nin} arguments, as declared by nin",
            )
        results = self._mapped(*args)
        count = len(results) if isinstance(results, tuple) else 1
        if count != self.nout:
            raise ArgumentError(
                f"{self._func.__name__}",
                expected=f"{self.nout} results, as declared by nout",
                got=count,
                fix=f"pass nout={count} to frompyfunc, or return {self.nout} results",
            )
        return results

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"ufunc.{name} is read-only; make another ufunc with frompyfunc")

    def _key(self) -> tuple:
        return self._func, self.nin, self.nout, self.identity

    def __eq__(self, other: object) -> bool:
        return type(other) is ufunc and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<ufunc {self._func.__name__!r}>"
