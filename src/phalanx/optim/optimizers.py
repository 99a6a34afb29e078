"""Optimizers: chains of an update rule, weight decay and a learning rate, with the names and signatures of Optax.

Each docstring cites the paper of its formula. `learning_rate` is a number, a scalar array or a schedule. Builds on the
transformations of this package.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx.optim.adaptive import (
    scale_by_adam,
    scale_by_adamax,
    scale_by_amsgrad,
    scale_by_factored_rms,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_stddev,
)
from phalanx.optim.clipping import clip_by_block_rms
from phalanx.optim.composition import chain, masked
from phalanx.optim.gradient_transformation import GradientTransformationExtraArgs, Scalar, ScalarOrSchedule, identity
from phalanx.optim.scaling import (
    add_decayed_weights,
    ema,
    scale,
    scale_by_learning_rate,
    scale_by_param_block_rms,
    scale_by_trust_ratio,
    trace,
)
from phalanx.typing import DTypeLike, PyTree


def sgd(
    learning_rate: ScalarOrSchedule,
    momentum: Scalar | None = None,
    nesterov: bool = False,
    accumulator_dtype: DTypeLike | None = None,
) -> GradientTransformationExtraArgs:
    """Stochastic gradient descent, optionally with momentum.

    Args:
      learning_rate: the step size.
      momentum: the decay rate of the accumulated momentum; None for no momentum.
      nesterov: whether to use Nesterov momentum.
      accumulator_dtype: the dtype of the momentum; by default the dtype of each parameter.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.sgd(0.5)
      >>> float(tx.update(2.0, tx.init(0.0))[0])
      -1.0

    Source: B. T. Polyak (1964), doi:10.1016/0041-5553(64)90137-5; I. Sutskever et al., ICML (2013).
    """
    rule = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(rule, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam: the first moment of the gradients divided by the root of the second moment.

    Args:
      learning_rate: the step size.
      b1, b2, eps, eps_root, mu_dtype, nesterov: as in `scale_by_adam`.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adam(1e-3)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 6)
      -0.001

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980.
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov), scale_by_learning_rate(learning_rate)
    )


def adamw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    weight_decay: Scalar = 1e-4,
    mask: PyTree | Callable[[PyTree], PyTree] | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam with decoupled weight decay.

    Args:
      learning_rate: the step size.
      b1, b2, eps, eps_root, mu_dtype, nesterov: as in `scale_by_adam`.
      weight_decay: the rate of weight decay, which is multiplied by the learning rate.
      mask: the parameters that decay, as in `masked`; None for all.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adamw(1e-3, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 6)
      -0.002

    Source: I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def nadam(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam with Nesterov momentum: `adam` with `nesterov=True`.

    Args:
      learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov: as in `adam`.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> optim.nadam(0.1).update(5.0, optim.nadam(0.1).init(0.0))[0] < 0
      Array(True, dtype=bool)

    Source: T. Dozat, ICLR workshop (2016).
    """
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)


def nadamw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    weight_decay: Scalar = 1e-4,
    mask: PyTree | Callable[[PyTree], PyTree] | None = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """AdamW with Nesterov momentum: `adamw` with `nesterov=True`.

    Args:
      learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov: as in `adamw`.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.nadamw(0.1)
      >>> bool(tx.update(5.0, tx.init(2.0), 2.0)[0] < 0)
      True

    Source: T. Dozat, ICLR workshop (2016); I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """
    return adamw(learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov=nesterov)


def amsgrad(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam with the largest second moment so far, so that the effective step size never grows.

    Args:
      learning_rate: the step size.
      b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu: as in `scale_by_amsgrad`.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.amsgrad(0.1)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.1

    Source: S. J. Reddi, S. Kale and S. Kumar (2019), arXiv:1904.09237.
    """
    return chain(
        scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu),
        scale_by_learning_rate(learning_rate),
    )


def adamax(
    learning_rate: ScalarOrSchedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8
) -> GradientTransformationExtraArgs:
    """Adam with the maximum norm of the gradients instead of the second moment.

    Args:
      learning_rate: the step size.
      b1, b2, eps: as in `scale_by_adamax`.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adamax(0.1)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.1

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980, section 7.1.
    """
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))


def adamaxw(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    weight_decay: Scalar = 1e-4,
    mask: PyTree | Callable[[PyTree], PyTree] | None = None,
) -> GradientTransformationExtraArgs:
    """`adamax` with weight decay as in `adamw`.

    Args:
      learning_rate, b1, b2, eps: as in `adamax`.
      weight_decay, mask: as in `adamw`.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adamaxw(0.1, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980; I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """
    return chain(
        scale_by_adamax(b1, b2, eps), add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate)
    )


def lion(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.99,
    mu_dtype: DTypeLike | None = None,
    weight_decay: Scalar = 1e-3,
    mask: PyTree | Callable[[PyTree], PyTree] | None = None,
) -> GradientTransformationExtraArgs:
    """Lion: the sign of an interpolated momentum, with weight decay.

    Args:
      learning_rate: the step size, typically 3 to 10 times smaller than for `adamw`.
      b1, b2, mu_dtype: as in `scale_by_lion`.
      weight_decay: the rate of weight decay, which is multiplied by the learning rate.
      mask: the parameters that decay, as in `masked`; None for all.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.lion(0.1, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: X. Chen et al. (2023), arXiv:2302.06675.
    """
    return chain(
        scale_by_lion(b1, b2, mu_dtype), add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate)
    )


def lamb(
    learning_rate: ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-6,
    eps_root: Scalar = 0.0,
    weight_decay: Scalar = 0.0,
    mask: PyTree | Callable[[PyTree], PyTree] | None = None,
) -> GradientTransformationExtraArgs:
    """LAMB: AdamW with each array of updates scaled to the norm of its parameters, for large batches.

    Args:
      learning_rate: the step size.
      b1, b2, eps, eps_root: as in `scale_by_adam`.
      weight_decay: the rate of weight decay, which is added to the update before scaling.
      mask: the parameters that decay, as in `masked`; None for all.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.lamb(0.1)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: Y. You et al. (2019), arXiv:1904.00962.
    """
    # Weight decay comes before the trust ratio, so that it is part of the norm of the update.
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


def lars(
    learning_rate: ScalarOrSchedule,
    weight_decay: Scalar = 0.0,
    weight_decay_mask: PyTree | Callable[[PyTree], PyTree] | None = True,
    trust_coefficient: Scalar = 0.001,
    eps: Scalar = 0.0,
    trust_ratio_mask: PyTree | Callable[[PyTree], PyTree] = True,
    momentum: Scalar = 0.9,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """LARS: momentum on gradients, with each array scaled to the norm of its parameters.

    Args:
      learning_rate: the step size.
      weight_decay: the rate of weight decay, which is added to the gradient before scaling.
      weight_decay_mask: the parameters that decay, as in `masked`; None for all.
      trust_coefficient: a factor of the ratio of the norms.
      eps: a constant added to the norm of the gradient.
      trust_ratio_mask: the gradients to scale, as in `masked`.
      momentum: the decay rate of the accumulated momentum.
      nesterov: whether to use Nesterov momentum.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.lars(0.1)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 6)
      -0.0002

    Source: Y. You, I. Gitman and B. Ginsburg (2017), arXiv:1708.03888.
    """
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps), trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        # The steps are accumulated after the learning rate, so that a schedule does not rescale earlier ones.
        trace(momentum, nesterov),
    )


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: Scalar | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """RMSProp: gradients divided by their root mean square, or by their standard deviation if `centered`.

    Args:
      learning_rate: the step size.
      decay, eps, initial_scale, eps_in_sqrt, bias_correction: as in `scale_by_rms`.
      centered: whether to divide by the standard deviation.
      momentum: the decay rate of the accumulated momentum; None for no momentum.
      nesterov: whether to use Nesterov momentum.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.rmsprop(0.1, decay=0.75)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.2

    Source: T. Tieleman and G. Hinton, Lecture 6.5: RMSProp (2012); A. Graves (2013), arXiv:1308.0850.
    """
    rule = (scale_by_stddev if centered else scale_by_rms)(decay, eps, initial_scale, eps_in_sqrt, bias_correction)
    # Momentum comes after the learning rate, as in TensorFlow's RMSProp.
    last = identity() if momentum is None else trace(momentum, nesterov)
    return chain(rule, scale_by_learning_rate(learning_rate), last)


def adagrad(
    learning_rate: ScalarOrSchedule, initial_accumulator_value: Scalar = 0.1, eps: Scalar = 1e-7
) -> GradientTransformationExtraArgs:
    """AdaGrad: gradients divided by the root of the sum of all previous squares.

    Args:
      learning_rate: the step size.
      initial_accumulator_value: the initial value of the sum.
      eps: a constant added to the sum.

    Returns:
      The optimizer.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adagrad(0.1, initial_accumulator_value=0.0)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.1

    Source: J. Duchi, E. Hazan and Y. Singer, Journal of Machine Learning Research 12 (2011).
    """
    return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))


def adafactor(
    learning_rate: ScalarOrSchedule | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0,
    momentum: float | None = None,
    dtype_momentum: DTypeLike = np.float32,
    weight_decay_rate: float | None = None,
    eps: float = 1e-30,
    factored: bool = True,
    weight_decay_mask: PyTree | Callable[[PyTree], PyTree] | None = None,
) -> GradientTransformationExtraArgs:
    """Adafactor: Adam-like steps with a factored second moment, relative to the scale of the parameters.

    Args:
      learning_rate: the step size; None for 1.
      min_dim_size_to_factor, decay_rate, factored: as in `scale_by_factored_rms`.
      decay_offset: the step count to start from, for fine-tuning.
      multiply_by_parameter_scale: whether to multiply steps by the root mean square of the parameters.
      clipping_threshold: the largest root mean square of an array of updates; None for no clipping.
      momentum: the decay rate of a moving average of the updates; None for no average.
      dtype_momentum: the dtype of the moving average.
      weight_decay_rate: the rate of weight decay, independent of the learning rate; None for no decay.
      eps: a constant added to the squared gradients.
      weight_decay_mask: the parameters that decay, as in `masked`; None for all.

    Returns:
      The optimizer; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adafactor(0.1, multiply_by_parameter_scale=False)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.1

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235.
    """
    # The order of the steps is Optax's. The learning rate keeps its sign, and the final scale(-1) negates the sum.
    links = (
        scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps),
        None if clipping_threshold is None else clip_by_block_rms(clipping_threshold),
        None if learning_rate is None else scale_by_learning_rate(learning_rate, flip_sign=False),
        scale_by_param_block_rms() if multiply_by_parameter_scale else None,
        None if momentum is None else ema(momentum, debias=False, accumulator_dtype=dtype_momentum),
        None if weight_decay_rate is None else add_decayed_weights(weight_decay_rate, weight_decay_mask),
        scale(-1),
    )
    return chain(*[link for link in links if link is not None])
