"""Functions with user-defined rules: custom derivatives, custom batching and custom transposes.

Builds on `transforms`, which has no dependency on user-defined rules.
"""

from phalanx.custom_rules.closure_convert import closure_convert as closure_convert, custom_gradient as custom_gradient
from phalanx.custom_rules.custom_jvp_and_vjp import (
    CustomVJPPrimal as CustomVJPPrimal,
    SymbolicZero as SymbolicZero,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
    zero_from_primal as zero_from_primal,
)
from phalanx.custom_rules.custom_jvp_and_vjp_calls import (
    custom_jvp_call_p as custom_jvp_call_p,
    custom_vjp_call_p as custom_vjp_call_p,
)
from phalanx.custom_rules.custom_remat import custom_remat as custom_remat
from phalanx.custom_rules.linear_call import linear_call as linear_call
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals())
