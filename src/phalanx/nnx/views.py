"""Views: models that share their variables with another model, and differ in static attributes such as modes.

A module may define a method `set_view`, which sets the attributes that a view can change. For modules without this
method, the attributes themselves are set.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib import clone, iter_objects, set_attributes
from phalanx.nnx.objects import Pytree
from phalanx.typing import PyTree

# Descriptions of the modes of the library's layers, which are plain attributes.
_MODES = {
    "deterministic": "disable dropout.",
    "use_running_average": "normalize with the running statistics instead of those of the input.",
}


def view(
    node: PyTree, /, *, only: Filter = ..., raise_if_not_found: bool = True, graph: bool | None = None, **kwargs: Any
) -> Any:
    """Return a module that shares its variables with another one, and differs in static attributes such as modes.

    Args:
      node: a module, or a tree of modules.
      only: the modules to change.
      raise_if_not_found: whether to raise an error for names that no module has.
      **kwargs: values by name: parameters of `set_view` for modules with this method, attributes for other modules.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The module, or the tree of modules.

    Raises:
      ArgumentError: no module has an attribute or a parameter of `set_view` of a name.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Dropout(0.5)
      >>> nnx.view(model, deterministic=True).deterministic, model.deterministic
      (True, False)
    """
    out = clone(node, variables=False, graph=graph)
    remaining = set(kwargs)
    for module in iter_objects(out, only):
        # `set_view` has precedence over attributes of the same name.
        options = _get_options(module).keys() & kwargs.keys()
        if options:
            module.set_view(**{k: kwargs[k] for k in options})
        attributes = {name for name in kwargs.keys() - options if hasattr(module, name)}
        for name in attributes:
            setattr(module, name, kwargs[name])
        remaining -= options | attributes
    if remaining and raise_if_not_found:
        raise ArgumentError(
            "view",
            expected="attributes or parameters of set_view of some module",
            got=", ".join(sorted(remaining)),
            fix="correct the name or the filter (nnx.view_info(model) lists the names), or pass "
            "raise_if_not_found=False",
        )
    return out


def with_attributes(
    node: PyTree, /, *, only: Filter = ..., raise_if_not_found: bool = True, graph: bool | None = None, **kwargs: Any
) -> Any:
    """Return a module that shares its variables with another one, and differs in attributes.

    Args:
      node: a module, or a tree of modules.
      only: the modules to change.
      raise_if_not_found: whether to raise an error for attributes that no module has.
      **kwargs: values by attribute, set in the modules that have the attribute.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The module, or the tree of modules.

    Raises:
      ArgumentError: no module has one of the attributes.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Dropout(0.5)
      >>> nnx.with_attributes(model, rate=0.1).rate, model.rate
      (0.1, 0.5)
    """
    out = clone(node, variables=False, graph=graph)
    set_attributes(out, only, raise_if_not_found=raise_if_not_found, where="with_attributes", **kwargs)
    return out


def view_info(node: PyTree, /, *, only: Filter = ..., graph: bool | None = None) -> str:
    """Describe the options that `view` can change, for each class of modules in a model.

    Args:
      node: a module, or a tree of modules.
      only: the modules to describe.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The text.

    Examples:
      >>> from phalanx import nnx
      >>> print(nnx.view_info(nnx.Dropout(0.5)))
      Dropout:
        deterministic: bool
          disable dropout.
    """
    by_class: dict[str, list[str]] = {}
    for module in iter_objects(node, only):
        lines = []
        for name, parameter in _get_options(module).items():
            lines.append(f"  {name}: {_format_annotation(parameter.annotation)} = {parameter.default!r}")
            lines += [f"    {line}" for line in _get_argument_doc(type(module).set_view, name)]
        modes = [f"  {k}: bool\n    {text}" for k, text in _MODES.items() if hasattr(module, k)]
        if lines or modes:
            by_class.setdefault(type(module).__qualname__, lines or modes)
    return "\n".join(line for name in sorted(by_class) for line in (f"{name}:", *by_class[name]))


def _get_options(module: Pytree) -> dict[str, inspect.Parameter]:
    """The parameters of `set_view`, if the class has this method."""
    set_view = getattr(type(module), "set_view", None)
    parameters = [] if set_view is None else list(inspect.signature(set_view).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _format_annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "any value"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _get_argument_doc(function: Callable, name: str) -> list[str]:
    """The lines about one argument in the section `Args` of a docstring."""
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines]
    for n, line in enumerate(lines):
        head, colon, rest = line.strip().partition(":")
        if colon and head == name:
            end = next((k for k in range(n + 1, len(lines)) if indents[k] <= indents[n]), len(lines))
            return [rest.strip(), *(line.strip() for line in lines[n + 1 : end])]
    return []
