"""Discrete Fourier transforms of one to three dimensions: `fft`.

Called by `phalanx.numpy.fft`, which adds further dimensions, normalization and padding.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    ArgumentError,
    DTypeError,
    Primitive,
    RuleError,
    ShapedArray,
    ShapeError,
    ShardingRule,
    dtypes,
    get_aval,
    promotion,
)
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import conj, convert_element_type, mul, real
from phalanx.lax.indexing.static_slice import pad
from phalanx.lax.shape import broadcast_in_dim, dim_names, move_dim
from phalanx.symbolic import is_constant_shape
from phalanx.typing import ArrayLike


class FftType(enum.Enum):
    """The kinds of Fourier transforms: of complex numbers and its inverse, of real numbers and its inverse.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.fft(jnp.ones(4), lax.FftType.RFFT, (4,)).shape
      (3,)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3

    def __str__(self) -> str:
        return self.name


class Fft(Primitive, name="fft"):
    """Transform the last `len(fft_lengths)` dimensions."""

    def abstract_eval(self, x, *, fft_type, fft_lengths):
        num = len(fft_lengths)
        # XLA's operation has at most three dimensions; `numpy.fft` transforms further ones by further calls.
        if not 1 <= num <= 3 or x.ndim < num:
            raise ShapeError(
                "lax.fft",
                expected="1 to 3 lengths, and an operand of at least that rank",
                got=f"lengths {fft_lengths} for {x.str_short()}",
                fix="transform at most 3 dimensions in one call",
            )
        if dtypes.issubdtype(x.dtype, np.floating) != (fft_type is FftType.RFFT) or x.dtype not in _PARTNER:
            wanted = "f32 or f64" if fft_type is FftType.RFFT else "complex64 or complex128"
            raise DTypeError(
                "lax.fft operand",
                expected=f"{wanted} for {fft_type}",
                got=x.str_short(),
                fix=f"convert the operand to {wanted} with lax.convert_element_type",
            )
        half = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
        wanted = half if fft_type is FftType.IRFFT else fft_lengths
        if x.shape[-num:] != tuple(wanted):
            raise ShapeError(
                "lax.fft operand",
                expected=f"last dimensions {tuple(wanted)} for {fft_type} of lengths {fft_lengths}",
                got=x.str_short(),
                fix=f"pad or slice the last dimensions of the operand to {tuple(wanted)}",
            )
        shape = (*x.shape[:-num], *(half if fft_type is FftType.RFFT else fft_lengths))
        dtype = x.dtype if fft_type in (FftType.FFT, FftType.IFFT) else _PARTNER[x.dtype]
        return ShapedArray(shape, dtype)

    def sharding_rule(self, x, *, fft_type, fft_lengths):
        names = dim_names(x.ndim)
        num = len(fft_lengths)
        out = [*names[:-num], *(f"frequency {n}" for n in names[-num:])]
        turned = {n: (f,) for n, f in zip(names[-num:], out[-num:], strict=True)} if num else {}
        return ShardingRule([names], [out], whole={*names[-num:], *out[-num:]}, resized=turned)

    def lower(self, ctx, x, *, fft_type, fft_lengths):
        if not is_constant_shape(fft_lengths):
            raise RuleError(
                "lowering of lax.fft",
                expected="lengths that are integers, since they are attributes in StableHLO",
                got=f"lengths {fft_lengths}",
                fix="export the program for each length, or make only the other dimensions symbolic",
            )
        return hlo.fft(x, hlo.FftTypeAttr.get(fft_type.name), list(fft_lengths))

    jvp = LINEAR

    def transpose(self, y_bar, x, *, fft_type, fft_lengths):
        if fft_type in (FftType.FFT, FftType.IFFT):
            # The transform is a symmetric matrix, equal to its transpose.
            return (self(y_bar, fft_type=fft_type, fft_lengths=fft_lengths),)  # a symmetric matrix
        # The transpose of RFFT is a complex transform of the cotangent, padded with zeros for the frequencies that RFFT
        # omits.
        if fft_type is FftType.RFFT:
            missing = fft_lengths[-1] - np.shape(y_bar)[-1]
            whole = pad(y_bar, y_bar.dtype.type(0), [(0, 0, 0)] * (x.ndim - 1) + [(0, missing, 0)])
            return (real(self(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths)),)
        # In the real result each frequency counts twice, except the first, and the last of an even length.
        spectrum = conj(self(y_bar, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
        weights = np.full(x.shape[-1], 2.0)
        weights[0] = 1.0
        if fft_lengths[-1] % 2 == 0:
            weights[-1] = 1.0
        weights = (weights / np.prod(fft_lengths)).astype(x.dtype)
        return (mul(spectrum, broadcast_in_dim(weights, x.shape, (x.ndim - 1,))),)

    def batch(self, x, b, *, fft_type, fft_lengths):
        # The transformed dimensions are the last ones, so that a mapped dimension among them moves to the front.
        if b >= np.ndim(x) - len(fft_lengths):
            x, b = move_dim(x, b, 0), 0
        return self(x, fft_type=fft_type, fft_lengths=fft_lengths), b


fft_p = Fft()

_PARTNER = {
    np.dtype("float32"): np.dtype("complex64"),
    np.dtype("float64"): np.dtype("complex128"),
    np.dtype("complex64"): np.dtype("float32"),
    np.dtype("complex128"): np.dtype("float64"),
}


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Discrete Fourier transform of the last one to three dimensions; only the inverse transforms are normalized.

    Args:
      x: the array; real for RFFT, converted to a complex dtype otherwise.
      fft_type: an `FftType` or its name.
      fft_lengths: the lengths of the transform; for RFFT and IRFFT the lengths of the real side.

    Returns:
      The transform; its last dimension is `n // 2 + 1` for RFFT, `n` otherwise.

    Raises:
      ShapeError: the lengths differ from the dimensions of the operand.
      DTypeError: the operand is complex for RFFT, or its dtype has no transform.
      ArgumentError: `fft_type` is unknown.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.fft(np.ones(4, np.float32), "RFFT", (4,)).tolist()
      [(4+0j), 0j, 0j]
    """
    if type(fft_type) is not FftType:
        name = fft_type.upper() if isinstance(fft_type, str) else None
        if name not in FftType.__members__:
            raise ArgumentError(
                "lax.fft fft_type",
                expected="'FFT', 'IFFT', 'RFFT', 'IRFFT' or a FftType",
                got=repr(fft_type),
                fix="pass for example 'RFFT' or lax.FftType.RFFT",
            )
        fft_type = FftType[name]
    dtype = get_aval(x).dtype
    if fft_type is FftType.RFFT:
        if dtypes.issubdtype(dtype, np.integer) or dtype == np.dtype(bool):
            x = convert_element_type(x, dtypes.canonicalize_dtype(np.float64))
    elif not dtypes.issubdtype(dtype, np.complexfloating):
        x = convert_element_type(x, promotion.join_dtypes(dtype, np.complex64))
    return fft_p(x, fft_type=fft_type, fft_lengths=tuple(fft_lengths))
