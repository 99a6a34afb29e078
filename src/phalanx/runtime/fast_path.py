"""The fast path of compiled functions: generated code that repeats a call for arguments like earlier ones.

A call of a compiled function has to find the program for its arguments. Flattening the arguments, comparing structure
and types, and looking them up takes most of the time of a call besides the execution, above all for a dict, whose keys
are sorted each time. So when a structure is called a second time, a function is generated for it: it reads each leaf
from its place, compares all types by address, runs the program and wraps the results. `spmd.jit` tries it before
everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from phalanx.engine.cache import memoize
from phalanx.engine.execution import execute_again, get_execution
from phalanx.engine.pytree import PyTreeDef, flatten, flatten_one_level
from phalanx.engine.traceback_filtering import exclude_file
from phalanx.runtime.array import Array, ArrayType, initial_host_value
from phalanx.runtime.compiled_program import CompiledProgram
from phalanx.runtime.host_arguments import HostArgument

FastCall = Callable[[tuple, dict], Any]
UNLIKE: Any = object()  # what such a function returns for arguments of another structure or type
_LEAF = flatten(0)[1]
_MAX_UNROLLED = 4  # results of which each is wrapped by separate statements
_FILE = "<fast call>"
exclude_file(_FILE)


def fast_call(
    args: tuple,
    kwargs: dict,
    statics: tuple,
    types: Sequence[ArrayType],
    moves: Sequence[tuple],
    program: CompiledProgram,
    out_tree: PyTreeDef,
) -> FastCall:
    """Generate a function that runs a program for arguments with the same structure and types as these.

    Args:
      args, kwargs: the arguments.
      statics: the static ones among them, by position or name.
      types: the types of the leaves of all others.
      moves: the transfers of leaves, from `compiled_program.plan_transfers`.
      program: the program, which has no effects.
      out_tree: the structure of the result.

    Returns:
      A function of positional and keyword arguments that transfers them where the program needs them, runs it and
      returns the result of the call. It returns `UNLIKE` for arguments of another structure or type, or if any error is
      raised before the run; the caller then takes the general path, which also explains errors. Errors of the run
      itself are the engine's.
    """
    writer = _Writer(types, moves)
    writer.write(args, kwargs, dict(statics))
    writer.write_run(program, out_tree)
    exec(_compile("\n".join(["def call(args, kwargs):", *writer.lines])), writer.constants)
    written: FastCall = writer.constants["call"]
    return written


@memoize("runtime.fast_calls", 64)
def _compile(text: str) -> CodeType:
    """Compile the text of a function; functions for one structure differ in the constants alone."""
    return compile(text, _FILE, "exec")


class _Writer:
    """The text of a function, and the objects to which it refers.

    Args:
      types, moves: as in `fast_call`.
    """

    def __init__(self, types: Sequence[ArrayType], moves: Sequence[tuple]):
        self.types = types
        self.moves = {i: (type, place) for i, type, place in moves}
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {"flatten_one_level": flatten_one_level, "UNLIKE": UNLIKE, "Array": Array}
        self.constants |= {"get_execution": get_execution, "execute_again": execute_again}
        self.names: dict[int, str] = {}
        self.buffers: list[str] = []
        self.arrays: list[int] = []  # the leaves that are arrays on devices already
        self.taken: list[tuple[str, str]] = []  # of leaves on the host, the expressions of staging memory and its owner

    def write(self, args: tuple, kwargs: dict, statics: dict) -> None:
        """Write the part that reads the arguments."""
        self.lines.append(" try:")
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
        self.lines += [f"  buffers = [{', '.join(self.buffers)}]", " except Exception: return UNLIKE"]

    def write_run(self, program: CompiledProgram, out_tree: PyTreeDef) -> None:
        """Write the part that runs the program and wraps its results."""
        types = program.out_types
        host = self.constant(initial_host_value(types))
        if program.launch is None:
            self.lines.append(f" out = {self.constant(program.execute)}(buffers)")
        else:
            started = f"{self.constant(program.launch[0])}, buffers, {self.constant(program.launch[1])}"
            self.lines.append(f" try: out = get_execution()(({started}))")
            self.lines.append(f" except Exception as error: out = execute_again(error, {started})")
        self.lines += [f" {give_back}({staged}, out)" for give_back, staged in self.taken]
        if out_tree == _LEAF:
            self.lines += self.wrap("out[0]", self.constant(types[0]), host, " ")
            self.lines.append(" return array")
            return
        self.lines.append(" arrays = []")
        if len(types) <= _MAX_UNROLLED:
            for i, type in enumerate(types):
                self.lines += [*self.wrap(f"out[{i}]", self.constant(type), host, " "), " arrays.append(array)"]
        else:
            self.lines.append(f" for buffer, out_type in zip(out, {self.constant(types)}):")
            self.lines += [*self.wrap("buffer", "out_type", host, "  "), "  arrays.append(array)"]
        is_list = out_tree == flatten([0] * len(types))[1]
        self.lines.append(" return arrays" if is_list else f" return {self.constant(out_tree.unflatten)}(arrays)")

    @staticmethod
    def wrap(buffer: str, type: str, host: str, indent: str) -> list[str]:
        """The code of `wrap_buffer`, without a call; `host` is the first value of `Array._host`."""
        lines = ("array = Array()", f"array._buffer = {buffer}", f"array._type = {type}", f"array._host = {host}")
        return [indent + line for line in lines]

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
            argument = HostArgument(self.types[i].aval, wanted, move)
            self.lines.append(f"  x{i} = {self.constant(argument.take)}({place})")
            if argument.is_staged:
                self.taken.append((self.constant(argument.give_back), f"x{i}"))
            self.buffers.append(f"x{i}[1]" if argument.is_staged else f"x{i}")
            return
        self.lines.append(f"  x{i} = {place}")
        self.arrays.append(i)
        moved = f"x{i}" if move is None else f"{self.constant(move)}(x{i}, {self.constant(wanted)})"
        self.buffers.append(f"{moved}._buffer")

    def unless(self, condition: str) -> None:
        """Write a check: the function returns `UNLIKE` unless the condition holds."""
        self.lines.append(f"  if not ({condition}): return UNLIKE")

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
