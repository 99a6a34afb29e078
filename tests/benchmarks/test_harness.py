"""The benchmarks' harness: what a ratio is, when a row holds, how operations are counted, what a failure becomes."""

import json
import math
import sys
import types
from pathlib import Path

import pytest
from benchmarks import harness, report
from benchmarks.harness import Effort, Result, Row, Script, Timed, Value, Workload

EFFORT = Effort(sample=1e-4, budget=1e-3, rounds=(2, 3), patience=0.05)


@pytest.fixture
def systems(monkeypatch):
    """Two stand-ins for the systems, whose workloads return what is to be waited for."""
    for name, cost in (("ours_stub", 1), ("peer_stub", 4)):
        module = types.ModuleType(name)
        module.cost = cost
        module.waited = []
        module.block_until_ready = module.waited.append
        monkeypatch.setitem(sys.modules, name, module)
    return "ours_stub", "peer_stub"


def run(build, systems, unit="us", **fields):
    row = fields.pop("row", Row("a row"))
    sizes = fields.pop("sizes", (None,))
    at_most = fields.pop("at_most", (None,) * len(sizes))
    workload = Workload("room.name", build, unit, row, sizes, at_most, **fields)
    return list(harness.measure(workload, systems, EFFORT))


def test_a_value_is_compared_without_timing(systems):
    (result,) = run(lambda xp: Value(xp.cost), systems, unit="ops")
    assert (result.ours, result.peer, result.ratio) == ([1.0], [4.0], 0.25)


def test_a_ratio_is_the_median_of_the_rounds():
    result = Result("name", "us", Row("row"), None, ours=[1.0, 20.0, 30.0], peer=[2.0, 10.0, 30.0])
    assert result.ratio == 1.0


def test_the_confidence_interval_of_the_median_follows_the_binomial_law():
    result = Result("name", "us", Row("row"), 1.0, ours=[float(i) for i in range(1, 101)], peer=[50.0] * 100)
    assert result.interval == (41 / 50, 60 / 50)
    assert result.is_open and "(not decided: 0.820 to 1.200)" in report.line(result)
    assert not Result("name", "us", Row("row"), 1.3, ours=result.ours, peer=result.peer).is_open
    assert not Result("name", "us", Row("row"), 1.0).is_open


def test_a_workload_without_a_bound_gets_the_default_one():
    assert Result("name", "us", Row("row"), None).bound == harness.DEFAULT_BOUND
    assert Result("name", "us", Row("row", none_above=1.2), None).bound == 1.2
    assert Result("name", "us", Row("row", none_above=1.2), 1.1).bound == 1.1


def test_a_floor_is_measured_in_the_same_rounds(systems):
    (result,) = run(lambda xp: Value(xp.cost), systems, floor=lambda xp: Value(2 * xp.cost))
    assert (result.engine, result.floor) == ([2.0], 0.5)
    assert "floor 0.500" in report.line(result)
    (result,) = run(lambda xp: Value(xp.cost), systems)
    assert math.isnan(result.floor) and "floor" not in report.line(result)


def test_the_summary_names_what_exceeds_its_bound_with_its_floor():
    def of(name, ours, engine):
        return Result(name, "us", Row("row"), 0.8, ours=[ours], peer=[1.0], engine=engine)

    results = [of("low", 0.5, []), of("slow", 1.2, [0.6]), of("lost", 1.0, []), of("forced", 0.9, [0.95])]
    assert [result.holds for result in results] == [True, False, False, True]
    assert report.summary(results).splitlines() == [
        "Geometric mean of 4 workloads: 0.857.",
        "Above their bound and their floor: slow 1.200 (at most 0.8, floor 0.60).",
        "Above their bound, with no floor measured: lost 1.000 (at most 0.8, floor -).",
        "Above their bound, within their floor: forced 0.900 (at most 0.8, floor 0.95).",
    ]


def test_rounds_continue_until_a_bound_is_decided(systems, monkeypatch):
    costs = {"ours_stub": [1.0, 3.0], "peer_stub": [2.0]}

    def sample(self):
        costs[self.system].append(costs[self.system].pop(0))
        return costs[self.system][-1]

    monkeypatch.setattr(harness.Sampler, "sample", sample)
    (clear,) = run(lambda xp: lambda: None, systems, at_most=(2.0,))
    assert len(clear.ours) <= 3
    (unclear,) = run(lambda xp: lambda: None, systems, at_most=(1.1,))
    assert len(unclear.ours) > 3 and unclear.is_open


def test_noise_between_processes_is_measured_in_several_processes(systems, monkeypatch):
    commands = []

    def process(command, **options):
        commands.append(command)
        rows = [(0.5, 0.25), (len(commands) / 2, None)]
        first, second = [dict(ours=[1.0, 2.0, 6.0], ratio=ratio, floor=floor, error=None) for ratio, floor in rows]
        path = command[command.index("--json") + 1]
        Path(path).write_text(json.dumps({"workloads": [first, second]}))

    monkeypatch.setattr(harness.subprocess, "run", process)
    small, large = run(None, systems, sizes=(1, 10), at_most=(1.0, 9.0), processes=3)
    assert len(commands) == 3
    assert all("^room\\.name$" in command and "--here" in command and "ours_stub" in command for command in commands)
    assert (small.ours, small.peer, small.ratio) == ([2.0] * 3, [4.0] * 3, 0.5)
    assert (large.peer, large.ratio) == ([4.0, 2.0, 4 / 3], 1.0)
    assert (small.floor, large.engine) == (0.25, [])


def test_a_process_that_dies_is_a_result_that_misses(systems, monkeypatch):
    monkeypatch.setattr(harness.sys, "executable", "false")
    results = run(None, systems, sizes=(1, 10), at_most=(1.0, None), processes=3)
    assert [result.holds for result in results] == [False, False]
    assert all("CalledProcessError" in report.line(result) for result in results)


def test_preparation_of_a_call_is_not_timed(systems):
    made = []
    (result,) = run(lambda xp: Timed(lambda x: x, lambda: made.append(1) or 1, ops=10), systems)
    assert result.error is None
    assert len(made) >= 2 * len(result.ours)


def test_results_are_waited_for(systems):
    run(lambda xp: lambda: "an array", systems)
    assert set(sys.modules["ours_stub"].waited) == {"an array"}


def test_a_workload_that_fails_is_a_result_that_misses(systems):
    (result,) = run(lambda xp: 1 / 0, systems)
    assert result.error.startswith("ZeroDivisionError: division by zero")
    assert math.isnan(result.ratio) and not result.holds
    assert not report.judge([result])[0].holds
    assert "FAILED" in report.line(result)


def test_a_script_is_measured_from_outside(systems):
    (result,) = run(lambda xp: Script("import time; time.sleep(0.05)"), systems, unit="ms")
    assert min(result.ours) > 50
    (result,) = run(lambda xp: Script("raise SystemExit('broken')"), systems, unit="ms")
    assert "broken" in result.error


def test_linear_workloads_are_judged_by_their_growth(systems):
    def build(xp, size):
        return Value(size * xp.cost)

    small, _, growth = run(build, systems, unit="x", sizes=(1, 2), linear=True)
    assert growth.ratio == 2.0 and not growth.holds
    assert small.holds


def test_a_row_has_bounds_on_its_mean_and_on_each_member():
    row = Row("row", at_most=0.6, none_above=1.1)
    fast = Result("fast", "us", row, None, ours=[1.0], peer=[4.0])
    slow = Result("slow", "us", row, None, ours=[1.0], peer=[1.0])
    slower = Result("slower", "us", row, None, ours=[1.2], peer=[1.0])
    (verdict,) = report.judge([fast, slow])
    assert verdict.mean == pytest.approx(0.5) and verdict.holds and verdict.worst is slow
    assert not report.judge([slow])[0].holds
    assert not report.judge([fast, slower])[0].holds


def test_everything_is_written_as_json(tmp_path):
    result = Result("fast", "us", Row("row"), 0.5, ours=[1.0], peer=[4.0])
    path = tmp_path / "results.json"
    report.write_json(path, ("jaxlib", "numpy"), [result], report.judge([result]))
    document = json.loads(path.read_text())
    assert document["workloads"][0]["ratio"] == 0.25
    assert document["rows"] == [
        {"measure": "row", "ratio": 0.25, "at_most": None, "none_above": None, "worst": "fast", "holds": True}
    ]
    assert "| row | 0.250 | 0.5 | fast 0.25 | - | ok |" in report.table(report.judge([result]))


def test_operations_are_counted_in_nested_jaxprs():
    from benchmarks.training import count_operations

    text = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %0:2 = "stablehlo.while"(%arg0, %cst) ({
    }) : (tensor<f32>) -> tensor<f32>
    %1 = call @inner(%0#0) : (tensor<f32>) -> tensor<f32>
    %2 = "stablehlo.gather"(%1) <{dimension_numbers = #stablehlo.gather<>}> : (tensor<f32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
}
"""
    assert count_operations(text) == 4
