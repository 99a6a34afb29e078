"""The error for collectives that the option `communication` refuses, with the change of the program that removes them.

Each collective is traced to the operand that it reshards (see `sharding_conflicts`). If the sharding of one value
reaches conflicts on several lines, the fix is at the line where that sharding enters the computation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from phalanx.core import Eqn, Jaxpr, ShapedArray, ShardingError, state
from phalanx.runtime import compiled_program
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd.communication_causes import UNASKED
from phalanx.spmd.sharding_conflicts import Conflict, Entry, ShardedOperation, format_line, propagate_shardings

if TYPE_CHECKING:
    from phalanx.spmd.communication import Collective

_EXPECTED = {
    "implied": "only collectives that the program asks for, and sums over split dimensions",
    "asked": "only collectives that the program asks for",
}
_MAX_SHOWN = 8


def refuse_collectives(
    program: compiled_program.CompiledProgram,
    refused: Sequence[Collective],
    allowed: str,
    input_name: Callable[[int], str] | None,
) -> ShardingError:
    """Make the error for collectives that are not allowed.

    Args:
      program: the compiled program.
      refused: the collectives.
      allowed: the value of the option `communication`.
      input_name: returns the user's name of input `i`.

    Returns:
      The error, which lists the collectives by bytes, each with the operand that it reshards.
    """
    jaxpr = program.program
    operations = [] if jaxpr is None else propagate_shardings(jaxpr, program.lowered.in_shardings)
    conflicts = [conflict for operation in operations for conflict in operation.conflicts()]
    causes: list[tuple[Collective, Conflict | None]] = []
    for c in sorted(refused, key=lambda c: -c.bytes * c.executions):
        known = [k for _, k in causes if k is not None]
        # Rather another equation with such a conflict, as in a recomputation, than both operands of one.
        at = {id(k.eqn) for k in known}
        left = sorted((k for k in conflicts if k not in known), key=lambda k: id(k.eqn) in at)
        causes.append((c, _find_conflict(c, left or conflicts, operations)))
    total = sum(c.bytes * c.executions for c in refused)
    lines = Counter(_describe(c, conflict, input_name) for c, conflict in causes)
    shown = [f"{line}{f', {n} times' if n > 1 else ''}" for line, n in lines.items()]
    more = [f"and {len(shown) - _MAX_SHOWN} more lines"] if len(shown) > _MAX_SHOWN else []
    count = f"{len(refused)} other{'s' if len(refused) > 1 else ''}, which send {total:,} bytes in one run:"
    return ShardingError(
        f"communication of {jaxpr.debug_name if jaxpr is not None else 'a program'}",
        expected=_EXPECTED[allowed],
        got="\n    ".join([count, *shown[:_MAX_SHOWN], *more]),
        fix="; ".join(_fixes(causes, allowed)),
    )


def check_typed_communication(program: Jaxpr, allowed: str) -> None:
    """Refuse communication that the shardings in the types of a jaxpr, over Explicit axes, make certain.

    Args:
      program: the jaxpr.
      allowed: the value of the option `communication`.

    Raises:
      ShardingError: an operation needs a dimension as a whole that its operand splits.
    """
    operations = propagate_shardings(program, [None] * len(program.invars))
    unasked = _typed([k for o in operations for k in o.resolve()])
    found = unasked if allowed == "implied" else _typed([k for o in operations for k in o.resolve(excluded=o.reduced)])
    if found:
        shown = [f"{k.eqn.primitive.name} at {k.line}: {_describe_operand(k, None)}" for k in found[:_MAX_SHOWN]]
        raise ShardingError(
            f"communication of {program.debug_name}",
            expected=_EXPECTED[allowed],
            got="\n    ".join([f"{len(found)} operand{'s' if len(found) > 1 else ''} to reshard:", *shown]),
            fix="; ".join([*dict.fromkeys(_ask_for_operand(k) for k in found), _weaken(allowed, not unasked)]),
        )


def _typed(conflicts: Iterable[Conflict]) -> list[Conflict]:
    """The conflicts of operands that have their shardings in their types."""
    return [k for k in conflicts if k.aval.type_sharding is not None]


def _find_conflict(
    c: Collective, conflicts: Sequence[Conflict], operations: Iterable[ShardedOperation]
) -> Conflict | None:
    """The resharding of an operand that a collective most probably is.

    The line of a collective is that of the equation that needs the operand or, in some versions of XLA, that of the
    equation that computes it.
    """
    axes = set(c.axes or ())
    over = [k for k in conflicts if k.axes & axes]
    here = [k for k in over if k.line == c.source]
    alike = [k for k in over if k.may_reshard(c.kind, c.bytes)]
    if found := [k for k in here if k in alike] or here or (alike if c.cause == UNASKED else []):
        return found[0]
    gathered = (o.gather_operand(axes) for o in operations if format_line(o.eqn) == c.source)
    return next(filter(None, gathered), over[0] if over else None)


def _describe(c: Collective, conflict: Conflict | None, input_name: Callable[[int], str] | None) -> str:
    if conflict is None:
        return str(c)
    line = "" if conflict.line == c.source else f", for {conflict.line}"
    return f"{c}{line}: {_describe_operand(conflict, input_name)}"


def _describe_operand(conflict: Conflict, input_name: Callable[[int], str] | None) -> str:
    """The operand, the argument that it is computed from, and both shardings."""
    arguments = [o.argument for axis, o in conflict.origins.items() if axis in conflict.axes and o.argument is not None]
    source = f" from argument {input_name(arguments[0])}" if arguments and input_name is not None else ""
    return (
        f"operand {conflict.operand}, {_format_type(conflict.aval)}{source}, is split as {_format(conflict.held)}, "
        f"but {conflict.eqn.primitive.name} needs {_format(conflict.wanted)}"
    )


def _format_type(aval: ShapedArray) -> str:
    return aval.drop_sharding().str_short()


def _format(sharding: NamedSharding) -> str:
    return repr(sharding.spec.canonical)


def _fixes(causes: Sequence[tuple[Collective, Conflict | None]], allowed: str) -> list[str]:
    """The changes of the program that remove the collectives, each once."""
    lines: dict[int, set[str]] = {}  # by the equation where a sharding enters, the lines of its conflicts
    for _, conflict in causes:
        if conflict is not None and (entry := _find_entry(conflict)) is not None:
            lines.setdefault(id(entry.eqn), set()).add(conflict.line)
    # What is left after one change at the root of several conflicts is the next error: most of it is gone, too.
    shared: list[str] = []
    local: list[str] = []
    for c, conflict in causes:
        if conflict is None:
            local.append(f"shard the operands at {c.source or 'its line'} along dimensions that need no communication")
            continue
        entry = _find_entry(conflict)
        if entry is not None and len(lines[id(entry.eqn)]) > 1:
            dims = [tuple([a for a in d if a not in conflict.axes]) for d in entry.sharding.axes(entry.aval.ndim)]
            wanted = entry.sharding.with_spec(PartitionSpec.of_dims(dims))
            shared.append(_ask("the result", entry.aval, entry.eqn, wanted))
        else:
            local.append(_ask_for_operand(conflict))
    return [*dict.fromkeys(shared or local), _weaken(allowed, all(c.cause != UNASKED for c, _ in causes))]


def _find_entry(conflict: Conflict) -> Entry | None:
    """The equation before that of a conflict in which the sharding that it is about meets other operands."""
    entries = [origin.entry for axis, origin in conflict.origins.items() if axis in conflict.axes]
    return next((entry for entry in entries if entry is not None and entry.eqn is not conflict.eqn), None)


def _ask_for_operand(conflict: Conflict) -> str:
    return _ask(f"operand {conflict.operand}", conflict.aval, conflict.eqn, conflict.wanted)


def _ask(what: str, aval: ShapedArray, eqn: Eqn, wanted: NamedSharding) -> str:
    function, sharding = "lax.with_sharding_constraint", _format(wanted)
    if wanted.mesh.explicit_axes:
        function = "phalanx.reshard"
    elif state.context.mesh is None or state.context.mesh.empty:  # which a bare spec needs
        sharding = f"NamedSharding(mesh, {sharding})"
    where = f"{eqn.primitive.name}, {_format_type(aval)}, at {format_line(eqn)}"
    return f"pass {what} of {where} through {function}(x, {sharding})"


def _weaken(allowed: str, only_sums: bool) -> str:
    return f'or allow them with communication="{"implied" if allowed == "asked" and only_sums else "any"}"'
