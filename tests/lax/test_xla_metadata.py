"""XLA metadata on calls, blocks and values: the text of programs, derivatives, and refusals."""

import re

import pytest
from phalanx.experimental.xla_metadata import (
    fuse_limit,
    must_fuse_call,
    set_xla_metadata,
    xla_metadata_call,
    xla_metadata_call2,
)

import phalanx
import phalanx.numpy as jnp


def tagged(f, *args):
    """The operations of the program of `f` that carry metadata, with it."""
    text = phalanx.jit(f).lower(*args).as_text("hlo")
    found = re.findall(r"= .*?\b([a-z][a-z-]+)\(.*frontend_attributes=\{(.*?)\}", text)
    return [(op, attributes) for op, attributes in found if op != "get-tuple-element"]


def test_a_call_carries_metadata():
    f = xla_metadata_call(lambda x, *, y: jnp.sin(x) * y, tag="wave", layer=3, last=True)
    assert tagged(lambda x: f(x, y=2.0) + 1, 1.0) == [("call", 'last="true",layer="3",tag="wave"')]
    assert float(f(0.5, y=2.0)) == pytest.approx(float(jnp.sin(0.5) * 2))


@pytest.mark.parametrize(
    "ad_metadata, expected",
    [("same", ['group="a"'] * 2), ("drop", ['group="a"']), ({"group": "b"}, ['group="a"', 'group="b"'])],
)
def test_metadata_of_derivatives(ad_metadata, expected):
    f = xla_metadata_call2({"group": "a"}, ad_metadata=ad_metadata)(jnp.sin)
    found = tagged(phalanx.value_and_grad(f), 1.0)
    assert [attributes for _, attributes in found] == expected
    assert float(phalanx.grad(f)(1.0)) == pytest.approx(float(jnp.cos(1.0)))


def test_a_batched_call_carries_metadata():
    f = phalanx.vmap(must_fuse_call("1")(lambda x: (x * x).sum()))
    assert tagged(f, jnp.ones((2, 3))) == [("call", 'MUST_FUSE="1"')]
    assert f(jnp.ones((2, 3))).tolist() == [3.0, 3.0]


def test_operations_of_a_block_carry_metadata():
    def f(x):
        with set_xla_metadata(a="outer", b="outer"):
            y = jnp.sin(x)
            with set_xla_metadata(b="inner"), phalanx.named_scope("scope"):
                y = jnp.cos(y)
        with fuse_limit():
            y = jnp.exp(y)
        return jnp.tanh(y)

    expected = [
        ("sine", 'a="outer",b="outer"'),
        ("cosine", 'a="outer",b="inner"'),
        ("exponential", 'FUSE_LIMIT="true"'),
    ]
    assert tagged(f, 1.0) == expected


def test_a_block_around_a_compiled_function_compiles_it_again():
    f = phalanx.jit(jnp.sin)
    f(1.0)
    with set_xla_metadata(a="1"):
        assert 'a="1"' in f.lower(1.0).as_text("hlo")
    assert 'a="1"' not in f.lower(1.0).as_text("hlo")


def test_a_function_decorated_with_metadata():
    f = set_xla_metadata(tag="all")(lambda x: jnp.sin(x))
    assert tagged(f, 1.0) == [("sine", 'tag="all"')]


def test_the_operation_that_computes_a_value_carries_metadata():
    def f(x):
        return set_xla_metadata({"y": jnp.sin(x), "x": x}, tag="here")

    assert tagged(f, 1.0) == [("sine", 'tag="here"')]
    assert float(phalanx.grad(lambda x: f(x)["y"])(1.0)) == pytest.approx(float(jnp.cos(1.0)))


def test_refusals():
    with pytest.raises(TypeError) as error:
        xla_metadata_call(jnp.sin, tag=[1])
    assert str(error.value) == (
        "xla_metadata_call, tag: expected a string, a bool, an int or a float, got [1].\n  Fix: pass tag=str(value)."
    )
    with pytest.raises(TypeError, match="argument ad_metadata: expected a mapping"):
        xla_metadata_call2({"a": "b"}, ad_metadata="other")
    with pytest.raises(TypeError, match="xla_metadata_call, argument f"):
        xla_metadata_call(3)
