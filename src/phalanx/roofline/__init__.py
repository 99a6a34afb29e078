"""Roofline figures: the work of a function, the memory it moves and the traffic between devices, without running it.

Users import it as `phalanx.experimental.roofline`.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.roofline.jaxpr_cost import roofline as roofline, roofline_and_grad as roofline_and_grad
from phalanx.roofline.operation_cost import (
    register_roofline as register_roofline,
    register_standard_roofline as register_standard_roofline,
)
from phalanx.roofline.roofline_result import (
    RooflineResult as RooflineResult,
    RooflineRuleContext as RooflineRuleContext,
    RooflineShape as RooflineShape,
)

__getattr__, __dir__ = _publish(globals())
