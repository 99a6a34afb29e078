"""Docstrings of function families: the sections that all functions of a family share are written once.

Each function has its own first line; a decorator adds the shared `Args`, `Returns` and `Raises`. `docs/tables.py` puts
the completed text on the reference pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def family(rest: str, **usual: str) -> Callable[..., Any]:
    """Make a decorator that completes the docstrings of a family of functions.

    Args:
      rest: the text after a function's own docstring. `{name}` in it stands for the function's name, `{parameters}` for
        the names of its parameters, and other fields for texts that the decorator receives.
      **usual: the texts of fields that the decorator does not receive.

    Returns:
      The decorator, which takes texts by field name.

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
            if function.__doc__ is None:  # under `python -OO`
                return function
            names = ", ".join(inspect.signature(function).parameters)
            text = template.format(**{"name": function.__name__, "parameters": names, **usual, **own})
            function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\n{text}\n"
            return function

        return complete

    return of
