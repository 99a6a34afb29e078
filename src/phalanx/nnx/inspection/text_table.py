"""`draw_table`: a table with lines of box-drawing characters, as the package rich draws it, for `nnx.tabulate`."""

from __future__ import annotations

from collections.abc import Sequence


def draw_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], footer: Sequence[str], caption: str
) -> str:
    """Draw a table.

    Args:
      title: a line above the table.
      header: the names of the columns.
      rows: the cells by row; a cell may have several lines.
      footer: the cells of the last row.
      caption: text below the table.

    Returns:
      The text, which ends with a newline.

    Examples:
      >>> print(draw_table("Title", ["a", "b"], [["1", "x\\ny"]], ["", "sum"], "caption"), end="")
          Title
      ┏━━━┳━━━━━┓
      ┃ a ┃ b   ┃
      ┡━━━╇━━━━━┩
      │ 1 │ x   │
      │   │ y   │
      ├───┼─────┤
      │   │ sum │
      └───┴─────┘
        caption
    """
    cells = [[cell.split("\n") for cell in row] for row in (header, *rows, footer)]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(header))]

    def rule(left: str, line: str, cross: str, right: str) -> str:
        return left + cross.join(line * (width + 2) for width in widths) + right

    def draw_row(row: Sequence[Sequence[str]], bar: str) -> list[str]:
        padded = [[*cell, *[""] * (max(map(len, row)) - len(cell))] for cell in row]
        return [
            bar + bar.join(f" {line:{width}} " for line, width in zip(lines, widths, strict=True)) + bar
            for lines in zip(*padded, strict=True)
        ]

    lines = [rule("┏", "━", "┳", "┓"), *draw_row(cells[0], "┃"), rule("┡", "━", "╇", "┩")]
    for number, row in enumerate(cells[1:]):
        lines += [rule("├", "─", "┼", "┤")] * (number > 0) + draw_row(row, "│")
    lines.append(rule("└", "─", "┴", "┘"))
    total = len(lines[0])
    centered = [line.center(total).rstrip() for line in caption.split("\n")]
    return "\n".join([title.center(total).rstrip(), *lines, *centered]) + "\n"
