"""Views: models that share their variables with another model, and differ in static attributes such as modes.

The method `set_view` of a module sets the options that a view can change; its parameters are their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib import clone, iter_objects, set_attributes
from phalanx.typing import PyTree


def view(
    node: PyTree, /, *, only: Filter = ..., raise_if_not_found: bool = True, graph: bool | None = None, **kwargs: Any
) -> Any:
    """Return a module that shares its variables with another one, and differs in static attributes such as modes.

    Args:
      node: a module, or a tree of modules.
      only: the modules to change.
      raise_if_not_found: whether to raise an error for options that no module has.
      **kwargs: values by option, for the methods `set_view` with a parameter of this name.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The module, or the tree of modules.

    Raises:
      ArgumentError: no method `set_view` has a parameter of a name.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Dropout(0.5)
      >>> nnx.view(model, deterministic=True).deterministic, model.deterministic
      (True, False)
    """
    out = clone(node, variables=False, graph=graph)
    remaining = set(kwargs)
    for module, options in _iter_options("view", out, only, graph):
        takes_any = any(p.kind is p.VAR_KEYWORD for p in options)
        names = kwargs.keys() if takes_any else kwargs.keys() & {p.name for p in options}
        module.set_view(**{name: kwargs[name] for name in names})
        remaining -= names
    if remaining and raise_if_not_found:
        raise ArgumentError(
            "view",
            expected="parameters of set_view of some module",
            got=", ".join(sorted(remaining)),
            fix="correct the name or the filter (nnx.view_info(model) lists the names), change other attributes with "
            "nnx.with_attributes, or pass raise_if_not_found=False",
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
    set_attributes("with_attributes", out, only, raise_if_not_found, graph, kwargs)
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
        deterministic: bool | None = None
          whether to return the input unchanged.
    """
    by_class: dict[str, list[str]] = {}
    for module, options in _iter_options("view_info", node, only, graph):
        lines = by_class[type(module).__qualname__] = []
        for option in options:
            lines.append(f"  {_format_option(option)}")
            lines += [f"    {line}" for line in _get_argument_doc(type(module).set_view, option.name)]
    return "\n".join(line for name in sorted(by_class) for line in (f"{name}:", *by_class[name]))


def _iter_options(
    where: str, node: PyTree, only: Filter, graph: bool | None
) -> Iterator[tuple[Any, list[inspect.Parameter]]]:
    """Iterate over the modules with a method `set_view`, and its parameters."""
    for module in iter_objects(where, node, only, graph):
        if hasattr(module, "set_view"):
            yield module, list(inspect.signature(module.set_view).parameters.values())


def _format_option(option: inspect.Parameter) -> str:
    kind = option.annotation if isinstance(option.annotation, str) else inspect.formatannotation(option.annotation)
    text = option.name if option.annotation is option.empty else f"{option.name}: {kind}"
    return text if option.default is option.empty else f"{text} = {option.default}"


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
