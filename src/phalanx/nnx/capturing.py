"""`capture`: what modules sow during one call, as a result of the call instead of a change of the modules.

Builds on `functional.pop` for taking the variables out again and on `observing` for the results of methods.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx.core.errors import ArgumentError
from phalanx.nnx.functional import graph_of, pop, update
from phalanx.nnx.module import Module
from phalanx.nnx.objects import Object
from phalanx.nnx.observing import observing, outermost
from phalanx.nnx.states import State
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
      A function that gives `(result, state, ...)`, a state for each kind, the first match counting.

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
        kept = pop(model, *var_types)
        try:
            if init is not None:
                update(model, init.map(lambda path, v: v.copy() if isinstance(v, Variable) else v))
            out = _called(fn, args, kwargs, method_outputs)
        finally:
            states = _states(pop(model, *var_types))
            for state in _states(kept):
                update(model, state)
        return out, *states

    return capturing


def _states(popped: Any) -> tuple[State, ...]:
    return popped if isinstance(popped, tuple) else (popped,)


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
