"""Options that give positions of arguments take integers of any type, one or several, and say so of all else."""

import numpy as np
import pytest

import phalanx
from phalanx import nnx
from phalanx.core.error_classes import ArgumentTypeError

OPTIONS = {
    "argnums": lambda n: phalanx.grad(lambda x, n: x * n, argnums=n),
    "jit, static": lambda n: phalanx.jit(lambda x, n: x * n, static_argnums=n),
    "make_jaxpr": lambda n: phalanx.make_jaxpr(lambda x, n: x * n, static_argnums=n),
    "checkpoint": lambda n: phalanx.checkpoint(lambda x, n: x * n, static_argnums=n),
    "nnx.remat": lambda n: nnx.remat(lambda x, n: x * n, static_argnums=n),
    "nnx.grad": lambda n: nnx.grad(lambda x, n: x * n, argnums=n),
    "nnx.make_jaxpr": lambda n: nnx.make_jaxpr(lambda x, n: x * n, static_argnums=n),
}
ONE = [np.int64(1), np.array(1)]
SEVERAL = [[np.int32(1)], np.array([1]), frozenset([1])]


@pytest.mark.parametrize("name", OPTIONS)
def test_integers_of_any_type_are_positions(name):
    for like, kinds in ((1, ONE), ((1,), SEVERAL)):
        want = str(OPTIONS[name](like)(2.0, 3.0))
        assert [str(OPTIONS[name](n)(2.0, 3.0)) for n in kinds] == [want] * len(kinds)


@pytest.mark.parametrize("n", ONE + SEVERAL, ids=repr)
def test_functions_with_rules_and_pmap_take_them(n):
    f = phalanx.custom_jvp(lambda x, n: x * n, nondiff_argnums=n)
    f.defjvp(lambda n, p, t: (p[0] * n, 5 * t[0]))
    assert float(phalanx.grad(f)(2.0, 3.0)) == 5.0
    assert phalanx.pmap(lambda x, n: x * n, static_broadcasted_argnums=n)(np.ones(2), 3).tolist() == [3, 3]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("given", [1.0, "x"])
def test_all_else_is_refused(name, given):
    with pytest.raises(ArgumentTypeError) as e:
        OPTIONS[name](given)(2.0, 3.0)
    where, said = str(e.value).split(": ", 1)
    assert where.endswith("argnums")
    assert said == f"expected an int, or a sequence of them, got {given!r}.\n  Fix: give positions, counted from 0."
