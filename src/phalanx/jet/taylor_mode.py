"""`jet`: derivatives of higher order along a path, without the exponential cost of nested forward mode.

A value is the list of its derivatives along the path, and an operation computes the list of its result:

* An operation that declares itself linear is applied to each derivative.
* A product (`mul`, `dot_general`, a convolution) follows Leibniz' rule, and a quotient its inverse.
* For every other operation f the path y(t) = f(x(t)) has the velocity dy/dt = f'(x) dx/dt, which the declared
  forward-mode rule expresses by simpler operations. This rule is evaluated on derivatives of one order less, that is,
  on x without its last derivative and on dx/dt, which is x without its first entry; the velocity's derivatives are
  those of y.

The recursion is cheap, since lists are shared: a `JetTracer` is a view of a list, a shorter view of operands has a
prefix of the result's list, and the results of an operation are remembered for its operands. For exp, the rule asks for
exp(x) of one order less, which is the list that is being extended.

Source: Griewank & Walther (2008), Evaluating Derivatives, chapter 13.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import phalanx.numpy as jnp
from phalanx.core import (
    LINEAR,
    ArgumentError,
    Primitive,
    ShapedArray,
    Trace,
    WrappingTracer,
    Zero,
    check_function,
    get_aval,
    instantiate,
    run_jaxpr,
    state,
)
from phalanx.custom_rules.custom_jvp_and_vjp_calls import CustomVJPCall
from phalanx.lax.elementwise import add_p, mul_p
from phalanx.spmd.shard_map_primitive import ShardMap
from phalanx.transforms import FlatFunction, TransformedCall
from phalanx.tree import tree_structure, tree_unflatten

# Products: bilinear in their two operands.
_PRODUCTS = frozenset({"mul", "dot_general", "conv_general_dilated"})


class ZeroSeries:
    """The series of an argument that does not move: all its derivatives are zero.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.jet import jet, zero_series
      >>> y, (dy,) = jet(jnp.multiply, (2.0, 3.0), ((1.0,), zero_series))
      >>> float(dy)
      3.0
    """


zero_series = ZeroSeries()


class JetTracer(WrappingTracer):
    """A value and its derivatives: the entries from `start` to before `stop` of a list that may grow."""

    __slots__ = ("derivatives", "start", "stop")

    def __init__(self, trace: JetTrace, derivatives: list, start: int, stop: int):
        self._trace = trace
        self.derivatives, self.start, self.stop = derivatives, start, stop

    has_tangent = True

    @property
    def wrapped(self) -> Any:
        return instantiate(self.derivatives[self.start])

    @property
    def aval(self) -> ShapedArray:
        return get_aval(self.derivatives[self.start])

    @property
    def concrete(self) -> Any:
        value = self.wrapped
        return getattr(value, "concrete", value)

    @property
    def order(self) -> int:
        """The number of derivatives."""
        return self.stop - self.start - 1


class _Call(NamedTuple):
    """An application of an operation to values of a trace."""

    primitive: Primitive
    args: Sequence[Any]
    params: dict[str, Any]


class JetTrace(Trace):
    """Computes the derivatives of each operation's results along the path of its operands."""

    __slots__ = ("_known",)

    def __init__(self, parent: Trace | None, name: str):
        super().__init__(parent, name)
        # From an operation and its operands to the lists of its results. The operands are kept alive, since the keys
        # hold their addresses.
        self._known: dict[Any, tuple[Any, list]] = {}

    def new(self, primal: Any, terms: Sequence[Any]) -> JetTracer:
        """A tracer for a value and its derivatives."""
        return JetTracer(self, [primal, *terms], 0, len(terms) + 1)

    def is_jet(self, x: Any) -> bool:
        """Whether a value has derivatives in this trace."""
        return type(x) is JetTracer and x._trace is self

    def derivative(self, x: Any, k: int) -> Any:
        """The derivative of order `k` of any value, perhaps a symbolic zero; order 0 is the value."""
        if not self.is_jet(x):
            return x if k == 0 else Zero.like(x)
        return x.derivatives[x.start + k]

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        jets = [x for x in args if self.is_jet(x)]
        order = min([x.order for x in jets], default=0)
        if not order:
            return self._on_parent(primitive, [self.derivative(x, 0) for x in args], params)
        if isinstance(primitive, CustomVJPCall):
            return primitive.run(*args, **params)
        if isinstance(primitive, TransformedCall) and not isinstance(primitive, ShardMap):
            return run_jaxpr(params[primitive.program], *args)
        results = self._results(primitive, args, params)
        extend = self._extend_by_rule
        if getattr(type(primitive), "jvp", None) is LINEAR:
            extend = self._extend_linear
        elif primitive.name in _PRODUCTS:
            extend = self._extend_product
        elif primitive.name == "div":
            extend = self._extend_quotient
        if not results or any(len(r) <= order for r in results if type(r) is list):
            extend(results, order, _Call(primitive, args, params))
        out = [JetTracer(self, r, 0, order + 1) if type(r) is list else r[0] for r in results]
        return out if primitive.multiple else out[0]

    def _on_parent(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        before, state.trace = state.trace, self.parent
        try:
            return primitive(*map(instantiate, args), **params)
        finally:
            state.trace = before

    def _results(self, primitive: Primitive, args: Sequence[Any], params: dict) -> list:
        """The list for each result, as far as it is known: empty at first, a tuple (value,) for a constant result."""
        names = [(id(x.derivatives), x.start) if self.is_jet(x) else id(x) for x in args]
        kept = [x.derivatives if self.is_jet(x) else x for x in args]
        try:
            return self._known.setdefault((primitive, *names, *params, *params.values()), (kept, []))[1]
        except TypeError:  # an unhashable parameter
            return []

    def _extend_linear(self, results: list, order: int, call: _Call) -> None:
        for k in range(len(results[0]) if results else 0, order + 1):
            out = self._on_parent(call.primitive, [self.derivative(x, k) for x in call.args], call.params)
            out = list(out) if call.primitive.multiple else [out]
            if not results:
                results.extend([] for _ in out)
            for result, x in zip(results, out, strict=True):
                result.append(x)

    def _extend_product(self, results: list, order: int, call: _Call) -> None:
        """The Leibniz rule: the derivative of order k of x y is the sum of binomial(k, j) x_j y_(k-j)."""
        if not results:
            results.append([])
        (result,) = results
        x, y = call.args
        product = functools.partial(self._on_parent, call.primitive, params=call.params)
        for k in range(len(result), order + 1):
            pairs = [(self.derivative(x, j), self.derivative(y, k - j)) for j in range(k + 1)]
            like = result[0] if result else None
            result.append(self._weighted_sum(like, [math.comb(k, j) for j in range(k + 1)], pairs, product))

    def _extend_quotient(self, results: list, order: int, call: _Call) -> None:
        """The Leibniz rule for x = q y, solved for the derivative of order k of q."""
        divide = functools.partial(self._on_parent, call.primitive, params=call.params)
        x, y = call.args
        if not results:
            results.append([divide([self.derivative(v, 0) for v in call.args])])
        (quotient,) = results
        for k in range(len(quotient), order + 1):
            pairs = [(self.derivative(y, j), quotient[k - j]) for j in range(1, k + 1)]
            product = functools.partial(self._on_parent, mul_p, params={})
            rest = self._weighted_sum(quotient[0], [-math.comb(k, j) for j in range(1, k + 1)], pairs, product)
            terms = [t for t in (self.derivative(x, k), rest) if type(t) is not Zero]
            numerator = self._on_parent(add_p, terms, {}) if len(terms) == 2 else (terms or [Zero.like(quotient[0])])[0]
            quotient.append(numerator if not terms else divide([numerator, self.derivative(y, 0)]))

    def _weighted_sum(self, like: Any, weights: Sequence[int], pairs: Sequence[tuple], product: Callable) -> Any:
        """The weighted sum of the products without a zero factor; a zero like `like` if none is left."""
        total: Any = None
        for weight, pair in zip(weights, pairs, strict=True):
            if any(type(v) is Zero for v in pair):
                continue
            term = product(pair)
            if weight != 1:
                term = self._on_parent(mul_p, [term, np.asarray(weight).astype(term.dtype)], {})
            total = term if total is None else self._on_parent(add_p, [total, term], {})
        return Zero.like(like) if total is None else total

    def _extend_by_rule(self, results: list, order: int, call: _Call) -> None:
        primitive = call.primitive
        primals, tangents = [], []
        for x in call.args:
            is_jet = self.is_jet(x)
            primals.append(self._view(x, x.start, x.start + order) if is_jet else x)
            tangents.append(self._view(x, x.start + 1, x.start + order + 1) if is_jet else Zero.like(x))
        before, state.trace = state.trace, self
        try:
            values, velocities = primitive.jvp(primals, tangents, **call.params)
        finally:
            state.trace = before
        if not primitive.multiple:
            values, velocities = [values], [velocities]
        # The rule may have asked for the operation itself, and extended the lists up to one order less.
        if not results:
            firsts = [self.derivative(y, 0) for y in values]
            results.extend((y,) if type(v) is Zero else [y] for y, v in zip(firsts, velocities, strict=True))
        for result, velocity in zip(results, velocities, strict=True):
            if type(result) is list:
                result.extend(self.derivative(velocity, k) for k in range(len(result) - 1, order))

    def _view(self, x: JetTracer, start: int, stop: int) -> Any:
        """The value with the derivatives from `start` to before `stop`; the plain value where there are none."""
        first = x.derivatives[start]
        if all(type(d) is Zero for d in x.derivatives[start:stop]):
            return first
        return instantiate(first) if stop - start == 1 else JetTracer(self, x.derivatives, start, stop)


def jet(fun: Callable, primals: Sequence[Any], series: Sequence[Any], factorial_scaled: bool = True) -> tuple:
    """The derivatives of a function along a path, by Taylor-mode differentiation.

    The path x(t) of each argument is given by its derivatives at t = 0. The result has the derivatives of fun(x(t)).
    The cost of most operations grows polynomially with the order, where nested `jvp` doubles it for each order.

    Args:
      fun: a function of arrays that returns a pytree of arrays.
      primals: the arguments x(0).
      series: for each argument the derivatives x'(0), x''(0), ..., as many for each, or `zero_series`.
      factorial_scaled: whether the derivative of order k is given and returned, instead of the coefficient of t**k in
        the Taylor series, which is smaller by k!.

    Returns:
      A pair: the result of `fun`, and a pytree of the same structure with the list of derivatives for each leaf.

    Raises:
      ArgumentError: the series differ in length or in number from the arguments, or an argument is no array.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.jet import jet
      >>> y, (dy, d2y, d3y) = jet(jnp.sin, (0.0,), ((1.0, 0.0, 0.0),))
      >>> float(y), float(dy), float(d2y), float(d3y)
      (0.0, 1.0, 0.0, -1.0)
    """
    check_function("jet, argument fun", fun)
    longest = max((len(terms) for terms in series if terms is not zero_series), default=0)
    series = [[0.0] * longest if terms is zero_series else terms for terms in series]
    if len(primals) != len(series) or len(set(map(len, series))) > 1:
        raise ArgumentError(
            "jet, argument series",
            expected=f"{len(primals)} lists of one length, one for each argument",
            got=f"lists of lengths {[len(terms) for terms in series]}",
            fix="pad the shorter lists with zeros",
        )
    order = len(series[0]) if series else 0
    for i, x in enumerate(primals):
        if not all(tree_structure(v).num_nodes == 1 and tree_structure(v).num_leaves == 1 for v in (x, *series[i])):
            raise ArgumentError(
                f"jet, argument {i} of fun",
                expected="an array, and arrays as its derivatives",
                got=f"{x!r}",
                fix="pass the leaves of a pytree as separate arguments",
            )
    scales = [1 if factorial_scaled else math.factorial(k + 1) for k in range(order)]
    function = FlatFunction(lambda *args: fun(*args), tree_structure((0,) * len(primals)), written=fun)
    trace = JetTrace(state.trace, "jet")
    values = list(map(jnp.asarray, primals))
    terms = [
        [_as_term(t, x) * s for t, s in zip(ts, scales, strict=True)] for x, ts in zip(values, series, strict=True)
    ]
    opened = lambda y: [instantiate(trace.derivative(y, k)) for k in range(order + 1)]
    found = trace.run(function, map(trace.new, values, terms), opened)
    derivatives = [[d / s if s != 1 else d for d, s in zip(each[1:], scales, strict=True)] for each in found]
    return tree_unflatten(function.out_tree, [each[0] for each in found]), tree_unflatten(
        function.out_tree, derivatives
    )


def _as_term(term: Any, primal: Any) -> Any:
    """A derivative as an array of the type of its value."""
    return jnp.broadcast_to(jnp.asarray(term, primal.dtype), primal.shape)
