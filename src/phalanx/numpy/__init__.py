"""Array programming with the names of NumPy: the face of the room.

Each function works on concrete arrays at once and inside every transformation. Elementwise functions are tables
(`ufuncs`), all others live in files named by what they do; what is rarely used is loaded at its first use.
Builds on `lax`; importing it gives arrays and tracers their operators.
"""

from __future__ import annotations

import importlib
from typing import Any

from phalanx.engine.frames import guard as _guard
from phalanx.numpy import operators as _operators  # noqa: F401
from phalanx.numpy import ufunc_methods as _ufunc_methods  # noqa: F401
from phalanx.numpy.comparisons import allclose as allclose
from phalanx.numpy.comparisons import array_equal as array_equal
from phalanx.numpy.comparisons import array_equiv as array_equiv
from phalanx.numpy.comparisons import isclose as isclose
from phalanx.numpy.contraction import convolve as convolve
from phalanx.numpy.contraction import correlate as correlate
from phalanx.numpy.contraction import cross as cross
from phalanx.numpy.contraction import dot as dot
from phalanx.numpy.contraction import inner as inner
from phalanx.numpy.contraction import kron as kron
from phalanx.numpy.contraction import matmul as matmul
from phalanx.numpy.contraction import matvec as matvec
from phalanx.numpy.contraction import outer as outer
from phalanx.numpy.contraction import tensordot as tensordot
from phalanx.numpy.contraction import vdot as vdot
from phalanx.numpy.contraction import vecdot as vecdot
from phalanx.numpy.contraction import vecmat as vecmat
from phalanx.numpy.creation import array as array
from phalanx.numpy.creation import asarray as asarray
from phalanx.numpy.creation import astype as astype
from phalanx.numpy.creation import copy as copy
from phalanx.numpy.creation import empty as empty
from phalanx.numpy.creation import empty_like as empty_like
from phalanx.numpy.creation import eye as eye
from phalanx.numpy.creation import from_dlpack as from_dlpack
from phalanx.numpy.creation import full as full
from phalanx.numpy.creation import full_like as full_like
from phalanx.numpy.creation import identity as identity
from phalanx.numpy.creation import ones as ones
from phalanx.numpy.creation import ones_like as ones_like
from phalanx.numpy.creation import tri as tri
from phalanx.numpy.creation import zeros as zeros
from phalanx.numpy.creation import zeros_like as zeros_like
from phalanx.numpy.diagonals import diag as diag
from phalanx.numpy.diagonals import diagflat as diagflat
from phalanx.numpy.diagonals import diagonal as diagonal
from phalanx.numpy.diagonals import fill_diagonal as fill_diagonal
from phalanx.numpy.diagonals import trace as trace
from phalanx.numpy.diagonals import tril as tril
from phalanx.numpy.diagonals import triu as triu
from phalanx.numpy.dtype_names import ComplexWarning as ComplexWarning
from phalanx.numpy.dtype_names import bfloat16 as bfloat16
from phalanx.numpy.dtype_names import bool_ as bool  # noqa: F401
from phalanx.numpy.dtype_names import bool_ as bool_
from phalanx.numpy.dtype_names import can_cast as can_cast
from phalanx.numpy.dtype_names import cdouble as cdouble
from phalanx.numpy.dtype_names import character as character
from phalanx.numpy.dtype_names import complex64 as complex64
from phalanx.numpy.dtype_names import complex128 as complex128
from phalanx.numpy.dtype_names import complex_ as complex_
from phalanx.numpy.dtype_names import complexfloating as complexfloating
from phalanx.numpy.dtype_names import csingle as csingle
from phalanx.numpy.dtype_names import double as double
from phalanx.numpy.dtype_names import dtype as dtype
from phalanx.numpy.dtype_names import e as e
from phalanx.numpy.dtype_names import euler_gamma as euler_gamma
from phalanx.numpy.dtype_names import finfo as finfo
from phalanx.numpy.dtype_names import flexible as flexible
from phalanx.numpy.dtype_names import float4_e2m1fn as float4_e2m1fn
from phalanx.numpy.dtype_names import float8_e3m4 as float8_e3m4
from phalanx.numpy.dtype_names import float8_e4m3 as float8_e4m3
from phalanx.numpy.dtype_names import float8_e4m3b11fnuz as float8_e4m3b11fnuz
from phalanx.numpy.dtype_names import float8_e4m3fn as float8_e4m3fn
from phalanx.numpy.dtype_names import float8_e4m3fnuz as float8_e4m3fnuz
from phalanx.numpy.dtype_names import float8_e5m2 as float8_e5m2
from phalanx.numpy.dtype_names import float8_e5m2fnuz as float8_e5m2fnuz
from phalanx.numpy.dtype_names import float8_e8m0fnu as float8_e8m0fnu
from phalanx.numpy.dtype_names import float16 as float16
from phalanx.numpy.dtype_names import float32 as float32
from phalanx.numpy.dtype_names import float64 as float64
from phalanx.numpy.dtype_names import float_ as float_
from phalanx.numpy.dtype_names import floating as floating
from phalanx.numpy.dtype_names import generic as generic
from phalanx.numpy.dtype_names import get_printoptions as get_printoptions
from phalanx.numpy.dtype_names import iinfo as iinfo
from phalanx.numpy.dtype_names import inexact as inexact
from phalanx.numpy.dtype_names import inf as inf
from phalanx.numpy.dtype_names import int2 as int2
from phalanx.numpy.dtype_names import int4 as int4
from phalanx.numpy.dtype_names import int8 as int8
from phalanx.numpy.dtype_names import int16 as int16
from phalanx.numpy.dtype_names import int32 as int32
from phalanx.numpy.dtype_names import int64 as int64
from phalanx.numpy.dtype_names import int_ as int_
from phalanx.numpy.dtype_names import integer as integer
from phalanx.numpy.dtype_names import isdtype as isdtype
from phalanx.numpy.dtype_names import issubdtype as issubdtype
from phalanx.numpy.dtype_names import nan as nan
from phalanx.numpy.dtype_names import newaxis as newaxis
from phalanx.numpy.dtype_names import number as number
from phalanx.numpy.dtype_names import object_ as object_
from phalanx.numpy.dtype_names import pi as pi
from phalanx.numpy.dtype_names import printoptions as printoptions
from phalanx.numpy.dtype_names import promote_types as promote_types
from phalanx.numpy.dtype_names import result_type as result_type
from phalanx.numpy.dtype_names import set_printoptions as set_printoptions
from phalanx.numpy.dtype_names import signedinteger as signedinteger
from phalanx.numpy.dtype_names import single as single
from phalanx.numpy.dtype_names import uint as uint
from phalanx.numpy.dtype_names import uint2 as uint2
from phalanx.numpy.dtype_names import uint4 as uint4
from phalanx.numpy.dtype_names import uint8 as uint8
from phalanx.numpy.dtype_names import uint16 as uint16
from phalanx.numpy.dtype_names import uint32 as uint32
from phalanx.numpy.dtype_names import uint64 as uint64
from phalanx.numpy.dtype_names import unsignedinteger as unsignedinteger
from phalanx.numpy.einsums import einsum as einsum
from phalanx.numpy.einsums import einsum_path as einsum_path
from phalanx.numpy.index_grids import diag_indices as diag_indices
from phalanx.numpy.index_grids import diag_indices_from as diag_indices_from
from phalanx.numpy.index_grids import indices as indices
from phalanx.numpy.index_grids import ix_ as ix_
from phalanx.numpy.index_grids import mask_indices as mask_indices
from phalanx.numpy.index_grids import ravel_multi_index as ravel_multi_index
from phalanx.numpy.index_grids import tril_indices as tril_indices
from phalanx.numpy.index_grids import tril_indices_from as tril_indices_from
from phalanx.numpy.index_grids import triu_indices as triu_indices
from phalanx.numpy.index_grids import triu_indices_from as triu_indices_from
from phalanx.numpy.index_grids import unravel_index as unravel_index
from phalanx.numpy.inspection import iscomplexobj as iscomplexobj
from phalanx.numpy.inspection import isrealobj as isrealobj
from phalanx.numpy.inspection import isscalar as isscalar
from phalanx.numpy.inspection import iterable as iterable
from phalanx.numpy.inspection import ndim as ndim
from phalanx.numpy.inspection import shape as shape
from phalanx.numpy.inspection import size as size
from phalanx.numpy.joining import append as append
from phalanx.numpy.joining import array_split as array_split
from phalanx.numpy.joining import block as block
from phalanx.numpy.joining import column_stack as column_stack
from phalanx.numpy.joining import concat as concat
from phalanx.numpy.joining import concatenate as concatenate
from phalanx.numpy.joining import delete as delete
from phalanx.numpy.joining import dsplit as dsplit
from phalanx.numpy.joining import dstack as dstack
from phalanx.numpy.joining import hsplit as hsplit
from phalanx.numpy.joining import hstack as hstack
from phalanx.numpy.joining import insert as insert
from phalanx.numpy.joining import split as split
from phalanx.numpy.joining import stack as stack
from phalanx.numpy.joining import unstack as unstack
from phalanx.numpy.joining import vsplit as vsplit
from phalanx.numpy.joining import vstack as vstack
from phalanx.numpy.mapping import apply_along_axis as apply_along_axis
from phalanx.numpy.mapping import apply_over_axes as apply_over_axes
from phalanx.numpy.mapping import frompyfunc as frompyfunc
from phalanx.numpy.mapping import piecewise as piecewise
from phalanx.numpy.mapping import select as select
from phalanx.numpy.mapping import ufunc as ufunc
from phalanx.numpy.mapping import vectorize as vectorize
from phalanx.numpy.mapping import where as where
from phalanx.numpy.operands import broadcast_shapes as broadcast_shapes
from phalanx.numpy.ranges import arange as arange
from phalanx.numpy.ranges import geomspace as geomspace
from phalanx.numpy.ranges import linspace as linspace
from phalanx.numpy.ranges import logspace as logspace
from phalanx.numpy.reductions import all as all
from phalanx.numpy.reductions import amax as amax
from phalanx.numpy.reductions import amin as amin
from phalanx.numpy.reductions import any as any
from phalanx.numpy.reductions import argmax as argmax
from phalanx.numpy.reductions import argmin as argmin
from phalanx.numpy.reductions import average as average
from phalanx.numpy.reductions import count_nonzero as count_nonzero
from phalanx.numpy.reductions import cumprod as cumprod
from phalanx.numpy.reductions import cumsum as cumsum
from phalanx.numpy.reductions import cumulative_prod as cumulative_prod
from phalanx.numpy.reductions import cumulative_sum as cumulative_sum
from phalanx.numpy.reductions import max as max
from phalanx.numpy.reductions import mean as mean
from phalanx.numpy.reductions import min as min
from phalanx.numpy.reductions import minmax as minmax
from phalanx.numpy.reductions import prod as prod
from phalanx.numpy.reductions import ptp as ptp
from phalanx.numpy.reductions import std as std
from phalanx.numpy.reductions import sum as sum
from phalanx.numpy.reductions import var as var
from phalanx.numpy.repeating import repeat as repeat
from phalanx.numpy.rounding import around as around
from phalanx.numpy.rounding import clip as clip
from phalanx.numpy.rounding import nan_to_num as nan_to_num
from phalanx.numpy.rounding import round as round
from phalanx.numpy.shapes import atleast_1d as atleast_1d
from phalanx.numpy.shapes import atleast_2d as atleast_2d
from phalanx.numpy.shapes import atleast_3d as atleast_3d
from phalanx.numpy.shapes import broadcast_arrays as broadcast_arrays
from phalanx.numpy.shapes import broadcast_to as broadcast_to
from phalanx.numpy.shapes import expand_dims as expand_dims
from phalanx.numpy.shapes import flip as flip
from phalanx.numpy.shapes import fliplr as fliplr
from phalanx.numpy.shapes import flipud as flipud
from phalanx.numpy.shapes import matrix_transpose as matrix_transpose
from phalanx.numpy.shapes import moveaxis as moveaxis
from phalanx.numpy.shapes import permute_dims as permute_dims
from phalanx.numpy.shapes import ravel as ravel
from phalanx.numpy.shapes import reshape as reshape
from phalanx.numpy.shapes import resize as resize
from phalanx.numpy.shapes import roll as roll
from phalanx.numpy.shapes import rollaxis as rollaxis
from phalanx.numpy.shapes import rot90 as rot90
from phalanx.numpy.shapes import squeeze as squeeze
from phalanx.numpy.shapes import swapaxes as swapaxes
from phalanx.numpy.shapes import tile as tile
from phalanx.numpy.shapes import transpose as transpose
from phalanx.numpy.shapes import trim_zeros as trim_zeros
from phalanx.numpy.sorting import argpartition as argpartition
from phalanx.numpy.sorting import argsort as argsort
from phalanx.numpy.sorting import digitize as digitize
from phalanx.numpy.sorting import lexsort as lexsort
from phalanx.numpy.sorting import partition as partition
from phalanx.numpy.sorting import searchsorted as searchsorted
from phalanx.numpy.sorting import sort as sort
from phalanx.numpy.sorting import sort_complex as sort_complex
from phalanx.numpy.sorting import top_k as top_k
from phalanx.numpy.taking import argwhere as argwhere
from phalanx.numpy.taking import choose as choose
from phalanx.numpy.taking import compress as compress
from phalanx.numpy.taking import extract as extract
from phalanx.numpy.taking import flatnonzero as flatnonzero
from phalanx.numpy.taking import nonzero as nonzero
from phalanx.numpy.taking import place as place
from phalanx.numpy.taking import put as put
from phalanx.numpy.taking import put_along_axis as put_along_axis
from phalanx.numpy.taking import take as take
from phalanx.numpy.taking import take_along_axis as take_along_axis
from phalanx.numpy.ufuncs import abs as abs
from phalanx.numpy.ufuncs import absolute as absolute
from phalanx.numpy.ufuncs import acos as acos
from phalanx.numpy.ufuncs import acosh as acosh
from phalanx.numpy.ufuncs import add as add
from phalanx.numpy.ufuncs import angle as angle
from phalanx.numpy.ufuncs import arccos as arccos
from phalanx.numpy.ufuncs import arccosh as arccosh
from phalanx.numpy.ufuncs import arcsin as arcsin
from phalanx.numpy.ufuncs import arcsinh as arcsinh
from phalanx.numpy.ufuncs import arctan as arctan
from phalanx.numpy.ufuncs import arctan2 as arctan2
from phalanx.numpy.ufuncs import arctanh as arctanh
from phalanx.numpy.ufuncs import asin as asin
from phalanx.numpy.ufuncs import asinh as asinh
from phalanx.numpy.ufuncs import atan as atan
from phalanx.numpy.ufuncs import atan2 as atan2
from phalanx.numpy.ufuncs import atanh as atanh
from phalanx.numpy.ufuncs import bitwise_and as bitwise_and
from phalanx.numpy.ufuncs import bitwise_count as bitwise_count
from phalanx.numpy.ufuncs import bitwise_invert as bitwise_invert
from phalanx.numpy.ufuncs import bitwise_left_shift as bitwise_left_shift
from phalanx.numpy.ufuncs import bitwise_not as bitwise_not
from phalanx.numpy.ufuncs import bitwise_or as bitwise_or
from phalanx.numpy.ufuncs import bitwise_right_shift as bitwise_right_shift
from phalanx.numpy.ufuncs import bitwise_xor as bitwise_xor
from phalanx.numpy.ufuncs import cbrt as cbrt
from phalanx.numpy.ufuncs import ceil as ceil
from phalanx.numpy.ufuncs import conj as conj
from phalanx.numpy.ufuncs import conjugate as conjugate
from phalanx.numpy.ufuncs import copysign as copysign
from phalanx.numpy.ufuncs import cos as cos
from phalanx.numpy.ufuncs import cosh as cosh
from phalanx.numpy.ufuncs import deg2rad as deg2rad
from phalanx.numpy.ufuncs import degrees as degrees
from phalanx.numpy.ufuncs import divide as divide
from phalanx.numpy.ufuncs import divmod as divmod
from phalanx.numpy.ufuncs import equal as equal
from phalanx.numpy.ufuncs import exp as exp
from phalanx.numpy.ufuncs import exp2 as exp2
from phalanx.numpy.ufuncs import expm1 as expm1
from phalanx.numpy.ufuncs import fabs as fabs
from phalanx.numpy.ufuncs import float_power as float_power
from phalanx.numpy.ufuncs import floor as floor
from phalanx.numpy.ufuncs import floor_divide as floor_divide
from phalanx.numpy.ufuncs import fmax as fmax
from phalanx.numpy.ufuncs import fmin as fmin
from phalanx.numpy.ufuncs import fmod as fmod
from phalanx.numpy.ufuncs import frexp as frexp
from phalanx.numpy.ufuncs import gcd as gcd
from phalanx.numpy.ufuncs import greater as greater
from phalanx.numpy.ufuncs import greater_equal as greater_equal
from phalanx.numpy.ufuncs import heaviside as heaviside
from phalanx.numpy.ufuncs import hypot as hypot
from phalanx.numpy.ufuncs import i0 as i0
from phalanx.numpy.ufuncs import imag as imag
from phalanx.numpy.ufuncs import invert as invert
from phalanx.numpy.ufuncs import iscomplex as iscomplex
from phalanx.numpy.ufuncs import isfinite as isfinite
from phalanx.numpy.ufuncs import isinf as isinf
from phalanx.numpy.ufuncs import isnan as isnan
from phalanx.numpy.ufuncs import isneginf as isneginf
from phalanx.numpy.ufuncs import isposinf as isposinf
from phalanx.numpy.ufuncs import isreal as isreal
from phalanx.numpy.ufuncs import lcm as lcm
from phalanx.numpy.ufuncs import ldexp as ldexp
from phalanx.numpy.ufuncs import left_shift as left_shift
from phalanx.numpy.ufuncs import less as less
from phalanx.numpy.ufuncs import less_equal as less_equal
from phalanx.numpy.ufuncs import log as log
from phalanx.numpy.ufuncs import log1p as log1p
from phalanx.numpy.ufuncs import log2 as log2
from phalanx.numpy.ufuncs import log10 as log10
from phalanx.numpy.ufuncs import logaddexp as logaddexp
from phalanx.numpy.ufuncs import logaddexp2 as logaddexp2
from phalanx.numpy.ufuncs import logical_and as logical_and
from phalanx.numpy.ufuncs import logical_not as logical_not
from phalanx.numpy.ufuncs import logical_or as logical_or
from phalanx.numpy.ufuncs import logical_xor as logical_xor
from phalanx.numpy.ufuncs import maximum as maximum
from phalanx.numpy.ufuncs import minimum as minimum
from phalanx.numpy.ufuncs import mod as mod
from phalanx.numpy.ufuncs import modf as modf
from phalanx.numpy.ufuncs import multiply as multiply
from phalanx.numpy.ufuncs import negative as negative
from phalanx.numpy.ufuncs import nextafter as nextafter
from phalanx.numpy.ufuncs import not_equal as not_equal
from phalanx.numpy.ufuncs import positive as positive
from phalanx.numpy.ufuncs import pow as pow
from phalanx.numpy.ufuncs import power as power
from phalanx.numpy.ufuncs import rad2deg as rad2deg
from phalanx.numpy.ufuncs import radians as radians
from phalanx.numpy.ufuncs import real as real
from phalanx.numpy.ufuncs import reciprocal as reciprocal
from phalanx.numpy.ufuncs import remainder as remainder
from phalanx.numpy.ufuncs import right_shift as right_shift
from phalanx.numpy.ufuncs import rint as rint
from phalanx.numpy.ufuncs import sign as sign
from phalanx.numpy.ufuncs import signbit as signbit
from phalanx.numpy.ufuncs import sin as sin
from phalanx.numpy.ufuncs import sinc as sinc
from phalanx.numpy.ufuncs import sinh as sinh
from phalanx.numpy.ufuncs import spacing as spacing
from phalanx.numpy.ufuncs import sqrt as sqrt
from phalanx.numpy.ufuncs import square as square
from phalanx.numpy.ufuncs import subtract as subtract
from phalanx.numpy.ufuncs import tan as tan
from phalanx.numpy.ufuncs import tanh as tanh
from phalanx.numpy.ufuncs import true_divide as true_divide
from phalanx.numpy.ufuncs import trunc as trunc
from phalanx.runtime.array import Array as ndarray  # noqa: F401

_LAZY_ROOMS = ("fft", "linalg")
# Where a name that is loaded at its first use lives.
_LAZY = {
    name: room
    for room, names in {
        "nan_reductions": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar",
        "statistics": "bincount corrcoef cov histogram histogram2d histogram_bin_edges "
        "histogramdd median nanmedian nanpercentile nanquantile percentile quantile",
        "sets": "intersect1d isin setdiff1d setxor1d union1d "
        "unique unique_all unique_counts unique_inverse unique_values",
        "calculus": "diff ediff1d gradient interp trapezoid unwrap",
        "polynomial": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots vander",
        "padding": "pad",
        "windows": "bartlett blackman hamming hanning kaiser",
        "bitpacking": "packbits unpackbits",
        "files": "frombuffer fromfile fromiter fromstring load save savez",
        "grids": "array_repr array_str c_ fromfunction index_exp meshgrid mgrid ogrid r_ s_",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_ROOMS:
        return importlib.import_module(f"phalanx.numpy.{name}")
    room = _LAZY.get(name)
    if room is None:
        raise AttributeError(f"module 'phalanx.numpy' has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"phalanx.numpy.{room}"), name)
    _guard(globals())
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_ROOMS})


_guard(globals())
