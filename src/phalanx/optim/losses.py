"""Losses: what a prediction costs, element by element; users take the mean.

Builds on `numpy` and `nn`; called by training programs.
"""

from __future__ import annotations

from typing import Any

from phalanx import lax, nn
from phalanx import numpy as jnp
from phalanx.core.errors import DTypeError
from phalanx.runtime.dispatch import eager_program


@eager_program
def squared_error(predictions: Any, targets: Any = None) -> Any:
    """(prediction - target)^2.

    Args:
      predictions: num[*s].
      targets: num[*s]; None for zeros.

    Returns:
      The errors, real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.squared_error(3.0, 1.0))
      4.0
    """
    return jnp.square(predictions if targets is None else jnp.subtract(predictions, targets))


@eager_program
def l2_loss(predictions: Any, targets: Any = None) -> Any:
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


@eager_program
def huber_loss(predictions: Any, targets: Any = None, *, delta: Any = 1.0) -> Any:
    """The `l2_loss` of small errors, and a line beyond.

    Args:
      predictions: real[*s].
      targets: real[*s]; None for zeros.
      delta: the error at which the line begins.

    Returns:
      real[*s].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.huber_loss(3.0, 0.0))
      2.5

    Source: P. J. Huber (1964), doi:10.1214/aoms/1177703732.
    """
    error = jnp.abs(predictions if targets is None else jnp.subtract(predictions, targets))
    small = jnp.minimum(error, delta)
    return 0.5 * small * small + delta * (error - small)


@eager_program
def log_cosh(predictions: Any, targets: Any = None) -> Any:
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
    error = jnp.asarray(predictions if targets is None else jnp.subtract(predictions, targets))
    return jnp.logaddexp(error, -error) - jnp.log(2.0).astype(error.dtype)


@eager_program(static_argnames=("axis",))
def softmax_cross_entropy(logits: Any, labels: Any, axis: Any = -1, where: Any = None) -> Any:
    """-sum(labels log softmax(logits)), for labels that are distributions.

    Args:
      logits: real[..., classes].
      labels: real[..., classes], each adding to 1.
      axis: the dimension of the classes, or several.
      where: bool[..., classes], which classes count.

    Returns:
      real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.softmax_cross_entropy(np.zeros(4), np.eye(4)[0])), 4)
      1.3863
    """
    logarithms = nn.log_softmax(logits, axis, where)
    if where is not None:
        logarithms = jnp.where(where, logarithms, 0)
    return -jnp.sum(labels * logarithms, axis, where=where)


@eager_program(static_argnames=("axis",))
def softmax_cross_entropy_with_integer_labels(logits: Any, labels: Any, axis: int = -1, where: Any = None) -> Any:
    """-log softmax(logits)[label].

    Args:
      logits: real[..., classes].
      labels: int[...].
      axis: the dimension of the classes.
      where: bool[..., classes], which classes count.

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
        raise DTypeError("optim.softmax_cross_entropy_with_integer_labels, argument labels", expected="integers",
                         got=labels.dtype.name, mend="use softmax_cross_entropy for distributions")  # fmt: skip
    logits = jnp.asarray(logits)
    # Shifted first: the largest logit cancels exactly.
    largest = jnp.max(logits, axis, keepdims=True, initial=-jnp.inf, where=where)
    logits = logits - lax.stop_gradient(largest)
    chosen = jnp.take_along_axis(logits, jnp.expand_dims(labels, axis), axis).squeeze(axis)
    return nn.logsumexp(logits, axis, where=where) - chosen


@eager_program
def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Any:
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
    return -labels * nn.log_sigmoid(logits) - (1.0 - labels) * nn.log_sigmoid(jnp.negative(logits))


@eager_program
def hinge_loss(predictor_outputs: Any, targets: Any) -> Any:
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
    return jnp.maximum(0, 1 - jnp.multiply(predictor_outputs, targets))


@eager_program(static_argnames=("axis",))
def kl_divergence(log_predictions: Any, targets: Any, axis: Any = -1, where: Any = None) -> Any:
    """sum(target (log target - log prediction)), with 0 log 0 = 0.

    Args:
      log_predictions: real[..., classes], logarithms of a distribution.
      targets: real[..., classes], a distribution.
      axis: the dimension of the classes.
      where: bool[..., classes], which classes count.

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
    logarithm = jnp.where(targets == 0, 0, jnp.log(jnp.where(targets == 0, 1, targets)))
    return jnp.sum(targets * (logarithm - log_predictions), axis, where=where)


@eager_program(static_argnames=("axis",))
def cosine_similarity(predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Any = -1) -> Any:
    """The cosine of the angle between vectors.

    Args:
      predictions: real[..., n].
      targets: real[..., n].
      epsilon: norms below it count as this.
      axis: the dimension of the vectors.

    Returns:
      real[...].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> round(float(optim.cosine_similarity(np.array([1.0, 1.0]), np.array([0.0, 2.0]))), 4)
      0.7071
    """

    def unit(x: Any) -> Any:
        squares = jnp.sum(jnp.square(x), axis, keepdims=True)
        norm = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
        return x / jnp.maximum(norm, epsilon)

    return jnp.sum(unit(predictions) * unit(targets), axis)


def cosine_distance(predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Any = -1) -> Any:
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


@eager_program(static_argnames=("axis",))
def smooth_labels(labels: Any, alpha: Any, *, axis: Any = -1) -> Any:
    """Mix distributions with the uniform one: (1 - alpha) labels + alpha / classes.

    Args:
      labels: real[..., classes].
      alpha: the uniform part.
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
    return (1.0 - alpha) * labels + alpha / labels.shape[axis]
