"""Abstract values, programs, primitives, traces, dtypes, errors and options: what every room above shares."""

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
