"""Linear programs: recording them, and running them backwards.

A `LinearTrace` executes what does not depend on its inputs in its parent and records the rest, so that under a
`JVPTrace` it collects exactly the tangent part of a computation, with the primal values it needs as constants.
`backward` transposes such a program equation by equation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core.aval import ShapedArray
from phalanx.core.config import state
from phalanx.core.flags import chosen, each, others
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, derivation, without_dead_code
from phalanx.core.primitive import Primitive
from phalanx.core.tangent import Linear, Zero, conform, instantiate, join_tangents, vector_space
from phalanx.core.trace import StagedTracer, StagingTrace, stage
from phalanx.core.varying import add_cotangents, settled


class LinearTrace(StagingTrace):
    """Records what depends on its inputs and lets the parent do everything else."""

    __slots__ = ()
    compiles = False

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        for x in args:
            if type(x) is StagedTracer and x._trace is self:
                break
        else:
            before = state.trace
            state.trace = self.parent
            try:
                return primitive(*args, **params)
            finally:
                state.trace = before
        if primitive.split is not None:
            return primitive.split(self, args, params)
        return super().process(primitive, args, params)

    def is_unknown(self, x: Any) -> bool:
        """Whether a value depends on this trace's inputs."""
        return type(x) is StagedTracer and x._trace is self


def backward(eqns: Sequence[Eqn], known: dict[Var, Any], cotangents: dict[Var, Any]) -> None:
    """Run linear equations, given in forward order, backwards.

    Args:
      eqns: the equations.
      known: the values of variables that are not linear.
      cotangents: for each variable with one, its cotangent; filled in for the inputs of the equations.
    """
    before = state.source
    try:
        for eqn in reversed(eqns):
            y_bar = _arrived(eqn, cotangents)
            if y_bar is None:
                continue
            operands = _operands(eqn, known)
            state.source = eqn.source
            if _is_split(eqn):
                y_bar, operands = _opened(eqn, y_bar, operands)
            x_bars = eqn.primitive.transpose(y_bar, *operands, **eqn.params)
            for atom, x, x_bar in zip(eqn.invars, operands, x_bars, strict=True):
                if x_bar is None or type(x) is not Linear or type(x_bar) is Zero:
                    continue
                if not _is_as_split(x_bar, atom.aval):
                    x_bar = conform(x_bar, atom.aval)
                held = cotangents.get(atom)
                cotangents[atom] = x_bar if held is None else add_cotangents(held, x_bar, atom.aval)
    finally:
        state.source = before


def _operands(eqn: Eqn, known: dict[Var, Any]) -> list:
    """What a transpose rule gets: the known operands, and placeholders for the linear ones."""
    operands = []
    for atom in eqn.invars:
        if type(atom) is Literal:
            operands.append(atom.value)
        elif atom in known:
            operands.append(known[atom])
        else:
            operands.append(Linear(atom.aval))
    return operands


def _is_split(eqn: Eqn) -> bool:
    """Whether a type in an equation has a sharding."""
    for atoms in (eqn.outvars, eqn.invars):
        for atom in atoms:
            if atom.aval.sharding is not None:
                return True
    return False


def _opened(eqn: Eqn, y_bar: Any, operands: list) -> tuple[Any, list]:
    """What a transpose rule gets where types have shardings: none of them, so that nothing in the rule is ambiguous.

    The partitioner decides between the ends, whose types `backward` knows. Elementwise operations need no such freedom,
    and what holds programs deals with them inside.
    """
    primitive = eqn.primitive
    if primitive.scalars_broadcast or primitive.says_shardings:
        return y_bar, operands

    def opened(x: Any) -> Any:
        if type(x) is Linear or type(x) is Zero:
            return type(x)(x.aval.unsharded())
        return x if getattr(x, "aval", None) is None or x.aval.sharding is None else vector_space.open_type(x)

    return [*map(opened, y_bar)] if primitive.multiple else opened(y_bar), [*map(opened, operands)]


def _is_as_split(x_bar: Any, aval: Any) -> bool:
    """Whether a cotangent is split at least as the type of its primal, so that it need not be gathered now."""
    have = getattr(x_bar, "aval", None)
    have, want = None if have is None else have.sharding, aval.sharding
    if have is want:
        return True
    if have is None or want is None or have.mesh is not want.mesh:
        return False
    return all(not w or h == w for h, w in zip(have.spec.dims, want.spec.dims, strict=True))


def _arrived(eqn: Eqn, cotangents: dict[Var, Any]) -> Any:
    """Take the cotangents of an equation's results; None where all are zero."""
    if not eqn.primitive.multiple:
        v = eqn.outvars[0]
        y_bar = cotangents.pop(v, None)
        return None if y_bar is None or type(y_bar) is Zero else settled(y_bar, v.aval)
    y_bars = [_cotangent(cotangents.pop(v, None), v.aval) for v in eqn.outvars]
    return None if all(type(c) is Zero for c in y_bars) else y_bars


def _cotangent(c: Any, aval: ShapedArray) -> Any:
    """The cotangent of a value, given the sum of what its uses gave."""
    if c is None:
        return Zero(aval.to_tangent())
    return c if type(c) is Zero else settled(c, aval)


def transpose_flat(program: Jaxpr, consts: Sequence[Any], cotangents: Sequence[Any]) -> list:
    """The cotangents, arrays or `Zero`s, of the inputs of a program that is linear in all of them."""
    known = dict(zip(program.constvars, consts, strict=True))
    return _transpose(program, known, cotangents, program.invars)


def _transpose(program: Jaxpr, known: dict, cotangents: Sequence[Any], inputs: Sequence[Var]) -> list:
    linear = []
    for eqn in program.eqns:
        for a in eqn.invars:
            if type(a) is not Literal and a not in known:
                linear.append(eqn)
                break
        else:
            values = [a.value if type(a) is Literal else known[a] for a in eqn.invars]
            known.update(zip(eqn.outvars, eqn.primitive.listed(*values, **eqn.params), strict=True))
    pending: dict[Var, Any] = {}
    for v, c in zip(program.outvars, cotangents, strict=True):
        if type(v) is not Literal and v not in known and type(c) is not Zero:
            c = conform(c, v.aval)
            pending[v] = add_cotangents(pending[v], c, v.aval) if v in pending else c
    backward(linear, known, pending)
    return [conform(_cotangent(pending.get(v), v.aval), v.aval) for v in inputs]


@derivation
def transpose_program(
    program: Jaxpr,
    linear: Sequence[bool],
    nonzero_cotangents: Sequence[bool],
    instantiated: bool | Sequence[bool] = False,
) -> tuple[Jaxpr, list[bool]]:
    """The program that runs another's linear part backwards.

    Args:
      program: a program without constants, linear in the marked inputs.
      linear: for each input, whether it is linear.
      nonzero_cotangents: for each output, whether it has a cotangent.
      instantiated: for each linear input (or for all), whether its cotangent must be there even if zero.

    Returns:
      The program (inputs that are not linear, then cotangents that are not zero) -> cotangents of the linear inputs
      that have one, and for each linear input whether it has one.
    """
    known_vars, linear_vars = others(program.invars, linear), chosen(program.invars, linear)
    present: list[bool] = []

    def fun(*args: Any) -> list:
        known = dict(zip(known_vars, args, strict=False))
        cts = join_tangents(program.out_avals, nonzero_cotangents, args[len(known_vars) :])
        known.update(zip(program.constvars, program.consts, strict=True))
        x_bars = _transpose(program, known, cts, linear_vars)
        present[:] = [w or type(x) is not Zero for x, w in zip(x_bars, each(instantiated, x_bars), strict=True)]
        return list(map(instantiate, chosen(x_bars, present)))

    cotangents = [a.to_tangent() for a in chosen(program.out_avals, nonzero_cotangents)]
    avals = [*(v.aval for v in known_vars), *cotangents]
    return stage(fun, avals, f"transpose({program.debug_name})"), present


def finish_linear(trace: LinearTrace, out_tangents: Sequence[Any]) -> tuple[Jaxpr, list[bool]]:
    """End a linear trace: its program, without what its outputs do not need, and which outputs are not zero."""
    nonzero = [type(t) is not Zero for t in out_tangents]
    program = trace.finish([t for t in out_tangents if type(t) is not Zero])
    return without_dead_code(program), nonzero
