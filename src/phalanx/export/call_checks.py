"""Checks of the arguments of an exported function, with errors that name the argument as the user wrote it.

Builds on `exported_program`; `call_exported` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import ArgumentTypeError, ShapedArray, ShapeError, TreeError, get_aval, is_extended
from phalanx.export.exported_program import ExportedProgram
from phalanx.symbolic import evaluate, is_symbolic, same_dim
from phalanx.tree import equality_errors

_OTHER_ARGUMENTS = "pass the arguments that it was exported for; defaults and static ones are not part of an artifact"


def not_an_array_error(exported: ExportedProgram, leaves: Sequence[object]) -> ArgumentTypeError:
    """The error for the first of `leaves` that is not an array."""
    for name, x in zip(exported.argument_names, leaves, strict=True):
        try:
            get_aval(x)
        except ArgumentTypeError as error:
            return ArgumentTypeError(
                f"call of exported {exported.fun_name}, argument {name}",
                expected=error.expected,
                got=error.got,
                fix="convert it with phalanx.numpy.asarray",
            )
    raise AssertionError("called although every leaf is an array")


def structure_error(exported: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TreeError:
    """The error for arguments with another structure than the exported ones; it names the first difference."""
    where = f"call of exported {exported.fun_name}"
    positional, named = exported.in_tree.children()
    structures, keys = positional.children(), named.node_data()[1]
    names = list(map(exported.parameter_name, range(len(structures))))
    if len(args) != len(structures):
        plural = "" if len(structures) == 1 else "s"
        expected = f"{len(structures)} positional argument{plural} ({', '.join(names)})"
        return TreeError(where, expected=expected, got=str(len(args)), fix=_OTHER_ARGUMENTS)
    if set(kwargs) != set(keys):
        expected = f"the keyword arguments {', '.join(keys)}" if keys else "no keyword arguments"
        return TreeError(where, expected=expected, got=", ".join(sorted(kwargs)) or "none", fix=_OTHER_ARGUMENTS)
    by_name = [*zip(names, structures, args), *((key, s, kwargs[key]) for key, s in zip(keys, named.children()))]
    return next(
        error
        for name, structure, arg in by_name
        for error in equality_errors(structure, arg, what=f"{where}, argument {name}")
    )


def check_avals(exported: ExportedProgram, avals: Sequence[ShapedArray]) -> None:
    """Check the number, dtypes and static dimensions of the flat arguments.

    Raises:
      TreeError: there are more or fewer arguments than the program takes.
      ArgumentTypeError: an argument has another dtype.
      ShapeError: an argument has another rank or static dimension.
    """
    where = f"call of exported {exported.fun_name}"
    if len(avals) != len(exported.in_avals):
        expected = f"{len(exported.in_avals)} arrays"
        raise TreeError(where, expected=expected, got=str(len(avals)), fix=_OTHER_ARGUMENTS)
    for i, (got, declared) in enumerate(zip(avals, exported.in_avals, strict=True)):
        expected = f"an array of type {declared.str_short()}"
        if got.dtype != declared.dtype:
            raise ArgumentTypeError(
                f"{where}, argument {exported.argument_names[i]}",
                expected=expected,
                got=got.str_short(),
                fix="make keys with random.key(seed, impl=...) or random.wrap_key_data"
                if is_extended(declared.dtype)
                else f"convert it with astype({declared.dtype.name!r})",
            )
        # Symbolic dimensions are checked together below, since one variable may be in several arguments.
        if got.ndim != declared.ndim or not all(
            is_symbolic(m) or same_dim(n, m) for n, m in zip(got.shape, declared.shape, strict=True)
        ):
            raise ShapeError(
                f"{where}, argument {exported.argument_names[i]}",
                expected=expected,
                got=got.str_short(),
                fix="pass an array of that shape, or export the function for this shape",
            )


def infer_result_avals(exported: ExportedProgram, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of the results for arguments of these types.

    Raises:
      TreeError, ArgumentTypeError, ShapeError: as in `check_avals`; also sizes that violate a constraint.
    """
    check_avals(exported, avals)
    if not exported.uses_shape_variables:
        return list(exported.out_avals)
    # The same solution is emitted into `main`, so tracing and execution agree on the sizes that are accepted.
    solution = exported.solution
    sizes = solution.sizes([a.shape for a in avals])
    for check in solution.checks:
        if check.holds(sizes) is False:  # None: symbolic sizes for which it may hold; checked when they are known
            expected, _, got = check.message(sizes).removeprefix("expected ").partition(", got ")
            raise ShapeError(
                f"call of exported {exported.fun_name}, argument {exported.argument_names[check.argument]}",
                expected=expected,
                got=got,
                fix="pass arguments whose sizes fit each other and the constraints of the export",
            )
    values = {name: evaluate(dim, sizes) for name, dim in solution.variables.items()}
    return [a.with_shape([evaluate(d, values) for d in a.shape]) for a in exported.out_avals]
