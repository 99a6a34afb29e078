"""The options `graph` and `graph_updates`: shared references, changes of structure, and results that alias arguments."""

import asyncio
import functools
import threading

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError

MODES = [(True, True), (True, False), (False, False)]


class Model(nnx.Module):
    def __init__(self):
        self.w, self.n, self.kind = nnx.Param(jnp.arange(3.0)), nnx.BatchStat(jnp.array(0.0)), "new"


def shared():
    v = nnx.Variable(jnp.array(1.0))
    model = Model()
    model.a, model.b = v, v
    return model


def train(model):
    model.n.value += 1
    model.kind = "trained"
    return model.w.sum()


def test_defaults_hold_at_once_in_a_block_and_in_calls_of_a_decorated_function():
    assert nnx.set_graph_mode.current_value() and nnx.set_graph_updates.current_value()
    with nnx.set_graph_mode(False):
        assert not nnx.set_graph_mode.current_value()
        with nnx.set_graph_mode(True):
            assert nnx.set_graph_mode.current_value()
        assert not nnx.set_graph_mode.current_value()

    @nnx.set_graph_updates(False)
    def current():
        return nnx.set_graph_updates.current_value()

    assert nnx.set_graph_updates.current_value() and not current() and nnx.set_graph_updates.current_value()
    with nnx.set_graph_mode(True):
        nnx.set_graph_mode(False)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(nnx.set_graph_mode.current_value()))
        thread.start()
        thread.join()
        assert seen == [True] and not nnx.set_graph_mode.current_value()
    assert nnx.set_graph_mode.current_value()


def test_defaults_are_options_which_a_finished_block_leaves_to_global_updates():
    with nnx.set_graph_mode(False), nnx.use_eager_sharding(False), nnx.var_defaults(ref=True):
        pass
    assert dict(nnx.var_defaults()) == {"hijax": False, "ref": False} and nnx.using_eager_sharding()
    try:
        phalanx.config.update("nnx_graph_mode", False)
        phalanx.config.update("flax_hijax_variable", True)
        assert not nnx.set_graph_mode.current_value() and nnx.var_defaults().hijax and nnx.Param(1.0).hijax
    finally:
        phalanx.config.update("nnx_graph_mode", True)
        phalanx.config.update("flax_hijax_variable", False)


def test_tasks_have_their_own_defaults_rules_and_contexts():
    async def work(value, entered):
        with nnx.set_graph_mode(value), nnx.logical_axis_rules({"a": str(value)}), nnx.update_context(str(value)):
            entered.append(value)
            while len(entered) < 2:
                await asyncio.sleep(0)
            nnx.current_update_context(str(value))
            spec = nnx.get_partition_spec(nnx.Param(1.0, out_sharding=("a",))).value
            return nnx.set_graph_mode.current_value(), tuple(spec)

    async def work_together():
        entered = []
        return await asyncio.gather(work(False, entered), work(True, entered))

    assert asyncio.run(work_together()) == [(False, ("False",)), (True, ("True",))]


@pytest.mark.parametrize(("graph", "updates"), MODES)
@pytest.mark.parametrize(
    "transform",
    [nnx.jit, nnx.remat, functools.partial(nnx.vmap, in_axes=None, out_axes=None, axis_size=2)],
    ids=["jit", "remat", "vmap"],
)
def test_values_are_written_back_in_every_mode_and_attributes_only_with_updates(transform, graph, updates):
    model = Model()
    for _ in range(3):
        assert float(transform(train, graph=graph, graph_updates=updates)(model)) == 3.0
    assert float(model.n.value) == 3.0 and model.kind == ("trained" if updates else "new")


@pytest.mark.parametrize(("graph", "updates"), MODES)
def test_new_metadata_of_variables_reaches_the_caller_in_every_mode(graph, updates):
    model = Model()
    f = nnx.jit(lambda m: m.w.set_metadata(unit="kg"), graph=graph, graph_updates=updates)
    f(model)
    f(model)
    assert model.w.unit == "kg"


@pytest.mark.parametrize(("graph", "updates"), MODES)
def test_a_mode_is_fixed_when_the_function_is_transformed(graph, updates):
    with nnx.set_graph_mode(graph), nnx.set_graph_updates(updates):
        jitted = nnx.jit(train)
    model = Model()
    jitted(model)
    assert model.kind == ("trained" if updates else "new")


CALLS = {
    "split": lambda m: nnx.split(m, graph=False),
    "state": lambda m: nnx.state(m, graph=False),
    "graphdef": lambda m: nnx.graphdef(m, graph=False),
    "clone": lambda m: nnx.clone(m, graph=False),
    "iter_graph": lambda m: list(nnx.iter_graph(m, graph=False)),
    "iter_children": lambda m: nnx.iter_children(m, graph=False),
    "iter_module_children": lambda m: nnx.iter_module_children(m, graph=False),
    "view_info": lambda m: nnx.view_info(m, graph=False),
    "map": lambda m: nnx.map(lambda path, x: x, m, graph=False),
    "jit": nnx.jit(lambda m: None, graph=False),
    "vmap": nnx.vmap(lambda m: None, in_axes=None, axis_size=2, graph=False),
    "grad": nnx.grad(lambda m: m.a.value, graph=False),
    "remat": nnx.remat(lambda m: m.a.value, graph=False),
    "vjp": lambda m: nnx.vjp(lambda m: m.a.value, m, graph=False),
    "eval_shape": lambda m: nnx.eval_shape(lambda m: None, m, graph=False),
    "cond": lambda m: nnx.cond(True, lambda m: None, lambda m: None, m, graph=False),
    "switch": lambda m: nnx.switch(0, [lambda m: None], m, graph=False),
    "while_loop": lambda m: nnx.while_loop(lambda m: False, lambda m: m, m, graph=False),
    "fori_loop": lambda m: nnx.fori_loop(0, 1, lambda i, m: m, m, graph=False),
    "scan": nnx.scan(lambda m: m, in_axes=nnx.Carry, out_axes=nnx.Carry, length=2, graph=False),
    "checkify": nnx.checkify(lambda m: None, graph=False),
    "make_jaxpr": nnx.make_jaxpr(lambda m: None, graph=False),
}


@pytest.mark.parametrize("name", CALLS)
def test_tree_mode_refuses_a_shared_variable(name):
    with pytest.raises(ArgumentError) as error:
        CALLS[name](shared())
    places = "a again at b" if "[0]" not in str(error.value) else "[0].a again at [0].b"
    assert str(error.value) == (
        f"{name}, graph=False: expected a tree, in which each variable occurs once, got the Variable at {places}.\n"
        "  Fix: pass graph=True, which preserves shared references, or create a second variable with nnx.clone."
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.set_attributes(kind="new", graph=False),
        lambda m: nnx.as_abstract(m, graph=False),
        lambda m: nnx.EMA(m, 0.9, graph=False),
        lambda m: nnx.reseed(m, default=0, graph=False),
        lambda m: nnx.get_abstract_model(lambda: m, None, graph=False),
    ],
)
def test_functions_that_call_others_pass_the_mode_on(call):
    model = shared()
    with pytest.raises(ArgumentError, match="in which each variable occurs once, got the Variable at a again at b"):
        call(model)
    with nnx.set_graph_mode(False), pytest.raises(ArgumentError, match="the Variable at a again at b"):
        model.set_attributes(kind="new")


def test_an_abstract_model_shares_the_variables_that_the_model_shares():
    model = nnx.as_abstract(nnx.eval_shape(shared), None)
    assert model.a is model.b


def test_tree_mode_refuses_cycles_and_classes_that_are_no_pytree_nodes():
    model = Model()
    model.self = model
    with pytest.raises(ArgumentError, match="the cycle through the Model at the root again at self"):
        nnx.split(model, graph=False)

    class Handle(nnx.Pytree, pytree=False):
        pass

    with pytest.raises(ArgumentError, match="the Handle at the root, whose class was declared with pytree=False"):
        nnx.split(Handle(), graph=False)


def test_shared_variables_are_one_variable_without_updates():
    model = shared()

    @nnx.jit(graph_updates=False)
    def f(m):
        m.a.value += 1
        return m.b.value

    assert float(f(model)) == 2.0 and model.a is model.b and float(model.a.value) == 2.0


@pytest.mark.parametrize(("graph", "updates"), MODES[1:])
def test_a_result_must_not_contain_a_variable_of_an_argument_without_updates(graph, updates):
    with pytest.raises(ArgumentError) as error:
        nnx.jit(lambda m: m, graph=graph, graph_updates=updates)(Model())
    assert str(error.value) == (
        "the result, BatchStat n: expected a variable that is not also part of an argument, since graph_updates=False, "
        "got a variable of an argument.\n  Fix: do not return it, since its changes reach the caller's module; or return "
        "nnx.clone(module), or pass graph=True and graph_updates=True."
    )
    new = nnx.jit(nnx.clone, graph=graph, graph_updates=updates)(Model())
    assert isinstance(new, Model) and new.w.shape == (3,)


def test_a_scan_without_updates_returns_the_carried_module_and_refuses_to_stack_it():
    def step(m):
        m.n.value += 1
        return m

    model = Model()
    carried = nnx.scan(step, in_axes=nnx.Carry, out_axes=nnx.Carry, length=3, graph_updates=False)(model)
    assert carried is model and float(model.n.value) == 3.0
    with pytest.raises(ArgumentError, match="a variable of an argument"):
        nnx.scan(lambda v: v, in_axes=0, out_axes=0, graph_updates=False)(nnx.Param(jnp.arange(3.0)))


@pytest.mark.parametrize(("graph", "updates"), MODES)
def test_gradients_are_states_of_params_or_modules_of_all_leaves(graph, updates):
    model = Model()
    grads = nnx.grad(lambda m: (m.w * m.w).sum() * 1.0 + 2 * m.n, graph=graph, graph_updates=updates)(model)
    assert grads["w"].value.tolist() if updates else grads.w.value.tolist() == [0.0, 2.0, 4.0]
    if updates:
        assert isinstance(grads, nnx.State) and list(grads) == ["w"]
    else:
        assert type(grads) is Model and float(grads.n.value) == 2.0


@pytest.mark.parametrize("graph", [True, False])
def test_custom_vjp_without_updates_passes_cotangents_of_set_variables_by_name(graph):
    seen = []

    @nnx.custom_vjp(graph=graph, graph_updates=False)
    def f(m):
        m.n.value += 1
        return m.w.sum() * m.n

    def bwd(m, y_bar, updates_g):
        seen.append(updates_g)
        m_bar = nnx.clone(m)
        m_bar.w.value = 7 * y_bar * jnp.ones(3)
        m_bar.n.value = y_bar
        return (m_bar,)

    f.defvjp(lambda m: (f(m), m), bwd)
    model = Model()
    grads = nnx.grad(f, graph=graph, graph_updates=False)(model)
    assert grads.w.value.tolist() == [7.0, 7.0, 7.0] and float(model.n.value) == 1.0
    ((mask,),) = seen
    assert mask.w is None and isinstance(mask.n, nnx.BatchStat)


def test_custom_vjp_updates_variables_in_arguments_without_derivative():
    @nnx.custom_vjp(nondiff_argnums=(1,), graph_updates=False)
    def f(w, count):
        count.value += 1
        return w * w

    f.defvjp(lambda w, count: (f(w, count), w), lambda count, w, y_bar: (w.replace(5 * y_bar),))
    w, count = nnx.Param(jnp.array(3.0)), nnx.Variable(jnp.array(0))
    assert float(f(w, count)) == 9.0 and int(count.value) == 1
    assert float(nnx.grad(f, graph_updates=False)(w, count).value) == 5.0


def test_vjp_and_jvp_are_decorator_factories():
    @nnx.vjp(graph_updates=False)
    def f(w, x):
        return w * x

    y, f_vjp = f(nnx.Param(3.0), 2.0)
    assert float(y) == 6.0 and float(f_vjp(1.0)[0].value) == 2.0

    @nnx.jvp(has_aux=True)
    def g(w):
        return w * w, "aux"

    w = nnx.Param(3.0)
    y, y_dot, aux = g((w,), (w.replace(1.0),))
    assert (float(y), float(y_dot), aux) == (9.0, 6.0, "aux")


@pytest.mark.parametrize("name", ["jit", "vmap", "pmap", "grad", "value_and_grad", "remat", "scan", "vjp", "jvp"])
def test_bound_methods_are_refused(name):
    class Linear(nnx.Module):
        def apply(self, x):
            return x

    with pytest.raises(ArgumentError) as error:
        getattr(nnx, name)(Linear().apply)
    assert str(error.value) == (
        f"nnx.{name}, argument f: expected a function that receives its modules as arguments; bound methods are not "
        f"supported, got the method apply of a Linear.\n  Fix: pass the function of the class, and the module as its "
        f"first argument: nnx.{name}(Linear.apply)(module, ...), or decorate the method with @nnx.{name}."
    )


def test_options_by_position_apply_to_arguments_by_keyword():
    w, x = nnx.Param(jnp.arange(3.0)), jnp.array(2.0)

    def scale(w, x, by=1.0):
        return w * x * by

    assert nnx.vmap(scale, in_axes=(0, None))(w, x=x).tolist() == [0.0, 2.0, 4.0]
    assert nnx.vmap(scale, in_axes=(None, 0))(x=w.value, w=x).tolist() == [0.0, 2.0, 4.0]
    assert float(nnx.grad(lambda w, x: w * x)(x=3.0, w=nnx.Param(2.0)).value) == 3.0
    _, ys = nnx.scan(lambda c, x: (c + x, c), in_axes=(nnx.Carry, 0))(x=w.value, c=jnp.array(0.0))
    assert ys.tolist() == [0.0, 0.0, 1.0]


def test_a_captured_module_cannot_be_returned():
    outside = Model()
    with pytest.raises(TypeError, match="returning it"):
        nnx.jit(lambda: outside)()
    with pytest.raises(TypeError, match="setting 'kind'"):
        phalanx.jit(lambda: setattr(outside, "kind", "x"))()


@pytest.mark.parametrize("graph", [True, False])
def test_streams_are_replaced_in_a_copy_without_updates(graph):
    model = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    with nnx.set_graph_mode(graph), nnx.set_graph_updates(False):
        split = nnx.split_rngs(model, splits=3)

        @nnx.split_rngs(splits=2)
        def get_shapes(m):
            return m.rngs.key.shape

    assert split.rngs.key.shape == (3,) and model.rngs.key.shape == () and get_shapes(model) == (2,)
    assert int(model.rngs.count.value) == 2  # the original streams advance
