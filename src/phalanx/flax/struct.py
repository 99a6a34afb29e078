"""Frozen dataclasses that are pytrees: `dataclass`, `field` and the base class `PyTreeNode`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

from phalanx.engine.public_namespace import publish as _publish
from phalanx.flax.state_dicts import register_serialization_state, restore_fields, to_state_dict
from phalanx.tree import register_dataclass

T = TypeVar("T")


def field(pytree_node: bool = True, *, metadata: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
    """Declare a field of a dataclass.

    Args:
      pytree_node: whether the field is a child of the pytree; otherwise it is static, part of the structure.
      metadata, **kwargs: as of `dataclasses.field`.

    Returns:
      The field.

    Examples:
      >>> import phalanx
      >>> from phalanx.flax import struct
      >>> @struct.dataclass
      ... class Scaled:
      ...     x: float
      ...     unit: str = struct.field(pytree_node=False, default="m")
      >>> phalanx.tree.map(lambda x: 2 * x, Scaled(1.5))
      Scaled(x=3.0, unit='m')
    """
    return dataclasses.field(metadata={**(metadata or {}), "pytree_node": pytree_node}, **kwargs)


@dataclass_transform(field_specifiers=(field,))
def dataclass(clz: type[T] | None = None, **kwargs: Any) -> Any:
    """Make a class a frozen dataclass and a pytree node, with a method `replace`; also a decorator with options.

    Args:
      clz: the class; if omitted, a decorator is returned.
      **kwargs: options of `dataclasses.dataclass`.

    Returns:
      The class, or a decorator.

    Examples:
      >>> import phalanx
      >>> from phalanx.flax import struct
      >>> @struct.dataclass
      ... class Point:
      ...     x: float
      ...     y: float
      >>> Point(1.0, 2.0).replace(x=5.0), phalanx.tree.leaves(Point(1.0, 2.0))
      (Point(x=5.0, y=2.0), [1.0, 2.0])
    """
    if clz is None:
        return functools.partial(dataclass, **kwargs)
    if "_flax_dataclass" in vars(clz):
        return clz
    cls: Any = dataclasses.dataclass(**{"frozen": True, **kwargs})(clz)
    is_child = {f.name: f.metadata.get("pytree_node", True) for f in dataclasses.fields(cls)}
    children = [name for name, child in is_child.items() if child]
    cls.replace = lambda self, **updates: dataclasses.replace(self, **updates)
    cls._flax_dataclass = True
    register_dataclass(cls, children, [name for name, child in is_child.items() if not child])
    register_serialization_state(
        cls,
        lambda x: {name: to_state_dict(getattr(x, name)) for name in children},
        lambda x, state: x.replace(**restore_fields({name: getattr(x, name) for name in children}, state)),
    )
    return cls


@dataclass_transform(field_specifiers=(field,))
class PyTreeNode:
    """A base class whose subclasses are frozen dataclasses and pytree nodes, as `dataclass` makes them.

    Examples:
      >>> import phalanx
      >>> from phalanx.flax import struct
      >>> class Point(struct.PyTreeNode):
      ...     x: float
      ...     y: float
      >>> phalanx.tree.map(lambda x: -x, Point(1.0, 2.0))
      Point(x=-1.0, y=-2.0)
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__()
        dataclass(cls, **kwargs)

    def replace(self: T, **overrides: Any) -> T:
        """Return a copy with new values of some fields.

        Args:
          **overrides: values by the name of the field.

        Returns:
          The copy.
        """
        raise NotImplementedError("dataclass() sets this method in each subclass")


__getattr__, __dir__ = _publish(globals())
