"""Transformations of functions: derivatives, batching, partial evaluation and rematerialization."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.transforms.batching import vmap as vmap
from phalanx.transforms.checkpoint import checkpoint as checkpoint, checkpoint_name as checkpoint_name, remat as remat
from phalanx.transforms.jacobian import hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
from phalanx.transforms.jvp_and_vjp import (
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    vjp as vjp,
)
from phalanx.transforms.key_lowering import lower_on_keys as lower_on_keys
from phalanx.transforms.value_and_grad import grad as grad, value_and_grad as value_and_grad

jacobian = jacrev

__getattr__, __dir__ = _publish(globals())
