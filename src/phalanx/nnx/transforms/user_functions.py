"""The functions and arguments that users pass to transformations: decorators, methods, keyword and static arguments."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

from phalanx.core import ArgumentError
from phalanx.engine.cache import Cache
from phalanx.nnx.module import Module
from phalanx.nnx.variable import MISSING

F = TypeVar("F", bound=Callable)


def decorator_if_missing(transformation: F) -> F:
    """Let a transformation return a decorator if it is called with options only: `@nnx.vmap(in_axes=0)`."""

    @functools.wraps(transformation)
    def transform(f: Any = MISSING, *args: Any, **options: Any) -> Any:
        if f is MISSING:
            return functools.partial(transform, **options)
        check_unbound(transformation.__name__, f)
        return transformation(f, *args, **options)

    return cast(F, transform)


def check_unbound(name: str, f: Callable) -> None:
    """Check that a function is no method of a module, whose variables would be constants of the compiled program.

    Raises:
      ArgumentError: it is.
    """
    function = f
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Module) and inspect.ismethod(function):
        method = f"{type(owner).__name__}.{function.__name__}"
        raise ArgumentError(
            f"nnx.{name}, argument f",
            expected="a function that receives its modules as arguments; bound methods are not supported",
            got=f"the method {function.__name__} of a {type(owner).__name__}",
            fix=f"pass the function of the class, and the module as its first argument: nnx.{name}({method})(module, "
            f"...), or decorate the method with @nnx.{name}",
        )


def bind_keywords(f: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Pass keyword arguments by position where possible, so that options by position apply to them.

    Args:
      f: the function.
      args, kwargs: its arguments.

    Returns:
      The positional and the keyword-only arguments.
    """
    if not kwargs:
        return args, kwargs
    bound = inspect.signature(f).bind(*args, **kwargs)
    if bound.kwargs:  # an optional parameter before a given one needs its default to be passed by position
        bound.apply_defaults()
    return bound.args, {k: v for k, v in bound.kwargs.items() if k in kwargs}


_bodies: Cache[Callable, Cache] = Cache("nnx.lifted_functions", weak="keys")


def get_cached_body(fun: Callable, key: Hashable, make: Callable[[Callable], Any]) -> Any:
    """The body of a loop or branch for a user's function; the same body is returned again, so that nothing is retraced.

    Args:
      fun: the user's function. The body must not keep it alive, since it is cached as long as the function lives.
      key: everything else that the body depends on.
      make: makes the body from a function that calls `fun` through a weak reference.
    """
    # A value of the cache that referred to its key `fun` would keep both alive, so that bodies call it weakly.
    try:
        cache = _bodies.get_or_make(fun, lambda: Cache("nnx.lifted_bodies", 1024))
        ref: Any = weakref.ref(fun)
    except TypeError:  # the callable does not support weak references
        return make(fun)
    if (body := cache.get(key)) is None:

        def call(*args: Any, **kwargs: Any) -> Any:
            return ref()(*args, **kwargs)

        call.__name__ = getattr(fun, "__name__", type(fun).__name__)
        body = cache[key] = make(call)
    return body


def bind_static(f: Callable, args: tuple, numbers: Sequence[int]) -> tuple[Callable, tuple]:
    """Bind the arguments at some positions.

    Args:
      f: the function.
      args: all positional arguments.
      numbers: the positions to bind, which may be negative.

    Returns:
      The function of the other arguments, and these arguments.
    """
    static = {n % len(args): args[n] for n in numbers}

    @functools.wraps(f)
    def call(*dynamic: Any, **kwargs: Any) -> Any:
        return f(*insert_static(static, dynamic), **kwargs)

    if static:  # the parameters of `f` are not those of `call`
        call.__signature__ = inspect.signature(lambda *args, **kwargs: None)  # type: ignore[attr-defined]

    return call, tuple(x for i, x in enumerate(args) if i not in static)


def insert_static(static: Mapping[Any, Any], dynamic: Sequence[Any]) -> tuple:
    """All positional arguments, from static ones by position and the others in order; keys of text are ignored."""
    rest = iter(dynamic)
    # Static keyword arguments have their names as keys.
    count = sum(isinstance(i, int) for i in static) + len(dynamic)
    return tuple([static[i] if i in static else next(rest) for i in range(count)])
