"""Layers that multiply by a matrix: `Linear`, `LinearGeneral`, `Einsum`, and `Embed`, which picks its rows.

Each call is one compiled program when eager. Builds on `parameters`; attention, recurrence and LoRA build on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.lax.explicit import placed
from phalanx.nn import initializers
from phalanx.nnx.layers.parameters import (
    NO_METADATA,
    as_tuple,
    flattened,
    held,
    lecun_normal,
    parameter,
    promote_dtype,
    zeros_init,
)
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import Param
from phalanx.runtime.dispatch import eager_program

default_embed_init = initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def dense(
    x: Any, kernel: Any, bias: Any, dims: tuple, dtype: Any, precision: Any, preferred: Any, placed: Any,
    promote: Callable, dot_general: Callable,
) -> Any:  # fmt: skip
    """The product of an input and a kernel over given dimensions, plus a bias."""
    x, kernel, bias = promote((x, kernel, bias), dtype=dtype)
    options: dict[str, Any] = {} if preferred is None else {"preferred_element_type": preferred}
    if placed is not None:
        options["out_sharding"] = placed
    y = dot_general(x, kernel, dims, precision=precision, **options)
    return y if bias is None else y + bias


_dense_at_once = eager_program(dense, static_argnames=("dims",))


def apply_dense(x: Any, kernel: Any, bias: Any, *options: Any) -> Any:
    """`dense`, as one program when eager; functions of the user's own run as they are."""
    if options[-2:] == (promote_dtype, lax.dot_general):
        return _dense_at_once(x, kernel, bias, *options)
    return dense(x, kernel, bias, *options)


def checked_features(where: str, x: Any, dims: Sequence[int], features: Sequence[int]) -> None:
    """Refuse an input whose features are not as many as the layer has.

    Inside a `shard_map` that is as many as this device's piece of the parameters has: what the parameters say counts.

    Raises:
      ShapeError: they are not.
    """
    shape = np.shape(x)
    ndim = len(shape)
    if any(not -ndim <= d < ndim or shape[d] != n for d, n in zip(dims, features)):
        raise ShapeError(
            f"{where}, inputs",
            expected=f"{tuple(features)} features along axis {tuple(dims)}",
            got=f"shape {tuple(shape)}",
            mend="make the layer for this size, or move the features there",
        )


class Linear(Module):
    """A linear map of the last dimension: x @ kernel + bias.

    Args:
      in_features: how many features come in.
      out_features: how many go out.
      use_bias: whether there is a bias.
      dtype: the dtype of the computation; None for that of input and parameters.
      param_dtype: the dtype of the parameters.
      precision: of the product, as in `lax.dot`.
      kernel_init, bias_init: initializers `(key, shape, dtype)`.
      dot_general: what multiplies.
      promote_dtype: what brings the operands to one dtype.
      preferred_element_type: the dtype to accumulate in.
      rngs: where keys come from, the stream `params`.
      kernel_metadata, bias_metadata: metadata of the variables, such as `out_sharding`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
      >>> layer.kernel.shape, layer(jnp.ones((2, 3))).shape
      ((3, 4), (2, 4))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        precision: Any = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        dot_general: Callable = lax.dot_general,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: Any = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        shape = (in_features, out_features)
        self.kernel = parameter(Param, kernel_init, rngs.params(), shape, param_dtype, kernel_metadata)
        self.bias = None
        if use_bias:
            self.bias = parameter(Param, bias_init, rngs.params(), (out_features,), param_dtype, bias_metadata)
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = use_bias
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.precision = precision
        self.kernel_init = kernel_init
        self.bias_init = bias_init
        self.dot_general = dot_general
        self.promote_dtype = promote_dtype
        self.preferred_element_type = preferred_element_type

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        """Map the last dimension.

        Args:
          inputs: num[..., in_features].
          out_sharding: how the result is to lie.

        Returns:
          num[..., out_features].

        Raises:
          ShapeError: the last dimension is another.
        """
        kernel = self.kernel.value
        checked_features("nnx.Linear", inputs, (-1,), kernel.shape[:1])
        dims = (((np.ndim(inputs) - 1,), (0,)), ((), ()))
        return apply_dense(
            inputs, kernel, held(self.bias), dims, self.dtype, self.precision, self.preferred_element_type,
            out_sharding, self.promote_dtype, self.dot_general,
        )  # fmt: skip


class LinearGeneral(Module):
    """A linear map of any dimensions, which may differ along batch dimensions.

    Args:
      in_features: the sizes of the dimensions that are mapped.
      out_features: the sizes of those that take their place, at the end.
      axis: which dimensions are mapped.
      batch_axis: leading dimensions, with their sizes, along which the kernel differs.
      use_bias, dtype, param_dtype, kernel_init, bias_init, precision, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      dot_general, dot_general_cls: what multiplies, or what makes it.

    Raises:
      ArgumentError: `axis` does not name as many dimensions as `in_features` has sizes, or batch dimensions do not
        lead.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.LinearGeneral((2, 3), (4, 5), axis=(1, 2), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((7, 2, 3))).shape
      (7, 4, 5)
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        out_features: int | Sequence[int],
        *,
        axis: int | Sequence[int] = -1,
        batch_axis: Mapping[int, int] = NO_METADATA,  # type: ignore[assignment]
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        precision: Any = None,
        promote_dtype: Callable = promote_dtype,
        dot_general: Callable | None = None,
        dot_general_cls: Any = None,
        preferred_element_type: Any = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.in_features = as_tuple(in_features)
        self.out_features = as_tuple(out_features)
        self.axis = as_tuple(axis)
        self.batch_axis = tuple(sorted(batch_axis.items()))
        self._check()
        batch = tuple(n for _, n in self.batch_axis)
        shape = (*batch, *self.in_features, *self.out_features)
        self.kernel = parameter(
            Param, flattened(kernel_init, len(batch) + len(self.in_features)), rngs.params(), shape, param_dtype,
            kernel_metadata,
        )  # fmt: skip
        self.bias = None
        if use_bias:
            bias_shape = (*batch, *self.out_features)
            init = lambda key, shape, dtype: bias_init(key, (math.prod(shape),), dtype).reshape(shape)
            self.bias = parameter(Param, init, rngs.params(), bias_shape, param_dtype, bias_metadata)
        self.use_bias = use_bias
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.kernel_init = kernel_init
        self.bias_init = bias_init
        self.precision = precision
        self.promote_dtype = promote_dtype
        self.dot_general = dot_general
        self.dot_general_cls = dot_general_cls
        self.preferred_element_type = preferred_element_type

    def _check(self) -> None:
        if len(self.axis) != len(self.in_features):
            raise ArgumentError(
                "nnx.LinearGeneral, argument axis", expected=f"{len(self.in_features)} dimensions, one for each of "
                f"in_features={self.in_features}", got=self.axis, mend="name each dimension that is mapped",
            )  # fmt: skip
        if tuple(a for a, _ in self.batch_axis) != tuple(range(len(self.batch_axis))):
            raise ArgumentError(
                "nnx.LinearGeneral, argument batch_axis", expected="the leading dimensions 0, 1, ...",
                got=tuple(a for a, _ in self.batch_axis), mend="move batch dimensions to the front",
            )  # fmt: skip

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        """Map the dimensions `axis`.

        Args:
          inputs: the array.
          out_sharding: how the result is to lie.

        Returns:
          The array, the new dimensions at its end.

        Raises:
          ShapeError: the sizes of these dimensions are others.
        """
        kernel = self.kernel.value
        ndim, batch = np.ndim(inputs), tuple(range(len(self.batch_axis)))
        checked_features("nnx.LinearGeneral", inputs, (*batch, *self.axis), kernel.shape[: len(batch) + len(self.axis)])
        axis = tuple(a % ndim for a in self.axis)
        kernel_dims = tuple(range(len(batch), len(batch) + len(axis)))
        bias = held(self.bias)
        if bias is not None and batch:
            between = ndim - len(axis) - len(batch)
            bias = bias.reshape(bias.shape[: len(batch)] + (1,) * between + bias.shape[len(batch) :])
        dot_general = self.dot_general or lax.dot_general
        if self.dot_general_cls is not None:
            dot_general = self.dot_general_cls()
        return apply_dense(
            inputs, kernel, bias, ((axis, kernel_dims), (batch, batch)), self.dtype, self.precision,
            self.preferred_element_type, out_sharding, self.promote_dtype, dot_general,
        )  # fmt: skip


class Einsum(Module):
    """A kernel that meets the input as an einsum says, plus a bias.

    Args:
      einsum_str: such as `"nta,hab->nthb"`, the input first; None if each call gives it.
      kernel_shape: the shape of the kernel.
      bias_shape: the shape of the bias; None for no bias.
      dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      einsum_op: what computes it.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.Einsum("nta,hab->nthb", (8, 2, 4), (8, 4), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((16, 11, 2))).shape
      (16, 11, 8, 4)
    """

    def __init__(
        self,
        einsum_str: str | None,
        kernel_shape: Sequence[int],
        bias_shape: Sequence[int] | None = None,
        *,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        precision: Any = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        promote_dtype: Callable = promote_dtype,
        einsum_op: Callable = jnp.einsum,
        preferred_element_type: Any = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        if einsum_str is not None:
            _parts(einsum_str)
        self.kernel = parameter(Param, kernel_init, rngs.params(), kernel_shape, param_dtype, kernel_metadata)
        self.bias = None
        if bias_shape is not None:
            self.bias = parameter(Param, bias_init, rngs.params(), bias_shape, param_dtype, bias_metadata)
        self.einsum_str = einsum_str
        self.kernel_shape = tuple(kernel_shape)
        self.bias_shape = None if bias_shape is None else tuple(bias_shape)
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.precision = precision
        self.kernel_init = kernel_init
        self.bias_init = bias_init
        self.promote_dtype = promote_dtype
        self.einsum_op = einsum_op
        self.preferred_element_type = preferred_element_type

    def __call__(self, inputs: Any, einsum_str: str | None = None, out_sharding: Any = None) -> Any:
        """Compute the einsum of the input and the kernel, and add the bias.

        Args:
          inputs: the array.
          einsum_str: the einsum, unless the layer was made with it.
          out_sharding: how the result is to lie.

        Returns:
          What the einsum gives.

        Raises:
          ArgumentError: there are no subscripts, two, or not the form `"input,kernel->result"`.
        """
        text = einsum_str or self.einsum_str
        if text is None:
            raise ArgumentError("nnx.Einsum, argument einsum_str", expected="subscripts such as 'nta,hab->nthb'",
                                got=None, mend="pass them to the layer or to the call")  # fmt: skip
        x_names, kernel_names, y_names = _parts(text)
        x, kernel, bias = self.promote_dtype((inputs, self.kernel.value, held(self.bias)), dtype=self.dtype)
        options: dict[str, Any] = {} if out_sharding is None else {"out_sharding": out_sharding}
        if self.preferred_element_type is not None:
            options["preferred_element_type"] = self.preferred_element_type
        y = self.einsum_op(text.replace(" ", ""), x, kernel, precision=self.precision, **options)
        if bias is None:
            return y
        return y + bias.reshape(_bias_shape(y, y_names, kernel_names, bias.shape))


def _parts(text: str) -> tuple[str, str, str]:
    """The three parts of subscripts."""
    operands, arrow, result = text.replace(" ", "").partition("->")
    names = operands.split(",")
    if not arrow or len(names) != 2:
        raise ArgumentError("nnx.Einsum, argument einsum_str", expected="subscripts of the form 'input,kernel->result'",
                            got=repr(text), mend="name both operands and the result")  # fmt: skip
    return names[0], names[1], result


def _bias_shape(y: Any, y_names: str, kernel_names: str, bias: tuple) -> tuple:
    """The shape in which a bias is added: its sizes at the dimensions that come from the kernel, 1 elsewhere."""
    before, dots, after = y_names.partition("...")
    names = [*before, *["."] * (y.ndim - len(before) - len(after) if dots else 0), *after]
    full = tuple(y.shape[i] if name in kernel_names else 1 for i, name in enumerate(names))
    if math.prod(full) != math.prod(bias):
        sizes = tuple(n for n in full if n != 1)
        raise ShapeError("nnx.Einsum, bias", expected=f"shape {sizes}, that of what the kernel adds to the result",
                         got=f"shape {bias}", mend="change bias_shape")  # fmt: skip
    return full


@eager_program(static_argnames=("dtype",))
def _rows(indices: Any, table: Any, dtype: Any) -> Any:
    (table,) = promote_dtype((table,), dtype=dtype, inexact=False)
    return jnp.take(table, indices, axis=0)


class Embed(Module):
    """A vector for each of some numbers: the rows of a table.

    Args:
      num_embeddings: how many vectors.
      features: how long they are.
      dtype: the dtype of the result; None for that of the table.
      param_dtype: the dtype of the table.
      embedding_init: its initializer.
      promote_dtype: what brings operands to one dtype.
      rngs: where the key comes from, the stream `params`.
      embedding_metadata: metadata of the table, such as `out_sharding`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nnx
      >>> layer = nnx.Embed(num_embeddings=5, features=3, rngs=nnx.Rngs(0))
      >>> layer(np.array([[0, 4]])).shape
      (1, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        *,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        embedding_init: Callable = default_embed_init,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        embedding_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        shape = (num_embeddings, features)
        self.embedding = parameter(Param, embedding_init, rngs.params(), shape, param_dtype, embedding_metadata)
        self.num_embeddings = num_embeddings
        self.features = features
        self.dtype = dtype or self.embedding.value.dtype
        self.param_dtype = param_dtype
        self.embedding_init = embedding_init
        self.promote_dtype = promote_dtype

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        """Look up vectors.

        Args:
          inputs: int[*s], numbers below `num_embeddings`; from there on the vectors are NaN.
          out_sharding: how the result is to lie.

        Returns:
          num[*s, features].

        Raises:
          DTypeError: the numbers are not integers.
        """
        inputs = jnp.asarray(inputs)
        if not dtypes.issubdtype(inputs.dtype, np.integer):
            raise DTypeError("nnx.Embed, inputs", expected="integers", got=inputs.dtype.name,
                             mend="convert them, or use nnx.Linear for vectors")  # fmt: skip
        out = _rows(inputs, self.embedding.value, self.dtype)
        return placed(out, out_sharding, "nnx.Embed, out_sharding")

    def attend(self, query: Any, out_sharding: Any = None) -> Any:
        """The products of vectors with all of the table.

        Args:
          query: num[..., features].
          out_sharding: how the result is to lie.

        Returns:
          num[..., num_embeddings].
        """
        query, table = self.promote_dtype((query, self.embedding.value), dtype=self.dtype)
        options: dict[str, Any] = {} if out_sharding is None else {"out_sharding": out_sharding}
        return lax.dot_general(query, table, (((query.ndim - 1,), (1,)), ((), ())), **options)
