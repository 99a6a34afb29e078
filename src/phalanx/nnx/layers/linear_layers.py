"""Linear layers: `Linear`, `LinearGeneral`, `Einsum` and `Embed`. Eager calls run as one compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, nn, numpy as jnp
from phalanx.core import ArgumentError, DTypeError, ShapeError, dtypes
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.nnx.layers.parameter_init import (
    NO_METADATA,
    Layer,
    as_tuple,
    flatten_initializer,
    lecun_normal,
    make_parameter,
    promote_dtype,
    value_or_none,
    without_none,
    zeros_init,
)
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable_types import Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike

default_embed_init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)


def dense(
    x: Array,
    kernel: Array,
    bias: Array | None,
    dims: tuple,
    dtype: DTypeLike | None,
    precision: PrecisionLike,
    preferred: DTypeLike | None,
    placed: ShardingLike | None,
    promote: Callable,
    dot_general: Callable,
) -> Any:
    """Compute the product of an input and a kernel over given dimensions, plus a bias."""
    x, kernel, bias = promote((x, kernel, bias), dtype=dtype)
    options = without_none(preferred_element_type=preferred, out_sharding=placed)
    y = dot_general(x, kernel, dims, precision=precision, **options)
    return y if bias is None else y + bias


_dense_at_once = eager_jit(dense, static_argnames=("dims",))


def apply_dense(x: Any, kernel: Any, bias: Any, *options: Any) -> Any:
    """Call `dense`, as one compiled program if eager, unless a function given by the user is involved."""
    # Users' functions may have Python side effects, which a compiled program would run only once.
    if options[-2:] == (promote_dtype, lax.dot_general):
        return _dense_at_once(x, kernel, bias, *options)
    return dense(x, kernel, bias, *options)


def check_features(where: str, x: Any, dims: Sequence[int], features: Sequence[int]) -> None:
    """Check that the number of features of an input is that of the parameters.

    Inside of `shard_map`, the parameters are per-shard, so that the constructor arguments cannot be used.

    Raises:
      ShapeError: the number differs.
    """
    shape = np.shape(x)
    ndim = len(shape)
    if any(not -ndim <= d < ndim or shape[d] != n for d, n in zip(dims, features)):
        raise ShapeError(
            f"{where}, inputs",
            expected=f"{tuple(features)} features along axis {tuple(dims)}",
            got=f"shape {tuple(shape)}",
            fix=f"create the layer for this size, or move the features to axis {tuple(dims)} with jnp.moveaxis",
        )


class Linear(Layer):
    """A linear map of the last dimension: x @ kernel + bias.

    Args:
      in_features: the number of input features.
      out_features: the number of output features.
      use_bias: whether to add a bias.
      dtype: the dtype of the computation; None to promote input and parameters.
      param_dtype: the dtype of the parameters.
      precision: the precision of the product, as in `lax.dot`.
      kernel_init, bias_init: initializers `(key, shape, dtype)`.
      dot_general: computes the product, by default `lax.dot_general`.
      promote_dtype: promotes the operands to one dtype.
      preferred_element_type: the dtype of the accumulator.
      rngs: random keys, from the stream `params`.
      kernel_metadata, bias_metadata: the metadata of the variables, such as `out_sharding`.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        precision: PrecisionLike = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        dot_general: Callable = lax.dot_general,
        promote_dtype: Callable = promote_dtype,
        preferred_element_type: DTypeLike | None = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        shape = (in_features, out_features)
        self.kernel = make_parameter(Param, kernel_init, rngs, shape, param_dtype, kernel_metadata)
        self._make_bias(use_bias, bias_init, rngs, (out_features,), param_dtype, bias_metadata)
        self._store_options(
            locals(),
            "in_features out_features use_bias dtype param_dtype precision dot_general promote_dtype "
            "preferred_element_type",
        )

    def __call__(self, inputs: ArrayLike, out_sharding: ShardingLike | None = None) -> Any:
        """Apply the map to the last dimension.

        Args:
          inputs: num[..., in_features].
          out_sharding: the sharding of the result.

        Returns:
          num[..., out_features].

        Raises:
          ShapeError: the last dimension has another size than `in_features`.
        """
        kernel = self.kernel.value
        check_features("nnx.Linear", inputs, (-1,), kernel.shape[:1])
        # The last dimension of the input is contracted with the first one of the kernel.
        dims = (((np.ndim(inputs) - 1,), (0,)), ((), ()))
        return apply_dense(
            inputs,
            kernel,
            value_or_none(self.bias),
            dims,
            self.dtype,
            self.precision,
            self.preferred_element_type,
            out_sharding,
            self.promote_dtype,
            self.dot_general,
        )


class LinearGeneral(Layer):
    """A linear map of several dimensions, with an optional separate map for each element of batch dimensions.

    Args:
      in_features: the sizes of the mapped dimensions.
      out_features: the sizes of the new dimensions, which are the last ones of the result.
      axis: the mapped dimensions of the input.
      batch_axis: the sizes of leading dimensions along which the kernel differs.
      use_bias, dtype, param_dtype, kernel_init, bias_init, precision, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      dot_general, dot_general_cls: computes the product, or creates the function that computes it.

    Raises:
      ArgumentError: `axis` and `in_features` have different lengths, or batch dimensions are not the leading ones.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        precision: PrecisionLike = None,
        promote_dtype: Callable = promote_dtype,
        dot_general: Callable | None = None,
        dot_general_cls: Any = None,
        preferred_element_type: DTypeLike | None = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.in_features = as_tuple(in_features)
        self.out_features = as_tuple(out_features)
        self.axis = as_tuple(axis)
        self.batch_axis = tuple(sorted(batch_axis.items()))
        self._check()
        self._store_options(
            locals(),
            "use_bias dtype param_dtype precision dot_general dot_general_cls promote_dtype preferred_element_type",
        )
        batch = tuple(n for _, n in self.batch_axis)
        shape = (*batch, *self.in_features, *self.out_features)
        self.kernel = make_parameter(
            Param,
            flatten_initializer(kernel_init, len(batch) + len(self.in_features)),
            rngs,
            shape,
            param_dtype,
            kernel_metadata,
        )
        bias_shape = (*batch, *self.out_features)
        flat_init = flatten_initializer(bias_init, None)
        self._make_bias(use_bias, flat_init, rngs, bias_shape, param_dtype, bias_metadata)

    def _check(self) -> None:
        if len(self.axis) != len(self.in_features):
            raise ArgumentError(
                "nnx.LinearGeneral, argument axis",
                expected=f"{len(self.in_features)} dimensions, one for each of in_features={self.in_features}",
                got=self.axis,
                fix="name each dimension that is mapped",
            )
        if tuple(a for a, _ in self.batch_axis) != tuple(range(len(self.batch_axis))):
            raise ArgumentError(
                "nnx.LinearGeneral, argument batch_axis",
                expected="the leading dimensions 0, 1, ...",
                got=tuple(a for a, _ in self.batch_axis),
                fix="move batch dimensions to the front",
            )

    def __call__(self, inputs: ArrayLike, out_sharding: ShardingLike | None = None) -> Any:
        """Apply the map to the dimensions `axis`.

        Args:
          inputs: the array.
          out_sharding: the sharding of the result.

        Returns:
          The array, with the new dimensions at the end.

        Raises:
          ShapeError: the dimensions have other sizes than `in_features`.
        """
        kernel = self.kernel.value
        ndim, batch = np.ndim(inputs), tuple(range(len(self.batch_axis)))
        check_features("nnx.LinearGeneral", inputs, (*batch, *self.axis), kernel.shape[: len(batch) + len(self.axis)])
        axis = tuple(a % ndim for a in self.axis)
        kernel_dims = tuple(range(len(batch), len(batch) + len(axis)))
        bias = value_or_none(self.bias)
        if bias is not None and batch:
            between = ndim - len(axis) - len(batch)
            bias = bias.reshape(bias.shape[: len(batch)] + (1,) * between + bias.shape[len(batch) :])
        given = self.dot_general if self.dot_general_cls is None else self.dot_general_cls()
        return apply_dense(
            inputs,
            kernel,
            bias,
            ((axis, kernel_dims), (batch, batch)),
            self.dtype,
            self.precision,
            self.preferred_element_type,
            out_sharding,
            self.promote_dtype,
            given or lax.dot_general,
        )


class Einsum(Layer):
    """An einsum of the input and a kernel, plus a bias.

    Args:
      einsum_str: the subscripts, such as `"nta,hab->nthb"`, with the input first; None to pass them in each call.
      kernel_shape: the shape of the kernel.
      bias_shape: the shape of the bias; None for no bias.
      dtype, param_dtype, precision, kernel_init, bias_init, promote_dtype, preferred_element_type, rngs,
        kernel_metadata, bias_metadata: as in `Linear`.
      einsum_op: computes the einsum, by default `jnp.einsum`.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        precision: PrecisionLike = None,
        kernel_init: Callable = lecun_normal,
        bias_init: Callable = zeros_init,
        promote_dtype: Callable = promote_dtype,
        einsum_op: Callable = jnp.einsum,
        preferred_element_type: DTypeLike | None = None,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        if einsum_str is not None:
            _split_subscripts(einsum_str)
        self.kernel = make_parameter(Param, kernel_init, rngs, kernel_shape, param_dtype, kernel_metadata)
        self._make_bias(bias_shape is not None, bias_init, rngs, bias_shape or (), param_dtype, bias_metadata)
        kernel_shape, bias_shape = tuple(kernel_shape), None if bias_shape is None else tuple(bias_shape)
        self._store_options(
            locals(),
            "einsum_str kernel_shape bias_shape dtype param_dtype precision promote_dtype einsum_op "
            "preferred_element_type",
        )

    def __call__(
        self, inputs: ArrayLike, einsum_str: str | None = None, out_sharding: ShardingLike | None = None
    ) -> Any:
        """Compute the einsum of the input and the kernel, and add the bias.

        Args:
          inputs: the array.
          einsum_str: the subscripts; None to use the layer's.
          out_sharding: the sharding of the result.

        Returns:
          The result of the einsum, plus the bias.

        Raises:
          ArgumentError: there are no subscripts, or they do not have the form `"input,kernel->result"`.
        """
        text = einsum_str or self.einsum_str
        if text is None:
            raise ArgumentError(
                "nnx.Einsum, argument einsum_str",
                expected="subscripts such as 'nta,hab->nthb'",
                got=None,
                fix="pass them to the layer or to the call",
            )
        x_names, kernel_names, y_names = _split_subscripts(text)
        x, kernel, bias = self.promote_dtype((inputs, self.kernel.value, value_or_none(self.bias)), dtype=self.dtype)
        options = without_none(out_sharding=out_sharding, preferred_element_type=self.preferred_element_type)
        y = self.einsum_op(text.replace(" ", ""), x, kernel, precision=self.precision, **options)
        return y if bias is None else y + bias.reshape(_bias_shape(y, y_names, kernel_names, bias.shape))


def _split_subscripts(text: str) -> tuple[str, str, str]:
    """Split subscripts into the parts for input, kernel and result."""
    operands, arrow, result = text.replace(" ", "").partition("->")
    names = operands.split(",")
    if not arrow or len(names) != 2:
        raise ArgumentError(
            "nnx.Einsum, argument einsum_str",
            expected="subscripts of the form 'input,kernel->result'",
            got=repr(text),
            fix="pass subscripts such as '...a,ab->...b'",
        )
    return names[0], names[1], result


def _bias_shape(y: Any, y_names: str, kernel_names: str, bias: tuple) -> tuple:
    """The shape to broadcast a bias from: the sizes of dimensions that come from the kernel, 1 elsewhere."""
    # An ellipsis stands for dimensions of the input, along which the bias is broadcast.
    before, dots, after = y_names.partition("...")
    names = [*before, *["."] * (y.ndim - len(before) - len(after) if dots else 0), *after]
    full = tuple(y.shape[i] if name in kernel_names else 1 for i, name in enumerate(names))
    if math.prod(full) != math.prod(bias):
        sizes = tuple(n for n in full if n != 1)
        raise ShapeError(
            "nnx.Einsum, bias",
            expected=f"shape {sizes}, the sizes of the dimensions that come from the kernel",
            got=f"shape {bias}",
            fix=f"pass bias_shape={sizes}",
        )
    return full


@eager_jit(static_argnames=("dtype",))
def _rows(indices: Any, table: Any, dtype: Any) -> Any:
    (table,) = promote_dtype((table,), dtype=dtype, inexact=False)
    return jnp.take(table, indices, axis=0)


class Embed(Layer):
    """An embedding: a table with a vector for each number below `num_embeddings`.

    Args:
      num_embeddings: the number of vectors.
      features: the length of the vectors.
      dtype: the dtype of the result; None for the dtype of the table.
      param_dtype: the dtype of the table.
      embedding_init: the initializer of the table.
      promote_dtype: promotes the operands to one dtype.
      rngs: the random key, from the stream `params`.
      embedding_metadata: the metadata of the table, such as `out_sharding`.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        embedding_init: Callable = default_embed_init,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        embedding_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        shape = (num_embeddings, features)
        self.embedding = make_parameter(Param, embedding_init, rngs, shape, param_dtype, embedding_metadata)
        # Unlike other layers, an embedding has integer inputs, which must not take part in the promotion.
        dtype = dtype or self.embedding.value.dtype
        self._store_options(locals(), "num_embeddings features dtype param_dtype promote_dtype")

    def __call__(self, inputs: ArrayLike, out_sharding: ShardingLike | None = None) -> Any:
        """Look up vectors.

        Args:
          inputs: int[*s], numbers below `num_embeddings`; the vectors of larger numbers are NaN.
          out_sharding: the sharding of the result.

        Returns:
          num[*s, features].

        Raises:
          DTypeError: the inputs are not integers.
        """
        inputs = jnp.asarray(inputs)
        if not dtypes.issubdtype(inputs.dtype, np.integer):
            raise DTypeError(
                "nnx.Embed, inputs",
                expected="integers",
                got=inputs.dtype.name,
                fix="pass inputs.astype('int32'), or use nnx.Linear for vectors",
            )
        # With `out_sharding`, the table may be split along any dimension: the compiler plans the exchange of rows.
        return call_with_out_sharding(
            lambda indices, table: _rows(indices, table, self.dtype),
            (inputs, self.embedding.value),
            out_sharding,
            "nnx.Embed, out_sharding",
        )

    def attend(self, query: Any, out_sharding: ShardingLike | None = None) -> Any:
        """Compute the product of each vector with all vectors of the table.

        Args:
          query: num[..., features].
          out_sharding: the sharding of the result.

        Returns:
          num[..., num_embeddings].
        """
        query, table = self.promote_dtype((query, self.embedding.value), dtype=self.dtype)
        dims = (((query.ndim - 1,), (1,)), ((), ()))
        return lax.dot_general(query, table, dims, **without_none(out_sharding=out_sharding))
