"""Results as a table, as rows with verdicts, and as JSON. Called by `benchmarks.__main__`."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Iterable
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
    bounds = " and ".join(f"{bound:g}" for bound in result.bounds)
    verdict = "" if result.holds else "  MISSED"
    verdict += "  (not decided: {:.3f} to {:.3f})".format(*result.interval) if result.is_open else ""
    bound = f"  at most {bounds}{verdict}" if bounds else ""
    return f"{result.name:44} {ours:10.2f} {peer:10.2f} {result.unit:6} {result.ratio:7.3f}{bound}"


def table(verdicts: Iterable[Verdict]) -> str:
    """The rows as a Markdown table."""
    lines = ["| measure | ratio | at most | worst of it | |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        row, worst = verdict.row, verdict.worst
        own = sorted({bound for bound in (row.at_most, row.none_above, worst.at_most) if bound is not None})
        bounds = ", ".join(f"{bound:g}" for bound in own) or "-"
        mark = "ok" if verdict.holds else "MISSED"
        lines.append(f"| {row.measure} | {verdict.mean:.3f} | {bounds} | {worst.name} {worst.ratio:.2f} | {mark} |")
    return "\n".join(lines)


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
                "at_most": result.at_most,
                "ratio": None if math.isnan(result.ratio) else result.ratio,
                "ours": result.ours,
                "peer": result.peer,
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
