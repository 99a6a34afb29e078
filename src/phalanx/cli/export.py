"""`phalanx export`: look at an exported program, check it, or run it on arrays in files.

Nothing in an artifact is executed by `inspect` and `verify`; all three parse it in a child process first, so no file
can crash them. Inputs of `run` are NumPy files; a name in an `.npz` is what messages call the argument, such as `x` or
`params['w']`. Called by `phalanx.cli`; builds on `phalanx.export`.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phalanx import random
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, PhalanxError
from phalanx.engine import stablehlo
from phalanx.engine.client import devices
from phalanx.export import Exported, verify
from phalanx.export.calling import argument_names
from phalanx.export.verification import examine
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import device_put
from phalanx.tree import keystr, tree_flatten_with_path, tree_leaves, tree_unflatten

_VERSION = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)")


def run(argv: Sequence[str]) -> int:
    """Run `phalanx export` with the given arguments.

    Args:
      argv: the words after `phalanx export`.

    Returns:
      0, or 1 where the artifact or the inputs are not right, which is said on the standard error.
    """
    args = _parser().parse_args(argv)
    try:
        return _COMMANDS[args.command](args)
    except (PhalanxError, OSError) as error:
        print(f"phalanx export {args.command}: {error}", file=sys.stderr)
        return 1


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
    runs.add_argument("--out", type=Path, help="write the results to this .npz (or .npy, if it is one array)")
    return parser


def _program_version(exported: Exported) -> str:
    """The version of StableHLO that the program is written in."""
    match = _VERSION.search(exported.mlir_module_serialized[:64])
    return match[1].decode() if match else "unknown"


def result_names(exported: Exported) -> list[str]:
    """What the flat results are called: their paths, or `result` for a single array."""
    stand_ins = tree_unflatten(exported.out_tree, [0] * len(exported.out_avals))
    return [keystr(path) or "result" for path, _ in tree_flatten_with_path(stand_ins)[0]]


def _inspect(args: argparse.Namespace) -> int:
    data = args.artifact.read_bytes()
    (exported, parsed, _), *derivatives = examine(data, with_text=args.text)
    size, orders = len(data), len(derivatives)
    print(f"{exported.fun_name}: {size:,} bytes, {orders} derivative{'' if orders == 1 else 's'}")
    print(f"platforms: {', '.join(exported.platforms)}; devices: {exported.nr_devices}")
    print(f"StableHLO {_program_version(exported)}, calling convention {exported.calling_convention_version}")
    for title, names, avals, shardings in (
        ("arguments", argument_names(exported), exported.in_avals, exported.in_shardings),
        ("results", result_names(exported), exported.out_avals, exported.out_shardings),
    ):
        print(f"{title}:")
        width = max(map(len, names), default=0)
        for name, aval, sharding in zip(names, avals, shardings, strict=True):
            where = f"  {getattr(sharding, 'spec', sharding)}" if sharding is not None else ""
            print(f"  {name:{width}}  {aval.str_short()}{where}")
    print(f"constraints: {', '.join(exported.constraints) or 'none'}")
    print(f"effects: {', '.join((*exported.ordered_effects, *exported.unordered_effects)) or 'none'}")
    print(f"custom calls: {', '.join(parsed.custom_calls) or 'none'}")
    if exported.disabled_safety_checks:
        print(f"checks switched off: {', '.join(check.text for check in exported.disabled_safety_checks)}")
    if args.text:
        print(parsed.text)
    return 0


def _verify(args: argparse.Namespace) -> int:
    bad = 0
    for path in args.artifact:
        try:
            data = path.read_bytes()
            exported = verify(data)
        except (PhalanxError, OSError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            bad += 1
        else:
            print(f"{path}: whole, {len(data):,} bytes, StableHLO {_program_version(exported)} (this reader takes "
                  f"{stablehlo.minimum_version()} to {stablehlo.current_version()})")  # fmt: skip
    return 1 if bad else 0


def _run(args: argparse.Namespace) -> int:
    exported = examine(args.artifact.read_bytes())[0].exported
    leaves = _placed(exported, _inputs(exported, args.inputs))
    positional, keywords = tree_unflatten(exported.in_tree, leaves)
    out = exported.call(*positional, **keywords)
    names, arrays = result_names(exported), [_as_numbers(x) for x in tree_leaves(out)]
    named: dict[str, Any] = dict(zip(names, arrays, strict=True))
    if args.out is None:
        for name, array in named.items():
            print(f"{name}: {array.dtype}{list(array.shape)}\n{array}")
    elif args.out.suffix == ".npy" and len(arrays) == 1:
        np.save(args.out, arrays[0])
    elif args.out.suffix == ".npz":
        np.savez(args.out, **named)
    else:
        raise ArgumentError(
            "--out",
            expected="a name that ends in .npz, or in .npy for a single result",
            got=f"{args.out} for {len(arrays)} results",
            mend="choose another name",
        )
    return 0


def _inputs(exported: Exported, paths: Sequence[Path]) -> list[Any]:
    """The flat arguments from files, each under its name or in order."""
    names = argument_names(exported)
    if len(paths) == 1 and paths[0].suffix == ".npz":
        held = _loaded(paths[0])
        found = set(held) if isinstance(held, dict) else {"an array without a name"}
        if found != set(names):
            raise ArgumentError(
                f"inputs in {paths[0]}",
                expected=f"arrays named {', '.join(names)}",
                got=", ".join(sorted(found)) or "none",
                mend="save them with numpy.savez(file, **{name: array, ...})",
            )
        arrays = [held[name] for name in names]
    else:
        if len(paths) != len(names):
            raise ArgumentError(
                "inputs",
                expected=f"{len(names)} .npy files ({', '.join(names)}) or one .npz",
                got=f"{len(paths)} file{'' if len(paths) == 1 else 's'}",
                mend="give one file for each argument, in this order",
            )
        arrays = [_single(path) for path in paths]
    return [_as_dtype(x, a.dtype) for x, a in zip(arrays, exported.in_avals, strict=True)]


def _loaded(path: Path) -> Any:
    """The array in a file, or a dictionary of them."""
    with path.open("rb") as file:
        try:
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            what = "arrays saved by numpy.savez" if path.suffix == ".npz" else "an array saved by numpy.save"
            raise ArgumentError(f"input {path}", expected=what, got=str(error), mend="save it again") from error


def _single(path: Path) -> np.ndarray:
    found = _loaded(path)
    if isinstance(found, dict):
        raise ArgumentError(f"input {path}", expected="a single array", got="an .npz", mend="give it alone, by itself")
    return found


def _as_dtype(x: np.ndarray, dtype: Any) -> Any:
    """An array from a file: these know bfloat16 and its kin as bytes of their size, and random keys as numbers."""
    if dtypes.is_extended(dtype):
        return random.wrap_key_data(x, impl=dtype.impl.name)
    return x.view(dtype) if x.dtype.kind == "V" and x.dtype.itemsize == dtype.itemsize else x


def _as_numbers(x: Any) -> np.ndarray:
    """A result as files hold it."""
    return np.asarray(random.key_data(x) if dtypes.is_extended(x.dtype) else x)


def _placed(exported: Exported, leaves: Sequence[Any]) -> Sequence[Any]:
    """The arguments over as many devices as the program is for."""
    count = exported.nr_devices
    if count == 1:
        return leaves
    found = devices()
    if len(found) < count:
        raise ArgumentError(
            f"run of {exported.fun_name}",
            expected=f"{count} devices, as it was exported for",
            got=str(len(found)),
            mend=f"set PHALANX_NUM_CPU_DEVICES={count} to run it on virtual devices of the CPU",
        )
    mesh = Mesh(np.array(found[:count]), ("devices",))
    whole = NamedSharding(mesh, PartitionSpec())
    shardings = exported.in_shardings_jax(mesh)
    return [device_put(x, whole if s is None else s) for x, s in zip(leaves, shardings, strict=True)]


_COMMANDS = {"inspect": _inspect, "verify": _verify, "run": _run}
