"""Drawings of where the parts of an array lie, printed in the terminal.

Builds on `drawing.py` for the drawing and on rich for colours; rich is imported when a coloured drawing is asked for.
Inside a compiled function the drawing is printed when the compiler has chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from phalanx.core.errors import PhalanxError
from phalanx.core.trace import Tracer
from phalanx.debug.drawing import Drawing, _ink, draw_sharding
from phalanx.lax.inspection import inspect_sharding_p
from phalanx.sharding import Sharding


class MissingExtraError(PhalanxError, ImportError):
    """A package that is needed for this, and comes with an extra of Phalanx, is not installed."""


def visualize_array_sharding(array: Any, **options: Any) -> None:
    """Draw which device holds which part of an array.

    Args:
      array: an array. Inside `jit` the drawing shows what the compiler chose, and comes when it has.
      **options: as for `visualize_sharding`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> x = phalanx.device_put(jnp.ones(8), phalanx.devices("cpu")[0])
      >>> visualize_array_sharding(x, plain=True)
      ┌─────────┐
      │         │
      │  CPU 0  │
      │         │
      └─────────┘
    """
    if isinstance(array, Tracer):
        inspect_sharding_p(array, observer=lambda shape, sharding: visualize_sharding(shape, sharding, **options))
    else:
        visualize_sharding(array.shape, array.sharding, **options)


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Callable[[float], Iterable[float]] | None = None,
    plain: bool = False,
) -> None:
    """Draw which device would hold which part of an array of that shape.

    An array of more than two dimensions is drawn as one plane after another. Where a dimension is cut unevenly, the
    last parts are drawn shorter.

    Args:
      shape: shape of the whole array.
      sharding: how the array lies on devices.
      use_color: give each part a colour of its own.
      scale: size of the drawing.
      min_width: least width of a part, in characters.
      max_width: greatest width of the drawing, in characters, as far as the labels allow.
      color_map: maps a number in [0, 1) to red, green and blue in [0, 1].
      plain: write plain text, for which rich is not needed.

    Raises:
      MissingExtraError: rich is not installed.

    Examples:
      >>> import phalanx.engine.client, phalanx.sharding
      >>> cpu = phalanx.engine.client.devices("cpu")[0]
      >>> visualize_sharding((8,), phalanx.sharding.SingleDeviceSharding(cpu), plain=True)
      ┌─────────┐
      │         │
      │  CPU 0  │
      │         │
      └─────────┘
    """
    style = {"scale": scale, "min_width": min_width, "max_width": max_width, "color_map": color_map}
    drawing = draw_sharding(shape, sharding, use_color=use_color, **style)
    if plain:
        sys.stdout.write(f"{drawing}\n")
    else:
        _print_rich(drawing)


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Learn how an array lies on devices, inside a compiled function too.

    Args:
      value: an array.
      callback: called with the sharding. Inside `jit` it is called when the program is compiled, with what the compiler
        chose, over the mesh of the arguments where a spec over it can say so; a later call that reuses the program does
        not call it again. What the compiler drops is not asked about.

    Raises:
      Whatever the callback raises.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import NamedSharding, P, make_mesh
      >>> x = phalanx.device_put(phalanx.numpy.ones(8), NamedSharding(make_mesh((4,), ("x",)), P("x")))
      >>> show = lambda y: inspect_array_sharding(y, callback=lambda sharding: print(sharding.spec))
      >>> phalanx.jit(lambda x: show(x * 2))(x)
      PartitionSpec('x')
    """
    inspect_sharding_p(value, observer=lambda shape, sharding: callback(sharding))


def _print_rich(drawing: Drawing) -> None:
    try:
        import rich.console
        import rich.text
    except ImportError:
        raise MissingExtraError(
            "visualize_sharding",
            expected="the package rich, which draws in colour",
            got="an environment without it",
            mend="pip install rich, or pass plain=True",
        ) from None
    text = rich.text.Text(no_wrap=True)
    for line in drawing.pieces():
        for piece, part in line:
            color = None if part is None else drawing.color(part)
            style = ""
            if color is not None:
                ink = "black" if _ink(color) == "#000" else "white"
                style = f"{ink} on rgb({color[0]},{color[1]},{color[2]})"
            text.append(piece, style)
        text.append("\n")
    rich.console.Console(file=sys.stdout).print(text, end="", soft_wrap=True)
