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
from phalanx.core.effects import Effects
from phalanx.core.errors import TraceError, check_function
from phalanx.core.jaxpr import Eqn, Jaxpr, Var, eliminate_dead_code, run_program
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.core.roles import program_roles
from phalanx.core.source import code_position
from phalanx.core.tangent import Zero, is_linear
from phalanx.core.trace import stage
from phalanx.core.varying import settled_call
from phalanx.engine.frames import boundary
from phalanx.engine.mlir import hlo
from phalanx.transforms.autodiff import FlatFunction
from phalanx.transforms.batching import batch_program, to_front
from phalanx.transforms.forward import jvp_program
from phalanx.transforms.linear import LinearTrace, transpose_program
from phalanx.transforms.linearization import join_tangents, split_tangents
from phalanx.transforms.partial_eval import Policy, Split, everything_saveable, split_program
from phalanx.tree import tree_flatten, tree_unflatten


class Name(Primitive, name="name"):
    """The identity, which marks a value with a name for policies: num[*shape] -> num[*shape]."""

    def result(self, x: Any, *, name: str) -> Any:
        return x

    def roles(self, x: Any, *, name: str) -> Roles:
        dims = range(x.ndim)
        return Roles([dims], [dims])

    def lower(self, ctx: Any, x: Any, *, name: str) -> Any:
        return x

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, name: str) -> tuple:
        return (y_bar,)

    def batch(self, x: Any, b: int, *, name: str) -> tuple:
        return self(x, name=name), b


name_p = Name()


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


class CheckpointPolicies:
    """The policies for `checkpoint(policy=...)`, each a predicate on an operation whose result might be kept."""

    everything_saveable = staticmethod(everything_saveable)

    @staticmethod
    def nothing_saveable(*_: Any, **__: Any) -> bool:
        """Keep nothing but the inputs."""
        return False

    @staticmethod
    def dots_saveable(primitive: Primitive, *_: Any, **__: Any) -> bool:
        """Keep the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Primitive, *_: Any, **params: Any) -> bool:
        """Keep the results of matrix products without batch dimensions."""
        return primitive.name == "dot_general" and not any(params["dimension_numbers"][1])

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    @functools.cache
    def save_only_these_names(*names: str) -> Policy:
        """Keep values marked with one of these names by `checkpoint_name`."""

        def policy(primitive: Primitive, *_: Any, **params: Any) -> bool:
            return primitive is name_p and params["name"] in names

        return policy

    @staticmethod
    @functools.cache
    def save_any_names_but_these(*names: str) -> Policy:
        """Keep values marked with any name but these."""

        def policy(primitive: Primitive, *_: Any, **params: Any) -> bool:
            return primitive is name_p and params["name"] not in names

        return policy

    @staticmethod
    @functools.cache
    def save_anything_except_these_names(*names: str) -> Policy:
        """Keep everything but values marked with these names."""

        def policy(primitive: Primitive, *_: Any, **params: Any) -> bool:
            return not (primitive is name_p and params["name"] in names)

        return policy

    @staticmethod
    @functools.cache
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Keep what either policy keeps."""

        def policy(primitive: Primitive, *avals: Any, **params: Any) -> bool:
            return bool(first(primitive, *avals, **params)) or bool(second(primitive, *avals, **params))

        return policy


checkpoint_policies = CheckpointPolicies()


class Remat(Primitive, name="checkpoint", multiple=True):
    """A call of a program whose inner values are computed again when it is differentiated: inputs -> outputs."""

    holds_program = True
    says_shardings = True
    settle = settled_call("jaxpr")
    batch = None

    def roles(self, *avals: Any, jaxpr: Jaxpr, **_: Any) -> Roles:
        return program_roles(jaxpr)

    def result(self, *avals: Any, jaxpr: Jaxpr, **_: Any) -> list:
        return jaxpr.out_avals

    def effects(self, *avals: Any, jaxpr: Jaxpr, **_: Any) -> Effects:
        return jaxpr.effects

    def run(self, *args: Any, jaxpr: Jaxpr, **_: Any) -> list:
        return run_program(jaxpr, *args)

    def lower(
        self, ctx: Any, *operands: Any, jaxpr: Jaxpr, policy: Policy, prevent_cse: bool, differentiated: bool
    ) -> list:
        if differentiated and prevent_cse and operands:
            operands = tuple(hlo.OptimizationBarrierOp(list(operands)).results)
        return ctx.emit(jaxpr, operands)

    def jvp(self, primals: Any, tangents: Any, *, jaxpr: Jaxpr, **options: Any) -> tuple:
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_program(jaxpr, nonzero)
        out = _bind(derived, [*primals, *given], options)
        count = len(jaxpr.outvars)
        return out[:count], join_tangents(jaxpr.out_avals, has, out[count:])

    def linearize(self, trace: LinearTrace, primals: Any, tangents: Any, params: dict) -> tuple:
        jaxpr = params["jaxpr"]
        nonzero, given = split_tangents(tangents)
        derived, has = jvp_program(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        parts = split_program(
            derived.hoist(),
            [False] * (len(derived.consts) + len(primals)) + [True] * len(given),
            instantiated_inputs=True,
            policy=params["policy"],
            unknown_outputs=[False] * count + [True] * sum(has),
        )
        args = [*derived.consts, *primals, *given]
        known = run_program(parts.known, *args[: len(derived.consts) + len(primals)])
        out_dot = self._record(trace, parts, known[count:], args, params)
        return known[:count], join_tangents(jaxpr.out_avals, has, out_dot)

    def _record(
        self, trace: LinearTrace, parts: Split, residuals: Sequence[Any], args: Sequence[Any], params: dict
    ) -> list:
        """Record the part that waits, with what it needs from the part that ran."""
        unknown_args = [x for x, t in zip(args, parts.unknown_inputs) if t]
        atoms = [trace.atom(x) for x in (*residuals, *unknown_args)]
        options = params | {"jaxpr": parts.unknown, "differentiated": True}
        return trace.record(self, atoms, tuple(a.aval for a in atoms), options)

    def split(self, trace: LinearTrace, args: Any, params: dict) -> list:
        parts = split_program(
            params["jaxpr"], [trace.is_unknown(x) for x in args], instantiated_inputs=True, policy=params["policy"]
        )
        known = run_program(parts.known, *(x for x in args if not trace.is_unknown(x)))
        count = sum(parts.known_outputs)
        waiting = iter(self._record(trace, parts, known[count:], args, params))
        ready = iter(known[:count])
        return [next(ready) if k else next(waiting) for k in parts.known_outputs]

    def split_eqn(self, eqn: Eqn, unknown: Sequence[bool], policy: Policy) -> tuple:
        """The two halves of an equation inside a program that is split, and the residuals between them."""
        params = eqn.params
        parts = split_program(params["jaxpr"], unknown, instantiated_inputs=True, policy=params["policy"])
        residuals = [Var(a) for a in parts.residuals]
        known = eqn.replace(
            invars=[a for a, u in zip(eqn.invars, unknown) if not u],
            outvars=[*(v for v, k in zip(eqn.outvars, parts.known_outputs) if k), *residuals],
            params=params | {"jaxpr": parts.known},
            effects=parts.known.effects,
        )
        waiting = eqn.replace(
            invars=[*residuals, *(a for a, t in zip(eqn.invars, parts.unknown_inputs) if t)],
            outvars=[v for v, u in zip(eqn.outvars, parts.unknown_outputs) if u],
            params=params | {"jaxpr": parts.unknown, "differentiated": True},
            effects=parts.unknown.effects,
        )
        return known if known.outvars or known.effects else None, waiting, residuals

    def transpose(self, y_bars: Any, *operands: Any, jaxpr: Jaxpr, **options: Any) -> tuple:
        linear = [is_linear(x) for x in operands]
        nonzero = [type(c) is not Zero for c in y_bars]
        derived, has = transpose_program(jaxpr, linear, nonzero)
        given = [x for x, lin in zip(operands, linear) if not lin]
        out = iter(_bind(derived, [*given, *(c for c in y_bars if type(c) is not Zero)], options))
        present = iter(has)
        return tuple((next(out) if next(present) else None) if lin else None for lin in linear)

    def batch_axis(self, axis: Any, args: Any, dims: Any, *, jaxpr: Jaxpr, **options: Any) -> tuple:
        derived, mapped = batch_program(jaxpr, axis, [d is not None for d in dims])
        moved = [to_front(x, d, axis.size, axis.split) if d is not None else x for x, d in zip(args, dims)]
        return _bind(derived, moved, options), [0 if m else None for m in mapped]

    @staticmethod
    def dce(eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """The call without the outputs nobody reads."""
        smaller, kept = eliminate_dead_code(eqn.params["jaxpr"], used)
        if not any(used) and not smaller.effects:
            return None
        return eqn.replace(
            invars=[a for a, k in zip(eqn.invars, kept) if k],
            outvars=[v for v, u in zip(eqn.outvars, used) if u],
            params=eqn.params | {"jaxpr": smaller},
            effects=smaller.effects,
        )


remat_p = Remat()


def _bind(program: Jaxpr, args: Sequence[Any], options: dict) -> list:
    """Call a program as a checkpointed one, its constants as leading inputs."""
    return remat_p(*program.consts, *args, jaxpr=program.derive("hoisted", program.hoist), **options)


def checkpoint(
    fun: Callable | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Any:
    """A function whose inner values are not kept for differentiation but computed again.

    Args:
      fun: a function of arrays or pytrees of them. Left out, `checkpoint` gives a decorator.
      prevent_cse: keep the compiler from merging the second computation with the first; False inside `scan`, where it
        cannot, gives the compiler more freedom.
      policy: which values may be kept all the same (see `checkpoint_policies`); none by default.
      static_argnums: arguments that are not traced.
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
            checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums, concrete=concrete
        )
    if concrete:
        raise TraceError(
            "checkpoint, argument concrete",
            expected="False",
            got="True",
            mend="name static arguments in static_argnums",
        )
    check_function("checkpoint, argument fun", fun)
    chosen = policy or CheckpointPolicies.nothing_saveable
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @boundary
    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if state.trace is None:
            return fun(*args, **kwargs)
        fixed = {n % len(args): args[n] for n in numbers}
        dynamic = tuple(x for i, x in enumerate(args) if i not in fixed)

        def call(values: tuple, named: dict) -> Any:
            given = iter(values)
            return fun(*(fixed[i] if i in fixed else next(given) for i in range(len(args))), **named)

        leaves, tree = tree_flatten((dynamic, kwargs))
        function = FlatFunction(call, tree)
        program = stage(function, [aval_of(x) for x in leaves], f"checkpoint of {code_position(fun)}")
        program.debug_name = getattr(fun, "__name__", "checkpoint")
        options = {"policy": chosen, "prevent_cse": prevent_cse, "differentiated": False}
        return tree_unflatten(function.out_tree, _bind(program, leaves, options))

    return checkpointed


remat = checkpoint
