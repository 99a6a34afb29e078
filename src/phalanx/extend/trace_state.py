"""The current trace, for libraries that inspect it, set it, or evaluate operations outside of it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from phalanx.core import ConcretizationTypeError, StagingTrace, Trace, Tracer, state
from phalanx.transforms.batching import BatchTrace


@contextlib.contextmanager
def set_current_trace(trace: Trace | None, check_leaks: bool = False) -> Iterator[None]:
    """Let a trace process the operations of a block.

    Args:
      trace: the trace, or None to evaluate operations eagerly.
      check_leaks: accepted as in JAX; the option `check_tracer_leaks` enables the check.

    Returns:
      A context manager.
    """
    before, state.trace = state.trace, trace
    try:
        yield
    finally:
        state.trace = before


@contextlib.contextmanager
def take_current_trace() -> Iterator[Trace | None]:
    """Evaluate the operations of a block eagerly, and let it have the trace that was current.

    Returns:
      A context manager, which gives the trace, or None.

    Examples:
      >>> with take_current_trace() as trace:
      ...     print(trace)
      None
    """
    before = state.trace
    with set_current_trace(None):
        yield before


def eval_context() -> contextlib.AbstractContextManager[None]:
    """A context in which operations are evaluated eagerly, also while a function is traced.

    Returns:
      A context manager.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> @phalanx.jit
      ... def f(x):
      ...     with eval_context():
      ...         n = int(jnp.ones(3).sum())
      ...     return x * n
      >>> int(f(2))
      6
    """
    return set_current_trace(None)


class OpaqueTraceState:
    """A trace, to compare with the one that is current later; it is not kept alive.

    Args:
      trace: the trace, or None.
    """

    __slots__ = ("_trace",)

    def __init__(self, trace: Trace | None):
        self._trace: Any = None if trace is None else weakref.ref(trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace == other._trace

    def __hash__(self) -> int:
        return hash(self._trace)


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """An object that is equal to another one made under the same trace.

    Args:
      convention: accepted as in JAX.

    Returns:
      The object.

    Examples:
      >>> import phalanx
      >>> outside = get_opaque_trace_state()
      >>> outside == get_opaque_trace_state()
      True
      >>> _ = phalanx.jit(lambda x: print(outside == get_opaque_trace_state()))(1)
      False
    """
    return OpaqueTraceState(state.trace)


def trace_state_clean() -> bool:
    """Whether operations are evaluated eagerly now, because no function is traced or transformed.

    Returns:
      True or False.

    Examples:
      >>> trace_state_clean()
      True
    """
    return state.trace is None


def find_top_trace(values: Iterable[Any] = ()) -> Trace | None:
    """The trace that processes operations now.

    Args:
      values: accepted as in JAX; operands do not determine the trace.

    Returns:
      The trace; None if operations are evaluated eagerly.
    """
    return state.trace


def _traces() -> Iterator[Trace]:
    trace = state.trace
    while trace is not None:
        yield trace
        trace = trace.parent


def unsafe_am_i_under_a_jit() -> bool:
    """Whether a function is being traced to a jaxpr.

    Returns:
      True or False.

    Examples:
      >>> unsafe_am_i_under_a_jit()
      False
    """
    return any(isinstance(trace, StagingTrace) and trace.compiles for trace in _traces())


def unsafe_am_i_under_a_vmap() -> bool:
    """Whether a function is being mapped by `vmap`.

    Returns:
      True or False.

    Examples:
      >>> unsafe_am_i_under_a_vmap()
      False
    """
    return any(isinstance(trace, BatchTrace) for trace in _traces())


def unsafe_get_axis_names() -> list[Any]:
    """The named axes that collectives may use now.

    Returns:
      The names.

    Examples:
      >>> unsafe_get_axis_names()
      []
    """
    return [name for name, *_ in state.context.axes or ()]


def nonempty_axis_env() -> bool:
    """Whether collectives may use a named axis now.

    Returns:
      True or False.

    Examples:
      >>> nonempty_axis_env()
      False
    """
    return bool(state.context.axes)


def concrete_or_error(force: Callable[[Any], Any] | None, value: Any, context: str = "") -> Any:
    """Convert a value that must be known while tracing.

    Args:
      force: the conversion, such as `int`; None for none.
      value: the value, which may be a tracer around a known value.
      context: what the value is needed for, for the error.

    Returns:
      The converted value.

    Raises:
      ConcretizationTypeError: the value is traced and not known.

    Examples:
      >>> concrete_or_error(int, 3.0)
      3
    """
    if isinstance(value, Tracer):
        known = value.concrete if value.concrete is not None else value.try_concretize()
        if known is None:
            raise ConcretizationTypeError.of(value.describe(), value.origin(), use=context or "a Python value")
        value = known
    return value if force is None else force(value)
