"""Docstrings of families: what the functions of one have in common is written once.

A function keeps the line that is its own, under its name and signature; a decorator adds the rest. Builds on nothing;
called where functions come in families. `docs/tables.py` shows the whole text on the reference pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def family(rest: str, **usual: str) -> Callable[..., Any]:
    """Make the decorator that completes the docstrings of a family.

    Args:
      rest: what follows a function's own text. `{name}` in it is the function's name, `{parameters}` the names of its
        parameters; others are what the decorator is given.
      **usual: what these are where the decorator is not given them.

    Returns:
      The decorator, which takes texts by name.

    Examples:
      >>> stacks = family(
      ...     '''Args:
      ...   {parameters}: arrays.
      ...
      ... Returns:
      ...   One array with {more}.''',
      ...     more="a dimension more",
      ... )
      >>> @stacks()
      ... def pile(x, y):
      ...     '''Put one on the other.'''
      >>> print(pile.__doc__)
      Put one on the other.
      <BLANKLINE>
      Args:
        x, y: arrays.
      <BLANKLINE>
      Returns:
        One array with a dimension more.
      <BLANKLINE>
    """
    template = inspect.cleandoc(rest)

    def of(**own: str) -> Callable[[Any], Any]:
        def complete(function: Any) -> Any:
            names = ", ".join(inspect.signature(function).parameters)
            text = template.format(**{"name": function.__name__, "parameters": names, **usual, **own})
            function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\n{text}\n"
            return function

        return complete

    return of
