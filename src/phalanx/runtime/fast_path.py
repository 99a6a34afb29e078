"""The argument fast path of compiled functions: generated code that reads the buffers of arguments like earlier ones.

A call of a compiled function has to find the program for its arguments. Flattening the arguments, comparing structure
and types, and looking them up takes most of the time of a call besides the execution, above all for a dict, whose keys
are sorted each time. So when a structure is called a second time, a function is generated for it: it reads each leaf
from its place and compares all types by address. `spmd.jit` tries it before everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from phalanx.core import get_aval
from phalanx.engine import buffers
from phalanx.engine.cache import memoize
from phalanx.engine.pytree import PyTreeDef, flatten, flatten_one_level
from phalanx.runtime import transfer
from phalanx.runtime.array import Array, ArrayType

ArgumentReader = Callable[[tuple, dict], list | None]


def opener(
    args: tuple, kwargs: dict, statics: tuple, types: Sequence[ArrayType], moves: Sequence[tuple]
) -> ArgumentReader:
    """Generate a function that reads the buffers of arguments with the same structure and types as these.

    Args:
      args, kwargs: the arguments.
      statics: the static ones among them, by position or name.
      types: the types of the leaves of all others.
      moves: the transfers of leaves, from `compiled_program.plan_transfers`.

    Returns:
      A function of positional and keyword arguments that transfers them where the program needs them and returns their
      buffers. It returns None for arguments of another structure or type, or if any error is raised; the caller then
      takes the general path, which also explains errors.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> x = jnp.ones(3)
      >>> open_dict = opener(({"a": x},), {}, (), [x._type], [])
      >>> open_dict(({"a": x},), {}) == [x._buffer], open_dict(({"a": x, "b": x},), {})
      (True, None)
    """
    writer = _Writer(types, moves)
    writer.write(args, kwargs, dict(statics))
    lines = ["def opened(args, kwargs):", " try:", *writer.lines, " except Exception: return None"]
    exec(_compile("\n".join(lines)), writer.constants)
    written: ArgumentReader = writer.constants["opened"]
    return written


@memoize("runtime.argument_readers", 64)
def _compile(text: str) -> CodeType:
    """Compile the text of a reader; readers of one structure differ in the constants alone."""
    return compile(text, "<opener>", "exec")


class _Writer:
    """The text of a reader, and the objects to which it refers.

    Args:
      types, moves: as in `opener`.
    """

    def __init__(self, types: Sequence[ArrayType], moves: Sequence[tuple]):
        self.types = types
        self.moves = {i: (type, place) for i, type, place in moves}
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {"flatten_one_level": flatten_one_level}
        self.names: dict[int, str] = {}
        self.buffers: list[str] = []
        self.arrays: list[int] = []  # the leaves that are arrays on devices already

    def write(self, args: tuple, kwargs: dict, statics: dict) -> None:
        """Write the whole function."""
        self.unless(f"len(args) == {len(args)} and " + (f"len(kwargs) == {len(kwargs)}" if kwargs else "not kwargs"))
        # Keyword arguments are read in sorted order, in which flattening numbers their leaves.
        given = {i: (x, f"args[{i}]") for i, x in enumerate(args)}
        given |= {name: (kwargs[name], f"kwargs[{self.key(name)}]") for name in sorted(kwargs)}
        for key, static in statics.items():
            place, wrap = given.pop(key)[1], self.constant(type(static))
            same = f"{place} is {self.constant(static.value)} or " if _equals_itself(static.value) else ""
            self.unless(f"{same}{wrap}({place}) == {self.constant(static)}")
        # An explicit stack, reversed, so that leaves are numbered in the order of flattening.
        count, waiting = 0, [*given.values()][::-1]
        while waiting:
            value, place = waiting.pop()
            opened = flatten_one_level(value)
            if opened is None:
                self.leaf(len(self.buffers), place)
                continue
            count += 1
            node, children = f"n{count}", [*opened[0]]
            self.lines.append(f"  {node} = {place}")
            waiting += [*zip(children, self.node(node, type(value), opened[1], len(children)), strict=True)][::-1]
        if len(self.arrays) == 1:
            (i,) = self.arrays
            self.unless(f"x{i}._type is {self.constant(self.types[i])}")
        elif self.arrays:
            # One comparison of two lists takes half as long to compile as a comparison of each type.
            found = ", ".join(f"x{i}._type" for i in self.arrays)
            self.unless(f"[{found}] == {self.constant([self.types[i] for i in self.arrays])}")
        self.lines.append(f"  return [{', '.join(self.buffers)}]")

    def node(self, name: str, kind: type, data: Any, count: int) -> list[str]:
        """Write the code for one node; returns the expressions of its children."""
        self.unless(f"type({name}) is {self.constant(kind)}")
        # The keys are constants of the code, so that a dict is read without sorting them.
        if kind is dict:
            self.unless(f"len({name}) == {count}")
            return [f"{name}[{self.key(key)}]" for key in data]
        # Custom nodes have auxiliary data, which is part of the structure and is compared by value.
        if kind is not tuple and kind is not list:
            self.lines.append(f"  {name}, {name}_data = flatten_one_level({name})")
            self.unless(f"{name}_data == {self.constant(data)}")
        self.unless(f"len({name}) == {count}")
        return [f"{name}[{i}]" for i in range(count)]

    def leaf(self, i: int, place: str) -> None:
        """Write the code for one leaf and for its buffer."""
        wanted, move = self.moves.get(i, (None, None))
        if self.types[i].sharding is None:
            self.lines.append(f"  x{i} = {self.constant(host_sender(self.types[i].aval, wanted, move))}({place})")
            self.buffers.append(f"x{i}")
            return
        self.lines.append(f"  x{i} = {place}")
        self.arrays.append(i)
        moved = f"x{i}" if move is None else f"{self.constant(move)}(x{i}, {self.constant(wanted)})"
        self.buffers.append(f"{moved}._buffer")

    def unless(self, condition: str) -> None:
        """Write a check: the reader returns None unless the condition holds."""
        self.lines.append(f"  if not ({condition}): return None")

    def key(self, key: Any) -> str:
        """The expression for a key; only the text of a plain string is safe, since a subclass defines its own."""
        return repr(key) if type(key) is str else self.constant(key)

    def constant(self, value: Any) -> str:
        """The name of an object in the text."""
        # By identity: `constants` keeps the objects alive, so ids are not reused.
        name = self.names.setdefault(id(value), f"c{len(self.names)}")
        self.constants[name] = value
        return name


_IMMUTABLE = frozenset({int, float, bool, str, bytes})


def _equals_itself(value: Any) -> bool:
    """Whether a static argument that is the same object as before must be equal to what it was then."""
    return type(value) in _IMMUTABLE or type(value).__eq__ is object.__eq__


_HOST_LEAVES = transfer.HOST_SCALARS | {np.ndarray}  # classes that are never nodes of a pytree


def host_sender(aval: Any, type: ArrayType, place: Callable) -> Callable[[Any], Any]:
    """Make the function that sends an argument from the host, in calls like an earlier one, and returns its buffer.

    Args:
      aval: its type in the earlier call.
      type: the type of the array on the devices.
      place: the function of `plan_transfers` that transfers it.

    Returns:
      A function of the argument. It raises ValueError for a value of another type, or one that is not on the host, and
      the engine's error where a guard forbids the transfer.
    """
    sharding = type.sharding
    is_plain = type.has_plain_buffer and type.layout is None and sharding.non_default_memory_kind is None
    if is_plain and sharding.is_fully_addressable and type.aval.dtype == aval.dtype:
        send_array = buffers.make_argument_sender(type.buffer_aval, sharding._device_assignment[0])
    else:
        send_array = transfer.make_host_sender(type)
    shape, dtype = None if aval.weak_type else aval.shape, aval.dtype  # No NumPy array is weakly typed.

    is_shared = place is transfer.put_shared  # A donated argument gets a buffer of its own at each call.
    last: tuple[Any, Any] = object(), None  # a scalar and its buffer, since a call is often repeated with the same one

    def send(x: Any) -> Any:
        nonlocal last
        if x.__class__ is np.ndarray and x.shape == shape and x.dtype == dtype:
            return send_array(x)
        scalar, buffer = last
        if x is scalar and not buffer.is_deleted():
            return buffer
        if x.__class__ in _HOST_LEAVES and get_aval(x) is aval:
            # The less frequent cases: other scalars, whose abstract value is interned and compared by identity.
            buffer = place(x, type)._buffer
            if is_shared and x.__class__ is not np.ndarray:
                last = x, buffer
            return buffer
        raise ValueError("an argument of another type")

    return send


_LEAF = flatten(0)[1]


def result_wrapper(tree: PyTreeDef, types: Sequence[ArrayType]) -> Callable[[Sequence[Any]], Any]:
    """Make the function that wraps the buffers of results in arrays of these types, in the structure of the result."""
    if tree == _LEAF:
        (type,) = types
        return lambda out: Array(out[0], type)
    unflatten = tree.unflatten
    return lambda out: unflatten(map(Array, out, types))
