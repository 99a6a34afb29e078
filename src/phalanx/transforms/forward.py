"""Forward mode: a value and its tangent, pushed through every operation together.

`JVPTrace` gives each operation its `jvp` rule. Linearisation is the same trace over a `LinearTrace` (see `linear`): the
rule's primal part then runs at once in the parent and its tangent part is recorded as a linear program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.flags import chosen, each
from phalanx.core.jaxpr import Jaxpr, derivation, run_program
from phalanx.core.primitive import Primitive
from phalanx.core.source import current_traceback
from phalanx.core.tangent import Zero, instantiate, join_tangents
from phalanx.core.trace import Trace, Tracer, WrappingTracer, stage
from phalanx.runtime.array import Array
from phalanx.transforms.linear import LinearTrace


class JVPTracer(WrappingTracer):
    """A primal value with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: Any, tangent: Any):
        self._trace = trace
        self.primal = primal
        self.tangent = tangent
        if type(primal) is Array:
            self._made = current_traceback()

    wrapped = property(lambda self: self.primal)

    @property
    def aval(self) -> ShapedArray:
        primal = self.primal
        return primal._type.aval if type(primal) is Array else aval_of(primal)

    @property
    def concrete(self) -> Any:
        primal = self.primal
        return primal.concrete if isinstance(primal, Tracer) and type(primal) is not Zero else primal

    def looked_at(self) -> Any:
        return self.primal.looked_at() if isinstance(self.primal, Tracer) else None

    @property
    def has_tangent(self) -> bool:
        return type(self.tangent) is not Zero or (isinstance(self.primal, Tracer) and self.primal.has_tangent)


class JVPTrace(Trace):
    """Pairs every value with its tangent; tangents known to be zero are not carried."""

    __slots__ = ()

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        primals = []
        tangents: list[Any] = []
        active = False
        for x in args:
            if type(x) is JVPTracer and x._trace is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active = True
            else:
                if isinstance(x, Tracer):
                    self.check_alive(x)
                primals.append(x)
                tangents.append(None)
        before = state.trace
        state.trace = self.parent
        try:
            if not active:
                return primitive(*args, **params)
            tangents = [Zero.like(p) if t is None else t for p, t in zip(primals, tangents, strict=True)]
            if primitive.linearize is not None and type(self.parent) is LinearTrace:
                y, y_dot = primitive.linearize(self.parent, primals, tangents, params)
            else:
                y, y_dot = primitive.jvp(primals, tangents, **params)
        finally:
            state.trace = before
        if primitive.multiple:
            return [self.pair(v, t) for v, t in zip(y, y_dot, strict=True)]
        return y if type(y_dot) is Zero else JVPTracer(self, y, y_dot)

    def pair(self, primal: Any, tangent: Any) -> Any:
        """A primal with its tangent, or the primal alone where the tangent is zero."""
        return primal if type(tangent) is Zero else JVPTracer(self, primal, tangent)

    def unpair(self, x: Any) -> tuple[Any, Any]:
        """The primal and tangent of any value."""
        if type(x) is JVPTracer and x._trace is self:
            return x.primal, x.tangent
        self.check_alive(x)
        return x, Zero.like(x)


def jvp_flat(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], name: str = "jvp") -> tuple[list, list]:
    """Push primals and tangents (arrays or `Zero`s) through a function of flat arguments and results."""
    trace = JVPTrace(state.trace, name)
    pairs = trace.run(fun, map(trace.pair, primals, tangents), trace.unpair)
    return [p for p, _ in pairs], [t for _, t in pairs]


@derivation
def jvp_program(
    program: Jaxpr, nonzero: Sequence[bool], want: Sequence[bool] | bool = False
) -> tuple[Jaxpr, list[bool]]:
    """The program that computes a program's results and their tangents.

    Args:
      program: a program without constants.
      nonzero: for each input, whether it has a tangent.
      want: for each output, whether its tangent must be there even if zero; or one bool for all.

    Returns:
      The program (inputs, then tangents of the inputs that have one) -> (outputs, then tangents of the outputs that
      have one), and for each output whether it has one.
    """
    wanted = each(want, program.outvars)
    has_tangent: list[bool] = []
    primal_avals = program.in_avals
    tangent_avals = [a.to_tangent() for a in chosen(primal_avals, nonzero)]

    def fun(*args: Any) -> list:
        primals = args[: len(primal_avals)]
        tangents = join_tangents(primal_avals, nonzero, args[len(primal_avals) :])
        out, out_dot = jvp_flat(functools.partial(run_program, program), primals, tangents, program.debug_name)
        has_tangent[:] = [w or type(t) is not Zero for t, w in zip(out_dot, wanted, strict=True)]
        return [*out, *map(instantiate, chosen(out_dot, has_tangent))]

    return stage(fun, [*primal_avals, *tangent_avals], f"jvp({program.debug_name})"), has_tangent
