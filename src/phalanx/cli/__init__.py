"""The command line: `phalanx COMMAND` and `python -m phalanx COMMAND`.

Built on argparse alone, so that `phalanx --help` loads nothing of the library. Each command is one record here; its
module is imported when it is chosen. Called by the console script and by `phalanx/__main__.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command: what its help says, and what it calls with the arguments after its name."""

    help: str
    run: Callable[[Sequence[str]], int | None]


def _demo(argv: Sequence[str]) -> None:
    """Train the example language model."""
    from phalanx.cli.demo import run

    run(argv)


def _export(argv: Sequence[str]) -> int:
    """Look at, check or run an exported program."""
    from phalanx.cli.export import run

    return run(argv)


COMMANDS = {
    "demo": Command("train a small language model over a mesh of devices (--help lists its options)", _demo),
    "export": Command("inspect, verify or run an exported program", _export),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: the words after `phalanx`; those of the process where None.

    Returns:
      The exit status: 0 where the command succeeded.

    Examples:
      >>> main([])  # doctest: +ELLIPSIS
      usage: phalanx ...
      2
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="phalanx", description="SPMD array programming for Python.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.help, add_help=False)
    if words and words[0] in COMMANDS:  # The rest of the line, its --help included, is for the command's own parser.
        return COMMANDS[words[0]].run(words[1:]) or 0
    args = parser.parse_args(words)
    if args.version:
        import phalanx

        print(f"phalanx {phalanx.__version__}")
        return 0
    parser.print_help()
    return 2
