"""Modules with state: `Module`, variables, graphs and their transformations, with the names of Flax NNX.

Modules are ordinary Python objects with reference semantics. `graphs` describes their structure and remembers it,
`functional` takes them apart and puts them together, `rngs` keeps random streams, `lifting` lifts transformations
over them. Layers, metrics and optimisers are loaded at their first use.
"""

import importlib

from phalanx.engine.frames import guard as _guard
from phalanx.nnx import filters as filters
from phalanx.nnx.autodiff import DiffState as DiffState
from phalanx.nnx.autodiff import custom_vjp as custom_vjp
from phalanx.nnx.autodiff import grad as grad
from phalanx.nnx.autodiff import value_and_grad as value_and_grad
from phalanx.nnx.calls import cached_partial as cached_partial
from phalanx.nnx.calls import checkpoint as checkpoint
from phalanx.nnx.calls import cond as cond
from phalanx.nnx.calls import eval_shape as eval_shape
from phalanx.nnx.calls import remat as remat
from phalanx.nnx.calls import switch as switch
from phalanx.nnx.filters import All as All
from phalanx.nnx.filters import AnyOf as AnyOf
from phalanx.nnx.filters import Everything as Everything
from phalanx.nnx.filters import Not as Not
from phalanx.nnx.filters import Nothing as Nothing
from phalanx.nnx.filters import OfType as OfType
from phalanx.nnx.filters import PathContains as PathContains
from phalanx.nnx.filters import PathIn as PathIn
from phalanx.nnx.filters import WithTag as WithTag
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
from phalanx.nnx.functional import pop as pop
from phalanx.nnx.functional import recursive_map as recursive_map
from phalanx.nnx.functional import set_metadata as set_metadata
from phalanx.nnx.functional import split as split
from phalanx.nnx.functional import state as state
from phalanx.nnx.functional import unflatten as unflatten
from phalanx.nnx.functional import update as update
from phalanx.nnx.functional import variables as variables
from phalanx.nnx.functional import view as view
from phalanx.nnx.graphs import GraphDef as GraphDef
from phalanx.nnx.jitting import jit as jit
from phalanx.nnx.loops import fori_loop as fori_loop
from phalanx.nnx.loops import scan as scan
from phalanx.nnx.loops import while_loop as while_loop
from phalanx.nnx.mapping import pmap as pmap
from phalanx.nnx.mapping import shard_map as shard_map
from phalanx.nnx.mapping import vmap as vmap
from phalanx.nnx.module import Module as Module
from phalanx.nnx.objects import Data as Data
from phalanx.nnx.objects import Dict as Dict
from phalanx.nnx.objects import List as List
from phalanx.nnx.objects import Object as Object
from phalanx.nnx.objects import StaticHint as StaticHint
from phalanx.nnx.objects import data as data
from phalanx.nnx.objects import dataclass as dataclass
from phalanx.nnx.objects import is_data as is_data
from phalanx.nnx.objects import static as static
from phalanx.nnx.partitioning import PARTITION_NAME as PARTITION_NAME
from phalanx.nnx.partitioning import abstract_with_sharding as abstract_with_sharding
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
from phalanx.nnx.variables import BatchStat as BatchStat
from phalanx.nnx.variables import Cache as Cache
from phalanx.nnx.variables import Intermediate as Intermediate
from phalanx.nnx.variables import LoRAParam as LoRAParam
from phalanx.nnx.variables import OptArray as OptArray
from phalanx.nnx.variables import OptState as OptState
from phalanx.nnx.variables import OptVariable as OptVariable
from phalanx.nnx.variables import Param as Param
from phalanx.nnx.variables import Perturbation as Perturbation
from phalanx.nnx.variables import Variable as Variable
from phalanx.nnx.variables import VariableMetadata as VariableMetadata
from phalanx.nnx.variables import as_pure as as_pure
from phalanx.nnx.variables import register_variable_name as register_variable_name
from phalanx.nnx.variables import variable_name_from_type as variable_name_from_type
from phalanx.nnx.variables import variable_type_from_name as variable_type_from_name

Any = AnyOf
Pytree = Object
Static = StaticHint
filterlib = filters
iter_module_children = iter_children
pure = as_pure
with_attributes = view

# Where a name that is loaded at its first use lives.
_LAZY = {
    name: room
    for room, names in {
        "nn": (
            "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity initializers leaky_relu "
            "log_sigmoid log_softmax logsumexp one_hot relu relu6 selu sigmoid silu soft_sign softmax "
            "softplus standardize swish tanh"
        ),
        "nnx.averaging": "EMA",
        "nnx.drawing": "display",
        "nnx.layers": (
            "avg_pool BatchNorm Bidirectional combine_masks Conv ConvTranspose dot_product_attention "
            "dot_product_attention_weights Dropout Einsum Embed flip_sequences GroupNorm GRUCell "
            "InstanceNorm LayerNorm Linear LinearGeneral LoRA LoRALinear LSTMCell make_attention_mask "
            "make_causal_mask max_pool min_pool MultiHeadAttention OptimizedLSTMCell pool PReLU RMSNorm RNN "
            "RNNCellBase Sequential SimpleCell SpectralNorm WeightNorm"
        ),
        "nnx.metrics": "Metric MultiMetric",
        "nnx.optimizer": "ModelAndOptimizer Optimizer",
        "nnx.summary": "tabulate",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name == "metrics":
        return importlib.import_module("phalanx.nnx.metrics")
    room = _LAZY.get(name)
    if room is None:
        raise AttributeError(f"module 'phalanx.nnx' has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"phalanx.{room}"), name)
    _guard(globals())
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "metrics"})


_guard(globals())
