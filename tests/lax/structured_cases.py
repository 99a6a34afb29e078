"""The calls of structured operations that the laws are checked on: one line, or a few, for each parameter that matters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from tests.lax.structured_checks import Case, numbers

from phalanx.lax.linalg.qr import geqrf_p

R = numbers
C = partial(numbers, dtype="complex128")


def dims(module: Any, kind: str, *values: Any) -> Any:
    """The dimension numbers of a module."""
    return getattr(module, kind)(*values)


def dot(name: str, x: np.ndarray, y: np.ndarray, numbers_: Any, **kw: Any) -> Case:
    return Case(f"dot_general {name}", lambda m, a, b: m.dot_general(a, b, numbers_, **kw), (x, y))


DOTS = [
    dot("matrices", R(0, 3, 4), R(1, 4, 5), (((1,), (0,)), ((), ()))),
    dot("batch", R(0, 2, 3, 4), R(1, 4, 2, 5), (((2,), (0,)), ((0,), (1,)))),
    dot("two batch two contracted", R(0, 2, 3, 4, 5, 6), R(1, 5, 3, 4, 2, 7), (((2, 3), (2, 0)), ((0, 1), (3, 1)))),
    dot("contracted out of order", R(0, 4, 3, 5), R(1, 5, 4), (((0, 2), (1, 0)), ((), ()))),
    dot("outer", R(0, 3), R(1, 4), (((), ()), ((), ()))),
    dot("complex", C(0, 3, 4), C(1, 4, 5), (((1,), (0,)), ((), ()))),
    dot("precision", R(0, 3, 4), R(1, 4, 5), (((1,), (0,)), ((), ())), precision="highest"),
    Case("dot vectors", lambda m, a, b: m.dot(a, b), (R(0, 4), R(1, 4))),
    Case("batch_matmul", lambda m, a, b: m.batch_matmul(a, b), (R(0, 2, 3, 4), R(1, 2, 4, 5))),
    Case("dot_general integers", lambda m, a, b: m.dot(a, b, preferred_element_type="int32"),
         (np.arange(6, dtype=np.int8).reshape(2, 3), np.arange(6, dtype=np.int8).reshape(3, 2)), derivative=False),
]  # fmt: skip

RAGGED = [
    Case("ragged_dot", lambda m, a, b, s: m.ragged_dot(a, b, s), (R(0, 7, 3), R(1, 3, 3, 4), np.array([2, 0, 4], np.int32))),
    Case("ragged_dot_general contracted", lambda m, a, b, s: m.ragged_dot_general(
        a, b, s, m.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), [2], [])),
        (R(0, 2, 3, 6), R(1, 2, 6, 4), np.array([2, 4], np.int32))),
    Case("ragged_dot_general free with batch", lambda m, a, b, s: m.ragged_dot_general(
        a, b, s, m.RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (0,))), [1], [1])),
        (R(0, 2, 5, 3), R(1, 2, 2, 3, 4), np.array([2, 3], np.int32))),
    Case("ragged_dot_general batch", lambda m, a, b, s: m.ragged_dot_general(
        a, b, s, m.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), [0], [])),
        (R(0, 3, 5, 2), R(1, 3, 2, 4), np.array([1, 2], np.int32))),
]  # fmt: skip


def conv(name: str, x: np.ndarray, w: np.ndarray, *args: Any, **kw: Any) -> Case:
    return Case(f"conv {name}", lambda m, a, b: m.conv_general_dilated(a, b, *args, **kw), (x, w))


NHWC = ("NHWC", "HWIO", "NHWC")
CONVS = [
    conv("1d", R(0, 2, 3, 7), R(1, 4, 3, 3), (1,), "SAME"),
    conv("2d strided", R(0, 2, 3, 7, 6), R(1, 4, 3, 3, 2), (2, 1), "VALID"),
    conv("2d nhwc", R(0, 2, 7, 6, 3), R(1, 3, 2, 3, 4), (2, 2), "SAME_LOWER", dimension_numbers=NHWC),
    conv("dilated", R(0, 2, 3, 7), R(1, 4, 3, 3), (2,), [(3, 2)], (2,), (3,)),
    conv("cropped", R(0, 2, 3, 9), R(1, 4, 3, 2), (1,), [(-1, -2)]),
    conv("feature groups", R(0, 2, 6, 7), R(1, 4, 3, 3), (1,), "SAME", feature_group_count=2),
    conv("depthwise nhwc", R(0, 2, 5, 5, 3), R(1, 2, 2, 1, 6), (1, 1), "SAME", dimension_numbers=NHWC,
         feature_group_count=3),
    conv("batch groups", R(0, 4, 3, 7), R(1, 6, 3, 3), (1,), "SAME", batch_group_count=2),
    conv("no space", R(0, 2, 3), R(1, 4, 3), (), []),
    conv("complex", C(0, 2, 3, 7), C(1, 4, 3, 3), (1,), "SAME"),
    Case("conv", lambda m, a, b: m.conv(a, b, (1,), "VALID"), (R(0, 2, 3, 7), R(1, 4, 3, 3))),
    Case("conv_transpose same", lambda m, a, b: m.conv_transpose(a, b, (2,), "SAME"), (R(0, 2, 5, 3), R(1, 3, 3, 4))),
    Case("conv_transpose valid", lambda m, a, b: m.conv_transpose(a, b, (3, 2), "VALID"),
         (R(0, 2, 4, 5, 3), R(1, 2, 3, 3, 4))),
    Case("conv_transpose dilated, kernel transposed", lambda m, a, b: m.conv_transpose(
        a, b, (2,), "SAME", rhs_dilation=(2,), transpose_kernel=True), (R(0, 2, 5, 4), R(1, 3, 3, 4))),
    Case("conv_transpose pads", lambda m, a, b: m.conv_transpose(a, b, (2,), [(1, 2)]), (R(0, 2, 5, 3), R(1, 3, 3, 4))),
    Case("conv_transpose consistent pads", lambda m, a, b: m.conv_transpose(
        a, b, (2,), [(1, 0)], use_consistent_padding=True), (R(0, 2, 5, 3), R(1, 3, 3, 4))),
    Case("conv_general_dilated_patches", lambda m, a: m.conv_general_dilated_patches(a, (2, 3), (1, 2), "VALID"),
         (R(0, 2, 3, 5, 6),)),
    Case("conv_general_dilated_patches nhwc", lambda m, a: m.conv_general_dilated_patches(
        a, (2, 3), (1, 2), "SAME", dimension_numbers=NHWC), (R(0, 2, 5, 6, 3),)),
    Case("conv_general_dilated_local", lambda m, a, b: m.conv_general_dilated_local(a, b, (1,), "VALID", (2,)),
         (R(0, 2, 3, 8), R(1, 4, 6, 7))),
]  # fmt: skip


def gather(name: str, x: np.ndarray, i: np.ndarray, numbers_: tuple, sizes: tuple, **kw: Any) -> Case:
    return Case(
        f"gather {name}",
        lambda m, a, b: m.gather(a, b, m.GatherDimensionNumbers(*numbers_), sizes, **kw), (x, i),
    )  # fmt: skip


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


GATHERS = [
    gather("rows", R(0, 5, 3), ints([2], [0], [9]), ((1,), (0,), (0,)), (1, 3)),
    gather("rows out of bounds filled", R(0, 5, 3), ints([2], [-1], [7]), ((1,), (0,), (0,)), (1, 3), mode="fill", fill_value=0.5),
    gather("rows out of bounds clipped", R(0, 5, 3), ints([2], [-1], [7]), ((1,), (0,), (0,)), (1, 3), mode="clip"),
    gather("promised", R(0, 5, 3), ints([2], [0], [4]), ((1,), (0,), (0,)), (1, 3), mode="promise_in_bounds"),
    gather("points", R(0, 5, 3), ints([2, 1], [0, 0], [4, 2]), ((), (0, 1), (0, 1)), (1, 1), mode="fill", fill_value=0),
    gather("windows", R(0, 5, 4), ints([[2, 1], [0, 0]], [[3, 2], [1, 1]]), ((1, 3), (), (0, 1)), (2, 3), mode="clip"),
    gather("offset first", R(0, 5, 3), ints([2], [0]), ((0,), (0,), (0,)), (1, 3), mode="fill", fill_value=0),
    gather("batching", R(0, 2, 5, 3), ints([[2], [0]], [[4], [1]]), ((2,), (1,), (1,), (0,), (0,)), (1, 1, 3),
           mode="fill", fill_value=0),
    gather("small index type", R(0, 200, 2), np.array([[100], [-1], [127]], np.int8), ((1,), (0,), (0,)), (1, 2),
           mode="fill", fill_value=0),
    gather("unsigned index", R(0, 5, 2), np.array([[4], [200], [1]], np.uint8), ((1,), (0,), (0,)), (1, 2),
           mode="fill", fill_value=0),
    gather("complex", C(0, 5, 3), ints([2], [0], [9]), ((1,), (0,), (0,)), (1, 3), mode="fill", fill_value=0),
    Case("gather integers filled", lambda m, a, b: m.gather(a, b, m.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="fill"),
         (np.arange(5, dtype=np.int32), ints([2], [9])), derivative=False),
    Case("index_take", lambda m, a, i, j: m.index_take(a, [i, j], (0, 2)), (R(0, 4, 3, 5), ints(1, -1), ints(0, 4)),
         batched=False),
]  # fmt: skip


def scatter(op: str, name: str, x: Any, i: Any, u: Any, numbers_: tuple, **kw: Any) -> Case:
    case_kw = {k: kw.pop(k) for k in ("derivative", "second", "peer") if k in kw}
    return Case(
        f"{op} {name}",
        lambda m, a, b, c: getattr(m, op)(a, b, c, m.ScatterDimensionNumbers(*numbers_), **kw), (x, i, u), **case_kw,
    )  # fmt: skip


ROWS = ((1,), (0,), (0,))
SCATTERS = [
    scatter(op, name, R(0, 5, 3), i, R(1, len(i), 3), ROWS, **kw)
    for op in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
    for name, i, kw in (
        ("unique rows", ints([2], [0], [4]), {"unique_indices": True}),
        ("unique rows dropped", ints([2], [-1], [7]), {"unique_indices": True}),
        ("unique rows clipped", ints([2], [-1], [7]), {"unique_indices": True, "mode": "clip"}),
        ("repeated rows", ints([2], [1], [2]), {"derivative": op != "scatter_mul", "second": op != "scatter_mul"}),
        ("one row", ints([2]), {}),
    )
] + [
    scatter("scatter_add", "points", R(0, 5, 3), ints([2, 1], [0, 0], [2, 1]), R(1, 3), ((), (0, 1), (0, 1))),
    scatter("scatter_add", "windows", R(0, 5, 4), ints([[2, 1], [0, 0]]), R(1, 1, 2, 2, 3), ((2, 3), (), (0, 1))),
    scatter("scatter_add", "window first", R(0, 5, 3), ints([2], [0]), R(1, 3, 2), ((0,), (0,), (0,))),
    scatter("scatter_add", "batching", R(0, 2, 5, 3), ints([[2], [0]], [[4], [4]]), R(1, 2, 2, 3),
            ((2,), (1,), (1,), (0,), (0,))),
    scatter("scatter", "batching repeated", R(0, 2, 5, 3), ints([[2], [0]], [[4], [4]]), R(1, 2, 2, 3),
            ((2,), (1,), (1,), (0,), (0,))),
    scatter("scatter_add", "complex", C(0, 5, 3), ints([2], [0], [9]), C(1, 3, 3), ROWS),
    scatter("scatter", "complex", C(0, 5, 3), ints([2], [0], [2]), C(1, 3, 3), ROWS),
    # The peer writes beside its array as conftest.py has it compiled: its bounds do not fit the type of the indices.
    scatter("scatter_add", "small index type", R(0, 200, 2), np.array([[100], [-1], [127]], np.int8), R(1, 3, 2), ROWS,
            peer=False),
    scatter("scatter_add", "integers", np.arange(5, dtype=np.int32), ints([2], [9]), ints(3, 4), ((), (0,), (0,)),
            derivative=False),
    Case("scatter_apply", lambda m, a, i: m.scatter_apply(
        a, i, m.sin, m.ScatterDimensionNumbers((1,), (0,), (0,)), update_shape=(2, 3), unique_indices=True),
        (R(0, 5, 3), ints([2], [0])), batched=True),
]  # fmt: skip

DYNAMIC = [
    Case("dynamic_slice", lambda m, a, i, j: m.dynamic_slice(a, (i, j), (2, 3)), (R(0, 5, 4), ints(2)[0], ints(3)[0])),
    Case("dynamic_slice negative", lambda m, a, i: m.dynamic_slice(a, (i, 0), (2, 4)), (R(0, 5, 4), np.array(-3, np.int8)), peer=False),
    Case("dynamic_slice not wrapped", lambda m, a, i: m.dynamic_slice(a, (i, 1), (2, 3), allow_negative_indices=False),
         (R(0, 5, 4), ints(-3)[0]), peer=False),
    Case("dynamic_slice vector of starts", lambda m, a, i: m.dynamic_slice(a, i, (2, 3)), (C(0, 5, 4), ints(2, -1)),
         batched=False),
    Case("dynamic_slice_in_dim", lambda m, a, i: m.dynamic_slice_in_dim(a, i, 2, axis=-1),
         (R(0, 5, 4), np.array(2, np.uint8))),
    Case("dynamic_index_in_dim", lambda m, a, i: m.dynamic_index_in_dim(a, i, 1, keepdims=False),
         (R(0, 5, 4), ints(-1)[0])),
    Case("dynamic_update_slice", lambda m, a, u, i, j: m.dynamic_update_slice(a, u, (i, j)),
         (R(0, 5, 4), R(1, 2, 3), ints(4)[0], ints(-1)[0])),
    Case("dynamic_update_slice full dim", lambda m, a, u, i: m.dynamic_update_slice(a, u, (0, i)),
         (C(0, 5, 4), C(1, 5, 2), ints(-2)[0]), peer=False),
    Case("dynamic_update_slice_in_dim", lambda m, a, u, i: m.dynamic_update_slice_in_dim(a, u, i, 1),
         (R(0, 5, 4), R(1, 5, 2), ints(1)[0])),
    Case("dynamic_update_index_in_dim", lambda m, a, u, i: m.dynamic_update_index_in_dim(a, u, i, 0),
         (R(0, 5, 4), R(1, 4), ints(1)[0])),
]  # fmt: skip


def window(name: str, init: float, fun: str, x: np.ndarray, *args: Any, **kw: Any) -> Case:
    return Case(f"reduce_window {name}", lambda m, a: m.reduce_window(a, init, getattr(m, fun), *args, **kw), (x,))


WINDOWS = [
    w
    for name, init, fun in (("sum", 0.0, "add"), ("max", -np.inf, "max"), ("min", np.inf, "min"))
    for w in (
        window(name, init, fun, R(0, 6, 7), (2, 3), (1, 2)),
        window(f"{name} padded", init, fun, R(0, 6, 7), (2, 3), (2, 2), "SAME"),
        window(f"{name} uneven pads", init, fun, R(0, 6, 7), (3, 2), (2, 3), [(2, 0), (0, 1)]),
        window(f"{name} dilated", init, fun, R(0, 6, 7), (2, 3), (2, 1), [(0, 1), (2, 2)], (2, 1), (1, 2)),
        window(f"{name} with holes", init, fun, R(0, 6, 7), (1, 1), (2, 3)),
    )
] + [
    Case("reduce_window general", lambda m, a: m.reduce_window(a, 1.0, m.mul, (2, 2), (1, 2), "SAME"), (R(0, 4, 5),)),
    Case("reduce_window sum from another start", lambda m, a: m.reduce_window(a, 2.0, m.add, (2, 2), (1, 2), "SAME"),
         (R(0, 4, 5),)),
    Case("reduce_window pairs", lambda m, a, b: m.reduce_window(
        (a, b), (0.0, 1.0), lambda x, y: (m.add(x[0], y[0]), m.mul(x[1], y[1])), (2,), (1,), "VALID"),
        (R(0, 5), R(1, 5))),
    Case("reduce_window integers", lambda m, a: m.reduce_window(a, 0, m.add, (2,)), (ints(1, 2, 3, 4),), derivative=False),
    Case("reduce_window complex sum", lambda m, a: m.reduce_window(a, 0j, m.add, (2,), (2,), "SAME"), (C(0, 5),)),
]  # fmt: skip

FFTS = [
    Case("fft", lambda m, a: m.fft(a, "FFT", (6,)), (C(0, 2, 6),)),
    Case("fft inverse", lambda m, a: m.fft(a, m.FftType.IFFT, (4, 6)), (C(0, 2, 4, 6),)),
    Case("fft real", lambda m, a: m.fft(a, "RFFT", (6,)), (R(0, 2, 6),)),
    Case("fft real odd", lambda m, a: m.fft(a, "RFFT", (3, 5)), (R(0, 2, 3, 5),)),
    Case("fft inverse real", lambda m, a: m.fft(a, "IRFFT", (6,)), (C(0, 2, 4),)),
    Case("fft inverse real odd", lambda m, a: m.fft(a, "IRFFT", (2, 3, 5)), (C(0, 2, 3, 3),)),
]  # fmt: skip


def spd(x: np.ndarray) -> np.ndarray:
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 3 * np.eye(x.shape[-1])


def herm(m: Any, x: Any) -> Any:
    """Something whose phases and signs do not matter: x x^H."""
    ndim = len(x.shape)
    other = m.conj(m.transpose(x, (*range(ndim - 2), ndim - 1, ndim - 2))) if np.iscomplexobj(np.empty(0, x.dtype)) else (
        m.transpose(x, (*range(ndim - 2), ndim - 1, ndim - 2)))  # fmt: skip
    return m.batch_matmul(x, other)


def first(m: Any, x: Any, k: int) -> Any:
    """The leading columns."""
    return m.slice_in_dim(x, 0, k, axis=len(x.shape) - 1)


def triangular(name: str, a: np.ndarray, b: np.ndarray, **kw: Any) -> Case:
    return Case(f"triangular_solve {name}", lambda m, x, y: m.linalg.triangular_solve(x, y, **kw), (a, b))


def tri(x: np.ndarray) -> np.ndarray:
    return x + 4 * np.eye(x.shape[-1])


def eig_invariants(m: Any, x: Any) -> Any:
    (w,) = m.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return [w]


def svd_products(m: Any, x: Any, **kw: Any) -> Any:
    u, s, vh = m.linalg.svd(x, **kw)
    k = 2
    vhk = m.slice_in_dim(vh, 0, k, axis=len(vh.shape) - 2)
    return [herm(m, first(m, u, k)), s, m.batch_matmul(first(m, u, k), vhk)]


LINALG = [
    Case("cholesky", lambda m, x: m.linalg.cholesky(x), (spd(R(0, 4, 4)),)),
    Case("cholesky batch of complex", lambda m, x: m.linalg.cholesky(x), (spd(C(0, 2, 3, 3)),)),
    Case("cholesky of a triangle", lambda m, x: m.linalg.cholesky(x, symmetrize_input=False), (spd(R(0, 4, 4)),)),
    *[
        triangular(f"{'left' if left else 'right'} {'lower' if lower else 'upper'} {flag}", tri(C(0, 3, 3)),
                   C(1, 3, 2) if left else C(1, 2, 3), left_side=left, lower=lower, **extra)
        for left in (True, False) for lower in (True, False)
        for flag, extra in (("", {}), ("transposed", {"transpose_a": True}),
                            ("adjoint", {"transpose_a": True, "conjugate_a": True}),
                            ("conjugated", {"conjugate_a": True}), ("unit", {"unit_diagonal": True}))
    ],
    triangular("batch", tri(R(0, 2, 3, 3)), R(1, 2, 3, 2), left_side=True),
    triangular("vector", tri(R(0, 3, 3)), R(1, 3), left_side=True, lower=True),
    Case("qr reduced", lambda m, x: m.linalg.qr(x, full_matrices=False), (R(0, 5, 3),)),
    Case("qr square", lambda m, x: m.linalg.qr(x), (R(0, 2, 4, 4),)),
    Case("qr wide", lambda m, x: m.linalg.qr(x), (R(0, 3, 5),)),
    Case("qr complex", lambda m, x: m.linalg.qr(x, full_matrices=False), (C(0, 4, 3),)),
    Case("qr full", lambda m, x: m.linalg.qr(x), (R(0, 5, 3),), derivative=False),
    Case("qr pivoting", lambda m, x: m.linalg.qr(x, pivoting=True, full_matrices=False), (R(0, 5, 3),)),
    Case("lu", lambda m, x: m.linalg.lu(x), (R(0, 4, 4),)),
    Case("lu tall", lambda m, x: m.linalg.lu(x), (R(0, 2, 5, 3),)),
    Case("lu wide", lambda m, x: m.linalg.lu(x), (C(0, 3, 5),)),
    Case("lu_pivots_to_permutation", lambda m, p: m.linalg.lu_pivots_to_permutation(p, 5),
         (ints([4, 2, 2], [1, 3, 4]),), derivative=False),
    Case("eigh values", lambda m, x: m.linalg.eigh(x)[1], (spd(R(0, 2, 4, 4)),)),
    Case("eigh projector", lambda m, x: herm(m, first(m, m.linalg.eigh(x)[0], 2)), (spd(R(0, 4, 4)),)),
    Case("eigh complex projector", lambda m, x: herm(m, first(m, m.linalg.eigh(x)[0], 2)), (spd(C(0, 4, 4)),)),
    Case("eigh of an upper triangle", lambda m, x: m.linalg.eigh(x, lower=False, symmetrize_input=False)[1],
         (spd(C(0, 3, 3)),)),
    Case("eigh subset", lambda m, x: m.linalg.eigh(x, subset_by_index=(1, 3))[1], (spd(R(0, 4, 4)),), derivative=False,
         peer=False),
    Case("tridiagonal", lambda m, x: m.linalg.tridiagonal(x)[1:3], (spd(R(0, 4, 4)),), derivative=False),
    Case("eig values", eig_invariants, (R(0, 4, 4),), batched=False),
    Case("eig values of complex", eig_invariants, (C(0, 2, 4, 4),), batched=False),
    Case("eig", lambda m, x: m.linalg.eig(x), (R(0, 4, 4),), derivative=False),
    Case("eig vectors", lambda m, x: m.linalg.eig(x, enable_eigvec_derivs=True), (C(0, 3, 3),), second=False),
    Case("hessenberg", lambda m, x: m.linalg.hessenberg(x), (R(0, 2, 4, 4),), derivative=False),
    Case("schur", lambda m, x: m.linalg.schur(x), (R(0, 4, 4),), derivative=False),
    Case("schur complex", lambda m, x: m.linalg.schur(x, compute_schur_vectors=False), (C(0, 4, 4),), derivative=False,
         peer=False),
    Case("svd values", lambda m, x: m.linalg.svd(x, compute_uv=False), (R(0, 2, 4, 3),)),
    Case("svd products tall", lambda m, x: svd_products(m, x, full_matrices=False), (R(0, 5, 3),)),
    Case("svd products wide", lambda m, x: svd_products(m, x, full_matrices=False), (R(0, 3, 5),)),
    Case("svd products square", lambda m, x: svd_products(m, x), (R(0, 3, 3),)),
    Case("svd products complex", lambda m, x: svd_products(m, x, full_matrices=False), (C(0, 4, 3),)),
    Case("svd full", lambda m, x: herm(m, first(m, m.linalg.svd(x)[0], 2)), (R(0, 4, 3),), derivative=False),
    Case("svd qr", lambda m, x: m.linalg.svd(x, compute_uv=False, algorithm=m.linalg.SvdAlgorithm.QR), (R(0, 4, 3),)),
    Case("tridiagonal_solve", lambda m, dl, d, du, b: m.linalg.tridiagonal_solve(dl, d, du, b),
         (R(0, 4), R(1, 4) + 4, R(2, 4), R(3, 4, 2)), peer=False),
    Case("tridiagonal_solve batch of complex", lambda m, dl, d, du, b: m.linalg.tridiagonal_solve(dl, d, du, b),
         (C(0, 2, 4), C(1, 2, 4) + 4, C(2, 2, 4), C(3, 2, 4, 2)), peer=False),
    Case("geqrf", lambda m, x: tuple(geqrf_p(x)), (R(0, 2, 4, 3),), derivative=False, peer=False),
    Case("householder_product", lambda m, a, t: m.linalg.householder_product(a, t), (R(0, 2, 4, 3), R(1, 2, 3)),
         derivative=False),
    Case("ormqr", lambda m, a, t, c: m.linalg.ormqr(a, t, c), (R(0, 4, 3), R(1, 3), R(2, 4, 2)), fixed=(0, 1)),
    Case("ormqr right adjoint", lambda m, a, t, c: m.linalg.ormqr(a, t, c, left=False, transpose=True),
         (C(0, 4, 3), C(1, 3), C(2, 2, 4)), fixed=(0, 1)),
    Case("cholesky_update", lambda m, r, w: m.linalg.cholesky_update(r, w),
         (np.linalg.cholesky(spd(R(0, 3, 3))).T.copy(), R(1, 3))),
    Case("symmetric_product", lambda m, a, c: m.linalg.symmetric_product(a, c, alpha=2.0, beta=3.0),
         (R(0, 3, 4), spd(R(1, 3, 3))), batched=False),
]  # fmt: skip

CASES = [*DOTS, *RAGGED, *CONVS, *GATHERS, *SCATTERS, *DYNAMIC, *WINDOWS, *FFTS, *LINALG]
