"""`display`: show a model as text, and in a notebook as collapsible HTML with the shardings of its arrays."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from phalanx.debug.sharding_drawing import draw_sharding
from phalanx.nnx.objects import Pytree, get_attributes
from phalanx.nnx.variable import Variable
from phalanx.runtime.array import Array


class DrawnNode(NamedTuple):
    """A node of the tree: its name, its type, further text, its children, and the array whose sharding is drawn."""

    name: str
    kind: str
    detail: str
    children: tuple[DrawnNode, ...]
    sharded: Any = None


def draw(value: object, name: str = "", parents: frozenset[int] = frozenset()) -> DrawnNode:
    """Convert a value to a tree.

    Args:
      value: a module, a state, a variable, a container or any other value.
      name: the name of the value.
      parents: the identities of the parents, to stop at cycles.

    Returns:
      The tree.
    """
    kind = type(value).__name__
    if isinstance(value, Variable):
        metadata = ", ".join(f"{k}={v!r}" for k, v in value.get_metadata().items())
        detail = ", ".join(filter(None, [_summarize(value.raw_value), metadata]))
        return DrawnNode(name, kind, detail, (), value.raw_value if _is_sharded(value.raw_value) else None)
    # Only cycles are cut: a module that is shared by two parents is shown twice.
    if id(value) in parents:
        return DrawnNode(name, kind, "...", ())
    items = list(_iter_items(value))
    if not items:
        detail = "" if isinstance(value, Pytree | Mapping | list | tuple) else _summarize(value)
        return DrawnNode(name, kind, detail, (), value if _is_sharded(value) else None)
    return DrawnNode(name, kind, "", tuple(draw(v, str(k), parents | {id(value)}) for k, v in items))


def _iter_items(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Pytree):
        yield from get_attributes(value).items()
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple) and any(isinstance(x, Pytree | Variable | Mapping | list) for x in value):
        yield from enumerate(value)


def _is_sharded(value: Any) -> bool:
    """Whether a value is an array over several devices."""
    return type(value) is Array and not value.is_deleted() and len(value.sharding.device_set) > 1


def _summarize(value: Any) -> str:
    """The dtype, shape and spec of an array, the name of a function, or the shortened repr of any other value."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        spec = getattr(value.sharding, "spec", None) if _is_sharded(value) else None
        text = f"{getattr(value.dtype, 'name', value.dtype)}{list(value.shape)}"
        return text if spec is None else f"{text} {spec!r}"
    text = getattr(value, "__name__", None) if callable(value) else None
    text = repr(value) if text is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_html(node: DrawnNode, depth: int = 0) -> str:
    """Convert a tree to collapsible HTML, in which arrays over several devices unfold to drawings of their shards.

    Args:
      node: the tree.
      depth: the depth of the node; the first two levels are open.

    Returns:
      The HTML.
    """
    name = f"<b>{html.escape(node.name)}</b>: " if node.name else ""
    detail = f" <code>{html.escape(node.detail)}</code>" if node.detail else ""
    head = f"{name}{html.escape(node.kind)}{detail}"
    if not node.children and node.sharded is None:
        return f"<div style='margin-left:1.2em'>{head}</div>"
    inner = "".join(to_html(child, depth + 1) for child in node.children)
    if node.sharded is not None:
        inner = draw_sharding(node.sharded).html()
    is_open = " open" if depth < 2 and node.children else ""
    return f"<details style='margin-left:1.2em'{is_open}><summary>{head}</summary>{inner}</details>"


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def display(*args: Any) -> None:
    """Show models, states or other values: as text, or in a notebook as trees that fold.

    Args:
      *args: the values.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.display(nnx.Dropout(0.5))
      Dropout(
        rate=0.5,
        broadcast_dims=(),
        deterministic=False,
        rng_collection='dropout',
        rngs=None
      )
    """
    for value in args:
        if _in_notebook():
            from IPython.display import HTML, display as show  # type: ignore[import-not-found]

            show(HTML(to_html(draw(value))))
        else:
            sys.stdout.write(f"{value}\n")
