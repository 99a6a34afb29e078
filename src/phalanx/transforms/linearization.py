"""Linearising a program that an equation holds: the primal program with its residuals, and the linear one.

The call-like primitives use this in their `linearize` rule, so that a program is traversed once instead of being
differentiated and then split.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core.config import state
from phalanx.core.flags import chosen, each
from phalanx.core.jaxpr import Jaxpr, derivation, run_program
from phalanx.core.tangent import instantiate
from phalanx.core.trace import StagedTracer, stage
from phalanx.transforms.forward import JVPTrace
from phalanx.transforms.linear import LinearTrace, finish_linear


class Linearized(NamedTuple):
    """A program's two halves at a point.

    primal: inputs -> outputs, then residuals. Constants that the rules brought are its constants.
    linear: residuals, then tangents of the inputs that have one -> tangents of the outputs that have one.
    nonzero: for each output, whether it has a tangent.
    forwarded: for each residual, the number of the input that it is, or None where `primal` returns it.
    """

    primal: Jaxpr
    linear: Jaxpr
    nonzero: list[bool]
    forwarded: list[int | None]


@derivation
def linearize_program(program: Jaxpr, nonzero: Sequence[bool], want: Sequence[bool] | bool = False) -> Linearized:
    """Linearise a program for inputs some of which have tangents.

    Args:
      program: a program without constants.
      nonzero: for each input, whether it has a tangent.
      want: for each output (or for all), whether its tangent must be there even if zero.

    Returns:
      The two halves, kept on the program.
    """
    linear, has_tangent, forwarded = program, [], []

    def fun(*inputs: Any) -> list:
        nonlocal linear, has_tangent, forwarded
        staging = state.trace
        recording = LinearTrace(staging, program.debug_name)
        trace = JVPTrace(recording, program.debug_name)
        paired = (
            trace.pair(x, recording.new_input(x.aval.to_tangent())) if nz else x
            for x, nz in zip(inputs, nonzero, strict=True)
        )
        pairs = trace.run(functools.partial(run_program, program), paired, trace.unpair)
        tangents = [instantiate(t) if w else t for (_, t), w in zip(pairs, each(want, pairs), strict=True)]
        linear, has_tangent = finish_linear(recording, tangents)
        # Those of its constants that the primal program computes are inputs of the linear one.
        computed = [type(c) is StagedTracer and c._trace is staging for c in linear.consts]
        residuals, linear = chosen(linear.consts, computed), linear.opened(computed)
        position = {x._var: i for i, x in enumerate(inputs)}
        forwarded = [position.get(r._var) for r in residuals]
        return [*(p for p, _ in pairs), *(r for r, f in zip(residuals, forwarded, strict=True) if f is None)]

    primal = stage(fun, program.in_avals, program.debug_name)
    return Linearized(primal, linear, has_tangent, forwarded)
