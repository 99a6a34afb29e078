"""`custom_partitioning`: a function that says itself how it is split over devices.

The call is emitted under a name that the partitioner asks us about (`engine/partitioner.py`), with a rule by which
shardings spread over it (`sharding_rule.py`). When XLA comes to it, the user's `partition` says how operands and
results are to lie and what each device runs; that is traced as the inside of a `shard_map` and lowered on its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, ShapeDtypeStruct, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ShardingError, TreeError, check_function, positions
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.source import code_position
from phalanx.core.trace import stage
from phalanx.custom_derivatives.functions import by_position
from phalanx.engine import partitioner
from phalanx.engine.frames import boundaries
from phalanx.engine.partitioner import HloSharding
from phalanx.lax.bodies import groups_of
from phalanx.lax.replicas import Manual
from phalanx.runtime.lowering import lower_program
from phalanx.runtime.partitioned_calls import PartitionedCalls
from phalanx.sharding import GSPMDSharding, Mesh, NamedSharding, Sharding
from phalanx.sharding.shardings import from_hlo_sharding
from phalanx.spmd.jit import jit
from phalanx.spmd.manual import View
from phalanx.spmd.sharding_rule import SdyShardingRule
from phalanx.transforms.calls import DerivedCall
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import tree_flatten, tree_unflatten

_calls = PartitionedCalls("phalanx.custom_partitioning")


class CustomPartitioning(DerivedCall, name="custom_partitioning"):
    """A call that is split as `rule` says: (*constants, *inputs) -> outputs of `jaxpr`, which one device runs.

    Derivatives and batched forms are those of the function's own operations.
    """

    run = None  # type: ignore[assignment]

    def lower(self, ctx: Any, *operands: Any, jaxpr: Jaxpr, rule: _Rule, num_consts: int) -> list:
        module = ctx.module
        if not module.is_split or module.leading or module.is_portable:
            return ctx.call(jaxpr, operands, rule.name)
        operation = _Operation(rule, jaxpr, num_consts, module)
        module.is_self_contained = False  # What devices run is Python of this process.
        constants, shapes = groups_of([v.aval.shape for v in jaxpr.invars], [num_consts, len(operands) - num_consts])
        results = list(map(ctx.type, jaxpr.out_avals))
        spread = rule.spread(operation.mesh, [x.type for x in operands[num_consts:]], results)
        attribute = spread.attribute(constants, shapes, [a.shape for a in jaxpr.out_avals])
        return _calls.emit(ctx, operation.name, operation, operands, jaxpr.out_avals, attribute)


custom_partitioning_p = CustomPartitioning()


class _Rule:
    """How one call is split, and how its arguments and results are put together.

    Args:
      owner: the function with its `partition` and its rule.
      static: the values of static arguments.
      in_tree, out_tree: structures of the tuple of other arguments, and of the result.
    """

    def __init__(self, owner: custom_partitioning, static: tuple, in_tree: Any, out_tree: Any):
        self.owner, self.static, self.in_tree, self.out_tree = owner, static, in_tree, out_tree
        self.name = function_name(owner.fun)
        self.where = f"partition of {code_position(owner.fun)}"

    def __repr__(self) -> str:
        return self.name

    def spread(self, mesh: Mesh, operands: Sequence[Any], results: Sequence[Any]) -> SdyShardingRule:
        """By what rule shardings spread over the call."""
        said = self.owner.sharding_rule
        if callable(said):
            said = said(*self.static, mesh, list(operands), list(results))
        return SdyShardingRule.parse(said, **self.owner.rule_options) if isinstance(said, str) else said

    def partition(self, mesh: Mesh, args: Sequence[ShapeDtypeStruct], results: Sequence[ShapeDtypeStruct]) -> tuple:
        """What the user says: the function for one device, and the shardings of its results and arguments."""
        said = self.owner.partition(
            *self.static, mesh, tree_unflatten(self.in_tree, args), tree_unflatten(self.out_tree, results)
        )
        if not isinstance(said, tuple) or len(said) != 4 or not callable(said[1]):
            raise ArgumentError(
                self.where,
                expected="(mesh, function of one device, shardings of the results, shardings of the arguments)",
                got=repr(said),
                mend="return these four",
            )
        _, function, out_shardings, arg_shardings = said
        return (
            function,
            self._flat("the arguments", tuple(arg_shardings), self.in_tree),
            self._flat("the result", out_shardings, self.out_tree),
        )

    def _flat(self, what: str, shardings: Any, tree: Any) -> list:
        leaves, got = tree_flatten(shardings)
        if got != tree or not all(isinstance(s, Sharding) for s in leaves):
            raise TreeError(
                f"{self.where}, shardings of {what}",
                expected=f"shardings in the structure {tree}",
                got=repr(shardings),
                mend="map over the shapes that partition is given: tree.map(lambda x: x.sharding, arg_shapes)",
            )
        return leaves


class _Operation:
    """One call that is being compiled: what the partitioner's question about it is answered from."""

    numbers = itertools.count()

    def __init__(self, rule: _Rule, jaxpr: Jaxpr, num_consts: int, module: Any):
        self.rule, self.jaxpr, self.num_consts = rule, jaxpr, num_consts
        self.name = f"{rule.name} {next(_Operation.numbers)}"
        self.platform, self.context = module.platform, state.context
        meshes = [state.context.mesh, *(s.mesh for s in module.lies.values() if isinstance(s, NamedSharding))]
        mesh = next((m for m in meshes if isinstance(m, Mesh) and m.size == module.num_partitions), None)
        if mesh is None:
            raise ShardingError(
                f"call of {rule.name}",
                expected=f"a mesh of the {module.num_partitions} devices that the program runs on",
                got="none",
                mend="call it under `with mesh:`, or give an argument of the program a NamedSharding",
            )
        self.mesh: Mesh = mesh
        self.devices = tuple(module.device_assignment or mesh.flat_devices)

    def described(self, aval: ShapedArray, hlo: Any) -> ShapeDtypeStruct:
        """A whole operand or result and how it lies."""
        if self.rule.owner.decode_shardings:
            sharding = from_hlo_sharding(hlo, self.devices, self.mesh, aval.ndim)
        else:
            sharding = GSPMDSharding(self.devices, hlo)
        return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)

    def piece(self, function: Callable, avals: Sequence[ShapedArray], shardings: Sequence, wanted: Sequence) -> Jaxpr:
        """The program of one device; its results must be of the types `wanted`."""
        rule, count = self.rule, self.num_consts
        given = [*avals[:count], *(_shard(a, s) for a, s in zip(avals[count:], shardings, strict=True))]

        flat = FlatFunction(function, rule.in_tree)
        with View(self.mesh, frozenset(self.mesh.axis_names), False).scope():
            program = stage(lambda *xs: flat(*xs[count:]), given, rule.name)
        if flat.out_tree != rule.out_tree:
            raise TreeError(
                rule.where,
                expected=f"a function whose result has the structure {rule.out_tree}",
                got=str(flat.out_tree),
                mend="return what the function as a whole returns",
            )
        for i, (aval, want) in enumerate(zip(program.out_avals, wanted, strict=True)):
            if (aval.shape, aval.dtype) != (want.shape, want.dtype):
                raise ShardingError(
                    f"{rule.where}, result {i} of one device",
                    expected=f"{want.dtype.name}{list(want.shape)}, as the shardings of the result say",
                    got=f"{aval.dtype.name}{list(aval.shape)}",
                    mend="let the function of one device return its piece",
                )
        return program

    def split(self, operands: Sequence[Any], results: Sequence[Any]) -> partitioner.Split:
        """Say how the call is split, by what the user's `partition` says."""
        rule, count = self.rule, self.num_consts
        avals, outs = self.jaxpr.in_avals, self.jaxpr.out_avals
        function, ins, out = rule.partition(
            self.mesh,
            list(map(self.described, avals[count:], operands[count:])),
            list(map(self.described, outs, results)),
        )
        program = self.piece(function, avals, ins, list(map(_shard, outs, out)))
        manual = Manual(self.mesh, frozenset(self.mesh.axis_names), self.devices)
        module = lower_program(program, self.platform, name=rule.name, manual=manual)
        said = (
            [s.in_order(self.devices, a.ndim)._to_xla_hlo_sharding(a.ndim) for s, a in zip(shardings, avals)]
            for shardings, avals in ((ins, avals[count:]), (out, outs))
        )
        return partitioner.Split(str(module.module), [*[HloSharding.replicate()] * count, *next(said)], next(said))


def _shard(aval: ShapedArray, sharding: Sharding) -> ShapedArray:
    return ShapedArray(sharding.shard_shape(aval.shape), aval.dtype)


@boundaries
class custom_partitioning:
    """A function that says itself how it is split over devices, where the partitioner would not know.

    Args:
      fun: the function of whole arrays; a program on one device, inside a `shard_map`, or in an exported file, where
        no Python is asked, runs it as it is.
      static_argnums: parameters whose (hashable) values are given to `partition` as they are.

    Raises:
      ArgumentTypeError: `fun` is no function.

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
        self.static_argnums = positions("custom_partitioning, argument static_argnums", static_argnums)
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
        """Say how the function is split.

        Args:
          partition: `partition(*static, mesh, arg_shapes, result_shape)`, where the shapes are trees of
            `ShapeDtypeStruct` with the shardings that XLA has found, gives `(mesh, function, result_shardings,
            arg_shardings)`: what each device runs on its pieces (collectives over the mesh's axes are welcome), and
            how result and arguments are to lie for it.
          infer_sharding_from_operands, propagate_user_sharding: not asked; programs of the field have them for an
            older partitioner. `sharding_rule` says what is known of shardings beforehand.
          decode_shardings: whether shardings are given as `NamedSharding`s, where a spec can say them.
          sharding_rule: which dimensions are split alike: a text such as `"... i j, ... j k -> ... i k"`, an
            `SdyShardingRule`, or a function `(*static, mesh, operand_types, result_types)` that gives one of these.
          reduction_factors, need_replication_factors, permutation_factors: names of the text that are summed over,
            that nothing may split, and along which devices exchange pieces.
          **factor_sizes: sizes of the parts of compound factors.

        Raises:
          ArgumentTypeError: `partition` is no function.
          ShardingError: there is no rule, or its text cannot be read.
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
                expected="a text, an SdyShardingRule, or a function that gives one",
                got=repr(sharding_rule),
                mend="say which dimensions are split alike, such as '... i -> ... i'",
            )
        self.partition, self.decode_shardings = partition, decode_shardings
        self.sharding_rule, self.rule_options = sharding_rule, options
        self._compiled.clear_cache()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise ArgumentError(
                f"call of {code_position(self.fun)}",
                expected="a custom_partitioning function that says how it is split",
                got="one that does not",
                mend="call its def_partition first",
            )
        mend = "let the function take it by position, or bind it before with functools.partial"
        every = by_position(self.fun, args, kwargs, mend)
        return self._compiled(*every) if state.trace is None else self._call(*every)

    def _call(self, *every: Any) -> Any:
        numbers = {i % len(every) for i in self.static_argnums}
        static = tuple([x for i, x in enumerate(every) if i in numbers])
        leaves, in_tree = tree_flatten(tuple([x for i, x in enumerate(every) if i not in numbers]))

        def call(*dynamic: Any) -> Any:
            given = iter(dynamic)
            return self.fun(*(x if i in numbers else next(given) for i, x in enumerate(every)))

        function = FlatFunction(call, in_tree)
        program = stage(function, [aval_of(x) for x in leaves], function_name(self.fun))
        rule = _Rule(self, static, in_tree, function.out_tree)
        consts = program.consts
        out = custom_partitioning_p(*consts, *leaves, jaxpr=program.hoist(), rule=rule, num_consts=len(consts))
        return tree_unflatten(function.out_tree, out)
