"""Batching rules that many primitives share, as users register them in the tables of `rule_tables`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import Jaxpr, Primitive, vector_space
from phalanx.extend.rule_tables import primitive_batchers
from phalanx.lax.shape import expand_dims
from phalanx.transforms.batching import AxisData, batch_jaxpr, front_dims, move_mapped_dim

not_mapped = None
"""The mapped dimension of an operand, or result, that has none."""


def _with_dim(primitive: Primitive, results: Any, dim: int) -> tuple[Any, Any]:
    return results, [dim] * len(results) if primitive.multiple else dim


def defvectorized(primitive: Primitive) -> None:
    """Register the batching rule of an elementwise primitive: it is applied to the batch as it is.

    Args:
      primitive: the primitive; all operands must be mapped over the same dimension.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> negate_p = Primitive("negate")
      >>> _ = negate_p.def_impl(lambda x: -x)
      >>> defvectorized(negate_p)
      >>> phalanx.vmap(negate_p.bind)(jnp.arange(3)).tolist()
      [0, -1, -2]
    """

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        dim = next(d for d in dims if d is not None)
        args = [x if d == dim else _move(x, d, args, dims, dim) for x, d in zip(args, dims, strict=True)]
        return _with_dim(primitive, primitive.bind(*args, **params), dim)

    primitive_batchers[primitive] = rule


def _move(x: Any, d: int | None, args: Sequence[Any], dims: Sequence[int | None], dim: int) -> Any:
    return move_mapped_dim(x, d, _batch_size(args, dims), dim)


def _batch_size(args: Sequence[Any], dims: Sequence[int | None]) -> Any:
    return next(np.shape(x)[d] for x, d in zip(args, dims, strict=True) if d is not None)


def defbroadcasting(primitive: Primitive) -> None:
    """Register the batching rule of an elementwise primitive whose operands may have dimensions of size 1.

    Args:
      primitive: the primitive; scalars, and dimensions of size 1, are repeated as its operands.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> plus_p = Primitive("plus")
      >>> _ = plus_p.def_impl(lambda x, y: x + y)
      >>> defbroadcasting(plus_p)
      >>> phalanx.vmap(plus_p.bind, in_axes=(0, None))(jnp.arange(3), jnp.ones(2, int)).tolist()
      [[1, 1], [2, 2], [3, 3]]
    """

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        fronted = [
            x if not np.ndim(x) else move_mapped_dim(x, d, 1, 0) if d is not None else expand_dims(x, (0,))
            for x, d in zip(args, dims, strict=True)
        ]
        # A mapped scalar gets the dimensions that its example lacks at the end, so that the mapped ones meet.
        ndim = max(map(np.ndim, fronted))
        given = [
            x if d is None or np.ndim(x) == ndim else expand_dims(x, tuple(range(np.ndim(x), ndim)))
            for x, d in zip(fronted, dims, strict=True)
        ]
        return _with_dim(primitive, primitive.bind(*given, **params), 0)

    primitive_batchers[primitive] = rule


def defreducer(primitive: Primitive) -> None:
    """Register the batching rule of a primitive of one operand that removes the dimensions of its parameter `axes`.

    Args:
      primitive: the primitive.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> total_p = Primitive("total")
      >>> _ = total_p.def_impl(lambda x, axes: x.sum(axes))
      >>> defreducer(total_p)
      >>> phalanx.vmap(lambda x: total_p.bind(x, axes=(0,)))(jnp.ones((2, 3))).tolist()
      [3.0, 3.0]
    """

    def rule(args: Sequence[Any], dims: Sequence[int], *, axes: Sequence[int], **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        axes = tuple(a + (a >= dim) for a in axes)
        if "input_shape" in params:
            params["input_shape"] = x.shape
        return primitive.bind(x, axes=axes, **params), dim - sum(a < dim for a in axes)

    primitive_batchers[primitive] = rule


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """Move the mapped dimension of a value to the front, or repeat the value along a new one.

    Args:
      x: the value.
      bdim: its mapped dimension, or None.
      size: the size of the mapped axis.
      mesh_axis: the Explicit mesh axes that shard the mapped dimension of the result, if any.

    Returns:
      The value, with the mapped dimension in front.

    Examples:
      >>> bdim_at_front(1.0, None, 2).tolist()
      [1.0, 1.0]
    """
    return move_mapped_dim(x, bdim, size, 0, () if mesh_axis is None else mesh_axis)


def broadcast(x: Any, size: int, axis: int, mesh_axis: Any = None) -> Any:
    """Repeat a value along a new dimension.

    Args:
      x: the value.
      size: the size of the new dimension.
      axis: its position.
      mesh_axis: the Explicit mesh axes that shard it, if any.

    Returns:
      The larger value.
    """
    return move_mapped_dim(x, None, size, axis, () if mesh_axis is None else mesh_axis)


def moveaxis(x: Any, src: int, dst: int) -> Any:
    """Move a dimension of a value.

    Args:
      x: the value.
      src: the position of the dimension.
      dst: its new position.

    Returns:
      The transposed value.
    """
    ndim = np.ndim(x)
    return x if src == dst else vector_space.move_dim(x, src % ndim, dst % ndim)


def batch_jaxpr_axes(
    jaxpr: Jaxpr, axis_data: AxisData, in_axes: Sequence[int | None], out_axes_dest: Sequence[int | None]
) -> tuple[Jaxpr, list[int | None]]:
    """Batch a jaxpr whose mapped dimensions are in front.

    Args:
      jaxpr: the jaxpr.
      axis_data: the mapped axis.
      in_axes: for each input 0 if it has a mapped dimension, else None.
      out_axes_dest: for each output 0 if it must have one, else None.

    Returns:
      The batched jaxpr, and for each output its mapped dimension, 0 or None.
    """
    derived, mapped = batch_jaxpr(
        jaxpr, axis_data, [d is not None for d in in_axes], [d is not None for d in out_axes_dest]
    )
    return derived, front_dims(mapped)
