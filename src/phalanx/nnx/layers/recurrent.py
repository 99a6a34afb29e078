"""Recurrent cells, and what runs them over a sequence: `RNN` and `Bidirectional`.

A cell takes a carry and an input and gives a new carry and an output. Builds on `Linear` and `lax.scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, nn
from phalanx import numpy as jnp
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError
from phalanx.nn import initializers
from phalanx.nnx import functional
from phalanx.nnx.layers.linear import Linear
from phalanx.nnx.layers.parameters import NO_METADATA, lecun_normal, promote_dtype, zeros_init
from phalanx.nnx.layers.stochastic import stream_of
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs, RngStream
from phalanx.nnx.variable import Param
from phalanx.runtime.dispatch import eager_program
from phalanx.spmd import jit
from phalanx.tree import tree_map

orthogonal = initializers.orthogonal()


class RNNCellBase(Module):
    """The base of cells: `initialize_carry(input_shape, rngs)` and `__call__(carry, inputs) -> (carry, output)`.

    Examples:
      >>> from phalanx import nnx
      >>> issubclass(nnx.GRUCell, nnx.RNNCellBase)
      True
    """

    in_features: int
    hidden_features: int
    gate_fn: Callable
    activation_fn: Callable
    residual: bool
    # How many carries a cell has; one is the carry itself, several are a tuple.
    num_carries = 1
    # How many of an input's last dimensions are features.
    num_feature_axes = 1

    def _set_up(
        self, rngs: Rngs, keep_rngs: bool, in_features: int, hidden_features: int, dtype: Any, param_dtype: Any,
        carry_init: Callable | None, **options: Any,
    ) -> None:  # fmt: skip
        """Keep what all cells have, and the options."""
        self.in_features = in_features
        self.hidden_features = hidden_features
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.carry_init = carry_init
        self.rngs = stream_of(f"nnx.{type(self).__name__}", rngs, "carry") if keep_rngs else None
        for name, value in options.items():
            setattr(self, name, value)

    def initialize_carry(
        self, input_shape: Sequence[int], rngs: Rngs | RngStream | None = None, carry_init: Callable | None = None
    ) -> Any:
        """The carry before the first input: zeros, unless the cell or the call has another initializer.

        Args:
          input_shape: the shape of one input, (*batch, in_features).
          rngs: where keys come from, the stream `carry`.
          carry_init: an initializer `(key, shape, dtype)`.

        Returns:
          The carry.

        Raises:
          ArgumentError: an initializer needs keys, and there are none.
        """
        init = carry_init or self.carry_init or zeros_init
        rngs = self.rngs if rngs is None else rngs
        if rngs is None and init is not zeros_init:
            raise ArgumentError(
                f"nnx.{type(self).__name__}.initialize_carry, argument rngs", expected="random streams with 'carry'",
                got=None, mend="pass rngs to the call, or keep_rngs=True to the cell",
            )  # fmt: skip
        shape = (*input_shape[: -self.num_feature_axes], self.hidden_features)
        draw = rngs["carry"] if isinstance(rngs, Rngs) else rngs
        carries = [init(None if draw is None else draw(), shape, self.param_dtype) for _ in range(self.num_carries)]
        return carries[0] if len(carries) == 1 else tuple(carries)

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Take one input: the new carry and the output.

        Args:
          carry: what the cell remembers.
          inputs: num[*batch, in_features].

        Returns:
          The new carry and the output.

        Raises:
          NotImplementedError: the cell does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__}.__call__")


def _linear_maker(
    rngs: Rngs, dtype: Any, param_dtype: Any, promote: Callable, bias_init: Callable, metadata: dict[str, Mapping]
) -> Callable:
    """What makes the linear maps of a cell, from the input ("kernel") and from the carry ("recurrent_kernel")."""

    def make(kind: str, n_in: int, n_out: int, init: Callable, use_bias: bool) -> Linear:
        return Linear(
            n_in, n_out, use_bias=use_bias, kernel_init=init, bias_init=bias_init, dtype=dtype,
            param_dtype=param_dtype, promote_dtype=promote, kernel_metadata=metadata[kind],
            bias_metadata=metadata["bias"], rngs=rngs,
        )  # fmt: skip

    return make


@eager_program
def _lstm_step(c: Any, i: Any, f: Any, g: Any, o: Any, gate: Callable, activation: Callable) -> tuple:
    """The new memory and the new hidden state."""
    new_c = gate(f) * c + gate(i) * activation(g)
    return new_c, gate(o) * activation(new_c)


class LSTMCell(RNNCellBase):
    """A long short-term memory, with a linear map for each gate; the carry is (memory, hidden state).

    Args:
      in_features: how many features come in.
      hidden_features: how many the carry has.
      gate_fn: the function of the gates.
      activation_fn: that of what passes them.
      kernel_init, recurrent_kernel_init, bias_init: initializers of the maps.
      dtype: the dtype of the computation.
      param_dtype: that of the parameters and of the first carry.
      carry_init: initializer of the first carry; None for zeros.
      promote_dtype: what brings operands to one dtype.
      keep_rngs: keep a stream for the first carry.
      rngs: where keys come from: the streams `params`, and `carry` if it is kept.
      kernel_metadata, recurrent_kernel_metadata, bias_metadata: metadata of the variables.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> cell = nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0))
      >>> carry, y = cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))
      >>> y.shape
      (2, 4)

    Source: S. Hochreiter and J. Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735.
    """

    num_carries = 2

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable = nn.sigmoid,
        activation_fn: Callable = nn.tanh,
        kernel_init: Callable = lecun_normal,
        recurrent_kernel_init: Callable = orthogonal,
        bias_init: Callable = zeros_init,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        metadata = dict(kernel=kernel_metadata, recurrent_kernel=recurrent_kernel_metadata, bias=bias_metadata)
        linear = _linear_maker(rngs, dtype, param_dtype, promote_dtype, bias_init, metadata)
        of_input = lambda: linear("kernel", in_features, hidden_features, kernel_init, False)
        of_carry = lambda: linear("recurrent_kernel", hidden_features, hidden_features, recurrent_kernel_init, True)
        self.ii, self.if_, self.ig, self.io = of_input(), of_input(), of_input(), of_input()
        self.hi, self.hf, self.hg, self.ho = of_carry(), of_carry(), of_carry(), of_carry()
        self._set_up(
            rngs, keep_rngs, in_features, hidden_features, dtype, param_dtype, carry_init, gate_fn=gate_fn,
            activation_fn=activation_fn, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, carry: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
        """Take one input: the new carry, and the new hidden state.

        Args:
          carry: memory and hidden state, num[*batch, hidden_features] each.
          inputs: num[*batch, in_features].

        Returns:
          The new carry and num[*batch, hidden_features].
        """
        c, h = carry
        gates = [
            x(inputs) + y(h)
            for x, y in ((self.ii, self.hi), (self.if_, self.hf), (self.ig, self.hg), (self.io, self.ho))
        ]
        c, h = _lstm_step(c, *gates, self.gate_fn, self.activation_fn)
        return (c, h), h


class OptimizedLSTMCell(RNNCellBase):
    """An `LSTMCell` that computes all gates at once.

    Args:
      in_features, hidden_features, gate_fn, activation_fn, kernel_init, recurrent_kernel_init, bias_init, dtype,
        param_dtype, carry_init, promote_dtype, keep_rngs, rngs: as in `LSTMCell`.
      kernel_metadata, recurrent_kernel_metadata, bias_metadata: as there.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> cell = nnx.OptimizedLSTMCell(3, 4, rngs=nnx.Rngs(0))
      >>> carry, y = cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))
      >>> y.shape
      (2, 4)

    Source: S. Hochreiter and J. Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735.
    """

    num_carries = 2

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable = nn.sigmoid,
        activation_fn: Callable = nn.tanh,
        kernel_init: Callable = lecun_normal,
        recurrent_kernel_init: Callable = orthogonal,
        bias_init: Callable = zeros_init,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        metadata = dict(kernel=kernel_metadata, recurrent_kernel=recurrent_kernel_metadata, bias=bias_metadata)
        linear = _linear_maker(rngs, dtype, param_dtype, promote_dtype, bias_init, metadata)
        self.dense_i = linear("kernel", in_features, 4 * hidden_features, kernel_init, False)
        self.dense_h = linear("recurrent_kernel", hidden_features, 4 * hidden_features, recurrent_kernel_init, True)
        self._set_up(
            rngs, keep_rngs, in_features, hidden_features, dtype, param_dtype, carry_init, gate_fn=gate_fn,
            activation_fn=activation_fn, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, carry: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
        """Take one input.

        Args:
          carry, inputs: as in `LSTMCell`.

        Returns:
          The new carry and num[*batch, hidden_features].
        """
        c, h = carry
        gates = jnp.split(self.dense_i(inputs) + self.dense_h(h), 4, axis=-1)
        c, h = _lstm_step(c, *gates, self.gate_fn, self.activation_fn)
        return (c, h), h


class SimpleCell(RNNCellBase):
    """The plain recurrent cell: h = activation(W x + b + U h).

    Args:
      in_features, hidden_features, dtype, param_dtype, carry_init, activation_fn, kernel_init, recurrent_kernel_init,
        bias_init, promote_dtype, keep_rngs, rngs, kernel_metadata, recurrent_kernel_metadata, bias_metadata: as in
        `LSTMCell`.
      residual: add the old carry to the new one.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> cell = nnx.SimpleCell(3, 4, rngs=nnx.Rngs(0))
      >>> cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))[1].shape
      (2, 4)

    Source: J. L. Elman (1990), doi:10.1207/s15516709cog1402_1.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        dtype: Any = np.float32,
        param_dtype: Any = np.float32,
        carry_init: Callable | None = None,
        residual: bool = False,
        activation_fn: Callable = nn.tanh,
        kernel_init: Callable = lecun_normal,
        recurrent_kernel_init: Callable = orthogonal,
        bias_init: Callable = zeros_init,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        metadata = dict(kernel=kernel_metadata, recurrent_kernel=recurrent_kernel_metadata, bias=bias_metadata)
        linear = _linear_maker(rngs, dtype, param_dtype, promote_dtype, bias_init, metadata)
        self.dense_h = linear("recurrent_kernel", hidden_features, hidden_features, recurrent_kernel_init, False)
        self.dense_i = linear("kernel", in_features, hidden_features, kernel_init, True)
        self._set_up(
            rngs, keep_rngs, in_features, hidden_features, dtype, param_dtype, carry_init, residual=residual,
            activation_fn=activation_fn, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Take one input: the new carry, twice.

        Args:
          carry: num[*batch, hidden_features].
          inputs: num[*batch, in_features].

        Returns:
          num[*batch, hidden_features], as the carry and as the output.
        """
        new = self.dense_i(inputs) + self.dense_h(carry)
        if self.residual:
            new = new + carry
        new = self.activation_fn(new)
        return new, new


@eager_program
def _gru_step(h: Any, x: Any, y: Any, gate: Callable, activation: Callable) -> Any:
    """The new carry from what the maps make of the input (x) and of the carry (y)."""
    (x_r, x_z, x_n), (y_r, y_z, y_n) = jnp.split(x, 3, axis=-1), jnp.split(y, 3, axis=-1)
    z = gate(x_z + y_z)
    n = activation(x_n + gate(x_r + y_r) * y_n)
    return (1.0 - z) * n + z * h


class GRUCell(RNNCellBase):
    """A gated recurrent unit.

    Args:
      in_features, hidden_features, gate_fn, activation_fn, kernel_init, recurrent_kernel_init, bias_init, dtype,
        param_dtype, carry_init, promote_dtype, keep_rngs, rngs, kernel_metadata, recurrent_kernel_metadata,
        bias_metadata: as in `LSTMCell`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> cell = nnx.GRUCell(3, 4, rngs=nnx.Rngs(0))
      >>> cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))[1].shape
      (2, 4)

    Source: K. Cho et al. (2014), arXiv:1406.1078.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        gate_fn: Callable = nn.sigmoid,
        activation_fn: Callable = nn.tanh,
        kernel_init: Callable = lecun_normal,
        recurrent_kernel_init: Callable = orthogonal,
        bias_init: Callable = zeros_init,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        metadata = dict(kernel=kernel_metadata, recurrent_kernel=recurrent_kernel_metadata, bias=bias_metadata)
        linear = _linear_maker(rngs, dtype, param_dtype, promote_dtype, bias_init, metadata)
        self.dense_i = linear("kernel", in_features, 3 * hidden_features, kernel_init, True)
        self.dense_h = linear("recurrent_kernel", hidden_features, 3 * hidden_features, recurrent_kernel_init, False)
        self._set_up(
            rngs, keep_rngs, in_features, hidden_features, dtype, param_dtype, carry_init, gate_fn=gate_fn,
            activation_fn=activation_fn, promote_dtype=promote_dtype,
        )  # fmt: skip

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Take one input.

        Args:
          carry, inputs: as in `SimpleCell`.

        Returns:
          num[*batch, hidden_features], as the carry and as the output.
        """
        new = _gru_step(carry, self.dense_i(inputs), self.dense_h(carry), self.gate_fn, self.activation_fn)
        return new, new


def _scan(definition: Any, unroll: int, params: Any, rest: Any, carry: Any, xs: Any, last: Any) -> tuple:
    """Run a cell over the first dimension of `xs`; its parameters stay, its other variables go along.

    Args:
      definition, params, rest: the cell, taken apart.
      unroll: how many steps a turn of the loop takes.
      carry: the first carry.
      xs: the inputs, time first.
      last: int[*batch], the step whose carry is the result; None for the last.

    Returns:
      The last carry, the cell's other variables, and the outputs.
    """

    def step(carried: tuple, x: Any) -> tuple[tuple, Any]:
        number, carry, kept, rest = carried
        cell = functional.merge(definition, params, rest)
        carry, y = cell(carry, x)
        if last is not None:
            ends = number == last
            at_end = lambda new, old: jnp.where(ends.reshape(*ends.shape, *(1,) * (new.ndim - ends.ndim)), new, old)
            kept = tree_map(at_end, carry, kept)
        return (number + 1, carry, kept, functional.split(cell, Param, ...)[2]), y

    first = (jnp.zeros((), np.int32), carry, carry if last is not None else (), rest)
    (_, carry, kept, rest), ys = lax.scan(step, first, xs, unroll=unroll)
    return (carry if last is None else kept), rest, ys


_scan_at_once = jit(_scan, static_argnums=(0, 1))


def _run(cell: Any, carry: Any, xs: Any, last: Any, unroll: int) -> tuple[Any, Any]:
    """The last carry and the outputs of a cell, whose variables are updated; one program when eager."""
    scan = _scan_at_once if state.trace is None else _scan
    definition, params, rest = functional.split(cell, Param, ...)
    carry, rest, ys = scan(definition, unroll, params, rest, carry, xs, last)
    functional.update(cell, rest)
    return carry, ys


def flip_sequences(inputs: Any, seq_lengths: Any, num_batch_dims: int, time_major: bool) -> Any:
    """Turn sequences around; with lengths, each within its length, and what is behind it likewise.

    Args:
      inputs: an array, or a tree of them, num[*batch, time, ...] or num[time, *batch, ...].
      seq_lengths: int[*batch]; None for all of them.
      num_batch_dims: how many dimensions the batch has.
      time_major: whether time comes first.

    Returns:
      The turned sequences.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> flip_sequences(jnp.array([[1, 2, 3]]), jnp.array([2]), num_batch_dims=1, time_major=False).tolist()
      [[2, 1, 3]]
    """
    axis = 0 if time_major else num_batch_dims

    def flipped(x: Any) -> Any:
        if seq_lengths is None:
            return jnp.flip(x, axis)
        positions = jnp.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(num_batch_dims + 1)])
        index = (x.shape[axis] - 1 - positions + jnp.expand_dims(seq_lengths, axis)) % x.shape[axis]
        index = index.reshape(*index.shape, *(1,) * (x.ndim - index.ndim))
        return jnp.take_along_axis(x, jnp.broadcast_to(index, x.shape), axis)

    return tree_map(flipped, inputs)


class RNN(Module):
    """Run a cell over sequences.

    Args:
      cell: the cell.
      time_major: sequences are num[time, *batch, features], not num[*batch, time, features].
      return_carry: give the last carry, too.
      reverse: go from the end to the beginning.
      keep_order: give outputs in the order of the inputs even so.
      unroll: how many steps a turn of the loop takes.
      state_axes, broadcast_rngs: must be None: parameters are the same at each step, all other variables go along.
      rngs: where the first carry's keys come from, the stream `carry`.

    Raises:
      ArgumentError: `state_axes` or `broadcast_rngs` is given.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0)))
      >>> layer(jnp.ones((2, 7, 3))).shape
      (2, 7, 4)
    """

    def __init__(
        self,
        cell: Any,
        *,
        time_major: bool = False,
        return_carry: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        state_axes: Any = None,
        broadcast_rngs: Any = None,
        rngs: Rngs | RngStream | bool | None = True,
    ):
        for name, given in (("state_axes", state_axes), ("broadcast_rngs", broadcast_rngs)):
            if given is not None:
                raise ArgumentError(f"nnx.RNN, argument {name}", expected="None", got=given,
                                    mend="scan over the cell with nnx.scan")  # fmt: skip
        self.cell = cell
        self.time_major = time_major
        self.return_carry = return_carry
        self.reverse = reverse
        self.keep_order = keep_order
        self.unroll = unroll
        self.rngs = None if isinstance(rngs, bool) else stream_of("nnx.RNN", rngs, "carry")

    def __call__(
        self,
        inputs: Any,
        *,
        initial_carry: Any = None,
        seq_lengths: Any = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        rngs: Rngs | RngStream | None = None,
    ) -> Any:
        """Run over sequences.

        Args:
          inputs: num[*batch, time, features], or with `time_major` num[time, *batch, features].
          initial_carry: the first carry; None for the cell's own.
          seq_lengths: int[*batch], how long each sequence is: the carry returned is that of its end.
          return_carry, time_major, reverse, keep_order: as for the layer; None for its own setting.
          rngs: where the first carry's keys come from.

        Returns:
          The outputs; with `return_carry`, the last carry and the outputs.
        """
        return_carry = self.return_carry if return_carry is None else return_carry
        time_major = self.time_major if time_major is None else time_major
        reverse = self.reverse if reverse is None else reverse
        keep_order = self.keep_order if keep_order is None else keep_order
        num_batch_dims = np.ndim(inputs) - (self.cell.num_feature_axes + 1)
        axis = 0 if time_major else num_batch_dims
        if reverse:
            inputs = flip_sequences(inputs, seq_lengths, num_batch_dims, time_major)
        if initial_carry is None:
            shape = np.shape(inputs)
            rngs = self.rngs if rngs is None else rngs
            initial_carry = self.cell.initialize_carry((*shape[:axis], *shape[axis + 1 :]), rngs)
        last = jnp.asarray(seq_lengths) - 1 if seq_lengths is not None and return_carry else None
        carry, ys = _run(self.cell, initial_carry, jnp.moveaxis(inputs, axis, 0), last, self.unroll)
        ys = jnp.moveaxis(ys, 0, axis)
        if reverse and keep_order:
            ys = flip_sequences(ys, seq_lengths, num_batch_dims, time_major)
        return (carry, ys) if return_carry else ys


def _concatenated(a: Any, b: Any) -> Any:
    """Both outputs along the last dimension."""
    return jnp.concatenate([a, b], axis=-1)


class Bidirectional(Module):
    """Run one `RNN` forwards and one backwards, and join their outputs.

    Args:
      forward_rnn: the one.
      backward_rnn: the other.
      merge_fn: joins the outputs.
      time_major, return_carry: as in `RNN`.
      rngs: where the first carries' keys come from, the stream `carry`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> one, other = (nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs)) for _ in range(2))
      >>> nnx.Bidirectional(one, other)(jnp.ones((2, 7, 3))).shape
      (2, 7, 8)

    Source: M. Schuster and K. K. Paliwal (1997), doi:10.1109/78.650093.
    """

    def __init__(
        self,
        forward_rnn: RNN,
        backward_rnn: RNN,
        *,
        merge_fn: Callable = _concatenated,
        time_major: bool = False,
        return_carry: bool = False,
        rngs: Rngs | RngStream | bool | None = True,
    ):
        self.forward_rnn = forward_rnn
        self.backward_rnn = backward_rnn
        self.merge_fn = merge_fn
        self.time_major = time_major
        self.return_carry = return_carry
        self.rngs = None if isinstance(rngs, bool) else stream_of("nnx.Bidirectional", rngs, "carry")

    def __call__(
        self,
        inputs: Any,
        *,
        initial_carry: Any = None,
        rngs: Rngs | RngStream | None = None,
        seq_lengths: Any = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Any:
        """Run over sequences, in both directions.

        Args:
          inputs, seq_lengths, return_carry, time_major: as in `RNN`.
          initial_carry: the two first carries.
          rngs: where the first carries' keys come from.
          reverse, keep_order: not read.

        Returns:
          The joined outputs; with `return_carry`, the two last carries and the outputs.
        """
        return_carry = self.return_carry if return_carry is None else return_carry
        first = (None, None) if initial_carry is None else initial_carry
        options: dict[str, Any] = dict(
            seq_lengths=seq_lengths, return_carry=True, rngs=self.rngs if rngs is None else rngs,
            time_major=self.time_major if time_major is None else time_major,
        )  # fmt: skip
        carry_forward, forward = self.forward_rnn(inputs, initial_carry=first[0], reverse=False, **options)
        carry_backward, backward = self.backward_rnn(
            inputs, initial_carry=first[1], reverse=True, keep_order=True, **options
        )
        outputs = self.merge_fn(forward, backward)
        return ((carry_forward, carry_backward), outputs) if return_carry else outputs
