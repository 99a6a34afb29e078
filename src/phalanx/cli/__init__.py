"""The command line: `phalanx COMMAND` and `python -m phalanx COMMAND`.

This file imports only argparse, so that `phalanx --help` is fast. Each command is one row of `COMMANDS`, and its module
is imported when the command is run. Called by the console script and by `phalanx/__main__.py`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """The help text of a command, and the module whose `run` takes the arguments after its name."""

    help: str
    module: str


COMMANDS = {
    "demo": Command(
        "train a small language model over a mesh of devices (--help lists its options)", "phalanx.cli.demo"
    ),
    "export": Command("inspect, verify or run an exported program", "phalanx.cli.export"),
    "launch": Command("run a program in several processes of this machine", "phalanx.cli.launch"),
    "plan": Command("plan a function on a mesh whose devices need not be attached", "phalanx.cli.plan"),
    "run": Command("run a program written for JAX: its `import jax` finds Phalanx", "phalanx.as_jax.program_runner"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: the arguments after `phalanx`; by default the arguments of the process.

    Returns:
      The exit status; 0 for success.

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
        # These parsers only make the list of commands in the help text; each command parses its own arguments.
        commands.add_parser(name, help=command.help, add_help=False)
    if words and words[0] in COMMANDS:  # its own parser reads the remaining arguments, --help included
        return importlib.import_module(COMMANDS[words[0]].module).run(words[1:]) or 0
    args = parser.parse_args(words)
    if args.version:
        print(f"phalanx {importlib.import_module('phalanx').__version__}")
        return 0
    parser.print_help()
    return 2
