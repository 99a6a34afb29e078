"""From jaxprs to results: lowering to StableHLO, compiling, running on buffers, and the arrays that users hold.

`core` defines jaxprs and primitives; the packages above define operations. `array` and `transfer` are about data on
devices, `lowering` emits modules, and `compiled_program`, `eager_dispatch` and `eager_jit` compile and run them. Other
packages import from here what they need of several of these files. Builds on `engine`.
"""

from phalanx.runtime.array import (
    Array as Array,
    ArrayType as ArrayType,
    Shard as Shard,
    deleted_error as deleted_error,
    wrap_buffer as wrap_buffer,
)
from phalanx.runtime.compiled_program import (
    CompiledCall as CompiledCall,
    compile_call as compile_call,
    explain_failure as explain_failure,
    run_checks as run_checks,
    transfer_arguments as transfer_arguments,
)
from phalanx.runtime.custom_partitioning_calls import (
    PartitionedCalls as PartitionedCalls,
    is_identified_by_text as is_identified_by_text,
    make_sdy_sharding_rule as make_sdy_sharding_rule,
)
from phalanx.runtime.device_assignment import (
    common_devices as common_devices,
    device_names as device_names,
    is_abstract as is_abstract,
    named_sharding as named_sharding,
    on_abstract_devices as on_abstract_devices,
    on_devices as on_devices,
)
from phalanx.runtime.eager_dispatch import compile_operation as compile_operation, concrete_type as concrete_type
from phalanx.runtime.eager_jit import eager_jit as eager_jit
from phalanx.runtime.fast_path import UNLIKE as UNLIKE, fast_call as fast_call
from phalanx.runtime.in_flight import effects_barrier as effects_barrier
from phalanx.runtime.layout import Format as Format, Layout as Layout
from phalanx.runtime.lowering import (
    LoweringContext as LoweringContext,
    add_frontend_attributes as add_frontend_attributes,
    emit_function as emit_function,
    lower_jaxpr_to_module as lower_jaxpr_to_module,
    make_dict_array as make_dict_array,
    sharding_attributes as sharding_attributes,
)
from phalanx.runtime.memory_kinds import (
    non_default_memory_kind as non_default_memory_kind,
    place_in_memory as place_in_memory,
    result_memories as result_memories,
    to_default_memory as to_default_memory,
)
from phalanx.runtime.module_context import (
    ORDER_TOKEN as ORDER_TOKEN,
    PLATFORM as PLATFORM,
    Inspection as Inspection,
    ModuleContext as ModuleContext,
)
from phalanx.runtime.operation_builder import to_mlir_attribute as to_mlir_attribute
from phalanx.runtime.reshard_lowering import fill_unconstrained as fill_unconstrained, reshard_to as reshard_to
from phalanx.runtime.shard_programs import (
    aval_of as aval_of,
    build_shard_program as build_shard_program,
    constant_index as constant_index,
    emit_collective as emit_collective,
    partition_number as partition_number,
    reshape as reshape,
    select_first as select_first,
    shape_of as shape_of,
    table_entry as table_entry,
    type_like as type_like,
)
from phalanx.runtime.shardy import sdy_replicated as sdy_replicated, sdy_sharding as sdy_sharding
from phalanx.runtime.transfer import general_transfers as general_transfers, put as put, scalar_array as scalar_array
