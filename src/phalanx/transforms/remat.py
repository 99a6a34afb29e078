"""Rematerialisation: keeping little from the forward pass and computing the rest again in the backward one.

`checkpoint` stages a function into one equation. Its linearisation is a partial evaluation in which a policy says which
values may be residuals; everything else the linear program computes again, behind a barrier that keeps the compiler
from merging the two computations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.errors import TraceError, check_function, places, positions
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import Jaxpr, derivation, run_program
from phalanx.core.primitive import Identity
from phalanx.core.source import code_position
from phalanx.core.tangent import is_linear, join_tangents, split_tangents
from phalanx.core.trace import stage
from phalanx.engine.frames import boundary
from phalanx.engine.mlir import hlo
from phalanx.transforms.calls import DivisibleCall
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.functions import FlatFunction
from phalanx.transforms.linear import LinearTrace
from phalanx.transforms.partial_eval import Policy, Split, everything_saveable, split_held, split_program
from phalanx.tree import tree_flatten, tree_unflatten


class Name(Identity, name="name"):
    """The identity, which marks a value with a name for policies: num[*shape] -> num[*shape]."""


name_p = Name()


@boundary
def checkpoint_name(x: Any, name: str) -> Any:
    """Mark a value, or each leaf of a pytree, so that rematerialisation policies can speak of it.

    Args:
      x: an array or a pytree of them.
      name: the mark.

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
    """Keep nothing but the inputs.

    Args:
      *_, **__: the operation; not read.

    Returns:
      False.

    Examples:
      >>> nothing_saveable()
      False
    """
    return False


class Remat(DivisibleCall, name="checkpoint"):
    """A call of a program whose inner values are computed again when it is differentiated: inputs -> outputs."""

    def lower(
        self, ctx: Any, *operands: Any, jaxpr: Jaxpr, policy: Policy, prevent_cse: bool, differentiated: bool
    ) -> list:
        if differentiated and prevent_cse and operands:
            operands = tuple(hlo.OptimizationBarrierOp(list(operands)).results)
        return ctx.emit(jaxpr, operands)

    def parts(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Split:
        if policy is not everything_saveable:  # a `checkpoint` around this one says what is kept
            return split_held(params["jaxpr"], unknown, policy)
        return split_program(params["jaxpr"], unknown, instantiated_inputs=True, policy=params["policy"])

    def derived(self, params: dict, program: Jaxpr, ins: Any, outs: Any, change: str) -> dict:
        return params | {"jaxpr": program, "differentiated": params["differentiated"] or change == "unknown"}

    def transpose(self, y_bars: Sequence[Any], *operands: Any, jaxpr: Jaxpr, **params: Any) -> tuple:
        # Loops and calls that compute again what was not kept, and the tangents with it, do the one before the other.
        linear = tuple([is_linear(x) for x in operands])
        return super().transpose(y_bars, *operands, jaxpr=_in_turn(jaxpr, linear), **params)

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        jaxpr = params["jaxpr"]
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_program(jaxpr, nonzero)
        args = [*derived.consts, *primals, *given]
        unknown = [False] * (len(args) - len(given)) + [True] * len(given)
        count = len(jaxpr.outvars)
        parts = split_program(
            derived.hoist(),
            unknown,
            instantiated_inputs=True,
            policy=params["policy"],
            unknown_outputs=[False] * count + [True] * sum(has),
        )
        known = run_program(parts.known, *others(args, unknown))
        waiting = [*known[count:], *chosen(args, parts.unknown_inputs)]
        out_dot = trace.record(self, waiting, self.derived(params, parts.unknown, (), (), "unknown"))
        return known[:count], join_tangents(jaxpr.out_avals, has, out_dot)


remat_p = Remat()


@derivation
def _in_turn(program: Jaxpr, unknown: Sequence[bool]) -> Jaxpr:
    """The same program, with no equation that needs unknown inputs for some of its results only."""
    parts = split_program(program, unknown)
    return program.replace(eqns=[*parts.known.eqns, *parts.unknown.eqns])


def checkpoint(
    fun: Callable | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Any:
    """A function whose inner values are not kept for differentiation but computed again.

    Args:
      fun: a function of arrays or pytrees of them. Left out, `checkpoint` gives a decorator.
      prevent_cse: keep the compiler from merging the second computation with the first; False inside `scan`, where it
        cannot, gives the compiler more freedom.
      policy: which values may be kept all the same (see `ad_checkpoint.checkpoint_policies`); none by default.
      static_argnums, static_argnames: arguments that are not traced, by position and by keyword.
      concrete: not supported; static arguments take its place.

    Returns:
      A function of the same value and derivatives.

    Raises:
      ArgumentTypeError: `fun` is not callable.

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
            mend="name static arguments in static_argnums",
        )
    check_function("checkpoint, argument fun", fun)
    if policy is not None:
        check_function("checkpoint, argument policy", policy)
    numbers = positions("checkpoint, argument static_argnums", static_argnums)
    names = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)

    @boundary
    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        mend = "pass the static arguments by position, or name them in static_argnames"
        static = places("checkpoint, argument static_argnums", numbers, len(args), static_argnums, mend)
        if state.trace is None:
            return fun(*args, **kwargs)
        is_static = [i in static for i in range(len(args))]
        fixed, fixed_named = chosen(args, is_static), {name: kwargs.pop(name) for name in names & kwargs.keys()}

        def call(values: tuple, named: dict) -> Any:
            return fun(*merged(is_static, fixed, values), **named, **fixed_named)

        leaves, tree = tree_flatten((tuple(others(args, is_static)), kwargs))
        function = FlatFunction(call, tree)
        program = stage(function, [aval_of(x) for x in leaves], f"checkpoint of {code_position(fun)}")
        program.debug_name = getattr(fun, "__name__", "checkpoint")
        kept = policy or nothing_saveable
        options = {"policy": kept, "prevent_cse": prevent_cse, "differentiated": False}
        return tree_unflatten(function.out_tree, remat_p.call(leaves, options | {"jaxpr": program}))

    return checkpointed


remat = checkpoint
