"""Print drawings of shardings in the terminal, and inspect the shardings that XLA chooses inside `jit`.

The package rich prints the colours; it is optional and imported only for drawings in colour. Inside a compiled function
the callback runs during compilation, when XLA's partitioner has chosen the sharding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from phalanx.core import MissingExtraError, Tracer
from phalanx.debug.sharding_drawing import Drawing, _ink, draw_sharding
from phalanx.lax.sharding.inspect_sharding import inspect_sharding_p
from phalanx.runtime.array import Array
from phalanx.sharding import Sharding

_INKS = {"#000": "black", "#fff": "white"}  # as rich spells them


def visualize_array_sharding(arr: Array, **options: Any) -> None:
    """Print a drawing of the shards of an array and the devices that hold them.

    Args:
      arr: an array. Inside `jit` the drawing shows the sharding that XLA chose, and is printed during compilation.
        Inside `shard_map` it shows that each device has a complete shard.
      **options: as for `visualize_sharding`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> x = phalanx.device_put(jnp.ones(8), phalanx.devices("cpu")[0])
      >>> visualize_array_sharding(x, plain=True)
      ┌───────┐
      │ CPU 0 │
      └───────┘
    """
    if isinstance(arr, Tracer):
        inspect_sharding_p(arr, observer=lambda shape, sharding: visualize_sharding(shape, sharding, **options))
    else:
        visualize_sharding(arr.shape, arr.sharding, **options)


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
    """Print a drawing of a sharding: the shards of an array and the devices that hold them.

    An array with more than two dimensions is drawn as a sequence of planes. If a dimension is split unevenly, the last
    shards are drawn smaller.

    Args:
      shape: shape of the unsharded array.
      sharding: the sharding.
      use_color: whether to fill each shard with a different colour.
      scale: scale factor of the drawing.
      min_width: minimum width of a shard with its borders, in characters.
      max_width: maximum width of the drawing, in characters, unless the labels need more.
      color_map: maps a number in [0, 1) to red, green and blue in [0, 1].
      plain: whether to print plain text, which does not need the package rich.

    Raises:
      MissingExtraError: rich is not installed.

    Examples:
      >>> import phalanx.engine.client, phalanx.sharding
      >>> cpu = phalanx.engine.client.devices("cpu")[0]
      >>> visualize_sharding((8,), phalanx.sharding.SingleDeviceSharding(cpu), plain=True)
      ┌───────┐
      │ CPU 0 │
      └───────┘
    """
    drawing = draw_sharding(
        shape, sharding, use_color=use_color, scale=scale, min_width=min_width, max_width=max_width, color_map=color_map
    )
    if plain:
        sys.stdout.write(f"{drawing}\n")
    else:
        _print_rich(drawing)


def inspect_array_sharding(value: Array, *, callback: Callable[[Sharding], Any]) -> None:
    """Call a function with the sharding of an array, also inside compiled functions.

    Args:
      value: an array.
      callback: called with the sharding. Inside `jit` it is called once, during compilation, with the sharding that XLA
        chose: a `NamedSharding` over the mesh of the arguments if possible. It is not called for values that XLA
        removes. For the shards inside `shard_map` it is called with `P()`, since each device has a complete one.

    Raises:
      RuleError: the value is inside a `shard_map` over only some axes of the mesh.
      Exception: the exception of `callback`.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import NamedSharding, P, make_mesh
      >>> x = phalanx.device_put(phalanx.numpy.ones(8), NamedSharding(make_mesh((4,), ("x",)), P("x")))
      >>> show = lambda y: inspect_array_sharding(y, callback=lambda sharding: print(sharding.spec))
      >>> phalanx.jit(lambda x: show(x * 2))(x)
      P('x',)
    """
    inspect_sharding_p(value, observer=lambda shape, sharding: callback(sharding))


def _print_rich(drawing: Drawing) -> None:
    # Imported here, because rich is an optional dependency.
    try:
        import rich.console
        import rich.text
    except ImportError:
        raise MissingExtraError(
            "visualize_sharding",
            expected="the package rich, for drawings in colour",
            got="an environment without it",
            fix="run pip install rich, or pass plain=True",
        ) from None
    text = rich.text.Text(no_wrap=True)
    for line in drawing.segments():
        for segment, part in line:
            color = None if part is None else drawing.color(part)
            text.append(segment, "" if color is None else "{} on rgb({},{},{})".format(_INKS[_ink(color)], *color))
        text.append("\n")
    rich.console.Console(file=sys.stdout).print(text, end="", soft_wrap=True)
