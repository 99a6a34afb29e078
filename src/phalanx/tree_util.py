"""The names of `phalanx.tree` as the field first spelled them: `tree_map`, `register_pytree_node`, `Partial`, ...

A face over `phalanx.tree` and nothing more.
"""

from phalanx.engine.frames import guard as _guard
from phalanx.engine.pytree import registry
from phalanx.tree import DictKey as DictKey
from phalanx.tree import FlattenedIndexKey as FlattenedIndexKey
from phalanx.tree import GetAttrKey as GetAttrKey
from phalanx.tree import KeyEntry as KeyEntry
from phalanx.tree import KeyPath as KeyPath
from phalanx.tree import Partial as Partial
from phalanx.tree import PyTreeDef as PyTreeDef
from phalanx.tree import SequenceKey as SequenceKey
from phalanx.tree import all_leaves as all_leaves
from phalanx.tree import broadcast_prefix as broadcast_prefix
from phalanx.tree import equality_errors as equality_errors
from phalanx.tree import flatten_axes as flatten_axes
from phalanx.tree import flatten_one_level as flatten_one_level
from phalanx.tree import flatten_one_level_with_keys as flatten_one_level_with_keys
from phalanx.tree import is_tree_node as is_tree_node
from phalanx.tree import keystr as keystr
from phalanx.tree import prefix_errors as prefix_errors
from phalanx.tree import register_dataclass as register_dataclass
from phalanx.tree import register_pytree_node as register_pytree_node
from phalanx.tree import register_pytree_node_class as register_pytree_node_class
from phalanx.tree import register_pytree_with_keys as register_pytree_with_keys
from phalanx.tree import register_pytree_with_keys_class as register_pytree_with_keys_class
from phalanx.tree import register_static as register_static
from phalanx.tree import tree_all as tree_all
from phalanx.tree import tree_broadcast as tree_broadcast
from phalanx.tree import tree_flatten as tree_flatten
from phalanx.tree import tree_flatten_with_path as tree_flatten_with_path
from phalanx.tree import tree_leaves as tree_leaves
from phalanx.tree import tree_leaves_with_path as tree_leaves_with_path
from phalanx.tree import tree_map as tree_map
from phalanx.tree import tree_map_with_path as tree_map_with_path
from phalanx.tree import tree_reduce as tree_reduce
from phalanx.tree import tree_reduce_associative as tree_reduce_associative
from phalanx.tree import tree_structure as tree_structure
from phalanx.tree import tree_transpose as tree_transpose
from phalanx.tree import tree_unflatten as tree_unflatten
from phalanx.tree import treedef_children as treedef_children
from phalanx.tree import treedef_is_leaf as treedef_is_leaf
from phalanx.tree import treedef_tuple as treedef_tuple

default_registry = registry

tree_multimap = tree_map  # its name for several trees, in programs of 2020

_guard(globals())
