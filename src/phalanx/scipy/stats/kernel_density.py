"""Kernel density estimation with Gaussian kernels.

Builds on `numpy.linalg`, `special` and `random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from phalanx import lax, numpy as jnp, random
from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.operands import promote_inexact, to_operand
from phalanx.scipy.special import logsumexp, ndtr
from phalanx.tree import register_pytree_node_class
from phalanx.typing import Array, ArrayLike, PRNGKey


@register_pytree_node_class
class gaussian_kde:
    """A kernel density estimate with Gaussian kernels.

    Args:
      dataset: num[dims, n], or num[n] for one dimension.
      bw_method: the bandwidth: `"scott"` (the default), `"silverman"`, a factor, or a function of the estimate.
      weights: the weights of the samples, num[n]; equal by default.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: there is only one sample, or the number of weights differs from the number of samples.

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

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: str | float | Callable[..., Any] | None = None,
        weights: ArrayLike | None = None,
    ):
        (data,) = promote_inexact("stats.gaussian_kde", jnp.atleast_2d(dataset))
        if data.size <= 1:
            raise ShapeError(
                "stats.gaussian_kde, argument dataset",
                expected="several samples",
                got=data.shape,
                fix="pass at least 2 samples",
            )
        if weights is None:
            weights = lax.full((data.shape[1],), 1 / data.shape[1], data.dtype)
        else:
            (weights,) = promote_inexact("stats.gaussian_kde", jnp.atleast_1d(weights))
            if weights.shape != (data.shape[1],):
                raise ShapeError(
                    "stats.gaussian_kde, argument weights",
                    expected=f"{data.shape[1]} numbers",
                    got=weights.shape,
                    fix="pass one weight for each sample",
                )
            weights = (weights / jnp.sum(weights)).astype(data.dtype)
        self.dataset, self.weights = data, weights
        self.neff = 1 / jnp.sum(weights * weights)
        self.covariance = jnp.atleast_2d(jnp.cov(data, bias=False, aweights=weights)) * self._factor(bw_method) ** 2
        self.inv_cov = jnp.linalg.inv(self.covariance)

    def _factor(self, method: str | float | Callable[..., Any] | None) -> Any:
        if method is None or method == "scott":
            return self.neff ** (-1.0 / (self.d + 4))
        if method == "silverman":
            return (self.neff * (self.d + 2) / 4.0) ** (-1.0 / (self.d + 4))
        if isinstance(method, Callable):  # type: ignore[arg-type]
            return method(self)
        if isinstance(method, str):
            raise ArgumentError(
                "stats.gaussian_kde, argument bw_method",
                expected="'scott', 'silverman', a number or a function",
                got=repr(method),
                fix="pass bw_method='scott'",
            )
        return method

    def tree_flatten(self) -> tuple:
        """The children of the pytree node."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> gaussian_kde:
        """Rebuild the estimate from its arrays."""
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

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points, num[dims, m] -> num[m]."""
        return lax.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: ArrayLike) -> Array:
        """The log density at points, num[dims, m] -> num[m]."""
        differences = lax.expand_dims(self._points(x), (2,)) - lax.expand_dims(self.dataset, (1,))
        # Each kernel's exponent in the metric of the inverse covariance; `logsumexp` adds them without underflow.
        exponents = -0.5 * jnp.sum(_apply_matrix(self.inv_cov, differences) * differences, axis=0)
        return logsumexp(exponents, axis=-1, b=self.weights[None]) - self._log_norm(self.covariance)

    def _points(self, x: Array) -> Any:
        points = jnp.atleast_2d(x).astype(self.dataset.dtype)
        if points.shape[0] != self.d:
            if points.shape != (1, self.d):
                raise ShapeError(
                    "stats.gaussian_kde, argument points",
                    expected=f"points of {self.d} dimensions",
                    got=points.shape,
                    fix=f"pass points of shape [{self.d}, m]",
                )
            points = points.T
        return points

    def _log_norm(self, covariance: Array) -> Any:
        return jnp.sum(lax.log(jnp.linalg.cholesky(covariance).diagonal())) + 0.5 * self.d * math.log(2 * math.pi)

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the product of the density and a normal density with the given mean and covariance."""
        mean, cov = jnp.atleast_1d(mean), jnp.atleast_2d(cov)
        if mean.shape != (self.d,) or cov.shape != (self.d, self.d):
            raise ShapeError(
                "stats.gaussian_kde.integrate_gaussian",
                expected=f"a distribution of {self.d} dimensions",
                got=f"{mean.shape} and {cov.shape}",
                fix=f"pass mean of shape [{self.d}] and cov of shape [{self.d}, {self.d}]",
            )
        return self._overlap(self.dataset, self.weights, lax.expand_dims(mean, (1,)), None, self.covariance + cov)

    def _overlap(
        self, left: Array, left_weights: Array, right: Array, right_weights: Array | None, covariance: Array
    ) -> Any:
        differences = lax.expand_dims(left, (2,)) - lax.expand_dims(right, (1,))
        energy = -0.5 * jnp.sum(_apply_matrix(jnp.linalg.inv(covariance), differences) * differences, axis=0)
        total = jnp.matmul(left_weights, lax.exp(energy - self._log_norm(covariance)))
        return total[0] if right_weights is None else jnp.matmul(total, right_weights)

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability between two numbers, for one dimension."""
        if self.d != 1:
            raise ShapeError(
                "stats.gaussian_kde.integrate_box_1d",
                expected="samples of 1 dimension",
                got=self.d,
                fix="estimate the probability from samples of `resample`",
            )
        low, high = (to_operand(v, "stats.gaussian_kde.integrate_box_1d") for v in (low, high))
        width = lax.sqrt(self.covariance[0, 0])
        upper, lower = (ndtr((v - self.dataset[0]) / width) for v in (high, low))
        return jnp.sum(self.weights * (upper - lower))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimated densities."""
        if other.d != self.d:
            raise ShapeError(
                "stats.gaussian_kde.integrate_kde",
                expected=f"samples of {self.d} dimensions",
                got=other.d,
                fix=f"pass an estimate of {self.d}-dimensional samples",
            )
        return self._overlap(
            self.dataset, self.weights, other.dataset, other.weights, self.covariance + other.covariance
        )

    def resample(self, key: PRNGKey, shape: tuple = ()) -> Any:
        """Sample from the density; `shape` samples as num[dims, *shape]."""
        which_key, noise_key = random.split(key)
        which = random.choice(which_key, self.n, shape=shape, p=self.weights)
        noise = random.normal(noise_key, (self.d, *shape), self.dataset.dtype)
        return self.dataset[:, which] + _apply_matrix(jnp.linalg.cholesky(self.covariance), noise)

    def integrate_box(self, low_bounds: ArrayLike, high_bounds: ArrayLike, maxpts: int | None = None) -> Array:
        """Not supported, since it needs numerical integration; `integrate_box_1d` is exact for one dimension."""
        raise ArgumentError(
            "stats.gaussian_kde.integrate_box",
            expected="integrate_box_1d",
            got="several dimensions",
            fix="count the samples of `resample` inside of the box",
        )

    def set_bandwidth(self, bw_method: str | float | Callable[..., Any] | None = None) -> None:
        """Not supported, since estimates are immutable."""
        raise ArgumentError(
            "stats.gaussian_kde.set_bandwidth",
            expected="bw_method= when it is made",
            got=bw_method,
            fix="create a new estimate with gaussian_kde(dataset, bw_method)",
        )


def _apply_matrix(matrix: Array, vectors: Array) -> Any:
    """The products of a matrix and the columns of `vectors`, an array with the vector dimension first."""
    return lax.dot_general(jnp.array(matrix), vectors, (((1,), (0,)), ((), ())), precision="highest")
