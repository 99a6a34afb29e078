"""Pytrees: nested containers of arrays. Functions to flatten, map over and rebuild them, and to register containers.

Builds on the engine's C++ registry. Users call the short names (`tree.map`); the long names (`tree_map`) are the
names in `phalanx.tree_util`, which the packages above use. `broadcast_prefix`, `flatten_axes`, `prefix_errors` and
`equality_errors` implement arguments that are prefixes of other trees, such as `in_axes`.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.tree.key_paths import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    KeyEntry as KeyEntry,
    KeyPath as KeyPath,
    SequenceKey as SequenceKey,
    keystr as keystr,
)
from phalanx.tree.operations import (
    PyTreeDef as PyTreeDef,
    all_leaves as all_leaves,
    flatten_one_level as flatten_one_level,
    flatten_one_level_with_keys as flatten_one_level_with_keys,
    is_tree_node as is_tree_node,
    tree_all as tree_all,
    tree_flatten as tree_flatten,
    tree_flatten_with_path as tree_flatten_with_path,
    tree_leaves as tree_leaves,
    tree_leaves_with_path as tree_leaves_with_path,
    tree_map as tree_map,
    tree_map_with_path as tree_map_with_path,
    tree_reduce as tree_reduce,
    tree_reduce_associative as tree_reduce_associative,
    tree_structure as tree_structure,
    tree_transpose as tree_transpose,
    tree_unflatten as tree_unflatten,
    treedef_children as treedef_children,
    treedef_is_leaf as treedef_is_leaf,
    treedef_tuple as treedef_tuple,
)
from phalanx.tree.partial import Partial as Partial
from phalanx.tree.prefix import (
    broadcast_prefix as broadcast_prefix,
    equality_errors as equality_errors,
    flatten_axes as flatten_axes,
    prefix_errors as prefix_errors,
    tree_broadcast as tree_broadcast,
)
from phalanx.tree.pytree_registry import (
    register_dataclass as register_dataclass,
    register_pytree_node as register_pytree_node,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys as register_pytree_with_keys,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    static as static,
)

all = tree_all
flatten = tree_flatten
flatten_with_path = tree_flatten_with_path
leaves = tree_leaves
leaves_with_path = tree_leaves_with_path
map = tree_map
map_with_path = tree_map_with_path
reduce = tree_reduce
reduce_associative = tree_reduce_associative
structure = tree_structure
transpose = tree_transpose
unflatten = tree_unflatten
broadcast = tree_broadcast

# Users call the short names; the packages above call the long ones, without the cost of a boundary.
_short = "all flatten flatten_with_path leaves leaves_with_path map map_with_path reduce reduce_associative structure"
__getattr__, __dir__ = _publish(globals(), guarded=f"{_short} transpose unflatten broadcast".split())
