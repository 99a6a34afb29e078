"""Pictures of a plan's mesh and of its shardings as SVG, for the page of the plan.

Both have one colour for each mesh axis, which the style of the page defines as `--axis0` to `--axis5`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from phalanx.planning.plan_report import MOST_CUTS
from phalanx.planning.planned_arrays import PlannedArray

_NUM_COLOURS = 6
_WIDTH, _HEIGHT, _SCALAR = 64.0, 44.0, 12.0  # of the picture of an array and of a scalar, in pixels
_SHEETS, _OFFSET = 3, 4.0  # an array of more than two dimensions is a pile of sheets
_MOST_COLUMNS, _MOST_ROWS, _MOST_GRIDS = 32, 16, 4  # of the picture of a mesh; others are left out in the middle


def axis_colours(mesh: Mapping[Any, int]) -> dict[str, str]:
    """The CSS colour of each axis of a mesh, by name."""
    return {str(name): f"var(--axis{i % _NUM_COLOURS})" for i, name in enumerate(mesh)}


def draw_mesh(mesh: Mapping[Any, int]) -> str:
    """Draw the devices of a mesh as grids whose columns and rows are its two last axes.

    Args:
      mesh: the size of each axis by name, of which there is at least one.

    Returns:
      The SVG. A large mesh has an ellipsis in the place of most devices.
    """
    colours = axis_colours(mesh)
    # The longer of the two last axes is horizontal.
    *outer, rows, columns = [*[("", 1)] * (2 - len(mesh)), *((str(name), size) for name, size in mesh.items())]
    row_stride, column_stride = columns[1], 1
    if rows[1] > columns[1]:
        rows, columns, row_stride, column_stride = columns, rows, 1, columns[1]
    across, down = _select(columns[1], _MOST_COLUMNS), _select(rows[1], _MOST_ROWS)
    grids = _select(math.prod(size for _, size in outer), _MOST_GRIDS)
    cell = (34.0, 22.0) if len(across) <= 16 else (24.0, 15.0)
    left, top, gap = (14.0 + 7 * len(f"{rows[0]} = {rows[1]}") if rows[0] else 4.0), 24.0, 26.0
    right, bottom = left + len(across) * cell[0], 0.0
    labels_end = left + 8 * sum(len(f"{name} = {size}, ") + 2 for name, size in [columns, *outer])
    parts = []
    for number, grid in enumerate(grids):
        y = top + number * (len(down) * cell[1] + gap)
        bottom = y + len(down) * cell[1]
        if grid is None:
            parts.append(f'<text x="{left}" y="{y + 12}">…</text>')
            continue
        labels = [f"{columns[0]} = {columns[1]}", *_label_outer(outer, grid)]
        fills = [colours[columns[0]], *(colours[name] for name, _ in outer)]
        spans = "".join(
            f'<tspan style="fill: {c}">{escape(x)}&#160; </tspan>' for x, c in zip(labels, fills, strict=True)
        )
        parts.append(f'<text class="axis" x="{left}" y="{y - 8}">{spans}</text>')
        parts.append(_line(left, y - 3, right - 2, y - 3, colours[columns[0]], 2))
        if rows[0]:
            parts.append(_line(left - 4, y, left - 4, bottom - 2, colours[rows[0]], 2))
            at, look = f'x="{left - 9}" y="{(y + bottom) / 2 + 4:.4g}"', f'style="fill: {colours[rows[0]]}"'
            parts.append(f'<text class="axis end" {at} {look}>{escape(rows[0])} = {rows[1]}</text>')
        for (i, row), (j, column) in itertools.product(enumerate(down), enumerate(across)):
            device = "…"
            if row is not None and column is not None:
                device = str(grid * rows[1] * columns[1] + row * row_stride + column * column_stride)
                parts.append(_rect(left + j * cell[0], y + i * cell[1], cell[0] - 2, cell[1] - 2, "device"))
            middle = left + (j + 0.5) * cell[0] - 1, y + (i + 0.5) * cell[1] + 2
            parts.append(f'<text class="number" x="{middle[0]}" y="{middle[1]}">{device}</text>')
    text = ", ".join(f"{name} = {size}" for name, size in mesh.items())
    return _svg(max(right, labels_end) + 4, bottom + 4, f"mesh: {text}", parts)


def draw_sharding(array: PlannedArray, mesh: Mapping[Any, int]) -> str:
    """Draw an array with cuts in the colours of the mesh axes that split it, and the first device's part filled.

    Args:
      array: the array. The dimensions before its two last ones are drawn as a pile of sheets.
      mesh: the size of each axis by name.

    Returns:
      The SVG.
    """
    sizes = [int(n) for n in array.type.partition("[")[2][:-1].split(",") if n]
    cuts = [list(_find_cuts(array, dim, mesh)) for dim in range(len(sizes))]
    *outer, rows, columns = [*[1] * (2 - len(sizes)), *sizes]
    *outer_cuts, row_cuts, column_cuts = [*[[]] * (2 - len(sizes)), *cuts]
    num_sheets = _SHEETS if math.prod(outer) > 1 else 1
    # Proportions are drawn less extreme than they are.
    ratio = min(max(math.sqrt(columns / max(rows, 1)), 0.4), 5.0)
    width, height = (min(_WIDTH, _HEIGHT * ratio), min(_HEIGHT, _WIDTH / ratio)) if sizes else (_SCALAR, _SCALAR)
    parts = []
    for sheet in reversed(range(num_sheets)):
        x, y = 1 + _OFFSET * sheet, 1 + _OFFSET * (num_sheets - 1 - sheet)
        parts.append(_rect(x, y, width, height, "array"))
        if sheet == 0 or not any(outer_cuts):
            size = [max(n / math.prod(k for k, _ in c), 1.5) for n, c in ((width, column_cuts), (height, row_cuts))]
            parts.append(_rect(x, y, size[0], size[1], "part"))
    x, y = 1.0, 1 + _OFFSET * (num_sheets - 1)
    for at, colour, thick in _place_cuts(column_cuts):
        parts.append(_line(x + at * width, y, x + at * width, y + height, colour, thick))
    for at, colour, thick in _place_cuts(row_cuts):
        parts.append(_line(x, y + at * height, x + width, y + at * height, colour, thick))
    for number, (_, colour) in enumerate(itertools.chain(*outer_cuts)):
        # Cuts between sheets: along the edge on which the pile is seen.
        shift = _OFFSET * (number + 0.5)
        if number < num_sheets - 1:
            parts.append(_line(x + shift, y - shift, x + shift + width, y - shift, colour, 2))
            parts.append(_line(x + shift + width, y - shift, x + shift + width, y - shift + height, colour, 2))
    edge = 2 + _OFFSET * (num_sheets - 1)
    return _svg(width + edge, height + edge, f"sharding of {array.name}", parts)


def _find_cuts(array: PlannedArray, dim: int, mesh: Mapping[Any, int]) -> Iterator[tuple[int, str]]:
    """The number of parts and the colour of each cut of a dimension, from major to minor."""
    if array.axes is None:
        if array.parts[dim] > 1:
            yield array.parts[dim], "var(--muted)"
        return
    sizes, colours = {str(name): n for name, n in mesh.items()}, axis_colours(mesh)
    for name in array.axes[dim]:
        if sizes[name] > 1:
            yield sizes[name], colours[name]


def _place_cuts(cuts: Sequence[tuple[int, str]]) -> Iterator[tuple[float, str, float]]:
    """Where the lines of cuts are, as a part of the length of the dimension, with their colours and widths."""
    placed, parts = {0.0, 1.0}, 1
    for level, (size, colour) in enumerate(cuts):
        parts = min(parts * size, MOST_CUTS)
        for at in [i / parts for i in range(1, parts)]:
            if at not in placed:
                placed.add(at)
                yield at, colour, 0.7 if level or parts > 8 else 1.5


def _select(size: int, most: int) -> list[int | None]:
    """The numbers below a size; None in the place of those in the middle if there are many."""
    return list(range(size)) if size <= most else [*range(most - 2), None, size - 1]


def _label_outer(outer: Sequence[tuple[str, int]], number: int) -> list[str]:
    """The position along each of the outer axes, of the grid of a number."""
    labels = []
    for name, size in reversed(outer):
        number, position = divmod(number, size)
        labels.append(f"{name}: {position} of {size}")
    return labels[::-1]


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width:.4g} {height:.4g}" width="{width:.4g}" height="{height:.4g}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"/>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float) -> str:
    ends = f'x1="{x:.4g}" y1="{y:.4g}" x2="{to_x:.4g}" y2="{to_y:.4g}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'
