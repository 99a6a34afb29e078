"""The table of cases that the laws walk: primitives with arguments, parameters and, where there is one, an oracle.

Every file of `phalanx.lax` contributes lines. Arguments are host arrays in double precision; the same case in other
dtypes is a line of its own. A primitive without a line fails `test_every_primitive_has_a_case`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.special

from phalanx import lax

SHAPE = (2, 3)


@dataclass(frozen=True)
class Case:
    """One application of a primitive.

    Args:
      primitive: the primitive.
      args: host arrays.
      params: its parameters.
      oracle: the value by NumPy or SciPy: a function of the arguments, giving one array or a sequence; None if none.
      name: what tells it apart from other cases of the primitive.
      order: up to which order derivatives are checked; 0 for none.
      rtol: the relative error allowed beside the oracle.
      wrt: numbers of the arguments that are varied; all inexact ones when None.
      skip: names of laws that do not apply, each with its reason.
    """

    primitive: Any
    args: tuple
    params: dict = field(default_factory=dict)
    oracle: Callable | None = None
    name: str = ""
    order: int = 0
    rtol: float | None = None
    wrt: tuple | None = None
    skip: dict = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of the case in test reports."""
        kinds = ",".join(f"{a.dtype.name}{list(a.shape)}" for a in self.args)
        return f"{self.primitive.name}-{self.name}{'-' if self.name else ''}{kinds}"


def primitive_of(case: Case) -> str:
    """What all cases of one primitive have in common."""
    return case.primitive.name


def family_of(case: Case) -> str:
    """What the primitives of one file have in common, and mostly the rules that are written in Python alone."""
    return type(case.primitive).__module__


def with_law(law: str, cases: Sequence[Case], alike: Callable[[Case], str] = primitive_of) -> Any:
    """A mark that runs a test on every case to which the law applies; of cases that are alike, one is quick."""
    walk = pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in cases if law not in c.skip])
    return lambda test: pytest.mark.one_is_quick(group=alike)(walk(test))


def sample(name: str, shape: Sequence, dtype: Any, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Numbers between `low` and `high` that depend on `name` only."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        low, high = (0, 6) if dtype.kind == "u" else (-6, 6)
        return random.integers(low, high + 1, shape).astype(dtype)
    x = random.uniform(low, high, shape)
    if dtype.kind == "c":
        x = x + 1j * random.uniform(-0.9, 0.9, shape)
    return np.asarray(x).astype(dtype)


F, C, I, U, B = "float64", "complex128", "int32", "uint8", "bool"
FC = (F, C)
NUMBERS = (F, C, I, U)

#      primitive       oracle              dtypes   domain
UNARY: list[tuple] = [
    (lax.neg_p, lambda x: -x, (F, C, I), (-2, 2)),
    (lax.abs_p, np.abs, (F, C, I), (0.1, 2)),
    (lax.sign_p, lambda x: x / np.abs(x) if x.dtype.kind == "c" else np.sign(x), (F, C, I, U), (0.1, 2)),
    (lax.floor_p, np.floor, (F,), (-2, 2)),
    (lax.ceil_p, np.ceil, (F,), (-2, 2)),
    (lax.is_finite_p, np.isfinite, (F,), (-2, 2)),
    (lax.square_p, np.square, NUMBERS, (-2, 2)),
    (lax.sqrt_p, np.sqrt, FC, (0.1, 2)),
    (lax.rsqrt_p, lambda x: 1 / np.sqrt(x), FC, (0.1, 2)),
    (lax.cbrt_p, np.cbrt, (F,), (0.1, 2)),
    (lax.exp_p, np.exp, FC, (-2, 2)),
    (lax.exp2_p, np.exp2, FC, (-2, 2)),
    (lax.expm1_p, np.expm1, FC, (-2, 2)),
    (lax.log_p, np.log, FC, (0.1, 2)),
    (lax.log2_p, np.log2, FC, (0.1, 2)),
    (lax.log1p_p, np.log1p, FC, (-0.5, 2)),
    (lax.logistic_p, lambda x: 1 / (1 + np.exp(-x)), FC, (-2, 2)),
    (lax.sin_p, np.sin, FC, (-2, 2)),
    (lax.cos_p, np.cos, FC, (-2, 2)),
    (lax.tan_p, np.tan, FC, (-1, 1)),
    (lax.asin_p, np.arcsin, FC, (-0.8, 0.8)),
    (lax.acos_p, np.arccos, FC, (-0.8, 0.8)),
    (lax.atan_p, np.arctan, FC, (-0.8, 0.8)),
    (lax.sinh_p, np.sinh, FC, (-2, 2)),
    (lax.cosh_p, np.cosh, FC, (-2, 2)),
    (lax.tanh_p, np.tanh, FC, (-1, 1)),
    (lax.asinh_p, np.arcsinh, FC, (-2, 2)),
    (lax.acosh_p, np.arccosh, FC, (1.2, 3)),
    (lax.atanh_p, np.arctanh, FC, (-0.8, 0.8)),
    (lax.erf_p, scipy.special.erf, (F,), (-2, 2)),
    (lax.erfc_p, scipy.special.erfc, (F,), (-2, 2)),
    (lax.erf_inv_p, scipy.special.erfinv, (F,), (-0.9, 0.9)),
    (lax.lgamma_p, scipy.special.gammaln, (F,), (0.3, 4)),
    (lax.digamma_p, scipy.special.digamma, (F,), (0.3, 4)),
    (lax.bessel_i0e_p, scipy.special.i0e, (F,), (0.3, 12)),
    (lax.bessel_i1e_p, scipy.special.i1e, (F,), (0.3, 12)),
    (lax.not_p, np.invert, (I, U, B), ()),
    (lax.population_count_p, lambda x: np.bitwise_count(x).astype(x.dtype), (U,), ()),
    (lax.clz_p, lambda x: (8 - np.ceil(np.log2(x.astype(float) + 1))).astype(x.dtype), (U,), ()),
    (lax.real_p, np.real, (C,), (-2, 2)),
    (lax.imag_p, np.imag, (C,), (-2, 2)),
    (lax.conj_p, np.conj, FC, (-2, 2)),
    (lax.copy_p, lambda x: x, (F, I), (-2, 2)),
]
LOCALLY_CONSTANT = {"floor", "ceil", "is_finite", "sign", "round", "nextafter", "stop_gradient"}

BINARY: list[tuple] = [
    (lax.add_p, np.add, NUMBERS, (-2, 2)),
    (lax.sub_p, np.subtract, (F, C, I), (-2, 2)),
    (lax.mul_p, np.multiply, NUMBERS, (-2, 2)),
    (lax.div_p, np.divide, FC, (0.5, 2)),
    (lax.rem_p, np.fmod, (F,), (0.5, 2)),
    (lax.max_p, np.maximum, (F, I, U, B), (-2, 2)),
    (lax.min_p, np.minimum, (F, I, U, B), (-2, 2)),
    (lax.pow_p, np.power, FC, (0.5, 2)),
    (lax.atan2_p, np.arctan2, (F,), (0.5, 2)),
    (lax.nextafter_p, np.nextafter, (F,), (-2, 2)),
    (lax.mulhi_p, lambda x, y: (x.astype("int64") * y >> (8 * x.dtype.itemsize)).astype(x.dtype), (I,), ()),
    (lax.and_p, np.bitwise_and, (I, U, B), ()),
    (lax.or_p, np.bitwise_or, (I, U, B), ()),
    (lax.xor_p, np.bitwise_xor, (I, U, B), ()),
    (lax.shift_left_p, np.left_shift, (U,), ()),
    (lax.shift_right_logical_p, np.right_shift, (U,), ()),
    (lax.shift_right_arithmetic_p, np.right_shift, (U,), ()),
    (lax.eq_p, np.equal, (F, C, I, B), (-2, 2)),
    (lax.ne_p, np.not_equal, (F, C, I, B), (-2, 2)),
    (lax.lt_p, np.less, (F, I, U, B), (-2, 2)),
    (lax.le_p, np.less_equal, (F, I, U, B), (-2, 2)),
    (lax.gt_p, np.greater, (F, I, U, B), (-2, 2)),
    (lax.ge_p, np.greater_equal, (F, I, U, B), (-2, 2)),
    (lax.eq_to_p, np.equal, (F, I), (-2, 2)),
    (lax.lt_to_p, np.less, (F, I), (-2, 2)),
    (lax.le_to_p, np.less_equal, (F, I), (-2, 2)),
    (lax.complex_p, lambda x, y: x + 1j * y, (F,), (-2, 2)),
    (lax.zeta_p, scipy.special.zeta, (F,), (1.5, 4)),
    (lax.igamma_p, scipy.special.gammainc, (F,), (0.5, 6)),
    (lax.igammac_p, scipy.special.gammaincc, (F,), (0.5, 6)),
    (lax.igamma_grad_a_p, lambda a, x: difference(lambda a: scipy.special.gammainc(a, x), a), (F,), (0.5, 6)),
    (lax.random_gamma_grad_p, lambda a, x: difference(
        lambda b: scipy.special.gammaincinv(b, scipy.special.gammainc(a, x)), a), (F,), (0.5, 6)),
]  # fmt: skip
LOOSE = {"igamma_grad_a": 1e-5, "random_gamma_grad": 1e-5, "zeta": 1e-10, "lgamma": 1e-11, "erf_inv": 1e-11}
BY_SECOND = {"zeta": (1,), "igamma": (1,), "igammac": (1,), "igamma_grad_a": (), "random_gamma_grad": ()}


def difference(fun: Callable, x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The derivative of a function by central differences."""
    return (fun(x + eps) - fun(x - eps)) / (2 * eps)


def elementwise() -> list[Case]:
    """The tables above: each operation in each dtype, and binary ones with an operand of rank 0 on either side."""
    found = []
    for primitive, oracle, dtypes, domain in UNARY:
        for dtype in dtypes:
            x = sample(primitive.name, SHAPE, dtype, *domain)
            constant = primitive.name in LOCALLY_CONSTANT and dtype != C
            order = 2 if dtype in FC and not constant and primitive is not lax.is_finite_p else 0
            found.append(Case(primitive, (x,), {}, oracle, order=order, rtol=LOOSE.get(primitive.name)))
    for primitive, oracle, dtypes, domain in BINARY:
        for dtype in dtypes:
            x = sample(primitive.name, SHAPE, dtype, *domain)
            y = sample(primitive.name + "y", SHAPE, dtype, *domain)
            wrt = BY_SECOND.get(primitive.name)
            is_smooth = dtype in FC and primitive not in _COMPARISONS and primitive.name not in LOCALLY_CONSTANT
            order = 2 if is_smooth and wrt != () else 0
            rtol = LOOSE.get(primitive.name)
            found.append(Case(primitive, (x, y), {}, oracle, order=order, rtol=rtol, wrt=wrt))
            if dtype == dtypes[0]:
                found.append(Case(primitive, (x[0, 0], y), {}, oracle, "scalar", order, rtol, wrt))
                found.append(Case(primitive, (x, y[0, 0]), {}, oracle, "scalar", order, rtol, wrt))
    return found


_COMPARISONS = {lax.eq_p, lax.ne_p, lax.lt_p, lax.le_p, lax.gt_p, lax.ge_p, lax.eq_to_p, lax.lt_to_p, lax.le_to_p}


def widened(oracle: Callable) -> Callable:
    """An oracle that computes in double precision."""
    return lambda x: oracle(x.astype(F))


def low_precision() -> list[Case]:
    """The inexact unary operations in half precision: they must lower, and be right to its few digits."""
    import ml_dtypes

    found = []
    for primitive, oracle, dtypes, domain in UNARY:
        if F in dtypes and primitive is not lax.conj_p:
            for dtype in (np.dtype("float32"), np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)):
                x = sample(primitive.name, SHAPE, F, *domain).astype(dtype)
                found.append(
                    Case(primitive, (x,), {}, widened(oracle), "low", rtol=20 * float(ml_dtypes.finfo(dtype).eps))
                )
    return found


def others() -> list[Case]:
    """Elementwise operations with parameters or special operands, and conversions."""
    x, y = sample("x", SHAPE, F), sample("y", SHAPE, F, 0.5, 2)
    z, i, b = sample("z", SHAPE, C), sample("i", SHAPE, I), sample("b", SHAPE, B)
    which = np.array([[0, 2, 1], [2, 2, 0]], np.int32)
    wide, narrow = np.dtype(F), np.dtype("float32")
    return [
        Case(lax.polygamma_p, (np.full(SHAPE, 2.0), y), {}, scipy.special.polygamma, order=2, wrt=(1,), rtol=1e-9),
        Case(lax.regularized_incomplete_beta_p, (y, y + 0.3, 0.4 * y), {}, scipy.special.betainc, order=2, wrt=(2,)),
        Case(lax.regularized_incomplete_beta_p, (y[0, 0], y, 0.4 * y), {}, scipy.special.betainc, "scalar"),
        *(Case(lax.integer_pow_p, (v,), {"y": n}, lambda v, n=n: v ** n, f"y={n}", 2)
          for v in (y, z) for n in (-2, -1, 0, 1, 2, 3, 7)),
        Case(lax.integer_pow_p, (i,), {"y": 3}, lambda v: v**3),
        Case(lax.pow_p, (y, i), {}, lambda a, n: a**n, "int exponent", 2),
        Case(lax.pow_p, (-y, i), {}, lambda a, n: a**n, "negative base", 2),
        Case(lax.round_p, (x,), {"rounding_method": 0}, lambda v: np.trunc(v + np.copysign(0.5, v))),
        Case(lax.round_p, (x,), {"rounding_method": 1}, np.round),
        Case(lax.select_n_p, (b, x, y), {}, lambda b, x, y: np.where(b, y, x), order=2),
        Case(lax.select_n_p, (b, x, y[0, 0]), {}, lambda b, x, y: np.where(b, y, x), "scalar case", order=2),
        Case(lax.select_n_p, (b[0, 0], x, y), {}, lambda b, x, y: np.where(b, y, x), "scalar which", order=2),
        Case(lax.select_n_p, (which, x, y, x * y), {}, lambda w, *c: np.choose(w, c), order=2),
        Case(lax.max_p, (z, z[::-1] + 1j), {}, np.maximum, "complex", 2),
        Case(lax.min_p, (z.real + 0j, z.real + 1j), {}, np.minimum, "same real part"),
        Case(lax.clamp_p, (np.float64(-1.0), x, np.float64(1.0)), {}, lambda lo, v, hi: np.clip(v, lo, hi), "scalar", 2),
        Case(lax.clamp_p, (x - 0.5, x, y + 1), {}, lambda lo, v, hi: np.clip(v, lo, hi), order=2),
        Case(lax.clamp_p, (np.int32(-2), i, np.int32(2)), {}, lambda lo, v, hi: np.clip(v, lo, hi)),
        Case(lax.convert_element_type_p, (x,), {"dtype": narrow, "weak_type": False}, lambda v: v.astype("f"), rtol=1e-6),
        Case(lax.convert_element_type_p, (x,), {"dtype": wide, "weak_type": True}, lambda v: v, "weak", 2),
        Case(lax.convert_element_type_p, (x,), {"dtype": np.dtype(I), "weak_type": False}, lambda v: v.astype(I)),
        Case(lax.convert_element_type_p, (x,), {"dtype": np.dtype(B), "weak_type": False}, lambda v: v.astype(B)),
        Case(lax.convert_element_type_p, (x,), {"dtype": np.dtype(C), "weak_type": False}, lambda v: v.astype(C), order=2),
        Case(lax.convert_element_type_p, (z,), {"dtype": wide, "weak_type": False}, lambda v: v.real, order=2),
        Case(lax.convert_element_type_p, (i,), {"dtype": wide, "weak_type": False}, lambda v: v.astype(F)),
        Case(lax.bitcast_convert_type_p, (x,), {"dtype": np.dtype("int64")}, lambda v: v.view("int64")),
        Case(lax.bitcast_convert_type_p, (x,), {"dtype": np.dtype(I)}, lambda v: v.view(I).reshape(*SHAPE, 2), "narrower"),
        Case(lax.bitcast_convert_type_p, (np.arange(12, dtype=U).reshape(3, 4),), {"dtype": np.dtype(I)},
             lambda v: v.view(I)[:, 0], "wider"),
        Case(lax.reduce_precision_p, (x,), {"exponent_bits": 11, "mantissa_bits": 52}, lambda v: v, order=2),
        Case(lax.stop_gradient_p, (x,), {}, lambda v: v),
        Case(lax.optimization_barrier_p, (x, i, z), {}, lambda *v: v, order=2),
    ]  # fmt: skip


def shapes() -> list[Case]:
    """Operations that move elements."""
    x, y = sample("x", (2, 3, 4), F), sample("y", (2, 3, 4), F)
    m, one = sample("m", (2, 3), F), sample("one", (2, 1), F)
    p = lax.broadcast_in_dim_p
    return [
        Case(p, (m,), {"shape": (2, 4, 3), "dims": (0, 2)}, lambda v: np.broadcast_to(v[:, None], (2, 4, 3)), order=2),
        Case(p, (one,), {"shape": (2, 5), "dims": (0, 1)}, lambda v: np.broadcast_to(v, (2, 5)), "size 1", 2),
        Case(p, (np.float64(2.5),), {"shape": (2, 3), "dims": ()}, lambda v: np.broadcast_to(v, (2, 3)), "scalar", 2),
        Case(p, (one,), {"shape": (3, 2, 5), "dims": (1, 2)}, lambda v: np.broadcast_to(v, (3, 2, 5)), "both", 2),
        Case(lax.transpose_p, (x,), {"permutation": (2, 0, 1)}, lambda v: v.transpose(2, 0, 1), order=2),
        Case(lax.reshape_p, (x,), {"shape": (6, 4)}, lambda v: v.reshape(6, 4), "merge", 2),
        Case(lax.reshape_p, (x,), {"shape": (2, 3, 2, 2)}, lambda v: v.reshape(2, 3, 2, 2), "split", 2),
        Case(lax.reshape_p, (x,), {"shape": (4, 6)}, lambda v: v.reshape(4, 6), "mix", 2),
        Case(lax.reshape_p, (x,), {"shape": (2, 1, 12)}, lambda v: v.reshape(2, 1, 12), "ones", 2),
        Case(lax.reshape_p, (np.float64(2.5),), {"shape": (1, 1)}, lambda v: v.reshape(1, 1), "scalar", 2),
        Case(lax.squeeze_p, (x[:, :1],), {"dims": (1,)}, lambda v: v[:, 0], order=2),
        Case(lax.rev_p, (x,), {"dims": (0, 2)}, lambda v: v[::-1, :, ::-1], order=2),
        Case(lax.concatenate_p, (x, y[:, :1], y), {"dim": 1}, lambda *v: np.concatenate(v, 1), order=2),
        Case(lax.stack_p, (x, y), {"dim": 1}, lambda *v: np.stack(v, 1), order=2),
        Case(lax.stack_p, (x, y), {"dim": 3}, lambda *v: np.stack(v, 3), "last", 2),
        Case(lax.unstack_p, (x,), {"dim": 1}, lambda v: [v[:, j] for j in range(3)], order=2),
        Case(lax.split_p, (x,), {"sizes": (1, 3), "dim": 2}, lambda v: [v[..., :1], v[..., 1:]], order=2),
        Case(lax.tile_p, (x,), {"reps": (2, 1, 3)}, lambda v: np.tile(v, (2, 1, 3)), order=2),
        Case(lax.slice_p, (x,), {"starts": (0, 1, 0), "stops": (2, 3, 3), "strides": None}, lambda v: v[:, 1:3, :3], "", 2),
        Case(lax.slice_p, (x,), {"starts": (0, 0, 1), "stops": (2, 3, 4), "strides": (1, 2, 2)},
             lambda v: v[:, ::2, 1::2], "stride", 2),
        Case(lax.pad_p, (m, np.float64(1.5)), {"config": ((1, 2, 0), (0, 0, 0))},
             lambda v, c: np.pad(v, ((1, 2), (0, 0)), constant_values=c), order=2),
        Case(lax.pad_p, (m, np.float64(1.5)), {"config": ((0, 1, 2), (-1, 1, 0))}, _padded, "interior", 2),
        Case(lax.iota_p, (), {"dtype": np.dtype(I), "shape": (2, 3), "dim": 1}, lambda: np.arange(3) + np.zeros((2, 1))),
        Case(lax.iota_p, (), {"dtype": np.dtype(F), "shape": (2, 3), "dim": 0}, lambda: np.arange(2.0)[:, None] + np.zeros(3)),
    ]  # fmt: skip


def _padded(v: np.ndarray, c: np.ndarray) -> np.ndarray:
    out = np.full((5, 3), c)
    out[0, :2], out[3, :2] = v[0, 1:], v[1, 1:]
    return out


def reductions() -> list[Case]:
    """Reductions, cumulative operations and order."""
    x, i, b = sample("r", (2, 3, 4), F), sample("r", (2, 3, 4), I), sample("r", (2, 3, 4), B)
    z = sample("r", (2, 3, 4), C)
    found = []
    for dims in ((1,), (0, 2), ()):
        d = {"dims": dims}
        found += [
            Case(lax.reduce_sum_p, (x,), d, lambda v, dims=dims: v.sum(dims), str(dims), 2),
            Case(lax.reduce_prod_p, (x,), d, lambda v, dims=dims: v.prod(dims), str(dims), 2),
            Case(lax.reduce_max_p, (x,), d, lambda v, dims=dims: v.max(dims), str(dims), 2),
            Case(lax.reduce_min_p, (x,), d, lambda v, dims=dims: v.min(dims), str(dims), 2),
            Case(lax.reduce_and_p, (b,), d, lambda v, dims=dims: v.all(dims), str(dims)),
            Case(lax.reduce_or_p, (b,), d, lambda v, dims=dims: v.any(dims), str(dims)),
            Case(lax.reduce_xor_p, (i,), d, lambda v, dims=dims: np.bitwise_xor.reduce(v, dims), str(dims)),
        ]
    found += [
        Case(lax.reduce_sum_p, (z,), {"dims": (1,)}, lambda v: v.sum(1), order=2),
        Case(lax.reduce_prod_p, (z,), {"dims": (1,)}, lambda v: v.prod(1), order=2),
        Case(lax.reduce_sum_p, (i,), {"dims": (1,)}, lambda v: v.sum(1)),
        Case(lax.reduce_max_p, (z,), {"dims": (1,)}, lambda v: v.max(1), order=2),
        Case(lax.reduce_min_p, (z,), {"dims": (1,)}, lambda v: v.min(1), order=2),
        Case(lax.reduce_max_p, (i,), {"dims": (1,)}, lambda v: v.max(1)),
        Case(lax.reduce_min_p, (i,), {"dims": (1,)}, lambda v: v.min(1)),
        Case(lax.reduce_max_p, (b,), {"dims": (1,)}, lambda v: v.max(1)),
        Case(lax.reduce_min_p, (b,), {"dims": (1,)}, lambda v: v.min(1)),
        Case(lax.reduce_and_p, (i,), {"dims": (1,)}, lambda v: np.bitwise_and.reduce(v, 1)),
        Case(lax.reduce_or_p, (i,), {"dims": (1,)}, lambda v: np.bitwise_or.reduce(v, 1)),
    ]
    for primitive, oracle in ((lax.argmax_p, np.argmax), (lax.argmin_p, np.argmin)):
        for v in (x, i, b):
            found.append(Case(primitive, (v,), {"dim": 1, "dtype": np.dtype(I)}, lambda v, f=oracle: f(v, 1)))
    tables = {
        lax.cumsum_p: (np.cumsum, (x, i, z)), lax.cumprod_p: (np.cumprod, (x, z)),
        lax.cummax_p: (np.maximum.accumulate, (x, i, z)), lax.cummin_p: (np.minimum.accumulate, (x, i, z)),
        lax.cumlogsumexp_p: (np.logaddexp.accumulate, (x,)),
    }  # fmt: skip
    for primitive, (oracle, operands) in tables.items():
        for v in operands:
            order = 2 if v.dtype.kind in "fc" else 0
            found.append(Case(primitive, (v,), {"dim": 2, "reverse": False}, lambda v, f=oracle: f(v, 2), "", order))
            found.append(Case(primitive, (v,), {"dim": 1, "reverse": True},
                              lambda v, f=oracle: f(v[:, ::-1], 1)[:, ::-1], "reverse", order))  # fmt: skip
    return found


def order() -> list[Case]:
    """Sorting and the largest elements."""
    x, i, b = sample("o", (2, 4), F), sample("o", (2, 4), I), sample("o", (2, 4), B)
    z, v = sample("o", (2, 4), C), sample("v", (2, 4), F)
    one = {"dim": 1, "is_stable": True, "num_keys": 1}
    ranks = {"dim": 0, "k": 1}
    return [
        Case(lax.sort_p, (x,), one, lambda x: [np.sort(x, 1)], order=2),
        Case(lax.sort_p, (x,), one | {"dim": 0, "is_stable": False}, lambda x: [np.sort(x, 0)], "dim 0", 2),
        Case(lax.sort_p, (i,), one, lambda x: [np.sort(x, 1)]),
        Case(lax.sort_p, (b,), one, lambda x: [np.sort(x, 1)]),
        Case(lax.sort_p, (z,), one, lambda x: [np.sort(x, 1)], order=2),
        Case(lax.sort_p, (i, v), one, _by_first, "key and value", 2),
        Case(lax.sort_p, (i // 4, x, v), one | {"num_keys": 2}, _by_two, "two keys", 2),
        Case(lax.sort_p, (np.array([np.nan, -0.0, 1, 0, -np.inf, -np.nan]), np.arange(6)), one | {"dim": 0},
             lambda x, n: [np.array([-np.inf, 0, 0, 1, np.nan, np.nan]), np.array([4, 1, 3, 2, 0, 5])], "special"),
        Case(lax.top_k_p, (x,), {"dim": 1, "k": 2}, lambda x: _largest(x, 2), order=2),
        Case(lax.top_k_p, (i,), {"dim": 1, "k": 3}, lambda x: _largest(x, 3)),
        Case(lax.top_k_p, (x,), ranks, lambda x: [x.max(0)[None], x.argmax(0)[None]], "dim 0", 2),
    ]  # fmt: skip


def _by_first(key: np.ndarray, value: np.ndarray) -> list:
    index = np.argsort(key, 1, kind="stable")
    return [np.take_along_axis(a, index, 1) for a in (key, value)]


def _by_two(first: np.ndarray, second: np.ndarray, value: np.ndarray) -> list:
    index = np.stack([np.lexsort((s, f)) for f, s in zip(first, second, strict=True)])
    return [np.take_along_axis(a, index, 1) for a in (first, second, value)]


def _largest(x: np.ndarray, k: int) -> list:
    index = np.argsort(-x, 1, kind="stable")[:, :k]
    return [np.take_along_axis(x, index, 1), index]


CASES: list[Case] = [*elementwise(), *low_precision(), *others(), *shapes(), *reductions(), *order()]
