"""The table of rules: every primitive has all of them, or says why not; and each has a case that the laws walk."""

from __future__ import annotations

import importlib

import pytest
from tests.lax import laws
from tests.lax.cases import CASES

from phalanx import lax
from phalanx.core.primitive import registry

# Primitives whose laws are checked elsewhere, each with the reason and the place.
ELSEWHERE = {
    "dce_sink": "has no result: tests/lax/test_optimization_barrier.py",
    "dimension_size": "takes no operand: tests/export/test_symbolic_operations.py",
    "reduce": "holds a program: tests/lax/test_reductions.py",
}
FAMILIES = ("elementwise", "reductions", "shape", "indexing.static_slice", "optimization_barrier")


@pytest.mark.parametrize("name", sorted(registry))
def test_every_rule_is_written_or_waived_with_a_reason(name):
    laws.check_rules(registry[name])


def test_every_primitive_has_a_case():
    ours = {n for n, p in registry.items() if type(p).__module__.removeprefix("phalanx.lax.").startswith(FAMILIES)}
    assert lax.sin_p.name in ours
    assert ours - {c.primitive.name for c in CASES} - set(ELSEWHERE) == set()


def test_a_hole_is_found():
    from phalanx.core.primitive import ZERO, Primitive

    class Hollow(Primitive):
        name = "hollow"
        jvp = ZERO

    with pytest.raises(
        TypeError, match=r"primitive hollow: rules \['abstract_eval', 'sharding_rule', 'lower', 'batch'\]"
    ):
        Hollow()
    with pytest.raises(AssertionError, match="hollow has no abstract_eval rule"):
        laws.check_rules(object.__new__(Hollow))


def test_primitives_name_the_module_that_declares_them():
    """An error about a missing rule refers to it."""
    modules = {p.name: type(p).__module__ for p in (lax.sin_p, lax.igamma_p, lax.reduce_max_p, lax.argmax_p)}
    for name, module in modules.items():
        assert any(
            p.name == name for p in vars(importlib.import_module(module)).values() if hasattr(p, "abstract_eval")
        )
    assert modules["sin"] == "phalanx.lax.elementwise.elementwise_primitives" != modules["igamma"]
