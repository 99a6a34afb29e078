"""`nnx.grad` and `nnx.value_and_grad`.

Variables selected by a filter (by default parameters) are differentiated. Gradients of a module are a `State` with the
same paths and variable types.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from phalanx import transforms
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    format_code_position,
    is_sequence,
    normalize_positions,
    parse_positions,
)
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graphlib.states import Path, State, format_path
from phalanx.nnx.objects import ROOTS, Object
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    LiftedArguments,
    Outputs,
    decorator_if_missing,
    flatten_arguments,
    write_back,
)
from phalanx.nnx.transforms.state_axes import iter_all_paths
from phalanx.nnx.variable import MISSING, Param, Variable


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
    """

    def __init__(self, where: str, parts: LiftedArguments, argnums: ArgNums):
        sizes = [t.num_leaves for t in parts.tree.children()[0].children()]
        self.parts = parts
        self.is_single = isinstance(argnums, DiffState) or not is_sequence(argnums)
        filters = _normalize_argnums(where, argnums, len(sizes))
        self.numbers = list(filters)
        argument_of = [n for n, size in enumerate(sizes) for _ in range(size)]
        # The argument of each root; modules in keyword arguments have the position after the last one.
        roots = [n for n, x in zip(argument_of, parts.leaves) if isinstance(x, ROOTS)]
        roots += [len(sizes)] * (len(parts.roots) - len(roots))
        leaves = list(zip(parts.paths(), parts.variables_and_arrays(), strict=True))
        self.is_selected = [
            roots[root] in filters and _is_selected(filters[roots[root]], parts.roots[root], path, leaf)
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
                selected = argument in filters and _is_selected(filters[argument], root, path, variable)
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
        arguments = parts.tree.unflatten(out)[0]
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
    return filters


def _is_selected(filter: Filter, root: object, path: Path, leaf: Any) -> bool:
    if filter is None:
        # Without a filter, the parameters of a module are selected, and all leaves of other arguments.
        return isinstance(leaf, Param) if isinstance(root, Object) else True
    return to_predicate(filter)(path, leaf)


def _gradient_of_root(root: object, bars: Sequence[tuple[Path, Any]]) -> Any:
    return State.from_flat_path(bars) if isinstance(root, Object) else bars[0][1] if bars else None


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


class _Loss:
    """The differentiated function: from the selected values to the loss, with all outputs as auxiliary data."""

    def __init__(self, fun: Callable, selection: _Selection, has_aux: bool):
        self._fun, self._selection, self._has_aux = fun, selection, has_aux
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, Outputs]:
        inside = InnerModules(self._selection.to_pure(inputs))
        args, kwargs = inside.args
        out = self._fun(*args, **kwargs)
        loss = split_aux(self._fun, out)[0] if self._has_aux else out
        return loss.value if isinstance(loss, Variable) else loss, inside.outputs(out)


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
      reduce_axes, graph, graph_updates: accepted for compatibility with Flax.

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

    @api_boundary
    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple:
        parts = flatten_arguments((args, kwargs))
        selection = _Selection("grad", parts, argnums)
        differentiated = transforms.value_and_grad(
            _Loss(f, selection, has_aux), has_aux=True, holomorphic=holomorphic, allow_int=allow_int
        )
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
      reduce_axes, graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      A function that returns the gradient, or `(gradient, aux)` if `has_aux`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> model = nnx.Dict(w=nnx.Param(jnp.array(2.0)), n=nnx.Cache(jnp.array(5.0)))
      >>> float(nnx.grad(lambda w, n: w * w * n)(model.w, model.n).value)
      20.0
    """
    both = value_and_grad(f, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)

    @api_boundary
    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, bar = both(*args, **kwargs)
        return (bar, value[1]) if has_aux else bar

    return gradient
