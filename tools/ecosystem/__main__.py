"""`make ecosystem`: libraries that import jax, run on Phalanx without jax and compared with JAX itself.

Two virtual environments are made: one without jax, in which `phalanx run` and the pytest plugin serve `import jax`, and
one with it. For each library of `libraries.py`, the table shows whether it imports, how many of the programs in
`programs/` print the same text in both, and how many of a sample of its own tests pass of those that pass with jax.

    python -m tools.ecosystem FOLDER [--libraries optax,equinox] [--tests 60] [--seconds 240]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from tools.ecosystem.libraries import LIBRARIES, PREFIXES, Library

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
REQUIRED = "pytest pytest-timeout parameterized networkx scikit-learn"
JAX = "jax>=0.12,<0.13"


class Environment:
    """A virtual environment with the libraries.

    Args:
      folder: where it is made, unless it is there already.
      with_jax: whether it has jax instead of Phalanx.
    """

    def __init__(self, folder: Path, with_jax: bool):
        self.python = folder / "bin" / "python"
        self.with_jax = with_jax
        if not self.python.exists():
            venv.create(folder, with_pip=True)

    def install(self, libraries: list[Library]) -> None:
        """Install the libraries without their requirements, and what they need beside jax."""
        needs = {need for library in libraries for need in library.requires.split()}
        self._pip(
            "install", *([JAX] if self.with_jax else ["--editable", str(ROOT)]), *REQUIRED.split(), *sorted(needs)
        )
        self._pip("install", "--no-deps", "--upgrade", *{library.name for library in LIBRARIES})

    def _pip(self, *args: str) -> None:
        subprocess.run([self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *args], check=True)

    def run(self, *args: str, seconds: float, **kwargs: object) -> subprocess.CompletedProcess | None:
        """Run a program, given as the arguments of Python, where `import jax` works; None if it takes too long."""
        served = [] if self.with_jax else ["-m", "phalanx", "run"]
        return self.call(*served, *args, seconds=seconds, **kwargs)

    def call(self, *args: str, seconds: float, **kwargs: object) -> subprocess.CompletedProcess | None:
        """Run Python; None if it takes too long."""
        try:
            return subprocess.run(
                [self.python, *args], capture_output=True, text=True, timeout=seconds, check=False, **kwargs
            )
        except subprocess.TimeoutExpired:
            return None


def compare_programs(ours: Environment, peer: Environment, library: Library) -> str:
    """Run the programs of a library in both environments, and count those that print the same text."""
    same, found = 0, []
    for program in sorted(PROGRAMS.glob("*.py")):
        prefix = program.stem.partition("_")[0]
        if PREFIXES.get(prefix, prefix) != library.name:
            continue
        mine, theirs = (env.run(str(program), seconds=600) for env in (ours, peer))
        if mine and theirs and mine.returncode == theirs.returncode == 0 and mine.stdout == theirs.stdout:
            same += 1
        else:
            found.append(f"{program.stem}: {_last_line(mine)} / {_last_line(theirs)}")
    for line in found:
        print("   ", line)
    return f"{same}/{same + len(found)}"


def _last_line(done: subprocess.CompletedProcess | None) -> str:
    if done is None:
        return "takes too long"
    return (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]


def fetch_source(peer: Environment, library: Library, folder: Path) -> Path | None:
    """Unpack the source distribution of a library; None if it has no tests."""
    if not library.tests:
        return None
    target = folder / "sources" / library.name
    if not target.exists():
        peer._pip("download", "--no-deps", "--no-binary", library.name, "--dest", str(folder / "sdist"), library.name)
        stem = library.name.replace("-", "_")
        with tarfile.open(next((folder / "sdist").glob(f"{stem}-*.tar.gz"))) as archive:
            archive.extractall(target, filter="data")
    (top,) = target.iterdir()
    return top


def compare_tests(
    ours: Environment, peer: Environment, library: Library, source: Path, options: argparse.Namespace
) -> str:
    """Run a sample of a library's tests on Phalanx, then those that failed on JAX; count those that JAX passes."""
    mine = run_tests(ours, library, source, options, only=None)
    failed = [name for name, outcome in mine.items() if outcome == "failed"]
    theirs = run_tests(peer, library, source, options, only=failed) if failed else {}
    lost = [name for name in failed if theirs.get(name) == "passed"]
    for name in lost:
        print("   ", name)
    passed = sum(outcome == "passed" for outcome in mine.values())
    return f"{passed}/{passed + len(lost)}"


def run_tests(
    env: Environment, library: Library, source: Path, options: argparse.Namespace, only: list[str] | None
) -> dict[str, str]:
    """Run tests by pytest, on the library in its source distribution, since tests import one another from there.

    Returns:
      The outcome of each test.
    """
    tests, out = source / library.tests, source / "outcomes.json"
    out.unlink(missing_ok=True)
    settings = {"out": str(out), "tests": options.tests, "seconds": options.seconds, "only": only}
    served = [] if env.with_jax else ["-p", "phalanx.as_jax.pytest_plugin"]
    env.call(
        *("-m", "pytest", "-q", *served, "-p", "tools.ecosystem.sampling", "-p", "no:cacheprovider", "--timeout=120"),
        *("--import-mode=importlib", "--continue-on-collection-errors", "-o", "python_files=*_test.py test_*.py"),
        *("-c", os.devnull, "--rootdir", str(tests), str(tests)),
        seconds=options.seconds + 300,
        env={
            **os.environ,
            **dict(setting.split("=") for setting in library.environ.split()),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(source)]),
            "ECOSYSTEM_SAMPLE": json.dumps(settings),
        },
        cwd=source,
    )
    return json.loads(out.read_text()) if out.exists() else {}


def main(argv: list[str]) -> None:
    """Run the libraries and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.ecosystem")
    parser.add_argument("folder", type=Path, help="where the environments and the sources of the libraries are kept")
    parser.add_argument("--libraries", default="", help="names with commas; all if left out")
    parser.add_argument("--tests", type=int, default=60, help="the size of the sample of each library's tests")
    parser.add_argument("--seconds", type=float, default=240, help="the time after which no further test is started")
    options = parser.parse_args(argv)
    names = options.libraries.split(",") if options.libraries else [library.name for library in LIBRARIES]
    folder = options.folder.resolve()
    ours, peer = Environment(folder / "phalanx", with_jax=False), Environment(folder / "jax", with_jax=True)
    for env in (ours, peer):
        env.install(list(LIBRARIES))
    rows = []
    for library in LIBRARIES:
        if library.name not in names:
            continue
        print(library.name, flush=True)
        imported = ours.run("-c", f"import {library.module}", seconds=300)
        source = fetch_source(peer, library, folder)
        rows.append(
            (
                library.name,
                "yes" if imported is not None and imported.returncode == 0 else _last_line(imported),
                compare_programs(ours, peer, library),
                compare_tests(ours, peer, library, source, options) if source else "none in its release",
            )
        )
    print("\n| library | imports | programs that print the same | sampled tests passed, of those that JAX passes |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
