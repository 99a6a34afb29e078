"""`sparsify`: a function of dense arrays as a function of sparse ones.

A `SparseTrace` applies a rule of the table below to each operation on a sparse array; all other operations are left to
the trace around it. Jaxprs inside of operations, such as the bodies of loops, are evaluated under an inner trace.
The operators of sparse arrays are functions of `numpy` transformed by `sparsify`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import Identity, Jaxpr, Primitive, RuleError, Trace, Tracer, dtypes, get_aval, run_jaxpr, state
from phalanx.custom_rules import custom_jvp
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax.control_flow.scan_primitive import ScanLayout
from phalanx.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    extract,
    materialize_batch,
)
from phalanx.sparse.bcoo_products import bcoo_conv_general_dilated, bcoo_dot_general, bcoo_multiply_sparse, elements_at
from phalanx.sparse.bcoo_shapes import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
)
from phalanx.sparse.bcsr import BCSR
from phalanx.sparse.sparse_array import JAXSparse
from phalanx.spmd import jit
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import Array, PyTree, Shape


def is_sparse(x: object) -> bool:
    """Whether a value is a sparse array."""
    return isinstance(x, JAXSparse)


class SparseTracer(Tracer):
    """A sparse array inside a function that `sparsify` transforms, where it has the type of a dense array.

    Args:
      trace: the trace of the transformation.
      value: the array, sparse or dense.
    """

    __slots__ = ("aval", "value")

    def __init__(self, trace: SparseTrace, value: Any):
        self._trace = trace
        self.value = value
        self.aval = get_aval(value.data).with_shape(value.shape) if is_sparse(value) else get_aval(value)


class SparseTrace(Trace):
    """Applies the rules for sparse operands."""

    __slots__ = ()

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        values = [self.unwrap(x) for x in args]
        before = state.trace
        state.trace = self.parent
        try:
            if not any(is_sparse(x) for x in values):
                return primitive(*values, **params)
            out = apply_rule(primitive, values, params)
        finally:
            state.trace = before
        return [self.wrap(y) for y in out] if primitive.multiple else self.wrap(out)

    def wrap(self, x: Any) -> Any:
        """A tracer for a sparse array; any other value as it is."""
        return SparseTracer(self, x) if is_sparse(x) else x

    def unwrap(self, x: Any) -> Any:
        """The array of a tracer of this trace; any other value as it is."""
        if type(x) is SparseTracer and x._trace is self:
            return x.value
        self.check_alive(x)
        return x


def run_sparse(fun: Callable, *values: Any) -> list:
    """Apply a function of flat arrays, with a list of results, to arrays of which some may be sparse."""
    trace = SparseTrace(state.trace, "sparsify")
    return trace.run(fun, map(trace.wrap, values), trace.unwrap)


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """Transform a function of dense arrays into one of sparse arrays.

    Operations that keep zeros at zero, linear algebra, indexing, changes of shape, sums and control flow have sparse
    results. Operations whose results would be dense are errors.

    Args:
      f: a function of arrays, or pytrees of arrays.
      use_tracer: whether dense arguments are `SparseTracer`s inside of `f`, too, as sparse ones always are.

    Returns:
      A function of the same arguments, any of which may be sparse.

    Raises:
      RuleError: an operation on a sparse array has no rule.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> x = sparse.BCOO.fromdense(jnp.arange(12).reshape(3, 4))
      >>> sparse.sparsify(lambda x, v: 2 * x.T @ v)(x, jnp.array([3, 4, 2])).tolist()
      [64, 82, 100, 118]
    """

    @api_boundary
    @functools.wraps(f)
    def wrapped(*args: Any, **params: Any) -> Any:
        trace = SparseTrace(state.trace, "sparsify")
        leaves, tree = tree_flatten(args, is_leaf=is_sparse)
        leaves = [x if not is_sparse(x) or isinstance(x, BCOO | BCSR) else x.to_bcoo() for x in leaves]
        wrap = functools.partial(SparseTracer, trace) if use_tracer else trace.wrap
        out_tree: Any = None

        def flat(*xs: Any) -> list:
            nonlocal out_tree
            out, out_tree = tree_flatten(f(*tree_unflatten(tree, xs), **params), is_leaf=is_sparse)
            return out

        out = trace.run(flat, map(wrap, leaves), trace.unwrap)
        return tree_unflatten(out_tree, out)

    return wrapped


JAXSparse.apply = staticmethod(lambda function, *operands: sparsify(function)(*operands))


class Todense(Identity, name="todense"):
    """`x` as a dense array."""


todense_p = Todense()


def todense(arr: PyTree) -> Array:
    """Convert an array to a dense one; a dense array is returned as it is.

    Args:
      arr: sparse[*shape] or num[*shape].

    Returns:
      num[*shape].

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> sparse.todense(sparse.BCOO.fromdense(jnp.arange(3))).tolist()
      [0, 1, 2]
    """
    if is_sparse(arr):
        return arr.todense()
    # Inside of a function that `sparsify` transforms, the traced value may be sparse although its type is dense.
    return todense_p(arr) if isinstance(arr, Tracer) else jnp.asarray(arr)


# The rules: from the name of a primitive to a function of its operands, of which at least one is a `BCOO`.
_rules: dict[str, Callable] = {}
# The primitives whose rules take `BCSR` operands, too. Others are given these as `BCOO`.
_takes_bcsr: set[str] = set()


def rule(*names: str, bcsr: bool = False) -> Callable[[Callable], Callable]:
    """Declare a function the rule of primitives."""

    def declare(function: Callable) -> Callable:
        _rules.update(dict.fromkeys(names, function))
        _takes_bcsr.update(names if bcsr else ())
        return function

    return declare


def apply_rule(primitive: Primitive, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """Apply an operation to values of which at least one is sparse."""
    function = _rules.get(primitive.name)
    if function is None:
        raise RuleError(
            f"sparsify, operation {primitive.name}",
            expected="an operation that keeps zeros at zero, or has a rule for sparse arrays",
            got=f"operands {', '.join(repr(x) if is_sparse(x) else get_aval(x).str_short() for x in values)}",
            fix="convert the operand with sparse.todense(x), if a dense result is intended",
        )
    if primitive.name in _takes_bcsr or not any(isinstance(x, BCSR) for x in values):
        return function(*values, **params)
    out = function(*[x.to_bcoo() if isinstance(x, BCSR) else x for x in values], **params)
    return tree_map(_to_bcsr, out, is_leaf=is_sparse) if not any(isinstance(x, BCOO) for x in values) else out


def _to_bcsr(x: Any) -> Any:
    return BCSR.from_bcoo(x) if isinstance(x, BCOO) and x.n_sparse == 2 else x


def get_shape(x: Any) -> Shape:
    """The shape of a sparse or dense array, or of a number."""
    return x.shape if is_sparse(x) else np.shape(x)


def _unsupported(operation: str, expected: str, fix: str, got: str = "other operands") -> RuleError:
    return RuleError(f"sparsify, operation {operation}", expected=expected, got=got, fix=fix)


# ---- Elementwise operations


def _unary(primitive: Primitive, is_linear: bool) -> None:
    """Declare the rule of an operation that maps 0 to 0; a linear one may be applied before equal indices are added."""

    @rule(primitive.name, bcsr=True)
    def apply(x: BCOO | BCSR, **params: Any) -> BCOO | BCSR:
        if not is_linear and not x.unique_indices:
            x = x.sum_duplicates(nse=x.nse, remove_zeros=False)
        return x.with_data(primitive(x.data, **params))


for _primitive in (lax.neg_p, lax.real_p, lax.imag_p, lax.conj_p, lax.copy_p, lax.stop_gradient_p):
    _unary(_primitive, is_linear=True)

for _primitive in (
    lax.abs_p,
    lax.sign_p,
    lax.sqrt_p,
    lax.cbrt_p,
    lax.square_p,
    lax.expm1_p,
    lax.log1p_p,
    lax.sin_p,
    lax.tan_p,
    lax.asin_p,
    lax.atan_p,
    lax.sinh_p,
    lax.tanh_p,
    lax.asinh_p,
    lax.atanh_p,
    lax.erf_p,
    lax.erf_inv_p,
    lax.bessel_i1e_p,
    lax.floor_p,
    lax.ceil_p,
    lax.round_p,
    lax.convert_element_type_p,
    lax.reduce_precision_p,
):
    _unary(_primitive, is_linear=False)


@rule("integer_pow")
def _integer_pow(x: BCOO, *, y: int) -> BCOO:
    if y <= 0:
        raise _unsupported("integer_pow", "a positive exponent", "convert with sparse.todense(x)", str(y))
    x = x if x.unique_indices else bcoo_sum_duplicates(x, nse=x.nse)
    return x.with_data(lax.integer_pow(x.data, y))


@rule("add")
def _add(x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        if x.indices is y.indices and x.layout == y.layout:
            return x.with_data(lax.add(x.data, y.data))
        layout = {"n_batch": min(x.n_batch, y.n_batch), "n_dense": min(x.n_dense, y.n_dense)}
        x, y = (materialize_batch(bcoo_update_layout(v, **layout), range(layout["n_batch"])) for v in (x, y))
        dtype = jnp.promote_types(x.indices.dtype, y.indices.dtype)
        data = lax.concatenate([x.data, y.data], x.n_batch)
        indices = lax.concatenate([v.indices.astype(dtype) for v in (x, y)], x.n_batch)
        return BCOO((data, indices), shape=x.shape)
    if get_shape(x) != get_shape(y):
        raise _unsupported(
            "add",
            "a dense array of the shape of the sparse one",
            "convert the sparse array with sparse.todense, if a dense result is intended",
            f"addition between a sparse array X and a dense array Y of shapes {get_shape(x)} and {get_shape(y)}",
        )
    return lax.add(*(v.todense() if is_sparse(v) else v for v in (x, y)))


@rule("sub")
def _sub(x: Any, y: Any) -> Any:
    return _add(x, y.with_data(lax.neg(y.data)) if is_sparse(y) else lax.neg(y))


@rule("mul")
def _mul(x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        if x.indices is y.indices and x.layout == y.layout and x.unique_indices:
            return x.with_data(lax.mul(x.data, y.data))
        return bcoo_multiply_sparse(x, y)
    x, y = (x, y) if is_sparse(x) else (y, x)
    return x.with_data(jnp.multiply(x.data, elements_at(x, y)))


@rule("div")
def _div(x: Any, y: Any) -> BCOO:
    if is_sparse(y):
        raise _unsupported("div", "a dense divisor", "convert the divisor with sparse.todense", repr(y))
    if not dtypes.issubdtype(x.dtype, np.inexact) and not x.unique_indices:
        x = bcoo_sum_duplicates(x, nse=x.nse)
    return x.with_data(lax.div(*jnp.broadcast_arrays(x.data, elements_at(x, y, fill=1))))


# ---- Shapes, indexing, reductions, products


@rule("todense", bcsr=True)
def _todense(x: BCOO | BCSR) -> Array:
    return x.todense()


@rule("transpose")
def _transpose(x: BCOO, *, permutation: tuple) -> BCOO:
    return bcoo_transpose(x, permutation=permutation)


@rule("reshape")
def _reshape(x: BCOO, *, shape: tuple) -> BCOO:
    return bcoo_reshape(x, new_sizes=shape)


@rule("squeeze")
def _squeeze(x: BCOO, *, dims: tuple) -> BCOO:
    return bcoo_squeeze(x, dimensions=dims)


@rule("rev")
def _rev(x: BCOO, *, dims: tuple) -> BCOO:
    return bcoo_rev(x, dims)


@rule("broadcast_in_dim")
def _broadcast_in_dim(x: BCOO, *, shape: tuple, dims: tuple) -> BCOO:
    return bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=dims)


@rule("concatenate")
def _concatenate(*xs: Any, dim: int) -> BCOO:
    if not all(is_sparse(x) for x in xs):
        raise _unsupported("concatenate", "sparse operands only", "convert the others with BCOO.fromdense")
    return bcoo_concatenate(xs, dimension=dim)


@rule("slice")
def _slice(x: BCOO, *, starts: tuple, stops: tuple, strides: tuple | None) -> BCOO:
    return bcoo_slice(x, start_indices=starts, limit_indices=stops, strides=strides)


@rule("dynamic_slice")
def _dynamic_slice(x: BCOO, *starts: Any, sizes: tuple, wrap: tuple) -> BCOO:
    return bcoo_dynamic_slice(x, starts, sizes)


@rule("gather")
def _gather(x: BCOO, indices: Array, **params: Any) -> BCOO:
    return bcoo_gather(x, indices, **params)


@rule("reduce_sum")
def _reduce_sum(x: BCOO, *, dims: tuple) -> Any:
    total = bcoo_reduce_sum(x, axes=dims)
    return total if total.shape else total.todense()


@rule("dot_general")
def _dot_general(x: Any, y: Any, **params: Any) -> Any:
    return bcoo_dot_general(x, y, **params)


@rule("conv_general_dilated")
def _conv_general_dilated(x: Any, w: Any, *, mapped: tuple, **params: Any) -> BCOO:
    if mapped:
        raise _unsupported("conv_general_dilated", "a convolution outside of vmap", "apply vmap outside of sparsify")
    return bcoo_conv_general_dilated(x, w, **params)


# ---- Calls and control flow


def _run(jaxpr: Jaxpr, values: Sequence[Any]) -> list:
    return run_sparse(lambda *xs: run_jaxpr(jaxpr, *xs), *values)


def _forget(values: Sequence[Any]) -> list:
    """Drop what is known of the indices, so that values of different iterations and branches have one type."""
    return [type(x)(x.tree_flatten()[0], shape=x.shape) if is_sparse(x) else x for x in values]


@rule("jit", bcsr=True)
def _jit(*args: Any, jaxpr: Jaxpr, name: str, options: Any) -> list:
    if any(options.donated) or any(options.in_shardings) or any(options.out_shardings):
        raise _unsupported(
            "jit",
            "a compiled function without shardings and donated arguments, which describe dense arrays",
            "apply jit outside of sparsify",
            f"options of {name}",
        )
    # Kept on the jaxpr, so that a second call finds the compiled function.
    return jaxpr.derive("sparsify", lambda: jit(lambda *xs: _run(jaxpr, xs)))(*args)


@rule("while", bcsr=True)
def _while(*args: Any, cond_jaxpr: Jaxpr, body_jaxpr: Jaxpr, cond_nconsts: int, body_nconsts: int) -> list:
    consts, init = cond_nconsts + body_nconsts, _forget(args[cond_nconsts + body_nconsts :])
    return lax.while_loop(
        lambda carry: _run(cond_jaxpr, [*args[:cond_nconsts], *carry])[0],
        lambda carry: _forget(_run(body_jaxpr, [*args[cond_nconsts:consts], *carry])),
        init,
    )


@rule("scan", bcsr=True)
def _scan(*args: Any, jaxpr: Jaxpr, layout: ScanLayout) -> list:
    consts, carry, xs = layout.split(args)
    xs = [materialize_batch(x, [0]) if isinstance(x, BCOO) else x for x in xs]

    def body(carry: list, x: list) -> tuple[list, list]:
        out = _forget(_run(jaxpr, [*consts, *carry, *x]))
        return out[: layout.num_carry], out[layout.num_carry :]

    carry, ys = lax.scan(body, _forget(carry), xs, length=layout.length, reverse=layout.reverse, unroll=layout.unroll)
    return [*carry, *ys]


@rule("cond", bcsr=True)
def _cond(index: Any, *args: Any, branches: tuple) -> list:
    return lax.switch(index, [lambda *xs, branch=branch: _forget(_run(branch, xs)) for branch in branches], *args)


@rule("custom_jvp_call", bcsr=True)
def _custom_jvp_call(*args: Any, fun: Any, rule: Callable, num_consts: int) -> list:
    consts, operands = args[:num_consts], args[num_consts:]
    flat = functools.partial(run_jaxpr, fun) if type(fun) is Jaxpr else fun

    def unique(xs: Sequence[Any]) -> list:
        merged = [x if not is_sparse(x) or x.unique_indices else x.sum_duplicates(x.nse, False) for x in xs]
        return _forget(merged)

    @custom_jvp
    def call(*xs: Any) -> list:
        return unique(run_sparse(flat, *consts, *xs))

    @call.defjvp
    def call_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        n = len(primals)
        # The tangent of a sparse array is stored at the indices of the array.
        dots = [p.with_data(t.data) if is_sparse(p) else t for p, t in zip(primals, tangents, strict=True)]
        out = run_sparse(lambda *xs: _pair(rule(list(xs[:n]), list(xs[n:]))), *primals, *dots)
        ys = unique(out[: len(out) // 2])
        return ys, [_tangent_at(y, t) for y, t in zip(ys, out[len(out) // 2 :], strict=True)]

    return call(*operands)


def _pair(results: tuple[list, list]) -> list:
    """Primal and tangent results as one list; symbolic zeros become arrays."""
    ys, dots = results
    return [*ys, *[jnp.zeros(t.aval.shape, t.aval.dtype) if type(t).__name__ == "Zero" else t for t in dots]]


def _tangent_at(y: Any, t: Any) -> Any:
    """The tangent of a result in its format: its elements at the indices of the result, and none for the indices."""
    if not is_sparse(y):
        return t.todense() if is_sparse(t) else t
    data = t.data if is_sparse(t) and t.indices is y.indices else extract(y.to_bcoo().indices, todense(t))
    rest = [np.zeros(x.shape, dtypes.float0) for x in y.tree_flatten()[0][1:]]
    return y.tree_unflatten(y.tree_flatten()[1], (data, *rest))
