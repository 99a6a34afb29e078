"""`nnx.custom_vjp`: functions of modules with a user-defined vector-Jacobian product."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx import custom_rules
from phalanx.core import ArgumentTypeError, TraceError, TreeError, format_code_position
from phalanx.nnx.graphlib.states import State
from phalanx.nnx.transforms.lifted_vjp import to_pure_cotangent
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    Lifted,
    Outputs,
    OutputSpec,
    PureModule,
    flatten_arguments,
    get_leaf_paths,
    write_back,
)
from phalanx.nnx.transforms.static_arguments import insert_static
from phalanx.nnx.variable import MISSING


class custom_vjp:
    """A function of modules with a user-defined reverse derivative.

    `fwd(*args) -> (result, residuals)` computes the result and residuals, which may contain modules.
    `bwd(residuals, (inputs_bar, result_bar)) -> cotangents` returns a cotangent for each argument: a state for a
    module, an array for an array. `inputs_bar` has for each module the state of the cotangents of its variables' new
    values, and None for other arguments.

    Args:
      fun: the function. If omitted, a decorator is returned.
      nondiff_argnums: the positions of arguments without derivative, which are the first arguments of `bwd`.
      graph, graph_updates: accepted for compatibility with Flax.

    Examples:
      >>> from phalanx import nnx
      >>> @nnx.custom_vjp
      ... def square(w):
      ...     return w * w
      >>> def bwd(w, bars):
      ...     return (w.replace(10 * bars[1]),)
      >>> square.defvjp(lambda w: (square(w), w), bwd)
      >>> float(nnx.grad(square)(nnx.Param(3.0)).value)
      10.0
    """

    def __init__(
        self,
        fun: Callable = MISSING,
        *,
        nondiff_argnums: Sequence[int] = (),
        graph: bool | None = None,
        graph_updates: bool | None = None,
    ):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = tuple(nondiff_argnums)
        self._fwd: Callable | None = None
        self._bwd: Callable | None = None

    def __new__(cls, fun: Callable = MISSING, **options: Any) -> Any:
        return functools.partial(cls, **options) if fun is MISSING else object.__new__(cls)

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False) -> None:
        """Set the rules.

        Args:
          fwd, bwd: the rules.
          symbolic_zeros: accepted for compatibility with Flax.
        """
        self._fwd, self._bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self._fwd is None or self._bwd is None:
            raise TraceError(
                f"call of {format_code_position(self.fun)}",
                expected="a custom_vjp function with rules",
                got="no rules",
                fix=f"define the rules first: {getattr(self.fun, '__name__', 'f')}.defvjp(fwd, bwd)",
            )
        # Arguments without derivative are bound, so that the rules of `custom_vjp` see differentiable arguments only.
        static = {n % len(args): args[n] for n in self.nondiff_argnums}
        dynamic = tuple(x for i, x in enumerate(args) if i not in static)
        parts = flatten_arguments((dynamic, {}))
        pure = parts.to_pure()[0]
        function = Lifted(lambda *xs: self.fun(*insert_static(static, xs)), all_values=True)
        function.__name__ = getattr(self.fun, "__name__", type(self.fun).__name__)
        lifted = custom_rules.custom_vjp(function)
        lifted.defvjp(
            functools.partial(self._forward, function, static),
            functools.partial(self._backward, list(static.values()), pure),
        )
        return write_back(parts, lifted(*pure), [function])

    def _forward(self, function: Lifted, static: Mapping[int, Any], *pure: Any) -> tuple:
        inside = InnerModules((pure, {}))
        assert self._fwd is not None, "__call__ has checked that the rules are defined"
        result = self._fwd(*insert_static(static, inside.args[0]))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentTypeError(
                f"fwd rule of {format_code_position(self.fun)}",
                expected="a pair (result, residuals)",
                got=repr(result),
                fix="end the rule with `return result, residuals`",
            )
        # All values are returned, since forward pass and primal function must have outputs of the same structure even
        # if only one of them sets a variable.
        outputs = inside.outputs(result[0], all_values=True)
        function.note_written(outputs.outcome)
        return outputs, flatten_arguments(result[1]).to_pure()

    def _backward(self, static: Sequence[Any], pure: tuple, residuals: Any, bars: Outputs) -> tuple:
        outcome, values = bars.outcome, list(bars.values)
        # The cotangents arrive in the structure of the outputs of the lifted function: results first, then variables.
        out_bar = outcome.tree.unflatten(_get_result_bars(outcome, values))
        of_variable = {o.number: x for o, x in zip(outcome.origins, values, strict=True) if o.kind == "variable"}
        inputs_bar = tuple(_get_state_bar(m, of_variable) for m in pure)
        assert self._bwd is not None, "__call__ has checked that the rules are defined"
        result = self._bwd(*static, InnerModules(residuals).args, (inputs_bar, out_bar))
        where = f"bwd rule of {format_code_position(self.fun)}"
        if not isinstance(result, tuple | list) or len(result) != len(pure):
            raise TreeError(
                where,
                expected=f"a tuple of {len(pure)} cotangents, one for each differentiable argument",
                got=f"{type(result).__name__} of {len(result)}" if isinstance(result, tuple) else repr(result),
                fix=f"return a tuple of length {len(pure)}, with None for arguments whose cotangent is zero",
            )
        return tuple(to_pure_cotangent(where, m, x) for m, x in zip(pure, result, strict=True))


def _get_result_bars(outcome: OutputSpec, values: Sequence[Any]) -> list[Any]:
    """The cotangent of each leaf of the result; a module in the result has none, and gets the last value."""
    rest = iter(range(len(values)))
    return [values[-1 if is_node else next(rest)] for is_node in outcome.is_node]


def _get_state_bar(argument: Any, of_variable: Mapping[int, Any]) -> Any:
    """For a module the state of the cotangents of its variables' new values; None for an array."""
    if type(argument) is not PureModule:
        return None
    definition = argument.definition
    start = sum(definition.counts[: argument.number])
    numbers = range(start, start + definition.counts[argument.number])
    pairs = [
        (path, definition.variable_defs[i].type.from_metadata(of_variable[i], {}))
        for i, path in zip(numbers, get_leaf_paths(argument))
    ]
    return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == () else State.from_flat_path(pairs)
