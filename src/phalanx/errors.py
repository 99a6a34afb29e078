"""The exceptions that users meet, under their module name."""

import importlib
from typing import Any

from phalanx.core.errors import *  # noqa: F403  # the module is a list of names and nothing else
from phalanx.engine.failures import XlaRuntimeError as JaxRuntimeError  # noqa: F401  # as programs of the field catch it

_ELSEWHERE = {
    "KeyReuseError": "phalanx.random.key_reuse",
    "NonConcreteBooleanIndexError": "phalanx.numpy.index_expression",
    "TraceContextError": "phalanx.nnx.levels",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ELSEWHERE])
