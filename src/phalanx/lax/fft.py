"""Discrete Fourier transforms of one to three dimensions: `fft`.

Builds on the primitive core; called by `phalanx.numpy.fft` and `phalanx.scipy.fft`, which add more dimensions,
normalisation and other lengths.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes, promotion
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, DTypeError, RuleError, ShapeError
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import mul
from phalanx.lax.broadcast import broadcast_in_dim, dim_names, move_dim
from phalanx.lax.convert import convert_element_type
from phalanx.lax.parts import conj, real
from phalanx.lax.slicing import pad
from phalanx.symbolic import is_constant_shape


class FftType(enum.Enum):
    """The kind of a Fourier transform: of complex numbers, its inverse, of real numbers, its inverse.

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
    """The transform over the last `len(fft_lengths)` dimensions."""

    by_pieces = True

    def result(self, x, *, fft_type, fft_lengths):
        num = len(fft_lengths)
        if not 1 <= num <= 3 or x.ndim < num:
            raise ShapeError(
                "lax.fft",
                expected="1 to 3 lengths, and an operand of at least that rank",
                got=f"lengths {fft_lengths} for {x.str_short()}",
                mend="transform in several steps",
            )
        is_real = dtypes.issubdtype(x.dtype, np.floating)
        if is_real != (fft_type is FftType.RFFT) or x.dtype not in _PARTNER:
            wanted = "f32 or f64" if fft_type is FftType.RFFT else "complex64 or complex128"
            raise DTypeError(
                "lax.fft operand",
                expected=f"{wanted} for {fft_type}",
                got=x.str_short(),
                mend="convert it with lax.convert_element_type",
            )
        inner, wanted = x.shape[-num:], fft_lengths
        half = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
        if fft_type is FftType.IRFFT:
            wanted = half
        if tuple(inner) != tuple(wanted):
            raise ShapeError(
                "lax.fft operand",
                expected=f"last dimensions {tuple(wanted)} for {fft_type} of lengths {fft_lengths}",
                got=x.str_short(),
                mend="pad or slice the operand",
            )
        shape = (*x.shape[:-num], *(half if fft_type is FftType.RFFT else fft_lengths))
        dtype = x.dtype if fft_type in (FftType.FFT, FftType.IFFT) else _PARTNER[x.dtype]
        return ShapedArray(shape, dtype)

    def roles(self, x, *, fft_type, fft_lengths):
        names = dim_names(x.ndim)
        num = len(fft_lengths)
        out = [*names[:-num], *(f"frequency {n}" for n in names[-num:])]
        turned = {n: (f,) for n, f in zip(names[-num:], out[-num:], strict=True)} if num else {}
        return Roles([names], [out], whole={*names[-num:], *out[-num:]}, resized=turned)

    def lower(self, ctx, x, *, fft_type, fft_lengths):
        if not is_constant_shape(fft_lengths):
            raise RuleError(
                "lowering of lax.fft",
                expected="lengths that are numbers, since StableHLO writes them into the program",
                got=f"lengths {fft_lengths}",
                mend="export it for each length, or keep only the other dimensions symbolic",
            )
        return hlo.fft(x, hlo.FftTypeAttr.get(fft_type.name), list(fft_lengths))

    jvp = LINEAR

    def transpose(self, y_bar, x, *, fft_type, fft_lengths):
        if fft_type in (FftType.FFT, FftType.IFFT):
            return (self(y_bar, fft_type=fft_type, fft_lengths=fft_lengths),)  # a symmetric matrix
        if fft_type is FftType.RFFT:
            missing = fft_lengths[-1] - np.shape(y_bar)[-1]
            config = [(0, 0, 0)] * (x.ndim - 1) + [(0, missing, 0)]
            whole = pad(y_bar, y_bar.dtype.type(0), config)
            return (real(self(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths)),)
        # All frequencies but the first, and the last of an even length, stand for two in the real result.
        spectrum = conj(self(y_bar, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
        weights = np.full(x.shape[-1], 2.0)
        weights[0] = 1.0
        if fft_lengths[-1] % 2 == 0:
            weights[-1] = 1.0
        weights = (weights / np.prod(fft_lengths)).astype(x.dtype)
        return (mul(spectrum, broadcast_in_dim(weights, x.shape, (x.ndim - 1,))),)

    def batch(self, x, b, *, fft_type, fft_lengths):
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


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Discrete Fourier transform over the last one to three dimensions, not normalised (the inverses are).

    Args:
      x: the array; real for RFFT, of a complex dtype (or converted to it) otherwise.
      fft_type: an `FftType` or its name.
      fft_lengths: the lengths of the transform; for RFFT and IRFFT those of the real side.

    Returns:
      The transform: complex of last dimension `n // 2 + 1` for RFFT, real of last dimension `n` for IRFFT.

    Raises:
      ShapeError: the lengths do not fit the operand.
      DTypeError: the operand is complex for RFFT, or of a dtype without transforms.
      ArgumentError: there is no such type.

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
                mend="use one of these",
            )
        fft_type = FftType[name]
    dtype = aval_of(x).dtype
    if fft_type is FftType.RFFT:
        if dtypes.issubdtype(dtype, np.integer) or dtype == np.dtype(bool):
            x = convert_element_type(x, dtypes.canonicalize_dtype(np.float64))
    elif not dtypes.issubdtype(dtype, np.complexfloating):
        x = convert_element_type(x, promotion.promote_types(dtype, np.complex64))
    return fft_p(x, fft_type=fft_type, fft_lengths=tuple(fft_lengths))
