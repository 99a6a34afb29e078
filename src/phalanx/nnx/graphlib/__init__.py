"""Graphs of objects: their structure, their traversal, and conversion to and from states.

Other packages import what they need from here; `phalanx.nnx` lists the names that are for users.
"""

from phalanx.nnx.graphlib.graph_build import build as build
from phalanx.nnx.graphlib.graph_def import (
    ArrayRefDef as ArrayRefDef,
    GraphDef as GraphDef,
    NestDef as NestDef,
    ObjectDef as NodeDef,  # noqa: F401
    RefDef as NodeRef,  # noqa: F401
    TreeNodeDef as TreeNodeDef,
    VariableDef as VariableDef,
    check_is_tree as check_is_tree,
    describe_difference as describe_difference,
)
from phalanx.nnx.graphlib.graph_state import GraphState as GraphState, NodeStates as NodeStates
from phalanx.nnx.graphlib.graph_walk import (
    Graph as Graph,
    Walk as Walk,
    get_entry as get_entry,
    get_graph as get_graph,
    get_joint_graph as get_joint_graph,
    iter_entries as iter_entries,
    unwrap_key as unwrap_key,
)
from phalanx.nnx.graphlib.ref_map import IndexMap as IndexMap, RefMap as RefMap
from phalanx.nnx.graphlib.split_context import (
    MergeContext as MergeContext,
    SplitContext as SplitContext,
    UpdateContext as UpdateContext,
    current_update_context as current_update_context,
    merge_context as merge_context,
    split_context as split_context,
    update_context as update_context,
)
from phalanx.nnx.graphlib.split_merge import (
    PureState as PureState,
    call as call,
    clone as clone,
    find_duplicates as find_duplicates,
    flatten as flatten,
    graphdef as graphdef,
    iter_graph as iter_graph,
    iter_objects as iter_objects,
    map as map,
    merge as merge,
    pop as pop,
    recursive_map as recursive_map,
    set_attributes as set_attributes,
    split as split,
    state as state,
    unflatten as unflatten,
    unpack as unpack,
    update as update,
    variables as variables,
)
from phalanx.nnx.graphlib.states import (
    FlatState as FlatState,
    Path as Path,
    State as State,
    diff as diff,
    filter_state as filter_state,
    flatten_state as flatten_state,
    format_path as format_path,
    from_flat_state as from_flat_state,
    make_unflatten as make_unflatten,
    map_state as map_state,
    merge_state as merge_state,
    replace_by_pure_dict as replace_by_pure_dict,
    restore_int_paths as restore_int_paths,
    split_state as split_state,
    to_flat_state as to_flat_state,
    to_pure_dict as to_pure_dict,
)
from phalanx.nnx.graphlib.variable_metadata import set_metadata as set_metadata, with_vars as with_vars
