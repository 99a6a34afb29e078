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
_logger = logging.getLogger("phalanx")

TRACING = "tracing {} for jit"
LOWERING = "jaxpr to MLIR module conversion jit({})"
COMPILING = "XLA compilation of jit({})"


@contextlib.contextmanager
def log_stage(stage: str, name: str, types: Iterable[Any]) -> Iterator[None]:
    """Log the duration of a stage of compilation, as a warning if `log_compiles` is set and for debugging otherwise.

    Args:
      stage: `TRACING`, `LOWERING` or `COMPILING`.
      name: the function.
      types: types of its arguments.
    """
    level = logging.WARNING if log_compiles.value else logging.DEBUG
    start = time.perf_counter()
    yield
    if _logger.isEnabledFor(level):
        seconds = time.perf_counter() - start
        _logger.log(level, f"Finished {stage.format(name)} in {seconds:.3f} sec, for ({', '.join(map(str, types))})")


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
    if known:
        # The call with the fewest differences explains the miss best.
        nearest = min((_differences(call, types, context, key) for key in known), key=len)
        reason = "compared with the nearest known call, " + "; ".join(nearest)
    else:
        reason = _explain_new_function(call.signature.what)
    _logger.warning(f"TRACING CACHE MISS: {name}, {reason}")


def _explain_new_function(what: str) -> str:
    """Why a function has no cached calls: it is new, or one that was defined at the same place has them."""
    if _first_calls.get(what):
        return (
            f"never seen function: {what} is another function defined on the same line as one that was called before. "
            "Define the function once, outside of the loop or function that makes it, and jit it there"
        )
    _first_calls[what] = True
    return f"never seen function: {what}"


def _differences(call: CallArguments, types: tuple, context: Context, key: tuple) -> list[str]:
    (known_tree, known_statics), known_types, known_context = key
    out = []
    if call.tree != known_tree:
        out.append(f"different input pytree: now {call.tree} and before {known_tree}")
    else:
        out += [
            f"different input types: at {call.path(i)}, {_type_difference(new, old)}"
            for i, (new, old) in enumerate(zip(types, known_types))
            if new != old
        ]
    # Static arguments are compared by value, as in the cache key.
    statics = dict(known_statics)
    out += [
        f"different static argument {call.signature.name_of(where)}: now {value!r} and before "
        f"{statics.get(where, 'none')!r}"
        for where, value in call.statics
        if where not in statics or statics[where] != value
    ]
    out += [
        f"different tracing context: {name}, now {new} and before {old}"
        for name, new, old in zip(Context.fields, context._values, known_context._values, strict=True)
        if new is not old and new != old
    ]
    return out or ["different number of static arguments"]


def _type_difference(new: Any, old: Any) -> str:
    a, b = getattr(new, "aval", new), getattr(old, "aval", old)  # inside a trace there is no placement
    if a.weak_type != b.weak_type:
        shown = [f"{aval.strip_weak_type().str_short()}{{weak_type={aval.weak_type}}}" for aval in (a, b)]
        return f"now {shown[0]} and before {shown[1]}; https://docs.jax.dev/en/latest/type_promotion.html#weak-types"
    if a is not b:
        return f"now {a.str_short()} and before {b.str_short()}"
    if new.sharding != old.sharding:
        return f"now with sharding {new.sharding} and before with {old.sharding}"
    return f"now with committed={new.committed} and before with committed={old.committed}"


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
            f"Some donated buffers were not usable by {name}, since no result has their shape, dtype and sharding: "
            f"{shown}.\n  Fix: remove these arguments from donate_argnums.",
            UserWarning,
            stacklevel=user_stacklevel(),
        )


def _format_type(aval: ShapedArray, sharding: Sharding | None) -> str:
    spec = getattr(sharding, "spec", None)
    return aval.str_short() + (f" as {spec}" if spec is not None and spec.dims else "")
