"""Execution of programs without tracebacks of the Python stack.

At each run, jaxlib takes a traceback, for profiles of the memory of devices: it makes an object of each frame on the
stack, which takes 0.4 us of a call of 5 us, and 1.5 us where 60 other calls surround it. A traceback ends at the frame
that entered a `TracebackScope`. So a generator runs the programs of a thread: it has entered one, and its frame stays
the same from run to run. The tracebacks are then empty. `runtime.compiled_program` calls this module.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from types import GeneratorType
from typing import Any, cast

from jaxlib._jax import TracebackScope

# The engine's function that runs a program, the buffers of its arguments, and the handlers that make its results.
_Run = tuple[Any, Any, Any]
_MAX_THREADS = 64  # that have a generator, since jaxlib keeps the frame when a thread ends


class _OfThread(threading.local):
    """The generator of a thread, which an error ends; None before the first program, and for threads without one."""

    generator: GeneratorType[Any, _Run, None] | None = None

    def __init__(self) -> None:
        self.may_have_generator = next(_threads) < _MAX_THREADS


class _Recording:
    is_on = False


def record_allocations(is_on: bool) -> None:
    """Let jaxlib take tracebacks of the Python stack from now on, or not.

    Args:
      is_on: whether profiles of the memory of devices name the calls that made arrays.
    """
    _Recording.is_on = is_on
    for generator in list(_generators) if is_on else ():
        with contextlib.suppress(ValueError):  # It is executing a program.
            generator.close()


def make_execution(run: Callable[[list], Any], handlers: Sequence[Any]) -> Callable[[list], list]:
    """Make the function that executes a program. The hottest paths do the same without this function.

    Args:
      run: the engine's execution of the program, or a function around it.
      handlers: the engine's handlers that make its results.

    Returns:
      A function from a list of the arguments' buffers to a list of the results' buffers.
    """

    def execute(buffers: list) -> list:
        try:
            return get_execution()((run, buffers, handlers))
        except Exception as error:
            return execute_again(error, run, buffers, handlers)

    return execute


def execute_again(error: Exception, run: Callable[[list], Any], buffers: list, handlers: Sequence[Any]) -> list:
    """Execute a program that the generator did not start, or raise the error of the program.

    Args:
      error: the error of `get_execution()((run, buffers, handlers))`.
      run, buffers, handlers: as there.

    Returns:
      The buffers of the results.
    """
    is_ended = type(error) is StopIteration  # by an interrupt, `record_allocations`, or an error in another context
    # It runs on another thread in a copy of this context, or around a callback, a finalizer or a signal handler.
    is_busy = type(error) is ValueError and str(error) == "generator already executing"
    if is_ended or is_busy:
        # This is the context of an error of the program, and would keep the arguments in its frames.
        error.__traceback__ = None
    if is_busy:
        return _execute_plainly((run, buffers, handlers))
    _execution.set(_start)
    if is_ended:
        return make_execution(run, handlers)(buffers)
    raise error


def _execute_all() -> Generator[Any, _Run, None]:
    """Execute programs, one each time a value is sent."""
    TracebackScope().__enter__()
    run, buffers, handlers = yield
    while True:
        # Nothing that was sent is kept until the next time.
        run, buffers, handlers = yield (run(buffers).consume_with_handlers(handlers), run := None, buffers := None)[0]


def _execute_plainly(program: _Run) -> list:
    run, buffers, handlers = program
    results: list = run(buffers).consume_with_handlers(handlers)
    return results


def _start(program: _Run) -> list:
    """Execute the first program of a context, or the first one after an error."""
    if _Recording.is_on:
        return _execute_plainly(program)
    execute: Callable[[_Run], list] = _execute_plainly
    if _of_thread.may_have_generator:
        # Contexts are copied for tasks: those that were before an error share the next generator of their thread.
        generator = _of_thread.generator
        if generator is None or generator.gi_frame is None:
            generator = _of_thread.generator = cast("GeneratorType[Any, _Run, None]", _execute_all())
            next(generator)
            _generators.add(generator)
        execute = generator.send
    _execution.set(execute)
    return execute(program)


_generators: weakref.WeakSet[Generator[Any, _Run, None]] = weakref.WeakSet()
_threads = itertools.count()
_of_thread = _OfThread()
# Reading a context variable takes a fifth of the time of reading a variable of the thread.
_execution: contextvars.ContextVar[Callable[[_Run], list]] = contextvars.ContextVar("execution", default=_start)
get_execution = _execution.get
