"""SPMD array programming for Python: the public face, which loads each name on first use.

`import phalanx` reads this page and nothing else. The names are those of the field; where each is written stands in
the table below, and once more for type checkers, which cannot read the table. A test holds the two together.
"""

import importlib

__version__ = "0.1.0"

TYPE_CHECKING = False  # As type checkers know it; importing typing would take most of this page's time.

if TYPE_CHECKING:
    from phalanx import ad_checkpoint as ad_checkpoint
    from phalanx import core as core
    from phalanx import custom_batching as custom_batching
    from phalanx import custom_derivatives as custom_derivatives
    from phalanx import debug as debug
    from phalanx import dlpack as dlpack
    from phalanx import dtypes as dtypes
    from phalanx import engine as engine
    from phalanx import errors as errors
    from phalanx import experimental as experimental
    from phalanx import export as export
    from phalanx import extend as extend
    from phalanx import ffi as ffi
    from phalanx import flatten_util as flatten_util
    from phalanx import image as image
    from phalanx import interpreters as interpreters
    from phalanx import lax as lax
    from phalanx import memory as memory
    from phalanx import nn as nn
    from phalanx import nnx as nnx
    from phalanx import numpy as numpy
    from phalanx import ops as ops
    from phalanx import optim as optim
    from phalanx import profiler as profiler
    from phalanx import random as random
    from phalanx import scipy as scipy
    from phalanx import sharding as sharding
    from phalanx import spmd as spmd
    from phalanx import stages as stages
    from phalanx import test_util as test_util
    from phalanx import testing as testing
    from phalanx import transforms as transforms
    from phalanx import tree as tree
    from phalanx import tree_util as tree_util
    from phalanx import typing as typing
    from phalanx.ad_checkpoint import checkpoint_policies as checkpoint_policies
    from phalanx.core.aval import ShapeDtypeStruct as ShapeDtypeStruct
    from phalanx.core.config import check_tracer_leaks as check_tracer_leaks
    from phalanx.core.config import checking_leaks as checking_leaks
    from phalanx.core.config import debug_infs as debug_infs
    from phalanx.core.config import debug_key_reuse as debug_key_reuse
    from phalanx.core.config import debug_nans as debug_nans
    from phalanx.core.config import default_device as default_device
    from phalanx.core.config import default_matmul_precision as default_matmul_precision
    from phalanx.core.config import default_prng_impl as default_prng_impl
    from phalanx.core.config import disable_jit as disable_jit
    from phalanx.core.config import enable_x64 as enable_x64
    from phalanx.core.config import explain_cache_misses as explain_cache_misses
    from phalanx.core.config import log_compiles as log_compiles
    from phalanx.core.config import numpy_dtype_promotion as numpy_dtype_promotion
    from phalanx.core.config import numpy_rank_promotion as numpy_rank_promotion
    from phalanx.core.dtypes import float0 as float0
    from phalanx.core.source import named_call as named_call
    from phalanx.core.source import named_scope as named_scope
    from phalanx.core.trace import ensure_compile_time_eval as ensure_compile_time_eval
    from phalanx.custom_derivatives import closure_convert as closure_convert
    from phalanx.custom_derivatives import custom_gradient as custom_gradient
    from phalanx.custom_derivatives import custom_jvp as custom_jvp
    from phalanx.custom_derivatives import custom_vjp as custom_vjp
    from phalanx.engine.client import Device as Device
    from phalanx.engine.client import default_backend as default_backend
    from phalanx.engine.client import device_count as device_count
    from phalanx.engine.client import devices as devices
    from phalanx.engine.client import host_count as host_count
    from phalanx.engine.client import host_id as host_id
    from phalanx.engine.client import host_ids as host_ids
    from phalanx.engine.client import local_device_count as local_device_count
    from phalanx.engine.client import local_devices as local_devices
    from phalanx.engine.client import process_count as process_count
    from phalanx.engine.client import process_index as process_index
    from phalanx.engine.client import process_indices as process_indices
    from phalanx.environment import print_environment_info as print_environment_info
    from phalanx.lax.callback import pure_callback as pure_callback
    from phalanx.lax.explicit_axes import reshard as reshard
    from phalanx.lax.explicit_axes import typeof as typeof
    from phalanx.runtime.array import Array as Array
    from phalanx.runtime.array import Shard as Shard
    from phalanx.runtime.array import block_until_ready as block_until_ready
    from phalanx.runtime.runs import effects_barrier as effects_barrier
    from phalanx.runtime.settings import config as config
    from phalanx.runtime.settings import transfer_guard as transfer_guard
    from phalanx.runtime.settings import transfer_guard_device_to_device as transfer_guard_device_to_device
    from phalanx.runtime.settings import transfer_guard_device_to_host as transfer_guard_device_to_host
    from phalanx.runtime.settings import transfer_guard_host_to_device as transfer_guard_host_to_device
    from phalanx.sharding import NamedSharding as NamedSharding
    from phalanx.sharding import P as P
    from phalanx.sharding import get_abstract_mesh as get_abstract_mesh
    from phalanx.sharding import get_mesh as get_mesh
    from phalanx.sharding import make_mesh as make_mesh
    from phalanx.sharding import set_mesh as set_mesh
    from phalanx.sharding import use_abstract_mesh as use_abstract_mesh
    from phalanx.spmd import clear_caches as clear_caches
    from phalanx.spmd import copy_to_host_async as copy_to_host_async
    from phalanx.spmd import device_get as device_get
    from phalanx.spmd import device_put as device_put
    from phalanx.spmd import device_put_replicated as device_put_replicated
    from phalanx.spmd import device_put_sharded as device_put_sharded
    from phalanx.spmd import eval_shape as eval_shape
    from phalanx.spmd import fwd_and_bwd as fwd_and_bwd
    from phalanx.spmd import jit as jit
    from phalanx.spmd import live_arrays as live_arrays
    from phalanx.spmd import make_array_from_callback as make_array_from_callback
    from phalanx.spmd import make_array_from_process_local_data as make_array_from_process_local_data
    from phalanx.spmd import make_array_from_single_device_arrays as make_array_from_single_device_arrays
    from phalanx.spmd import make_jaxpr as make_jaxpr
    from phalanx.spmd import pjit as pjit
    from phalanx.spmd import pmap as pmap
    from phalanx.spmd import shard_map as shard_map
    from phalanx.spmd import smap as smap
    from phalanx.spmd import soft_pmap as soft_pmap
    from phalanx.transforms import checkpoint as checkpoint
    from phalanx.transforms import grad as grad
    from phalanx.transforms import hessian as hessian
    from phalanx.transforms import jacfwd as jacfwd
    from phalanx.transforms import jacobian as jacobian
    from phalanx.transforms import jacrev as jacrev
    from phalanx.transforms import jvp as jvp
    from phalanx.transforms import linear_transpose as linear_transpose
    from phalanx.transforms import linearize as linearize
    from phalanx.transforms import remat as remat
    from phalanx.transforms import value_and_grad as value_and_grad
    from phalanx.transforms import vjp as vjp
    from phalanx.transforms import vmap as vmap
    from phalanx.tree_util import tree_all as tree_all
    from phalanx.tree_util import tree_flatten as tree_flatten
    from phalanx.tree_util import tree_leaves as tree_leaves
    from phalanx.tree_util import tree_map as tree_map
    from phalanx.tree_util import tree_multimap as tree_multimap
    from phalanx.tree_util import tree_reduce as tree_reduce
    from phalanx.tree_util import tree_structure as tree_structure
    from phalanx.tree_util import tree_transpose as tree_transpose
    from phalanx.tree_util import tree_unflatten as tree_unflatten

_MODULES = {
    **{
        room: f"phalanx.{room}"
        for room in (
            "core",
            "ad_checkpoint",
            "custom_batching",
            "custom_derivatives",
            "debug",
            "dlpack",
            "dtypes",
            "errors",
            "experimental",
            "export",
            "extend",
            "ffi",
            "flatten_util",
            "engine",
            "image",
            "interpreters",
            "lax",
            "memory",
            "nn",
            "nnx",
            "numpy",
            "ops",
            "optim",
            "profiler",
            "random",
            "scipy",
            "sharding",
            "spmd",
            "stages",
            "test_util",
            "testing",
            "transforms",
            "tree",
            "tree_util",
            "typing",
        )
    }
}

_NAMES = {
    name: f"phalanx.{module}"
    for module, names in {
        "ad_checkpoint": "checkpoint_policies",
        "runtime.array": "Array Shard block_until_ready",
        "core.aval": "ShapeDtypeStruct",
        "core.config": (
            "check_tracer_leaks checking_leaks debug_infs debug_key_reuse debug_nans default_device "
            "default_matmul_precision default_prng_impl disable_jit enable_x64 explain_cache_misses log_compiles "
            "numpy_dtype_promotion numpy_rank_promotion"
        ),
        "core.dtypes": "float0",
        "runtime.runs": "effects_barrier",
        "runtime.settings": (
            "config transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host "
            "transfer_guard_host_to_device"
        ),
        "core.source": "named_call named_scope",
        "core.trace": "ensure_compile_time_eval",
        "custom_derivatives": "closure_convert custom_gradient custom_jvp custom_vjp",
        "engine.client": (
            "Device default_backend device_count devices host_count host_id host_ids local_device_count local_devices "
            "process_count process_index process_indices"
        ),
        "environment": "print_environment_info",
        "lax.callback": "pure_callback",
        "lax.explicit_axes": "reshard typeof",
        "sharding": "NamedSharding P get_abstract_mesh get_mesh make_mesh set_mesh use_abstract_mesh",
        "spmd": (
            "clear_caches copy_to_host_async device_get device_put device_put_replicated device_put_sharded "
            "eval_shape fwd_and_bwd jit live_arrays make_array_from_callback make_array_from_process_local_data "
            "make_array_from_single_device_arrays make_jaxpr pjit pmap shard_map smap soft_pmap"
        ),
        "transforms": (
            "checkpoint grad hessian jacfwd jacobian jacrev jvp linear_transpose linearize remat value_and_grad vjp "
            "vmap"
        ),
        "tree_util": (
            "tree_all tree_flatten tree_leaves tree_map tree_multimap tree_reduce tree_structure tree_transpose "
            "tree_unflatten"
        ),
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        found: object = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        found = getattr(importlib.import_module(_NAMES[name]), name)
    else:
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    globals()[name] = found  # The next look-up does not come here.
    if name in _NAMES:
        importlib.import_module("phalanx.engine.frames").guard(globals())
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({"__version__", *_MODULES, *_NAMES})
