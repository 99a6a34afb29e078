"""Abstract values, programs, primitives, traces, dtypes, dimensions, errors and options: what every room above shares.

Names load on first use, because `sharding`, the sibling room, needs parts of this one before the whole can stand.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.core.aval import ShapedArray as ShapedArray
    from phalanx.core.aval import ShapeDtypeStruct as ShapeDtypeStruct
    from phalanx.core.checker import check_jaxpr as check_jaxpr
    from phalanx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
    from phalanx.core.jaxpr import Jaxpr as Jaxpr
    from phalanx.core.jaxpr import Literal as Literal
    from phalanx.core.jaxpr import Var as Var
    from phalanx.core.jaxpr import eval_jaxpr as eval_jaxpr
    from phalanx.core.jaxpr import jaxpr_as_fun as jaxpr_as_fun
    from phalanx.core.primitive import Primitive as Primitive
    from phalanx.core.trace import Tracer as Tracer

_WHERE = {
    "ClosedJaxpr": "jaxpr", "Jaxpr": "jaxpr", "Literal": "jaxpr", "Primitive": "primitive",
    "ShapeDtypeStruct": "aval", "ShapedArray": "aval", "Tracer": "trace", "Var": "jaxpr", "check_jaxpr": "checker",
    "eval_jaxpr": "jaxpr", "jaxpr_as_fun": "jaxpr",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
