"""`nnx.set_graph_mode` and `nnx.set_graph_updates`, which exist for compatibility with Flax."""

from __future__ import annotations

import contextlib


def set_graph_mode(value: bool, /) -> contextlib.AbstractContextManager:
    """Do nothing: shared references and structural changes are always preserved.

    Args:
      value: ignored.

    Returns:
      A context manager without effect.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.set_graph_mode(True):
      ...     pass
    """
    return contextlib.nullcontext()


set_graph_updates = set_graph_mode
