"""The checkers: what must hold for every case of every primitive. Each raises AssertionError where its law is broken."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from phalanx.test_util import check_grads
from tests.lax.cases import Case

import phalanx
from phalanx.core.aval import get_aval
from phalanx.core.primitive import REQUIRED, ShardingRule, Undefined, infer_result

COMBINE = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply, "and": np.bitwise_and,
    "or": np.bitwise_or,
}  # fmt: skip


def apply(case: Case, *args: Any) -> list:
    """The primitive on these arguments, as a list of results."""
    out = case.primitive(*args, **case.params)
    return list(out) if case.primitive.multiple else [out]


def close(what: str, got: Any, want: Any, rtol: float | None = None) -> None:
    """Refuse values that differ by more than rounding."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    if got.dtype.kind in "biu":
        assert np.array_equal(got, want), f"{what}: {got}, not {want}"
        return
    if rtol is None:
        rtol = 1e-12 if got.dtype.itemsize >= 8 and got.dtype.name != "complex64" else 1e-5
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    got, want = got.astype(wide), want.astype(wide)
    assert np.allclose(got, want, rtol=rtol, atol=rtol, equal_nan=True), f"{what}: {got}, not {want}"


def check_rules(primitive: Any) -> None:
    """Every rule is written, derived, or waived with a reason that says something."""
    for rule in REQUIRED:
        found = getattr(type(primitive), rule, None)
        if rule == "batch" and found is None:
            found = getattr(type(primitive), "batch_axis", None)
        assert found is not None, f"{primitive.name} has no {rule} rule"
        if isinstance(found, Undefined):
            assert len(found.reason) > 10, f"{primitive.name}: the reason of the waived rule {rule} says nothing"


def check_result(case: Case) -> None:
    """The type rule tells shapes, dtypes and weakness of what really comes out."""
    avals = infer_result(case.primitive, tuple(get_aval(a) for a in case.args), case.params)
    avals = list(avals) if case.primitive.multiple else [avals]
    out = apply(case, *case.args)
    assert len(out) == len(avals), f"{len(out)} results, not {len(avals)}"
    for y, aval in zip(out, avals, strict=True):
        assert get_aval(y) is aval, f"{get_aval(y).str_short()}, not {aval.str_short()}"
        value = np.asarray(y)
        assert (value.shape, value.dtype) == (aval.shape, aval.dtype), (
            f"{value.dtype}{value.shape}, not {aval.str_short()}"
        )


def check_oracle(case: Case) -> None:
    """The value is that of NumPy or SciPy."""
    want = case.oracle(*case.args)
    want = list(want) if case.primitive.multiple else [want]
    for i, (y, w) in enumerate(zip(apply(case, *case.args), want, strict=True)):
        close(f"result {i} beside its oracle", y, w, case.rtol)


def check_compiled(case: Case) -> None:
    """A compiled program gives what the eager operation gives."""
    eager = apply(case, *case.args)
    compiled = phalanx.jit(functools.partial(apply, case))(*case.args)
    for i, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        close(f"compiled result {i} beside the eager one", b, a)


def check_derivatives(case: Case) -> None:
    """Derivatives are those of numerical differences, and reverse mode is the adjoint of forward mode."""
    varied = [i for i, a in enumerate(case.args) if a.dtype.kind in "fc" and (case.wrt is None or i in case.wrt)]

    def fun(*xs: Any) -> list:
        args = list(case.args)
        for i, x in zip(varied, xs, strict=True):
            args[i] = x
        return apply(case, *args)

    check_grads(fun, [case.args[i] for i in varied], case.order, atol=2e-5, rtol=2e-5)


def check_batch(case: Case) -> None:
    """Mapping over every combination of dimensions is the loop over the examples."""
    # All dimensions for one operand in double precision; else the first and the last.
    few = len(case.args) == 1 and case.args[0].dtype == np.float64
    choices = [[None, *(range(a.ndim + 1) if few else sorted({0, a.ndim}))] for a in case.args]
    for dims in itertools.product(*choices):
        if any(d is not None for d in dims):
            _check_batched(case, dims)


def _check_batched(case: Case, dims: Sequence) -> None:
    examples = [[_varied(a, e) for a in case.args] for e in range(2)]
    args = [
        a if d is None else np.stack([examples[e][i] for e in range(2)], d)
        for i, (a, d) in enumerate(zip(case.args, dims, strict=True))
    ]
    got = phalanx.vmap(functools.partial(apply, case), in_axes=tuple(dims), out_axes=0)(*args)
    for e in range(2):
        one = [a if d is None else x for a, x, d in zip(case.args, examples[e], dims, strict=True)]
        for i, (y, want) in enumerate(zip(got, apply(case, *one), strict=True)):
            close(f"mapped over {dims}: example {e}, result {i}", np.asarray(y)[e], want, 1e-9)


def _varied(x: np.ndarray, example: int) -> np.ndarray:
    """Another array of the same kind, inside the domain of the first."""
    if not example:
        return x
    return np.ascontiguousarray(x[::-1]) if x.ndim else x


def check_roles(case: Case) -> None:
    """Split the operands along a role, run on the pieces, join the results as the roles say: the whole comes out."""
    avals = [get_aval(a) for a in case.args]
    roles = case.primitive.sharding_rule(*avals, **case.params)
    whole = apply(case, *case.args)
    assert len(roles.operands) == len(avals), "roles: one list of names for each operand"
    assert len(roles.results) == len(whole), "roles: one list of names for each result"
    sizes: dict[Any, int] = {}
    for names, value in zip((*roles.operands, *roles.results), (*case.args, *whole), strict=True):
        assert len(names) == value.ndim, f"roles: {names} for rank {value.ndim}"
        for name, n in zip(names, value.shape, strict=True):
            if name not in roles.whole:
                assert sizes.setdefault(name, n) == n, f"roles: {name!r} has sizes {sizes[name]} and {n}"
    in_operands = {name for names in roles.operands for name in names}
    for name in in_operands - roles.whole:
        in_results = any(name in names for names in roles.results)
        assert in_results or name in roles.reduced, f"roles: {name!r} is lost, and neither reduced nor whole"
        if sizes[name] >= 2:
            _check_split(case, roles, name, sizes[name], whole)


def check_program_sharding_rule(fun: Any, args: Sequence[np.ndarray]) -> Any:
    """The same for a primitive that holds a program: `fun` is one call of it, and is traced anew for the pieces.

    Returns:
      The roles.
    """
    program = phalanx.make_jaxpr(fun)(*args)
    eqn = program.eqns[-1]
    assert eqn.primitive.call_like and list(eqn.outvars) == list(program.outvars), "one call and nothing after it"
    roles = eqn.primitive.sharding_rule(*[v.aval for v in eqn.invars], **eqn.params)
    whole = [np.asarray(y) for y in phalanx.tree.leaves(fun(*args))]
    names = [roles.operands[eqn.invars.index(v)] if v in eqn.invars else () for v in program.invars]
    # What is no argument, a scalar or a constant, is not split.
    fixed = {n for v, ns in zip(eqn.invars, roles.operands, strict=True) if v not in program.invars for n in ns}
    sizes = {n: size for ns, a in zip(names, args, strict=True) for n, size in zip(ns, np.shape(a), strict=False)}
    inner = Case(eqn.primitive, tuple(args), {}, name=eqn.primitive.name)
    local = ShardingRule(names, roles.results, roles.reduced, roles.whole)
    for name in sizes.keys() - roles.whole - fixed:
        if sizes[name] >= 2:
            _check_split(inner, local, name, sizes[name], whole, lambda *xs: phalanx.tree.leaves(fun(*xs)))
    return roles


def _check_split(case: Case, roles: Any, name: Any, size: int, whole: list, fun: Any = None) -> None:
    pieces = []
    for start, stop in ((0, size // 2), (size // 2, size)):
        args = [
            a[tuple(slice(start, stop) if n == name else slice(None) for n in names)] if name in names else a
            for a, names in zip(case.args, roles.operands, strict=True)
        ]
        if fun is None:
            params = localized(case.params, roles, name, stop - start)
            out = case.primitive(*args, **params)
            pieces.append([np.asarray(y) for y in (out if case.primitive.multiple else [out])])
        else:
            pieces.append([np.asarray(y) for y in fun(*args)])
    for i, names in enumerate(roles.results):
        if name in names:
            joined = np.concatenate([p[i] for p in pieces], names.index(name))
        elif name in roles.reduced:
            joined = COMBINE[roles.reduced[name]](pieces[0][i], pieces[1][i])
        else:  # another result has it, and this one does not depend on that operand
            close(f"split along {name!r}: result {i} of both pieces", pieces[0][i], pieces[1][i], 1e-9)
            joined = pieces[0][i]
        close(f"split along {name!r}: result {i}", joined, whole[i], 1e-9)


def localized(params: dict, roles: Any, name: Any, size: int) -> dict:
    """Parameters that hold sizes, for a piece."""
    params = dict(params)
    if "shape" in params:
        names = roles.results[0]
        params["shape"] = tuple(size if n == name else d for n, d in zip(names, params["shape"], strict=True))
    if "stops" in params:
        names = roles.operands[0]
        params["stops"] = tuple(size if n == name else d for n, d in zip(names, params["stops"], strict=True))
    for sizes in ("slice_sizes", "sizes"):  # of slices that span the dimension
        if sizes in params and "dim" not in params:  # those of `split` are pieces of one dimension
            names = roles.operands[0]
            params[sizes] = tuple(size if n == name and s > 1 else s for n, s in zip(names, params[sizes], strict=True))
    return params
