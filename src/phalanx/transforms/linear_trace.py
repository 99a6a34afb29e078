"""`LinearTrace`: records the part of a computation that depends on its inputs, and lets its parent run the rest.

Under a `JVPTrace` the inputs are tangents, so the recorded jaxpr is the tangent part of the computation, linear in its
inputs, with the primal values it needs as constants. `transpose_jaxpr` transposes such a jaxpr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Jaxpr, Primitive, StagedTracer, StagingTrace, Trace, remove_dead_code, split_tangents, state


class LinearTrace(StagingTrace):
    """Records operations on its inputs; operations on other values run in the parent trace."""

    __slots__ = ()
    compiles = False

    def __init__(self, parent: Trace | None = None, name: str = ""):
        super().__init__(parent, name)
        self.depth = len(state.scope)  # The linear jaxpr runs in the scopes around the transformation again.

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        # A loop instead of `any` with a generator, since this runs for every operation under `grad`.
        for x in args:
            if type(x) is StagedTracer and x._trace is self:
                break
        else:
            before = state.trace
            state.trace = self.parent
            try:
                return primitive(*args, **params)
            finally:
                state.trace = before
        # A call-like operation with some unknown operands may still have work that can run now.
        if primitive.partial_eval is not None:
            return primitive.partial_eval(self, args, params)
        return super().process(primitive, args, params)

    def is_unknown(self, x: object) -> bool:
        """Whether a value depends on the inputs of this trace, so that operations on it are recorded."""
        return type(x) is StagedTracer and x._trace is self


def finish_linear(trace: LinearTrace, out_tangents: Sequence[Any]) -> tuple[Jaxpr, list[bool]]:
    """End a linear trace.

    Returns:
      The jaxpr of the tangents that are not symbolic zeros, without dead code, and for each tangent whether it is one
      of them.
    """
    nonzero, given = split_tangents(out_tangents)
    return remove_dead_code(trace.finish(given)), nonzero
