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

_LINEAR_UTIL: tuple[str, dict[str, str]] = (
    "Functions with transformations around them.",
    {
        "extend.wrapped_functions": (
            "DebugInfo Store StoreException WrappedFun cache merge_linear_aux transformation transformation2 "
            "transformation_with_aux transformation_with_aux2 wrap_init"
        )
    },
)
_DIALECTS = "arith builtin chlo func math memref mpmd scf sdy sparse_tensor stablehlo vector".split()

# module, relative to `phalanx`: (docstring, {defining module, relative to `phalanx`: its names, `alias=name` to
# rename}). A row with "*" forwards all names of one module of jaxlib.
ALIAS_MODULES: dict[str, tuple[str, dict[str, str]]] = {
    "ad": (
        "Markers in the results of `vjp`: where gradients go (`with_refs`), which arguments it keeps (`args_res`).",
        {"transforms.vjp_function": "DidntWant DontWant GradRef GradValue NotNeeded NotSaveable"},
    ),
    "ad_checkpoint": (
        "Rematerialization: `checkpoint`, its policies, and the residuals that differentiation saves.",
        {
            "transforms.checkpoint_and_remat": "checkpoint checkpoint_name remat",
            "transforms.checkpoint_policies": "CheckpointPolicies checkpoint_policies",
            "transforms.offload": "Offloadable Recompute Saveable",
            "transforms.saved_residuals": "print_saved_residuals saved_residuals",
        },
    ),
    "api_util": (
        "Functions of trees as functions of leaves.",
        {
            "extend.flat_functions": (
                "argnums_partial debug_info donation_vector flatten_axes flatten_fun flatten_fun_nokwargs "
                "rebase_donate_argnums safe_map safe_zip"
            ),
            "extend.jaxpr_constructors": "shaped_abstractify",
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
    "dlpack": (
        "Zero-copy exchange of arrays with other libraries.",
        {"numpy": "from_dlpack", "numpy.creation.array_creation": "is_supported_dtype"},
    ),
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
    "example_libraries.optimizers": (
        "Optimizers as triples of pure functions.",
        {
            "example_libraries.optimizer_triples": (
                "JoinPoint Optimizer OptimizerState adagrad adam adamax clip_grads constant exponential_decay "
                "inverse_time_decay l2_norm make_schedule momentum nesterov optimizer pack_optimizer_state "
                "piecewise_constant polynomial_decay rmsprop rmsprop_momentum sgd sm3 unpack_optimizer_state"
            )
        },
    ),
    "experimental": (
        "Features under the module names that programs import them from.",
        {"core.config": "enable_x64", "lax.callback": "io_callback", "sharding": "PartitionSpec"},
    ),
    "experimental.array": (
        "`Array` and its constructors, as JAX 0.4 named them.",
        {"runtime.array": "Array", "spmd": "make_array_from_callback make_array_from_single_device_arrays"},
    ),
    "experimental.checkify": (
        "Run-time checks as values.",
        {
            "checkify": (
                "Error ErrorCategory JaxRuntimeError all_checks automatic_checks check check_error checkify "
                "debug_check div_checks float_checks index_checks init_error nan_checks user_checks"
            )
        },
    ),
    "experimental.compilation_cache": ("The compilation cache on disk.", {}),
    "experimental.compilation_cache.compilation_cache": (
        "The compilation cache on disk: the folder of its entries.",
        {"runtime.engine_options": "reset_cache set_cache_dir"},
    ),
    "experimental.compute_on": (
        "Functions that another processor of the device computes.",
        {"spmd.compute_on": "compute_on"},
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
    "experimental.jet": (
        "Taylor-mode differentiation.",
        {"jet": "ZeroSeries jet zero_series", "scipy.special": "fact=factorial"},
    ),
    "experimental.layout": (
        "Memory layouts of arrays.",
        {"runtime.layout": "Format Layout", "lax.sharding.layout_constraint": "with_layout_constraint"},
    ),
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
                "ProcessFailureError assert_equal broadcast_one_to_all global_array_to_host_local_array "
                "host_local_array_to_global_array live_devices process_allgather reached_preemption_sync_point "
                "sync_global_devices"
            )
        },
    ),
    "experimental.ode": ("Ordinary differential equations.", {"ode": "odeint"}),
    "experimental.pjit": (
        "`pjit` with the argument names of 2021 to 2023.",
        {"spmd.legacy.pjit": "FROM_GDA pjit with_sharding_constraint", "sharding": "AUTO PartitionSpec"},
    ),
    "experimental.random": (
        "A random generator with state, in a mutable array.",
        {"random.stateful_rng": "StatefulPRNG stateful_rng"},
    ),
    "experimental.roofline": (
        "The cost of functions, read off their jaxprs.",
        {
            "roofline": (
                "RooflineResult RooflineRuleContext RooflineShape register_roofline register_standard_roofline "
                "roofline roofline_and_grad"
            )
        },
    ),
    "experimental.shard_alike": ("Arrays that the compiler shards alike.", {"lax.sharding.shard_alike": "shard_alike"}),
    "experimental.scheduling_groups": (
        "Groups of operations for XLA's scheduler.",
        {"lax.xla_metadata": "scheduling_group xla_metadata_call"},
    ),
    "experimental.serialize_executable": (
        "Compiled stages as bytes, which another process loads without compiling.",
        {"export.executable_serialization": "deserialize_and_load serialize"},
    ),
    "experimental.shard_map": (
        "`shard_map`, as programs for JAX before 0.8 import it.",
        {"spmd.shard_map": "shard_map"},
    ),
    "experimental.sharding": (
        "Shardings, as programs of 2022 import them.",
        {"sharding": ("MeshPspecSharding=NamedSharding NamedSharding PartitionSpec Sharding SingleDeviceSharding")},
    ),
    "experimental.sparse": (
        "Sparse arrays: formats, operations and `sparsify`.",
        {
            "sparse": (
                "BCOO BCSR COO CSC CSR CuSparseEfficiencyWarning JAXSparse SparseEfficiencyError "
                "SparseEfficiencyWarning SparseTracer bcoo_broadcast_in_dim bcoo_concatenate "
                "bcoo_conv_general_dilated bcoo_dot_general bcoo_dot_general_sampled bcoo_dynamic_slice "
                "bcoo_extract bcoo_fromdense bcoo_gather bcoo_multiply_dense bcoo_multiply_sparse "
                "bcoo_reduce_sum bcoo_reshape bcoo_rev bcoo_slice bcoo_sort_indices bcoo_squeeze "
                "bcoo_sum_duplicates bcoo_todense bcoo_transpose bcoo_update_layout bcsr_broadcast_in_dim "
                "bcsr_concatenate bcsr_dot_general bcsr_extract bcsr_fromdense bcsr_sum_duplicates "
                "bcsr_todense coo_fromdense coo_matmat coo_matvec coo_todense csr_fromdense csr_matmat "
                "csr_matvec csr_todense empty eye grad jacfwd jacobian jacrev random_bcoo sparsify todense "
                "value_and_grad"
            )
        },
    ),
    "experimental.sparse.ad": (
        "Derivatives with respect to sparse arrays.",
        {"sparse": "grad jacfwd jacobian jacrev value_and_grad"},
    ),
    "experimental.sparse.api": (
        "Constructors of sparse arrays, and `todense`.",
        {"sparse": "BCOO BCSR COO CSC CSR JAXSparse empty eye todense"},
    ),
    "experimental.sparse.bcoo": (
        "The batched coordinate format.",
        {
            "sparse": (
                "BCOO bcoo_broadcast_in_dim bcoo_concatenate bcoo_conv_general_dilated bcoo_dot_general "
                "bcoo_dot_general_sampled bcoo_dynamic_slice bcoo_eliminate_zeros bcoo_extract bcoo_fromdense "
                "bcoo_gather bcoo_multiply_dense bcoo_multiply_sparse bcoo_reduce_sum bcoo_reshape bcoo_rev "
                "bcoo_slice bcoo_sort_indices bcoo_squeeze bcoo_sum_duplicates bcoo_todense bcoo_transpose "
                "bcoo_update_layout"
            )
        },
    ),
    "experimental.sparse.bcsr": (
        "The batched compressed row format.",
        {
            "sparse": (
                "BCSR bcsr_broadcast_in_dim bcsr_concatenate bcsr_dot_general bcsr_eliminate_zeros "
                "bcsr_extract bcsr_fromdense bcsr_sum_duplicates bcsr_todense"
            )
        },
    ),
    "experimental.sparse.coo": (
        "The coordinate format.",
        {"sparse": "COO coo_fromdense coo_matmat coo_matvec coo_todense"},
    ),
    "experimental.sparse.csr": (
        "The compressed row and column formats.",
        {"sparse": "CSC CSR csr_fromdense csr_matmat csr_matvec csr_todense"},
    ),
    "experimental.sparse.linalg": ("Linear algebra of sparse matrices.", {"sparse.linalg": "lobpcg_standard spsolve"}),
    "experimental.sparse.random": ("Random sparse arrays.", {"sparse": "random_bcoo"}),
    "experimental.sparse.test_util": ("Random sparse arrays for tests.", {"sparse": "rand_bcoo rand_bcsr"}),
    "experimental.sparse.transform": (
        "Functions of dense arrays as functions of sparse ones.",
        {
            "sparse": (
                "SparseTracer SparsifyEnv SparsifyValue arrays_to_spvalues sparsify sparsify_raw spvalues_to_arrays"
            )
        },
    ),
    "experimental.sparse.util": (
        "Warnings, and the description of sparse arrays.",
        {"sparse": "CuSparseEfficiencyWarning SparseEfficiencyError SparseEfficiencyWarning SparseInfo"},
    ),
    "experimental.topologies": (
        "Descriptions of hardware topologies, and meshes over them.",
        {"sharding.topologies": "TopologyDescription get_attached_topology get_topology_desc make_mesh"},
    ),
    "experimental.xla_metadata": (
        "Metadata on operations, for tools and passes of XLA.",
        {"lax.xla_metadata": "fuse_limit must_fuse_call set_xla_metadata xla_metadata_call xla_metadata_call2"},
    ),
    "extend.core": (
        "Jaxprs, equations and primitives for libraries that interpret programs.",
        {
            "core.error_classes": "InconclusiveDimensionOperation",
            "core.jaxpr_checker": "JaxprTypeError=ProgramError",
            "core.primitive": "ShardingRule",
            "extend.jaxpr_constructors": (
                "ClosedJaxpr Jaxpr array_types gensym mapped_aval new_jaxpr_eqn primal_dtype_to_tangent_dtype "
                "unmapped_aval valid_jaxtype"
            ),
            "extend.jaxpr_interpreters": (
                "DropVar Effect Effects JaxprEqn Literal Var check_jaxpr jaxpr_as_fun jaxprs_in_params no_effects "
                "subjaxprs"
            ),
            "extend.trace_state": (
                "concrete_or_error find_top_trace get_opaque_trace_state "
                "nonempty_axis_env_DO_NOT_USE=nonempty_axis_env set_current_trace take_current_trace "
                "unsafe_am_i_under_a_jit_DO_NOT_USE=unsafe_am_i_under_a_jit "
                "unsafe_am_i_under_a_vmap_DO_NOT_USE=unsafe_am_i_under_a_vmap "
                "unsafe_get_axis_names_DO_NOT_USE=unsafe_get_axis_names"
            ),
            "extend.user_call": "create_call_primitive register_call_primitive_rules",
            "extend.user_primitive": "Primitive",
            "extend.wrapped_functions": "DebugInfo",
        },
    ),
    "extend.backend": (
        "The clients of the platforms.",
        {
            "extend.runtime_backends": "backends get_backend get_default_device",
            "spmd.jit": "clear_in_memory_compilation_cache=clear_caches",
        },
    ),
    "extend.core.primitives": ("The primitives, by name.", {"phalanx.extend.primitive_lookup": "*"}),
    "extend.linear_util": _LINEAR_UTIL,
    "extend.random": (
        "Random number generators that users define, and the parts of the built-in ones.",
        {
            "extend.random_generators": "define_prng_impl random_seed seed_with_impl threefry_2x32",
            "lax.prng.threefry2x32": "threefry2x32_p",
            "random.prng_implementations": (
                "rbg_prng_impl=rbg threefry_prng_impl=threefry2x32 unsafe_rbg_prng_impl=unsafe_rbg"
            ),
        },
    ),
    "extend.sharding": (
        "Shardings in XLA's form.",
        {
            "extend.hlo_shardings": (
                "get_hlo_sharding_from_serialized_proto get_op_sharding_from_serialized_proto "
                "get_serialized_proto_from_hlo_sharding"
            ),
            "sharding": "GSPMDSharding",
        },
    ),
    "extend.source_info_util": (
        "Source positions and name stacks of operations.",
        {
            "core.source_info": "NameStack SourceInfo",
            "extend.name_stacks": (
                "current current_name_stack extend_name_stack new_name_stack new_source_info register_exclusion "
                "reset_name_stack set_name_stack summarize transform_name_stack user_context"
            ),
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
    "extend.mlir": ("MLIR, for lowering rules.", {}),
    "extend.mlir.dialects": ("The dialects of MLIR in jaxlib.", {}),
    **{
        f"extend.mlir.dialects.{name}": (f"The MLIR dialect {name}.", {f"jaxlib.mlir.dialects.{name}": "*"})
        for name in _DIALECTS
    },
    "extend.mlir.ir": ("MLIR's contexts, types, attributes and operations.", {"jaxlib.mlir.ir": "*"}),
    "extend.mlir.passmanager": ("MLIR's passes.", {"jaxlib.mlir.passmanager": "*"}),
    "flax.core": (
        "Immutable nested dictionaries.",
        {"flax.frozen_dict": "FrozenDict copy freeze pop pretty_repr unfreeze"},
    ),
    "flax.core.frozen_dict": (
        "Immutable nested dictionaries.",
        {"flax.frozen_dict": "FrozenDict copy freeze pop pretty_repr unfreeze"},
    ),
    "flax.serialization": (
        "Trees of arrays as state dicts, and as bytes in msgpack format.",
        {
            "flax.msgpack_format": "MAX_CHUNK_SIZE from_bytes msgpack_restore msgpack_serialize to_bytes",
            "flax.state_dicts": "from_state_dict is_serializable register_serialization_state to_state_dict",
        },
    ),
    "flax.training": ("Training states.", {}),
    "flax.training.train_state": ("Training states.", {"flax.apply_fn_train_state": "TrainState"}),
    "interpreters": ("Rules of primitives in JAX's calling conventions; modules of programs of 2020 to 2022.", {}),
    "interpreters.ad": (
        "Derivative and transpose rules of primitives, by primitive.",
        {
            "core.tangent": "UndefinedPrimal=Linear Zero",
            "extend.derivative_rules": (
                "add_jaxvals add_tangents backward_pass defbilinear defjvp defjvp2 defjvp_zero deflinear deflinear2 "
                "get_primitive_transpose instantiate_zeros is_undefined_primal jvp_jaxpr zeros_like_aval"
            ),
            "extend.rule_tables": "primitive_jvps primitive_transposes",
            "lax.elementwise": "add_jaxvals_p=add_p",
            "transforms.jvp_trace": "JVPTrace JVPTracer",
        },
    ),
    "interpreters.batching": (
        "Batching rules of primitives, by primitive.",
        {
            "extend.batching_rules": (
                "batch_jaxpr_axes bdim_at_front broadcast defbroadcasting defreducer defvectorized moveaxis not_mapped"
            ),
            "extend.rule_tables": "axis_primitive_batchers fancy_primitive_batchers primitive_batchers",
            "transforms.batching": "AxisData BatchTrace BatchTracer",
            "transforms.vmappable": "is_vmappable register_vmappable unregister_vmappable",
        },
    ),
    "interpreters.mlir": (
        "Lowering rules of primitives, and the MLIR that they emit.",
        {
            "engine.mlir": "ir",
            "extend.platform_lowering": (
                "LoweringRule LoweringRuleContext TokenSet aval_to_ir_type aval_to_ir_types core_call_lowering "
                "custom_call dense_int_array dense_int_elements dtype_to_ir_type emit_python_callback "
                "flatten_ir_values i32_attr i64_attr ir_attribute ir_constant ir_constants lower_fun "
                "lowerable_effects make_ir_context module_to_bytecode module_to_string register_lowering "
                "shape_tensor token_type"
            ),
            "runtime.module_context": "ModuleContext",
            "sharding": "Mesh",
        },
    ),
    "interpreters.partial_eval": (
        "Tracing functions to jaxprs, and dividing and pruning these.",
        {
            "core.trace": "DynamicJaxprTracer=StagedTracer JaxprTracer=StagedTracer",
            "extend.jaxpr_tracing": (
                "PartialVal abstract_eval_fun close_jaxpr convert_constvars_jaxpr custom_partial_eval_rules dce_jaxpr "
                "dce_rules move_binders_to_back partial_eval_jaxpr_custom_rules partial_eval_jaxpr_nounits "
                "prune_closed_jaxpr_outputs trace_to_jaxpr_dynamic trace_to_jaxpr_nounits"
            ),
        },
    ),
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
    "interpreters.xla": ("The compiled form of single operations.", {"extend.user_primitive": "apply_primitive"}),
    "lib": ("The version of jaxlib.", {"jaxlib.version": "__version__"}),
    "linear_util": _LINEAR_UTIL,
    "memory": ("Kinds of memory, independent of the hardware.", {"transforms.offload": "Space"}),
    "monitoring": (
        "Events for monitoring, and listeners of them.",
        {
            "engine.monitoring": (
                "clear_event_listeners record_event record_event_duration_secs record_event_time_span record_scalar "
                "register_event_duration_secs_listener register_event_listener register_event_time_span_listener "
                "register_scalar_listener unregister_event_duration_listener unregister_event_listener "
                "unregister_event_time_span_listener unregister_scalar_listener"
            )
        },
    ),
    "nnx.extract": (
        "Conversion of modules to trees of arrays.",
        {
            "nnx.graphlib": "NodeStates",
            "nnx.transforms.lifting": "from_tree to_tree",
            "nnx.transforms.state_axes": "prefix TreeState=StateAxes",
        },
    ),
    "nnx.variablelib": (
        "Variables, their types and the names of these types.",
        {
            "nnx.variable": "A HijaxVariable Static Variable VariableMetadata is_variable",
            "nnx.variable_refs": "VarDefaults var_defaults",
            "nnx.variable_types": (
                "BatchStat Cache Intermediate LoRAParam OptArray OptState OptVariable Param Perturbation "
                "register_variable_name variable_name_from_type variable_type_from_name"
            ),
        },
    ),
    "nnx.helpers": (
        "Containers and compositions of modules, and training states.",
        {
            "nnx.containers": "Dict List",
            "nnx.layers.sequential": "Sequential",
            "nnx.training.train_state": "TrainState",
        },
    ),
    "nnx.initializers": (
        "Initializers of parameters.",
        {
            "nn.initializers": (
                "Initializer constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform "
                "kaiming_normal kaiming_uniform lecun_normal lecun_uniform normal ones orthogonal truncated_normal "
                "uniform variance_scaling xavier_normal xavier_uniform zeros"
            ),
            "nnx.constant_initializers": "ones_init zeros_init",
        },
    ),
    "nnx.nn": ("Layers, under the module names of Flax.", {"nnx": "initializers"}),
    "nnx.nn.activations": (
        "Activation functions.",
        {
            "nnx": (
                "PReLU celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid "
                "log_softmax logsumexp one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus standardize "
                "swish tanh"
            )
        },
    ),
    "nnx.nn.attention": (
        "Attention and its masks.",
        {
            "nnx": (
                "MultiHeadAttention combine_masks dot_product_attention dot_product_attention_weights "
                "make_attention_mask make_causal_mask"
            )
        },
    ),
    "nnx.nn.dtypes": (
        "Promotion of the operands of layers.",
        {"nnx.layers.parameter_init": "canonicalize_dtype promote_dtype"},
    ),
    "nnx.nn.initializers": (
        "Initializers of parameters.",
        {
            "nnx.initializers": (
                "constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal "
                "kaiming_uniform lecun_normal lecun_uniform normal ones ones_init orthogonal truncated_normal uniform "
                "variance_scaling xavier_normal xavier_uniform zeros zeros_init"
            )
        },
    ),
    "nnx.nn.linear": (
        "Linear layers, convolutions and embeddings.",
        {
            "nnx": "Conv ConvTranspose Einsum Embed Linear LinearGeneral",
            "nnx.layers.linear_layers": "default_embed_init",
            "nnx.layers.parameter_init": "default_bias_init=zeros_init default_kernel_init=lecun_normal",
        },
    ),
    "nnx.nn.lora": ("Low-rank adaptation.", {"nnx": "LoRA LoRALinear LoRAParam"}),
    "nnx.nn.normalization": (
        "Normalization.",
        {"nnx": "BatchNorm GroupNorm InstanceNorm LayerNorm RMSNorm SpectralNorm WeightNorm"},
    ),
    "nnx.nn.recurrent": (
        "Recurrent networks.",
        {"nnx": "Bidirectional GRUCell LSTMCell OptimizedLSTMCell RNN RNNCellBase SimpleCell flip_sequences"},
    ),
    "nnx.nn.stochastic": ("Dropout.", {"nnx": "Dropout"}),
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
    "ref": (
        "Mutable arrays: references that are read and written by index.",
        {
            "core.aval": "AbstractRef",
            "core.mutable_arrays": "Ref addupdate empty_ref free_ref freeze get new_ref set=set_ swap",
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
        whole = next((module for module, names in sources.items() if names == "*"), None)
        self.__sources = {
            alias: (module if module.startswith("jaxlib.") else f"phalanx.{module}", origin or alias)
            for module, names in sources.items()
            if names != "*"
            for alias, _, origin in (entry.partition("=") for entry in names.split())
        }
        if whole is not None:
            found = dir(importlib.import_module(whole))
            self.__sources = {name: (whole, name) for name in found if not name.startswith("_")}
        self.__all__ = sorted(self.__sources)

    def __getattr__(self, name: str) -> Any:
        if find_alias(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")  # which binds it here
        if name not in self.__sources:
            if find_alias(submodule := f"{self.__name__}.{name}"):
                return importlib.import_module(submodule)  # which binds it here
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
