"""Calls of matrix libraries: LAPACK on the CPU, cuSOLVER, cuSPARSE and MAGMA on CUDA devices.

Routines have their LAPACK names, without the letter of the dtype. This file maps them to the names of jaxlib's kernels
on each platform; the callers pass the attributes of the kernels. Called by the lowering rules of this folder.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.core import RuleError, ShapedArray
from phalanx.engine.mlir import FRONTEND_ATTRIBUTES, hlo, ir, to_frontend_attributes
from phalanx.lax.linalg.matrix_stacks import INT32, LETTERS, is_complex
from phalanx.runtime import LoweringContext, make_sdy_sharding_rule

_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}

# The kernel of each routine on CUDA devices, and the operands whose memory its first results reuse.
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


def call_kernel(
    ctx: LoweringContext,
    routine: str,
    operands: Sequence,
    avals: Sequence[ShapedArray],
    results: Sequence[ShapedArray],
    *,
    num_batch: int | None = None,
    cpu: Mapping[str, Any] | None = None,
    cuda: Mapping[str, Any] | None = None,
    row_major: bool = False,
) -> list:
    """Emit the call of a routine over leading batch dimensions, with matrices in column-major order.

    Args:
      ctx: the lowering context.
      routine: the name in LAPACK without the letter of the dtype, as for real numbers (`orgqr`, `syevd`).
      operands, avals: IR values and their types; the first one's dtype is the routine's.
      results: the types of the results.
      num_batch: the number of leading batch dimensions; all but two of the first operand if None.
      cpu, cuda: the attributes of the kernel on the platform; single characters become bytes.
      row_major: whether to pass matrices in row-major order, as the transposed matrices.
    """
    num_batch = avals[0].ndim - 2 if num_batch is None else num_batch
    attributes = (cpu if ctx.platform == "cpu" else cuda) or {}
    target, taken = _target(routine, ctx.platform, avals[0].dtype)
    # LAPACK and cuSOLVER read matrices column-major: the layout of the operands differs instead of a transposition.
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
        # Shardy reads the sharding rule, and the SPMD partitioner the number of dimensions that it may partition.
        attributes = out[0].owner.attributes
        attributes["sdy.sharding_rule"] = _batch_rule(tuple(avals), tuple(results), num_batch)
        attributes[FRONTEND_ATTRIBUTES] = to_frontend_attributes({"num_batch_dims": str(num_batch)})
    return out


def unavailable_error(where: str, algorithm: enum.Enum | None, platform: str) -> RuleError:
    """Return the error of an algorithm that the libraries of a platform do not have."""
    return RuleError(
        f"{where} for {platform}",
        expected="an algorithm of this platform",
        got=str(algorithm),
        fix="pass None or DEFAULT, for the default of the platform",
    )


def _target(routine: str, platform: str, dtype: np.dtype) -> tuple[str, tuple[int, ...]]:
    """Return the name of the kernel in jaxlib, and the operands whose memory its results reuse."""
    if platform == "cpu":
        if routine == "gtsv perturbed":
            return "tridiagonal_solve_perturbed_ffi", ()
        return f"lapack_{LETTERS[dtype]}{_UNITARY.get(routine, routine) if is_complex(dtype) else routine}_ffi", ()
    if platform != "cuda" or routine not in _CUDA:
        raise RuleError(
            f"lowering of {routine} for {platform}",
            expected="a platform whose libraries have this decomposition" if platform == "cuda" else "cpu or cuda",
            got=platform,
            fix="move the operands to the CPU with phalanx.device_put",
        )
    return _CUDA[routine]


def _batch_rule(avals: tuple, results: tuple, num_batch: int) -> Any:
    """Return the Shardy rule of a batched call: batch dimensions are parallel factors, all others are replicated."""
    types = (*avals, *results)
    tensors = [[("batch", d) if d < num_batch else (i, d) for d in range(a.ndim)] for i, a in enumerate(types)]
    sizes = {name: n for names, a in zip(tensors, types, strict=True) for name, n in zip(names, a.shape, strict=True)}
    return make_sdy_sharding_rule(
        [[[name] for name in names] for names in tensors],
        len(avals),
        sizes,
        need_replication_factors=[name for name in sizes if name[0] != "batch"],
    )


def _order(ndim: int, num_batch: int, row_major: bool) -> list[int]:
    # Minor-to-major: row-major order, with the last two dimensions exchanged for column-major matrices.
    order = list(range(ndim - 1, -1, -1))
    return [order[1], order[0], *order[2:]] if ndim - num_batch == 2 and not row_major else order


def emit_triangle(ctx: LoweringContext, x: ir.Value, aval: ShapedArray, lower: bool) -> Any:
    """Emit the lower or upper triangle of matrices."""
    rows, columns = (ctx.iota(ShapedArray(aval.shape[-2:], INT32), dim) for dim in (0, 1))
    first, second = (rows, columns) if lower else (columns, rows)
    kind = hlo.ComparisonTypeAttr.get("SIGNED")
    mask = hlo.compare(first, second, hlo.ComparisonDirectionAttr.get("GE"), compare_type=kind)
    if aval.ndim > 2:
        mask = ctx.broadcast(mask, ShapedArray(aval.shape, np.dtype(bool)), (aval.ndim - 2, aval.ndim - 1))
    return hlo.select(mask, x, ctx.constant(0, aval))


def call_checked_kernel(
    ctx: LoweringContext,
    routine: str,
    operands: Sequence,
    avals: Sequence[ShapedArray],
    results: Sequence[ShapedArray],
    *,
    kept: slice = slice(None),
    num_batch: int | None = None,
    **options: Any,
) -> list:
    """Emit the call of a routine whose last result is a status, and NaN for the matrices on which it failed.

    Args:
      ctx, routine, operands, avals: as for `call_kernel`.
      results: the types of the results without the status, an int32 for each matrix, which is 0 for success.
      kept: the results to return.
      num_batch, options: as for `call_kernel`.
    """
    num_batch = avals[0].ndim - 2 if num_batch is None else num_batch
    status = ShapedArray(avals[0].shape[:num_batch], INT32)
    *out, info = call_kernel(ctx, routine, operands, avals, [*results, status], num_batch=num_batch, **options)
    return nan_where_failed(ctx, info, out[kept], results[kept], num_batch)


def nan_where_failed(
    ctx: LoweringContext, info: ir.Value, values: Sequence, avals: Sequence[ShapedArray], num_batch: int
) -> list:
    """Emit NaN for the results of the matrices whose status is not 0."""
    zero = ctx.constant(0, ShapedArray(avals[0].shape[:num_batch], INT32))
    kind = hlo.ComparisonTypeAttr.get("SIGNED")
    fine = hlo.compare(info, zero, hlo.ComparisonDirectionAttr.get("EQ"), compare_type=kind)

    def select(value: ir.Value, aval: ShapedArray) -> ir.Value:
        nan = complex(np.nan, np.nan) if is_complex(aval.dtype) else np.nan
        where = ctx.broadcast(fine, ShapedArray(aval.shape, np.dtype(bool)), range(num_batch))
        return hlo.select(where, value, ctx.constant(np.asarray(nan, aval.dtype), aval))

    return list(map(select, values, avals))
