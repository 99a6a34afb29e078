"""Drawings of where the parts of an array lie, in the terminal.

Builds on `phalanx.sharding` for the parts and on rich for colours; rich is imported when a coloured drawing is asked
for. One layout serves the coloured and the plain form.
"""

from __future__ import annotations

import colorsys
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from phalanx.core.errors import PhalanxError, ShapeError
from phalanx.sharding import Sharding

Rgb: TypeAlias = tuple[float, float, float]


class MissingExtraError(PhalanxError, ImportError):
    """A package that is needed for this, and comes with an extra of Phalanx, is not installed."""


class _Cell(NamedTuple):
    """One part of the array: its place in the grid of parts, and the devices that hold it."""

    row: int
    column: int
    label: str


def visualize_array_sharding(array: Any, **options: Any) -> None:
    """Draw which device holds which part of an array of one or two dimensions.

    Args:
      array: an array with a `shape` and a `sharding`.
      **options: as for `visualize_sharding`.

    Raises:
      ShapeError: the array has more than two dimensions.
    """
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

    Args:
      shape: shape of the whole array, of one or two dimensions.
      sharding: how the array lies on devices.
      use_color: give each part a colour of its own.
      scale: size of the drawing.
      min_width: least width of a part, in characters.
      max_width: greatest width of the drawing, in characters, as far as the labels allow.
      color_map: maps a number in [0, 1) to red, green and blue in [0, 1].
      plain: write plain text, for which rich is not needed.

    Raises:
      ShapeError: there are more than two dimensions.
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
    if len(shape) > 2:
        raise ShapeError(
            "visualize_sharding",
            expected="an array of one or two dimensions",
            got=f"shape {tuple(shape)}",
            mend="draw a slice of it, or reshape it to two dimensions",
        )
    rows, columns, cells = _grid(shape, sharding)
    widths = _width(shape, columns, cells, scale, min_width, max_width)
    wrapped = {(cell.row, cell.column): _wrap(cell.label, widths - 2) for cell in cells}
    height = max((3 if rows == 1 else int(10 * scale) // rows) | 1, *map(len, wrapped.values()))
    lines = _lines(rows, columns, widths, height, wrapped)
    if plain:
        for line in lines:
            sys.stdout.write("".join(text for text, _ in line) + "\n")
        return
    _print_rich(lines, columns, len(cells), color_map, use_color=use_color)


def _grid(shape: Sequence[int], sharding: Sharding) -> tuple[int, int, list[_Cell]]:
    """The parts as a grid of rows and columns; a vector is one row."""
    owners: dict[tuple[int, int], list[Any]] = {}
    tiling = sharding.tiling(len(shape))
    pad = [0] * (2 - len(shape))
    for device, at in zip(sharding._device_assignment, tiling.coordinates.tolist(), strict=True):
        row, column = pad + at
        owners.setdefault((row, column), []).append(device)
    rows, columns = [1] * len(pad) + list(tiling.parts)
    cells = []
    for (row, column), devices in sorted(owners.items()):
        numbers = ",".join(str(number) for number in sorted(device.id for device in devices))
        cells.append(_Cell(row, column, f"{devices[0].platform.upper()} {numbers}"))
    return rows, columns, cells


def _width(shape: Sequence[int], columns: int, cells: list[_Cell], scale: float, min_width: int, max_width: int) -> int:
    """Width of one part: near the array's own proportions, a character being about 2.5 times as high as wide."""
    room = max((max_width - 1) // columns - 1, 1)
    natural = 0
    if len(shape) == 2 and shape[0]:
        natural = int(25 * scale * shape[1] / shape[0]) // columns
    wanted = max(natural, min_width, min(max(len(cell.label) for cell in cells) + 2, 2 * min_width))
    needed = max(len(line) for cell in cells for line in _wrap(cell.label, 0)) + 2
    return max(min(wanted, room), needed)


def _wrap(label: str, width: int) -> list[str]:
    """The label in lines, broken behind commas."""
    first, *numbers = label.split(",")
    lines = [first]
    for number in numbers:
        if len(lines[-1]) + len(number) + 1 <= width:
            lines[-1] += "," + number
        else:
            lines[-1] += ","
            lines.append(number)
    return lines


def _lines(
    rows: int, columns: int, width: int, height: int, wrapped: dict[tuple[int, int], list[str]]
) -> Iterator[list[tuple[str, tuple[int, int] | None]]]:
    """The drawing, line by line, as pieces of text and the part that each belongs to."""
    bar = "─" * width
    yield [("┌" + "┬".join([bar] * columns) + "┐", None)]
    for row in range(rows):
        if row:
            yield [("├" + "┼".join([bar] * columns) + "┤", None)]
        for at in range(height):
            line: list[tuple[str, tuple[int, int] | None]] = [("│", None)]
            for column in range(columns):
                text = wrapped[row, column]
                first = (height - len(text)) // 2
                piece = text[at - first] if 0 <= at - first < len(text) else ""
                line += [(piece.center(width), (row, column)), ("│", None)]
            yield line
    yield [("└" + "┴".join([bar] * columns) + "┘", None)]


def _print_rich(
    lines: Iterator[list[tuple[str, tuple[int, int] | None]]],
    columns: int,
    num_cells: int,
    color_map: Callable[[float], Iterable[float]] | None,
    *,
    use_color: bool,
) -> None:
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
    pick = color_map or _color
    text = rich.text.Text(no_wrap=True)
    for line in lines:
        for piece, cell in line:
            style = ""
            if use_color and cell is not None:
                red, green, blue = [
                    round(255 * part) for part in list(pick((cell[0] * columns + cell[1]) / num_cells))[:3]
                ]
                style = f"black on rgb({red},{green},{blue})"
            text.append(piece, style)
        text.append("\n")
    rich.console.Console(file=sys.stdout).print(text, end="", soft_wrap=True)


def _color(place: float) -> Rgb:
    """Light colours, those of neighbouring parts told apart by brightness too."""
    return colorsys.hsv_to_rgb(place, 0.45, 0.95 if int(place * 64) % 2 else 0.8)
