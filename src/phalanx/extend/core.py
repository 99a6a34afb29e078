"""Programs as those meet them who write interpreters: equations, variables, primitives by name.

All of it is `phalanx.core`'s; here it has the names under which such libraries import it. A loop over `jaxpr.eqns` with
`eqn.primitive.bind(*values, **eqn.params)` runs any program, under any transformation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import phalanx.lax  # noqa: F401  # whose primitives are listed below
from phalanx.core.checker import check_jaxpr as check_jaxpr
from phalanx.core.effects import Effect as Effect
from phalanx.core.effects import Effects as Effects
from phalanx.core.effects import no_effects as no_effects
from phalanx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from phalanx.core.jaxpr import DropVar as DropVar
from phalanx.core.jaxpr import Eqn as JaxprEqn
from phalanx.core.jaxpr import Jaxpr as Jaxpr
from phalanx.core.jaxpr import Literal as Literal
from phalanx.core.jaxpr import Var as Var
from phalanx.core.jaxpr import jaxpr_as_fun as jaxpr_as_fun
from phalanx.core.jaxpr import subprograms
from phalanx.core.primitive import Primitive as Primitive
from phalanx.core.primitive import registry


class _Primitives:
    """Each primitive by its name in programs, those of modules imported later included."""

    def __getattr__(self, name: str) -> Primitive:
        found = registry.get(name.removesuffix("_p"))
        if found is None or not name.endswith("_p"):
            raise AttributeError(f"there is no primitive {name!r}; dir(primitives) lists them")
        return found

    def __dir__(self) -> list[str]:
        return sorted(f"{name}_p" for name in registry)


primitives = _Primitives()


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The programs among the parameters of an equation, such as the branches of a `cond`.

    Args:
      params: `eqn.params`.

    Yields:
      Each program.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(1.0)
      >>> [len(inner.eqns) for inner in jaxprs_in_params(program.eqns[0].params)]
      [1]
    """
    yield from subprograms(params)


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The programs that the equations of a program hold.

    Args:
      jaxpr: the program.

    Yields:
      Each program.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(1.0)
      >>> [len(inner.eqns) for inner in subjaxprs(program)]
      [1]
    """
    for eqn in jaxpr.eqns:
        yield from subprograms(eqn.params)


__all__ = [
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Effects",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "Var",
    "check_jaxpr",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "no_effects",
    "primitives",
    "subjaxprs",
]
