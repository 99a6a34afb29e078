"""Alpha equivalence of jaxprs: equality up to the names of variables.

An eager `shard_map` traces its function again at every call, since the function may close over other arrays than
before. If the new jaxpr is alpha-equivalent to the previous one, the compiled program is reused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import Atom, Jaxpr, Literal

_NUMBERS = (bool, int, float, complex, np.generic)


def is_alpha_equivalent(a: Jaxpr, b: Jaxpr) -> bool:
    """Whether two jaxprs compute the same function of their inputs and constants.

    The equations are compared in order. A dictionary maps each variable of `a` to the variable of `b` that is bound at
    the same place; operands are equal if they correspond under this map.

    Args:
      a, b: the jaxprs. The values of their constants are ignored.

    Returns:
      True if the jaxprs differ in the names of variables only.
    """
    pairs: dict[Any, Any] = {}

    def define(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
        # Abstract values are interned, so `is` compares them.
        pairs.update(zip(xs, ys, strict=False))
        return len(xs) == len(ys) and all(x.aval is y.aval for x, y in zip(xs, ys, strict=True))

    def read(xs: Sequence[Atom], ys: Sequence[Atom]) -> bool:
        return len(xs) == len(ys) and all(map(is_same, xs, ys))

    def is_same(x: Atom, y: Atom) -> bool:
        if type(x) is not Literal:
            return pairs.get(x) is y
        if type(y) is not Literal or x.aval is not y.aval:
            return False
        # Bits instead of ==, since NaN differs from itself and 0.0 equals -0.0.
        bits = [np.asarray(v).tobytes() for v in (x.value, y.value) if isinstance(v, _NUMBERS)]
        return x.value is y.value or (len(bits) == 2 and bits[0] == bits[1])

    return (
        len(a.eqns) == len(b.eqns)
        and define([*a.constvars, *a.invars], [*b.constvars, *b.invars])
        and all(
            e.primitive is f.primitive
            and _are_params_equivalent(e.params, f.params)
            and read(e.invars, f.invars)
            and define(e.outvars, f.outvars)
            for e, f in zip(a.eqns, b.eqns, strict=True)
        )
        and read(a.outvars, b.outvars)
    )


def _are_params_equivalent(u: Any, v: Any) -> bool:
    """Whether two parameters of equations are equal; nested jaxprs are compared up to the names of variables."""
    if u is v or type(u) is not type(v):
        return u is v
    if isinstance(u, Jaxpr):
        return is_alpha_equivalent(u, v) and all(map(operator.is_, u.consts, v.consts))
    if isinstance(u, dict):
        return u.keys() == v.keys() and all(_are_params_equivalent(u[k], v[k]) for k in u)
    if isinstance(u, tuple | list):
        return len(u) == len(v) and all(map(_are_params_equivalent, u, v))
    # Arrays among parameters count as different, since `==` compares them elementwise.
    return not isinstance(u, np.ndarray) and bool(u == v)
