"""The state of one MLIR module while it is built: its types, meshes, functions, and what is known about shardings.

Builds on the engine's MLIR bindings. `lowering` emits the functions of the module through it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, ShardingError, format_source, physical_aval
from phalanx.engine import ir, mlir, sdy
from phalanx.runtime.reshard_lowering import SLICED_FROM
from phalanx.runtime.shardy import sdy_type

PLATFORM = "_platform"  # name of the leading scalar that selects one of several platforms


class PlatformRequested(Exception):
    """Raised when a lowering rule reads the platform of a program for several platforms."""


# The type of the tokens that order effects. They are numbers, because XLA's own token type cannot be an argument of a
# manual computation, the body of a `shard_map`.
ORDER_TOKEN = ShapedArray((), np.dtype(np.int32))


class ResultsChosen(Exception):
    """Raised to end a compilation that only finds the shardings of results."""


class Inspection:
    """A request to report the sharding that the compiler chooses for a value.

    Args:
      observer: called with the value's shape and its sharding once the program is compiled.
      shape: the shape.
    """

    __slots__ = ("found", "notify", "observer", "shape")

    def __init__(self, observer: Callable, shape: tuple):
        self.observer, self.shape = observer, shape
        self.found: list = []  # the engine's description of the sharding
        self.notify = self.found.append  # kept here, because the engine holds no reference to the function


class ModuleContext:
    """The state that the functions of one MLIR module share while they are emitted.

    Args:
      name: the symbol of the module, which profilers show.
      platforms: the platforms of the program, of "cpu" and "cuda"; a portable program may have several.
      num_partitions: the number of devices that share the program.
      variables: names of the dimension variables, in the order in which functions take them.
      is_portable: whether the module must not depend on this process: its compiler cannot call back, and its kernels
        need not be installed. So it is if other processes run it, and on platforms whose partitioner has no callbacks.
      is_attached: whether this process can run the program, so that its kernels must be installed.
      slice_threshold: size in bytes of a device's shard from which resharding inside the program works in slices.
      devices: in partition order; None if the program names no mesh in another order.
      manual: for a program that each device of a mesh runs, the mesh and its manual axes, which collectives read.
      names_requests: whether each sharding that the user asked for is lowered to a resharding call, so that the
        collectives for it have its name; XLA's own name them after any operation nearby.
    """

    def __init__(
        self,
        name: str,
        platforms: Sequence[str],
        num_partitions: int = 1,
        variables: Sequence[str] = (),
        is_portable: bool = False,
        is_attached: bool = True,
        slice_threshold: int = SLICED_FROM,
        devices: Sequence[Any] | None = None,
        manual: Any = None,
        names_requests: bool = False,
    ):
        self.platforms = tuple(platforms)
        self.platform = self.platforms[0]  # the one that is being emitted for
        self.num_partitions = num_partitions
        self.variables = tuple(variables)
        self.is_portable, self.is_attached = is_portable, is_attached
        self.context = ir.Context.current
        self.types: dict[ShapedArray, Any] = {}
        self.location = mlir.Locations(self.context)
        self.module = ir.Module.create()
        self.module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        self.module.operation.attributes["mhlo.num_partitions"] = mlir.i32(num_partitions)
        self.module.operation.attributes["mhlo.num_replicas"] = mlir.i32(1)
        self.symbols = ir.SymbolTable(self.module.operation)
        self.functions: dict[Any, Any] = {}  # of inner jaxprs that are already emitted
        self.meshes: dict[Any, str] = {}
        self.known_shardings: dict[Any, Any] = {}  # by value, declared by the user
        # Those, and the shardings that the partitioner is expected to choose for further values.
        self.inferred_shardings: dict[Any, Any] = {}
        self.unsharded_dims: set[tuple[Any, int]] = set()  # found by `find_dim_sharding` not to be sharded
        self.arguments: set[Any] = set()  # of `main`, whose memory is not freed while the program runs
        self.slice_threshold, self.names_requests = slice_threshold, names_requests
        self.constraints: dict[Any, Any] = {}  # the sharding attribute of each type that has one
        self.host_callbacks: list[Any] = []
        self.inspections: list[Inspection] = []
        self.is_self_contained = True  # whether the module's text is all that another process needs to run it
        self.keep_alive: list[Any] = []
        self.device_assignment: Any = devices
        self.memories: Sequence[str | None] = ()  # of the results of `main`; None for the default memory
        self.has_uneven = False  # whether a sharding that is known before partitioning does not divide its dimensions
        # The partitioner's shardings of results by number, None until they are reported; None if it is not asked.
        self.chosen_results: dict[int, Any] | None = None
        self.split_results: dict[int, Any] = {}  # by number, shardings chosen for results that do not divide
        self.moves: dict[Any, Any] = {}  # by value, the move of uneven shards that computes it, and its operands
        self.emitted_moves: dict[tuple, Any] = {}  # the calls of moves, by what they move
        self.fills: dict[Any, Any] = {}  # by value, what the first windows over it read beyond its ends
        self.filled: dict[Any, Any] = {}  # values whose uneven shards are filled with neutral elements
        self.typed_shardings: dict[Any, Any] = {}  # of values that are constrained to the sharding in their type
        # Of a portable module: the text of an equation, None if it has none, with which the equation is lowered again
        # for the mesh that the program is called on.
        self.write_equation: Callable[[Any], str | None] | None = None
        self.recorded: dict[tuple, Any] = {}  # the jaxprs of these equations, by text and types
        self.manual = manual  # inside a `shard_map`, its mesh and manual axes
        self.channels = itertools.count(1)  # of collectives
        self.sharding_groups = itertools.count()  # numbers of groups of values that are sharded alike

    @property
    def is_partitioned(self) -> bool:
        """Whether the partitioner shards the operations that are being emitted over several devices."""
        return self.num_partitions > 1 and not (self.manual is not None and self.manual.is_whole)

    def type(self, aval: Any) -> Any:
        """The tensor type of an abstract value."""
        try:
            return self.types[aval]
        except KeyError:
            physical = physical_aval(aval)
            shape: Sequence[int] = physical.shape
            if physical.is_symbolic:
                shape = [d if type(d) is int else ir.ShapedType.get_dynamic_size() for d in physical.shape]
            found = self.types[aval] = ir.RankedTensorType.get(shape, mlir.dtype_to_ir(physical.dtype))
            return found

    @property
    def leading(self) -> list[tuple[str, Any]]:
        """The scalars that every function except `main` takes first, by name, with their types."""
        widths = ({PLATFORM: 32} if len(self.platforms) > 1 else {}) | dict.fromkeys(self.variables, 64)
        return [(name, ir.RankedTensorType.get((), ir.IntegerType.get_signless(n))) for name, n in widths.items()]

    def apply_sharding(self, x: Any, aval: Any, source: Any) -> Any:
        """Constrain a value to the sharding in its type; the partitioner may use the axes that are not Explicit."""
        if not aval.type_sharding.mesh.explicit_axes:  # in a shard_map over all axes, where a value is a shard
            return x
        if (size := aval.type_sharding.mesh.size) != self.num_partitions:
            raise ShardingError(
                f"lowering of the operation at {format_source(source)}",
                expected=f"a mesh of the {self.num_partitions} devices that the program runs on",
                got=f"{aval.str_short()} over {aval.type_sharding.mesh}",
                fix="give the program arguments on that mesh, or in_shardings",
            )
        if size == 1:
            return x
        if (attribute := self.constraints.get(aval)) is None:
            attribute = self.constraints[aval] = sdy_type(self, aval.type_sharding, physical_aval(aval).ndim)
        x = ir.Operation.create(
            sdy.ShardingConstraintOp.OPERATION_NAME, [self.type(aval)], [x], {"sharding": attribute}
        ).results[0]
        self.typed_shardings[x] = aval.type_sharding
        return x

    def report_result(self, number: int, sharding: Any) -> None:
        """Record the partitioner's sharding of a result, and end the compilation with an error once all are known."""
        assert self.chosen_results is not None, "the module asks for the shardings of its results"
        self.chosen_results[number] = sharding
        if None not in self.chosen_results.values():
            raise ResultsChosen

    def report_nth_result(self, n: int, sharding: Any) -> None:
        """As `report_result`, for the result of the n-th request of the module."""
        self.report_result(list(self.chosen_results or ())[n], sharding)

    def add_keepalive(self, thing: Any) -> None:
        """Keep an object alive as long as this module."""
        self.keep_alive.append(thing)

    def add_function(self, key: Any, name: str, emit: Callable[[str], Any]) -> Any:
        """Return the function of `key` for the current platform, emitted on the first request."""
        key = (key, self.platform)
        if (found := self.functions.get(key)) is None:
            found = self.functions[key] = emit(name)
        return found
