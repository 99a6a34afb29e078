"""Checkpoints: `save` writes any tree as a step of a folder, `load` reads it onto any mesh.

The package can also be called: JAX gives the name `checkpoint` to rematerialization, so `phalanx.checkpoint(f)` is
`phalanx.remat(f)`. `named_leaves` gives the leaves of a tree their names, `leaf_records` describes them, `array_store`
holds their elements, `leaf_conversions` converts them, `step_folders` commits steps and `retention` removes old ones;
`saving` and `loading` are for users.
"""

import sys as _sys
from typing import Any as _Any

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


class _CallablePackage:
    """This package, which can be called as `phalanx.remat`.

    It is no `ModuleType`, since code that wraps or skips the modules of a namespace must not do so with a function.
    """

    def __init__(self, namespace: dict[str, _Any]):
        self.__dict__ = namespace

    __call__ = __wrapped__ = staticmethod(_remat)

    def __getattr__(self, name: str) -> _Any:
        return __getattr__(name)

    def __dir__(self) -> list[str]:
        return __dir__()

    def __repr__(self) -> str:
        return f"<package {__name__!r} from {__file__!r}>"


_sys.modules[__name__] = _CallablePackage(globals())  # type: ignore[assignment]
