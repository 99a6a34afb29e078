"""Reading artifacts. Nothing in a file is executed, and memory use is proportional to its length.

Every field of the header is checked before it is used, since the digest shows that a file is complete and not that
phalanx wrote it. `verification` reads files of unknown origin with stricter checks. Builds on `artifact_format` for the
bytes and on `exported` for the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx.core import ArgumentTypeError, PhalanxError
from phalanx.engine import ArtifactError
from phalanx.export.artifact_format import malformed_error, require_list, split_artifact
from phalanx.export.exported import (
    Exported,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from phalanx.export.exported_program import ProgramAxis
from phalanx.export.safety_checks import DisabledSafetyCheck
from phalanx.export.symbolic_scope import SymbolicScope
from phalanx.export.symbolic_shapes import symbolic_shape
from phalanx.export.tree_serialization import read_tree
from phalanx.export.type_serialization import read_aval, read_meshes, read_shardings
from phalanx.symbolic.simplex import WorkLimitError, limit_work

# Every constraint is propagated to the bounds of all variables while a file is read, which takes more than linear time.
MAX_CONSTRAINTS: Final = 100
MAX_WORK: Final = 30_000_000  # of the decision procedure, in entries of tableaus: a few seconds


def deserialize(blob: bytes | bytearray | memoryview) -> Exported:
    """Read an artifact that `Exported.serialize` wrote with this or an earlier version of phalanx.

    Reading executes nothing from the file, and allocates memory in proportion to its length. The StableHLO program
    inside is parsed at the first call; use `verify` for a file from an untrusted source.

    Args:
      blob: the bytes of the artifact.

    Returns:
      The `Exported`.

    Raises:
      ArtifactError: the bytes are not an artifact, are of a later format version, or were truncated or altered.
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
            fix="pass the result of Exported.serialize(), or pathlib.Path(path).read_bytes()",
        )
    header, program, derivative = split_artifact(memoryview(blob).cast("B"))
    # The derivative is an artifact of its own inside this one. Reading it lazily keeps `deserialize` cheap for callers
    # that never differentiate.
    derivatives: list[Exported] = []  # read at the first use

    def get_vjp() -> Exported:
        if not derivatives:
            derivatives.append(deserialize(derivative))
        return derivatives[0]

    try:
        with limit_work(MAX_WORK):
            return _read_header(header, bytes(program), get_vjp if derivative else None)
    except KeyError as error:
        raise malformed_error(f"a header with the field {error}", "one without") from None
    except WorkLimitError:
        raise ArtifactError(
            "deserialize, constraints",
            expected="constraints of dimension variables that are decided in a few seconds",
            got=f"{len(header['constraints'])} that take longer",
            fix="export the function again with fewer or simpler constraints, if the file is your own",
        ) from None
    except RecursionError:
        raise malformed_error("a header of moderate depth", "one nested too deeply") from None


def _read_header(header: dict[str, Any], program: bytes, get_vjp: Callable[[], Exported] | None) -> Exported:
    constraints = _read_texts(header["constraints"])
    # Arguments and results share one scope: a variable of the results is the variable of the same name in the
    # arguments.
    read_shape = _shape_reader(constraints)
    in_avals, out_avals = (
        tuple(read_aval(a, read_shape) for a in require_list(header[field], "a list")) for field in ("in", "out")
    )
    in_tree, out_tree = read_tree(header["in_tree"]), read_tree(header["out_tree"])
    # `tree_unflatten` relies on this count in a later call, where an error would no longer refer to the file.
    for tree, avals in ((in_tree, in_avals), (out_tree, out_avals)):
        if tree.num_leaves != len(avals):
            raise malformed_error(f"a structure of {len(avals)} leaves", str(tree))
    devices = _read_int(header["devices"], 1, 1 << 24)
    meshes = read_meshes(header["meshes"], devices)
    in_shardings, out_shardings = (
        read_shardings([None] * len(avals) if data is None else data, avals, devices, meshes)
        for data, avals in ((header["in_shardings"], in_avals), (header["out_shardings"], out_avals))
    )
    return Exported(
        fun_name=_read_text(header["name"]),
        in_tree=in_tree,
        in_avals=in_avals,
        out_tree=out_tree,
        out_avals=out_avals,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        nr_devices=devices,
        platforms=_read_texts(header["platforms"], at_least=1),
        ordered_effects=_read_texts(header["ordered_effects"]),
        unordered_effects=_read_texts(header["unordered_effects"]),
        disabled_safety_checks=tuple(DisabledSafetyCheck(text) for text in _read_texts(header["disabled_checks"])),
        mlir_module_serialized=program,
        calling_convention_version=_read_convention(header["convention"]),
        module_kept_var_idx=_read_kept(header["kept"], len(in_avals)),
        parameters=_read_texts(header["parameters"]),
        constraints=constraints,
        mesh_axes=_read_mesh_axes(header.get("mesh_axes"), header.get("axes_named_by"), devices),
        devices_fixed_by=None if (reason := header.get("devices_fixed_by")) is None else _read_text(reason),
        _get_vjp=get_vjp,
    )


def _shape_reader(constraints: tuple[str, ...]) -> Callable[[str], tuple[Any, ...]]:
    """A function that parses symbolic shapes in one scope with these constraints."""
    if len(constraints) > MAX_CONSTRAINTS:
        raise malformed_error(f"at most {MAX_CONSTRAINTS} constraints", f"{len(constraints)}")
    try:
        scope = SymbolicScope(constraints)
    # Some texts parse and still cannot be evaluated, such as 'mod(b, 0) == 0'.
    except (PhalanxError, ZeroDivisionError) as error:
        raise malformed_error("constraints of dimension variables", str(constraints)) from error

    def read(text: str) -> tuple[Any, ...]:
        try:
            return symbolic_shape(text, scope=scope)
        except (PhalanxError, ZeroDivisionError) as error:
            raise malformed_error("a shape", text) from error

    return read


def _read_mesh_axes(data: object, named_by: object, num_devices: int) -> tuple[ProgramAxis, ...] | None:
    """The axes of the program's mesh; None if they are unknown, as in artifacts of versions that did not write them."""
    if data is None:
        return None
    axes = require_list(data, "axes of a mesh")
    names = [None] * len(axes) if named_by is None else require_list(named_by, "what names the axes of a mesh")
    if len(names) != len(axes) or not all(isinstance(name, str | None) for name in names):
        raise malformed_error("what names each axis of a mesh", named_by)
    if not all(isinstance(a, list) and len(a) == 3 and isinstance(a[2], str | None) for a in axes):
        raise malformed_error("axes of a mesh", data)
    read_meshes([[axis[:2] for axis in axes]], num_devices)  # raises unless they are the axes of a mesh
    return tuple([ProgramAxis(*axis, named_by=name) for axis, name in zip(axes, names, strict=True)])


def _read_convention(value: object) -> int:
    convention = _read_int(value, 1, 1 << 31)
    if not minimum_supported_calling_convention_version <= convention <= maximum_supported_calling_convention_version:
        raise malformed_error(f"calling convention {maximum_supported_calling_convention_version}", str(convention))
    return convention


def _read_kept(value: object, num_args: int) -> tuple[int, ...]:
    """The indices of the arguments that `main` takes; None denotes all of them."""
    if value is None:
        return tuple(range(num_args))
    kept = tuple(_read_int(i, 0, num_args - 1) for i in require_list(value, "a list"))
    # `main` takes the kept arguments in order; a repeated index would read one array as two operands.
    if any(a >= b for a, b in zip(kept, kept[1:], strict=False)):
        raise malformed_error("indices of arguments in ascending order", kept)
    return kept


def _read_int(value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise malformed_error(f"a number from {low} to {high}", value)
    return value


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise malformed_error("text", value)
    return value


def _read_texts(value: object, at_least: int = 0) -> tuple[str, ...]:
    return tuple(map(_read_text, require_list(value, f"a list of at least {at_least}", at_least)))
