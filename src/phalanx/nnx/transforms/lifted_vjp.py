"""`nnx.vjp` and `nnx.jvp`: products with the derivative of a function of modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from phalanx import numpy as jnp, transforms
from phalanx.core import TreeError, dtypes, get_aval
from phalanx.nnx.graphlib.split_merge import state
from phalanx.nnx.graphlib.states import State, format_path, to_flat_state
from phalanx.nnx.objects import ROOTS, Object
from phalanx.nnx.transforms.lifted_grad import split_aux
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    Outputs,
    PureModule,
    flatten_arguments,
    get_leaf_paths,
    write_back,
)
from phalanx.nnx.variable import MISSING, Variable, as_pure
from phalanx.tree import tree_flatten
from phalanx.typing import PyTree


class _PureFunction:
    """The differentiated function: from pure arguments to its result, with all outputs as auxiliary data."""

    def __init__(self, fun: Callable, has_aux: bool):
        self._fun, self._has_aux = fun, has_aux
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, *pure: Any) -> tuple[Any, Outputs]:
        inside = InnerModules((pure, {}))
        out = self._fun(*inside.args[0])
        return as_pure(split_aux(self._fun, out)[0] if self._has_aux else out), inside.outputs(out)


def vjp(
    f: Callable,
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
      reduce_axes, graph, graph_updates: accepted for compatibility with Flax.

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
    if not primals:
        return functools.partial(vjp, f, has_aux=has_aux)
    parts = flatten_arguments((primals, {}))
    _, pure_vjp, outputs = transforms.vjp(_PureFunction(f, has_aux), *parts.to_pure()[0], has_aux=True)

    def f_vjp(cotangent: PyTree) -> tuple:
        return InnerModules(pure_vjp(as_pure(cotangent))).args

    out = write_back(parts, outputs)
    return (out[0], f_vjp, out[1]) if has_aux else (out, f_vjp)


def jvp(
    f: Callable,
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
      graph, graph_updates: accepted for compatibility with Flax.

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
    if primals is MISSING:
        return functools.partial(jvp, f, has_aux=has_aux)
    parts = flatten_arguments((tuple(primals), {}))
    pure = parts.to_pure()[0]
    directions = _to_pure_tangents(pure, tuple(tangents))
    _, out_dot, outputs = transforms.jvp(_PureFunction(f, has_aux), pure, directions, has_aux=True)
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
        out.append(tree.unflatten([_fill_tangent(x, t) if type(x) is PureModule else t for x, t in pairs]))
    return tuple(out)


def _describe(tree: PyTree) -> str:
    count = len(tree_flatten(tree, is_leaf=_is_leaf)[0])
    return f"{type(tree).__name__} of {count} {'leaf' if count == 1 else 'leaves'}"


def _fill_tangent(primal: PureModule, tangent: PyTree) -> PureModule:
    bars = to_pure_cotangent("jvp, argument tangents", primal, tangent).values
    values = []
    for x, bar in zip(primal.values, bars, strict=True):
        # Integers have tangents of dtype float0, as everywhere in Phalanx.
        is_inexact = dtypes.issubdtype(get_aval(x).dtype, np.inexact)
        zero = jnp.zeros_like(x) if is_inexact else np.zeros(np.shape(x), dtypes.float0)
        values.append(bar if is_inexact and bar is not None else zero)
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
    if type(argument) is not PureModule or bar is None:
        return bar
    paths = get_leaf_paths(argument)
    if isinstance(bar, Variable):
        bars: Any = {(): bar}
    else:
        bars = to_flat_state(state(bar) if isinstance(bar, Object) else bar)
    unknown = [format_path(p) for p in bars.keys() if p not in paths]
    if unknown:
        raise TreeError(
            where,
            expected=f"a state with paths of the module, such as {format_path(paths[0]) or 'none'}",
            got=f"one with {', '.join(unknown)}",
            fix="start from nnx.state(module), or from the state in inputs_bar, and set the values in it",
        )
    values = [bars.get(p) for p in paths]
    return PureModule(
        argument.definition, argument.number, [x.raw_value if isinstance(x, Variable) else x for x in values]
    )
