"""Contexts for splitting and merging several modules that share values, and for updating the modules that were split.

Inside `update_context`, a module is split, merged to a copy elsewhere (for instance in a function that is traced),
changed there, split again, and finally merged into the original. The second split lists in its `GraphDef` which of its
objects are copies of which original, so that a compiled function returns the list without running Python again.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib.graph_build import build_from_leaves
from phalanx.nnx.graphlib.graph_def import GraphDef
from phalanx.nnx.graphlib.graph_walk import Walk, find_origins
from phalanx.nnx.graphlib.ref_map import RefMap
from phalanx.nnx.graphlib.states import split_leaves, to_flat_state
from phalanx.typing import PyTree


class UpdateContext:
    """The originals of the modules that are split and merged inside one `update_context`.

    Attributes:
      originals: the objects and variables of the first split, in the order of its traversal.
      copies: for each object merged with `inner=True`, the number of its original.
    """

    def __init__(self) -> None:
        self.originals: list[Any] = []
        self.copies = RefMap()


_NONE: Mapping[str, UpdateContext] = {}
_open = contextvars.ContextVar("phalanx.nnx.update_contexts", default=_NONE)
"""The contexts that are open around the running code, by tag."""


@contextlib.contextmanager
def update_context(tag: str) -> Iterator[UpdateContext]:
    """Make `split_context` and `merge_context` of the same tag update the modules that were split.

    Args:
      tag: a name for the context.

    Returns:
      A context manager, also a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.Dict(a=1)
      >>> with nnx.update_context("example"):
      ...     with nnx.split_context("example") as ctx:
      ...         parts = ctx.split(model)
      ...     with nnx.merge_context("example", inner=True) as ctx:
      ...         copy = ctx.merge(*parts)
      ...     copy.b = 2
      ...     with nnx.split_context("example") as ctx:
      ...         parts = ctx.split(copy)
      ...     with nnx.merge_context("example", inner=False) as ctx:
      ...         updated = ctx.merge(*parts)
      >>> updated is model, model.b
      (True, 2)
    """
    context = UpdateContext()
    token = _open.set({**_open.get(), tag: context})
    try:
        yield context
    finally:
        _open.reset(token)


def current_update_context(tag: str) -> UpdateContext:
    """Return the innermost `update_context` with a tag.

    Args:
      tag: the tag.

    Returns:
      The `UpdateContext`.

    Raises:
      ArgumentError: there is none.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.update_context("example") as context:
      ...     nnx.current_update_context("example") is context
      True
    """
    found = _open.get()
    if tag not in found:
        raise ArgumentError(
            "nnx.current_update_context, argument tag",
            expected=f"one of the open contexts, {sorted(found)}",
            got=repr(tag),
            fix=f"open it with nnx.update_context({tag!r})",
        )
    return found[tag]


class SplitContext:
    """Splits several modules one after the other; shared values are in the state of the first module only.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     _, first = ctx.split([w])
      ...     _, second = ctx.split({"again": w})
      >>> len(first), len(second)
      (1, 0)
    """

    def __init__(self, context: UpdateContext | None = None) -> None:
        self._walk, self._context = Walk(), context

    def split(self, node: PyTree, *filters: Filter) -> tuple:
        """Split a module, as `nnx.split` does; values of earlier modules become references.

        Args:
          node, *filters: as in `nnx.split`.

        Returns:
          `(graphdef, state, ...)`.
        """
        walk = self._walk
        # Only the leaves added by this traversal belong to this module; all others are references to earlier modules.
        start, ref_start = len(walk.variables), len(walk.refs)
        definition = walk.visit(node, (), [node], 0)
        leaves = walk.leaves(start, ref_start)
        origins: tuple = ()
        if self._context is not None:
            origins = find_origins(walk, self._context.copies)
            if not self._context.copies:
                self._context.originals = walk.numbered
        return GraphDef(definition, origins), *split_leaves(leaves, filters or (...,), "split", exhaustive=True)


class MergeContext:
    """Merges modules that were split in a `SplitContext`; shared values are built once.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split([w]), ctx.split([w])
      >>> with nnx.merge_context() as ctx:
      ...     (a,), (b,) = (ctx.merge(*part) for part in parts)
      >>> a is b
      True
    """

    def __init__(self, context: UpdateContext | None = None, inner: bool = True) -> None:
        self._built: dict[int, Any] = {}
        self._context, self._inner = context, inner

    def merge(self, graphdef: GraphDef, /, *states: Mapping) -> Any:
        """Merge a module, as `nnx.merge` does; modules must be merged in the order in which they were split.

        Args:
          graphdef, *states: as in `nnx.merge`.

        Returns:
          The module, or the tree of modules.
        """
        flat = {path: leaf for s in states for path, leaf in to_flat_state(s).items()}
        existing = {}
        if self._context is not None and not self._inner:
            existing = {i: self._context.originals[origin] for i, origin in graphdef.origins}
        merged = build_from_leaves(graphdef, flat, "merge", built=self._built, existing=existing)
        if self._context is not None and self._inner:
            self._context.copies.update(RefMap.from_indexmap(self._built))
        return merged


@contextlib.contextmanager
def split_context(ctxtag: str | None = None) -> Iterator[SplitContext]:
    """Split several modules, with shared values in the state of the first module only.

    Args:
      ctxtag: the tag of the `update_context` to use; None for none.

    Returns:
      A context manager that returns a `SplitContext`.

    Examples:
      >>> from phalanx import nnx
      >>> a = {"w": nnx.Param(1.0)}
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split(a), ctx.split([a["w"]])
      >>> len(parts[0][1]), len(parts[1][1])
      (1, 0)
    """
    yield SplitContext(None if ctxtag is None else current_update_context(ctxtag))


@contextlib.contextmanager
def merge_context(ctxtag: str | None = None, inner: bool | None = None) -> Iterator[MergeContext]:
    """Merge modules that were split in a `split_context`.

    Args:
      ctxtag: the tag of the `update_context` to use; None for none.
      inner: with a tag, whether to create copies, or to update the modules that were split first.

    Returns:
      A context manager that returns a `MergeContext`.

    Raises:
      ArgumentError: there is a tag, and `inner` is not given, or the other way round.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.split_context() as ctx:
      ...     parts = ctx.split([w])
      >>> with nnx.merge_context() as ctx:
      ...     ctx.merge(*parts)
      [Param(
        value=1.0
      )]
    """
    if (ctxtag is None) != (inner is None):
        raise ArgumentError(
            "nnx.merge_context, argument inner",
            expected="a tag together with inner=True or inner=False",
            got=f"ctxtag={ctxtag!r}, inner={inner!r}",
            fix="pass both, as in nnx.merge_context('example', inner=True), or neither",
        )
    yield MergeContext() if ctxtag is None else MergeContext(current_update_context(ctxtag), bool(inner))
