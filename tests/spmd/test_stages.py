"""The stages of a compiled function, and what they show."""

import re

import numpy as np
import pytest
from phalanx.experimental.layout import Format, Layout
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, TraceError, TreeError
from phalanx.sharding import NamedSharding, P

X = np.ones((4, 4), np.float32)


def f(x, *, scale):
    return {"y": jnp.sin(x["a"]) * scale, "n": x["b"].sum()}


ARGS = ({"a": X, "b": X[0]},)


def test_stages_show_types_and_trees():
    traced = phalanx.jit(f, donate_argnums=0).trace(*ARGS, scale=2.0)
    assert [v.aval.str_short() for v in traced.jaxpr.invars] == ["f32[4,4]", "f32[4]", "~f32[]"]
    assert traced.out_info["y"].shape == (4, 4) and traced.out_info["n"].dtype == np.float32
    assert traced.args_info[0][0]["a"].donated and not traced.args_info[1]["scale"].donated
    assert traced.donate_argnums == (0, 1)
    lowered = traced.lower()
    assert "stablehlo.sine" in lowered.as_text() and "HloModule" in lowered.as_text("hlo")
    assert lowered.in_tree == traced.in_tree and lowered.out_tree == traced.out_tree
    with pytest.warns(UserWarning, match=r"no result has .*: x\['b'\]: f32\[4\]\."):
        compiled = lowered.compile()
    assert compiled.memory_analysis().argument_size_in_bytes > 0
    assert compiled.cost_analysis()["flops"] > 0
    assert "fusion" in compiled.as_text() or "ENTRY" in compiled.as_text()
    assert compiled.runtime_executable() is not None


def test_the_source_line_is_in_the_program():
    text = phalanx.jit(f).lower(*ARGS, scale=1.0).as_text(debug_info=True)
    assert "test_stages.py" in text


def test_compiled_stage_runs():
    compiled = phalanx.jit(f).lower(*ARGS, scale=2.0).compile()
    out = compiled(*ARGS, scale=3.0)
    np.testing.assert_allclose(out["y"], np.sin(X) * 3, rtol=1e-6)


def test_lowering_from_shapes_with_shardings():
    mesh = auto_mesh((4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, P("x", "y"))
    shape = phalanx.ShapeDtypeStruct((8, 8), "float32", sharding=sharding)
    compiled = phalanx.jit(lambda v: v @ v.T).lower(shape).compile()
    ((got,), _) = compiled.input_shardings
    assert got == sharding
    assert len(compiled.output_shardings.device_set) == 8
    x = phalanx.device_put(np.eye(8, dtype=np.float32), sharding)
    np.testing.assert_allclose(compiled(x), np.eye(8))
    with pytest.raises(ArgumentTypeError) as e:
        compiled(phalanx.device_put(np.eye(8, dtype=np.float32), NamedSharding(mesh, P())))
    assert (
        "v has sharding NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P(), memory_kind=device), compiled for"
        in str(e.value)
    )


def test_calling_with_other_arguments_lists_the_differences():
    compiled = phalanx.jit(f).lower(*ARGS, scale=2.0).compile()
    with pytest.raises(ArgumentTypeError) as e:
        compiled({"a": X[:2], "b": X[0].astype(np.int32)}, scale=1.0)
    assert str(e.value) == (
        "call of compiled f: expected arguments of the types that it was compiled for, got x['a'] is f32[2,4], compiled for "
        "f32[4,4]; x['b'] is i32[4], compiled for f32[4].\n"
        "  Fix: convert the arguments, or call the jit function f, which compiles again."
    )
    with pytest.raises(TreeError) as e:
        compiled({"a": X}, scale=1.0, more=2)
    assert str(e.value) == (
        "call of compiled f: expected arguments with the structure that it was compiled for, got args[0] is a dict with keys "
        "['a'], compiled for a dict with keys ['a', 'b']; kwargs is a dict with keys ['more', 'scale'], compiled for a "
        "dict with keys ['scale'].\n  Fix: pass arguments with that structure, or call the jit function f itself."
    )
    with pytest.raises(TraceError) as e:
        phalanx.grad(lambda v: compiled({"a": v, "b": v[0]}, scale=1.0)["n"])(X)
    assert "itself inside a transformation" in str(e.value)


def test_a_compiled_stage_keeps_its_static_arguments():
    compiled = phalanx.jit(lambda x, n: x * n, static_argnums=1).lower(X, 3).compile()
    np.testing.assert_array_equal(compiled(X), X * 3)
    np.testing.assert_array_equal(compiled(X, 3), X * 3)
    with pytest.raises(ArgumentTypeError, match="got static argument n is 4, compiled for 3"):
        compiled(X, 4)


def test_formats_have_layouts_and_shardings_of_arguments_and_results():
    mesh = phalanx.make_mesh((4,), ("x",))
    sharding = NamedSharding(mesh, P("x", None))
    usual = Format(Layout((0, 1), ()), sharding)
    assert Layout.for_array(np.asfortranarray(X)) == Layout.for_array(phalanx.device_put(X, sharding)) == usual.layout
    assert Layout.for_array(2.5) == Layout((), ())
    compiled = phalanx.jit(lambda x, unread: x + 1).lower(phalanx.device_put(X, sharding), 1.0).compile()
    (of_x, of_unread), named = compiled.input_formats
    assert of_x == usual and named == {}
    assert of_unread.layout is None
    assert compiled.output_formats == usual
    assert compiled.out_info.sharding == sharding
    y = compiled(phalanx.device_put(X, of_x), 1.0)
    assert y.format == usual
    with pytest.raises(ArgumentError) as e:
        phalanx.make_array_from_callback((4, 4), Format(Layout((1, 0)), sharding), lambda index: X[index])
    assert str(e.value) == (
        "make_array_from_callback, sharding: expected the row-major layout, or one that is left to the compiler, got "
        "Layout(major_to_minor=(1, 0), tiling=None, sub_byte_element_size_in_bits=0).\n"
        "  Fix: leave the layout out, and transpose the array if you need another order of dimensions."
    )


def test_make_jaxpr_and_eval_shape():
    text = str(phalanx.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0))
    assert text == "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }"
    program, shape = phalanx.make_jaxpr(lambda x: x[None], return_shape=True)(X)
    assert shape.shape == (1, 4, 4)
    out = phalanx.eval_shape(f, *ARGS, scale=1.0)
    assert out["y"] == phalanx.ShapeDtypeStruct((4, 4), "float32")


def test_operations_are_named_by_function_scope_and_transformation():
    def g(x):
        with phalanx.named_scope("attention"):
            return (jnp.sin(x) * x).sum()

    text = phalanx.jit(g).lower(X).as_text(debug_info=True)
    assert '"jit(g)/attention/sin"' in text and '"jit(g)/attention/reduce_sum"' in text
    text = phalanx.jit(phalanx.grad(g)).lower(X).as_text("hlo", debug_info=True)
    assert 'op_name="jit(g)/jvp(attention)/cos"' in text
    assert 'op_name="jit(g)/transpose(jvp(attention))/mul"' in text
    assert "attention" not in phalanx.jit(g).lower(X).as_text("hlo")
    mapped = phalanx.make_jaxpr(phalanx.vmap(lambda x: phalanx.jvp(g, (x,), (x,))))(X)
    assert str(mapped.eqns[0].source_info.name_stack) == "vmap(jvp(attention))"


def test_bodies_of_control_flow_are_scopes():
    def f(x, n):
        y = phalanx.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, x)
        y = phalanx.lax.scan(lambda c, _: (c * 2.0, None), y, length=3)[0]
        return phalanx.checkpoint(jnp.sin)(phalanx.lax.cond(n, jnp.cos, jnp.tan, y))

    names = set(re.findall('op_name="(.*?)"', phalanx.jit(f).lower(1.0, True).as_text("hlo", debug_info=True)))
    assert {
        "jit(f)/while/cond/lt",
        "jit(f)/while/body/add",
        "jit(f)/while/body/mul",
        "jit(f)/cond/branch_0_fun/tan",
        "jit(f)/cond/branch_1_fun/cos",
        "jit(f)/checkpoint/sin",
    } <= names
    remat = phalanx.grad(phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x))))
    text = phalanx.jit(remat).lower(1.0).as_text("hlo", debug_info=True)
    assert "transpose(jvp())/checkpoint/rematted_computation/cos" in text


def test_a_transformation_ends_before_the_names_of_bodies():
    def scopes(f, *args):
        text = phalanx.jit(f).lower(*args).as_text("hlo", debug_info=True)
        return set(re.findall('op_name="jit\\(.*?\\)/(.*?)"', text))

    loop = lambda x: phalanx.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]
    assert {"vmap()/while/body/sin", "vmap()/while/cond/lt"} <= scopes(phalanx.vmap(loop), X)
    choose = lambda x: phalanx.lax.cond(x.sum() > 1, jnp.sin, jnp.cos, x)
    assert "jvp()/cond/branch_0_fun/sin" in scopes(lambda x: phalanx.jvp(choose, (x,), (x,))[1], X)
    # Results that `vmap` moves or repeats belong to it.
    assert "vmap()/transpose" in scopes(phalanx.vmap(jnp.sin, out_axes=1), X)


def test_named_scopes_are_kept_by_derivatives_of_compiled_functions():
    """The scopes around the call took the place of those inside, and stayed for calls under others."""

    def inner(x):
        with phalanx.named_scope("layer"):
            return jnp.sin(x)

    call = phalanx.jit(inner)

    def outer(x):
        with phalanx.named_scope("model"):
            return call(x).sum()

    text = phalanx.jit(phalanx.grad(outer)).lower(X).as_text(debug_info=True)
    assert '"layer/cos"' in text and '"jit(outer)/transpose(jvp(model))/jit(inner)"' in text
    assert "model/layer" not in text and "model/model" not in text
    assert "model" not in phalanx.jit(phalanx.grad(lambda x: call(x).sum())).lower(X).as_text(debug_info=True)


def test_a_lowered_stage_has_stablehlo_and_hlo():
    lowered = phalanx.jit(jnp.sin).lower(X)
    for ask in (lowered.as_text, lowered.compiler_ir):
        with pytest.raises(ValueError, match=f'{ask.__name__}, argument dialect: expected "stablehlo" or'):
            ask("mhlo")


def test_a_compiled_stage_names_invalid_and_deleted_arguments():
    compiled = phalanx.jit(lambda p: p["w"][0]).lower({"w": [X]}).compile()
    with pytest.raises(ArgumentTypeError, match=r"call of compiled <lambda>, argument p\['w'\]\[0\]: .*'text'"):
        compiled({"w": ["text"]})
    gone = jnp.asarray(X) + 1
    gone.delete()
    with pytest.raises(RuntimeError, match=r"call of compiled <lambda>, argument p\['w'\]\[0\]: .* live buffers"):
        compiled({"w": [gone]})


def test_a_lowered_stage_has_the_shardings_of_its_example_arguments():
    """A function is traced once for all placements, but each lowering is for its own."""
    mesh = auto_mesh((4, 2), ("x", "y"))
    double = phalanx.jit(lambda x: 2 * x)
    specs = P("x"), P("y"), P("x", "y")
    shapes = [phalanx.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(mesh, s)) for s in specs]
    found = [double.lower(shape).compile().input_shardings[0][0].spec for shape in shapes]
    assert found == list(specs)
    assert double.lower(np.ones((8, 4), np.float32)).compile().input_shardings[0][0].num_devices == 1


def test_a_compiled_stage_may_be_called_without_its_static_arguments():
    compiled = phalanx.jit(lambda n, x, *, by: n * x + by, static_argnums=0, static_argnames="by")
    compiled = compiled.lower(7, 8, by=1).compile()
    assert compiled(5) == 36 == compiled(7, 5, by=1)
    with pytest.raises(ArgumentTypeError, match="static argument n is 6, compiled for 7"):
        compiled(6, 5, by=1)
    with pytest.raises(TreeError):
        compiled(7, 5, 5)


def test_eval_shape_takes_anything_with_a_shape_and_a_dtype():
    class Rows:
        shape, dtype = (2, 3), "float32"

    for like in (Rows(), phalanx.core.ShapedArray((2, 3), jnp.float32)):
        assert phalanx.eval_shape(jnp.sum, like) == phalanx.ShapeDtypeStruct((), "float32")
        assert phalanx.eval_shape(jnp.transpose, like).shape == (3, 2)


def test_a_compiled_stage_is_called_without_leading_static_arguments():
    f = phalanx.jit(lambda n, x: x * n, static_argnums=0)
    compiled = f.lower(3, X).compile()
    np.testing.assert_array_equal(compiled(X), 3 * X)
    np.testing.assert_array_equal(compiled(jnp.asarray(X)), 3 * X)
    with pytest.raises(ArgumentTypeError, match="static argument"):
        f(X, X)


def test_make_jaxpr_names_the_function_that_it_traces():
    def f(x):
        return x

    traced = phalanx.make_jaxpr(f)
    assert (traced.__name__, traced.__qualname__) == ("make_jaxpr(f)", f"make_jaxpr({f.__qualname__})")


def test_types_of_data_on_the_host_keep_their_dtype():
    for dtype in (np.bytes_, np.dtype(object), np.str_):
        assert phalanx.ShapeDtypeStruct((2,), dtype).dtype == np.dtype(dtype)


def test_a_compiled_stage_for_one_device_moves_committed_arguments():
    device = phalanx.devices()[1]
    compiled = phalanx.jit(lambda x: x * 2, device=device).lower(X).compile()
    y = compiled(phalanx.device_put(X, NamedSharding(auto_mesh((2, 2), ("a", "b")), P("a", "b"))))
    assert y.devices() == {device}
    np.testing.assert_array_equal(y, 2 * X)
