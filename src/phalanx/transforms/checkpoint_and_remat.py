"""Rematerialization (`checkpoint`): save few values in the forward pass and recompute the rest in the backward pass.

`checkpoint` stages a function into one `checkpoint` equation. Linearizing it is a partial evaluation in which a policy
decides which values may be residuals. Everything else is recomputed by the linear jaxpr, behind an optimization
barrier: without it the compiler would merge both computations and save the values after all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    Identity,
    Jaxpr,
    TraceError,
    Tracer,
    cached_on_jaxpr,
    check_function,
    format_code_position,
    get_aval,
    is_linear,
    join_tangents,
    merge_lists,
    normalize_positions,
    parse_positions,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    split_tangents,
    state,
    state_extra,
)
from phalanx.engine import Cache, api_boundary, hlo, ir
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms.call_primitives import PartialEvalCall
from phalanx.transforms.flat_function import function_name, trace_flat, wraps
from phalanx.transforms.jvp_trace import jvp_jaxpr
from phalanx.transforms.linear_trace import LinearTrace
from phalanx.transforms.partial_eval import (
    PartialEvalJaxprs,
    Policy,
    everything_saveable,
    partial_eval_inner_jaxpr,
    partial_eval_jaxpr,
)
from phalanx.transforms.structure_checks import broadcast_flags
from phalanx.tree import PyTreeDef, tree_flatten, tree_leaves, tree_unflatten
from phalanx.typing import PyTree


class Name(Identity, name="name"):
    """The identity, which marks a value with a name for checkpoint policies: num[*shape] -> num[*shape]."""


name_p = Name()


@api_boundary
def checkpoint_name(x: PyTree, name: str) -> PyTree:
    """Name a value, or every leaf of a pytree, for checkpoint policies such as `save_only_these_names`.

    Args:
      x: an array or a pytree of arrays.
      name: the name.

    Returns:
      `x`.

    Examples:
      >>> import phalanx
      >>> float(phalanx.ad_checkpoint.checkpoint_name(2.0, "activation"))
      2.0
    """
    leaves, tree = tree_flatten(x)
    return tree_unflatten(tree, [name_p(leaf, name=name) for leaf in leaves])


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """The checkpoint policy that saves only the inputs, so that everything is recomputed.

    Args:
      *_, **__: the operation; not read.

    Returns:
      False.

    Examples:
      >>> nothing_saveable()
      False
    """
    return False


class Remat(PartialEvalCall, name="remat2"):
    """A call of a jaxpr whose intermediate values are recomputed when it is differentiated: inputs -> outputs.

    `prevent_cse` is a bool for all inputs, or one for each of the last inputs; the others have True.
    """

    def lower(
        self,
        ctx: LoweringContext,
        *operands: ir.Value,
        jaxpr: Jaxpr,
        policy: Policy,
        prevent_cse: bool | tuple[bool, ...],
        differentiated: bool,
    ) -> list:
        # Only the recomputation needs the barrier; the original computation can be optimized freely.
        flags = _flags_of_inputs(prevent_cse, len(operands)) if differentiated else [False] * len(operands)
        if any(flags):
            behind = hlo.OptimizationBarrierOp(select_flagged(operands, flags)).results
            operands = tuple(merge_lists(flags, list(behind), select_unflagged(operands, flags)))
        return ctx.emit(jaxpr, operands, "checkpoint", *(("rematted_computation",) if differentiated else ()))

    def printed_params(self, params: dict) -> dict:
        is_default = params["policy"] is nothing_saveable
        return super().printed_params(params | {"policy": None} if is_default else params)

    def partial_eval_parts(self, params: dict, unknown: Sequence[bool], policy: Policy) -> PartialEvalJaxprs:
        if policy is not everything_saveable:  # the policy of an enclosing `checkpoint` applies
            return partial_eval_inner_jaxpr(params["jaxpr"], unknown, policy)
        return partial_eval_jaxpr(params["jaxpr"], unknown, instantiated_inputs=True, policy=params["policy"])

    def input_output_options(self, params: dict) -> tuple[Sequence[Any], Sequence[Any]]:
        """For each input whether a barrier is in front of its recomputation; nothing for the outputs."""
        jaxpr = params["jaxpr"]
        return _flags_of_inputs(params["prevent_cse"], len(jaxpr.invars)), [None] * len(jaxpr.outvars)

    def derive_params(
        self, params: dict, jaxpr: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], transform: str
    ) -> dict:
        if not isinstance(params["prevent_cse"], bool):
            params = params | {"prevent_cse": tuple([flag is not False for flag in ins])}
        return params | {"jaxpr": jaxpr, "differentiated": params["differentiated"] or transform == "unknown"}

    def transpose(self, y_bars: Sequence[Any], *operands: Any, jaxpr: Jaxpr, **params: Any) -> tuple:
        # A recomputing loop or call may produce residuals and tangents in one equation. Transposition needs the
        # residuals as known values, so such equations are divided first.
        linear = tuple([is_linear(x) for x in operands])
        return super().transpose(y_bars, *operands, jaxpr=_divide_mixed_eqns(jaxpr, linear), **params)

    def linearize(self, trace: LinearTrace, primals: Sequence[Any], tangents: Sequence[Any], params: dict) -> tuple:
        jaxpr = params["jaxpr"]
        nonzero, given = split_tangents(tangents)
        # The JVP is partially evaluated with the tangents unknown: the known part runs now, and the unknown part, which
        # recomputes what the policy does not save, is recorded as a checkpoint equation of the linear jaxpr.
        derived, has = jvp_jaxpr(jaxpr, nonzero)
        args = [*derived.consts, *primals, *given]
        unknown = [False] * (len(args) - len(given)) + [True] * len(given)
        count = len(jaxpr.outvars)
        parts = partial_eval_jaxpr(
            derived.hoist(),
            unknown,
            instantiated_inputs=True,
            policy=params["policy"],
            unknown_outputs=[False] * count + [True] * sum(has),
        )
        known = run_jaxpr(parts.known, *select_unflagged(args, unknown))
        waiting = [*known[count:], *select_flagged(args, parts.unknown_inputs)]
        flags = [*[None] * len(derived.consts), *self.input_output_options(params)[0], *[None] * len(given)]
        ins = [*[None] * len(known[count:]), *select_flagged(flags, parts.unknown_inputs)]
        out_dot = trace.record(self, waiting, self.derive_params(params, parts.unknown, ins, (), "unknown"))
        return known[:count], join_tangents(jaxpr.out_avals, has, out_dot)


remat_p = Remat()


def _flags_of_inputs(prevent_cse: bool | tuple[bool, ...], count: int) -> Sequence[bool]:
    """The flag of each of `count` inputs; constants come first, and have True."""
    if isinstance(prevent_cse, bool):
        return [prevent_cse] * count
    return [*[True] * (count - len(prevent_cse)), *prevent_cse]


@cached_on_jaxpr
def _divide_mixed_eqns(jaxpr: Jaxpr, unknown: Sequence[bool]) -> Jaxpr:
    """An equivalent jaxpr without equations that need unknown inputs for only some of their results."""
    parts = partial_eval_jaxpr(jaxpr, unknown)
    return jaxpr.replace(eqns=[*parts.known.eqns, *parts.unknown.eqns])


def checkpoint(
    fun: Callable | None = None,
    *,
    prevent_cse: PyTree = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Any:
    """Recompute the intermediate values of a function in the backward pass instead of saving them.

    Args:
      fun: a function of arrays or pytrees of arrays. If omitted, `checkpoint` returns a decorator.
      prevent_cse: prevent the compiler from merging the recomputation with the original computation. False is safe
        inside `scan`, whose iterations are never merged, and lets the compiler optimize more. A tuple has a flag, or a
        pytree of flags, for each positional argument: computations from arguments with False may be merged.
      policy: decides which values may be saved (see `phalanx.checkpoint_policies`); none by default.
      static_argnums, static_argnames: arguments that are not traced, by position and by keyword.
      concrete: not supported; pass static arguments instead.

    Returns:
      A function with the value and the derivatives of `fun`.

    Raises:
      ArgumentTypeError: `fun` is not callable.
      TreeError: `prevent_cse` does not fit the arguments.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> f = phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
      >>> round(float(phalanx.grad(f)(1.0)), 4)
      0.36
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            concrete=concrete,
        )
    if concrete:
        raise TraceError(
            "checkpoint, argument concrete",
            expected="False",
            got="True",
            fix="drop concrete, and list the arguments that must be concrete in static_argnums",
        )
    check_function("checkpoint, argument fun", fun)
    if policy is not None:
        check_function("checkpoint, argument policy", policy)
    numbers = parse_positions("checkpoint, argument static_argnums", static_argnums)
    names = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)
    traces: Cache[Any, tuple[Jaxpr, PyTreeDef]] = Cache("transforms.checkpoint_traces", 64)

    @api_boundary
    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        fix = "pass the static arguments by position, or list their names in static_argnames"
        static = normalize_positions("checkpoint, argument static_argnums", numbers, len(args), static_argnums, fix)
        is_static = [i in static for i in range(len(args))]
        # Static arguments are captured by the closure; all others become inputs of the equation.
        fixed, fixed_named = select_flagged(args, is_static), {name: kwargs.pop(name) for name in names & kwargs.keys()}

        def call(values: tuple, named: dict) -> Any:
            return fun(*merge_lists(is_static, fixed, values), **named, **fixed_named)

        given = tuple(select_unflagged(args, is_static)), kwargs
        leaves, tree = tree_flatten(given)
        key: Any = (tree, *map(get_aval, leaves), *fixed, *map(type, fixed), *fixed_named.items(), state.context)
        try:
            traced = traces.get(key)
        except TypeError:  # an unhashable static argument
            key = traced = None
        if traced is None:
            with state_extra(checkpoint_policy=policy or nothing_saveable):  # which `custom_remat` reads
                _, function, jaxpr = trace_flat(call, given, f"checkpoint of {format_code_position(fun)}")
            jaxpr.debug_name = function_name(fun)
            traced = jaxpr, function.out_tree
            # A jaxpr with tracers among its constants belongs to one trace of an outer transformation.
            if key is not None and not any(isinstance(c, Tracer) for c in jaxpr.consts):
                traces[key] = traced
        jaxpr, out_tree = traced
        flags = prevent_cse
        if not isinstance(prevent_cse, bool):
            where = f"checkpoint of {format_code_position(fun)}, argument prevent_cse"
            flags = tuple(broadcast_flags(prevent_cse, given[0], where) + [True] * len(tree_leaves(kwargs)))
        params = {"jaxpr": jaxpr, "policy": policy or nothing_saveable, "prevent_cse": flags, "differentiated": False}
        return tree_unflatten(out_tree, remat_p.bind_call(leaves, params))

    return checkpointed


remat = checkpoint
