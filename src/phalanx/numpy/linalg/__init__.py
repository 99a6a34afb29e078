"""Linear algebra on stacks of matrices: the namespace `numpy.linalg`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.numpy.function_stages import attach_stages as _attach_stages
from phalanx.numpy.linalg.least_squares import lstsq as lstsq, matrix_rank as matrix_rank, pinv as pinv
from phalanx.numpy.linalg.linalg_aliases import (
    cross as cross,
    diagonal as diagonal,
    matmul as matmul,
    matrix_transpose as matrix_transpose,
    multi_dot as multi_dot,
    outer as outer,
    tensordot as tensordot,
    trace as trace,
    vecdot as vecdot,
)
from phalanx.numpy.linalg.matrix_decompositions import (
    EighResult as EighResult,
    EigResult as EigResult,
    QRResult as QRResult,
    SVDResult as SVDResult,
    cholesky as cholesky,
    eig as eig,
    eigh as eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
    qr as qr,
    svd as svd,
    svdvals as svdvals,
)
from phalanx.numpy.linalg.norms import (
    cond as cond,
    matrix_norm as matrix_norm,
    norm as norm,
    vector_norm as vector_norm,
)
from phalanx.numpy.linalg.square_matrices import (
    SlogdetResult as SlogdetResult,
    det as det,
    inv as inv,
    matrix_power as matrix_power,
    slogdet as slogdet,
    solve as solve,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
)

__getattr__, __dir__ = _publish(globals(), prepare=_attach_stages)
