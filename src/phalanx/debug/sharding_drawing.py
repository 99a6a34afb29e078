"""`draw_sharding`: drawings of the shards of an array as text, SVG or HTML.

A `Drawing` computes one layout, in characters, from which all three formats are written. `visualize_sharding.py` prints
the text in a terminal; notebooks show the HTML.
"""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple, TypeAlias, cast

from phalanx.core import ArgumentTypeError
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, Sharding

Rgb: TypeAlias = tuple[int, int, int]

# Size of a character in pixels; a character is about twice as high as wide.
_CHAR_WIDTH, _CHAR_HEIGHT, _TITLE_HEIGHT = 8, 16, 22


class Style(NamedTuple):
    """Options of a drawing.

    Args:
      use_color: whether to fill each shard with a different colour.
      scale: scale factor of the drawing.
      min_width: minimum width of a shard with its borders, in characters.
      max_width: maximum width of the drawing, in characters, unless the labels need more.
      color_map: maps a number in [0, 1) to red, green and blue in [0, 1].
    """

    use_color: bool = True
    scale: float = 1.0
    min_width: int = 9
    max_width: int = 80
    color_map: Callable[[float], Iterable[float]] | None = None

    @property
    def height(self) -> int:
        """Height of the drawing of a matrix, in characters."""
        return int(10 * self.scale)


class Part(NamedTuple):
    """One shard of an array: its devices as a label, its bounds per dimension, and its index among all shards."""

    label: str
    bounds: tuple[tuple[int, int], ...]
    number: int


class Panel(NamedTuple):
    """The shards in one two-dimensional plane of an array, as a grid; a vector is drawn as one row.

    Args:
      title: the index of the plane along the leading dimensions; empty if there are at most two dimensions.
      heights, widths: heights of the rows and widths of the columns, in characters.
      lines: the lines of the label in each cell, by row and column.
      parts: the shard in each cell, by row and column.
    """

    title: str
    heights: list[int]
    widths: list[int]
    lines: dict[tuple[int, int], list[str]]
    parts: dict[tuple[int, int], Part]


class Drawing:
    """A drawing of the shards of an array, created by `draw_sharding`.

    Notebooks display it as a picture. `str`, `svg` and `html` convert it to these formats.

    Args:
      shape: shape of the unsharded array.
      sharding: the sharding.
      style: options of the drawing.
    """

    def __init__(self, shape: Sequence[int], sharding: Sharding, style: Style):
        self.shape = tuple(shape)
        self.style = style
        self.title = f"an array of shape {list(self.shape)} over {sharding.num_devices} devices"
        self.parts = _parts(self.shape, sharding)
        # Shards are sorted by coordinates, so the shards of one plane (equal leading coordinates) are consecutive.
        planes = itertools.groupby(self.parts.items(), key=lambda item: item[0][:-2])
        self.panels = [self._panel({at[-2:]: part for at, part in plane}) for _, plane in planes]

    def _panel(self, parts: dict[tuple[int, int], Part]) -> Panel:
        """Lay out a plane in characters, approximately in the proportions of the array."""
        leading = parts[0, 0].bounds[:-2]
        title = f"[{', '.join(map(_format_bound, leading))}, :, :]" if leading else ""
        num_rows, num_columns = [last + 1 for last in max(parts)]
        row_sizes = [_size(parts[row, 0], -2) for row in range(num_rows)]
        column_sizes = [_size(parts[0, column], -1) for column in range(num_columns)]
        width = self._width([part.label for part in parts.values()], sum(row_sizes), sum(column_sizes), num_columns)
        lines = {at: _wrap(part, width) for at, part in parts.items()}
        # The borders take one of the lines of a shard. A vector has no height.
        height = max(int(self.style.height / num_rows) - 1, 1) if len(self.shape) > 1 else 1
        tallest = [max(len(lines[row, column]) for column in range(num_columns)) for row in range(num_rows)]
        widest = [
            max(len(text) for row in range(num_rows) for text in lines[row, column]) for column in range(num_columns)
        ]
        return Panel(
            title,
            heights=_scale_lengths(max(height, *tallest), row_sizes, tallest),
            widths=_scale_lengths(width, column_sizes, widest),
            lines=lines,
            parts=parts,
        )

    def _width(self, labels: list[str], num_rows: int, num_columns: int, cells: int) -> int:
        """Width of the largest shard, in characters, without its borders.

        Chosen so that the drawing has approximately the proportions of the array, with characters 2.5 times as high as
        wide, subject to the minimum and maximum widths and to the longest line of a label.
        """
        style = self.style
        room = max((style.max_width - 1) // cells - 1, 1)
        # A vector is drawn as one row, in the proportions of a column; arrays without elements have no proportions.
        height, width = (num_rows, num_columns) if len(self.shape) > 1 else (num_columns, 1)
        natural = int(int(style.height * width / height) * 2.5 / cells) if height else 0
        wanted = max(natural, style.min_width) - 2
        needed = max(len(line) for label in labels for line in _break_label(label, 0))
        return max(min(max(wanted, *map(len, labels)), room), needed)

    def color(self, part: Part) -> Rgb | None:
        """Colour of a shard, or None if the drawing is not coloured."""
        if not self.style.use_color:
            return None
        pick = self.style.color_map
        red, green, blue, *_ = _color(part.number) if pick is None else pick(part.number / len(self.parts))
        return round(255 * red), round(255 * green), round(255 * blue)

    def segments(self) -> Iterator[list[tuple[str, Part | None]]]:
        """Yield the lines of the text as lists of segments; each segment has its text and the shard that it shows."""
        for panel in self.panels:
            if panel.title:
                yield [(panel.title, None)]
            yield from _panel_segments(panel)

    def __str__(self) -> str:
        return "\n".join("".join(text for text, _ in line) for line in self.segments())

    def svg(self) -> str:
        """The drawing as an SVG element, with a tooltip for each shard.

        Returns:
          The text of the element.

        Examples:
          >>> import phalanx
          >>> drawing = phalanx.debug.draw_sharding(phalanx.numpy.zeros((4, 4)))
          >>> drawing.svg()[:47]
          '<svg xmlns="http://www.w3.org/2000/svg" role="i'
        """
        shapes: list[str] = []
        top, right = 0, 0
        for panel in self.panels:
            if panel.title:
                shapes.append(f'<text class="title" x="1" y="{top + 16}">{panel.title}</text>')
                top += _TITLE_HEIGHT
            lefts = [0, *itertools.accumulate(width * _CHAR_WIDTH for width in panel.widths)]
            tops = [top, *itertools.accumulate((h * _CHAR_HEIGHT for h in panel.heights), initial=top)][1:]
            shapes += [
                self._svg_part(part, panel.lines[i, j], (lefts[j], tops[i], lefts[j + 1], tops[i + 1]))
                for (i, j), part in panel.parts.items()
            ]
            top, right = tops[-1] + 8, max(right, lefts[-1])
        style = "text{font:13px monospace;text-anchor:middle;dominant-baseline:central}.title{text-anchor:start}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{self.title}" width="{right + 2}" '
            f'height="{top - 6}" viewBox="-1 -1 {right + 2} {top - 6}"><style>{style}</style>{"".join(shapes)}</svg>'
        )

    def _svg_part(self, part: Part, lines: list[str], box: tuple[int, int, int, int]) -> str:
        left, top, right, bottom = box
        color = self.color(part)
        fill, ink = ("#fff", "#000") if color is None else (_hex(color), _ink(color))
        middle, first = (left + right) / 2, (top + bottom - (len(lines) - 1) * _CHAR_HEIGHT) / 2
        words = "".join(
            f'<text x="{middle:g}" y="{first + at * _CHAR_HEIGHT:g}" fill="{ink}">{escape(line)}</text>'
            for at, line in enumerate(lines)
        )
        rect = f'x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" fill="{fill}" stroke="#444"'
        return f"<g><title>{_describe(part)}</title><rect {rect}/>{words}</g>"

    def html(self) -> str:
        """The drawing as HTML: a table for each plane, with inline styles and a tooltip for each shard.

        Returns:
          The text of a `div` element.
        """
        return f"<div role='img' aria-label='{self.title}'>{''.join(map(self._html_table, self.panels))}</div>"

    _repr_html_ = html

    def _html_table(self, panel: Panel) -> str:
        title = f"<caption style='text-align:left'>{panel.title}</caption>" if panel.title else ""
        rows = "".join(
            f"<tr>{''.join(self._html_cell(panel, i, j) for j in range(len(panel.widths)))}</tr>"
            for i in range(len(panel.heights))
        )
        return f"<table style='border-collapse:collapse;font:13px monospace;margin:4px 0'>{title}{rows}</table>"

    def _html_cell(self, panel: Panel, row: int, column: int) -> str:
        part, lines = panel.parts[row, column], panel.lines[row, column]
        color = self.color(part)
        paint = "" if color is None else f"background:{_hex(color)};color:{_ink(color)};"
        size = f"width:{panel.widths[column]}ch;height:{panel.heights[row] * _CHAR_HEIGHT}px"
        box = f"{size};padding:0;border:1px solid #444;text-align:center"
        return f"<td title='{_describe(part)}' style='{paint}{box}'>{'<br>'.join(map(escape, lines))}</td>"


def draw_sharding(array: Array | Sequence[int], sharding: Sharding | None = None, **style: Any) -> Drawing:
    """Draw the shards of an array and the devices that hold them, for a file, a web page or a notebook.

    Args:
      array: an array; or the shape of an array if `sharding` is given.
      sharding: the sharding to draw; by default that of the array.
      **style: `use_color`, `scale`, `min_width`, `max_width` and `color_map`, as for `visualize_sharding`.

    Returns:
      A drawing, which notebooks display. `drawing.svg()`, `drawing.html()` and `str(drawing)` convert it; the last is
      the text that `visualize_sharding` prints.

    Raises:
      ArgumentTypeError: `array` is not an array with a sharding, or a shape together with a sharding.

    Examples:
      >>> import phalanx
      >>> print(draw_sharding(phalanx.numpy.zeros(8)))
      ┌───────┐
      │ CPU 0 │
      └───────┘
    """
    if sharding is None:
        array, sharding = getattr(array, "shape", array), getattr(array, "sharding", None)
    if not isinstance(sharding, Sharding):
        raise ArgumentTypeError(
            "draw_sharding",
            expected="an array with a sharding, or a shape and a sharding",
            got=f"{type(array).__name__} and {sharding!r}",
            fix="pass a concrete array, or use debug.visualize_array_sharding inside jit",
        )
    return Drawing(cast(Sequence[int], array), sharding, Style(**style))


def _parts(shape: tuple[int, ...], sharding: Sharding) -> dict[tuple[int, ...], Part]:
    """The shards by their coordinates in row-major order; coordinates are padded to at least two dimensions."""
    tiling = sharding.tiling(len(shape))
    # Scalars and vectors are drawn as matrices with one row.
    padding = (0,) * (2 - len(shape))
    owners: dict[tuple[int, ...], list[int]] = {}
    kind, numbers = _devices(sharding)
    for number, at in zip(numbers, tiling.coordinates.tolist(), strict=True):
        owners.setdefault((*padding, *at), []).append(number)
    sizes, cuts = (1,) * len(padding) + shape, (1,) * len(padding) + tiling.parts
    parts = {}
    for number, (at, holders) in enumerate(sorted(owners.items())):
        ids = ",".join(map(str, sorted(holders)))
        # The last shards of an uneven dimension are smaller, or empty.
        lengths = [-(-size // cut) for size, cut in zip(sizes, cuts, strict=True)]
        bounds = [(min(i * n, size), min((i + 1) * n, size)) for i, n, size in zip(at, lengths, sizes, strict=True)]
        parts[at] = Part(f"{kind} {ids}", tuple(bounds[len(padding) :]), number)
    return parts


def _devices(sharding: Sharding) -> tuple[str, list[int]]:
    """The kind of the devices and their ids, in order; the devices of an abstract mesh are numbered from 0."""
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return "device", list(range(sharding.num_devices))
    devices = sharding._device_assignment
    return devices[0].platform.upper(), [device.id for device in devices]


def _size(part: Part, dim: int) -> int:
    """Size of a shard along one of the two drawn dimensions; 1 if the array does not have this dimension."""
    start, stop = part.bounds[dim] if len(part.bounds) >= -dim else (0, 1)
    return stop - start


def _scale_lengths(full: int, sizes: list[int], least: list[int]) -> list[int]:
    """Lengths of cells in proportion to `sizes`, with `full` for the largest, but at least `least` for the labels."""
    # `or 1`: all shards of an array without elements have size 0.
    return [max(round(full * size / (max(sizes) or 1)), need) for size, need in zip(sizes, least, strict=True)]


def _wrap(part: Part, width: int) -> list[str]:
    empty = [] if all(start < stop for start, stop in part.bounds) else ["empty"]
    return _break_label(part.label, width) + empty


def _break_label(label: str, width: int) -> list[str]:
    """Break a label into lines after commas."""
    first, *numbers = label.split(",")
    lines = [first]
    for i, number in enumerate(numbers, 1):
        lines[-1] += ","
        # All but the last number are followed by a comma.
        if len(lines[-1]) + len(number) + (i < len(numbers)) <= width:
            lines[-1] += number
        else:
            lines.append(number)
    return lines


def _panel_segments(panel: Panel) -> Iterator[list[tuple[str, Part | None]]]:
    bars = ["─" * width for width in panel.widths]
    yield [("┌" + "┬".join(bars) + "┐", None)]
    for row, height in enumerate(panel.heights):
        if row:
            yield [("├" + "┼".join(bars) + "┤", None)]
        for at in range(height):
            line: list[tuple[str, Part | None]] = [("│", None)]
            for column, width in enumerate(panel.widths):
                text = panel.lines[row, column]
                first = (height - len(text)) // 2
                segment = text[at - first] if 0 <= at - first < len(text) else ""
                line += [(f"{segment:^{width}}", panel.parts[row, column]), ("│", None)]
            yield line
    yield [("└" + "┴".join(bars) + "┘", None)]


def _format_bound(bound: tuple[int, int]) -> str:
    return f"{bound[0]}:{bound[1]}"


def _describe(part: Part) -> str:
    """The tooltip of a shard: its slices and devices."""
    return f"[{', '.join(map(_format_bound, part.bounds))}] on {part.label}"


def _color(number: int) -> tuple[float, float, float]:
    """A light colour. Hues are multiples of the golden ratio, so that consecutive shards have distinct colours."""
    return colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.45, 0.95 if number % 2 else 0.8)


def _hex(color: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _ink(color: Rgb) -> str:
    """Black or white, whichever has more contrast on a colour (luminance weights of ITU-R BT.709)."""
    red, green, blue = color
    return "#000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 110 else "#fff"
