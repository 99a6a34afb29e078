"""Forward-mode differentiation: every operation maps a primal and a tangent to a primal and a tangent.

`JVPTrace` applies the `jvp` rule of each operation. Linearization is the same trace with a `LinearTrace` as its parent
(see `linear_trace`): the primal part of a rule touches known values only and runs at once, the tangent part is
recorded as a linear jaxpr. So one derivative rule serves both modes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Jaxpr,
    Primitive,
    ShapedArray,
    StagedTracer,
    Trace,
    Tracer,
    WrappingTracer,
    Zero,
    broadcast_flag,
    cached_on_jaxpr,
    current_traceback,
    get_aval,
    instantiate,
    join_tangents,
    run_jaxpr,
    select_flagged,
    state,
    trace_to_jaxpr,
    unwrap_array_like,
    vector_space,
)
from phalanx.runtime.array import Array
from phalanx.transforms.linear_trace import LinearTrace
from phalanx.typing import ArrayLike


class JVPTracer(WrappingTracer):
    """A primal value with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: ArrayLike, tangent: ArrayLike | Tracer | Zero):
        self._trace = trace
        self.primal = primal
        self.tangent = tangent
        if type(primal) is Array:
            self._made = state.source or current_traceback()

    wrapped = property(lambda self: self.primal)

    @property
    def aval(self) -> ShapedArray:
        primal = self.primal
        return primal._type.aval if type(primal) is Array else get_aval(primal)

    @property
    def concrete(self) -> Any:
        primal = self.primal
        return primal.concrete if isinstance(primal, Tracer) and type(primal) is not Zero else primal

    def try_concretize(self) -> Any:
        return self.primal.try_concretize() if isinstance(self.primal, Tracer) else None

    def __repr__(self) -> str:
        if isinstance(self.tangent, StagedTracer):  # as under `grad` and `linearize`, which record the linear map
            tangent = self.tangent.aval.strip_weak_type()
            return f"GradTracer(primal={self.primal}, typeof(tangent)={tangent.str_short()})"
        return f"JVPTracer(primal={self.primal}, tangent={self.tangent})"

    def typed_tangent(self) -> Any:
        """The tangent, with the dtype that the primal has now: that of a Python scalar depends on `enable_x64`."""
        want = self.aval.to_tangent().dtype
        return self.tangent if get_aval(self.tangent).dtype == want else vector_space.convert(self.tangent, want)

    @property
    def has_tangent(self) -> bool:
        return type(self.tangent) is not Zero or (isinstance(self.primal, Tracer) and self.primal.has_tangent)


class JVPTrace(Trace):
    """Pairs every value with its tangent; a value whose tangent is known to be zero gets no tracer."""

    __slots__ = ()

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        # This runs for every operation under differentiation, hence the loop with plain appends instead of `unpair`.
        primals = []
        tangents: list[Any] = []
        active, constant = False, False
        for x in args:
            if type(x) is JVPTracer and x._trace is self:
                primals.append(primal := x.primal)
                tangents.append(x.tangent if type(primal) not in (float, complex) else x.typed_tangent())
                active = True
            else:
                if isinstance(x, Tracer):
                    self.check_alive(x)
                elif type(x) is not Array and (array := unwrap_array_like(x)) is not x:
                    return self.process(primitive, [array if a is x else a for a in args], params)
                primals.append(x)
                tangents.append(None)
                constant = True
        before, source = state.trace, state.source
        state.trace = self.parent
        try:
            if not active:
                return primitive(*args, **params)
            # The operations of a rule share the source of the operation. The rules of call-like primitives also run
            # functions of users, such as custom rules, whose operations have sources of their own.
            if source is None and not primitive.call_like:
                state.source = current_traceback()
            if constant:
                tangents = [Zero.like(p) if t is None else t for p, t in zip(primals, tangents)]
            # A call-like primitive linearizes its jaxpr once, instead of recording a derivative that computes the
            # primal part again.
            if primitive.linearize is not None and type(self.parent) is LinearTrace:
                y, y_dot = primitive.linearize(self.parent, primals, tangents, params)
            else:
                y, y_dot = primitive.jvp(primals, tangents, **params)
            if primitive.multiple:
                return [self.pair(v, t) for v, t in zip(y, y_dot, strict=True)]
            return y if type(y_dot) is Zero else JVPTracer(self, y, y_dot)
        finally:
            state.trace, state.source = before, source

    def pair(self, primal: ArrayLike, tangent: ArrayLike | Tracer | Zero) -> Any:
        """A tracer for a primal and its tangent; the primal itself where the tangent is zero."""
        return primal if type(tangent) is Zero else JVPTracer(self, primal, tangent)

    def unpair(self, x: Any) -> tuple[Any, Any]:
        """The primal and tangent of any value."""
        if type(x) is JVPTracer and x._trace is self:
            return x.primal, x.tangent if type(x.primal) not in (float, complex) else x.typed_tangent()
        self.check_alive(x)
        return x, Zero.like(x)


def jvp_flat(
    fun: Callable[..., list], primals: Sequence[Any], tangents: Sequence[Any], name: str = "jvp"
) -> tuple[list, list]:
    """Push primals and tangents (arrays or `Zero`s) through a function of flat arguments and results."""
    trace = JVPTrace(state.trace, name)
    pairs = trace.run(fun, map(trace.pair, primals, tangents), trace.unpair)
    return [p for p, _ in pairs], [t for _, t in pairs]


@cached_on_jaxpr
def jvp_jaxpr(jaxpr: Jaxpr, nonzero: Sequence[bool], want: Sequence[bool] | bool = False) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr that computes the outputs of a jaxpr and their tangents.

    Args:
      jaxpr: a jaxpr without constants.
      nonzero: for each input, whether it has a tangent.
      want: for each output (or one bool for all), whether its tangent must be instantiated even if it is zero.

    Returns:
      The jaxpr (inputs, then tangents of the inputs that have one) -> (outputs, then tangents of the outputs that have
      one), and for each output whether it has one.
    """
    wanted = broadcast_flag(want, jaxpr.outvars)
    has_tangent: list[bool] = []
    primal_avals = jaxpr.in_avals
    tangent_avals = [a.to_tangent() for a in select_flagged(primal_avals, nonzero)]

    def fun(*args: Any) -> list:
        # Inputs without a tangent get a symbolic zero here, so that rules skip them instead of computing with zeros.
        primals = args[: len(primal_avals)]
        tangents = join_tangents(primal_avals, nonzero, args[len(primal_avals) :])
        out, out_dot = jvp_flat(functools.partial(run_jaxpr, jaxpr), primals, tangents, jaxpr.debug_name)
        has_tangent[:] = [w or type(t) is not Zero for t, w in zip(out_dot, wanted, strict=True)]
        return [*out, *map(instantiate, select_flagged(out_dot, has_tangent))]

    return trace_to_jaxpr(fun, [*primal_avals, *tangent_avals], f"jvp({jaxpr.debug_name})"), has_tangent
