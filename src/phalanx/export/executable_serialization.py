"""Compiled stages as bytes: `serialize` and `deserialize_and_load`, for processes on the same kind of machine.

An executable is machine code for given devices and one version of XLA; `phalanx.export` writes portable programs. The
bytes have the layout of an artifact (`artifact_format`): a header in JSON with types and shardings, and the executable
as its program. Structures of arguments and results are returned beside the bytes, since any object may be a node of a
tree. Public as `phalanx.experimental.serialize_executable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from phalanx.core import Jaxpr, ShapedArray, ShardingError, TraceError, Var
from phalanx.engine import Device, client, compiler
from phalanx.export.artifact_format import join_artifact, malformed_error, split_artifact
from phalanx.export.type_serialization import (
    read_aval,
    read_meshes,
    read_shardings,
    with_devices,
    without_devices,
    write_aval,
    write_shardings,
)
from phalanx.runtime import Layout, non_default_memory_kind, transfer
from phalanx.runtime.compiled_program import CompiledProgram, LoweredProgram
from phalanx.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, Sharding
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit import DEFAULT_OPTIONS
from phalanx.spmd.stages import Compiled, Traced, shape_of
from phalanx.tree import PyTreeDef, treedef_children

_KIND = "executable"


def serialize(compiled: Compiled) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """Serialize a compiled stage, so that another process can run it without compiling.

    Args:
      compiled: the result of `jit(f).lower(...).compile()`.

    Returns:
      The bytes, and the structures of the arguments `(args, kwargs)` and of the result.

    Raises:
      TraceError: the program calls Python functions or holds large constants, which belong to this process.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import serialize_executable
      >>> compiled = phalanx.jit(lambda x: x + 1).lower(2.0).compile()
      >>> loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
      >>> float(loaded(4.0))
      5.0
    """
    program, traced = compiled.program, compiled._traced
    lowered = program.lowered
    if lowered.constants or program.has_effects:
        raise TraceError(
            f"serialize, the program of {traced.fun_name}",
            expected="a program without effects and without large constants",
            got="one with effects" if program.has_effects else f"one with {len(lowered.constants)} large constants",
            fix="remove callbacks and prints" if program.has_effects else "pass the constants as arguments",
        )
    meshes: list[list[Any]] = []
    sides = {
        "in": (traced.program.in_avals, lowered.in_shardings),
        "out": (traced.program.out_avals, [t.sharding for t in program.out_types]),
    }
    header: dict[str, Any] = {
        "kind": _KIND,
        "name": traced.fun_name,
        "platform": lowered.devices[0].platform,
        "devices": [d.id for d in lowered.devices],
        "kept": lowered.kept,
        "donated": list(lowered.donated),
        "committed": lowered.committed,
        "meshes": meshes,
    }
    count = len(lowered.devices)
    for side, (avals, shardings) in sides.items():
        stored = [without_devices(s, count, a) for s, a in zip(shardings, avals, strict=True)]
        header[side] = {
            "avals": [write_aval(a) for a in avals],
            "shardings": write_shardings(stored, avals, count, meshes) or [None] * len(avals),
            "memories": [non_default_memory_kind(s) for s in shardings],
            "explicit": [_explicit_axes(s) for s in shardings],
        }
    code = compiler.serialize_executable(program.executable)
    return bytes(join_artifact(header, code, b"")), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    backend: str | None = None,
    execution_devices: Sequence[Device] | None = None,
) -> Compiled:
    """Load a compiled stage that another process serialized.

    An executable is machine code: load only bytes that you trust, on the kind of machine that they were made on.

    Args:
      serialized, in_tree, out_tree: from `serialize`.
      backend: the platform whose devices run it; the default is the one that it was compiled for.
      execution_devices: the devices to run on, in the order of its partitions; by default those with the same ids.

    Returns:
      The compiled stage. Static arguments are part of the program, and left out in calls.

    Raises:
      ArtifactError: the bytes are not a serialized executable, or were altered.
      ShardingError: there are not as many devices as it was compiled for.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import serialize_executable
      >>> compiled = phalanx.jit(lambda x, y: x * y).lower(2.0, y=3).compile()
      >>> loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
      >>> float(loaded(4.0, y=2))
      8.0
    """
    header, code, _ = split_artifact(memoryview(serialized))
    if header.get("kind") != _KIND:
        raise malformed_error("bytes from serialize_executable.serialize", "another artifact")
    ids = header["devices"]
    chosen = _choose_devices(ids, client.devices(backend or header["platform"]), execution_devices)
    meshes = read_meshes(header["meshes"], len(ids))
    ins, outs = (_read_side(header[side], chosen, meshes) for side in ("in", "out"))
    # The equations are in the machine code; what remains of the jaxpr are the types of its inputs and outputs.
    jaxpr = Jaxpr([Var(a) for a, _ in ins], [], [Var(a) for a, _ in outs])
    in_shardings, out_shardings = ([s for _, s in side] for side in (ins, outs))
    lowered = LoweredProgram(
        program=jaxpr,
        module=None,
        kept=header["kept"],
        constants=[],
        devices=chosen,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        out_memories=header["out"]["memories"],
        donated=tuple(header["donated"]),
        committed=header["committed"],
        is_attached=True,
        communication="any",  # checked before the program was stored, if at all
        names_requests=False,
        declares_results=True,
        layouts=((Layout.AUTO,) * len(ins), (Layout.AUTO,) * len(outs)),  # those of the executable
    )
    program = CompiledProgram(lowered, compiler.load_executable(bytes(code), chosen, len(outs)))

    function: Any = SimpleNamespace(__name__=header["name"])  # stands for the Python function, which is not stored
    signature = Signature(function)
    num_args = len(treedef_children(treedef_children(in_tree)[0]))
    call = CallArguments([shape_of(a, s) for a, s in ins], in_tree, (), num_args, signature)
    return Compiled(Traced(function, jaxpr, call, out_tree, DEFAULT_OPTIONS, signature), program)


def _choose_devices(
    ids: Sequence[int], attached: Sequence[Device], given: Sequence[Device] | None
) -> tuple[Device, ...]:
    """The devices of a loaded program, in the order of its partitions."""
    by_id = {d.id: d for d in attached}
    found = [by_id[i] for i in ids if i in by_id] if given is None else list(given)
    if len(found) != len(ids):
        raise ShardingError(
            "deserialize_and_load, argument execution_devices",
            expected=f"the {len(ids)} devices that the program was compiled for, of ids {list(ids)}",
            got=f"{len(found)} devices, of ids {[d.id for d in found]}",
            fix=f"pass a list of {len(ids)} devices, or compile the program on this machine",
        )
    return tuple(found)


def _explicit_axes(sharding: Sharding) -> list[str]:
    return list(map(str, sharding.mesh.explicit_axes)) if isinstance(sharding, NamedSharding) else []


def _read_side(
    side: dict[str, Any], chosen: tuple[Device, ...], meshes: Sequence[AbstractMesh]
) -> list[tuple[ShapedArray, Sharding]]:
    """The types and shardings of the arguments or of the results."""
    avals = [read_aval(text, _refuse_symbolic) for text in side["avals"]]
    all_devices = Mesh(np.array(chosen), ("devices",))
    stored = read_shardings(side["shardings"], avals, len(chosen), meshes)
    out = []
    for aval, s, memory, explicit in zip(avals, stored, side["memories"], side["explicit"], strict=True):
        sharding = with_devices(s, all_devices) or transfer.single_device_sharding(chosen[0])
        if isinstance(sharding, NamedSharding) and explicit:
            types = dict.fromkeys(explicit, AxisType.Explicit)
            sharding = NamedSharding(sharding.mesh.with_axis_types(types), sharding.spec)
        placed = sharding.with_memory_kind(memory) if memory else sharding
        out.append((aval.update(sharding=placed.type_sharding(aval.ndim)), placed))
    return out


def _refuse_symbolic(shape: str) -> tuple[Any, ...]:
    raise malformed_error("a shape without dimension variables, since the program is compiled", shape)
