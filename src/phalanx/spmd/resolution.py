"""Resolution: which devices and shardings a compiled call gets.

Declared shardings win, then those of committed arguments; what is left open follows. Contradictions are errors that
name both sides. Used by `jit`, by the stages and by the `jit` primitive when it runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ShardingError
from phalanx.core.jaxpr import Jaxpr, Literal, derivation
from phalanx.core.trace import Tracer
from phalanx.lax import reshard_p
from phalanx.lax.constraint import sharding_prefix
from phalanx.runtime import placement
from phalanx.runtime.array import ArrayType
from phalanx.runtime.devices import common_devices, device_names, named_sharding
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.memories import near
from phalanx.runtime.stand_ins import is_abstract
from phalanx.sharding import UNSPECIFIED, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from phalanx.tree import keystr, tree_flatten_with_path, tree_leaves, tree_map


def prefix_shardings(spec: Any, tree: Any, what: str) -> tuple:
    """For each leaf of `tree` the sharding that a prefix tree of specs gives it; None where it is left open.

    Args:
      spec: a prefix of `tree` whose leaves are shardings, specs, None or UNSPECIFIED.
      tree: the arguments or results.
      what: what the prefix is called, for messages.

    Raises:
      ShardingError: a bare spec without a mesh, or a spec that does not fit its leaf.
      TreeError: `spec` is no prefix of `tree`.
    """
    leaves = tree_flatten_with_path(tree)[0]
    if spec is UNSPECIFIED or spec is None:
        return (None,) * len(leaves)
    flat = sharding_prefix(spec, tree, what)
    for s, (path, leaf) in zip(flat, leaves, strict=True):
        if s is not None:
            s.shard_shape(np.shape(leaf), where=f"{what}{keystr(path)}")
    return tuple(flat)


def declared_shardings(options: dict, which: str, tree: Any) -> tuple:
    """`prefix_shardings` of what `jit` was told as `which`, under the name by which the user told it."""
    return prefix_shardings(options[which], tree, options.get("spelling", {}).get(which, which))


def declared_inputs(options: dict, call: Any, args: tuple, kwargs: dict, name: str) -> tuple:
    """For each leaf of a call's arguments the sharding that `in_shardings` gives it, or None.

    Raises:
      ArgumentError: an argument that has a position comes by keyword, so that what is declared would not reach it.
    """
    given, count = options["in_shardings"], len(tree_leaves(kwargs))
    is_for_all = isinstance(given, SingleDeviceSharding)  # jit(..., device=...)
    if given is not UNSPECIFIED and given is not None and not is_for_all:
        placed = [p.name for p in call.signature.parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if named := [key for key in placed if key in kwargs]:
            spelled = options.get("spelling", {}).get("in_shardings", "in_shardings")
            raise ArgumentError(
                f"{name}, argument {named[0]}",
                expected=f"it by position, since {spelled} is for the positional arguments",
                got="it by keyword",
                mend=f"pass it by position, or place it with device_put and leave {spelled} out",
            )
    found = declared_shardings(options, "in_shardings", args)
    return (*found, *([given if is_for_all else None] * count))


def declared_types(avals: Sequence[ShapedArray], call: Any, options: dict, name: str) -> tuple:
    """The types of a function's arguments, with the shardings over Explicit axes that `in_shardings` gives them.

    Raises:
      ShardingError: the type of a traced argument has another sharding; concrete ones are compared when placed.
    """
    if options["in_shardings"] is UNSPECIFIED or options["in_shardings"] is None:
        return tuple(avals)
    args, kwargs = tree_map(aval_of, call.dynamic())
    shardings = declared_inputs(options, call, args, kwargs, name)
    out = list(avals)
    for i, (a, s) in enumerate(zip(avals, shardings, strict=True)):
        in_type = None if s is None else s.as_type(a.ndim)
        if in_type is None:
            continue
        if a.sharding is not None and a.sharding is not in_type and isinstance(call.leaves[i], Tracer):
            raise ShardingError(
                f"{name}, argument {call.path(i)}",
                expected=f"an array with the declared sharding {s.spec}",
                got=a.str_short(),
                mend="reshard it with phalanx.reshard, or leave the sharding of this argument open",
            )
        out[i] = a.update(sharding=in_type)
    return tuple(out)


def split_as_declared(leaves: Sequence[Any], tree: Any, options: dict) -> list:
    """A function's results, resharded where `out_shardings` is over Explicit axes."""
    if options["out_shardings"] is UNSPECIFIED or options["out_shardings"] is None:
        return list(leaves)
    shardings = declared_shardings(options, "out_shardings", tree_map(aval_of, tree))
    return [
        reshard_p(x, sharding=s) if s is not None and s.as_type(aval_of(x).ndim) is not None else x
        for x, s in zip(leaves, shardings, strict=True)
    ]


def resolve(
    program: Jaxpr,
    types: Sequence[ArrayType],
    declared: Sequence[Any],
    out_declared: Sequence[Any],
    names: Callable[[int], str],
    result_names: Callable[[int], str],
    absent: Any = None,
) -> tuple[tuple, list, bool]:
    """Choose devices and input shardings for a call.

    Args:
      program: the program.
      types: the types of the arguments.
      declared, out_declared: for each input and output the sharding asked for, or None.
      names, result_names: what the user calls argument and result `i`.
      absent: a sharding over the devices where nothing says them.

    Returns:
      The devices, a sharding for each input, and whether the results count as committed.

    Raises:
      ShardingError: arguments on different devices, or an argument whose placement contradicts the declared one.
    """
    wanted = next((s for s in (*declared, *out_declared) if s is not None), None)
    if wanted is None:
        wanted = named_sharding(program)
    devices, committed = common_devices(types, names) if wanted is None else (None, True)
    if devices is None and wanted is None and isinstance(state.context.mesh, Mesh):
        # Nothing says where, but the user does.
        wanted, committed = NamedSharding(state.context.mesh, PartitionSpec()), True
    if devices is None:
        wanted = wanted or absent
        devices = tuple((wanted or placement.default_sharding())._device_assignment)
    whole = placement.everywhere(devices, (wanted, *declared, *out_declared, *(t.sharding for t in types)))
    pieces = _read_in_pieces(program, devices)
    out = []
    _check_devices(declared, devices, names)
    _check_devices(out_declared, devices, result_names)
    for i, (t, d) in enumerate(zip(types, declared, strict=True)):
        if t.committed:
            _check_committed(t, d, devices, names(i))
        if d is not None:
            out.append(_same_or(t.sharding, d, t.aval))
        elif t.sharding is not None and len(devices) > 1 and t.sharding.device_set == set(devices):
            out.append(near(t.sharding))
        else:
            out.append(_same_or(t.sharding, pieces.get(i, whole), t.aval))
    return devices, out, committed


def loosened(types: Sequence[ArrayType], declared: Sequence[Any]) -> Sequence[ArrayType]:
    """The types of arguments that go to where they are declared from wherever the user has put them."""
    return types if all(s is None for s in declared) else [ArrayType(t.aval, t.sharding, False) for t in types]


@derivation
def _read_in_pieces(program: Jaxpr, devices: tuple) -> dict[int, NamedSharding]:
    """The inputs that all who read them read in pieces, by one sharding: these need not be whole anywhere."""
    if len(devices) == 1:
        return {}
    read: dict[Any, set] = {v: {None} for v in program.outvars if type(v) is not Literal}
    for eqn in program.eqns:
        reads = eqn.primitive.reads
        ways: Sequence[Any] = (None,) * len(eqn.invars) if reads is None else reads(**eqn.params)
        for atom, way in zip(eqn.invars, ways, strict=True):
            if type(atom) is not Literal:
                is_here = way is not None and not is_abstract(way) and way._device_assignment == devices
                read.setdefault(atom, set()).add(way if is_here else None)
    found = [read.get(v, {None}) for v in program.invars]
    return {i: s for i, held in enumerate(found) if len(held) == 1 and (s := next(iter(held))) is not None}


def _same_or(held: Any, wanted: Any, aval: ShapedArray) -> Any:
    """`held` where it is the same placement as `wanted`, so that nothing moves."""
    if held is None or held is wanted:
        return wanted
    ndim = physical_aval(aval).ndim
    return held if held.is_equivalent_to(wanted, ndim) else wanted


def _check_committed(t: ArrayType, declared: Any, devices: tuple, name: str) -> None:
    held = t.sharding
    if declared is not None and not held.is_equivalent_to(declared, physical_aval(t.aval).ndim):
        wanted, found = (
            f"{s} on {device_names(s._device_assignment)}" if str(held) == str(declared) else s
            for s in (declared, held)
        )
        raise ShardingError(
            name,
            expected=f"an array with the declared sharding {wanted}",
            got=f"{t.aval} committed to {found}",
            mend="reshard it with device_put, or leave the sharding of this argument open",
        )
    if set(held._device_assignment) != set(devices):
        raise _different_devices(name, held, devices)


def _check_devices(shardings: Sequence[Any], devices: tuple, names: Callable[[int], str]) -> None:
    for i, s in enumerate(shardings):
        if s is not None and set(s._device_assignment) != set(devices):
            raise _different_devices(names(i), s, devices)


def _different_devices(name: str, sharding: Any, devices: tuple) -> ShardingError:
    return ShardingError(
        name,
        expected=f"devices of the computation, {device_names(devices)}",
        got=f"{sharding} on {device_names(sharding._device_assignment)}",
        mend="bring all arguments to one set of devices with device_put, or give shardings over one mesh",
    )


def resolve_inner(
    program: Jaxpr, types: Sequence[ArrayType], declared: Sequence[Any], out_declared: Sequence[Any], name: str
) -> tuple[tuple, list, bool]:
    """`resolve` for a call that is bound by a rule, where arguments have no names of the user's."""
    return resolve(
        program, types, declared, out_declared, lambda i: f"{name}, input {i}", lambda i: f"{name}, result {i}"
    )
