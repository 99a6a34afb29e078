"""Checkpoints: `save` writes any tree as a step of a folder, `load` reads it onto any mesh.

The package can also be called: JAX gives the name `checkpoint` to rematerialization, so `phalanx.checkpoint(f)` is
`phalanx.remat(f)`. `named_leaves` gives the leaves of a tree their names, `leaf_records` describes them, `array_store`
holds their elements, `step_folders` commits steps and `retention` removes old ones; `saving` and `loading` are for
users.
"""

import sys as _sys
from types import ModuleType as _ModuleType

from phalanx.engine.public_namespace import publish as _publish
from phalanx.transforms import remat as _remat

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.checkpoint.checkpoint_errors import (
        CheckpointError as CheckpointError,
        CheckpointNotFoundError as CheckpointNotFoundError,
        CheckpointSaveError as CheckpointSaveError,
    )
    from phalanx.checkpoint.leaf_records import LeafMetadata as LeafMetadata
    from phalanx.checkpoint.loading import (
        CheckpointMetadata as CheckpointMetadata,
        delete as delete,
        load as load,
        metadata as metadata,
        steps as steps,
    )
    from phalanx.checkpoint.retention import Keep as Keep
    from phalanx.checkpoint.safetensors_files import save_safetensors as save_safetensors
    from phalanx.checkpoint.saving import Saving as Saving, save as save


class _CallablePackage(_ModuleType):
    """This package, which can be called as `phalanx.remat`."""

    __call__ = staticmethod(_remat)


_sys.modules[__name__].__class__ = _CallablePackage

__getattr__, __dir__ = _publish(
    globals(),
    lazy={
        "checkpoint_errors": "CheckpointError CheckpointNotFoundError CheckpointSaveError",
        "leaf_records": "LeafMetadata",
        "loading": "CheckpointMetadata delete load metadata steps",
        "retention": "Keep",
        "safetensors_files": "save_safetensors",
        "saving": "Saving save",
    },
)
