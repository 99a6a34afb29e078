"""`capture`: what modules sow during one call, as a result of the call instead of a change of the modules.

For the call each module has one more attribute, of variables that hold what is sown by name, so that names may be those
of methods and all transformations bring them along. Builds on `observing` for the results of methods.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx.core.errors import ArgumentError
from phalanx.nnx.functional import graph_of, iter_graph
from phalanx.nnx.module import CAPTURED, Module
from phalanx.nnx.objects import Object
from phalanx.nnx.observing import observing, outermost
from phalanx.nnx.states import Path, State
from phalanx.nnx.variable import Variable
from phalanx.tree import tree_leaves


def capture(
    fn: Any, *var_types: type[Variable], init: State | None = None, method_outputs: type[Variable] | None = None
) -> Any:
    """A function that also gives the variables that modules make while it runs, and leaves the modules without them.

    Args:
      fn: a module, a method of one, or a function with modules among its arguments. A kind of variable in its place
        makes this a decorator.
      *var_types: the kinds of variables, such as `nnx.Intermediate`; at least one.
      init: variables that the module is given for the call, such as the perturbations that a gradient is wanted of.
      method_outputs: also store what each method of a module gives, as variables of this kind under its name.

    Returns:
      A function that gives `(result, state, ...)`, a state for each kind; what is sown of other kinds is dropped.

    Raises:
      ArgumentError: no kind is given, or a call has no module or several.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Model(nnx.Module):
      ...     def __call__(self, x):
      ...         self.sow(nnx.Intermediate, "seen", x)
      ...         return 2 * x
      >>> model = Model()
      >>> y, state = nnx.capture(model, nnx.Intermediate)(jnp.ones(2))
      >>> y.tolist(), state.seen.value[0].tolist(), hasattr(model, "seen")
      ([2.0, 2.0], [1.0, 1.0], False)
    """
    if isinstance(fn, type) and issubclass(fn, Variable):
        kinds = (fn, *var_types)
        return lambda f: capture(f, *kinds, init=init, method_outputs=method_outputs)
    if not var_types:
        raise ArgumentError("nnx.capture", expected="at least one kind of variable", got="none",
                            mend="pass nnx.Intermediate")  # fmt: skip
    bound = fn if isinstance(fn, Object) else getattr(fn, "__self__", None)

    @functools.wraps(fn if not isinstance(fn, Object) else type(fn).__call__)  # type: ignore[operator]
    def capturing(*args: Any, **kwargs: Any) -> tuple:
        model = bound if isinstance(bound, Object) else _only_module(args, kwargs)
        modules = [(path, m) for path, m in iter_graph(model) if isinstance(m, Module)]
        outer = [m.__dict__.get(CAPTURED) for _, m in modules]
        given = _by_module(init)
        for path, module in modules:
            setattr(module, CAPTURED, (*(kind({}) for kind in var_types), *given.get(path, ())))
        try:
            out = _called(fn, args, kwargs, method_outputs)
            states = [_taken(modules, n) for n in range(len(var_types))]
        finally:
            for (_, module), before in zip(modules, outer):
                if before is None:
                    delattr(module, CAPTURED)
                else:
                    setattr(module, CAPTURED, before)
        return out, *states

    return capturing


def _by_module(init: State | None) -> dict[Path, tuple[Variable, ...]]:
    """For each module that is given variables, by its path, one of each kind that holds them by name."""
    held: dict[Path, dict[type[Variable], dict]] = {}
    for path, v in init.flat_state() if init is not None else ():
        held.setdefault(path[:-1], {}).setdefault(type(v), {})[path[-1]] = v.get_raw_value()
    return {path: tuple(kind(values) for kind, values in kinds.items()) for path, kinds in held.items()}


def _taken(modules: list, number: int) -> State:
    """What modules hold of one kind, as a state."""
    held = [(path, getattr(m, CAPTURED)[number]) for path, m in modules]
    return State.from_flat_path(
        {(*path, name): type(v)(value) for path, v in held for name, value in v.get_raw_value().items()}
    )


def _only_module(args: tuple, kwargs: dict) -> Object:
    is_object = lambda x: isinstance(x, Object)
    found = {id(x): x for x in tree_leaves((args, kwargs), is_leaf=is_object) if isinstance(x, Module)}
    inner = {id(n) for m in found.values() for n in graph_of(m).nodes}
    outer = [m for i, m in found.items() if i not in inner]
    if len(outer) != 1:
        raise ArgumentError("nnx.capture, arguments of the call", expected="one module",
                            got=f"{len(outer)} modules", mend="capture a method, or a function of one")  # fmt: skip
    return outer[0]


def _called(fn: Callable, args: tuple, kwargs: dict, kind: type[Variable] | None) -> Any:
    if kind is None:
        return fn(*args, **kwargs)

    def note(module: Any, name: str, args: tuple, kwargs: dict, out: Any) -> None:
        module.sow(kind, name, out)

    with observing(outermost(note)):
        return fn(*args, **kwargs)
