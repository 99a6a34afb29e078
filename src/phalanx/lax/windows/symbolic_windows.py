"""The lowering of windowed reductions whose windows depend on dimension variables.

Used by `reduce_window` and by cumulative operations of symbolic length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Jaxpr, ShapedArray
from phalanx.engine import ir
from phalanx.runtime import LoweringContext, dynamic_shapes, emit_function


def emit_symbolic_windows(
    ctx: LoweringContext,
    xs: Sequence[Any],
    initial: Sequence[Any],
    window: dict[str, Sequence[Any]],
    program: Jaxpr,
    avals: Sequence[ShapedArray],
) -> list:
    """Emit a windowed reduction whose window or padding depends on dimension variables, by a jaxpr of scalars."""
    module, ndim = ctx.module, avals[0].ndim
    # The reduction is a function of scalars, and is called by XLA with these alone. So it takes neither dimension
    # variables nor the index of the platform as leading arguments.
    saved = module.variables, module.platforms
    module.variables, module.platforms = (), module.platforms[:1]
    try:
        body = module.add_function(("scalars", program), "window", lambda name: emit_function(module, program, name))
    finally:
        module.variables, module.platforms = saved
    padding = dynamic_shapes.sizes(ctx, [n for pair in window["padding"] for n in pair])
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    numbers = [dynamic_shapes.sizes(ctx, window.get(name) or (1,) * ndim) for name in names]
    pad_table = ctx.reshape(padding, ShapedArray((ndim, 2), dynamic_shapes.SCALAR.dtype))
    called = ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(body.name.value)])
    return dynamic_shapes.custom_call(
        ctx,
        "stablehlo.dynamic_reduce_window",
        [*xs, *initial, *numbers, pad_table],
        avals,
        {"called_computations": called},
    )
