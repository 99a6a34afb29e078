"""The forward pass of a `custom_vjp` function that was defined with `optimize_remat=True`.

The `fwd` rule is bound as one call that also holds the function itself. Where dead code elimination finds that nothing
reads the residuals, as in the first pass of `remat`, the call becomes one of the function, which may be cheaper (a
kernel that stores no residuals). `custom_jvp_and_vjp` binds this primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Eqn, Jaxpr, Ref, get_aval, state, trace_to_jaxpr
from phalanx.transforms import AxisData, Division, PartialEvalCall, Policy, batch_jaxpr, front_dims


class CustomVJPForward(PartialEvalCall, name="custom_vjp_fwd"):
    """The `fwd` rule of a custom_vjp function: (*constants, *inputs) -> (*results of `fun`, *residuals).

    `fun` is the jaxpr of the function, which takes the same operands and returns the results only. It is None in calls
    that were derived from this one by differentiation, whose jaxpr no longer computes what the function does.
    """

    def derive_params(
        self, params: dict, jaxpr: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], transform: str
    ) -> dict:
        return {"jaxpr": jaxpr, "fun": None}  # only `batch_axis` keeps the function

    def divide(self, params: dict, unknown: Sequence[bool], policy: Policy) -> Division | None:
        # With known operands the call stays whole, so that the function can take its place.
        if params["fun"] is not None and not any(unknown):
            return None
        return super().divide(params, unknown, policy)

    def batch_axis(
        self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: Jaxpr, fun: Jaxpr | None
    ) -> tuple:
        mapped = [d is not None for d in dims]
        jaxprs = [batch_jaxpr(j, axis, mapped, True)[0] for j in (jaxpr, fun or jaxpr)]
        batched = {"jaxpr": jaxprs[0], "fun": fun and jaxprs[1]}
        return self(*axis.to_fronts(args, dims), **batched), front_dims([True] * len(jaxpr.outvars))

    def dce(self, eqn: Eqn, used: Sequence[bool]) -> Eqn | None:
        """A call of the function if no residual is used; the whole call otherwise, since residuals may become dead."""
        fun = eqn.params["fun"]
        if fun is None:
            return super().dce(eqn, used)
        count = len(fun.outvars)
        if any(used[count:]):
            return eqn
        primal = eqn.replace(outvars=eqn.outvars[:count], params={"jaxpr": fun, "fun": None}, effects=fun.effects)
        return super().dce(primal, used[:count])


custom_vjp_fwd_p = CustomVJPForward()


def optimize_forward(fun: Callable[..., list], fwd: Callable[..., tuple]) -> Callable[..., tuple]:
    """A `fwd` rule that runs `fun` in its place where its residuals turn out to be unused.

    Args:
      fun: the function, of flat inputs.
      fwd: `(inputs, perturbed) -> (results, residuals)`, all flat.

    Returns:
      A rule that is called as `fwd` is.
    """

    def optimized(inputs: Sequence[Any], perturbed: tuple) -> tuple:
        # Without a trace there is no dead code to find. A reference may be written by `fun` and `fwd` differently.
        if state.trace is None or any(isinstance(x, Ref) for x in inputs):
            return fwd(inputs, perturbed)
        avals = [get_aval(x) for x in inputs]
        primal = trace_to_jaxpr(fun, avals, "fun")

        def flat(*xs: Any) -> list:
            out, residuals = fwd(xs, perturbed)
            return [*out, *residuals]

        both = trace_to_jaxpr(flat, avals, "fwd")
        # Both jaxprs take the constants of either.
        consts = [*both.consts, *primal.consts]
        jaxpr = both.replace(constvars=[*both.constvars, *primal.constvars], consts=consts).hoist()
        called = primal.replace(constvars=[*both.constvars, *primal.constvars], consts=consts).hoist()
        out = custom_vjp_fwd_p(*consts, *inputs, jaxpr=jaxpr, fun=called)
        count = len(primal.outvars)
        return out[:count], out[count:]

    return optimized
