"""`jacfwd`, `jacrev` and `hessian`: Jacobians by mapping `jvp` or `vjp` over the standard basis.

The basis vectors of all leaves are stacked into one batch, so that each Jacobian takes one `vmap` of the linear
function, whatever the number of arguments and results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    check_function,
    dtypes,
    enter_transform,
    format_code_position,
    get_aval,
    is_sequence,
    vector_space,
)
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.symbolic import is_constant_shape
from phalanx.transforms.batching import AxisData, move_mapped_dim, vmap_flat
from phalanx.transforms.flat_function import FlatFunction, wraps
from phalanx.transforms.jvp_and_vjp import finalize_tangent, linearize, vjp
from phalanx.transforms.value_and_grad import check_dtype_kind, check_inputs, check_not_complex, select_argnums
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The Jacobian of a function, computed column by column in forward mode.

    Args:
      fun: a function of arrays to arrays (or pytrees of arrays).
      argnums, has_aux, holomorphic: as in `grad`.

    Returns:
      A function that returns, for each leaf of the result and each leaf of the arguments, an array of shape
      `(*result.shape, *argument.shape)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.jacfwd(lambda x: x**2)(jnp.arange(2.0)).tolist()
      [[0.0, 0.0], [0.0, 2.0]]
    """
    check_function("jacfwd, argument fun", fun)

    @api_boundary
    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> PyTree:
        wanted, fill = select_argnums(args, argnums)
        flat, tree = tree_flatten(wanted)
        check_inputs("jacfwd", fun, args, argnums, flat, holomorphic=holomorphic, is_forward=True)
        result, push, *aux = linearize(wraps(fun)(lambda *c: fun(*fill(c), **kwargs)), *wanted, has_aux=has_aux)
        # One evaluation of `fun`, then one batch of linear maps: a column per element of the arguments.
        columns = _map_basis(lambda *t: push(*tree_unflatten(tree, t)), flat, -1)

        def unstack(column: Any) -> PyTree:
            leaves = tree_unflatten(tree, _unstack_leaves(column, flat, -1))
            return tuple(leaves) if is_sequence(argnums) else leaves[0]

        jac = tree_map(unstack, columns)
        return (jac, *aux) if has_aux else jac

    return jacobian


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """The Jacobian of a function, computed row by row in reverse mode.

    Args:
      fun: a function of arrays to arrays (or pytrees of arrays).
      argnums, has_aux, holomorphic, allow_int: as in `grad`.

    Returns:
      A function that returns, for each leaf of the result and each leaf of the arguments, an array of shape
      `(*result.shape, *argument.shape)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.jacrev(lambda x: x**2)(jnp.arange(2.0)).tolist()
      [[0.0, 0.0], [0.0, 2.0]]
    """
    check_function("jacrev, argument fun", fun)

    @api_boundary
    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> PyTree:
        wanted, fill = select_argnums(args, argnums)
        leaves = tree_flatten(wanted)[0]
        check_inputs("jacrev", fun, args, argnums, leaves, holomorphic=holomorphic, allow_int=allow_int)
        result, pull, *aux = vjp(wraps(fun)(lambda *c: fun(*fill(c), **kwargs)), *wanted, has_aux=has_aux)
        flat, tree = tree_flatten(result)
        for i, y in enumerate(flat):
            where = lambda i=i: f"jacrev, the result{leaf_path(result, i)} of {format_code_position(fun)}"
            if holomorphic:
                check_dtype_kind(get_aval(y), np.complexfloating, where, "drop holomorphic, or return a complex value")
            else:
                check_not_complex(get_aval(y), where, "row", "use vjp, or return y.real and y.imag")
                check_dtype_kind(get_aval(y), np.floating, where, "return a float value, or use jvp or vjp")
        # One evaluation of `fun`, then one batch of transposed linear maps: a row per element of the result.
        rows = _map_basis(lambda *c: pull(tree_unflatten(tree, c)), flat, 0)
        leaves, order = tree_flatten(rows if is_sequence(argnums) else rows[0])
        # One list of blocks per leaf of the arguments -> one pytree of arguments per leaf of the result.
        jac = [tree_unflatten(order, row) for row in zip(*(_unstack_leaves(r, flat, 0) for r in leaves), strict=True)]
        jac = tree_unflatten(tree, jac if leaves else [tree_unflatten(order, [])] * len(flat))
        return (jac, *aux) if has_aux else jac

    return jacobian


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The Hessian of a scalar function, in forward over reverse mode.

    Args:
      fun, argnums, has_aux, holomorphic: as in `grad`.

    Returns:
      A function that returns the matrix of second derivatives, as a pytree of pytrees for pytree arguments.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.hessian(lambda x: (x**3).sum())(jnp.ones(2)).tolist()
      [[6.0, 0.0], [0.0, 6.0]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)


def _map_basis(fun: Callable, leaves: Sequence[Any], out_dim: int) -> PyTree:
    """Map a linear function over the standard basis of its arguments.

    Args:
      fun: a function of arrays of the types of `leaves`.
      leaves: the arguments.
      out_dim: the position of the mapped dimension in the results.
    """
    basis = _standard_basis(leaves)
    function = FlatFunction(fun, tree_flatten(tuple(basis))[1])
    size = basis[0].shape[0] if basis else 0
    with enter_transform("vmap"):
        out, dims = vmap_flat(function, basis, [0] * len(basis), AxisData(size), "jacobian")
    moved = [move_mapped_dim(x, d, size, out_dim % (np.ndim(x) + (d is None))) for x, d in zip(out, dims, strict=True)]
    return tree_unflatten(function.out_tree, [finalize_tangent(x, get_aval(x)) for x in moved])


def _standard_basis(leaves: Sequence[Any]) -> list:
    """The standard basis of the product space of some arrays: for each array the components, [total, *leaf.shape]."""
    avals = [get_aval(x) for x in leaves]
    total = sum(a.size for a in avals)
    basis, start = [], 0
    for aval in avals:
        dtype = dtypes.to_inexact_dtype(aval.dtype)
        # NumPy builds the constant blocks, which is faster than tracing; sizes that are symbolic need operations.
        if is_constant_shape((total, aval.size)):
            basis.append(np.eye(total, aval.size, -start, dtype).reshape((total, *aval.shape)))
        else:
            basis.append(vector_space.unit_vectors(total, start, aval.shape, dtype))
        start += aval.size
    return basis


def _unstack_leaves(x: Any, leaves: Sequence[Any], dim: int) -> list:
    """Split an array along its first (0) or last (-1) dimension, and unflatten this dimension to each leaf's shape."""
    avals = [get_aval(leaf) for leaf in leaves]
    ends = itertools.accumulate(a.size for a in avals)
    parts = [(slice(end - a.size, end), a.shape) for end, a in zip(ends, avals, strict=True)]
    if dim == 0:
        return [x[part].reshape((*shape, *x.shape[1:])) for part, shape in parts]
    return [x[..., part].reshape((*x.shape[:-1], *shape)) for part, shape in parts]
