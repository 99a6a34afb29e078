"""`nnx.while_loop` and `nnx.fori_loop`, with modules in the carried value.

The body of a loop is cached on the user's function, one for each structure of the modules, so that a second loop does
not retrace it. Changes of structure inside a loop are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax
from phalanx.core import TreeError, format_code_position
from phalanx.nnx.graphlib.graph_def import describe_difference
from phalanx.nnx.graphlib.graph_walk import get_joint_graph
from phalanx.nnx.objects import is_root
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    LiftedArguments,
    PureModule,
    check_structure_kept,
    flatten_arguments,
    get_cached_body,
    make_pure_modules,
)
from phalanx.nnx.variable import Variable, unwrap
from phalanx.tree import tree_flatten
from phalanx.typing import ArrayLike, PyTree


def replace_carried_modules(where: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Copy the values of the modules that an iteration returned to its carried modules.

    Args:
      where: the loop, for error messages.
      before: the modules passed to the iteration.
      after: the modules returned by the iteration.

    Raises:
      TreeError: their structures differ.
    """
    if len(before) == len(after) and all(a is b for a, b in zip(before, after)):
        return
    old, new = get_joint_graph(before), get_joint_graph(after)
    if len(before) != len(after) or old.definition is not new.definition:
        names = [", ".join(type(x).__name__ for x in side) or "none" for side in (before, after)]
        is_comparable = len(before) == len(after)
        difference = f": {describe_difference(old.definition, new.definition)}" if is_comparable else ""
        raise TreeError(
            f"{where}, the carried modules",
            expected=f"modules of the structure that came in ({names[0]})",
            got=f"others ({names[1]}{difference})",
            fix="return the modules that the function receives, without changing their attributes",
        )
    for variable, source in zip(old.variables, new.variables):
        variable._value = source._value


class _LoopBody:
    """One iteration of a loop, from the values of all carried variables to their new values.

    Args:
      where: the name of the loop, for error messages.
      fun: the user's function.
    """

    def __init__(self, where: str, fun: Callable):
        self.fun = fun
        self.written: set[int] = set()  # the numbers of the variables that some trace of the body has set
        self.where = f"{where} of {format_code_position(fun)}"
        self.__name__ = getattr(fun, "__name__", "body")

    def __call__(self, *args: Any) -> Any:
        *index, pure = args
        inside = InnerModules(pure)
        out = self.fun(*index, inside.args)
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        replace_carried_modules(self.where, inside.roots, [x for x in leaves if is_root(x)])
        outputs = inside.outputs(None, all_values=True)
        check_structure_kept(self.where, outputs.outcome)
        # The set grows while the loop is traced, and is complete before `_finish` reads it.
        self.written |= outputs.outcome.written
        modules = iter(_replace_values(pure, [*outputs.values, *inside.arrays]))
        return tree.unflatten([next(modules) if is_root(x) else x for x in leaves])


def _replace_values(pure: PyTree, values: Sequence[Any]) -> list[PureModule]:
    """The modules of a carried value with new values."""
    modules = [x for x in tree_flatten(pure, is_leaf=_is_pure)[0] if _is_pure(x)]
    if not modules:
        return []
    counts = [m.definition.counts[m.number] for m in modules]
    sizes = [(count, len(m.values) - count) for count, m in zip(counts, modules)]
    return list(make_pure_modules(modules[0].definition, sizes, values))


def _is_pure(x: object) -> bool:
    return type(x) is PureModule


def _make_condition(fun: Callable) -> Callable:
    def condition(pure: PyTree) -> Any:
        return unwrap(fun(InnerModules(pure).args))

    condition.__name__ = getattr(fun, "__name__", "condition")
    return condition


def while_loop(
    cond_fun: Callable[[Any], ArrayLike | Variable],
    body_fun: Callable[[Any], Any],
    init_val: PyTree,
    *,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Repeat a function while a condition holds, with modules in the carried value.

    Args:
      cond_fun: from the carried value to a boolean scalar.
      body_fun: from the carried value to the next one, of the same structure and types.
      init_val: the initial value.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The first value for which the condition is False. Its modules are the caller's modules, updated.

    Raises:
      TreeError, TraceError: the structure of the carried value changes.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> n = nnx.Variable(jnp.array(1))
      >>> def double(n):
      ...     n.value *= 2
      ...     return n
      >>> int(nnx.while_loop(lambda n: n < 10, double, n).value)
      16
    """
    parts = flatten_arguments(init_val)
    condition = get_cached_body(cond_fun, "condition", _make_condition)
    key = "while", parts.graph.definition
    body = get_cached_body(body_fun, key, lambda call: _LoopBody("while_loop", call))
    return _finish(parts, lax.while_loop(condition, body, parts.to_pure()), body.written)


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Repeat a function for each index in a range, with modules in the carried value.

    Args:
      lower: the first index.
      upper: one past the last index.
      body_fun: `(i, value) -> value`, of the same structure and types.
      init_val: the initial value.
      unroll: as in `lax.fori_loop`.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The last value. Its modules are the caller's modules, updated.

    Raises:
      TreeError, TraceError: the structure of the carried value changes.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> def body(i, w):
      ...     w.value += i
      ...     return w
      >>> w = nnx.Param(jnp.array(0))
      >>> nnx.fori_loop(0, 4, body, w) is w, int(w.value)
      (True, 6)
    """
    parts = flatten_arguments(init_val)
    key = "for", parts.graph.definition
    body = get_cached_body(body_fun, key, lambda call: _LoopBody("fori_loop", call))
    return _finish(parts, lax.fori_loop(lower, upper, body, parts.to_pure(), unroll=unroll), body.written)


def _finish(parts: LiftedArguments, pure: PyTree, written: set[int]) -> Any:
    """The carried value after a loop, with the caller's modules; only variables that the loop sets are updated."""
    inside = InnerModules(pure)
    # Variables that the loop does not set keep their arrays, so that donation and identity checks see no change.
    for number in sorted(written):
        parts.graph.variables[number].set_raw_value(inside.initial_values[number])
    roots = iter(parts.roots)
    leaves = tree_flatten(inside.args, is_leaf=is_root)[0]
    return parts.tree.unflatten([next(roots) if is_root(x) else x for x in leaves])
