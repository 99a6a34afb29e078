"""A density estimated from samples, by a normal kernel around each.

Builds on `numpy.linalg`, `special` and `random`; `stats` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from phalanx import lax, random
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy.contraction import matmul
from phalanx.numpy.creation import array
from phalanx.numpy.linalg import cholesky, inv
from phalanx.numpy.operands import operand, promote_inexact
from phalanx.numpy.reductions import sum
from phalanx.numpy.shapes import atleast_1d, atleast_2d
from phalanx.numpy.statistics import cov as _cov
from phalanx.scipy.special import logsumexp, ndtr
from phalanx.tree_util import register_pytree_node_class


@register_pytree_node_class
class gaussian_kde:
    """An estimate of the density that samples come from.

    Args:
      dataset: num[dims, n], or num[n] for one dimension.
      bw_method: the width: `"scott"` (the default), `"silverman"`, a number, or a function of the estimate.
      weights: of the samples, num[n]; equal by default.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: there is only one sample, or the weights do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.stats import gaussian_kde
      >>> round(gaussian_kde(jnp.array([-1.0, 0.0, 1.0])).pdf(0.0)[0].item(), 3)
      0.318
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None):
        (data,) = promote_inexact("stats.gaussian_kde", atleast_2d(dataset))
        if data.size <= 1:
            raise ShapeError("stats.gaussian_kde, argument dataset", expected="several samples", got=data.shape,
                             mend="give more")  # fmt: skip
        if weights is None:
            weights = lax.full((data.shape[1],), 1 / data.shape[1], data.dtype)
        else:
            (weights,) = promote_inexact("stats.gaussian_kde", atleast_1d(weights))
            if weights.shape != (data.shape[1],):
                raise ShapeError("stats.gaussian_kde, argument weights", expected=f"{data.shape[1]} numbers",
                                 got=weights.shape, mend="give one for each sample")  # fmt: skip
            weights = (weights / sum(weights)).astype(data.dtype)
        self.dataset, self.weights = data, weights
        self.neff = 1 / sum(weights * weights)
        spread = atleast_2d(_cov(data, bias=False, aweights=weights))
        self.covariance = spread * self._factor(bw_method) ** 2
        self.inv_cov = inv(self.covariance)

    def _factor(self, method: Any) -> Any:
        if method is None or method == "scott":
            return self.neff ** (-1.0 / (self.d + 4))
        if method == "silverman":
            return (self.neff * (self.d + 2) / 4.0) ** (-1.0 / (self.d + 4))
        if isinstance(method, Callable):  # type: ignore[arg-type]
            return method(self)
        if isinstance(method, str):
            raise ArgumentError(
                "stats.gaussian_kde, argument bw_method", expected="'scott', 'silverman', a number or a function",
                got=repr(method), mend="use one of these",
            )  # fmt: skip
        return method

    def tree_flatten(self) -> tuple:
        """The arrays that the estimate consists of."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> gaussian_kde:
        """The estimate of these arrays."""
        del aux
        self = object.__new__(cls)
        self.neff, self.dataset, self.weights, self.covariance, self.inv_cov = children
        return self

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: Any) -> Any:
        """The density at points, num[dims, m] -> num[m]."""
        return lax.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points, num[dims, m] -> num[m]."""
        points = self._points(x)
        differences = lax.expand_dims(points, (2,)) - lax.expand_dims(self.dataset, (1,))
        exponents = -0.5 * sum(_turned(self.inv_cov, differences) * differences, axis=0)
        return logsumexp(exponents, axis=-1, b=self.weights) - self._log_norm(self.covariance)

    def _points(self, x: Any) -> Any:
        points = atleast_2d(x).astype(self.dataset.dtype)
        if points.shape[0] != self.d:
            if points.shape != (1, self.d):
                raise ShapeError("stats.gaussian_kde, argument points", expected=f"points of {self.d} dimensions",
                                 got=points.shape, mend="let the first dimension count them")  # fmt: skip
            points = points.T
        return points

    def _log_norm(self, covariance: Any) -> Any:
        return sum(lax.log(cholesky(covariance).diagonal())) + 0.5 * self.d * math.log(2 * math.pi)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times that of a normal distribution, given by its mean and covariance."""
        mean, cov = atleast_1d(mean), atleast_2d(cov)
        if mean.shape != (self.d,) or cov.shape != (self.d, self.d):
            raise ShapeError("stats.gaussian_kde.integrate_gaussian", expected=f"a distribution of {self.d} dimensions",
                             got=f"{mean.shape} and {cov.shape}", mend="give a mean and a covariance")  # fmt: skip
        return self._overlap(self.dataset, self.weights, lax.expand_dims(mean, (1,)), None, self.covariance + cov)

    def _overlap(self, left: Any, left_weights: Any, right: Any, right_weights: Any, covariance: Any) -> Any:
        differences = lax.expand_dims(left, (2,)) - lax.expand_dims(right, (1,))
        energy = -0.5 * sum(_turned(inv(covariance), differences) * differences, axis=0)
        total = matmul(left_weights, lax.exp(energy))
        return (total[0] if right_weights is None else matmul(total, right_weights)) * lax.exp(
            -self._log_norm(covariance)
        )

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability between two numbers, for one dimension."""
        if self.d != 1:
            raise ShapeError("stats.gaussian_kde.integrate_box_1d", expected="samples of 1 dimension", got=self.d,
                             mend="integrate by sampling")  # fmt: skip
        low, high = (operand(v, "stats.gaussian_kde.integrate_box_1d") for v in (low, high))
        width = lax.sqrt(self.covariance[0, 0])
        upper, lower = (ndtr((v - self.dataset[0]) / width) for v in (high, low))
        return sum(self.weights * (upper - lower))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two estimated densities."""
        if other.d != self.d:
            raise ShapeError("stats.gaussian_kde.integrate_kde", expected=f"samples of {self.d} dimensions",
                             got=other.d, mend="estimate both from samples alike")  # fmt: skip
        covariance = self.covariance + other.covariance
        return self._overlap(self.dataset, self.weights, other.dataset, other.weights, covariance)

    def resample(self, key: Any, shape: tuple = ()) -> Any:
        """Draw from the density: samples of `shape`, as num[dims, *shape]."""
        which_key, noise_key = random.split(key)
        which = random.choice(which_key, self.n, shape=shape, p=self.weights)
        noise = random.normal(noise_key, (self.d, *shape), self.dataset.dtype)
        factor = cholesky(self.covariance)
        return self.dataset[:, which] + _turned(factor, noise)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not there: it would take numerical integration; `integrate_box_1d` is exact."""
        del low_bounds, high_bounds, maxpts
        raise ArgumentError("stats.gaussian_kde.integrate_box", expected="integrate_box_1d", got="several dimensions",
                            mend="draw with resample and count")  # fmt: skip

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not there: estimates do not change."""
        raise ArgumentError("stats.gaussian_kde.set_bandwidth", expected="bw_method= when it is made", got=bw_method,
                            mend="make another estimate")  # fmt: skip


def _turned(matrix: Any, vectors: Any) -> Any:
    """A matrix applied to vectors along the first dimension."""
    return lax.dot_general(array(matrix), vectors, (((1,), (0,)), ((), ())), precision="highest")
