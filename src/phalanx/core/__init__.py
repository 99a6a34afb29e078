"""Abstract values, jaxprs, primitives, traces, dtypes, errors and options: the concepts that all packages share."""

from phalanx.core.aval import ShapedArray as ShapedArray, ShapeDtypeStruct as ShapeDtypeStruct
from phalanx.core.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    Literal as Literal,
    Var as Var,
    eval_jaxpr as eval_jaxpr,
    jaxpr_as_fun as jaxpr_as_fun,
)
from phalanx.core.jaxpr_checker import check_jaxpr as check_jaxpr
from phalanx.core.primitive import Primitive as Primitive
from phalanx.core.trace import Tracer as Tracer
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals())
