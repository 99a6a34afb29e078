"""`einsum`: an expression becomes a list of pairwise contractions, planned once per expression and operand types.

The plan converts the operands to one dtype, takes diagonals of repeated axes, contracts pairs with `dot_general` and
transposes the last result. For two operands there is one contraction. For more, opt_einsum chooses the order; it is
imported only then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ConversionError, ShapeError, dtypes, promotion, state
from phalanx.engine.cache import Cache
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.operands import as_array, cast, refuse_out, result_dtype, to_operand
from phalanx.numpy.reductions.array_reductions import sum
from phalanx.numpy.shapes.diagonals import diagonal
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, DTypeLike, ShardingLike

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(
    subscripts: object,
    /,
    *operands: Any,
    out: None = None,
    optimize: str | bool | Sequence[object] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Einstein summation: the sum of products described by subscripts.

    Args:
      subscripts: for example `"ij,jk->ik"`; alternatively operands and lists of axis labels in turn.
      operands: an array or a scalar for each term.
      out: must be None; arrays are immutable.
      optimize: order of the pairwise contractions: `"auto"`, another opt_einsum strategy, or a path.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.
      _dot_general: replacement for `lax.dot_general`, with the same signature.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      An array with the axes named after `->`; without an arrow, the axes named once in alphabetical order.

    Raises:
      ArgumentError: the subscripts are malformed, or do not fit the operands; or `out` is given.
      ShapeError: sizes of one axis disagree.

    Examples:
      >>> jnp.einsum("ij,j->i", jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    refuse_out(out, "einsum")
    if type(subscripts) is not str:
        subscripts, operands = _parse_lists((subscripts, *operands))
    arrays = [x if hasattr(x, "aval") else to_operand(x, "einsum") for x in operands]
    if out_sharding is not None:
        options = dict(optimize=optimize, precision=precision, preferred_element_type=preferred_element_type)
        multiply = lambda *xs: einsum(subscripts, *xs, _dot_general=_dot_general, **options)
        return call_with_out_sharding(multiply, arrays, out_sharding, "einsum, out_sharding")
    if type(optimize) is not str and not isinstance(optimize, bool):
        optimize = tuple(optimize)
    if _dot_general is not None:
        return _plan(subscripts, arrays, optimize, precision, preferred_element_type, _dot_general)(arrays)
    key = (subscripts, optimize, precision, preferred_element_type, state.context, *[_operand_type(x) for x in arrays])
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(subscripts, arrays, optimize, precision, preferred_element_type, lax.dot_general)
    return plan(arrays) if state.trace is not None else _run(arrays, plan)


def _operand_type(x: Array) -> Any:
    aval = getattr(x, "aval", None)
    return (x.shape, x.dtype) if aval is None else aval


_plans: Cache[tuple, Any] = Cache("numpy.einsum_plans", 2048)


@eager_jit(static_argnames=("plan",))
def _run(arrays: list, plan: Callable[..., Array]) -> Any:
    return plan(arrays)


def einsum_path(subscripts: object, /, *operands: Any, optimize: str | bool | Sequence[object] = "auto") -> Any:
    """The contraction order that `einsum` would use, and a report on its cost.

    Args:
      subscripts: for example `"ij,jk->ik"`.
      operands: arrays; only the shapes are read.
      optimize: an opt_einsum strategy; True is `"optimal"`, False is `"greedy"`.

    Returns:
      The list of operand positions contracted at each step, and opt_einsum's printable report.

    Examples:
      >>> jnp.einsum_path("ij,jk->ik", jnp.ones((2, 2)), jnp.ones((2, 2)))[0]
      [(0, 1)]
    """
    import opt_einsum

    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else "greedy"
    return opt_einsum.contract_path(subscripts, *operands, optimize=optimize)


def _parse_lists(args: tuple) -> tuple[str, tuple]:
    """Translate operands with lists of axis labels to a subscript string."""
    paired = len(args) // 2 * 2
    operands, lists, rest = args[0:paired:2], args[1:paired:2], args[paired:]
    # As in NumPy, labels are ordered by value, so that an implicit result has its axes in that order.
    try:
        labels = sorted({a for axes in [*lists, *rest] for a in axes if a is not Ellipsis})
    except TypeError:
        raise ConversionError(
            "einsum, axis labels",
            expected="a sequence of integers after each operand",
            got=", ".join(type(axes).__name__ for axes in [*lists, *rest]),
            fix="write einsum(x, [0, 1], y, [1, 2]), or pass the subscripts as a string first",
        ) from None
    names = dict(zip(labels, _LETTERS))

    def spell(axes: Sequence[Any]) -> str:
        return "".join("..." if a is Ellipsis else names[a] for a in axes)

    text = ",".join(map(spell, lists))
    return (f"{text}->{spell(rest[0])}" if rest else text), operands


def _parse(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The axis labels of each operand and of the result, with every Ellipsis replaced by labels."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            "einsum, argument subscripts",
            expected=f"{len(ndims)} terms, one for each operand",
            got=repr(subscripts),
            fix="separate the terms with commas",
        )
    if set(text) - {*_LETTERS, *",.->"} or "." in text.replace("...", ""):
        raise ArgumentError(
            "einsum, argument subscripts",
            expected="letters, commas, '...' and '->'",
            got=repr(subscripts),
            fix="name each axis by one letter, as in 'ij,jk->ik'",
        )
    # Labels for the dimensions of an Ellipsis, from the end of the alphabet.
    extra = [n - len(t.replace("...", "")) for t, n in zip(terms, ndims)]
    width = max([0, *(e for t, e in zip(terms, extra) if "..." in t)])
    names = "".join(c for c in reversed(_LETTERS) if c not in text)[:width]
    for i, (t, e) in enumerate(zip(terms, extra)):
        if e < 0 or (e and "..." not in t):
            raise ArgumentError(
                f"einsum, operand {i}",
                expected=f"rank {len(t.replace('...', ''))}, as the term {t!r} has",
                got=ndims[i],
                fix="name each axis, or use '...'",
            )
        terms[i] = t.replace("...", names[len(names) - e :] if e else "")
    if arrow:
        result = right.replace("...", names)
    else:
        joined = "".join(terms)
        result = names + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in names))
    if not set(result) <= set("".join(terms)) or len(set(result)) != len(result):
        raise ArgumentError(
            "einsum, argument subscripts",
            expected="a result whose axes each occur in an operand, and once in it",
            got=repr(subscripts),
            fix="after '->', name each axis of the result once, and only axes of the operands",
        )
    return terms, result


def _sizes(terms: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for i, (t, x) in enumerate(zip(terms, arrays)):
        for k, (c, n) in enumerate(zip(t, x.shape)):
            is_repeated = c in t[:k]  # a diagonal: its two sizes must be equal, 1 does not broadcast
            known = x.shape[t.index(c)] if is_repeated else sizes.get(c, 1)
            if not is_repeated and type(known) is int and known == 1:
                sizes[c] = n
            elif known != n and (is_repeated or not (type(n) is int and n == 1)):
                raise ShapeError(
                    f"einsum, operand {i}",
                    expected=f"size {known} of axis {c!r}, as before",
                    got=f"{n} in {x.shape}",
                    fix="give operands whose axes agree",
                )
    return sizes


class _Plan:
    """A stack program: each step removes its operands from a list of arrays and appends its result."""

    __slots__ = ("convert", "steps")

    def __init__(self, convert: list, steps: list):
        self.convert, self.steps = convert, steps

    def __call__(self, arrays: Sequence[Any]) -> Any:
        xs = [x if c is None else c(x) for x, c in zip(arrays, self.convert)]
        for places, step in self.steps:
            taken = [xs.pop(i) for i in places]
            xs.append(step(*taken))
        (out,) = xs
        return out


def _plan(
    subscripts: str,
    arrays: Sequence[Any],
    optimize: str | bool | Sequence[object],
    precision: PrecisionLike,
    preferred: DTypeLike | None,
    dot_general: Callable,
) -> _Plan:
    terms, result = _parse(subscripts, [x.ndim for x in arrays])
    sizes = _sizes(terms, arrays)
    dtype, _ = result_dtype(arrays)
    out_dtype = dtypes.canonicalize_dtype(preferred) if preferred is not None else None
    multiply = functools.partial(dot_general, precision=precision, preferred_element_type=out_dtype or dtype)
    # Partial sums use the preferred dtype only if it can represent every value of the operands' dtype.
    wide = out_dtype if out_dtype is not None and promotion.join_dtypes(dtype, out_dtype) == out_dtype else None
    convert = [None if x.dtype == dtype else functools.partial(cast, dtype=dtype) for x in arrays]
    steps: list = []
    terms = [_prepare_term(t, x, sizes, steps) for t, x in zip(terms, arrays)]
    for places in _path(terms, result, sizes, optimize):
        taken = [terms.pop(i) for i in places]
        # Labels of the result and of the remaining terms are still needed; all others are summed in this step.
        kept = set(result).union(*terms)
        if len(taken) == 1:
            # A single operand is summed over the axes that are not kept, in a requested wider dtype.
            step = functools.partial(_sum_out, term=taken[0], kept="".join(sorted(kept)), wide=wide)
            term = "".join(c for c in taken[0] if c in kept)
        else:
            step, term = _contract_pair(taken[0], taken[1], kept, result if not terms else None, multiply, wide)
        steps.append((places, step))
        terms.append(term)
    (term,) = terms
    steps.append(((0,), functools.partial(_finish, term=term, result=result, dtype=out_dtype)))
    return _Plan(convert, steps)


def _prepare_term(term: str, x: Array, sizes: dict, steps: list) -> str:
    """Append a step that drops broadcast axes of size 1 and takes diagonals of repeated axes; return the new term."""
    ones = tuple(k for k, (c, n) in enumerate(zip(term, x.shape)) if type(n) is int and n == 1 and sizes[c] != 1)
    rest = "".join(c for k, c in enumerate(term) if k not in ones)
    steps.append(((0,), functools.partial(_reduce_term, ones=ones, term=rest)))
    return "".join(dict.fromkeys(rest))


def _reduce_term(x: Array, ones: tuple, term: str) -> Any:
    x = lax.squeeze(x, ones) if ones else x
    # Each pass takes the diagonal of one pair of equal labels.
    while len(set(term)) != len(term):
        c = next(c for c in term if term.count(c) > 1)
        i = term.index(c)
        j = term.index(c, i + 1)
        x = moveaxis(diagonal(x, 0, i, j), -1, i)
        term = term[:j] + term[j + 1 :]
    return x


def _path(terms: Sequence[str], result: str, sizes: dict, optimize: str | bool | Sequence[object]) -> list[tuple]:
    """The positions of the operands of each contraction, in the order in which they are removed from the list."""
    n = len(terms)
    if n == 1:
        return [(0,)]
    # Two operands: one contraction. The first is popped twice, since popping shifts the second to its position.
    if n == 2:
        return [(0, 0)]
    import opt_einsum

    # The cost model needs numbers: symbolic sizes count as 8.
    shapes = [tuple(sizes[c] if type(sizes[c]) is int else 8 for c in t) for t in terms]
    if optimize is False or (isinstance(optimize, tuple) and not optimize):
        path = [(0, 1)] * (n - 1)
    elif isinstance(optimize, tuple):
        path = [tuple(p) for p in optimize if not isinstance(p, str)]
    else:
        strategy = "optimal" if optimize is True else optimize
        path, _ = opt_einsum.contract_path(",".join(terms) + "->" + result, *shapes, shapes=True, optimize=strategy)
    return list(_split_into_pairs(path, n))


def _split_into_pairs(path: Sequence[tuple], n: int) -> Any:
    """Split contractions of several operands into pairs."""
    for step in path:
        places = sorted(step)
        while len(places) > 1:
            yield (places[0], places[1] - 1)
            # Removing two operands shifts the positions behind them; the result is appended.
            places = [p - 2 for p in places[2:]] + [n - 2]
            n -= 1
        if len(step) == 1:
            yield (places[0],)


def _sum_out(x: Array, term: str, kept: str, wide: Array) -> Any:
    axes = tuple(i for i, c in enumerate(term) if c not in kept)
    return sum(x, axis=axes, dtype=wide, promote_integers=False) if axes else x


def _contract_pair(a: str, b: str, kept: set, result: str | None, multiply: Callable, wide: Array) -> tuple:
    """The step for two operands: their product, summed over the axes that nothing else needs."""
    alone_a = "".join(c for c in a if c in b or c in kept)
    alone_b = "".join(c for c in b if c in a or c in kept)
    # Shared labels are batch dimensions if a later step needs them, and contracted otherwise.
    batch = [c for c in alone_a if c in alone_b and c in kept]
    contracted = [c for c in alone_a if c in alone_b and c not in kept]
    free_a = [c for c in alone_a if c not in alone_b]
    free_b = [c for c in alone_b if c not in alone_a]
    # In the last contraction, batch dimensions in the order of the result avoid a transpose.
    if result is not None:
        batch.sort(key=result.index)
    # The order of dimensions in which `dot_general` returns its result.
    first = "".join([*batch, *free_a, *free_b])
    second = "".join([*batch, *free_b, *free_a])
    # Exchanging the operands of the last contraction can save the final transpose.
    swap = result is not None and first != result and second == result
    left, right = (alone_b, alone_a) if swap else (alone_a, alone_b)
    numbers = (
        (tuple(left.index(c) for c in contracted), tuple(right.index(c) for c in contracted)),
        (tuple(left.index(c) for c in batch), tuple(right.index(c) for c in batch)),
    )
    step = functools.partial(
        _multiply, terms=(a, b), kept=(alone_a, alone_b), swap=swap, numbers=numbers, multiply=multiply, wide=wide
    )
    return step, second if swap else first


def _multiply(
    x: Array, y: Array, *, terms: tuple, kept: tuple, swap: bool, numbers: tuple, multiply: Callable, wide: Array
) -> Any:
    # Labels that only one operand has are summed before the product, which makes it smaller.
    x, y = (v if t == k else _sum_out(v, t, k, wide) for v, t, k in zip((x, y), terms, kept, strict=True))
    if x.dtype != y.dtype:  # an earlier step has computed one of them in the preferred dtype
        both = promotion.join_dtypes(x.dtype, y.dtype)
        x, y = cast(x, both), cast(y, both)
    return multiply(y, x, numbers) if swap else multiply(x, y, numbers)


def _finish(x: Array, term: str, result: str, dtype: np.dtype) -> Any:
    """Transpose the result to the requested order, and restore axes of size 1 that were dropped."""
    if term != result:
        order = tuple(term.index(c) for c in result if c in term)
        x = lax.transpose(x, order) if order != tuple(range(len(order))) else x
        # Broadcast axes of size 1 were dropped from every operand.
        missing = tuple(i for i, c in enumerate(result) if c not in term)
        x = lax.expand_dims(x, missing) if missing else x
    if dtype is not None and x.dtype != dtype:
        x = cast(x, dtype)
    return as_array(x)
