"""Reduction by any associative function: `reduce`.

A function that applies to each operand a single primitive with a reduction of its own, such as `add`, becomes these
reductions. Any other is traced to a jaxpr of scalars, the parameter of the primitive `reduce`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    DTypeError,
    Eqn,
    Jaxpr,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    TraceError,
    Undefined,
    Var,
    dtypes,
    get_aval,
    run_jaxpr,
    trace_to_jaxpr,
    union_varying,
)
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import match_scalars
from phalanx.lax.indexing.static_slice import slice_p
from phalanx.lax.reductions.reduce_prod import reduce_prod_p
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.reductions.reduction_family import (
    all_bits,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_xor_p,
)
from phalanx.lax.shape import (
    add_dim,
    broadcast_in_dim_p,
    canonicalize_dims,
    check_dims,
    dim_names,
    drop_dims,
    move_dim,
    reshape_p,
    transpose_p,
)
from phalanx.lax.shape.concatenate import concatenate_p
from phalanx.lax.sharding.out_sharding import apply_out_sharding, drop_type_sharding, find_typed_mesh
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms import AxisData, jvp_flat, move_mapped_dim, vmap_flat
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import Array, PyTree, ShardingLike


def tree_reduce(program: Jaxpr, xs: Sequence, dims: tuple) -> list:
    """Reduce by a scalar jaxpr: combine the two halves elementwise until one element is left.

    The reduction of `xs` over `dims`, of at least one element, in operations that are differentiable and batchable.
    """
    whole = get_aval(xs[0]).shape
    kept = drop_dims(range(len(whole)), dims)
    shape = tuple([whole[d] for d in kept])
    size = math.prod(whole[d] for d in dims)
    xs = [reshape_p(transpose_p(x, permutation=(*dims, *kept)), shape=(size, *shape)) for x in xs]
    zeros = (0,) * len(shape)
    # log2(size) rounds; an odd element is carried over to the next round.
    while size > 1:
        half = size // 2
        left, right, odd = (
            [slice_p(x, starts=(start, *zeros), stops=(stop, *shape), strides=None) for x in xs]
            for start, stop in ((0, half), (half, 2 * half), (2 * half, size))
        )
        xs = combine(program, left, right)
        if size % 2:
            xs = [concatenate_p(x, o, dim=0) for x, o in zip(xs, odd, strict=True)]
        size = half + size % 2
    return [reshape_p(x, shape=shape) for x in xs]


def reduce_by_halves(program: Jaxpr, dims: tuple, xs: Sequence, inits: Sequence) -> list:
    """Reduce from initial values, in operations that are differentiable and batchable."""
    shape = get_aval(xs[0]).shape
    kept = drop_dims(shape, dims)
    inits = [broadcast_in_dim_p(v, shape=kept, dims=()) for v in inits] if kept else inits
    if any(shape[d] == 0 for d in dims):
        return list(inits)
    return combine(program, inits, tree_reduce(program, xs, dims))


def combine(program: Jaxpr, xs: Sequence, ys: Sequence) -> list:
    """Apply a scalar program of (x, y) to all elements of arrays of one shape."""
    shape = get_aval(xs[0]).shape
    if not shape:
        return run_jaxpr(program, *xs, *ys)
    # The scalar jaxpr is vectorized by `vmap` over the flattened arrays.
    size = math.prod(shape)
    flat = [reshape_p(v, shape=(size,)) for v in (*xs, *ys)]
    outs, mapped = vmap_flat(lambda *v: run_jaxpr(program, *v), flat, [0] * len(flat), AxisData(size))
    return [reshape_p(move_mapped_dim(o, d, size, 0), shape=shape) for o, d in zip(outs, mapped, strict=True)]


class Reduce(Primitive, name="reduce", multiple=True):
    """Reduce arrays together over `dims` by an associative scalar jaxpr, from initial values.

    The operands are the arrays, then the initial values. The jaxpr combines two partial results.
    """

    call_like = True

    def abstract_eval(self, *avals: Any, program: Jaxpr, dims: tuple) -> list:
        xs, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
        where = "lax.reduce"
        check_dims(f"{where} dimensions", dims, xs[0].ndim)
        for x, init in zip(xs, inits, strict=True):
            if x.shape != xs[0].shape or init.shape:
                raise ShapeError(
                    where,
                    expected="operands of one shape and initial values of rank 0",
                    got=", ".join(a.str_short() for a in avals),
                    fix="broadcast the operands to one shape, and pass scalars as initial values",
                )
            if x.dtype != init.dtype:
                raise DTypeError(
                    where,
                    expected=f"an initial value of dtype {x.dtype}",
                    got=init.str_short(),
                    fix=f"convert the initial value with lax.convert_element_type(init, '{x.dtype}')",
                )
        axes = union_varying(avals)
        return [x.with_shape(drop_dims(x.shape, dims)).strip_weak_type().with_varying(axes) for x in xs]

    def sharding_rule(self, *avals: Any, program: Jaxpr, dims: tuple) -> ShardingRule:
        # The reduced dimensions are not sharded: partial results of devices would have to be combined by the jaxpr. XLA
        # does so for several operands.
        n = len(avals) // 2
        names = dim_names(avals[0].ndim)
        along = [names[d] for d in dims]
        results = [drop_dims(names, dims)] * n
        return ShardingRule([names] * n + [[]] * n, results, whole=along, partial=along if n > 1 else ())

    def lower(self, ctx: LoweringContext, *operands: Any, program: Jaxpr, dims: tuple) -> Any:
        n = len(operands) // 2
        op = hlo.ReduceOp([ctx.type(a) for a in ctx.avals_out], list(operands[:n]), list(operands[n:]), list(dims))
        scalars = [ShapedArray((), a.dtype) for a in ctx.avals_out]
        ctx.region([*scalars, *scalars], op, lambda *pair: ctx.emit(program, pair))
        return list(op.results)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, program: Jaxpr, dims: tuple) -> tuple:
        n = len(primals) // 2
        return jvp_flat(lambda *v: reduce_by_halves(program, dims, v[:n], v[n:]), primals, tangents)

    transpose = Undefined("its derivative consists of other primitives, which have transposes")

    def batch(self, *args: Any, program: Jaxpr, dims: tuple) -> tuple:
        operands, mapped = args[: len(args) // 2], args[len(args) // 2 :]
        n = len(operands) // 2
        size = next(x.shape[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        xs = [
            add_dim(x, 0, size) if d is None else move_dim(x, d, 0)
            for x, d in zip(operands[:n], mapped[:n], strict=True)
        ]
        dims = tuple(d + 1 for d in dims)
        if all(d is None for d in mapped[n:]):
            return self(*xs, *operands[n:], program=program, dims=dims), [0] * n
        # Each example has another initial value, which is combined last.
        inits = [add_dim(v, 0, size) if d is None else v for v, d in zip(operands[n:], mapped[n:], strict=True)]
        shape = get_aval(xs[0]).shape
        inits = [broadcast_in_dim_p(v, shape=drop_dims(shape, dims), dims=(0,)) for v in inits]
        # Without elements there is nothing to combine: the result is the initial value.
        if any(shape[d] == 0 for d in dims):
            return inits, [0] * n
        return combine(program, inits, tree_reduce(program, xs, dims)), [0] * n


reduce_p = Reduce()


def _find_monoids(program: Jaxpr) -> list[Eqn]:
    """The equations of a scalar jaxpr if each combines one pair of inputs by a binary primitive; else none."""
    n = len(program.outvars)
    made = {eqn.outvars[0]: eqn for eqn in program.eqns if eqn.primitive.name in _monoids}
    found = [made.get(v) if type(v) is Var else None for v in program.outvars]
    pairs = zip(program.invars[:n], program.invars[n:], found, strict=True)
    return [eqn for *pair, eqn in pairs if eqn is not None and eqn.invars in (pair, pair[::-1])]


# The reduction primitive of each binary primitive, and its neutral element.
_monoids = {
    "add": (reduce_sum_p, lambda dtype: 0),
    "mul": (reduce_prod_p, lambda dtype: 1),
    "max": (reduce_max_p, dtypes.lowest),
    "min": (reduce_min_p, dtypes.highest),
    "and": (reduce_and_p, all_bits),
    "or": (reduce_or_p, lambda dtype: 0),
    "xor": (reduce_xor_p, lambda dtype: 0),
}


def reduce(
    operands: PyTree,
    init_values: PyTree,
    computation: Callable,
    dimensions: Sequence[int],
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Reduce arrays by an associative function.

    Args:
      operands: an array, or a pytree of arrays of one shape.
      init_values: a neutral element of rank 0 for each array, in the same pytree.
      computation: an associative function of two pytrees of scalars, which returns one.
      dimensions: the dimensions to reduce over.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      The reduced arrays, in the same pytree.

    Raises:
      ShapeError: the operands differ in shape, or an initial value is not of rank 0.
      DTypeError: an initial value has another dtype than its array.
      TraceError: the pytree of the result of `computation` is not the pytree of its arguments.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.reduce(jnp.arange(1, 5), 1, lax.mul, (0,)).tolist()
      24
    """
    flat, tree = tree_flatten(operands)
    flat_inits, init_tree = tree_flatten(init_values)
    if out_sharding is not None:
        opened = tree_unflatten(tree, [drop_type_sharding(x) for x in flat])
        out = tree_flatten(reduce(opened, init_values, computation, dimensions))[0]
        return tree_unflatten(
            tree, [apply_out_sharding(y, out_sharding, "lax.reduce, out_sharding", find_typed_mesh(flat)) for y in out]
        )
    if tree != init_tree:
        raise TraceError(
            "lax.reduce init_values",
            expected=f"the tree of the operands, {tree}",
            got=init_tree,
            fix="give one initial value for each operand",
        )
    # A Python scalar as initial value takes the dtype of its array.
    inits = [match_scalars(x, v)[1] for x, v in zip(flat, flat_inits, strict=True)]
    scalars = [ShapedArray((), get_aval(v).dtype) for v in inits]
    n = len(flat)

    def flat_computation(*pair: Any) -> list:
        out, out_tree = tree_flatten(computation(tree_unflatten(tree, pair[:n]), tree_unflatten(tree, pair[n:])))
        if out_tree != tree:
            raise TraceError(
                "lax.reduce computation",
                expected=f"a result like its arguments, {tree}",
                got=out_tree,
                fix="return one value for each operand",
            )
        return out

    program = trace_to_jaxpr(flat_computation, [*scalars, *scalars], "reduce")
    dims = canonicalize_dims(dimensions)
    # A function that is one primitive for each operand is a reduction with better rules.
    monoids = _find_monoids(program)
    alike = len(monoids) == n and len({get_aval(x).shape for x in flat}) == 1
    if alike and all(map(_can_reduce, flat, inits, monoids)):
        out = [_reduce_by(eqn, x, init, dims) for x, init, eqn in zip(flat, inits, monoids, strict=True)]
    else:
        out = reduce_p(*flat, *inits, program=program, dims=dims)
    return tree_unflatten(tree, out)


def _can_reduce(x: Any, init: Any, eqn: Eqn) -> bool:
    """Whether the reduction primitive for an equation reduces an operand from this initial value."""
    start = get_aval(init)
    is_typed = start.ndim == 0 and start.dtype == get_aval(x).dtype and start.dtype != np.bool_
    return is_typed or _is_neutral(init, _monoids[eqn.primitive.name][1])


def _reduce_by(eqn: Eqn, x: Any, init: Any, dims: tuple) -> Any:
    primitive, neutral = _monoids[eqn.primitive.name]
    y = primitive(x, dims=dims)
    return y if _is_neutral(init, neutral) else eqn.primitive(init, y, **eqn.params)


def _is_neutral(init: Array, neutral: Callable) -> bool:
    """Whether an initial value is a host scalar equal to the neutral element of its dtype."""
    if not isinstance(init, bool | int | float | complex | np.generic | np.ndarray):
        return False
    dtype = get_aval(init).dtype
    if dtype == np.bool_ and neutral(dtype) not in (True, False):
        return False
    return bool(np.asarray(init).astype(dtype) == np.asarray(neutral(dtype)).astype(dtype))
