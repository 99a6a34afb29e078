"""Export of compiled functions: written to bytes by one process, read and called by another.

`export` lowers a jitted function to an `Exported`, `Exported.serialize` writes it, and `deserialize` reads it. Shapes
may be symbolic (`symbolic_shape`). docs/export-format.md describes the bytes.
"""

from phalanx.engine import ArtifactError as ArtifactError, publish as _publish
from phalanx.export.artifact_reader import deserialize as deserialize
from phalanx.export.exported import (
    Exported as Exported,
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from phalanx.export.exporting import default_export_platform as default_export_platform, export as export
from phalanx.export.safety_checks import (
    STABLE_TARGETS as STABLE_TARGETS,
    CustomCallError as CustomCallError,
    DisabledSafetyCheck as DisabledSafetyCheck,
    PlatformError as PlatformError,
)
from phalanx.export.symbolic_scope import SymbolicScope as SymbolicScope
from phalanx.export.symbolic_shapes import (
    is_symbolic_dim as is_symbolic_dim,
    poly_spec as poly_spec,
    poly_specs as poly_specs,
    symbolic_args_specs as symbolic_args_specs,
    symbolic_dim_bounds as symbolic_dim_bounds,
    symbolic_shape as symbolic_shape,
)
from phalanx.export.tree_serialization import (
    TreeSerializationError as TreeSerializationError,
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
)
from phalanx.export.verification import verify as verify

__getattr__, __dir__ = _publish(globals())
