"""`checkify`: an interpreter of jaxprs that collects the failures of checks in an `Error`.

`CheckifyTrace` evaluates the operations of a jaxpr as they are, and keeps the first failure. A call that holds a jaxpr
is replaced by a call of its checked form, which returns the leaves of an error before its results. Every checked jaxpr
starts without a failure, and the caller combines its error with the earlier ones: inputs stay the same, and the kind of
an error is known once the jaxpr has been traced. A loop carries the error of the iterations before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from phalanx.checkify.check_primitive import Check
from phalanx.checkify.error_value import Error, ErrorCategory, ErrorKind, init_error, user_checks
from phalanx.checkify.operation_checks import check_operation
from phalanx.core import (
    UNVARYING,
    Jaxpr,
    Primitive,
    Trace,
    Zero,
    cached_on_jaxpr,
    check_effect,
    check_function,
    format_code_position,
    get_aval,
    run_jaxpr,
    state,
    trace_to_jaxpr,
    vector_space,
)
from phalanx.custom_rules.custom_jvp_and_vjp_calls import CustomJVPCall, CustomVJPCall, check_closed_over
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax import expand_dims
from phalanx.lax.control_flow.cond import Cond, bind_branches
from phalanx.lax.control_flow.control_flow_tracing import split_by_sizes
from phalanx.lax.control_flow.scan_primitive import Scan, ScanLayout
from phalanx.lax.control_flow.while_loop import While, WhileEach, batched_check_error
from phalanx.sharding import PartitionSpec
from phalanx.spmd.jit_primitive import JitCall
from phalanx.spmd.shard_map_primitive import ShardMap, View, bind_shard_map
from phalanx.transforms import CallPrimitive, FlatFunction, TransformedCall
from phalanx.transforms.checkpoint_and_remat import Remat
from phalanx.tree import tree_structure, tree_unflatten

Categories = frozenset[ErrorCategory]


class CheckifyTrace(Trace):
    """Applies every operation in the parent trace, and keeps the first failure in `error`; values have no tracers."""

    __slots__ = ("categories", "error")

    def __init__(self, categories: Categories):
        super().__init__(state.trace, "checkify")
        self.categories = categories
        self.error = init_error

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        state.trace = self.parent
        try:
            error, out = _apply(primitive, args, params, self.categories)
            self.error = self.error.then(error)
        finally:
            state.trace = self
        return out


def _run_checked(jaxpr: Jaxpr, args: Sequence[Any], categories: Categories) -> tuple[Error, list[Any]]:
    """Evaluate a jaxpr on the current trace: its error and its outputs."""
    trace = CheckifyTrace(categories)
    out = trace.run(functools.partial(run_jaxpr, jaxpr), args, lambda x: x)
    return trace.error, out


def _run_unchecked(rule: Callable, *args: Any) -> Any:
    """Call a derivative rule without the checks in it."""
    before, state.trace = state.trace, CheckifyTrace(frozenset())
    try:
        return rule(*args)
    finally:
        state.trace = before


class Checked(NamedTuple):
    """A checked jaxpr: (*inputs) -> (*leaves of an error of `kind`, *outputs), with constants as leading inputs."""

    jaxpr: Jaxpr
    consts: list[Any]
    kind: ErrorKind

    def split(self, out: Sequence[Any]) -> tuple[Error, list[Any]]:
        """The error and the outputs, given all results."""
        count = self.kind.num_leaves
        return self.kind.unflatten(out[:count]), list(out[count:])

    def call(self, *inputs: Any) -> tuple[Error, list[Any]]:
        """Evaluate it on the current trace, with the constants among the inputs."""
        return self.split(run_jaxpr(self.jaxpr, *inputs))


def _checked(jaxpr: Jaxpr, categories: Categories) -> Checked:
    """The checked form of a jaxpr without constants."""
    derived, kind = _trace_checked(jaxpr, categories, state.context)
    return Checked(derived.hoist(), derived.consts, kind)


@cached_on_jaxpr
def _trace_checked(jaxpr: Jaxpr, categories: Categories, context: Any) -> tuple[Jaxpr, ErrorKind]:
    kinds: list[ErrorKind] = []

    def fun(*args: Any) -> list:
        error, out = _run_checked(jaxpr, args, categories)
        kinds.append(error.kind)
        return [*error.leaves(), *out]

    return trace_to_jaxpr(fun, jaxpr.in_avals, jaxpr.debug_name), kinds[0]


def _apply(primitive: Primitive, args: Sequence[Any], params: dict, categories: Categories) -> tuple[Error, Any]:
    """Apply an operation on the current trace: its error and its result."""
    if type(primitive) is Check:
        return params["kind"].unflatten(args).restrict(categories), []
    # Classes derive from one another, so their order in the table decides, not a look-up by type.
    rule = next((rule for kind, rule in _RULES.items() if isinstance(primitive, kind)), None)
    if rule is not None:
        found = rule(primitive, args, params, categories)
        # Without checks the call stays as it is.
        if found is not None:
            return found
    out = primitive(*args, **params)
    return check_operation(primitive, args, params, out, categories), out


def _is_unchecked(jaxprs: Sequence[Jaxpr], parts: Sequence[Checked]) -> bool:
    """Whether jaxprs have no checks, neither in these categories nor in others."""
    return not any(p.kind.sites for p in parts) and not any(check_effect in j.effects for j in jaxprs)


def _check_call(primitive: Any, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """`jit` and `checkpoint`: the checked call has the options of the call."""
    part = _checked(jaxpr := params[primitive.program], categories)
    if _is_unchecked([jaxpr], [part]):
        return None
    ins, outs = primitive.input_output_options(params)
    ins, outs = [None] * len(part.consts) + list(ins), [None] * part.kind.num_leaves + list(outs)
    derived = primitive.derive_params(params, part.jaxpr, ins, outs, "checkify")
    return part.split(primitive.bind_call([*part.consts, *args], derived))


def _check_inlined(primitive: Any, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """Calls with rules that the user wrote for these results: their jaxpr is inlined if there are checks in it."""
    part = _checked(jaxpr := params[primitive.program], categories)
    return None if _is_unchecked([jaxpr], [part]) else part.call(*part.consts, *args)


def _check_shard_map(primitive: Any, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """The devices' errors are stacked: the error is mapped over the devices."""
    view, jaxpr = View.of(params), params["jaxpr"]
    with view.scope():
        part = _checked(jaxpr, categories)
        if _is_unchecked([jaxpr], [part]):
            return None
        count = part.kind.num_leaves

        def fun(*xs: Any) -> list:
            out = run_jaxpr(part.jaxpr, *xs)
            return [*(expand_dims(x, (0,)) for x in out[:count]), *out[count:]]

        stacked = trace_to_jaxpr(fun, part.jaxpr.in_avals, jaxpr.debug_name)
    ins = [*[PartitionSpec()] * len(part.consts), *params["in_specs"]]
    # Each device has an error of its own, so its leaves get a leading dimension that all manual axes shard.
    outs = [*[PartitionSpec(view.sort_axes(view.manual))] * count, *params["out_specs"]]
    error, out = part.split(bind_shard_map(stacked, [*part.consts, *args], ins, outs, view))
    return error, out


def _check_cond(primitive: Cond, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """The branches return errors of one kind."""
    branches = params["branches"]
    parts = [_checked(b, categories) for b in branches]
    if _is_unchecked(branches, parts):
        return None
    kind = ErrorKind().union(*(p.kind for p in parts))

    def widened(part: Checked) -> Jaxpr:
        def fun(*xs: Any) -> list:
            error, out = part.call(*xs)
            return [*error.of_kind(kind).leaves(), *out]

        return trace_to_jaxpr(fun, part.jaxpr.in_avals, part.jaxpr.debug_name).hoist()

    wide = [part.jaxpr.derive(("widened", kind), lambda p=part: widened(p)) for part in parts]
    out = bind_branches(primitive, args[0], wide, [p.consts for p in parts], args[1:])
    return Checked(wide[0], [], kind).split(out)


def _carried(part: Checked, num_consts: int) -> Jaxpr:
    """A loop body (constants, inputs) -> (error, outputs) with the error also as an input, after the constants."""
    count = part.kind.num_leaves

    def fun(*xs: Any) -> list:
        consts, before, inputs = split_by_sizes(xs, [num_consts, count, len(xs)])
        error, out = part.call(*consts, *inputs)
        return [*part.kind.unflatten(before).then(error).leaves(), *out]

    def make() -> Jaxpr:
        avals = part.jaxpr.in_avals
        ins = [*avals[:num_consts], *part.jaxpr.out_avals[:count], *avals[num_consts:]]
        return trace_to_jaxpr(fun, ins, part.jaxpr.debug_name).hoist()

    return part.jaxpr.derive(("carried", num_consts, state.context), make)


def _no_failure(part: Checked) -> list[Any]:
    """The leaves of an error without a failure, of the types that the checked jaxpr returns."""
    return [vector_space.zeros(a.with_varying(UNVARYING)) for a in part.jaxpr.out_avals[: part.kind.num_leaves]]


def _check_scan(primitive: Scan, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """The loop carries the error."""
    jaxpr, layout = params["jaxpr"], params["layout"]
    part = _checked(jaxpr, categories)
    if _is_unchecked([jaxpr], [part]):
        return None
    consts, init, xs = layout.split(args)
    consts = [*part.consts, *consts]
    wide: ScanLayout = layout._replace(num_consts=len(consts), num_carry=layout.num_carry + part.kind.num_leaves)
    body = _carried(part, len(consts))
    return part.split(primitive(*consts, *_no_failure(part), *init, *xs, jaxpr=body, layout=wide))


def _check_while(primitive: While, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """The condition is checked once before the loop, and then at the end of each iteration, for the next one."""
    cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
    parts = [_checked(j, categories) for j in (cond_jaxpr, body_jaxpr)]
    if _is_unchecked([cond_jaxpr, body_jaxpr], parts):
        return None
    condition, step = parts
    sizes = [params["cond_nconsts"], params["body_nconsts"], len(args)]
    in_cond, in_body, init = split_by_sizes(args, sizes)
    in_cond, in_body = [*condition.consts, *in_cond], [*step.consts, *in_body]
    # A loop of no iterations evaluates its condition, too, and may fail there.
    first, _ = condition.call(*in_cond, *init)
    kind = condition.kind.union(step.kind)
    count = kind.num_leaves

    def run_body(*xs: Any) -> list:
        c, b, before, carry = split_by_sizes(xs, [len(in_cond), len(in_body), count, len(xs)])
        error, carry = step.call(*b, *carry)
        later, _ = condition.call(*c, *carry)
        failed = kind.unflatten(before).then(error.of_kind(kind)).then(later.of_kind(kind))
        return [*failed.leaves(), *carry]

    def run_cond(*xs: Any) -> list:
        c, _, carry = split_by_sizes(xs, [len(in_cond), count, len(xs)])
        return condition.call(*c, *carry)[1]

    before = first.of_kind(kind).leaves()
    types = [list(map(get_aval, values)) for values in (in_cond, in_body, before, init)]
    c_types, b_types, e_types, x_types = types
    new_body = trace_to_jaxpr(
        run_body, [*c_types, *b_types, *e_types, *body_jaxpr.in_avals[sizes[1] :]], body_jaxpr.debug_name
    )
    new_cond = trace_to_jaxpr(run_cond, [*c_types, *e_types, *body_jaxpr.in_avals[sizes[1] :]], cond_jaxpr.debug_name)
    # The body also takes the operands of the condition, which it evaluates for the next iteration.
    consts = [*new_cond.consts, *in_cond], [*new_body.consts, *in_cond, *in_body]
    out = primitive(
        *consts[0],
        *consts[1],
        *before,
        *init,
        cond_jaxpr=new_cond.hoist(),
        body_jaxpr=new_body.hoist(),
        cond_nconsts=len(consts[0]),
        body_nconsts=len(consts[1]),
    )
    return Checked(new_body, [], kind).split(out)


def _check_while_each(primitive: WhileEach, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    jaxprs = [params["cond_jaxpr"], params["body_jaxpr"]]
    if _is_unchecked(jaxprs, [_checked(j, categories) for j in jaxprs]):
        return None
    raise batched_check_error()


def _check_custom_jvp(primitive: CustomJVPCall, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """The function is checked, its derivative rule is not: the error of a differentiated call is that of the value."""
    args, params = primitive.with_jaxpr(args, params)
    part = _checked(params["fun"], categories)
    if _is_unchecked([params["fun"]], [part]):
        return None
    # The user's rule knows neither the constants of the checked function nor those of the function itself.
    rule, skipped = params["rule"], len(part.consts) + params["num_consts"]

    def checked_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
        check_closed_over("custom_jvp", tangents[:skipped])
        leaves = part.call(*primals)[0].leaves()
        out, out_dot = _run_unchecked(rule, primals[skipped:], tangents[skipped:])
        return [*leaves, *out], [*map(Zero.like, leaves), *out_dot]

    return part.split(primitive(*part.consts, *args, fun=part.jaxpr, rule=checked_rule, num_consts=0))


def _check_custom_vjp(primitive: CustomVJPCall, args: Sequence[Any], params: dict, categories: Categories) -> Any:
    """As for `custom_jvp`; the cotangents of the error are ignored."""
    args, params = primitive.with_jaxpr(args, params)
    part = _checked(params["fun"], categories)
    if _is_unchecked([params["fun"]], [part]):
        return None
    fwd, bwd, skipped, count = (
        params["fwd"],
        params["bwd"],
        len(part.consts) + params["num_consts"],
        part.kind.num_leaves,
    )
    consts = part.jaxpr.in_avals[:skipped]

    def checked_fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
        leaves = part.call(*primals)[0].leaves()
        out, residuals = _run_unchecked(fwd, primals[skipped:], perturbed[skipped:])
        return [*leaves, *out], residuals

    def checked_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
        x_bars = _run_unchecked(bwd, residuals, cts[count:], perturbed[skipped:])
        return [*(Zero(a.to_tangent()) for a in consts), *x_bars]

    return part.split(primitive(*part.consts, *args, fun=part.jaxpr, fwd=checked_fwd, bwd=checked_bwd, num_consts=0))


# The first class that a primitive is an instance of has its rule.
_RULES: dict[type, Callable[..., Any]] = {
    ShardMap: _check_shard_map,
    JitCall: _check_call,
    Remat: _check_call,
    Cond: _check_cond,
    Scan: _check_scan,
    While: _check_while,
    WhileEach: _check_while_each,
    CustomJVPCall: _check_custom_jvp,
    CustomVJPCall: _check_custom_vjp,
    TransformedCall: _check_inlined,
    CallPrimitive: _check_inlined,
}


def checkify(f: Callable, errors: Collection[ErrorCategory] = user_checks) -> Callable:
    """Turn a function with checks into one without them that also returns an `Error`.

    The error is the first failure while the function runs, of a `check` of the user or of a check that `errors` adds to
    an operation. The function continues after a failure.

    Args:
      f: a function of any arguments. Only values that are traced already are traced.
      errors: categories of errors, joined with `|`: `user_checks`, `nan_checks` (an operation returns a NaN),
        `div_checks` (a divisor is zero), `index_checks` (an index is out of bounds), `float_checks` (NaNs and
        divisions), `automatic_checks` (all but the user's) or `all_checks`.

    Returns:
      A function with the arguments of `f` that returns the pair `(error, result)`; it may be compiled, mapped and
      differentiated.

    Raises:
      ArgumentTypeError: `f` is not callable.
      ArgumentError: a batched while loop has checks; apply `vmap` to the checked function instead.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental import checkify
      >>> f = phalanx.jit(checkify.checkify(lambda x, i: jnp.log(x)[i], errors=checkify.all_checks))
      >>> err, y = f(jnp.array([1.0, 2.0]), 1)
      >>> err.get() is None
      True
      >>> f(jnp.array([1.0, 2.0]), 2)[0].get()
      'out-of-bounds indexing for array of shape (2,): index 2 is out of bounds for axis 0 with size 2. '
      >>> f(jnp.array([-1.0, 2.0]), 2)[0].throw()
      Traceback (most recent call last):
        ...
      phalanx.checkify.JaxRuntimeError: nan generated by primitive: log.
    """
    check_function("checkify, argument f", f)
    categories = frozenset(errors)

    @api_boundary
    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        # The arguments are constants of a function without arguments, so that Python may branch on known ones.
        function = FlatFunction(lambda: f(*args, **kwargs), tree_structure(()), written=f)
        jaxpr = trace_to_jaxpr(function, [], f"checkify of {format_code_position(f)}")
        error, out = _run_checked(jaxpr, [], categories)
        return error, tree_unflatten(function.out_tree, out)

    return checked
