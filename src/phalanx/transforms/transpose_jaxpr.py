"""Transposing linear jaxprs: reverse-mode differentiation is linearization followed by this backward pass.

Equations are visited from last to first. Each takes the cotangents of its results, applies the `transpose` rule of its
primitive, and adds what comes out to the cotangents of its linear operands. Two properties of types are maintained on
the way: a cotangent varies over the same mesh axes as its primal (`core.varying_manual_axes`), and it has the sharding
of its primal's type over Explicit axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import (
    Eqn,
    Jaxpr,
    Linear,
    Literal,
    ShapedArray,
    Var,
    Zero,
    add_cotangents,
    broadcast_flag,
    cached_on_jaxpr,
    conform,
    enter_source,
    enter_transform,
    instantiate,
    join_tangents,
    preserve_wide_types,
    reduce_to_varying,
    select_flagged,
    select_unflagged,
    state,
    trace_to_jaxpr,
    vector_space,
)
from phalanx.transforms.backward_logs import append_logs, collect_logs, mark_logs
from phalanx.typing import ArrayLike


def backward_pass(eqns: Sequence[Eqn], known: dict[Var, Any], cotangents: dict[Var, Any]) -> None:
    """Run linear equations, given in forward order, backwards.

    Args:
      eqns: the equations.
      known: the values of the variables that are not linear.
      cotangents: the cotangents of variables; entries for the inputs of the equations are added.
    """
    before = state.source
    try:
        for eqn in reversed(eqns):
            y_bar = _pop_cotangents(eqn, cotangents)
            if y_bar is None:
                continue
            operands, is_typed = _transpose_operands(eqn, known)
            # Transposed operations get the source line of the operation that they transpose.
            state.source = eqn.source
            if is_typed:
                operands = [Linear(x.aval.to_cotangent()) if type(x) is Linear else x for x in operands]
                if not _has_unreduced(y_bar, operands):
                    y_bar, operands = _drop_typed_shardings(eqn, y_bar, operands)
            x_bars = eqn.primitive.transpose(y_bar, *operands, **eqn.params)
            for atom, x, x_bar in zip(eqn.invars, operands, x_bars, strict=True):
                if x_bar is None or type(x) is not Linear or type(x_bar) is Zero:
                    continue
                aval = atom.aval
                if is_typed or getattr(x_bar, "aval", None) is not aval:
                    # A cotangent that is sharded more finely than its primal stays so until the sum is complete.
                    if not _is_sharded_as(x_bar, aval):
                        x_bar = conform(x_bar, aval.to_cotangent())
                held = cotangents.get(atom)
                cotangents[atom] = x_bar if held is None else add_cotangents(held, x_bar, aval)
    finally:
        state.source = before


def _transpose_operands(eqn: Eqn, known: dict[Var, Any]) -> tuple[list, bool]:
    """The operands for a transpose rule: known values, and `Linear` placeholders for the linear ones.

    Also returned is whether the type of an operand or result has a sharding over Explicit axes.
    """
    operands: list[Any] = []
    is_typed = False
    for v in eqn.outvars:  # loops, since this runs for every equation
        if v.aval.type_sharding is not None:
            is_typed = True
    for atom in eqn.invars:
        aval = atom.aval
        if aval.type_sharding is not None:
            is_typed = True
        if type(atom) is Literal:
            operands.append(atom.value)
        else:
            operands.append(known[atom] if atom in known else Linear(aval))
    return operands, is_typed


def _has_unreduced(y_bar: Any, operands: Sequence[Any]) -> bool:
    """Whether an operand of a transpose rule is unreduced; the rule then runs on terms and needs no communication."""
    for x in (*(y_bar if isinstance(y_bar, list) else [y_bar]), *operands):
        aval = getattr(x, "aval", None)
        if aval is not None and aval.type_sharding is not None:
            if aval.manual_reductions or (type(x) is not Linear and aval.type_sharding.spec.unreduced):
                return True
    return False


def _drop_typed_shardings(eqn: Eqn, y_bar: Any, operands: list) -> tuple[Any, list]:
    """Drop the shardings from the types of the cotangents and operands of a transpose rule.

    `Linear` placeholders have the type of the cotangent. The operations inside a transpose rule may be ambiguous to the
    rules for Explicit axes although the result is not. The partitioner shards the intermediate values instead, and
    `backward_pass` restores the sharding of each result. Elementwise operations are never ambiguous, and call-like
    primitives transpose their jaxpr with its types.
    """
    primitive = eqn.primitive
    if primitive.broadcasts_scalars or primitive.typed_sharding_rule:
        return y_bar, operands

    def drop(x: Any) -> Any:
        if type(x) is Linear or type(x) is Zero:
            return type(x)(x.aval.drop_sharding())
        return x if getattr(x, "aval", None) is None or x.aval.type_sharding is None else vector_space.open_type(x)

    return [*map(drop, y_bar)] if primitive.multiple else drop(y_bar), [*map(drop, operands)]


def _is_sharded_as(x_bar: ArrayLike, aval: ShapedArray) -> bool:
    """Whether a cotangent is sharded at least as its primal's type demands, so that it need not be gathered now."""
    have, want = getattr(getattr(x_bar, "aval", None), "type_sharding", None), aval.type_sharding
    want = want and want.to_cotangent()
    if have is want or have is None or want is None or have.mesh is not want.mesh:
        return have is want
    if have.spec.unreduced != want.spec.unreduced or have.spec.reduced != want.spec.reduced:
        return False
    return all(not w or h == w for h, w in zip(have.spec.dims, want.spec.dims, strict=True))


def _pop_cotangents(eqn: Eqn, cotangents: dict[Var, Any]) -> Any:
    """Take the cotangents of an equation's results; None where all are zero."""
    if not eqn.primitive.multiple:
        v = eqn.outvars[0]
        y_bar = cotangents.pop(v, None)
        return None if y_bar is None or type(y_bar) is Zero else reduce_to_varying(y_bar, v.aval)
    y_bars = [_complete_cotangent(cotangents.pop(v, None), v.aval) for v in eqn.outvars]
    return None if all(type(c) is Zero for c in y_bars) else y_bars


def _complete_cotangent(c: ArrayLike | Zero | None, aval: ShapedArray) -> Any:
    """The cotangent of a value, once all of its uses have added their part."""
    if c is None:
        return Zero(aval.to_cotangent())
    return c if type(c) is Zero else reduce_to_varying(c, aval)


def transpose_flat(jaxpr: Jaxpr, consts: Sequence[Any], cotangents: Sequence[Any]) -> list:
    """The cotangents, arrays or `Zero`s, of the inputs of a jaxpr that is linear in all of them."""
    with enter_transform("transpose"), collect_logs():
        return _transpose(jaxpr, dict(zip(jaxpr.constvars, consts, strict=True)), cotangents, jaxpr.invars)


def add_transpose(
    jaxpr: Jaxpr, consts: Sequence[Any], cotangents: Sequence[Any], sums: Sequence[Any], wanted: Sequence[bool]
) -> tuple[list, dict]:
    """The cotangents of some inputs of a linear jaxpr, added to given values, and the logs of the backward pass.

    Args:
      jaxpr, consts, cotangents: as in `transpose_flat`.
      sums: for each input the value that its cotangent is added to, or None.
      wanted: for each input, whether its cotangent is computed.

    Returns:
      For each input the sum or the cotangent, a `Zero` for inputs that are not wanted; and the logs.
    """
    # Equations that no wanted input reaches are left out; they would give cotangents to others only.
    needed = {*select_flagged(jaxpr.invars, wanted)}
    linear = set(jaxpr.invars)
    eqns = []
    for eqn in jaxpr.eqns:
        reads = {a for a in eqn.invars if type(a) is not Literal}
        if reads & linear:
            linear.update(eqn.outvars)
            if not reads & needed:
                continue
            needed.update(eqn.outvars)
        eqns.append(eqn)
    held = {v: x for v, x in zip(jaxpr.invars, sums, strict=True) if x is not None}
    given = [
        c if type(v) is Literal or v in needed or v not in linear else Zero(v.aval)
        for v, c in zip(jaxpr.outvars, cotangents, strict=True)
    ]
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    with enter_transform("transpose"), collect_logs() as logs:
        out = _transpose(jaxpr.replace(eqns=eqns), known, given, jaxpr.invars, held)
    return [x if w else Zero(v.aval) for x, v, w in zip(out, jaxpr.invars, wanted, strict=True)], logs


def _transpose(
    jaxpr: Jaxpr, known: dict, cotangents: Sequence[Any], inputs: Sequence[Var], sums: dict[Var, Any] | None = None
) -> list:
    """Evaluate the equations that are not linear, and run the others backwards.

    `sums` has initial values of the cotangents of some inputs.
    """
    with preserve_wide_types(jaxpr):
        return _run_backwards(jaxpr, known, cotangents, inputs, sums or {})


def _run_backwards(
    jaxpr: Jaxpr, known: dict, cotangents: Sequence[Any], inputs: Sequence[Var], pending: dict[Var, Any]
) -> list:
    # Equations without linear operands compute residuals, for example inside of a transposed `jit` or `checkpoint`.
    linear = []
    before, scope = state.source, state.scope
    try:
        for eqn in jaxpr.eqns:
            for a in eqn.invars:
                if type(a) is not Literal and a not in known:
                    linear.append(eqn)
                    break
            else:
                values = [a.value if type(a) is Literal else known[a] for a in eqn.invars]
                enter_source(eqn, before, scope)
                known.update(zip(eqn.outvars, eqn.primitive.bind_as_list(*values, **eqn.params), strict=True))
    finally:
        state.source, state.scope = before, scope
    for v, c in zip(jaxpr.outvars, cotangents, strict=True):
        if type(v) is not Literal and v not in known and type(c) is not Zero:
            # A variable may be returned several times; its cotangents are added.
            c = conform(c, v.aval.to_cotangent())
            pending[v] = add_cotangents(pending[v], c, v.aval) if v in pending else c
    backward_pass(linear, known, pending)
    return [conform(_complete_cotangent(pending.get(v), v.aval), v.aval.to_cotangent()) for v in inputs]


@cached_on_jaxpr
def transpose_jaxpr(
    jaxpr: Jaxpr,
    linear: Sequence[bool],
    nonzero_cotangents: Sequence[bool],
    instantiated: bool | Sequence[bool] = False,
) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr that transposes the linear part of a jaxpr.

    Args:
      jaxpr: a jaxpr without constants, linear in the marked inputs.
      linear: for each input, whether it is linear.
      nonzero_cotangents: for each output, whether it has a cotangent.
      instantiated: for each linear input (or one bool for all), whether its cotangent must be instantiated even if it
        is zero.

    Returns:
      The jaxpr (inputs that are not linear, then nonzero cotangents) -> (cotangents of the linear inputs that have one,
      then the logs of its rules, see `take_logs`), and for each linear input whether it has one.
    """
    known_vars, linear_vars = select_unflagged(jaxpr.invars, linear), select_flagged(jaxpr.invars, linear)
    present: list[bool] = []
    log_tree: Any = None

    def fun(*args: Any) -> list:
        nonlocal log_tree
        known = dict(zip((*known_vars, *jaxpr.constvars), (*args[: len(known_vars)], *jaxpr.consts), strict=True))
        cts = join_tangents(jaxpr.out_avals, nonzero_cotangents, args[len(known_vars) :])
        with collect_logs() as logs:
            x_bars = _transpose(jaxpr, known, cts, linear_vars)
        wanted = zip(x_bars, broadcast_flag(instantiated, x_bars), strict=True)
        present[:] = [w or type(x) is not Zero for x, w in wanted]
        out, log_tree = append_logs([instantiate(x) for x in select_flagged(x_bars, present)], logs)
        return out

    cotangents = [a.to_cotangent() for a in select_flagged(jaxpr.out_avals, nonzero_cotangents)]
    avals = [*(v.aval for v in known_vars), *cotangents]
    derived = trace_to_jaxpr(fun, avals, f"transpose({jaxpr.debug_name})")
    mark_logs(derived, log_tree)
    return derived, present
