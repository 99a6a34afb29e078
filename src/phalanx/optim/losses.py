"""Loss functions, element by element; training programs take the mean.

Builds on `numpy` and `nn`.
"""

from __future__ import annotations

from typing import Any

from phalanx import lax, nn, numpy as jnp
from phalanx.core import DTypeError
from phalanx.optim.gradient_transformation import Scalar
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike, Axis


@eager_jit
def squared_error(predictions: ArrayLike, targets: ArrayLike | None = None) -> Any:
    """(prediction - target)^2.

    Args:
      predictions: num[*s].
      targets: num[*s]; None denotes zeros.

    Returns:
      The errors, real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.squared_error(3.0, 1.0))
      4.0
    """
    return jnp.square(_subtract_targets(predictions, targets))


def _subtract_targets(predictions: ArrayLike, targets: ArrayLike | None) -> ArrayLike:
    return predictions if targets is None else jnp.subtract(predictions, targets)


@eager_jit
def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Any:
    """(prediction - target)^2 / 2.

    Args:
      predictions, targets: as in `squared_error`.

    Returns:
      The losses, real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.l2_loss(3.0, 1.0))
      2.0
    """
    return 0.5 * squared_error(predictions, targets)


@eager_jit
def huber_loss(predictions: ArrayLike, targets: ArrayLike | None = None, *, delta: Scalar = 1.0) -> Any:
    """Quadratic for small errors (`l2_loss`) and linear for large ones.

    Args:
      predictions: real[*s].
      targets: real[*s]; None denotes zeros.
      delta: the error at which the loss becomes linear.

    Returns:
      real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.huber_loss(3.0, 0.0))
      2.5

    Source: P. J. Huber (1964), doi:10.1214/aoms/1177703732.
    """
    error = jnp.abs(_subtract_targets(predictions, targets))
    # With s = min(e, delta), s^2/2 + delta (e - s) is quadratic for e <= delta and linear beyond, without a branch.
    small = jnp.minimum(error, delta)
    return 0.5 * small * small + delta * (error - small)


@eager_jit
def log_cosh(predictions: ArrayLike, targets: ArrayLike | None = None) -> Any:
    """The logarithm of the hyperbolic cosine of the error.

    Args:
      predictions, targets: as in `squared_error`.

    Returns:
      The losses, real[*s].

    Examples:
      >>> from phalanx import optim
      >>> round(float(optim.log_cosh(1.0, 0.0)), 4)
      0.4338
    """
    error = jnp.asarray(_subtract_targets(predictions, targets))
    # log(cosh(e)) = log(exp(e) + exp(-e)) - log(2); `cosh` itself would overflow for large errors.
    return jnp.logaddexp(error, -error) - jnp.log(2.0).astype(error.dtype)


@eager_jit(static_argnames=("axis",))
def softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Any:
    """-sum(labels log softmax(logits)), where labels are probability distributions.

    Args:
      logits: real[..., classes].
      labels: real[..., classes], probabilities that sum to 1.
      axis: the dimension of the classes, or several dimensions.
      where: bool[..., classes], the classes to include.

    Returns:
      real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.softmax_cross_entropy(np.zeros(4), np.eye(4)[0])), 4)
      1.3863
    """
    logarithms = nn.log_softmax(logits, axis, where)
    # Excluded classes have the logarithm -inf, and -inf times a label of 0 is NaN.
    if where is not None:
        logarithms = jnp.where(where, logarithms, 0)
    return -jnp.sum(labels * logarithms, axis, where=where)


@eager_jit(static_argnames=("axis",))
def softmax_cross_entropy_with_integer_labels(
    logits: ArrayLike, labels: ArrayLike, axis: int = -1, where: ArrayLike | None = None
) -> Any:
    """-log softmax(logits)[label].

    Args:
      logits: real[..., classes].
      labels: int[...].
      axis: the dimension of the classes.
      where: bool[..., classes], the classes to include.

    Returns:
      real[...].

    Raises:
      DTypeError: the labels are not integers.

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.softmax_cross_entropy_with_integer_labels(np.zeros(4), 0)), 4)
      1.3863
    """
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise DTypeError(
            "optim.softmax_cross_entropy_with_integer_labels, argument labels",
            expected="integers",
            got=labels.dtype.name,
            fix="pass class indices, or use softmax_cross_entropy for probabilities",
        )
    logits = jnp.asarray(logits)
    # Shifting by the largest logit first makes it cancel exactly in the difference below.
    logits = logits - lax.stop_gradient(jnp.max(logits, axis, keepdims=True, initial=-jnp.inf, where=where))
    chosen = jnp.take_along_axis(logits, jnp.expand_dims(labels, axis), axis).squeeze(axis)
    return nn.logsumexp(logits, axis, where=where) - chosen


@eager_jit
def sigmoid_binary_cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Any:
    """-label log sigmoid(logit) - (1 - label) log sigmoid(-logit).

    Args:
      logits: real[*s].
      labels: real[*s], between 0 and 1.

    Returns:
      real[*s].

    Examples:
      >>> from phalanx import optim
      >>> round(float(optim.sigmoid_binary_cross_entropy(0.0, 1.0)), 4)
      0.6931
    """
    labels = jnp.asarray(labels)
    # `log_sigmoid` of both signs, since log(1 - sigmoid(x)) cancels for large x.
    return -labels * nn.log_sigmoid(logits) - (1.0 - labels) * nn.log_sigmoid(jnp.negative(logits))


@eager_jit
def hinge_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Any:
    """max(0, 1 - output target), for targets -1 and 1.

    Args:
      predictor_outputs: real[*s].
      targets: real[*s].

    Returns:
      real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.hinge_loss(0.25, 1.0))
      0.75
    """
    # Zero for predictions on the correct side with a margin of at least 1.
    return jnp.maximum(0, 1 - jnp.multiply(predictor_outputs, targets))


@eager_jit(static_argnames=("axis",))
def kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None
) -> Any:
    """sum(target (log target - log prediction)), with 0 log 0 = 0.

    Args:
      log_predictions: real[..., classes], logarithms of probabilities.
      targets: real[..., classes], probabilities.
      axis: the dimension of the classes.
      where: bool[..., classes], the classes to include.

    Returns:
      real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> float(optim.kl_divergence(np.log([0.5, 0.5]), np.array([0.5, 0.5])))
      0.0

    Source: S. Kullback and R. A. Leibler (1951), doi:10.1214/aoms/1177729694.
    """
    targets = jnp.asarray(targets)
    # The inner selection keeps log(0) = -inf out of the derivative, which would be NaN times 0.
    logarithm = jnp.where(targets == 0, 0, jnp.log(jnp.where(targets == 0, 1, targets)))
    return jnp.sum(targets * (logarithm - log_predictions), axis, where=where)


@eager_jit(static_argnames=("axis",))
def cosine_similarity(predictions: ArrayLike, targets: ArrayLike, *, epsilon: Scalar = 0.0, axis: Axis = -1) -> Any:
    """The cosine of the angle between vectors.

    Args:
      predictions: real[..., n].
      targets: real[..., n].
      epsilon: a lower bound of the norms.
      axis: the dimension of the vectors.

    Returns:
      real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.cosine_similarity(np.array([1.0, 1.0]), np.array([0.0, 2.0]))), 4)
      0.7071
    """

    def unit(x: ArrayLike) -> Any:
        squares = jnp.sum(jnp.square(x), axis, keepdims=True)
        norm = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
        return jnp.divide(x, jnp.maximum(norm, epsilon))

    return jnp.sum(unit(predictions) * unit(targets), axis)


def cosine_distance(predictions: ArrayLike, targets: ArrayLike, *, epsilon: Scalar = 0.0, axis: Axis = -1) -> Any:
    """1 - cosine_similarity.

    Args:
      predictions, targets, epsilon, axis: as in `cosine_similarity`.

    Returns:
      The distances, real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.cosine_distance(np.array([1.0, 1.0]), np.array([0.0, 2.0]))), 4)
      0.2929
    """
    return 1.0 - cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis)


@eager_jit(static_argnames=("axis",))
def smooth_labels(labels: ArrayLike, alpha: Scalar, *, axis: int = -1) -> Any:
    """Mix labels with the uniform distribution: (1 - alpha) labels + alpha / classes.

    Args:
      labels: real[..., classes].
      alpha: the weight of the uniform distribution.
      axis: the dimension of the classes.

    Returns:
      real[..., classes].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> optim.smooth_labels(np.float32([1.0, 0.0]), 0.5).tolist()
      [0.75, 0.25]

    Source: R. Müller, S. Kornblith and G. Hinton (2019), arXiv:1906.02629.
    """
    labels = jnp.asarray(labels)
    return (1.0 - alpha) * labels + alpha / labels.shape[axis]
