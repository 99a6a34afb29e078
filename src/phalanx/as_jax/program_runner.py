"""`phalanx run`: run a program that was written for JAX.

The program finds `sys.argv`, `sys.path[0]` and `__main__` as `python SCRIPT`, `python -m` and `python -c` set them, its
tracebacks begin with its frames, and its exit code is that of the process. Called by `phalanx.cli` and by
`python -m phalanx.as_jax`.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from phalanx import as_jax


class ProgramNotFoundError(Exception):
    """There is no program of the given name; the text says why."""


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
      argv0: its `sys.argv[0]`.
      code: the compiled code.
      loader: `__loader__` of its `__main__`.
      file: `__file__` of its `__main__`, or None if it has none.
      spec: `__spec__` of its `__main__`; None for a script.
    """

    argv0: str
    code: CodeType
    loader: Any
    file: str | None = None
    spec: ModuleSpec | None = None


def run(argv: Sequence[str]) -> int:
    """Run a program on Phalanx.

    Args:
      argv: the command-line arguments after `phalanx run`.

    Returns:
      The exit status of a program that does not call `sys.exit`: 1 if it raised an exception, else 0.
    """
    own, rest = _split(argv)
    parser = _make_parser()
    options = parser.parse_args(own)
    as_jax.install(flax_nnx=options.nnx)
    if options.report:
        atexit.register(lambda: print(as_jax.format_missing_names(), file=sys.stderr))
    try:
        if options.module is not None:
            program = _load_module(options.module, rest)
        elif options.code is not None:
            program = _load_code(options.code)
        else:
            program = _load_script(options.script)
    except ProgramNotFoundError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except SyntaxError as error:
        _show(error)
        return 1
    sys.argv[:] = [program.argv0, *rest]
    return _execute(program)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="phalanx run",
        usage="phalanx run [--nnx] [--report] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]",
        description="Run a program that was written for JAX, unmodified: its `import jax` finds Phalanx.",
    )
    parser.add_argument("--nnx", action="store_true", help="serve flax.nnx from phalanx.nnx even if Flax is installed")
    parser.add_argument("--report", action="store_true", help="list the names of JAX that were not found, at exit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("script", nargs="?", metavar="SCRIPT", help="a file, or a directory with a __main__.py")
    source.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    source.add_argument("-c", dest="code", metavar="CODE", help="run a string, as python -c does")
    return parser


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into ours, which end with the program, and the arguments of the program."""
    for i, word in enumerate(argv):
        if word in ("-m", "-c"):
            return list(argv[: i + 2]), list(argv[i + 2 :])
        if not word.startswith("-"):
            return list(argv[: i + 1]), list(argv[i + 1 :])
    return list(argv), []


def _load_script(path: str) -> Program:
    file = os.path.abspath(path)
    spec = PathFinder.find_spec("__main__", [file])
    if spec is not None:  # in a directory, or a zip file
        _set_first_path(file)
        return _load_spec(path, "__main__", spec)
    try:
        with io.open_code(file) as stream:
            source = stream.read()
    except OSError as error:
        raise ProgramNotFoundError(f"can't open file {file!r}: [Errno {error.errno}] {error.strerror}") from error
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    return Program(path, _compile(source, file), SourceFileLoader("__main__", file), file)


def _load_code(source: str) -> Program:
    _set_first_path("")
    return Program("-c", _compile(source, "<string>"), BuiltinImporter)


def _load_module(name: str, arguments: list[str]) -> Program:
    _set_first_path(os.getcwd())
    sys.argv[:] = ["-m", *arguments]  # what the packages above the module find, as under `python -m`
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        raise ProgramNotFoundError(f"No module named {name}")
    return _load_spec(spec.origin or "-m", name, spec)


def _load_spec(argv0: str, name: str, spec: ModuleSpec) -> Program:
    code = spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
    if code is None:
        raise ProgramNotFoundError(f"No code object available for {name}")
    return Program(argv0, code, spec.loader, spec.origin, spec)


def _compile(source: str | bytes, file: str) -> CodeType:
    return compile(source, file, "exec", dont_inherit=True)


def _set_first_path(directory: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = directory


def _execute(program: Program) -> int:
    """Run the program in a new `__main__`, which stays: threads and exit handlers outlive the program's last line."""
    main, spec = ModuleType("__main__"), program.spec
    main.__dict__.update(__builtins__=builtins, __loader__=program.loader, __spec__=spec)
    if spec is not None:
        main.__package__ = spec.parent
    if program.file is not None:
        main.__dict__.update(__file__=program.file, __cached__=spec and spec.cached)
    sys.modules["__main__"] = main
    try:
        exec(program.code, main.__dict__)
    except Exception as error:
        _show(error)
        return 1
    return 0


def _show(error: Exception) -> None:
    """Show an exception that ends the program as Python does, without the frames of this file."""
    entry: TracebackType | None = error.__traceback__
    while entry is not None and entry.tb_frame.f_code.co_filename == __file__:
        entry = entry.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, entry
    sys.excepthook(type(error), error.with_traceback(entry), entry)
