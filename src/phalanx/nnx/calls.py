"""Transformations that only change how a function of modules is called: `remat`, `eval_shape`, `cond` and their kin.

Each is the ordinary transformation of the lifted function. Branches give back the values of all variables, so that
their results agree; none may change a structure unless all change it alike.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax, spmd, transforms
from phalanx.core.aval import ShapeDtypeStruct, aval_of
from phalanx.core.errors import positions
from phalanx.nnx.functional import map as map_graph
from phalanx.nnx.lifting import Lifted, body_for, bring_back, gather
from phalanx.nnx.objects import is_array
from phalanx.nnx.placing import placed
from phalanx.nnx.variable import MISSING, Variable
from phalanx.tree import tree_flatten, tree_map


def remat(
    f: Any = MISSING,
    *,
    prevent_cse: bool = True,
    static_argnums: int | tuple[int, ...] = (),
    policy: Callable | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function of modules whose inner values are not kept for differentiation but computed again.

    Args:
      f: the function. Left out, a decorator is given.
      prevent_cse, static_argnums, policy: as in `phalanx.checkpoint`.
      graph, graph_updates: taken for compatibility.

    Returns:
      The function, or a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> float(nnx.grad(nnx.remat(lambda w: w * w))(nnx.Param(3.0)).value)
      6.0
    """
    if f is MISSING:
        return functools.partial(remat, prevent_cse=prevent_cse, static_argnums=static_argnums, policy=policy)
    numbers = positions("nnx.remat, argument static_argnums", static_argnums)

    @functools.wraps(f)
    def rematerialized(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = _without_static(f, args, numbers)
        parts = gather((dynamic, kwargs))
        own, named = parts.shadowed()
        lifted = transforms.checkpoint(Lifted(call), prevent_cse=prevent_cse, policy=policy)
        return bring_back(parts, lifted(*own, **named))

    return rematerialized


checkpoint = remat


def _without_static(f: Callable, args: tuple, numbers: tuple[int, ...]) -> tuple[Callable, tuple]:
    """The function of the other arguments, and these."""
    fixed = {n % len(args): args[n] for n in numbers}

    @functools.wraps(f)
    def call(*own: Any, **named: Any) -> Any:
        given = iter(own)
        return f(*(fixed[i] if i in fixed else next(given) for i in range(len(args))), **named)

    return call, tuple(x for i, x in enumerate(args) if i not in fixed)


def eval_shape(
    f: Callable, *args: Any, graph: bool | None = None, graph_updates: bool | None = None, **kwargs: Any
) -> Any:
    """What a function of modules gives, as types, without computing anything; modules hold types, too.

    Args:
      f: the function.
      *args, **kwargs: its arguments; they are not changed.
      graph, graph_updates: taken for compatibility.

    Returns:
      The result. Under a mesh, the types of variables with `out_sharding` know their shardings.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.eval_shape(lambda: nnx.Param(jnp.zeros((1000, 1000))))
      Param(value=ShapeDtypeStruct(shape=(1000, 1000), dtype=float32))
    """
    parts = gather(map_graph(lambda path, x: tree_map(_type_of, x), _arrays_only((args, kwargs))))
    own, named = parts.shadowed()
    made = bring_back(parts, spmd.eval_shape(Lifted(f), *own, **named))
    for variable in gather(made).graph.variables:
        if isinstance(variable.raw_value, ShapeDtypeStruct) and (names := variable.sharding_names) is not None:
            known = variable.get_metadata()
            variable.set_raw_value(placed(variable.raw_value, names, known.get("mesh"), known.get("sharding_rules")))
    return made


def _arrays_only(tree: Any) -> Any:
    """The arguments with their scalars as arrays' types, so that the walk takes them for leaves."""
    leaves, structure = tree_flatten(tree, is_leaf=lambda x: isinstance(x, Variable))
    return structure.unflatten([x if isinstance(x, Variable) else _type_of(x) for x in leaves])


def _type_of(x: Any) -> Any:
    if isinstance(x, ShapeDtypeStruct):
        return x
    if not is_array(x) and not isinstance(x, int | float | complex):
        return x
    aval = aval_of(x)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _branch(fun: Callable) -> Lifted:
    return body_for(fun, "branch", lambda call: Lifted(call, every=True))


def cond(
    pred: Any,
    true_fun: Callable,
    false_fun: Callable,
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of two functions of modules, chosen when the program runs.

    Args:
      pred: a boolean or numeric scalar.
      true_fun, false_fun: functions of the operands, with results of the same structure and types.
      *operands: their arguments.
      graph, graph_updates: taken for compatibility.

    Returns:
      The result of the chosen function; the changes it makes to modules are made to the caller's.

    Raises:
      TreeError: the results differ in structure, or only one function changes a module's structure.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> n = nnx.Variable(jnp.array(1.0))
      >>> nnx.cond(True, lambda n: n.set_value(n + 1), lambda n: None, n)
      >>> float(n.value)
      2.0
    """
    parts = gather((operands, {}))
    own, _ = parts.shadowed()
    branches = _branch(true_fun), _branch(false_fun)
    return bring_back(parts, lax.cond(_plain(pred), *branches, *own), branches)


def switch(
    index: Any,
    branches: Sequence[Callable],
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of several functions of modules, chosen by number when the program runs.

    Args:
      index: an integer scalar, clamped to the number of branches.
      branches: functions of the operands, with results of the same structure and types.
      *operands: their arguments.
      graph, graph_updates: taken for compatibility.

    Returns:
      The result of the chosen function; the changes it makes to modules are made to the caller's.

    Raises:
      TreeError: the results differ in structure, or only some functions change a module's structure.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> w = nnx.Param(jnp.array(3.0))
      >>> float(nnx.switch(1, [lambda w: w + 0, lambda w: w * w], w))
      9.0
    """
    parts = gather((operands, {}))
    own, _ = parts.shadowed()
    lifted = [_branch(f) for f in branches]
    return bring_back(parts, lax.switch(_plain(index), lifted, *own), lifted)


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Variable) else x


def cached_partial(
    f: Callable, *cached_args: Any, graph: bool | None = None, graph_updates: bool | None = None
) -> Callable:
    """A function with its first arguments given; since unchanged modules are never walked again, that is all it takes.

    Args:
      f: the function.
      *cached_args: its first arguments.
      graph, graph_updates: taken for compatibility.

    Returns:
      The function of the other arguments.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.cached_partial(lambda w, x: w * x, nnx.Param(2.0))(3.0)
      6.0
    """
    return functools.partial(f, *cached_args)


def make_jaxpr(
    f: Any = MISSING,
    *,
    static_argnums: int | Sequence[int] = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function that gives the program of a function of modules, without changing them.

    Args:
      f: the function. Left out, a decorator is given.
      static_argnums: arguments whose values are part of the program.
      graph, graph_updates: taken for compatibility.

    Returns:
      A function from arguments to the `Jaxpr`: its inputs are the variables of each module by path and the arrays, its
      results those of the function, then the new values of the variables that it changes.

    Examples:
      >>> from phalanx import nnx
      >>> print(nnx.make_jaxpr(lambda w: w * 2.0)(nnx.Param(3.0)))
      { lambda ; a:~f32[]. let
          b:~f32[] = mul a 2.0:~f32[]
        in (b,) }
    """
    if f is MISSING:
        return functools.partial(make_jaxpr, static_argnums=static_argnums)
    numbers = positions("nnx.make_jaxpr, argument static_argnums", static_argnums)

    @functools.wraps(f)
    def jaxpr_maker(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = _without_static(f, args, numbers)
        own, named = gather((dynamic, kwargs)).shadowed()
        return spmd.make_jaxpr(Lifted(call))(*own, **named)

    return jaxpr_maker


def set_graph_mode(value: bool, /) -> contextlib.AbstractContextManager:
    """Taken for compatibility: what modules share is always kept.

    Args:
      value: whether it is to be kept.

    Returns:
      A context manager that changes nothing.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.set_graph_mode(True):
      ...     pass
    """
    return contextlib.nullcontext()


set_graph_updates = set_graph_mode  # changes of structure likewise
