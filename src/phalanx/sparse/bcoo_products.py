"""Products of `BCOO` arrays: contractions, elementwise products, convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, RuleError
from phalanx.runtime.eager_jit import eager_jit
from phalanx.sparse.bcoo import BCOO, bcoo_sum_duplicates, bcoo_update_layout
from phalanx.sparse.bcoo_shapes import dense_shape
from phalanx.sparse.sparse_layout import columns, is_stored, map_batch, mask_data, move_padding, sort_lexically
from phalanx.transforms import vmap
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape

DimensionNumbers = Any  # ((lhs contracted, rhs contracted), (lhs batch, rhs batch)), each a sequence of dimensions


def bcoo_dot_general(
    lhs: BCOO | ArrayLike,
    rhs: BCOO | ArrayLike,
    *,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Any:
    """Contract two arrays, of which at least one is sparse, as `lax.dot_general` does.

    Args:
      lhs, rhs: sparse or dense arrays; their dtypes are promoted.
      dimension_numbers: `((lhs contracted, rhs contracted), (lhs batch, rhs batch))`. Two sparse arrays are contracted
        along sparse dimensions, and their batch dimensions are batch dimensions of the format.
      precision, preferred_element_type: as in `lax.dot_general`.
      out_sharding: None; shardings of sparse arrays are not supported.

    Returns:
      A sparse array if both operands are sparse, else a dense one.

    Raises:
      ShapeError: the dimensions do not fit the operands.
      RuleError: both operands are sparse, and the dimensions are none that can be contracted.
      ArgumentError: both operands are sparse, and the batch dimensions of the result would not come first.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.eye(2))
      >>> sparse.bcoo_dot_general(x, jnp.arange(2.0), dimension_numbers=(([1], [0]), ([], []))).tolist()
      [0.0, 1.0]
    """
    if out_sharding is not None:
        raise ArgumentError(
            "bcoo_dot_general, argument out_sharding",
            expected="None",
            got=repr(out_sharding),
            fix="constrain the dense result with lax.with_sharding_constraint",
        )
    lhs, rhs = (x if isinstance(x, BCOO) else jnp.asarray(x) for x in (lhs, rhs))
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    lhs, rhs = (x.with_data(x.data.astype(dtype)) if isinstance(x, BCOO) else x.astype(dtype) for x in (lhs, rhs))
    (lc, rc), (lb, rb) = numbers = _normalize(dimension_numbers, lhs.ndim, rhs.ndim)
    shape = dense_shape(lambda x, y: lax.dot_general(x, y, numbers), lhs, rhs)
    dot = _Dot(precision, preferred_element_type)
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _dot_of_sparse(lhs, rhs, numbers, shape, dot)
    if isinstance(lhs, BCOO):
        return _dot_with_dense(lhs, rhs, numbers, dot, False)
    return _dot_with_dense(rhs, lhs, ((rc, lc), (rb, lb)), dot, True)


@dataclass(frozen=True)
class _Dot:
    """`dot_general` of arrays whose dimensions have labels, with the options of the caller."""

    precision: Any = None
    preferred_element_type: Any = None

    def __call__(self, x: Array, x_labels: list, y: Array, y_labels: list, wanted: list) -> Array:
        """Contract two arrays to one with the dimensions `wanted`; equal labels that are not wanted are summed over."""
        shared = [label for label in x_labels if label in y_labels]
        kept, summed = ([label for label in shared if (label in wanted) is k] for k in (True, False))
        pairs = ([[labels.index(d) for d in dims] for labels in (x_labels, y_labels)] for dims in (summed, kept))
        out = lax.dot_general(x, y, tuple(pairs), self.precision, self.preferred_element_type)
        labels = [*kept, *[label for label in (*x_labels, *y_labels) if label not in shared]]
        return out.transpose([labels.index(label) for label in wanted])


def map_labels(fun: Callable, dims: Sequence, operands: Sequence[tuple[Array, list]]) -> Array:
    """Map a function of labelled arrays over the dimensions with some labels, which come first in the result.

    Args:
      fun: a function of pairs of an array and its labels, which no longer have `dims`; its result is an array.
      dims: labels, each of at least one operand.
      operands: arrays with their labels; a mapped dimension of size 1 is broadcast.
    """
    if not dims:
        return fun(*operands)
    sizes = {x.shape[labels.index(dims[0])] for x, labels in operands if dims[0] in labels}
    size = max(sizes) if 0 not in sizes else 0
    arrays, axes, rest = [], [], []
    for x, labels in operands:
        axis = labels.index(dims[0]) if dims[0] in labels else None
        if axis is not None and x.shape[axis] != size:
            x, axis = lax.squeeze(x, (axis,)), None
        arrays.append(x)
        axes.append(axis)
        rest.append([label for label in labels if label != dims[0]])
    inner = lambda *xs: map_labels(fun, dims[1:], list(zip(xs, rest, strict=True)))
    return vmap(inner, in_axes=tuple(axes), axis_size=size)(*arrays)


def read_rows(operand: tuple[Array, list], at: dict) -> tuple[Array, list]:
    """Index the dimensions of a labelled array of which `at` has the indices: one row per index, in front."""
    x, labels = operand
    hit = [label for label in labels if label in at]
    rest = [label for label in labels if label not in at]
    if not hit:
        return x, rest
    x = x.transpose([labels.index(label) for label in [*hit, *rest]])
    return x.at[tuple(at[label] for label in hit)].get(mode="fill", fill_value=0), ["nse", *rest]


def _normalize(dimension_numbers: DimensionNumbers, lhs_ndim: int, rhs_ndim: int) -> tuple:
    """The dimension numbers as tuples of dimensions counted from the first."""
    return tuple(
        tuple(tuple(int(d) % ndim for d in dims) for dims, ndim in zip(pair, (lhs_ndim, rhs_ndim), strict=True))
        for pair in dimension_numbers
    )


@eager_jit(static_argnames=("numbers", "dot", "swapped"))
def _dot_with_dense(lhs: BCOO, rhs: Array, numbers: tuple, dot: _Dot, swapped: bool) -> Array:
    """Contract a sparse array with a dense one.

    Each dimension has a label, and paired dimensions have the same one. A stored element is multiplied by the
    part of `rhs` at its indices, and added to the result at its indices.
    """
    (lc, rc), (lb, rb) = numbers
    layout = lhs.layout
    batch, sparse, dense = layout.split(range(lhs.ndim))
    partner = dict(zip((*rc, *rb), (*lc, *lb), strict=True))
    rhs_labels = [partner.get(d, f"rhs{d}") for d in range(rhs.ndim)]
    lhs_free = [d for d in range(lhs.ndim) if d not in (*lc, *lb)]
    rhs_free = [label for label in rhs_labels if label not in partner.values()]
    wanted = [*lb, *rhs_free, *lhs_free] if swapped else [*lb, *lhs_free, *rhs_free]
    written = [d for d in sparse if d not in lc]
    others = [label for label in wanted if label not in (*batch, *written)]

    def one(data: tuple, indices: tuple, rhs: tuple) -> Array:
        at = dict(zip(sparse, columns(indices[0]), strict=True))
        elements = mask_data(data[0], is_stored(indices[0], layout.sparse))
        rows, labels = read_rows(rhs, at)
        if not written:
            if "nse" not in labels:
                elements, data = elements.sum(0, dtype=elements.dtype), (data[0], dense)
            return dot(elements, data[1], rows, labels, others)
        products = dot(elements, data[1], rows, labels, ["nse", *others])
        zeros = jnp.zeros((*[lhs.shape[d] for d in written], *products.shape[1:]), products.dtype)
        return zeros.at[tuple(at[d] for d in written)].add(products, mode="drop")

    operands = (lhs.data, [*batch, "nse", *dense]), (lhs.indices, [*batch, "nse", "column"]), (rhs, rhs_labels)
    out, labels = map_labels(one, batch, operands), [*batch, *written, *others]
    summed = tuple(i for i, label in enumerate(batch) if label in lc)
    out = out.sum(summed, dtype=out.dtype) if summed else out
    labels = [label for label in labels if label in wanted]
    return out.transpose([labels.index(label) for label in wanted])


@eager_jit(static_argnames=("numbers", "shape", "dot"))
def _dot_of_sparse(lhs: BCOO, rhs: BCOO, numbers: tuple, shape: Shape, dot: _Dot) -> BCOO:
    """Contract two sparse arrays: all pairs of elements with equal contracted indices are multiplied."""
    (lc, rc), (lb, rb) = numbers
    lhs, rhs = (bcoo_update_layout(x, n_dense=0) for x in (lhs, rhs))
    for name, x, contracted, batch in (("lhs", lhs, lc, lb), ("rhs", rhs, rc, rb)):
        if any(d < x.n_batch for d in contracted) or any(d >= x.n_batch for d in batch):
            raise RuleError(
                f"bcoo_dot_general of two sparse arrays, {name}",
                expected="contracted dimensions that are sparse, and batch dimensions that are batch dimensions of "
                "the format",
                got=f"contracted dimensions {contracted} and batch dimensions {batch} with n_batch={x.n_batch}",
                fix=f"change the layout with {name}.update_layout(n_batch={len(batch)})",
            )
    if rhs.n_batch > len(rb) and lhs.n_sparse > len(lc):
        raise ArgumentError(
            "bcoo_dot_general of two sparse arrays",
            expected="batch dimensions of the result before its sparse dimensions",
            got="a product that cannot have unused batch dims on rhs with unused sparse dims on lhs",
            fix=f"change the layout with rhs.update_layout(n_batch={len(rb)})",
        )
    orders = [(x, [*b, *[d for d in range(x.n_batch) if d not in b]]) for x, b in ((lhs, lb), (rhs, rb))]
    (l_data, l_indices), (r_data, r_indices) = (
        [v.transpose([*order, *range(x.n_batch, v.ndim)]) for v in (x.data, x.indices)] for x, order in orders
    )
    n_batch = lhs.n_batch + rhs.n_batch - len(lb)
    out_sparse = shape[n_batch:]
    # Without remaining sparse dimensions, all products of an operand's elements are added.
    nse = math.prod(x.nse for x, c in ((lhs, lc), (rhs, rc)) if x.n_sparse > len(c))
    nse = min(nse, math.prod(out_sparse))
    l_cols, r_cols = (np.array([d - x.n_batch for d in c], int) for x, c in ((lhs, lc), (rhs, rc)))

    def one(l_data: Array, l_indices: Array, r_data: Array, r_indices: Array) -> tuple[Array, Array]:
        equal = (l_indices[:, None, l_cols] == r_indices[None, :, r_cols]).all(-1)
        keep = equal & is_stored(l_indices, lhs.layout.sparse)[:, None] & is_stored(r_indices, rhs.layout.sparse)[None]
        l_rest, r_rest = (np.delete(np.arange(i.shape[1]), c) for i, c in ((l_indices, l_cols), (r_indices, r_cols)))
        pairs = keep.shape
        dtype = jnp.promote_types(l_indices.dtype, r_indices.dtype)
        place = jnp.concatenate(
            [
                jnp.broadcast_to(l_indices[:, None, l_rest], (*pairs, len(l_rest))).astype(dtype),
                jnp.broadcast_to(r_indices[None, :, r_rest], (*pairs, len(r_rest))).astype(dtype),
            ],
            axis=-1,
        )
        products = dot(l_data, ["l"], r_data, ["r"], ["l", "r"])
        flat = (
            mask_data(products, keep).reshape(-1),
            move_padding(place, keep, out_sparse).reshape(keep.size, len(out_sparse)),
        )
        merged = bcoo_sum_duplicates(BCOO(flat, shape=out_sparse), nse=nse)
        return merged.data, merged.indices

    left, right = lhs.n_batch - len(lb), rhs.n_batch - len(rb)

    def over_right(l_data: Array, l_indices: Array, *rs: Any) -> tuple:
        return map_batch(lambda *xs: one(l_data, l_indices, *xs), right, *rs)

    def over_left(l_data: Array, l_indices: Array, *rs: Any) -> tuple:
        return map_batch(lambda *xs: over_right(*xs, *rs), left, l_data, l_indices)

    data, indices = map_batch(over_left, len(lb), l_data, l_indices, r_data, r_indices)
    return BCOO((data, indices), shape=shape, indices_sorted=True, unique_indices=True)


def bcoo_dot_general_sampled(
    A: ArrayLike, B: ArrayLike, indices: ArrayLike, *, dimension_numbers: DimensionNumbers
) -> Array:
    """The elements of the contraction of two dense arrays at the indices of a sparse array.

    Only these elements are computed.

    Args:
      A, B: dense arrays.
      indices: int[*batch, nse, n_sparse], indices into the result of `lax.dot_general`.
      dimension_numbers: as in `lax.dot_general`.

    Returns:
      num[*batch, nse, *dense], zero at indices out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = jnp.arange(4.0).reshape(2, 2)
      >>> sparse.bcoo_dot_general_sampled(
      ...     x, x, jnp.array([[1, 0]]), dimension_numbers=(([1], [0]), ([], []))
      ... ).tolist()
      [6.0]
    """
    A, B, indices = map(jnp.asarray, (A, B, indices))
    return _sample(A, B, indices, _normalize(dimension_numbers, A.ndim, B.ndim))


@eager_jit(static_argnames=("numbers",))
def _sample(A: Array, B: Array, indices: Array, numbers: tuple) -> Array:
    """`bcoo_dot_general_sampled` of arrays, with dimensions counted from the first."""
    (ac, bc), (ab, bb) = numbers
    rank = len(dense_shape(lambda x, y: lax.dot_general(x, y, numbers), A, B))
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    # The label of a dimension is its position in the result, that of a contracted one the number of its pair.
    a_free, b_free = ([d for d in range(x.ndim) if d not in (*c, *b)] for x, c, b in ((A, ac, ab), (B, bc, bb)))
    a_order, b_order = [*ab, *a_free], [*bb, *[None] * len(a_free), *b_free]
    a_labels, b_labels = (
        [f"sum{c.index(d)}" if d in c else order.index(d) for d in range(x.ndim)]
        for x, c, order in ((A, ac, a_order), (B, bc, b_order))
    )
    batch, dense = list(range(n_batch)), list(range(n_batch + n_sparse, rank))

    def one(indices: tuple, a: tuple, b: tuple) -> Array:
        at = {n_batch + i: column for i, column in enumerate(columns(indices[0]))}
        (a_rows, a_names), (b_rows, b_names) = read_rows(a, at), read_rows(b, at)
        if "nse" in (*a_names, *b_names):
            return _Dot()(a_rows, a_names, b_rows, b_names, ["nse", *dense])
        out = _Dot()(a_rows, a_names, b_rows, b_names, dense)
        return jnp.broadcast_to(out[None], (indices[0].shape[0], *out.shape))

    return map_labels(one, batch, [(indices, [*batch, "nse", "column"]), (A, a_labels), (B, b_labels)])


def bcoo_multiply_dense(sp_mat: BCOO, v: ArrayLike) -> Array:
    """Multiply the stored elements of a sparse array by elements of a dense one.

    Args:
      sp_mat: sparse[*shape].
      v: a dense array that broadcasts to `shape`.

    Returns:
      num[*batch, nse, *dense], the stored elements of the product, which has the indices of `sp_mat`.

    Raises:
      RuleError: the product has a larger shape than the sparse array.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.bcoo_multiply_dense(sparse.BCOO(([3], [[1]]), shape=(2,)), jnp.array([5, 7])).tolist()
      [21]
    """
    return jnp.multiply(sp_mat.data, elements_at(sp_mat, v))


@eager_jit(static_argnames=("fill",))
def elements_at(mat: BCOO, v: ArrayLike, fill: float = 0) -> Array:
    """The elements of a dense array at the indices of a sparse one.

    Args:
      mat: sparse[*shape].
      v: a dense array that broadcasts to `shape`.
      fill: the value at padding.

    Returns:
      An array that broadcasts to `mat.data`.
    """
    v, shape, layout = jnp.asarray(v), mat.shape, mat.layout
    # A scalar multiplies all elements, so none is gathered.
    if v.ndim == 0:
        return v
    if lax.broadcast_shapes(v.shape, shape) != shape:
        raise RuleError(
            "product of a sparse and a dense array",
            expected=f"a dense array that broadcasts to the shape {list(shape)} of the sparse one",
            got=f"the shape {list(v.shape)}",
            fix="broadcast the sparse array first, with bcoo_broadcast_in_dim",
        )
    v = lax.expand_dims(v, range(len(shape) - v.ndim))
    sizes = layout.split(v.shape)[1]

    def gather(indices: Array, v: Array) -> Array:
        at = tuple(jnp.zeros_like(i) if n == 1 else i for i, n in zip(columns(indices), sizes, strict=True))
        return v.at[at].get(mode="fill", fill_value=fill) if at else v[None]

    return map_batch(gather, layout.n_batch, mat.indices, v)


@eager_jit
def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Multiply two sparse arrays elementwise.

    Args:
      lhs, rhs: sparse arrays of equal rank and with equally many dense dimensions; sizes of 1 are broadcast.

    Returns:
      The product as a sparse array.

    Raises:
      ArgumentError: the ranks differ, or the numbers of dense dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.array([[1, 2], [0, 3]]))
      >>> sparse.bcoo_multiply_sparse(x, x).todense().tolist()
      [[1, 4], [0, 9]]
    """
    if lhs.ndim != rhs.ndim or lhs.n_dense != rhs.n_dense:
        raise ArgumentError(
            "bcoo_multiply_sparse",
            expected="arrays of equal rank and with equally many dense dimensions",
            got=f"{lhs!r} and {rhs!r}",
            fix="add dimensions with bcoo_broadcast_in_dim, or change the layout with update_layout",
        )
    n_batch = min(lhs.n_batch, rhs.n_batch)
    lhs, rhs = (bcoo_update_layout(x, n_batch=n_batch) for x in (lhs, rhs))
    shape = lax.broadcast_shapes(lhs.shape, rhs.shape)
    l_sparse, r_sparse = lhs.layout.sparse, rhs.layout.sparse
    # An operand's elements are looked up at the indices of the other; pairs are needed only if both are broadcast.
    if all(n >= m for n, m in zip(l_sparse, r_sparse, strict=True)):
        multiply = _look_up_product
    elif all(n <= m for n, m in zip(l_sparse, r_sparse, strict=True)):
        lhs, rhs, multiply = rhs, lhs, _look_up_product
    else:
        multiply = _product_of_pairs
    l_sparse, r_sparse = lhs.layout.sparse, rhs.layout.sparse
    data, indices = map_batch(
        lambda *xs: multiply(l_sparse, r_sparse, *xs), n_batch, lhs.data, lhs.indices, rhs.data, rhs.indices
    )
    return BCOO((data, indices), shape=shape)


def _look_up_product(
    l_sparse: Shape, r_sparse: Shape, l_data: Array, l_indices: Array, r_data: Array, r_indices: Array
) -> tuple[Array, Array]:
    """Multiply each element of `lhs` by the sum of the elements of `rhs` at its index.

    The indices of both are sorted together, which gives equal ones the same number; the elements of `rhs` are added up
    by this number.
    """
    keep = is_stored(r_indices, r_sparse)
    matched = np.array([i for i, n in enumerate(r_sparse) if n != 1 or l_sparse[i] == 1], int)
    together = jnp.concatenate([x[:, matched] for x in (r_indices, l_indices.astype(r_indices.dtype))])
    order, _, first = sort_lexically(together)
    # How many distinct indices come before: equal indices get one number, in their original places.
    number = jnp.zeros_like(order).at[order].set(jnp.cumsum(first, dtype=order.dtype) - 1)
    nse = r_indices.shape[0]
    sums = jnp.zeros((len(number), *r_data.shape[1:]), r_data.dtype).at[number[:nse]].add(mask_data(r_data, keep))
    return jnp.multiply(l_data, sums[number[nse:]]), l_indices


def _product_of_pairs(
    l_sparse: Shape, r_sparse: Shape, l_data: Array, l_indices: Array, r_data: Array, r_indices: Array
) -> tuple[Array, Array]:
    """Multiply all pairs of elements whose indices are equal where neither operand is broadcast."""
    matched = np.array([i for i, sizes in enumerate(zip(l_sparse, r_sparse, strict=True)) if 1 not in sizes], int)
    equal = (l_indices[:, None, matched] == r_indices[None, :, matched]).all(-1)
    keep = equal & is_stored(l_indices, l_sparse)[:, None] & is_stored(r_indices, r_sparse)[None]
    # Where an operand is broadcast its index is 0, so the larger index is that of the other one.
    place = jnp.maximum(l_indices[:, None], r_indices[None])
    moved = move_padding(place, keep, lax.broadcast_shapes(l_sparse, r_sparse))
    data = jnp.multiply(l_data[:, None], r_data[None])
    return data.reshape(keep.size, *data.shape[2:]), moved.reshape(keep.size, moved.shape[-1])


def bcoo_conv_general_dilated(
    lhs: BCOO | ArrayLike,
    rhs: BCOO | ArrayLike,
    *,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> BCOO:
    """Convolve two arrays, of which at least one is sparse, as `lax.conv_general_dilated` does.

    All pairs of an element of the input and an element of the kernel are multiplied.

    Args:
      lhs, rhs: the input and the kernel; sparse or dense.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers: as in `lax.conv_general_dilated`.
      feature_group_count, batch_group_count: 1; groups are not supported.
      precision, preferred_element_type: as in `lax.conv_general_dilated`.
      out_sharding: None; shardings of sparse arrays are not supported.

    Returns:
      The convolution as a sparse array in which indices may recur.

    Raises:
      RuleError: there are groups, or `out_sharding` is given.
      ShapeError: the operands do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.array([[[0.0, 3.0, 0.0]]]))
      >>> y = sparse.bcoo_conv_general_dilated(x, jnp.ones((1, 1, 2)), window_strides=(1,), padding="VALID")
      >>> y.todense().tolist()
      [[[3.0, 3.0]]]
    """
    if feature_group_count != 1 or batch_group_count != 1 or out_sharding is not None:
        raise RuleError(
            "bcoo_conv_general_dilated",
            expected="one group, and no out_sharding",
            got=f"feature_group_count={feature_group_count}, batch_group_count={batch_group_count}, "
            f"out_sharding={out_sharding!r}",
            fix="convert the operands with sparse.todense, and use lax.conv_general_dilated",
        )
    x, w = (v if isinstance(v, BCOO) else BCOO.fromdense(v, nse=np.size(v)) for v in (lhs, rhs))
    options = {"lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation, "dimension_numbers": dimension_numbers}
    shape = dense_shape(lambda x, w: lax.conv_general_dilated(x, w, window_strides, padding, **options), x, w)
    lhs_spec, rhs_spec, out_spec = lax.conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    base, window = ((1,) * (x.ndim - 2) if d is None else tuple(d) for d in (lhs_dilation, rhs_dilation))
    pads = padding
    if isinstance(padding, str):
        lhs_span, rhs_span = (
            [(v.shape[d] - 1) * k + 1 for d, k in zip(spec[2:], by, strict=True)]
            for v, spec, by in ((x, lhs_spec, base), (w, rhs_spec, window))
        )
        pads = lax.padtype_to_pads(lhs_span, rhs_span, window_strides, padding)
    grid = tuple(tuple(int(n) for n in by) for by in (base, window, [p[0] for p in pads], window_strides))
    specs = tuple(map(tuple, (lhs_spec, rhs_spec, out_spec)))
    return _convolve(x, w, shape, grid, specs, _Dot(precision, preferred_element_type))


@eager_jit(static_argnames=("shape", "grid", "specs", "dot"))
def _convolve(x: BCOO, w: BCOO, shape: Shape, grid: tuple, specs: tuple, dot: _Dot) -> BCOO:
    """Multiply all pairs of an element of the input and one of the kernel.

    The element of the input at p and that of the kernel at k contribute to the element of the result at
    (p * base + low - k * window) / stride, if that is an index, and if both have the same input feature.

    Args:
      x, w: the input and the kernel.
      shape: the shape of the result.
      grid: base, window, low and stride, each a number per spatial dimension.
      specs: the positions of the batch, feature and spatial dimensions of input, kernel and result.
      dot: the product of elements.
    """
    x, w = (bcoo_update_layout(v, n_batch=0, n_dense=0) for v in (x, w))
    lhs_spec, rhs_spec, out_spec = specs
    base, window, low, stride = (_row(by) for by in grid)
    xi, wi = x.indices[:, None, np.array(lhs_spec)], w.indices[None, :, np.array(rhs_spec)]
    # Positions in the padded and dilated input, relative to the first window.
    place = xi[..., 2:] * base + low - wi[..., 2:] * window
    found = place // stride
    inside = (place >= 0) & (place % stride == 0) & (found < _row([shape[d] for d in out_spec[2:]]))
    keep = inside.all(-1) & (xi[..., 1] == wi[..., 1])
    keep = keep & is_stored(x.indices, x.shape)[:, None] & is_stored(w.indices, w.shape)[None]
    # The batch of the input and the output feature of the kernel, each for all pairs.
    features = [jnp.broadcast_to(i[..., :1], (*keep.shape, 1)) for i in (xi, wi)]
    ordered = jnp.concatenate([*features, found], axis=-1)[..., np.argsort(out_spec)]
    products = dot(x.data, ["x"], w.data, ["w"], ["x", "w"])
    moved = move_padding(ordered, keep, shape).reshape(keep.size, len(shape))
    return BCOO((mask_data(products, keep).reshape(keep.size), moved), shape=shape)


def _row(numbers: Sequence[int]) -> np.ndarray:
    """One number per spatial dimension, to compute with int[elements, elements, dimensions]."""
    return np.array(numbers, np.int32).reshape(1, 1, -1)
