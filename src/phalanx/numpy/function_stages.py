"""The stages of compilation of public functions: `jnp.cos.lower(x)` is that of `jit(jnp.cos)`.

The stages are attributes of plain functions, so that an eager call costs nothing more. Called by the public namespaces
of array functions when they publish a function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import phalanx
from phalanx.engine import memoize


def attach_stages(function: Callable) -> None:
    """Give a public function the attributes `trace`, `lower` and `eval_shape` of a function made by `jit`.

    Args:
      function: a function of arrays, and of options that become static arguments.
    """
    for stage in ("trace", "lower", "eval_shape"):
        setattr(function, stage, functools.partial(_call_stage, function, stage))


def _call_stage(function: Callable, stage: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(compile_public(function), stage)(*args, **kwargs)


@memoize("numpy.compiled_functions", 512)
def compile_public(function: Callable) -> Callable:
    """The public function as `jit` makes it: parameters whose annotation does not name arrays are static."""
    static = [
        (i, p)
        for i, p in enumerate(inspect.signature(function).parameters.values())
        if p.kind is not p.VAR_POSITIONAL and not _is_operand(str(p.annotation))
    ]
    return phalanx.jit(
        function,
        static_argnums=[i for i, p in static if p.kind is not p.KEYWORD_ONLY],
        static_argnames=[p.name for _, p in static if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)],
    )


def _is_operand(annotation: str) -> bool:
    return annotation.startswith(("Array", "Sequence[Array", "Any", "Sequence[Any", "object", "<class")) or (
        "ArrayLike" in annotation and not annotation.startswith("Callable")
    )
