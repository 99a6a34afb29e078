"""Sums of products by subscripts: einsum, planned once for each expression and operand types.

Two operands are one dot_general (with sums before and a transposition after where needed); for more, opt_einsum finds
the order of the pairs, and is imported only then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.operands import as_array, cast, operand, refuse_out, result_dtype
from phalanx.runtime.dispatch import eager_program

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(
    subscripts: Any, /, *operands: Any, out: None = None, optimize: Any = "auto", precision: Any = None,
    preferred_element_type: Any = None, _dot_general: Callable | None = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """The sum of products that subscripts describe.

    Args:
      subscripts: such as `"ij,jk->ik"`; or the first operand, followed by a list of axis names and so on.
      operands: an array or a scalar for each term.
      out: must be None.
      optimize: how the order of products is found: `"auto"`, another strategy of opt_einsum, or a path.
      precision: of the products, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.
      _dot_general: what multiplies two operands, with the arguments of `lax.dot_general`.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array with the axes named after `->`; without an arrow, with those named once, in alphabetical order.

    Raises:
      ArgumentError: the subscripts are malformed, or do not fit the operands; or `out` is given.
      ShapeError: sizes of one axis disagree.

    Examples:
      >>> jnp.einsum("ij,j->i", jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    refuse_out(out, "einsum")
    if type(subscripts) is not str:
        subscripts, operands = _from_lists((subscripts, *operands))
    arrays = [x if hasattr(x, "aval") else operand(x, "einsum") for x in operands]
    if out_sharding is not None:
        options = dict(optimize=optimize, precision=precision, preferred_element_type=preferred_element_type)
        multiply = lambda *xs: einsum(subscripts, *xs, _dot_general=_dot_general, **options)
        return laid_out(multiply, arrays, out_sharding, "einsum, out_sharding")
    if type(optimize) is not str and not isinstance(optimize, bool):
        optimize = tuple(optimize)
    if _dot_general is not None:
        return _plan(subscripts, arrays, optimize, precision, preferred_element_type, _dot_general)(arrays)
    key = (subscripts, optimize, precision, preferred_element_type, state.context, *[_kind(x) for x in arrays])
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(subscripts, arrays, optimize, precision, preferred_element_type, lax.dot_general)
    return plan(arrays) if state.trace is not None else _run(arrays, plan)


def _kind(x: Any) -> Any:
    aval = getattr(x, "aval", None)
    return (x.shape, x.dtype) if aval is None else aval


_plans: dict[tuple, Any] = {}


@eager_program(static_argnames=("plan",))
def _run(arrays: list, plan: Any) -> Any:
    return plan(arrays)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> Any:
    """The order of products that `einsum` would take, and its description.

    Args:
      subscripts: such as `"ij,jk->ik"`.
      operands: arrays, of which the shapes count.
      optimize: a strategy of opt_einsum; True is `"optimal"`, False `"greedy"`.

    Returns:
      The list of positions that meet in turn, and opt_einsum's description, which can be printed.

    Examples:
      >>> jnp.einsum_path("ij,jk->ik", jnp.ones((2, 2)), jnp.ones((2, 2)))[0]
      [(0, 1)]
    """
    import opt_einsum

    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else "greedy"
    return opt_einsum.contract_path(subscripts, *operands, optimize=optimize)


def _from_lists(args: tuple) -> tuple[str, tuple]:
    """The form with operands and lists of axis names, as a text."""
    operands, lists = [], []
    rest = list(args)
    while len(rest) > 1:
        operands.append(rest.pop(0))
        lists.append(rest.pop(0))
    names: dict[Any, str] = {}

    def spelled(axes: Sequence[Any]) -> str:
        return "".join("..." if a is Ellipsis else names.setdefault(a, _LETTERS[len(names)]) for a in axes)

    ordered = sorted({a for axes in [*lists, *rest] for a in axes if a is not Ellipsis})
    for a in ordered:
        names[a] = _LETTERS[len(names)]
    text = ",".join(spelled(axes) for axes in lists)
    return (f"{text}->{spelled(rest[0])}" if rest else text), tuple(operands)


def _parse(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """Names of the axes of each operand and of the result, with Ellipsis spelled out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            "einsum, argument subscripts", expected=f"{len(ndims)} terms, one for each operand", got=repr(subscripts),
            mend="separate the terms with commas",
        )  # fmt: skip
    bad = set(text) - set(_LETTERS) - set(",.->")
    if bad or "." in text.replace("...", ""):
        raise ArgumentError(
            "einsum, argument subscripts", expected="letters, commas, '...' and '->'", got=repr(subscripts),
            mend="use letters for axes",
        )  # fmt: skip
    unused = iter([c for c in reversed(_LETTERS) if c not in text])
    extra = [n - len(t.replace("...", "")) for t, n in zip(terms, ndims)]
    width = max([e for t, e in zip(terms, extra) if "..." in t], default=0)
    names = "".join(next(unused) for _ in range(max(width, 0)))
    for i, (t, e) in enumerate(zip(terms, extra)):
        if e < 0 or (e and "..." not in t):
            raise ArgumentError(
                f"einsum, operand {i}", expected=f"rank {len(t.replace('...', ''))}, as the term {t!r} has",
                got=ndims[i], mend="name each axis, or use '...'",
            )  # fmt: skip
        terms[i] = t.replace("...", names[len(names) - e :] if e else "")
    if arrow:
        result = right.replace("...", names)
    else:
        joined = "".join(terms)
        result = names + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in names))
    unknown = [c for c in result if c not in "".join(terms)]
    if unknown or len(set(result)) != len(result):
        raise ArgumentError(
            "einsum, argument subscripts", expected="a result whose axes each occur in an operand, and once in it",
            got=repr(subscripts), mend="change what stands after '->'",
        )  # fmt: skip
    return terms, result


def _sizes(terms: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for i, (t, x) in enumerate(zip(terms, arrays)):
        for k, (c, n) in enumerate(zip(t, x.shape)):
            is_repeated = c in t[:k]  # A diagonal is taken, of which no side is stretched.
            known = x.shape[t.index(c)] if is_repeated else sizes.get(c, 1)
            if not is_repeated and type(known) is int and known == 1:
                sizes[c] = n
            elif known != n and (is_repeated or not (type(n) is int and n == 1)):
                raise ShapeError(
                    f"einsum, operand {i}", expected=f"size {known} of axis {c!r}, as before", got=f"{n} in {x.shape}",
                    mend="give operands whose axes agree",
                )  # fmt: skip
    return sizes


class _Plan:
    """A list of steps on a list of arrays: each takes operands off it and puts its result at the end."""

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
    subscripts: str, arrays: Sequence[Any], optimize: Any, precision: Any, preferred: Any, dot_general: Callable
) -> _Plan:
    terms, result = _parse(subscripts, [x.ndim for x in arrays])
    sizes = _sizes(terms, arrays)
    dtype, _ = result_dtype(arrays)
    out_dtype = dtypes.canonicalize_dtype(preferred) if preferred is not None else None
    multiply = functools.partial(dot_general, precision=precision, preferred_element_type=out_dtype)
    wide = out_dtype if out_dtype is not None and promotion.promote_types(dtype, out_dtype) == out_dtype else None
    convert = [None if x.dtype == dtype else functools.partial(cast, dtype=dtype) for x in arrays]
    steps: list = []
    terms = [_prepare_term(t, x, sizes, steps) for t, x in zip(terms, arrays)]
    for places in _path(terms, result, sizes, optimize):
        taken = [terms.pop(i) for i in places]
        kept = set(result).union(*terms)
        if len(taken) == 1:
            step, term = _single(taken[0], kept, wide)
        else:
            step, term = _pair(taken[0], taken[1], kept, result if not terms else None, multiply, wide)
        steps.append((places, step))
        terms.append(term)
    (term,) = terms
    steps.append(((0,), functools.partial(_finish, term=term, result=result, dtype=out_dtype)))
    return _Plan(convert, steps)


def _prepare_term(term: str, x: Any, sizes: dict, steps: list) -> str:
    """Drop axes of size 1 that other operands have with more, and take diagonals of axes named twice."""
    ones = tuple(k for k, (c, n) in enumerate(zip(term, x.shape)) if type(n) is int and n == 1 and sizes[c] != 1)
    rest = "".join(c for k, c in enumerate(term) if k not in ones)
    repeated = len(set(rest)) != len(rest)
    final = "".join(dict.fromkeys(rest))
    steps.append(((0,), functools.partial(_reduced_term, ones=ones, term=rest if repeated else None)))
    return final


def _reduced_term(x: Any, ones: tuple, term: str | None) -> Any:
    x = lax.squeeze(x, ones) if ones else x
    if term is None:
        return x
    from phalanx.numpy.diagonals import diagonal
    from phalanx.numpy.shapes import moveaxis

    while len(set(term)) != len(term):
        c = next(c for c in term if term.count(c) > 1)
        i = term.index(c)
        j = term.index(c, i + 1)
        x = moveaxis(diagonal(x, 0, i, j), -1, i)
        term = term[:j] + term[j + 1 :]
    return x


def _path(terms: Sequence[str], result: str, sizes: dict, optimize: Any) -> list[tuple]:
    """Which operands meet, in turn; positions in descending order, as they are taken off the list."""
    n = len(terms)
    if n == 1:
        return [(0,)]
    if n == 2:
        return [(0, 0)]
    import opt_einsum

    shapes = [tuple(sizes[c] if type(sizes[c]) is int else 8 for c in t) for t in terms]
    if optimize is False or (isinstance(optimize, tuple) and not optimize):
        path = [(0, 1)] * (n - 1)
    elif isinstance(optimize, tuple):
        path = [tuple(p) for p in optimize if not isinstance(p, str)]
    else:
        strategy = "optimal" if optimize is True else optimize
        path, _ = opt_einsum.contract_path(",".join(terms) + "->" + result, *shapes, shapes=True, optimize=strategy)
    return list(_in_pairs(path, n))


def _in_pairs(path: Sequence[tuple], n: int) -> Any:
    """Contractions of more than two operands as pairs, each popped one after the other."""
    for step in path:
        places = sorted(step)
        while len(places) > 1:
            i, j = places[0], places[1]
            yield (i, j - 1)
            # The result goes to the end; the places behind the two move down.
            places = [p - 2 for p in places[2:]] + [n - 2]
            n -= 1
        if len(step) == 1:
            yield (places[0],)


def _single(term: str, kept: set, wide: Any) -> tuple[Callable, str]:
    """Sum over the axes that nothing else has, in a dtype that is asked for and holds more."""
    step = functools.partial(_sum_out, term=term, kept="".join(sorted(kept)), wide=wide)
    return step, "".join(c for c in term if c in kept)


def _sum_out(x: Any, term: str, kept: str, wide: Any) -> Any:
    axes = tuple(i for i, c in enumerate(term) if c not in kept)
    if not axes:
        return x
    from phalanx.numpy.reductions import sum

    return sum(x, axis=axes, dtype=wide, promote_integers=False)


def _pair(a: str, b: str, kept: set, result: str | None, multiply: Callable, wide: Any) -> tuple:
    """The product of two operands, summed over the axes that are needed no more."""
    alone_a = "".join(c for c in a if c in b or c in kept)
    alone_b = "".join(c for c in b if c in a or c in kept)
    batch = [c for c in alone_a if c in alone_b and c in kept]
    contracted = [c for c in alone_a if c in alone_b and c not in kept]
    free_a = [c for c in alone_a if c not in alone_b]
    free_b = [c for c in alone_b if c not in alone_a]
    if result is not None:
        batch.sort(key=result.index)
    first = "".join([*batch, *free_a, *free_b])
    second = "".join([*batch, *free_b, *free_a])
    swap = result is not None and first != result and second == result
    out = second if swap else first
    left, right = (alone_b, alone_a) if swap else (alone_a, alone_b)
    numbers = (
        (tuple(left.index(c) for c in contracted), tuple(right.index(c) for c in contracted)),
        (tuple(left.index(c) for c in batch), tuple(right.index(c) for c in batch)),
    )
    step = functools.partial(
        _multiply, terms=(a, b), kept=(alone_a, alone_b), swap=swap, numbers=numbers, multiply=multiply, wide=wide
    )
    return step, out


def _multiply(
    x: Any, y: Any, *, terms: tuple, kept: tuple, swap: bool, numbers: tuple, multiply: Callable, wide: Any
) -> Any:
    x, y = (v if t == k else _sum_out(v, t, k, wide) for v, t, k in zip((x, y), terms, kept, strict=True))
    if x.dtype != y.dtype:  # one is a sum or a product already, in the dtype that is asked for
        both = promotion.promote_types(x.dtype, y.dtype)
        x, y = cast(x, both), cast(y, both)
    x, y = (y, x) if swap else (x, y)
    return multiply(x, y, numbers)


def _finish(x: Any, term: str, result: str, dtype: Any) -> Any:
    """Bring the axes into the wanted order; axes of size 1 that were dropped come back."""
    if term != result:
        order = tuple(term.index(c) for c in result if c in term)
        x = lax.transpose(x, order) if order != tuple(range(len(order))) else x
        missing = tuple(i for i, c in enumerate(result) if c not in term)
        x = lax.expand_dims(x, missing) if missing else x
    if dtype is not None and x.dtype != dtype:
        x = cast(x, dtype)
    return as_array(x)
