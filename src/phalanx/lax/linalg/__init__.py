"""Decompositions and linear systems over stacks of matrices, with their derivatives.

Builds on the operations of `lax` and on LAPACK; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from phalanx.engine.frames import guard as _guard
from phalanx.lax.linalg.eig import EigImplementation as EigImplementation
from phalanx.lax.linalg.eig import eig as eig
from phalanx.lax.linalg.eig import eig_p as eig_p
from phalanx.lax.linalg.eig import hessenberg as hessenberg
from phalanx.lax.linalg.eig import hessenberg_p as hessenberg_p
from phalanx.lax.linalg.eig import schur as schur
from phalanx.lax.linalg.eig import schur_p as schur_p
from phalanx.lax.linalg.eigh import EighImplementation as EighImplementation
from phalanx.lax.linalg.eigh import eigh as eigh
from phalanx.lax.linalg.eigh import eigh_p as eigh_p
from phalanx.lax.linalg.eigh import tridiagonal as tridiagonal
from phalanx.lax.linalg.eigh import tridiagonal_p as tridiagonal_p
from phalanx.lax.linalg.lu import lu as lu
from phalanx.lax.linalg.lu import lu_p as lu_p
from phalanx.lax.linalg.lu import lu_pivots_to_permutation as lu_pivots_to_permutation
from phalanx.lax.linalg.lu import lu_pivots_to_permutation_p as lu_pivots_to_permutation_p
from phalanx.lax.linalg.polar import qdwh as qdwh
from phalanx.lax.linalg.qr import cholesky_update as cholesky_update
from phalanx.lax.linalg.qr import householder_product as householder_product
from phalanx.lax.linalg.qr import householder_product_p as householder_product_p
from phalanx.lax.linalg.qr import ormqr as ormqr
from phalanx.lax.linalg.qr import ormqr_p as ormqr_p
from phalanx.lax.linalg.qr import qr as qr
from phalanx.lax.linalg.qr import qr_p as qr_p
from phalanx.lax.linalg.svd import SvdAlgorithm as SvdAlgorithm
from phalanx.lax.linalg.svd import svd as svd
from phalanx.lax.linalg.svd import svd_p as svd_p
from phalanx.lax.linalg.triangular import cholesky as cholesky
from phalanx.lax.linalg.triangular import cholesky_p as cholesky_p
from phalanx.lax.linalg.triangular import symmetric_product as symmetric_product
from phalanx.lax.linalg.triangular import triangular_solve as triangular_solve
from phalanx.lax.linalg.triangular import triangular_solve_p as triangular_solve_p
from phalanx.lax.linalg.tridiagonal_system import tridiagonal_solve as tridiagonal_solve
from phalanx.lax.linalg.tridiagonal_system import tridiagonal_solve_p as tridiagonal_solve_p

_guard(globals())
