"""Linearizing the jaxpr of a call-like equation into a primal jaxpr with residuals and a linear jaxpr.

Call-like primitives use this in their `linearize` rule, so that a jaxpr is traversed once, instead of being
differentiated first and partially evaluated afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import (
    Jaxpr,
    StagedTracer,
    broadcast_flag,
    cached_on_jaxpr,
    instantiate,
    run_jaxpr,
    select_flagged,
    state,
    trace_to_jaxpr,
)
from phalanx.transforms.jvp_trace import JVPTrace
from phalanx.transforms.linear_trace import LinearTrace, finish_linear


class LinearizedJaxpr(NamedTuple):
    """A jaxpr linearized at its inputs.

    Attributes:
      primal: inputs -> outputs, then residuals. Constants introduced by derivative rules are its constants.
      linear: residuals, then tangents of the inputs that have one -> tangents of the outputs that have one.
      nonzero: for each output, whether it has a tangent.
      forwarded: for each residual, the number of the input that it equals, or None if `primal` returns it.
    """

    primal: Jaxpr
    linear: Jaxpr
    nonzero: list[bool]
    forwarded: list[int | None]


@cached_on_jaxpr
def linearize_jaxpr(jaxpr: Jaxpr, nonzero: Sequence[bool], want: Sequence[bool] | bool = False) -> LinearizedJaxpr:
    """Linearize a jaxpr with respect to the inputs that have tangents.

    Args:
      jaxpr: a jaxpr without constants.
      nonzero: for each input, whether it has a tangent.
      want: for each output (or one bool for all), whether its tangent must be instantiated even if it is zero.

    Returns:
      The primal and the linear jaxpr, cached on `jaxpr`.
    """
    linear, has_tangent, forwarded = jaxpr, [], []

    def fun(*inputs: Any) -> list:
        nonlocal linear, has_tangent, forwarded
        staging = state.trace
        recording = LinearTrace(staging, jaxpr.debug_name)
        trace = JVPTrace(recording, jaxpr.debug_name)
        paired = (
            trace.pair(x, recording.new_input(x.aval.to_tangent())) if nz else x
            for x, nz in zip(inputs, nonzero, strict=True)
        )
        pairs = trace.run(functools.partial(run_jaxpr, jaxpr), paired, trace.unpair)
        tangents = [instantiate(t) if w else t for (_, t), w in zip(pairs, broadcast_flag(want, pairs), strict=True)]
        linear, has_tangent = finish_linear(recording, tangents)
        # Constants of the linear jaxpr that the primal one computes become its inputs: these are the residuals.
        computed = [isinstance(c, StagedTracer) and c._trace is staging for c in linear.consts]
        residuals, linear = select_flagged(linear.consts, computed), linear.hoist_some(computed)
        position = {x._var: i for i, x in enumerate(inputs)}
        forwarded = [position.get(r._var) for r in residuals]
        return [*(p for p, _ in pairs), *(r for r, f in zip(residuals, forwarded, strict=True) if f is None)]

    primal = trace_to_jaxpr(fun, jaxpr.in_avals, jaxpr.debug_name)
    return LinearizedJaxpr(primal, linear, has_tangent, forwarded)
