"""`capture`: return the values that modules sow during one call, without changing the modules.

During the call, each module has an additional attribute with variables for the sown values. All transformations
propagate these variables like any others. The names of sown values may be the names of methods.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.graphlib import Path, State, get_graph
from phalanx.nnx.inspection.method_observer import notify_outermost_calls, observing
from phalanx.nnx.module import CAPTURED, Module, iter_modules
from phalanx.nnx.objects import Pytree, get_attributes
from phalanx.nnx.variable import Variable
from phalanx.tree import tree_leaves


def capture(
    fn: Callable | type[Variable],
    *var_types: type[Variable],
    init: State | None = None,
    method_outputs: type[Variable] | None = None,
) -> Any:
    """Return a function that also returns the values that modules sow, and does not store them in the modules.

    Args:
      fn: a module, a method of a module, or a function with one module among its arguments. If it is a variable type, a
        decorator is returned.
      *var_types: the types of variables to capture, such as `nnx.Intermediate`.
      init: variables that the modules have during the call, such as perturbations to differentiate with respect to.
      method_outputs: a type of variable for the results of all methods, which are sown under the names of the methods.

    Returns:
      A function that returns `(result, state, ...)`, with a state for each type, or the result alone if there is no
      type. Other sown values are dropped.

    Raises:
      ArgumentError: neither a type nor `init` is given, or the arguments of a call do not contain exactly one module.

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
    if not var_types and init is None:
        raise ArgumentError(
            "nnx.capture, argument var_types",
            expected="at least one type of variable",
            got="none",
            fix="pass the type of the sown values: nnx.capture(model, nnx.Intermediate)",
        )
    bound = fn if isinstance(fn, Pytree) else getattr(fn, "__self__", None)

    @functools.wraps(fn if not isinstance(fn, Pytree) else type(fn).__call__)  # type: ignore[operator]
    def call(*args: Any, **kwargs: Any) -> Any:
        model = bound if isinstance(bound, Pytree) else _get_only_module(args, kwargs)
        modules = list(iter_modules(model))
        # Nested captures each see only the values sown in their own call.
        outer = [get_attributes(m).get(CAPTURED) for _, m in modules]  # of an enclosing `capture`
        # Initial values are given per module, as variables of the types that `perturb` looks up.
        initial = _group_by_module(init)
        for path, module in modules:
            setattr(module, CAPTURED, (*(kind({}) for kind in var_types), *initial.get(path, ())))
        try:
            out = _call_observed(fn, args, kwargs, method_outputs)
            states = [_collect(modules, n) for n in range(len(var_types))]
        finally:
            for (_, module), before in zip(modules, outer):
                if before is None:
                    delattr(module, CAPTURED)
                else:
                    setattr(module, CAPTURED, before)
        return (out, *states) if states else out

    return call


def _group_by_module(init: State | None) -> dict[Path, tuple[Variable, ...]]:
    """For the path of each module, one variable of each type with a dictionary of the initial values by name."""
    groups: dict[Path, dict[type[Variable], dict]] = {}
    for path, v in init.flat_state() if init is not None else ():
        groups.setdefault(path[:-1], {}).setdefault(type(v), {})[path[-1]] = v.get_raw_value()
    return {path: tuple(kind(values) for kind, values in kinds.items()) for path, kinds in groups.items()}


def _collect(modules: Sequence[tuple[Path, Module]], number: int) -> State:
    """The values that all modules have sown in the variable of this number."""
    captured = [(path, getattr(m, CAPTURED)[number]) for path, m in modules]
    return State.from_flat_path(
        {(*path, name): type(v)(value) for path, v in captured for name, value in v.get_raw_value().items()}
    )


def _get_only_module(args: tuple, kwargs: Mapping[str, Any]) -> Pytree:
    """The module among the arguments; modules inside another module do not count."""
    is_object = lambda x: isinstance(x, Pytree)
    modules = {id(x): x for x in tree_leaves((args, kwargs), is_leaf=is_object) if isinstance(x, Module)}
    inner = {id(n) for m in modules.values() for n in get_graph(m).nodes}
    outer = [m for i, m in modules.items() if i not in inner]
    if len(outer) != 1:
        raise ArgumentError(
            "nnx.capture, arguments of the call",
            expected="one module",
            got=f"{len(outer)} modules",
            fix="capture a bound method such as model.__call__, or a function with one module among its arguments",
        )
    return outer[0]


def _call_observed(fn: Callable, args: tuple, kwargs: dict[str, Any], kind: type[Variable] | None) -> Any:
    """Call a function, and sow the result of each method if a type of variable is given."""
    if kind is None:
        return fn(*args, **kwargs)

    def note(module: Any, name: str, args: tuple, kwargs: dict, out: Any) -> None:
        module.sow(kind, name, out)

    with observing(notify_outermost_calls(note)):
        return fn(*args, **kwargs)
