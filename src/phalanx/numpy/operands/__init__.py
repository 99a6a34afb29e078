"""Conversion, promotion and checking of arguments; the lowest layer of `numpy`."""

from phalanx.numpy.operands.operand_conversion import (
    SCALAR_KINDS as SCALAR_KINDS,
    as_array as as_array,
    as_tuple as as_tuple,
    aval_or_scalar_type as aval_or_scalar_type,
    cast as cast,
    cast_to_common as cast_to_common,
    check_choice as check_choice,
    check_integers as check_integers,
    check_vector as check_vector,
    concrete_or_none as concrete_or_none,
    promote as promote,
    promote_inexact as promote_inexact,
    refuse_inplace as refuse_inplace,
    refuse_out as refuse_out,
    result_dtype as result_dtype,
    to_host_operand as to_host_operand,
    to_numpy_scalar as to_numpy_scalar,
    to_operand as to_operand,
    to_static_int as to_static_int,
    unwrap_array_like as unwrap_array_like,
)
from phalanx.numpy.operands.shape_rules import (
    broadcast_operands as broadcast_operands,
    broadcast_shapes as broadcast_shapes,
    broadcast_to_shape as broadcast_to_shape,
    canonical_axes as canonical_axes,
    canonical_axis as canonical_axis,
    canonical_shape as canonical_shape,
    check_rank_promotion as check_rank_promotion,
    flatten_without_axis as flatten_without_axis,
)
