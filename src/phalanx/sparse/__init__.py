"""Sparse arrays: the formats `BCOO`, `BCSR`, `COO`, `CSR` and `CSC`, their operations, and `sparsify`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.sparse.bcoo import (
    BCOO as BCOO,
    bcoo_eliminate_zeros as bcoo_eliminate_zeros,
    bcoo_extract as bcoo_extract,
    bcoo_fromdense as bcoo_fromdense,
    bcoo_sort_indices as bcoo_sort_indices,
    bcoo_sum_duplicates as bcoo_sum_duplicates,
    bcoo_todense as bcoo_todense,
    bcoo_transpose as bcoo_transpose,
    bcoo_update_layout as bcoo_update_layout,
)
from phalanx.sparse.bcoo_products import (
    bcoo_conv_general_dilated as bcoo_conv_general_dilated,
    bcoo_dot_general as bcoo_dot_general,
    bcoo_dot_general_sampled as bcoo_dot_general_sampled,
    bcoo_multiply_dense as bcoo_multiply_dense,
    bcoo_multiply_sparse as bcoo_multiply_sparse,
)
from phalanx.sparse.bcoo_shapes import (
    bcoo_broadcast_in_dim as bcoo_broadcast_in_dim,
    bcoo_concatenate as bcoo_concatenate,
    bcoo_dynamic_slice as bcoo_dynamic_slice,
    bcoo_gather as bcoo_gather,
    bcoo_reduce_sum as bcoo_reduce_sum,
    bcoo_reshape as bcoo_reshape,
    bcoo_rev as bcoo_rev,
    bcoo_slice as bcoo_slice,
    bcoo_squeeze as bcoo_squeeze,
)
from phalanx.sparse.bcsr import (
    BCSR as BCSR,
    bcsr_broadcast_in_dim as bcsr_broadcast_in_dim,
    bcsr_concatenate as bcsr_concatenate,
    bcsr_dot_general as bcsr_dot_general,
    bcsr_eliminate_zeros as bcsr_eliminate_zeros,
    bcsr_extract as bcsr_extract,
    bcsr_fromdense as bcsr_fromdense,
    bcsr_sum_duplicates as bcsr_sum_duplicates,
    bcsr_todense as bcsr_todense,
)
from phalanx.sparse.matrix_formats import (
    COO as COO,
    CSC as CSC,
    CSR as CSR,
    coo_fromdense as coo_fromdense,
    coo_matmat as coo_matmat,
    coo_matvec as coo_matvec,
    coo_todense as coo_todense,
    csr_fromdense as csr_fromdense,
    csr_matmat as csr_matmat,
    csr_matvec as csr_matvec,
    csr_todense as csr_todense,
)
from phalanx.sparse.random_test_arrays import rand_bcoo as rand_bcoo, rand_bcsr as rand_bcsr
from phalanx.sparse.sparse_array import JAXSparse as JAXSparse
from phalanx.sparse.sparse_buffers import (
    SparsifyEnv as SparsifyEnv,
    SparsifyValue as SparsifyValue,
    arrays_to_spvalues as arrays_to_spvalues,
    sparsify_raw as sparsify_raw,
    spvalues_to_arrays as spvalues_to_arrays,
)
from phalanx.sparse.sparse_constructors import empty as empty, eye as eye, random_bcoo as random_bcoo
from phalanx.sparse.sparse_derivatives import (
    grad as grad,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from phalanx.sparse.sparse_layout import (
    CuSparseEfficiencyWarning as CuSparseEfficiencyWarning,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
    SparseInfo as SparseInfo,
)
from phalanx.sparse.sparsify import SparseTracer as SparseTracer, sparsify as sparsify, todense as todense

__getattr__, __dir__ = _publish(globals(), modules="linalg")
