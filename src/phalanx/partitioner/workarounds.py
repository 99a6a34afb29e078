"""The table of defects of XLA's partitioner that Phalanx works around.

Each entry names the defect, the primitives that avoid it, the upstream issue, and the jaxlib versions in which it is
observed. A function of the same name in `tests/partitioner/reproducers.py` is the smallest known program that shows
it. `tests/partitioner/test_workarounds.py` runs each reproducer with the workaround and without it, and reports the
entries that the installed jaxlib no longer needs; such an entry can be deleted together with its branch in the rules
once all supported versions are free of the defect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

XLA: Final = "https://github.com/openxla/xla/issues/"


class Workaround(NamedTuple):
    """A defect of XLA, and where it is avoided.

    Args:
      name: identifies the entry and its reproducer.
      primitives: the primitives whose rules avoid the defect.
      effect: "wrong result", "crash" or "communication" (operands are gathered, at a cost of time and memory).
      defect: the behaviour of XLA without the workaround.
      avoided_by: the way in which the rules avoid it.
      upstream: the issue at XLA; None if no issue is known.
      seen_in: minor versions of jaxlib in which the reproducer shows the defect.
      hidden_by: another workaround that avoids the defect in the reproducer, though not in general.
    """

    name: str
    primitives: tuple[str, ...]
    effect: str
    defect: str
    avoided_by: str
    upstream: str | None = None
    seen_in: tuple[str, ...] = ("0.10", "0.12")
    hidden_by: str | None = None


_CONV = ("conv_general_dilated",)
_SCATTERS = ("scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
_WINDOWS = ("reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window")
_PER_SHARD = "Lower it per shard."
_GATHERS = (
    "XLA has no partitioning rule for {}, so it gathers the operands also where only batch dimensions are sharded."
)

_TABLE: Final = (
    # Slices
    Workaround(
        "dynamic_slice_start",
        ("dynamic_slice",),
        "wrong result",
        "Where the result is sharded along a sliced dimension, each device adds its offset to the clamped start "
        "instead of clamping the sum, so out-of-bounds starts read the wrong elements.",
        "Clamp the start before the operation.",
        XLA + "49122",
        seen_in=("0.10",),
    ),
    Workaround(
        "dynamic_update_slice_start",
        ("dynamic_update_slice",),
        "wrong result",
        "Along a sharded dimension the start is compared with each shard's range without being clamped, so an update "
        "at an out-of-bounds start is dropped.",
        "Clamp the start before the operation.",
        XLA + "49118",
    ),
    Workaround(
        "single_element_update",
        ("dynamic_update_slice", *_SCATTERS, "scatter", "scatter_apply"),
        "wrong result",
        "A device that does not hold the updated element writes back an element that it has read. XLA recomputes that "
        "element from the operand's producer, and may lose a step of it or the clamping of the index.",
        "Put the operand behind an optimization barrier.",
        seen_in=("0.10",),
    ),
    Workaround(
        "interior_padding",
        ("pad",),
        "wrong result",
        "Interior padding of a sharded dimension may omit elements or repeat them.",
        "Pad a new dimension of size 1 after each padded dimension, and merge the two.",
    ),
    Workaround(
        "negative_padding",
        ("pad", *_CONV),
        "wrong result",
        "Negative padding of a sharded or replicated dimension may remove elements at the wrong end.",
        "Slice the operand instead.",
        "https://github.com/jax-ml/jax/issues/39301",
    ),
    # Windows
    Workaround(
        "shared_fill",
        (*_WINDOWS, *_CONV, "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
        "wrong result",
        "Where several operations have equal windows over one operand, its shards are exchanged and filled once, with "
        "the initial value of the first operation: a maximum beside a sum reads zeros.",
        "Put the operand of those with another initial value behind an optimization barrier.",
        seen_in=("0.10",),
    ),
    # Gather and scatter
    Workaround(
        "sharded_index_vectors",
        ("gather", *_SCATTERS, "scatter", "scatter_apply"),
        "crash",
        "Where the components of an index vector are sharded, each device takes its components for the whole vector.",
        "Replicate the indices along the dimension of the index vectors.",
    ),
    Workaround(
        "uneven_scatter_updates",
        _SCATTERS,
        "wrong result",
        "Where updates and indices do not divide evenly among devices, XLA pads the shards and scatters the padding.",
        "Pad both to a multiple of the number of devices, with out-of-bounds indices and identity elements.",
    ),
    Workaround(
        "uneven_scatter_batch",
        (*_SCATTERS, "scatter", "scatter_apply"),
        "communication",
        "Where batch dimensions do not divide evenly among devices, XLA gathers the indices to pad them.",
        "Pad the batch dimensions to a multiple of the number of devices, and cut the result.",
    ),
    Workaround(
        "batched_scatter_operand",
        _SCATTERS,
        "wrong result",
        "Where updates of one example are on several devices and batch dimensions are sharded, XLA adds the operand on "
        "the first device only, though other devices hold other examples.",
        "Scatter into identity elements, and combine the operand with the result.",
        seen_in=("0.10",),
    ),
    # Windows
    Workaround(
        "window_spatial_sharding",
        _WINDOWS,
        "crash",
        "Where propagation shards the result along a dimension with a window, or leaves a device without a result, XLA "
        "reads beyond the halo.",
        "Replicate operands and results along such dimensions.",
    ),
    Workaround(
        "strided_dilated_windows",
        _WINDOWS,
        "crash",
        "Where windows skip elements of a dilated sharded dimension, as dilated windows do, the halo is smaller "
        "than the windows read.",
        "Lower the operation per shard, or replicate operands and results along such dimensions.",
    ),
    Workaround(
        "variadic_windows",
        ("reduce_window", "select_and_gather_add"),
        "crash",
        "A windowed reduction of several operands is partitioned as if all had the sharding of the first.",
        _PER_SHARD,
    ),
    Workaround(
        "window_padding",
        ("reduce_window",),
        "wrong result",
        "Padding and the holes of a dilated operand are skipped on one device, but read as the initial value where "
        "shards are exchanged.",
        _PER_SHARD,
    ),
    Workaround(
        "overlapping_select_and_scatter",
        ("select_and_scatter_add",),
        "wrong result",
        "Where windows overlap and source and operand are sharded differently, contributions to elements of other "
        "devices are dropped.",
        _PER_SHARD,
    ),
    # Convolutions
    Workaround(
        "conv_dilated_lhs_and_rhs",
        _CONV,
        "wrong result",
        "Where both the input and the kernel are dilated along a sharded dimension, the halo is smaller than the "
        "windows read.",
        _PER_SHARD,
        hidden_by="conv_spatial_sharding",
    ),
    Workaround(
        "conv_groups",
        _CONV,
        "communication",
        "A grouped convolution that is not depthwise gathers its operands, also where only the batch is sharded.",
        "Make the groups a mapped dimension, and lower it per shard.",
        XLA + "47945",
    ),
    Workaround(
        "conv_mapped",
        _CONV,
        "communication",
        "A dimension that `vmap` adds becomes part of the batch, the features or the groups, and its sharding is lost "
        "in the reshape, so the operands are gathered.",
        _PER_SHARD,
    ),
    Workaround(
        "conv_spatial_sharding",
        _CONV,
        "wrong result",
        "Where propagation shards spatial dimensions, XLA adds the partial sums of replicas several times, or reads "
        "elements that no device holds.",
        "Replicate the spatial dimensions, or the kernel where the input is known to be sharded in space.",
    ),
    Workaround(
        "conv_output_dims",
        _CONV,
        "wrong result",
        "The sharding of the result's spatial dimensions is looked up at the positions of the input's.",
        "Emit the result with the dimension order of the input, and transpose it.",
        hidden_by="conv_spatial_sharding",
    ),
    # Reductions
    Workaround(
        "all_reduce_nan",
        ("reduce_max", "reduce_min", "scatter_max", "scatter_min"),
        "wrong result",
        "An all-reduce of floating-point maxima or minima on CPU devices drops NaN.",
        "Reduce integers with the same order, in which NaN is the extreme.",
        XLA + "21461",
    ),
    Workaround(
        "all_reduce_complex",
        ("reduce_max", "reduce_min"),
        "crash",
        "There is no all-reduce of complex maxima or minima.",
        "Reduce the real parts, then the imaginary parts of the elements that attain the extreme.",
    ),
    Workaround(
        "all_reduce_any_function",
        ("reduce", "reduce_and", "reduce_or", "reduce_xor"),
        "crash",
        "A sharded reduction becomes an all-reduce with the same function; CPU devices support only the common ones.",
        _PER_SHARD,
    ),
    Workaround(
        "two_bit_integers",
        (
            *("cummax", "cummin", "cumprod", "cumsum", "dynamic_slice", "dynamic_update_slice", "gather"),
            *("reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_xor"),
            *("reduce_window_max", "reduce_window_min", "reduce_window_sum", *_SCATTERS, "scatter"),
        ),
        "crash",
        "CPU devices have no all-reduce of integers of 2 bits, and exchange uneven shards of them wrongly.",
        "Compute in bytes.",
    ),
    # Operations that XLA gathers, or that send more than they need
    Workaround(
        "uneven_windows",
        (*_WINDOWS, *_CONV, "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
        "communication",
        "Where a device holds no window of an uneven dimension, the operand is gathered.",
        "Send each device the elements of its windows, or fill shards with what padding is read as and cut the result.",
    ),
    Workaround(
        "uneven_moves",
        ("rev", "slice", "split", "pad", "concatenate", "reshape"),
        "communication",
        "Where shards are uneven, elements that change device are sent in several buffers that fit any device.",
        "Make the operation a call that sends each element once, in rounds planned for the sizes.",
    ),
    Workaround(
        "uneven_slices",
        ("dynamic_slice", "dynamic_update_slice"),
        "communication",
        "A split dimension is gathered for a part of it at a position that the program computes.",
        "Gather or scatter the elements of the part, in programs with uneven shards.",
    ),
    Workaround(
        "uneven_reshape",
        ("reshape",),
        "communication",
        "A sharding is lost in a reshape that merges or splits a dimension that does not divide evenly among devices.",
        "Pad the dimension, and cut the result.",
    ),
    Workaround(
        "gathered_elementwise",
        ("erf", "igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta"),
        "communication",
        _GATHERS.format("CHLO operations with loops"),
        _PER_SHARD,
    ),
    Workaround("gathered_fft", ("fft",), "communication", _GATHERS.format("`fft`"), _PER_SHARD, XLA + "24", ("0.10",)),
    Workaround("gathered_ffi_call", ("ffi_call",), "communication", _GATHERS.format("custom calls"), _PER_SHARD),
    Workaround(
        "gathered_rejection_sampling",
        (
            "random_gamma_rounds",
            "random_poisson_by_rejection",
            "random_poisson_by_waiting",
            "random_binomial_by_rejection",
            "random_binomial_by_waiting",
        ),
        "communication",
        "A loop whose condition reduces over all elements makes the devices wait for each other in every iteration.",
        _PER_SHARD,
    ),
    Workaround(
        "gathered_rng_bit_generator",
        ("rng_bit_generator",),
        "communication",
        _GATHERS.format("`rng_bit_generator`"),
        _PER_SHARD,
    ),
    Workaround("gathered_top_k", ("top_k",), "communication", _GATHERS.format("`top_k`"), _PER_SHARD),
    Workaround(
        "gathered_triangular_solve",
        ("triangular_solve",),
        "communication",
        _GATHERS.format("`triangular_solve`"),
        _PER_SHARD,
    ),
    Workaround(
        "gathered_tridiagonal_solve",
        ("tridiagonal_solve",),
        "communication",
        _GATHERS.format("`tridiagonal_solve`"),
        _PER_SHARD,
    ),
    Workaround(
        "gathered_while",
        ("while_each",),
        "communication",
        "A loop under `vmap` runs until the last example is "
        "done, so each iteration needs an all-reduce of the condition.",
        _PER_SHARD,
    ),
)
WORKAROUNDS: Final[dict[str, Workaround]] = {entry.name: entry for entry in _TABLE}

# A private switch for tests; it is empty in every other program.
_inactive: set[str] = set()


def is_active(name: str) -> bool:
    """Whether a workaround is applied: always, except in `without`."""
    assert name in WORKAROUNDS, f"no workaround is named {name!r}"
    return name not in _inactive


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Lower programs without some workarounds, for the tests that find out whether jaxlib still needs them."""
    assert WORKAROUNDS.keys() >= {*names}, f"no workaround is named {names}"
    _inactive.update(names)
    try:
        yield
    finally:
        _inactive.difference_update(names)
