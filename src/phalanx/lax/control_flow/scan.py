"""`scan` and `map`: loops over the leading dimension of arrays; `sequential_vmap`, which batches a function by `map`.

The body is traced for the types of the carry (`control_flow_tracing`) and bound to the primitive of `scan_primitive`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Jaxpr,
    Literal,
    ShapedArray,
    ShardingError,
    cached_on_jaxpr,
    check_function,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    merge_lists,
    select_flagged,
    select_unflagged,
)
from phalanx.custom_rules.custom_vmap import custom_vmap
from phalanx.lax.control_flow.control_flow_tracing import (
    as_array,
    check_carry,
    check_refs,
    leaf_avals,
    promote_carry,
    stage_body,
)
from phalanx.lax.control_flow.python_control_flow import runs_in_python, scan_in_python
from phalanx.lax.control_flow.scan_primitive import ScanLayout, scan_p
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.shape import move_dim, reshape
from phalanx.lax.shape.concatenate import concatenate
from phalanx.symbolic import is_symbolic
from phalanx.transforms.batching import vmap
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import DimSize, PyTree


def scan(
    f: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple:
    """A loop over the leading dimension of arrays with a carried value; compile time does not depend on the length.

    Args:
      f: the loop body, `(carry, x) -> (carry, y)`.
      init: the initial carry, a pytree. The body must preserve its structure and types.
      xs: the inputs, a pytree of arrays with leading dimensions of one size, or None.
      length: the number of iterations, required if `xs` is None.
      reverse: iterate from the last input to the first; outputs keep the order of the inputs.
      unroll: the number of iterations per step of the compiled loop; True or 0 for all of them.
      _split_transpose: accepted for compatibility; not read.

    Returns:
      `(carry, ys)`: the final carry, and the outputs `y` stacked along a leading dimension.

    Raises:
      ArgumentError: inputs have different lengths, or there are no inputs and no `length`.
      TreeError, ArgumentTypeError: the body changes the structure or the types of the carry.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> total, sums = phalanx.lax.scan(lambda c, x: (c + x, c + x), 0.0, jnp.arange(4.0))
      >>> float(total), sums.tolist()
      (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    check_function("scan, argument f", f)

    return bind_scan(
        f,
        init,
        xs,
        length,
        reverse,
        unroll,
        result_label=lambda path: f"scan, carry{path} returned by f = {format_code_position(f)}",
    )


def bind_scan(
    f: Callable,
    init: PyTree,
    xs: PyTree,
    length: DimSize | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    name: str = "scan",
    adapt: Callable[[Callable], Callable] | None = None,
    result_label: Callable[[str], str] = str,
    init_name: str = "init",
    num_counters: int = 0,
) -> tuple:
    """Trace a loop body and bind `scan_p`.

    Args:
      f: the user's function.
      init, xs, length, reverse, unroll: as in `scan`.
      name: the public function, for errors.
      adapt: makes the loop body of the user's function (see `stage_body`).
      result_label: names a place in the user's part of the returned carry, for errors.
      init_name: the parameter with the user's part of the initial carry.
      num_counters: how many scalars are carried in front of the user's part.
    """
    xs_flat, xs_tree = tree_flatten(xs)
    size = _scan_length(name, xs, length)
    if unroll < 0:
        raise ArgumentError(
            f"{name}, argument unroll", expected="an int of at least 0, or a bool", got=str(unroll), fix="pass unroll=1"
        )
    # 0 and True unroll the whole loop; False, which equals 0, unrolls nothing.
    if unroll is True or (unroll == 0 and unroll is not False):
        unroll = max(size, 1)
    unroll = unroll or 1
    # A loop of no iterations still has to be traced for the types of its results.
    if runs_in_python(size) and not is_symbolic(size) and size:
        return scan_in_python(f if adapt is None else adapt(f), init, xs, size, reverse)
    init_flat, init_tree = tree_flatten(init)
    _check_unsharded_leading_dim(name, xs)
    x_avals = [a.without_dim(0) for a in leaf_avals(xs_flat)]
    in_tree = tree_flatten((tree_unflatten(init_tree, init_flat), tree_unflatten(xs_tree, xs_flat)))[1]

    def make(avals: Sequence[ShapedArray]) -> tuple:
        body = stage_body(f, in_tree, [*avals, *x_avals], f"{name} body", adapt)
        result = tree_unflatten(body.out_tree, list(body.jaxpr.out_avals))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ArgumentTypeError(
                f"scan, the result of f = {format_code_position(f)}",
                expected="a pair (carry, y)",
                got=f"a {type(result).__name__}" + (f" of length {len(result)}" if isinstance(result, tuple) else ""),
                fix="return (carry, y), with None for y if there is no output",
            )
        return body, *tree_flatten(result[0]), tree_flatten(result[1])[1]

    # Tracing may change the initial carry, for example from a weak integer to a float.
    init_flat, in_avals, (body, carry_avals, carry_tree, y_tree) = promote_carry(init_flat, make)
    check_carry(
        result_label,
        lambda path: f"{init_name}{path}",
        (init_tree, in_avals),
        (carry_tree, carry_avals),
        num_counters=num_counters,
    )
    check_refs(name, xs, [body])
    n = len(init_flat)
    layout = ScanLayout(len(body.consts), n, size, bool(reverse), int(unroll))
    out = _bind_scan(body.jaxpr, layout, [*body.consts, *init_flat, *xs_flat])
    return tree_unflatten(init_tree, out[:n]), tree_unflatten(y_tree, out[n:])


def _bind_scan(jaxpr: Jaxpr, layout: ScanLayout, operands: Sequence[Any]) -> list:
    """Bind the primitive on a loop without the results that equal operands, which are returned as they are."""
    smaller, divided, forwarded = _forward_operands(jaxpr, layout)
    consts, carry, xs = layout.split(operands)
    # Constants of the loop are not copied into each iteration, and partial evaluation sees that they do not change.
    steady = [i is not None for i in forwarded[: layout.num_carry]]
    taken = [*consts, *select_flagged(carry, steady), *select_unflagged(carry, steady), *xs]
    has_work = smaller.outvars or smaller.effects
    computed = iter(scan_p(*taken, jaxpr=smaller, layout=divided) if has_work else ())
    return [next(computed) if i is None else as_array(operands[i]) for i in forwarded]


@cached_on_jaxpr
def _forward_operands(jaxpr: Jaxpr, layout: ScanLayout) -> tuple[Jaxpr, ScanLayout, Sequence[int | None]]:
    """The loop in which carried values that the body returns unchanged are constants, and inputs are no outputs.

    Otherwise the backward pass would save such a value, for example the parameters of a model, for each iteration.

    Returns:
      The jaxpr, its layout, and for each result of the whole the operand that it equals, or None.
    """
    consts, carry, xs = layout.split(jaxpr.invars)
    c, n = layout.num_consts, layout.num_carry
    # A slice of an input that is returned as it is: the stacked output equals the input.
    number_of = {v: c + n + i for i, v in enumerate(xs)}
    forwarded = [c + i if v is out else None for i, (v, out) in enumerate(zip(carry, jaxpr.outvars))]
    forwarded += [None if type(v) is Literal else number_of.get(v) for v in jaxpr.outvars[n:]]
    if not any(i is not None for i in forwarded):
        return jaxpr, layout, forwarded
    steady = [i is not None for i in forwarded[:n]]
    smaller = jaxpr.replace(
        invars=[*consts, *select_flagged(carry, steady), *select_unflagged(carry, steady), *xs],
        outvars=select_flagged(jaxpr.outvars, [i is None for i in forwarded]),
    )
    return smaller, layout._replace(num_consts=c + sum(steady), num_carry=n - sum(steady)), forwarded


def _check_unsharded_leading_dim(name: str, xs: PyTree) -> None:
    """Refuse inputs whose leading dimension is sharded by their types: every device runs all iterations."""
    for i, aval in enumerate(leaf_avals(tree_leaves(xs))):
        if aval.type_sharding is not None and aval.type_sharding.mesh.num_parts(aval.type_sharding.spec.dims[0]) > 1:
            raise ShardingError(
                f"{name}, argument xs{leaf_path(xs, i)}",
                expected="a leading dimension that is not sharded, since each device runs all iterations",
                got=aval.str_short(),
                fix="reshard it with phalanx.reshard to a spec whose first entry is None",
            )


def _scan_length(name: str, xs: PyTree, length: DimSize | None) -> Any:
    """The number of iterations, on which all inputs and `length` must agree."""
    sizes: dict[Any, int] = {}
    for i, x in enumerate(tree_leaves(xs)):
        aval = get_aval_of_argument(x, lambda i=i: f"{name}, argument xs{leaf_path(xs, i)}")
        if not aval.ndim:
            raise ArgumentError(
                f"{name}, argument xs{leaf_path(xs, i)}",
                expected="an array with a leading dimension",
                got=aval.str_short(),
                fix="let the body close over values that are the same in each iteration",
            )
        sizes.setdefault(aval.shape[0], i)
    if length is not None:
        length = operator.index(length) if not hasattr(length, "is_symbolic_dim") else length
        if isinstance(length, int) and length < 0:
            raise ArgumentError(
                f"{name}, argument length",
                expected="a number of iterations of at least 0",
                got=length,
                fix="check the computation of the length",
            )
        sizes.setdefault(length, -1)
    if len(sizes) != 1:
        found = ", ".join(f"{s} ({'length' if i < 0 else f'xs{leaf_path(xs, i)}'})" for s, i in sizes.items())
        raise ArgumentError(
            f"{name}, argument xs",
            expected="leading dimensions of one size" if sizes else "inputs, or a length",
            got=found or "neither",
            fix="make the leading dimensions agree" if sizes else "pass length= with the number of iterations",
        )
    return next(iter(sizes))


def map(f: Callable[[PyTree], PyTree], xs: PyTree, *, batch_size: int | None = None) -> PyTree:
    """Apply a function to each element along the leading dimension, sequentially.

    If the leading dimension is sharded over Explicit mesh axes, each device applies the function to its own elements.

    Args:
      f: a function of one element.
      xs: a pytree of arrays with leading dimensions of one size.
      batch_size: apply the function to this many elements at once, by `vmap`; a remainder follows at the end. 0 stands
        for all elements.

    Returns:
      The results, stacked along a leading dimension.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.lax.map(lambda x: x * x, jnp.arange(3)).tolist()
      [0, 1, 4]
    """
    leaves, tree = tree_flatten(xs)
    size = _scan_length("map", xs, None)
    if batch_size is None and (count := _num_shards(leaves)) > 1:
        # One iteration maps over one element of each shard: the loop runs along the elements of a shard. Smaller shards
        # are filled up with the last element, not with zeros, where the function may have no derivative.
        length = -(-size // count)
        if missing := count * length - size:
            fill = lambda x: concatenate([x, *[slice_in_dim(x, size - 1, size)] * missing], 0)
            return tree_map(lambda y: slice_in_dim(y, 0, size), map(f, tree_map(fill, xs)))
        blocks = [move_dim(reshape(x, (count, length, *x.shape[1:])), 1, 0) for x in leaves]
        out = bind_scan(f, (), tree_unflatten(tree, blocks), name="map", adapt=_map_blocks)[1]
        # The elements of a shard become neighbours again.
        return tree_map(lambda y: reshape(move_dim(y, 1, 0), (size, *y.shape[2:])), out)
    if batch_size is None:
        return bind_scan(f, (), xs, name="map", adapt=_map_elements)[1]
    in_blocks = size // batch_size * batch_size if batch_size else 0
    parts = []
    if is_symbolic(in_blocks) or in_blocks:
        blocks = [
            reshape(slice_in_dim(x, 0, in_blocks), (in_blocks // batch_size, batch_size, *get_aval(x).shape[1:]))
            for x in leaves
        ]
        out = bind_scan(f, (), tree_unflatten(tree, blocks), name="map", adapt=_map_blocks)[1]
        parts.append(tree_map(lambda y: reshape(y, (in_blocks, *y.shape[2:])), out))
    # The remainder is smaller than a block, so it is mapped at once.
    if in_blocks != size or not parts:
        parts.append(vmap(f)(tree_unflatten(tree, [slice_in_dim(x, in_blocks, size) for x in leaves])))
    return parts[0] if len(parts) == 1 else tree_map(lambda *ys: concatenate(ys, 0), *parts)


def _num_shards(leaves: Sequence[Any]) -> int:
    """The number of shards of the leading dimension by the types; 1 if arrays are sharded differently."""
    split = {
        None if a.type_sharding is None or not a.ndim else a.type_sharding.spec.dims[0] for a in leaf_avals(leaves)
    }
    if len(split) != 1 or not (axes := split.pop()):
        return 1
    return get_aval(leaves[0]).type_sharding.mesh.num_parts(axes)


def _map_elements(f: Callable) -> Callable:
    """A function of elements as the body of a scan."""
    return lambda _, x: ((), f(x))


def _map_blocks(f: Callable) -> Callable:
    """A function of elements as the body of a scan over blocks of elements."""
    return _map_elements(vmap(f))


def sequential_vmap(f: Callable) -> custom_vmap:
    """A function whose `vmap` is a sequential loop over the examples.

    Args:
      f: the function.

    Returns:
      A `custom_vmap` of the function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.vmap(phalanx.custom_batching.sequential_vmap(lambda x: x * 2))(jnp.arange(3)).tolist()
      [0, 2, 4]
    """
    function = custom_vmap(f)

    @function.def_vmap
    def rule(axis_size: DimSize, in_batched: list, *args: PyTree) -> tuple:
        # The loop runs over the mapped leaves; the others are shared by all iterations.
        leaves, tree = tree_flatten(args)
        is_mapped = tree_flatten(tuple(in_batched))[0]

        def one(xs: Sequence[Any]) -> PyTree:
            return function(*tree_unflatten(tree, merge_lists(is_mapped, xs, select_unflagged(leaves, is_mapped))))

        out = map(one, select_flagged(leaves, is_mapped))
        return out, tree_unflatten(tree_flatten(out)[1], [True] * len(tree_flatten(out)[0]))

    return function
