"""`with_layout_constraint`, which fixes the order in memory of a value inside a compiled function.

Lowered to the custom call `LayoutConstraint`, which XLA replaces by a copy where the value has another layout. Public
as `phalanx.experimental.layout.with_layout_constraint`.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import Identity, get_aval
from phalanx.engine import ir
from phalanx.runtime import Array, Format, Layout, LoweringContext, general_transfers, put
from phalanx.runtime.layout import check_layout
from phalanx.tree import broadcast_prefix, tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


class LayoutConstraint(Identity, name="layout_constraint"):
    """`x`, with its dimensions in memory in the order of `layout`: num[*dims] -> num[*dims]."""

    def run(self, x: Any, *, layout: Layout) -> Array:
        x = x if type(x) is Array else put(x)
        return general_transfers.lay_out(x, Format(layout).resolve_layout(x.aval, "layout_constraint"))

    def lower(self, ctx: LoweringContext, x: ir.Value, *, layout: Layout) -> ir.Value:
        order = [tuple(reversed(layout.major_to_minor))]
        (y,) = ctx.custom_call("LayoutConstraint", [x], operand_layouts=order, result_layouts=order, api_version=1)
        return y

    def transpose(self, y_bar: Array, x: Any, *, layout: Layout) -> tuple:
        return (self(y_bar, layout=layout),)

    def batch(self, x: Array, b: int, *, layout: Layout) -> tuple:
        # The mapped dimension is the outermost in memory, so that each example has the layout that was asked for.
        order = (b, *(d + (d >= b) for d in layout.major_to_minor))
        return self(x, layout=Layout(order, layout.tiling, layout.sub_byte_element_size_in_bits)), b


layout_constraint_p = LayoutConstraint()


def with_layout_constraint(x: PyTree, layouts: PyTree) -> PyTree:
    """Fix the layout of values inside a compiled function; outside of one, copy arrays into the layout.

    Args:
      x: a tree of arrays.
      layouts: a `Layout` for all arrays, or a tree of layouts that is a prefix of `x`.

    Returns:
      The same tree of arrays.

    Raises:
      ArgumentTypeError: a leaf of `layouts` is no `Layout` with an order of dimensions.
      AxisError: the order is not a permutation of the dimensions of its array.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.layout import Layout, with_layout_constraint
      >>> f = phalanx.jit(lambda x: with_layout_constraint(x.T, Layout((1, 0))) * 2)
      >>> "@LayoutConstraint" in f.lower(jnp.ones((2, 3))).as_text()
      True
    """
    leaves, tree = tree_flatten(x)
    flat = broadcast_prefix(layouts, x, what="with_layout_constraint, argument layouts")
    for i, (leaf, layout) in enumerate(zip(leaves, flat, strict=True)):
        check_layout(f"with_layout_constraint, layout of x{leaf_path(x, i)}", layout, get_aval(leaf))
    return tree_unflatten(tree, [layout_constraint_p(leaf, layout=layout) for leaf, layout in zip(leaves, flat)])
