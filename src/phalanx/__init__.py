"""SPMD array programming for Python.

`import phalanx` loads this file only: each public name is imported from its module on first use (PEP 562), so that the
import costs next to nothing. `_NAMES` maps every name to its module. Type checkers cannot read the table, so the block
under `TYPE_CHECKING` repeats it; a test compares the two.
"""

import importlib
import sys

__version__ = "0.1.0"

TYPE_CHECKING = False  # As type checkers know it; importing typing would take most of this page's time.

if TYPE_CHECKING:
    from phalanx import (
        checkpoint as checkpoint,
        core as core,
        debug as debug,
        distributed as distributed,
        engine as engine,
        errors as errors,
        example_libraries as example_libraries,
        export as export,
        extend as extend,
        flax as flax,
        image as image,
        lax as lax,
        nn as nn,
        nnx as nnx,
        numpy as numpy,
        ops as ops,
        optim as optim,
        planning as planning,
        random as random,
        scipy as scipy,
        sharding as sharding,
        sparse as sparse,
        spmd as spmd,
        testing as testing,
        transforms as transforms,
        tree as tree,
        typing as typing,
    )
    from phalanx.core.aval import ShapeDtypeStruct as ShapeDtypeStruct
    from phalanx.core.config import (
        allow_f16_reductions as allow_f16_reductions,
        array_garbage_collection_guard as array_garbage_collection_guard,
        auto_pcast as auto_pcast,
        check_tracer_leaks as check_tracer_leaks,
        checking_leaks as checking_leaks,
        debug_infs as debug_infs,
        debug_key_reuse as debug_key_reuse,
        debug_nans as debug_nans,
        default_device as default_device,
        default_matmul_precision as default_matmul_precision,
        default_prng_impl as default_prng_impl,
        disable_jit as disable_jit,
        enable_checks as enable_checks,
        enable_custom_prng as enable_custom_prng,
        enable_x64 as enable_x64,
        explain_cache_misses as explain_cache_misses,
        legacy_prng_key as legacy_prng_key,
        log_compiles as log_compiles,
        no_execution as no_execution,
        no_tracing as no_tracing,
        numpy_dtype_promotion as numpy_dtype_promotion,
        numpy_rank_promotion as numpy_rank_promotion,
        remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type,
        softmax_custom_jvp as softmax_custom_jvp,
        thread_guard as thread_guard,
        threefry_partitionable as threefry_partitionable,
    )
    from phalanx.core.dtypes import float0 as float0
    from phalanx.core.mutable_arrays import (
        Ref as Ref,
        empty_ref as empty_ref,
        free_ref as free_ref,
        freeze as freeze,
        new_ref as new_ref,
    )
    from phalanx.core.source_info import named_call as named_call, named_scope as named_scope
    from phalanx.core.trace import ensure_compile_time_eval as ensure_compile_time_eval
    from phalanx.custom_rules import (
        closure_convert as closure_convert,
        custom_gradient as custom_gradient,
        custom_jvp as custom_jvp,
        custom_remat as custom_remat,
        custom_vjp as custom_vjp,
    )
    from phalanx.engine.client import (
        Device as Device,
        default_backend as default_backend,
        device_count as device_count,
        devices as devices,
        host_count as host_count,
        host_id as host_id,
        host_ids as host_ids,
        local_device_count as local_device_count,
        local_devices as local_devices,
        process_count as process_count,
        process_index as process_index,
        process_indices as process_indices,
    )
    from phalanx.engine.compiler import CompilerEffortLevel as CompilerEffortLevel
    from phalanx.lax.callback import pure_callback as pure_callback
    from phalanx.lax.sharding.explicit_axes import reshard as reshard, typeof as typeof
    from phalanx.planning import plan as plan
    from phalanx.runtime.array import Array as Array, Shard as Shard, block_until_ready as block_until_ready
    from phalanx.runtime.engine_options import (
        config as config,
        transfer_guard as transfer_guard,
        transfer_guard_device_to_device as transfer_guard_device_to_device,
        transfer_guard_device_to_host as transfer_guard_device_to_host,
        transfer_guard_host_to_device as transfer_guard_host_to_device,
    )
    from phalanx.runtime.environment_info import print_environment_info as print_environment_info
    from phalanx.runtime.in_flight import effects_barrier as effects_barrier
    from phalanx.sharding import (
        NamedSharding as NamedSharding,
        P as P,
        get_abstract_mesh as get_abstract_mesh,
        get_mesh as get_mesh,
        make_mesh as make_mesh,
        set_mesh as set_mesh,
        use_abstract_mesh as use_abstract_mesh,
    )
    from phalanx.spmd import (
        fwd_and_bwd as fwd_and_bwd,
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from phalanx.spmd.device_get import (
        copy_to_host_async as copy_to_host_async,
        device_get as device_get,
        live_arrays as live_arrays,
    )
    from phalanx.spmd.device_put import (
        device_put as device_put,
        device_put_replicated as device_put_replicated,
        device_put_sharded as device_put_sharded,
    )
    from phalanx.spmd.jit import Inline as Inline, clear_caches as clear_caches, jit as jit, pjit as pjit
    from phalanx.spmd.make_jaxpr import eval_shape as eval_shape, make_jaxpr as make_jaxpr
    from phalanx.spmd.row_maps import pmap as pmap, soft_pmap as soft_pmap
    from phalanx.spmd.shard_map import shard_map as shard_map, smap as smap
    from phalanx.transforms import (
        grad as grad,
        hessian as hessian,
        jacfwd as jacfwd,
        jacobian as jacobian,
        jacrev as jacrev,
        jvp as jvp,
        linear_transpose as linear_transpose,
        linearize as linearize,
        remat as remat,
        value_and_grad as value_and_grad,
        vjp as vjp,
        vmap as vmap,
    )
    from phalanx.transforms.checkpoint_policies import checkpoint_policies as checkpoint_policies
    from phalanx.tree import (
        tree_all as tree_all,
        tree_flatten as tree_flatten,
        tree_leaves as tree_leaves,
        tree_map as tree_map,
        tree_reduce as tree_reduce,
        tree_structure as tree_structure,
        tree_transpose as tree_transpose,
        tree_unflatten as tree_unflatten,
    )

# Packages that are public under the name of their folder.
_PACKAGES = (
    "checkpoint core debug distributed engine errors example_libraries export extend flax image lax nn nnx numpy ops "
    "optim planning random scipy sharding sparse spmd testing transforms tree typing"
).split()

_NAMES = {
    name: f"phalanx.{module}"
    for module, names in {
        "transforms.checkpoint_policies": "checkpoint_policies",
        "runtime.array": "Array Shard block_until_ready",
        "core.aval": "ShapeDtypeStruct",
        "core.config": (
            "allow_f16_reductions array_garbage_collection_guard auto_pcast check_tracer_leaks checking_leaks "
            "debug_infs debug_key_reuse debug_nans default_device default_matmul_precision default_prng_impl "
            "disable_jit enable_checks enable_custom_prng enable_x64 explain_cache_misses legacy_prng_key log_compiles "
            "no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion "
            "remove_size_one_mesh_axis_from_type softmax_custom_jvp thread_guard threefry_partitionable"
        ),
        "core.dtypes": "float0",
        "core.mutable_arrays": "Ref empty_ref free_ref freeze new_ref",
        "planning": "plan",
        "runtime.in_flight": "effects_barrier",
        "runtime.engine_options": (
            "config transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host "
            "transfer_guard_host_to_device"
        ),
        "core.source_info": "named_call named_scope",
        "core.trace": "ensure_compile_time_eval",
        "custom_rules": "closure_convert custom_gradient custom_jvp custom_remat custom_vjp",
        "engine.client": (
            "Device default_backend device_count devices host_count host_id host_ids local_device_count local_devices "
            "process_count process_index process_indices"
        ),
        "engine.compiler": "CompilerEffortLevel",
        "runtime.environment_info": "print_environment_info",
        "lax.callback": "pure_callback",
        "lax.sharding.explicit_axes": "reshard typeof",
        "sharding": "NamedSharding P get_abstract_mesh get_mesh make_mesh set_mesh use_abstract_mesh",
        "spmd": (
            "fwd_and_bwd make_array_from_callback make_array_from_process_local_data "
            "make_array_from_single_device_arrays"
        ),
        "spmd.jit": "Inline clear_caches jit pjit",
        "spmd.make_jaxpr": "eval_shape make_jaxpr",
        "spmd.shard_map": "shard_map smap",
        "spmd.row_maps": "pmap soft_pmap",
        "spmd.device_put": "device_put device_put_replicated device_put_sharded",
        "spmd.device_get": "copy_to_host_async device_get live_arrays",
        "transforms": (
            "grad hessian jacfwd jacobian jacrev jvp linear_transpose linearize remat value_and_grad vjp vmap"
        ),
        "tree_util": "tree_multimap",
        "tree": ("tree_all tree_flatten tree_leaves tree_map tree_reduce tree_structure tree_transpose tree_unflatten"),
    }.items()
    for name in names.split()
}


class _AliasFinder:
    """Finder of alias modules, asked after all others; it reads their table only when one is imported."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> object:
        if not fullname.startswith("phalanx."):
            return None
        return importlib.import_module("phalanx.alias_modules").find_alias(fullname)


sys.meta_path.append(_AliasFinder)  # type: ignore[arg-type]


def _find_alias_modules() -> list[str]:
    """The alias modules directly below `phalanx`; reads their table, so it is asked last."""
    return importlib.import_module("phalanx.alias_modules").find_submodules("")


def __getattr__(name: str):  # type: ignore[no-untyped-def]  # so that type checkers accept any alias module
    is_module = name in _PACKAGES or (name not in _NAMES and name in _find_alias_modules())
    if not is_module and name not in _NAMES:
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    with importlib.import_module("phalanx.garbage_collector").import_without_collecting():
        if is_module:
            return importlib.import_module(f"phalanx.{name}")  # which binds it here
        namespaces = importlib.import_module("phalanx.engine.public_namespace")
        return namespaces.import_public(globals(), name, _NAMES[name], name)  # The next look-up does not come here.


def __dir__() -> list[str]:
    return sorted({"__version__", *_PACKAGES, *_find_alias_modules(), *_NAMES})
