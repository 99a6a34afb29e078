"""Cases taken from programs: each equation of a traced function, with the operands it really meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tests.lax.cases import CASES, Case

import phalanx
from phalanx.core.jaxpr import Literal


def equations(fun: Callable, args: tuple, name: str) -> Iterable[Case]:
    """The equations of `fun` at `args` whose primitives have no case of their own and hold no program."""
    covered = {c.primitive.name for c in CASES}
    program = phalanx.make_jaxpr(fun)(*args)
    values: dict[Any, Any] = dict(zip(program.constvars, program.consts, strict=True))
    values.update(zip(program.invars, args, strict=True))
    for eqn in program.eqns:
        primitive = eqn.primitive
        operands = tuple(np.asarray(a.value if type(a) is Literal else values[a]) for a in eqn.invars)
        out = primitive(*operands, **eqn.params)
        values.update(zip(eqn.outvars, out if primitive.multiple else [out], strict=True))
        if primitive.name not in covered and not primitive.call_like:
            yield Case(primitive, operands, eqn.params, name=name)
