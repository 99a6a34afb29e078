"""Openers: what takes the buffers out of the arguments of a call that is like one before.

A call of a compiled function has to find out whether its arguments are ones that a program is known for. Flattening
them, comparing structure and types and looking these up costs most of what a call costs beside its execution, a dict
above all, whose keys are sorted each time. So code is written for the structure and the types of a call that came
twice: it reads each leaf from where it was, and compares its type by address. `spmd.jit` asks it before all else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.engine.pytree import flatten_one_level
from phalanx.runtime import placement
from phalanx.runtime.array import Array, ArrayType

Opener = Callable[[tuple, dict], list | None]


def opener(args: tuple, kwargs: dict, statics: tuple, types: Sequence[ArrayType], moves: Sequence[tuple]) -> Opener:
    """Write the opener for arguments like some that a program is known for.

    Args:
      args, kwargs: these arguments.
      statics: the static ones among them, by number or name.
      types: those of the leaves of all others.
      moves: as `dispatch.moves` gives them.

    Returns:
      A function that takes positional and keyword arguments, brings them to where the program wants them, and gives
      their buffers. For other arguments it gives None or raises whatever comes of it; the long way then says what is
      wrong.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = jnp.ones(3)
      >>> open_dict = opener(({"a": x},), {}, (), [x._type], [])
      >>> open_dict(({"a": x},), {}) == [x._buffer], open_dict(({"a": x, "b": x},), {})
      (True, None)
    """
    writer = _Writer(types, moves)
    writer.write(args, kwargs, dict(statics))
    scope: dict[str, Any] = dict(writer.constants)
    exec(_compiled("\n".join(writer.lines)), scope)
    written: Opener = scope["opened"]
    return written


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> CodeType:
    """Functions of one structure differ in the constants alone."""
    return compile(text, "<opener>", "exec")


class _Writer:
    """The text of an opener, and the objects that it names.

    Args:
      types, moves: as in `opener`.
    """

    def __init__(self, types: Sequence[ArrayType], moves: Sequence[tuple]):
        self.types = list(types)
        self.moves = {i: (type, place) for i, type, place in moves}
        self.lines = ["def opened(args, kwargs):"]
        self.constants: dict[str, Any] = {"flatten_one_level": flatten_one_level}
        self.names: dict[int, str] = {}
        self.buffers: list[str] = []

    def write(self, args: tuple, kwargs: dict, statics: dict) -> None:
        """Write the whole function."""
        self.unless(f"len(args) == {len(args)} and len(kwargs) == {len(kwargs)}")
        given = {i: (x, f"args[{i}]") for i, x in enumerate(args)}
        given |= {name: (kwargs[name], f"kwargs[{name!r}]") for name in sorted(kwargs)}
        for key, static in statics.items():
            self.unless(f"{self.constant(type(static))}({given.pop(key)[1]}) == {self.constant(static)}")
        count, waiting = 0, [*given.values()][::-1]
        while waiting:
            value, place = waiting.pop()
            opened = flatten_one_level(value)
            if opened is None:
                self.leaf(len(self.buffers), place)
                continue
            count += 1
            node, children = f"n{count}", [*opened[0]]
            self.lines.append(f" {node} = {place}")
            places = self.node(node, type(value), opened[1], len(children))
            waiting += [*zip(children, places, strict=True)][::-1]
        # One comparison of all types takes half as long to compile as one for each.
        found = ", ".join(f"x{i}._type" for i in range(len(self.types)))
        self.unless(f"[{found}] == {self.constant(self.types)}")
        self.lines.append(f" return [{', '.join(self.buffers)}]")

    def node(self, name: str, kind: type, data: Any, count: int) -> list[str]:
        """Write the opening of one node, and say where its children are then."""
        self.unless(f"type({name}) is {self.constant(kind)}")
        if kind is dict:
            self.unless(f"len({name}) == {count}")
            return [f"{name}[{repr(key) if type(key) is str else self.constant(key)}]" for key in data]
        if kind is not tuple and kind is not list:
            self.lines.append(f" {name}, {name}_data = flatten_one_level({name})")
            self.unless(f"{name}_data == {self.constant(data)}")
        self.unless(f"len({name}) == {count}")
        return [f"{name}[{i}]" for i in range(count)]

    def leaf(self, i: int, place: str) -> None:
        """Write how one leaf is had, and its buffer where it is to be."""
        wanted, move = self.moves.get(i, (None, None))
        buffer = f"x{i}._buffer"
        if self.types[i].sharding is None:
            place = f"{self.constant(HostLeaf(i, self.types[i].aval, wanted, move).send)}({place})"
            self.types[i] = wanted
        elif move is not None:
            buffer = f"{self.constant(move)}(x{i}, {self.constant(wanted)})._buffer"
        self.lines.append(f" x{i} = {place}")
        self.buffers.append(buffer)

    def unless(self, condition: str) -> None:
        """Write that the arguments are others unless this holds."""
        self.lines.append(f" if not ({condition}): return None")

    def constant(self, value: Any) -> str:
        """The name of an object in the text."""
        name = self.names.setdefault(id(value), f"c{len(self.names)}")
        self.constants[name] = value
        return name


_HOST_LEAVES = placement.HOST_SCALARS | {np.ndarray}  # classes that are never nodes of a tree


class HostLeaf:
    """An argument that comes from the host, for calls like one that had it.

    Args:
      position: its number.
      aval: its type then.
      type: the one that it is brought to.
      place: how, as `moves` has it.
    """

    __slots__ = ("aval", "dtype", "place", "placing", "position", "shape", "type")

    def __init__(self, position: int, aval: Any, type: ArrayType, place: Callable):
        self.position, self.aval, self.type, self.place = position, aval, type, place
        self.placing = placement.placing(type)
        self.shape, self.dtype = None if aval.weak_type else aval.shape, aval.dtype  # No NumPy array is weakly typed.

    def send(self, x: Any) -> Array:
        """Bring another value there.

        Raises:
          ValueError: it is not of that type, or not on the host.
        """
        if x.__class__ is np.ndarray and x.shape == self.shape and x.dtype == self.dtype:
            return self.placing(x)
        if x.__class__ in _HOST_LEAVES and aval_of(x) is self.aval:
            return self.place(x, self.type)
        raise ValueError(f"argument {self.position} is of another type")
