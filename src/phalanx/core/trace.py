"""Traces: what an operation means just now.

Each thread has one current trace, or none, when operations run at once (`state.trace is None`). A trace gives its own
tracers a meaning and takes every other value as a constant; each knows its parent, in which its rules run. Here are the
base classes and the staging trace, which records a program; the traces of the transformations build on them.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType
from typing import Any

import numpy as np

from phalanx.core import source
from phalanx.core.aval import ShapedArray, Typed, aval_of, scalar_aval_of
from phalanx.core.config import state
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import (
    ConcretizationTypeError,
    TraceError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, without_dead_code
from phalanx.core.operators import Operators
from phalanx.core.primitive import Primitive, result_of
from phalanx.engine import frames
from phalanx.symbolic import Dim


class Trace:
    """Base of all traces.

    Args:
      parent: the trace in which this one's rules run; None to run at once.
      name: what is being transformed, for messages.
    """

    __slots__ = ("__weakref__", "alive", "name", "parent")

    # Whether the operations go into a program that will be compiled under the options in force now.
    compiles: bool = False

    def __init__(self, parent: Trace | None, name: str = ""):
        self.parent = parent
        self.name = name
        self.alive = True

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        """Apply an operation, some of whose arguments may be tracers of this trace."""
        raise NotImplementedError  # each trace defines it

    def run(self, fun: Callable[..., Any], inputs: Iterable[Any], opened: Callable[[Any], Any]) -> list:
        """What `opened` gives for each result of a function on these inputs, for which this trace is the current one.

        Nobody may hold the inputs, so that what is left of them when the trace has ended is a leak.
        """
        before = state.trace
        state.trace = self
        try:
            outputs = fun(*inputs)
        finally:
            state.trace = before
            self.alive = False
        found = [opened(x) for x in outputs]
        del outputs
        check_leaks(self)
        return found

    def check_alive(self, x: Any) -> None:
        """Refuse a constant that is a tracer of a trace that has ended."""
        if isinstance(x, Tracer) and not x._trace.alive:
            raise leak_error(x)


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Run the operations of a block at once, also while a program is being traced.

    They must depend on concrete values only.

    Returns:
      A context manager.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> @phalanx.jit
      ... def f(x):
      ...     with phalanx.ensure_compile_time_eval():
      ...         n = int(jnp.ones(3).sum())
      ...     return x * n
      >>> int(f(2))
      6
    """
    before = state.trace
    state.trace = None
    try:
        yield
    finally:
        state.trace = before


class Tracer(Typed, Operators):
    """A value that stands for others: the argument of a function under transformation."""

    __slots__ = ("__weakref__", "_trace")

    _trace: Any
    aval: Any

    # What the wrapped value is, where Python may look at it; staged values have none.
    concrete: Any = None
    # Whether a number made of the value would lose a derivative.
    has_tangent: bool = False

    @property
    def sharding(self) -> Any:
        """The sharding of the concrete value beneath, or the one in its type, where there is one."""
        value = self.concrete
        return self.aval.sharding if value is None else value.sharding

    def describe(self) -> str:
        """This value in words, for messages."""
        return f"{self.aval.str_short()} traced by {self._trace.name}"

    def origin(self) -> str | None:
        """The line that made it, where that is known."""
        return None

    def _known(self, error: Any, **use: Any) -> Any:
        if not self._trace.alive:
            raise leak_error(self)
        value = self.concrete
        if value is None:
            value = self.looked_at()
        if value is None:
            raise error.of(self.describe(), self.origin(), **use)
        return value

    def looked_at(self) -> Any:
        """The value where it can be worked out though it is staged, or None."""
        return None

    def _number(self, use: str) -> Any:
        """The value for Python to compute with, which must have no derivative to lose.

        What decides (`if`, `int`, an index), shows (a format) or asks for no more (`item`) takes it all the same.
        """
        value = self._known(ConcretizationTypeError, use=use)
        if self.has_tangent:
            raise ConcretizationTypeError(
                f"conversion of a differentiated value to {use}",
                expected="a value whose derivative nobody asks for, since a Python number has none",
                got=self.describe(),
                mend="compute with phalanx.numpy instead of math, or take the number of lax.stop_gradient(x)",
            )
        return value

    def __bool__(self) -> bool:
        return bool(self._known(TracerBoolConversionError))

    def __int__(self) -> int:
        return int(self._known(ConcretizationTypeError, use="int"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        return self._known(TracerIntegerConversionError).__index__()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        # Refused even where the value is known, since NumPy would drop what the trace carries (the derivative).
        self._known(TracerArrayConversionError)
        raise TracerArrayConversionError.of(self.describe(), self.origin())

    def item(self, *args: int) -> Any:
        """The element of a one-element array as a Python scalar, where it is known; its derivative stays behind."""
        return np.asarray(self._known(ConcretizationTypeError, use="a Python scalar")).item(*args)

    def tolist(self) -> Any:
        """The elements as nested lists, where they are known and have no derivatives to lose."""
        return np.asarray(self._number("a list")).tolist()

    def __format__(self, spec: str) -> str:
        return format(self._known(ConcretizationTypeError, use="text"), spec) if spec else repr(self)

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: a traced value ({self.describe()}); arrays are not hashable")

    def __repr__(self) -> str:
        return f"Traced<{self.aval.str_short()}>with<{self._trace.name}>"

    def __reduce__(self) -> Any:
        raise ConcretizationTypeError.of(self.describe(), self.origin(), use="bytes (pickling)")

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    __copy__ = lambda self: self


frames.guard_methods(
    Tracer, "__bool__ __int__ __float__ __complex__ __index__ __array__ item tolist __format__ __hash__ __reduce__"
)


def leak_error(tracer: Tracer) -> UnexpectedTracerError:
    """The error for the use of a tracer whose trace has ended."""
    return UnexpectedTracerError.of(tracer.describe(), tracer.origin(), function=tracer._trace.name or None)


class WrappingTracer(Tracer):
    """A value of a trace around another value; where nothing is staged beneath, it knows itself where it was made."""

    __slots__ = ("_made",)

    _made: Any

    @property
    def wrapped(self) -> Any:
        """The value in the parent trace."""
        raise NotImplementedError  # each tracer has its own

    def origin(self) -> str | None:
        wrapped = self.wrapped
        if isinstance(wrapped, Tracer):
            return wrapped.origin()
        made = getattr(self, "_made", None)  # What comes from the host has none: it was not made here.
        return None if made is None else source.summary(made)


class StagedTracer(Tracer):
    """A value of the program being recorded."""

    __slots__ = ("_var", "aval")

    def __init__(self, trace: StagingTrace, aval: ShapedArray, var: Var):
        self._trace = trace
        self.aval = aval
        self._var = var

    def origin(self) -> str | None:
        eqn = self._trace.equation_of(self._var)
        return source.summary(eqn.source) if eqn is not None else None

    def looked_at(self) -> Any:
        trace = self._trace
        return None if trace.look is None else trace.look(trace, self._var)

    def describe(self) -> str:
        name = self._trace.name_of(self._var)
        return super().describe() + (f", its argument {name}" if name else "")

    def __repr__(self) -> str:
        return f"Traced<{self.aval.str_short()}>"


class StagingTrace(Trace):
    """Records the operations that happen into a program."""

    __slots__ = ("_makers", "constants", "constvars", "effects", "eqns", "finished", "input_name", "invars", "look")
    compiles = True

    def __init__(self, parent: Trace | None = None, name: str = ""):
        super().__init__(parent, name)
        self.eqns: list[Eqn] = []
        self.invars: list[Var] = []
        self.constvars: dict[int, Var] = {}  # by identity of the value
        self.constants: list[Any] = []
        self.effects: Effects = no_effects
        self.finished: Any = None
        self._makers: tuple[int, dict] = 0, {}
        self.input_name: Callable[[int], str] | None = None
        self.look: Callable[[StagingTrace, Var], Any] | None = None

    def new_input(self, aval: ShapedArray) -> StagedTracer:
        """A fresh input of the program."""
        var = Var(aval)
        self.invars.append(var)
        return StagedTracer(self, aval, var)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        avals = []
        atoms = []
        for x in args:
            atom = x._var if type(x) is StagedTracer and x._trace is self else self.constant(x)
            atoms.append(atom)
            avals.append(atom.aval)
        return self._append(primitive, atoms, tuple(avals), params)

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        """Append an equation, as the rules of primitives that hold programs do for what is left to be done later."""
        atoms = [self.atom(x) for x in args]
        return self._append(primitive, atoms, tuple([a.aval for a in atoms]), params)

    def _append(self, primitive: Primitive, atoms: list, avals: tuple, params: dict) -> Any:
        """Append one equation and return its results as tracers."""
        if primitive.settle is not None:
            params = primitive.settle(avals, params)
        out = result_of(primitive, avals, params)
        effects = no_effects
        if type(primitive).effects is not Primitive.effects:
            effects = primitive.effects(*avals, **params)
            if effects:
                self.effects |= effects
        where = state.source or source.current_traceback()
        if state.scope:
            where = source.Scoped(where, state.scope)
        if primitive.multiple:
            outvars = [Var(aval) for aval in out]
            self.eqns.append(Eqn(primitive, atoms, outvars, params, where, effects))
            return [StagedTracer(self, v.aval, v) for v in outvars]
        var = Var(out)
        self.eqns.append(Eqn(primitive, atoms, [var], params, where, effects))
        return StagedTracer(self, out, var)

    def constant(self, x: Any) -> Any:
        """The atom for a value from outside: a literal for a scalar, else a variable bound to the value."""
        scalar = scalar_aval_of(x)
        if scalar is not None:
            return Literal(x, scalar)
        var = self.constvars.get(id(x))
        if var is not None:
            return var
        if isinstance(x, Tracer):
            self.check_alive(x)
            if x._trace is self:  # a subclass's own tracer
                return x._var
        elif type(x) is Dim:  # a symbolic size among arrays
            return self.atom(x.__phalanx_array__())
        elif isinstance(x, np.ndarray) and x.ndim == 0:
            return Literal(x[()], aval_of(x))
        var = Var(aval_of(x))
        self.constvars[id(x)] = var
        self.constants.append(x)  # also keeps `x` alive, so that its id stays its own
        return var

    def atom(self, x: Any) -> Any:
        """The atom for any value, this trace's own or a constant."""
        return x._var if type(x) is StagedTracer and x._trace is self else self.constant(x)

    def finish(self, outputs: Sequence[Any]) -> Jaxpr:
        """End the trace and give the program."""
        outvars = [self.atom(x) for x in outputs]
        program = Jaxpr(
            self.invars, self.eqns, outvars, list(self.constvars.values()), self.constants, self.effects, self.name
        )
        self.close()
        self.finished = weakref.ref(program)
        return program

    def so_far(self, var: Var) -> Jaxpr | None:
        """The program up to a value; None where effects, which are not to happen twice, have a part in it."""
        eqns = [eqn for eqn in self.eqns if not eqn.effects]
        invars, constvars = list(self.invars), list(self.constvars.values())
        program = without_dead_code(Jaxpr(invars, eqns, [var], constvars, list(self.constants), no_effects, self.name))
        made = {*invars, *constvars, *(v for eqn in program.eqns for v in eqn.outvars)}
        read = {var, *(v for eqn in program.eqns for v in eqn.invars if type(v) is Var)}
        return program if read <= made else None

    def close(self) -> None:
        """End the trace: its tracers are dead from now on."""
        self.alive = False
        self.eqns, self.invars, self.constvars, self.constants = [], [], {}, []
        self._makers = 0, {}

    def name_of(self, var: Var) -> str | None:
        """What the user calls an input, for messages; None for what is no input, or has no name."""
        program = self.finished and self.finished()
        invars = program.invars if program else self.invars
        return self.input_name(invars.index(var)) if self.input_name and var in invars else None

    def equation_of(self, var: Var) -> Eqn | None:
        """The equation that made a variable."""
        eqns = self.eqns
        if self.finished is not None:
            program = self.finished()
            eqns = program.eqns if program is not None else []
        # Found in a table that grows with the program, so that asking at every operation is no square of its length.
        count, makers = self._makers
        makers.update((v, e) for e in eqns[count:] for v in e.outvars)
        self._makers = max(count, len(eqns)), makers
        return makers.get(var)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Hold the cyclic garbage collector while a program grows.

    A growing program is all live; left alone the collector walks it again and again, a third of tracing time at
    16,000 operations.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def stage(
    fun: Callable[..., Sequence[Any]],
    in_avals: Sequence[ShapedArray],
    name: str = "fn",
    input_name: Callable[[int], str] | None = None,
    look: Callable[[StagingTrace, Var], Any] | None = None,
) -> Jaxpr:
    """Record the program of a function of flat arguments.

    Args:
      fun: takes one tracer for each aval and returns a flat sequence of outputs.
      in_avals: the types of the inputs.
      name: what is traced, for messages and printed programs.
      input_name: what the user calls input `i`, for messages.
      look: gives the value of a variable where Python asks for it, or None where it is not to be had.

    Returns:
      The program, with the values that the function closed over as its constants.

    Raises:
      TraceError: an output is not an array.
      UnexpectedTracerError: with `check_tracer_leaks`, a tracer outlived the trace.

    Examples:
      >>> from phalanx import lax
      >>> from phalanx.core.aval import aval_of
      >>> len(stage(lambda x: [lax.sin(x)], [aval_of(1.0)]).eqns)
      1
    """
    trace = StagingTrace(state.trace, name)
    trace.input_name, trace.look = input_name, look
    before, scope = state.trace, state.scope
    with collector_paused():
        state.trace, state.scope = trace, ()  # The scopes around are those of the equations that call the program.
        try:
            outputs = fun(*[trace.new_input(aval) for aval in in_avals])
            program = trace.finish(outputs)
        finally:
            state.trace, state.scope = before, scope
            trace.alive, trace.look = False, None
    del outputs
    check_leaks(trace)
    return program


def check_leaks(trace: Trace) -> None:
    """With `check_tracer_leaks`, refuse tracers of a trace that has ended that somebody else still holds."""
    if not state.context.check_tracer_leaks:
        return
    gc.collect()
    # Through a generator, so that no list of ours is among what holds the tracer.
    x = next((x for x in gc.get_referrers(trace) if isinstance(x, Tracer)), None)
    if x is not None:
        raise UnexpectedTracerError.of(x.describe() + _held_by(x), x.origin(), function=x._trace.name or None)


def _held_by(x: Tracer) -> str:
    """What keeps a tracer alive, in words; nothing where that cannot be told."""
    for holder in gc.get_referrers(x):  # No generator may close over `x` here: it would be among them.
        named = holder if type(holder) is dict else getattr(holder, "__dict__", {})
        for key, value in named.items():
            if value is x:
                return f", held by {_owner(holder)} as {key!r}"
        if type(holder) is CellType:
            return ", held by a variable that a function closes over"
        if isinstance(holder, list | set | tuple):
            return f", held by a {type(holder).__name__}"
    return ""


def _owner(holder: Any) -> str:
    """The module or object whose attributes a dict holds, or the object itself, in words."""
    if type(holder) is dict:
        owners = [o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder]
        holder = owners[0] if owners else holder
    return getattr(holder, "__name__", None) or f"a {type(holder).__name__}"


def check_outputs(outputs: Sequence[Any], paths: Callable[[int], str]) -> None:
    """Refuse results that are no arrays, naming the first by its path."""
    for i, x in enumerate(outputs):
        if not (hasattr(x, "aval") or isinstance(x, np.ndarray | np.generic | int | float | complex | bool)):
            raise TraceError(
                f"output{paths(i)}",
                expected="an array or a scalar",
                got=f"{x!r} of type {type(x).__name__}",
                mend="return only arrays from a transformed function; pass other results by has_aux or a closure",
            )
