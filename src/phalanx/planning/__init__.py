"""Plans: what a function will need, send and take on devices that need not be attached.

`plan` compiles the function in a separate process and returns a `Plan`. Users call it as `phalanx.plan`; this package
also has the machines to plan for and the comparison of plans.
"""

from phalanx.engine.offline_compiler import OfflineCompileError as OfflineCompileError
from phalanx.engine.public_namespace import publish as _publish
from phalanx.planning.chosen_shardings import AutoChoice as AutoChoice
from phalanx.planning.machines import Link as Link, Machine as Machine
from phalanx.planning.plan_comparison import (
    ComparedCollective as ComparedCollective,
    Comparison as Comparison,
    compare as compare,
)
from phalanx.planning.plan_record import Plan as Plan
from phalanx.planning.planned_memory import PlannedBuffer as PlannedBuffer, PlannedMemory as PlannedMemory
from phalanx.planning.planner import PlanError as PlanError, plan as plan
from phalanx.planning.timing import OperationTime as OperationTime, TimeEstimate as TimeEstimate

__getattr__, __dir__ = _publish(globals())
