"""For every case and each dimension role: operands split along it over an Explicit axis give the whole.

The type of the result tells how it lies, and it does lie so.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.lax import laws
from tests.lax.cases import CASES

import phalanx
from phalanx import lax
from phalanx.core.aval import ShapedArray, get_aval
from phalanx.core.primitive import Undefined, infer_result
from phalanx.sharding import AbstractMesh, AxisType, NamedSharding, P
from phalanx.sharding.named_sharding import shard_dims

X = AxisType.Explicit


pytestmark = pytest.mark.usefixtures("double_precision")


def splits(case):
    """For each role that may be split: its name, into how many parts, and the types of the operands split so."""
    if isinstance(type(case.primitive).sharding_rule, Undefined) or case.primitive.typed_sharding_rule:
        return
    avals = [get_aval(a) for a in case.args]
    roles = case.primitive.sharding_rule(*avals, **case.params)
    sizes = {}
    for names, aval in zip(roles.operands, avals, strict=True):
        sizes |= {n: size for n, size in zip(names, aval.shape, strict=True) if n not in roles.whole}
    for name, size in sizes.items():
        parts = next((n for n in range(2, 9) if size % n == 0), None)
        if parts is None or not size or (sum(name in names for names in roles.operands) > 1 and name in roles.reduced):
            continue
        mesh = AbstractMesh((parts,), ("x",), X)
        typed = [
            shard_dims(a, mesh, [("x",) if n == name else () for n in names])
            for a, names in zip(avals, roles.operands, strict=True)
        ]
        yield name, parts, roles, typed


def check_type(case) -> None:
    """Results are split where the role stands in them, and over the mesh of the operands."""
    for name, _, roles, typed in splits(case):
        plain = infer_result(case.primitive, tuple([a.drop_sharding() for a in typed]), case.params)
        found = infer_result(case.primitive, tuple(typed), case.params)
        if not case.primitive.multiple:
            plain, found = [plain], [found]
        for y, whole, names in zip(found, plain, roles.results, strict=True):
            assert y.drop_sharding() is whole
            assert y.sharding.mesh is typed[0].sharding.mesh
            assert y.sharding.spec.dims == tuple([("x",) if n == name else () for n in names])


def check_value(case) -> None:
    """The compiled operation gives the value of the whole one, placed as its type says."""
    whole = laws.apply(case, *case.args)
    for name, parts, _, typed in splits(case):
        mesh = typed[0].sharding.mesh.on(phalanx.devices()[:parts])
        args = [
            phalanx.device_put(x, NamedSharding(mesh, a.sharding.spec)) for x, a in zip(case.args, typed, strict=True)
        ]
        assert [get_aval(x) for x in args] == typed
        want = phalanx.make_jaxpr(functools.partial(laws.apply, case))(*args).out_avals
        got = phalanx.jit(functools.partial(laws.apply, case))(*args)
        for y, aval, w in zip(got, want, whole, strict=True):
            assert get_aval(y) is aval
            assert isinstance(y.sharding, NamedSharding) and y.sharding.mesh is mesh
            assert {s.data.shape for s in y.addressable_shards} == {y.sharding.shard_shape(y.shape)}
            laws.close(f"split along {name!r}", y, w, 1e-9)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in CASES if c.name != "low"])
def test_the_type_of_a_result_follows_the_sharded_factor(case):
    check_type(case)


# XLA for CPU has no all-reduce of integers by their bits.
UNREDUCIBLE = {("reduce_and", "int32"), ("reduce_or", "int32")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.id)
        for c in CASES
        if c.name != "low" and (c.primitive.name, c.args and c.args[0].dtype.name) not in UNREDUCIBLE
    ],
)
def test_results_have_the_sharding_of_their_type(case):
    check_value(case)


def test_the_type_check_fails_for_a_wrong_rule(monkeypatch):
    case = next(c for c in CASES if c.primitive.name == "neg")
    monkeypatch.setattr(
        "phalanx.sharding.NamedSharding._infer_result_types",
        staticmethod(lambda p, avals, params: avals[0].update(sharding=None)),
    )
    monkeypatch.setattr("phalanx.core.primitive._results", {})
    with pytest.raises((AssertionError, AttributeError)):
        check_type(case)


def test_an_axis_of_one_device_stays_in_the_type():
    aval = shard_dims(ShapedArray((3, 1), np.dtype("float32")), AbstractMesh((1,), ("x",), X), [(), ("x",)])
    assert aval.sharding.mesh.num_parts(("x",)) == 1
    got = infer_result(phalanx.lax.transpose_p, (aval,), {"permutation": (1, 0)})
    assert got.str_short() == "f32[1@x,3]"
    assert got.sharding.spec == P("x", None)


@pytest.mark.parametrize("options", [{}, {"window_strides": (2,)}, {"padding": "VALID"}], ids=str)
def test_windows_keep_the_sharding_of_the_dimension_they_slide_over(options):
    options = {"window_strides": (1,), "padding": "SAME", "dimension_numbers": ("NWC", "WIO", "NWC")} | options
    x = np.random.default_rng(0).normal(size=(2, 16, 4)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(3, 4, 6)).astype(np.float32)

    def layer(x, w):
        y = lax.conv_general_dilated(x, w, **options)
        y = lax.reduce_window(y, -np.inf, lax.max, (1, 2, 1), (1, 2, 1), "SAME")
        return lax.reduce_window(y, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME")

    derivative = phalanx.jit(phalanx.grad(lambda x, w: (layer(x, w) ** 2).sum(), (0, 1)))
    expected, expected_bars = phalanx.jit(layer)(x, w), derivative(x, w)
    with phalanx.set_mesh(phalanx.make_mesh((2,), ("x",))):
        split = phalanx.device_put(x, P(None, "x"))
        got, bars = phalanx.jit(layer)(split, w), derivative(split, w)
    assert got.sharding.spec == P(None, "x", None) and bars[0].sharding.spec == P(None, "x", None)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(bars, expected_bars, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
