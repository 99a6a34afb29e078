"""The numbers of the objects, variables and references of a graph, which programs that flatten graphs themselves keep.

`flatten` fills a `RefMap` and `unflatten` an `IndexMap`; each is made from the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


class RefMap(MutableMapping[Any, int]):
    """A mapping whose keys are compared by identity, since variables are compared by value.

    Args:
      items: a mapping, or pairs of a key and a value.

    Examples:
      >>> from phalanx import nnx
      >>> w, numbers = nnx.Param(1.0), nnx.graphlib.RefMap()
      >>> _ = nnx.graphlib.flatten({"w": w}, ref_index=numbers)
      >>> w in numbers, nnx.Param(1.0) in numbers
      (True, False)
    """

    def __init__(self, items: Any = ()):
        self._items: dict[int, tuple[Any, int]] = {}
        self.update(items)

    @classmethod
    def from_indexmap(cls, index_map: Mapping[int, Any]) -> RefMap:
        """Return the numbers of the values of an `IndexMap`.

        Args:
          index_map: objects by number.

        Returns:
          The `RefMap`.
        """
        return cls((value, number) for number, value in index_map.items())

    def __getitem__(self, key: Any) -> int:
        return self._items[id(key)][1]

    def __setitem__(self, key: Any, value: int) -> None:
        self._items[id(key)] = key, value

    def __delitem__(self, key: Any) -> None:
        del self._items[id(key)]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._items

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)


class IndexMap(dict[int, Any]):
    """Objects, variables and references by their number in a graph.

    Args:
      *args, **kwargs: as in `dict`.

    Examples:
      >>> from phalanx import nnx
      >>> w = nnx.Param(1.0)
      >>> nnx.graphlib.IndexMap.from_refmap(nnx.graphlib.RefMap([(w, 3)]))[3] is w
      True
    """

    @classmethod
    def from_refmap(cls, ref_map: Mapping[Any, int]) -> IndexMap:
        """Return the keys of a `RefMap` by number.

        Args:
          ref_map: numbers of objects.

        Returns:
          The `IndexMap`.
        """
        return cls((number, key) for key, number in ref_map.items())
