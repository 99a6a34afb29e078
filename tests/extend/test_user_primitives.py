"""Primitives made from a name, with rules registered in the tables of `interpreters`, under every transformation."""

import copy
import functools
import pickle

import numpy as np
import pytest
from phalanx.extend.mlir.dialects import stablehlo as hlo
from phalanx.interpreters import ad, batching, mlir, xla

import phalanx
import phalanx.numpy as jnp
from phalanx import NamedSharding, P, errors, export, lax
from phalanx.extend import core
from phalanx.sharding import AxisType


def multiply_add():
    """x * y + z, with an implementation in NumPy, a lowering by operations, and all rules."""
    p = core.Primitive("multiply_add")
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(lambda x, y, z: phalanx.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, lambda ctx, x, y, z: [hlo.AddOp(hlo.MulOp(x, y), z).result], platform="cpu")

    def jvp(primals, tangents):
        x, y, z = primals
        xt, yt, zt = map(ad.instantiate_zeros, tangents)
        return p.bind(x, y, z), p.bind(xt, y, p.bind(x, yt, zt))

    def transpose(ct, x, y, z):
        zeros = lax.full_like(ct, 0)
        if ad.is_undefined_primal(x):
            return p.bind(ct, y, zeros), None, ct
        return None, p.bind(x, ct, zeros), ct

    def batch(args, dims):
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        args = [batching.bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True)]
        return p.bind(*args), 0

    ad.primitive_jvps[p] = jvp
    ad.primitive_transposes[p] = transpose
    batching.primitive_batchers[p] = batch
    return p


def cube():
    """x**3 of any shape, lowered by a function, evaluated by compiling it."""
    p = core.Primitive("my_cube")
    p.def_impl(functools.partial(xla.apply_primitive, p))
    p.def_abstract_eval(lambda x: phalanx.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x * x * x, multiple_results=False))
    ad.defjvp(p, lambda t, x: 3 * x * x * t)
    batching.defvectorized(p)
    return p


def test_a_primitive_with_all_rules_transforms_like_an_operation():
    p = multiply_add()
    f = lambda a, b: p.bind(a, a, b)
    assert f(2.0, 10.0) == 14.0 and type(f(2.0, 10.0)) is np.float64  # the implementation's own result
    assert float(phalanx.jit(f)(2.0, 10.0)) == 14.0
    assert float(phalanx.jvp(f, (2.0, 10.0), (1.0, 1.0))[1]) == 5.0
    assert float(phalanx.grad(f)(2.0, 10.0)) == float(phalanx.jit(phalanx.grad(f))(2.0, 10.0)) == 4.0
    xs, ys = jnp.array([2.0, 3.0]), jnp.array([10.0, 20.0])
    assert phalanx.vmap(f)(xs, ys).tolist() == phalanx.jit(phalanx.vmap(f))(xs, ys).tolist() == [14.0, 29.0]
    assert phalanx.jit(phalanx.vmap(phalanx.grad(f)))(xs, ys).tolist() == [4.0, 6.0]
    assert str(phalanx.make_jaxpr(f)(2.0, 3.0).eqns[0]) == "a:f32[] = multiply_add b b c"


def test_each_missing_rule_is_an_error_that_says_how_to_register_it():
    p = core.Primitive("bare")
    cases = {
        "a rule def_impl, got none.\n  Fix: register one with primitive.def_impl(function).": lambda: p.bind(1.0),
        "a rule abstract_eval, got none.\n  Fix: register one with primitive.def_abstract_eval(function).": lambda: (
            phalanx.jit(p.bind)(1.0)
        ),
        "a rule jvp, got none.\n  Fix: register one with interpreters.ad.primitive_jvps[primitive] = rule.": lambda: (
            phalanx.jvp(p.bind, (1.0,), (1.0,))
        ),
        "a rule batch, got none.\n  Fix: register one with interpreters.batching.primitive_batchers[primitive] = rule.": (
            lambda: phalanx.vmap(p.bind)(jnp.ones(2))
        ),
    }
    for text, use in cases.items():
        with pytest.raises(NotImplementedError) as error:
            use()
        assert str(error.value) == f"primitive bare: expected {text}"
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(errors.RuleError, match="expected a rule lower, got none"):
        phalanx.jit(p.bind)(1.0)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False), platform="tpu")
    with pytest.raises(errors.RuleError, match="expected a lower rule for the platform cpu, got rules for tpu"):
        phalanx.jit(p.bind)(1.0)
    with pytest.raises(errors.RuleError, match="expected a rule transpose"):
        phalanx.linear_transpose(p.bind, 1.0)(1.0)


def test_a_type_rule_that_is_replaced_is_used_from_then_on():
    p = core.Primitive("retyped")
    p.def_abstract_eval(lambda x: x)
    assert phalanx.eval_shape(p.bind, jnp.ones(2)).shape == (2,)
    p.def_abstract_eval(lambda x: x.update(shape=(5,)))
    assert phalanx.eval_shape(p.bind, jnp.ones(2)).shape == (5,)


def test_multiple_results_are_lists():
    p = core.Primitive("two")
    p.multiple_results = True
    p.def_impl(lambda x: [x, x + 1])
    p.def_abstract_eval(lambda x: (x, x))
    mlir.register_lowering(p, mlir.lower_fun(lambda x: (x, x + 1)))
    ad.primitive_jvps[p] = lambda xs, ts: (p.bind(*xs), [ts[0], ad.Zero.from_primal_value(xs[0])])
    batching.primitive_batchers[p] = lambda xs, dims: (p.bind(*xs), [dims[0], dims[0]])
    assert [float(x) for x in phalanx.jit(p.bind)(1.0)] == [1.0, 2.0]
    assert [float(t) for t in phalanx.jvp(p.bind, (1.0,), (3.0,))[1]] == [3.0, 0.0]
    assert [x.tolist() for x in phalanx.vmap(p.bind)(jnp.arange(2))] == [[0, 1], [1, 2]]


class Subclassed(core.Primitive):
    multiple_results = True

    def bind(self, x, **params):
        return super().bind(x, x, **params)


def test_a_subclass_may_override_bind_and_declare_its_results():
    p = Subclassed("paired")
    p.def_impl(lambda x, y: [x + y])
    p.def_abstract_eval(lambda x, y: [x])
    assert p.bind(2)[0] == 4
    assert len(phalanx.make_jaxpr(p.bind)(1.0).eqns[0].invars) == 2


def test_every_primitive_is_an_instance_of_the_class_for_users():
    p = cube()
    assert isinstance(lax.sin_p, core.Primitive) and isinstance(p, core.Primitive)
    assert not isinstance(lax.sin_p, Subclassed) and isinstance(Subclassed("x"), Subclassed)
    assert copy.copy(p) is p and copy.deepcopy(p) is p
    assert p.get_bind_params({"a": 1}) == ([], {"a": 1}) and not p.call_primitive and not p.map_primitive
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(p)
    assert core.Primitive("sin") is not lax.sin_p and core.primitives.sin_p is lax.sin_p


def test_it_nests_in_control_flow_checkpoint_and_shard_map():
    p = cube()
    assert float(phalanx.grad(phalanx.checkpoint(lambda x: p.bind(jnp.sin(x))))(1.0)) == pytest.approx(
        3 * np.sin(1.0) ** 2 * np.cos(1.0), rel=1e-6
    )
    assert float(lax.scan(lambda c, _: (p.bind(c), c), 2.0, None, length=2)[0]) == 512.0
    mesh = phalanx.make_mesh((4,), ("i",))
    x = jnp.arange(8.0)
    mapped = phalanx.shard_map(p.bind, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(mapped(x), x**3)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(lambda x: mapped(x).sum()))(x), 3 * x**2)


def test_results_over_explicit_axes_follow_the_rules():
    p = cube()
    mesh = phalanx.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))
    x = phalanx.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, P("i")))
    with phalanx.set_mesh(mesh):
        assert phalanx.jit(p.bind)(x).is_fully_replicated
        p.def_sharding_rule(lambda x: core.ShardingRule([range(x.ndim)], [range(x.ndim)]))
        y = phalanx.jit(lambda x: p.bind(x))(x)
    assert y.sharding.spec == P("i")
    np.testing.assert_array_equal(y, np.arange(8.0) ** 3)


def test_platforms_have_lowerings_of_their_own_in_one_program():
    p = core.Primitive("where_am_i")
    p.def_abstract_eval(lambda x: x)
    add = lambda n: mlir.lower_fun(lambda x: x + n, multiple_results=False)
    mlir.register_lowering(p, add(1), platform="cpu")
    mlir.register_lowering(p, add(2), platform="gpu")
    exported = export.export(phalanx.jit(p.bind), platforms=("cpu", "cuda"))(jnp.zeros(2))
    assert exported.call(jnp.zeros(2)).tolist() == [1.0, 1.0]
    mlir.register_lowering(p, add(3))
    assert phalanx.jit(p.bind)(jnp.zeros(1)).tolist() == [1.0]  # the platform's own rule first
    with pytest.raises(NotImplementedError, match="expected a platform among cpu, cuda, rocm, tpu, gpu, got 'abacus'"):
        mlir.register_lowering(p, add(1), platform="abacus")


def test_effects_of_a_type_rule_keep_the_operation():
    class Log(core.Effect):
        pass

    log = Log()
    p = core.Primitive("logged")
    p.def_effectful_abstract_eval(lambda x: (x, {log}))
    mlir.register_lowering(p, lambda ctx, x: [x])
    program = phalanx.make_jaxpr(lambda x: [p.bind(x), x][1])(1.0)
    assert program.effects == {log} and str(log) == "Log"
    assert float(phalanx.jit(lambda x: [p.bind(x), x][1])(1.0)) == 1.0


def test_random_keys_reach_the_rules_as_keys():
    p = core.Primitive("same_keys")
    seen = []
    p.def_abstract_eval(lambda x: seen.append(x.dtype) or x)
    mlir.register_lowering(p, lambda ctx, x: [x])
    key = phalanx.random.key(7)
    assert (phalanx.random.key_data(phalanx.jit(p.bind)(key)) == phalanx.random.key_data(key)).all()
    assert seen[0] == key.dtype


def test_a_rule_may_call_back_into_python():
    p = core.Primitive("host_sine")
    p.def_abstract_eval(lambda x: x)

    def lower(ctx, x):
        assert ctx.primitive is p and ctx.platforms == ("cpu",) and ctx.module_context.platform == "cpu"
        call = functools.partial(mlir.emit_python_callback, ctx, lambda v: (np.sin(v),))
        results, token, _ = call(None, [x], ctx.avals_in, ctx.avals_out, has_side_effect=False)
        assert token is None
        return results

    mlir.register_lowering(p, lower)
    assert float(phalanx.jit(p.bind)(1.0)) == pytest.approx(np.sin(1.0))


def test_tables_show_and_replace_the_rules_of_built_in_primitives():
    y, t = ad.primitive_jvps[lax.sin_p]((1.0,), (2.0,))
    assert float(t) == pytest.approx(2 * np.cos(1.0))
    x, dim = batching.primitive_batchers[lax.reduce_sum_p]((jnp.ones((2, 3)),), (1,), dims=(0,))
    assert x.tolist() == [2.0, 2.0, 2.0] and dim == 0
    assert lax.mul_p in ad.primitive_transposes and lax.sin_p not in ad.primitive_transposes
    assert set(ad.primitive_transposes) <= set(ad.primitive_jvps)
    with pytest.raises(KeyError):
        ad.primitive_transposes[lax.sin_p]

    f = phalanx.jit(phalanx.grad(jnp.sin))
    before = float(f(1.0))
    try:
        ad.primitive_jvps[lax.sin_p] = lambda xs, ts: (lax.sin_p.bind(*xs), 100 * ts[0])
        assert float(f(1.0)) == 100.0  # also where a compiled program held the other rule
    finally:
        del ad.primitive_jvps[lax.sin_p]
    assert float(f(1.0)) == before
    with pytest.raises(KeyError):
        del ad.primitive_jvps[lax.sin_p]
    with pytest.raises(TypeError, match="expected a primitive and a function"):
        ad.primitive_jvps["sin"] = None


def test_the_tables_of_batching_rules_are_one():
    p = core.Primitive("batched")
    p.def_impl(lambda x: x)
    seen = []

    def by_axis(size, name, main_type, args, dims):
        seen.append((size, name))
        return args[0], dims[0]

    batching.axis_primitive_batchers[p] = by_axis
    phalanx.vmap(p.bind, axis_name="i")(jnp.ones(3))
    assert seen == [(3, "i")] and batching.axis_primitive_batchers[p] is by_axis
    assert p in batching.primitive_batchers and p in batching.fancy_primitive_batchers
    batching.primitive_batchers[p](((jnp.ones(4)),), (0,))
    assert seen[1:] == [(4, None)]
    batching.fancy_primitive_batchers[p] = lambda axis, args, dims: (args[0] * axis.size, dims[0])
    assert phalanx.vmap(p.bind)(jnp.ones(3)).tolist() == [3.0, 3.0, 3.0]


def test_derivatives_by_operand():
    f = core.Primitive("by_operand")
    f.def_impl(lambda x, y: x * x + y)
    ad.defjvp(f, lambda t, x, y: 2 * x * t, None)
    assert [float(g) for g in phalanx.grad(f.bind, (0, 1))(3.0, 1.0)] == [6.0, 0.0]
    ad.defjvp2(f, None, lambda t, z, x, y: z * t)
    assert [float(g) for g in phalanx.grad(f.bind, (0, 1))(3.0, 1.0)] == [0.0, 10.0]


def test_bilinear_and_linear_primitives_transpose():
    times = core.Primitive("times")
    times.def_impl(lambda x, y: x * y)
    times.def_abstract_eval(lambda x, y: x)
    ad.defbilinear(times, lambda ct, x, y: times.bind(ct, y), lambda ct, x, y: times.bind(x, ct))
    assert [float(g) for g in phalanx.grad(times.bind, (0, 1))(2.0, 3.0)] == [3.0, 2.0]
    triple = core.Primitive("triple")
    triple.def_impl(lambda x: 3 * x)
    triple.def_abstract_eval(lambda x: x)
    ad.deflinear(triple, lambda ct: [triple.bind(ct)])
    assert float(phalanx.grad(triple.bind)(1.0)) == 3.0
    assert float(phalanx.linear_transpose(triple.bind, 1.0)(2.0)[0]) == 6.0
    with pytest.raises(NotImplementedError, match="primitive sin: expected a transpose rule, got none"):
        ad.get_primitive_transpose(lax.sin_p)


def test_broadcasting_and_reducing_batchers_equal_loops():
    plus = core.Primitive("plus")
    plus.def_impl(jnp.add)
    batching.defbroadcasting(plus)
    x, y, s = jnp.arange(6.0).reshape(3, 2), jnp.arange(2.0), jnp.arange(3.0)
    each = phalanx.vmap(plus.bind, (0, None))(x, y)
    np.testing.assert_array_equal(each, x + y)
    np.testing.assert_array_equal(phalanx.vmap(plus.bind, (0, None))(s, y), s[:, None] + y)
    np.testing.assert_array_equal(phalanx.vmap(plus.bind, (1, 0))(x.T, s), x + s[:, None])
    total = core.Primitive("total")
    total.def_impl(lambda x, axes: x.sum(axes))
    batching.defreducer(total)
    cubes = jnp.arange(24.0).reshape(2, 3, 4)
    for d in range(3):
        got = phalanx.vmap(lambda x: total.bind(x, axes=(0,)), in_axes=d)(cubes)
        np.testing.assert_array_equal(got, jnp.moveaxis(cubes, d, 0).sum(1))


def test_custom_calls_name_registered_kernels():
    p = core.Primitive("kernel")
    p.def_abstract_eval(lambda x: x)

    def lower(ctx, x):
        return mlir.custom_call(
            "no_such_kernel",
            result_types=[mlir.aval_to_ir_type(ctx.avals_out[0])],
            operands=[x],
            backend_config={"n": mlir.i64_attr(3)},
            api_version=4,
            operand_layouts=[[1, 0]],
            result_layouts=[[1, 0]],
            operand_output_aliases={0: 0},
        ).results

    mlir.register_lowering(p, lower)
    text = phalanx.jit(p.bind).lower(jnp.ones((2, 3))).as_text()
    assert "stablehlo.custom_call @no_such_kernel" in text and "n = 3 : i64" in text


def test_parameters_may_have_any_name():
    names = "ctx args dims axis primals tangents fun avals primitive rule operands"
    params = dict.fromkeys(names.split(), 1)
    p = core.Primitive("many_parameters")
    p.def_abstract_eval(lambda x, **params: x)
    p.def_impl(lambda x, **params: x * params["ctx"])
    mlir.register_lowering(p, mlir.lower_fun(lambda x, **params: x * params["avals"], multiple_results=False))
    ad.primitive_jvps[p] = lambda xs, ts, **params: (p.bind(*xs, **params), p.bind(*ts, **params))
    ad.primitive_transposes[p] = lambda ct, x, **params: [p.bind(ct, **params)]
    batching.primitive_batchers[p] = lambda xs, ds, **params: (p.bind(*xs, **params), ds[0])
    f = lambda x: p.bind(x, **params)
    assert phalanx.jit(phalanx.vmap(phalanx.grad(f)))(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_ordered_effects_pass_tokens_through_lowering_rules():
    log, seen = core.Effect("Log", ordered=True), []
    p = core.Primitive("log_in_order")
    p.multiple_results = True
    p.def_effectful_abstract_eval(lambda x: ([], {log}))

    def lower(ctx, x):
        token = ctx.tokens_in[log]
        append = lambda v: seen.append(float(v)) or ()
        results, token, _ = mlir.emit_python_callback(ctx, append, token, [x], ctx.avals_in, [], has_side_effect=True)
        ctx.set_tokens_out(mlir.TokenSet({log: token}))
        return results

    mlir.register_lowering(p, lower)

    @phalanx.jit
    def f(x):
        p.bind(x)
        lax.fori_loop(0, 3, lambda i, x: [p.bind(x), x + 1][1], x + 1)
        p.bind(-x)
        return x

    f(1.0)
    phalanx.effects_barrier()
    assert seen == [1.0, 2.0, 3.0, 4.0, -1.0]


def test_rules_emit_calls_shapes_and_constants():
    program = phalanx.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)
    p = core.Primitive("called")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, functools.partial(mlir.core_call_lowering, name="inner", call_jaxpr=program))
    assert float(phalanx.jit(p.bind)(1.0)) == pytest.approx(np.sin(1.0) + 1)
    assert "call @inner" in phalanx.jit(p.bind).lower(1.0).as_text()
    shape_p = core.Primitive("shape")
    shape_p.def_abstract_eval(lambda x: phalanx.core.ShapedArray((3,), np.dtype("int32")))
    mlir.register_lowering(shape_p, lambda ctx, x: [mlir.shape_tensor([4, mlir.ir_constant(np.int32(5)), x])])
    assert phalanx.jit(shape_p.bind)(6).tolist() == [4, 5, 6]
    assert mlir.lowerable_effects.contains(core.Effect("any")) and not mlir.lowerable_effects.add_type(core.Effect)


def test_rules_of_users_receive_arrays_for_python_scalars():
    p = core.Primitive("typed_operands")
    p.def_impl(lambda x, y: x * y)
    seen = []

    def jvp(primals, tangents):
        seen.extend((x.dtype, x.shape) for x in primals)
        return p.bind(*primals), primals[1] * tangents[0]

    ad.primitive_jvps[p] = jvp
    batching.primitive_batchers[p] = lambda xs, dims: (seen.append(xs[1].shape), (xs[0] * xs[1], dims[0]))[1]
    phalanx.jvp(lambda x: p.bind(x, 2), (1.0,), (1.0,))
    phalanx.vmap(lambda x: p.bind(x, 2))(jnp.ones(3))
    assert seen == [(np.dtype("float32"), ()), (np.dtype("int32"), ()), ()]
    f = phalanx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x.value, x.value.dtype == np.float32), lambda _, g: (g,), symbolic_zeros=True)
    assert float(phalanx.grad(f)(1.0)) == 1.0


def test_types_take_the_place_of_values_in_linear_transpose():
    aval = phalanx.core.ShapedArray((2,), np.dtype("float32"))
    (x_bar,) = phalanx.linear_transpose(lambda x: 3 * x, aval)(jnp.ones(2))
    assert x_bar.tolist() == [3.0, 3.0]


def test_a_derivative_rule_may_map_a_function_that_returns_zero_tangents():
    p = core.Primitive("rounded_and_same")
    p.multiple_results = True
    p.def_abstract_eval(lambda x: [x, x])
    mlir.register_lowering(p, mlir.lower_fun(lambda x: [jnp.round(x), x], multiple_results=True))

    def jvp(primals, tangents):
        map_tangent = phalanx.vmap(lambda t: [ad.Zero(phalanx.core.ShapedArray(t.shape, t.dtype)), t])
        return p.bind(*primals), map_tangent(*tangents)

    ad.primitive_jvps[p] = jvp
    x = jnp.array([1.2, 2.7])
    (rounded, same), (t_rounded, t_same) = phalanx.jvp(phalanx.jit(lambda x: p.bind(x)), (x,), (x,))
    assert rounded.tolist() == [1, 3] and t_rounded.tolist() == [0, 0]
    assert same.tolist() == t_same.tolist() == x.tolist()
