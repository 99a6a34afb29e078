"""Operations that arrange elements without computing: broadcast, reshape, transpose, concatenate, iota.

Other folders import the names below from here. `concatenate`, `iota_and_full` and `tile` build on elementwise
operations, which build on this package, and are imported from their files.
"""

from phalanx.lax.shape.broadcast import (
    ELEMENTWISE as ELEMENTWISE,
    add_dim as add_dim,
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_in_dim_p as broadcast_in_dim_p,
    broadcast_like as broadcast_like,
    broadcast_shapes as broadcast_shapes,
    broadcast_to_rank as broadcast_to_rank,
    broadcast_to_shape as broadcast_to_shape,
    zeros as zeros,
)
from phalanx.lax.shape.dimension_size import dimension_size as dimension_size
from phalanx.lax.shape.dims import (
    batch_dim_after_removal as batch_dim_after_removal,
    batched_sharding_rule as batched_sharding_rule,
    canonicalize_dims as canonicalize_dims,
    canonicalize_shape as canonicalize_shape,
    check_dims as check_dims,
    dim_names as dim_names,
    drop_dims as drop_dims,
    insert_dim as insert_dim,
    resolve_dims as resolve_dims,
    shift_past_batch as shift_past_batch,
)
from phalanx.lax.shape.reshape import (
    collapse as collapse,
    expand_dims as expand_dims,
    reshape as reshape,
    reshape_p as reshape_p,
    squeeze as squeeze,
    squeeze_p as squeeze_p,
)
from phalanx.lax.shape.transpose import (
    move_dim as move_dim,
    rev as rev,
    rev_p as rev_p,
    transpose as transpose,
    transpose_p as transpose_p,
)
