"""The primitives of custom derivatives: calls whose parameters are flat functions, a function and the user's rules.

Run at once they call the function; under differentiation they call the user's rule; staged they hold the function's
program; batched they map function and rule alike. A `custom_vjp` leaves in the linear program one equation whose
transpose is the user's `bwd`. `rules` binds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import TraceError
from phalanx.core.flags import chosen, merged, others
from phalanx.core.jaxpr import Jaxpr, named_axes, run_program
from phalanx.core.primitive import Primitive, Undefined
from phalanx.core.source import summary
from phalanx.core.tangent import Zero, is_linear, vector_space
from phalanx.core.trace import StagingTrace, Tracer, stage
from phalanx.transforms.batching import Axis, batch_program, front_dims, mapped_function, vmap_flat
from phalanx.transforms.calls import ProgramCall
from phalanx.transforms.functions import function_name


class _CustomCall(ProgramCall):
    """What the calls of `custom_jvp` and `custom_vjp` share: `fun` is a flat function, or its program once staged."""

    program = "fun"

    def run(self, *args: Any, fun: Any, **rules: Any) -> list:
        return run_program(fun, *args) if type(fun) is Jaxpr else list(fun(*args))

    def named_axes(self, *args: Any, fun: Any, **rules: Any) -> frozenset:
        return named_axes(fun if type(fun) is Jaxpr else self._program(args, fun))

    def _program(self, args: Sequence[Any], fun: Any) -> Jaxpr:
        return stage(fun, [aval_of(x) for x in args], getattr(fun, "__name__", self.name))

    def stage(self, trace: StagingTrace, args: Sequence[Any], params: dict) -> list:
        """Record the call with the function's program, constants in front."""
        fun = params["fun"]
        if type(fun) is not Jaxpr:
            program = self._program(args, fun)
            count = len(program.consts)
            args = [*program.consts, *args]
            params = params | {"fun": program.hoist(), "num_consts": count}
        return trace.record(self, args, params)


class CustomJVPCall(_CustomCall, name="custom_jvp_call"):
    """A call of a function with its own derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(self, primals: Any, tangents: Any, *, fun: Any, rule: Callable, num_consts: int) -> tuple:
        _check_closed_over("custom_jvp", tangents[:num_consts])
        return rule(primals[num_consts:], tangents[num_consts:])

    def batch_axis(self, axis: Axis, args: Any, dims: Any, *, fun: Any, rule: Callable, num_consts: int) -> tuple:
        moved, mapped, batched = _batch_call(axis, args, dims, fun)
        ins = front_dims(mapped[num_consts:])

        def batched_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
            count = len(primals)

            def one(*xs: Any) -> list:
                out, out_dot = rule(list(xs[:count]), list(xs[count:]))
                return [*out, *out_dot]

            pairs = _vmap(one, [*primals, *tangents], [*ins, *ins], axis, "custom_jvp")
            results = len(pairs) // 2
            ys = list(itertools.starmap(axis.to_front, pairs[:results]))
            dots = zip(ys, pairs[results:], strict=True)
            return ys, [Zero.like(y) if type(t) is Zero else axis.to_front(t, d) for y, (t, d) in dots]

        out = self(*moved, fun=batched, rule=batched_rule, num_consts=num_consts)
        return out, [0] * len(out)


def _check_closed_over(kind: str, tangents: Sequence[Any]) -> None:
    if any(type(t) is not Zero for t in tangents):
        raise TraceError(
            f"differentiation of a {kind} function",
            expected="a function that does not close over differentiated values",
            got="one that does, so that its rule cannot say how they matter",
            mend="pass the value as an argument, or use closure_convert",
        )


def _batch_call(axis: Axis, args: Any, dims: Any, fun: Any) -> tuple:
    """Arguments with mapped dimensions in front, which of them are mapped, and the function of many examples."""
    moved, mapped = axis.to_fronts(args, dims), [d is not None for d in dims]
    if type(fun) is not Jaxpr and all(not isinstance(x, Tracer) or x.concrete is not None for x in moved):
        # A function that may look at its arguments is not staged, by which it would lose sight of them.
        return moved, mapped, mapped_function(fun, mapped, axis)
    if type(fun) is not Jaxpr:
        avals = [aval_of(x) if d is None else aval_of(x).without_dim(d) for x, d in zip(args, dims, strict=True)]
        fun = stage(fun, avals, function_name(fun))
    return moved, mapped, batch_program(fun, axis, mapped, True)[0]


def _vmap(fun: Callable, args: Sequence[Any], dims: Sequence[Any], axis: Axis, name: str) -> list[tuple[Any, Any]]:
    """Map a flat function that takes and gives symbolic zeros among its values: the results with their dimensions."""
    has = [type(x) is not Zero for x in args]
    zeros = [
        Zero(x.aval if d is None else x.aval.without_dim(d))
        for x, d in zip(others(args, has), others(dims, has), strict=True)
    ]
    found: list = []

    def dense(*xs: Any) -> list:
        found[:] = fun(*merged(has, xs, zeros))
        return [x for x in found if type(x) is not Zero]

    pairs = zip(*vmap_flat(dense, chosen(args, has), chosen(dims, has), axis, name), strict=True)
    return merged([type(x) is not Zero for x in found], pairs, [(x, None) for x in found if type(x) is Zero])


custom_jvp_call_p = CustomJVPCall()


class CustomVJPCall(_CustomCall, name="custom_vjp_call"):
    """A call of a function with its own reverse derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(self, primals: Any, tangents: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int) -> tuple:
        _check_closed_over("custom_vjp", tangents[:num_consts])
        primals, tangents = primals[num_consts:], tangents[num_consts:]
        perturbed = tuple(type(t) is not Zero for t in tangents)
        out, residuals = fwd(primals, perturbed)
        out_avals = tuple(aval_of(x).to_tangent() for x in out)
        if all(a.dtype == dtypes.float0 for a in out_avals):
            return out, [Zero(a) for a in out_avals]
        given = chosen(tangents, perturbed)
        out_dot = custom_linear_p(
            *residuals, *given, bwd=bwd, num_residuals=len(residuals), perturbed=perturbed, out_avals=out_avals
        )
        return out, [Zero(a) if a.dtype == dtypes.float0 else t for t, a in zip(out_dot, out_avals, strict=True)]

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, fun: Any, fwd: Callable, bwd: Callable, num_consts: int
    ) -> tuple:
        moved, mapped, batched = _batch_call(axis, args, dims, fun)
        ins = mapped[num_consts:]
        residual_dims: list[int | None] = []

        def batched_fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
            counts: list[int] = []

            def one(*xs: Any) -> list:
                out, residuals = fwd(xs, perturbed)
                counts.append(len(out))
                return [*out, *residuals]

            flat, found = vmap_flat(one, primals, front_dims(ins), axis, "custom_vjp")
            n = counts[0]
            residual_dims[:] = front_dims([d is not None for d in found[n:]])
            return list(map(axis.to_front, flat[:n], found[:n])), axis.to_fronts(flat[n:], found[n:])

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_dims, ins)

        out = self(*moved, fun=batched, fwd=batched_fwd, bwd=batched_bwd, num_consts=num_consts)
        return out, [0] * len(out)


def _batch_bwd(
    bwd: Callable,
    axis: Axis,
    residuals: Sequence[Any],
    cts: Sequence[Any],
    perturbed: tuple,
    residual_dims: Sequence[int | None],
    in_mapped: Sequence[bool],
) -> list:
    """Map a backward rule; cotangents of inputs that are not mapped are summed over the examples."""
    count = len(residuals)
    pairs = _vmap(
        lambda *xs: bwd(list(xs[:count]), list(xs[count:]), perturbed),
        [*residuals, *cts],
        [*residual_dims, *[0] * len(cts)],
        axis,
        "custom_vjp",
    )
    x_bars = [x if type(x) is Zero else axis.to_front(x, d) for x, d in pairs]
    return [x if m or type(x) is Zero else vector_space.sum(x, 0) for x, m in zip(x_bars, in_mapped, strict=True)]


custom_vjp_call_p = CustomVJPCall()


class CustomLinear(Primitive, name="custom_linear", multiple=True):
    """What a `custom_vjp` call leaves in a linear program: (*residuals, *tangents) -> tangents; it has a transpose."""

    holds_program = True
    says_shardings = True
    roles = Undefined("what it does to tangents is known by its transpose only")
    batch = None

    def result(self, *avals: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple) -> list:
        return list(out_avals)

    def run(self, *args: Any, **params: Any) -> list:
        raise forward_mode_error()

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> tuple:
        raise forward_mode_error()

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> list:
        raise forward_mode_error(f", at {summary(ctx.eqn.source)}")

    def transpose(
        self, cts: Any, *operands: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        residuals, given = operands[:num_residuals], operands[num_residuals:]
        x_bars = chosen(bwd(list(residuals), list(cts), perturbed), perturbed)
        return (*[None] * num_residuals, *[x if is_linear(t) else None for x, t in zip(x_bars, given, strict=True)])

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        n = num_residuals
        moved = [*axis.to_fronts(args[:n], dims[:n]), *map(axis.to_front, args[n:], dims[n:])]
        residual_dims = front_dims([d is not None for d in dims[:n]])
        ins = [True] * len(perturbed)

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, residual_dims, ins)

        wide = tuple(a.with_shape((axis.size, *a.shape)) for a in out_avals)
        out = self(*moved, bwd=batched_bwd, num_residuals=num_residuals, perturbed=perturbed, out_avals=wide)
        return out, [0] * len(out)


def forward_mode_error(place: str = "") -> TraceError:
    """The error for forward mode through a function that has a reverse rule only, called at a place."""
    return TraceError(
        f"forward-mode differentiation (jvp){place}",
        expected="functions with a forward derivative",
        got="a custom_vjp function, which has a reverse one only",
        mend="give it a custom_jvp rule, or differentiate in reverse mode (grad, vjp, jacrev)",
    )


custom_linear_p = CustomLinear()
