"""Rematerialisation under its old module name: `checkpoint`, its policies and the names they speak of."""

from phalanx.engine.frames import guard as _guard
from phalanx.transforms.offload import Offloadable as Offloadable
from phalanx.transforms.offload import Recompute as Recompute
from phalanx.transforms.offload import Saveable as Saveable
from phalanx.transforms.remat import checkpoint as checkpoint
from phalanx.transforms.remat import checkpoint_name as checkpoint_name
from phalanx.transforms.remat import checkpoint_policies as checkpoint_policies
from phalanx.transforms.remat import remat as remat
from phalanx.transforms.residuals import print_saved_residuals as print_saved_residuals
from phalanx.transforms.residuals import saved_residuals as saved_residuals

_guard(globals())
