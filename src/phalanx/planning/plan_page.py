"""The HTML page of a plan: one file with pictures of mesh, shardings and memory, and tables that sort."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from phalanx.planning import plan_report as report
from phalanx.planning.sharding_pictures import draw_mesh, draw_sharding

if TYPE_CHECKING:
    from phalanx.planning.plan_record import Plan

_WIDTH, _HEIGHT = 900, 220  # of the picture, in pixels
_MOST_ABOVE = 3  # a capacity of more peaks than this is not drawn
_STYLE = """
:root { color-scheme: light dark; --text: #222; --muted: #777; --ground: #fff; --shade: #f5f6f8; --rule: #c9ced6;
  --kept: #33587f; --passing: #6a9fd8; --limit: #c0392b; --axis0: #1f6fd1; --axis1: #d9580d; --axis2: #23894a;
  --axis3: #8b46c1; --axis4: #a37c00; --axis5: #0b8a94; --array: #e9edf3; --part: #a9b7c9 }
@media (prefers-color-scheme: dark) { :root { --text: #dde1e7; --muted: #98a1ad; --ground: #16191e; --shade: #1f242b;
  --rule: #414954; --kept: #4e84bd; --passing: #8fbdf0; --limit: #ff7b6b; --axis0: #5aa2ff; --axis1: #ff9248;
  --axis2: #4fc47c; --axis3: #bf88ee; --axis4: #dcb535; --axis5: #35c5d0; --array: #2a313a; --part: #56667a } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em;
  color: var(--text); background: var(--ground) }
h1 { font-size: 1.3em } h2 { font-size: 1.1em; margin-top: 2em } div { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 3px 10px; text-align: left; white-space: nowrap }
th { cursor: pointer; border-bottom: 1px solid var(--muted) } tr:nth-child(even) td { background: var(--shade) }
td svg { display: block } td:has(svg) ~ td:last-child { white-space: normal; min-width: 19em }
svg.timeline { background: var(--shade) } text { font-size: 12px; fill: var(--muted) } text.axis { font-weight: 600 }
text.number { font-size: 9px; text-anchor: middle } text.end { text-anchor: end }
rect.device { fill: var(--array) } rect.part { fill: var(--part) }
rect.array { fill: var(--array); stroke: var(--rule) }
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
    arrays = [
        report.array_row(group, _Picture(draw_sharding(group[0], plan.mesh))) for group in report.group_arrays(plan)
    ]
    sections = [
        *([("Mesh", "", draw_mesh(plan.mesh))] if plan.mesh else []),
        ("Arguments and results", report.describe_arrays(plan), _format_table(report.ARRAY_COLUMNS, arrays)),
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
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{notes}{body}<script>{_SCRIPT}</script></html>"
    )


class _Picture(str):
    """An SVG as the cell of a table."""


def _draw_timeline(plan: Plan) -> str:
    """Draw the memory over the instructions of the program as SVG, with the capacity of a device as a line."""
    timeline = plan.memory.timeline
    if not timeline:
        return ""
    top = max(*timeline, plan.memory.peak)
    capacity = plan.memory.capacity or 0
    shows_capacity = 0 < capacity < _MOST_ABOVE * top
    top = max(top, capacity) if shows_capacity else top
    x = lambda i: round(i * _WIDTH / len(timeline), 2)
    y = lambda n: round(_HEIGHT * (1 - 0.9 * n / top), 2)
    # A step for each instruction.
    steps = " ".join(f"{x(i)},{y(n)} {x(i + 1)},{y(n)}" for i, n in enumerate(timeline))
    kept = y(plan.memory.arguments + plan.memory.results - plan.memory.aliased)
    limit = ""
    if shows_capacity:
        at = f'x="{_WIDTH - 8}" y="{y(capacity) - 4}" style="fill: var(--limit)"'
        limit = (
            f'<line x1="0" y1="{y(capacity)}" x2="{_WIDTH}" y2="{y(capacity)}" stroke="var(--limit)"/>'
            f'<text class="end" {at}>memory of a device: {report.Bytes(capacity)}</text>'
        )
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="memory over the program">'
        f'<polygon points="0,{_HEIGHT} {steps} {_WIDTH},{_HEIGHT}" fill="var(--passing)"/>'
        f'<rect x="0" y="{kept}" width="{_WIDTH}" height="{_HEIGHT - kept}" fill="var(--kept)"/>'
        f'{limit}<text x="8" y="14">peak {report.Bytes(plan.memory.peak)}; below: arguments and results, above: '
        f"temporaries, from the first instruction of the program to the last</text></svg>"
    )


def _format_table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    columns, rows = report.drop_empty_columns(columns, rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_format_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_cell(cell: Any) -> str:
    if isinstance(cell, report.Quantity):
        return f'<td data-sort="{float(cell)}">{escape(str(cell))}</td>'
    return f"<td>{cell if isinstance(cell, _Picture) else escape(str(cell))}</td>"
