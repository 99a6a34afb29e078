"""`phalanx export`: inspect an exported program, verify it, or run it on arrays from files.

`inspect` and `verify` execute nothing from an artifact, and all three parse it in a child process first, so that no
file can crash them. The inputs of `run` are NumPy files; in an `.npz` file, the name of an array is the name of the
argument in error messages, such as `x` or `params['w']`. Called by `phalanx.cli`; builds on `phalanx.export`.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from phalanx import random
from phalanx.cli.mesh_axes import parse_mesh_axes
from phalanx.core import ArgumentError, PhalanxError, dtypes
from phalanx.engine import stablehlo
from phalanx.engine.client import devices
from phalanx.engine.regular_files import open_regular_file
from phalanx.export import Exported, verify
from phalanx.export.artifact_format import PREFIX_SIZE, check_prefix
from phalanx.export.verification import parse_programs
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import device_put
from phalanx.tree import tree_leaves, tree_unflatten
from phalanx.typing import Array

_VERSION = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)")


def run(argv: Sequence[str]) -> int:
    """Run `phalanx export` with the given arguments.

    Args:
      argv: the command-line arguments after `phalanx export`.

    Returns:
      The exit status: 0, or 1 after printing to standard error why an artifact or an input is invalid.
    """
    args = _parser().parse_args(argv)
    try:
        return _COMMANDS[args.command](args)
    except (PhalanxError, OSError, MemoryError) as error:
        _print_lines(f"phalanx export {args.command}: {error}".split("\n"), file=sys.stderr)
        return 1


def _print_lines(lines: Iterable[str], file: TextIO | None = None) -> None:
    """Print lines with texts of unknown origin, whose control characters could forge lines or steer the terminal."""
    for line in lines:
        print("".join([c if c.isprintable() else ascii(c)[1:-1] for c in line]), file=file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="phalanx export", description="Look at, check or run exported programs.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    inspect = commands.add_parser("inspect", help="print the signature, constraints, platforms and size")
    inspect.add_argument("artifact", type=Path)
    inspect.add_argument("--text", action="store_true", help="print the program too, as StableHLO text")
    verify = commands.add_parser("verify", help="check digest, versions and custom calls, derivatives included")
    verify.add_argument("artifact", type=Path, nargs="+")
    runs = commands.add_parser("run", help="run on arrays from .npy or .npz files")
    runs.add_argument("artifact", type=Path)
    runs.add_argument("inputs", type=Path, nargs="*", help="one .npz with named arguments, or .npy files in order")
    runs.add_argument("--mesh", metavar="AXIS=SIZE,...", help="run on a mesh of other sizes than that of the export")
    runs.add_argument("--out", type=Path, help="write the results to this .npz (or .npy, if it is one array)")
    return parser


def _read_artifact(path: Path) -> bytes:
    """The bytes of a file that starts as an artifact of its size."""
    with open_regular_file(path) as file:
        check_prefix(file.read(PREFIX_SIZE), os.fstat(file.fileno()).st_size)
        file.seek(0)
        return file.read()


def _program_version(exported: Exported) -> str:
    """The version of StableHLO in which the program was serialized."""
    match = _VERSION.search(exported.mlir_module_serialized[:64])
    return match[1].decode() if match else "unknown"


def _inspect(args: argparse.Namespace) -> int:
    data = _read_artifact(args.artifact)
    # The child process also prints the text, so that the native printer cannot crash this process either.
    (exported, parsed, _), *derivatives = parse_programs(data, with_text=args.text)
    size, orders = len(data), len(derivatives)
    lines = [
        f"{exported.fun_name}: {size:,} bytes, {orders} derivative{'' if orders == 1 else 's'}",
        f"platforms: {', '.join(exported.platforms)}; devices: {exported.nr_devices}",
        f"StableHLO {_program_version(exported)}, calling convention {exported.calling_convention_version}",
        *_list_values("arguments", exported.argument_names, exported.in_avals, exported.in_shardings),
        *_list_values("results", exported.result_names, exported.out_avals, exported.out_shardings),
        f"constraints: {', '.join(exported.constraints) or 'none'}",
        *_list_axes(exported),
        f"effects: {', '.join((*exported.ordered_effects, *exported.unordered_effects)) or 'none'}",
        f"custom calls: {', '.join(parsed.custom_calls) or 'none'}",
    ]
    if exported.disabled_safety_checks:
        lines.append(f"disabled checks: {', '.join(check.text for check in exported.disabled_safety_checks)}")
    _print_lines([*lines, *((parsed.text or "").split("\n") if args.text else ())])
    return 0


def _list_values(title: str, names: Sequence[str], avals: Sequence[Any], shardings: Sequence[Any]) -> list[str]:
    width = max(map(len, names), default=0)
    placed = ["" if s is None else f"  {getattr(s, 'spec', s)}" for s in shardings]
    rows = zip(names, avals, placed, strict=True)
    return [f"{title}:", *(f"  {name:{width}}  {aval.str_short()}{where}" for name, aval, where in rows)]


def _list_axes(exported: Exported) -> list[str]:
    sizes = [
        f"{a.name}={a.size}" + (f" (fixed by {a.fixed_by})" if a.fixed_by else "") for a in exported.mesh_axes or ()
    ]
    return [f"mesh: {', '.join(sizes)}"] if sizes else []


def _verify(args: argparse.Namespace) -> int:
    bad = 0
    for path in args.artifact:
        try:
            data = _read_artifact(path)
            version = _program_version(verify(data))
        except (PhalanxError, OSError, MemoryError) as error:
            # Other files are still checked; the exit status reports that some file failed.
            _print_lines(f"{path}: {error}".split("\n"), file=sys.stderr)
            bad += 1
        else:
            supported = f"{stablehlo.minimum_version()} to {stablehlo.current_version()}"
            print(f"{path}: valid, {len(data):,} bytes, StableHLO {version} (supported: {supported})")
    return 1 if bad else 0


def _run(args: argparse.Namespace) -> int:
    exported = parse_programs(_read_artifact(args.artifact))[0].exported
    leaves = _place(exported, _read_inputs(exported, args.inputs), args.mesh)
    positional, keywords = tree_unflatten(exported.in_tree, leaves)
    arrays = list(map(_to_numpy, tree_leaves(exported.call(*positional, **keywords))))
    named: dict[str, Any] = dict(zip(exported.result_names, arrays, strict=True))
    if args.out is None:
        for name, array in named.items():
            _print_lines([f"{name}: {array.dtype}{list(array.shape)}", *str(array).split("\n")])
    # An .npy file holds one array without a name.
    elif args.out.suffix == ".npy" and len(arrays) == 1:
        np.save(args.out, arrays[0])
    elif args.out.suffix == ".npz":
        np.savez(args.out, **named)
    else:
        raise ArgumentError(
            "--out",
            expected="a name that ends in .npz, or in .npy for a single result",
            got=f"{args.out} for {len(arrays)} results",
            fix=f"pass --out {args.out.with_suffix('.npz')}",
        )
    return 0


def _read_inputs(exported: Exported, paths: Sequence[Path]) -> list[Array | np.ndarray[Any, Any]]:
    """Read the flat arguments from files, by name from an `.npz` file or in order from `.npy` files."""
    names = exported.argument_names
    if len(paths) == 1 and paths[0].suffix == ".npz":
        loaded = _load(paths[0])
        found = set(loaded) if isinstance(loaded, dict) else {"an array without a name"}
        if not isinstance(loaded, dict) or found != set(names):
            raise ArgumentError(
                f"inputs in {paths[0]}",
                expected=f"arrays named {', '.join(names)}",
                got=", ".join(sorted(found)) or "none",
                fix="save them with numpy.savez(file, **{name: array, ...})",
            )
        arrays = [loaded[name] for name in names]
    else:
        if len(paths) != len(names):
            raise ArgumentError(
                "inputs",
                expected=f"{len(names)} .npy files ({', '.join(names)}) or one .npz",
                got=f"{len(paths)} file{'' if len(paths) == 1 else 's'}",
                fix="pass one file for each argument, in this order",
            )
        arrays = list(map(_load_single, paths))
    return [_from_numpy(x, a.dtype) for x, a in zip(arrays, exported.in_avals, strict=True)]


def _load(path: Path) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """The array in a file, or the arrays by name."""
    with open_regular_file(path) as file:
        try:
            # A pickle would execute code from the file.
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
        except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            function = "numpy.savez" if path.suffix == ".npz" else "numpy.save"
            raise ArgumentError(
                f"input {path}",
                expected=f"a file saved by {function}",
                got=str(error),
                fix=f"save the arrays again with {function}",
            ) from error


def _load_single(path: Path) -> np.ndarray[Any, Any]:
    found = _load(path)
    if isinstance(found, dict):
        raise ArgumentError(
            f"input {path}",
            expected="a single array in an .npy file",
            got="an .npz file",
            fix=f"pass {path} as the only input, with all arguments in it",
        )
    return found


def _from_numpy(x: np.ndarray[Any, Any], dtype: Any) -> Array | np.ndarray[Any, Any]:
    """An array from a file in the dtype of the argument.

    NumPy files store random keys as their raw data, and `bfloat16` and other dtypes of ml_dtypes as untyped bytes.
    """
    if dtypes.is_extended(dtype):
        return random.wrap_key_data(x, impl=dtype.impl.name)
    return x.view(dtype) if x.dtype.kind == "V" and x.dtype.itemsize == dtype.itemsize else x


def _to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """A result as NumPy data that can be saved."""
    return np.asarray(random.key_data(x) if dtypes.is_extended(x.dtype) else x)


def _place(exported: Exported, leaves: Sequence[Array | np.ndarray[Any, Any]], axes: str | None) -> Sequence[Any]:
    """Put the arguments on the devices of the mesh that the user gives, or of that of the export."""
    if axes is None and exported.nr_devices == 1:
        return leaves
    # One axis suffices: stored shardings reshape the devices to the mesh that they were exported with.
    sizes = {"devices": exported.nr_devices} if axes is None else parse_mesh_axes(axes)
    num_devices, found = math.prod(sizes.values()), devices()
    if len(found) < num_devices:
        raise ArgumentError(
            f"run of {exported.fun_name}",
            expected=f"{num_devices} devices, as " + ("it was exported for" if axes is None else "--mesh asks for"),
            got=str(len(found)),
            fix=f"set PHALANX_NUM_CPU_DEVICES={num_devices} to run it on virtual devices of the CPU"
            + (", or give the sizes of a smaller mesh with --mesh" if exported.mesh_axes else ""),
        )
    mesh = Mesh(np.array(found[:num_devices]).reshape(tuple(sizes.values())), tuple(sizes))
    replicated = NamedSharding(mesh, PartitionSpec())
    pairs = zip(leaves, exported.in_shardings_jax(mesh), strict=True)
    return [device_put(x, replicated if s is None else s) for x, s in pairs]


_COMMANDS = {"inspect": _inspect, "verify": _verify, "run": _run}
