"""Results as a table, as rows with verdicts, and as JSON. Called by `benchmarks.__main__`."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness import Result, Row


@dataclass(frozen=True)
class Verdict:
    """The verdict on one row of the table."""

    row: Row
    mean: float
    worst: Result
    holds: bool


def judge(results: Iterable[Result]) -> list[Verdict]:
    """Sum up the results of each row: the geometric mean of its ratios, its worst workload, and whether it holds."""
    rows: dict[Row, list[Result]] = {}
    for result in results:
        rows.setdefault(result.row, []).append(result)
    verdicts = []
    for row, members in rows.items():
        ratios = [member.ratio for member in members]
        mean = math.exp(statistics.fmean(map(math.log, ratios))) if all(r > 0 for r in ratios) else math.nan
        worst = max(members, key=lambda member: math.inf if math.isnan(member.ratio) else member.ratio)
        holds = all(member.holds for member in members) and (row.at_most is None or mean <= row.at_most)
        verdicts.append(Verdict(row, mean, worst, holds))
    return verdicts


def line(result: Result) -> str:
    """One workload as a line of text."""
    if result.error:
        return f"{result.name:44} FAILED {' '.join(result.error.split())}"
    ours, peer = statistics.median(result.ours), statistics.median(result.peer)
    verdict = "" if result.holds else "  MISSED"
    verdict += "  (not decided: {:.3f} to {:.3f})".format(*result.interval) if result.is_open else ""
    floor = "" if math.isnan(result.floor) else f", floor {result.floor:.3f}"
    bound = f"  at most {result.bound:g}{floor}{verdict}"
    return f"{result.name:44} {ours:10.2f} {peer:10.2f} {result.unit:6} {result.ratio:7.3f}{bound}"


def table(verdicts: Iterable[Verdict]) -> str:
    """The rows as a Markdown table; the floor is that of the worst workload."""
    lines = ["| measure | ratio | at most | worst of it | floor of that | |", "|---|---|---|---|---|---|"]
    for verdict in verdicts:
        row, worst = verdict.row, verdict.worst
        own = sorted({bound for bound in (row.at_most, worst.bound) if bound is not None})
        bounds = ", ".join(f"{bound:g}" for bound in own)
        mark = "ok" if verdict.holds else "MISSED"
        worst_text = f"{worst.name} {worst.ratio:.2f} | {_floor(worst)}"
        lines.append(f"| {row.measure} | {verdict.mean:.3f} | {bounds} | {worst_text} | {mark} |")
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """The mean over all workloads, and those that exceed their bounds, each with its floor."""
    ratios = [result.ratio for result in results if result.error is None and result.ratio > 0]
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
    above = [result for result in results if result.is_above]
    lines = [f"Geometric mean of {len(ratios)} workloads: {mean:.3f}."]
    for title, chosen in (
        ("Above their bound and their floor", [r for r in above if not r.holds and not math.isnan(r.floor)]),
        ("Above their bound, with no floor measured", [r for r in above if math.isnan(r.floor)]),
        ("Above their bound, within their floor", [r for r in above if r.holds]),
    ):
        names = [f"{r.name} {r.ratio:.3f} (at most {r.bound:g}, floor {_floor(r)})" for r in chosen]
        lines.append(f"{title}: {'; '.join(names) or 'none'}.")
    return "\n".join(lines)


def _floor(result: Result) -> str:
    return "-" if math.isnan(result.floor) else f"{result.floor:.2f}"


def write_json(path: Path, systems: tuple[str, str], results: Iterable[Result], verdicts: Iterable[Verdict]) -> None:
    """Write everything that was measured, samples included."""
    document = {
        "systems": {name: _version(name) for name in (*systems, "jaxlib")},
        "machine": {"python": platform.python_version(), "processor": platform.processor() or platform.machine()},
        "workloads": [
            {
                "name": result.name,
                "unit": result.unit,
                "row": result.row.measure,
                "at_most": result.bound,
                "ratio": None if math.isnan(result.ratio) else result.ratio,
                "floor": None if math.isnan(result.floor) else result.floor,
                "ours": result.ours,
                "peer": result.peer,
                "engine": result.engine,
                "error": result.error,
                "holds": result.holds,
            }
            for result in results
        ],
        "rows": [
            {
                "measure": verdict.row.measure,
                "ratio": None if math.isnan(verdict.mean) else verdict.mean,
                "at_most": verdict.row.at_most,
                "none_above": verdict.row.none_above,
                "worst": verdict.worst.name,
                "holds": verdict.holds,
            }
            for verdict in verdicts
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def _version(package: str) -> str:
    """The installed version of a package, or that it runs from its sources."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"
