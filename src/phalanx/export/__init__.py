"""Programs that leave the process: exported, written to a file, read and called by another."""

from phalanx.engine.frames import guard as _guard
from phalanx.engine.stablehlo import ArtifactError as ArtifactError
from phalanx.export.checks import STABLE_TARGETS as STABLE_TARGETS
from phalanx.export.checks import CustomCallError as CustomCallError
from phalanx.export.checks import DisabledSafetyCheck as DisabledSafetyCheck
from phalanx.export.checks import PlatformError as PlatformError
from phalanx.export.exported import Exported as Exported
from phalanx.export.exported import default_export_platform as default_export_platform
from phalanx.export.exported import export as export
from phalanx.export.exported import (
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
)
from phalanx.export.exported import (
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from phalanx.export.format import deserialize as deserialize
from phalanx.export.scopes import SymbolicScope as SymbolicScope
from phalanx.export.symbolic import is_symbolic_dim as is_symbolic_dim
from phalanx.export.symbolic import poly_spec as poly_spec
from phalanx.export.symbolic import poly_specs as poly_specs
from phalanx.export.symbolic import symbolic_args_specs as symbolic_args_specs
from phalanx.export.symbolic import symbolic_dim_bounds as symbolic_dim_bounds
from phalanx.export.symbolic import symbolic_shape as symbolic_shape
from phalanx.export.trees import TreeSerializationError as TreeSerializationError
from phalanx.export.trees import register_namedtuple_serialization as register_namedtuple_serialization
from phalanx.export.trees import register_pytree_node_serialization as register_pytree_node_serialization
from phalanx.export.verification import verify as verify

_guard(globals())
