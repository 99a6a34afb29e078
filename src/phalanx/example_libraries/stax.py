"""Stax: layers of neural networks as pairs of pure functions, `phalanx.example_libraries.stax`.

A layer is a pair `(init_fun, apply_fun)`: `init_fun(key, input_shape)` returns the shape of the output and the
parameters, `apply_fun(params, inputs, **kwargs)` the output. `phalanx.nnx` has the layers for new programs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import phalanx.numpy as jnp
from phalanx import lax, nn, random
from phalanx.core import ArgumentError
from phalanx.lax.elementwise import set_name_and_doc
from phalanx.nn.initializers import glorot_normal, normal, ones, zeros

Layer = tuple[Callable, Callable]

glorot = glorot_normal
randn = normal
logsoftmax = nn.log_softmax

_GLOROT: Final = glorot_normal()
_NORMAL: Final = normal()
_SMALL: Final = normal(1e-6)


def Dense(out_dim: int, W_init: Callable = _GLOROT, b_init: Callable = _NORMAL) -> Layer:
    """A fully connected layer: x @ W + b.

    Args:
      out_dim: the size of the last dimension of the output.
      W_init, b_init: initializers of the weights and of the bias.

    Returns:
      The layer.

    Examples:
      >>> init_fun, apply_fun = Dense(3)
      >>> shape, params = init_fun(random.key(0), (2, 5))
      >>> shape, apply_fun(params, jnp.ones((2, 5))).shape
      ((2, 3), (2, 3))
    """

    def init_fun(rng: Any, input_shape: tuple) -> tuple:
        k1, k2 = random.split(rng)
        return (*input_shape[:-1], out_dim), (W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,)))

    def apply_fun(params: tuple, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        return jnp.dot(inputs, weights) + bias

    return init_fun, apply_fun


_CONVOLUTION = """{}

Args:
  dimension_numbers: the layouts of inputs, kernel and outputs, such as `("NHWC", "HWIO", "NHWC")`.
  out_chan: the number of output channels.
  filter_shape: the spatial shape of the kernel.
  strides: the strides; 1 by default.
  padding: "SAME", "VALID", or a pair for each spatial dimension.
  W_init, b_init: initializers of the kernel and of the bias.

Returns:
  The layer.

Examples:
  >>> {name}(("NHWC", "HWIO", "NHWC"), 8, (3, 3))[0](random.key(0), (1, 10, 10, 3))[0]
  {shape}
"""


def _convolution(name: str, words: str, example: tuple, convolve: Callable, output_shape: Callable) -> Callable:
    """The constructor of a layer that convolves."""

    def make(
        dimension_numbers: tuple,
        out_chan: int,
        filter_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Any = "VALID",
        W_init: Callable | None = None,
        b_init: Callable = _SMALL,
    ) -> Layer:
        lhs, rhs, out = dimension_numbers
        strides = strides or (1,) * len(filter_shape)
        init_kernel = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))

        def init_fun(rng: Any, input_shape: tuple) -> tuple:
            sizes = iter(filter_shape)
            channels = {"O": out_chan, "I": input_shape[lhs.index("C")]}
            # The letters of the kernel other than I and O are its spatial dimensions, in order.
            kernel = tuple([channels[c] if c in channels else next(sizes) for c in rhs])
            k1, k2 = random.split(rng)
            # The bias has size 1 in all dimensions but the channels, and is broadcast over them.
            params = init_kernel(k1, kernel), b_init(k2, tuple([out_chan if c == "C" else 1 for c in out]))
            return output_shape(input_shape, kernel, strides, padding, dimension_numbers), params

        def apply_fun(params: tuple, inputs: Any, **kwargs: Any) -> Any:
            weights, bias = params
            return convolve(inputs, weights, strides, padding, dimension_numbers=dimension_numbers) + bias

        return init_fun, apply_fun

    return set_name_and_doc(make, name, _CONVOLUTION.format(words, name=name, shape=example))


GeneralConv: Final = _convolution(
    "GeneralConv", "A convolution.", (1, 8, 8, 8), lax.conv_general_dilated, lax.conv_general_shape_tuple
)
GeneralConvTranspose: Final = _convolution(
    "GeneralConvTranspose",
    "A transposed convolution.",
    (1, 12, 12, 8),
    lax.conv_transpose,
    lax.conv_transpose_shape_tuple,
)
Conv: Final = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose: Final = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose: Final = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Callable = zeros,
    gamma_init: Callable = ones,
) -> Layer:
    """Batch normalization.

    Args:
      axis: the dimensions over which mean and variance are taken.
      epsilon: added to the variance.
      center, scale: whether to learn a shift and a factor.
      beta_init, gamma_init: their initializers.

    Returns:
      The layer.

    Examples:
      >>> init_fun, apply_fun = BatchNorm(axis=0)
      >>> shape, params = init_fun(random.key(0), (4, 2))
      >>> jnp.abs(apply_fun(params, jnp.arange(8.0).reshape(4, 2)).mean(0)).max() < 1e-6
      Array(True, dtype=bool)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: tuple) -> tuple:
        shape = tuple([n for i, n in enumerate(input_shape) if i not in axes])
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (), gamma_init(k2, shape) if scale else ())

    def apply_fun(params: tuple, inputs: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        # Parameters have the dimensions that are not normalized over.
        out = nn.standardize(inputs, axes, epsilon=epsilon)
        if scale:
            out = jnp.expand_dims(gamma, axes) * out
        return out + jnp.expand_dims(beta, axes) if center else out

    return init_fun, apply_fun


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """A layer without parameters that applies a function.

    Args:
      fun: a function of an array that keeps its shape.
      fun_kwargs: further arguments of `fun`.

    Returns:
      The layer.

    Examples:
      >>> init_fun, apply_fun = elementwise(jnp.square)
      >>> apply_fun((), jnp.array([2.0, 3.0])).tolist()
      [4.0, 9.0]
    """
    return (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **_: fun(inputs, **fun_kwargs))


Tanh: Final = elementwise(jnp.tanh)
Relu: Final = elementwise(nn.relu)
Exp: Final = elementwise(jnp.exp)
LogSoftmax: Final = elementwise(nn.log_softmax, axis=-1)
Softmax: Final = elementwise(nn.softmax, axis=-1)
Softplus: Final = elementwise(nn.softplus)
Sigmoid: Final = elementwise(nn.sigmoid)
Elu: Final = elementwise(nn.elu)
LeakyRelu: Final = elementwise(nn.leaky_relu)
Selu: Final = elementwise(nn.selu)
Gelu: Final = elementwise(nn.gelu)
Identity: Final = elementwise(lambda x: x)


def _pooling(
    reducer: Callable, init_value: float, is_mean: bool, window_shape: tuple, strides: Any, padding: Any, spec: Any
) -> Layer:
    strides = tuple(strides or (1,) * len(window_shape))
    fixed = (0, len(window_shape) + 1) if spec is None else (spec.index("N"), spec.index("C"))

    def full(sizes: tuple) -> tuple:
        """The sizes of all dimensions, given the spatial ones."""
        rest = iter(sizes)
        return tuple([1 if d in fixed else next(rest) for d in range(len(sizes) + 2)])

    def reduce(x: Any) -> Any:
        return lax.reduce_window(x, init_value, reducer, full(tuple(window_shape)), full(strides), padding)

    def init_fun(rng: Any, input_shape: tuple) -> tuple:
        pads = lax.padtype_to_pads(input_shape, full(tuple(window_shape)), full(strides), padding)
        undilated = (1,) * len(input_shape)
        shape = lax.reduce_window_shape_tuple(
            input_shape, full(tuple(window_shape)), full(strides), pads, undilated, undilated
        )
        return shape, ()

    def apply_fun(params: tuple, inputs: Any, **kwargs: Any) -> Any:
        if not is_mean:
            return reduce(inputs)
        # Windows at the border hold fewer elements.
        counted = jnp.ones([1 if d in fixed else n for d, n in enumerate(inputs.shape)], inputs.dtype)
        return reduce(inputs) / reduce(counted)

    return init_fun, apply_fun


_POOLING = """{}

Args:
  window_shape: the spatial shape of the windows.
  strides: the strides; 1 by default.
  padding: "SAME" or "VALID".
  spec: the layout of the inputs, such as "NHWC", which is the default.

Returns:
  The layer.

Examples:
  >>> {name}((2, 2), strides=(2, 2))[0](random.key(0), (1, 4, 4, 3))
  ((1, 2, 2, 3), ())
"""


def _pooling_constructor(name: str, words: str, reducer: Callable, init_value: float, is_mean: bool = False) -> Any:
    def make(window_shape: tuple, strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
        return _pooling(reducer, init_value, is_mean, window_shape, strides, padding, spec)

    return set_name_and_doc(make, name, _POOLING.format(words, name=name))


MaxPool = _pooling_constructor("MaxPool", "The maximum of each window.", lax.max, -math.inf)
SumPool = _pooling_constructor("SumPool", "The sum of each window.", lax.add, 0.0)
AvgPool = _pooling_constructor("AvgPool", "The mean of each window.", lax.add, 0.0, is_mean=True)

Flatten: Final[Layer] = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **_: jnp.reshape(inputs, (inputs.shape[0], -1)),
)
FanInSum: Final[Layer] = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **_: functools.reduce(jnp.add, inputs),
)


def FanOut(num: int) -> Layer:
    """A layer that returns its input several times, for `parallel`.

    Args:
      num: the number of outputs.

    Returns:
      The layer.

    Examples:
      >>> len(FanOut(3)[1]((), jnp.ones(2)))
      3
    """
    return (lambda rng, input_shape: ([input_shape] * num, ())), (lambda params, inputs, **_: [inputs] * num)


def FanInConcat(axis: int = -1) -> Layer:
    """A layer that concatenates its inputs.

    Args:
      axis: the dimension.

    Returns:
      The layer.

    Examples:
      >>> init_fun, apply_fun = FanInConcat()
      >>> init_fun(random.key(0), [(2, 3), (2, 4)])[0]
      (2, 7)
    """

    def init_fun(rng: Any, input_shape: Sequence[tuple]) -> tuple:
        first, dim = input_shape[0], axis % len(input_shape[0])
        return (*first[:dim], sum(shape[dim] for shape in input_shape), *first[dim + 1 :]), ()

    return init_fun, lambda params, inputs, **_: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Dropout.

    Args:
      rate: the probability with which an element is kept; the kept elements are divided by it.
      mode: "train", or any other text to return the inputs.

    Returns:
      The layer, whose `apply_fun` needs an argument `rng`.

    Raises:
      ArgumentError: `apply_fun` is called without `rng`.

    Examples:
      >>> float(Dropout(0.5)[1]((), jnp.ones(1000), rng=random.key(0)).max())
      2.0
    """

    def apply_fun(params: tuple, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        if rng is None:
            raise ArgumentError(
                "stax.Dropout, argument rng of apply_fun",
                expected="a random key",
                got="None",
                fix="call apply_fun(params, inputs, rng=key)",
            )
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0) if mode == "train" else inputs

    return (lambda rng, input_shape: (input_shape, ())), apply_fun


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Layers one after the other.

    Args:
      layers: the layers.

    Returns:
      One layer, whose parameters are a list.

    Examples:
      >>> init_fun, apply_fun = serial(Dense(4), Relu, Dense(2))
      >>> shape, params = init_fun(random.key(0), (3, 5))
      >>> apply_fun(params, jnp.ones((3, 5))).shape
      (3, 2)
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple:
        params = []
        for init, _ in layers:
            # The keys of the layers before do not depend on how many layers follow.
            rng, own = random.split(rng)
            input_shape, found = init(own, input_shape)
            params.append(found)
        return input_shape, params

    def apply_fun(params: Sequence, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        for (_, apply), own, key in zip(layers, params, _keys(rng, len(layers))):
            inputs = apply(own, inputs, rng=key, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, each for one of the inputs.

    Args:
      layers: the layers.

    Returns:
      One layer from a list of inputs to a list of outputs.

    Examples:
      >>> init_fun, apply_fun = serial(FanOut(2), parallel(Dense(4), Identity), FanInConcat())
      >>> init_fun(random.key(0), (3, 5))[0]
      (3, 9)
    """

    def init_fun(rng: Any, input_shape: Sequence) -> tuple:
        pairs = [init(k, s) for (init, _), k, s in zip(layers, _keys(rng, len(layers)), input_shape)]
        return tuple([shape for shape, _ in pairs]), tuple([params for _, params in pairs])

    def apply_fun(params: Sequence, inputs: Sequence, rng: Any = None, **kwargs: Any) -> list:
        keys = _keys(rng, len(layers))
        return [apply(p, x, rng=k, **kwargs) for (_, apply), p, x, k in zip(layers, params, inputs, keys)]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that is made when the shape of its input is known.

    Args:
      make_layer: from the shape of the input to a layer.

    Returns:
      The layer.

    Examples:
      >>> init_fun, _ = shape_dependent(lambda shape: Dense(2 * shape[-1]))
      >>> init_fun(random.key(0), (3, 5))[0]
      (3, 10)
    """

    # The layer is made anew in each call, as its functions depend on the shape alone.
    def init_fun(rng: Any, input_shape: Any) -> tuple:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun
