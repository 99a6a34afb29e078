"""Transformations of programs: derivatives, batching, partial evaluation."""

from phalanx.transforms.autodiff import grad as grad
from phalanx.transforms.autodiff import hessian as hessian
from phalanx.transforms.autodiff import jacfwd as jacfwd
from phalanx.transforms.autodiff import jacrev as jacrev
from phalanx.transforms.autodiff import jvp as jvp
from phalanx.transforms.autodiff import linear_transpose as linear_transpose
from phalanx.transforms.autodiff import linearize as linearize
from phalanx.transforms.autodiff import value_and_grad as value_and_grad
from phalanx.transforms.autodiff import vjp as vjp
from phalanx.transforms.batching import vmap as vmap
from phalanx.transforms.keys import lower_on_keys as lower_on_keys
from phalanx.transforms.remat import checkpoint as checkpoint
from phalanx.transforms.remat import checkpoint_name as checkpoint_name
from phalanx.transforms.remat import remat as remat

jacobian = jacrev
