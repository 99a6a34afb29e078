"""Decompositions and linear systems of batched matrices, with their derivatives.

Builds on the operations of `lax` and on LAPACK, cuSOLVER and cuSPARSE; called by `phalanx.numpy.linalg` and
`phalanx.scipy.linalg`.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.lax.linalg.cholesky import (
    cholesky as cholesky,
    cholesky_p as cholesky_p,
    cholesky_update as cholesky_update,
)
from phalanx.lax.linalg.condensed_forms import (
    hessenberg as hessenberg,
    hessenberg_p as hessenberg_p,
    schur as schur,
    schur_p as schur_p,
    tridiagonal as tridiagonal,
    tridiagonal_p as tridiagonal_p,
)
from phalanx.lax.linalg.eig import EigImplementation as EigImplementation, eig as eig, eig_p as eig_p
from phalanx.lax.linalg.eigh import EighImplementation as EighImplementation, eigh as eigh, eigh_p as eigh_p
from phalanx.lax.linalg.lu import (
    lu as lu,
    lu_p as lu_p,
    lu_pivots_to_permutation as lu_pivots_to_permutation,
    lu_pivots_to_permutation_p as lu_pivots_to_permutation_p,
)
from phalanx.lax.linalg.polar import qdwh as qdwh
from phalanx.lax.linalg.qr import (
    householder_product as householder_product,
    householder_product_p as householder_product_p,
    ormqr as ormqr,
    ormqr_p as ormqr_p,
    qr as qr,
    qr_p as qr_p,
)
from phalanx.lax.linalg.svd import SvdAlgorithm as SvdAlgorithm, svd as svd, svd_p as svd_p
from phalanx.lax.linalg.symmetric_product import symmetric_product as symmetric_product
from phalanx.lax.linalg.triangular_solve import (
    triangular_solve as triangular_solve,
    triangular_solve_p as triangular_solve_p,
)
from phalanx.lax.linalg.tridiagonal_solve import (
    tridiagonal_solve as tridiagonal_solve,
    tridiagonal_solve_p as tridiagonal_solve_p,
)

__getattr__, __dir__ = _publish(globals())
