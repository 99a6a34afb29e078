"""Recurrent cells, and the layers `RNN` and `Bidirectional`, which run cells over sequences.

A cell maps a carry and an input to a new carry and an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax, nn, numpy as jnp, spmd
from phalanx.core import ArgumentError, state
from phalanx.nnx.filters import All
from phalanx.nnx.graphlib import split_merge
from phalanx.nnx.layers.dropout import fork_stream
from phalanx.nnx.layers.linear_layers import Linear
from phalanx.nnx.layers.parameter_init import NO_METADATA, Layer, lecun_normal, promote_dtype, zeros_init
from phalanx.nnx.rngs import Rngs, RngState, RngStream, split_rngs
from phalanx.nnx.transforms import lifted_control_flow
from phalanx.nnx.transforms.state_axes import Carry, StateAxes
from phalanx.nnx.variable_types import Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.tree import tree_map
from phalanx.typing import DTypeLike

orthogonal = nn.initializers.orthogonal()


class RNNCellBase(Layer):
    """The base class of cells: `initialize_carry(input_shape, rngs)` and `__call__(carry, inputs) -> (carry, output)`.

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
    # The number of arrays in the carry; several arrays are a tuple.
    num_carries = 1
    # The number of feature dimensions of an input, which are the last ones.
    num_feature_axes = 1

    def _initialize(self, arguments: Mapping[str, Any], options: str) -> None:
        """Set attributes from constructor arguments.

        Args:
          arguments: `locals()` of the constructor.
          options: the names of those between the numbers of features and the stream, separated by spaces.
        """
        self._store_options(arguments, f"in_features hidden_features {options} promote_dtype")
        where = f"nnx.{type(self).__name__}"
        self.rngs = fork_stream(where, arguments["rngs"], "carry") if arguments["keep_rngs"] else None

    def initialize_carry(
        self, input_shape: Sequence[int], rngs: Rngs | RngStream | None = None, carry_init: Callable | None = None
    ) -> Any:
        """Return the initial carry: zeros, unless the cell or the call has another initializer.

        Args:
          input_shape: the shape of one input, (*batch, in_features).
          rngs: random keys, from the stream `carry`.
          carry_init: an initializer `(key, shape, dtype)`.

        Returns:
          The carry.

        Raises:
          ArgumentError: an initializer needs random keys, and there are none.
        """
        init = carry_init or self.carry_init or zeros_init
        rngs = self.rngs if rngs is None else rngs
        if rngs is None and init is not zeros_init:
            raise ArgumentError(
                f"nnx.{type(self).__name__}.initialize_carry, argument rngs",
                expected="random streams with 'carry'",
                got=None,
                fix="pass rngs=nnx.Rngs(0) to the call, or keep_rngs=True to the cell",
            )
        shape = (*input_shape[: -self.num_feature_axes], self.hidden_features)
        draw = rngs["carry"] if isinstance(rngs, Rngs) else rngs
        if draw is not None and init is zeros_init:
            # Zeros need no keys; the stream advances as for other initializers.
            draw.count.value += self.num_carries
            draw = None
        carries = [init(None if draw is None else draw(), shape, self.param_dtype) for _ in range(self.num_carries)]
        return carries[0] if len(carries) == 1 else tuple(carries)

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Process one input.

        Args:
          carry: the carry.
          inputs: num[*batch, in_features].

        Returns:
          The new carry and the output.

        Raises:
          NotImplementedError: the class does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__}.__call__")


def _make_linear_factory(arguments: Mapping[str, Any]) -> Callable[[str, int, int, bool], Linear]:
    """A function that creates the linear maps of a cell from the arguments of its constructor.

    Linear maps of the input are of kind "kernel", linear maps of the carry of kind "recurrent_kernel".
    """

    def make(kind: str, in_features: int, out_features: int, use_bias: bool) -> Linear:
        return Linear(
            in_features,
            out_features,
            use_bias=use_bias,
            kernel_init=arguments[f"{kind}_init"],
            kernel_metadata=arguments[f"{kind}_metadata"],
            **{name: arguments[name] for name in _SHARED_WITH_LINEAR},
        )

    return make


_SHARED_WITH_LINEAR = ("bias_init", "dtype", "param_dtype", "promote_dtype", "bias_metadata", "rngs")


@eager_jit
def _lstm_step(c: Any, i: Any, f: Any, g: Any, o: Any, gate: Callable, activation: Callable) -> tuple:
    """Compute the new memory and the new hidden state from the gates i, f, g, o."""
    # The forget gate keeps a part of the memory, the input gate adds to it.
    new_c = gate(f) * c + gate(i) * activation(g)
    return new_c, gate(o) * activation(new_c)


class LSTMCell(RNNCellBase):
    """A long short-term memory, with a linear map for each gate; the carry is (memory, hidden state).

    Args:
      in_features: the number of input features.
      hidden_features: the number of features of the carry.
      gate_fn: the activation of the gates.
      activation_fn: the activation of the memory and of the output.
      kernel_init, recurrent_kernel_init, bias_init: initializers of the linear maps of input and carry.
      dtype: the dtype of the computation; None to promote input and parameters.
      param_dtype: the dtype of the parameters and of the initial carry.
      carry_init: the initializer of the carry; None for zeros.
      promote_dtype: promotes the operands to one dtype.
      keep_rngs: whether to keep a random stream for initial carries.
      rngs: random keys, from the streams `params`, and `carry` if it is kept.
      kernel_metadata, recurrent_kernel_metadata, bias_metadata: the metadata of the variables.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals(), "gate_fn activation_fn dtype param_dtype")
        linear = _make_linear_factory(locals())
        of_input = lambda: linear("kernel", in_features, hidden_features, False)
        of_carry = lambda: linear("recurrent_kernel", hidden_features, hidden_features, True)
        self.ii, self.if_, self.ig, self.io = of_input(), of_input(), of_input(), of_input()
        self.hi, self.hf, self.hg, self.ho = of_carry(), of_carry(), of_carry(), of_carry()
        self.carry_init = carry_init

    def __call__(self, carry: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
        """Process one input.

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
        c, h = _lstm_step(c, *gates, gate=self.gate_fn, activation=self.activation_fn)
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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals(), "gate_fn activation_fn dtype param_dtype")
        linear = _make_linear_factory(locals())
        self.dense_i = linear("kernel", in_features, 4 * hidden_features, False)
        self.dense_h = linear("recurrent_kernel", hidden_features, 4 * hidden_features, True)
        self.carry_init = carry_init

    def __call__(self, carry: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], Any]:
        """Process one input.

        Args:
          carry, inputs: as in `LSTMCell`.

        Returns:
          The new carry and num[*batch, hidden_features].
        """
        c, h = carry
        gates = jnp.split(self.dense_i(inputs) + self.dense_h(h), 4, axis=-1)
        c, h = _lstm_step(c, *gates, gate=self.gate_fn, activation=self.activation_fn)
        return (c, h), h


class SimpleCell(RNNCellBase):
    """The plain recurrent cell: h = activation(W x + b + U h).

    Args:
      in_features, hidden_features, dtype, param_dtype, carry_init, activation_fn, kernel_init, recurrent_kernel_init,
        bias_init, promote_dtype, keep_rngs, rngs, kernel_metadata, recurrent_kernel_metadata, bias_metadata: as in
        `LSTMCell`.
      residual: whether to add the carry before the activation.

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
        dtype: DTypeLike = np.float32,
        param_dtype: DTypeLike = np.float32,
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
        self._initialize(locals(), "dtype param_dtype residual activation_fn")
        linear = _make_linear_factory(locals())
        self.dense_h = linear("recurrent_kernel", hidden_features, hidden_features, False)
        self.dense_i = linear("kernel", in_features, hidden_features, True)
        self.carry_init = carry_init

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Process one input; the output is the new carry.

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


@eager_jit
def _gru_step(h: Any, x: Any, y: Any, gate: Callable, activation: Callable) -> Any:
    """Compute the new carry from the linear maps of the input (x) and of the carry (y)."""
    (x_r, x_z, x_n), (y_r, y_z, y_n) = jnp.split(x, 3, axis=-1), jnp.split(y, 3, axis=-1)
    # z is the update gate, x_r + y_r the reset gate, and n the candidate of the new carry.
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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        carry_init: Callable | None = None,
        promote_dtype: Callable = promote_dtype,
        keep_rngs: bool = False,
        rngs: Rngs,
        kernel_metadata: Mapping[str, Any] = NO_METADATA,
        recurrent_kernel_metadata: Mapping[str, Any] = NO_METADATA,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._initialize(locals(), "gate_fn activation_fn dtype param_dtype")
        linear = _make_linear_factory(locals())
        self.dense_i = linear("kernel", in_features, 3 * hidden_features, True)
        self.dense_h = linear("recurrent_kernel", hidden_features, 3 * hidden_features, False)
        self.carry_init = carry_init

    def __call__(self, carry: Any, inputs: Any) -> tuple[Any, Any]:
        """Process one input.

        Args:
          carry, inputs: as in `SimpleCell`.

        Returns:
          num[*batch, hidden_features], as the carry and as the output.
        """
        new = _gru_step(carry, self.dense_i(inputs), self.dense_h(carry), self.gate_fn, self.activation_fn)
        return new, new


def _advance(cell: Any, carried: tuple, x: Any, last: Any) -> tuple[tuple, Any]:
    """A step: from its number, the carry and the carry at the end of each sequence to the next ones and the output."""
    number, carry, kept = carried
    carry, y = cell(carry, x)
    if last is not None:
        ends = number == last
        # The carry at the end of each sequence is kept while the loop continues over its padding.
        at_end = lambda new, old: jnp.where(ends.reshape(*ends.shape, *(1,) * (new.ndim - ends.ndim)), new, old)
        kept = tree_map(at_end, carry, kept)
    return (number + 1, carry, kept), y


def _first(carry: Any, last: Any) -> tuple:
    """The values that `_advance` carries, before the first step."""
    return jnp.zeros((), np.int32), carry, carry if last is not None else ()


def _scan(definition: Any, unroll: int, params: Any, rest: Any, carry: Any, xs: Any, last: Any) -> tuple:
    """Run a cell over the first dimension of `xs`. Its parameters are constant, its other variables are carried.

    Args:
      definition, params, rest: the result of splitting the cell.
      unroll: the number of steps in one iteration of the loop.
      carry: the initial carry.
      xs: the inputs, time first.
      last: int[*batch], the step whose carry is returned for each sequence; None for the last step.

    Returns:
      The final carry, the other variables of the cell, and the outputs.

    Raises:
      _ParameterChange: the cell changes a parameter.
    """
    values = [v.value for _, v in params.leaves_by_path()]

    def step(carried: tuple, x: Any) -> tuple[tuple, Any]:
        cell = split_merge.merge(definition, params, carried[1], copy=True)
        new, y = _advance(cell, carried[0], x, last)
        _, new_params, rest = split_merge.split(cell, Param, ...)
        if any(v.value is not value for value, (_, v) in zip(values, new_params.leaves_by_path())):
            raise _ParameterChange
        return (new, rest), y

    (carried, rest), ys = lax.scan(step, (_first(carry, last), rest), xs, unroll=unroll)
    return carried[1 if last is None else 2], rest, ys


_scan_jit = spmd.jit(_scan, static_argnums=(0, 1))


class _ParameterChange(Exception):
    """A cell changes a parameter, which a loop with constant parameters would lose."""


def _run(layer: RNN, carry: Any, xs: Any, last: Any) -> tuple[Any, Any]:
    """Run the cell of a layer and update its variables; returns the final carry and the outputs."""
    if layer.state_axes is not None or layer.broadcast_rngs is not None:
        return _run_with_axes(layer, layer.state_axes or {...: Carry}, carry, xs, last)
    # One program if eager. Inside a trace the loop becomes a part of the surrounding program, which needs no compiled
    # function in it.
    scan = _scan_jit if state.trace is None else _scan
    definition, params, rest = split_merge.split(layer.cell, Param, ...)
    try:
        carry, rest, ys = scan(definition, layer.unroll, params, rest, carry, xs, last)
    except _ParameterChange:
        return _run_with_axes(layer, {...: Carry}, carry, xs, last)
    split_merge.update(layer.cell, rest)
    return carry, ys


def _run_with_axes(layer: RNN, axes: Mapping, carry: Any, xs: Any, last: Any) -> tuple[Any, Any]:
    """Run the cell as `_run` does, with the given axes of its variables."""
    same = layer.broadcast_rngs
    axes = StateAxes(axes if same is None else {All(RngState, same): None, **axes})

    @split_rngs(splits=1, only=same, squeeze=True, graph=True, graph_updates=True)
    @lifted_control_flow.scan(
        in_axes=(axes, Carry, 0), out_axes=(Carry, 0), unroll=layer.unroll, graph=True, graph_updates=True
    )
    def run(cell: Any, carried: tuple, x: Any) -> tuple[tuple, Any]:
        return _advance(cell, carried, x, last)

    carried, ys = run(layer.cell, _first(carry, last), xs)
    return carried[1 if last is None else 2], ys


def flip_sequences(inputs: Any, seq_lengths: Any, num_batch_dims: int, time_major: bool) -> Any:
    """Reverse sequences; with lengths, the elements of each sequence and its padding are reversed separately.

    Args:
      inputs: an array, or a tree of them, num[*batch, time, ...] or num[time, *batch, ...].
      seq_lengths: int[*batch], the length of each sequence; None for the full length.
      num_batch_dims: the number of batch dimensions.
      time_major: whether time is the first dimension.

    Returns:
      The reversed sequences.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> flip_sequences(jnp.array([[1, 2, 3]]), jnp.array([2]), num_batch_dims=1, time_major=False).tolist()
      [[2, 1, 3]]
    """
    axis = 0 if time_major else num_batch_dims

    def flip(x: Any) -> Any:
        if seq_lengths is None:
            return jnp.flip(x, axis)
        positions = jnp.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(num_batch_dims + 1)])
        # Position p of a sequence of length n takes element n - 1 - p; the modulus reverses the padding behind it
        # likewise.
        index = (x.shape[axis] - 1 - positions + jnp.expand_dims(seq_lengths, axis)) % x.shape[axis]
        index = index.reshape(*index.shape, *(1,) * (x.ndim - index.ndim))
        return jnp.take_along_axis(x, jnp.broadcast_to(index, x.shape), axis)

    return tree_map(flip, inputs)


def _make_carry_stream(where: str, rngs: Any) -> RngStream | None:
    if isinstance(rngs, bool):
        return RngStream(0, tag="carry") if rngs else None
    return fork_stream(where, rngs, "carry")


class RNN(Layer):
    """Run a cell over sequences.

    Args:
      cell: the cell.
      time_major: whether sequences are num[time, *batch, features] instead of num[*batch, time, features].
      return_carry: whether to return the final carry as well.
      reverse: whether to process sequences from the end to the beginning.
      keep_order: whether to return reversed outputs in the order of the inputs.
      unroll: the number of steps in one iteration of the loop.
      state_axes: the axes of the variables of the cell, as for `nnx.scan`; by default, all variables are carried.
      broadcast_rngs: the streams whose keys are the same in all steps.
      rngs: random keys for the initial carry, from the stream `carry`; True for the seed 0, False for none.

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
        self._store_options(locals(), "cell time_major return_carry reverse keep_order unroll")
        self.rngs = _make_carry_stream("nnx.RNN", rngs)
        self._store_options(locals(), "state_axes broadcast_rngs")

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
        """Run the cell over sequences.

        Args:
          inputs: num[*batch, time, features], or with `time_major` num[time, *batch, features].
          initial_carry: the initial carry; None to call `cell.initialize_carry`.
          seq_lengths: int[*batch], the length of each sequence, at whose end its final carry is taken.
          return_carry, time_major, reverse, keep_order: as for the layer; None for the setting of the layer.
          rngs: random keys for the initial carry.

        Returns:
          The outputs; with `return_carry`, the final carry and the outputs.
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
            rngs = rngs["carry"].fork() if isinstance(rngs, Rngs) else rngs
            initial_carry = self.cell.initialize_carry((*shape[:axis], *shape[axis + 1 :]), rngs)
        last = jnp.asarray(seq_lengths) - 1 if seq_lengths is not None and return_carry else None
        carry, ys = _run(self, initial_carry, jnp.moveaxis(inputs, axis, 0), last)
        ys = jnp.moveaxis(ys, 0, axis)
        if reverse and keep_order:
            ys = flip_sequences(ys, seq_lengths, num_batch_dims, time_major)
        return (carry, ys) if return_carry else ys


def _concatenate(a: Any, b: Any) -> Any:
    """Concatenate two outputs along the last dimension."""
    return jnp.concatenate([a, b], axis=-1)


class Bidirectional(Layer):
    """Run one `RNN` forwards and another one backwards, and combine their outputs.

    Args:
      forward_rnn: the forward layer.
      backward_rnn: the backward layer.
      merge_fn: combines the outputs, by default by concatenation.
      time_major, return_carry: as in `RNN`.
      rngs: random keys for the initial carries, as in `RNN`.

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
        merge_fn: Callable = _concatenate,
        time_major: bool = False,
        return_carry: bool = False,
        rngs: Rngs | RngStream | bool | None = True,
    ):
        self._store_options(locals(), "forward_rnn backward_rnn merge_fn time_major return_carry")
        self.rngs = _make_carry_stream("nnx.Bidirectional", rngs)

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
        """Run both layers over sequences.

        Args:
          inputs, seq_lengths, return_carry, time_major: as in `RNN`.
          initial_carry: the two initial carries.
          rngs: random keys for the initial carries.
          reverse, keep_order: ignored.

        Returns:
          The combined outputs; with `return_carry`, the two final carries and the outputs.
        """
        return_carry = self.return_carry if return_carry is None else return_carry
        first = (None, None) if initial_carry is None else initial_carry
        options: dict[str, Any] = dict(
            seq_lengths=seq_lengths,
            return_carry=True,
            rngs=self.rngs if rngs is None else rngs,
            time_major=self.time_major if time_major is None else time_major,
        )
        carry_forward, forward = self.forward_rnn(inputs, initial_carry=first[0], reverse=False, **options)
        carry_backward, backward = self.backward_rnn(
            inputs, initial_carry=first[1], reverse=True, keep_order=True, **options
        )
        outputs = self.merge_fn(forward, backward)
        return ((carry_forward, carry_backward), outputs) if return_carry else outputs
