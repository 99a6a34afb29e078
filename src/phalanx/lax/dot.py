"""Contractions: `dot_general`, its precision settings, and the products written with it.

Builds on the primitive core and on the shape operations; called by `phalanx.numpy` for `matmul` and `einsum`, and by
the derivative rules of the linear algebra.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes, promotion
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero, add_tangents, is_linear
from phalanx.engine.mlir import hlo, ir, per_context
from phalanx.lax.broadcast import skip_batch, transpose
from phalanx.lax.explicit import laid_out
from phalanx.lax.tiny import narrowed, wide, widened


class Precision(enum.Enum):
    """How exactly a backend with several matrix units computes a product of f32 operands.

    `DEFAULT` is the fastest, `HIGHEST` the most exact; the CPU knows only one. Functions that take a precision also
    take the names `"default"`, `"high"`, `"highest"`, and a pair with one precision for each operand.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.dot(jnp.ones(2), jnp.ones(2), precision=lax.Precision.HIGHEST).tolist()
      2.0
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name


class DotAlgorithm(NamedTuple):
    """The exact arithmetic of a product, where the backend offers a choice.

    Args:
      lhs_precision_type: the dtype that elements of the left operand are rounded to.
      rhs_precision_type: the same for the right operand.
      accumulation_type: the dtype of the running sums.
      lhs_component_count: into how many parts each left element is split.
      rhs_component_count: the same for the right operand.
      num_primitive_operations: how many products of parts are summed.
      allow_imprecise_accumulation: whether sums may be rounded further on the way.

    Examples:
      >>> DotAlgorithm("bfloat16", "bfloat16", "float32", num_primitive_operations=3).accumulation_type
      'float32'
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """The algorithms that have names: left type, right type, type of the sums, and how many products of parts.

    `DEFAULT` leaves the choice to the compiler. A preset may be given wherever a precision is taken, also by its name.

    Examples:
      >>> DotAlgorithmPreset["BF16_BF16_F32"].name
      'BF16_BF16_F32'
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15

    def __str__(self) -> str:
        return self.name


# Type of the operands, of the sums, number of parts, number of products.
_PRESETS: dict[DotAlgorithmPreset, tuple[str, str, int, int]] = {
    DotAlgorithmPreset.F16_F16_F16: ("float16", "float16", 1, 1),
    DotAlgorithmPreset.F16_F16_F32: ("float16", "float32", 1, 1),
    DotAlgorithmPreset.BF16_BF16_BF16: ("bfloat16", "bfloat16", 1, 1),
    DotAlgorithmPreset.BF16_BF16_F32: ("bfloat16", "float32", 1, 1),
    DotAlgorithmPreset.BF16_BF16_F32_X3: ("bfloat16", "float32", 1, 3),
    DotAlgorithmPreset.BF16_BF16_F32_X6: ("bfloat16", "float32", 1, 6),
    DotAlgorithmPreset.BF16_BF16_F32_X9: ("bfloat16", "float32", 1, 9),
    DotAlgorithmPreset.TF32_TF32_F32: ("tf32", "float32", 1, 1),
    DotAlgorithmPreset.TF32_TF32_F32_X3: ("tf32", "float32", 1, 3),
    DotAlgorithmPreset.F32_F32_F32: ("float32", "float32", 1, 1),
    DotAlgorithmPreset.F64_F64_F64: ("float64", "float64", 1, 1),
}
_ANY_F8 = {
    DotAlgorithmPreset.ANY_F8_ANY_F8_F32: (True, False),
    DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM: (True, True),
    DotAlgorithmPreset.ANY_F8_ANY_F8_ANY: (False, False),
    DotAlgorithmPreset.ANY_F8_ANY_F8_ANY_FAST_ACCUM: (False, True),
}

# Names that the field has used for the three levels.
_LEVELS = {
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}

PrecisionLike = None | str | Precision | DotAlgorithm | DotAlgorithmPreset | tuple
CanonicalPrecision = None | DotAlgorithm | DotAlgorithmPreset | tuple
DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def canonical_precision(precision: PrecisionLike) -> CanonicalPrecision:
    """The form that programs hold: None, a pair of `Precision`, an algorithm or a preset.

    Args:
      precision: what a user may write; None takes the default of `config.default_matmul_precision`.

    Returns:
      The canonical form.

    Raises:
      ArgumentError: it is none of these.
    """
    if precision is None:
        precision = state.context.default_matmul_precision
        if precision is None:
            return None
    if isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return precision
    if type(precision) is Precision:
        return (precision, precision)
    if isinstance(precision, str):
        if (level := _LEVELS.get(precision)) is not None:
            return (level, level)
        if precision in DotAlgorithmPreset.__members__:
            return DotAlgorithmPreset[precision]
    elif isinstance(precision, tuple | list) and len(precision) == 2:
        pair = tuple(_LEVELS.get(p) if isinstance(p, str) else p for p in precision)
        if all(p is None or isinstance(p, Precision) for p in pair):
            return tuple(p or Precision.DEFAULT for p in pair)
    raise ArgumentError(
        "precision",
        expected="a Precision, a pair of them, a DotAlgorithm, a DotAlgorithmPreset, or the name of one",
        got=repr(precision),
        mend="use for example 'highest' or lax.Precision.HIGHEST",
    )


def swapped(precision: CanonicalPrecision) -> CanonicalPrecision:
    """The precision of the product with its operands exchanged."""
    if isinstance(precision, DotAlgorithm):
        return precision._replace(
            lhs_precision_type=precision.rhs_precision_type,
            rhs_precision_type=precision.lhs_precision_type,
            lhs_component_count=precision.rhs_component_count,
            rhs_component_count=precision.lhs_component_count,
        )
    return precision[::-1] if isinstance(precision, tuple) else precision


@per_context
def precision_attribute(precision: CanonicalPrecision) -> Any:
    """The MLIR form of a pair of precisions; algorithms are an attribute of their own, and None is none."""
    if precision is None or isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return None
    return ir.ArrayAttr.get([hlo.PrecisionAttr.get(p.name) for p in precision])


def BILINEAR(self: Any, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The derivative of an operation linear in each of its two operands."""
    x, y = primals
    x_dot, y_dot = tangents
    out = self(x, y, **params)
    from_x = x_dot if type(x_dot) is Zero else self(x_dot, y, **params)
    from_y = y_dot if type(y_dot) is Zero else self(x, y_dot, **params)
    return out, add_tangents(from_x, from_y)


class _Layout(NamedTuple):
    """The dimensions of both operands sorted by what the contraction does with them."""

    lhs_contract: tuple
    rhs_contract: tuple
    lhs_batch: tuple
    rhs_batch: tuple
    lhs_free: tuple
    rhs_free: tuple

    @classmethod
    def of(cls, lhs_ndim: int, rhs_ndim: int, dimension_numbers: Any) -> _Layout:
        (lc, rc), (lb, rb) = dimension_numbers
        lhs_free = tuple(d for d in range(lhs_ndim) if d not in lc and d not in lb)
        rhs_free = tuple(d for d in range(rhs_ndim) if d not in rc and d not in rb)
        return cls(lc, rc, lb, rb, lhs_free, rhs_free)


class DotGeneral(Primitive, name="dot_general"):
    """Sum of products over contracting dimensions: result[*batch, *lhs_free, *rhs_free]."""

    def result(self, x, y, *, dimension_numbers, precision, preferred_element_type):
        (lc, rc), (lb, rb) = dimension_numbers
        _check_dims("lhs", x, lc, lb)
        _check_dims("rhs", y, rc, rb)
        for kind, dims in (("contracting", (lc, rc)), ("batch", (lb, rb))):
            if len(dims[0]) != len(dims[1]):
                raise ShapeError(
                    f"dot_general {kind} dimensions",
                    expected="as many of lhs as of rhs",
                    got=dimension_numbers,
                    mend="write dimension_numbers as ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))",
                )
            for i, j in zip(*dims, strict=True):
                if x.shape[i] != y.shape[j]:
                    raise ShapeError(
                        f"dot_general {kind} dimensions {i} of lhs and {j} of rhs",
                        expected="equal sizes",
                        got=f"{x.shape[i]} of {x.str_short()} and {y.shape[j]} of {y.str_short()}",
                        mend="transpose or reshape one operand, or name other dimensions",
                    )
        layout = _Layout.of(x.ndim, y.ndim, dimension_numbers)
        shape = (
            *[x.shape[d] for d in lb],
            *[x.shape[d] for d in layout.lhs_free],
            *[y.shape[d] for d in layout.rhs_free],
        )
        return product_aval("dot_general", x, y, shape, preferred_element_type)

    def roles(self, x, y, *, dimension_numbers, precision, preferred_element_type):
        lc, rc, lb, rb, lhs_free, rhs_free = _Layout.of(x.ndim, y.ndim, dimension_numbers)
        lhs = {d: ("m", d) for d in lhs_free} | {d: ("b", i) for i, d in enumerate(lb)}
        rhs = {d: ("n", d) for d in rhs_free} | {d: ("b", i) for i, d in enumerate(rb)}
        contracted = [("k", i) for i in range(len(lc))]
        lhs |= dict(zip(lc, contracted, strict=True))
        rhs |= dict(zip(rc, contracted, strict=True))
        out = [lhs[d] for d in (*lb, *lhs_free)] + [rhs[d] for d in rhs_free]
        return Roles(
            [[lhs[d] for d in range(x.ndim)], [rhs[d] for d in range(y.ndim)]],
            [out],
            reduced=dict.fromkeys(contracted, "sum"),
        )

    def lower(self, ctx, x, y, *, dimension_numbers, precision, preferred_element_type):
        algorithm = None if precision is None else algorithm_attribute(precision, *ctx.avals_in)
        (x, y), _ = widened(ctx, (x, y), ctx.avals_in)
        product = hlo.dot_general(
            ctx.type(wide(ctx.aval_out)),
            x,
            y,
            _dimension_numbers(dimension_numbers),
            precision_config=precision_attribute(precision),
            algorithm=algorithm,
        )
        return narrowed(ctx, [product], ctx.avals_out)[0]

    jvp = BILINEAR

    def transpose(self, z_bar, x, y, *, dimension_numbers, precision, preferred_element_type):
        if is_linear(x):
            return _cotangent(z_bar, x, y, dimension_numbers, precision, swap=False), None
        (lc, rc), (lb, rb) = dimension_numbers
        mirrored = (rc, lc), (rb, lb)
        return None, _cotangent(z_bar, y, x, mirrored, swapped(precision), swap=True)

    def batch(self, x, y, bx, by, *, dimension_numbers, precision, preferred_element_type):
        (lc, rc), (lb, rb) = dimension_numbers
        lhs_free = [d for d in range(np.ndim(x) - (bx is not None)) if d not in lc and d not in lb]
        if bx is not None:
            lc, lb = skip_batch(lc, bx), skip_batch(lb, bx)
        if by is not None:
            rc, rb = skip_batch(rc, by), skip_batch(rb, by)
        if bx is not None and by is not None:
            lb, rb, out = (bx, *lb), (by, *rb), 0
        elif bx is not None:
            out = len(lb) + sum(d < bx for d in _free(np.ndim(x), lc, lb))
        else:
            out = len(lb) + len(lhs_free) + sum(d < by for d in _free(np.ndim(y), rc, rb))
        z = self(
            x,
            y,
            dimension_numbers=((lc, rc), (lb, rb)),
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
        return z, out


dot_general_p = DotGeneral()


@per_context
def _dimension_numbers(numbers: Any) -> Any:
    (lc, rc), (lb, rb) = numbers
    return hlo.DotDimensionNumbers.get(lb, rb, lc, rc)


def product_aval(where: str, x: ShapedArray, y: ShapedArray, shape: tuple, preferred: Any) -> ShapedArray:
    """The type of a sum of products of elements of `x` and `y`.

    Raises:
      DTypeError: the operands' dtypes do not mix, or the preferred type is of another kind.
    """
    if x.dtype != y.dtype and not (_is_float(x.dtype) and _is_float(y.dtype)):
        raise DTypeError(
            f"{where} operands",
            expected="equal dtypes, or two floating ones",
            got=f"{x.str_short()} and {y.str_short()}",
            mend="convert one operand with lax.convert_element_type",
        )
    if x.dtype != y.dtype and preferred is not None:
        return ShapedArray(shape, preferred, False)  # the two need no type in common then
    dtype = x.dtype if x.dtype == y.dtype else promotion.promote_types(x.dtype, y.dtype)
    if preferred is None or preferred == dtype:
        return ShapedArray(shape, dtype, x.weak_type and y.weak_type and preferred is None)
    integral = [dtypes.issubdtype(d, np.integer) or np.dtype(d).kind == "b" for d in (dtype, preferred)]
    if (integral[1] and not integral[0]) or (_is_complex(dtype) and not _is_complex(preferred)):
        raise DTypeError(
            f"{where} preferred_element_type",
            expected=f"a type that can hold sums of {dtypes.short_name(dtype)}",
            got=dtypes.short_name(preferred),
            mend="leave it out, and convert the result",
        )
    return ShapedArray(shape, preferred, False)


def _is_float(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.floating)


def _is_complex(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


def _check_dims(operand: str, x: ShapedArray, contracting: tuple, batch: tuple) -> None:
    dims = (*contracting, *batch)
    if len(set(dims)) != len(dims) or not all(0 <= d < x.ndim for d in dims):
        raise ShapeError(
            f"dot_general {operand} dimension numbers",
            expected=f"distinct dimensions in [0, {x.ndim}) of {x.str_short()}",
            got=f"contracting {contracting} and batch {batch}",
            mend="name each dimension once, counting from 0",
        )


@per_context
def algorithm_attribute(precision: CanonicalPrecision, x: ShapedArray, y: ShapedArray) -> Any:
    """The MLIR form of a dot algorithm, or None where the precision names none."""
    if precision is DotAlgorithmPreset.DEFAULT or not isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return None
    if isinstance(precision, DotAlgorithm):
        lhs, rhs, sums, *counts, imprecise = precision
    elif precision in _ANY_F8:
        in_f32, imprecise = _ANY_F8[precision]
        lhs, rhs, sums = x.dtype, y.dtype, np.float32 if in_f32 else x.dtype
        counts = [1, 1, 1]
    else:
        lhs, sums, parts, products = _PRESETS[precision]
        rhs, imprecise, counts = lhs, False, [parts, parts, products]
    types = [_algorithm_type(t) for t in (lhs, rhs, sums)]
    return hlo.DotAlgorithm.get(*types, *counts, imprecise)


def _algorithm_type(dtype: Any) -> Any:
    from phalanx.engine.mlir import dtype_to_ir

    return ir.FloatTF32Type.get() if isinstance(dtype, str) and dtype == "tf32" else dtype_to_ir(np.dtype(dtype))


def _free(ndim: int, *used: tuple) -> list[int]:
    return [d for d in range(ndim) if not any(d in dims for dims in used)]


@functools.lru_cache(maxsize=4096)
def _cotangent_plan(x_ndim: int, y_ndim: int, dimension_numbers: Any, swap: bool) -> tuple[Any, bool, tuple | None]:
    """How the cotangent of `x` is a product: its dimension numbers, whether `y` comes first, the transposition then.

    The operands come in the order that needs no transposition, where there is one.
    """
    xc, yc, xb, yb, x_free, y_free = _Layout.of(x_ndim, y_ndim, dimension_numbers)
    num_batch = len(xb)
    first = num_batch if swap else num_batch + len(x_free)
    z_free_y = tuple(range(first, first + len(y_free)))
    z_batch = tuple(range(num_batch))
    # The dimensions that are left of `y` are those contracted with `x`, in their order there.
    contracted = [xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]
    if (*xb, *contracted, *x_free) == tuple(range(x_ndim)) and x_free and contracted:
        return ((y_free, z_free_y), (yb, z_batch)), True, None
    order = (*xb, *x_free, *contracted)
    permutation = tuple(order.index(d) for d in range(x_ndim))
    return ((z_free_y, y_free), (z_batch, yb)), False, None if permutation == tuple(range(x_ndim)) else permutation


def _cotangent(z_bar: Any, x: Any, y: Any, dimension_numbers: Any, precision: Any, swap: bool) -> Any:
    """The cotangent of the linear operand `x`; with `swap`, `x` was the right operand."""
    numbers, y_first, permutation = _cotangent_plan(x.ndim, np.ndim(y), dimension_numbers, swap)
    x_bar = dot_general_p(
        *((y, z_bar) if y_first else (z_bar, y)),
        dimension_numbers=numbers,
        precision=swapped(precision) if y_first else precision,
        preferred_element_type=x.dtype,
    )
    return x_bar if permutation is None else transpose(x_bar, permutation)


_canonical_numbers: dict[Any, Any] = {}


def _canonical_dimension_numbers(numbers: Any) -> Any:
    try:
        return _canonical_numbers[numbers]
    except (KeyError, TypeError):
        (lc, rc), (lb, rb) = numbers
        found = ((tuple(map(int, lc)), tuple(map(int, rc))), (tuple(map(int, lb)), tuple(map(int, rb))))
        _canonical_numbers[found] = found
        return found


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Sum of products over chosen dimensions: the general form of matrix multiplication.

    Args:
      lhs: an array.
      rhs: an array of the same dtype, or any floating one if both are.
      dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, each a sequence of dimensions;
        the first pair is summed over, the second is shared with the result.
      precision: None, a `Precision`, a pair of them, a `DotAlgorithm`, a `DotAlgorithmPreset`, or a name of one.
      preferred_element_type: the dtype of sums and result; that of the operands when left out.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array whose dimensions are the batch dimensions, the rest of `lhs`, then the rest of `rhs`.

    Raises:
      ShapeError: dimensions that belong together differ in size, or a dimension number is out of range.
      DTypeError: the dtypes do not mix.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dot_general(np.ones((4, 2, 3)), np.ones((4, 3, 5)), (((2,), (1,)), ((0,), (0,)))).shape
      (4, 2, 5)
    """
    if out_sharding is not None:
        multiply = functools.partial(
            dot_general,
            dimension_numbers=dimension_numbers,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
        return laid_out(multiply, (lhs, rhs), out_sharding, "lax.dot_general, out_sharding")
    if preferred_element_type is not None:
        preferred_element_type = dtypes.canonicalize_dtype(preferred_element_type)
    return dot_general_p(
        lhs,
        rhs,
        dimension_numbers=_canonical_dimension_numbers(dimension_numbers),
        precision=canonical_precision(precision),
        preferred_element_type=preferred_element_type,
    )


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Product of vectors and matrices; with `dimension_numbers`, `dot_general`.

    Args:
      lhs: an array `num[n]` or `num[m, n]`.
      rhs: an array `num[n]` or `num[n, k]`.
      dimension_numbers, precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      The sum over the last dimension of `lhs` and the first of `rhs`.

    Raises:
      ShapeError: an operand is neither vector nor matrix, or the sizes differ.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> float(lax.dot(np.arange(3.0), np.ones(3)))
      3.0
    """
    if dimension_numbers is None:
        ndims = aval_of(lhs).ndim, aval_of(rhs).ndim
        for operand, ndim in zip(("lhs", "rhs"), ndims, strict=True):
            if ndim not in (1, 2):
                raise ShapeError(
                    f"lax.dot operand {operand}",
                    expected="a vector or a matrix",
                    got=f"an array of rank {ndim}",
                    mend="use lax.dot_general or numpy.matmul, which take batch dimensions",
                )
        dimension_numbers = (((ndims[0] - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs: Any, rhs: Any, precision: PrecisionLike = None) -> Any:
    """Matrix products over shared leading dimensions: num[*b, m, k], num[*b, k, n] -> num[*b, m, n].

    Args:
      lhs: an array of rank 2 or more.
      rhs: an array of the same rank and leading dimensions.
      precision: as in `dot_general`.

    Returns:
      The products.

    Raises:
      ShapeError: the ranks differ or are below 2, or sizes that belong together differ.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.batch_matmul(np.ones((4, 2, 3)), np.ones((4, 3, 5))).shape
      (4, 2, 5)
    """
    x, y = aval_of(lhs), aval_of(rhs)
    if x.ndim < 2 or x.ndim != y.ndim:
        raise ShapeError(
            "lax.batch_matmul operands",
            expected="two arrays of equal rank, at least 2",
            got=f"{x.str_short()} and {y.str_short()}",
            mend="broadcast the leading dimensions, or use numpy.matmul",
        )
    batch = tuple(range(x.ndim - 2))
    return dot_general(lhs, rhs, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)
