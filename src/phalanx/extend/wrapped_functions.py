"""Functions with a chain of transformations around them, in the protocol of JAX's `linear_util`.

A transformation takes the function and its own static arguments, then the dynamic arguments of a call; it calls the
function and returns other results. One with an auxiliary output also takes a `Store`, and a thunk reads the output
after the call. The older form of a transformation is a generator that yields the arguments for the function, and then
the results. A `WrappedFun` is compared by the function, the transformations and their static arguments, so that it may
be a cache key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from phalanx.core import PhalanxError, format_code_position, state
from phalanx.engine import Cache

Transformation = tuple[Callable[..., Any], tuple[Hashable, ...]]

_EMPTY: Any = object()


class StoreException(PhalanxError, RuntimeError):
    """The auxiliary output of a transformed function was read before it was there, or there were two.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(StoreException, RuntimeError)
      True
    """


class Store:
    """A place for the auxiliary output of a transformation.

    Examples:
      >>> store = Store()
      >>> store.store(3)
      >>> store.val
      3
    """

    __slots__ = ("_val",)

    def __init__(self) -> None:
        self._val = _EMPTY

    def store(self, val: Any) -> None:
        """Store the value; an error if there is one.

        Args:
          val: the value.
        """
        if self:
            raise StoreException(
                "linear_util.Store.store",
                expected="an empty store",
                got=f"one that holds {self._val!r}",
                fix="call the wrapped function once, or wrap the function again for another call",
            )
        self._val = val

    def reset(self) -> None:
        """Empty the store."""
        self._val = _EMPTY

    @property
    def val(self) -> Any:
        """The value; an error if there is none."""
        if not self:
            raise StoreException(
                "linear_util.Store.val",
                expected="a value, which a call of the function stores",
                got="none",
                fix="call the wrapped function before reading its auxiliary output",
            )
        return self._val

    def __bool__(self) -> bool:
        return self._val is not _EMPTY


class DebugInfo(NamedTuple):
    """The names of a function, its arguments and its results, for messages.

    Args:
      traced_for: the transformation, such as "jit".
      func_src_info: the function's name and position, as `name at file:line`.
      arg_names: the paths of its flat arguments, or None if they are not known.
      result_paths: the paths of its flat results, or None if they are not known.

    Examples:
      >>> DebugInfo("jit", "f at file.py:3", ("x",), None).func_name
      'f'
    """

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None

    @property
    def func_name(self) -> str:
        """The function's name."""
        return self.func_src_info.partition(" ")[0]

    @property
    def func_filename(self) -> str | None:
        """The file that defines the function, if it is known."""
        return self.func_src_info.partition(" at ")[2].rpartition(":")[0] or None

    @property
    def func_lineno(self) -> int | None:
        """The line on which the function is defined, if it is known."""
        line = self.func_src_info.rpartition(":")[2]
        return int(line) if line.isdigit() else None

    def replace_func_name(self, name: str) -> DebugInfo:
        """A copy with another name of the function.

        Args:
          name: the name.

        Returns:
          The copy.
        """
        return self._replace(func_src_info=" ".join([name, *self.func_src_info.split(" ")[1:]]))

    def resolve_result_paths(self) -> DebugInfo:
        """This record: paths of results are not filled in later.

        Returns:
          The record.
        """
        return self

    def with_unknown_names(self) -> DebugInfo:
        """A copy without the paths of arguments and results.

        Returns:
          The copy.
        """
        return self._replace(arg_names=None, result_paths=None)

    def safe_arg_names(self, expected_count: int) -> tuple[str, ...]:
        """The paths of the arguments, empty ones if they are not known.

        Args:
          expected_count: the number of arguments.

        Returns:
          A path for each argument.
        """
        return self.arg_names if self.arg_names is not None else ("",) * expected_count

    def safe_result_paths(self, expected_count: int) -> tuple[str, ...]:
        """The paths of the results, empty ones if they are not known.

        Args:
          expected_count: the number of results.

        Returns:
          A path for each result.
        """
        return self.result_paths if self.result_paths is not None else ("",) * expected_count


class WrappedFun:
    """A function and the transformations around it, outermost first.

    Args:
      f: the function.
      params: keyword arguments of each call of `f`, as pairs of name and value.
      transforms: pairs of a transformation and its static arguments.
      stores: for each transformation the store of its auxiliary output, or None.
      in_type: the types of the arguments, or None.
      debug_info: a record for messages, or None.

    Examples:
      >>> fun = transformation2(lambda f, n, x: n * f(x))(wrap_init(lambda x: x + 1), 10)
      >>> fun.call_wrapped(2)
      30
    """

    __slots__ = ("debug_info", "f", "in_type", "params", "stores", "transforms")

    def __init__(
        self,
        f: Callable[..., Any],
        params: tuple[tuple[str, Any], ...] = (),
        transforms: tuple[Transformation, ...] = (),
        stores: tuple[Store | None, ...] = (),
        in_type: Any = None,
        debug_info: DebugInfo | None = None,
    ):
        self.f, self.params, self.transforms, self.stores = f, params, transforms, stores
        self.in_type, self.debug_info = in_type, debug_info

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return getattr(self.f, "__name__", type(self.f).__name__)

    @property
    def f_transformed(self) -> Callable[..., Any]:
        """The transformed function."""
        fun: Callable[..., Any] = functools.partial(self.f, **dict(self.params)) if self.params else self.f
        for (transform, static), store in zip(reversed(self.transforms), reversed(self.stores), strict=True):
            fun = functools.partial(transform, fun, *(() if store is None else (store,)), *static)
        return fun

    def wrap(self, transform: Callable[..., Any], static: tuple[Hashable, ...], store: Store | None) -> WrappedFun:
        """The function with one more transformation around it.

        Args:
          transform: the transformation.
          static: its static arguments.
          store: the store of its auxiliary output, or None.

        Returns:
          The function.
        """
        transforms, stores = ((transform, tuple(static)), *self.transforms), (store, *self.stores)
        return WrappedFun(self.f, self.params, transforms, stores, None, self.debug_info)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the transformed function.

        Args:
          args, kwargs: the dynamic arguments.

        Returns:
          What the outermost transformation returns.
        """
        return self.f_transformed(*args, **kwargs)

    def populate_stores(self, stores: tuple[Store | None, ...]) -> None:
        """Copy the auxiliary outputs of another call, instead of calling the function.

        Args:
          stores: the stores of that call.
        """
        for own, other in zip(self.stores, stores, strict=True):
            if own is not None and other is not None:
                own.store(other.val)

    def replace_debug_info(self, debug_info: DebugInfo | None) -> WrappedFun:
        """A copy with another record for messages.

        Args:
          debug_info: the record.

        Returns:
          The copy.
        """
        return WrappedFun(self.f, self.params, self.transforms, self.stores, self.in_type, debug_info)

    def with_unknown_names(self) -> WrappedFun:
        """A copy whose arguments and results have no names in messages.

        Returns:
          The copy.
        """
        return self.replace_debug_info(self.debug_info and self.debug_info.with_unknown_names())

    def _key(self) -> tuple[Any, ...]:
        return self.f, self.params, self.transforms, self.in_type, self.debug_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        names = [getattr(t, "__name__", repr(t)) for t, _ in self.transforms]
        return f"WrappedFun({' of '.join([*names, self.__name__])})"


def wrap_init(
    f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: DebugInfo | None = None
) -> WrappedFun:
    """Make a function ready for transformations.

    Args:
      f: the function.
      params: keyword arguments of each call of it.
      debug_info: a record for messages; by default the function's name and position.

    Returns:
      The function without transformations.

    Examples:
      >>> wrap_init(lambda x, y: x - y, {"y": 1}).call_wrapped(3)
      2
    """
    debug_info = debug_info or DebugInfo("wrap_init", format_code_position(f))
    return WrappedFun(f, tuple(sorted((params or {}).items())), debug_info=debug_info)


def transformation2(transform: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """Make a transformation of `WrappedFun`s from a function; a decorator.

    Args:
      transform: `transform(f, *static, *args, **kwargs)` calls `f` and returns the results.

    Returns:
      A function of a `WrappedFun` and the static arguments that returns the transformed `WrappedFun`.
    """
    return functools.wraps(transform)(lambda fun, *static: fun.wrap(transform, static, None))


def transformation_with_aux2(transform: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Make a transformation with an auxiliary output from a function; a decorator.

    Args:
      transform: `transform(f, store, *static, *args, **kwargs)` calls `f`, stores the auxiliary output, and returns the
        results.

    Returns:
      A function of a `WrappedFun` and the static arguments that returns the transformed `WrappedFun`, and a thunk that
      returns the auxiliary output once it was called.

    Examples:
      >>> @transformation_with_aux2
      ... def counting(f, store, *args):
      ...     store.store(len(args))
      ...     return f(*args)
      >>> fun, count = counting(wrap_init(max))
      >>> fun.call_wrapped(3, 5), count()
      (5, 2)
    """

    @functools.wraps(transform)
    def wrap(fun: WrappedFun, *static: Hashable, **_: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(transform, static, store), lambda: store.val

    return wrap


def transformation(generator: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """`transformation2` for a generator, which yields the function's arguments and then the results; a decorator.

    Args:
      generator: `generator(*static, *args, **kwargs)` yields a tuple of positional arguments and a dict of keyword
        arguments, receives the results, and yields its own.

    Returns:
      A function of a `WrappedFun` and the static arguments that returns the transformed `WrappedFun`.

    Examples:
      >>> @transformation
      ... def negated(*args):
      ...     y = yield args, {}
      ...     yield -y
      >>> negated(wrap_init(max)).call_wrapped(3, 5)
      -5
    """

    @functools.wraps(generator)
    def transform(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        running = generator(*args, **kwargs)
        given, named = next(running)
        return running.send(f(*given, **named))

    return transformation2(transform)


def transformation_with_aux(generator: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """`transformation_with_aux2` for a generator, which yields pairs of results and auxiliary output; a decorator.

    Args:
      generator: as for `transformation`, but for what it yields at last.

    Returns:
      A function of a `WrappedFun` and the static arguments that returns the transformed `WrappedFun`, and a thunk that
      returns the auxiliary output once it was called.
    """

    @functools.wraps(generator)
    def transform(f: Callable[..., Any], store: Store, *args: Any, **kwargs: Any) -> Any:
        running = generator(*args, **kwargs)
        given, named = next(running)
        results, auxiliary = running.send(f(*given, **named))
        store.store(auxiliary)
        return results

    return transformation_with_aux2(transform)


def merge_linear_aux(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[bool, Any]:
    """Read the auxiliary output of that one of two functions that was called.

    Args:
      first, second: the thunks.

    Returns:
      Whether it was the first, and the output.

    Raises:
      StoreException: both were called, or none.
    """
    found = []
    for is_first, thunk in ((True, first), (False, second)):
        try:
            found.append((is_first, thunk()))
        except StoreException:
            continue
    if len(found) != 1:
        raise StoreException(
            "linear_util.merge_linear_aux",
            expected="one function that was called",
            got=f"{len(found)}",
            fix="call one of the two functions",
        )
    return found[0]


def cache(call: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """Remember the results of a function of a `WrappedFun` and hashable arguments; a decorator.

    Args:
      call: the function; the auxiliary outputs of the `WrappedFun` are remembered with its result.

    Returns:
      A function of the same arguments, with `cache_clear()` and `evict_function(f)`.

    Examples:
      >>> @cache
      ... def run(fun, x):
      ...     print("called")
      ...     return fun.call_wrapped(x)
      >>> double = lambda x: 2 * x
      >>> run(wrap_init(double), 3), run(wrap_init(double), 3)
      called
      (6, 6)
    """
    known: Cache[Callable[..., Any], dict[Any, Any]] = Cache("extend.linear_util", weak="keys")  # by function

    @functools.wraps(call)
    def remembering(fun: WrappedFun, *args: Hashable) -> Any:
        results = known.get_or_make(fun.f, dict)
        key = (fun.transforms, fun.params, fun.in_type, args, state.context)
        if key in results:
            fun.populate_stores(results[key][1])
        else:
            results[key] = call(fun, *args), fun.stores
        return results[key][0]

    def evict_function(f: Callable[..., Any]) -> None:
        known[f] = {}

    remembering.cache_clear = known.clear  # type: ignore[attr-defined]
    remembering.evict_function = evict_function  # type: ignore[attr-defined]
    return remembering
