"""The optimisers: chains of a rule, weight decay and a learning rate, under the names the field knows.

Builds on the transformations of this room. Each says which paper its formula is from; `learning_rate` is a number, an
array or a schedule everywhere.
"""

from __future__ import annotations

from typing import Any

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
from phalanx.optim.combining import chain, masked
from phalanx.optim.protocol import GradientTransformationExtraArgs, ScalarOrSchedule, identity
from phalanx.optim.scaling import (
    add_decayed_weights,
    ema,
    scale,
    scale_by_learning_rate,
    scale_by_param_block_rms,
    scale_by_trust_ratio,
    trace,
)


def sgd(
    learning_rate: ScalarOrSchedule, momentum: Any = None, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformationExtraArgs:
    """Gradient descent, with or without momentum.

    Args:
      learning_rate: the size of a step.
      momentum: the part of the last step that goes on; None for no momentum.
      nesterov: take the gradient where momentum leads.
      accumulator_dtype: the dtype of the momentum.

    Returns:
      The optimiser.

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
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam: steps along the mean gradient, each parameter's divided by its root mean square.

    Args:
      learning_rate: the size of a step.
      b1, b2, eps, eps_root, mu_dtype, nesterov: as in `scale_by_adam`.

    Returns:
      The optimiser.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adam(1e-3)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 6)
      -0.001

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980.
    """
    rule = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(rule, scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Adam with weight decay that is not divided by the root mean square.

    Args:
      learning_rate: the size of a step.
      b1, b2, eps, eps_root, mu_dtype, nesterov: as in `scale_by_adam`.
      weight_decay: the part of a parameter that a step of size 1 takes.
      mask: which parameters decay, as in `masked`.

    Returns:
      The optimiser; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adamw(1e-3, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 6)
      -0.002

    Source: I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """
    rule = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(rule, add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate))


def nadam(
    learning_rate: ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam with Nesterov's momentum: `adam` with `nesterov=True`.

    Args:
      learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov: as in `adam`.

    Returns:
      The optimiser.

    Examples:
      >>> from phalanx import optim
      >>> optim.nadam(0.1).update(5.0, optim.nadam(0.1).init(0.0))[0] < 0
      Array(True, dtype=bool)

    Source: T. Dozat, ICLR workshop (2016).
    """
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)


def nadamw(
    learning_rate: ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformationExtraArgs:
    """AdamW with Nesterov's momentum: `adamw` with `nesterov=True`.

    Args:
      learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov: as in `adamw`.

    Returns:
      The optimiser; its `update` needs the parameters.

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
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """Adam whose steps never grow again: the largest mean square so far divides.

    Args:
      learning_rate: the size of a step.
      b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu: as in `scale_by_amsgrad`.

    Returns:
      The optimiser.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.amsgrad(0.1)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.1

    Source: S. J. Reddi, S. Kale and S. Kumar (2019), arXiv:1904.09237.
    """
    rule = scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu)
    return chain(rule, scale_by_learning_rate(learning_rate))


def adamax(
    learning_rate: ScalarOrSchedule, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8
) -> GradientTransformationExtraArgs:
    """Adam with the maximum norm.

    Args:
      learning_rate: the size of a step.
      b1, b2, eps: as in `scale_by_adamax`.

    Returns:
      The optimiser.

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
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    weight_decay: Any = 1e-4,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """`adamax` with weight decay as in `adamw`.

    Args:
      learning_rate, b1, b2, eps: as in `adamax`.
      weight_decay, mask: as in `adamw`.

    Returns:
      The optimiser; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adamaxw(0.1, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980; I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adamax(b1, b2, eps), decay, scale_by_learning_rate(learning_rate))


def lion(
    learning_rate: ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.99,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-3,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """Lion: steps of one size in the direction of a mean gradient's sign, with weight decay.

    Args:
      learning_rate: the size of a step, 3 to 10 times smaller than for `adamw`.
      b1, b2, mu_dtype: as in `scale_by_lion`.
      weight_decay: the part of a parameter that a step of size 1 takes.
      mask: which parameters decay, as in `masked`.

    Returns:
      The optimiser; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.lion(0.1, weight_decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: X. Chen et al. (2023), arXiv:2302.06675.
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_lion(b1, b2, mu_dtype), decay, scale_by_learning_rate(learning_rate))


def lamb(
    learning_rate: ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-6,
    eps_root: Any = 0.0,
    weight_decay: Any = 0.0,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """LAMB: AdamW whose steps are scaled, array by array, to the norm of the parameters; for large batches.

    Args:
      learning_rate: the size of a step.
      b1, b2, eps, eps_root: as in `scale_by_adam`.
      weight_decay: the part of a parameter that is added to its update.
      mask: which parameters decay, as in `masked`.

    Returns:
      The optimiser; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.lamb(0.1)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.2

    Source: Y. You et al. (2019), arXiv:1904.00962.
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


def lars(
    learning_rate: ScalarOrSchedule,
    weight_decay: Any = 0.0,
    weight_decay_mask: Any = True,
    trust_coefficient: Any = 0.001,
    eps: Any = 0.0,
    trust_ratio_mask: Any = True,
    momentum: Any = 0.9,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """LARS: momentum on gradients that are scaled, array by array, to the norm of the parameters.

    Args:
      learning_rate: the size of a step.
      weight_decay: the part of a parameter that is added to its gradient.
      weight_decay_mask: which parameters decay, as in `masked`.
      trust_coefficient: factor of the ratio of the norms.
      eps: added to the norm of the gradient.
      trust_ratio_mask: which gradients are scaled.
      momentum: the part of the last step that goes on.
      nesterov: look one step ahead.

    Returns:
      The optimiser; its `update` needs the parameters.

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
        trace(momentum, nesterov),
    )


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: Any = 0.9,
    eps: Any = 1e-8,
    initial_scale: Any = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: Any = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """RMSProp: gradients divided by their root mean square, or, centred, by their standard deviation.

    Args:
      learning_rate: the size of a step.
      decay, eps, initial_scale, eps_in_sqrt, bias_correction: as in `scale_by_rms`.
      centered: divide by the standard deviation.
      momentum: the part of the last step that goes on; None for no momentum.
      nesterov: look one step ahead.

    Returns:
      The optimiser.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.rmsprop(0.1, decay=0.75)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      -0.2

    Source: T. Tieleman and G. Hinton, Lecture 6.5: RMSProp (2012); A. Graves (2013), arXiv:1308.0850.
    """
    rule = (scale_by_stddev if centered else scale_by_rms)(decay, eps, initial_scale, eps_in_sqrt, bias_correction)
    last = identity() if momentum is None else trace(momentum, nesterov)
    return chain(rule, scale_by_learning_rate(learning_rate), last)


def adagrad(
    learning_rate: ScalarOrSchedule, initial_accumulator_value: Any = 0.1, eps: Any = 1e-7
) -> GradientTransformationExtraArgs:
    """AdaGrad: gradients divided by the root of the sum of all their squares.

    Args:
      learning_rate: the size of a step.
      initial_accumulator_value: the sum at the beginning.
      eps: added to the sum.

    Returns:
      The optimiser.

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
    dtype_momentum: Any = np.float32,
    weight_decay_rate: float | None = None,
    eps: float = 1e-30,
    factored: bool = True,
    weight_decay_mask: Any = None,
) -> GradientTransformationExtraArgs:
    """Adafactor: mean squares kept as rows and columns, steps relative to the size of the parameters.

    Args:
      learning_rate: the size of a step; None for 1.
      min_dim_size_to_factor, decay_rate, factored: as in `scale_by_factored_rms`.
      decay_offset: the number of the first step, for fine-tuning.
      multiply_by_parameter_scale: multiply steps by the root mean square of the parameters.
      clipping_threshold: bound of the root mean square of an array of updates; None for no bound.
      momentum: decay of a mean of the updates; None for no mean.
      dtype_momentum: the dtype of that mean.
      weight_decay_rate: the part of a parameter that each step takes; None for none.
      eps: added to squared gradients.
      weight_decay_mask: which parameters decay, as in `masked`.

    Returns:
      The optimiser; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.adafactor(0.1, multiply_by_parameter_scale=False)
      >>> round(float(tx.update(5.0, tx.init(2.0), 2.0)[0]), 4)
      -0.1

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235.
    """
    links = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        links.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        links.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        links.append(scale_by_param_block_rms())
    if momentum is not None:
        links.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        links.append(add_decayed_weights(weight_decay_rate, weight_decay_mask))
    return chain(*links, scale(-1))
