"""Functions with derivatives of their own, under their module name, and what their rules meet."""

from phalanx.engine.frames import guard as _guard
from phalanx.transforms.custom import CustomVJPPrimal as CustomVJPPrimal
from phalanx.transforms.custom import SymbolicZero as SymbolicZero
from phalanx.transforms.custom import closure_convert as closure_convert
from phalanx.transforms.custom import custom_gradient as custom_gradient
from phalanx.transforms.custom import custom_jvp as custom_jvp
from phalanx.transforms.custom import custom_jvp_call_p as custom_jvp_call_p
from phalanx.transforms.custom import custom_vjp as custom_vjp
from phalanx.transforms.custom import custom_vjp_call_p as custom_vjp_call_p
from phalanx.transforms.custom import custom_vjp_primal_tree_values as custom_vjp_primal_tree_values
from phalanx.transforms.custom import zero_from_primal as zero_from_primal
from phalanx.transforms.linear_call import linear_call as linear_call

_guard(globals())
