"""Calls of the libraries that decompose matrices: LAPACK on the CPU; cuSOLVER, cuSPARSE and MAGMA on CUDA devices.

A routine goes by LAPACK's name without its letter. What jaxlib calls the kernel on each platform is said here, what the
kernels of a platform want besides by who calls them. Builds on `matrices`; called by the lowerings of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import RuleError
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.linalg.matrices import INT32, LETTERS, is_complex
from phalanx.runtime.partitioned_calls import spread

_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}

# The kernel of each routine on CUDA devices, and of which operands its first results take the memory.
_CUDA: dict[str, tuple[str, tuple[int, ...]]] = {
    **{r: (f"cusolver_{r}_ffi", (0,)) for r in "geqrf gesvd gesvdj gesvdp getrf orgqr potrf syevd sytrd".split()},
    "ormqr": ("cusolver_ormqr_ffi", (2,)),
    "geqp3": ("cuhybrid_geqp3", (0, 1)),
    "geev real": ("cuhybrid_eig_real", ()),
    "geev complex": ("cuhybrid_eig_comp", ()),
    "gtsv": ("cusparse_gtsv2_ffi", (3,)),
    "gtsv perturbed": ("cu_tridiagonal_solve_perturbed", ()),
    "permutation of pivots": ("cu_lu_pivots_to_permutation", ()),
}


def kernel(
    ctx: Any,
    routine: str,
    operands: Sequence,
    avals: Sequence[ShapedArray],
    results: Sequence[ShapedArray],
    num_batch: int,
    *,
    cpu: Mapping[str, Any] | None = None,
    cuda: Mapping[str, Any] | None = None,
    row_major: bool = False,
) -> list:
    """Call a routine over leading batch dimensions; matrices are passed column-major.

    Args:
      ctx: where the program is emitted.
      routine: the name without its letter; on the CPU `or` becomes `un`, and `sy` `he`, for complex numbers.
      operands, avals: IR values and their types; the first one's dtype is the routine's.
      results: the types of the results.
      num_batch: how many leading dimensions are batch.
      cpu, cuda: what the kernel of a platform is told; characters become bytes, the rest is passed as it is.
      row_major: pass matrices row-major, which a kernel that knows of it takes for the transposed ones.
    """
    attributes = (cpu if ctx.platform == "cpu" else cuda) or {}
    target, taken = _target(routine, ctx.platform, avals[0].dtype)
    layouts = [[_order(a.ndim, num_batch, row_major) for a in side] for side in (avals, results)]
    out = ctx.custom_call(
        target,
        operands,
        results=results,
        attributes={k: np.uint8(ord(v)) if type(v) is str and len(v) == 1 else v for k, v in attributes.items()},
        operand_layouts=layouts[0],
        result_layouts=layouts[1],
        aliases=dict(enumerate(taken)),
    )
    if num_batch and ctx.module.num_partitions > 1:
        # Shardy reads the rule, the partitioner behind it the number of dimensions that it may split.
        said = out[0].owner.attributes
        said["sdy.sharding_rule"] = _batch_rule(tuple(avals), tuple(results), num_batch)
        said["mhlo.frontend_attributes"] = ir.DictAttr.get({"num_batch_dims": ir.StringAttr.get(str(num_batch))})
    return out


def unavailable(where: str, algorithm: Any, platform: str) -> RuleError:
    """The error of an algorithm that the libraries of a platform lack."""
    return RuleError(
        f"{where} for {platform}",
        expected="an algorithm that the platform has",
        got=str(algorithm),
        mend="leave it to the platform, by None or DEFAULT",
    )


def _target(routine: str, platform: str, dtype: Any) -> tuple[str, tuple[int, ...]]:
    """What jaxlib calls the kernel, and the operands whose memory its results take."""
    if platform == "cpu":
        if routine == "gtsv perturbed":
            return "tridiagonal_solve_perturbed_ffi", ()
        return f"lapack_{LETTERS[dtype]}{_UNITARY.get(routine, routine) if is_complex(dtype) else routine}_ffi", ()
    if platform != "cuda" or routine not in _CUDA:
        raise RuleError(
            f"lowering of {routine} for {platform}",
            expected="a platform whose libraries have this decomposition" if platform == "cuda" else "cpu or cuda",
            got=platform,
            mend="run it on the CPU: place its operands there with phalanx.device_put",
        )
    return _CUDA[routine]


def _batch_rule(avals: tuple, results: tuple, num_batch: int) -> Any:
    """What tells the partitioner that matrices of a stack do not meet: batch dimensions are one index, others whole."""
    sizes: dict[Any, int] = {}
    tensors = []
    for i, aval in enumerate((*avals, *results)):
        names = [("batch", d) if d < num_batch else (i, d) for d in range(aval.ndim)]
        sizes.update(zip(names, aval.shape, strict=True))
        tensors.append([[name] for name in names])
    whole = [name for name in sizes if name[0] != "batch"]
    return spread(tensors, len(avals), sizes, need_replication_factors=whole)


def _order(ndim: int, num_batch: int, row_major: bool) -> list[int]:
    order = list(range(ndim - 1, -1, -1))
    if ndim - num_batch == 2 and not row_major:
        order[0], order[1] = order[1], order[0]
    return order


def emit_triangle(ctx: Any, x: Any, aval: ShapedArray, lower: bool) -> Any:
    """The lower or upper triangle of matrices, as IR."""
    rows, columns = (ctx.iota(ShapedArray(aval.shape[-2:], INT32), dim) for dim in (0, 1))
    first, second = (rows, columns) if lower else (columns, rows)
    kind = hlo.ComparisonTypeAttr.get("SIGNED")
    mask = hlo.compare(first, second, hlo.ComparisonDirectionAttr.get("GE"), compare_type=kind)
    if aval.ndim > 2:
        mask = ctx.broadcast(mask, ShapedArray(aval.shape, np.dtype(bool)), (aval.ndim - 2, aval.ndim - 1))
    return hlo.select(mask, x, ctx.constant(0, aval))


def info_aval(x: ShapedArray, num_batch: int) -> ShapedArray:
    """The type of a routine's report: one number for each matrix, zero for success."""
    return ShapedArray(x.shape[:num_batch], INT32)


def nan_where_failed(ctx: Any, info: Any, values: Sequence, avals: Sequence[ShapedArray], num_batch: int) -> list:
    """NaN in place of the results of matrices for which a routine reports failure."""
    zero = ctx.constant(0, ShapedArray(avals[0].shape[:num_batch], INT32))
    kind = hlo.ComparisonTypeAttr.get("SIGNED")
    fine = hlo.compare(info, zero, hlo.ComparisonDirectionAttr.get("EQ"), compare_type=kind)
    out = []
    for value, aval in zip(values, avals, strict=True):
        nan = complex(np.nan, np.nan) if is_complex(aval.dtype) else np.nan
        where = ctx.broadcast(fine, ShapedArray(aval.shape, np.dtype(bool)), range(num_batch))
        out.append(hlo.select(where, value, ctx.constant(np.asarray(nan, aval.dtype), aval)))
    return out
