"""The printed form of a plan, and the rows of its tables."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.planning.planned_arrays import PlannedArray
from phalanx.sharding import PartitionSpec
from phalanx.spmd.communication_causes import UNASKED

if TYPE_CHECKING:
    from phalanx.planning.plan_record import Plan

_ROWS_SHOWN, _NAME_WIDTH, _NAMES_SHOWN = 12, 48, 4
MOST_CUTS = 16  # more parts of a dimension are drawn as so many
BUFFER_COLUMNS = ("bytes", "count", "kind", "type", "operation", "line")
COLLECTIVE_COLUMNS = ("bytes in all", "times", "bytes", "kind", "cause", "axes", "time in all", "line")
LINE_COLUMNS = ("time in all", "line")
ARRAY_COLUMNS = ("sharding", "spec", "type", "part of a device", "bytes in all", "arrays", "kind", "names")


def format_plan(plan: Plan) -> str:
    """Format a plan as text."""
    parts = [
        format_title(plan),
        *plan.notes,
        "",
        f"Memory of one device: {describe_memory(plan)}",
        format_table(BUFFER_COLUMNS, buffer_rows(plan)),
        "",
        f"Communication of one device: {describe_communication(plan)}",
    ]
    if plan.collectives:
        parts.append(format_table(COLLECTIVE_COLUMNS, collective_rows(plan)))
    if plan.time is not None:
        parts += ["", f"Time of one run: {describe_time(plan)}", format_table(LINE_COLUMNS, line_rows(plan))]
    return "\n".join(parts)


def format_title(plan: Plan) -> str:
    """The function, the devices and the compiler."""
    mesh = ", ".join(f"{name!r}: {n}" for name, n in plan.mesh.items())
    devices = f"{plan.num_devices} device{'s' if plan.num_devices > 1 else ''}{f' ({mesh})' if mesh else ''}"
    return f"{plan.name} on {devices}{f', {plan.target}' if plan.target else ''}, compiled by {plan.compiler}"


def describe_memory(plan: Plan) -> str:
    """The peak, whether it fits, and its parts."""
    memory = plan.memory
    fits = ""
    if memory.capacity is not None:
        over = f"{Bytes(memory.excess)} too much for" if memory.excess else "fits into"
        fits = f", which {'is ' if memory.excess else ''}{over} {Bytes(memory.capacity)}"
    donated = f" ({Bytes(memory.aliased)} of them in donated arguments)" if memory.aliased else ""
    at = f", at its peak in {format_source(memory.source)}" if memory.source else ""
    return (
        f"{Bytes(memory.peak)}{fits}: arguments {Bytes(memory.arguments)}, results "
        f"{Bytes(memory.results)}{donated}, temporaries {Bytes(memory.temporaries)}{at}"
    )


def describe_communication(plan: Plan) -> str:
    """The number of collectives and their bytes."""
    total = len(plan.collectives)
    if not total:
        return "none"
    unasked = [c for c in plan.collectives if c.cause == UNASKED]
    sent = Bytes(sum(c.bytes * c.executions for c in unasked))
    rest = f", of which the program did not ask for {len(unasked)}, {sent}" if unasked else ""
    return f"{total} collective{'s' if total > 1 else ''}, {Bytes(plan.collectives.bytes)} in one run{rest}"


def describe_time(plan: Plan) -> str:
    """The time and its parts."""
    time = plan.time
    assert time is not None, "only plans for a machine have a time"
    return (
        f"{Seconds(time.step)}: operations {Seconds(time.compute)}, collectives "
        f"{Seconds(time.communication)}, of which {Seconds(time.exposed)} overlap with nothing in the "
        f"compiled program; {Seconds(time.step_at_best)} if all of them could overlap"
    )


def buffer_rows(plan: Plan) -> list[tuple[Any, ...]]:
    """The buffers at the peak; equal ones are one row."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for b in plan.memory.largest:
        name = b.name if len(b.name) <= _NAME_WIDTH else b.name[: _NAME_WIDTH - 3] + "..."
        found.setdefault((b.kind, b.type, name, format_source(b.source)), []).append(b.bytes)
    rows = [(Bytes(sum(sizes)), len(sizes), *key) for key, sizes in found.items()]
    return sorted(rows, key=lambda row: -row[0])


def collective_rows(plan: Plan) -> list[tuple[Any, ...]]:
    """The collectives, those that send most first."""
    rows = []
    for c in sorted(plan.collectives, key=lambda c: -c.bytes * c.executions):
        seconds = "" if c.seconds is None else Seconds(c.seconds * c.executions)
        axes = "some devices" if c.axes is None else ", ".join(map(str, c.axes))
        total = Bytes(c.bytes * c.executions)
        rows.append((total, c.executions, Bytes(c.bytes), c.kind, c.cause, axes, seconds, format_source(c.source)))
    return rows


def group_arrays(plan: Plan) -> list[list[PlannedArray]]:
    """The arguments and the results in groups of the same type and sharding, the one with the most bytes first."""
    found: dict[Hashable, list[PlannedArray]] = {}
    for a in plan.arrays:
        found.setdefault((a.kind, a.type, a.shard, a.parts, a.axes), []).append(a)
    return sorted(found.values(), key=lambda group: -sum(a.bytes for a in group))


def describe_arrays(plan: Plan) -> str:
    """How the pictures of the arguments and results are read."""
    if not plan.mesh:
        return "Nothing is split, since the program has no mesh."
    return (
        "Each picture is a whole array. Lines cut it along a mesh axis, in the colour of the axis; the filled part is "
        f"on the first device. More than {MOST_CUTS} parts are drawn as {MOST_CUTS}. Arrays of the same type and "
        "sharding are one row."
    )


def array_row(group: Sequence[PlannedArray], picture: Any) -> tuple[Any, ...]:
    """The row of a group of arguments or results."""
    first, total = group[0], Bytes(sum(a.bytes for a in group))
    spec = "chosen by the compiler" if first.axes is None else repr(PartitionSpec.of_dims(first.axes).canonical)
    return (picture, spec, first.type, first.shard, total, len(group), first.kind, _join_names(group))


def _join_names(group: Sequence[PlannedArray]) -> str:
    """The names of arrays; those that differ by numbers only, as the ones of equal layers do, are one."""
    alike: dict[str, list[str]] = {}
    for a in group:
        alike.setdefault(re.sub(r"\d+", "*", a.name), []).append(a.name)
    pieces = [zip(*(re.split(r"(\d+)", name) for name in members), strict=True) for members in alike.values()]
    names = ["".join(x[0] if len(set(x)) == 1 else "*" for x in positions) for positions in pieces]
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def line_rows(plan: Plan) -> list[tuple[Any, ...]]:
    """The lines whose operations take longest."""
    lines = plan.time.by_source() if plan.time is not None else {}
    return [(Seconds(seconds), format_source(source) or "unknown") for source, seconds in lines.items()]


def format_table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """Format a table as text, of which at most a few rows are shown."""
    columns, rows = drop_empty_columns(columns, rows)
    shown = [columns, *([str(cell) for cell in row] for row in rows[:_ROWS_SHOWN])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  " + "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in shown]
    more = [f"  and {len(rows) - _ROWS_SHOWN} more"] if len(rows) > _ROWS_SHOWN else []
    return "\n".join([*lines, *more])


def drop_empty_columns(
    columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> tuple[Sequence[str], Sequence[tuple[Any, ...]]]:
    """A table without the columns that have no entries, such as the times of a plan without a target."""
    kept = [any(cell != "" for cell in column) for column in zip(*rows, strict=True)] or [True] * len(columns)
    select = lambda row: tuple(itertools.compress(row, kept))
    return select(columns), list(map(select, rows))


class Quantity(float):
    """A number that prints with its unit."""

    units: Sequence[tuple[float, str]]

    def __str__(self) -> str:
        size, unit = next((u for u in self.units if abs(self) >= u[0]), self.units[-1])
        return f"{self / size:.3g} {unit}" if abs(self) < 1000 * size else f"{self / size:.0f} {unit}"


class Bytes(Quantity):
    """A size, such as "1.68 GB"."""

    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))


class Seconds(Quantity):
    """A time, such as "1.68 ms"."""

    units = ((1, "s"), (1e-3, "ms"), (1e-6, "us"))


def format_source(source: str) -> str:
    """A line as `file:line`, relative to the working directory if the file is inside it."""
    file, _, line = source.rpartition(":")
    inside = os.path.join(os.getcwd(), "")
    return f"{file.removeprefix(inside)}:{line}" if source else ""
