"""`roofline`: the cost of a function, summed over the equations of its jaxpr."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import phalanx.numpy as jnp
from phalanx.core import Jaxpr, Literal, ShapeDtypeStruct, Var, dce_jaxpr, inner_jaxprs
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.roofline.operation_cost import find_rule
from phalanx.roofline.roofline_result import RooflineResult, RooflineRuleContext, RooflineShape
from phalanx.sharding import NamedSharding
from phalanx.spmd import make_jaxpr, shard_map
from phalanx.transforms.flat_function import wraps
from phalanx.transforms.jvp_and_vjp import vjp as make_vjp
from phalanx.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten


def roofline(
    f: Callable,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    vjp: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:
    """The cost of a function on one device: its operations, the bytes it moves and sends, and its peak of memory.

    The figures are read off the jaxpr; nothing is compiled or run. The body of a loop counts once per iteration, where
    their number is known, of branches the one with the most operations counts.

    Args:
      f: a function of arrays.
      mesh, in_specs, out_specs: if all are given, the cost is that of one shard of `shard_map(f, ...)`.
      pin_lhs_in_vmem, pin_rhs_in_vmem: whether that operand of a contraction (and the result, for the left one) stays
        in fast memory, so that it is not moved.
      vjp: whether the cost is that of the derivative, with cotangents in bfloat16.
      print_jaxpr: whether to print the jaxpr.

    Returns:
      A function of the arguments of `f`, which may be `ShapeDtypeStruct`s. It returns the types of the results, and a
      `RooflineResult`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.roofline import roofline
      >>> _, cost = roofline(lambda a, b: jnp.sin(a @ b))(jnp.ones((2, 3)), jnp.ones((3, 4)))
      >>> cost.flops, cost.unfused_flops, cost.hbm_bytes
      (48, 56, 104)
    """

    @api_boundary
    @wraps(f)
    def measured(*args: Any) -> tuple[Any, RooflineResult]:
        called = f
        is_partitioned = mesh is not None and in_specs is not None and out_specs is not None
        if is_partitioned:
            called = shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        jaxpr, out = make_jaxpr(_pull_back(called) if vjp else called, return_shape=True)(*args)
        if mesh is not None and out_specs is not None:
            out = _place(out, mesh, out_specs)
        jaxpr, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
        # The last one is the backward pass of a derivative.
        bodies = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "shard_map"]
        jaxpr = bodies[-1] if bodies else jaxpr
        if print_jaxpr:
            print(jaxpr)
        pinned = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem}
        return out, measure_jaxpr(jaxpr, {"mesh": mesh, **pinned})

    return measured


def _pull_back(f: Callable) -> Callable:
    """The gradients of `f` for its own result as the cotangent."""

    def pull_back(*args: Any) -> Any:
        out, f_vjp = make_vjp(f, *args)
        return f_vjp(tree_map(jnp.bfloat16, out))

    return pull_back


def _place(out: Any, mesh: Any, specs: Any) -> Any:
    leaves, tree = tree_flatten(out)
    placed = [
        ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
        for x, spec in zip(leaves, broadcast_prefix(specs, out, what="roofline, out_specs"), strict=True)
    ]
    return tree_unflatten(tree, placed)


def measure_jaxpr(jaxpr: Jaxpr, context: dict) -> RooflineResult:
    """The cost of a jaxpr; `context` has the options of `RooflineRuleContext`."""
    cost = RooflineResult.zeros()
    last_use = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if type(v) is not Literal}
    last_use |= dict.fromkeys([v for v in jaxpr.outvars if type(v) is not Literal], len(jaxpr.eqns))
    size_of = lambda v: RooflineShape.from_aval(v.aval).bytes
    alive = peak = sum(map(size_of, [*jaxpr.constvars, *jaxpr.invars]))
    for i, eqn in enumerate(jaxpr.eqns):
        cost += _measure_eqn(eqn, context)
        dead = {v for v in eqn.invars if isinstance(v, Var) and last_use[v] == i}
        alive += sum(map(size_of, eqn.outvars)) - sum(map(size_of, dead))
        peak = max(peak, alive)
    return cost + RooflineResult(peak_hbm_bytes=peak)


def _measure_eqn(eqn: Any, context: dict) -> RooflineResult:
    rule = find_rule(eqn.primitive)
    if rule is not None:
        avals_in = [v.aval for v in eqn.invars]
        avals_out = [v.aval for v in eqn.outvars]
        ctx = RooflineRuleContext(primitive=eqn.primitive, avals_in=avals_in, avals_out=avals_out, **context)
        return rule(ctx, *map(RooflineShape.from_aval, avals_in), **eqn.params)
    costs = [measure_jaxpr(inner, context) for inner in inner_jaxprs(eqn.params)]
    if eqn.primitive.name == "cond":
        return max(costs, key=lambda cost: cost.unfused_flops)
    total = sum(costs, RooflineResult.zeros())
    if eqn.primitive.name != "scan":
        return total
    return replace(total * eqn.params["layout"].length, peak_hbm_bytes=total.peak_hbm_bytes)


def roofline_and_grad(
    f: Callable,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:
    """The cost of a function and that of its derivative in bfloat16.

    Args:
      f, mesh, in_specs, out_specs, pin_lhs_in_vmem, pin_rhs_in_vmem, print_jaxpr: as in `roofline`.

    Returns:
      A function of the arguments of `f`, which returns the types of the results, the cost of the function and the cost
      of its derivative.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.roofline import roofline_and_grad
      >>> from phalanx.sharding import PartitionSpec as P
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> f = roofline_and_grad(jnp.matmul, mesh, (P("x"), P()), P("x"))
      >>> a = phalanx.ShapeDtypeStruct((4, 4), "float32")
      >>> _, forward, backward = f(a, a)
      >>> forward.flops, backward.flops
      (128, 256)
    """
    pinned = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem}

    @api_boundary
    @wraps(f)
    def measured(*args: Any) -> tuple[Any, RooflineResult, RooflineResult]:
        measure = lambda vjp: roofline(f, mesh, in_specs, out_specs, **pinned, vjp=vjp, print_jaxpr=print_jaxpr)
        out, forward = measure(False)(*args)
        narrow = tree_map(
            lambda x: ShapeDtypeStruct(
                x.shape, x.dtype if x.dtype == jnp.int32 else jnp.bfloat16, sharding=getattr(x, "sharding", None)
            ),
            args,
        )
        return out, forward, measure(True)(*narrow)[1]

    return measured
