"""The text of variables, states and modules: a line for each attribute, and the number and bytes of elements.

Classes define `_to_text(text)`, which calls `text.format` for what they contain; their `repr` and `nnx.display` start
with `TreeText().format(value)`. The form is that of Flax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from phalanx.core import Ref
from phalanx.runtime.array import Array
from phalanx.tree import tree_leaves
from phalanx.typing import PyTree


class TreeText:
    """The text of one value and of everything in it.

    Examples:
      >>> from phalanx import nnx
      >>> print(TreeText().format([nnx.Cache(1.0), "a"]))
      [Cache(
        value=1.0
      ), 'a']
    """

    def __init__(self) -> None:
        self._abbreviates = False
        self._shown: set[int] = set()

    @contextmanager
    def inside(self, module: Any, abbreviates: bool = True) -> Iterator[None]:
        """Show a further occurrence of the module as `...`, and arrays of several elements by shape and dtype."""
        outer, self._abbreviates = self._abbreviates, abbreviates
        self._shown.add(id(module))
        yield
        self._abbreviates = outer

    def has_shown(self, module: Any) -> bool:
        """Whether a module has been shown before, or contains the place that is shown."""
        return id(module) in self._shown

    def format(self, value: Any) -> str:
        """Return the text of a value.

        Args:
          value: any value.

        Returns:
          The text, of several lines for modules, states and variables.
        """
        if (to_text := getattr(type(value), "_to_text", None)) is not None:
            return to_text(value, self)
        if isinstance(value, list | dict):
            if id(value) in self._shown:
                return "[...]" if isinstance(value, list) else "{...}"
            self._shown.add(id(value))
            text = self._format_container(value)
            self._shown.remove(id(value))
            return text
        return self._format_container(value)

    def _format_container(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            elements = ", ".join(map(self.format, value))
            return f"[{elements}]" if isinstance(value, list) else f"({elements}{',' * (len(value) == 1)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.format(v)}" for k, v in value.items()) + "}"
        if isinstance(value, type):
            return value.__name__
        if self._abbreviates and isinstance(value, Array | Ref | np.ndarray) and math.prod(value.shape) > 1:
            return f"{'ArrayRef' if isinstance(value, Ref) else 'Array'}(shape={value.shape}, dtype={value.dtype!r})"
        return repr(value)

    def block(self, head: str, items: Iterable[tuple[str, Any]], brackets: tuple[str, str], comment: str = "") -> str:
        """Return a line for each item between brackets.

        Args:
          head: the text before the opening bracket.
          items: pairs of a prefix, such as `size=`, and a value.
          brackets: the opening and the closing bracket.
          comment: the text behind the opening bracket, if there are items.
        """
        opening, closing = brackets
        lines = ",\n".join("  " + key + self.format(value).replace("\n", "\n  ") for key, value in items)
        return f"{head}{opening}{comment}\n{lines}\n{closing}" if lines else head + opening + closing


def format_size(value: PyTree) -> str:
    """The number of elements and bytes of the arrays in a tree, such as `1,000 (4.0 KB)`; empty if there are none."""
    sizes = [(math.prod(x.shape), x.dtype.itemsize) for x in tree_leaves(value) if hasattr(x, "dtype")]
    count, nbytes = sum(n for n, _ in sizes), sum(n * itemsize for n, itemsize in sizes)
    units = (
        f"{nbytes / scale:,.1f} {unit}" for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)) if nbytes > scale
    )
    return f"{count:,} ({next(units, f'{nbytes:,} B')})" if count else ""
