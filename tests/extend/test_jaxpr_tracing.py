"""Tracing and dividing jaxprs (`interpreters.partial_eval`), jaxprs by hand, the current trace, and traces of users."""

import numpy as np
import pytest
from phalanx.extend.core import primitives
from phalanx.interpreters import partial_eval as pe

import phalanx
import phalanx.numpy as jnp
from phalanx import core, lax
from phalanx.extend import core as jex_core, linear_util as lu, source_info_util

F32 = core.ShapedArray((), np.dtype("float32"))


def test_functions_are_traced_to_jaxprs_with_their_constants():
    w = jnp.ones(3)
    jaxpr, avals, consts = pe.trace_to_jaxpr_dynamic(lu.wrap_init(lambda x: [x * w, x]), [F32])
    assert [a.shape for a in avals] == [(3,), ()] and consts[0] is w
    assert core.eval_jaxpr(jaxpr, consts, 2.0)[0].tolist() == [2.0, 2.0, 2.0]
    closed = jex_core.ClosedJaxpr(jaxpr, [2 * w])
    assert jex_core.jaxpr_as_fun(closed)(2.0)[0].tolist() == [4.0, 4.0, 4.0]
    hoisted = pe.convert_constvars_jaxpr(jaxpr)
    assert len(hoisted.invars) == 2 and not hoisted.consts
    assert pe.abstract_eval_fun(lambda x, *, n: [x * n], F32, n=2) == [F32]


def test_known_arguments_are_evaluated_and_the_rest_is_traced():
    seen = []

    def f(x, y):
        z = jnp.sin(x)
        seen.append(z)
        return [z, z * y, y]

    known, unknown = pe.PartialVal.known(2.0), pe.PartialVal.unknown(F32)
    jaxpr, out, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), [known, unknown])
    assert [p.is_known() for p in out] == [True, False, False] and out[1].get_aval().shape == ()
    assert float(out[0].get_known()) == float(seen[0]) == pytest.approx(np.sin(2.0))
    assert [float(y) for y in core.eval_jaxpr(jaxpr, consts, 3.0)] == pytest.approx([3 * np.sin(2.0), 3.0])
    every = pe.trace_to_jaxpr_nounits(f, [known, unknown], instantiate=True)[1]
    assert not any(p.is_known() for p in every)
    # Under another trace the known part is evaluated in that one.
    g = phalanx.grad(lambda x: pe.trace_to_jaxpr_nounits(f, [pe.PartialVal.known(x), unknown])[1][0].get_known())
    assert float(g(2.0)) == pytest.approx(np.cos(2.0))


def test_jaxprs_are_pruned_and_divided():
    program = phalanx.make_jaxpr(lambda x, y: (jnp.sin(x), x * y, y + 1))(1.0, 2.0)
    smaller, used = pe.dce_jaxpr(program.jaxpr, [False, False, True])
    assert used == [False, True] and len(smaller.eqns) == 1
    kept, used = pe.dce_jaxpr(program.jaxpr, [False, False, True], instantiate=True)
    assert used == [True, True] and len(kept.invars) == 2
    assert len(pe.prune_closed_jaxpr_outputs(program, [True, False, False]).outvars) == 2
    moved = pe.move_binders_to_back(program, [True, False])
    assert moved.invars == program.invars[::-1]
    known, unknown, is_unknown, residuals = pe.partial_eval_jaxpr_nounits(program, [False, True])
    assert is_unknown == [False, True, True] and [r.shape for r in residuals] == [()]
    y, r = jex_core.jaxpr_as_fun(known)(1.0)
    out = [y, *jex_core.jaxpr_as_fun(unknown)(r, 2.0)]
    np.testing.assert_allclose(out, jex_core.jaxpr_as_fun(program)(1.0, 2.0))


def test_rules_of_dead_code_elimination_are_registered_and_shown():
    p = jex_core.Primitive("pair")
    p.multiple_results = True
    p.def_abstract_eval(lambda x: (x, x))

    def rule(used, eqn):
        assert used == [True, False]
        return [True], eqn.replace(primitive=lax.sin_p, outvars=[eqn.outvars[0]])

    pe.dce_rules[p] = rule
    program = phalanx.make_jaxpr(lambda x: p.bind(x)[0])(1.0)
    smaller, _ = pe.dce_jaxpr(program.jaxpr, [True])
    assert smaller.eqns[0].primitive is lax.sin_p and pe.dce_rules[p] is rule
    scan = phalanx.make_jaxpr(lambda x: lax.scan(lambda c, _: (2 * c, c + 1), x, None, length=2))(1.0).eqns[0]
    used, smaller = pe.dce_rules[lax.scan_p]([True, False], scan)
    assert used == [True] and len(smaller.outvars) == 1
    with pytest.raises(NotImplementedError, match="register the rule in partial_eval_jaxpr_custom_rules"):
        pe.custom_partial_eval_rules[p] = rule


def test_jaxprs_are_built_by_hand():
    program = phalanx.make_jaxpr(lambda x: jnp.sin(x))(1.0)
    (x,), (y,) = program.invars, program.outvars
    z = jex_core.gensym()(y.aval)
    eqn = jex_core.new_jaxpr_eqn([y], [z], lax.cos_p, {}, jex_core.no_effects, program.eqns[0].source_info)
    assert eqn.source_info.traceback is program.eqns[0].source_info.traceback
    built = jex_core.Jaxpr([], [x], [z], [*program.eqns, eqn], program.effects, None)
    assert isinstance(built, jex_core.Jaxpr) and isinstance(program, jex_core.ClosedJaxpr)
    (got,) = core.eval_jaxpr(jex_core.ClosedJaxpr(built, []).jaxpr, [], 1.0)
    assert float(got) == pytest.approx(np.cos(np.sin(1.0)))
    jex_core.check_jaxpr(built)
    assert isinstance(x.aval, core.AbstractValue)


def test_mapped_types_and_valid_operands():
    batch = core.ShapedArray((2, 3), np.dtype("float32"))
    assert core.mapped_aval(2, 0, batch).shape == (3,) and core.mapped_aval(2, None, batch) is batch
    assert core.unmapped_aval(4, 1, batch).shape == (2, 4, 3)
    assert core.valid_jaxtype(np.ones(2)) and not core.valid_jaxtype(object())
    assert type(jnp.ones(1)) in jex_core.array_types
    assert core.max_dim(2, 3) == 3 and core.min_dim(2, 3) == 2


def test_the_current_trace_is_inspected_and_left():
    outside, inside = core.get_opaque_trace_state(), []
    assert core.trace_state_clean() and jex_core.unsafe_get_axis_names_DO_NOT_USE() == []

    def f(x):
        inside.append(core.get_opaque_trace_state())
        assert core.get_opaque_trace_state() == inside[-1] != outside
        assert not core.trace_state_clean() and core.find_top_trace([x]) is not None
        with core.eval_context():
            assert core.trace_state_clean() and float(jnp.sin(0.0)) == 0.0
        with core.take_current_trace() as trace:
            assert core.trace_state_clean()
            with core.set_current_trace(trace):
                y = jnp.sin(x)
        return y

    assert float(phalanx.jit(f)(0.0)) == 0.0
    assert phalanx.vmap(lambda x: x * jex_core.unsafe_am_i_under_a_vmap_DO_NOT_USE(), axis_name="i")(jnp.ones(2)).all()
    under_jit = []
    phalanx.jit(lambda x: under_jit.append(jex_core.unsafe_am_i_under_a_jit_DO_NOT_USE()))(1.0)
    assert under_jit == [True] and not jex_core.unsafe_am_i_under_a_jit_DO_NOT_USE()


def test_concrete_or_error_converts_what_is_known():
    assert core.concrete_or_error(int, 3.0) == 3 and core.concrete_or_error(None, "x") == "x"
    assert phalanx.grad(lambda x: x * core.concrete_or_error(float, x))(3.0) == 3.0
    with pytest.raises(TypeError, match="conversion of a traced value to the number of steps"):
        phalanx.jit(lambda n: core.concrete_or_error(int, n, "the number of steps"))(3)


class UnitTracer(core.Tracer):
    """A value with a unit of measurement."""

    def __init__(self, trace, value, unit):
        super().__init__(trace, core.get_aval(value))
        self.value, self.unit = value, unit


class UnitTrace(core.Trace):
    """Multiplies and adds units, as a library that subclasses JAX's traces would."""

    def process_primitive(self, primitive, tracers, params):
        units = [getattr(x, "unit", "") for x in tracers]
        values = [getattr(x, "value", x) for x in tracers]
        with core.set_current_trace(None):
            out = primitive.bind(*values, **params)
        if primitive is lax.mul_p:
            return UnitTracer(self, out, "".join(units))
        assert len(set(units)) == 1, f"{primitive} of {units}"
        return UnitTracer(self, out, units[0])


def test_a_trace_of_a_user_interprets_operations():
    trace = UnitTrace()
    x, y = UnitTracer(trace, jnp.float32(2.0), "m"), UnitTracer(trace, jnp.float32(3.0), "s")
    with core.set_current_trace(trace):
        z = lax.add(x * y, x * y)
        with pytest.raises(AssertionError, match="add of \\['m', 's'\\]"):
            lax.add(x, y)
    assert (float(z.value), z.unit) == (12.0, "ms")


def test_operations_get_positions_and_scopes_of_others():
    def f(x):
        with source_info_util.extend_name_stack("outer") as stack:
            assert str(stack) == "outer"
            return jnp.sin(x)

    program = phalanx.make_jaxpr(f)(1.0)
    info = program.eqns[0].source_info
    assert str(info.name_stack) == "outer" and source_info_util.summarize(info).startswith(__file__)

    def again(x):
        with source_info_util.user_context(info.traceback, name_stack=info.name_stack):
            return jnp.cos(x)

    copied = phalanx.make_jaxpr(again)(1.0).eqns[0].source_info
    assert source_info_util.summarize(copied) == source_info_util.summarize(info)
    assert str(copied.name_stack) == "outer"
    with source_info_util.set_name_stack(source_info_util.new_name_stack("a").extend("b")):
        assert str(source_info_util.current_name_stack()) == "a/b"
        with source_info_util.reset_name_stack():
            assert len(source_info_util.current().name_stack) == 0
    assert source_info_util.new_source_info().replace(traceback=1).traceback == 1


def test_frames_of_an_excluded_file_are_not_shown(tmp_path, monkeypatch):
    from phalanx.engine import traceback_filtering

    for name in ("_OURS", "_NOT_USERS"):
        monkeypatch.setattr(traceback_filtering, name, getattr(traceback_filtering, name))
    library = tmp_path / "library.py"
    library.write_text("import phalanx.numpy as jnp\ndef f(x):\n    return jnp.sin(x)\n")
    namespace = {}
    exec(compile(library.read_text(), str(library), "exec"), namespace)
    summary = lambda: source_info_util.summarize(phalanx.make_jaxpr(namespace["f"])(1.0).eqns[0].source_info)
    assert summary().startswith(str(library))
    source_info_util.register_exclusion(str(library))
    assert summary().startswith(__file__)


def user_call():
    p = jex_core.Primitive("user_call")
    jex_core.register_call_primitive_rules(p)
    return p


@pytest.mark.parametrize(
    "make", [user_call, lambda: jex_core.create_call_primitive("block"), lambda: primitives.call_p]
)
def test_calls_of_jaxprs_keep_their_name(make):
    block = make()
    program = phalanx.make_jaxpr(lambda x, y: (jnp.sin(x) * y, y))(1.0, 2.0)
    f = lambda x, y: block.bind(x, y, call_jaxpr=program)[0]
    assert float(phalanx.jit(f)(1.0, 2.0)) == pytest.approx(2 * np.sin(1.0))
    np.testing.assert_allclose(phalanx.grad(f, (0, 1))(1.0, 2.0), [2 * np.cos(1.0), np.sin(1.0)], rtol=1e-6)
    batch = phalanx.vmap(f, (0, None))(jnp.arange(3.0), 2.0)
    np.testing.assert_allclose(batch, 2 * np.sin(np.arange(3.0)), rtol=1e-6)
    assert [e.primitive.name for e in phalanx.make_jaxpr(f)(1.0, 2.0).eqns] == [block.name]


def test_primitives_have_the_names_of_jax():
    assert primitives.remat_p.name == "remat2" and primitives.add_jaxvals_p is lax.add_p
    assert primitives.jit_p.name == "jit" and jex_core.primitives is primitives
