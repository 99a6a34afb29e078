"""Traces: the interpretation of operations, from eager evaluation to recording and differentiation.

Each thread has one current trace, or none while operations are evaluated eagerly (`state.trace is None`). A trace
interprets operations on its tracers and treats every other value as a constant. It knows its parent, which is the
current trace while its rules run. There is no stack: nested transformations are chains of parents. This module has the
base classes and the staging trace, which records a jaxpr; the transformations define the other traces.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from types import CellType
from typing import Any

import numpy as np

from phalanx.core import source_info
from phalanx.core.array_operators import Operators
from phalanx.core.aval import AbstractRef, ShapedArray, Typed, get_aval, get_scalar_aval, unwrap_array_like
from phalanx.core.config import current_scope, state
from phalanx.core.dtypes import wide
from phalanx.core.effects import Effects, no_effects
from phalanx.core.error_classes import (
    ConcretizationTypeError,
    RefError,
    ShapeError,
    TraceError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, remove_dead_code
from phalanx.core.primitive import Primitive, infer_result
from phalanx.core.tangent import vector_space
from phalanx.engine import pause_collector, traceback_filtering

_new_tuple = tuple.__new__  # makes a NamedTuple without a Python call


class Trace:
    """Base of all traces.

    Args:
      parent: the current trace while this trace's rules run; None for eager evaluation.
      name: the transformed function, for messages.
    """

    __slots__ = ("__weakref__", "alive", "name", "parent")

    # Whether the operations are recorded in a jaxpr that will be compiled under the current options.
    compiles: bool = False
    # Whether each operation stands for one on every example of a batch.
    is_batched: bool = False

    process_primitive: Callable[..., Any]  # the name of `process` in JAX, for traces that users define
    main = property(lambda self: self)  # what libraries compare to tell whose tracer a value is

    def __init__(self, parent: Trace | None = None, name: str = ""):
        self.parent = parent
        self.name = name
        self.alive = True

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply an operation, some of whose arguments may be tracers of this trace."""
        return self.process_primitive(primitive, args, params)

    def run(self, fun: Callable[..., Any], inputs: Iterable[Any], opened: Callable[[Any], Any]) -> list[Any]:
        """Call a function on these inputs with this trace as the current one, and apply `opened` to each result.

        The caller must not hold the inputs, since tracers that are left when the trace has ended are reported as leaks.
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
        """Raise if a constant is a tracer of a trace that has ended."""
        if isinstance(x, Tracer) and not x._trace.alive:
            raise leak_error(x)


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Evaluate operations on concrete values eagerly, even while a function is being traced.

    Operations on traced values are recorded as usual.

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
    state.trace = None if before is None else ConstantFoldingTrace(before)
    try:
        yield
    finally:
        state.trace = before


class ConstantFoldingTrace(Trace):
    """Evaluates operations whose operands are all concrete, and leaves all others to the trace around it."""

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        state.trace = self.parent if any(isinstance(x, Tracer) for x in args) else None
        try:
            return primitive(*args, **params)
        finally:
            state.trace = self


class Tracer(Typed, Operators):
    """A value inside a transformed function: it records or transforms the operations that are applied to it."""

    __slots__ = ("__weakref__", "_trace")

    _trace: Any
    _var: Any  # the variable of the jaxpr; set by staging traces only
    aval: Any

    def __init__(self, trace: Trace, aval: Any = None):
        self._trace = trace
        if aval is not None:
            self.aval = aval

    # The wrapped concrete value, for conversions to Python numbers; staged values have none.
    concrete: Any = None
    # Whether a Python number made from the value would lose a derivative.
    has_tangent: bool = False

    @property
    def sharding(self) -> Any:
        """The sharding of the concrete value, or else the one in the type, if there is one."""
        value = self.concrete
        return self.aval.type_sharding if value is None else value.sharding

    mat = property(attrgetter("aval.mat"))  # as in its type

    def describe(self) -> str:
        """A description of this value for messages."""
        return f"{self.aval.str_short()} traced by {self._trace.name}"

    def origin(self) -> str | None:
        """The source line that made this value, if it is known."""
        return None

    def _concretize(self, error: Any, **use: Any) -> Any:
        if not self._trace.alive:
            raise leak_error(self)
        value = self.try_concretize() if self.concrete is None else self.concrete
        if value is None:
            raise error.of(self.describe(), self.origin(), **use)
        return value

    def try_concretize(self) -> Any:
        """The value, if it can be computed although it is staged; else None."""
        return None

    def _number(self, use: str) -> Any:
        """The value for Python to compute with; an error if it has a derivative, which would be lost.

        Conversions for conditions, indices, formatting and `item` are allowed: nobody differentiates through them.
        """
        value = self._concretize(ConcretizationTypeError, use=use)
        if self.has_tangent:
            raise ConcretizationTypeError(
                f"conversion of a differentiated value to {use}",
                expected="a value without a derivative, since a Python number has none",
                got=self.describe(),
                fix="compute with phalanx.numpy instead of math, or convert lax.stop_gradient(x)",
            )
        return value

    def __bool__(self) -> bool:
        if self.aval.shape and self.aval.size != 1 and self._trace.alive:
            raise ShapeError(
                "conversion to bool, by if, while, and, or, not, or bool()",
                expected="an array of one element",
                got=self.describe(),
                fix="reduce it with .any() or .all()",
            )
        return bool(self._concretize(TracerBoolConversionError))

    def __int__(self) -> int:
        return int(self._concretize(ConcretizationTypeError, use="int"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        return operator.index(self._concretize(TracerIntegerConversionError))

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        # An error even if the value is known, since NumPy would drop the derivative that the tracer carries.
        self._concretize(TracerArrayConversionError)
        raise TracerArrayConversionError.of(self.describe(), self.origin())

    def item(self, *args: int) -> Any:
        """The element of a one-element array as a Python scalar without its derivative, if it is known."""
        return np.asarray(self._concretize(ConcretizationTypeError, use="a Python scalar")).item(*args)

    def tolist(self) -> Any:
        """The elements as nested lists, if they are known and have no derivatives."""
        return np.asarray(self._number("a list")).tolist()

    def __format__(self, spec: str) -> str:
        return format(self._concretize(ConcretizationTypeError, use="text"), spec) if spec else repr(self)

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: a traced value ({self.describe()}); arrays are not hashable")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"

    def __reduce__(self) -> Any:
        raise ConcretizationTypeError.of(self.describe(), self.origin(), use="bytes (pickling)")

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    __copy__ = lambda self: self


traceback_filtering.guard_methods(
    Tracer, "__bool__ __int__ __float__ __complex__ __index__ __array__ item tolist __format__ __hash__ __reduce__"
)


def leak_error(tracer: Tracer) -> UnexpectedTracerError:
    """The error for the use of a tracer whose trace has ended, or goes on in another thread."""
    trace = tracer._trace
    return UnexpectedTracerError.of(
        tracer.describe(), tracer.origin(), function=trace.name or None, has_ended=not trace.alive
    )


class WrappingTracer(Tracer):
    """A tracer around a value of the parent trace; outside of staging it stores the traceback of its creation."""

    __slots__ = ("_made",)

    _made: Any

    @property
    def wrapped(self) -> Any:
        """The value in the parent trace."""
        raise NotImplementedError  # defined by each subclass

    def origin(self) -> str | None:
        wrapped = self.wrapped
        if isinstance(wrapped, Tracer):
            return wrapped.origin()
        made = getattr(self, "_made", None)  # Values from the host have no traceback.
        return None if made is None else source_info.format_source(made)


class StagedTracer(Tracer):
    """A variable of the jaxpr that is being recorded."""

    __slots__ = ("_var", "aval")

    def __init__(self, trace: StagingTrace, aval: ShapedArray, var: Var | Literal):
        self._trace = trace
        self.aval = aval
        self._var = var

    def origin(self) -> str | None:
        eqn = self._trace.equation_of(self._var)
        return source_info.format_source(eqn.source) if eqn is not None else None

    def try_concretize(self) -> Any:
        trace = self._trace
        return None if trace.try_concretize_var is None else trace.try_concretize_var(trace, self._var)

    def describe(self) -> str:
        name = self._trace.name_of(self._var)
        return super().describe() + (f", its argument {name}" if name else "")

    def __repr__(self) -> str:
        return f"JitTracer({self.aval})"  # the name that the field prints


def _to_exact_array(x: Any, aval: ShapedArray) -> Any:
    """Transfer a NumPy constant of 64 bits, which would be narrowed where `enable_x64` is off when the jaxpr runs."""
    if type(x) is not np.ndarray or aval.dtype not in wide:
        return x
    outer, state.trace = state.trace, None
    try:
        return vector_space.as_type(x, aval.dtype, False)
    finally:
        state.trace = outer


# The tracers of inputs that are no arrays, by the type of the abstract value; filled by `mutable_arrays`.
tracer_types: dict[type, Callable[..., Any]] = {}


class StagingTrace(Trace):
    """Records the operations that are applied to its tracers in a jaxpr."""

    __slots__ = (
        "_makers",
        "constants",
        "constvars",
        "depth",
        "effects",
        "eqns",
        "finished",
        "input_name",
        "invars",
        "try_concretize_var",
    )
    compiles = True

    def __init__(self, parent: Trace | None = None, name: str = ""):
        super().__init__(parent, name)
        self.eqns: list[Eqn] = []
        self.invars: list[Var] = []
        self.constvars: dict[int, Var] = {}  # by identity of the value
        self.constants: list[Any] = []
        self.effects: Effects = no_effects
        self.finished: Any = None
        self._makers: tuple[int, dict[Var, Eqn]] = 0, {}
        self.depth = 0  # the number of scopes around the jaxpr
        self.input_name: Callable[[int], str] | None = None
        self.try_concretize_var: Callable[[StagingTrace, Var], Any] | None = None

    def new_input(self, aval: ShapedArray) -> StagedTracer:
        """Add an input to the jaxpr."""
        var = Var(aval)
        self.invars.append(var)
        return StagedTracer(self, aval, var) if type(aval) is ShapedArray else tracer_types[type(aval)](self, aval, var)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        # `atom` is written out, and one loop fills both lists, since this runs for every traced operation.
        avals = []
        atoms = []
        for x in args:
            atom = x._var if type(x) is StagedTracer and x._trace is self else self.constant(x)
            atoms.append(atom)
            avals.append(atom.aval)
        return self._append(primitive, atoms, tuple(avals), params)

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Append an equation; the rules of call-like primitives call it for the part that is left for later."""
        atoms = [self.atom(x) for x in args]
        return self._append(primitive, atoms, tuple([a.aval for a in atoms]), params)

    def _append(self, primitive: Primitive, atoms: list[Any], avals: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Append one equation and return its results as tracers."""
        if primitive.update_varying is not None:
            params = primitive.update_varying(avals, params)
        out = infer_result(primitive, avals, params)
        # Nearly no primitive overrides `effects`; comparing the functions saves the call for all others.
        effects = no_effects
        if type(primitive).effects is not Primitive.effects:
            effects = primitive.effects(*avals, **params)
            if effects:
                self.effects |= effects
        # Rules of transformations run under the source of the operation that they transform; only user code takes a
        # traceback of its own.
        where = state.source or source_info.current_traceback()
        if scope := state.scope:
            where = _new_tuple(source_info.ScopedTraceback, (where, scope, self.depth))
        if primitive.multiple:
            outvars = [Var(aval) for aval in out]
            self.eqns.append(Eqn(primitive, atoms, outvars, params, where, effects))
            return [StagedTracer(self, v.aval, v) for v in outvars]
        var = Var(out)
        self.eqns.append(Eqn(primitive, atoms, [var], params, where, effects))
        return StagedTracer(self, out, var)

    def constant(self, x: Any) -> Any:
        """The atom for a value from outside the trace: a literal for a scalar, else a variable bound to the value."""
        var = self.constvars.get(id(x))
        if var is not None:
            return var
        if isinstance(x, Tracer):
            self.check_alive(x)
            if x._trace is self:  # a tracer of a subclass of `StagingTrace`
                return x._var
        elif isinstance(x, Operators):  # an array
            pass
        elif (scalar := get_scalar_aval(x)) is not None:
            return Literal(x, scalar)
        elif (array := unwrap_array_like(x)) is not x:  # a symbolic size, or a container such as Flax's variables
            return self.atom(array)
        elif isinstance(x, np.ndarray) and x.ndim == 0:
            return Literal(x[()], get_aval(x))
        var = Var(get_aval(x))
        self.constvars[id(x)] = var
        self.constants.append(x)  # also keeps `x` alive, so that no other value gets its id
        return var

    def literal(self, value: Any, aval: ShapedArray) -> StagedTracer:
        """A constant scalar as a value of this trace, without an equation."""
        return StagedTracer(self, aval, Literal(value, aval))

    def atom(self, x: Any) -> Any:
        """The atom for any value: a variable of this trace, or a constant."""
        return x._var if type(x) is StagedTracer and x._trace is self else self.constant(x)

    def finish(self, outputs: Sequence[Any]) -> Jaxpr:
        """End the trace and return the jaxpr."""
        outvars = [self.atom(x) for x in outputs]
        constvars = list(self.constvars.values())
        consts = [_to_exact_array(x, v.aval) for x, v in zip(self.constants, constvars, strict=True)]
        program = Jaxpr(self.invars, self.eqns, outvars, constvars, consts, self.effects, self.name)
        self.close()
        self.finished = weakref.ref(program)
        return program

    def so_far(self, var: Var) -> Jaxpr | None:
        """The jaxpr up to a value; None if effects, which must not happen twice, contribute to it."""
        # Equations with effects are left out rather than evaluated: concretizing a value must not print or write
        # anything twice.
        pure, constvars = [eqn for eqn in self.eqns if not eqn.effects], self.constvars.values()
        program = remove_dead_code(Jaxpr(self.invars, pure, [var], [*constvars], self.constants, no_effects, self.name))
        made = {*self.invars, *constvars, *(v for eqn in program.eqns for v in eqn.outvars)}
        read = {var, *(v for eqn in program.eqns for v in eqn.invars if type(v) is Var)}
        return program if read <= made else None

    def close(self) -> None:
        """End the trace; using its tracers is an error from now on."""
        self.alive = False
        self.eqns, self.invars, self.constvars, self.constants = [], [], {}, []
        self._makers = 0, {}

    def name_of(self, var: Var) -> str | None:
        """The user's name for an input, for messages; None for other variables and inputs without a name."""
        program = self.finished and self.finished()
        invars = program.invars if program else self.invars
        return self.input_name(invars.index(var)) if self.input_name and var in invars else None

    def equation_of(self, var: Var) -> Eqn | None:
        """The equation that computes a variable."""
        program = self if self.finished is None else self.finished()
        eqns = program.eqns if program is not None else []
        # The table is extended with each question, so that asking for every equation takes linear time in total.
        count, makers = self._makers
        makers.update((v, e) for e in eqns[count:] for v in e.outvars)
        self._makers = max(count, len(eqns)), makers
        return makers.get(var)


def trace_to_jaxpr(
    fun: Callable[..., Sequence[Any]],
    in_avals: Sequence[ShapedArray],
    name: str = "fn",
    input_name: Callable[[int], str] | None = None,
    look: Callable[[StagingTrace, Var], Any] | None = None,
) -> Jaxpr:
    """Trace a function of flat arguments to a jaxpr.

    Args:
      fun: takes one tracer for each aval and returns a flat sequence of outputs.
      in_avals: the types of the inputs.
      name: the function's name, for messages and printed jaxprs.
      input_name: returns the user's name for input `i`, for messages.
      look: returns the value of a variable when Python asks for it, or None if it is not available.

    Returns:
      The jaxpr, with the values that the function closed over as its constants.

    Raises:
      TraceError: an output is not an array.
      UnexpectedTracerError: with `check_tracer_leaks`, a tracer outlived the trace.

    Examples:
      >>> from phalanx import lax
      >>> from phalanx.core.aval import get_aval
      >>> len(trace_to_jaxpr(lambda x: [lax.sin(x)], [get_aval(1.0)]).eqns)
      1
    """
    trace = StagingTrace(state.trace, name)
    trace.input_name, trace.try_concretize_var = input_name, look
    before, scope, source = state.trace, state.scope, state.source
    with pause_collector():
        # Scopes around the call belong to the equation that calls the jaxpr, not to the equations inside.
        metadata, outer_source = current_scope().context.xla_metadata, source_info.split_source(source)[0]
        # No call between this line and `try`, at which an interrupt would leave the state of this trace in force.
        state.trace, state.scope, state.source = trace, metadata, outer_source
        try:
            outputs = fun(*[trace.new_input(aval) for aval in in_avals])
            program = trace.finish(outputs)
        finally:
            state.trace, state.scope, state.source = before, scope, source
            trace.alive, trace.try_concretize_var = False, None
    del outputs
    check_leaks(trace)
    return program


def check_leaks(trace: Trace) -> None:
    """With `check_tracer_leaks`, raise if a tracer of a trace that has ended is still referenced."""
    if not current_scope().context.check_tracer_leaks:
        return
    gc.collect()
    # A generator, because a list of tracers would itself be one of their referrers.
    x = next((x for x in gc.get_referrers(trace) if isinstance(x, Tracer)), None)
    if x is not None:
        raise UnexpectedTracerError.of(x.describe() + _held_by(x), x.origin(), function=x._trace.name or None)


def _held_by(x: Tracer) -> str:
    """Describe the object that keeps a tracer alive; empty if it is not found."""
    for holder in gc.get_referrers(x):  # A generator that closed over `x` would be among the referrers.
        for key, value in (holder if type(holder) is dict else getattr(holder, "__dict__", {})).items():
            if value is x:
                return f", held by {_owner(holder)} as {key!r}"
        if type(holder) is CellType:
            return ", held by a variable that a function closes over"
        if isinstance(holder, list | set | tuple):
            return f", held by a {type(holder).__name__}"
    return ""


def _owner(holder: Any) -> str:
    """The module or object that owns a dict of attributes, or the object itself, in words."""
    if type(holder) is dict:
        holder = next((o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder), holder)
    return getattr(holder, "__name__", None) or f"a {type(holder).__name__}"


def convert_outputs(outputs: Sequence[Any], paths: Callable[[int], str]) -> list[Any]:
    """Convert the outputs of a function to arrays, which symbolic dimensions become too.

    Raises:
      TraceError: an output is not an array; it is named by its path.
    """
    out = list(outputs)
    for i, x in enumerate(outputs):
        aval = getattr(x, "aval", None)
        if type(aval) is AbstractRef:
            made = x.origin()
            raise RefError(
                f"output{paths(i)}",
                expected="an array or a scalar",
                got=f"a mutable array reference, {aval.str_short()}" + ("" if made is None else f", made at {made}"),
                fix="return its value, ref[...], or write the result into a reference that the caller passes",
            )
        if aval is not None or isinstance(x, np.ndarray | np.generic | int | float | complex | bool):
            continue
        out[i] = unwrap_array_like(x)
        if out[i] is x:
            raise TraceError(
                f"output{paths(i)}",
                expected="an array or a scalar",
                got=f"{x!r} of type {type(x).__name__}",
                fix="return only arrays from a transformed function; pass other results by has_aux or a closure",
            )
    return out
