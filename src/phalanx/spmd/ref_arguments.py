"""Mutable array references that a compiled function takes or closes over, as values of its program.

The program of the stages `Lowered` and `Compiled` takes the values of the references that the function closes over,
then its arguments, with values in the place of references; it returns the final values of those that it writes after
the results. A call of the stage reads the references and writes them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import AbstractRef, Jaxpr, Ref, Slot, discharge_jaxpr
from phalanx.lax.optimization_barrier import copy_p
from phalanx.runtime import ArrayType
from phalanx.spmd.jit_primitive import Options


class RefArguments(NamedTuple):
    """A program on the values of references.

    Attributes:
      jaxpr: the program.
      closed: the references that the function closes over.
      slots: for each input of the program, the slot of the reference that it is the value of, or None.
      written: the slots of the references whose final values follow the results.
    """

    jaxpr: Jaxpr
    closed: Sequence[Any]
    slots: Sequence[Slot | None]
    written: Sequence[Slot]

    @classmethod
    def of(cls, jaxpr: Jaxpr) -> RefArguments:
        """The program of a jaxpr whose inputs and constants include references."""
        is_ref = [isinstance(c, Ref) for c in jaxpr.consts]
        closed = [c for c, r in zip(jaxpr.consts, is_ref, strict=True) if r]
        whole = jaxpr.derive("refs_hoisted", lambda: jaxpr.hoist_some(is_ref))
        slots = [Slot(i) if isinstance(a, AbstractRef) else None for i, a in enumerate(whole.in_avals)]
        pure, written = discharge_jaxpr(whole, slots)
        return cls(pure, closed, slots, written)

    @property
    def donated(self) -> list[int]:
        """The inputs whose buffers the program may reuse: the references that it writes."""
        return [i for i, slot in enumerate(self.slots) if slot in self.written]

    def types(self, types: Sequence[ArrayType]) -> list[ArrayType]:
        """The types of the program's inputs, given the types of the arguments."""
        held = [_type_of(ref) for ref in self.closed]
        plain = [ArrayType(getattr(t.aval, "inner_aval", t.aval), t.sharding, t.committed) for t in types]
        return [*held, *plain]

    def options(self, options: Options, types: Sequence[ArrayType]) -> Options:
        """The options of the program, made from the function's; a reference that is written keeps its sharding."""
        kept = tuple([types[slot.number].sharding for slot in self.written])
        ins = (None,) * len(self.closed) + options.in_shardings
        return options._replace(in_shardings=ins, out_shardings=options.out_shardings + kept)

    def of_call(self, leaves: Sequence[Any]) -> list:
        """The distinct references of a call, given the arguments of the function."""
        given = [*self.closed, *leaves]
        return list({id(x): x for x, slot in zip(given, self.slots, strict=True) if slot is not None}.values())

    def read(self, leaves: Sequence[Any]) -> list:
        """The operands of a call of the program, given the arguments of the function."""
        given: list[Any] = [*self.closed, *leaves]
        for i, slot in enumerate(self.slots):
            if slot is not None:
                ref = given[i]
                given[i] = copy_p(ref.value) if slot in self.written and ref.is_shared else ref.value
        return given

    def write(self, leaves: Sequence[Any], out: Sequence[Any]) -> list:
        """Write the final values of a call into the references; returns the results of the function."""
        refs, count = [*self.closed, *leaves], len(out) - len(self.written)
        for slot, value in zip(self.written, out[count:], strict=True):
            refs[slot.number].value = value
            refs[slot.number].own()
        return list(out[:count])


def _type_of(ref: Any) -> ArrayType:
    held = ref.value._type
    return held if held.committed else ArrayType(held.aval, None, False)
