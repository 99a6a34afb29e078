"""`GraphState` and `NodeStates`: states together with the structure that they belong to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableMapping
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.graphlib.graph_def import GraphDef
from phalanx.nnx.graphlib.states import State
from phalanx.nnx.tree_text import TreeText
from phalanx.tree import GetAttrKey, flatten_one_level_with_keys, register_pytree_with_keys


class GraphState(MutableMapping):
    """A state together with the structure that it belongs to: a pytree, and a mapping as a `State` is.

    Args:
      graphdef: the structure.
      state: the state, which has all leaves of the structure or some of them.

    Examples:
      >>> from phalanx import nnx
      >>> found = nnx.unpack({"w": nnx.Param(1.0)})
      >>> found.w.value, nnx.merge(found)
      (1.0, {'w': Param(
        value=1.0
      )})
    """

    __slots__ = ("_graphdef", "_state")
    _graphdef: GraphDef
    _state: State

    def __init__(self, graphdef: GraphDef, state: State):
        object.__setattr__(self, "_graphdef", graphdef)
        object.__setattr__(self, "_state", state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)
        return getattr(self._state, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._state[name] = value

    def __delattr__(self, name: str) -> None:
        del self._state[name]

    def __getitem__(self, key: Hashable) -> Any:
        return self._state[key]

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self._state[key] = value

    def __delitem__(self, key: Hashable) -> None:
        del self._state[key]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def __reduce__(self) -> tuple:
        return GraphState, (self._graphdef, self._state)

    def _to_text(self, text: TreeText) -> str:
        return text.block("GraphState", [("_graphdef=", self._graphdef), ("_state=", self._state)], ("(", ")"))

    def __repr__(self) -> str:
        return TreeText().format(self)


def _flatten(x: GraphState) -> tuple[Iterable[tuple[Any, Any]], tuple]:
    children, keys = flatten_one_level_with_keys(x._state)
    return children, (x._graphdef, keys)


def _unflatten(aux: tuple, children: Iterable[Any]) -> GraphState:
    graphdef, keys = aux
    return GraphState(graphdef, State(zip(keys, children, strict=True)))


register_pytree_with_keys(GraphState, _flatten, _unflatten)


class NodeStates:
    """The structure of a module, its states, and metadata: a pytree of the states.

    Examples:
      >>> from phalanx import nnx
      >>> parts = nnx.NodeStates.from_split(*nnx.split({"w": nnx.Param(1.0)}))
      >>> nnx.merge(parts.graphdef, parts.state)
      {'w': Param(
        value=1.0
      )}
    """

    __slots__ = ("_graphdef", "metadata", "states")

    def __init__(self, _graphdef: GraphDef | None, states: Iterable[Any], metadata: Any = None):
        self._graphdef, self.states, self.metadata = _graphdef, tuple(states), metadata

    @property
    def graphdef(self) -> GraphDef:
        """The structure.

        Raises:
          ArgumentError: there is none.
        """
        if self._graphdef is None:
            raise ArgumentError(
                "NodeStates.graphdef", expected="a structure", got="states only", fix="create it with from_split"
            )
        return self._graphdef

    @property
    def state(self) -> Any:
        """The only state.

        Raises:
          ArgumentError: there are several.
        """
        if len(self.states) != 1:
            raise ArgumentError(
                "NodeStates.state", expected="one state", got=f"{len(self.states)} states", fix="use .states"
            )
        return self.states[0]

    @classmethod
    def from_split(cls, graphdef: GraphDef | None, state: Any, /, *states: Any, metadata: Any = None) -> NodeStates:
        """Create it from the results of `nnx.split`.

        Args:
          graphdef, state, *states: the structure and the states.
          metadata: any hashable value.

        Returns:
          The `NodeStates`.
        """
        return cls(graphdef, (state, *states), metadata)

    @classmethod
    def from_states(cls, state: Any, *states: Any) -> NodeStates:
        """Create it from states alone.

        Args:
          state, *states: the states.

        Returns:
          The `NodeStates`.
        """
        return cls(None, (state, *states))

    @classmethod
    def from_prefixes(cls, prefixes: Iterable[Any], /, *, metadata: Any = None) -> NodeStates:
        """Create a prefix of other `NodeStates`, such as `in_axes` for them.

        Args:
          prefixes: a value for each state.
          metadata: the metadata of the others.

        Returns:
          The `NodeStates`.
        """
        return cls(None, prefixes, metadata)


register_pytree_with_keys(
    NodeStates,
    lambda x: ([(GetAttrKey("_graphdef"), x._graphdef), (GetAttrKey("states"), x.states)], x.metadata),
    lambda metadata, children: NodeStates(*children, metadata=metadata),
)
