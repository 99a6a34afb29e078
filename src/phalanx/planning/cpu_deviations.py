"""What XLA for CPUs does otherwise than XLA for accelerators, where it plans a program in their place.

It multiplies values of 16 bits as values of 32, and it has no reduce-scatter: it reduces the complete value and takes a
slice, and it combines all-reduces however large they are. A plan for another target counts such values at 16 bits, and
such pairs as one reduce-scatter, which runs as soon as its operand is there.

Other operations on bfloat16 it widens as well; see `engine.offline_compiler` for what prevents that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

from phalanx.engine.hlo_collectives import Communication, find_groups
from phalanx.engine.hlo_instructions import (
    Computation,
    Instruction,
    element_index,
    find_parameter_name,
    find_root_name,
    num_bytes,
    numbers,
)
from phalanx.engine.hlo_parser import Execution, HloModule
from phalanx.planning.traffic import ELEMENTWISE, Traffic

_NARROW = ("bf16", "f16")
_FORWARDING = ("all-gather", "all-to-all", "bitcast", "broadcast", "collective-permute", "copy", "reshape", "transpose")


class _Place(NamedTuple):
    """An instruction of a fusion, and the fusion; without one, of the computation around it."""

    name: str
    computation: Computation
    fusion: Instruction | None = None
    around: Computation | None = None


class AsCompiled:
    """A module whose compiler is the one that answers for its devices.

    Args:
      module: the module.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module

    def operand_bits(self, of: Instruction, computation: Computation) -> int:
        """The bits of the operands of a product."""
        return type_bits(computation[of.operands[0]].type)

    def communications(self, run: Execution, found: Communication) -> Iterator[Communication]:
        """The collectives that the devices run for one that an instruction starts."""
        yield found

    def on_target(self) -> HloModule:
        """The module with the buffers that it has on the devices."""
        return self._module


class CompiledForCpus(AsCompiled):
    """A module compiled for CPUs in place of other devices."""

    def __init__(self, module: HloModule) -> None:
        super().__init__(module)
        self._traffic = Traffic(module)
        self._readers: dict[int, dict[str, list[tuple[str, Instruction]]]] = {}

    def operand_bits(self, of: Instruction, computation: Computation) -> int:
        """The bits of the operands of a product, before they were widened."""
        widened = all(self._widened_from(_Place(x, computation)) for x in of.operands[:2])
        return 16 if widened else super().operand_bits(of, computation)

    def communications(self, run: Execution, found: Communication) -> Iterator[Communication]:
        """The collectives that an accelerator would run in place of one that an instruction starts."""
        of, computation = run.instruction, run.computation
        sizes = {x: num_bytes(computation[x].type) for x in of.operands if x in computation}
        scattered = 0
        if found.kind == "all-reduce":
            parts = self._count_parts(run.name, of, computation)
            scattered = sum(found.bytes * sizes[x] // sum(sizes.values()) for x, n in parts.items() if n > 1)
        if scattered < found.bytes:
            yield found._replace(bytes=found.bytes - scattered)
        if scattered:
            yield found._replace(kind="reduce-scatter", bytes=scattered)

    def on_target(self) -> HloModule:
        """The module with the buffers that other compilers make."""
        found = copy.copy(self._module)
        found.computations = {name: self._rewrite(c) for name, c in self._module.computations.items()}
        return found

    def _rewrite(self, computation: Computation) -> Computation:
        """A computation with values of 16 bits as they are, and with reduce-scatters, each right behind its operand."""
        scattered: dict[str, dict[str, Instruction]] = {}
        names: dict[str, list[str]] = {}
        for name, of in computation.items():
            parts = self._count_parts(name, of, computation) if of.opcode == "all-reduce" else {}
            if any(n > 1 for n in parts.values()):
                names[name] = [f"{name}.{x}" for x in parts]
                for x, n in parts.items():
                    own = of._replace(type=_divide(computation[x].type, n), operand_text=x, is_root=False)
                    scattered.setdefault(x, {})[f"{name}.{x}"] = own
        found: Computation = {}
        for name, of in computation.items():
            if name in names:
                of = of._replace(opcode="tuple", operand_text=", ".join(names[name]))
            elif of.type.startswith("f32") and of.opcode != "parameter":
                dtype = self._widened_from(_Place(name, computation)) or self._rounded_to(name, computation)
                of = of._replace(type=of.type.replace("f32", dtype or "f32", 1))
            found[name] = of
            found |= scattered.get(name, {})
        return found

    def _widened_from(self, at: _Place) -> str:
        """The dtype of 16 bits of which a value is a conversion to 32; "" if it is none."""
        of = at.computation.get(at.name)
        if of is None:
            return ""
        if of.opcode == "convert" and not of.type.startswith(_NARROW):
            return _narrow_dtype(at.computation[of.operands[0]].type)
        if of.opcode in _FORWARDING:
            return self._widened_from(at._replace(name=of.operands[0]))
        if of.opcode == "fusion" and at.fusion is None:
            fused = self._module.computations[of.callees[0]]
            return self._widened_from(_Place(find_root_name(fused), fused, of, at.computation))
        if of.opcode == "parameter" and at.fusion is not None and at.around is not None:
            return self._widened_from(_Place(at.fusion.operands[int(of.operands[0])], at.around))
        return ""

    def _rounded_to(self, name: str, computation: Computation) -> str:
        """The dtype of 16 bits to which all readers of a value convert it; "" if there is none."""
        found = set()
        for own, user in self._list_readers(computation).get(name, ()):
            if user.opcode == "convert":
                found.add(_narrow_dtype(user.type))
            elif user.opcode in _FORWARDING:
                found.add(self._rounded_to(own, computation))
            elif user.opcode == "fusion":
                fused = self._module.computations[user.callees[0]]
                inside = (find_parameter_name(fused, n) for n, x in enumerate(user.operands) if x == name)
                found |= {self._rounded_to(parameter, fused) for parameter in inside}
            else:
                found.add("")
        return found.pop() if len(found) == 1 else ""

    def _list_readers(self, computation: Computation) -> dict[str, list[tuple[str, Instruction]]]:
        """The instructions that read each value."""
        if (readers := self._readers.get(id(computation))) is None:
            readers = self._readers[id(computation)] = {}
            for own, user in computation.items():
                for x in dict.fromkeys(user.operands):
                    readers.setdefault(x, []).append((own, user))
        return readers

    def _count_parts(self, name: str, of: Instruction, computation: Computation) -> dict[str, int]:
        """In how many parts an all-reduce could scatter the sum of each operand: 1 if more than one part is read."""
        groups = find_groups(of)
        parts = {}
        for leaf, x in enumerate(of.operands):
            elements = [
                own
                for own, i in self._list_readers(computation).get(name, ())
                if i.opcode == "get-tuple-element" and element_index(i) == leaf
            ]
            values = elements if of.type.startswith("(") else [name]
            is_sliced = values and groups and all(self._reads_are_parts(v, computation, len(groups[0])) for v in values)
            parts[x] = len(groups[0]) if is_sliced else 1
        return parts

    def _reads_are_parts(self, name: str, computation: Computation, parts: int) -> bool:
        """Whether each instruction that uses a value reads the same fraction of it."""
        users = self._list_readers(computation).get(name, ())
        whole = num_bytes(computation[name].type)
        return bool(users) and all(
            self._reads_are_parts(own, computation, parts)
            if self._is_conversion(user)
            else all(
                self._traffic.read_bytes(user, n, computation) * parts == whole
                for n, x in enumerate(user.operands)
                if x == name
            )
            for own, user in users
        )

    def _is_conversion(self, of: Instruction) -> bool:
        """Whether the result has the elements of the operand, in another dtype or layout."""
        if of.opcode != "fusion":
            return of.opcode in ELEMENTWISE
        fused = self._module.computations[of.callees[0]].values()
        return all(i.opcode in ELEMENTWISE or i.opcode == "parameter" for i in fused)


def type_bits(type: str) -> int:
    """The width of the elements of an array type."""
    return 8 * num_bytes(type.partition("[")[0] + "[]")


def _narrow_dtype(type: str) -> str:
    """The dtype of an array type if it has 16 bits, else ""."""
    return dtype if (dtype := type.partition("[")[0]) in _NARROW else ""


def _divide(type: str, parts: int) -> str:
    """The type of one of several equal parts of an array."""
    dtype, _, dims = type.partition("[")
    sizes = numbers(dims)
    split = next((d for d, n in enumerate(sizes) if n % parts == 0), 0)
    sizes[split] = -(-sizes[split] // parts)
    return f"{dtype}[{','.join(map(str, sizes))}]"
