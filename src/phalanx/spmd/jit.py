"""`jit`: compile a function for one device or for all devices of a mesh (the global view).

A cache hit does as little as possible in Python: it repeats the previous call with generated code (see
`runtime.fast_path`) or, if the arguments differ, looks up their structure and types for that of an earlier one.
Everything else happens on a cache miss: `trace` produces the jaxpr, `lower` resolves shardings and emits
StableHLO, `compile` calls XLA. Each stage is cached on the wrapped function and accessible to users (see `stages`).
While another transformation is tracing, a call binds the `jit` primitive (see `jit_primitive`).
"""

from __future__ import annotations

import enum
import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    as_shape_struct,
    check_allowed,
    check_function,
    check_jaxpr,
    check_ref_aliases,
    communication as communication_option,
    convert_outputs,
    current_scope,
    disable_jit,
    enable_checks,
    has_refs,
    run_jaxpr,
    state,
    trace_to_jaxpr,
)
from phalanx.engine import Cache, Device, api_boundary, cache, client, hide_frames, mark_api_boundary, monitoring
from phalanx.engine.live_objects import LiveObjects
from phalanx.runtime import (
    Array,
    ArrayType,
    compiled_program,
    concrete_type,
    eager_dispatch,
    explain_failure,
    fast_path,
    transfer,
)
from phalanx.sharding import UNSPECIFIED
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit_diagnostics import TRACING, explain_miss, log_stage
from phalanx.spmd.jit_primitive import bind_program
from phalanx.spmd.sharding_resolution import apply_in_shardings, reshard_results
from phalanx.spmd.stages import Compiled, Lowered, Traced
from phalanx.transforms.flat_function import STAGE_ATTRIBUTES, function_name, wraps
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree

# All live compiled functions, for `clear_caches`: their fast calls keep executables alive.
_wrappers: LiveObjects[Jit] = LiveObjects()

_type_of = operator.attrgetter("_type")
# Compared with the context of a call by identity. None is no context, so the first call takes the slow path.
_NO_HIT: tuple = None, None
_MAX_SIGNATURES = 64  # of a function, after each of which another is expected
DEFAULT_OPTIONS: dict[str, Any] = dict(
    in_shardings=UNSPECIFIED,
    out_shardings=UNSPECIFIED,
    keep_unused=False,
    inline=False,
    compiler_options=None,
    communication=None,
)


class Inline(enum.Enum):
    """When a call of a compiled function is inlined into the program that calls it.

    Attributes:
      JAX_EARLY: when the program is traced, as `inline=True`.
      JAX_LATE, XLA_EARLY, XLA_LATE, AUTO: left to the compiler, as `inline=False`.

    Examples:
      >>> import phalanx
      >>> f = phalanx.jit(lambda x: x * 2, inline=Inline.JAX_EARLY)
      >>> [eqn.primitive.name for eqn in phalanx.make_jaxpr(lambda x: f(x))(1.0).eqns]
      ['mul']
    """

    JAX_EARLY = "jax_early"
    JAX_LATE = "jax_late"
    XLA_EARLY = "xla_early"
    XLA_LATE = "xla_late"
    AUTO = "auto"


class _Entry(compiled_program.CompiledCall):
    """A cached executable together with the structure of the results."""

    __slots__ = ("hit", "out_tree")

    def __init__(self, compiled: compiled_program.CompiledProgram, moves: list, out_tree: PyTreeDef):
        super().__init__(compiled, moves)
        self.out_tree = out_tree
        # What a hit needs: the fast call, generated at the first one, and its context.
        self.hit: tuple[fast_path.FastCall, Any] | None = None


class _EntryWithRefs:
    """A cached program that reads or writes mutable array references: each call binds it to their values."""

    __slots__ = ("out_tree", "traced")

    is_plain = False

    def __init__(self, traced: Traced):
        self.traced = traced
        self.out_tree = traced.out_tree

    def __call__(self, leaves: Sequence[Any], name_of: Callable[[int], str]) -> list:
        return bind_program(self.traced.program, leaves, name=self.traced.fun_name, options=self.traced.options)


class _Programs:
    """The traced and compiled programs of a function, by the types of the arguments."""

    __slots__ = ("__weakref__", "calls", "traces")

    def __init__(self) -> None:
        self.calls: Cache[tuple, _Entry] = Cache("spmd.jit_calls", 4096)
        self.traces: Cache[tuple, Traced] = Cache("spmd.jit_traces", 4096)

    def clear(self) -> None:
        self.calls.clear()
        self.traces.clear()


class _OfFunction:
    """The programs of one function, by the options of `jit`. Pickling the function drops them."""

    __slots__ = ("known", "owner")

    def __init__(self, owner: Callable | None = None):
        # Weak: the table is an attribute of the function, and a cycle would keep both alive until garbage collection.
        self.owner = owner and weakref.ref(owner)
        self.known: Cache[tuple, _Programs] = Cache("spmd.jit_options", 64)

    def __reduce__(self) -> tuple:
        return _OfFunction, ()


def _programs_of(fun: Callable, options: dict) -> _Programs:
    """The programs of a function under these options, stored on the function so that two `jit(f)` share them."""
    if type(fun) is not FunctionType:
        return _Programs()
    found = fun.__dict__.get("_phalanx_programs")
    # `functools.wraps` copies the attribute to other functions, and a pickle restores it empty.
    if found is None or found.owner is None or found.owner() is not fun:
        found = fun.__dict__["_phalanx_programs"] = _OfFunction(fun)
    try:
        return found.known.get_or_make(tuple(options.items()), _Programs)
    except TypeError:  # unhashable options, such as a dict of compiler options
        return _Programs()


def _placement(types: Iterable[ArrayType]) -> tuple:
    """The types of arguments as far as a program depends on them.

    All spellings of a placement share one program, and so do uncommitted arrays on the default device and host data.
    """
    default = transfer.default_sharding()
    return tuple(
        [
            ArrayType(t.aval, t.sharding and t.sharding.canonical, True)
            if t.committed
            else ArrayType(t.aval, None if t.sharding is default else t.sharding)
            for t in types
        ]
    )


_GLOBALS = state, current_scope, hide_frames
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Jit:
    """The state of a compiled function: its options, and its programs by the types of the arguments.

    Args:
      fun: the function.
      signature: the parameters of the function, with the static and donated ones marked.
      options: the options of `jit`.

    Examples:
      >>> import phalanx
      >>> isinstance(phalanx.jit(lambda x: x + 1)._jit, Jit)
      True
    """

    def __init__(self, fun: Callable, signature: Signature, options: dict = DEFAULT_OPTIONS):
        self._fun = fun
        self._signature = signature
        self._what = signature.what  # for error messages
        # A dict rather than a record: subclasses (pmap, xmap) add shardings per call in `_plan`.
        self._options = options
        self._name = function_name(fun)
        self._programs = _programs_of(fun, options) if type(self) is Jit else _Programs()
        self._calls, self._traces = self._programs.calls, self._programs.traces
        # The hit that is expected next, and the fast call that was last. Programs for several signatures tend to be
        # called in turn: of two hits that followed a fast call lately, the last is expected, the other tried after it.
        self._last: list[Any] = [_NO_HIT, None]
        self._next: dict[fast_path.FastCall, tuple] = {}  # empty as long as all calls are alike
        self._others: dict[fast_path.FastCall, tuple] = {}

    def function(self) -> Callable:
        """The callable for users: a Python function, because calling an object with `__call__` is slower."""
        # Local variables: reading them from the closure is faster than attributes of `self` or globals.
        call_slowly, call_known, last, following = self._call, self._call_known, self._last, self._next
        unlike = fast_path.UNLIKE
        # Also because a pickle by value, such as cloudpickle's, copies globals and refers to what a closure holds.
        state, current_scope, hide_frames = _GLOBALS

        @wraps(self._fun)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            try:
                if state.trace is not None:
                    return call_slowly(args, kwargs)
                # One read of a list element: another thread may replace the tuple, but never leaves it half written.
                call_alike, context = hit = last[0]
                if current_scope().context is context:
                    try:
                        out = call_alike(args, kwargs)
                    except Exception as error:
                        self._explain_failure(error, args, kwargs)
                        raise
                    if out is not unlike:
                        if following:
                            last[0], last[1] = following.get(call_alike, hit), call_alike
                        return out
                return call_known(args, kwargs)
            except Exception as error:
                hide_frames(error)
                raise

        _wrappers.add(self)
        vars(compiled).update({name: api_boundary(getattr(self, name)) for name in STAGE_ATTRIBUTES[:-1]}, _jit=self)
        return mark_api_boundary(compiled)

    def __getstate__(self) -> dict:
        self._forget_calls()
        return vars(self)

    def __setstate__(self, attributes: dict) -> None:
        vars(self).update(attributes)
        _wrappers.add(self)

    def _host_types(self, leaves: list, args: tuple, kwargs: dict) -> list:
        """The types of the arguments if some of them are Python or NumPy values.

        Raises:
          ArgumentTypeError: a leaf is not an array; the message names the argument.
        """
        try:
            return [*map(concrete_type, leaves)]
        except ArgumentTypeError:
            # Raises the same error again, now with the name of the argument in the message.
            self._signature.split(args, kwargs).avals(self._name)
            raise

    def _call_known(self, args: tuple, kwargs: dict) -> Any:
        """A call that is not like the expected one, but perhaps like one before."""
        expected, before = self._last
        hit = self._others.get(before)
        out = fast_path.UNLIKE if hit is None else self._repeat(hit, args, kwargs)
        if out is fast_path.UNLIKE:
            hit = self._find(args, kwargs)
            out = fast_path.UNLIKE if hit is None else self._repeat(hit, args, kwargs)
        if hit is None or out is fast_path.UNLIKE:
            return self._call(args, kwargs)
        if before is not None and expected is not hit:
            if len(self._next) >= _MAX_SIGNATURES:
                self._next.clear()
                self._others.clear()
            self._next[before], self._others[before] = hit, expected
            self._next.setdefault(hit[0], hit)  # Until it is known what follows, a call like it is expected.
        self._last[:] = self._next.get(hit[0], hit), hit[0]
        return out

    def _repeat(self, hit: tuple[fast_path.FastCall, Any], args: tuple, kwargs: dict) -> Any:
        """The result of a fast call; `UNLIKE` if it was made for other arguments, or another context."""
        if hit[1] is not current_scope().context:
            return fast_path.UNLIKE
        try:
            return hit[0](args, kwargs)
        except Exception as error:
            self._explain_failure(error, args, kwargs)
            raise

    def _forget_calls(self) -> None:
        """Forget the fast calls, in place, since the function for users holds the lists as well."""
        self._next.clear()
        self._others.clear()
        self._last[:] = _NO_HIT, None

    def _find(self, args: tuple, kwargs: dict) -> tuple[fast_path.FastCall, Any] | None:
        """The hit for the types of these arguments; None for the slow path."""
        context = current_scope().context  # Read once, since another thread may set an option.
        leaves, structure = self._signature.flatten(args, kwargs)
        try:
            types = [*map(_type_of, leaves)]
        except AttributeError:  # Python or NumPy values among the arguments
            types = [] if context.disable_jit else self._host_types(leaves, args, kwargs)
        try:
            entry = self._calls.get((structure, tuple(types), context))
        except TypeError:  # an unhashable static argument
            return None
        # Programs with effects, and calls under a debug option, have more to do than to execute and wrap.
        if entry is None or not entry.is_plain:
            return None
        if entry.hit is None:
            try:
                call = fast_path.fast_call(
                    args, kwargs, structure[1], types, entry.moves, entry.compiled, entry.out_tree
                )
            except Exception:  # The slow path reports the error.
                return None
            entry.hit = call, context
        return entry.hit

    def _call(self, args: tuple, kwargs: dict) -> Any:
        """The slow path: cache misses, calls under a transformation, `disable_jit` and `debug_nans`."""
        if current_scope().context.disable_jit:
            return self._fun(*args, **kwargs)
        call = self._signature.split(args, kwargs)
        if state.trace is not None:
            traced = self._get_trace(call)
            self._check_refs(call, traced)
            if traced.options.inline:
                out = run_jaxpr(traced.program, *call.leaves)
            else:
                out = bind_program(traced.program, call.leaves, name=self._name, options=traced.options)
            return tree_unflatten(traced.out_tree, out)
        entry = self._entry(call)
        if type(entry) is _EntryWithRefs:
            self._check_refs(call, entry.traced)
        out = entry(call.leaves, lambda i: f"{self._name}, argument {call.path(i)}")
        if current_scope().context.debug_nans or current_scope().context.debug_infs:
            self._check(out, call)
        return tree_unflatten(entry.out_tree, out)

    def _check_refs(self, call: CallArguments, traced: Traced) -> None:
        """Refuse a mutable array reference that is passed twice, or passed and closed over."""
        if has_refs(traced.program):
            check_ref_aliases(f"jit of {self._name}", call.leaves, traced.program.consts, call.path)

    def entry(self, args: tuple, kwargs: dict) -> _Entry:
        """The cache entry for these arguments, compiled if necessary. For callers with their own fast path (`nnx`)."""
        return self._entry(self._signature.split(args, kwargs))

    def _entry(self, call: CallArguments) -> _Entry:
        types = tuple([concrete_type(x) for x in call.leaves])
        # The context has all options that affect tracing or compilation, so that changing one is a cache miss.
        key = (call.key, types, current_scope().context)
        entry = self._calls.get(key)
        if entry is None:
            explain_miss(self._name, call, types, current_scope().context, self._calls)
            entry = self._calls[key] = self._prepare(call, types)
        return entry

    def _check(self, out: list, call: CallArguments) -> None:
        """Under `debug_nans`, find the operation that produced a NaN by running the function without `jit`."""
        try:
            eager_dispatch.check_values(self._name, out)
        except FloatingPointError:
            # Python's arithmetic would raise ZeroDivisionError.
            leaves = [x if type(x) is Array else transfer.put(x) for x in call.leaves]
            if not any(x.is_deleted() for x in leaves):
                args, kwargs = call.rebuild(leaves)
                with disable_jit(True):
                    self._fun(*args, **kwargs)
            raise

    def _prepare(self, call: CallArguments, types: tuple) -> Any:
        traced = self._get_trace(call)
        check_allowed("no_execution", f"a run of {self._name}")
        if has_refs(traced.program):
            return _EntryWithRefs(traced.resolve_auto())
        placed = _placement(types)
        program = traced.compiled.get(placed)
        if program is None:
            program = traced.compiled[placed] = self._compile(traced, types, placed).program
        moves = compiled_program.plan_transfers(types, program.lowered, self._argument_name(call))
        return _Entry(program, moves, traced.out_tree)

    def _compile(self, traced: Traced, types: tuple, placed: tuple) -> Compiled:
        """Compile for arguments of these types, or wait for `warm`, which may be compiling for them."""
        waiting = traced.compiling.get(placed)
        if waiting is None:
            return traced.lower_for(types).compile()
        try:
            return waiting.result()
        finally:
            if waiting.done():  # Otherwise the user interrupted the wait.
                traced.compiling.pop(placed, None)

    def _argument_name(self, call: CallArguments) -> Callable[[int], str]:
        return lambda i: f"{self._name}, argument {call.path(i)}"

    def _get_trace(self, call: CallArguments) -> Traced:
        avals = call.avals(self._name)
        key = (call.key, avals, current_scope().context)
        traced = self._traces.get(key)
        if traced is None:
            if state.trace is not None:  # Without a trace, `_entry` has explained the miss, placements included.
                explain_miss(self._name, call, avals, current_scope().context, self._traces)
            check_allowed("no_tracing", f"a trace of {self._name}")
            traced = self._trace(call, avals)
            # A jaxpr with tracers among its constants belongs to one trace of an outer transformation.
            if not traced.is_open:
                self._traces[key] = traced
        allowed = traced.options.communication or state.context.communication
        if allowed != "any" and state.trace is None:  # Inside another program the option of that program applies.
            from phalanx.spmd.refused_collectives import check_typed_communication  # noqa: PLC0415 - with an option

            check_typed_communication(traced.program, allowed)
        return traced

    def _trace(self, call: CallArguments, avals: tuple) -> Traced:
        fun, options = self._plan(call)
        trees: list = []

        def flat(*tracers: Any) -> list:
            args, kwargs = call.rebuild(tracers)
            out = fun(*args, **kwargs)
            leaves, tree = tree_flatten(out)
            leaves = convert_outputs(leaves, lambda i: leaf_path(out, i))
            # Tracing returns leaves only, so the structure of the result leaves the function through this list.
            trees.append(tree)
            return reshard_results(leaves, out, options, self._what)

        avals = apply_in_shardings(avals, call, options, self._name)
        with log_stage(TRACING, self._name, avals), monitoring.timed(monitoring.TRACE, fun_name=self._name):
            program = trace_to_jaxpr(flat, avals, self._name, call.path)
        if enable_checks.value:
            check_jaxpr(program)
        return Traced(self._fun, program, call, trees[0], options, self._signature)

    def _explain_failure(self, error: Exception, args: tuple, kwargs: dict) -> None:
        """Replace an error of the runtime by one that names the argument, for causes such as deleted arrays."""
        call = self._signature.split(args, kwargs)
        explain_failure(error, call.leaves, self._argument_name(call))

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        """The function to trace for a call, and the options to compile it with. Subclasses override this."""
        return self._fun, self._options

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace the function for arguments of these types.

        Args:
          *args, **kwargs: arrays or `ShapeDtypeStruct`s.

        Returns:
          The first stage of compilation.
        """
        call = self._signature.split(args, kwargs)
        call = call._replace(leaves=list(map(as_shape_struct, call.leaves)))
        return self._get_trace(call).with_shardings_of(call.leaves)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace the function for arguments of these types and lower it to StableHLO.

        Args:
          *args, **kwargs: as in `trace`.

        Returns:
          The second stage of compilation.
        """
        return self.trace(*args, **kwargs).lower()

    def warm(self, *args: Any, **kwargs: Any) -> None:
        """Compile the function for arguments of these types in the background, for instance while data are read.

        The function is traced and lowered at once. XLA then compiles it in other threads, several programs at a time.
        A call with such arguments that comes earlier waits for the program. It also raises the errors of compiling.

        Args:
          *args, **kwargs: as in `trace`; types without a sharding denote uncommitted arrays and host data.
        """
        call = self._signature.split(args, kwargs)
        call = call._replace(leaves=list(map(as_shape_struct, call.leaves)))
        traced = self._get_trace(call).with_shardings_of(call.leaves)
        types = traced.argument_types()
        placed = _placement(types)
        # The program of a function of mutable array references is compiled for the references of a call.
        if not (has_refs(traced.program) or placed in traced.compiled or placed in traced.compiling):
            from phalanx.spmd.background_compilation import compile_in_background  # noqa: PLC0415 - on demand

            traced.compiling[placed] = compile_in_background(traced.lower_for(types))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results, without compiling.

        Args:
          *args, **kwargs: as in `trace`.

        Returns:
          A tree of `ShapeDtypeStruct`s.
        """
        return self.trace(*args, **kwargs).out_info

    def set_former_options(self, *, none_replicates: bool, spelling: dict[str, str]) -> None:
        """Set the options of the former `pjit`.

        Args:
          none_replicates: whether None as a sharding means replicated over the mesh in context.
          spelling: the names under which error messages refer to `in_shardings` and `out_shardings`.
        """
        self._options |= {"none_replicates": none_replicates, "spelling": spelling}

    def clear_cache(self) -> None:
        """Drop all traced and compiled programs of this function."""
        self._programs.clear()
        self._forget_calls()

    def _cache_size(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<{self._what}>"


class JitOptions(TypedDict, total=False):
    """The options of `jit`, for type checkers."""

    in_shardings: PyTree
    out_shardings: PyTree
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    device: Device | None
    backend: str | None
    inline: bool
    compiler_options: dict | None
    communication: Literal["any", "implied", "asked"] | None


class JitFunction(Protocol[P, R_co]):
    """A compiled function, for type checkers: called like the original, with its stages as methods."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the compiled function."""

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace the function for arguments of these types."""

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace the function for arguments of these types and lower it to StableHLO."""

    def warm(self, *args: Any, **kwargs: Any) -> None:
        """Compile the function for arguments of these types in the background."""

    def eval_shape(self, *args: Any, **kwargs: Any) -> PyTree:
        """The types of the results, without compiling."""

    def clear_cache(self) -> None:
        """Drop all traced and compiled programs of this function."""


@overload
def jit(fun: Callable[P, R_co], /, **options: Unpack[JitOptions]) -> JitFunction[P, R_co]: ...
@overload
def jit(fun: None = None, /, **options: Unpack[JitOptions]) -> Callable[[Callable[P, R_co]], JitFunction[P, R_co]]: ...
def jit(
    fun: Callable | None = None,
    /,
    *,
    in_shardings: PyTree = UNSPECIFIED,
    out_shardings: PyTree = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool | Inline = False,
    compiler_options: dict | None = None,
    communication: Literal["any", "implied", "asked"] | None = None,
) -> Any:
    """Compile a function with XLA, for one device or for all devices of a mesh.

    Args:
      fun: a function of pytrees of arrays. If omitted, `jit` returns a decorator.
      in_shardings: the shardings of the positional arguments, as a tree prefix of the tuple of arguments. Each leaf is
        a `Sharding`, a `PartitionSpec` over the current mesh, or None to keep the sharding of the argument.
      out_shardings: the shardings of the result, as a tree prefix; None lets the partitioner choose.
      static_argnums, static_argnames: parameters with hashable values that are compile-time constants.
      donate_argnums, donate_argnames: parameters whose buffers may be reused for results. A donated array cannot be
        used afterwards.
      keep_unused: whether to keep parameters that the program does not read.
      device: the device to run on.
      backend: the platform whose first device to run on.
      inline: whether to inline calls into other programs being traced: a bool, or a member of `phalanx.Inline`.
      compiler_options: options passed to XLA.
      communication: the collectives that the program may have: "any", those that it asks for and those that sums over
        split dimensions "implied", or only those "asked" for; None for the option `sharding.communication`. A call
        inside another program becomes part of that program, whose option applies.

    Returns:
      The compiled function. Its attributes `trace`, `lower` and `eval_shape` expose the stages of compilation, and
      `warm` compiles in the background.

    Raises:
      ArgumentTypeError: `fun` is not callable, or a static argument is not hashable.
      ShardingError: a committed argument has another sharding than `in_shardings` declares, or `communication` does not
        allow a collective of the program.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> @phalanx.jit
      ... def scale(x, by=2.0):
      ...     return x * by
      >>> scale(jnp.arange(3.0)).tolist()
      [0.0, 2.0, 4.0]
    """
    options = dict(
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        device=device,
        backend=backend,
        inline=inline is True or inline is Inline.JAX_EARLY,
        compiler_options=compiler_options,
        communication=communication and communication_option.check("communication", communication),
    )
    if fun is None:
        return lambda f: jit(f, **options)
    check_function("jit, argument fun", fun)
    if device is not None and backend is not None:
        raise ArgumentError(
            "jit, argument backend", expected="device or backend, not both", got=repr(backend), fix="leave backend out"
        )
    if backend is not None:
        device = client.devices(backend)[0]
    if device is not None:
        for name in ("in_shardings", "out_shardings"):
            if options[name] not in (None, UNSPECIFIED):
                raise ArgumentError(
                    f"jit, argument {name}",
                    expected="shardings, or a device or backend, not both",
                    got=repr(options[name]),
                    fix="leave device and backend out",
                )
        options |= {"in_shardings": transfer.single_device_sharding(device), "moves_committed": True}
    return Jit(
        fun, Signature(fun, static_argnums, static_argnames, donate_argnums, donate_argnames), options
    ).function()


pjit = jit


@cache.on_clear
def _clear_wrappers() -> None:
    for wrapper in _wrappers:
        wrapper.clear_cache()


def clear_caches() -> None:
    """Drop all traced, lowered and compiled programs, and all other cached results, of this process.

    Examples:
      >>> import phalanx
      >>> f = phalanx.jit(lambda x: x + 1)
      >>> _ = f(1)
      >>> clear_caches()
      >>> f._cache_size()
      0
    """
    cache.clear_caches()
