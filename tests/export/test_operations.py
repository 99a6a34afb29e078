"""The table of operations under symbolic shapes: each primitive is exported with a symbolic batch.

Every line of the tables of cases is mapped over a new leading dimension of symbolic size, exported, and called with
sizes that nothing was traced for; the results are those of `vmap` itself.
"""

import numpy as np
import pytest
from tests.lax import cases, structured_cases

import phalanx
from phalanx import export, lax
from phalanx.export import symbolic_shape

pytestmark = pytest.mark.usefixtures("double_precision")


def table():
    """One case of each primitive and of each structured operation."""
    seen, found = set(), []
    for case in cases.CASES:
        if case.args and case.primitive.name not in seen and all(a.size for a in case.args):
            seen.add(case.primitive.name)
            fun = lambda *xs, c=case: c.primitive(*xs, **c.params)
            found.append(pytest.param(case.primitive.name, fun, case.args, id=case.primitive.name))
    for case in structured_cases.CASES:
        fun = lambda *xs, c=case: c.fun(lax, *xs)
        found.append(pytest.param(case.operation, fun, case.args, id=case.name.replace(" ", "-")))
    return found


def batch(x, size):
    return (
        np.stack([x] * size)
        if x.dtype.kind in "biu"
        else np.stack([x * (1 + i / 8) for i in range(size)]).astype(x.dtype)
    )


FAMILIES = {case.primitive.name: cases.family_of(case) for case in cases.CASES}


@pytest.mark.one_is_quick(group=lambda operation, **_: FAMILIES.get(operation, operation))
@pytest.mark.parametrize(("operation", "fun", "args"), table())
def test_a_symbolic_batch(operation, fun, args):
    (b,) = symbolic_shape("b")
    specs = [phalanx.ShapeDtypeStruct((b, *x.shape), x.dtype) for x in args]
    mapped = phalanx.jit(phalanx.vmap(fun))
    found = export.export(mapped)(*specs)
    given = [batch(x, 3) for x in args]
    for got, want in zip(phalanx.tree.leaves(found.call(*given)), phalanx.tree.leaves(mapped(*given)), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(got, complex), np.asarray(want, complex), rtol=1e-6, atol=1e-8)


def test_shape_as_value_of_symbolic_dimensions():
    sizes = phalanx.jit(lambda x: phalanx.lax.shape_as_value(x.shape))
    spec = phalanx.ShapeDtypeStruct((*symbolic_shape("b, 2*b"), 3), "float32")
    out = export.export(sizes)(spec).call(np.zeros((2, 4, 3), np.float32))
    assert out.tolist() == [2, 4, 3] and out.dtype == "int32"
