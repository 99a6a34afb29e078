"""`jit`: a function compiled as a whole, over one device or a mesh (the global view).

The hot path is short on purpose: open the arguments as those of the call before (see `runtime.opener`), or else look up
their structure and types; execute, wrap. Everything else happens on a miss: `trace` makes the program, `lower` resolves
shardings and emits StableHLO, `compile` hands it to XLA; each stage is cached on the wrapped function and can be had by
itself (see `stages`). Inside another transformation a call becomes the `jit` primitive, whose rules derive one program
from another.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

from phalanx.core.config import disable_jit, state
from phalanx.core.errors import ArgumentTypeError
from phalanx.core.jaxpr import run_program
from phalanx.core.source import code_position
from phalanx.core.trace import check_outputs, stage
from phalanx.engine import client
from phalanx.engine.frames import as_boundary, boundary, hide_frames
from phalanx.runtime import dispatch, placement
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.dispatch import concrete_type, explain_failure
from phalanx.runtime.opener import opener
from phalanx.sharding import UNSPECIFIED
from phalanx.spmd.arguments import CallArguments, Signature
from phalanx.spmd.observation import explain_miss, logged
from phalanx.spmd.primitive import bind_program
from phalanx.spmd.resolution import declared_types, split_as_declared
from phalanx.spmd.stages import Lowered, Traced
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.tree.paths import leaf_path

_wrappers: weakref.WeakSet[Jit] = weakref.WeakSet()
_all_programs: weakref.WeakSet[_Programs] = weakref.WeakSet()

_type_of = operator.attrgetter("_type")
_NO_HIT: tuple = (None,) * 6
NOTHING_ASKED: dict[str, Any] = dict(
    in_shardings=UNSPECIFIED, out_shardings=UNSPECIFIED, keep_unused=False, inline=False, compiler_options=None
)


class _Entry(dispatch.Call):
    """What a call that hits the cache needs, and how its results are put together."""

    __slots__ = ("open", "unflatten")

    def __init__(self, compiled: dispatch.CompiledProgram, moves: list, out_tree: Any):
        super().__init__(compiled, moves)
        self.unflatten = out_tree.unflatten
        self.open: Any = None  # what opens arguments like those of a call that came again


class _Programs:
    """What a function was made into, by the types of the arguments."""

    __slots__ = ("__weakref__", "calls", "traces")

    def __init__(self) -> None:
        self.calls: dict[tuple, _Entry] = {}
        self.traces: dict[tuple, Traced] = {}
        _all_programs.add(self)

    def clear(self) -> None:
        self.calls.clear()
        self.traces.clear()


class _OfFunction:
    """The programs of one function, by the options of `jit`. It is pickled with the function, without what it holds."""

    __slots__ = ("known", "owner")

    def __init__(self, owner: Callable | None = None):
        self.owner = owner
        self.known: dict[tuple, _Programs] = {}

    def __reduce__(self) -> tuple:
        return _OfFunction, ()


def _programs_of(fun: Callable, options: dict) -> _Programs:
    """The programs of a function under these options, kept on it so that `jit(f)` written twice compiles once."""
    if type(fun) is not FunctionType:
        return _Programs()
    found = fun.__dict__.get("_phalanx_programs")
    if found is None or found.owner is not fun:  # it came with the attributes that functools.wraps or a pickle brought
        found = fun.__dict__["_phalanx_programs"] = _OfFunction(fun)
    try:
        key = tuple(options.items())
        return found.known.get(key) or found.known.setdefault(key, _Programs())
    except TypeError:  # options that cannot be part of a key
        return _Programs()


class Jit:
    """What is behind a compiled function: its options, and its programs by the types of the arguments.

    Args:
      fun: the function.
      signature: its parameters, and which of them are static or donated.
      options: those given to `jit`.

    Examples:
      >>> import phalanx
      >>> isinstance(phalanx.jit(lambda x: x + 1)._jit, Jit)
      True
    """

    def __init__(self, fun: Callable, signature: Signature, options: dict = NOTHING_ASKED):
        self._fun = fun
        self._signature = signature
        self._options = options
        self._name = getattr(fun, "__name__", type(fun).__name__)
        self._programs = _programs_of(fun, options) if type(self) is Jit else _Programs()
        self._calls, self._traces = self._programs.calls, self._programs.traces
        self._last = [_NO_HIT]  # how the last plain hit's arguments open, and what it did

    def function(self) -> Callable:
        """The callable that users hold: a plain function, since calling an object costs more."""
        call_slowly, find, last, wrap = self._call, self._find, self._last, Array

        @functools.wraps(self._fun)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            try:
                if state.trace is not None:
                    return call_slowly(args, kwargs)
                open_alike, context, run, handlers, out_types, unflatten = last[0]
                buffers = None
                if state.context is context:  # Most calls are like the one before.
                    try:
                        buffers = open_alike(args, kwargs)
                    except Exception:  # Other arguments; if they are wrong, the long way says so.
                        pass
                if buffers is None:
                    found = find(args, kwargs)
                    if found is None:
                        return call_slowly(args, kwargs)
                    buffers, run, handlers, out_types, unflatten = found
                try:
                    out = run(buffers).consume_with_handlers(handlers)
                except Exception as error:
                    self._explain_failure(error, args, kwargs)
                    raise
                return unflatten(map(wrap, out, out_types))
            except Exception as error:
                hide_frames(error)
                raise

        _wrappers.add(self)
        return self._with_stages(compiled)

    def _with_stages(self, compiled: Any) -> Callable:
        for name in ("trace", "lower", "eval_shape", "clear_cache", "_cache_size"):
            setattr(compiled, name, boundary(getattr(self, name)))
        compiled._jit = self
        return as_boundary(compiled)

    def _host_types(self, leaves: list, args: tuple, kwargs: dict) -> list:
        """The types of arguments some of which are on the host."""
        try:
            return [*map(concrete_type, leaves)]
        except ArgumentTypeError:
            self._signature.split(args, kwargs).avals(self._name)
            raise

    def _find(self, args: tuple, kwargs: dict) -> tuple | None:
        """The buffers of the arguments, and what the call has to do, where that is no more than to run and to wrap."""
        leaves, structure = self._signature.flatten(args, kwargs)
        try:
            types = [*map(_type_of, leaves)]
        except AttributeError:  # some data is on the host
            types = [] if state.context.disable_jit else self._host_types(leaves, args, kwargs)
        try:
            entry = self._calls.get((structure, tuple(types), state.context))
        except TypeError:  # a static argument that cannot be part of a key
            return None
        if entry is None or not entry.is_plain:
            return None
        if entry.open is None:
            entry.open = opener(args, kwargs, structure[1], types, entry.moves)
        try:
            buffers = entry.open(args, kwargs)
        except Exception:  # The long way says what is wrong.
            return None
        if buffers is None:
            return None
        work = entry.run, entry.handlers, entry.out_types, entry.unflatten
        self._last[0] = (entry.open, state.context, *work)
        return buffers, *work

    def _call(self, args: tuple, kwargs: dict) -> Any:
        """Every call that is not a plain hit."""
        if state.context.disable_jit:
            return self._fun(*args, **kwargs)
        call = self._signature.split(args, kwargs)
        if state.trace is not None:
            traced = self._traced(call)
            if traced.options.inline:
                out = run_program(traced.program, *call.leaves)
            else:
                out = bind_program(traced.program, call.leaves, name=self._name, options=traced.options)
            return tree_unflatten(traced.out_tree, out)
        entry = self._entry(call)
        out = entry(call.leaves, lambda i: f"{self._name}, argument {call.path(i)}")
        if state.context.debug_nans or state.context.debug_infs:
            self._check(out, call)
        return entry.unflatten(out)

    def entry(self, args: tuple, kwargs: dict) -> _Entry:
        """What runs for these arguments, compiled if need be; for rooms that build their own hot path on it."""
        return self._entry(self._signature.split(args, kwargs))

    def _entry(self, call: Any) -> _Entry:
        types = tuple([concrete_type(x) for x in call.leaves])
        key = (call.key, types, state.context)
        entry = self._calls.get(key)
        if entry is None:
            explain_miss(self._name, call, types, state.context, self._calls)
            entry = self._calls[key] = self._prepare(call, types)
        return entry

    def _check(self, out: list, call: CallArguments) -> None:
        """Under `debug_nans`, find the operation that made a bad value by running the function without `jit`."""
        try:
            dispatch.check_values(self._name, out)
        except FloatingPointError:
            leaves = [placement.put(x) for x in call.leaves]  # Python would divide its own numbers by another rule.
            if not any(x.is_deleted() for x in leaves):
                args, kwargs = call.rebuild(leaves)
                with disable_jit(True):
                    self._fun(*args, **kwargs)
            raise

    def _prepare(self, call: Any, types: tuple) -> _Entry:
        traced = self._traced(call)
        # One program for all spellings of a placement.
        placed = tuple([ArrayType(t.aval, t.sharding and t.sharding.canonical, t.committed) for t in types])
        program = traced.compiled.get(placed)
        if program is None:
            program = traced.compiled[placed] = traced.lower_for(types).compile().program
        return _Entry(program, dispatch.moves(types, program.lowered), traced.out_tree)

    def _traced(self, call: Any) -> Traced:
        avals = call.avals(self._name)
        key = (call.key, avals, state.context)
        traced = self._traces.get(key)
        if traced is None:
            if state.trace is not None:  # A call that runs has been explained by its types and placements.
                explain_miss(self._name, call, avals, state.context, self._traces)
            traced = self._trace(call, avals)
            if not traced.is_open:
                self._traces[key] = traced
        return traced

    def _trace(self, call: Any, avals: tuple) -> Traced:
        fun, options = self._plan(call)
        trees: list = []

        def flat(*tracers: Any) -> list:
            args, kwargs = call.rebuild(tracers)
            out = fun(*args, **kwargs)
            leaves, tree = tree_flatten(out)
            check_outputs(leaves, lambda i: leaf_path(out, i))
            trees.append(tree)
            return split_as_declared(leaves, out, options)

        avals = declared_types(avals, call, options, self._name)
        with logged("Tracing", self._name, avals):
            program = stage(flat, avals, self._name, call.path)
        return Traced(self._fun, program, call, trees[0], options, self._signature)

    def _explain_failure(self, error: Exception, args: tuple, kwargs: dict) -> None:
        """Raise what went wrong in running where the engine reports it less clearly."""
        leaves, _ = self._signature.flatten(args, kwargs)
        explain_failure(error, leaves, lambda i: self.argument_name(i, args, kwargs))

    def argument_name(self, i: int, args: tuple, kwargs: dict) -> str:
        """What the user calls leaf `i` of the arguments of a call, for messages."""
        return f"{self._name}, argument {self._signature.split(args, kwargs).path(i)}"

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        """What is traced for a call, and the options that it is compiled under."""
        return self._fun, self._options

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these types: the first stage.

        Args:
          *args, **kwargs: arrays, or `ShapeDtypeStruct`s like them.

        Returns:
          The stage.
        """
        call = self._signature.split(args, kwargs)
        return self._traced(call).placed(call.leaves)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for arguments of these types: the second stage.

        Args:
          *args, **kwargs: as in `trace`.

        Returns:
          The stage.
        """
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results, without compiling.

        Args:
          *args, **kwargs: as in `trace`.

        Returns:
          A tree of `ShapeDtypeStruct`s.
        """
        return self.trace(*args, **kwargs).out_info

    def spell(self, **names: str) -> None:
        """Say by which names the user gave `in_shardings` and `out_shardings`, for messages."""
        self._options["spelling"] = names

    def clear_cache(self) -> None:
        """Forget all programs of this function."""
        self._programs.clear()
        self._last[0] = _NO_HIT

    def _cache_size(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<jit of {code_position(self._fun)}>"


def jit(
    fun: Callable | None = None,
    /,
    *,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict | None = None,
) -> Any:
    """Compile a function as a whole, for one device or a mesh.

    Args:
      fun: a function of arrays and pytrees of them. Left out, `jit` gives a decorator.
      in_shardings: for the positional arguments, as a prefix of their tree, where they are to be: a `Sharding`, a
        `PartitionSpec` (with a mesh in context), or None to follow the argument.
      out_shardings: the same for the result; None leaves it to the partitioner.
      static_argnums, static_argnames: parameters whose (hashable) values are part of the program.
      donate_argnums, donate_argnames: parameters whose buffers may be reused for results; using such an array
        afterwards is an error.
      keep_unused: keep parameters that the program does not read.
      device: run on this device.
      backend: run on the first device of this platform.
      inline: splice the program into others that call it.
      compiler_options: options passed to XLA.

    Returns:
      The compiled function, with the stages `trace`, `lower` and `eval_shape` as methods.

    Raises:
      ArgumentTypeError: `fun` is not callable, or a static argument is not hashable.
      ShardingError: an argument's placement contradicts the declared one.

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
        inline=inline,
        compiler_options=compiler_options,
    )
    if fun is None:
        return lambda f: jit(f, **options)
    if not callable(fun):
        raise ArgumentTypeError(
            "jit, argument fun",
            expected="a function",
            got=f"{fun!r} of type {type(fun).__name__}",
            mend="pass the function itself; options go by keyword",
        )
    if backend is not None and device is None:
        device = client.devices(backend)[0]
    if device is not None:
        options["in_shardings"] = placement.on_device(device)
    signature = Signature(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Jit(fun, signature, options).function()


pjit = jit


def clear_caches() -> None:
    """Forget all traced, lowered and compiled programs of this process.

    Examples:
      >>> import phalanx
      >>> f = phalanx.jit(lambda x: x + 1)
      >>> _ = f(1)
      >>> clear_caches()
      >>> f._cache_size()
      0
    """
    for wrapper in list(_wrappers):
        wrapper.clear_cache()
    for programs in list(_all_programs):
        programs.clear()
    dispatch.clear_caches()
