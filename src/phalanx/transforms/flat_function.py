"""User functions flattened: flat arguments in, flat results out, with the pytree structures kept beside them.

Every transformation that calls a user's function (`vmap`, the derivatives, `checkpoint`, custom rules, loops, `cond`,
`shard_map`) wraps it in a `FlatFunction`. The module also names functions and their parameters for error messages.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from phalanx.core import ConversionError, Jaxpr, convert_outputs, format_code_position, get_aval, trace_to_jaxpr
from phalanx.tree import PyTreeDef, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.key_paths import KeyPath, leaf_path
from phalanx.typing import PyTree


@dataclass(eq=False, slots=True)
class FlatFunction:
    """A function of pytrees as a function of flat arguments and flat results.

    Args:
      fun: the function.
      in_tree: the structure of the tuple of its arguments.
      has_aux: whether `fun` returns a pair `(result, aux)`; only `result` is flattened and returned.
      written: the function that the user wrote, where `fun` is a wrapper around it.
      role: the role of the function in a transformation, for error messages about its results.

    Attributes:
      out_tree: the structure of the last result.
      aux: the auxiliary output of the last call.
    """

    fun: Callable[..., PyTree]
    in_tree: PyTreeDef
    has_aux: bool = False
    written: Callable[..., PyTree] | None = None
    role: str = ""
    out_tree: Any = field(default=None, init=False)
    aux: Any = field(default=None, init=False)

    @property
    def __name__(self) -> str:
        return function_name(self.written or self.fun)

    def __call__(self, *leaves: Any) -> list:
        out = self.fun(*tree_unflatten(self.in_tree, leaves))
        if self.has_aux:
            if not isinstance(out, tuple | list) or len(out) != 2:
                raise ConversionError(
                    f"the result of {format_code_position(self.written or self.fun)}",
                    expected="a pair (result, aux), since has_aux=True",
                    got=f"{type(out).__name__}",
                    fix="return (result, aux), or drop has_aux",
                )
            out, self.aux = out
        flat, self.out_tree = tree_flatten(out)
        return convert_outputs(flat, lambda i: f"{self.role and f' of {self.role}'}{leaf_path(out, i)}")


def trace_flat(
    fun: Callable[..., PyTree], args: PyTree, name: str, written: Callable[..., PyTree] | None = None
) -> tuple[list, FlatFunction, Jaxpr]:
    """Trace a function of pytrees for arguments of these types.

    Args:
      fun, written: as in `FlatFunction`.
      args: the tuple of its arguments.
      name: the function's name, for messages and printed jaxprs.

    Returns:
      The leaves of the arguments, the flat function, whose `out_tree` is set, and its jaxpr.
    """
    leaves, tree = tree_flatten(args)
    function = FlatFunction(fun, tree, written=written)
    return leaves, function, trace_to_jaxpr(function, [get_aval(x) for x in leaves], name)


def function_name(fun: object) -> str:
    """The name of a function in error messages and in jaxprs; that of the inner function for a `functools.partial`."""
    name = getattr(fun, "__name__", None)
    if name is None and isinstance(fun, functools.partial):
        return function_name(fun.func)
    return name if name and isinstance(name, str) else type(fun).__name__


def wraps(fun: Callable, *, name: str = "", summary: str = "") -> Callable[[Callable], Callable]:
    """`functools.wraps` for callables of a user, whose attributes may have values that functions refuse.

    The stages of a compiled function are not copied: `vmap(jit(f)).lower` would lower `f` itself.

    Args:
      fun: the function.
      name: the transformation, as in `make_jaxpr(f)`, if it is part of the names of the wrapper.
      summary: the beginning of the docstring of the wrapper, which the name of `fun` completes, if `fun` has one.
    """
    fits = lambda name: isinstance(getattr(fun, name, None), _ATTRIBUTE_TYPES.get(name, object))
    finish = functools.wraps(fun, list(filter(fits, functools.WRAPPER_ASSIGNMENTS)), ())

    def wrap(wrapper: Callable) -> Callable:
        vars(wrapper).update((k, v) for k, v in getattr(fun, "__dict__", {}).items() if k not in STAGE_ATTRIBUTES)
        finish(wrapper)
        if name:
            wrapper.__name__, wrapper.__qualname__ = f"{name}({wrapper.__name__})", f"{name}({wrapper.__qualname__})"
        if summary and wrapper.__doc__:
            wrapper.__doc__ = f"{summary} {function_name(fun)}.\n\nOriginal documentation:\n\n{wrapper.__doc__}"
        return wrapper

    return wrap


STAGE_ATTRIBUTES = ("trace", "lower", "warm", "eval_shape", "clear_cache", "_cache_size", "_jit")
"""Attributes of functions made by `jit`."""


_ATTRIBUTE_TYPES: dict[str, type] = {
    "__name__": str,
    "__qualname__": str,
    "__annotations__": dict,
    "__type_params__": tuple,
}


def positional_parameters(fun: Callable) -> list[str]:
    """The names of a function's positional parameters; none where its signature cannot be read."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def format_argument(path: KeyPath, names: list[str]) -> str:
    """Name the leaf at `path` of `(args, kwargs)` as the function's signature does, such as `params['w']`.

    Args:
      path: the path of the leaf in the pair `(args, kwargs)`.
      names: the positional parameters of the function.
    """
    (which, first), rest = (path[0].idx, path[1]), keystr(path[2:])
    if which == 1:
        return f"{first.key}{rest}"
    return f"{names[first.idx]}{rest}" if first.idx < len(names) else f"args[{first.idx}]{rest}"


def label_of(args: tuple, kwargs: dict, parameters: Callable[[], list[str]]) -> Callable[[int], str]:
    """A function that names leaf `i` of the arguments, for errors."""
    return lambda i: f"argument {format_argument(tree_flatten_with_path((args, kwargs))[0][i][0], parameters())}"
