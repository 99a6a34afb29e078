"""The HTML page of a plan: one file with the memory over the program as a picture, and tables that sort."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from phalanx.planning import plan_report as report

if TYPE_CHECKING:
    from phalanx.planning.plan_record import Plan

_WIDTH, _HEIGHT = 900, 220  # of the picture, in pixels
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 960px; color: #222; background: #fff }
h1 { font-size: 1.3em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 10px; text-align: left; white-space: nowrap }
th { cursor: pointer; border-bottom: 1px solid #999 } tr:nth-child(even) td { background: #f4f4f4 }
svg { background: #f8f8f8 } text { font-size: 12px; fill: #444 } div { overflow-x: auto }
"""
# Sorts the rows of a table by the clicked column: by the numbers in `data-sort` where there are any, else by text.
_SCRIPT = """
document.querySelectorAll("th").forEach(th => th.onclick = () => {
  const body = th.closest("table").tBodies[0], i = th.cellIndex, up = th.dataset.up = th.dataset.up == 1 ? 0 : 1;
  const key = row => row.cells[i].dataset.sort ?? row.cells[i].textContent;
  const order = (a, b) => (isNaN(key(a)) ? key(a).localeCompare(key(b)) : key(a) - key(b)) * (up == 1 ? 1 : -1);
  [...body.rows].sort(order).forEach(row => body.append(row));
});
"""


def format_page(plan: Plan) -> str:
    """Format a plan as an HTML page."""
    sections = [
        ("Memory of one device", report.describe_memory(plan), _draw_timeline(plan)),
        ("Buffers at the peak", "", _format_table(report.BUFFER_COLUMNS, report.buffer_rows(plan))),
        (
            "Communication of one device",
            report.describe_communication(plan),
            _format_table(report.COLLECTIVE_COLUMNS, report.collective_rows(plan)),
        ),
    ]
    if plan.time is not None:
        lines = _format_table(report.LINE_COLUMNS, report.line_rows(plan))
        sections.append(("Time of one run", report.describe_time(plan), lines))
    body = "".join(f"<h2>{title}</h2><p>{escape(text)}</p><div>{inner}</div>" for title, text, inner in sections)
    notes = "".join(f"<p>{escape(note)}</p>" for note in plan.notes)
    title = escape(report.format_title(plan))
    return (
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{escape(plan.name)}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{notes}{body}<script>{_SCRIPT}</script></html>"
    )


def _draw_timeline(plan: Plan) -> str:
    """Draw the memory over the instructions of the program as SVG, with the capacity of the device as a line."""
    timeline = plan.memory.timeline
    if not timeline:
        return ""
    top = max(*timeline, plan.memory.peak)
    x = lambda i: round(i * _WIDTH / len(timeline), 2)
    y = lambda n: round(_HEIGHT * (1 - 0.9 * n / top), 2)
    # A step for each instruction.
    steps = " ".join(f"{x(i)},{y(n)} {x(i + 1)},{y(n)}" for i, n in enumerate(timeline))
    kept = y(plan.memory.arguments + plan.memory.results - plan.memory.aliased)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="memory over the program">'
        f'<polygon points="0,{_HEIGHT} {steps} {_WIDTH},{_HEIGHT}" fill="#6a9fd8"/>'
        f'<rect x="0" y="{kept}" width="{_WIDTH}" height="{_HEIGHT - kept}" fill="#33587f"/>'
        f'<text x="8" y="14">{report.Bytes(top)}; dark: arguments and results, light: temporaries, from the first '
        f"instruction of the program to the last</text></svg>"
    )


def _format_table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    columns, rows = report.drop_empty_columns(columns, rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_format_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_cell(cell: Any) -> str:
    if isinstance(cell, report.Quantity):
        return f'<td data-sort="{float(cell)}">{escape(str(cell))}</td>'
    return f"<td>{escape(str(cell))}</td>"
