"""Views: models that share their variables with another one and differ in static attributes, such as modes.

A module says by a method `set_view` what a view may change of it; of other modules the attributes of that name are set.
Builds on `functional`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from phalanx.core.errors import ArgumentError
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.functional import clone, iter_graph, set_attributes
from phalanx.nnx.objects import Object

# What the layers know of modes, which are plain attributes.
_MODES = {
    "deterministic": "drop nothing.",
    "use_running_average": "normalise with the stored statistics, not with those of the input.",
}


def view(
    node: Any, /, *, only: Filter = ..., raise_if_not_found: bool = True, graph: bool | None = None, **kwargs: Any
) -> Any:
    """A module that shares its variables with another one and differs in static attributes, such as modes.

    A module with a method `set_view` is given those of the values that the method takes; of others attributes are set.

    Args:
      node: a module, or a tree of modules.
      only: in which modules.
      raise_if_not_found: refuse names that mean nothing to any module.
      **kwargs: names and values.
      graph: taken for compatibility.

    Returns:
      The module, or the tree of modules.

    Raises:
      ArgumentError: a name means nothing to any module.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Dropout(0.5)
      >>> nnx.view(model, deterministic=True).deterministic, model.deterministic
      (True, False)
    """
    out = clone(node, variables=False)
    remaining = set(kwargs)
    for module in _modules(out, only):
        taken = _options(module).keys() & kwargs.keys()
        if taken:
            module.set_view(**{k: kwargs[k] for k in taken})
        for name in kwargs.keys() - taken:
            if hasattr(module, name):
                setattr(module, name, kwargs[name])
                taken.add(name)
        remaining -= taken
    if remaining and raise_if_not_found:
        raise ArgumentError(
            "view",
            expected="what some module has or takes by set_view",
            got=", ".join(sorted(remaining)),
            mend="correct the name or the filters, see nnx.view_info, or pass raise_if_not_found=False",
        )
    return out


def with_attributes(
    node: Any, /, *, only: Filter = ..., raise_if_not_found: bool = True, graph: bool | None = None, **kwargs: Any
) -> Any:
    """A module that shares its variables with another one and differs in attributes.

    Args:
      node: a module, or a tree of modules.
      only: in which modules.
      raise_if_not_found: refuse attributes that no module has.
      **kwargs: attributes and their values, set where a module has them.
      graph: taken for compatibility.

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
    out = clone(node, variables=False)
    set_attributes(out, only, raise_if_not_found=raise_if_not_found, where="with_attributes", **kwargs)
    return out


def view_info(node: Any, /, *, only: Filter = ..., graph: bool | None = None) -> str:
    """What `view` may change of a model, for each class of its modules, with what the classes say of it.

    Args:
      node: a module, or a tree of modules.
      only: in which modules.
      graph: taken for compatibility.

    Returns:
      The text.

    Examples:
      >>> from phalanx import nnx
      >>> print(nnx.view_info(nnx.Dropout(0.5)))
      Dropout:
        deterministic: bool
          drop nothing.
    """
    found: dict[str, list[str]] = {}
    for module in _modules(node, only):
        lines = []
        for name, parameter in _options(module).items():
            kind = parameter.annotation if isinstance(parameter.annotation, str) else _text(parameter.annotation)
            lines.append(f"  {name}: {kind} = {parameter.default!r}")
            lines += [f"    {line}" for line in _documented(type(module).set_view, name)]  # type: ignore[attr-defined]
        if not lines:
            lines = [f"  {k}: bool\n    {text}" for k, text in _MODES.items() if hasattr(module, k)]
        if lines:
            found.setdefault(type(module).__qualname__, lines)
    return "\n".join(line for name in sorted(found) for line in (f"{name}:", *found[name]))


def _modules(node: Any, only: Filter) -> Iterator[Any]:
    means = to_predicate(only)
    return (m for path, m in iter_graph(node) if isinstance(m, Object) and means(path, m))


def _options(module: Any) -> dict[str, inspect.Parameter]:
    set_view = getattr(type(module), "set_view", None)
    if set_view is None:
        return {}
    parameters = list(inspect.signature(set_view).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "anything"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _documented(set_view: Any, name: str) -> list[str]:
    """What the `Args` of a docstring say of one argument."""
    lines = inspect.cleandoc(set_view.__doc__ or "").splitlines()
    depths = [len(line) - len(line.lstrip()) for line in lines]
    for n, line in enumerate(lines):
        head, colon, rest = line.strip().partition(":")
        if colon and head == name:
            end = next((k for k in range(n + 1, len(lines)) if depths[k] <= depths[n]), len(lines))
            return [rest.strip(), *(line.strip() for line in lines[n + 1 : end])]
    return []
