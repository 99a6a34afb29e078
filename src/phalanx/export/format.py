"""The artifact: an exported program as bytes, written and read. docs/export-format.md describes every byte.

A fixed head, a header in JSON, the StableHLO artifact, the artifact of the derivative if there is one, and a SHA-256
digest over all before it. Reading checks lengths and digest first, allocates in proportion to the file, and executes
nothing. Builds on `trees` and `types`; `Exported.serialize`, `deserialize` and the command line call it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from phalanx.core.errors import ArgumentError, ArgumentTypeError, PhalanxError
from phalanx.engine.stablehlo import ArtifactError
from phalanx.export import types
from phalanx.export.checks import DisabledSafetyCheck
from phalanx.export.exported import (
    Exported,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from phalanx.export.scopes import SymbolicScope
from phalanx.export.symbolic import symbolic_shape
from phalanx.export.trees import read_tree, write_tree

MAGIC: Final = b"\x93PHALANX"
VERSION: Final = 1
MAX_HEADER: Final = 1 << 26
MAX_CONSTRAINTS: Final = 100
_HEAD = struct.Struct("<8sIIQQ")  # magic, version, lengths of the header, the program, the derivative
_DIGEST = hashlib.sha256().digest_size


def write(exported: Exported, vjp_order: int = 0) -> bytearray:
    """Write an artifact; see `Exported.serialize`."""
    if type(vjp_order) is not int or vjp_order < 0:
        raise ArgumentError(
            f"serialize of exported {exported.fun_name}, argument vjp_order",
            expected="a number of orders, 0 or more",
            got=vjp_order,
            mend="give 1 for the gradient",
        )
    orders = _orders(exported, vjp_order)
    if len(orders) <= vjp_order:
        raise ArgumentError(
            f"serialize of exported {exported.fun_name}, argument vjp_order",
            expected=f"at most {len(orders) - 1}, as many derivatives as this artifact was read with",
            got=vjp_order,
            mend="export the function again: a derivative cannot be made from an artifact",
        )
    out = bytearray()
    for each in reversed(orders):
        out = _write_one(each, out)
    return out


def _orders(exported: Exported, most: int) -> list[Exported]:
    """The program and its derivatives, up to `most` of them or as many as there are."""
    found = [exported]
    while len(found) <= most and found[-1].has_vjp():
        found.append(found[-1].vjp())
    return found


def _write_one(exported: Exported, derivative: bytearray) -> bytearray:
    header = json.dumps(_header(exported), separators=(",", ":"), ensure_ascii=False).encode()
    program = exported.mlir_module_serialized
    head = _HEAD.pack(MAGIC, VERSION, len(header), len(program), len(derivative))
    out = bytearray().join((head, header, program, derivative))
    out += hashlib.sha256(out).digest()
    return out


def _header(e: Exported) -> dict[str, Any]:
    meshes: list = []
    return {
        "name": e.fun_name,
        "convention": e.calling_convention_version,
        "platforms": e.platforms,
        "devices": e.nr_devices,
        "parameters": e.parameters,
        "constraints": e.constraints,
        "in_tree": write_tree(e.in_tree),
        "out_tree": write_tree(e.out_tree),
        "in": [types.write_aval(a) for a in e.in_avals],
        "out": [types.write_aval(a) for a in e.out_avals],
        "kept": None if len(e.module_kept_var_idx) == len(e.in_avals) else e.module_kept_var_idx,
        "in_shardings": _unless_open(types.write_shardings(e.in_shardings, e.in_avals, e.nr_devices, meshes)),
        "out_shardings": _unless_open(types.write_shardings(e.out_shardings, e.out_avals, e.nr_devices, meshes)),
        "meshes": meshes,
        "ordered_effects": e.ordered_effects,
        "unordered_effects": e.unordered_effects,
        "disabled_checks": [check.text for check in e.disabled_safety_checks],
    }


def _unless_open(shardings: list) -> list | None:
    return shardings if any(s is not None for s in shardings) else None


def deserialize(blob: bytes | bytearray | memoryview) -> Exported:
    """Read an artifact that `Exported.serialize` wrote, in this or an earlier version.

    Nothing in it is executed, and what is allocated is in proportion to its length. The program is read when it is
    first called.

    Args:
      blob: the bytes.

    Returns:
      The `Exported`.

    Raises:
      ArtifactError: the bytes are no artifact, are of a later version, were cut off or altered.
      ArgumentTypeError: `blob` is not bytes.

    Examples:
      >>> import phalanx
      >>> from phalanx import export
      >>> blob = export.export(phalanx.jit(lambda x: x + 1))(1.0).serialize()
      >>> float(export.deserialize(blob).call(2.0))
      3.0
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            "deserialize, argument blob",
            expected="bytes",
            got=f"a {type(blob).__name__}",
            mend="give what serialize gave, or path.read_bytes()",
        )
    data = memoryview(blob).cast("B")
    header, program, derivative = split(data)
    if not derivative:
        return _read_header(header, bytes(program), None)
    held: list[Exported] = []

    def get_vjp() -> Exported:
        if not held:
            held.append(deserialize(derivative))
        return held[0]

    return _read_header(header, bytes(program), get_vjp)


def split(data: memoryview) -> tuple[dict, memoryview, memoryview]:
    """The parts of an artifact: its header, its program, and the artifact of its derivative, which may be empty.

    Raises:
      ArtifactError: the bytes are no whole and unaltered artifact of a known version.
    """
    if len(data) < _HEAD.size or bytes(data[:8]) != MAGIC:
        raise _not_an_artifact("bytes that start as an exported program", f"{len(data)} bytes that do not")
    _, version, *lengths = _HEAD.unpack_from(data)
    if not 1 <= version <= VERSION:
        raise ArtifactError(
            "deserialize",
            expected=f"an artifact of format version 1 to {VERSION}",
            got=f"version {version}",
            mend="read it with a newer phalanx",
        )
    total = _HEAD.size + sum(lengths) + _DIGEST
    if total != len(data) or lengths[0] > MAX_HEADER:
        raise _not_an_artifact(f"{total} bytes, as the head says", f"{len(data)}")
    if hashlib.sha256(data[:-_DIGEST]).digest() != bytes(data[-_DIGEST:]):
        raise _not_an_artifact("bytes that agree with their digest", "bytes that were altered")
    ends = [_HEAD.size]
    for length in lengths:
        ends.append(ends[-1] + length)
    try:
        header = json.loads(bytes(data[ends[0] : ends[1]]))
    except (ValueError, RecursionError) as error:
        raise types.wrong("a header in JSON", f"{type(error).__name__}: {error}") from None
    if not isinstance(header, dict):
        raise types.wrong("a header that is a JSON object", header)
    return header, data[ends[1] : ends[2]], data[ends[2] : ends[3]]


def _not_an_artifact(expected: str, got: str) -> ArtifactError:
    return ArtifactError("deserialize", expected=expected, got=got, mend="fetch or export the file again")


def _read_header(header: dict, program: bytes, get_vjp: Any) -> Exported:
    try:
        return _read_fields(header, program, get_vjp)
    except KeyError as error:
        raise types.wrong(f"a header with the field {error}", "one without") from None
    except RecursionError:
        raise types.wrong("a header of moderate depth", "one nested too deeply") from None


def _read_fields(header: dict, program: bytes, get_vjp: Any) -> Exported:
    convention = _int(header["convention"], 1, 1 << 31)
    if not minimum_supported_calling_convention_version <= convention <= maximum_supported_calling_convention_version:
        raise types.wrong(f"calling convention {maximum_supported_calling_convention_version}", str(convention))
    constraints = _texts(header["constraints"])
    read_shape = _shape_reader(constraints)
    in_avals = tuple(types.read_aval(a, read_shape) for a in _list(header["in"]))
    out_avals = tuple(types.read_aval(a, read_shape) for a in _list(header["out"]))
    in_tree, out_tree = read_tree(header["in_tree"]), read_tree(header["out_tree"])
    for tree, avals in ((in_tree, in_avals), (out_tree, out_avals)):
        if tree.num_leaves != len(avals):
            raise types.wrong(f"a structure of {len(avals)} leaves", str(tree))
    devices = _int(header["devices"], 1, 1 << 24)
    meshes = types.read_meshes(header["meshes"], devices)
    kept = header["kept"]
    kept = list(range(len(in_avals))) if kept is None else [_int(i, 0, len(in_avals) - 1) for i in _list(kept)]
    if any(a >= b for a, b in zip(kept, kept[1:], strict=False)):
        raise types.wrong("numbers of arguments in rising order", kept)
    shardings = [
        types.read_shardings([None] * len(avals) if s is None else s, avals, devices, meshes)
        for s, avals in ((header["in_shardings"], in_avals), (header["out_shardings"], out_avals))
    ]
    return Exported(
        fun_name=_text(header["name"]),
        in_tree=in_tree,
        in_avals=in_avals,
        out_tree=out_tree,
        out_avals=out_avals,
        in_shardings=shardings[0],
        out_shardings=shardings[1],
        nr_devices=devices,
        platforms=_texts(header["platforms"], at_least=1),
        ordered_effects=_texts(header["ordered_effects"]),
        unordered_effects=_texts(header["unordered_effects"]),
        disabled_safety_checks=tuple(DisabledSafetyCheck(text) for text in _texts(header["disabled_checks"])),
        mlir_module_serialized=program,
        calling_convention_version=convention,
        module_kept_var_idx=tuple(kept),
        parameters=_texts(header["parameters"]),
        constraints=constraints,
        _get_vjp=get_vjp,
    )


def _shape_reader(constraints: tuple[str, ...]) -> Callable[[str], tuple]:
    """What reads shapes over one scope with these constraints."""
    if len(constraints) > MAX_CONSTRAINTS:
        raise types.wrong(f"at most {MAX_CONSTRAINTS} constraints", f"{len(constraints)}")
    try:
        scope = SymbolicScope(constraints)
    except (PhalanxError, ZeroDivisionError) as error:
        raise types.wrong("constraints of dimension variables", str(constraints)) from error

    def read(text: str) -> tuple:
        try:
            return symbolic_shape(text, scope=scope)
        except (PhalanxError, ZeroDivisionError) as error:
            raise types.wrong("a shape", text) from error

    return read


def _int(value: Any, least: int, greatest: int) -> int:
    if type(value) is not int or not least <= value <= greatest:
        raise types.wrong(f"a number from {least} to {greatest}", value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise types.wrong("text", value)
    return value


def _list(value: Any) -> list:
    if not isinstance(value, list):
        raise types.wrong("a list", value)
    return value


def _texts(value: Any, at_least: int = 0) -> tuple[str, ...]:
    if len(_list(value)) < at_least:
        raise types.wrong(f"a list of at least {at_least}", value)
    return tuple(map(_text, value))
