"""Loops as users write them: `scan`, `while_loop`, `fori_loop` and `map`.

They stage bodies, settle the types of what is carried, and bind the primitives of `scan_primitive.py` and
`while_primitive.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes, promotion
from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, ShardingError
from phalanx.core.primitive import joint_varying
from phalanx.core.tangent import conform_all, vector_space
from phalanx.core.trace import Tracer
from phalanx.core.varying import varies, widened
from phalanx.custom_batching import loops
from phalanx.lax.arithmetic import add
from phalanx.lax.bodies import check_same_types, leaf_avals, stage_body
from phalanx.lax.broadcast import move_dim
from phalanx.lax.comparison import lt
from phalanx.lax.scan_primitive import Layout, scan_p
from phalanx.lax.shape import concatenate, reshape
from phalanx.lax.sizes import size as as_number
from phalanx.lax.slicing import slice_in_dim
from phalanx.lax.unrolled import runs_in_python, scan_in_python, while_in_python
from phalanx.lax.while_primitive import while_p
from phalanx.symbolic import is_symbolic
from phalanx.transforms.batching import vmap
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten, treedef_is_leaf
from phalanx.tree.paths import leaf_path


def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple:
    """A loop over the leading dimension of arrays, compiled once however long it is.

    Args:
      f: one iteration, `(carry, x) -> (carry, y)`.
      init: the first carry, a pytree; its types must not change from one iteration to the next.
      xs: the inputs, a pytree of arrays with one leading dimension, or None.
      length: the number of iterations, needed where `xs` is None.
      reverse: run from the last input to the first (results keep the order of the inputs).
      unroll: how many iterations to put in one step of the compiled loop; True for all.
      _split_transpose: accepted for compatibility; not read.

    Returns:
      `(carry, ys)`: the last carry, and the stacked `y`s.

    Raises:
      ArgumentError: inputs of different lengths, or none and no `length`.
      TreeError, ArgumentTypeError: the carry changes its structure or its types.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> total, sums = phalanx.lax.scan(lambda c, x: (c + x, c + x), 0.0, jnp.arange(4.0))
      >>> float(total), sums.tolist()
      (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise ArgumentTypeError("scan, argument f", expected="a function", got=repr(f), mend="pass the loop's body")
    return _scan(f, None, init, xs, length, reverse, unroll)


def _scan(f: Callable, adapt: Any, init: Any, xs: Any, length: Any, reverse: bool, unroll: int | bool) -> tuple:
    """`scan` of the body that `adapt` makes of a user's function (see `stage_body`)."""
    xs_flat, xs_tree = tree_flatten(xs)
    what = _CALLED.get(adapt, "map")
    size = _scan_length(what, xs, length)
    if isinstance(unroll, bool):
        unroll = max(size, 1) if unroll else 1
    if unroll < 1:
        raise ArgumentError(
            f"{what}, argument unroll", expected="a positive int", got=str(unroll), mend="give 1 or more"
        )
    if runs_in_python(size) and not is_symbolic(size) and size:
        return scan_in_python(f if adapt is None else adapt(f), init, xs, size, reverse)
    init_flat, init_tree = tree_flatten(init)
    _check_whole(what, xs)
    x_avals = [a.without_dim(0) for a in leaf_avals(xs_flat)]
    in_tree = tree_flatten((tree_unflatten(init_tree, init_flat), tree_unflatten(xs_tree, xs_flat)))[1]

    def make(avals: Sequence[ShapedArray]) -> Any:
        body = stage_body(f, in_tree, [*avals, *x_avals], "scan body", adapt)
        shown = tree_unflatten(body.out_tree, list(body.program.out_avals))
        if not isinstance(shown, tuple | list) or len(shown) != 2:
            raise ArgumentTypeError(
                "scan, the result of f", expected="a pair (carry, y)", got=str(body.out_tree), mend="return (carry, y)"
            )
        return body, *tree_flatten(shown[0]), tree_flatten(shown[1])[1]

    init_flat, in_avals, (body, carry_avals, carry_tree, y_tree) = promote_carry(init_flat, make)
    if adapt is _counted:
        _check_counted(1, init_tree, in_avals, carry_tree, carry_avals)
    else:
        check_same_types("scan, the carry that f returns", init_tree, in_avals, carry_tree, carry_avals, "init")
    layout = Layout(len(body.consts), len(init_flat), size, bool(reverse), int(unroll))
    out = scan_p(*body.consts, *init_flat, *xs_flat, jaxpr=body.program, layout=layout)
    n = len(init_flat)
    return tree_unflatten(init_tree, out[:n]), tree_unflatten(y_tree, out[n:])


def _check_counted(ours: int, tree: Any, avals: Sequence[Any], after_tree: Any, after: Sequence[Any]) -> None:
    """Refuse a counted loop whose carry changes; `ours` of what is carried comes before what the user wrote."""
    held, now = (tree_flatten(tree_unflatten(t, list(a))[ours])[1] for t, a in ((tree, avals), (after_tree, after)))
    check_same_types("fori_loop, the result of body_fun", held, avals[ours:], now, after[ours:], "init_val")


def promote_carry(init: Sequence[Any], make: Callable) -> tuple[list, list, Any]:
    """Stage a loop body for a carry of the types that it keeps.

    Initial values whose dtype is weak and whose carry comes back stronger are converted. Inside a `shard_map` the carry
    varies over all mesh axes that it comes back varying over; the body is staged again for that, since what it
    differentiates depends on which values devices share. Values that are over no mesh, and whose carry comes back over
    one, are brought to how it comes back.

    Args:
      init: the initial values.
      make: from the types of the carry to (body, types of the carry it returns, ...).

    Returns:
      The initial values, converted where needed, the types of the carry, and what `make` gave.
    """
    avals = leaf_avals(init)
    made = make(avals)
    after = made[1]
    if len(after) != len(avals):
        return list(init), avals, made
    wider = [b if _gives_way(a, b) else a for a, b in zip(avals, after)]
    if wider != avals:
        init = [vector_space.convert(x, w.dtype) if w is not a else x for x, a, w in zip(init, avals, wider)]
        made = make(leaf_avals(init))
    avals = leaf_avals(init)
    placed = [_over_mesh_of(a, b) for a, b in zip(avals, made[1])]
    if placed != avals:
        init, avals = conform_all(init, placed), placed
        made = make(avals)
    while (varying := widened(avals, made[1])) != avals:
        avals, made = varying, make(varying)
    return list(init), avals, made


def _gives_way(aval: ShapedArray, after: ShapedArray) -> bool:
    """Whether an initial value is weak and takes the type that its carry comes back with, without losing its kind."""
    if not aval.weak_type or aval.matches(after) or aval.shape != after.shape:
        return False
    is_number = dtypes.issubdtype(after.dtype, np.number)
    return is_number and promotion.promote_pair(aval.dtype, True, after.dtype, after.weak_type)[0] == after.dtype


def _over_mesh_of(aval: ShapedArray, after: ShapedArray) -> ShapedArray:
    """The type of a carry that is over no mesh, as one that lies as it comes back."""
    if aval.sharding is not None or after.sharding is None or aval.shape != after.shape:
        return aval
    return aval.update(sharding=after.sharding)


def _check_whole(what: str, xs: Any) -> None:
    """Refuse inputs whose iterations lie on different devices by their types."""
    for i, aval in enumerate(leaf_avals(tree_leaves(xs))):
        if aval.sharding is not None and aval.sharding.mesh.num_parts(aval.sharding.spec.dims[0]) > 1:
            raise ShardingError(
                f"{what}, argument xs{leaf_path(xs, i)}",
                expected="a leading dimension that is not split, since each device runs all iterations",
                got=aval.str_short(),
                mend="reshard it with phalanx.reshard, leaving the leading dimension whole",
            )


def _scan_length(what: str, xs: Any, length: Any) -> Any:
    sizes: dict[Any, int] = {}
    for i, x in enumerate(tree_leaves(xs)):
        aval = aval_at(x, lambda i=i: f"{what}, argument xs{leaf_path(xs, i)}")
        if not aval.ndim:
            raise ArgumentError(
                f"{what}, argument xs{leaf_path(xs, i)}",
                expected="an array with a leading dimension",
                got=aval.str_short(),
                mend="close over values that are the same in each iteration",
            )
        sizes.setdefault(aval.shape[0], i)
    if length is not None:
        length = operator.index(length) if not hasattr(length, "is_symbolic_dim") else length
        sizes.setdefault(length, -1)
    if len(sizes) != 1:
        shown = ", ".join(f"{s} ({'length' if i < 0 else f'xs{leaf_path(xs, i)}'})" for s, i in sizes.items())
        raise ArgumentError(
            f"{what}, argument xs",
            expected="leading dimensions of one size" if sizes else "inputs, or a length",
            got=shown or "neither",
            mend="make the leading dimensions agree" if sizes else "pass length=",
        )
    return next(iter(sizes))


def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """A loop while a condition holds.

    Args:
      cond_fun: from the carry to a boolean scalar.
      body_fun: from the carry to the next one, of the same structure and types.
      init_val: the first carry, a pytree.

    Returns:
      The carry for which the condition no longer holds. It cannot be differentiated in reverse mode.

    Raises:
      ArgumentTypeError: the condition is no boolean scalar, or the carry changes its types.
      TreeError: the carry changes its structure.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, 1))
      16
    """
    for name, fun in (("cond_fun", cond_fun), ("body_fun", body_fun)):
        if not callable(fun):
            raise ArgumentTypeError(
                f"while_loop, argument {name}", expected="a function", got=repr(fun), mend="pass one"
            )
    return _while(cond_fun, body_fun, init_val)


def _while(cond_fun: Callable, body_fun: Callable, init_val: Any, is_counted: bool = False) -> Any:
    """`while_loop`, also for a counted one, which carries its index and its bound in front."""
    if state.context.disable_jit and runs_in_python(goes_on := cond_fun(init_val)):
        return while_in_python(cond_fun, body_fun, init_val, goes_on)
    flat, tree = tree_flatten(init_val)
    in_tree = tree_flatten((init_val,))[1]

    def make(avals: Sequence[ShapedArray]) -> tuple:
        body = stage_body(body_fun, in_tree, avals, "while_loop body")
        after = body.program.out_avals
        if not varies(avals, after):
            return body, after
        # Devices that differ in the condition run on for different times, so that nothing it writes stays shared.
        over = joint_varying(
            stage_body(cond_fun, in_tree, widened(avals, after), "while_loop condition").program.out_avals
        )
        carried = zip(body.program.invars[len(body.consts) :], body.program.outvars, strict=True)
        unwritten = [before is later for before, later in carried]
        return body, [a if same else a.with_varying(a.varying | over) for a, same in zip(after, unwritten, strict=True)]

    flat, avals, (body, after) = promote_carry(flat, make)
    if is_counted:
        _check_counted(2, tree, avals, body.out_tree, after)
    else:
        check_same_types("while_loop, the result of body_fun", tree, avals, body.out_tree, after, "init_val")
    cond = stage_body(cond_fun, in_tree, avals, "while_loop condition")
    check_predicate("while_loop, the result of cond_fun", cond.program.out_avals, cond.out_tree)
    out = while_p(
        *cond.consts,
        *body.consts,
        *flat,
        cond=cond.program,
        body=body.program,
        num_cond_consts=len(cond.consts),
        num_body_consts=len(body.consts),
    )
    return tree_unflatten(tree, out)


def check_predicate(what: str, avals: Sequence[ShapedArray], tree: Any) -> None:
    """Refuse a condition that is not one boolean scalar."""
    if not treedef_is_leaf(tree) or avals[0].shape != () or avals[0].dtype != np.bool_:
        shown = ", ".join(a.str_short() for a in avals) or "nothing"
        raise ArgumentTypeError(
            what,
            expected="a boolean scalar",
            got=shown if treedef_is_leaf(tree) else f"a tree, {tree}, of {shown}",
            mend="compare, or reduce with .any() or .all()",
        )


def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """A counted loop.

    Args:
      lower: the first index.
      upper: one past the last index.
      body_fun: `(i, carry) -> carry`, of the same structure and types.
      init_val: the first carry.
      unroll: as in `scan`; only for bounds known while tracing.

    Returns:
      The last carry. With bounds known while tracing the loop is a `scan` and can be differentiated in either mode.

    Examples:
      >>> import phalanx
      >>> int(phalanx.lax.fori_loop(0, 5, lambda i, x: x + i, 0))
      10
    """
    if not callable(body_fun):
        raise ArgumentTypeError(
            "fori_loop, argument body_fun", expected="a function", got=repr(body_fun), mend="pass one"
        )
    lower, upper = as_number(lower), as_number(upper)
    dtype, weak = _index_dtype(lower, upper)
    if all(not isinstance(b, Tracer) or b.concrete is not None for b in (lower, upper)):
        start, stop = operator.index(lower), operator.index(upper)
        first = start if weak else np.asarray(start, dtype)[()]
        return _scan(body_fun, _counted, (first, init_val), None, max(stop - start, 0), False, unroll or 1)[0][1]
    if unroll is not None and unroll is not False:
        raise ArgumentError(
            "fori_loop, argument unroll",
            expected="bounds that are known while tracing",
            got="traced bounds",
            mend="leave unroll out, or give static bounds",
        )
    low, high = (b if weak else vector_space.convert(b, dtype) for b in (lower, upper))
    step = lambda c: (add(c[0], 1), c[1], body_fun(c[0], c[2]))
    return _while(lambda c: lt(c[0], c[1]), step, (low, high, init_val), is_counted=True)[2]


def _counted(body_fun: Callable) -> Callable:
    """One iteration of a counted loop as that of a scan; the index counts on in the dtype it has."""

    def step(carry: tuple, _: Any) -> tuple:
        i, x = carry
        return (add(i, 1), body_fun(i, x)), None

    return step


def _index_dtype(lower: Any, upper: Any) -> tuple[Any, bool]:
    """The dtype in which a loop counts, and whether it is weak.

    Raises:
      ArgumentTypeError: a bound is no integer scalar.
    """
    for name, b in (("lower", lower), ("upper", upper)):
        aval = aval_of(b)
        if aval.shape != () or aval.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"fori_loop, argument {name}", expected="an integer scalar", got=aval.str_short(), mend="convert it"
            )
    return promotion.result_type(lower, upper, return_weak_type=True)


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply a function to each element along the leading dimension, one after the other.

    Where the dimension lies over Explicit axes by its type, each device applies it to its own elements.

    Args:
      f: a function of one element.
      xs: a pytree of arrays with one leading dimension.
      batch_size: apply it to this many elements at once (by `vmap`), the rest after them.

    Returns:
      The stacked results.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.lax.map(lambda x: x * x, jnp.arange(3)).tolist()
      [0, 1, 4]
    """
    leaves, tree = tree_flatten(xs)
    size = _scan_length("map", xs, None)
    if batch_size is None and (count := _num_parts(leaves)) > 1:
        # Each device goes on with its own elements.
        dealt = [move_dim(reshape(x, (count, x.shape[0] // count, *x.shape[1:])), 1, 0) for x in leaves]
        out = _scan(f, _mapped_blocks, (), tree_unflatten(tree, dealt), None, False, 1)[1]
        return tree_map(lambda y: reshape(move_dim(y, 1, 0), (y.shape[0] * count, *y.shape[2:])), out)
    if batch_size is None:
        return _scan(f, _mapped, (), xs, None, False, 1)[1]
    whole = size // batch_size * batch_size
    parts = []
    if is_symbolic(whole) or whole:
        blocks = [
            reshape(slice_in_dim(x, 0, whole), (whole // batch_size, batch_size, *aval_of(x).shape[1:])) for x in leaves
        ]
        out = _scan(f, _mapped_blocks, (), tree_unflatten(tree, blocks), None, False, 1)[1]
        parts.append(tree_map(lambda y: reshape(y, (whole, *y.shape[2:])), out))
    if whole != size or not parts:
        parts.append(vmap(f)(tree_unflatten(tree, [slice_in_dim(x, whole, size) for x in leaves])))
    return parts[0] if len(parts) == 1 else tree_map(lambda *ys: concatenate(ys, 0), *parts)


def _num_parts(leaves: Sequence[Any]) -> int:
    """Over how many devices the leading dimension lies by the types, where all arrays lie alike."""
    split = {None if a.sharding is None or not a.ndim else a.sharding.spec.dims[0] for a in leaf_avals(leaves)}
    if len(split) != 1 or not (axes := split.pop()):
        return 1
    return aval_of(leaves[0]).sharding.mesh.num_parts(axes)


def _mapped(f: Callable) -> Callable:
    """A function of elements as the body of a scan."""
    return lambda _, x: ((), f(x))


def _mapped_blocks(f: Callable) -> Callable:
    """The same for a function of blocks of elements."""
    return _mapped(vmap(f))


# The public function, by what makes a body of a scan of the user's function; `map` otherwise.
_CALLED: dict[Any, str] = {None: "scan", _counted: "fori_loop"}

loops.take(map=map)
