"""`List` and `Dict`: modules whose attributes are the elements of a list or a dictionary.

As modules they count their changes, so that a cached graph of a model need not compare their elements, and their
elements may be marked with `nnx.data` and `nnx.static`. Plain lists and dictionaries may be attributes of modules as
well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any

from phalanx.nnx.module import CAPTURED, Module
from phalanx.nnx.objects import MarkedValue, get_attributes
from phalanx.nnx.tree_text import TreeText


class List(Module, MutableSequence):
    """A module that is a list of modules, variables, arrays and static values.

    Args:
      it: the elements. Numbers are static unless they are marked with `nnx.data`.

    Examples:
      >>> import phalanx
      >>> from phalanx import nnx
      >>> layers = nnx.List([nnx.Param(1.0), nnx.relu, nnx.data(2.0), 3])
      >>> layers.append(nnx.Param(4.0))
      >>> len(layers), phalanx.tree.leaves(layers)
      (5, [1.0, 2.0, 4.0])
    """

    def __init__(self, it: Iterable[Any] | None = None, /):
        for i, value in enumerate(it or ()):
            self.__setattr__(i, value)  # type: ignore[arg-type]  # `setattr` accepts names only

    def __len__(self) -> int:
        return sum(type(key) is int for key in get_attributes(self))

    def __iter__(self) -> Iterator[Any]:
        attributes = get_attributes(self)
        return (attributes[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        attributes = get_attributes(self)
        # Layers are read by number in loops, which need not list all of them.
        return attributes[index] if type(index) is int and index in attributes else list(self)[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        elements = self._marked_elements()
        elements[index] = value
        self._replace(elements)

    def __delitem__(self, index: Any) -> None:
        elements = self._marked_elements()
        del elements[index]
        self._replace(elements)

    def _to_text(self, text: TreeText) -> str:
        return self._to_block(text, (("", x) for x in self), ("([", "])"))

    def append(self, value: Any) -> None:
        """Add an element at the end.

        Args:
          value: the element.
        """
        self.__setattr__(len(self), value)  # type: ignore[arg-type]

    def insert(self, index: int, value: Any) -> None:
        """Add an element before another one.

        Args:
          index: the number of the other element, negative to count from the end.
          value: the element.
        """
        elements = self._marked_elements()
        elements.insert(index, value)
        self._replace(elements)

    def _marked_elements(self) -> list[Any]:
        """The elements, with the marks that they were given."""
        marks: Mapping = self._marks
        return [MarkedValue(x, marks[i]) if i in marks else x for i, x in enumerate(self)]

    def _replace(self, elements: list[Any]) -> None:
        for i in reversed(range(len(elements), len(self))):
            self.__delattr__(i)  # type: ignore[arg-type]
        # Marks belong to elements, which move, while marks of other objects belong to the name of an attribute.
        kept = {name: mark for name, mark in self._marks.items() if type(name) is not int}
        if len(kept) < len(self._marks):
            self._marks = kept
        for i, x in enumerate(elements):
            if get_attributes(self).get(i, self) is not x:
                self.__setattr__(i, x)  # type: ignore[arg-type]


class Dict(Module, MutableMapping):
    """A module that is a dictionary of modules, variables, arrays and static values; its keys are also attributes.

    Args:
      *args, **kwargs: as of `dict`. Numbers are static unless they are marked with `nnx.data`.

    Examples:
      >>> from phalanx import nnx
      >>> scales = nnx.Dict(a=nnx.Param(1.0), b=2)
      >>> scales["c"] = nnx.Param(3.0)
      >>> scales.a.value, sorted(scales), list(nnx.state(scales))
      (1.0, ['a', 'b', 'c'], ['a', 'c'])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Hashable]:
        return (key for key in get_attributes(self) if key != CAPTURED)

    def __getitem__(self, key: Hashable) -> Any:
        return get_attributes(self)[key]  # type: ignore[index]

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self.__setattr__(key, value)  # type: ignore[arg-type]  # `setattr` accepts names only

    def __delitem__(self, key: Hashable) -> None:
        if key not in get_attributes(self):
            raise KeyError(key)
        self.__delattr__(key)  # type: ignore[arg-type]

    def _to_text(self, text: TreeText) -> str:
        return self._to_block(text, ((f"{k!r}: ", v) for k, v in self.items()), ("({", "})"))

    __hash__ = Module.__hash__  # by identity, as of every module: `Mapping` would make it unhashable
