"""`compute_on`: the processor that computes a function inside a program, such as the host of an accelerator.

Lowered to a call with XLA metadata (`lax.xla_metadata`). Public as `phalanx.experimental.compute_on.compute_on`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.core import ArgumentError, check_function
from phalanx.lax.xla_metadata import xla_metadata_call2
from phalanx.spmd.device_put import device_put
from phalanx.tree import broadcast_prefix, tree_flatten, tree_unflatten
from phalanx.typing import PyTree

_TYPES = {"device_host": "host", "device": "device", "tpu_sparsecore": "sparse"}


def compute_on(
    f: Callable | None = None,
    *,
    compute_type: str,
    out_memory_spaces: PyTree = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Callable:
    """Compute a function on another processor than the rest of its program.

    Args:
      f: a function of arrays or pytrees of arrays. If omitted, `compute_on` returns a decorator.
      compute_type: "device_host" for the host of the device, "device", "tpu_sparsecore", or "gpu_stream:N" for stream N
        of a GPU. A CPU computes all of them itself.
      out_memory_spaces: the memories of the results, a tree of `phalanx.memory.Space` that is a prefix of the result;
        None leaves a result where it is.
      compiler_options: options of the processor.

    Returns:
      A function with the value and the derivatives of `f`; the derivatives are computed on the same processor.

    Raises:
      ArgumentError: the compute type is none of these.
      ArgumentTypeError: `f` is not callable.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.compute_on import compute_on
      >>> f = compute_on(jnp.sin, compute_type="device_host")
      >>> '_xla_compute_type="host"' in phalanx.jit(lambda x: f(x) + 1).lower(1.0).as_text("hlo")
      True
    """
    metadata = _to_metadata(compute_type)
    if compiler_options is not None:
        metadata["backend_config"] = json.dumps(compiler_options)
    elif compute_type == "device":
        metadata["inlineable"] = "false"

    def decorate(fun: Callable) -> Callable:
        check_function("compute_on, argument f", fun)
        call = xla_metadata_call2(fun, metadata)

        @functools.wraps(fun)
        def computed(*args: Any, **kwargs: Any) -> PyTree:
            leaves, tree = tree_flatten(out := call(*args, **kwargs))
            spaces = broadcast_prefix(
                out_memory_spaces, out, what="compute_on, out_memory_spaces", is_leaf=lambda s: s is None
            )
            moved = [x if s is None else device_put(x, s) for x, s in zip(leaves, spaces, strict=True)]
            return tree_unflatten(tree, moved)

        return computed

    return decorate if f is None else decorate(f)


def _to_metadata(compute_type: str) -> dict[str, str]:
    stream = str(compute_type).removeprefix("gpu_stream:")
    if stream != compute_type and stream.isdecimal():
        return {"_xla_stream_annotation": stream, "inlineable": "false"}
    if compute_type not in _TYPES:
        raise ArgumentError(
            "compute_on, argument compute_type",
            expected="'device_host', 'device', 'tpu_sparsecore' or 'gpu_stream:N'",
            got=repr(compute_type),
            fix="pass 'device_host' to compute on the host of the device",
        )
    return {"_xla_compute_type": _TYPES[compute_type]}
