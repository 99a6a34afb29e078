"""Diagnostics of `jit`: log messages for stages and cache misses, and warnings about unused donations.

The options `log_compiles` and `explain_cache_misses` enable the messages, which go to the standard logger "phalanx".
`jit` and its stages call these functions on a cache miss only, so that a cache hit pays nothing for them.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from phalanx.core import Context, ShapedArray, explain_cache_misses, log_compiles, user_stacklevel
from phalanx.engine.cache import Cache
from phalanx.runtime.compiled_program import CompiledProgram
from phalanx.sharding import Sharding
from phalanx.spmd.call_arguments import CallArguments

# The functions, by their names and positions, that have been called with `explain_cache_misses`.
_first_calls: Cache[str, bool] = Cache("spmd.first_calls", 4096)


def _log(text: str) -> None:
    logging.getLogger("phalanx").warning(text)


@contextlib.contextmanager
def log_stage(stage: str, name: str, types: Iterable[Any]) -> Iterator[None]:
    """Log the duration of a stage of compilation, if `log_compiles` is set.

    Args:
      stage: name of the stage, such as "Tracing".
      name: the function.
      types: types of its arguments.
    """
    if not log_compiles.value:
        yield
        return
    start = time.perf_counter()
    yield
    _log(f"{stage} {name} for ({', '.join(map(str, types))}) took {time.perf_counter() - start:.3f} s")


def explain_miss(name: str, call: CallArguments, types: tuple, context: Context, known: Iterable[tuple]) -> None:
    """Log the differences between a call and the most similar cached call, if `explain_cache_misses` is set.

    Args:
      name: the function.
      call: the arguments of the call.
      types: types of the leaves of the arguments.
      context: the current context, which is part of the cache key.
      known: cache keys of earlier calls: (tree and static arguments, types, context).
    """
    if not explain_cache_misses.value:
        return
    if not known:
        _explain_new_function(name, call.signature.what)
        return
    # The call with the fewest differences explains the miss best.
    nearest = min((_differences(call, types, context, key) for key in known), key=len)
    _log(f"{name} is traced or compiled again; the nearest known call differs in " + "; ".join(nearest))


def _explain_new_function(name: str, what: str) -> None:
    """Log that a function has no cached calls although one that was defined at the same place has."""
    if _first_calls.get(what):
        _log(
            f"{name} is traced or compiled again; {what} is another function object than in the call before. Define "
            "the function once, outside of the loop or function that makes it, and jit it there"
        )
    _first_calls[what] = True


def _differences(call: CallArguments, types: tuple, context: Context, key: tuple) -> list[str]:
    (known_tree, known_statics), known_types, known_context = key
    out = []
    if call.tree != known_tree:
        out.append(f"the structure of the arguments: {call.tree}, known is {known_tree}")
    else:
        out += [
            f"{call.path(i)}: {_type_difference(new, old)}"
            for i, (new, old) in enumerate(zip(types, known_types))
            if new != old
        ]
    # Static arguments are compared by value, as in the cache key.
    statics = dict(known_statics)
    out += [
        f"static argument {call.signature.name_of(where)}: {value!r}, known is {statics.get(where, 'none')!r}"
        for where, value in call.statics
        if where not in statics or statics[where] != value
    ]
    out += [
        f"option {name}: {new!r}, known is {old!r}"
        for name, new, old in zip(Context.fields, context._values, known_context._values, strict=True)
        if new is not old and new != old
    ]
    return out or ["the number of static arguments"]


def _type_difference(new: Any, old: Any) -> str:
    a, b = getattr(new, "aval", new), getattr(old, "aval", old)  # inside a trace there is no placement
    for field in ("shape", "dtype", "weak_type"):
        if getattr(a, field) != getattr(b, field):
            return f"{field} {getattr(a, field)}, known is {getattr(b, field)}"
    if a is new or new.sharding != old.sharding:
        return f"sharding {new.sharding}, known is {old.sharding}"
    return f"committed {new.committed}, known is {old.committed}"


def warn_unused_donations(
    name: str, name_of: Callable[[int], str], avals: Sequence[ShapedArray], program: CompiledProgram
) -> None:
    """Warn about donated arguments whose buffers XLA reuses for no result.

    Args:
      name: the function.
      name_of: maps the index of an input to its name.
      avals: types of the inputs.
      program: the compiled program.
    """
    # An argument that the program does not read is not a parameter of it and keeps its buffer.
    donated = set(program.lowered.donated).intersection(program.parameters)
    unused = sorted(donated - program.reused()) if donated else []
    if unused:
        shown = ", ".join(f"{name_of(i)}: {_format_type(avals[i], program.lowered.in_shardings[i])}" for i in unused)
        warnings.warn(
            f"{name}: no result has the shape, dtype and sharding of these donated buffers, so they are "
            f"not reused: {shown}.\n  Fix: remove these arguments from donate_argnums.",
            UserWarning,
            stacklevel=user_stacklevel(),
        )


def _format_type(aval: ShapedArray, sharding: Sharding | None) -> str:
    spec = getattr(sharding, "spec", None)
    return aval.str_short() + (f" as {spec}" if spec is not None and spec.dims else "")
