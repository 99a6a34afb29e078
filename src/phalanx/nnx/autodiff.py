"""Derivatives of functions of modules: `grad`, `value_and_grad`, `vjp`, `jvp`, `custom_vjp`.

The variables that are meant by a filter (parameters, unless another is given) are differentiated; gradients come back
as states with the same paths and kinds. Builds on `phalanx.value_and_grad` and `phalanx.custom_vjp` by lifting.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import custom_derivatives, transforms
from phalanx import numpy as jnp
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TraceError, TreeError, is_sequence, places, positions
from phalanx.core.source import code_position
from phalanx.engine.frames import boundary
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.functional import state
from phalanx.nnx.lifting import ROOTS, Inside, Lifted, Outputs, Parts, Shadow, bring_back, gather, shadow_paths
from phalanx.nnx.objects import Object
from phalanx.nnx.prefixes import all_paths
from phalanx.nnx.states import State, path_text, to_flat_state
from phalanx.nnx.variable import MISSING, Param, Variable, as_pure
from phalanx.tree import tree_flatten


@dataclasses.dataclass(frozen=True)
class DiffState:
    """An argument of a differentiated function, and which of its variables are meant.

    Args:
      argnum: the number of the argument.
      filter: the variables to differentiate with respect to.

    Examples:
      >>> from phalanx import nnx
      >>> model = {"w": nnx.Param(3.0), "n": nnx.Cache(2.0)}
      >>> grads = nnx.grad(lambda m: m["w"] * m["n"], argnums=nnx.DiffState(0, nnx.Param))(model)
      >>> float(grads["w"].value)
      2.0
    """

    argnum: int
    filter: Filter


class _Chosen:
    """What of a call's arguments is differentiated.

    Args:
      where: the transformation, for messages.
      parts: the arguments, as `(args, kwargs)`.
      argnums: the option: a number, a `DiffState`, or a sequence of them.
    """

    def __init__(self, where: str, parts: Parts, argnums: Any):
        sizes = [t.num_leaves for t in parts.tree.children()[0].children()]
        self.is_single = isinstance(argnums, DiffState) or not is_sequence(argnums)
        given = [argnums] if self.is_single else list(argnums)
        self.wanted = [n if isinstance(n, DiffState) else positions(f"{where}, argnums", n)[0] for n in given]
        self.parts = parts
        argument_of = [n for n, size in enumerate(sizes) for _ in range(size)]
        filters = {}
        for wanted in self.wanted:
            number, chosen = (wanted.argnum, wanted.filter) if isinstance(wanted, DiffState) else (wanted, None)
            mend = "pass the differentiated arguments by position, or change argnums"
            (place,) = places(f"{where}, argnums", [number], len(sizes), argnums, mend)
            filters[place] = chosen
        self.numbers = list(filters)
        self.argument_of = argument_of
        roots = [n for n, x in zip(argument_of, parts.leaves) if isinstance(x, ROOTS)]
        roots += [len(sizes)] * (len(parts.roots) - len(roots))
        self.values = []
        for (root, path), box in zip(parts.paths(), parts.boxes(), strict=True):
            number = roots[root]
            self.values.append(number in filters and _is_meant(filters[number], parts.roots[root], path, box))
        self._check_aliasing(where, roots, filters)
        self.leaves = [i for i, n in enumerate(argument_of) if n in filters and not isinstance(parts.leaves[i], ROOTS)]
        for number, filter in filters.items():
            held = [m for (root, _), m in zip(parts.paths(), self.values) if roots[root] == number]
            if filter is not None and not any(held):
                raise ArgumentError(
                    f"{where}, argument {number}",
                    expected=f"variables that {to_predicate(filter)!r} means",
                    got="none",
                    mend="correct the filter of DiffState",
                )

    def _check_aliasing(self, where: str, roots: list[int], filters: dict[int, Filter]) -> None:
        """Refuse a variable that one argument differentiates and another one keeps fixed."""
        parts = self.parts
        if len(parts.roots) < 2 or not parts.graph.definition.has_refs:
            return
        first = {id(v): n for n, v in enumerate(parts.graph.variables)}
        for argument, root in zip(roots, parts.roots, strict=True):
            for path, variable in all_paths(root):
                n = first[id(variable)]
                meant = argument in filters and _is_meant(filters[argument], root, path, variable)
                if meant != self.values[n]:
                    at = roots[parts.paths()[n][0]], argument
                    fixed, moved = at if meant else at[::-1]
                    raise ArgumentError(
                        f"{where}, {type(variable).__name__} {path_text(path)}",
                        expected="a variable that is differentiated wherever it is passed, or nowhere",
                        got=f"one that is differentiated in argument {moved} and not in argument {fixed}",
                        mend="pass the shared module once, or name both arguments in argnums",
                    )

    def inputs(self) -> list:
        """The differentiated values."""
        own = [v for v, chosen in zip(self.parts.values(), self.values, strict=True) if chosen]
        return [*own, *(self.parts.leaves[i] for i in self.leaves)]

    def filled(self, inputs: Sequence[Any]) -> Any:
        """The arguments with shadows for modules, and these values where they are differentiated."""
        parts, given = self.parts, iter(inputs)
        values = [next(given) if chosen else v for v, chosen in zip(parts.values(), self.values, strict=True)]
        leaves = list(parts.leaves)
        for i in self.leaves:
            leaves[i] = next(given)
        return Parts(leaves, parts.tree, parts.roots, parts.graph).shadowed(values)

    def gradients(self, bars: Sequence[Any]) -> Any:
        """The gradients in the structure of the arguments, states in the place of modules."""
        parts, given = self.parts, iter(bars)
        held: dict[int, list] = {}
        for (root, path), box, chosen in zip(parts.paths(), parts.boxes(), self.values, strict=True):
            if chosen:
                bar = next(given)
                held.setdefault(root, []).append((path, box.copy(bar) if isinstance(box, Variable) else bar))
        leaves = dict(zip(self.leaves, given))
        numbers = iter(range(len(parts.roots)))
        filled = [
            _gradient_of(x, held.get(next(numbers), [])) if isinstance(x, ROOTS) else leaves.get(i)
            for i, x in enumerate(parts.leaves)
        ]
        arguments = parts.tree.unflatten(filled)[0]
        out = tuple(arguments[n] for n in self.numbers)
        return out[0] if self.is_single else out


def _is_meant(filter: Filter, root: Any, path: Any, box: Any) -> bool:
    if filter is None:
        # Of a module its parameters; a variable, or an array in a state, was given to be differentiated.
        return isinstance(box, Param) if isinstance(root, Object) else True
    return to_predicate(filter)(path, box)


def _gradient_of(root: Any, bars: list) -> Any:
    return State.from_flat_path(bars) if isinstance(root, Object) else bars[0][1] if bars else None


def _result_and_aux(fun: Callable, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentTypeError(
            f"the result of {code_position(fun)}",
            expected="a pair (result, aux), since has_aux=True",
            got=type(out).__name__,
            mend="return (result, aux), or drop has_aux",
        )
    return out


class _Loss:
    """The function that is differentiated: from the chosen values to the loss, with all outputs on the side."""

    def __init__(self, fun: Callable, chosen: _Chosen, has_aux: bool):
        self._fun, self._chosen, self._has_aux = fun, chosen, has_aux
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, inputs: list) -> tuple[Any, Outputs]:
        inside = Inside(self._chosen.filled(inputs))
        own, named = inside.args
        out = self._fun(*own, **named)
        loss = _result_and_aux(self._fun, out)[0] if self._has_aux else out
        return loss.value if isinstance(loss, Variable) else loss, inside.outputs(out)


def value_and_grad(
    f: Any = MISSING,
    *,
    argnums: int | DiffState | Sequence[int | DiffState] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function that gives both the value and the gradient of a scalar function of modules.

    Args:
      f: a function whose result is a scalar (with `has_aux`, a pair of that and anything). Left out, a decorator is
        given.
      argnums: the argument, or arguments, to differentiate with respect to; of a module its `Param`s, or what the
        filter of a `DiffState` means.
      has_aux: whether `f` returns `(result, aux)`.
      holomorphic, allow_int: as in `phalanx.value_and_grad`.
      reduce_axes, graph, graph_updates: taken for compatibility.

    Returns:
      A function that returns `(value, gradient)`; for a module the gradient is a `State` of variables of the same
      kinds. Changes that `f` makes to modules are made to the caller's.

    Raises:
      ArgumentError: the filter of a `DiffState` means nothing.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> value, bar = nnx.value_and_grad(lambda w: w * w)(w)
      >>> float(value), float(bar.value)
      (9.0, 6.0)
    """
    if f is MISSING:
        return functools.partial(
            value_and_grad, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int
        )

    @boundary
    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        parts = gather((args, kwargs))
        chosen = _Chosen("grad", parts, argnums)
        differentiated = transforms.value_and_grad(
            _Loss(f, chosen, has_aux), has_aux=True, holomorphic=holomorphic, allow_int=allow_int
        )
        (_, outputs), bars = differentiated(chosen.inputs())
        return bring_back(parts, outputs), chosen.gradients(bars)

    return value_and_gradient


def grad(
    f: Any = MISSING,
    *,
    argnums: int | DiffState | Sequence[int | DiffState] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function that gives the gradient of a scalar function of modules.

    Args:
      f, argnums, has_aux, holomorphic, allow_int: as in `value_and_grad`.
      reduce_axes, graph, graph_updates: taken for compatibility.

    Returns:
      A function that returns the gradient, or `(gradient, aux)` if `has_aux`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> model = nnx.Dict(w=nnx.Param(jnp.array(2.0)), n=nnx.Cache(jnp.array(5.0)))
      >>> float(nnx.grad(lambda w, n: w * w * n)(model.w, model.n).value)
      20.0
    """
    if f is MISSING:
        return functools.partial(grad, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)
    both = value_and_grad(f, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)

    @boundary
    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, bar = both(*args, **kwargs)
        return (bar, value[1]) if has_aux else bar

    return gradient


class _Watched:
    """A function that is pushed forward or pulled back: from shadows to its result, with all outputs on the side."""

    def __init__(self, fun: Callable, has_aux: bool):
        self._fun, self._has_aux = fun, has_aux
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, *shadowed: Any) -> tuple[Any, Outputs]:
        inside = Inside((shadowed, {}))
        out = self._fun(*inside.args[0])
        return as_pure(_result_and_aux(self._fun, out)[0] if self._has_aux else out), inside.outputs(out)


def vjp(
    f: Callable,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """The value of a function of modules and its derivative transposed.

    Args:
      f: the function. Without further arguments a function of them is given.
      *primals: its arguments.
      has_aux: whether `f` returns `(result, aux)`.
      reduce_axes, graph, graph_updates: taken for compatibility.

    Returns:
      `(result, f_vjp)`, with `aux` third if `has_aux`; `f_vjp(cotangent)` gives a tuple with a cotangent for each
      argument, for a module one of the same structure. Changes that `f` makes to modules are made to the caller's.

    Examples:
      >>> from phalanx import nnx
      >>> y, f_vjp = nnx.vjp(lambda w, x: w * x, nnx.Param(3.0), 2.0)
      >>> w_bar, x_bar = f_vjp(1.0)
      >>> float(y), float(w_bar.value), float(x_bar)
      (6.0, 2.0, 3.0)
    """
    if not primals:
        return functools.partial(vjp, f, has_aux=has_aux)
    parts = gather((primals, {}))
    _, pull, outputs = transforms.vjp(_Watched(f, has_aux), *parts.shadowed()[0], has_aux=True)

    def f_vjp(cotangent: Any) -> tuple:
        return Inside(pull(as_pure(cotangent))).args

    out = bring_back(parts, outputs)
    return (out[0], f_vjp, out[1]) if has_aux else (out, f_vjp)


def jvp(
    f: Callable,
    primals: Any = MISSING,
    tangents: Any = MISSING,
    *,
    has_aux: bool = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """The value of a function of modules and its derivative along a direction.

    Args:
      f: the function. Without further arguments a function of them is given.
      primals: its arguments, a tuple or list.
      tangents: the direction: for a module one of the same structure, or a state; variables that the state leaves out,
        and those that are no floating-point numbers, do not move.
      has_aux: whether `f` returns `(result, aux)`.
      graph, graph_updates: taken for compatibility.

    Returns:
      `(result, tangent)`, with `aux` third if `has_aux`. Changes that `f` makes to modules are made to the caller's.

    Raises:
      TreeError: a tangent is not of the structure of its argument.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> [float(x) for x in nnx.jvp(lambda w: w * w, (w,), (w.replace(1.0),))]
      [9.0, 6.0]
    """
    if primals is MISSING:
        return functools.partial(jvp, f, has_aux=has_aux)
    parts = gather((tuple(primals), {}))
    shadowed = parts.shadowed()[0]
    directions = _directions(parts, shadowed, tuple(tangents))
    _, out_dot, outputs = transforms.jvp(_Watched(f, has_aux), shadowed, directions, has_aux=True)
    out = bring_back(parts, outputs)
    return (out[0], out_dot, out[1]) if has_aux else (out, out_dot)


def _directions(parts: Parts, shadowed: tuple, tangents: tuple) -> tuple:
    """Tangents in the structure of the shadows, zeros where they say nothing."""
    is_leaf = lambda x: isinstance(x, (*ROOTS, State, Shadow))
    leaves, tree = tree_flatten(shadowed, is_leaf=is_leaf)
    given, given_tree = tree_flatten(tangents, is_leaf=is_leaf)
    if tree != given_tree:
        raise TreeError("jvp, argument tangents", expected=f"the structure of primals, {parts.tree.children()[0]}",
                        got=str(given_tree), mend="give one tangent for each argument")  # fmt: skip
    filled = [_as_direction(x, t) if type(x) is Shadow else t for x, t in zip(leaves, given, strict=True)]
    return tree.unflatten(filled)


def _as_direction(primal: Shadow, tangent: Any) -> Shadow:
    bars = _as_shadow("jvp, argument tangents", primal, tangent).values
    moves = [dtypes.issubdtype(aval_of(x).dtype, np.inexact) for x in primal.values]
    zero = lambda x, m: jnp.zeros_like(x) if m else np.zeros(np.shape(x), dtypes.float0)
    return Shadow(primal.definition, primal.number, [
        b if m and b is not None else zero(x, m) for x, b, m in zip(primal.values, bars, moves, strict=True)
    ])  # fmt: skip


class custom_vjp:
    """A function of modules with its own reverse derivative.

    `fwd(*args) -> (result, residuals)`, where residuals may hold modules, and
    `bwd(residuals, (inputs_bar, result_bar)) -> cotangents`: `inputs_bar` has for each module the state of cotangents
    of its variables' new values (None for other arguments), and a cotangent is a state for a module, an array for an
    array.

    Args:
      fun: the function. Left out, a decorator is given.
      nondiff_argnums: arguments without derivative, passed first to `bwd`.
      graph, graph_updates: options taken for compatibility.

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
        fun: Any = MISSING,
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

    def __new__(cls, fun: Any = MISSING, **options: Any) -> Any:
        if fun is MISSING:
            return functools.partial(cls, **options)
        return object.__new__(cls)

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False) -> None:
        """Set the rules.

        Args:
          fwd, bwd: the two functions.
          symbolic_zeros: taken for compatibility.
        """
        self._fwd, self._bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self._fwd is None or self._bwd is None:
            raise TraceError(
                f"call of {code_position(self.fun)}",
                expected="a custom_vjp function with rules",
                got="none",
                mend="define them with defvjp",
            )
        static = {n % len(args): args[n] for n in self.nondiff_argnums}
        dynamic = tuple(x for i, x in enumerate(args) if i not in static)
        parts = gather((dynamic, {}))
        shadows = parts.shadowed()[0]
        function = Lifted(functools.partial(_with_static, self.fun, static), every=True)
        lifted = custom_derivatives.custom_vjp(function)
        lifted.defvjp(
            functools.partial(self._forward, function, static),
            functools.partial(self._backward, list(static.values()), shadows),
        )
        return bring_back(parts, lifted(*shadows), [function])

    def _forward(self, function: Lifted, static: dict, *shadows: Any) -> tuple:
        inside = Inside((shadows, {}))
        result = _with_static(self._fwd, static, *inside.args[0])
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentTypeError(
                f"fwd rule of {code_position(self.fun)}",
                expected="a pair (result, residuals)",
                got=repr(result),
                mend="return (result, residuals)",
            )
        outputs = inside.outputs(result[0], every=True)
        known = function.written.get(outputs.outcome, frozenset())
        function.written[outputs.outcome] = known | outputs.outcome.written
        return outputs, gather(result[1]).shadowed()

    def _backward(self, static: list, shadows: tuple, residuals: Any, bars: Outputs) -> tuple:
        outcome, values = bars.outcome, list(bars.values)
        out_bar = outcome.tree.unflatten(
            [values[i] for i in _leaf_numbers(outcome)]  # modules in the result have no cotangent of their own
        )
        of_variable = {o.number: x for o, x in zip(outcome.origins, values, strict=True) if o.kind == "variable"}
        inputs_bar = tuple(_bar_state(s, of_variable) for s in shadows)
        result = self._bwd(*static, Inside(residuals).args, (inputs_bar, out_bar))
        where = f"bwd rule of {code_position(self.fun)}"
        if not isinstance(result, tuple | list) or len(result) != len(shadows):
            raise TreeError(
                where,
                expected=f"a tuple of {len(shadows)} cotangents, one for each differentiable argument",
                got=f"{type(result).__name__} of {len(result)}" if isinstance(result, tuple) else repr(result),
                mend="return a tuple with a cotangent (or None) for each argument",
            )
        return tuple(_as_shadow(where, s, x) for s, x in zip(shadows, result, strict=True))


def _leaf_numbers(outcome: Any) -> list[int]:
    numbers, n = [], 0
    for is_node in outcome.is_node:
        numbers.append(-1 if is_node else n)
        n += not is_node
    return numbers


def _with_static(fun: Any, static: dict[int, Any], *dynamic: Any) -> Any:
    given = iter(dynamic)
    count = len(static) + len(dynamic)
    return fun(*(static[i] if i in static else next(given) for i in range(count)))


def _bar_state(argument: Any, of_variable: dict[int, Any]) -> Any:
    """For a module the state of cotangents of its variables' new values; None for an array."""
    if type(argument) is not Shadow:
        return None
    definition, paths = argument.definition, shadow_paths(argument)
    start = sum(definition.counts[: argument.number])
    count = definition.counts[argument.number]
    pairs = [
        (path, definition.variable_defs[i].type.from_metadata(of_variable[i], {}))
        for i, path in zip(range(start, start + count), paths)
    ]
    return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == () else State.from_flat_path(pairs)


def _as_shadow(where: str, argument: Any, bar: Any) -> Any:
    """A cotangent as `phalanx.custom_vjp` wants it: in the structure of the shadow."""
    if type(argument) is not Shadow or bar is None:
        return bar
    paths = shadow_paths(argument)
    if isinstance(bar, Variable):
        given: Any = {(): bar}
    elif isinstance(bar, Object):
        given = to_flat_state(state(bar))
    else:
        given = to_flat_state(bar)
    unknown = [path_text(p) for p in given.keys() if p not in paths]
    if unknown:
        raise TreeError(
            where,
            expected="a state with paths of the module",
            got=f"one with {', '.join(unknown)}",
            mend="fill in the state that bwd is given for the module",
        )
    bars = [given.get(p) for p in paths]
    return Shadow(argument.definition, argument.number, [x.raw_value if isinstance(x, Variable) else x for x in bars])
