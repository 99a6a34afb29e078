"""The errors of checkpoints. `phalanx.errors` re-exports them; all files of the package raise them."""

from __future__ import annotations

from phalanx.core import PhalanxError
from phalanx.engine.defining_module import public_in


@public_in("phalanx.errors")
class CheckpointError(PhalanxError, ValueError):
    """A checkpoint does not contain what was asked for, or its files are damaged.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(CheckpointError, ValueError)
      True
    """


@public_in("phalanx.errors")
class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """A folder has no checkpoint, or not that of the requested step.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(CheckpointNotFoundError, FileNotFoundError)
      True
    """


@public_in("phalanx.errors")
class CheckpointSaveError(CheckpointError, OSError):
    """A checkpoint was not saved: the disk is full, the folder is read-only, or another process saves to it.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(CheckpointSaveError, OSError)
      True
    """
