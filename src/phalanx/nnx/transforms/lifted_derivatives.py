"""Derivatives of functions of modules: `nnx.grad`, `nnx.vjp`, `nnx.jvp`, `nnx.custom_vjp` and `nnx.remat`.

Variables selected by a filter (by default parameters) are differentiated. Gradients of a module are a `State` with the
same paths and variable types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx import custom_rules, numpy as jnp, transforms
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    TraceError,
    TreeError,
    dtypes,
    format_code_position,
    get_aval,
    is_sequence,
    normalize_positions,
    parse_positions,
)
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graph_mode import FULL, GraphMode, resolve_mode
from phalanx.nnx.graphlib import Path, State, build, format_path, state, to_flat_state
from phalanx.nnx.objects import ROOTS, Pytree, is_root
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    Lifted,
    LiftedArguments,
    Outputs,
    PureModule,
    build_result,
    call_lifted,
    flatten_arguments,
    get_leaf_paths,
    is_pure,
    make_state,
    write_back,
)
from phalanx.nnx.transforms.state_axes import iter_all_paths
from phalanx.nnx.transforms.user_functions import bind_keywords, bind_static, check_unbound, decorator_if_missing
from phalanx.nnx.variable import MISSING, Variable, as_pure, unwrap
from phalanx.nnx.variable_types import Param
from phalanx.tree import tree_flatten
from phalanx.typing import PyTree


@dataclasses.dataclass(frozen=True)
class DiffState:
    """An argument of a differentiated function, and a filter that selects its differentiated variables.

    Args:
      argnum: the position of the argument.
      filter: selects the variables to differentiate with respect to.

    Examples:
      >>> from phalanx import nnx
      >>> model = {"w": nnx.Param(3.0), "n": nnx.Cache(2.0)}
      >>> grads = nnx.grad(lambda m: m["w"] * m["n"], argnums=nnx.DiffState(0, nnx.Param))(model)
      >>> float(grads["w"].value)
      2.0
    """

    argnum: int
    filter: Filter


ArgNums: TypeAlias = int | DiffState | Sequence[int | DiffState]


class _Selection:
    """The differentiated values among the arguments of a call.

    `numbers` are the positions of the differentiated arguments. `is_selected` tells for each value of the modules
    whether it is differentiated, `leaves` are the indices of the differentiated leaves outside of modules.

    Args:
      where: the transformation, for error messages.
      parts: the arguments, as `(args, kwargs)`.
      argnums: a position, a `DiffState`, or a sequence of these.
      mode: the mode of the transformation. Unless it writes structures back, modules are differentiated as pytrees.
    """

    def __init__(self, where: str, parts: LiftedArguments, argnums: ArgNums, mode: GraphMode):
        sizes = [t.num_leaves for t in parts.tree.children()[0].children()]
        self.parts, self.as_trees = parts, not mode.updates
        self.is_single = isinstance(argnums, DiffState) or not is_sequence(argnums)
        filters = _normalize_argnums(where, argnums, len(sizes))
        self.numbers = list(filters)
        argument_of = [n for n, size in enumerate(sizes) for _ in range(size)]
        # The argument of each root; modules in keyword arguments have the position after the last one.
        roots = [n for n, x in zip(argument_of, parts.leaves) if isinstance(x, ROOTS)]
        roots += [len(sizes)] * (len(parts.roots) - len(roots))
        leaves = list(zip(parts.paths(), parts.variables_and_arrays(), strict=True))
        self.is_selected = [
            roots[root] in filters and self._is_selected(filters[roots[root]], parts.roots[root], path, leaf)
            for (root, path), leaf in leaves
        ]
        self._check_shared_variables(where, roots, filters)
        self.leaves = [i for i, n in enumerate(argument_of) if n in filters and not isinstance(parts.leaves[i], ROOTS)]
        selected_arguments = {roots[root] for ((root, _), _), s in zip(leaves, self.is_selected) if s}
        for number, filter in filters.items():
            if filter is not None and number not in selected_arguments:
                raise ArgumentError(
                    f"{where}, argument {number}",
                    expected=f"variables that {to_predicate(filter)!r} matches",
                    got="none",
                    fix=f"correct the filter in nnx.DiffState({number}, ...); nnx.state(argument) shows the variables",
                )

    def _is_selected(self, filter: Filter, root: object, path: Path, leaf: Any) -> bool:
        if filter is None:
            # Without a filter, the parameters of a module are selected, and all leaves of other arguments.
            return isinstance(leaf, Param) if isinstance(root, Pytree) and not self.as_trees else True
        return to_predicate(filter)(path, leaf)

    def _check_shared_variables(self, where: str, roots: Sequence[int], filters: Mapping[int, Filter]) -> None:
        """Check that a shared variable is differentiated in all arguments that contain it, or in none."""
        parts = self.parts
        if len(parts.roots) < 2 or not parts.graph.definition.has_refs:
            return
        # A shared variable is a single differentiated value, so that its gradient sums over all its uses. This is only
        # right if every argument that contains it is treated in the same way.
        first = {id(v): n for n, v in enumerate(parts.graph.variables)}
        for argument, root in zip(roots, parts.roots, strict=True):
            for path, variable in iter_all_paths(root):
                n = first[id(variable)]
                selected = argument in filters and self._is_selected(filters[argument], root, path, variable)
                if selected != self.is_selected[n]:
                    pair = roots[parts.paths()[n][0]], argument
                    constant, differentiated = pair if selected else pair[::-1]
                    raise ArgumentError(
                        f"{where}, {type(variable).__name__} {format_path(path)}",
                        expected="a variable that is differentiated in all arguments that contain it, or in none",
                        got=f"one that is differentiated in argument {differentiated} and not in argument {constant}",
                        fix=f"pass the shared module once, or pass argnums=({min(pair)}, {max(pair)})",
                    )

    def values(self) -> list[Any]:
        """The differentiated values."""
        selected = [v for v, s in zip(self.parts.values(), self.is_selected, strict=True) if s]
        return [*selected, *(self.parts.leaves[i] for i in self.leaves)]

    def to_pure(self, inputs: Sequence[Any]) -> Any:
        """The arguments with a `PureModule` for each module, and these differentiated values."""
        parts, new = self.parts, iter(inputs)
        values = [next(new) if s else v for v, s in zip(parts.values(), self.is_selected, strict=True)]
        leaves = list(parts.leaves)
        for i in self.leaves:
            leaves[i] = next(new)
        return LiftedArguments(leaves, parts.tree, parts.roots, parts.graph).to_pure(values)

    def gradients(self, bars: Sequence[Any]) -> Any:
        """The gradients in the structure of the differentiated arguments, with a state for each module."""
        if self.as_trees:
            arguments = InnerModules(self.to_pure(bars), FULL).args[0]
            gradients = tuple(arguments[n] for n in self.numbers)
            return gradients[0] if self.is_single else gradients
        parts, rest = self.parts, iter(bars)
        by_root: dict[int, list[tuple[Path, Any]]] = {}
        for (root, path), leaf, s in zip(parts.paths(), parts.variables_and_arrays(), self.is_selected, strict=True):
            if s:
                bar = next(rest)
                by_root.setdefault(root, []).append((path, leaf.copy(bar) if isinstance(leaf, Variable) else bar))
        leaf_bars = dict(zip(self.leaves, rest))
        numbers = iter(range(len(parts.roots)))
        out = [
            _gradient_of_root(x, by_root.get(next(numbers), [])) if isinstance(x, ROOTS) else leaf_bars.get(i)
            for i, x in enumerate(parts.leaves)
        ]
        arguments, _ = parts.tree.unflatten(out)
        gradients = tuple(arguments[n] for n in self.numbers)
        return gradients[0] if self.is_single else gradients


def _normalize_argnums(where: str, argnums: ArgNums, count: int) -> dict[int, Filter]:
    """The filter of each differentiated argument, by its position from the start."""
    filters = {}
    entries: Any = [argnums] if isinstance(argnums, DiffState) or not is_sequence(argnums) else argnums
    for entry in entries:
        is_filtered = isinstance(entry, DiffState)
        number = entry.argnum if is_filtered else parse_positions(f"{where}, argnums", entry)[0]
        fix = "pass the differentiated arguments by position, or change argnums"
        (position,) = normalize_positions(f"{where}, argnums", [number], count, argnums, fix)
        filters[position] = entry.filter if is_filtered else None
    if len(filters) < len(entries):
        fix = "leave out the repeated position; a DiffState accepts several filters as a list"
        raise ArgumentError(f"{where}, argnums", expected="each argument at most once", got=argnums, fix=fix)
    return filters


def _gradient_of_root(root: object, bars: Sequence[tuple[Path, Any]]) -> Any:
    # A variable that an earlier root contains as well has its gradient there, and an empty state here.
    return bars[0][1] if bars and not isinstance(root, Pytree) else State.from_flat_path(bars)


def split_aux(fun: Callable, out: Any) -> tuple[Any, Any]:
    """Check that the result of a function with `has_aux=True` is a pair, and return it.

    Raises:
      ArgumentTypeError: it is not a pair.
    """
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentTypeError(
            f"the result of {format_code_position(fun)}",
            expected="a pair (result, aux), since has_aux=True",
            got=type(out).__name__,
            fix="end the function with `return result, aux`, or omit has_aux",
        )
    return out


class _Differentiated(Lifted):
    """The differentiated function: from inputs to its value, with all outputs as auxiliary data.

    Args:
      fun: the user's function.
      has_aux: whether it returns `(result, aux)`.
      to_pure: from the inputs to pure arguments, as `(args, kwargs)`.
      to_value: from the result to its value.
      mode: the mode of the transformation.
    """

    def __init__(self, fun: Callable, has_aux: bool, to_pure: Callable, to_value: Callable, mode: GraphMode):
        super().__init__(fun, mode=mode)
        self._has_aux, self._to_pure, self._to_value = has_aux, to_pure, to_value

    def __call__(self, *inputs: Any) -> tuple[Any, Outputs]:
        inside = InnerModules(self._to_pure(*inputs), self.mode)
        args, kwargs = inside.args
        out = self.fun(*args, **kwargs)
        return self._to_value(split_aux(self.fun, out)[0] if self._has_aux else out), inside.outputs(out)


@decorator_if_missing
def value_and_grad(
    f: Any = MISSING,
    *,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Return a function that computes the value and the gradient of a scalar function of modules.

    Args:
      f: a function that returns a scalar or, with `has_aux`, a pair of a scalar and auxiliary data. If omitted, a
        decorator is returned.
      argnums: the positions of the differentiated arguments. Of a module its `Param`s are differentiated, or the
        variables that the filter of a `DiffState` matches.
      has_aux: whether `f` returns `(result, aux)`.
      holomorphic, allow_int: as in `phalanx.value_and_grad`.
      reduce_axes, graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      A function that returns `(value, gradient)`. The gradient of a module is a `State` of variables of the same types.
      Changes that `f` makes to modules are written back to the caller's modules.

    Raises:
      ArgumentError: the filter of a `DiffState` matches no variable.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> value, bar = nnx.value_and_grad(lambda w: w * w)(w)
      >>> float(value), float(bar.value)
      (9.0, 6.0)
    """

    mode = resolve_mode(graph, graph_updates)

    @api_boundary
    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        args, kwargs = bind_keywords(f, args, kwargs)
        parts = flatten_arguments((args, kwargs), mode, "grad")
        selection = _Selection("grad", parts, argnums, mode)
        loss = _Differentiated(f, has_aux, selection.to_pure, unwrap, mode)
        differentiated = transforms.value_and_grad(loss, has_aux=True, holomorphic=holomorphic, allow_int=allow_int)
        # The primal outputs are auxiliary data of the differentiated function, so that `f` is traced only once.
        (_, outputs), bars = differentiated(selection.values())
        return write_back(parts, outputs), selection.gradients(bars)

    return value_and_gradient


@decorator_if_missing
def grad(
    f: Any = MISSING,
    *,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Return a function that computes the gradient of a scalar function of modules.

    Args:
      f, argnums, has_aux, holomorphic, allow_int: as in `value_and_grad`.
      reduce_axes, graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      A function that returns the gradient, or `(gradient, aux)` if `has_aux`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> model = nnx.Dict(w=nnx.Param(jnp.array(2.0)), n=nnx.Cache(jnp.array(5.0)))
      >>> float(nnx.grad(lambda w, n: w * w * n)(model.w, model.n).value)
      20.0
    """
    both = value_and_grad(
        f,
        argnums=argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
        allow_int=allow_int,
        graph=graph,
        graph_updates=graph_updates,
    )

    @api_boundary
    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, bar = both(*args, **kwargs)
        return (bar, value[1]) if has_aux else bar

    return gradient


def _as_positional(*pure: Any) -> tuple[tuple, dict[str, Any]]:
    return pure, {}


@decorator_if_missing
def vjp(
    f: Any = MISSING,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Sequence[Hashable] = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Compute the value and the vector-Jacobian product of a function of modules.

    Args:
      f: the function. Without further arguments, a function of the primals is returned.
      *primals: the arguments of `f`.
      has_aux: whether `f` returns `(result, aux)`.
      reduce_axes, graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      `(result, f_vjp)`, followed by `aux` if `has_aux`. `f_vjp(cotangent)` returns a tuple with a cotangent for each
      argument; the cotangent of a module is a module of the same structure. Changes that `f` makes to modules are
      written back to the caller's modules.

    Examples:
      >>> from phalanx import nnx
      >>> y, f_vjp = nnx.vjp(lambda w, x: w * x, nnx.Param(3.0), 2.0)
      >>> w_bar, x_bar = f_vjp(1.0)
      >>> float(y), float(w_bar.value), float(x_bar)
      (6.0, 2.0, 3.0)
    """
    mode = resolve_mode(graph, graph_updates)
    if not primals:
        return functools.partial(vjp, f, has_aux=has_aux, graph=mode.graph, graph_updates=mode.updates)
    parts = flatten_arguments((primals, {}), mode, "vjp")
    function = _Differentiated(f, has_aux, _as_positional, as_pure, mode)
    _, pure_vjp, outputs = transforms.vjp(function, *parts.to_pure()[0], has_aux=True)

    def f_vjp(cotangent: PyTree) -> tuple:
        return InnerModules(pure_vjp(as_pure(cotangent))).args

    out = write_back(parts, outputs)
    return (out[0], f_vjp, out[1]) if has_aux else (out, f_vjp)


@decorator_if_missing
def jvp(
    f: Any = MISSING,
    primals: Sequence[Any] = MISSING,
    tangents: Sequence[Any] = MISSING,
    *,
    has_aux: bool = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Compute the value and the Jacobian-vector product of a function of modules.

    Args:
      f: the function. Without further arguments, a function of primals and tangents is returned.
      primals: the arguments of `f`, a tuple or list.
      tangents: a tangent for each argument. The tangent of a module is a module of the same structure or a state;
        variables that the state omits, and variables that are not of floating dtype, have a zero tangent.
      has_aux: whether `f` returns `(result, aux)`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      `(result, tangent)`, followed by `aux` if `has_aux`. Changes that `f` makes to modules are written back to the
      caller's modules.

    Raises:
      TreeError: a tangent does not have the structure of its argument.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(3.0)
      >>> [float(x) for x in nnx.jvp(lambda w: w * w, (w,), (w.replace(1.0),))]
      [9.0, 6.0]
    """
    mode = resolve_mode(graph, graph_updates)
    if primals is MISSING:
        return functools.partial(jvp, f, has_aux=has_aux, graph=mode.graph, graph_updates=mode.updates)
    parts = flatten_arguments((tuple(primals), {}), mode, "jvp")
    pure = parts.to_pure()[0]
    function = _Differentiated(f, has_aux, _as_positional, as_pure, mode)
    _, out_dot, outputs = transforms.jvp(function, pure, _to_pure_tangents(pure, tuple(tangents)), has_aux=True)
    out = write_back(parts, outputs)
    return (out[0], out_dot, out[1]) if has_aux else (out, out_dot)


def _is_leaf(x: object) -> bool:
    return isinstance(x, (*ROOTS, State, PureModule))


def _to_pure_tangents(pure: tuple, tangents: tuple) -> tuple:
    """Tangents in the structure of the pure arguments, with zeros for omitted variables."""
    if len(pure) != len(tangents):
        raise TreeError(
            "jvp, argument tangents",
            expected=f"{len(pure)} tangents, one for each argument",
            got=f"{len(tangents)}",
            fix="pass a tangent for each argument, such as jnp.zeros_like(x) for an array that does not change",
        )
    out = []
    for n, (primal, tangent) in enumerate(zip(pure, tangents)):
        leaves, tree = tree_flatten(primal, is_leaf=_is_leaf)
        tangent_leaves, tangent_tree = tree_flatten(tangent, is_leaf=_is_leaf)
        if tree != tangent_tree:
            raise TreeError(
                f"jvp, argument tangents[{n}]",
                expected=f"the structure of primals[{n}], a {_describe(primal)}",
                got=f"a {_describe(tangent)}",
                fix=f"make it from the argument, as in phalanx.tree.map(jnp.ones_like, primals[{n}])",
            )
        pairs = zip(leaves, tangent_leaves, strict=True)
        # Only modules need a conversion; tangents of arrays are checked by `phalanx.jvp`.
        out.append(tree.unflatten([_fill_tangent(x, t) if is_pure(x) else t for x, t in pairs]))
    return tuple(out)


def _describe(tree: PyTree) -> str:
    count = len(tree_flatten(tree, is_leaf=_is_leaf)[0])
    return f"{type(tree).__name__} of {count} {'leaf' if count == 1 else 'leaves'}"


def _fill_tangent(primal: PureModule, tangent: PyTree) -> PureModule:
    values = []
    for x, bar in zip(primal.values, to_pure_cotangent("jvp, argument tangents", primal, tangent).values, strict=True):
        # Integers have tangents of dtype float0, as everywhere in Phalanx.
        zero = jnp.zeros_like(x) if _is_inexact(x) else np.zeros(np.shape(x), dtypes.float0)
        values.append(zero if bar is None else bar)
    return PureModule(primal.definition, primal.number, values)


def to_pure_cotangent(where: str, argument: Any, bar: Any) -> Any:
    """Convert the tangent or cotangent of an argument to the structure of the pure argument.

    Args:
      where: the caller, for error messages.
      argument: the pure argument. If it is not a module, `bar` is returned.
      bar: a variable, a module, or a state whose missing variables have the cotangent None.

    Raises:
      TreeError: the state has a path that the module does not have.
    """
    if not is_pure(argument) or bar is None:
        return bar
    paths = get_leaf_paths(argument)
    bars: Any = (
        {(): bar} if isinstance(bar, Variable) else to_flat_state(state(bar) if isinstance(bar, Pytree) else bar)
    )
    if unknown := [format_path(p) or "a value" for p in bars.keys() if p not in paths]:
        known = f"a state with paths of the module, such as {format_path(paths[0]) or 'none'}" if paths else ""
        raise TreeError(
            where,
            expected=known or "an empty state, since earlier arguments contain all variables of this one",
            got=f"one with {', '.join(unknown)}",
            fix="start from nnx.state(module), or from the state in inputs_bar, and set the values in it",
        )
    # Integers have no cotangent; a module that a rule returns has values for them as well.
    values = [as_pure(bars.get(p)) if _is_inexact(x) else None for p, x in zip(paths, argument.values, strict=True)]
    return PureModule(argument.definition, argument.number, values)


def _is_inexact(x: PyTree) -> bool:
    return any(dtypes.issubdtype(get_aval(leaf).dtype, np.inexact) for leaf in tree_flatten(x)[0])


class custom_vjp:
    """A function of modules with a user-defined reverse derivative.

    `fwd(*args) -> (result, residuals)` computes the result and residuals, which may contain modules. With
    `graph_updates=True`, `bwd(residuals, (inputs_bar, result_bar)) -> cotangents` returns a cotangent for each
    differentiable argument: a state or a module for a module, an array for an array. `inputs_bar` has for each module
    the state of the cotangents of its variables' new values, and None for other arguments. Otherwise the rule is
    `bwd(residuals, result_bar)`; if it has a parameter `updates_g`, that is a tuple of the arguments with the
    cotangent of each variable that the function sets, and None in all other places.

    Args:
      fun: the function. If omitted, a decorator is returned.
      nondiff_argnums: the positions of arguments without derivative, which are the first arguments of `bwd`. A
        `DiffState` keeps its argument differentiable: the cotangents of other variables than those it selects may be
        omitted.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

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
        nondiff_argnums: Sequence[int | DiffState] = (),
        graph: bool | None = None,
        graph_updates: bool | None = None,
    ):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = tuple(n for n in nondiff_argnums if not isinstance(n, DiffState))
        self._mode = resolve_mode(graph, graph_updates)
        self._fwd: Callable | None = None
        self._bwd: Callable | None = None

    def __new__(cls, fun: Callable = MISSING, **options: Any) -> Any:
        if fun is MISSING:
            mode = resolve_mode(options.pop("graph", None), options.pop("graph_updates", None))
            return functools.partial(cls, **options, graph=mode.graph, graph_updates=mode.updates)
        check_unbound("custom_vjp", fun)
        return object.__new__(cls)

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False) -> None:
        """Set the rules.

        Args:
          fwd, bwd: the rules.
          symbolic_zeros: accepted for compatibility with Flax.
        """
        self._fwd, self._bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._fwd is None or self._bwd is None:
            raise TraceError(
                f"call of {format_code_position(self.fun)}",
                expected="a custom_vjp function with rules",
                got="no rules",
                fix=f"define the rules first: {getattr(self.fun, '__name__', 'f')}.defvjp(fwd, bwd)",
            )
        args, _ = bind_keywords(self.fun, args, kwargs)
        constants = {n % len(args) for n in self.nondiff_argnums}
        # Arguments without derivative are bound unless they hold variables, which the function may set.
        bound = [n for n in constants if not any(map(is_root, tree_flatten(args[n], is_leaf=is_root)[0]))]
        call, dynamic = bind_static(self.fun, args, bound)
        fwd, _ = bind_static(self._fwd, args, bound)
        bwd = functools.partial(self._bwd, *[args[n] for n in sorted(constants)])
        is_constant = [n in constants for n in range(len(args)) if n not in bound]
        parts = flatten_arguments((dynamic, {}), self._mode, "custom_vjp")
        pure = parts.to_pure()[0]
        function = Lifted(call, all_values=True, mode=self._mode)
        lifted = custom_rules.custom_vjp(function)
        backward = functools.partial(self._backward, function, bwd, pure, is_constant)
        lifted.defvjp(functools.partial(self._forward, function, fwd), backward)
        return write_back(parts, lifted(*pure), [function])

    def _forward(self, function: Lifted, fwd: Callable, *pure: Any) -> tuple:
        inside = InnerModules((pure, {}), self._mode)
        result = fwd(*inside.args[0])
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

    def _backward(
        self, function: Lifted, bwd: Callable, pure: tuple, is_constant: list[bool], residuals: Any, bars: Outputs
    ) -> tuple:
        outcome, values = bars.outcome, list(bars.values)
        of_variable = {o.number: x for o, x in zip(outcome.origins, values, strict=True) if o.kind == "variable"}
        differentiated = [m for m, constant in zip(pure, is_constant, strict=True) if not constant]
        saved = InnerModules(residuals).args
        if self._mode.updates:
            # The cotangents arrive in the structure of the outputs of the lifted function: results first, then
            # variables. A module in the result has no cotangent of its own, and gets the last value.
            rest = iter(values)
            out_bar = outcome.tree.unflatten([values[-1] if is_node else next(rest) for is_node in outcome.is_node])
            result = bwd(saved, (tuple(_get_state_bar(m, of_variable) for m in differentiated), out_bar))
        else:
            set_bars = {n: x for n, x in of_variable.items() if n in function.written[outcome]}
            options = {"updates_g": tuple(mask_arguments(differentiated, set_bars))}
            result = bwd(saved, build_result(outcome, values), **(options if _has_parameter(bwd, "updates_g") else {}))
        where = f"bwd rule of {format_code_position(self.fun)}"
        count = len(differentiated)
        if not isinstance(result, tuple | list) or len(result) != count:
            raise TreeError(
                where,
                expected=f"a tuple of {count} cotangents, one for each differentiable argument",
                got=f"{type(result).__name__} of {len(result)}" if isinstance(result, tuple) else repr(result),
                fix=f"return a tuple of length {count}, with None for arguments whose cotangent is zero",
            )
        results = iter(result)
        return tuple(
            None if constant else to_pure_cotangent(where, m, next(results)) for m, constant in zip(pure, is_constant)
        )


def _has_parameter(f: Callable, name: str) -> bool:
    parameters = inspect.signature(f).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def mask_arguments(pure: Sequence[Any], bars: Mapping[int, Any]) -> list[Any]:
    """The arguments with the cotangents of some variables by number, and None in place of all other leaves."""
    leaves, tree = tree_flatten(pure, is_leaf=is_pure)
    definition = next((x.definition for x in leaves if is_pure(x)), None)
    if definition is None:
        return [None] * len(pure)
    variables = (
        d.type.from_metadata(bars[i], {}) if i in bars else None for i, d in enumerate(definition.variable_defs)
    )
    root = build(definition.root, variables, itertools.repeat(None), {}, {})
    roots = root if definition.is_joint else [root]
    return tree.unflatten([roots[x.number] if is_pure(x) else None for x in leaves])


def _get_state_bar(argument: Any, of_variable: Mapping[int, Any]) -> Any:
    """For a module the state of the cotangents of its variables' new values; None for an array."""
    if not is_pure(argument):
        return None
    definitions, numbers = argument.definition.variable_defs, argument.variable_numbers
    bars = [definitions[i].type.from_metadata(of_variable[i], {}) for i in numbers]
    return make_state(get_leaf_paths(argument)[: len(bars)], bars)


@decorator_if_missing
def remat(
    f: Any = MISSING,
    *,
    prevent_cse: bool = True,
    static_argnums: int | tuple[int, ...] = (),
    policy: Callable[..., Any] | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Recompute the intermediate values of a function of modules for differentiation, instead of storing them.

    Args:
      f: the function. If omitted, a decorator is returned.
      prevent_cse, static_argnums, policy: as in `phalanx.checkpoint`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The function, or a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> float(nnx.grad(nnx.remat(lambda w: w * w))(nnx.Param(3.0)).value)
      6.0
    """
    numbers = parse_positions("nnx.remat, argument static_argnums", static_argnums)
    mode = resolve_mode(graph, graph_updates)

    @functools.wraps(f)
    def rematerialized(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = bind_static(f, args, numbers)
        lifted = transforms.checkpoint(Lifted(call, mode=mode), prevent_cse=prevent_cse, policy=policy)
        return call_lifted("remat", lifted, dynamic, kwargs, mode)

    return rematerialized


checkpoint = remat
