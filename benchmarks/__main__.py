"""`python -m benchmarks`: run the workloads, print the table, and fail under `--check` where a target is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from pathlib import Path

DEVICES = 8
ROOMS = (
    "start",
    "eager",
    "calls",
    "dispatch",
    "tracing",
    "per_device",
    "training",
    "nnx",
    "export",
    "checkpoints",
    "processes",
)


def main() -> int:
    """Run what the command line asks for; 1 where `--check` found a missed target, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="only workloads whose name matches this regular expression")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all samples and verdicts to FILE")
    parser.add_argument("--quick", action="store_true", help="few rounds and the two smallest sizes: a rough picture")
    parser.add_argument("--here", action="store_true", help="measure in this process what several are asked to")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads and stop")
    parser.add_argument("--subject", default="phalanx", help="the module under test; jax tests the harness itself")
    args = parser.parse_args()

    # Both systems read these once, when they first meet the engine. The programs under test are for the host.
    for name in ("PHALANX", "JAX"):
        os.environ.setdefault(f"{name}_NUM_CPU_DEVICES", str(DEVICES))
        os.environ.setdefault(f"{name}_PLATFORMS", "cpu")

    from benchmarks import harness, report

    for room in ROOMS:
        importlib.import_module(f"benchmarks.{room}")
    chosen = [workload for workload in harness.WORKLOADS if re.search(args.only or "", workload.name)]
    if args.list:
        print("\n".join(workload.name for workload in chosen))
        return 0
    systems = (args.subject, "jax")
    effort = harness.QUICK if args.quick else harness.ONE_OF_SEVERAL if args.here else harness.Effort()
    print(f"{'workload':44} {args.subject:>10} {'jax':>10} {'unit':6} {'ratio':>7}")
    results = []
    for workload in chosen:
        for result in harness.measure(workload, systems, effort):
            results.append(result)
            print(report.line(result), flush=True)
    verdicts = report.judge(results)
    print(f"\n{report.table(verdicts)}\n\n{report.summary(results)}")
    if args.json:
        report.write_json(args.json, systems, results, verdicts)
    return int(args.check and not all(verdict.holds for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
