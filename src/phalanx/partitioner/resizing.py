"""Values that are computed again with another size along a dimension.

An operation that keeps a dimension in place gives the same elements for fewer or more of them: elementwise operations,
and broadcasts, paddings and reshapes of other dimensions. So `resize` emits a value again for other elements along a
dimension, from the values that it is computed from, its leaves. XLA drops operations without a use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.engine import ir
from phalanx.partitioner.dim_sharding import Dimension, kept_as
from phalanx.runtime import shape_of, type_like

_MOST_OPERATIONS = 64  # that are emitted again
_ELEMENTWISE = {
    f"stablehlo.{name}"
    for name in (
        *("abs", "add", "and", "atan2", "bitcast_convert", "cbrt", "ceil", "clamp", "compare", "complex", "convert"),
        *("cosine", "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor", "imag"),
        *("is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or"),
        *("popcnt", "power", "real", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select"),
        *("shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan"),
        *("tanh", "xor"),
    )
}


def with_size(shape: Sequence[int], d: int, size: int) -> tuple[int, ...]:
    """A shape with another size of dimension `d`."""
    return (*shape[:d], size, *shape[d + 1 :])


def is_elementwise(y: ir.Value) -> bool:
    """Whether each element of a value is computed from the elements at its position."""
    op = y.owner
    if isinstance(op, ir.Block) or op.name not in _ELEMENTWISE:
        return False
    # A conversion to a narrower dtype adds a dimension, and one to a wider dtype removes it.
    return op.name != "stablehlo.bitcast_convert" or shape_of(op.operands[0]) == shape_of(y)


def emit_again(y: ir.Value, operands: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
    """Emit the operation of a value with other operands, and a result of another shape."""
    op = y.owner
    names = [a if isinstance(a, str) else a.name for a in op.attributes]  # jaxlib 0.10 or 0.12
    attributes = {name: op.attributes[name] for name in names}
    return ir.Operation.create(op.name, [type_like(y, shape)], operands, attributes).results[0]


def find_leaves(x: ir.Value, dim: int) -> list[Dimension] | None:
    """The values, and their dimensions, from which `x` can be computed along a dimension; None if they are too many."""
    leaves, visited = [], set()
    pending = [(x, dim)]
    while pending:
        place = pending.pop()
        if place in visited:
            continue
        visited.add(place)
        sources = _sources(*place)
        if sources is None:
            leaves.append(place)
        else:
            pending.extend((place[0].owner.operands[i], d) for i, d in sources.items())
        if len(visited) > _MOST_OPERATIONS:
            return None
    return leaves


def resize(x: ir.Value, dim: int, size: int, leaf: Callable[[ir.Value, int], Any]) -> ir.Value:
    """Emit a value again with another size along a dimension.

    Args:
      x, dim: the value and the dimension.
      size: the other size.
      leaf: gives a leaf, of those found by `find_leaves`, in the other size along its dimension.
    """
    built: dict[Dimension, ir.Value] = {}

    def build(x: ir.Value, d: int) -> ir.Value:
        if (x, d) not in built:
            sources = _sources(x, d)
            if sources is None:
                built[x, d] = leaf(x, d)
            else:
                operands = [build(o, sources[i]) if i in sources else o for i, o in enumerate(x.owner.operands)]
                built[x, d] = emit_again(x, operands, with_size(shape_of(x), d, size))
        return built[x, d]

    return build(x, dim)


def _sources(x: ir.Value, d: int) -> dict[int, int] | None:
    """For the operands whose elements become those of `x`, by number, their dimension; None if `x` is a leaf."""
    op = x.owner
    if is_elementwise(x):
        return {i: d for i, o in enumerate(op.operands) if shape_of(o) == shape_of(x)}
    if isinstance(op, ir.Block):
        return None
    if op.name == "stablehlo.pad" and not any(
        op.attributes[name][d] for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    ):
        return {0: d}
    if op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        source = kept_as(x, d)
        size = 1 if source is None else shape_of(op.operands[0])[source]
        if op.name == "stablehlo.broadcast_in_dim" and size == 1:  # the elements are alike along the dimension
            return {}
        return {0: source} if source is not None and size == shape_of(x)[d] else None
    return None
