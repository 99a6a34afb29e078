"""Modules with state: `Module`, variables, graphs and transformations, with the names of Flax NNX.

Modules are ordinary Python objects with reference semantics. `graphlib` describes their structure and splits and merges
them, `transforms` lifts transformations to functions of modules, `layers` has the layers, `training` has optimizers,
and `inspection` shows models.

Names are imported on first use, so that `import phalanx.nnx` loads nothing else. `_NAMES` lists the module of each
name; the block for type checkers repeats the list, and a test compares the two.
"""

import builtins
import importlib
import sys

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.nn import (
        celu as celu,
        elu as elu,
        gelu as gelu,
        glu as glu,
        hard_sigmoid as hard_sigmoid,
        hard_silu as hard_silu,
        hard_swish as hard_swish,
        hard_tanh as hard_tanh,
        identity as identity,
        leaky_relu as leaky_relu,
        log_sigmoid as log_sigmoid,
        log_softmax as log_softmax,
        logsumexp as logsumexp,
        one_hot as one_hot,
        relu as relu,
        relu6 as relu6,
        selu as selu,
        sigmoid as sigmoid,
        silu as silu,
        soft_sign as soft_sign,
        softmax as softmax,
        softplus as softplus,
        standardize as standardize,
        swish as swish,
        tanh as tanh,
    )
    from phalanx.nn.initializers import Initializer as Initializer
    from phalanx.nnx import (  # type: ignore[attr-defined]  # alias modules
        bridge as bridge,
        bridge as wrappers,  # noqa: F401
        compat as compat,
        extract as extract,
        filters as filterlib,  # noqa: F401
        filters as filters,
        graphlib as graph,  # noqa: F401
        graphlib as graphlib,
        helpers as helpers,
        initializers as initializers,
        metrics as metrics,
        nn as nn,
        objects as object,  # noqa: F401
        objects as pytreelib,  # noqa: F401
        rngs as rnglib,  # noqa: F401
        traversals as traversals,
        variablelib as variablelib,
    )
    from phalanx.nnx.containers import Dict as Dict, List as List
    from phalanx.nnx.filters import (
        All as All,
        Any as Any,
        Everything as Everything,
        Not as Not,
        Nothing as Nothing,
        OfType as OfType,
        PathContains as PathContains,
        PathIn as PathIn,
        WithTag as WithTag,
    )
    from phalanx.nnx.graph_mode import set_graph_mode as set_graph_mode, set_graph_updates as set_graph_updates
    from phalanx.nnx.graphlib import (
        FlatState as FlatState,
        GraphDef as GraphDef,
        GraphState as GraphState,
        MergeContext as MergeContext,
        NodeStates as NodeStates,
        PureState as PureState,
        SplitContext as SplitContext,
        State as State,
        UpdateContext as UpdateContext,
        call as call,
        clone as clone,
        current_update_context as current_update_context,
        filter_state as filter_state,
        find_duplicates as find_duplicates,
        flatten as flatten,
        from_flat_state as from_flat_state,
        graphdef as graphdef,
        iter_graph as iter_graph,
        map as map,
        map_state as map_state,
        merge as merge,
        merge_context as merge_context,
        merge_state as merge_state,
        pop as pop,
        recursive_map as recursive_map,
        replace_by_pure_dict as replace_by_pure_dict,
        restore_int_paths as restore_int_paths,
        set_metadata as set_metadata,
        split as split,
        split_context as split_context,
        split_state as split_state,
        state as state,
        states as statelib,  # noqa: F401
        to_flat_state as to_flat_state,
        to_pure_dict as to_pure_dict,
        unflatten as unflatten,
        unpack as unpack,
        update as update,
        update_context as update_context,
        variables as variables,
        with_vars as with_vars,
    )
    from phalanx.nnx.inspection import display as visualization, tabulate as summary  # noqa: F401
    from phalanx.nnx.inspection.capture import capture as capture
    from phalanx.nnx.inspection.display import display as display
    from phalanx.nnx.inspection.tabulate import tabulate as tabulate
    from phalanx.nnx.layers.conv_layers import Conv as Conv, ConvTranspose as ConvTranspose
    from phalanx.nnx.layers.dropout import Dropout as Dropout
    from phalanx.nnx.layers.linear_layers import (
        Einsum as Einsum,
        Embed as Embed,
        Linear as Linear,
        LinearGeneral as LinearGeneral,
    )
    from phalanx.nnx.layers.lora import LoRA as LoRA, LoRALinear as LoRALinear
    from phalanx.nnx.layers.multi_head_attention import (
        MultiHeadAttention as MultiHeadAttention,
        combine_masks as combine_masks,
        dot_product_attention as dot_product_attention,
        dot_product_attention_weights as dot_product_attention_weights,
        make_attention_mask as make_attention_mask,
        make_causal_mask as make_causal_mask,
    )
    from phalanx.nnx.layers.norm_layers import (
        BatchNorm as BatchNorm,
        GroupNorm as GroupNorm,
        InstanceNorm as InstanceNorm,
        LayerNorm as LayerNorm,
        RMSNorm as RMSNorm,
    )
    from phalanx.nnx.layers.pooling import (
        avg_pool as avg_pool,
        max_pool as max_pool,
        min_pool as min_pool,
        pool as pool,
    )
    from phalanx.nnx.layers.rnn import (
        RNN as RNN,
        Bidirectional as Bidirectional,
        GRUCell as GRUCell,
        LSTMCell as LSTMCell,
        OptimizedLSTMCell as OptimizedLSTMCell,
        RNNCellBase as RNNCellBase,
        SimpleCell as SimpleCell,
        flip_sequences as flip_sequences,
    )
    from phalanx.nnx.layers.rope import RoPE as RoPE, dot_product_attention_with_rope as dot_product_attention_with_rope
    from phalanx.nnx.layers.sequential import PReLU as PReLU, Sequential as Sequential
    from phalanx.nnx.layers.weight_norm import SpectralNorm as SpectralNorm, WeightNorm as WeightNorm
    from phalanx.nnx.metrics import Metric as Metric, MultiMetric as MultiMetric
    from phalanx.nnx.module import (
        M as M,
        Module as Module,
        iter_children as iter_children,
        iter_module_children as iter_module_children,
        iter_modules as iter_modules,
    )
    from phalanx.nnx.objects import (
        Data as Data,
        Object as Object,
        Pytree as Pytree,
        StaticHint as StaticHint,
        check_pytree as check_pytree,
        data as data,
        dataclass as dataclass,
        has_data as has_data,
        is_data as is_data,
        register_data_type as register_data_type,
        static as static,
    )
    from phalanx.nnx.rngs import (
        MissingStreamError as MissingStreamError,
        RngCount as RngCount,
        RngKey as RngKey,
        Rngs as Rngs,
        RngState as RngState,
        RngStream as RngStream,
        fork_rngs as fork_rngs,
        reseed as reseed,
        restore_rngs as restore_rngs,
        split_rngs as split_rngs,
        with_rngs as with_rngs,
    )
    from phalanx.nnx.sharding import partitioning as spmd  # noqa: F401
    from phalanx.nnx.sharding.logical_axis_rules import (
        logical_axis_rules as logical_axis_rules,
        use_eager_sharding as use_eager_sharding,
        using_eager_sharding as using_eager_sharding,
    )
    from phalanx.nnx.sharding.partitioning import (
        PARTITION_NAME as PARTITION_NAME,
        abstract_with_sharding as abstract_with_sharding,
        as_abstract as as_abstract,
        get_abstract_model as get_abstract_model,
        get_named_sharding as get_named_sharding,
        get_partition_spec as get_partition_spec,
        with_metadata as with_metadata,
        with_partitioning as with_partitioning,
    )
    from phalanx.nnx.training import optimizer as optimizer
    from phalanx.nnx.training.ema import EMA as EMA
    from phalanx.nnx.training.optimizer import ModelAndOptimizer as ModelAndOptimizer, Optimizer as Optimizer
    from phalanx.nnx.training.train_state import TrainState as TrainState
    from phalanx.nnx.transforms.lifted_checkify import checkify as checkify
    from phalanx.nnx.transforms.lifted_control_flow import (
        cond as cond,
        fori_loop as fori_loop,
        scan as scan,
        switch as switch,
        while_loop as while_loop,
    )
    from phalanx.nnx.transforms.lifted_derivatives import (
        DiffState as DiffState,
        checkpoint as checkpoint,
        custom_vjp as custom_vjp,
        grad as grad,
        jvp as jvp,
        remat as remat,
        value_and_grad as value_and_grad,
        vjp as vjp,
    )
    from phalanx.nnx.transforms.lifted_eval_shape import eval_shape as eval_shape, make_jaxpr as make_jaxpr
    from phalanx.nnx.transforms.lifted_jit import jit as jit, jit_partial as jit_partial
    from phalanx.nnx.transforms.lifted_vmap import (
        pmap as pmap,
        shard_map as shard_map,
        transform_metadata as transform_metadata,
        vmap as vmap,
    )
    from phalanx.nnx.transforms.lifting import (
        cached_partial as cached_partial,
        from_tree as from_tree,
        to_tree as to_tree,
    )
    from phalanx.nnx.transforms.state_axes import (
        Carry as Carry,
        StateAxes as StateAxes,
        StateSharding as StateSharding,
        prefix as prefix,
    )
    from phalanx.nnx.variable import (
        A as A,
        Variable as Variable,
        VariableMetadata as VariableMetadata,
        as_pure as as_pure,
        var_defaults as var_defaults,
    )
    from phalanx.nnx.variable_types import (
        BatchStat as BatchStat,
        Cache as Cache,
        Intermediate as Intermediate,
        LoRAParam as LoRAParam,
        OptArray as OptArray,
        OptState as OptState,
        OptVariable as OptVariable,
        Param as Param,
        Perturbation as Perturbation,
        register_variable_name as register_variable_name,
        variable_name_from_type as variable_name_from_type,
        variable_type_from_name as variable_type_from_name,
    )
    from phalanx.nnx.views import view as view, view_info as view_info, with_attributes as with_attributes

    Static = StaticHint
    VariableState = Variable
    pure = as_pure
    vars_as = with_vars
    with_modules = view

# Grouped by module, whose path is relative to `phalanx`.
_NAMES = {
    name: (f"phalanx.{module}", name)
    for module, names in {
        "nn": (
            "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
            "log_sigmoid log_softmax logsumexp one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus "
            "standardize swish tanh"
        ),
        "nnx.containers": "Dict List",
        "nnx.filters": "All Any Everything Not Nothing OfType PathContains PathIn WithTag",
        "nnx.graph_mode": "set_graph_mode set_graph_updates",
        "nnx.graphlib": (
            "call clone current_update_context filter_state find_duplicates FlatState flatten from_flat_state "
            "graphdef GraphDef GraphState iter_graph map map_state merge merge_context merge_state MergeContext "
            "NodeStates pop PureState recursive_map replace_by_pure_dict restore_int_paths set_metadata split "
            "split_context split_state SplitContext State state to_flat_state to_pure_dict unflatten unpack update "
            "update_context UpdateContext variables with_vars"
        ),
        "nnx.inspection.capture": "capture",
        "nnx.inspection.display": "display",
        "nnx.inspection.tabulate": "tabulate",
        "nnx.layers.conv_layers": "Conv ConvTranspose",
        "nnx.layers.dropout": "Dropout",
        "nnx.layers.linear_layers": "Einsum Embed Linear LinearGeneral",
        "nnx.layers.lora": "LoRA LoRALinear",
        "nnx.layers.multi_head_attention": (
            "combine_masks dot_product_attention dot_product_attention_weights make_attention_mask "
            "make_causal_mask MultiHeadAttention"
        ),
        "nnx.layers.norm_layers": "BatchNorm GroupNorm InstanceNorm LayerNorm RMSNorm",
        "nnx.layers.pooling": "avg_pool max_pool min_pool pool",
        "nnx.layers.rnn": (
            "Bidirectional flip_sequences GRUCell LSTMCell OptimizedLSTMCell RNN RNNCellBase SimpleCell"
        ),
        "nnx.layers.rope": "dot_product_attention_with_rope RoPE",
        "nnx.layers.sequential": "PReLU Sequential",
        "nnx.layers.weight_norm": "SpectralNorm WeightNorm",
        "nnx.metrics": "Metric MultiMetric",
        "nnx.module": "iter_children iter_module_children iter_modules M Module",
        "nnx.objects": (
            "check_pytree Data data dataclass has_data is_data Object Pytree register_data_type static StaticHint"
        ),
        "nnx.rngs": (
            "fork_rngs MissingStreamError reseed restore_rngs RngCount RngKey Rngs RngState RngStream split_rngs "
            "with_rngs"
        ),
        "nnx.sharding.logical_axis_rules": "logical_axis_rules use_eager_sharding using_eager_sharding",
        "nnx.sharding.partitioning": (
            "abstract_with_sharding as_abstract get_abstract_model get_named_sharding get_partition_spec "
            "PARTITION_NAME with_metadata with_partitioning"
        ),
        "nnx.training.ema": "EMA",
        "nnx.training.optimizer": "ModelAndOptimizer Optimizer",
        "nnx.training.train_state": "TrainState",
        "nnx.transforms.lifted_control_flow": "cond fori_loop scan switch while_loop",
        "nnx.transforms.lifted_derivatives": "checkpoint custom_vjp DiffState grad jvp remat value_and_grad vjp",
        "nnx.transforms.lifted_checkify": "checkify",
        "nnx.transforms.lifted_eval_shape": "eval_shape make_jaxpr",
        "nnx.transforms.lifted_jit": "jit jit_partial",
        "nnx.transforms.lifted_vmap": "pmap shard_map transform_metadata vmap",
        "nnx.transforms.lifting": "cached_partial from_tree to_tree",
        "nnx.transforms.state_axes": "Carry prefix StateAxes StateSharding",
        "nnx.variable": "A as_pure var_defaults Variable VariableMetadata",
        "nnx.variable_types": (
            "BatchStat Cache Intermediate LoRAParam OptArray OptState OptVariable Param "
            "Perturbation register_variable_name variable_name_from_type variable_type_from_name"
        ),
        "nnx.views": "view view_info with_attributes",
    }.items()
    for name in names.split()
} | {
    "Static": ("phalanx.nnx.objects", "StaticHint"),
    "Initializer": ("phalanx.nn.initializers", "Initializer"),
    "VariableState": ("phalanx.nnx.variable", "Variable"),
    "pure": ("phalanx.nnx.variable", "as_pure"),
    "vars_as": ("phalanx.nnx.graphlib", "with_vars"),
    "with_modules": ("phalanx.nnx.views", "view"),
}

# Submodules under the names by which programs for Flax import them.
_MODULES = {
    "bridge": "phalanx.nnx.bridge",
    "compat": "phalanx.nnx.compat",
    "filters": "phalanx.nnx.filters",
    "filterlib": "phalanx.nnx.filters",
    "graph": "phalanx.nnx.graphlib",
    "graphlib": "phalanx.nnx.graphlib",
    "extract": "phalanx.nnx.extract",
    "helpers": "phalanx.nnx.helpers",
    "initializers": "phalanx.nnx.initializers",
    "metrics": "phalanx.nnx.metrics",
    "nn": "phalanx.nnx.nn",
    "object": "phalanx.nnx.objects",
    "optimizer": "phalanx.nnx.training.optimizer",
    "pytreelib": "phalanx.nnx.objects",
    "rnglib": "phalanx.nnx.rngs",
    "spmd": "phalanx.nnx.sharding.partitioning",
    "statelib": "phalanx.nnx.graphlib.states",
    "summary": "phalanx.nnx.inspection.tabulate",
    "traversals": "phalanx.nnx.traversals",
    "variablelib": "phalanx.nnx.variablelib",
    "visualization": "phalanx.nnx.inspection.display",
    "wrappers": "phalanx.nnx.bridge",
}


def __getattr__(name: str) -> builtins.object:
    if name in _NAMES:
        with importlib.import_module("phalanx.garbage_collector").import_without_collecting():
            namespaces = importlib.import_module("phalanx.engine.public_namespace")
            namespaces.import_public(globals(), name, *_NAMES[name])  # Later accesses do not call this function.
        # Users meet classes such as Param as types of values, before they use their names.
        for other, (module, attribute) in _NAMES.items():
            if other not in globals() and isinstance(getattr(sys.modules.get(module), attribute, None), type):
                namespaces.import_public(globals(), other, module, attribute)
        return globals()[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'phalanx.nnx' has no attribute {name!r}")
    globals()[name] = importlib.import_module(_MODULES[name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*_MODULES, *_NAMES})
