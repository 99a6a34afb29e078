"""Decompositions lowered for CUDA devices call the kernels that jaxlib's plugin has, on a machine that has none."""

import re

import numpy as np
import pytest

import phalanx
from phalanx.lax import linalg

TALL, WIDE, SQUARE, STACK = (4, 3), (3, 4), (4, 4), (5, 4, 4)
POLAR, JACOBI, QR = linalg.SvdAlgorithm.POLAR, linalg.SvdAlgorithm.JACOBI, linalg.SvdAlgorithm.QR
MAGMA, HOST = linalg.EigImplementation.MAGMA, linalg.EigImplementation.LAPACK


# What is lowered, the shapes of its operands, and for each kernel its name, what it is told, and the types of its results.
CASES = {
    "qr": (linalg.qr, [TALL], ["cusolver_geqrf_ffi {} 4x3xT 3xT", "cusolver_orgqr_ffi {} 4x4xT"]),
    "qr of wide matrices": (linalg.qr, [WIDE], ["cusolver_geqrf_ffi {} 3x4xT 3xT", "cusolver_orgqr_ffi {} 3x3xT"]),
    "qr of nothing": (linalg.qr, [(0, 3)], []),
    "pivoted qr": (
        lambda x: linalg.qr(x, pivoting=True, full_matrices=False),
        [TALL],
        ['cuhybrid_geqp3 {magma = "auto"} 4x3xT 3xi32 3xT', "cusolver_orgqr_ffi {} 4x3xT"],
    ),
    "pivoted qr by magma": (
        lambda x: linalg.qr(x, pivoting=True, use_magma=True),
        [SQUARE],
        ['cuhybrid_geqp3 {magma = "on"} 4x4xT 4xi32 4xT', "cusolver_orgqr_ffi {} 4x4xT"],
    ),
    "ormqr": (linalg.ormqr, [SQUARE, (4,), (4, 2)], ["cusolver_ormqr_ffi {left = true, transpose = false} 4x2xT"]),
    "lu": (linalg.lu, [TALL], ["cusolver_getrf_ffi {} 4x3xT 3xi32 i32", "cu_lu_pivots_to_permutation {} 4xi32"]),
    "lu of a stack": (
        linalg.lu,
        [STACK],
        ["cusolver_getrf_ffi {} 5x4x4xT 5x4xi32 5xi32", "cu_lu_pivots_to_permutation {} 5x4xi32"],
    ),
    "cholesky": (linalg.cholesky, [STACK], ["cusolver_potrf_ffi {lower = true} 5x4x4xT 5xi32"]),
    "eigh": (linalg.eigh, [SQUARE], ["cusolver_syevd_ffi {algorithm = 0 : ui8, lower = true} 4x4xT 4xR i32"]),
    "eigh by Jacobi": (
        lambda x: linalg.eigh(x, lower=False, implementation=linalg.EighImplementation.JACOBI),
        [SQUARE],
        ["cusolver_syevd_ffi {algorithm = 2 : ui8, lower = false} 4x4xT 4xR i32"],
    ),
    "tridiagonal": (linalg.tridiagonal, [SQUARE], ["cusolver_sytrd_ffi {lower = true} 4x4xT 4xR 3xR 3xT i32"]),
    "svd": (
        linalg.svd,
        [TALL],
        ["cusolver_gesvdj_ffi {compute_uv = true, full_matrices = true} 4x3xT 3xR 4x4xT 3x3xT i32"],
    ),
    "thin svd of small matrices": (
        lambda x: linalg.svd(x, full_matrices=False),
        [TALL],
        ["cusolver_gesvdj_ffi {compute_uv = true, full_matrices = true} 4x3xT 3xR 4x4xT 3x3xT i32"],
    ),
    "thin svd by Jacobi": (
        lambda x: linalg.svd(x, full_matrices=False, algorithm=JACOBI),
        [(40, 35)],
        ["cusolver_gesvdj_ffi {compute_uv = true, full_matrices = false} 40x35xT 35xR 40x35xT 35x35xT i32"],
    ),
    "svd of large matrices": (
        lambda x: linalg.svd(x, full_matrices=False),
        [(1025, 4)],
        ["cusolver_gesvd_ffi {compute_uv = true, full_matrices = false, transposed = false} "
         "1025x4xT 4xR 1025x4xT 4x4xT i32"],
    ),
    "svd by QR of wide matrices": (
        lambda x: linalg.svd(x, full_matrices=False, algorithm=QR),
        [WIDE],
        ["cusolver_gesvd_ffi {compute_uv = true, full_matrices = false, transposed = true} 3x4xT 3xR 3x4xT 3x3xT i32"],
    ),
    "singular values by QR": (
        lambda x: linalg.svd(x, compute_uv=False, algorithm=QR),
        [STACK],
        ["cusolver_gesvd_ffi {compute_uv = false, full_matrices = true, transposed = false} 5x4x4xT 5x4xR T T 5xi32"],
    ),
    "svd by the polar decomposition": (
        lambda x: linalg.svd(x, full_matrices=False, algorithm=POLAR),
        [WIDE],
        ["cusolver_gesvdp_ffi {compute_uv = true, full_matrices = false} 3x4xT 3xR 3x3xT 4x3xT i32"],
    ),
    "tridiagonal_solve": (linalg.tridiagonal_solve, [(4,)] * 3 + [(4, 2)], ["cusparse_gtsv2_ffi {} 4x2xT"]),
    "tridiagonal_solve, perturbed": (
        lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True),
        [(4,)] * 3 + [(4, 2)],
        ["cu_tridiagonal_solve_perturbed {} 4x2xT"],
    ),
    "triangular_solve": (linalg.triangular_solve, [SQUARE, SQUARE], []),
}  # fmt: skip


def lowered(function, shapes, dtype):
    structs = [phalanx.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return phalanx.jit(function).trace(*structs).lower(lowering_platforms=("cuda",)).as_text()


def kernels(text, dtype):
    """Each kernel's name, what it is told, and the types of its results, with T for the dtype and R for its real part."""
    real = {"f32": "f32", "complex<f32>": "f32"}[dtype]
    found = re.findall(r"custom_call @(\w+)\(.*? backend_config = (\{.*?\}).*-> (.*)", text)
    types = [re.findall(r"tensor<((?:\d+x)*)(.*?)>(?=[,)]|$)", results) for _, _, results in found]
    letters = {dtype: "T", "i32": "i32"} if real == dtype else {dtype: "T", real: "R", "i32": "i32"}
    return [
        f"{name} {told} {' '.join(shape + letters[kind] for shape, kind in own)}"
        for (name, told, _), own in zip(found, types, strict=True)
    ]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", CASES)
def test_decompositions_call_cuda_kernels(name, dtype):
    function, shapes, expected = CASES[name]
    kind = {"float32": "f32", "complex64": "complex<f32>"}[dtype]
    text = lowered(function, shapes, dtype)
    assert kernels(text, kind) == [e if dtype == "complex64" else re.sub(r"xR\b", "xT", e) for e in expected]
    assert "lapack_" not in text
    assert ("stablehlo.triangular_solve" in text) == (name == "triangular_solve")


@pytest.mark.parametrize("told, implementation", [("auto", None), ("on", MAGMA), ("off", HOST)])
def test_eig_uses_magma_or_the_host(told, implementation):
    def f(x):
        return linalg.eig(x, compute_left_eigenvectors=False, implementation=implementation)

    asked = f'{{left = false, magma = "{told}", right = true}}'
    assert f"@cuhybrid_eig_real(%arg0) {{api_version = 4 : i32, backend_config = {asked}" in lowered(
        f, [SQUARE], "float32"
    )
    assert f"@cuhybrid_eig_comp(%arg0) {{api_version = 4 : i32, backend_config = {asked}" in lowered(
        f, [SQUARE], "complex64"
    )


REFUSED = {
    "schur": (linalg.schur, "lowering of gees for cuda: expected a platform whose libraries have this decomposition"),
    "hessenberg": (linalg.hessenberg, "lowering of gehrd for cuda: expected a platform whose libraries have this"),
    "QDWH": (
        lambda x: linalg.eigh(x, implementation=linalg.EighImplementation.QDWH),
        "lax.linalg.eigh for cuda: expected an algorithm of this platform, got EighImplementation.QDWH.\n"
        "  Fix: pass None or DEFAULT, for the default of the platform.",
    ),
    "divide and conquer": (
        lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.DIVIDE_AND_CONQUER),
        "lax.linalg.svd for cuda: expected an algorithm of this platform, got SvdAlgorithm.DIVIDE_AND_CONQUER",
    ),
    "eig by cuSOLVER": (
        lambda x: linalg.eig(x, implementation=linalg.EigImplementation.CUSOLVER),
        "lax.linalg.eig for cuda: expected an algorithm of this platform, got EigImplementation.CUSOLVER",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_algorithms_raise(name):
    function, message = REFUSED[name]
    with pytest.raises(phalanx.errors.RuleError, match=re.escape(message)):
        lowered(function, [SQUARE], "float32")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: linalg.svd(x, algorithm=JACOBI),
        lambda x: linalg.eigh(x, implementation=linalg.EighImplementation.JACOBI),
        lambda x: linalg.eig(x, use_magma=True),
    ],
)
def test_cuda_only_algorithms_raise_on_the_cpu(function):
    with pytest.raises(phalanx.errors.RuleError, match=r"for cpu: expected an algorithm of this platform"):
        function(np.eye(2, dtype=np.float32))


def test_perturbed_pivots_solve_a_singular_tridiagonal_system():
    zeros, b = np.zeros(3, np.float32), np.ones((3, 1), np.float32)
    assert np.isnan(linalg.tridiagonal_solve(zeros, zeros, zeros, b)).all()
    assert np.isfinite(linalg.tridiagonal_solve(zeros, zeros, zeros, b, perturb_singular=True)).all()
