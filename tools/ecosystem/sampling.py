"""A pytest plugin that runs a fixed sample of the tests and writes their outcomes; used by `make ecosystem`.

The sample depends on the names of the tests only, so that it is the same on every machine and for both systems.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path

import pytest

_settings = json.loads(os.environ["ECOSYSTEM_SAMPLE"])
_outcomes: dict[str, str] = {}
_start = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the sample, or the tests that are named."""
    if _settings["only"] is not None:
        items[:] = [item for item in items if item.nodeid in _settings["only"]]
    else:
        # In the order of the files, some of which set up devices before their first test.
        sample = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))[: _settings["tests"]]
        chosen = {item.nodeid for item in sample}
        items[:] = [item for item in items if item.nodeid in chosen]


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Start no further test once the time is over."""
    if time.monotonic() - _start > _settings["seconds"]:
        item.session.shouldstop = "the time is over"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome of a test; written at once, because a test may end the process."""
    # Each part of a test, such as a subtest, has a report of its own, and a failed part is a failed test.
    if not report.passed or (report.when == "call" and _outcomes.get(report.nodeid) != "failed"):
        _outcomes[report.nodeid] = report.outcome
        _write()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a file that cannot be imported as a failed test."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"
        _write()


def _write() -> None:
    Path(_settings["out"]).write_text(json.dumps(_outcomes))
