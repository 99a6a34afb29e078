"""The only package that imports jaxlib: clients, devices, buffers, MLIR, compiling and executing.

Other packages import from here what they need of several of its files.
"""

import os as _os

# jaxlib's C++ side reads the level when it is loaded and would otherwise log at INFO.
_os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from phalanx.engine.buffers import ShardingBase as ShardingBase
from phalanx.engine.cache import Cache as Cache, cache_sizes as cache_sizes, memoize as memoize
from phalanx.engine.client import Device as Device, DeviceList as DeviceList, platform_name as platform_name
from phalanx.engine.custom_call_partitioner import (
    HloSharding as HloSharding,
    OpSharding as OpSharding,
    PartitionedCall as PartitionedCall,
)
from phalanx.engine.custom_call_targets import TargetError as TargetError
from phalanx.engine.error_record import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    PhalanxError as PhalanxError,
    TreeError as TreeError,
    example as example,
)
from phalanx.engine.hook import Hook as Hook
from phalanx.engine.mlir import (
    cached_per_context as cached_per_context,
    current_traceback as current_traceback,
    dense_constant as dense_constant,
    func as func,
    hlo as hlo,
    i32 as i32,
    i64 as i64,
    ir as ir,
    sdy as sdy,
    user_frames as user_frames,
)
from phalanx.engine.public_namespace import publish as publish
from phalanx.engine.pytree import PyTreeDef as PyTreeDef
from phalanx.engine.runtime_errors import (
    XlaRuntimeError as XlaRuntimeError,
    unwrap_callback_error as unwrap_callback_error,
)
from phalanx.engine.stablehlo import ArtifactError as ArtifactError
from phalanx.engine.traceback_filtering import (
    PACKAGE as PACKAGE,
    api_boundary as api_boundary,
    api_boundary_class as api_boundary_class,
    guard_methods as guard_methods,
    guard_namespace as guard_namespace,
    hide_frames as hide_frames,
    is_internal as is_internal,
    mark_api_boundary as mark_api_boundary,
)
from phalanx.engine.transfer_guard import (
    TransferError as TransferError,
    explicit_transfer as explicit_transfer,
    unguarded_transfer as unguarded_transfer,
)
from phalanx.garbage_collector import pause_collector as pause_collector
