"""Transformations that scale each update by statistics of its past: the hearts of Adam, Lion, RMSProp and their kin.

Each is the formula of one paper, on moments kept per parameter. Builds on `protocol` and `arithmetic`; `optimizers`
chains them with learning rates and weight decay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.optim.arithmetic import (
    bias_correction,
    cast_tree,
    counter,
    like,
    safe_increment,
    update_moment,
    zeros_like_tree,
)
from phalanx.optim.protocol import GradientTransformationExtraArgs, transformation
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten


class ScaleByAdamState(NamedTuple):
    """The number of updates, their mean and their mean square.

    Args:
      count: int32[].
      mu, nu: trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_adam().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: Any
    nu: Any


class ScaleByAmsgradState(NamedTuple):
    """The number of updates, their mean, their mean square and the largest of those so far.

    Args:
      count: int32[].
      mu, nu, nu_max: trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_amsgrad().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: Any
    nu: Any
    nu_max: Any


class ScaleByLionState(NamedTuple):
    """The number of updates and their mean.

    Args:
      count: int32[].
      mu: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_lion().init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: Any


class ScaleByRmsState(NamedTuple):
    """The mean square of the updates.

    Args:
      nu: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_rms().init({"w": 0.0}).nu["w"])
      0.0
    """

    nu: Any


class ScaleByRmsWithCountState(NamedTuple):
    """The number of updates and their mean square.

    Args:
      count: int32[].
      nu: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_rms(bias_correction=True).init({"w": 0.0}).count)
      0
    """

    count: Any
    nu: Any


class ScaleByRStdDevState(NamedTuple):
    """The mean and the mean square of the updates.

    Args:
      mu, nu: trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_stddev().init({"w": 0.0}).mu["w"])
      0.0
    """

    mu: Any
    nu: Any


class ScaleByRStdDevWithCountState(NamedTuple):
    """The number of updates, their mean and their mean square.

    Args:
      count: int32[].
      mu, nu: trees like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_stddev(bias_correction=True).init({"w": 0.0}).count)
      0
    """

    count: Any
    mu: Any
    nu: Any


class ScaleByRssState(NamedTuple):
    """The sum of the squared updates.

    Args:
      sum_of_squares: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_rss(initial_accumulator_value=0.5).init({"w": 0.0}).sum_of_squares["w"])
      0.5
    """

    sum_of_squares: Any


class FactoredState(NamedTuple):
    """The number of updates, and their mean squares: of rows and of columns, or of each element.

    Args:
      count: int32[].
      v_row, v_col, v: trees like the parameters; where one is not used, its leaf has the shape [1].

    Examples:
      >>> from phalanx import optim
      >>> state = optim.scale_by_factored_rms(min_dim_size_to_factor=2).init({"w": jnp.ones((4, 8))})
      >>> sorted([state.v_row["w"].shape, state.v_col["w"].shape, state.v["w"].shape])
      [(1,), (4,), (8,)]
    """

    count: Any
    v_row: Any
    v_col: Any
    v: Any


def _corrected_mean(updates: Any, mu: Any, b1: Any, count: Any, nesterov: bool) -> Any:
    """The mean of the updates without the pull to zero; with Nesterov's correction, as it will be one step later."""
    if not nesterov:
        return bias_correction(mu, b1, count)
    ahead, now = bias_correction(mu, b1, safe_increment(count)), bias_correction(updates, b1, count)
    return tree_map(lambda m, g: like(b1, m) * m + like(1 - b1, g) * g, ahead, now)


def scale_by_adam(
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Divide the mean of the updates by the root of their mean square: m / (sqrt(v + eps_root) + eps).

    Args:
      b1: decay of the mean.
      b2: decay of the mean square.
      eps: added outside of the root.
      eps_root: added inside of the root, where it keeps derivatives through the update finite.
      mu_dtype: the dtype that the mean is kept in, by default that of the parameters.
      nesterov: take the mean one step ahead.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_adam()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980; T. Dozat, ICLR workshop (2016) for `nesterov`.
    """

    def init(params: Any) -> ScaleByAdamState:
        return ScaleByAdamState(counter(), zeros_like_tree(params, mu_dtype), zeros_like_tree(params))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        mu = update_moment(updates, state.mu, b1, 1)
        nu = update_moment(updates, state.nu, b2, 2)
        count = safe_increment(state.count)
        mean, square = _corrected_mean(updates, mu, b1, count, nesterov), bias_correction(nu, b2, count)
        out = _over_root_mean_square(mean, square, eps, eps_root)
        return out, ScaleByAdamState(count, cast_tree(mu, mu_dtype), nu)

    return transformation(init, update)


def _over_root_mean_square(mean: Any, square: Any, eps: Any, eps_root: Any) -> Any:
    """m / (sqrt(v + eps_root) + eps), without the inner addition where there is nothing to add."""
    is_plain = isinstance(eps_root, float) and eps_root == 0
    return tree_map(lambda m, v: m / (jnp.sqrt(v if is_plain else v + like(eps_root, v)) + like(eps, v)), mean, square)


def scale_by_amsgrad(
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformationExtraArgs:
    """`scale_by_adam` with the largest mean square so far in the place of the last.

    Args:
      b1, b2, eps, eps_root, mu_dtype: as in `scale_by_adam`.
      bias_correction_mu: correct the mean for its beginning at zero.
      bias_correction_nu: correct the mean square for it.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_amsgrad()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: S. J. Reddi, S. Kale and S. Kumar (2019), arXiv:1904.09237.
    """

    def init(params: Any) -> ScaleByAmsgradState:
        nu, largest = zeros_like_tree(params), zeros_like_tree(params)
        return ScaleByAmsgradState(counter(), zeros_like_tree(params, mu_dtype), nu, largest)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        mu = update_moment(updates, state.mu, b1, 1)
        nu = update_moment(updates, state.nu, b2, 2)
        count = safe_increment(state.count)
        mean = bias_correction(mu, b1, count) if bias_correction_mu else mu
        square = bias_correction(nu, b2, count) if bias_correction_nu else nu
        largest = tree_map(jnp.maximum, state.nu_max, square)
        out = _over_root_mean_square(mean, largest, eps, eps_root)
        return out, ScaleByAmsgradState(count, cast_tree(mu, mu_dtype), nu, largest)

    return transformation(init, update)


def scale_by_adamax(b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> GradientTransformationExtraArgs:
    """`scale_by_adam` with a decaying maximum of the updates' sizes in the place of the root mean square.

    Args:
      b1: decay of the mean.
      b2: decay of the maximum.
      eps: added to the size of each update.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_adamax()
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980, section 7.1.
    """

    def init(params: Any) -> ScaleByAdamState:
        return ScaleByAdamState(counter(), zeros_like_tree(params), zeros_like_tree(params))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        mu = update_moment(updates, state.mu, b1, 1)
        nu = tree_map(lambda g, v: jnp.maximum(jnp.abs(g) + like(eps, g), like(b2, v) * v), updates, state.nu)
        count = safe_increment(state.count)
        out = tree_map(lambda m, v: m / v, bias_correction(mu, b1, count), nu)
        return out, ScaleByAdamState(count, mu, nu)

    return transformation(init, update)


def scale_by_lion(b1: Any = 0.9, b2: Any = 0.99, mu_dtype: Any = None) -> GradientTransformationExtraArgs:
    """The sign of a mean that weights the newest update by 1 - b1, while the mean kept weights it by 1 - b2.

    Args:
      b1: weight of the past in the update.
      b2: weight of the past in the mean.
      mu_dtype: the dtype that the mean is kept in.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_lion()
      >>> float(tx.update(-5.0, tx.init(0.0))[0])
      -1.0

    Source: X. Chen et al. (2023), arXiv:2302.06675.
    """

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        out = tree_map(lambda g, m: jnp.sign(like(1 - b1, g) * g + like(b1, m) * m), updates, state.mu)
        mu = cast_tree(update_moment(updates, state.mu, b2, 1), mu_dtype)
        return out, ScaleByLionState(safe_increment(state.count), mu)

    return transformation(lambda params: ScaleByLionState(counter(), zeros_like_tree(params, mu_dtype)), update)


def _over_root(g: Any, v: Any, eps: Any, eps_in_sqrt: bool) -> Any:
    eps = like(eps, v)
    return g * lax.rsqrt(v + eps) if eps_in_sqrt else g / (jnp.sqrt(v) + eps)


def _filled_like(params: Any, value: Any) -> Any:
    """A tree like the parameters of one value; zeros keep their placement."""
    zeros = zeros_like_tree(params)
    return zeros if isinstance(value, float | int) and value == 0 else tree_map(lambda z: z + like(value, z), zeros)


def scale_by_rms(
    decay: Any = 0.9, eps: Any = 1e-8, initial_scale: Any = 0.0, eps_in_sqrt: bool = True, bias_correction: bool = False
) -> GradientTransformationExtraArgs:
    """Divide updates by the root of their mean square.

    Args:
      decay: decay of the mean square.
      eps: added to the mean square, or to its root.
      initial_scale: the mean square at the beginning.
      eps_in_sqrt: which of the two.
      bias_correction: correct for that beginning.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_rms(decay=0.75)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      2.0

    Source: T. Tieleman and G. Hinton, Lecture 6.5: RMSProp (2012).
    """

    def init(params: Any) -> Any:
        nu = _filled_like(params, initial_scale)
        return ScaleByRmsWithCountState(counter(), nu) if bias_correction else ScaleByRmsState(nu)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        nu = square = update_moment(updates, state.nu, decay, 2)
        new: Any = ScaleByRmsState(nu)
        if bias_correction:
            count = safe_increment(state.count)
            square, new = _unbiased(nu, decay, count), ScaleByRmsWithCountState(count, nu)
        return tree_map(lambda g, v: _over_root(g, v, eps, eps_in_sqrt), updates, square), new

    return transformation(init, update)


_unbiased = bias_correction  # Where a parameter has its name.


def scale_by_stddev(
    decay: Any = 0.9, eps: Any = 1e-8, initial_scale: Any = 0.0, eps_in_sqrt: bool = True, bias_correction: bool = False
) -> GradientTransformationExtraArgs:
    """Divide updates by their standard deviation over time.

    Args:
      decay, eps, initial_scale, eps_in_sqrt, bias_correction: as in `scale_by_rms`, for the mean as well.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_stddev(decay=0.5)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      2.0

    Source: A. Graves (2013), arXiv:1308.0850.
    """

    def init(params: Any) -> Any:
        mu, nu = zeros_like_tree(params), _filled_like(params, initial_scale)
        return ScaleByRStdDevWithCountState(counter(), mu, nu) if bias_correction else ScaleByRStdDevState(mu, nu)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        mu = mean = update_moment(updates, state.mu, decay, 1)
        nu = square = update_moment(updates, state.nu, decay, 2)
        new: Any = ScaleByRStdDevState(mu, nu)
        if bias_correction:
            count = safe_increment(state.count)
            mean, square = _unbiased(mu, decay, count), _unbiased(nu, decay, count)
            new = ScaleByRStdDevWithCountState(count, mu, nu)
        variance = tree_map(lambda m, v: v - jnp.square(jnp.abs(m)), mean, square)
        return tree_map(lambda g, v: _over_root(g, v, eps, eps_in_sqrt), updates, variance), new

    return transformation(init, update)


def scale_by_rss(initial_accumulator_value: Any = 0.1, eps: Any = 1e-7) -> GradientTransformationExtraArgs:
    """Divide updates by the root of the sum of all their squares; where that is 0, so is the update.

    Args:
      initial_accumulator_value: the sum at the beginning.
      eps: added to the sum.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_rss(initial_accumulator_value=0.0)
      >>> round(float(tx.update(5.0, tx.init(0.0))[0]), 4)
      1.0

    Source: J. Duchi, E. Hazan and Y. Singer, Journal of Machine Learning Research 12 (2011).
    """

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        sums = tree_map(lambda g, s: jnp.square(jnp.abs(g)) + s, updates, state.sum_of_squares)
        out = tree_map(lambda g, s: g * jnp.where(s > 0, lax.rsqrt(s + like(eps, s)), 0.0), updates, sums)
        return out, ScaleByRssState(sums)

    return transformation(lambda params: ScaleByRssState(_filled_like(params, initial_accumulator_value)), update)


# --- a mean square kept as one row and one column ---


def _factored_dims(shape: tuple, smallest: int) -> tuple[int, int] | None:
    """The second largest and the largest dimension, or None where an array is too small to be factored."""
    if len(shape) < 2:
        return None
    order = np.argsort(shape, kind="stable")
    row, column = int(order[-2]), int(order[-1])
    return (row, column) if shape[row] >= smallest else None


def _factored_moments(g: Any, v_row: Any, v_col: Any, decay: Any, epsilon: float, dims: tuple[int, int]) -> tuple:
    """One step of the factored mean square: the scaled update, the rows' means and the columns' means."""
    squares = jnp.square(g) + epsilon
    row, column = dims
    v_row = (decay * v_row + (1 - decay) * jnp.mean(squares, axis=column)).astype(v_row.dtype)
    v_col = (decay * v_col + (1 - decay) * jnp.mean(squares, axis=row)).astype(v_col.dtype)
    row_in_rows = row - (row > column)
    row_factor = lax.rsqrt(v_row / jnp.mean(v_row, axis=row_in_rows, keepdims=True))
    scaled = g * jnp.expand_dims(row_factor, column) * jnp.expand_dims(lax.rsqrt(v_col), row)
    return scaled, v_row, v_col


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
) -> GradientTransformationExtraArgs:
    """Divide updates by the root of their mean square, of which large matrices keep only rows' and columns' means.

    Args:
      factored: keep rows and columns.
      decay_rate: the mean square decays by 1 - t^-decay_rate at step t, counted from 1.
      step_offset: the number of the first step, for fine-tuning.
      min_dim_size_to_factor: arrays whose second largest dimension is below it are kept whole.
      epsilon: added to the squares.

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

    def dims_of(x: Any) -> tuple[int, int] | None:
        return _factored_dims(np.shape(x), min_dim_size_to_factor) if factored else None

    def init_of(p: Any) -> tuple:
        dims, nothing = dims_of(p), jnp.zeros((1,), jnp.asarray(p).dtype)
        if dims is None:
            return nothing, nothing, zeros_like_tree(p)
        without_row, without_column = (tuple(np.delete(np.shape(p), d)) for d in dims)
        return jnp.zeros(without_column, p.dtype), jnp.zeros(without_row, p.dtype), nothing

    def update_of(g: Any, v_row: Any, v_col: Any, v: Any, decay: Any) -> tuple:
        dims = dims_of(g)
        if dims is None:
            v = (decay * v + (1 - decay) * (jnp.square(g) + epsilon)).astype(v.dtype)
            return g * lax.rsqrt(v).astype(g.dtype), v_row, v_col, v
        scaled, v_row, v_col = _factored_moments(g, v_row, v_col, decay, epsilon, dims)
        return scaled.astype(g.dtype), v_row, v_col, v

    def init(params: Any) -> FactoredState:
        leaves, tree = tree_flatten(params)
        columns = zip(*[init_of(p) for p in leaves]) if leaves else ((), (), ())
        return FactoredState(counter(), *[tree_unflatten(tree, column) for column in columns])

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        step = (state.count - step_offset + 1).astype(np.float32)
        decay = 1.0 - step**-decay_rate
        leaves, tree = tree_flatten(updates)
        moments = [tree_leaves(part) for part in (state.v_row, state.v_col, state.v)]
        new = [update_of(g, row, column, v, decay) for g, row, column, v in zip(leaves, *moments)]
        columns = zip(*new) if new else ((), (), (), ())
        out, *kept = [tree_unflatten(tree, column) for column in columns]
        return out, FactoredState(safe_increment(state.count), *kept)

    return transformation(init, update)
