"""Resolve the devices and input shardings of a compiled call.

Precedence: shardings declared by `in_shardings` and `out_shardings`, then the shardings of committed arguments, then
the mesh of the program or of the context, then the default device. Uncommitted arguments follow. A contradiction is an
error that names both sides. Used by `jit`, by its stages, and by the `jit` primitive when it runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    Jaxpr,
    Literal,
    ShapedArray,
    ShardingError,
    Tracer,
    TreeError,
    cached_on_jaxpr,
    get_aval,
    physical_aval,
    state,
)
from phalanx.lax import reshard_p
from phalanx.lax.sharding_constraint import broadcast_shardings
from phalanx.runtime import (
    ArrayType,
    Format,
    common_devices,
    device_names,
    is_abstract,
    named_sharding,
    to_default_memory,
    transfer,
)
from phalanx.sharding import UNSPECIFIED, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from phalanx.spmd.call_arguments import CallArguments
from phalanx.tree import broadcast_prefix, keystr, tree_flatten_with_path, tree_leaves, tree_map
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


def resolve_prefix_shardings(spec: PyTree, tree: PyTree, what: str, *, may_be_auto: bool = False) -> tuple:
    """Broadcast a prefix tree of shardings to the leaves of a tree, and check that they fit.

    Args:
      spec: a prefix of `tree` whose leaves are shardings, specs, None or UNSPECIFIED.
      tree: the arguments or results.
      what: name of the prefix in error messages.
      may_be_auto: whether leaves may be AUTO.

    Returns:
      A sharding for each leaf of `tree`, or AUTO, or None for leaves without one.

    Raises:
      ShardingError: a bare spec without a current mesh, or a spec that does not fit its leaf.
      TreeError: `spec` is not a prefix of `tree`.
    """
    leaves = tree_flatten_with_path(tree)[0]
    if spec is UNSPECIFIED or spec is None:
        return (None,) * len(leaves)
    flat = broadcast_shardings(spec, tree, what, may_be_auto=may_be_auto)
    for s, (path, leaf) in zip(flat, leaves, strict=True):
        if isinstance(s, Sharding):
            # Called for its error if the sharding does not fit.
            s.shard_shape(np.shape(leaf), where=f"{what}{keystr(path)}")
    return tuple(flat)


def broadcast_declared_shardings(options: dict, which: str, tree: PyTree, what: str, count: int) -> tuple:
    """Broadcast the option `which` ("in_shardings" or "out_shardings") of `jit` to the leaves of a tree.

    Args:
      options: the options of `jit`. Legacy transformations accept shardings under other names, which are in
        `options["spelling"]` for error messages.
      which: the name of the option.
      tree: the arguments or results.
      what: description of the compiled function for error messages, such as "jit of f at file:line".
      count: the number of leaves that were taken from the nodes that `tree` rebuilds.

    Raises:
      TreeError: shardings are declared, and `tree` has more or fewer leaves, by a mistake of a node.
    """
    given, mesh = options[which], state.context.mesh
    if options.get("none_replicates") and mesh is not None and not mesh.empty:
        given = tree_map(lambda s: PartitionSpec() if s is None else s, given, is_leaf=lambda s: s is None)
    where = f"{what}, {options.get('spelling', {}).get(which, which)}"
    if given is UNSPECIFIED:
        return (None,) * count
    found = resolve_prefix_shardings(given, tree, where, may_be_auto=True)
    if len(found) != count:
        raise TreeError(
            where,
            expected=f"nodes that are rebuilt with as many leaves as they had, {count} in all",
            got=f"{len(found)} leaves",
            fix=f"correct the functions that flatten and unflatten the node, or leave {which} out",
        )
    return found


def declared_layouts(options: dict, args: tuple, kwargs: dict, out: PyTree, what: str) -> tuple[tuple, tuple] | None:
    """The memory layouts that `in_shardings` and `out_shardings` declare for arguments and results; None for none.

    Raises:
      ArgumentTypeError, AxisError: a layout does not fit its array.
    """
    if not any(isinstance(s, Format) for s in tree_leaves((options["in_shardings"], options["out_shardings"]))):
        return None

    def layouts(which: str, tree: PyTree) -> tuple:
        where = f"{what}, {which}"
        return tuple(
            [
                None if s is None else s.resolve_layout(get_aval(leaf), f"{where}{leaf_path(tree, i)}")
                for i, (s, leaf) in enumerate(zip(broadcast_formats(options[which], tree, where), tree_leaves(tree)))
            ]
        )

    ins = (*layouts("in_shardings", args), *([None] * len(tree_leaves(kwargs))))
    outs = layouts("out_shardings", out)
    return None if all(layout is None for layout in (*ins, *outs)) else (ins, outs)


def broadcast_formats(given: PyTree, tree: PyTree, what: str) -> list[Format | None]:
    """The `Format` of each leaf of a tree among shardings that are a prefix of it; None for a leaf without one."""
    if not any(isinstance(s, Format) for s in tree_leaves(given)):
        return [None] * len(tree_leaves(tree))
    flat = broadcast_prefix(given, tree, what=what, is_leaf=lambda s: s is None, lists_as_tuples=True)
    return [s if isinstance(s, Format) else None for s in flat]


class LeafShardings(tuple):
    """The shardings of all leaves of a call, keyword arguments included, as a value of `in_shardings`."""


def flatten_in_shardings(options: dict, call: CallArguments, args: tuple, kwargs: dict, name: str) -> tuple:
    """The sharding that `in_shardings` declares for each leaf of a call's arguments, or None.

    Raises:
      ArgumentError: a positional parameter is passed by keyword, so that `in_shardings` cannot apply to it.
    """
    given = options["in_shardings"]
    if isinstance(given, LeafShardings):
        return given
    # A single device applies to keyword arguments, too; other shardings have no entry for them.
    is_for_all = isinstance(given, SingleDeviceSharding)  # jit(..., device=...)
    if given is not UNSPECIFIED and given is not None and not is_for_all:
        parameters = call.signature.parameters
        if named := [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name in kwargs]:
            spelled = options.get("spelling", {}).get("in_shardings", "in_shardings")
            raise ArgumentError(
                f"{name}, argument {named[0]}",
                expected=f"a positional argument, since {spelled} applies to positional arguments only",
                got="a keyword argument",
                fix=f"pass {named[0]} by position, or place it with device_put and leave {spelled} out",
            )
    num_named = len(tree_leaves(kwargs))
    found = broadcast_declared_shardings(
        options, "in_shardings", args, call.signature.what, len(call.leaves) - num_named
    )
    return (*found, *([given if is_for_all else None] * num_named))


def apply_in_shardings(avals: Sequence[ShapedArray], call: CallArguments, options: dict, name: str) -> tuple:
    """Add the shardings over Explicit axes that `in_shardings` declares to the types of the arguments.

    Raises:
      ShardingError: the type of a traced argument has another sharding. Concrete arguments are checked later, by
        `resolve_shardings`.
    """
    if options["in_shardings"] is UNSPECIFIED or options["in_shardings"] is None:
        return tuple(avals)
    args, kwargs = tree_map(get_aval, call.dynamic())
    shardings = flatten_in_shardings(options, call, args, kwargs, name)
    out = list(avals)
    for i, (a, s) in enumerate(zip(avals, shardings, strict=True)):
        # Shardings over Auto axes are not part of types: they are constraints of the lowered program.
        in_type = s.type_sharding(a.ndim) if isinstance(s, Sharding) else None
        if in_type is None:
            continue
        if a.type_sharding is not None and a.type_sharding is not in_type and isinstance(call.leaves[i], Tracer):
            raise ShardingError(
                f"{name}, argument {call.path(i)}",
                expected=f"an array with the declared sharding {s.spec}",
                got=a.str_short(),
                fix="reshard it with phalanx.reshard, or pass None for this argument in in_shardings",
            )
        out[i] = a.update(sharding=in_type)
    return tuple(out)


def reshard_results(leaves: Sequence[Any], tree: PyTree, options: dict, what: str) -> list:
    """Reshard the results of a function whose `out_shardings` are over Explicit axes."""
    if options["out_shardings"] is UNSPECIFIED or options["out_shardings"] is None:
        return list(leaves)
    shardings = broadcast_declared_shardings(options, "out_shardings", tree_map(get_aval, tree), what, len(leaves))
    return [
        reshard_p(x, sharding=s) if isinstance(s, Sharding) and s.type_sharding(get_aval(x).ndim) is not None else x
        for x, s in zip(leaves, shardings, strict=True)
    ]


def resolve_shardings(
    program: Jaxpr,
    types: Sequence[ArrayType],
    declared: Sequence[Any],
    out_declared: Sequence[Any],
    names: Callable[[int], str],
    result_names: Callable[[int], str],
    absent: Sharding | None = None,
) -> tuple[tuple, list, bool]:
    """Choose the devices and the input shardings of a call.

    Args:
      program: the jaxpr to run.
      types: types of the arguments, with their current shardings.
      declared, out_declared: the declared sharding of each input and output, or None.
      names, result_names: map the index of an argument or result to its name in error messages.
      absent: a sharding over placeholder devices, used if neither the arguments nor the program determine devices.

    Returns:
      The devices, a sharding for each input, and whether the results are committed to the devices.

    Raises:
      ShardingError: arguments are committed to different devices, or a committed argument has another sharding than
        the declared one.
    """
    # Any declared sharding determines the devices; `_check_devices` verifies that all of them agree.
    wanted = next((s for s in (*declared, *out_declared) if s is not None), None) or named_sharding(program)
    devices, committed = common_devices(types, names) if wanted is None else (None, True)
    if devices is None and wanted is None and isinstance(state.context.mesh, Mesh):
        # Neither the arguments nor the program determine devices: use the current mesh.
        wanted, committed = NamedSharding(state.context.mesh, PartitionSpec()), True
    if devices is None:
        wanted = wanted or absent
        devices = tuple((wanted or transfer.default_sharding())._device_assignment)
    # Inputs without a sharding are replicated on all devices of the computation.
    whole = transfer.replicated_sharding(devices, (wanted, *declared, *out_declared, *(t.sharding for t in types)))
    operand_shardings = _find_operand_shardings(program, devices)
    out = []
    _check_devices(declared, devices, names)
    _check_devices(out_declared, devices, result_names)
    for i, (t, d) in enumerate(zip(types, declared, strict=True)):
        if t.committed:
            _check_committed(t, d, devices, names(i))
        # The argument keeps its sharding, in the default memory: XLA reshards it inside the program if necessary.
        if d is None and t.sharding is not None and len(devices) > 1 and t.sharding.device_set == set(devices):
            out.append(to_default_memory(t.sharding))
        else:
            out.append(_same_or(t.sharding, d or operand_shardings.get(i, whole), t.aval))
    return devices, out, committed


def prefer_declared_shardings(types: Sequence[ArrayType], declared: Sequence[Any]) -> Sequence[ArrayType]:
    """Treat arguments as uncommitted if shardings are declared, so that committed ones are moved instead of refused.

    `pmap` and the other legacy transformations have always accepted arguments on any devices.
    """
    return types if all(s is None for s in declared) else [ArrayType(t.aval, t.sharding, False) for t in types]


@cached_on_jaxpr
def _find_operand_shardings(program: Jaxpr, devices: tuple) -> dict[int, NamedSharding]:
    """Shardings for inputs that are only read with one sharding, such as the operands of a `shard_map`.

    Without them an uncommitted input would be replicated on all devices first.

    Returns:
      The sharding by index of the input.
    """
    if len(devices) == 1:
        return {}
    # For each variable the set of shardings it is read with; None stands for a reader that may need the full array.
    read: dict[Any, set] = {v: {None} for v in program.outvars if type(v) is not Literal}
    for eqn in program.eqns:
        reads = eqn.primitive.operand_shardings
        ways: Sequence[Any] = (None,) * len(eqn.invars) if reads is None else reads(**eqn.params)
        for atom, way in zip(eqn.invars, ways, strict=True):
            if type(atom) is not Literal:
                is_attached = way is not None and not is_abstract(way) and way._device_assignment == devices
                read.setdefault(atom, set()).add(way if is_attached else None)
    found = [read.get(v, {None}) for v in program.invars]
    return {i: s for i, held in enumerate(found) if len(held) == 1 and (s := next(iter(held))) is not None}


def _same_or(held: Sharding | None, wanted: Sharding, aval: ShapedArray) -> Any:
    """`held` if it is equivalent to `wanted`, which avoids a transfer, else `wanted`."""
    is_same = held is not None and held.is_equivalent_to(wanted, physical_aval(aval).ndim)
    return held if is_same else wanted


def _check_committed(t: ArrayType, declared: Sharding | None, devices: tuple, name: str) -> None:
    held = t.sharding
    if declared is not None and not held.is_equivalent_to(declared, physical_aval(t.aval).ndim):
        wanted, found = (
            f"{s} on {device_names(s._device_assignment)}" if str(held) == str(declared) else s
            for s in (declared, held)
        )
        raise ShardingError(
            name,
            expected=f"an array with the declared sharding {wanted}",
            got=f"{t.aval.str_short()} committed to {found}",
            fix="reshard it with device_put, or pass None for this argument in in_shardings",
        )
    if set(held._device_assignment) != set(devices):
        raise _different_devices(name, held, devices)


def _check_devices(shardings: Sequence[Any], devices: tuple, names: Callable[[int], str]) -> None:
    for i, s in enumerate(shardings):
        if s is not None and set(s._device_assignment) != set(devices):
            raise _different_devices(names(i), s, devices)


def _different_devices(name: str, sharding: Sharding, devices: tuple) -> ShardingError:
    return ShardingError(
        name,
        expected=f"the devices of the computation, {device_names(devices)}",
        got=f"{sharding} on {device_names(sharding._device_assignment)}",
        fix="move all arguments to one set of devices with device_put, or use shardings over one mesh",
    )
