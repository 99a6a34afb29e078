"""Matrices with the names of `scipy.linalg`.

`decompositions.py`, `systems.py` (linear ones), `functions.py` (of matrices), `special_matrices.py`. Arguments that let
SciPy overwrite operands or leave out checks are permissions, and change nothing here.
"""

from phalanx.engine.frames import guard as _guard
from phalanx.scipy.linalg.decompositions import cholesky as cholesky
from phalanx.scipy.linalg.decompositions import eigh as eigh
from phalanx.scipy.linalg.decompositions import eigh_tridiagonal as eigh_tridiagonal
from phalanx.scipy.linalg.decompositions import hessenberg as hessenberg
from phalanx.scipy.linalg.decompositions import lu as lu
from phalanx.scipy.linalg.decompositions import polar as polar
from phalanx.scipy.linalg.decompositions import qr as qr
from phalanx.scipy.linalg.decompositions import qr_multiply as qr_multiply
from phalanx.scipy.linalg.decompositions import rsf2csf as rsf2csf
from phalanx.scipy.linalg.decompositions import schur as schur
from phalanx.scipy.linalg.decompositions import svd as svd
from phalanx.scipy.linalg.functions import expm as expm
from phalanx.scipy.linalg.functions import expm_frechet as expm_frechet
from phalanx.scipy.linalg.functions import funm as funm
from phalanx.scipy.linalg.functions import sqrtm as sqrtm
from phalanx.scipy.linalg.special_matrices import block_diag as block_diag
from phalanx.scipy.linalg.special_matrices import circulant as circulant
from phalanx.scipy.linalg.special_matrices import companion as companion
from phalanx.scipy.linalg.special_matrices import convolution_matrix as convolution_matrix
from phalanx.scipy.linalg.special_matrices import dft as dft
from phalanx.scipy.linalg.special_matrices import fiedler as fiedler
from phalanx.scipy.linalg.special_matrices import fiedler_companion as fiedler_companion
from phalanx.scipy.linalg.special_matrices import hadamard as hadamard
from phalanx.scipy.linalg.special_matrices import hankel as hankel
from phalanx.scipy.linalg.special_matrices import helmert as helmert
from phalanx.scipy.linalg.special_matrices import hilbert as hilbert
from phalanx.scipy.linalg.special_matrices import invhilbert as invhilbert
from phalanx.scipy.linalg.special_matrices import invpascal as invpascal
from phalanx.scipy.linalg.special_matrices import leslie as leslie
from phalanx.scipy.linalg.special_matrices import pascal as pascal
from phalanx.scipy.linalg.special_matrices import toeplitz as toeplitz
from phalanx.scipy.linalg.systems import cho_factor as cho_factor
from phalanx.scipy.linalg.systems import cho_solve as cho_solve
from phalanx.scipy.linalg.systems import det as det
from phalanx.scipy.linalg.systems import inv as inv
from phalanx.scipy.linalg.systems import lu_factor as lu_factor
from phalanx.scipy.linalg.systems import lu_solve as lu_solve
from phalanx.scipy.linalg.systems import solve as solve
from phalanx.scipy.linalg.systems import solve_sylvester as solve_sylvester
from phalanx.scipy.linalg.systems import solve_triangular as solve_triangular

_guard(globals())
