"""Programs over many devices: `jit`, `shard_map`, `pmap`, and the transfer of arrays to and from devices."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.spmd.device_get import (
    copy_to_host_async as copy_to_host_async,
    device_get as device_get,
    live_arrays as live_arrays,
)
from phalanx.spmd.device_put import (
    device_put as device_put,
    device_put_replicated as device_put_replicated,
    device_put_sharded as device_put_sharded,
)
from phalanx.spmd.fwd_and_bwd import fwd_and_bwd as fwd_and_bwd
from phalanx.spmd.jit import clear_caches as clear_caches, jit as jit, pjit as pjit
from phalanx.spmd.make_array import (
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
)
from phalanx.spmd.make_jaxpr import eval_shape as eval_shape, make_jaxpr as make_jaxpr
from phalanx.spmd.shard_map import shard_map as shard_map, smap as smap

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.spmd.row_maps import pmap as pmap, soft_pmap as soft_pmap

__getattr__, __dir__ = _publish(globals(), lazy={"row_maps": "pmap soft_pmap"})
