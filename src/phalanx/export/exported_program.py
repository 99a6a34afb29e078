"""The data of an exported function, without the methods that call it or write it to bytes.

`ExportedProgram` is the part of `Exported` that the other files of this package read: lowering, calls and the artifact
writer take it, and `exported` adds the methods that depend on those. The split keeps imports acyclic. Also here: the
types of cotangents in artifacts, and the check of a program's `main` against its header.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, ShapedArray, dtypes, physical_aval
from phalanx.engine import ArtifactError, mlir
from phalanx.engine.pytree import PyTreeDef
from phalanx.export.dim_solver import Solution, solve_inputs
from phalanx.export.safety_checks import DisabledSafetyCheck
from phalanx.export.type_serialization import StoredSharding
from phalanx.symbolic import is_symbolic
from phalanx.tree import keystr, tree_flatten_with_path, tree_unflatten
from phalanx.typing import PyTree


class ProgramAxis(NamedTuple):
    """An axis of the mesh that a program was exported for.

    Args:
      name: the name of the axis.
      size: its size at the export.
      fixed_by: what needs this size, with its line, such as "shard_map at model.py:12"; None if any size will do.
      named_by: what names the axis, such as "the sharding of argument x" or "sharding_constraint at model.py:9"; None
        if nothing does, or in artifacts of versions that did not write it.
    """

    name: str
    size: int
    fixed_by: str | None
    named_by: str | None = None


@dataclass(frozen=True, eq=False)
class ExportedProgram(abc.ABC):
    """The fields of `Exported`, and the properties that follow from them alone."""

    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    in_shardings: tuple[StoredSharding, ...]
    out_shardings: tuple[StoredSharding, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    ordered_effects: tuple[str, ...]
    unordered_effects: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    mlir_module_serialized: bytes = field(repr=False)
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    mesh_axes: tuple[ProgramAxis, ...] | None = None
    devices_fixed_by: str | None = None
    _get_vjp: Callable[[], ExportedProgram] | None = field(default=None, repr=False)

    @abc.abstractmethod
    def call(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Call the function; defined by `Exported`."""

    @property
    def uses_shape_variables(self) -> bool:
        """Whether some shape is symbolic, so that the program computes dimension variables from its arguments."""
        return any(a.is_symbolic for a in self.in_avals)

    @property
    def uses_global_constants(self) -> bool:
        """Whether the program takes dimension variables or the index of the platform."""
        return self.uses_shape_variables or len(self.platforms) > 1

    def has_vjp(self) -> bool:
        """Whether the reverse-mode derivative is available.

        Returns:
          A bool.
        """
        return self._get_vjp is not None

    def vjp(self) -> Any:
        """The reverse-mode derivative as an exported function of the flat arguments and the flat cotangents.

        Returns:
          An `Exported` that returns one cotangent for each flat argument, with the shardings of the arguments. Integer
          and boolean arguments have no derivative; their cotangents are arrays of False. The result has a `vjp` too,
          unless this artifact was read from a file that holds no higher orders.

        Raises:
          ArgumentError: the artifact was serialized without its derivative.
        """
        if self._get_vjp is None:
            raise ArgumentError(
                f"vjp of exported {self.fun_name}",
                expected="an artifact with its derivative",
                got="one that was serialized without",
                fix="export it again and call serialize(vjp_order=1), or a larger order for higher derivatives",
            )
        return self._get_vjp()

    def parameter_name(self, position: int) -> str:
        """The name of a positional parameter, for error messages."""
        return self.parameters[position] if position < len(self.parameters) else f"args[{position}]"

    @functools.cached_property
    def argument_names(self) -> list[str]:
        """The name of each flat argument as the user would write it: `x`, `params['w']`."""
        # Flattening a tree of placeholders with paths names every leaf, without any of the user's arguments.
        placeholders = tree_unflatten(self.in_tree, [0] * len(self.in_avals))
        names = []
        for path, _ in tree_flatten_with_path(placeholders)[0]:  # paths into (args, kwargs)
            root = path[1].key if path[0].idx == 1 else self.parameter_name(path[1].idx)
            names.append(f"{root}{keystr(path[2:])}")
        return names

    @property
    def result_names(self) -> list[str]:
        """The path of each flat result, or `result` for a single array."""
        placeholders = tree_unflatten(self.out_tree, [0] * len(self.out_avals))
        return [keystr(path) or "result" for path, _ in tree_flatten_with_path(placeholders)[0]]

    @functools.cached_property
    def solution(self) -> Solution:
        """The dimension variables as functions of the sizes of the arguments."""
        return solve_inputs(self.in_avals, f"exported {self.fun_name}", lambda i: self.argument_names[i])


def is_differentiable(aval: ShapedArray) -> bool:
    """Whether values of this type vary continuously, so that they have a derivative."""
    return bool(aval.to_tangent().dtype != dtypes.float0)


def cotangent_aval(aval: ShapedArray) -> ShapedArray:
    """The type that an exported derivative takes and returns for cotangents of `aval`."""
    if is_differentiable(aval):
        return aval.to_tangent().strip_weak_type()
    return ShapedArray(aval.shape, np.dtype(np.bool_))


def check_main(exported: ExportedProgram, signature: tuple[Sequence[str], Sequence[str]] | None) -> None:
    """Refuse a program whose `main` does not have the types in its header.

    Args:
      exported: the fields of the header.
      signature: the types of the arguments and results of `main`, as MLIR prints them; None if there is no `main`.

    Raises:
      ArtifactError: the types differ.
    """
    with mlir.make_context():
        ins = [_format_type(exported.in_avals[i]) for i in exported.module_kept_var_idx]
        outs = list(map(_format_type, exported.out_avals))
    if len(exported.platforms) > 1:
        ins.insert(0, "tensor<i32>")  # the index of the platform
    if signature is None or (ins, outs) != (list(signature[0]), list(signature[1])):
        raise ArtifactError(
            f"program of exported {exported.fun_name}",
            expected=f"a main of type {_format_signature(ins, outs)}, as its header declares",
            got="no main" if signature is None else _format_signature(*signature),
            fix="export the function again: this file was not written by phalanx",
        )


def _format_type(aval: ShapedArray) -> str:
    physical = physical_aval(aval)
    sizes = [f"{'?' if is_symbolic(d) else d}x" for d in physical.shape]
    return f"tensor<{''.join(sizes)}{mlir.dtype_to_ir(physical.dtype)}>"


def _format_signature(ins: Sequence[str], outs: Sequence[str]) -> str:
    return f"({', '.join(ins)}) -> ({', '.join(outs)})"
