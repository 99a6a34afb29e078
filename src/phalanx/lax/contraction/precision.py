"""Precision of contractions: `Precision`, `DotAlgorithm` and `DotAlgorithmPreset`."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, ShapedArray, current_scope
from phalanx.engine.mlir import cached_per_context, dtype_to_ir, hlo, ir


class Precision(enum.Enum):
    """The precision of a product of float32 operands on accelerators with several matrix units.

    `DEFAULT` is the fastest, `HIGHEST` the most accurate; on the CPU they are the same. A `precision` argument also
    accepts the names `"default"`, `"high"` and `"highest"`, and a pair with one precision for each operand.

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
    """The arithmetic of a product, on backends that offer a choice.

    Args:
      lhs_precision_type: the dtype to which elements of the left operand are rounded.
      rhs_precision_type: the same for the right operand.
      accumulation_type: the dtype of accumulation.
      lhs_component_count: the number of parts into which each left element is split.
      rhs_component_count: the same for the right operand.
      num_primitive_operations: the number of products of parts to sum.
      allow_imprecise_accumulation: whether partial sums may be rounded to a lower precision.

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
    """Named dot algorithms: the dtypes of the left operand, the right operand and the sums, and the number of products.

    `DEFAULT` leaves the choice to the compiler. A `precision` argument also accepts a preset or its name.

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


# The dtype of the operands, the dtype of the sums, the number of parts of an element, the number of products.
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


# Names of the three levels, including older ones of JAX.
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


def canonicalize_precision(precision: PrecisionLike) -> CanonicalPrecision:
    """Canonicalize a `precision` argument to None, a pair of `Precision`, an algorithm or a preset.

    Args:
      precision: the argument; None for the option `default_matmul_precision`.

    Returns:
      The canonical form.

    Raises:
      ArgumentError: the argument is not a precision.
    """
    # The option applies where no precision is given; it is part of the key of compiled programs.
    if precision is None:
        precision = current_scope().context.default_matmul_precision
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
        fix="pass precision='highest' or lax.Precision.HIGHEST",
    )


def swap_precision(precision: CanonicalPrecision) -> CanonicalPrecision:
    """Return the precision of the product with exchanged operands."""
    if isinstance(precision, DotAlgorithm):
        return precision._replace(
            lhs_precision_type=precision.rhs_precision_type,
            rhs_precision_type=precision.lhs_precision_type,
            lhs_component_count=precision.rhs_component_count,
            rhs_component_count=precision.lhs_component_count,
        )
    return precision[::-1] if isinstance(precision, tuple) else precision


@cached_per_context
def precision_attribute(precision: CanonicalPrecision) -> Any:
    """Return the MLIR attribute of a pair of precisions; None for an algorithm, which is another attribute."""
    if precision is None or isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return None
    return ir.ArrayAttr.get([hlo.PrecisionAttr.get(p.name) for p in precision])


# XLA's CPU compiler ignores an algorithm. These are as exact as the products that it computes, or less.
_ON_CPU = {
    DotAlgorithmPreset.DEFAULT,
    DotAlgorithmPreset.F16_F16_F16,
    DotAlgorithmPreset.BF16_BF16_F32,
    DotAlgorithmPreset.BF16_BF16_F32_X3,
    DotAlgorithmPreset.BF16_BF16_F32_X6,
    DotAlgorithmPreset.F32_F32_F32,
    DotAlgorithmPreset.F64_F64_F64,
}


def check_algorithm(precision: CanonicalPrecision, platform: str) -> None:
    """Raise an `ArgumentError` if a platform does not have a dot algorithm."""
    if platform == "cpu" and isinstance(precision, DotAlgorithm | DotAlgorithmPreset) and precision not in _ON_CPU:
        raise ArgumentError(
            "precision",
            expected=f"an algorithm of the CPU: {', '.join(sorted(map(str, _ON_CPU)))}",
            got=str(precision),
            fix="leave precision out, or lower the program for a platform that has the algorithm",
        )


@cached_per_context
def algorithm_attribute(precision: CanonicalPrecision, x: ShapedArray, y: ShapedArray) -> Any:
    """Return the MLIR attribute of a dot algorithm; None if the precision is not an algorithm."""
    if precision is DotAlgorithmPreset.DEFAULT or not isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        return None
    if isinstance(precision, DotAlgorithm):
        lhs, rhs, sums, *counts, imprecise = precision
    elif precision in _ANY_F8:
        in_f32, imprecise = _ANY_F8[precision]
        lhs, rhs, sums = x.dtype, y.dtype, np.float32 if in_f32 else x.dtype
        counts = [1, 1, 1]
    else:
        # Both operands have the same dtype and number of parts in these presets.
        lhs, sums, parts, products = _PRESETS[precision]
        rhs, imprecise, counts = lhs, False, [parts, parts, products]
    return hlo.DotAlgorithm.get(*map(_algorithm_type, (lhs, rhs, sums)), *counts, imprecise)


def _algorithm_type(dtype: np.dtype) -> Any:
    return ir.FloatTF32Type.get() if isinstance(dtype, str) and dtype == "tf32" else dtype_to_ir(np.dtype(dtype))
