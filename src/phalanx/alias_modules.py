"""Modules that only give public names to objects defined elsewhere, as one table.

Programs import parts of the API under several module names: `phalanx.dtypes`, `phalanx.experimental.maps`, the
spellings of older releases. Such a module holds no code, so each is a row of `ALIAS_MODULES` and is made when it is
first imported. `dir()` of it shows the public names of its row and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.machinery
from types import ModuleType
from typing import Any

_SHARDING_SPEC_NAMES = "Chunked NoSharding Replicated ShardedAxis ShardingSpec Unstacked spec_to_indices"

# module, relative to `phalanx`: (docstring, {defining module, relative to `phalanx`: its names, `alias=name` to
# rename})
ALIAS_MODULES: dict[str, tuple[str, dict[str, str]]] = {
    "ad_checkpoint": (
        "Rematerialization: `checkpoint`, its policies, and the residuals that differentiation saves.",
        {
            "transforms.checkpoint_and_remat": "checkpoint checkpoint_name remat",
            "transforms.checkpoint_policies": "CheckpointPolicies checkpoint_policies",
            "transforms.offload": "Offloadable Recompute Saveable",
            "transforms.saved_residuals": "print_saved_residuals saved_residuals",
        },
    ),
    "custom_batching": (
        "Functions with their own batching rule.",
        {"custom_rules.custom_vmap": "custom_vmap custom_vmap_call_p", "lax.control_flow.scan": "sequential_vmap"},
    ),
    "custom_derivatives": (
        "Functions with their own derivative rules.",
        {
            "custom_rules": (
                "CustomVJPPrimal SymbolicZero closure_convert custom_gradient custom_jvp custom_jvp_call_p custom_vjp "
                "custom_vjp_call_p custom_vjp_primal_tree_values linear_call zero_from_primal"
            )
        },
    ),
    "dlpack": ("Zero-copy exchange of arrays with other libraries.", {"numpy": "from_dlpack"}),
    "dtypes": (
        "Element types: names, promotion and numeric limits.",
        {
            "core.dtypes": (
                "bfloat16 canonicalize_dtype extended finfo float0 iinfo issubdtype itemsize_bits prng_key "
                "scalar_type_of"
            ),
            "core.error_classes": "TypePromotionError",
            "core.promotion": "promote_types result_type",
        },
    ),
    "environment": (
        "A description of the process for bug reports.",
        {"runtime.environment_info": "print_environment_info"},
    ),
    "experimental": (
        "Features under the module names that programs import them from.",
        {"core.config": "enable_x64", "lax.callback": "io_callback", "sharding": "PartitionSpec"},
    ),
    "experimental.array": (
        "`Array` and its constructors, as JAX 0.4 named them.",
        {"runtime.array": "Array", "spmd": "make_array_from_callback make_array_from_single_device_arrays"},
    ),
    "experimental.custom_partitioning": (
        "Functions with their own partitioning rule.",
        {
            "spmd.custom_partitioning": "custom_partitioning",
            "spmd.sdy_sharding_rule": "BATCHING ArrayMapping CompoundFactor SdyShardingRule",
        },
    ),
    "experimental.global_device_array": (
        "`GlobalDeviceArray`, as programs of 2022 import it.",
        {
            "spmd.legacy.global_device_array": "GlobalDeviceArray get_shard_indices get_shard_shape",
            "runtime.array": "Shard",
        },
    ),
    "experimental.host_callback": (
        "Host callbacks as programs of 2020 to 2023 write them.",
        {"spmd.legacy.host_callback": "CallbackException barrier_wait call id_print id_tap"},
    ),
    "experimental.layout": ("Memory layouts of arrays.", {"runtime.layout": "Format Layout"}),
    "experimental.maps": (
        "`xmap` and meshes, as programs of 2021 to 2023 import them.",
        {
            "spmd.legacy.thread_resources": "thread_resources",
            "sharding": "Mesh mesh=Mesh",
            "spmd.legacy.xmap": "SerialLoop serial_loop xmap",
        },
    ),
    "experimental.mesh_utils": (
        "Device meshes laid out by the topology of the hardware.",
        {"sharding.device_mesh": "create_device_mesh create_hybrid_device_mesh"},
    ),
    "experimental.multihost_utils": (
        "Operations on host values that all processes take part in.",
        {
            "spmd.multihost_utils": (
                "assert_equal broadcast_one_to_all global_array_to_host_local_array host_local_array_to_global_array "
                "process_allgather reached_preemption_sync_point sync_global_devices"
            )
        },
    ),
    "experimental.pjit": (
        "`pjit` with the argument names of 2021 to 2023.",
        {"spmd.legacy.pjit": "FROM_GDA pjit with_sharding_constraint", "sharding": "PartitionSpec"},
    ),
    "experimental.shard_map": (
        "`shard_map`, as programs for JAX before 0.8 import it.",
        {"spmd.shard_map": "shard_map"},
    ),
    "experimental.sharding": (
        "Shardings, as programs of 2022 import them.",
        {"sharding": ("MeshPspecSharding=NamedSharding NamedSharding PartitionSpec Sharding SingleDeviceSharding")},
    ),
    "extend.core": (
        "Jaxprs, equations and primitives for libraries that interpret programs.",
        {
            "extend.jaxpr_interpreters": (
                "ClosedJaxpr DropVar Effect Effects Jaxpr JaxprEqn Literal Primitive Var check_jaxpr jaxpr_as_fun "
                "jaxprs_in_params no_effects primitives subjaxprs"
            )
        },
    ),
    "ffi": (
        "Foreign function interface: user-defined XLA kernels as operations.",
        {
            "lax.ffi_call": "ffi_call",
            "lax.ffi_registration": ("TargetError include_dir pycapsule register_ffi_target register_ffi_type"),
        },
    ),
    "flatten_util": ("Pytrees raveled to one vector.", {"numpy.ravel_pytree": "ravel_pytree"}),
    "interpreters": ("Modules that programs of 2020 to 2022 import.", {}),
    "interpreters.pxla": (
        "Sharding specs, as programs of 2021 import them.",
        {
            "sharding.legacy_sharding_spec": _SHARDING_SPEC_NAMES,
            "runtime.array": "Array ShardedDeviceArray=Array",
            "sharding": "Mesh MeshPspecSharding=NamedSharding PartitionSpec",
            "spmd.legacy.thread_resources": "ResourceEnv thread_resources",
        },
    ),
    "interpreters.sharded_jit": (
        "`sharded_jit`, as programs of 2020 and 2021 import it.",
        {"spmd.legacy.sharded_jit": "sharded_jit with_sharding_constraint", "sharding": "PartitionSpec"},
    ),
    "interpreters.sharding_spec": (
        "Sharding specs, as programs of 2021 import them.",
        {"sharding.legacy_sharding_spec": _SHARDING_SPEC_NAMES},
    ),
    "memory": ("Kinds of memory, independent of the hardware.", {"transforms.offload": "Space"}),
    "profiler": (
        "Profiles of the host and the devices.",
        {
            "runtime.profiler": (
                "ProfileData ProfileEvent ProfileOptions ProfilePlane StepTraceAnnotation TraceAnnotation "
                "annotate_function device_memory_profile save_device_memory_profile start_server start_trace "
                "stop_server stop_trace trace"
            )
        },
    ),
    "stages": (
        "The stages of a compiled function: traced, lowered, compiled.",
        {"spmd.jit": "Wrapped=Jit", "spmd.stages": "ArgInfo Compiled Lowered Traced"},
    ),
    "test_util": (
        "Checks of derivatives against numerical differences.",
        {"testing.check_grads": "check_grads check_jvp check_vjp"},
    ),
    "tree_util": (
        "The functions of `phalanx.tree` under their original names.",
        {
            "tree": (
                "DictKey FlattenedIndexKey GetAttrKey KeyEntry KeyPath Partial PyTreeDef SequenceKey all_leaves "
                "broadcast_prefix equality_errors flatten_axes flatten_one_level flatten_one_level_with_keys "
                "is_tree_node keystr prefix_errors register_dataclass register_pytree_node "
                "register_pytree_node_class register_pytree_with_keys register_pytree_with_keys_class "
                "register_static tree_all tree_broadcast tree_flatten tree_flatten_with_path tree_leaves "
                "tree_leaves_with_path tree_map tree_map_with_path tree_multimap=tree_map tree_reduce "
                "tree_reduce_associative tree_structure tree_transpose tree_unflatten treedef_children "
                "treedef_is_leaf treedef_tuple"
            ),
            "engine.pytree": "default_registry=registry",
        },
    ),
}


class AliasModule(ModuleType):
    """A module whose names are looked up, on first use, in the modules that define them."""

    def __init__(self, name: str, doc: str, sources: dict[str, str]):
        super().__init__(name, doc)
        self.__sources = {
            alias: (f"phalanx.{module}", origin or alias)
            for module, names in sources.items()
            for alias, _, origin in (entry.partition("=") for entry in names.split())
        }
        self.__all__ = sorted(self.__sources)

    def __getattr__(self, name: str) -> Any:
        if name not in self.__sources:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, origin = self.__sources[name]
        setattr(self, name, getattr(importlib.import_module(module), origin))  # The next look-up does not come here.
        importlib.import_module("phalanx.engine.traceback_filtering").guard_namespace(vars(self), (name,))
        return vars(self)[name]

    def __dir__(self) -> list[str]:
        return list(self.__all__)


class AliasLoader:
    """Loader of one alias module, by the protocol of `importlib.abc.Loader`."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        doc, sources = ALIAS_MODULES[spec.name.removeprefix("phalanx.")]
        return AliasModule(spec.name, doc, sources)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the names are looked up on first use."""


def find_alias(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """Find the spec of an alias module.

    Args:
      fullname: a dotted module name that begins with `phalanx.`.

    Returns:
      The spec, or None if the table has no such module.
    """
    name = fullname.removeprefix("phalanx.")
    if name not in ALIAS_MODULES:
        return None
    is_package = any(other.startswith(f"{name}.") for other in ALIAS_MODULES)
    return importlib.machinery.ModuleSpec(fullname, AliasLoader(), is_package=is_package)  # type: ignore[arg-type]


def find_submodules(package: str) -> list[str]:
    """List the alias modules directly inside a package, given relative to `phalanx` ("" for the top level)."""
    prefix = f"{package}." if package else ""
    return [m for m in ALIAS_MODULES if m.startswith(prefix) and "." not in m.removeprefix(prefix)]
