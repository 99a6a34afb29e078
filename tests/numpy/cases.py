"""Expressions with the same value in NumPy, phalanx.numpy and jax.numpy.

`xp` is the module and capital letters are arrays. An expression that starts with "~" uses a feature that NumPy lacks.
"""

import numpy as np

_r = np.random.default_rng(0)
ARRAYS = {
    "A": _r.normal(size=(3, 4)).astype(np.float32),
    "B": _r.normal(size=(4, 5)).astype(np.float32),
    "C": (_r.normal(size=(3, 4)) + 1j * _r.normal(size=(3, 4))).astype(np.complex64),
    "I": _r.integers(-5, 6, size=(3, 4)).astype(np.int32),
    "J": _r.integers(1, 6, size=(3, 4)).astype(np.int32),
    "U": _r.integers(0, 6, size=(3, 4)).astype(np.uint8),
    "M": _r.integers(0, 2, size=(3, 4)).astype(bool),
    "N": np.where(_r.integers(0, 3, size=(3, 4)) == 0, np.nan, _r.normal(size=(3, 4))).astype(np.float32),
    "V": _r.normal(size=4).astype(np.float32),
    "W": _r.normal(size=4).astype(np.float32),
    "K": np.array([2, 0, 1, 1], np.int32),
    "P": np.abs(_r.normal(size=(3, 4))).astype(np.float32) + 0.1,
    "S": (lambda m: m @ m.T + 4 * np.eye(4))(_r.normal(size=(4, 4))).astype(np.float32),
    "T": _r.normal(size=(2, 3, 4)).astype(np.float32),
    "Q": _r.normal(size=(2, 4, 4)).astype(np.float32) + 3 * np.eye(4, dtype=np.float32),
    "H": _r.normal(size=(3, 4)).astype(np.float16),
    "E": np.zeros((0, 3), np.float32),
    "G": np.array(2.5, np.float32),
    "X": np.sort(_r.normal(size=8)).astype(np.float32),
    "Y": _r.normal(size=8).astype(np.float32),
    "R": _r.integers(-100, 100, size=(3, 4)).astype(np.int8),
}

_unary_inexact = "sin cos tan sinh cosh tanh arcsinh arctan exp exp2 expm1 deg2rad rad2deg sinc".split()
_unary_any = "square positive absolute conjugate real isnan isinf isfinite isreal iscomplex logical_not angle".split()
_binary = "add multiply maximum minimum".split()
_binary_real = (
    "divide floor_divide remainder fmod arctan2 hypot fmax fmin copysign nextafter logaddexp heaviside".split()
)

CASES = [
    *(f"xp.{f}({a})" for f in _unary_inexact for a in "AIUMHC" if (f[3:], a) not in (("2rad", "C"), ("2deg", "C"))),
    *(f"xp.{f}({a})" for f in _unary_any for a in "AIUMC" if (f, a) != ("positive", "M")),
    *(f"xp.{f}({a})" for f in "floor ceil trunc rint sign negative fabs signbit reciprocal".split() for a in "AIJH"
      if (f, a) not in {("reciprocal", "I"), ("reciprocal", "J"), ("signbit", "I"), ("signbit", "J")}),
    *(f"xp.{f}(P)" for f in "log log2 log10 log1p sqrt cbrt i0 spacing".split()),
    *(f"xp.{f}(A % 1)" for f in "arcsin arccos arctanh".split()), "xp.arccosh(P + 1)",
    *(f"xp.{f}({a}, {b})" for f in _binary for a, b in ("AA", "AI", "IU", "AV", "CA", "UR", "HA", "MM", "IM", "AG")),
    *(f"xp.{f}({a}, {b})" for f in _binary_real for a, b in ("AP", "IJ", "PJ", "AV", "HH")),
    *(f"xp.{f}({a}, {b})" for f in "equal not_equal less less_equal greater greater_equal".split()
      for a, b in ("AP", "IU", "CC", "MM", "AV")),
    *(f"xp.{f}({a}, {b})" for f in "bitwise_and bitwise_or bitwise_xor".split() for a, b in ("IJ", "UU", "MM", "IR")),
    *(f"xp.{f}({a}, {b})" for f in "logical_and logical_or logical_xor".split() for a, b in ("IJ", "AM", "MM")),
    *(f"xp.{f}(J, xp.abs(K))" for f in ("left_shift", "right_shift")),
    "xp.gcd(I, J)", "xp.lcm(I, J)", "xp.power(P, A)", "xp.power(A, 2)", "xp.power(J, K)", "xp.power(2, K)", "A ** 3", "A ** -1", "2.0 ** A",
    "J ** 2", "xp.float_power(P, J)", "xp.invert(I)", "xp.invert(M)", "xp.bitwise_count(I)", "xp.ldexp(A, J)",
    "xp.frexp(A)", "xp.modf(A)", "xp.divmod(A, P)", "xp.divmod(I, J)", "xp.imag(C)", "xp.imag(A)", "xp.angle(C, deg=True)",
    "xp.logaddexp2(A, P)", "xp.isposinf(N)", "xp.isneginf(A / 0)", "xp.nan_to_num(N)", "xp.subtract(C, A)", "xp.negative(C)",
    # operators and scalars
    "A + 1", "1 + A", "A - 2.5", "3 - I", "I * 2.5", "A / 2", "1 / P", "I // 2", "7 // J", "I % 3", "A % 0.7", "-A", "+A",
    "abs(I)", "~I", "A @ B", "A == 0", "A < P", "I & 3", "I | 1", "I ^ J", "I << 1", "I >> 1", "A + True", "U + 1", "H * 2.0",
    "C + 1j", "M + 1", "M * 2.5", "R + 1", "divmod(I, 3)", "~round(A, 1)", "A > 1", "1 < A", "2 ** J",
    # creation
    "xp.zeros((2, 3))", "xp.zeros(3, 'int32')", "xp.ones((2,), bool)", "xp.full((2, 2), 7)", "xp.full(2, 1.5)",
    "xp.full((2, 4), V)", "xp.zeros_like(I)", "xp.ones_like(A)", "xp.full_like(I, 3)", "xp.full_like(A, 2, dtype='int32')",
    "xp.arange(5)", "xp.arange(2, 9, 3)", "xp.arange(5.0)", "xp.arange(1, 2, 0.25)", "xp.arange(5, 0, -2)", "xp.arange(3, dtype='float32')",
    "xp.arange(100, 0, -1)", "xp.linspace(0, 1, 5)", "xp.linspace(1, 10, 4, endpoint=False)", "xp.linspace(0, 5, 6, dtype='int32')",
    "xp.linspace(V, W, 3)", "xp.linspace(V, W, 3, axis=1)", "xp.linspace(0, 1, 1)", "xp.linspace(0, 1, 4, retstep=True)", "xp.logspace(0, 2, 3)",
    "xp.geomspace(1, 8, 4)", "xp.geomspace(-1, -8, 4)", "xp.eye(3)", "xp.eye(2, 3, 1, 'int32')", "xp.identity(2)", "xp.tri(3, 4, 1)",
    "xp.meshgrid(V, K)", "xp.meshgrid(V, K, indexing='ij')", "xp.meshgrid(V, K, sparse=True)", "xp.array([[1, 2], [3, 4]])",
    "xp.array([1.5, 2])", "xp.array(3)", "xp.array([True, False])", "xp.array([1j, 2])", "xp.array([V, W])", "xp.array(V, ndmin=3)",
    "xp.array([[1, 2]], dtype='float32')", "xp.array([])", "xp.asarray(range(3))", "xp.astype(A, 'int32')", "xp.astype(I, 'float16')",
    "xp.astype(A, bool)", "xp.copy(A)", "xp.fromfunction(lambda i, j: i * 2 + j, (2, 3))", "xp.frombuffer(b'\\x01\\x02', dtype='uint8')",
    "xp.mgrid[0:3, 0:2]", "xp.ogrid[0:3, 0:2]", "xp.mgrid[0:1:3j]", "xp.r_[V, 1.5, 0:3]", "xp.c_[V, W]", "xp.indices((2, 3))",
    "xp.bartlett(5)", "xp.blackman(5)", "xp.hamming(5)", "xp.hanning(5)", "xp.kaiser(5, 2.0)", "xp.vander(V)", "xp.vander(V, 3, increasing=True)",
    # shapes
    "xp.reshape(A, (2, 6))", "xp.reshape(A, -1)", "xp.reshape(A, (4, 3), order='F')", "xp.ravel(A)", "xp.ravel(A, 'F')", "xp.transpose(T)",
    "xp.transpose(T, (1, 0, 2))", "xp.matrix_transpose(T)", "xp.swapaxes(T, 0, 2)", "xp.moveaxis(T, 0, -1)", "xp.moveaxis(T, (0, 1), (-1, 0))",
    "xp.rollaxis(T, 2)", "xp.expand_dims(A, 1)", "xp.expand_dims(A, (0, -1))", "xp.squeeze(A[None])", "xp.squeeze(A[None], 0)",
    "xp.broadcast_to(V, (2, 4))", "xp.broadcast_arrays(A, V)", "xp.atleast_1d(G)", "xp.atleast_2d(V)", "xp.atleast_3d(A)", "xp.atleast_3d(V)",
    "xp.flip(A)", "xp.flip(A, 1)", "xp.fliplr(A)", "xp.flipud(A)", "xp.rot90(A)", "xp.rot90(A, 2)", "xp.rot90(A, -1)", "xp.rot90(T, 1, (1, 2))",
    "xp.roll(A, 1)", "xp.roll(A, 2, axis=1)", "xp.roll(A, (1, -1), axis=(0, 1))", "xp.roll(A, -5, axis=0)", "xp.repeat(A, 2)", "xp.repeat(A, 2, axis=0)",
    "xp.repeat(A, np.array([1, 0, 2]), axis=0)", "xp.tile(A, 2)", "xp.tile(A, (2, 1, 3))", "xp.tile(V, (2, 1))", "xp.resize(V, (2, 3))", "xp.resize(V, (3,))",
    "xp.tril(A)", "xp.triu(A, 1)", "xp.tril(T, -1)", "xp.diag(V)", "xp.diag(V, 1)", "xp.diag(V, -2)", "xp.diag(A)", "xp.diag(A, 1)", "xp.diagflat(A[:2, :1])",
    "xp.diagonal(T)", "xp.diagonal(T, 1, 1, 2)", "xp.diagonal(A, -1)", "xp.trace(A)", "xp.trace(T, 1, 1, 2)", "xp.trim_zeros(np.array([0, 1, 0, 2, 0]))",
    "xp.concatenate([A, A])", "xp.concatenate([A, I], axis=1)", "xp.concatenate([A, V], axis=None)", "xp.stack([V, W])", "xp.stack([V, W], axis=1)",
    "xp.stack([I, A], axis=-1)", "xp.vstack([V, W])", "xp.hstack([A, A])", "xp.hstack([V, W])", "xp.dstack([A, A])", "xp.column_stack([V, W])",
    "xp.block([[A, A], [A, A]])", "xp.block([V, W])", "xp.split(A, 2, axis=1)", "xp.split(A, [1, 3], axis=1)", "xp.array_split(V, 3)", "xp.vsplit(S, 2)",
    "xp.hsplit(A, 2)", "xp.dsplit(T, 2)", "xp.unstack(A)", "xp.append(A, V)", "xp.append(A, A, axis=0)", "xp.insert(V, 1, 5)", "xp.insert(A, 1, 0.5, axis=1)",
    "xp.insert(V, np.array([0, 2]), np.array([8, 9]))", "xp.insert(A, 1, V, axis=0)", "xp.insert(V, slice(0, 2), 7)",
    "xp.delete(V, 1)", "xp.delete(A, np.array([0, 2]), axis=1)", "xp.delete(A, slice(0, 2), axis=0)", "xp.delete(V, -1)",
    "xp.pad(A, 1)", "xp.pad(V, (1, 2), constant_values=(3, 4))", *(f"xp.pad(A, ((1, 2), (3, 0)), mode='{m}')" for m in
      "edge linear_ramp maximum mean median minimum reflect symmetric wrap".split()),
    "xp.pad(V, 9, mode='reflect')", "xp.pad(V, 9, mode='symmetric')", "xp.pad(V, 9, mode='wrap')", "xp.pad(V, 3, mode='reflect', reflect_type='odd')",
    "xp.pad(V, 7, mode='symmetric', reflect_type='odd')", "xp.pad(V, 2, mode='mean', stat_length=2)", "xp.pad(V, 2, mode='linear_ramp', end_values=5)",
    "xp.pad(I, 1, mode='mean')",
    # reductions
    *(f"xp.{f}({a})" for f in "sum prod max min any all mean ptp count_nonzero".split() for a in ("A", "I", "C", "M", "U")
      if not (a == "M" and f == "ptp") and not (a == "C" and f in ("max", "min", "ptp"))),
    *(f"xp.{f}(T, axis={x}, keepdims={k})" for f in "sum max mean var std any argmax argmin".split() for x in ("1", "(0, 2)", "-1", "None")
      for k in (True, False) if not (f.startswith("arg") and x == "(0, 2)")),
    "xp.sum(A, where=M)", "xp.sum(A, axis=1, where=M, initial=2.0)", "xp.max(A, axis=0, where=M, initial=-9.0)", "xp.mean(A, axis=1, where=M)",
    "xp.prod(I, dtype='float32')", "xp.sum(H)", "xp.sum(H, axis=0)", "xp.sum(E, axis=0)", "xp.prod(E)", "xp.mean(H)", "xp.mean(I)", "xp.mean(M)",
    "xp.var(C)", "xp.var(I, ddof=1)", "xp.std(H)", "xp.var(A, axis=1, where=M)", "xp.average(A)", "xp.average(A, axis=1, weights=V)", "xp.average(A, weights=P, returned=True)",
    "xp.average(A, axis=0, keepdims=True)", "xp.cumsum(A)", "xp.cumsum(A, axis=1)", "xp.cumprod(A, axis=0)", "xp.cumsum(U)", "xp.cumsum(M)", "xp.cumulative_sum(V, include_initial=True)",
    "xp.cumulative_prod(A, axis=1)", "xp.argmax(A)", "xp.argmin(I, axis=1)", "xp.sum(A, dtype='float16')", "xp.max(M)", "xp.min(M, axis=0)",
    *(f"xp.{f}(N, axis={x})" for f in "nansum nanmax nanmin nanprod nanmean nanvar nanstd nanmedian".split() for x in ("None", "0", "1")),
    "xp.nancumsum(N)", "xp.nancumprod(N, axis=1)", "xp.nanargmax(N)", "xp.nanargmin(N, axis=1)", "xp.nanquantile(N, 0.3, axis=1)", "xp.nanpercentile(N, 30)",
    "xp.median(A)", "xp.median(A, axis=1, keepdims=True)", "xp.median(I)", "xp.quantile(A, 0.3)", "xp.quantile(A, np.float32([0.1, 0.6]), axis=1)", "xp.percentile(A, 40, axis=0)",
    *(f"xp.quantile(A, 0.37, axis=1, method='{m}')" for m in "lower higher midpoint nearest linear".split()), "xp.quantile(N, 0.5)",
    "xp.cov(A)", "xp.cov(A, rowvar=False)", "xp.cov(V, W)", "xp.cov(A, bias=True)", "xp.cov(A, fweights=K + 1)", "xp.cov(A, aweights=xp.abs(V))", "xp.corrcoef(A)", "xp.corrcoef(V, W)",
    "xp.bincount(K)", "xp.bincount(K, weights=V)", "xp.bincount(K, minlength=6)", "xp.histogram(V, 3)", "xp.histogram(V, 3, range=(-1, 1))", "xp.histogram(A, np.array([-1., 0., 2.]))",
    "xp.histogram(V, 4, density=True)", "xp.histogram(V, 4, weights=W)", "xp.histogram2d(V, W, 3)", "xp.histogramdd(A.T, 2)", "xp.histogram_bin_edges(V, 3)", "xp.digitize(V, np.array([-1., 0., 1.]))",
    "xp.digitize(V, np.array([1., 0., -1.]), right=True)",
    # sorting, searching, sets
    "xp.sort(A)", "xp.sort(A, axis=0)", "xp.sort(A, axis=None)", "xp.sort(C)", "xp.sort(N)", "xp.sort(I)", "xp.argsort(A)", "xp.argsort(I, axis=0, stable=True)", "xp.argsort(K)", "xp.lexsort((V, K))",
    "xp.lexsort((A, I))", "xp.sort_complex(V)", "xp.sort(xp.partition(V, 2)[:2])", "xp.searchsorted(X, V)", "xp.searchsorted(X, A, side='right')", "xp.searchsorted(X, N)", "xp.nonzero(I)", "xp.flatnonzero(I)",
    "xp.argwhere(I)", "xp.argwhere(M)", "xp.where(M, A, P)", "xp.where(M, A, 0)", "xp.where(M, 1, 2.0)", "xp.where(M[0], A, I)", "xp.where(M)", "xp.where(A > 0, A, 0.0)", "xp.where(True, A, 0.0)", "xp.where(I, A, C)",
    "xp.unique(I)", "xp.unique(I, return_index=True, return_inverse=True, return_counts=True)", "xp.unique(K)", "xp.unique(N)", "xp.unique(M, axis=0)", "xp.unique(I % 2, axis=1, return_counts=True)", "xp.unique_counts(K)",
    "xp.sort(xp.unique_values(K))", "xp.union1d(K, I)", "xp.intersect1d(K, I)", "xp.intersect1d(K, I, return_indices=True)", "xp.setdiff1d(I, K)", "xp.setxor1d(I, K)", "xp.isin(I, K)", "xp.isin(I, K, invert=True)",
    "~xp.unique(I, size=5)", "~xp.unique(I, size=20, fill_value=77)", "~xp.nonzero(I, size=3)", "~xp.nonzero(I, size=15, fill_value=-1)", "~xp.where(M, size=4)", "~xp.argwhere(I, size=14, fill_value=9)", "~xp.intersect1d(K, I, size=5)",
    "~xp.setdiff1d(I, K, size=12)", "~xp.unique(I, return_index=True, return_inverse=True, return_counts=True, size=16)", "~xp.flatnonzero(I, size=2)", "~xp.extract(M, A, size=8)", "~xp.compress(M[0], A, axis=1, size=3)",
    # taking
    "xp.take(A, K)", "xp.take(A, K, axis=1)", "xp.take(A, np.array([[0, 1], [2, -1]]), axis=0)", "xp.take(A, K + 3, axis=1, mode='wrap')", "xp.take(A, K + 2, axis=1, mode='clip')", "~xp.take(A, K + 2, axis=1)", "~xp.take(I, K + 2, axis=1)", "~xp.take(A, K + 2, axis=1, fill_value=5.0, mode='fill')",
    "xp.take_along_axis(A, K[None, :3] % 3, 0)" if False else "xp.take_along_axis(A, xp.argsort(A, axis=1), 1)", "xp.take_along_axis(A, xp.argmax(A, axis=0)[None], 0)", "xp.take_along_axis(A, K[:, None][:3], 1)", "xp.take_along_axis(T, xp.argsort(T, axis=1), 1)",
    "xp.extract(M, A)", "xp.compress(M[0], A, axis=1)", "xp.choose(K, [V, W, V])", "xp.select([A > 0, A < -1], [A, P], 9.0)", "xp.piecewise(A, [A < 0, A >= 1], [lambda x: -x, lambda x: x * 2, 7.0])",
    "xp.tril_indices(3)", "xp.triu_indices(3, 1)", "xp.diag_indices(3)", "xp.ix_(K, K)", "xp.unravel_index(K, (2, 2))", "xp.ravel_multi_index((K, K), (3, 4))", "xp.ravel_multi_index((K, K + 3), (3, 4), mode='wrap')",
    # calculus, polynomials
    "xp.diff(A)", "xp.diff(A, 2, axis=0)", "xp.diff(V, prepend=0.0, append=W)", "xp.diff(M)", "xp.ediff1d(V, to_begin=1.0, to_end=2.0)", "xp.gradient(V)", "xp.gradient(A)", "xp.gradient(A, 2.0, axis=1)", "xp.gradient(Y, X)",
    "xp.trapezoid(A)", "xp.trapezoid(V, W)", "xp.trapezoid(A, dx=0.5, axis=0)", "xp.interp(V, X, Y)", "xp.interp(A, X, Y, left=-5.0, right=5.0)", "xp.interp(V, X, Y, period=1.5)", "xp.unwrap(V * 4)", "xp.clip(A, -0.5, 0.5)", "xp.clip(I, 0, 3)",
    "xp.clip(A, V, None)", "xp.clip(I, None, 2)", "xp.round(A, 2)", "xp.round(A * 100, -1)", "xp.convolve(V, W)", "xp.convolve(X, V, 'same')", "xp.convolve(V, X, 'valid')", "xp.convolve(K, K) * 1.0", "xp.correlate(X, V)",
    "xp.correlate(X, V, 'same')", "xp.correlate(V, X, 'full')", "xp.correlate(V, X, 'same')", "xp.correlate(C[0], C[1], 'full')", "xp.convolve(X[:5], V, 'same')", "xp.correlate(X[:5], V, 'same')", "xp.polyval(V, A)", "xp.polyadd(V, W[:2])", "xp.polysub(V[:2], W)", "xp.polymul(V, W)", "xp.polydiv(V, W[:2])[0]", "xp.polyder(V)", "xp.polyder(V, 2)",
    "xp.polyint(V)", "xp.polyint(V, 2, k=np.array([1.0, 2.0]))", "xp.poly(V)", "xp.polyfit(X, Y, 2)", "xp.packbits(M)", "xp.packbits(M, axis=1, bitorder='little')", "xp.unpackbits(U)", "xp.unpackbits(U, axis=1, count=5)",
    "xp.isclose(A, A + 1e-7)", "xp.allclose(A, P)", "xp.array_equal(A, A)", "xp.array_equal(N, N, equal_nan=True)", "xp.array_equiv(A, A[None])", "xp.apply_along_axis(lambda v: v.sum(), 1, A)", "xp.apply_over_axes(xp.sum, T, (0, 2))",
    # contraction
    "xp.dot(A, B)", "xp.dot(V, W)", "xp.dot(T, V)", "xp.dot(T, B)", "xp.dot(3.0, A)", "xp.dot(I, K)", "xp.matmul(T, B)", "xp.matmul(Q, Q)", "xp.matmul(V, B)", "xp.matmul(A, V)", "xp.matmul(Q[:1], T.transpose(0, 2, 1))", "xp.matmul(A, Q)", "xp.matmul(V, Q)",
    "xp.matmul(T[:, None], Q)", "xp.vdot(A, P)", "xp.vdot(C, C)", "xp.inner(A, P)", "xp.inner(V, W)", "xp.outer(V, K)", "xp.kron(A, A[:2])", "xp.kron(V, W)", "xp.cross(A[:, :3], P[:, :3])", "xp.cross(A[0, :3], P[:, :3])", "xp.tensordot(T, A, 2)", "xp.tensordot(T, A, ((2, 1), (1, 0)))", "xp.tensordot(V, W, 0)",
    "xp.tensordot(A, B, ([1], [0]))", "xp.vecdot(A, V)", "xp.vecdot(C, C)", "xp.matvec(A, V)", "xp.vecmat(V, B)",
    *(f"xp.einsum('{s}', {o})" for s, o in [("ij->ji", "A"), ("ii->i", "S"), ("ii", "S"), ("ij->", "A"), ("ij->i", "A"), ("ij,jk->ik", "A, B"), ("ij,jk", "A, B"), ("ij,jk->ki", "A, B"), ("i,i->", "V, W"), ("i,j->ij", "V, W"), ("ij,ij->ij", "A, P"),
      ("...ij,jk->...ik", "T, B"), ("bij,bjk->bik", "T, Q"), ("bij,bjk->kbi", "T, Q"), ("ij,j,jk->ik", "A, V, B"), ("i,ij,j", "A[:, 0], A, V"), ("ij,kl->", "A, B"), ("...i,...i", "A, V"), ("bij,bkj->bik", "T, T"), ("aij,j->ia", "T, V"), ("ij,ij", "A, I"),
      ("iji->j", "Q.reshape(4, 2, 4)"), ("ij,jk,kl,lm->im", "A, B, B.T, B"), ("...->...", "A"), ("ij,j->j", "A, V"), ("i...,i...->...", "A, P")]),
    "xp.einsum(A, [0, 1], B, [1, 2], [0, 2])", "xp.einsum(A, [0, 1], B, [1, 2])",
    # linear algebra
    "xp.linalg.cholesky(S)", "xp.linalg.cholesky(S, upper=True)", "xp.linalg.inv(Q)", "xp.linalg.det(Q)", "xp.linalg.det(S)", "xp.linalg.det(Q[:, :2, :2])", "xp.linalg.det(Q[:, :3, :3])", "xp.linalg.slogdet(Q)", "xp.linalg.slogdet(C[:, :3] * 0)", "xp.linalg.solve(Q, T.transpose(0, 2, 1))", "xp.linalg.solve(S, V)", "xp.linalg.svd(A, compute_uv=False)", "xp.linalg.svdvals(T)",
    "xp.linalg.eigvalsh(S)", "xp.linalg.norm(A)", "xp.linalg.norm(V, 1)", "xp.linalg.norm(V, np.inf)", "xp.linalg.norm(V, 3)", "xp.linalg.norm(A, 'nuc')", "xp.linalg.norm(A, 2)", "xp.linalg.norm(A, 1)", "xp.linalg.norm(A, -np.inf)", "xp.linalg.norm(T, axis=1)", "xp.linalg.norm(T, axis=(1, 2), keepdims=True)", "xp.linalg.norm(C)",
    "xp.linalg.matrix_norm(T)", "xp.linalg.vector_norm(T)", "xp.linalg.vector_norm(T, axis=(0, 1), ord=1)", "xp.linalg.cond(S)", "xp.linalg.cond(S, 1)", "xp.linalg.matrix_rank(A)", "xp.linalg.pinv(A)", "xp.linalg.matrix_power(S, 3)", "xp.linalg.matrix_power(S, -2)", "xp.linalg.matrix_power(S, 0)", "xp.linalg.lstsq(B, V)[0]", "xp.linalg.lstsq(B[:, :2], V)[:3]",
    "xp.linalg.multi_dot([A, B, B.T, V])", "xp.linalg.cross(A[:, :3], P[:, :3])", "xp.linalg.outer(V, W)", "xp.linalg.tensordot(A, B, axes=1)", "xp.linalg.vecdot(A, V)", "xp.linalg.diagonal(T)", "xp.linalg.trace(T)", "xp.linalg.matmul(A, B)", "xp.linalg.tensorsolve(S.reshape(2, 2, 2, 2), A[:2, :2])", "xp.linalg.tensorinv(S.reshape(2, 2, 2, 2))",
    "xp.abs(xp.linalg.qr(A)[1])", "xp.abs(xp.linalg.qr(B.T, mode='r'))", "xp.abs(xp.linalg.qr(B, mode='complete')[0]) > -1", "xp.sort(xp.linalg.eigvals(S).real)", "xp.abs(xp.linalg.svd(A, full_matrices=False)[0])", "xp.abs(xp.linalg.eigh(S)[1])",
    # transforms
    *(f"xp.fft.{f}(A)" for f in "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2".split()), "xp.fft.fft(C, axis=0)", "xp.fft.fft(A, 6)", "xp.fft.fft(A, 2, norm='ortho')", "xp.fft.rfft(A, 7, axis=0, norm='forward')", "xp.fft.irfft(C, 5)", "xp.fft.irfft(C, norm='ortho')",
    "xp.fft.fftn(T, axes=(0, 2))", "xp.fft.fftn(T, s=(4, 2), axes=(1, 0))", "xp.fft.irfftn(T)", "xp.fft.fftfreq(5, 0.1)", "xp.fft.rfftfreq(6)", "xp.fft.fftshift(A)", "xp.fft.ifftshift(A, axes=1)", "xp.fft.hfft(C, norm='ortho')", "xp.fft.rfftn(T)", "xp.fft.fft(I)",
    # ufunc methods
    "xp.add.reduce(A)", "xp.add.reduce(A, axis=1, keepdims=True)", "xp.multiply.reduce(A, axis=None)", "xp.maximum.reduce(A)", "xp.add.accumulate(A, axis=1)", "xp.maximum.accumulate(A)", "xp.subtract.outer(V, W)", "xp.subtract.reduce(A)", "xp.logaddexp.reduce(A, axis=1)", "xp.add.reduceat(V, np.array([0, 2]))", "xp.logical_or.reduce(M)",
    "xp.vectorize(lambda x, y: x * y)(A, V)", "xp.vectorize(lambda x, y: x @ y, signature='(n),(n)->()')(A, V)", "xp.vectorize(lambda x: x[:2], signature='(n)->(k)')(A)",
    # methods
    "A.sum(axis=0)", "A.mean()", "A.T", "T.mT", "A.reshape(4, 3)", "A.reshape((2, -1))", "T.transpose(2, 0, 1)", "A.astype('int32')", "A.flatten()", "A.ravel()", "A.max(axis=1)", "A.argmax(1)", "A.std()", "A.var(0)", "A.cumsum(1)", "A.clip(-0.1, 0.2)", "A.round(1)", "A.dot(B)", "A.take(K)", "A.swapaxes(0, 1)", "A.squeeze()",
    "A.diagonal()", "A.trace()", "A.repeat(2, axis=1)", "M.any(0)", "M.all()", "I.prod(0)", "I.min()", "C.conj()", "C.real", "C.imag", "I.nonzero()", "A.copy()", "X.searchsorted(V)", "A.view('int32')", "A.view('uint8')", "A.ptp(0)" if False else "xp.ptp(A, 0)", "A.argsort(1)", "xp.sort(A.T)", "U.view('int8')",
]  # fmt: skip
