"""Jaxprs print as the field prints them: short ones on one line, shared ones once, with their name."""

import functools
import textwrap

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax

X = np.ones(1, np.float32)


def assert_prints(fun, expected, *args, **options):
    text = phalanx.make_jaxpr(fun)(*args).pretty_print(**options)
    assert text == textwrap.dedent(expected).strip()


def test_short_jaxprs_print_on_one_line_without_weak_types():
    assert_prints(
        lambda x: jnp.sin(x) * 2, "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }", 1.0
    )
    assert_prints(lambda x, y: (x, y), "{ lambda ; a:f32[] b:i32[]. let  in (a, b) }", 1.0, 2)


def test_variables_of_a_compiled_function_are_named_like_its_operands():
    assert_prints(
        lambda x: phalanx.jit(lambda x, y, z: x * y * z)(x, x, x),
        """
        { lambda ; a:f32[1]. let
            b:f32[1] = jit[
              name=<lambda>
              jaxpr={ lambda ; a:f32[1] c:f32[1] d:f32[1]. let
                  e:f32[1] = mul a c
                  b:f32[1] = mul e d
                in (b,) }
            ] a a a
          in (b,) }
        """,
        X,
    )


def test_a_jaxpr_that_is_used_twice_prints_once():
    @phalanx.jit
    def inner(x):
        return x**2

    @phalanx.jit
    def outer(x):
        return inner(x) + inner(x)

    assert_prints(
        lambda x: outer(x) + outer(x),
        """
        let outer = { lambda ; a:f32[1]. let
            b:f32[1] = jit[name=inner jaxpr=inner] a
            c:f32[1] = jit[name=inner jaxpr=inner] a
            d:f32[1] = add b c
          in (d,) } in
        let inner = { lambda ; e:f32[1]. let f:f32[1] = integer_pow[y=2] e in (f,) } in
        { lambda ; g:f32[1]. let
            h:f32[1] = jit[name=outer jaxpr=outer] g
            i:f32[1] = jit[name=outer jaxpr=outer] g
            j:f32[1] = add h i
          in (j,) }
        """,
        X,
    )


def test_long_jaxprs_print_before_their_use_and_names_stay_unique():
    def repeat(fun, x):
        return functools.reduce(lambda x, _: fun(x), range(11), x)

    one, two = (phalanx.jit(functools.partial(repeat, fun)) for fun in (jnp.sin, jnp.cos))
    lines = str(phalanx.make_jaxpr(lambda x: two(one(x)))(X)).splitlines()
    assert lines[0] == "let repeat = { lambda ; a:f32[1]. let"
    assert lines[13] == "let repeat1 = { lambda ; m:f32[1]. let"
    assert lines[-4:] == [
        "{ lambda ; y:f32[1]. let",
        "    z:f32[1] = jit[name=repeat jaxpr=repeat] y",
        "    aa:f32[1] = jit[name=repeat jaxpr=repeat1] z",
        "  in (aa,) }",
    ]


def test_a_numbered_name_differs_from_names_that_end_in_a_number():
    def call_named(name, fun):
        fun = functools.partial(fun)
        fun.__name__ = name
        fun = phalanx.jit(fun)
        return lambda x: fun(fun(x))

    f, f1, g, h = map(call_named, ["f", "f1", "f", "f"], [jnp.sin, jnp.cos, jnp.tan, jnp.exp])
    lines = str(phalanx.make_jaxpr(lambda x: h(g(f1(f(x)))))(X)).splitlines()
    assert [line.split(" = ")[0] for line in lines if line.startswith("let ")] == [
        "let f",
        "let f1",
        "let f2",
        "let f3",
    ]


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_calls_with_custom_rules_print_the_names_of_the_rules(kind):
    f = phalanx.custom_jvp(lambda x: x + 1) if kind == "jvp" else phalanx.custom_vjp(lambda x: x + 1)
    f.defjvp(jnp.sin, symbolic_zeros=True) if kind == "jvp" else f.defvjp(jnp.sin, jnp.cos)
    body = "call_jaxpr={ lambda ; c:f32[1]. let d:f32[1] = add c 1.0:f32[] in (d,) }"
    params = [body, "jvp=sin", "symbolic_zeros=True"] if kind == "jvp" else ["bwd=cos", body, "fwd=sin"]
    params += [] if kind == "jvp" else ["symbolic_zeros=False"]
    lines = [f"    b:f32[1] = custom_{kind}_call[", *(f"      {p}" for p in ("name=<lambda>", *params)), "    ] a"]
    assert_prints(f, "\n".join(["{ lambda ; a:f32[1]. let", *lines, "  in (b,) }"]), X)


def test_many_variables_continue_on_new_lines():
    text = str(phalanx.make_jaxpr(lambda *xs: sum(xs))(*np.arange(9.0, dtype=np.float32)))
    assert text.startswith(
        "{ lambda ; a:f32[] b:f32[] c:f32[] d:f32[] e:f32[] f:f32[] g:f32[] h:f32[] i:f32[]. let\n"
        "    j:f32[] = add 0.0:f32[] a\n"
    )
    text = str(phalanx.make_jaxpr(lambda *xs: xs)(*np.arange(40.0, dtype=np.float32)))
    assert max(map(len, text.splitlines())) < 90 and len(text.splitlines()) == 7


def test_comments_end_their_lines():
    def f(x):
        with phalanx.named_scope("layer"):
            return jnp.sin(x) + 1

    text = phalanx.make_jaxpr(f)(X).pretty_print(source_info=True, name_stack=True)
    assert [line.rpartition("  # ")[2] for line in text.splitlines()[1:3]] == ["[layer]", "[layer]"]
    assert all("test_jaxpr_printer.py:" in line for line in text.splitlines()[1:3])


def test_types_print_as_in_the_field():
    aval = phalanx.typeof(jnp.ones((2, 3)))
    assert (str(aval), repr(aval), aval.str_short()) == ("float32[2,3]", "ShapedArray(float32[2,3])", "f32[2,3]")
    assert (str(phalanx.typeof(1)), repr(phalanx.typeof(1))) == ("~int32[]", "ShapedArray(int32[], weak_type=True)")
    varying = aval.update(varying=frozenset("yx"))
    assert (str(varying), varying.str_short()) == ("float32[2,3]{V:(x,y)}", "f32[2,3]{V:(x,y)}")


def test_products_print_the_parameters_that_they_have():
    text = str(phalanx.make_jaxpr(jnp.dot)(X, X))
    assert "dot_general[dimension_numbers=(([0], [0]), ([], []))] a b" in text


def test_constants_of_another_dtype_have_no_equation():
    constants = [
        (lambda: jnp.asarray(3.0), "3.0:f32[]"),
        (lambda: lax.convert_element_type(lax.convert_element_type(2.7, "int32"), "float16"), "2.0:f16[]"),
        (lambda: jnp.int8(-3), "-3:i8[]"),
        (lambda: jnp.zeros((), bool), "False:bool[]"),
        (lambda: lax.broadcast(np.float32(3), ()), "3.0:f32[]"),
    ]
    for fun, literal in constants:
        assert_prints(fun, f"{{ lambda ; . let  in ({literal},) }}")
        assert phalanx.jit(fun)() == fun() and phalanx.jit(fun)().aval is fun().aval
    assert_prints(lambda: lax.convert_element_type(X, X.dtype), "{ lambda a:f32[1]; . let  in (a,) }")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e9, -3e9, 300.0, -2.7, 2.7])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_a_folded_constant_is_the_one_that_the_program_computes(value, dtype):
    convert = lambda x: lax.convert_element_type_p(x, dtype=np.dtype(dtype), weak_type=False)
    assert phalanx.jit(lambda: convert(value))() == phalanx.jit(convert)(value)


def test_checkpoint_prints_under_its_name_in_jax():
    text = str(phalanx.make_jaxpr(phalanx.grad(phalanx.grad(phalanx.remat(lambda x: jnp.sin(jnp.sin(x))))))(0.3))
    assert "remat2[" in text and "policy=None" in text
