"""The variables of Linen: values in nested dictionaries by collection, some of them in boxes with metadata.

A collection is the name under which a type of variables is registered. A box is recognized by its method `unbox`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.nnx.graphlib import State
from phalanx.nnx.sharding import partitioning
from phalanx.nnx.sharding.partitioning import get_partition_spec
from phalanx.nnx.traversals import unflatten_mapping
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import variable_name_from_type, variable_type_from_name
from phalanx.sharding import Mesh, PartitionSpec
from phalanx.tree import is_tree_node, register_dataclass

_BOX = "linen_meta_type"  # the metadata with the class of the Linen box that a value was in


@dataclasses.dataclass(frozen=True)
class NNXMeta:
    """The box of a variable with metadata in the variables of Linen; a pytree of its value.

    Args:
      var_type: the type of the variable.
      value: its value.
      metadata: its metadata.
    """

    var_type: type[Variable]
    value: Any
    metadata: dict[str, Any]

    def unbox(self) -> Any:
        """Return the value."""
        return self.value

    def replace_boxed(self, val: Any) -> NNXMeta:
        """Return a box with the same metadata and another value."""
        return dataclasses.replace(self, value=val)

    def add_axis(self, index: int, params: Mapping[Any, Any]) -> NNXMeta:
        """Return this box: the metadata of variables changes in `nnx.vmap` and `nnx.scan` only."""
        return self

    remove_axis = add_axis

    def get_partition_spec(self) -> PartitionSpec:
        """Return the partition spec according to the metadata."""
        return get_partition_spec(self.to_nnx_variable()).get_raw_value()

    def to_nnx_variable(self) -> Variable:
        """Return a variable with the value and the metadata."""
        return self.var_type(self.value, **self.metadata)


register_dataclass(NNXMeta, ["value"], ["var_type", "metadata"])


def _linen_class(name: str) -> Any:
    """A class of boxes in Linen, if the program uses Linen, and Linen runs on Phalanx."""
    module = sys.modules.get("flax.core.meta")
    return getattr(module, name) if module is not None and is_tree_node(module.Partitioned) else None


def with_partitioning(fn: Callable, names: Any, mesh: Mesh | None = None) -> Callable:
    """Add the mesh axes of its dimensions to the result of an initializer, as `nnx.with_partitioning` does.

    Args:
      fn: the initializer.
      names: a mesh axis, or None, for each dimension.
      mesh: the mesh; None for the mesh in context.

    Returns:
      The initializer. In a program that uses Linen, its results are in boxes of Linen's class `Partitioned`.
    """
    box = _linen_class("Partitioned")
    return partitioning.with_partitioning(fn, names, mesh, **({} if box is None else {_BOX: box}))


def to_variable(collection: str, value: Any) -> Variable:
    """A variable of the type of a collection, whose metadata is that of the value's box."""
    kind = variable_type_from_name(collection, allow_register=True)
    if isinstance(value, NNXMeta):
        return value.to_nnx_variable()
    if not hasattr(value, "unbox"):
        return kind(value)
    metadata = dict(value.to_nnx_metadata() if hasattr(value, "to_nnx_metadata") else vars(value))
    return kind(metadata.pop("value"), **metadata, **{_BOX: type(value)})


def to_linen(variable: Variable) -> Any:
    """The value of a variable, in the box that it was in."""
    metadata = variable.get_metadata(exclude_required=True)
    if _BOX not in metadata:
        return variable.value
    box = metadata.pop(_BOX)
    metadata["value"] = variable.value
    return box.from_nnx_metadata(metadata) if hasattr(box, "from_nnx_metadata") else box(**metadata)


def to_linen_var(variable: Variable) -> Any:
    """The value of a variable, in the box that it was in; in an `NNXMeta` if it was in none and has metadata."""
    metadata = variable.get_metadata(exclude_required=True)
    if _BOX in metadata or not metadata:
        return to_linen(variable)
    if (box := _linen_class("AxisMetadata")) is not None:
        box.register(NNXMeta)  # Linen takes boxes of this class out of its variables
    return NNXMeta(type(variable), variable.value, metadata)


def get_collections(found: State, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """The converted variables of a state in nested dictionaries by collection."""
    leaves = [(path, v) for path, v in found.leaves_by_path() if isinstance(v, Variable)]
    collections = [variable_name_from_type(type(v), allow_register=True) for _, v in leaves]
    return unflatten_mapping({(name, *path): convert(v) for name, (path, v) in zip(collections, leaves)})
