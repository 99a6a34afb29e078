"""Pytrees: nested containers of arrays, taken apart, mapped over and put together; registration of new containers.

Builds on the engine's C++ registry. The short names (`tree.map`) are what users write; the long ones (`tree_map`) are
those of `phalanx.tree_util`, and what the rooms above import. `broadcast_prefix`, `flatten_axes`, `prefix_errors` and
`equality_errors` serve every argument that is a prefix of another tree.
"""

from phalanx.engine.frames import guard as _guard
from phalanx.tree.operations import PyTreeDef as PyTreeDef
from phalanx.tree.operations import all_leaves as all_leaves
from phalanx.tree.operations import flatten_one_level as flatten_one_level
from phalanx.tree.operations import flatten_one_level_with_keys as flatten_one_level_with_keys
from phalanx.tree.operations import is_tree_node as is_tree_node
from phalanx.tree.operations import tree_all as tree_all
from phalanx.tree.operations import tree_flatten as tree_flatten
from phalanx.tree.operations import tree_flatten_with_path as tree_flatten_with_path
from phalanx.tree.operations import tree_leaves as tree_leaves
from phalanx.tree.operations import tree_leaves_with_path as tree_leaves_with_path
from phalanx.tree.operations import tree_map as tree_map
from phalanx.tree.operations import tree_map_with_path as tree_map_with_path
from phalanx.tree.operations import tree_reduce as tree_reduce
from phalanx.tree.operations import tree_reduce_associative as tree_reduce_associative
from phalanx.tree.operations import tree_structure as tree_structure
from phalanx.tree.operations import tree_transpose as tree_transpose
from phalanx.tree.operations import tree_unflatten as tree_unflatten
from phalanx.tree.operations import treedef_children as treedef_children
from phalanx.tree.operations import treedef_is_leaf as treedef_is_leaf
from phalanx.tree.operations import treedef_tuple as treedef_tuple
from phalanx.tree.partial import Partial as Partial
from phalanx.tree.paths import DictKey as DictKey
from phalanx.tree.paths import FlattenedIndexKey as FlattenedIndexKey
from phalanx.tree.paths import GetAttrKey as GetAttrKey
from phalanx.tree.paths import KeyEntry as KeyEntry
from phalanx.tree.paths import KeyPath as KeyPath
from phalanx.tree.paths import SequenceKey as SequenceKey
from phalanx.tree.paths import keystr as keystr
from phalanx.tree.prefix import broadcast_prefix as broadcast_prefix
from phalanx.tree.prefix import equality_errors as equality_errors
from phalanx.tree.prefix import flatten_axes as flatten_axes
from phalanx.tree.prefix import prefix_errors as prefix_errors
from phalanx.tree.prefix import tree_broadcast as tree_broadcast
from phalanx.tree.registration import register_dataclass as register_dataclass
from phalanx.tree.registration import register_pytree_node as register_pytree_node
from phalanx.tree.registration import register_pytree_node_class as register_pytree_node_class
from phalanx.tree.registration import register_pytree_with_keys as register_pytree_with_keys
from phalanx.tree.registration import register_pytree_with_keys_class as register_pytree_with_keys_class
from phalanx.tree.registration import register_static as register_static
from phalanx.tree.registration import static as static

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

# What users write; the rooms above come in by the long names.
_short = "all flatten flatten_with_path leaves leaves_with_path map map_with_path reduce reduce_associative structure"
_guard(globals(), f"{_short} transpose unflatten broadcast".split())
