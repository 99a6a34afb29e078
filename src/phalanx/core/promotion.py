"""Type promotion: the common dtype of several operands.

The rules follow the public table "Type promotion semantics" of JAX: a lattice in which the Python scalar types
are below the array dtypes of their kind. Results are cached, since every operation on several arrays asks for one.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Final

from phalanx.core.config import current_scope
from phalanx.core.dtypes import (
    _BOOL,
    _COMPLEX,
    _FLOATS,
    _SIGNED,
    _SMALL_FLOATS,
    _SMALL_SIGNED,
    _SMALL_UNSIGNED,
    _UNSIGNED,
    _canonical,
    as_dtype,
    dtype_and_weakness,
    is_extended,
    scalar_type_of,
    supported,
    wide,
)
from phalanx.core.error_classes import ArgumentTypeError, TypePromotionError


def _lattice() -> dict[Any, frozenset[Any]]:
    """For each node (a dtype, or a Python type for weak operands) the nodes at or above it."""
    above: dict[Any, list[Any]] = {
        _BOOL[0]: [int],
        int: [*_SMALL_SIGNED, *_SMALL_UNSIGNED, _SIGNED[0], _UNSIGNED[0]],
        float: [*_SMALL_FLOATS, _FLOATS[0], _FLOATS[1], complex],
        complex: [_COMPLEX[0]],
        _FLOATS[0]: [_FLOATS[2]],
        _FLOATS[1]: [_FLOATS[2]],
        _FLOATS[2]: [_FLOATS[3], _COMPLEX[0]],
        _FLOATS[3]: [_COMPLEX[1]],
        _COMPLEX[0]: [_COMPLEX[1]],
        _SIGNED[3]: [float],
        _UNSIGNED[3]: [float],
    }
    above |= {small: [large] for small, large in itertools.pairwise(_SIGNED)}
    # An unsigned dtype is below the next larger signed one, which holds all its values.
    above |= {u: [large, signed] for u, large, signed in zip(_UNSIGNED, _UNSIGNED[1:], _SIGNED[1:], strict=False)}
    return _close(above)


# Under "strict", only Python scalars adapt to arrays of their kind.
_STRICT: Final[dict[Any, list[Any]]] = {
    int: [float, *_SMALL_SIGNED, *_SMALL_UNSIGNED, *_SIGNED, *_UNSIGNED],
    float: [complex, *_SMALL_FLOATS, *_FLOATS],
    complex: [*_COMPLEX],
}


def _close(above: dict[Any, list[Any]]) -> dict[Any, frozenset[Any]]:
    @functools.cache
    def reach(node: Any) -> frozenset[Any]:
        return frozenset((node,)).union(*map(reach, above.get(node, ())))

    return {node: reach(node) for node in (*supported, int, float, complex)}


_lattices: Final = {"standard": _lattice(), "strict": _close(_STRICT)}


def _join(nodes: list[Any], mode: str) -> Any:
    """The least node that is at or above all of `nodes`."""
    lattice = _lattices[mode]
    if all(node in lattice for node in nodes):
        common = frozenset.intersection(*(lattice[node] for node in nodes))
        # The least upper bound is the one common node below all others; a lattice without one has no common dtype.
        for node in common:
            if common <= lattice[node]:
                return node
    elif all(node == nodes[0] for node in nodes):
        return nodes[0]
    raise _no_promotion(nodes, mode)


def _no_promotion(nodes: list[Any], mode: str) -> TypePromotionError:
    names = " and ".join(f"a Python {n.__name__}" if isinstance(n, type) else str(n) for n in dict.fromkeys(nodes))
    if any(is_extended(node) for node in nodes):
        expected, fix = "numbers, or keys of one generator", "take the numbers with phalanx.random.key_data"
    elif mode == "strict":
        expected = "equal dtypes, since numpy_dtype_promotion is 'strict'"
        fix = "convert one with astype, or set numpy_dtype_promotion to 'standard'"
    else:
        expected = "dtypes with a common one; floats of 8 bits or fewer and integers of fewer than 8 have none"
        fix = "convert one with astype, as in x.astype('float32')"
    return TypePromotionError("promotion of dtypes", expected=expected, got=names, fix=fix)


_promoted: Final[dict[tuple[Any, ...], tuple[Any, bool]]] = {}


def promote_pair(x: Any, x_weak: bool, y: Any, y_weak: bool) -> tuple[Any, bool]:
    """Dtype and weakness of the result of an operation on two canonical dtypes; cached.

    Raises:
      TypePromotionError: there is no common dtype.

    Examples:
      >>> import numpy as np
      >>> promote_pair(np.dtype("int32"), False, np.dtype("float32"), True)
      (dtype('float32'), True)
    """
    if x is y and x_weak is y_weak:
        return x, x_weak
    context = current_scope().context
    key = (x, x_weak, y, y_weak, context.enable_x64, context.numpy_dtype_promotion)
    found = _promoted.get(key)
    if found is None:
        found = _promoted[key] = _promote(((x, x_weak), (y, y_weak)), context)
    return found


def _promote(operands: tuple[tuple[Any, bool], ...], context: Any) -> tuple[Any, bool]:
    dtypes = list(dict.fromkeys(dtype for dtype, _ in operands))
    all_weak = all(weak for _, weak in operands)
    if len(dtypes) == 1:
        return dtypes[0], all_weak
    if all_weak:
        return _canonical(_join(dtypes, "standard"), context.enable_x64), True
    nodes = [scalar_type_of(dtype) if weak and dtype != _BOOL[0] else dtype for dtype, weak in operands]
    common = _join(nodes, context.numpy_dtype_promotion)
    return _canonical(common, context.enable_x64), isinstance(common, type)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype of an operation on arrays of two dtypes.

    Args:
      a, b: dtypes, their names, or Python scalar types, which are weak.

    Returns:
      The dtype, which may have 64 bits also where `enable_x64` is off; `result_type` narrows it to 32 bits there.

    Raises:
      TypePromotionError: there is no common dtype.

    Examples:
      >>> promote_types("int32", "float16"), promote_types("uint8", int), promote_types("int8", "uint64")
      (dtype('float16'), dtype('uint8'), dtype('float64'))
    """
    nodes = [spec if spec in (int, float, complex) else as_dtype(spec) for spec in (a, b)]
    common = _join(nodes, current_scope().context.numpy_dtype_promotion)
    # Only the dtypes that are asked for may have 64 bits: int32 and uint32 become int32 where they are off.
    is_wide = isinstance(common, type) or not wide.isdisjoint(nodes)
    return as_dtype(common) if is_wide else _canonical(common, current_scope().context.enable_x64)


def join_dtypes(a: Any, b: Any) -> Any:
    """The smallest dtype that holds the values of both, for conversions that users do not request.

    Unlike `promote_types`, it does not depend on the option `numpy_dtype_promotion`.

    Examples:
      >>> import numpy as np
      >>> join_dtypes(np.dtype("float32"), np.dtype("complex64"))
      dtype('complex64')
    """
    return _join([as_dtype(a), as_dtype(b)], "standard")


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on all of `args`.

    Args:
      *args: values, dtypes, or scalar types.
      return_weak_type_flag: also return whether the result is weak.

    Returns:
      The dtype; with `return_weak_type_flag`, a pair of it and a bool.

    Raises:
      ArgumentTypeError: an argument has no dtype, or there is none.
      TypePromotionError: there is no common dtype.

    Examples:
      >>> import numpy as np
      >>> result_type(1, np.float16(2)), result_type(1, 2.0, return_weak_type_flag=True)
      (dtype('float16'), (dtype('float32'), True))
    """
    if not args:
        raise ArgumentTypeError(
            "result_type", expected="at least one argument", got="none", fix="pass the arrays or dtypes to combine"
        )
    operands = tuple(map(dtype_and_weakness, args))
    if len(operands) <= 2:
        result = promote_pair(*operands[0], *operands[-1])
    else:
        # Not pairwise: with weak types, the join of three operands is not the join of two joins.
        context = current_scope().context
        key = (operands, context.enable_x64, context.numpy_dtype_promotion)
        found = _promoted.get(key)
        result = _promoted[key] = _promote(operands, context) if found is None else found
    return result if return_weak_type_flag else result[0]
