"""`fori_loop`: a counted loop; a `scan` if its bounds are static, and a `while_loop` otherwise."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Tracer,
    check_function,
    format_code_position,
    get_aval,
    promotion,
    vector_space,
)
from phalanx.lax.control_flow.scan import bind_scan
from phalanx.lax.control_flow.while_loop import bind_while
from phalanx.lax.elementwise import add, lt
from phalanx.lax.shape import dimension_size
from phalanx.typing import ArrayLike, DimSize, PyTree


def fori_loop(
    lower: ArrayLike | DimSize,
    upper: ArrayLike | DimSize,
    body_fun: Callable[[ArrayLike, PyTree], PyTree],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
) -> PyTree:
    """Repeat a function for each index of a range.

    Args:
      lower: the first index.
      upper: the end of the range, exclusive.
      body_fun: `(i, carry) -> carry`; it must preserve the structure and the types of the carry.
      init_val: the initial carry.
      unroll: as in `scan`; requires bounds that are known while tracing.

    Returns:
      The final carry. If the bounds are known while tracing, the loop is a `scan` and can be differentiated in reverse
      mode, too.

    Raises:
      ArgumentTypeError: a bound is not an integer scalar, or the body changes the types of the carry.
      TreeError: the body changes the structure of the carry.
      ArgumentError: `unroll` is given and a bound is traced.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.fori_loop(0, 5, lambda i, x: x + i, 0))
      10
    """
    check_function("fori_loop, argument body_fun", body_fun)
    label = lambda path: f"fori_loop, result{path} of body_fun = {format_code_position(body_fun)}"
    lower, upper = dimension_size(lower), dimension_size(upper)
    dtype, weak = _index_dtype(lower, upper)
    # With a static number of iterations the loop is a scan, which can be differentiated in reverse mode.
    if all(not isinstance(b, Tracer) or b.concrete is not None for b in (lower, upper)):
        start, stop = operator.index(lower), operator.index(upper)
        (_, final), _ = bind_scan(
            body_fun,
            (start if weak else np.asarray(start, dtype)[()], init_val),
            None,
            max(stop - start, 0),
            unroll=unroll or 1,
            name="fori_loop",
            adapt=_count_iterations,
            result_label=label,
            init_name="init_val",
            num_counters=1,
        )
        return final
    if unroll is not None and unroll is not False:
        raise ArgumentError(
            "fori_loop, argument unroll",
            expected="bounds that are known while tracing",
            got="traced bounds",
            fix="drop unroll, or pass static bounds",
        )
    low, high = (b if weak else vector_space.convert(b, dtype) for b in (lower, upper))
    # The upper bound is part of the carry, so that it may be mapped or vary over devices like any other value.
    return bind_while(
        lambda c: lt(c[0], c[1]),
        lambda c: (add(c[0], 1), c[1], body_fun(c[0], c[2])),
        (low, high, init_val),
        label,
        num_counters=2,
    )[2]


def _count_iterations(body_fun: Callable) -> Callable:
    """One iteration of a counted loop as the body of a scan; the index is carried, and keeps its dtype."""

    def step(carry: tuple, _: None) -> tuple:
        i, x = carry
        return (add(i, 1), body_fun(i, x)), None

    return step


def _index_dtype(lower: ArrayLike, upper: ArrayLike) -> tuple[Any, bool]:
    """The dtype of the index, and whether it is weak.

    Raises:
      ArgumentTypeError: a bound is not an integer scalar.
    """
    for name, b in (("lower", lower), ("upper", upper)):
        aval = get_aval(b)
        if aval.shape != () or aval.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"fori_loop, argument {name}",
                expected="an integer scalar",
                got=aval.str_short(),
                fix="convert it with .astype(int)",
            )
    return promotion.result_type(lower, upper, return_weak_type_flag=True)
