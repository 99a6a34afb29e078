"""Options, declared in a table and read per thread, and `state`, the trace and context of the current thread.

Options are read as `config.name`. Users call `config.update`, set `PHALANX_NAME` in the environment, or enter an option
as a context manager (`with enable_x64(True): ...`). `runtime.engine_options` declares the options of the engine.

Caches of traced and compiled functions have `state.context` in their keys: one interned object for all options that
change the meaning of a function, the mesh in context and the named axes in scope. It is replaced when an option
changes, so that a call reads one attribute and compares nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import copyreg
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from phalanx.core import absl_flags
from phalanx.core.error_classes import ArgumentError, ForbiddenError, OptionNameError
from phalanx.core.options_without_effect import OPTIONS_WITHOUT_EFFECT
from phalanx.engine import Cache, traceback_filtering as frames
from phalanx.engine.client import is_forked
from phalanx.engine.environment_variables import option_variables, read_option_variable
from phalanx.engine.forked_processes import in_forked_process
from phalanx.engine.live_objects import LiveObjects

_lock = threading.RLock()
_declared: dict[str, Option] = {}
_global_values: dict[str, Any] = {
    "mesh": None,
    "placement_mesh": None,
    "axes": (),
    "split_sizes": (),
    "rows_share": False,
    "xla_metadata": (),
    "mesh_size_reads": None,
    "checkpoint_policy": None,
    "is_forked": False,
}
_aliases: dict[str, str] = {"x64_enabled": "enable_x64", "platform_name": "platforms"}
_contexts: Cache[tuple[Any, ...], Context] = Cache("core.contexts", weak="values")


class Context:
    """Everything outside a function that changes its trace; interned, so that equality is identity.

    Attributes are the options declared with `traced=True`, `mesh` (the mesh in context, or None), `placement_mesh`
    (the mesh over whose devices new arrays are replicated, or None), `axes` (the named axes in scope), `split_sizes`
    (inside `shard_map(uneven="pad")`, pairs of the axes that split a dimension of an argument, and its size without
    padding), `rows_share` (whether each row of a `pmap` inside another mapped function runs on all devices of that
    function), `xla_metadata` (the metadata that operations carry, as pairs of strings), `mesh_size_reads` (what an
    export records, see `export.mesh_size_reads`), `checkpoint_policy` (the policy of the `checkpoint` that is being
    traced, or None) and `is_forked` (whether the process was forked after devices were started, so that no program
    compiled before can run).
    """

    __slots__ = ("__dict__", "__weakref__", "_values")

    fields: list[str] = [*_global_values]

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self.__dict__.update(zip(self.fields, values, strict=True))

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> Context:
        """Return the context with these values, in the order of `fields`."""
        return _contexts.get(values) or _contexts.get_or_make(values, lambda: cls(values))

    def replace(self, **changes: Any) -> Context:
        """Return the context that differs from this one in the given fields."""
        values = list(self._values)
        for name, value in changes.items():
            values[self.fields.index(name)] = value
        return Context.of(tuple(values))

    if TYPE_CHECKING:  # The fields are the declared options.

        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        return f"Context({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class OptionScope:
    """The options of the running code: the global ones under those of the `with` blocks around it.

    Each thread starts in the global scope, and each asyncio task in that of its creator. Entering a block makes another
    scope current, for this thread or task alone; a scope changes with the global options only.

    Args:
      blocks: each enclosing block, outermost first: its owner, and the fields of the context and options that it sets.
      context: the context that they result in.
    """

    __slots__ = ("__weakref__", "blocks", "context", "overrides")

    def __init__(self, blocks: tuple[_Block, ...], context: Context) -> None:
        self.blocks = blocks
        self.context = context
        self.overrides = {name: value for _, values in blocks for name, value in values.items()}
        _scopes.add(self)

    def replace(self, blocks: Iterable[_Block], changed: Iterable[str]) -> None:
        """Make the scope with other blocks current, which differ from those of this one in the given fields."""
        with _lock:  # Otherwise a global update meanwhile could reach neither this scope nor the new one.
            scope = OptionScope(tuple(blocks), self.context)
            scope.context = self.context.replace(**{n: scope.read(n) for n in changed if n in Context.fields})
        _current.set(scope)

    def read(self, name: str) -> Any:
        """Return the value of an option or another field of the context."""
        return self.overrides[name] if name in self.overrides else _global_values[name]


NOT_SET: Final[Any] = object()
_Block = tuple[object, dict[str, Any]]
_scopes: LiveObjects[OptionScope] = LiveObjects()  # through which a global update reaches all threads


def enter_block(owner: object, values: dict[str, Any]) -> None:
    """Give fields of the context, or options, these values until `leave_block(owner)`."""
    scope = current_scope()
    scope.replace((*scope.blocks, (owner, values)), values)


def leave_block(owner: object) -> None:
    """Leave the innermost block of an owner; blocks may be left in another order than they were entered."""
    scope = current_scope()
    for i in reversed(range(len(scope.blocks))):
        if scope.blocks[i][0] is owner:
            scope.replace((*scope.blocks[:i], *scope.blocks[i + 1 :]), scope.blocks[i][1])
            return  # Otherwise it was entered on another thread, or in another task.


def set_without_block(name: str, value: Any) -> Any:
    """Set an option or a field of the context until the innermost block that sets it ends, or for good.

    Args:
      name: the option or the field.
      value: the value; `NOT_SET` to follow the enclosing block, or the global options, again.

    Returns:
      The value that this replaces, or `NOT_SET`; pass it to undo the change.
    """
    scope = current_scope()
    blocks = [*scope.blocks] if any(name in values for _, values in scope.blocks) else [(None, {}), *scope.blocks]
    i = max((i for i, (_, values) in enumerate(blocks) if name in values), default=0)
    owner, values = blocks[i]
    kept = {n: v for n, v in values.items() if n != name}
    blocks[i] = owner, kept if value is NOT_SET else {**kept, name: value}
    scope.replace([block for block in blocks if block[1]], [name])
    return values.get(name, NOT_SET)


class State(threading.local):
    """The state of one thread, which starts with no trace, and the context of the running code."""

    def __init__(self) -> None:
        self.trace: Any = None
        self.scope: tuple[Any, ...] = ()  # see `source_info.Scope`
        self.backward_logs: dict[Any, Any] | None = None  # see `transforms.backward_logs`
        self.source: Any = None  # the traceback that operations of a rule are recorded with, instead of the caller's

    @property
    def context(self) -> Context:
        """The context of the running code."""
        return current_scope().context

    def __reduce__(self) -> str:
        return "state"  # functions that are pickled by value refer to the state of the process that loads them


@dataclass(eq=False, repr=False)
class Option:
    """A declared option; calling it returns a context manager, also a decorator, that sets it on this thread.

    Args:
      default: the initial value.
      check: takes the name and a value; returns the value to store, or raises.
      summary: one line of documentation.
      traced: whether it changes the trace of a function.
      members: options that are set together with this one.
      example: a value for the example in its docstring.
      on_update: called with each value of `update` before it is set; it may raise to refuse the change.
      on_block: called with each value that a `with` block sets on its thread, and with None when the block ends.

    Examples:
      >>> with numpy_rank_promotion("raise"):
      ...     numpy_rank_promotion.value
      'raise'
    """

    default: Any
    check: Callable[[str, Any], Any]
    summary: str
    _: KW_ONLY
    traced: bool = False
    members: Sequence[Option] = ()
    example: Any = True
    on_update: Callable[[Any], object] | None = None
    on_block: Callable[[Any], object] | None = None
    name: str = field(init=False)  # the name of the variable that holds it

    @property
    def value(self) -> Any:
        """The value on this thread."""
        return current_scope().read(self.name)

    def get_global(self) -> Any:
        """The value outside of all `with` blocks."""
        return _global_values[self.name]

    def __call__(self, new_val: Any = True) -> _Override:
        return _Override([self, *self.members], self.check(self.name, new_val))

    def __repr__(self) -> str:
        return f"<option {self.name}={self.value!r}: {self.summary}>"


class _DisableJit(Option):
    def __call__(self, disable: Any = True) -> _Override:
        return super().__call__(disable)


class _Override(contextlib.ContextDecorator):
    """Sets options between enter and exit; may be entered again while it is active."""

    def __init__(self, options: Sequence[Option], value: Any) -> None:
        self._options = options
        self._value = value

    def __enter__(self) -> None:
        enter_block(self, {option.name: self._value for option in self._options})
        self._notify()

    def __exit__(self, *exc: object) -> None:
        leave_block(self)
        self._notify()

    def _notify(self) -> None:
        overrides = current_scope().overrides
        for option in self._options:
            if option.on_block is not None:
                option.on_block(overrides.get(option.name))


class state_extra:
    """Set a field of the context, such as `mesh`, `axes` or `xla_metadata`, inside a `with` block.

    Examples:
      >>> with state_extra(mesh="a mesh"):
      ...     state.context.mesh
      'a mesh'
      >>> state.context.mesh is None
      True
    """

    __slots__ = ("_values",)

    def __init__(self, **extras: Any) -> None:
        self._values = extras

    def __enter__(self) -> None:
        enter_block(self, self._values)

    def __exit__(self, *exc: object) -> None:
        leave_block(self)


@frames.api_boundary_class
class Config:
    """The options: `config.name` reads one, and `config.update(name, value)` sets it for every thread.

    The prefix `jax_` of a name is ignored.

    Examples:
      >>> config.update("jax_enable_x64", False)
      >>> config.enable_x64
      False
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return _find(name).value
        except OptionNameError:
            raise AttributeError(f"config has no option {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise ArgumentError(
            f"config.{name} = ...",
            expected="a call of config.update",
            got="an assignment",
            fix=f"call config.update({name!r}, value)",
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_declared, *OPTIONS_WITHOUT_EFFECT]

    def read(self, name: str) -> Any:
        """Return the value of an option on this thread.

        Args:
          name: the option, with or without the prefix `jax_`.

        Returns:
          The value.

        Raises:
          OptionNameError: there is no such option.
        """
        return _find(name).value

    def update(self, name: str, value: Any) -> None:
        """Set an option for every thread that does not override it.

        Args:
          name: the option, with or without the prefix `jax_`.
          value: its new value.

        Raises:
          OptionNameError: there is no such option.
          ArgumentError: the value is not accepted, or it is too late to change it.
        """
        # Checked before any state changes, so that a refused value leaves all options as they were.
        found = _find(name)
        value = found.check(found.name, value)
        for option in (*found.members, found):
            if option.on_update is not None:
                option.on_update(value)
            with _lock:
                _global_values[option.name] = value
                if option.traced:
                    for scope in _scopes:
                        if option.name not in scope.overrides:
                            scope.context = scope.context.replace(**{option.name: value})

    def config_with_absl(self) -> None:
        """Define a flag of Abseil, `--jax_<option>`, for each option; `absl.app.run` sets those on the command line.

        Examples:
          >>> config.config_with_absl()  # doctest: +SKIP
          >>> absl.app.run(main)  # doctest: +SKIP
        """
        absl_flags.define_flags(self.values)
        absl_flags.apply_when_parsed(self._take_flags)

    def parse_flags_with_absl(self) -> None:
        """Set the options whose flags are on the command line, of a program that does not call `absl.app.run`.

        Examples:
          >>> config.parse_flags_with_absl()  # doctest: +SKIP
        """
        absl_flags.define_flags(self.values)
        absl_flags.parse_own_flags()
        self._take_flags()

    def _take_flags(self) -> None:
        for name, value in absl_flags.given_flags(self.values).items():
            self.update(name, value)

    @property
    def values(self) -> dict[str, Any]:
        """The value of every option on this thread."""
        return {name: option.value for name, option in _declared.items()}

    def __repr__(self) -> str:
        return "\n".join(f"{name} = {value!r}" for name, value in self.values.items())


def _find(name: str) -> Option:
    """Find the option of a user's `name`."""
    plain = name.removeprefix("jax_").removeprefix("phalanx_")
    option = _declared.get(_aliases.get(plain, plain))
    if option is None and plain in OPTIONS_WITHOUT_EFFECT:
        option = _without_effect(plain)
        _add(plain, option)
    if option is None:
        import difflib

        close = difflib.get_close_matches(plain, [*_declared, *OPTIONS_WITHOUT_EFFECT], n=1)
        raise OptionNameError(
            "config.update",
            expected="the name of an option",
            got=repr(name),
            fix=f"write {' or '.join(close)}" if close else "choose one of dir(phalanx.config)",
        )
    return option


def declare(module: dict[str, Any]) -> None:
    """Add the options among a module's names to the table, with their values in the environment."""
    for name, option in list(module.items()):
        if isinstance(option, Option):
            _add(name, option)


def _add(name: str, option: Option) -> None:
    option.name = name
    option.__doc__ = _complete_docstring(option)
    _declared[name] = option
    _global_values[name] = option.default
    found = read_option_variable(name, *[alias for alias, known in _aliases.items() if known == name])
    if found is not None:
        value = option.check(name, None if found.lower() in ("", "none") else found)
        for changed in (option, *option.members):
            _global_values[changed.name] = value
            if changed.on_update is not None:
                changed.on_update(value)
    if option.traced:
        Context.fields.append(name)


def _complete_docstring(option: Option) -> str:
    """Complete an option's docstring with the accepted values, as the error of its check names them."""
    takes = "any value"
    try:
        option.check(option.name, object())
    except ArgumentError as refused:
        takes = refused.expected
    first, second = option_variables(option.name)
    return f"""{option.summary}

    Args:
      new_val: {takes}; the option itself is {option.default!r} where nobody sets it.

    Returns:
      A context manager, also a decorator, inside which `config.{option.name}` is `new_val` on this thread. For all
      threads, call `config.update({option.name!r}, value)` or set `{first}` or `{second}` in the environment.

    Raises:
      ArgumentError: the option does not take the value.

    Examples:
      >>> with {option.name}({option.example!r}):
      ...     config.{option.name}
      {option.example!r}
    """


def _refuse(name: str, expected: str, got: Any, fix: str) -> ArgumentError:
    return ArgumentError(f"option {name}", expected=expected, got=repr(got), fix=fix)


def flag(name: str, value: Any) -> bool:
    """Check a truth value, which may be written as text."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() in words and isinstance(value, str | int):
        return words[str(value).lower()]
    raise _refuse(name, "True or False", value, f"call config.update({name!r}, True)")


def choice(*choices: str | None) -> Callable[[str, Any], str | None]:
    """Return a check for one of several strings."""

    def check(name: str, value: Any) -> str | None:
        if value not in choices:
            fix = f"for example, config.update({name!r}, {choices[-1]!r})"
            raise _refuse(name, f"one of {', '.join(map(repr, choices))}", value, fix)
        return value

    return check


def number(kind: type, at_least: float | None = None, optional: bool = False) -> Callable[[str, Any], Any]:
    """Return a check for a number of at least `at_least`."""

    def check(name: str, value: Any) -> Any:
        if value is None and optional:
            return None
        try:
            number = kind(value)
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool) or (at_least is not None and number < at_least):
            bound = "" if at_least is None else f" of at least {at_least}"
            fix = f"call config.update({name!r}, {kind(1 if at_least is None else at_least)}), or more"
            raise _refuse(name, f"{kind.__name__}{bound}", value, fix)
        return number

    return check


def text(name: str, value: Any) -> str | None:
    """Check a string, a path or None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise _refuse(name, "a string or None", value, f"call config.update({name!r}, {str(value)!r})")


def names(name: str, value: Any) -> frozenset[Any]:
    """Check a set of names, which may be written as a text with commas; None stands for no names."""
    if isinstance(value, str):
        value = {word.strip() for word in value.split(",") if word.strip()}
    if not isinstance(value, set | frozenset | tuple | list | None):
        raise _refuse(name, "a set of names", value, f"for example, config.update({name!r}, {{'data'}})")
    return frozenset(value or ())


def _device(name: str, value: Any) -> Any:
    """Check a device, the name of a platform, or None."""
    if value is None or isinstance(value, str) or hasattr(value, "platform"):
        return value
    raise _refuse(name, "a device, the name of a platform or None", value, "pass one of phalanx.devices(), or 'cpu'")


# The values of `precision`, then the dot algorithms of StableHLO.
_PRECISIONS: Final = (
    *(None, "default", "high", "highest", "fastest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32"),
    *("DEFAULT", "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY"),
    *("ANY_F8_ANY_F8_ANY_FAST_ACCUM", "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32"),
    *("BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3"),
    *("F32_F32_F32", "F64_F64_F64"),
)

_traced = functools.partial(Option, traced=True)

enable_x64 = _traced(False, flag, "Keep 64-bit dtypes instead of narrowing them to 32 bits.")
default_matmul_precision = _traced(
    None, choice(*_PRECISIONS), "Precision of dot and conv that name none themselves.", example="highest"
)
numpy_dtype_promotion = _traced(
    "standard", choice("standard", "strict"), "Whether unlike dtypes promote, or raise.", example="strict"
)
numpy_rank_promotion = _traced(
    "allow", choice("allow", "warn", "raise"), "What to do where unlike ranks broadcast.", example="raise"
)
default_device = _traced(None, _device, "Where uncommitted computations run.", example="cpu")
default_prng_impl = _traced(
    "threefry2x32",
    choice("threefry2x32", "rbg", "unsafe_rbg"),
    "The generator of keys made without `impl`.",
    example="rbg",
)
no_collectives = _traced(
    frozenset(),
    names,
    "Raise where a compiled program would send anything along these mesh axes.",
    example=frozenset({"model"}),
)
communication = _traced(
    "any",
    choice("any", "implied", "asked"),
    "Which collectives compiled programs may have: any, those asked for and sums, or only those asked for.",
    example="implied",
)
debug_nans = _traced(False, flag, "Raise at the operation whose result holds a NaN.")
debug_infs = _traced(False, flag, "Raise at the operation whose result holds an infinity.")
disable_jit = _DisableJit(False, flag, "Run jit-compiled functions operation by operation.", traced=True)
debug_compare_host_values = _traced(
    False, flag, "Raise where a value that is put on the devices of several processes differs between them."
)
debug_key_reuse = _traced(False, flag, "Raise where a typed random key is used twice.")
check_tracer_leaks = _traced(False, flag, "Raise where a traced value outlives its trace.")
threefry_partitionable = _traced(
    True, flag, "Whether a random value depends on its key and its position only, or on the shape too.", example=False
)
remove_size_one_mesh_axis_from_type = _traced(False, flag, "Leave mesh axes of one device out of types.")
allow_f16_reductions = _traced(True, flag, "Accept sums of 16-bit floating-point numbers.", example=False)
check_static_indices = _traced(False, flag, "Raise where `x[3]` reads with a Python integer out of bounds.")
captured_constants_warn_bytes = Option(
    2 * 10**9,
    number(int, -1),
    "Warn where a compiled function closes over constants of more bytes than this in all; -1 for never.",
    example=10**6,
)
enable_checks = Option(False, flag, "Check the jaxpr of each function that is compiled.")
enable_custom_prng = _traced(False, flag, "Let `random.PRNGKey` make typed keys, as `random.key` does.")
high_dynamic_range_gumbel = _traced(False, flag, "Draw Gumbel samples with `mode='high'` by default.")
legacy_prng_key = _traced(
    "allow", choice("allow", "warn", "error"), "What to do where a random function gets a raw key.", example="warn"
)
no_execution = _traced(False, flag, "Raise where an operation or a compiled function would run.")
no_tracing = Option(False, flag, "Raise where `jit` would trace a function.")
random_seed_offset = _traced(0, number(int), "A number that is added to each seed.", example=7)
disable_most_optimizations = _traced(False, flag, "Compile quickly, to programs that may be slow.")
optimization_level = _traced(
    "UNKNOWN",
    choice("UNKNOWN", "O0", "O1", "O2", "O3"),
    "XLA's effort to make programs fast; UNKNOWN is XLA's own default.",
    example="O1",
)
memory_fitting_level = _traced(
    "O2", choice("UNKNOWN", "O0", "O1", "O2", "O3"), "XLA's effort to make programs fit into memory.", example="O3"
)
dump_ir_to = Option("", text, "A folder to which the StableHLO of each program is written.", example="programs")
disallow_mesh_context_manager = Option(False, flag, "Raise at `with mesh:`, for which `set_mesh` is the successor.")
logging_level = Option(
    None,
    choice(None, "NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "The level of Python's logger `phalanx`.",
    example="INFO",
    on_update=lambda level: logging.getLogger("phalanx").setLevel(level or "NOTSET"),
)
log_compiles = Option(False, flag, "Log each tracing and compilation.")
explain_cache_misses = Option(False, flag, "Log why a call had to be traced again.")
traceback_filtering = Option(
    "auto",
    choice("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames"),
    "How frames of Phalanx itself are hidden from tracebacks.",
    example="off",
)
nnx_graph_mode = Option(
    True, flag, "Whether `nnx` preserves shared references; otherwise modules are trees.", example=False
)
nnx_graph_updates = Option(
    True, flag, "Whether `nnx` transformations write changes of structure back to modules.", example=False
)
flax_always_shard_variable = Option(
    True, flag, "Whether `nnx` variables with `out_sharding` are sharded on creation.", example=False
)
flax_hijax_variable = Option(False, flag, "Whether `nnx` variables are created with `hijax=True`.")
flax_ref_variable = Option(False, flag, "Whether `nnx` variables are created with `ref=True`.")
array = Option(True, flag, "Taken from programs of 2022; there is one class of arrays either way.")
parallel_functions_output_gda = Option(
    True, flag, "Taken from programs of 2022; every array is a GlobalDeviceArray too."
)


def _without_effect(name: str) -> Option:
    """An option of JAX that is accepted, but changes nothing."""
    default, reason = OPTIONS_WITHOUT_EFFECT[name]
    check: Callable[[str, Any], Any] = {bool: flag, int: number(int)}.get(type(default), lambda _, value: value)
    return Option(default, check, f"Accepted without effect: {reason}.", example="log" if default is None else default)


array_garbage_collection_guard = _without_effect("array_garbage_collection_guard")
auto_pcast = _without_effect("auto_pcast")
softmax_custom_jvp = _without_effect("softmax_custom_jvp")
thread_guard = _without_effect("thread_guard")

declare(globals())


def check_allowed(name: str, what: str) -> None:
    """Raise a `ForbiddenError` for a step that the option `name` forbids."""
    if _declared[name].value:
        raise ForbiddenError(
            what,
            expected="a call that does without it",
            got=f"one that needs it, under {name}",
            fix=f"call the function once before, or leave the block of {name}",
        )


def checking_leaks() -> _Override:
    """Return a context manager in which a traced value that outlives its trace is an error.

    Returns:
      The context manager, `check_tracer_leaks(True)`.

    Examples:
      >>> with checking_leaks():
      ...     config.check_tracer_leaks
      True
    """
    return check_tracer_leaks(True)


_global_scope: Final = OptionScope((), Context.of(tuple([_global_values[name] for name in Context.fields])))
_current: Final = contextvars.ContextVar("phalanx.options", default=_global_scope)
current_scope: Final[Callable[[], OptionScope]] = _current.get


def _reduce_context_variable(variable: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    """Pickle the variable of the options, which functions that are pickled by value refer to, as a reference."""
    if variable is _current:
        return _current_variable, ()
    raise TypeError(f"cannot pickle {variable!r}")


def _current_variable() -> contextvars.ContextVar[OptionScope]:
    return _current


copyreg.pickle(contextvars.ContextVar, _reduce_context_variable)
"""Return the scope of the running code; `current_scope().context` is `state.context` in a third of the time."""
state = State()
config = Config()


@in_forked_process
def _forget_programs() -> None:
    """In a forked process, change every context, so that calls find no program of the parent and report the fork."""
    global _lock
    if is_forked():
        _lock = threading.RLock()  # Another thread of the parent may have held it.
        _global_values["is_forked"] = True
        for scope in _scopes:
            scope.context = scope.context.replace(is_forked=True)


frames.take_mode(lambda: traceback_filtering.value)
