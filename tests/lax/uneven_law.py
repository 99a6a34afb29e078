"""The law of uneven sizes: operands of any size, split over any mesh, give the values and gradients of one device.

A case of the other laws is drawn again in other sizes: its sharding rule tells which dimensions have one size. Several
cases are compiled as one program, since compiling takes nearly all of the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from tests.lax.cases import Case
from tests.lax.laws import apply, close, localized
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.aval import get_aval
from phalanx.core.primitive import Undefined, infer_result
from phalanx.sharding import NamedSharding, P
from phalanx.testing import collectives

MESHES = [(1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,), (2, 2), (2, 3), (4, 2), (2, 4)]


def check_uneven(cases: Sequence[Case], random: Random) -> None:
    """Check the law for some cases, in sizes from 0 to 20 and on a mesh of 1 to 8 devices that `random` draws.

    No shard is larger than its share, rounded up. The collectives send at most as many bytes as those of the next
    sizes that the mesh divides, where the primitives take these, or as many as `allow` says. Dimensions
    of one element are left out (`round_up`).
    """
    sizes = random.choice(MESHES)
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    cases = [resize(case, lambda _: random.randint(0, 20)) for case in cases]
    placed = [place(case, mesh, random) for case in cases]
    drawn = [(case, args, round_up(case, args)) for case, args in zip(cases, placed, strict=True)]
    for is_compared in (True, False):
        check_program([row for row in drawn if (row[2] is not None) == is_compared])


def check_program(drawn: Sequence[tuple[Case, list, tuple[Case, list] | None]]) -> None:
    """Check cases with their operands on a mesh and, for all or for none, their even form."""
    if not drawn:
        return
    cases, placed, even = zip(*drawn, strict=True)
    uneven = phalanx.jit(program(cases)).lower(placed).compile()
    got, want = uneven(placed), phalanx.jit(program(cases))([case.args for case in cases])
    for case, args, results, wanted in zip(cases, placed, got, want, strict=True):
        for i, (y, w) in enumerate(zip(results, wanted, strict=True)):
            what = f"{case.id} over {[str(x.sharding) for x in args]}: result {i}"
            close(what, y, w, 1e-4 if w.dtype.itemsize < 8 else 1e-8)
    for x in phalanx.tree.leaves((placed, got)):
        if not isinstance(x.sharding, NamedSharding):  # the result of a program without operands
            continue
        mesh, dims = x.sharding.mesh, x.sharding.spec.axes_per_dim(x.ndim)
        share = np.prod([-(-n // mesh.num_parts(axes)) for n, axes in zip(x.shape, dims, strict=True)])
        assert max(shard.data.size for shard in x.addressable_shards) <= share, f"{x.sharding}: a shard is too large"
    if even[0] is None:
        return
    rounded, on_mesh = zip(*even, strict=True)
    sent = collectives(uneven).bytes
    allowed = collectives(phalanx.jit(program(rounded)).lower(on_mesh).compile()).bytes
    if sent > allowed and len(drawn) > 1:
        for row in drawn:  # each may send more for another reason
            check_program([row])
        return
    if sent > allowed:
        allowed = allow(cases[0], placed[0], got[0], allowed)
    assert sent <= allowed, f"{cases[0].id}: sends {sent} bytes, and {rounded[0].id} sends {allowed}"


# Primitives whose result, or update, may have a dimension of another size than their operand. At the next even size the
# shards of both may begin at the same elements; at an uneven one they may not, and elements must be sent even if nothing
# else is. docs/decisions/0018-bytes-of-uneven-programs.md has the proof.
MOVING = {"slice", "pad", "concatenate", "split", "reshape"}
WINDOWS = {"reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"}
AT_POSITIONS = {"dynamic_slice", "dynamic_update_slice"}


def allow(case: Case, placed: Sequence[Any], results: Sequence[Any], even: int) -> int:
    """The bytes that a case may send whose even form sends `even`.

    A primitive that only moves elements may send the least that any program must, if that is more: for its gradient the
    same, in the other direction. Windows may send what they do at the even size, and then the results to their own
    shards. Where the program computes the position of a slice, its elements may be on any device: each may receive it
    along the dimensions that it is a part of, filled to equal shards.
    """
    if len({x.shape for x in (*placed, *results) if x.ndim}) == 1:
        return even
    if case.primitive.name in MOVING | WINDOWS:
        least = (1 + bool(case.order)) * sum(least_sent(case, placed, results))
        # The gradient of the value of padding is a sum in any size.
        return max(even, least) if case.primitive.name in MOVING - {"pad"} else even + least
    if case.primitive.name not in AT_POSITIONS:
        return even
    x, part = placed[0], placed[1] if case.primitive.name == "dynamic_update_slice" else results[0]
    shard, padded = x.sharding.shard_shape(x.shape), part.sharding.padded_shape(part.shape)
    sizes = [share if n == whole else m for n, whole, m, share in zip(part.shape, x.shape, padded, shard, strict=True)]
    return even + (1 + bool(case.order)) * math.prod(sizes) * x.dtype.itemsize


def find_sources(case: Case, numbers: Sequence[np.ndarray], results: Sequence[Any]) -> list[np.ndarray]:
    """For each element of the results, the number of an operand's element that it cannot be computed without.

    A primitive that moves elements is applied to numbers instead of elements. A window without padding before it has
    its first element to itself, if later windows are computed first, and one with as much padding as it can have its
    last. So a device that receives windows receives at least as many numbers as they have such elements elsewhere (the
    derivative of the one in the other is triangular); of windows with other padding nothing is claimed.
    """
    if case.primitive.name in MOVING:
        if case.primitive.name == "pad":
            numbers[1][...] = 0  # each device has the value of the padding
        return list(apply(case, *map(jnp.asarray, numbers)))
    found = []
    num_operands = len(numbers) // 2 if case.primitive.name == "reduce_window" else 1
    for x, y in zip(numbers[:num_operands], results, strict=False):
        sources = np.zeros(y.shape, np.int32)
        at = []
        for d, n in enumerate(y.shape):
            size, stride, dilation = (
                case.params[f"window_{name}"][d] for name in ("dimensions", "strides", "dilation")
            )
            is_alone = (
                case.params["padding"][d][0] in (0, (size - 1) * dilation) and case.params["base_dilation"][d] == 1
            )
            at.append(range(0, min(stride * n, x.shape[d]) if is_alone or n == x.shape[d] else 0, stride))
        sources[tuple(slice(len(r)) for r in at)] = x[np.ix_(*at)]
        found.append(sources)
    return found


def least_sent(case: Case, placed: Sequence[Any], results: Sequence[Any]) -> list[int]:
    """For each result, the bytes that some device must receive, or send, since it is not given what it returns."""
    sizes = [a.size for a in case.args]
    numbers = [
        np.arange(1 + sum(sizes[:i]), 1 + sum(sizes[: i + 1]), dtype=np.int32).reshape(a.shape)
        for i, a in enumerate(case.args)
    ]
    found = []
    for source, y in zip(find_sources(case, numbers, results), results, strict=False):
        held = defaultdict(set)  # by device
        for number, x in zip(numbers, placed, strict=True):
            for device, index in x.sharding.devices_indices_map(x.shape).items():
                held[device] |= {*number[index].ravel().tolist(), 0}
        received, sent = defaultdict(int), defaultdict(int)
        for device, index in y.sharding.devices_indices_map(y.shape).items():
            missing = {*np.asarray(source)[index].ravel().tolist()} - held[device]
            received[device] = len(missing)
            for number in missing:
                owners = [other for other in held if number in held[other]]
                for owner in owners:
                    sent[owner] += 1 / len(owners)
        found.append(int(np.ceil(max([0, *received.values(), *sent.values()]))) * y.dtype.itemsize)
    return found


def program(cases: Sequence[Case]) -> Callable:
    """A function of the operands of each case, to its results and gradients."""

    def values_and_gradients(case: Case, args: Sequence[Any]) -> list:
        varied = [i for i, a in enumerate(case.args) if a.dtype.kind == "f" and (case.wrt is None or i in case.wrt)]

        def loss(inexact: Sequence, args: Sequence) -> Any:
            args = [inexact[varied.index(i)] if i in varied else a for i, a in enumerate(args)]
            out = [y for y in apply(case, *args) if np.dtype(y.dtype).kind in "fc"]
            return sum(jnp.sum(jnp.cos(jnp.real(y))) for y in out)

        gradients = phalanx.grad(loss)([args[i] for i in varied], args) if case.order and varied else []
        return [*apply(case, *args), *gradients]

    return lambda all_args: [values_and_gradients(case, args) for case, args in zip(cases, all_args, strict=True)]


def place(case: Case, mesh: Any, random: Random) -> list:
    """The operands on a mesh, each of whose axes splits a dimension, or none."""
    placed = []
    for a in case.args:
        dims: list[list] = [[] for _ in range(a.ndim + 1)]
        for axis in random.sample(mesh.axis_names, len(mesh.axis_names)):
            dims[random.randint(0, a.ndim)].append(axis)
        x = phalanx.device_put(a, NamedSharding(mesh, P(*map(tuple, dims[:-1]))))
        close("an operand put on the mesh", x, a)
        placed.append(x)
    return placed


def resize(case: Case, size_of: Callable) -> Case:
    """The case with dimensions of other sizes, where the primitive takes them; elements repeat, or are left out.

    Args:
      case: the case.
      size_of: gives the size of a factor of the sharding rule.
    """
    primitive = case.primitive
    if isinstance(primitive.sharding_rule, Undefined):
        return case
    rule = primitive.sharding_rule(*map(get_aval, case.args), **case.params)
    # Parameters depend on these sizes, kernels must have elements, and matrices must stay regular.
    is_fixed = {"convolution", "fft", "linalg"} & {*type(primitive).__module__.split(".")}
    fixed = {*rule.whole} if is_fixed else set()
    if case.params.get("unique_indices"):
        fixed |= {*rule.operands[1]}
    for factor in dict.fromkeys(name for names in rule.operands for name in names if name not in fixed):
        size = size_of(factor)
        args = case.args
        for dim in range(max(a.ndim for a in args)):
            args = [
                np.take(a, np.arange(size) % a.shape[dim], dim) if factor in names[dim : dim + 1] else a
                for a, names in zip(args, rule.operands, strict=True)
            ]
        changed = replace(case, args=tuple(args), params=localized(case.params, rule, factor, size))
        try:
            infer_result(primitive, tuple(map(get_aval, changed.args)), changed.params)
        except (ValueError, TypeError):
            continue
        case = changed
    return case


def round_up(case: Case, placed: Sequence[Any]) -> tuple[Case, list] | None:
    """The case and its operands in the next sizes that the mesh divides.

    Returns:
      None if the primitive does not take them, or if operands are split differently along a factor, or compete for an
      axis: then elements are exchanged in any size, and how many depends on where the shards begin. None also if a
      dimension of one element is split: a result of that size is held by all devices, and must be sent to them.
    """
    if isinstance(case.primitive.sharding_rule, Undefined):
        return None
    rule = case.primitive.sharding_rule(*map(get_aval, case.args), **case.params)
    split: dict[Any, set] = defaultdict(set)  # mesh axes to factors
    splits: dict[Any, set] = defaultdict(set)  # factors to the axes of each operand
    parts, sizes = defaultdict(lambda: 1), {}
    for names, x in zip(rule.operands, placed, strict=True):
        for factor, n, axes in zip(names, x.shape, x.sharding.spec.axes_per_dim(x.ndim), strict=True):
            parts[factor], sizes[factor] = np.lcm(parts[factor], x.sharding.mesh.num_parts(axes)), n
            if n == 1 < x.sharding.mesh.num_parts(axes):
                return None
            for axis in axes:
                split[axis].add(factor)
                splits[factor].add(axes)
    if any(len(found) > 1 for found in (*split.values(), *splits.values())):
        return None
    even = resize(case, lambda factor: -(-sizes[factor] // parts[factor]) * parts[factor])
    if any(x.sharding.padded_shape(a.shape) != a.shape for a, x in zip(even.args, placed, strict=True)):
        return None
    return even, [phalanx.device_put(a, x.sharding) for a, x in zip(even.args, placed, strict=True)]
