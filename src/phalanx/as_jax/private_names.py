"""Private names of JAX that well-known libraries use, and what they are in Phalanx.

Each row says which libraries need the names and why. A row is added when a library fails without it (`phalanx run
--report` lists what was asked for in vain), and is deleted when no current release of the library uses it. A name that
is public in JAX does not belong here: Phalanx itself should have it. Read by `module_finder`.
"""

from __future__ import annotations

from typing import NamedTuple


class PrivateNames(NamedTuple):
    """Private names of one module of JAX.

    Attributes:
      module: the module of JAX.
      names: the names, separated by spaces; `alias=name` where Phalanx has another name; `*` for a module that shows
        all public names of `source`.
      source: the module of Phalanx that defines the same things, or `private_translations`.
      libraries: the libraries that use them, separated by spaces.
      reason: what they use them for.
      patched: whether assigning to the names in JAX's module changes them in `source`, too.
    """

    module: str
    names: str
    source: str
    libraries: str
    reason: str
    patched: bool = False


_TRANSLATIONS = "phalanx.as_jax.private_translations"

PRIVATE_NAMES: tuple[PrivateNames, ...] = (
    PrivateNames("jax._src.api", "*", "phalanx", "jax-tutorials", "public functions in the page on primitives"),
    PrivateNames(
        "jax._src.api_util",
        "infer_argnums_and_argnames",
        _TRANSLATIONS,
        "e3nn-jax",
        "finds the arguments to convert, however they are passed",
    ),
    PrivateNames(
        "jax._src.interpreters.ad",
        "CustomVJPException=TraceError",
        "phalanx.errors",
        "jaxopt",
        "its tests catch the error for a differentiated value that a custom_vjp function closes over",
    ),
    PrivateNames("jax._src.ad_util", "stop_gradient_p", "phalanx.lax", "lineax", "registers a transpose rule for it"),
    PrivateNames(
        "jax.experimental.array_serialization.serialization",
        "GlobalAsyncCheckpointManagerBase=CheckpointManagerBase",
        _TRANSLATIONS,
        "orbax",
        "derives its manager from it",
    ),
    PrivateNames(
        "jax.experimental.colocated_python",
        "colocated_cpu_devices=refuse_remote_hosts colocated_python=refuse_remote_hosts",
        _TRANSLATIONS,
        "orbax",
        "saves and loads on remote hosts, if there are some",
    ),
    PrivateNames("jax.experimental.colocated_python.func", "", _TRANSLATIONS, "orbax", "the same"),
    PrivateNames(
        "jax.experimental.colocated_python.serialization", "DeviceList", "jaxlib._jax", "orbax", "an annotation"
    ),
    PrivateNames(
        "jax.experimental.hijax",
        "HiPrim HiType aval_method register_hitype",
        _TRANSLATIONS,
        "flax",
        "`nnx.Variable(hijax=True)`, which raises an error",
    ),
    PrivateNames("jax.experimental.hijax", "aval_property=property", "builtins", "flax", "the same"),
    PrivateNames("jax.experimental.hijax", "AbstractValue", "phalanx.core", "flax", "an annotation of the same"),
    PrivateNames("jax.experimental.hijax", "instantiate_zeros", "phalanx.interpreters.ad", "flax", "the same"),
    PrivateNames(
        "jax._src.checkify",
        "Error checkify user_checks",
        "phalanx.checkify",
        "flax",
        "`nnx.checkify` is built on it; they are public elsewhere",
    ),
    PrivateNames(
        "jax._src.checkify",
        "JaxException=CheckException",
        "phalanx.checkify.error_value",
        "flax",
        "an annotation of `nnx.checkify`",
    ),
    PrivateNames(
        "jax._src.compiler",
        "backend_compile_and_load",
        "phalanx.engine.compiler",
        "chex",
        "`restrict_backends` replaces it, to refuse compilation for some platforms",
        patched=True,
    ),
    PrivateNames("jax._src.core", "ShapedArray Tracer", "phalanx.core", "flax", "types in annotations"),
    PrivateNames("jax._src.core", "Primitive", "phalanx.extend.core", "jax-md", "defines kernels"),
    PrivateNames("jax._src.core", "physical_aval", "phalanx.core.aval", "flax", "scales of fp8 layers"),
    PrivateNames("jax._src.core", "trace_state_clean", _TRANSLATIONS, "numpyro", "caches only outside of traces"),
    PrivateNames(
        "jax._src.dispatch",
        "wait_for_tokens=effects_barrier",
        "phalanx.runtime.in_flight",
        "equinox",
        "waits at exit for the effects of programs, and keeps their errors quiet",
    ),
    PrivateNames("jax._src.dtypes", "TypePromotionError", "phalanx.errors", "equinox", "catches it in `Embedding`"),
    PrivateNames("jax._src.dtypes", "extended finfo", "phalanx.dtypes", "flax", "the dtype of scales of fp8 layers"),
    PrivateNames("jax._src.dtypes", "canonicalize_dtype", "phalanx.dtypes", "qujax", "it is public elsewhere"),
    PrivateNames("jax._src.dtypes", "DType=dtype", "numpy", "flax", "an annotation of the same dtype"),
    PrivateNames("jax._src.dtypes", "ExtendedDType supports_inf", _TRANSLATIONS, "flax", "the same dtype"),
    PrivateNames(
        "jax._src.distributed",
        "global_state",
        _TRANSLATIONS,
        "orbax",
        "asks whether several processes run, and for the number of this one",
    ),
    PrivateNames("jax._src.flatten_util", "ravel_pytree", "phalanx.flatten_util", "blackjax", "it is public elsewhere"),
    PrivateNames(
        "jax._src.interpreters.mlir", "*", "phalanx.interpreters.mlir", "jax-tutorials", "the page on exporting"
    ),
    PrivateNames("jax._src.lax.lax", "*", "phalanx.lax", "jax-tutorials", "operations in the page on primitives"),
    PrivateNames(
        "jax._src.lib.mlir.dialects.hlo",
        "*",
        "phalanx.extend.mlir.dialects.stablehlo",
        "jax-tutorials",
        "lowering rules in the page on primitives",
    ),
    PrivateNames(
        "jax._src.lib.jax_mlir_ext",
        "register_dialects",
        "jaxlib.mlir._mlir_libs._jax_mlir_ext",
        "jax-tutorials",
        "makes MLIR contexts in Autodidax",
    ),
    PrivateNames("jax._src.lib.xla_client", "*", "jaxlib.xla_client", "jax-tutorials", "buffers in Autodidax"),
    PrivateNames(
        "jax._src.numpy.util", "promote_dtypes_complex", _TRANSLATIONS, "s2fft", "transforms real and complex arrays"
    ),
    PrivateNames("jax._src.numpy.ufuncs", "ufunc", "phalanx.numpy", "esquilax", "an annotation"),
    PrivateNames("jax._src.state.types", "AbstractRef", "phalanx.core", "flax", "`nnx.Variable` may hold a reference"),
    PrivateNames(
        "jax._src.traceback_util",
        "include_frame register_exclusion=exclude_path _exclude_paths=excluded_paths",
        _TRANSLATIONS,
        "equinox flax jaxtyping",
        "hide their own frames in tracebacks",
    ),
    PrivateNames(
        "jax._src.traceback_util", "api_boundary", "phalanx.engine.traceback_filtering", "flax", "the same, of methods"
    ),
    PrivateNames(
        "jax._src.tree_util", "_registry=node_types", _TRANSLATIONS, "flax", "asks whether a class is a pytree node"
    ),
    PrivateNames("jax._src.tree_util", "flatten_one_level", _TRANSLATIONS, "orbax", "looks for empty containers"),
    PrivateNames(
        "jax._src.util", "safe_map safe_zip", "phalanx.api_util", "jax-tutorials", "the page on interpreters of jaxprs"
    ),
    PrivateNames("jax._src.typing", "*", "phalanx.typing", "qujax", "annotations"),
    PrivateNames(
        "jax._src.xla_bridge",
        "_backends=started_backends",
        _TRANSLATIONS,
        "chex",
        "`set_n_cpu_devices` asks whether the CPU client has started",
    ),
    PrivateNames(
        "jax._src.xla_bridge",
        "backends_are_initialized",
        _TRANSLATIONS,
        "flax",
        "its tutorials set the number of CPU devices before the first use of one",
    ),
    PrivateNames("jax._src.xla_bridge", "get_backend", "phalanx.extend.backend", "jax-tutorials", "Autodidax"),
    PrivateNames(
        "jax.experimental.pallas",
        "BlockSpec=KernelLanguage GridSpec=KernelLanguage cdiv load=KernelLanguage no_block_spec=KernelLanguage "
        "pallas_call=KernelLanguage program_id=KernelLanguage store=KernelLanguage when=KernelLanguage",
        _TRANSLATIONS,
        "jax-md qwix",
        "have kernels for GPUs and TPUs beside operations that need none",
    ),
    PrivateNames("jax.experimental.pallas.tpu", "", _TRANSLATIONS, "qwix", "the same"),
    PrivateNames("jax.experimental.pallas.triton", "", _TRANSLATIONS, "jax-md", "the same"),
    PrivateNames("jax.extend.ifrt_programs", "ifrt_programs", "jaxlib._jax", "orbax", "programs of remote hosts"),
)
