"""The API for authors of jaxpr interpreters: equations, variables, and primitives by name.

Re-exports definitions of `phalanx.core` under the names of `jax.extend.core`. A loop over `jaxpr.eqns` that calls
`eqn.primitive.bind(*values, **eqn.params)` evaluates any jaxpr, under any transformation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phalanx.core import (
    DropVar as DropVar,
    Effect as Effect,
    Effects as Effects,
    Eqn as JaxprEqn,
    Jaxpr,
    Literal as Literal,
    Var as Var,
    check_jaxpr as check_jaxpr,
    inner_jaxprs,
    jaxpr_as_fun as jaxpr_as_fun,
    no_effects as no_effects,
)


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """Iterate over the jaxprs among the parameters of an equation, such as the branches of a `cond`.

    Args:
      params: the parameters, `eqn.params`.

    Yields:
      Each jaxpr.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(1.0)
      >>> [len(inner.eqns) for inner in jaxprs_in_params(program.eqns[0].params)]
      [1]
    """
    yield from inner_jaxprs(params)


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Iterate over the jaxprs in the parameters of all equations of a jaxpr.

    Args:
      jaxpr: the outer jaxpr.

    Yields:
      Each inner jaxpr.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(1.0)
      >>> [len(inner.eqns) for inner in subjaxprs(program)]
      [1]
    """
    for eqn in jaxpr.eqns:
        yield from inner_jaxprs(eqn.params)


__all__ = [
    "DropVar",
    "Effect",
    "Effects",
    "JaxprEqn",
    "Literal",
    "Var",
    "check_jaxpr",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "no_effects",
    "subjaxprs",
]
