"""Modules with state: `Module`, variables, graphs and their transformations, with the names of Flax NNX.

Modules are ordinary Python objects with reference semantics. `graphs` describes their structure and remembers it,
`functional` takes them apart and puts them together, `rngs` keeps random streams, `lifting` lifts transformations
over them. This page is only a face: each name is loaded at its first use, from where the table below says it lives; it
stands there once more for type checkers. A test holds the two together.
"""

import importlib

TYPE_CHECKING = False  # As type checkers know it.

if TYPE_CHECKING:
    from phalanx.nn import celu as celu
    from phalanx.nn import elu as elu
    from phalanx.nn import gelu as gelu
    from phalanx.nn import glu as glu
    from phalanx.nn import hard_sigmoid as hard_sigmoid
    from phalanx.nn import hard_silu as hard_silu
    from phalanx.nn import hard_swish as hard_swish
    from phalanx.nn import hard_tanh as hard_tanh
    from phalanx.nn import identity as identity
    from phalanx.nn import initializers as initializers
    from phalanx.nn import leaky_relu as leaky_relu
    from phalanx.nn import log_sigmoid as log_sigmoid
    from phalanx.nn import log_softmax as log_softmax
    from phalanx.nn import logsumexp as logsumexp
    from phalanx.nn import one_hot as one_hot
    from phalanx.nn import relu as relu
    from phalanx.nn import relu6 as relu6
    from phalanx.nn import selu as selu
    from phalanx.nn import sigmoid as sigmoid
    from phalanx.nn import silu as silu
    from phalanx.nn import soft_sign as soft_sign
    from phalanx.nn import softmax as softmax
    from phalanx.nn import softplus as softplus
    from phalanx.nn import standardize as standardize
    from phalanx.nn import swish as swish
    from phalanx.nn import tanh as tanh
    from phalanx.nnx import filters as filterlib  # noqa: F401
    from phalanx.nnx import filters as filters
    from phalanx.nnx import functional as graph  # noqa: F401
    from phalanx.nnx import metrics as metrics
    from phalanx.nnx import partitioning as spmd  # noqa: F401
    from phalanx.nnx import rngs as rnglib  # noqa: F401
    from phalanx.nnx import states as statelib  # noqa: F401
    from phalanx.nnx import traversals as traversals
    from phalanx.nnx import variable as variablelib  # noqa: F401
    from phalanx.nnx.autodiff import DiffState as DiffState
    from phalanx.nnx.autodiff import custom_vjp as custom_vjp
    from phalanx.nnx.autodiff import grad as grad
    from phalanx.nnx.autodiff import jvp as jvp
    from phalanx.nnx.autodiff import value_and_grad as value_and_grad
    from phalanx.nnx.autodiff import vjp as vjp
    from phalanx.nnx.averaging import EMA as EMA
    from phalanx.nnx.calls import cached_partial as cached_partial
    from phalanx.nnx.calls import checkpoint as checkpoint
    from phalanx.nnx.calls import cond as cond
    from phalanx.nnx.calls import eval_shape as eval_shape
    from phalanx.nnx.calls import make_jaxpr as make_jaxpr
    from phalanx.nnx.calls import remat as remat
    from phalanx.nnx.calls import set_graph_mode as set_graph_mode
    from phalanx.nnx.calls import set_graph_updates as set_graph_updates
    from phalanx.nnx.calls import switch as switch
    from phalanx.nnx.capturing import capture as capture
    from phalanx.nnx.drawing import display as display
    from phalanx.nnx.filters import All as All
    from phalanx.nnx.filters import AnyOf as AnyOf
    from phalanx.nnx.filters import Everything as Everything
    from phalanx.nnx.filters import Not as Not
    from phalanx.nnx.filters import Nothing as Nothing
    from phalanx.nnx.filters import OfType as OfType
    from phalanx.nnx.filters import PathContains as PathContains
    from phalanx.nnx.filters import PathIn as PathIn
    from phalanx.nnx.filters import WithTag as WithTag
    from phalanx.nnx.functional import MergeContext as MergeContext
    from phalanx.nnx.functional import SplitContext as SplitContext
    from phalanx.nnx.functional import call as call
    from phalanx.nnx.functional import clone as clone
    from phalanx.nnx.functional import find_duplicates as find_duplicates
    from phalanx.nnx.functional import flatten as flatten
    from phalanx.nnx.functional import graphdef as graphdef
    from phalanx.nnx.functional import iter_children as iter_children
    from phalanx.nnx.functional import iter_graph as iter_graph
    from phalanx.nnx.functional import iter_modules as iter_modules
    from phalanx.nnx.functional import map as map
    from phalanx.nnx.functional import merge as merge
    from phalanx.nnx.functional import merge_context as merge_context
    from phalanx.nnx.functional import pop as pop
    from phalanx.nnx.functional import recursive_map as recursive_map
    from phalanx.nnx.functional import set_metadata as set_metadata
    from phalanx.nnx.functional import split as split
    from phalanx.nnx.functional import split_context as split_context
    from phalanx.nnx.functional import state as state
    from phalanx.nnx.functional import unflatten as unflatten
    from phalanx.nnx.functional import update as update
    from phalanx.nnx.functional import variables as variables
    from phalanx.nnx.graphs import GraphDef as GraphDef
    from phalanx.nnx.jitting import jit as jit
    from phalanx.nnx.jitting import jit_partial as jit_partial
    from phalanx.nnx.layers import RNN as RNN
    from phalanx.nnx.layers import BatchNorm as BatchNorm
    from phalanx.nnx.layers import Bidirectional as Bidirectional
    from phalanx.nnx.layers import Conv as Conv
    from phalanx.nnx.layers import ConvTranspose as ConvTranspose
    from phalanx.nnx.layers import Dropout as Dropout
    from phalanx.nnx.layers import Einsum as Einsum
    from phalanx.nnx.layers import Embed as Embed
    from phalanx.nnx.layers import GroupNorm as GroupNorm
    from phalanx.nnx.layers import GRUCell as GRUCell
    from phalanx.nnx.layers import InstanceNorm as InstanceNorm
    from phalanx.nnx.layers import LayerNorm as LayerNorm
    from phalanx.nnx.layers import Linear as Linear
    from phalanx.nnx.layers import LinearGeneral as LinearGeneral
    from phalanx.nnx.layers import LoRA as LoRA
    from phalanx.nnx.layers import LoRALinear as LoRALinear
    from phalanx.nnx.layers import LSTMCell as LSTMCell
    from phalanx.nnx.layers import MultiHeadAttention as MultiHeadAttention
    from phalanx.nnx.layers import OptimizedLSTMCell as OptimizedLSTMCell
    from phalanx.nnx.layers import PReLU as PReLU
    from phalanx.nnx.layers import RMSNorm as RMSNorm
    from phalanx.nnx.layers import RNNCellBase as RNNCellBase
    from phalanx.nnx.layers import RoPE as RoPE
    from phalanx.nnx.layers import Sequential as Sequential
    from phalanx.nnx.layers import SimpleCell as SimpleCell
    from phalanx.nnx.layers import SpectralNorm as SpectralNorm
    from phalanx.nnx.layers import WeightNorm as WeightNorm
    from phalanx.nnx.layers import avg_pool as avg_pool
    from phalanx.nnx.layers import combine_masks as combine_masks
    from phalanx.nnx.layers import dot_product_attention as dot_product_attention
    from phalanx.nnx.layers import dot_product_attention_weights as dot_product_attention_weights
    from phalanx.nnx.layers import dot_product_attention_with_rope as dot_product_attention_with_rope
    from phalanx.nnx.layers import flip_sequences as flip_sequences
    from phalanx.nnx.layers import make_attention_mask as make_attention_mask
    from phalanx.nnx.layers import make_causal_mask as make_causal_mask
    from phalanx.nnx.layers import max_pool as max_pool
    from phalanx.nnx.layers import min_pool as min_pool
    from phalanx.nnx.layers import pool as pool
    from phalanx.nnx.lifting import from_tree as from_tree
    from phalanx.nnx.lifting import to_tree as to_tree
    from phalanx.nnx.loops import fori_loop as fori_loop
    from phalanx.nnx.loops import scan as scan
    from phalanx.nnx.loops import while_loop as while_loop
    from phalanx.nnx.mapping import pmap as pmap
    from phalanx.nnx.mapping import shard_map as shard_map
    from phalanx.nnx.mapping import vmap as vmap
    from phalanx.nnx.metrics import Metric as Metric
    from phalanx.nnx.metrics import MultiMetric as MultiMetric
    from phalanx.nnx.module import Module as Module
    from phalanx.nnx.objects import Data as Data
    from phalanx.nnx.objects import Dict as Dict
    from phalanx.nnx.objects import List as List
    from phalanx.nnx.objects import Object as Object
    from phalanx.nnx.objects import StaticHint as StaticHint
    from phalanx.nnx.objects import data as data
    from phalanx.nnx.objects import dataclass as dataclass
    from phalanx.nnx.objects import has_data as has_data
    from phalanx.nnx.objects import is_data as is_data
    from phalanx.nnx.objects import register_data_type as register_data_type
    from phalanx.nnx.objects import static as static
    from phalanx.nnx.optimizer import ModelAndOptimizer as ModelAndOptimizer
    from phalanx.nnx.optimizer import Optimizer as Optimizer
    from phalanx.nnx.partitioning import PARTITION_NAME as PARTITION_NAME
    from phalanx.nnx.partitioning import abstract_with_sharding as abstract_with_sharding
    from phalanx.nnx.partitioning import as_abstract as as_abstract
    from phalanx.nnx.partitioning import get_abstract_model as get_abstract_model
    from phalanx.nnx.partitioning import get_named_sharding as get_named_sharding
    from phalanx.nnx.partitioning import get_partition_spec as get_partition_spec
    from phalanx.nnx.partitioning import with_metadata as with_metadata
    from phalanx.nnx.partitioning import with_partitioning as with_partitioning
    from phalanx.nnx.placing import logical_axis_rules as logical_axis_rules
    from phalanx.nnx.placing import use_eager_sharding as use_eager_sharding
    from phalanx.nnx.placing import using_eager_sharding as using_eager_sharding
    from phalanx.nnx.prefixes import Carry as Carry
    from phalanx.nnx.prefixes import StateAxes as StateAxes
    from phalanx.nnx.prefixes import StateSharding as StateSharding
    from phalanx.nnx.prefixes import prefix as prefix
    from phalanx.nnx.rngs import MissingStreamError as MissingStreamError
    from phalanx.nnx.rngs import RngCount as RngCount
    from phalanx.nnx.rngs import RngKey as RngKey
    from phalanx.nnx.rngs import Rngs as Rngs
    from phalanx.nnx.rngs import RngState as RngState
    from phalanx.nnx.rngs import RngStream as RngStream
    from phalanx.nnx.rngs import fork_rngs as fork_rngs
    from phalanx.nnx.rngs import reseed as reseed
    from phalanx.nnx.rngs import restore_rngs as restore_rngs
    from phalanx.nnx.rngs import split_rngs as split_rngs
    from phalanx.nnx.rngs import with_rngs as with_rngs
    from phalanx.nnx.states import FlatState as FlatState
    from phalanx.nnx.states import State as State
    from phalanx.nnx.states import filter_state as filter_state
    from phalanx.nnx.states import from_flat_state as from_flat_state
    from phalanx.nnx.states import map_state as map_state
    from phalanx.nnx.states import merge_state as merge_state
    from phalanx.nnx.states import replace_by_pure_dict as replace_by_pure_dict
    from phalanx.nnx.states import restore_int_paths as restore_int_paths
    from phalanx.nnx.states import split_state as split_state
    from phalanx.nnx.states import to_flat_state as to_flat_state
    from phalanx.nnx.states import to_pure_dict as to_pure_dict
    from phalanx.nnx.summary import tabulate as tabulate
    from phalanx.nnx.training import TrainState as TrainState
    from phalanx.nnx.variable import BatchStat as BatchStat
    from phalanx.nnx.variable import Cache as Cache
    from phalanx.nnx.variable import Intermediate as Intermediate
    from phalanx.nnx.variable import LoRAParam as LoRAParam
    from phalanx.nnx.variable import OptArray as OptArray
    from phalanx.nnx.variable import OptState as OptState
    from phalanx.nnx.variable import OptVariable as OptVariable
    from phalanx.nnx.variable import Param as Param
    from phalanx.nnx.variable import Perturbation as Perturbation
    from phalanx.nnx.variable import Variable as Variable
    from phalanx.nnx.variable import VariableMetadata as VariableMetadata
    from phalanx.nnx.variable import as_pure as as_pure
    from phalanx.nnx.variable import register_variable_name as register_variable_name
    from phalanx.nnx.variable import variable_name_from_type as variable_name_from_type
    from phalanx.nnx.variable import variable_type_from_name as variable_type_from_name
    from phalanx.nnx.views import view as view
    from phalanx.nnx.views import view_info as view_info
    from phalanx.nnx.views import with_attributes as with_attributes

    Any = AnyOf
    Pytree = Object
    Static = StaticHint
    iter_module_children = iter_children
    pure = as_pure
    with_modules = view

_NAMES = {
    name: (f"phalanx.{room}", name)
    for room, names in {
        "nn": (
            "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity initializers leaky_relu "
            "log_sigmoid log_softmax logsumexp one_hot relu relu6 selu sigmoid silu soft_sign softmax "
            "softplus standardize swish tanh"
        ),
        "nnx.autodiff": "custom_vjp DiffState grad jvp value_and_grad vjp",
        "nnx.averaging": "EMA",
        "nnx.calls": (
            "cached_partial checkpoint cond eval_shape make_jaxpr remat set_graph_mode set_graph_updates switch"
        ),
        "nnx.capturing": "capture",
        "nnx.drawing": "display",
        "nnx.filters": "All AnyOf Everything Not Nothing OfType PathContains PathIn WithTag",
        "nnx.functional": (
            "call clone find_duplicates flatten graphdef iter_children iter_graph iter_modules map merge "
            "merge_context MergeContext pop recursive_map set_metadata split split_context SplitContext state "
            "unflatten update variables"
        ),
        "nnx.graphs": "GraphDef",
        "nnx.jitting": "jit jit_partial",
        "nnx.layers": (
            "avg_pool BatchNorm Bidirectional combine_masks Conv ConvTranspose dot_product_attention "
            "dot_product_attention_weights dot_product_attention_with_rope Dropout Einsum Embed flip_sequences "
            "GroupNorm GRUCell InstanceNorm LayerNorm Linear LinearGeneral LoRA LoRALinear LSTMCell "
            "make_attention_mask make_causal_mask max_pool min_pool MultiHeadAttention OptimizedLSTMCell pool PReLU "
            "RMSNorm RNN RNNCellBase RoPE Sequential SimpleCell SpectralNorm WeightNorm"
        ),
        "nnx.lifting": "from_tree to_tree",
        "nnx.loops": "fori_loop scan while_loop",
        "nnx.mapping": "pmap shard_map vmap",
        "nnx.metrics": "Metric MultiMetric",
        "nnx.module": "Module",
        "nnx.objects": "Data data dataclass Dict has_data is_data List Object register_data_type static StaticHint",
        "nnx.optimizer": "ModelAndOptimizer Optimizer",
        "nnx.partitioning": (
            "abstract_with_sharding as_abstract get_abstract_model get_named_sharding get_partition_spec "
            "PARTITION_NAME with_metadata with_partitioning"
        ),
        "nnx.placing": "logical_axis_rules use_eager_sharding using_eager_sharding",
        "nnx.prefixes": "Carry prefix StateAxes StateSharding",
        "nnx.rngs": (
            "fork_rngs MissingStreamError reseed restore_rngs RngCount RngKey Rngs RngState RngStream "
            "split_rngs with_rngs"
        ),
        "nnx.states": (
            "filter_state FlatState from_flat_state map_state merge_state replace_by_pure_dict "
            "restore_int_paths split_state State to_flat_state to_pure_dict"
        ),
        "nnx.summary": "tabulate",
        "nnx.training": "TrainState",
        "nnx.views": "view view_info with_attributes",
        "nnx.variable": (
            "as_pure BatchStat Cache Intermediate LoRAParam OptArray OptState OptVariable Param Perturbation "
            "register_variable_name Variable variable_name_from_type variable_type_from_name VariableMetadata"
        ),
    }.items()
    for name in names.split()
} | {
    "Any": ("phalanx.nnx.filters", "AnyOf"),
    "Pytree": ("phalanx.nnx.objects", "Object"),
    "Static": ("phalanx.nnx.objects", "StaticHint"),
    "iter_module_children": ("phalanx.nnx.functional", "iter_children"),
    "pure": ("phalanx.nnx.variable", "as_pure"),
    "with_modules": ("phalanx.nnx.views", "view"),
}

# Modules under the names that programs of the field import them by.
_MODULES = {
    "filters": "phalanx.nnx.filters",
    "filterlib": "phalanx.nnx.filters",
    "graph": "phalanx.nnx.functional",
    "metrics": "phalanx.nnx.metrics",
    "rnglib": "phalanx.nnx.rngs",
    "spmd": "phalanx.nnx.partitioning",
    "statelib": "phalanx.nnx.states",
    "traversals": "phalanx.nnx.traversals",
    "variablelib": "phalanx.nnx.variable",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        room, own_name = _NAMES[name]
        found = getattr(importlib.import_module(room), own_name)
    else:
        raise AttributeError(f"module 'phalanx.nnx' has no attribute {name!r}")
    globals()[name] = found  # The next look-up does not come here.
    if name in _NAMES:
        importlib.import_module("phalanx.engine.frames").guard(globals(), (name,))
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*_MODULES, *_NAMES})
