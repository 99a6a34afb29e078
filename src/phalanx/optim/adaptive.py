"""Adaptive scaling: dividing updates by statistics of previous ones, the core of Adam, Lion, RMSProp and others.

Each function implements the formula of one paper on moments kept for each parameter. Builds on
`gradient_transformation` and `tree_arithmetic`; `optimizers` chains the functions with learning rates and weight decay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.optim.gradient_transformation import GradientTransformationExtraArgs, Scalar, make_transformation
from phalanx.optim.tree_arithmetic import (
    bias_correction,
    cast_tree,
    init_count,
    match_dtype,
    safe_increment,
    update_moment,
    zeros_like_tree,
)
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.typing import Array, DTypeLike, PyTree


class ScaleByAdamState(NamedTuple):
    """The state of `scale_by_adam` and `scale_by_adamax`.

    Args:
      count: int32[], the number of updates.
      mu, nu: the first and second moments of the updates, trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_adam().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: PyTree
    nu: PyTree


class ScaleByAmsgradState(NamedTuple):
    """The state of `scale_by_amsgrad`.

    Args:
      count: int32[], the number of updates.
      mu, nu: the first and second moments of the updates, trees like the parameters.
      nu_max: the largest second moments so far.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_amsgrad().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: PyTree
    nu: PyTree
    nu_max: PyTree


class ScaleByLionState(NamedTuple):
    """The state of `scale_by_lion`.

    Args:
      count: int32[], the number of updates.
      mu: the first moment of the updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_lion().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: PyTree


class ScaleByRmsState(NamedTuple):
    """The state of `scale_by_rms`.

    Args:
      nu: the second moment of the updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_rms().init({"w": 0.0}).nu["w"])
      0.0
    """

    nu: PyTree


class ScaleByRmsWithCountState(NamedTuple):
    """The state of `scale_by_rms` with bias correction.

    Args:
      count: int32[], the number of updates.
      nu: the second moment of the updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_rms(bias_correction=True).init({"w": 0.0}).count)
      0
    """

    count: Any
    nu: PyTree


class ScaleByRStdDevState(NamedTuple):
    """The state of `scale_by_stddev`.

    Args:
      mu, nu: the first and second moments of the updates, trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_stddev().init({"w": 0.0}).mu["w"])
      0.0
    """

    mu: PyTree
    nu: PyTree


class ScaleByRStdDevWithCountState(NamedTuple):
    """The state of `scale_by_stddev` with bias correction.

    Args:
      count: int32[], the number of updates.
      mu, nu: the first and second moments of the updates, trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_stddev(bias_correction=True).init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: PyTree
    nu: PyTree


class ScaleByRssState(NamedTuple):
    """The state of `scale_by_rss`.

    Args:
      sum_of_squares: the sums of the squared updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_rss(initial_accumulator_value=0.5).init({"w": 0.0}).sum_of_squares["w"])
      0.5
    """

    sum_of_squares: PyTree


class FactoredState(NamedTuple):
    """The state of `scale_by_factored_rms`.

    Args:
      count: int32[], the number of updates.
      v_row, v_col: the mean squares of the rows and columns of factored parameters, trees like the parameters.
      v: the second moments of the other parameters. An unused leaf of any of these trees has the shape [1].

    Examples:
      >>> from phalanx import optim
      >>> state = optim.scale_by_factored_rms(min_dim_size_to_factor=2).init({"w": jnp.ones((4, 8))})
      >>> sorted([state.v_row["w"].shape, state.v_col["w"].shape, state.v["w"].shape])
      [(1,), (4,), (8,)]
    """

    count: Any
    v_row: PyTree
    v_col: PyTree
    v: PyTree


def _correct_mean(updates: PyTree, mu: PyTree, b1: Scalar, count: Array, nesterov: bool) -> Any:
    """The bias-corrected first moment; with Nesterov momentum, an estimate of its value one step later."""
    if not nesterov:
        return bias_correction(mu, b1, count)
    next_mu, corrected = bias_correction(mu, b1, safe_increment(count)), bias_correction(updates, b1, count)
    return tree_map(lambda m, g: match_dtype(b1, m) * m + match_dtype(1 - b1, g) * g, next_mu, corrected)


def scale_by_adam(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Divide the first moment of the updates by the root of the second: m / (sqrt(v + eps_root) + eps).

    Args:
      b1: decay rate of the first moment.
      b2: decay rate of the second moment.
      eps: a constant added outside of the square root.
      eps_root: a constant added inside of the square root; it keeps derivatives through the update finite.
      mu_dtype: the dtype of the first moment; by default the dtype of each parameter.
      nesterov: whether to use Nesterov momentum.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_adam()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980; T. Dozat, ICLR workshop (2016) for `nesterov`.
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        # Moments are updated in the promoted dtype, and only the stored first moment is cast to `mu_dtype`.
        mu = update_moment(updates, state.mu, b1, 1)
        nu = update_moment(updates, state.nu, b2, 2)
        count = safe_increment(state.count)
        mean, square = _correct_mean(updates, mu, b1, count, nesterov), bias_correction(nu, b2, count)
        return _divide_by_rms(mean, square, eps, eps_root), ScaleByAdamState(count, cast_tree(mu, mu_dtype), nu)

    return make_transformation(
        lambda params: ScaleByAdamState(init_count(), zeros_like_tree(params, mu_dtype), zeros_like_tree(params)),
        update,
    )


def _divide_by_rms(mean: PyTree, square: PyTree, eps: Scalar, eps_root: Scalar) -> PyTree:
    """m / (sqrt(v + eps_root) + eps), without the inner addition if `eps_root` is the constant 0."""
    # A traced `eps_root` may be nonzero, so only a Python 0 skips the addition.
    is_plain = isinstance(eps_root, float) and eps_root == 0
    return tree_map(
        lambda m, v: m / (jnp.sqrt(v if is_plain else v + match_dtype(eps_root, v)) + match_dtype(eps, v)), mean, square
    )


def scale_by_amsgrad(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """`scale_by_adam` with the largest second moment so far instead of the current one.

    Args:
      b1, b2, eps, eps_root, mu_dtype: as in `scale_by_adam`.
      bias_correction_mu: whether to correct the bias of the first moment.
      bias_correction_nu: whether to correct the bias of the second moment.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_amsgrad()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: S. J. Reddi, S. Kale and S. Kumar (2019), arXiv:1904.09237.
    """

    def init(params: PyTree) -> ScaleByAmsgradState:
        mu, nu, largest = (zeros_like_tree(params, dtype) for dtype in (mu_dtype, None, None))
        return ScaleByAmsgradState(init_count(), mu, nu, largest)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        mu = update_moment(updates, state.mu, b1, 1)
        nu = update_moment(updates, state.nu, b2, 2)
        count = safe_increment(state.count)
        mean = bias_correction(mu, b1, count) if bias_correction_mu else mu
        square = bias_correction(nu, b2, count) if bias_correction_nu else nu
        # The maximum is taken of the bias-corrected moments, as in Optax, and not of the raw ones.
        largest = tree_map(jnp.maximum, state.nu_max, square)
        new = ScaleByAmsgradState(count, cast_tree(mu, mu_dtype), nu, largest)
        return _divide_by_rms(mean, largest, eps, eps_root), new

    return make_transformation(init, update)


def scale_by_adamax(b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8) -> GradientTransformationExtraArgs:
    """`scale_by_adam` with an exponentially decaying maximum norm instead of the root mean square.

    Args:
      b1: decay rate of the first moment.
      b2: decay rate of the maximum norm.
      eps: a constant added to the magnitude of each update.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_adamax()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980, section 7.1.
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        mu = update_moment(updates, state.mu, b1, 1)
        # `eps` is added before the maximum, so that the division below is safe without another addition.
        nu = tree_map(
            lambda g, v: jnp.maximum(jnp.abs(g) + match_dtype(eps, g), match_dtype(b2, v) * v), updates, state.nu
        )
        count = safe_increment(state.count)
        return tree_map(jnp.divide, bias_correction(mu, b1, count), nu), ScaleByAdamState(count, mu, nu)

    return make_transformation(
        lambda params: ScaleByAdamState(init_count(), zeros_like_tree(params), zeros_like_tree(params)), update
    )


def scale_by_lion(
    b1: Scalar = 0.9, b2: Scalar = 0.99, mu_dtype: DTypeLike | None = None
) -> GradientTransformationExtraArgs:
    """The sign of an interpolation between the update and its moving average.

    Args:
      b1: weight of the moving average in the interpolation.
      b2: decay rate of the moving average.
      mu_dtype: the dtype of the moving average; by default the dtype of each parameter.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_lion()
      >>> float(tx.update(-5.0, tx.init(0.0))[0])
      -1.0

    Source: X. Chen et al. (2023), arXiv:2302.06675.
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        out = tree_map(lambda g, m: jnp.sign(match_dtype(1 - b1, g) * g + match_dtype(b1, m) * m), updates, state.mu)
        mu = cast_tree(update_moment(updates, state.mu, b2, 1), mu_dtype)
        return out, ScaleByLionState(safe_increment(state.count), mu)

    return make_transformation(lambda params: ScaleByLionState(init_count(), zeros_like_tree(params, mu_dtype)), update)


def _divide_by_root(g: Array, v: Array, eps: Scalar, eps_in_sqrt: bool) -> Any:
    eps = match_dtype(eps, v)
    # `rsqrt` is one instruction on accelerators; it needs `eps` inside of the root.
    return g * lax.rsqrt(v + eps) if eps_in_sqrt else g / (jnp.sqrt(v) + eps)


def _full_like_tree(params: PyTree, value: Scalar) -> PyTree:
    """A tree like the parameters, filled with one value, with the sharding of each parameter."""
    zeros = zeros_like_tree(params)
    return (
        zeros if isinstance(value, float | int) and value == 0 else tree_map(lambda z: z + match_dtype(value, z), zeros)
    )


def scale_by_rms(
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """Divide updates by the root of their second moment.

    Args:
      decay: decay rate of the second moment.
      eps: a constant added to the second moment or to its root.
      initial_scale: the initial value of the second moment.
      eps_in_sqrt: whether `eps` is added inside of the square root.
      bias_correction: whether to correct the bias of the second moment.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_rms(decay=0.75)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      2.0

    Source: T. Tieleman and G. Hinton, Lecture 6.5: RMSProp (2012).
    """

    def init(params: PyTree) -> Any:
        nu = _full_like_tree(params, initial_scale)
        return ScaleByRmsWithCountState(init_count(), nu) if bias_correction else ScaleByRmsState(nu)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        nu = square = update_moment(updates, state.nu, decay, 2)
        new: Any = ScaleByRmsState(nu)
        if bias_correction:
            count = safe_increment(state.count)
            square, new = _correct_bias(nu, decay, count), ScaleByRmsWithCountState(count, nu)
        return tree_map(lambda g, v: _divide_by_root(g, v, eps, eps_in_sqrt), updates, square), new

    return make_transformation(init, update)


_correct_bias = bias_correction  # for functions with a parameter named `bias_correction`


def scale_by_stddev(
    decay: Scalar = 0.9,
    eps: Scalar = 1e-8,
    initial_scale: Scalar = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformationExtraArgs:
    """Divide updates by an estimate of their standard deviation over time.

    Args:
      decay, eps, initial_scale, eps_in_sqrt, bias_correction: as in `scale_by_rms`, for both moments.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_stddev(decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      2.0

    Source: A. Graves (2013), arXiv:1308.0850.
    """

    def init(params: PyTree) -> Any:
        mu, nu = zeros_like_tree(params), _full_like_tree(params, initial_scale)
        return ScaleByRStdDevWithCountState(init_count(), mu, nu) if bias_correction else ScaleByRStdDevState(mu, nu)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        mu = mean = update_moment(updates, state.mu, decay, 1)
        nu = square = update_moment(updates, state.nu, decay, 2)
        new: Any = ScaleByRStdDevState(mu, nu)
        if bias_correction:
            count = safe_increment(state.count)
            mean, square = _correct_bias(mu, decay, count), _correct_bias(nu, decay, count)
            new = ScaleByRStdDevWithCountState(count, mu, nu)
        # Var(g) = E[g^2] - E[g]^2, elementwise.
        variance = tree_map(lambda m, v: v - jnp.square(jnp.abs(m)), mean, square)
        return tree_map(lambda g, v: _divide_by_root(g, v, eps, eps_in_sqrt), updates, variance), new

    return make_transformation(init, update)


def scale_by_rss(initial_accumulator_value: Scalar = 0.1, eps: Scalar = 1e-7) -> GradientTransformationExtraArgs:
    """Divide updates by the root of the sum of all previous squares; an update whose sum is 0 becomes 0.

    Args:
      initial_accumulator_value: the initial value of the sum.
      eps: a constant added to the sum.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_rss(initial_accumulator_value=0.0)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: J. Duchi, E. Hazan and Y. Singer, Journal of Machine Learning Research 12 (2011).
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        sums = tree_map(lambda g, s: jnp.square(jnp.abs(g)) + s, updates, state.sum_of_squares)
        # A parameter that never received a gradient has the sum 0 when the accumulator starts at 0, and stays
        # unchanged.
        out = tree_map(lambda g, s: g * jnp.where(s > 0, lax.rsqrt(s + match_dtype(eps, s)), 0.0), updates, sums)
        return out, ScaleByRssState(sums)

    return make_transformation(
        lambda params: ScaleByRssState(_full_like_tree(params, initial_accumulator_value)), update
    )


def _find_factored_dims(shape: tuple[int, ...], min_size: int) -> tuple[int, int] | None:
    """The second largest and the largest dimension, or None if the array is too small to factor."""
    if len(shape) < 2:
        return None
    # A stable sort makes the choice among equal dimensions deterministic, so saved states stay compatible.
    row, column = np.argsort(shape, kind="stable")[-2:].tolist()
    return (row, column) if shape[row] >= min_size else None


def _update_factored_moments(
    g: Array, v_row: Array, v_col: Array, decay: Scalar, epsilon: float, dims: tuple[int, int]
) -> tuple:
    """One step of Adafactor's factored second moment.

    The matrix of mean squares is approximated by the outer product of its row means and column means, divided by the
    overall mean, so only the two vectors are stored.

    Returns:
      The scaled update, the row means and the column means.
    """
    squares = jnp.square(g) + epsilon
    row, column = dims
    v_row = (decay * v_row + (1 - decay) * jnp.mean(squares, axis=column)).astype(v_row.dtype)
    v_col = (decay * v_col + (1 - decay) * jnp.mean(squares, axis=row)).astype(v_col.dtype)
    # `v_row` lacks the column dimension, so dimensions after it have moved down by one.
    row_factor = lax.rsqrt(v_row / jnp.mean(v_row, axis=row - (row > column), keepdims=True))
    scaled = g * jnp.expand_dims(row_factor, column) * jnp.expand_dims(lax.rsqrt(v_col), row)
    return scaled, v_row, v_col


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
) -> GradientTransformationExtraArgs:
    """Divide updates by the root of their second moment, stored as row and column means for large matrices.

    Args:
      factored: whether to factor the second moments of large matrices.
      decay_rate: the decay rate of the second moment at step t, counted from 1, is 1 - t^-decay_rate.
      step_offset: the step count to start from, for fine-tuning.
      min_dim_size_to_factor: arrays whose second largest dimension is smaller are not factored.
      epsilon: a constant added to the squared updates.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_factored_rms()
      >>> params = {"w": jnp.zeros(2)}
      >>> tx.update({"w": jnp.array([5.0, -3.0])}, tx.init(params), params)[0]["w"].round(4).tolist()
      [1.0, -1.0]

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235.
    """

    def dims_of(x: Array) -> tuple[int, int] | None:
        return _find_factored_dims(np.shape(x), min_dim_size_to_factor) if factored else None

    def init_of(p: Array) -> tuple:
        dims, nothing = dims_of(p), jnp.zeros((1,), jnp.asarray(p).dtype)
        if dims is None:
            return nothing, nothing, zeros_like_tree(p)
        # The mean over the column dimension is stored in `v_row`, so its shape lacks that dimension, and vice versa.
        without_row, without_column = (tuple(np.delete(np.shape(p), d)) for d in dims)
        return jnp.zeros(without_column, p.dtype), jnp.zeros(without_row, p.dtype), nothing

    def update_of(g: Array, v_row: Array, v_col: Array, v: Array, decay: Scalar) -> tuple:
        dims = dims_of(g)
        if dims is None:
            v = (decay * v + (1 - decay) * (jnp.square(g) + epsilon)).astype(v.dtype)
            return g * lax.rsqrt(v).astype(g.dtype), v_row, v_col, v
        scaled, v_row, v_col = _update_factored_moments(g, v_row, v_col, decay, epsilon, dims)
        return scaled.astype(g.dtype), v_row, v_col, v

    def init(params: PyTree) -> FactoredState:
        leaves, tree = tree_flatten(params)
        # One triple for each leaf becomes three trees: `zip` transposes the list of triples.
        columns = zip(*[init_of(p) for p in leaves]) if leaves else ((), (), ())
        return FactoredState(init_count(), *[tree_unflatten(tree, column) for column in columns])

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        step = (state.count - step_offset + 1).astype(np.float32)
        # The decay rate increases from 0 towards 1, so the second moment needs no bias correction.
        decay = 1.0 - step**-decay_rate
        leaves, tree = tree_flatten(updates)
        moments = [tree_leaves(part) for part in (state.v_row, state.v_col, state.v)]
        new = [update_of(g, row, column, v, decay) for g, row, column, v in zip(leaves, *moments)]
        columns = zip(*new) if new else ((), (), (), ())
        out, *kept = [tree_unflatten(tree, column) for column in columns]
        return out, FactoredState(safe_increment(state.count), *kept)

    return make_transformation(init, update)
