"""The primitives `custom_jvp_call`, `custom_vjp_call` and `custom_linear`.

The parameters of a call are flat functions: the user's function and its rules. Eager evaluation runs the function, and
differentiation runs the rule. Staging replaces the function by its jaxpr; batching maps both the function and the
rules. Differentiating a `custom_vjp_call` records one `custom_linear` equation in the linear jaxpr, whose transpose
is the user's `bwd`. `custom_jvp_and_vjp` binds these primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from phalanx.core import (
    ArgumentTypeError,
    Effects,
    Jaxpr,
    RefCell,
    RefError,
    Slot,
    StagingTrace,
    TraceError,
    Undefined,
    Zero,
    discharge_jaxpr,
    dtypes,
    fill_flagged,
    format_source,
    get_aval,
    is_linear,
    merge_lists,
    named_axes,
    no_effects,
    read_values,
    run_jaxpr,
    select_flagged,
    select_unflagged,
    state,
    trace_to_jaxpr,
    vector_space,
)
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms import (
    AxisData,
    BatchTrace,
    CallPrimitive,
    HigherOrder,
    append_logs,
    batch_jaxpr,
    collect_logs,
    front_dims,
    function_name,
    record_logs,
    take_logs,
    transpose_jaxpr,
    vmap_flat,
)
from phalanx.tree import tree_unflatten

# The parameter `fun`: a flat function, or its jaxpr once the call is staged. `Any`, since mypy cannot narrow by `type`.
FlatOrJaxpr: TypeAlias = Any


class _CustomCall(CallPrimitive):
    """Base class of custom derivative calls: `fun` is a flat function, or its jaxpr once the call is staged."""

    program = "fun"

    def run(self, *args: Any, fun: FlatOrJaxpr, **rules: Any) -> list:
        return run_jaxpr(fun, *args) if type(fun) is Jaxpr else list(fun(*args))

    def effects(self, *avals: Any, fun: FlatOrJaxpr, **rules: Any) -> Effects:
        return fun.effects if type(fun) is Jaxpr else no_effects

    def named_axes(self, *args: Any, fun: FlatOrJaxpr, **rules: Any) -> frozenset:
        return named_axes(fun if type(fun) is Jaxpr else self._trace(args, fun))

    def printed_params(self, params: dict) -> dict:
        """The names of the function and of its rules, and the jaxpr."""
        rules = {"jvp" if name == "rule" else name: rule for name, rule in params.items()}
        fun, num_consts = rules.pop("fun"), rules.pop("num_consts")
        shown = {"call_jaxpr": fun} | ({"num_consts": num_consts} if num_consts else {})
        # A rule that a transformation made has no owner, and is printed as it is.
        owner = next((rule.owner for rule in rules.values() if hasattr(rule, "owner")), None)
        shown |= {name: getattr(owner, name, rule) for name, rule in rules.items()}
        shown["symbolic_zeros"] = getattr(owner, "symbolic_zeros", False)
        return super().printed_params({"name": getattr(fun, "debug_name", "fun"), **shown})

    def _trace(self, args: Sequence[Any], fun: Callable[..., list]) -> Jaxpr:
        return trace_to_jaxpr(fun, [get_aval(x) for x in args], getattr(fun, "__name__", self.name))

    def discharge(
        self, args: Sequence[Any], slots: Sequence[Slot | None], params: dict
    ) -> tuple[list, Sequence[Slot], Sequence[Any]]:
        """A call on the values of references, whose rules are called with references of their own."""
        fun, count = params["fun"], params["num_consts"]
        if type(fun) is not Jaxpr:
            jaxpr = self._trace(args, fun)
            called = params | {"fun": jaxpr.hoist(), "num_consts": count + len(jaxpr.consts)}
            return self(*jaxpr.consts, *args, **called), (), ()
        pure, written = discharge_jaxpr(fun, slots)
        rules = self.discharge_rules(_ValueRefs(slots[count:], written), params)
        called = {"fun": pure.hoist(), "num_consts": count + len(pure.consts), **rules}
        out = self(*pure.consts, *read_values(args, slots), **called)
        return out[: len(fun.outvars)], written, out[len(fun.outvars) :]

    def discharge_rules(self, refs: _ValueRefs, params: dict) -> dict:
        """The rules for a call on the values of references."""
        raise NotImplementedError  # defined by both subclasses

    def holds_functions(self, params: dict) -> bool:
        return type(params["fun"]) is not Jaxpr

    def stage(self, trace: StagingTrace, args: Sequence[Any], params: dict) -> list:
        """Record the call with the function's jaxpr."""
        return trace.record(self, *self.with_jaxpr(args, params))

    def with_jaxpr(self, args: Sequence[Any], params: dict) -> tuple[Sequence[Any], dict]:
        """The operands and parameters of the call of the function's jaxpr, whose constants are leading operands."""
        fun = params["fun"]
        if type(fun) is Jaxpr:
            return args, params
        jaxpr = self._trace(args, fun)
        return [*jaxpr.consts, *args], params | {"fun": jaxpr.hoist(), "num_consts": len(jaxpr.consts)}


class _ValueRefs(NamedTuple):
    """References among the inputs of a custom derivative call that takes their values.

    Attributes:
      slots: for each input, the number of the reference that it is the value of, or None.
      written: the numbers of the references whose final values follow the results of the call.
    """

    slots: Sequence[Slot | None]
    written: Sequence[Slot]

    def open(self, inputs: Sequence[Any]) -> tuple[list, dict[Slot, RefCell]]:
        """The inputs with references of the current trace in the place of their values, and these by their number."""
        cells = {n: RefCell(state.trace, x) for x, n in zip(inputs, self.slots, strict=True) if n is not None}
        return [x if n is None else cells[n] for x, n in zip(inputs, self.slots, strict=True)], cells

    def finals(self, cells: dict[Slot, RefCell]) -> list:
        """The final values of the references after a rule; one that the function does not write must stay unchanged."""
        if any(cell.is_written and n not in self.written for n, cell in cells.items()):
            raise RefError(
                "rule of a custom derivative",
                expected="writes to the references that the function itself writes",
                got="a write to another reference among its arguments",
                fix="write the reference in the function, too, or pass it from outside of the differentiated function",
            )
        return [cells[n].value for n in self.written]

    def check_derivatives(self, tangents: Sequence[Any]) -> None:
        """Refuse derivatives of references that a function with a custom derivative writes: it defines none."""
        if any(type(t) is not Zero for t in tangents):
            raise RefError(
                "differentiation of a function with a custom derivative",
                expected="references without a derivative",
                got="a differentiated reference, for which the rule defines no derivative",
                fix="pass the value of the reference, and return the new one",
            )


class CustomJVPCall(_CustomCall, name="custom_jvp_call"):
    """A call of a function with a custom forward-mode derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, fun: FlatOrJaxpr, rule: Callable, num_consts: int
    ) -> tuple:
        check_closed_over("custom_jvp", tangents[:num_consts])
        out, out_dot = rule(primals[num_consts:], tangents[num_consts:])
        _check_result_types("custom_jvp", fun, out)
        return out, out_dot

    def discharge_rules(self, refs: _ValueRefs, params: dict) -> dict:
        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
            refs.check_derivatives([t for t, n in zip(tangents, refs.slots, strict=True) if n is not None])
            opened, cells = refs.open(primals)
            out, out_dot = params["rule"](opened, tangents)
            finals = refs.finals(cells)
            return [*out, *finals], [*out_dot, *map(Zero.like, finals)]

        return {"rule": rule}

    def transpose(self, y_bars: Sequence[Any], *operands: Any, fun: Jaxpr, **rules: Any) -> tuple:
        """Transpose the function itself; its rule is for derivatives."""
        linear, nonzero = [is_linear(x) for x in operands], [type(c) is not Zero for c in y_bars]
        transposed, has = transpose_jaxpr(fun, linear, nonzero)
        out = run_jaxpr(transposed, *select_unflagged(operands, linear), *select_flagged(y_bars, nonzero))
        return tuple(fill_flagged(linear, fill_flagged(has, take_logs(transposed, out))))

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        trace: BatchTrace,
        fun: FlatOrJaxpr,
        rule: Callable,
        num_consts: int,
    ) -> tuple:
        batch = _Batch(axis, trace, dims)

        def batched_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
            count = len(primals)

            def one(*xs: Any) -> list:
                out, out_dot = rule(list(xs[:count]), list(xs[count:]))
                return [*out, *out_dot]

            ins = batch.in_dims[num_consts:]
            pairs = _vmap(one, [*primals, *tangents], [*ins, *ins], axis, "custom_jvp", trace)
            ys, dots = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
            batch.choose([d is not None or e is not None for (_, d), (_, e) in zip(ys, dots, strict=True)])
            out = batch.place(ys)
            zeros = [type(t) is Zero for t, _ in dots]
            moved = batch.place([(y, None) if z else t for y, t, z in zip(out, dots, zeros, strict=True)])
            return out, [Zero.like(y) if z else t for y, t, z in zip(out, moved, zeros, strict=True)]

        called = {"fun": batch.map_function(fun), "rule": batched_rule, "num_consts": num_consts}
        return self(*axis.to_fronts(args, dims), **called), batch.out_dims


def check_closed_over(kind: str, tangents: Sequence[Any]) -> None:
    """Refuse tangents of values that the function closes over: the user's rule has no tangent for them."""
    if any(type(t) is not Zero for t in tangents):
        raise TraceError(
            f"differentiation of a {kind} function",
            expected="a function that does not close over differentiated values",
            got="one that closes over a differentiated value, which its rule does not receive",
            fix="pass the value as an argument, or convert it to one with closure_convert",
        )


def _check_result_types(kind: str, fun: FlatOrJaxpr, out: Sequence[Any]) -> None:
    """Check that a rule computes results of the types that the staged function has."""
    if type(fun) is not Jaxpr:
        return
    for i, (want, got) in enumerate(zip(fun.out_avals, map(get_aval, out), strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            raise ArgumentTypeError(
                f"rule of a {kind} function, leaf {i} of its result",
                expected=f"the type that the function gives it, {want.str_short()}",
                got=got.str_short(),
                fix="compute the result in the rule as the function does",
            )


class _Batch:
    """A custom derivative call for all examples, whose function and rules run under the trace that maps it.

    Args:
      axis: the mapped axis.
      trace: the trace, whose values the functions may close over.
      dims: the mapped dimension, or None, of each operand.
      jointly: whether all results are mapped as soon as an operand or a result is. A `bwd` rule needs the cotangents of
        each example, since it need not be the transpose of the derivative.
    """

    def __init__(self, axis: AxisData, trace: BatchTrace, dims: Sequence[int | None], jointly: bool = False):
        self.axis, self.trace, self.jointly = axis, trace, jointly
        self.in_dims = front_dims([d is not None for d in dims])
        # A compiled call chooses before its rule runs, which may map results that the function does not.
        self._any_input = 0 in self.in_dims
        self._mapped: list[bool] | None = None

    @property
    def out_dims(self) -> list[int | None]:
        """The mapped dimension, or None, of each result, once the function or a rule has run."""
        return front_dims(self._mapped or ())

    def choose(self, mapped: Sequence[bool], are_residuals: bool = False) -> None:
        """Choose once which results are mapped.

        Args:
          mapped: for each result, whether it was computed with a mapped dimension.
          are_residuals: whether a residual has one.
        """
        if self._mapped is None:
            is_compiled = state.trace is not None and state.trace.compiles
            every = self._any_input and (is_compiled or self.jointly)
            every = every or (self.jointly and (are_residuals or any(mapped)))
            self._mapped = [every or m for m in mapped]

    def place(self, pairs: Sequence[tuple[Any, int | None]]) -> list:
        """The results, from pairs of a result and its dimension, with the mapped dimension in front."""
        chosen = self._mapped or ()
        if any(d is not None and not m for (_, d), m in zip(pairs, chosen, strict=True)):
            raise TraceError(
                "vmap of a function with a custom derivative",
                expected="a rule whose results are the same for all examples, like the function's results",
                got="a result or tangent that depends on a mapped value",
                fix="pass the mapped value to the function as an argument",
            )
        return [self.axis.to_front(x, d) if m else x for (x, d), m in zip(pairs, chosen, strict=True)]

    def map_function(self, fun: FlatOrJaxpr) -> FlatOrJaxpr:
        """The function for all examples."""
        if type(fun) is Jaxpr:
            batched, self._mapped = batch_jaxpr(fun, self.axis, [d is not None for d in self.in_dims], self._any_input)
            return batched

        def call(*xs: Any) -> list:
            out, dims = vmap_flat(fun, xs, self.in_dims, self.axis, function_name(fun), self.trace)
            self.choose([d is not None for d in dims])
            return self.place(list(zip(out, dims, strict=True)))

        return call


def _vmap(
    fun: Callable, args: Sequence[Any], dims: Sequence[Any], axis: AxisData, name: str, trace: BatchTrace | None = None
) -> list[tuple[Any, Any]]:
    """Map a flat function with symbolic zeros among its arguments and results: pairs of a result and its dimension."""
    # Symbolic zeros cannot be batched: they are taken out of the arguments, and given to the function per example.
    has = [type(x) is not Zero for x in args]
    zeros = [
        Zero(x.aval if d is None else x.aval.without_dim(d))
        for x, d in zip(select_unflagged(args, has), select_unflagged(dims, has), strict=True)
    ]
    found: list = []

    def dense(*xs: Any) -> list:
        found[:] = fun(*merge_lists(has, xs, zeros))
        return [x for x in found if type(x) is not Zero]

    mapped = vmap_flat(dense, select_flagged(args, has), select_flagged(dims, has), axis, name, trace)
    pairs = zip(*mapped, strict=True)
    return merge_lists([type(x) is not Zero for x in found], pairs, [(x, None) for x in found if type(x) is Zero])


custom_jvp_call_p = CustomJVPCall()


class CustomVJPCall(_CustomCall, name="custom_vjp_call"):
    """A call of a function with a custom reverse-mode derivative: (*constants, *inputs) -> results of `fun`."""

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        fun: FlatOrJaxpr,
        fwd: Callable,
        bwd: Callable,
        num_consts: int,
    ) -> tuple:
        check_closed_over("custom_vjp", tangents[:num_consts])
        primals, tangents = primals[num_consts:], tangents[num_consts:]
        perturbed = tuple(type(t) is not Zero for t in tangents)
        out, residuals = fwd(primals, perturbed)
        _check_result_types("custom_vjp", fun, out)
        out_avals = tuple(get_aval(x).to_tangent() for x in out)
        # Integer results have no derivative, so no linear equation is recorded.
        if all(a.dtype == dtypes.float0 for a in out_avals):
            return out, [Zero(a) for a in out_avals]
        given = select_flagged(tangents, perturbed)
        out_dot = custom_linear_p(
            *residuals, *given, bwd=bwd, num_residuals=len(residuals), perturbed=perturbed, out_avals=out_avals
        )
        return out, [Zero(a) if a.dtype == dtypes.float0 else t for t, a in zip(out_dot, out_avals, strict=True)]

    def discharge_rules(self, refs: _ValueRefs, params: dict) -> dict:
        held: list[Slot | None] = []  # the slots of the references among the residuals

        def fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
            opened, cells = refs.open(primals)
            out, residuals = params["fwd"](opened, perturbed)
            slots = {id(cell): slot for slot, cell in cells.items()}
            held[:] = [slots.get(id(r)) for r in residuals]
            residuals = [r if slot is None else r.value for r, slot in zip(residuals, held, strict=True)]
            return [*out, *refs.finals(cells)], residuals

        def bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            opened = [r if slot is None else RefCell(state.trace, r) for r, slot in zip(residuals, held, strict=True)]
            count = len(cts) - len(refs.written)
            refs.check_derivatives(cts[count:])
            x_bars = params["bwd"](opened, cts[:count], perturbed)
            # Nobody can see what the rule writes to a reference that ends with the differentiated function.
            if any(slot is not None and slot.is_view and r.is_written for r, slot in zip(opened, held, strict=True)):
                raise RefError(
                    "bwd rule of a custom_vjp function",
                    expected="no write to a reference that vmap, shard_map, scan or vjp maps over or differentiates",
                    got="such a write, which would be lost, since the backward pass runs after the function",
                    fix="return the value from the rule as the cotangent of an argument, or close over the reference",
                )
            return x_bars

        return {"fwd": fwd, "bwd": bwd}

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        trace: BatchTrace,
        fun: FlatOrJaxpr,
        fwd: Callable,
        bwd: Callable,
        num_consts: int,
    ) -> tuple:
        batch = _Batch(axis, trace, dims, jointly=True)
        ins = batch.in_dims[num_consts:]
        # Known only when `fwd` runs under differentiation, which happens before `bwd` is called.
        residual_dims: list[int | None] = []

        def batched_fwd(primals: Sequence[Any], perturbed: tuple) -> tuple:
            counts: list[int] = []

            def one(*xs: Any) -> list:
                out, residuals = fwd(xs, perturbed)
                counts.append(len(out))
                return [*out, *residuals]

            flat, found = vmap_flat(one, primals, ins, axis, "custom_vjp", trace)
            n = counts[0]
            residual_dims[:] = front_dims([d is not None for d in found[n:]])
            batch.choose([d is not None for d in found[:n]], any(d is not None for d in found[n:]))
            return batch.place(list(zip(flat[:n], found[:n], strict=True))), axis.to_fronts(flat[n:], found[n:])

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            dims = [*residual_dims, *batch.out_dims]
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, dims, ins, trace)

        rules = {"fwd": batched_fwd, "bwd": batched_bwd, "num_consts": num_consts}
        return self(*axis.to_fronts(args, dims), fun=batch.map_function(fun), **rules), batch.out_dims


def _batch_bwd(
    bwd: Callable,
    axis: AxisData,
    residuals: Sequence[Any],
    cts: Sequence[Any],
    perturbed: tuple,
    dims: Sequence[int | None],
    in_dims: Sequence[int | None],
    trace: BatchTrace | None = None,
) -> list:
    """Map a `bwd` rule; the cotangents of unmapped inputs are summed over the examples.

    Args:
      bwd, residuals, cts, perturbed: the rule and its arguments.
      axis: the mapped axis.
      dims: the mapped dimension, or None, of each residual and cotangent.
      in_dims: the mapped dimension, or None, of each input of the function.
      trace: the trace whose values the rule may close over.
    """
    count = len(residuals)
    log_tree: Any = None

    def one(*xs: Any) -> list:
        nonlocal log_tree
        with collect_logs() as logs:
            found = bwd(list(xs[:count]), list(xs[count:]), perturbed)
        out, log_tree = append_logs(found, logs)
        return out

    pairs = _vmap(one, [*residuals, *cts], dims, axis, "custom_vjp", trace)
    are_mapped = any(d is not None for d in dims)
    logged = [axis.to_front(x, d) if are_mapped else x for x, d in pairs[len(in_dims) :]]
    record_logs({} if log_tree is None else tree_unflatten(log_tree, logged))
    x_bars = []
    for (x, found), wanted in zip(pairs[: len(in_dims)], in_dims, strict=True):
        if found is not None and not are_mapped:
            raise TraceError(
                "vmap of a custom_vjp function",
                expected="a bwd rule that reads mapped values from its residuals",
                got="one that closes over a mapped value which fwd does not read",
                fix="return the value from fwd as a residual",
            )
        if type(x) is Zero or not are_mapped:
            x_bars.append(x)
        elif wanted is None:
            x_bars.append(vector_space.sum(axis.to_front(x, found), 0))
        else:
            x_bars.append(axis.to_front(x, found))
    return x_bars


custom_vjp_call_p = CustomVJPCall()


class CustomLinear(HigherOrder, name="custom_linear"):
    """The linear part of a `custom_vjp_call`: (*residuals, *tangents) -> tangents. Only its transpose is defined."""

    sharding_rule = Undefined("the forward derivative of a custom_vjp function is not defined")

    def abstract_eval(self, *avals: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple) -> list:
        return list(out_avals)

    def run(self, *args: Any, **params: Any) -> list:
        raise no_forward_mode_error()

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        raise no_forward_mode_error()

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> list:
        raise no_forward_mode_error(f", at {format_source(ctx.eqn.source)}")

    def transpose(
        self, cts: Sequence[Any], *operands: Any, bwd: Callable, num_residuals: int, perturbed: tuple, out_avals: tuple
    ) -> tuple:
        residuals, given = operands[:num_residuals], operands[num_residuals:]
        x_bars = select_flagged(bwd(list(residuals), list(cts), perturbed), perturbed)
        return (*[None] * num_residuals, *[x if is_linear(t) else None for x, t in zip(x_bars, given, strict=True)])

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        bwd: Callable,
        num_residuals: int,
        perturbed: tuple,
        out_avals: tuple,
    ) -> tuple:
        n = num_residuals
        moved = [*axis.to_fronts(args[:n], dims[:n]), *map(axis.to_front, args[n:], dims[n:])]
        residual_dims = front_dims([d is not None for d in dims[:n]])

        def batched_bwd(residuals: Sequence[Any], cts: Sequence[Any], perturbed: tuple) -> list:
            found = [*residual_dims, *[0] * len(cts)]
            return _batch_bwd(bwd, axis, residuals, cts, perturbed, found, [0] * len(perturbed))

        # Tangents are mapped without exception, so every cotangent that `bwd` returns is mapped, too.
        wide = tuple(a.with_shape((axis.size, *a.shape)) for a in out_avals)
        out = self(*moved, bwd=batched_bwd, num_residuals=num_residuals, perturbed=perturbed, out_avals=wide)
        return out, [0] * len(out)


def no_forward_mode_error(place: str = "") -> TraceError:
    """The error for forward mode through a `custom_vjp` function; `place` is appended to the operation."""
    return TraceError(
        f"forward-mode differentiation (jvp){place}",
        expected="functions with a forward-mode derivative",
        got="a custom_vjp function, which defines reverse mode only",
        fix="define the function with custom_jvp, or differentiate in reverse mode (grad, vjp, jacrev)",
    )


custom_linear_p = CustomLinear()
