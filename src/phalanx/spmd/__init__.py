"""One program, many devices: `jit`, its stages, and placement."""

from phalanx.spmd.halves import fwd_and_bwd as fwd_and_bwd
from phalanx.spmd.inspection import eval_shape as eval_shape
from phalanx.spmd.inspection import make_jaxpr as make_jaxpr
from phalanx.spmd.jit import clear_caches as clear_caches
from phalanx.spmd.jit import jit as jit
from phalanx.spmd.jit import pjit as pjit
from phalanx.spmd.placement import copy_to_host_async as copy_to_host_async
from phalanx.spmd.placement import device_get as device_get
from phalanx.spmd.placement import device_put as device_put
from phalanx.spmd.placement import device_put_replicated as device_put_replicated
from phalanx.spmd.placement import device_put_sharded as device_put_sharded
from phalanx.spmd.placement import live_arrays as live_arrays
from phalanx.spmd.placement import make_array_from_callback as make_array_from_callback
from phalanx.spmd.placement import make_array_from_process_local_data as make_array_from_process_local_data
from phalanx.spmd.placement import make_array_from_single_device_arrays as make_array_from_single_device_arrays
from phalanx.spmd.pmap import pmap as pmap
from phalanx.spmd.pmap import soft_pmap as soft_pmap
from phalanx.spmd.shard_map import shard_map as shard_map
from phalanx.spmd.shard_map import smap as smap
