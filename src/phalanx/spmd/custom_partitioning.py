"""`custom_partitioning`: functions with a user-defined partitioning.

A call is lowered to a custom call with a sharding rule (`sdy_sharding_rule`). When XLA's partitioner comes to it, it
calls the user's `partition` function, which chooses the shardings of operands and results and the function that each
device runs. That function is traced like the body of a `shard_map`, and lowered to a separate module.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    ArgumentError,
    Jaxpr,
    ShapedArray,
    ShapeDtypeStruct,
    ShardingError,
    TreeError,
    check_function,
    format_code_position,
    format_source,
    get_aval,
    merge_lists,
    parse_positions,
    select_flagged,
    select_unflagged,
    state,
    trace_to_jaxpr,
)
from phalanx.custom_rules.rule_arguments import bind_positional
from phalanx.engine import HloSharding, api_boundary_class, custom_call_partitioner
from phalanx.lax.collectives.replica_groups import ManualRegion
from phalanx.lax.control_flow.control_flow_tracing import split_by_sizes
from phalanx.runtime import LoweringContext, ModuleContext, PartitionedCalls, lower_jaxpr_to_module
from phalanx.sharding import GSPMDSharding, Mesh, NamedSharding, Sharding, from_hlo_sharding, reorder_devices
from phalanx.spmd.jit import jit
from phalanx.spmd.sdy_sharding_rule import SdyShardingRule
from phalanx.spmd.shard_map_primitive import View
from phalanx.transforms import FlatFunction, TransformedCall, function_name
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import PyTree

_calls = PartitionedCalls("phalanx.custom_partitioning")


class CustomPartitioning(TransformedCall, name="custom_partitioning"):
    """A call with user-defined partitioning: (*constants, *inputs) -> outputs of `jaxpr`.

    Differentiation and batching apply to the operations of `jaxpr`, which is also what a single device runs.
    """

    run = None  # type: ignore[assignment]

    def lower(self, ctx: LoweringContext, *operands: Any, jaxpr: Jaxpr, rule: _Rule, num_consts: int) -> list:
        module = ctx.module
        # One device, the inside of a `shard_map` and exported programs have no partitioner that could call back: there
        # the function itself is lowered.
        if not module.is_partitioned or module.leading or module.is_portable:
            return ctx.call(jaxpr, operands, rule.name)
        operation = _Operation(rule, jaxpr, num_consts, module, ctx.eqn.source)
        # The partitioning is Python code of this process. So the module's text does not determine the executable, which
        # must not be cached on disk.
        module.is_self_contained = False
        constants, shapes = split_by_sizes(
            [v.aval.shape for v in jaxpr.invars], [num_consts, len(operands) - num_consts]
        )
        types = [x.type for x in operands[num_consts:]], list(map(ctx.type, jaxpr.out_avals))
        attribute = rule.sharding_rule_for(operation.mesh, *types).attribute(
            constants, shapes, [a.shape for a in jaxpr.out_avals]
        )
        return _calls.emit(ctx, operation.name, operation, operands, jaxpr.out_avals, attribute)


custom_partitioning_p = CustomPartitioning()


class _Rule:
    """The partitioning of one call, with the structure of its arguments and results.

    Args:
      owner: the function, with its `partition` and its sharding rule.
      static: the values of static arguments.
      in_tree, out_tree: the structures of the tuple of other arguments, and of the result.
    """

    def __init__(self, owner: custom_partitioning, static: tuple, in_tree: Any, out_tree: Any):
        self.owner, self.static, self.in_tree, self.out_tree = owner, static, in_tree, out_tree
        self.name = function_name(owner.fun)
        self.where = f"partition of {format_code_position(owner.fun)}"

    def __repr__(self) -> str:
        return self.name

    def sharding_rule_for(self, mesh: Mesh, operands: Sequence[Any], results: Sequence[Any]) -> SdyShardingRule:
        """The sharding rule of the call."""
        said = self.owner.sharding_rule
        if callable(said):
            said = said(*self.static, mesh, list(operands), list(results))
        return SdyShardingRule.parse(said, **self.owner.rule_options) if isinstance(said, str) else said

    def partition(self, mesh: Mesh, args: Sequence[ShapeDtypeStruct], results: Sequence[ShapeDtypeStruct]) -> tuple:
        """Call the user's `partition`; returns the per-device function and the shardings of arguments and results."""
        said = self.owner.partition(
            *self.static, mesh, tree_unflatten(self.in_tree, args), tree_unflatten(self.out_tree, results)
        )
        if not isinstance(said, tuple) or len(said) != 4 or not callable(said[1]):
            raise ArgumentError(
                self.where,
                expected="(mesh, function of one device, shardings of the results, shardings of the arguments)",
                got=repr(said),
                fix="return (mesh, lower_fn, result_shardings, arg_shardings) from partition",
            )
        _, function, out_shardings, arg_shardings = said
        return (
            function,
            self._flat("the arguments", tuple(arg_shardings), self.in_tree),
            self._flat("the result", out_shardings, self.out_tree),
        )

    def _flat(self, what: str, shardings: PyTree, tree: Any) -> list:
        leaves, got = tree_flatten(shardings)
        if got != tree or not all(isinstance(s, Sharding) for s in leaves):
            raise TreeError(
                f"{self.where}, shardings of {what}",
                expected=f"shardings in the structure {tree}",
                got=repr(shardings),
                fix="map over the shapes that partition is given: tree.map(lambda x: x.sharding, arg_shapes)",
            )
        return leaves


class _Operation:
    """One call, with the answer to the partitioner's question about it."""

    numbers = itertools.count()

    def __init__(self, rule: _Rule, jaxpr: Jaxpr, num_consts: int, module: ModuleContext, source: Any):
        self.rule, self.jaxpr, self.num_consts = rule, jaxpr, num_consts
        # A number for each call, since two calls may share a name and differ in their Python functions.
        self.name = f"{rule.name} {next(_Operation.numbers)}"
        self.platform, self.context = module.platform, state.context
        named = [s.mesh for s in module.known_shardings.values() if isinstance(s, NamedSharding)]
        # The first mesh with as many devices as the program: the one in context, or that of an argument.
        candidates = (m for m in [state.context.mesh, *named] if isinstance(m, Mesh))
        mesh = next((m for m in candidates if m.size == module.num_partitions), None)
        if mesh is None:
            raise ShardingError(
                f"call of {rule.name}, at {format_source(source)}",
                expected=f"a mesh of the {module.num_partitions} devices that the program runs on",
                got="none",
                fix="call it under `with mesh:`, or give an argument of the program a NamedSharding",
            )
        self.mesh: Mesh = mesh
        self.devices = tuple(module.device_assignment or mesh.flat_devices)

    def describe(self, aval: ShapedArray, hlo: HloSharding) -> ShapeDtypeStruct:
        """The shape, dtype and sharding of an operand or result."""
        sharding = (
            from_hlo_sharding(hlo, self.devices, self.mesh, aval.ndim)
            if self.rule.owner.decode_shardings
            else GSPMDSharding(self.devices, hlo)
        )
        return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)

    def trace_shard(
        self, function: Callable, avals: Sequence[ShapedArray], shardings: Sequence, wanted: Sequence
    ) -> Jaxpr:
        """Trace the per-device function; its results must have the types `wanted`."""
        rule, count = self.rule, self.num_consts
        given = [*avals[:count], *map(_shard, avals[count:], shardings)]
        flat = FlatFunction(function, rule.in_tree)
        with View(self.mesh, frozenset(self.mesh.axis_names), False).scope():
            program = trace_to_jaxpr(lambda *xs: flat(*xs[count:]), given, rule.name)
        if flat.out_tree != rule.out_tree:
            raise TreeError(
                rule.where,
                expected=f"a function whose result has the structure {rule.out_tree}",
                got=str(flat.out_tree),
                fix="return the same structure from the function of one device as from the whole function",
            )
        for i, (aval, want) in enumerate(zip(program.out_avals, wanted, strict=True)):
            if (aval.shape, aval.dtype) != (want.shape, want.dtype):
                raise ShardingError(
                    f"{rule.where}, result {i} of one device",
                    expected=f"{want.dtype.name}{list(want.shape)}, the shard of the result's sharding",
                    got=f"{aval.dtype.name}{list(aval.shape)}",
                    fix=f"return an array of shape {tuple(want.shape)} and dtype {want.dtype.name} on each device",
                )
        return program

    def split(self, operands: Sequence[Any], results: Sequence[Any]) -> custom_call_partitioner.PartitionedCall:
        """Answer how the call is partitioned, by the user's `partition`."""
        rule, count = self.rule, self.num_consts
        avals, outs = self.jaxpr.in_avals, self.jaxpr.out_avals
        function, ins, out = rule.partition(
            self.mesh,
            list(map(self.describe, avals[count:], operands[count:])),
            list(map(self.describe, outs, results)),
        )
        program = self.trace_shard(function, avals, ins, list(map(_shard, outs, out)))
        manual = ManualRegion(self.mesh, frozenset(self.mesh.axis_names), self.devices)
        module = lower_jaxpr_to_module(program, self.platform, name=rule.name, manual=manual)
        return custom_call_partitioner.PartitionedCall(
            str(module.module),
            [*[HloSharding.replicate()] * count, *map(self.to_hlo, ins, avals[count:])],
            list(map(self.to_hlo, out, outs)),
        )

    def to_hlo(self, sharding: Sharding, aval: ShapedArray) -> HloSharding:
        """A sharding in the notation of XLA, which numbers the devices in the order of the program."""
        return reorder_devices(sharding, self.devices, aval.ndim)._to_xla_hlo_sharding(aval.ndim)


def _shard(aval: ShapedArray, sharding: Sharding) -> ShapedArray:
    # The partition rule would see the padding of uneven shards.
    sharding.check_even(aval.shape, "custom_partitioning, operands and results of the partition rule")
    return ShapedArray(sharding.shard_shape(aval.shape), aval.dtype)


@api_boundary_class
class custom_partitioning:
    """A function with a user-defined partitioning, for operations that XLA would partition badly.

    Args:
      fun: a function of whole arrays. It is used directly on one device, inside a `shard_map`, and in exported
        programs, which cannot call Python.
      static_argnums: indices of parameters whose (hashable) values are passed to `partition` as they are.

    Raises:
      ArgumentTypeError: `fun` is not a function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.custom_partitioning import custom_partitioning
      >>> @custom_partitioning
      ... def softmax(x):
      ...     return phalanx.nn.softmax(x)
      >>> def partition(mesh, arg_shapes, result_shape):
      ...     spec = phalanx.P(*arg_shapes[0].sharding.spec[:1])
      ...     rows = phalanx.NamedSharding(mesh, spec)
      ...     return mesh, phalanx.nn.softmax, rows, (rows,)
      >>> softmax.def_partition(partition, sharding_rule="... j -> ... j", need_replication_factors=("j",))
      >>> phalanx.jit(softmax)(jnp.zeros((2, 4))).tolist()
      [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, fun: Callable, static_argnums: int | Sequence[int] = ()):
        check_function("custom_partitioning, argument fun", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.static_argnums = parse_positions("custom_partitioning, argument static_argnums", static_argnums)
        self.partition: Callable | None = None
        self._compiled = jit(self._call, static_argnums=self.static_argnums)

    def def_partition(
        self,
        partition: Callable,
        infer_sharding_from_operands: Callable | None = None,
        propagate_user_sharding: Callable | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> None:
        """Define the partitioning of the function.

        Args:
          partition: `partition(*static, mesh, arg_shapes, result_shape)` returns `(mesh, function, result_shardings,
            arg_shardings)`. The shapes are trees of `ShapeDtypeStruct`s with the shardings that XLA has found.
            `function` is applied to the shards on each device, and may use collectives over the axes of the mesh; its
            arguments and results have the returned shardings.
          infer_sharding_from_operands, propagate_user_sharding: ignored; they belong to an older partitioner, and
            `sharding_rule` takes their place.
          decode_shardings: whether shardings are passed as `NamedSharding`s, if a spec can express them.
          sharding_rule: the correspondence of dimensions: a text such as `"... i j, ... j k -> ... i k"`, an
            `SdyShardingRule`, or a function `(*static, mesh, operand_types, result_types)` that returns either.
          reduction_factors, need_replication_factors, permutation_factors: names in the text that are summed over, that
            must not be sharded, and along which devices exchange shards.
          **factor_sizes: sizes of the parts of compound factors.

        Raises:
          ArgumentTypeError: `partition` is not a function.
          ShardingError: there is no sharding rule, or its text is invalid.
        """
        check_function("def_partition, argument partition", partition)
        options = {
            "reduction_factors": reduction_factors,
            "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors,
            **factor_sizes,
        }
        if isinstance(sharding_rule, str):
            sharding_rule = SdyShardingRule.parse(sharding_rule, **options)
        if not callable(sharding_rule) and not isinstance(sharding_rule, SdyShardingRule):
            raise ShardingError(
                "def_partition, argument sharding_rule",
                expected="a text, an SdyShardingRule, or a function that returns either",
                got=repr(sharding_rule),
                fix="pass a text with a name for each dimension, such as sharding_rule='... i -> ... i'",
            )
        self.partition, self.decode_shardings = partition, decode_shardings
        self.sharding_rule, self.rule_options = sharding_rule, options
        self._compiled.clear_cache()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise ArgumentError(
                f"call of {format_code_position(self.fun)}",
                expected="a custom_partitioning function with a partitioning",
                got="one without",
                fix=f"call {function_name(self.fun)}.def_partition(...) first",
            )
        every = bind_positional(
            self.fun, args, kwargs, "let the function take it by position, or bind it before with functools.partial"
        )
        return self._compiled(*every) if state.trace is None else self._call(*every)

    def _call(self, *every: Any) -> Any:
        numbers = {i % len(every) for i in self.static_argnums}
        is_static = [i in numbers for i in range(len(every))]
        static = select_flagged(every, is_static)
        leaves, in_tree = tree_flatten(tuple(select_unflagged(every, is_static)))
        # The function is traced once with whole arrays, which gives the jaxpr for derivatives, batching and single
        # devices.
        function = FlatFunction(lambda *dynamic: self.fun(*merge_lists(is_static, static, dynamic)), in_tree)
        program = trace_to_jaxpr(function, list(map(get_aval, leaves)), function_name(self.fun))
        rule, consts = _Rule(self, tuple(static), in_tree, function.out_tree), program.consts
        out = custom_partitioning_p(*consts, *leaves, jaxpr=program.hoist(), rule=rule, num_consts=len(consts))
        return tree_unflatten(function.out_tree, out)
