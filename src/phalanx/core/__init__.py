"""Abstract values, jaxprs, primitives, traces, dtypes, errors and options: the concepts that all packages share.

Other packages import what they need from here; only the names that `publish` lists are for users.
"""

from phalanx.core.aval import (
    UNVARYING as UNVARYING,
    AbstractRef as AbstractRef,
    AbstractValue as AbstractValue,
    ManualAxisType as ManualAxisType,
    ShapedArray as ShapedArray,
    ShapeDtypeStruct as ShapeDtypeStruct,
    as_shape_struct as as_shape_struct,
    format_sharded_shape as format_sharded_shape,
    get_aval as get_aval,
    get_aval_of_argument as get_aval_of_argument,
    host_scalar as host_scalar,
    make_scalar_aval as make_scalar_aval,
    physical_aval as physical_aval,
    type_shardings as type_shardings,
)
from phalanx.core.config import (
    Context as Context,
    Option as Option,
    check_allowed as check_allowed,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    choice as choice,
    communication as communication,
    config as config,
    current_scope as current_scope,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    declare as declare,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    disallow_mesh_context_manager as disallow_mesh_context_manager,
    enable_checks as enable_checks,
    enable_x64 as enable_x64,
    enter_block as enter_block,
    explain_cache_misses as explain_cache_misses,
    flag as flag,
    leave_block as leave_block,
    log_compiles as log_compiles,
    no_collectives as no_collectives,
    number as number,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    set_without_block as set_without_block,
    state as state,
    state_extra as state_extra,
    text as text,
)
from phalanx.core.dtypes import KeyDtype as KeyDtype, float0 as float0, is_extended as is_extended
from phalanx.core.effects import (
    Effect as Effect,
    Effects as Effects,
    RefEffect as RefEffect,
    check_effect as check_effect,
    debug_effect as debug_effect,
    io_effect as io_effect,
    no_effects as no_effects,
    ordered_debug_effect as ordered_debug_effect,
    ordered_io_effect as ordered_io_effect,
    read_effect as read_effect,
    write_effect as write_effect,
)
from phalanx.core.error_classes import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    AxisError as AxisError,
    ConcretizationTypeError as ConcretizationTypeError,
    ConversionError as ConversionError,
    DeletedArrayError as DeletedArrayError,
    DLPackError as DLPackError,
    DTypeError as DTypeError,
    FormatError as FormatError,
    MissingExtraError as MissingExtraError,
    PhalanxError as PhalanxError,
    RefError as RefError,
    RuleError as RuleError,
    ShapeError as ShapeError,
    ShardingError as ShardingError,
    TracedValueError as TracedValueError,
    TraceError as TraceError,
    TracerIntegerConversionError as TracerIntegerConversionError,
    TreeError as TreeError,
    UnboundAxisError as UnboundAxisError,
    UndefinedRuleError as UndefinedRuleError,
    UnexpectedTracerError as UnexpectedTracerError,
    UnsupportedArgumentError as UnsupportedArgumentError,
    check_axis_name as check_axis_name,
    check_function as check_function,
    example as example,
    is_sequence as is_sequence,
    normalize_positions as normalize_positions,
    parse_positions as parse_positions,
)
from phalanx.core.jaxpr import (
    Atom as Atom,
    ClosedJaxpr as ClosedJaxpr,
    DropVar as DropVar,
    Eqn as Eqn,
    Jaxpr as Jaxpr,
    Literal as Literal,
    Var as Var,
    cached_on_jaxpr as cached_on_jaxpr,
    dce_jaxpr as dce_jaxpr,
    eqn_named_axes as eqn_named_axes,
    eval_jaxpr as eval_jaxpr,
    inner_jaxprs as inner_jaxprs,
    iterate_jaxprs as iterate_jaxprs,
    jaxpr_as_fun as jaxpr_as_fun,
    named_axes as named_axes,
    preserve_wide_types as preserve_wide_types,
    remove_dead_code as remove_dead_code,
    run_jaxpr as run_jaxpr,
)
from phalanx.core.jaxpr_checker import check_jaxpr as check_jaxpr
from phalanx.core.list_partition import (
    broadcast_flag as broadcast_flag,
    fill_flagged as fill_flagged,
    merge_lists as merge_lists,
    select_flagged as select_flagged,
    select_unflagged as select_unflagged,
)
from phalanx.core.mutable_arrays import (
    REF_TYPES as REF_TYPES,
    Ref as Ref,
    RefCell as RefCell,
    check_no_views as check_no_views,
    check_not_batched as check_not_batched,
    new_ref as new_ref,
    read_p as read_p,
    write_p as write_p,
)
from phalanx.core.primitive import (
    LINEAR as LINEAR,
    ZERO as ZERO,
    Identity as Identity,
    Primitive as Primitive,
    ShardingRule as ShardingRule,
    Undefined as Undefined,
    clear_result_types as clear_result_types,
    eager as eager,
    infer_results as infer_results,
    registry as registry,
    union_varying as union_varying,
)
from phalanx.core.promotion import result_type as result_type
from phalanx.core.ref_discharge import (
    Slot as Slot,
    check_not_written as check_not_written,
    check_ref_aliases as check_ref_aliases,
    discharge_jaxpr as discharge_jaxpr,
    has_refs as has_refs,
    is_open_constant as is_open_constant,
    local_refs as local_refs,
    localize_refs as localize_refs,
    open_views as open_views,
    read_values as read_values,
)
from phalanx.core.sharding_rules import (
    JaxprDims as JaxprDims,
    equation_sharding_rule as equation_sharding_rule,
    join_sharding_rules as join_sharding_rules,
    program_sharding_rule as program_sharding_rule,
)
from phalanx.core.source_info import (
    NameStack as NameStack,
    Scope as Scope,
    SourceInfo as SourceInfo,
    current_traceback as current_traceback,
    enter_transform as enter_transform,
    format_code_position as format_code_position,
    format_source as format_source,
    named_call as named_call,
    named_scope as named_scope,
    split_source as split_source,
    user_stacklevel as user_stacklevel,
)
from phalanx.core.tangent import (
    Linear as Linear,
    Zero as Zero,
    add_tangents as add_tangents,
    conform as conform,
    conform_all as conform_all,
    instantiate as instantiate,
    is_linear as is_linear,
    join_tangents as join_tangents,
    split_tangents as split_tangents,
    vector_space as vector_space,
)
from phalanx.core.trace import (
    ConstantFoldingTrace as ConstantFoldingTrace,
    StagedTracer as StagedTracer,
    StagingTrace as StagingTrace,
    Trace as Trace,
    Tracer as Tracer,
    WrappingTracer as WrappingTracer,
    convert_outputs as convert_outputs,
    ensure_compile_time_eval as ensure_compile_time_eval,
    leak_error as leak_error,
    trace_to_jaxpr as trace_to_jaxpr,
)
from phalanx.core.varying_manual_axes import (
    add_cotangents as add_cotangents,
    is_varying as is_varying,
    pvary_to as pvary_to,
    reduce_to_varying as reduce_to_varying,
    retrace_jaxpr as retrace_jaxpr,
    retype_jaxpr as retype_jaxpr,
    vary_outputs as vary_outputs,
    widen_varying as widen_varying,
)
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(
    globals(),
    only="AbstractValue Atom ClosedJaxpr DropVar Jaxpr Literal Primitive ShapeDtypeStruct ShapedArray Trace Tracer Var "
    "check_jaxpr ensure_compile_time_eval eval_jaxpr get_aval jaxpr_as_fun",
    lazy={
        "phalanx.extend.jaxpr_constructors": "mapped_aval unmapped_aval valid_jaxtype",
        "phalanx.extend.trace_state": (
            "concrete_or_error eval_context find_top_trace get_opaque_trace_state set_current_trace take_current_trace "
            "trace_state_clean"
        ),
        "phalanx.symbolic": "max_dim min_dim",
    },
    guarded="check_jaxpr eval_jaxpr jaxpr_as_fun".split(),  # the others are on hot paths
)
