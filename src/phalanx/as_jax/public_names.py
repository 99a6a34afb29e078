"""Public names of JAX that Phalanx has in another module, or that describe JAX itself.

Only where the module trees differ: `jax.a.b` shows the public names of `phalanx.a.b` without a row here. Names that
programs also import from Phalanx, such as `phalanx.experimental.maps`, are rows of `phalanx/alias_modules.py` instead.
Read by `module_finder`.
"""

# The release of JAX whose API Phalanx follows: `jax.__version__`, which libraries compare with what they need.
JAX_VERSION = "0.12.0"
JAX_VERSION_INFO = tuple(map(int, JAX_VERSION.split(".")))

# Modules that `phalanx` shows and `jax` does not have.
ONLY_IN_PHALANX = frozenset({"as_jax", "checkpoint", "engine", "flax", "nnx", "optim", "spmd", "testing", "transforms"})

_VERSION = {"phalanx.as_jax.public_names": "__version__=JAX_VERSION __version_info__=JAX_VERSION_INFO"}

# Tables of host types that operations accept, which tensorflow-probability reads and extends at import.
_ARRAY_TYPES = "phalanx.as_jax.private_translations"

# module of JAX: {module of Phalanx: its names, `alias=name` to rename}
PUBLIC_NAMES: dict[str, dict[str, str]] = {
    "jax": {**_VERSION, "phalanx.transforms": "checkpoint"},  # in phalanx, the package of that name
    "jax.core": {_ARRAY_TYPES: "pytype_aval_mappings=aval_mappings"},
    "jax.interpreters.xla": {_ARRAY_TYPES: "canonicalize_dtype_handlers=canonicalize_handlers"},
    "jax.lax": {"phalanx.lax": "ConvGeneralDilatedDimensionNumbers PrecisionLike"},  # type aliases
    "jax.lib": {"phalanx.lib": "__version__"},
    "jax.version": _VERSION,
}
