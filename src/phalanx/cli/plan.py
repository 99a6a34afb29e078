"""`phalanx plan`: plan a function of a script on a mesh whose devices need not be attached.

The script defines a function that takes the mesh and returns a tuple of what `phalanx.plan` takes: the function to plan
and its arguments, whose shardings are over this mesh. Called by `phalanx.cli`; builds on `phalanx.planning`.
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phalanx.cli.mesh_axes import parse_mesh_axes
from phalanx.core import ArgumentError, PhalanxError
from phalanx.planning import plan
from phalanx.sharding import AbstractMesh


def run(argv: Sequence[str]) -> int:
    """Run `phalanx plan` with the given arguments.

    Args:
      argv: the command-line arguments after `phalanx plan`.

    Returns:
      The exit status: 0 if the program fits into the memory of the target, 1 if it does not, 2 for an error.
    """
    parser = argparse.ArgumentParser(
        prog="phalanx plan", description="Plan memory, communication and time of a function on a mesh."
    )
    parser.add_argument(
        "program", metavar="SCRIPT:NAME", help="a function that takes the mesh and returns (function, *arguments)"
    )
    parser.add_argument("--mesh", required=True, help="names and sizes of the axes, as in data=1024,model=8, or 1024x8")
    parser.add_argument("--target", help="the machine, such as h100 or v5p")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the plan as an HTML page")
    args = parser.parse_args(argv)
    try:
        axes = parse_mesh_axes(args.mesh)
        mesh = AbstractMesh(tuple(axes.values()), tuple(axes))
        fun, *arguments = _call(args.program, mesh)
        found = plan(fun, *arguments, mesh=mesh, target=args.target)
    except PhalanxError as error:
        print(error, file=sys.stderr)
        return 2
    print(found)
    for path, text in ((args.json, found.to_json), (args.html, found.to_html)):
        if path is not None:
            try:
                path.write_text(text())
            except OSError as error:
                print(f"phalanx plan: {error}", file=sys.stderr)
                return 2
    return 1 if found.memory.excess else 0


def _call(program: str, mesh: AbstractMesh) -> tuple[Any, ...]:
    """What the function of a script returns for a mesh: the function to plan and its arguments."""
    planned, name = _load(program), program.rpartition(":")[2]
    try:
        inspect.signature(planned).bind(mesh)
    except TypeError:
        got = f"a function with the parameters {inspect.signature(planned)}"
    else:
        found = planned(mesh)
        if isinstance(found, tuple) and found and callable(found[0]):
            return found
        got = f"a function that returns a {type(found).__name__}"
    raise ArgumentError(
        "SCRIPT:NAME",
        expected=f"that {name} takes the mesh and returns a tuple of the function to plan and its arguments",
        got=got,
        fix=f"write a function in the script such as planned(mesh), which returns ({name}, *arguments) with a "
        "ShapeDtypeStruct and its sharding over the mesh for each array, and name it",
    )


def _load(program: str) -> Callable[[AbstractMesh], tuple[Any, ...]]:
    """The function that a script defines under a name."""
    script, _, name = program.rpartition(":")
    if not Path(script).is_file():
        raise ArgumentError(
            "SCRIPT:NAME",
            expected="the path of a script and the name of a function in it",
            got=repr(program),
            fix="write it as in train.py:planned",
        )
    # The script finds its own modules, as it does when Python runs it.
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        defined = runpy.run_path(script, run_name="phalanx_plan")
    except SyntaxError as error:
        raise ArgumentError(
            "SCRIPT:NAME",
            expected="a script without errors of syntax",
            got=f"{error} in {script}",
            fix="correct it, or name another file",
        ) from error
    if not callable(defined.get(name)):
        raise ArgumentError(
            "SCRIPT:NAME",
            expected=f"a function that {script} defines",
            got=repr(name),
            fix=f"define {name}(mesh) in the script, which returns the function to plan and its arguments",
        )
    found: Callable[[AbstractMesh], tuple[Any, ...]] = defined[name]
    return found
