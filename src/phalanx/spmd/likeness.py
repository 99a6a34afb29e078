"""Likeness: whether two programs compute the same, so that one that was compiled already may stand for the other.

Called by `shard_map`, which stages its function anew for each call.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.jaxpr import Atom, Jaxpr, Literal

_NUMBERS = (bool, int, float, complex, np.generic)


def are_alike(a: Jaxpr, b: Jaxpr) -> bool:
    """Whether two programs compute the same of their inputs and constants, whatever the values of these."""
    if a is b:
        return True
    pairs: dict[Any, Any] = {}

    def define(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
        pairs.update(zip(xs, ys, strict=False))
        return len(xs) == len(ys) and all(x.aval is y.aval for x, y in zip(xs, ys, strict=True))

    def read(xs: Sequence[Atom], ys: Sequence[Atom]) -> bool:
        return len(xs) == len(ys) and all(map(is_same, xs, ys))

    def is_same(x: Atom, y: Atom) -> bool:
        if type(x) is not Literal:
            return pairs.get(x) is y
        if type(y) is not Literal or x.aval is not y.aval:
            return False
        bits = [np.asarray(v).tobytes() for v in (x.value, y.value) if isinstance(v, _NUMBERS)]
        return x.value is y.value or (len(bits) == 2 and bits[0] == bits[1])

    return (
        len(a.eqns) == len(b.eqns)
        and define([*a.constvars, *a.invars], [*b.constvars, *b.invars])
        and all(
            e.primitive is f.primitive
            and _are_alike(e.params, f.params)
            and read(e.invars, f.invars)
            and define(e.outvars, f.outvars)
            for e, f in zip(a.eqns, b.eqns, strict=True)
        )
        and read(a.outvars, b.outvars)
    )


def _are_alike(u: Any, v: Any) -> bool:
    """Whether two values of parameters are the same, or programs that are."""
    if u is v:
        return True
    if type(u) is not type(v):
        return False
    if isinstance(u, Jaxpr):
        return are_alike(u, v) and all(map(operator.is_, u.consts, v.consts))
    if isinstance(u, dict):
        return u.keys() == v.keys() and all(_are_alike(u[k], v[k]) for k in u)
    if isinstance(u, tuple | list):
        return len(u) == len(v) and all(map(_are_alike, u, v))
    return not isinstance(u, np.ndarray) and bool(u == v)
