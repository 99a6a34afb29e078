"""The exceptions that Phalanx raises, for programs that catch them."""

import importlib
from typing import Any

from phalanx.core import error_classes as _error_classes
from phalanx.core.error_classes import *  # noqa: F403
from phalanx.engine.runtime_errors import XlaRuntimeError as JaxRuntimeError  # noqa: F401

# Defined where they are raised, in packages that are not loaded for the sake of an `except` clause.
_LAZY = {
    "CheckpointError": "phalanx.checkpoint.checkpoint_errors",
    "CheckpointNotFoundError": "phalanx.checkpoint.checkpoint_errors",
    "CheckpointSaveError": "phalanx.checkpoint.checkpoint_errors",
    "CoordinationError": "phalanx.engine.error_record",
    "KeyReuseError": "phalanx.random.key_reuse",
    "NonConcreteBooleanIndexError": "phalanx.numpy.indexing.index_expression",
    "ProcessesDifferError": "phalanx.runtime.process_comparison",
    "ProcessFailure": "phalanx.engine.failure_watch",
    "ProgramMismatchError": "phalanx.engine.error_record",
    "TraceContextError": "phalanx.nnx.trace_level",
}

__all__ = sorted([
    *(n for n, x in vars(_error_classes).items() if isinstance(x, type) and issubclass(x, Exception)),
    "JaxRuntimeError",
    *_LAZY,
])  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
