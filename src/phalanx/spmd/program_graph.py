"""The values and operations of a jaxpr as one flat graph, with the sharding rule of each operation.

Calls are inlined. A loop is opened once, with its number of iterations, and so is each branch of a `cond`: values that
a loop carries, stacks or slices are tied, dimension by dimension, because they must be sharded alike. Automatic
sharding solves over this graph, and checks of communication read it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from phalanx.core import Eqn, Jaxpr, Literal, ShapedArray, ShardingRule, Var, equation_sharding_rule, physical_aval
from phalanx.core.sharding_rules import DimClasses
from phalanx.lax import cond_p, scan_p, while_p
from phalanx.transforms import CallPrimitive


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """An array of a program.

    Args:
      aval: its type.
      trips: how often the program computes it.
      bytes: its size on one device if it is not sharded.
    """

    aval: ShapedArray
    trips: int
    bytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self.aval.shape


class Operation(NamedTuple):
    """One execution of an equation, or of an assignment at the boundary of a loop (`eqn` is None).

    Attributes:
      eqn: the equation.
      rule: its sharding rule.
      operands: its operands; None for literals.
      results: its results.
      trips: how often it is executed.
    """

    eqn: Eqn | None
    rule: ShardingRule
    operands: Sequence[Value | None]
    results: Sequence[Value]
    trips: int

    def named_dims(self, results: bool = True) -> list[tuple[Value, int, Hashable]]:
        """Each dimension of the operands, and of the results, with the name that the sharding rule gives it."""
        pairs = [*zip(self.operands, self.rule.operands, strict=True)]
        pairs += zip(self.results, self.rule.results, strict=True) if results else ()
        return [(v, d, name) for v, names in pairs if v is not None for d, name in enumerate(names)]


@dataclass(eq=False)
class ProgramGraph:
    """The values and operations of a jaxpr.

    Attributes:
      values, operations: in program order.
      inputs, outputs: of the jaxpr.
      dims: equivalence classes of dimensions `(value, d)`; those of a class must be sharded alike.
      bound: for each variable of the jaxpr and of those in it, the values that it is bound to.
      unsplit: dimensions that cannot be sharded, such as the one over which a loop runs.
      stacks: the stacked operands and results of loops, with positions in `operations` between which they are live.
    """

    values: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    dims: DimClasses = field(default_factory=DimClasses)
    bound: dict[Var, list[Value]] = field(default_factory=dict)
    unsplit: list[tuple[Value, int]] = field(default_factory=list)
    stacks: list[tuple[Value, int]] = field(default_factory=list)

    def tie(self, a: Value, b: Value, offset: int = 0) -> None:
        """Let dimension `d + offset` of `a` be sharded as dimension `d` of `b`."""
        for d in range(len(b.shape)):
            self.dims.unite((a, d + offset), (b, d))

    def _add_value(self, aval: ShapedArray, trips: int) -> Value:
        held = physical_aval(aval)
        value = Value(aval, trips, math.prod(held.shape) * held.dtype.itemsize)
        self.values.append(value)
        return value

    def copy(self, value: Value, trips: int) -> Value:
        """Add a value that an assignment computes from another one, and that may be sharded otherwise."""
        names = range(len(value.shape))
        out = self._add_value(value.aval, trips)
        self.operations.append(Operation(None, ShardingRule([names], [names]), [value], [out], trips))
        return out

    def _walk(self, jaxpr: Jaxpr, inputs: Sequence[Value], trips: int) -> list[Value]:
        """Add the equations of a jaxpr; returns its outputs."""
        known: dict[Var, Value] = {}

        def bind(variables: Sequence[Var], values: Sequence[Value]) -> None:
            for v, value in zip(variables, values, strict=True):
                known[v] = value
                self.bound.setdefault(v, []).append(value)

        def read(atom: Any) -> Value:
            return self._add_value(atom.aval, trips) if type(atom) is Literal else known[atom]

        bind(jaxpr.constvars, [self._add_value(v.aval, trips) for v in jaxpr.constvars])
        bind(jaxpr.invars, inputs)
        for eqn in jaxpr.eqns:
            bind(eqn.outvars, self._add_equation(eqn, [read(x) for x in eqn.invars], trips))
        return [read(x) for x in jaxpr.outvars]

    def _add_equation(self, eqn: Eqn, operands: list[Value], trips: int) -> list[Value]:
        """Add an equation, or the jaxprs in it; returns its results."""
        primitive, params = eqn.primitive, eqn.params
        if primitive is scan_p:
            return self._add_scan(operands, trips, **params)
        if primitive is while_p:
            return self._add_while(operands, trips, **params)
        if primitive is cond_p:
            return self._add_cond(eqn, operands, trips)
        # Other call-like primitives, such as `shard_map`, have rules of their own.
        if isinstance(primitive, CallPrimitive) and type(primitive).sharding_rule is CallPrimitive.sharding_rule:
            return self._walk(params[primitive.program], operands, trips)
        results = [self._add_value(v.aval, trips) for v in eqn.outvars]
        given = [None if type(x) is Literal else v for x, v in zip(eqn.invars, operands, strict=True)]
        self.operations.append(Operation(eqn, equation_sharding_rule(eqn), given, results, trips))
        return results

    def _add_carry(self, jaxpr: Jaxpr, consts: Sequence[Value], first: Sequence[Value], rest: Sequence[Value],
                   trips: int) -> tuple[list[Value], list[Value]]:  # fmt: skip
        """Add the body of a loop; returns the values that it carries, and its other outputs."""
        carry = [self.copy(v, v.trips) for v in first]
        out = self._walk(jaxpr, [*consts, *carry, *rest], trips)
        for before, after in zip(carry, out, strict=False):
            self.tie(before, after)
        return carry, out[len(carry) :]

    def _add_scan(self, operands: list[Value], trips: int, *, jaxpr: Jaxpr, layout: Any) -> list[Value]:
        consts, first, stacked = layout.split(operands)
        steps = trips * int(layout.length)
        rows = [self._add_value(v.aval, steps) for v in jaxpr.invars[len(consts) + len(first) :]]
        for stack, row in zip(stacked, rows, strict=True):
            self._tie_rows(stack, row)
        begin = len(self.operations)
        carry, ys = self._add_carry(jaxpr, consts, first, rows, steps)
        results = [self._add_value(y.aval.with_dim(0, layout.length), trips) for y in ys]
        self.stacks += [(v, n) for v in (*stacked, *results) for n in (begin, len(self.operations) - 1)]
        for stack, row in zip(results, ys, strict=True):
            self._tie_rows(stack, row)
        return [*(self.copy(v, trips) for v in carry), *results]

    def _tie_rows(self, stack: Value, row: Value) -> None:
        """Tie the stacked values of all iterations to the value of one."""
        self.unsplit.append((stack, 0))
        self.tie(stack, row, 1)

    def _add_while(
        self,
        operands: list[Value],
        trips: int,
        *,
        cond_jaxpr: Jaxpr,
        body_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_nconsts: int,
    ) -> list[Value]:
        # The number of iterations is not known: costs are for one iteration.
        count = cond_nconsts + body_nconsts
        carry, _ = self._add_carry(body_jaxpr, operands[cond_nconsts:count], operands[count:], (), trips)
        self._walk(cond_jaxpr, [*operands[:cond_nconsts], *carry], trips)
        return [self.copy(v, trips) for v in carry]

    def _add_cond(self, eqn: Eqn, operands: list[Value], trips: int) -> list[Value]:
        results = [self._add_value(v.aval, trips) for v in eqn.outvars]
        for branch in eqn.params["branches"]:
            for result, out in zip(results, self._walk(branch, operands[1:], trips), strict=True):
                self.tie(result, out)
        return results


def build_graph(jaxpr: Jaxpr) -> ProgramGraph:
    """The graph of a jaxpr.

    Args:
      jaxpr: the program; its sizes are known.

    Returns:
      The graph.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> program = phalanx.make_jaxpr(lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, 3)[0])(
      ...     jnp.ones(4)
      ... )
      >>> [(o.eqn.primitive.name, o.trips) for o in build_graph(program).operations if o.eqn]
      [('sin', 3)]
    """
    graph = ProgramGraph()
    graph.inputs = [graph._add_value(v.aval, 1) for v in jaxpr.invars]
    graph.outputs = graph._walk(jaxpr, graph.inputs, 1)
    return graph
