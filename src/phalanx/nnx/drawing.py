"""`display`: a model drawn as a tree, in colours in a terminal, as folding HTML in a notebook.

Builds on `objects`, and on rich where it is installed; without, the tree is plain text.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from phalanx.nnx.objects import Object
from phalanx.nnx.variable import Variable


class Drawn(NamedTuple):
    """A node of the tree: what it is called, what it is, what else there is to say, and what is below it."""

    name: str
    kind: str
    detail: str
    below: tuple[Drawn, ...]


def drawn(value: Any, name: str = "", seen: frozenset[int] = frozenset()) -> Drawn:
    """A value as a tree to be drawn.

    Args:
      value: a module, a state, a variable, a container or anything else.
      name: what it is called.
      seen: the identities of what is above it.

    Returns:
      The tree.
    """
    kind = type(value).__name__
    if isinstance(value, Variable):
        metadata = ", ".join(f"{k}={v!r}" for k, v in value.get_metadata().items())
        return Drawn(name, kind, ", ".join(filter(None, [_short(value.raw_value), metadata])), ())
    if id(value) in seen:
        return Drawn(name, kind, "...", ())
    items = list(_items(value))
    if not items:
        return Drawn(name, kind, "" if isinstance(value, Object | Mapping | list | tuple) else _short(value), ())
    return Drawn(name, kind, "", tuple(drawn(v, str(k), seen | {id(value)}) for k, v in items))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Object):
        yield from value.__dict__.items()
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple) and any(isinstance(x, Object | Variable | Mapping | list) for x in value):
        yield from enumerate(value)


def _short(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        return f"{getattr(value.dtype, 'name', value.dtype)}{list(value.shape)}"
    text = getattr(value, "__name__", None) if callable(value) else None
    text = repr(value) if text is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lines(node: Drawn, indent: str = "") -> Iterator[str]:
    """The tree as lines of plain text."""
    head = " ".join(filter(None, [f"{node.name}:" if node.name else "", node.kind, node.detail]))
    yield indent + head
    for child in node.below:
        yield from _lines(child, indent + "  ")


def _rich(node: Drawn, parent: Any = None) -> Any:
    """The tree as one of rich's."""
    from rich.text import Text
    from rich.tree import Tree

    label = Text.assemble(
        (f"{node.name}: " if node.name else "", "cyan"), (node.kind, "bold"), (f" {node.detail}", "green")
    )
    tree = Tree(label) if parent is None else parent.add(label)
    for child in node.below:
        _rich(child, tree)
    return tree


def to_html(node: Drawn, depth: int = 0) -> str:
    """The tree as HTML whose nodes fold.

    Args:
      node: the tree.
      depth: how deep it is; the first two levels are open.

    Returns:
      The HTML.
    """
    name = f"<b>{html.escape(node.name)}</b>: " if node.name else ""
    detail = f" <code>{html.escape(node.detail)}</code>" if node.detail else ""
    head = f"{name}{html.escape(node.kind)}{detail}"
    if not node.below:
        return f"<div style='margin-left:1.2em'>{head}</div>"
    inner = "".join(to_html(child, depth + 1) for child in node.below)
    is_open = " open" if depth < 2 else ""
    return f"<details style='margin-left:1.2em'{is_open}><summary>{head}</summary>{inner}</details>"


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def display(*args: Any) -> None:
    """Draw models, states or anything else as trees.

    Args:
      *args: what to draw.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.display(nnx.Dropout(0.5))
      Dropout
      ├── rate: float 0.5
      ├── broadcast_dims: tuple
      ├── deterministic: bool False
      ├── rng_collection: str 'dropout'
      └── rngs: NoneType None
    """
    for value in args:
        node = drawn(value)
        if _in_notebook():
            from IPython.display import HTML  # type: ignore[import-not-found]
            from IPython.display import display as show

            show(HTML(to_html(node)))
        elif find_spec("rich") is not None:
            from rich.console import Console

            Console(file=sys.stdout).print(_rich(node))
        else:
            sys.stdout.write("\n".join(_lines(node)) + "\n")
