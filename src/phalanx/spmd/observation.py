"""What can be watched of `jit`: its stages as they happen, why a call missed the caches, donations that were in vain.

Builds on the options `log_compiles` and `explain_cache_misses` and on the standard logger "phalanx". Called by `jit`
and by the stages on a miss only, so that a call that hits the caches pays nothing.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray
from phalanx.core.config import Context, explain_cache_misses, log_compiles
from phalanx.core.source import user_level
from phalanx.spmd.arguments import CallArguments


def _log(text: str) -> None:
    import logging  # Only programs that ask for a log pay for its import.

    logging.getLogger("phalanx").warning(text)


@contextlib.contextmanager
def logged(stage: str, name: str, types: Iterable[Any]) -> Iterator[None]:
    """Under `log_compiles`, log that a stage of a function ended, and how long it took."""
    if not log_compiles.value:
        yield
        return
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    _log(f"{stage} {name} for ({', '.join(map(str, types))}) took {seconds:.3f} s")


def explain_miss(name: str, call: CallArguments, types: tuple, context: Context, known: Iterable[tuple]) -> None:
    """Under `explain_cache_misses`, log in what a call differs from the nearest one that is known.

    Args:
      name: the function.
      call: the call's arguments.
      types: the types of its leaves.
      context: the options in force.
      known: the keys of the calls so far: structure with static arguments, types, and context.
    """
    if not (explain_cache_misses.value and known):
        return
    candidates = [_differences(call, types, context, key) for key in known]
    nearest = min(candidates, key=len)
    _log(f"{name} is traced or compiled again; the nearest known call differs in " + "; ".join(nearest))


def _differences(call: CallArguments, types: tuple, context: Context, key: tuple) -> list[str]:
    out = []
    tree, (known_tree, known_statics) = call.tree, key[0]
    if tree != known_tree:
        out.append(f"the structure of the arguments: {tree}, known is {known_tree}")
    elif len(types) == len(key[1]):
        for i, (new, old) in enumerate(zip(types, key[1], strict=True)):
            if new is not old and new != old:
                out.append(f"{call.path(i)}: {_type_difference(new, old)}")
    statics = dict(known_statics)
    for where, value in call.statics:
        if where not in statics or statics[where] != value:
            label = where if isinstance(where, str) else call.signature.name_of(where)
            out.append(f"static argument {label}: {value!r}, known is {statics.get(where, 'none')!r}")
    if context is not key[2]:
        pairs = zip(Context.fields, context._values, key[2]._values, strict=True)
        out.extend(f"option {n}: {new!r}, known is {old!r}" for n, new, old in pairs if new != old)
    return out or ["the number of static arguments"]


def _type_difference(new: Any, old: Any) -> str:
    a, b = getattr(new, "aval", new), getattr(old, "aval", old)  # inside a trace there is no placement
    for field in ("shape", "dtype", "weak_type"):
        if getattr(a, field) != getattr(b, field):
            return f"{field} {getattr(a, field)}, known is {getattr(b, field)}"
    if a is new or new.sharding != old.sharding:
        return f"sharding {new.sharding}, known is {old.sharding}"
    return f"committed {new.committed}, known is {old.committed}"


def warn_of_vain_donations(
    name: str, name_of: Callable[[int], str], avals: Sequence[ShapedArray], program: Any
) -> None:
    """Warn of donated arguments whose buffers the compiler found no use for.

    Args:
      name: the function.
      name_of: what its input `i` is called.
      avals: the types of its inputs.
      program: what it was compiled to.
    """
    # An argument that nothing reads is no parameter of the program, and is not given away.
    given = set(program.lowered.donated).intersection(program.parameters)
    vain = sorted(given - program.reused()) if given else []
    if vain:
        shown = ", ".join(f"{name_of(i)}: {_placed(avals[i], program.lowered.in_shardings[i])}" for i in vain)
        warnings.warn(
            f"{name}: donated, but no result of the same shape, dtype and placement takes their buffers: {shown}.\n"
            "  To mend: leave these arguments out of donate_argnums.",
            UserWarning,
            stacklevel=user_level(),
        )


def _placed(aval: ShapedArray, sharding: Any) -> str:
    spec = getattr(sharding, "spec", None)
    return aval.str_short() + (f" as {spec}" if spec is not None and spec.dims else "")
