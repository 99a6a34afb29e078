"""Functions with derivatives of their own, and what their rules meet.

`custom_jvp` and `custom_vjp` are in `rules`, over the primitives in `calls`; `closures` and `linear_call` are further
ways to say a derivative. Builds on `transforms`, which knows nothing of users' rules.
"""

from phalanx.custom_derivatives.calls import custom_jvp_call_p as custom_jvp_call_p
from phalanx.custom_derivatives.calls import custom_vjp_call_p as custom_vjp_call_p
from phalanx.custom_derivatives.closures import closure_convert as closure_convert
from phalanx.custom_derivatives.closures import custom_gradient as custom_gradient
from phalanx.custom_derivatives.linear_call import linear_call as linear_call
from phalanx.custom_derivatives.rules import CustomVJPPrimal as CustomVJPPrimal
from phalanx.custom_derivatives.rules import SymbolicZero as SymbolicZero
from phalanx.custom_derivatives.rules import custom_jvp as custom_jvp
from phalanx.custom_derivatives.rules import custom_vjp as custom_vjp
from phalanx.custom_derivatives.rules import custom_vjp_primal_tree_values as custom_vjp_primal_tree_values
from phalanx.custom_derivatives.rules import zero_from_primal as zero_from_primal
from phalanx.engine.frames import guard as _guard

_guard(globals())
