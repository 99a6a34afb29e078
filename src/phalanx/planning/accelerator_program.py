"""The program that an accelerator would run, from one that XLA for CPUs compiled in its place without fusions.

XLA for CPUs partitions a program as other compilers do. It differs in what it stores: it fuses other operations, reads
and writes products of 16 bits with 32, has no reduce-scatter, and runs the kernels in another order. So
`engine.offline_compiler` asks it for the operations one by one, and this module puts them together as XLA for GPUs
does, by the rules of its passes, which have their names here:

1. A product of which all readers take 16 bits has a result of 16 bits.
2. A product with few results and long sums is computed in parts, which are stored in 32 bits (`SplitkRewriter`).
3. An all-reduce of which each device reads one part is a reduce-scatter (`ReduceScatterCreator`).
4. What all readers can take with them is computed in these, and not stored (`PriorityFusion`, which computes it again
   rather than start another kernel). Products take what moves or maps single elements (`GemmFusion`).
5. `latency_hiding` has the order of the kernels.

In the module that this makes, parts of stored values, and values in other dtypes, are bitcasts of them.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import re
from collections.abc import Sequence
from typing import TypeAlias

from phalanx.engine.hlo_collectives import KINDS, find_groups
from phalanx.engine.hlo_instructions import Computation, Instruction, element_index, num_bytes, numbers
from phalanx.engine.hlo_parser import HloModule
from phalanx.planning.latency_hiding import schedule
from phalanx.planning.machines import Gpu, Machine
from phalanx.planning.traffic import Traffic, type_bits

_NARROW = ("bf16", "f16")
_MOVES = frozenset("bitcast convert copy dynamic-slice reshape slice transpose".split())
# What is never a part of a fusion: kernels of their own, and instructions that only name buffers.
_NAMING = frozenset(
    "add-dependency after-all constant get-tuple-element opt-barrier parameter partition-id replica-id".split()
)
_KERNELS = frozenset(
    "all-gather all-reduce all-to-all call cholesky collective-broadcast collective-permute conditional convolution "
    "custom-call dot fft fusion infeed outfeed ragged-all-to-all recv reduce-scatter rng-bit-generator send sort "
    "triangular-solve tuple while".split()
)
# What can only be the end of a fusion.
_ENDS = frozenset("dynamic-update-slice reduce reduce-window scatter select-and-scatter".split())
_CONTRACTED, _BATCHED = (re.compile(rf"(?<=\blhs_{kind}_dims=\{{)[\d,]*") for kind in ("contracting", "batch"))
# How XLA weighs the memory traffic of a product, that of the sum of its parts, and the launch of this sum, where an
# operation weighs 100 (`GetCostWeights`), by the major compute capability.
_WEIGHTS = {8: (0.0666955, 467.815, 5.65307e7), 9: (0.194136, 193.1384, 4.36e7), 10: (0.0848863, 189.711, 1.21563e8)}
_TILE = 128
_INDEX = re.compile(r"\bindex=\d+")

_Readers: TypeAlias = dict[str, list[str]]


def model_program(module: HloModule, machine: Machine, num_devices: int) -> HloModule:
    """The program that an accelerator would run.

    Args:
      module: the program without fusions, scheduled.
      machine: the accelerator. Only GPUs compute products in parts.
      num_devices: the number of devices of the program.

    Returns:
      The program with fusions and asynchronous collectives.
    """
    module = copy.copy(module)
    module.computations = {name: _unwrap(c, module) for name, c in module.computations.items()}
    found = copy.copy(module)
    callers = [i for c in module.computations.values() for i in c.values()]
    run = {module.entry, *(i.callee("body") for i in callers), *(x for i in callers for x in i.callees)}
    traffic = Traffic(module)

    def seconds(name: str, computation: Computation) -> float:
        of = computation[name]
        if of.opcode in KINDS:
            size = max(num_bytes(of.type), sum(num_bytes(computation[x].type) for x in of.operands))
            return machine.collective_seconds(of.opcode, size, find_groups(of) or (range(num_devices),))
        flops, width = traffic.contraction(of, computation)
        return max(machine.contraction_seconds(flops, width), traffic.moved_bytes(of, computation) / machine.bandwidth)

    found.computations = {
        name: schedule(_fuse(_scatter_sums(_split_products(c, machine.gpu))), seconds) if name in run else c
        for name, c in module.computations.items()
    }
    return found


def _unwrap(computation: Computation, module: HloModule) -> Computation:
    """A computation with the operations themselves, of which newer versions of XLA for CPUs make a fusion each."""
    found: Computation = {}
    for name, of in computation.items():
        inside = module.computations[of.callees[0]] if of.opcode == "fusion" else {}
        operations = [i for i in inside.values() if i.opcode != "parameter"]
        if len(operations) == 1:
            (only,) = operations
            operands = [of.operands[int(inside[x].operand_text)] for x in only.operands]
            of = only._replace(operand_text=", ".join(operands), is_root=of.is_root)
        found[name] = of
    return found


def _split_products(computation: Computation, gpu: Gpu | None) -> Computation:
    """A computation whose products have results of 16 bits where no more is read, and parts where a GPU has them."""
    readers, merged = _find_readers(computation), _find_merged(computation)
    found: Computation = {}
    for name, of in computation.items():
        if of.opcode in ("dot", "convolution") and of.type.startswith("f32"):
            of = of._replace(type=_with_dtype(of.type, _dtype_read(name, computation, readers) or "f32"))
        if of.opcode == "dot" and gpu is not None and (parts := _count_parts(merged[name], computation, gpu)) > 1:
            lhs, dim = of.operands[0], int(_CONTRACTED.search(of.rest)[0])  # type: ignore[index]
            sizes = _sizes(computation[lhs].type)
            sizes[dim : dim + 1] = parts, -(-sizes[dim] // parts)
            view = _with_dtype(f"[{','.join(map(str, sizes))}]", computation[lhs].type)
            found[f"{name}.lhs"] = Instruction(view, "bitcast", lhs, "", False)
            operands = ", ".join((f"{name}.lhs", *of.operands[1:]))
            rest = _CONTRACTED.sub(str(dim + 1), of.rest)
            stored = of.type.replace("[", f"[{parts},", 1)
            found[f"{name}.parts"] = Instruction(_with_dtype(stored, "f32"), "dot", operands, rest, False)
            of = of._replace(opcode="add", operand_text=f"{name}.parts")
        found[name] = of
    return found


def _find_merged(computation: Computation) -> dict[str, list[Instruction]]:
    """The products that are computed as one with each: independent ones that share an operand (`DotMerger`)."""
    before: dict[str, int] = {}  # the products that each instruction depends on, as bits
    groups: dict[tuple[str, ...], tuple[int, list[Instruction]]] = {}
    found: dict[str, list[Instruction]] = {}
    for name, of in computation.items():
        depends = functools.reduce(operator.or_, (before.get(x, 0) for x in of.operands), 0)
        before[name] = depends
        if of.opcode == "dot":
            before[name] |= 1 << len(found)
            dims = of.rest.partition("), ")[2].partition(", metadata")[0]
            for side, x in enumerate(of.operands):
                members, group = groups.get((str(side), x, dims), (0, []))
                if not group or not members & depends:
                    groups[str(side), x, dims] = members | 1 << len(found), group
                    group.append(of)
                    found.setdefault(name, group)
    return found


def _count_parts(merged: Sequence[Instruction], computation: Computation, gpu: Gpu) -> int:
    """In how many parts XLA for GPUs computes a product: in as many as cost least (`ChooseSplitK`)."""
    of = merged[0]
    sides = [_sizes(computation[x].type) for x in of.operands[:2]]
    contracted, batched = (numbers(found[0]) if (found := p.search(of.rest)) else [] for p in (_CONTRACTED, _BATCHED))
    if len(contracted) != 1 or type_bits(of.type) > 32:
        return 1
    length, batch = sides[0][contracted[0]], math.prod(sides[0][d] for d in batched)
    operands = [{i.operands[side] for i in merged} for side in (0, 1)]
    sizes = [[math.prod(_sizes(computation[x].type)) for x in xs] for xs in operands]
    rows, columns = (sum(own) // (length * batch) for own in sizes)
    tile = min(rows, _TILE) * min(columns, _TILE)
    tiles = batch * -(-rows // _TILE) * -(-columns // _TILE)
    results = batch * rows * columns
    sources = [type_bits(computation[_find_stored(x, computation, "dot")].type) for x in of.operands[:2]]
    read = sum(sum(own) * bits // 8 for own, bits in zip(sizes, sources, strict=True))
    traffic, reduction, launch = _WEIGHTS[min(max(gpu.capability[0], 8), 10)]

    def cost(parts: int) -> float:
        waves = max(1.0, tiles * parts * tile / (gpu.cores * _TILE**2))
        work = 100 * 2 * tile * -(-length // parts) * waves
        written, sums = results * type_bits(of.type) // 8, results * 4 * parts
        moving = traffic * (read + (written if parts == 1 else sums))
        return max(work, moving) + (0 if parts == 1 else launch + reduction * (sums + written))

    return min((2**n for n in range(12)), key=cost)


def _scatter_sums(computation: Computation) -> Computation:
    """A computation with reduce-scatters in the place of all-reduces of which each device reads one part."""
    readers = _find_readers(computation)
    found: Computation = {}
    elements: Computation = {}
    for name, of in computation.items():
        if of.opcode != "all-reduce" or not (groups := find_groups(of)):
            found[name] = elements.get(name, of)
            continue
        size = len(groups[0])
        if not of.type.startswith("("):
            is_scattered = _is_read_in_parts(name, computation, readers, size)
            found[name] = of._replace(opcode="reduce-scatter", type=_divide(of.type, size)) if is_scattered else of
            continue
        values = {element_index(computation[x]): x for x in readers[name]}
        scattered = [n for n, x in values.items() if _is_read_in_parts(x, computation, readers, size)]
        kept = [n for n in range(len(of.operands)) if n not in scattered]
        for kind, numbers_, parts in (("all-reduce", kept, 1), ("reduce-scatter", sorted(scattered), size)):
            operands = [of.operands[n] for n in numbers_]
            types = [_divide(computation[x].type, parts) for x in operands]
            if operands:
                found[f"{name}.{kind}"] = of._replace(
                    opcode=kind, operand_text=", ".join(operands), type=f"({', '.join(types)})"
                )
            for index, n in enumerate(numbers_):
                if n in values:
                    rest = _INDEX.sub(f"index={index}", computation[values[n]].rest)
                    elements[values[n]] = Instruction(types[index], "get-tuple-element", f"{name}.{kind}", rest, False)
    return found


def _is_read_in_parts(name: str, computation: Computation, readers: _Readers, parts: int) -> bool:
    """Whether each instruction that reads a value takes the same fraction of it."""
    size = math.prod(_sizes(computation[name].type))
    return name in readers and all(
        math.prod(_sizes(computation[x].type)) * parts == size
        if computation[x].opcode == "dynamic-slice"
        else computation[x].opcode in _MOVES and _is_read_in_parts(x, computation, readers, parts)
        for x in readers[name]
    )


def _fuse(computation: Computation) -> Computation:
    """A computation with the values that are stored, views of them, and what each is computed from."""
    stored = {name for name, i in computation.items() if i.is_root or i.opcode in _KERNELS | _NAMING | _ENDS}
    for of in computation.values():
        if of.opcode in _KERNELS:
            stored |= {_find_stored(x, computation, of.opcode) for x in of.operands if x in computation}
        elif of.opcode in ("dynamic-update-slice", "scatter"):  # which writes into the first operand
            stored.add(_find_stored(of.operands[0], computation, of.opcode))
    found: Computation = {}
    sources: dict[str, list[str]] = {}
    for name, of in computation.items():
        inputs = [x for x in of.operands if x in computation]
        read = list(dict.fromkeys(source for x in inputs for source in sources[x]))
        if name in stored:
            found[name] = of._replace(operand_text=", ".join(read)) if read else of
            sources[name] = [name]
        elif of.opcode in _MOVES and _has_size(sources[inputs[0]], found, computation[inputs[0]].type):
            (source,) = sources[inputs[0]]
            type = _with_dtype(of.type, found[source].type)
            found[name] = of._replace(type=type, opcode="bitcast", operand_text=source)
            sources[name] = [name]
        else:
            sources[name] = read
    return found


def _find_stored(name: str, computation: Computation, kernel: str) -> str:
    """The value that a kernel reads from memory for one of its operands."""
    while True:
        of = computation[name]
        inputs = [x for x in of.operands if x in computation]
        maps = (
            len(inputs) == 1 and of.opcode not in _KERNELS | _NAMING | _ENDS and _has_size(inputs, computation, of.type)
        )
        moves = of.opcode in _MOVES and kernel in ("dot", "convolution")
        if not (of.opcode == "bitcast" or moves or (maps and kernel == "dot")):
            return name
        name = inputs[0]


def _has_size(names: list[str], computation: Computation, type: str) -> bool:
    """Whether there is one value, with as many elements as a type."""
    return len(names) == 1 and math.prod(_sizes(computation[names[0]].type)) == math.prod(_sizes(type))


def _dtype_read(name: str, computation: Computation, readers: _Readers) -> str:
    """The dtype of 16 bits to which all readers of a value convert it; "" if there is none."""
    found = set()
    for x in readers.get(name, ()):
        user = computation[x]
        dtype = user.type.partition("[")[0]
        if user.opcode == "convert":
            found.add(dtype if dtype in _NARROW else "")
        else:
            found.add(_dtype_read(x, computation, readers) if user.opcode in _MOVES else "")
    return found.pop() if len(found) == 1 else ""


def _find_readers(computation: Computation) -> _Readers:
    """The instructions that read each value."""
    found: _Readers = {}
    for name, of in computation.items():
        for x in dict.fromkeys(of.operands):
            found.setdefault(x, []).append(name)
    return found


def _sizes(type: str) -> list[int]:
    """The sizes of an array type."""
    return numbers(type.partition("[")[2])


def _with_dtype(type: str, other: str) -> str:
    """An array type with the dtype of another."""
    return f"{other.partition('[')[0]}[{type.partition('[')[2]}"


def _divide(type: str, parts: int) -> str:
    """The type of one of several equal parts of an array."""
    sizes = _sizes(type)
    split = next((d for d, n in enumerate(sizes) if n % parts == 0), 0)
    sizes[split : split + 1] = [-(-n // parts) for n in sizes[split : split + 1]]
    return _with_dtype(f"[{','.join(map(str, sizes))}]", type)
