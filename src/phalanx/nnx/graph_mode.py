"""Graph mode and tree mode: whether shared references and changes of structure are preserved.

There are three modes. With `graph=True, graph_updates=True`, the default, functions of modules preserve shared
references, and transformations write changes of structure back to the caller's modules. With `graph=True,
graph_updates=False`, shared references are preserved, and only new values of variables are written back. With
`graph=False`, the tree mode, modules are pytrees: shared variables and cycles are errors. `graphlib` and all
transformations resolve their options `graph` and `graph_updates` here.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.nnx.settings import Setting


class GraphMode(NamedTuple):
    """The mode of a function of modules.

    graph: whether shared references are preserved; otherwise they are errors.
    updates: whether changes of structure are written back.
    """

    graph: bool = True
    updates: bool = True


_MODES = {(graph, updates): GraphMode(graph, graph and updates) for graph in (True, False) for updates in (True, False)}
FULL = _MODES[True, True]


def resolve_mode(graph: bool | None, graph_updates: bool | None = None) -> GraphMode:
    """The mode for the options `graph` and `graph_updates` of a function, where None is the default."""
    if graph is None:
        graph = set_graph_mode.current_value()
    if graph_updates is None:
        graph_updates = set_graph_updates.current_value()
    return _MODES[bool(graph), bool(graph_updates)]


def is_tree_mode(graph: bool | None) -> bool:
    """Whether a function with this option `graph` treats modules as pytrees."""
    return not (set_graph_mode.current_value() if graph is None else graph)


class set_graph_mode(Setting):
    """Set the default of the option `graph`: at once, for a `with` block, or for the calls of a decorated function.

    Threads start with the option `nnx_graph_mode` of `phalanx.config`. A transformation reads the default when it is
    applied to a function, not at each call.

    Args:
      value: True to preserve shared references, False to treat modules as pytrees, in which they are errors.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> with nnx.set_graph_mode(False):
      ...     try:
      ...         nnx.split([w, w])
      ...     except ValueError as error:
      ...         print("the Param at [0] again at [1]" in str(error))
      True
    """

    _option = "nnx_graph_mode"


class set_graph_updates(Setting):
    """Set the default of the option `graph_updates`, as `set_graph_mode` does for `graph`.

    Args:
      value: whether transformations write changes of structure back to the caller's modules, or values of variables
        only.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Model(nnx.Module):
      ...     def __init__(self):
      ...         self.n, self.kind = nnx.Variable(jnp.array(0)), "new"
      >>> def train(model):
      ...     model.n.value += 1
      ...     model.kind = "trained"
      >>> model = Model()
      >>> with nnx.set_graph_updates(False):
      ...     nnx.jit(train)(model)
      >>> int(model.n.value), model.kind
      (1, 'new')
    """

    _option = "nnx_graph_updates"
