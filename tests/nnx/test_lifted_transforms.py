"""Lifted transformations: results equal those of the plain ones, and changes are written back to the caller's modules."""

import functools
import gc

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, random, tree
from phalanx.errors import ArgumentError, TraceContextError, TraceError, TreeError
from phalanx.nnx.graphlib import graph_walk
from phalanx.sharding import PartitionSpec


class Layer(nnx.Module):
    def __init__(self, size, rngs):
        self.w = nnx.Param(rngs.params.normal((size, size)) * 0.3)
        self.b = nnx.Param(jnp.zeros(size))
        self.calls = nnx.BatchStat(jnp.array(0))

    def __call__(self, x):
        self.calls.value += 1
        return jnp.tanh(x @ self.w + self.b)


class Model(nnx.Module):
    def __init__(self, depth=2, size=3, rngs=None):
        rngs = rngs or nnx.Rngs(0)
        self.layers = [Layer(size, rngs) for _ in range(depth)]
        self.top = self.layers[0]
        self.scale = jnp.ones(())

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


X = jnp.arange(3.0)


def calls(model):
    return [int(layer.calls.value) for layer in model.layers]


# jit


def test_jit_writes_changes_back():
    model, twin = Model(), Model()
    run = nnx.jit(lambda model, x: model(x))
    for _ in range(3):
        assert jnp.allclose(run(model, X), twin(X), atol=1e-6)
    assert calls(model) == [3, 3] and len(run._jit._calls) == 1
    assert jnp.allclose(run(x=X, model=model), twin(X), atol=1e-6)


def test_jit_does_not_walk_or_trace_again(monkeypatch):
    model, traces = Model(), []

    @nnx.jit
    def run(model, x):
        traces.append(1)
        return model(x)

    run(model, X)
    monkeypatch.setattr(graph_walk.Walk, "_object", lambda *_: pytest.fail("walked"))
    run(model, X)
    assert traces == [1] and calls(model) == [2, 2]


def test_jit_retraces_for_other_structures_and_static_attributes():
    class Gate(nnx.Module):
        def __init__(self):
            self.on, self.w = True, nnx.Param(jnp.array(2.0))

    gate = Gate()
    run = nnx.jit(lambda gate, x: x * gate.w if gate.on else x)
    assert run(gate, 3.0) == 6
    gate.on = False
    assert run(gate, 3.0) == 3
    gate.on = True
    gate.w = nnx.Param(jnp.array(5.0))
    assert run(gate, 3.0) == 15


def test_static_attributes_that_are_equal_but_not_the_same_have_programs_of_their_own():
    class Scale(nnx.Module):
        def __init__(self, by):
            self.by = by

    run = nnx.jit(lambda scale: jnp.copysign(1.0, scale.by))
    assert [float(run(Scale(by))) for by in (0.0, -0.0, 0.0, -0.0)] == [1, -1, 1, -1]


def test_jit_makes_modules_and_changes_structures():
    model = nnx.jit(lambda: Model())()
    assert model.top is model.layers[0] and jnp.allclose(model.layers[0].w.value, Model().layers[0].w.value)

    @nnx.jit
    def grow(model):
        model.extra = nnx.Cache(model.layers[1].b + 1)
        model.layers.append(Layer(3, nnx.Rngs(7)))
        model.mode = "grown"
        del model.top
        return model, model.layers[0].w, {"new": nnx.Param(jnp.ones(2))}

    layers, kept = model.layers, model.layers[0].w
    out, w, made = grow(model)
    assert out is model and w is kept and model.layers is layers and type(made["new"]) is nnx.Param
    assert (
        len(layers) == 3
        and layers is model.layers
        and model.extra.value.tolist() == [1, 1, 1]
        and model.mode == "grown"
    )
    assert not hasattr(model, "top")
    grow_again = nnx.clone(Model())
    grow(grow_again)
    assert len(grow_again.layers) == 3 and grow_again.mode == "grown"


def test_jit_writes_back_arrays_outside_of_variables():
    model = Model()

    @nnx.jit
    def halve(model):
        model.scale = model.scale / 2

    halve(model)
    halve(model)
    assert float(model.scale) == 0.25


def test_jit_passes_modules_shared_by_arguments_once():
    model = Model()

    @nnx.jit
    def add(a, layer):
        layer.b.value += 1
        return a.layers[0].b.value, a.layers[0] is layer

    b, is_same = add(model, model.top)
    assert b.tolist() == [1, 1, 1] and bool(is_same) and model.top.b.value.tolist() == [1, 1, 1]
    add(model, model.top)
    assert model.top.b.value.tolist() == [2, 2, 2]
    assert not bool(add(model, model.layers[1])[1])


def test_jit_passes_static_and_keyword_arguments_and_pytrees_of_modules():
    model = Model()

    @functools.partial(nnx.jit, static_argnames="power")
    def run(models, *, power):
        return models["a"](X) ** power

    assert jnp.allclose(run({"a": model}, power=2), Model()(X) ** 2, atol=1e-6) and calls(model) == [1, 1]
    traces = []

    @functools.partial(nnx.jit, static_argnums=(0, 2))
    def scaled(by, model, mode="up"):
        traces.append((by, mode))
        return model(X) * by if mode == "up" else model(X) / by

    for _ in range(2):
        assert jnp.allclose(scaled(2, model), Model()(X) * 2, atol=1e-6)
        assert jnp.allclose(scaled(4, model, mode="down"), Model()(X) / 4, atol=1e-6)
    assert traces == [(2, "up"), (4, "down")] and len(scaled._jit._calls) == 2 and calls(model) == [5, 5]
    total = nnx.jit(lambda state: sum(jnp.sum(v.value) for v in state.layers[0].values()))
    assert float(total(nnx.state(model, nnx.BatchStat))) == 5


def test_jit_accepts_an_array_and_then_a_tree_for_the_same_argument():
    add = nnx.jit(lambda model, x: model.kernel.value.sum() * 0 + sum(tree.leaves(x)))
    model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    for given, expected in ((jnp.float32(2), 2), (None, 0), ([jnp.float32(3), 1], 4)):
        for _ in range(3):  # only a call that was found is compared with the next
            assert add(model, given) == expected


def test_jit_accepts_host_data_and_nested_values():
    pair = nnx.Variable((jnp.ones(2), {"k": 3}))

    @nnx.jit
    def swap(pair, by):
        a, b = pair.value
        pair.value = (a * by, {"k": b["k"] + 1})

    swap(pair, 2)
    swap(pair, 2)
    assert pair.value[0].tolist() == [4, 4] and int(pair.value[1]["k"]) == 5

    class Held(nnx.Module):
        def __init__(self):
            self.pair, self.n = nnx.Cache((jnp.ones(2), 3)), nnx.Variable(4)

    held, traces = Held(), []

    @nnx.jit
    def run(held, x):
        traces.append(1)
        return held.pair[0].sum() + held.pair[1] + held.n + x

    for _ in range(3):
        assert float(run(held, 1)) == 10
    held.pair.value = (jnp.ones(2), 3, 0)
    assert float(run(held, 1)) == 10 and len(traces) == 2


def test_jit_returns_states_of_any_structure_at_every_call():
    states = [
        nnx.State({"b": {"y": 1.0, "x": 2.0}, 1: 3.0, "a": {"c": {"d": 4.0}}}),
        nnx.State({"a": {}, "b": 1.0}),
        nnx.State({}),
        (nnx.State({"a": 1.0}), {"b": nnx.State({"c": (2.0, nnx.Param(3.0))})}),
    ]
    for state in states:
        call = nnx.jit(lambda x: tree.map(lambda leaf: leaf + 1, x))
        expected = tree.map(lambda leaf: leaf + 1, state)
        for _ in range(3):
            result = call(state)
            assert tree.structure(result) == tree.structure(expected)
            assert tree.leaves(result) == tree.leaves(expected)
            assert repr(result) == repr(tree.map(jnp.asarray, expected))


def test_jit_donates_the_variables_of_a_module():
    model = Layer(3, nnx.Rngs(0))
    old = model.w.value
    reference = jnp.ones(3)
    phalanx.jit(lambda x: x + 1, donate_argnums=0)(reference)

    @functools.partial(nnx.jit, donate_argnums=0)
    def step(model):
        model.w.value = model.w.value + 1

    new = step(model)
    assert new is None and jnp.allclose(model.w.value, Layer(3, nnx.Rngs(0)).w.value + 1)
    assert old.is_deleted() == reference.is_deleted()


def test_jit_does_not_donate_variables_that_are_not_set():
    class Pair(nnx.Module):
        def __init__(self):
            self.a, self.b, self.raw = nnx.Param(jnp.ones(3)), nnx.Param(jnp.ones(3)), jnp.ones(3)

    pair = Pair()
    kept, old = pair.a.value, pair.b.value

    @functools.partial(nnx.jit, donate_argnums=0)
    def step(pair):
        pair.b.value = pair.a + pair.b + pair.raw

    for n in (3, 5):
        step(pair)
        assert pair.b.value.tolist() == [n] * 3
    assert pair.a.value is kept and old.is_deleted()
    info = step.trace(pair).args_info[0][0]
    assert (info.a.donated, info.b.donated, info.raw.donated) == (False, True, False)


def test_jit_names_arguments_as_users_do():
    model = Model()
    compiled = nnx.jit(lambda model, x: model(x)).lower(model, X).compile()
    model.layers[0].b.value = jnp.zeros(4)
    with pytest.raises(
        phalanx.errors.ArgumentTypeError, match=r"model\.layers\[0\]\.b is f32\[4\], compiled for f32\[3\]"
    ):
        compiled(model, X)


def test_an_exception_leaves_the_module_as_it_was():
    model = Model()

    @nnx.jit
    def fail(model):
        model.scale = model.scale * 3
        model.layers.clear()
        model.top.b.value += 1
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail(model)
    assert len(model.layers) == 2 and float(model.scale) == 1 and model.top.b.value.tolist() == [0, 0, 0]


def test_changing_a_module_that_was_closed_over_is_an_error():
    model = Layer(3, nnx.Rngs(0))

    @nnx.jit
    def run(x):
        return model(x)

    with pytest.raises(
        TraceContextError, match="^BatchStat calls, setting its value: .*got a change inside the tracing of run"
    ):
        run(X)

    @nnx.jit
    def outer(model, x):
        return nnx.vmap(lambda x: model(x))(x)

    with pytest.raises(TraceContextError, match="got a change inside vmap of"):
        outer(model, jnp.ones((2, 3)))


# Stages


def test_stages_show_the_arguments_as_states_and_the_compiled_one_updates():
    model = Model()
    traced = nnx.jit(lambda model, x: model(x)).trace(model, X)
    assert traced.out_info.shape == (3,) and traced.fun_name == "<lambda>"
    lowered = traced.lower()
    (state, x), named = lowered.args_info
    assert state.layers[0].w.shape == (3, 3) and x.shape == (3,) and named == {}
    assert lowered.in_tree == phalanx.tree.structure(lowered.args_info) and "stablehlo" in lowered.as_text()
    compiled = lowered.compile()
    assert jnp.allclose(compiled(model, X), Model()(X), atol=1e-6) and calls(model) == [1, 1]
    assert compiled.out_tree == phalanx.tree.structure(0) and compiled.cost_analysis() and compiled.memory_analysis()
    assert compiled.input_shardings[0][1] == compiled.output_shardings and "HloModule" in compiled.as_text()
    assert compiled.runtime_executable() is not None and lowered.compiler_ir() is not None
    made = nnx.jit(lambda: {"m": Model()}).lower()
    assert made.out_info["m"].layers[1].b.shape == (3,)
    # In a state each variable is an object of its own, without a path inside it.
    state = nnx.jit(lambda: nnx.state(Model(), nnx.Param)).lower()
    assert state.out_info.layers[1].b.shape == (3,)
    assert state.compile().output_shardings.layers[1].b == X.sharding
    with pytest.raises(
        TreeError, match="call of compiled <lambda>: expected modules of the structure it was compiled for"
    ):
        compiled(Model(3), X)


# Derivatives


def test_grad_differentiates_parameters_and_writes_changes_back():
    model = Model()

    def loss(model, x):
        return (model(x) ** 2).sum()

    bars = nnx.grad(loss)(model, X)
    assert calls(model) == [1, 1] and type(bars.layers[0].w) is nnx.Param
    assert bars.flat_state().paths == nnx.state(model, nnx.Param).flat_state().paths
    graphdef, params, rest = nnx.split(Model(), nnx.Param, ...)
    plain = phalanx.grad(lambda p: loss(nnx.merge(graphdef, p, rest, copy=True), X))(params)
    assert all(map(jnp.allclose, phalanx.tree.leaves(bars), phalanx.tree.leaves(plain)))


def test_value_and_grad_with_aux_and_filters():
    model = Model()

    def loss(model, x):
        y = model(x)
        return y.sum(), {"y": y, "layer": model.top}

    (value, aux), bars = nnx.value_and_grad(loss, has_aux=True, argnums=(nnx.DiffState(0, nnx.PathContains("b")), 1))(
        model, X
    )
    assert aux["layer"] is model.top and jnp.allclose(value, aux["y"].sum())
    assert bars[0].flat_state().paths == [("layers", 0, "b"), ("layers", 1, "b")] and bars[1].shape == (3,)
    with pytest.raises(ArgumentError) as error:
        nnx.grad(lambda m: 0.0, argnums=nnx.DiffState(0, nnx.Cache))(model)
    assert str(error.value) == (
        "grad, argument 0: expected variables that OfType(Cache) matches, got none.\n"
        "  Fix: correct the filter in nnx.DiffState(0, ...); nnx.state(argument) shows the variables."
    )
    with pytest.raises(ArgumentError, match="argnums: expected positions below 1"):
        nnx.grad(lambda m: 0.0, argnums=3)(model)


def test_grad_refuses_a_variable_that_is_differentiated_in_one_argument_only():
    layer = Layer(3, nnx.Rngs(0))
    both = lambda a, b: (a(X) + b(X)).sum()
    with pytest.raises(ArgumentError) as error:
        nnx.grad(both)(layer, layer)
    assert str(error.value) == (
        "grad, Param b: expected a variable that is differentiated in all arguments that contain it, or in none, got one that is "
        "differentiated in argument 0 and not in argument 1.\n"
        "  Fix: pass the shared module once, or pass argnums=(0, 1)."
    )
    bars, rest = nnx.grad(both, argnums=(0, 1))(layer, layer)
    twice = nnx.grad(lambda a: 2 * a(X).sum())(layer)
    assert jnp.allclose(bars.w.value, twice.w.value) and len(rest) == 0


def test_an_argument_is_differentiated_once():
    for argnums in ((0, 0), (0, -1), (0, nnx.DiffState(0, nnx.Param))):
        with pytest.raises(ArgumentError) as error:
            nnx.grad(lambda m: m(X).sum(), argnums=argnums)(Layer(3, nnx.Rngs(0)))
        assert str(error.value) == (
            f"grad, argnums: expected each argument at most once, got {argnums}.\n"
            "  Fix: leave out the repeated position; a DiffState accepts several filters as a list."
        )


def test_grad_inside_jit_is_a_training_step():
    @nnx.jit
    def step(model, x):
        value, bars = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
        nnx.update(model, phalanx.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), bars))
        return value

    model = Model()
    losses = [float(step(model, X)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and calls(model) == [5, 5]


def test_gradients_of_states_and_variables_keep_their_structure():
    model = Model()
    params = nnx.state(model, nnx.Param)
    bars = nnx.grad(lambda p: (p.layers[0].b ** 2).sum() + p.layers[1].b.sum())(params)
    assert type(bars) is nnx.State and bars.layers[1].b.value.tolist() == [1, 1, 1]
    assert type(nnx.grad(lambda w: w.sum())(model.top.w)) is nnx.Param


def test_custom_vjp_accepts_modules():
    class Foo(nnx.Module):
        def __init__(self):
            self.x, self.y, self.n = nnx.Param(jnp.array(1.0)), nnx.Param(jnp.array(2.0)), nnx.BatchStat(jnp.array(0))

    @nnx.custom_vjp
    def f(m, z):
        m.n.value += 1
        return jnp.sin(m.x.value) * m.y.value * z

    def fwd(m, z):
        return f(m, z), (jnp.cos(m.x.value), m, z)

    def bwd(residuals, bars):
        inputs_bar, bar = bars
        cos, m, z = residuals
        m_bar, none = inputs_bar
        assert none is None
        m_bar["x"].value = cos * bar * m.y * z
        m_bar["y"].value = 10 * jnp.sin(m.x.value) * bar * z
        return m_bar, None

    f.defvjp(fwd, bwd)
    m = Foo()
    value, bars = nnx.value_and_grad(f)(m, 3.0)
    assert jnp.allclose(value, jnp.sin(1.0) * 6) and int(m.n.value) == 1
    assert jnp.allclose(bars.x.value, jnp.cos(1.0) * 6) and jnp.allclose(bars.y.value, 30 * jnp.sin(1.0))
    assert jnp.allclose(nnx.jit(lambda m: f(m, 3.0))(m), value) and int(m.n.value) == 2


def test_remat_preserves_results_and_writes_changes_back():
    model, other = Model(), Model()
    loss = lambda model, x: (nnx.remat(lambda m, x: m(x))(model, x) ** 2).sum()
    a = nnx.grad(loss)(model, X)
    b = nnx.grad(lambda model, x: (model(x) ** 2).sum())(other, X)
    assert calls(model) == [1, 1] and all(map(jnp.allclose, phalanx.tree.leaves(a), phalanx.tree.leaves(b)))


# Mapping


def test_vmap_maps_variables_by_filter():
    @nnx.split_rngs(splits=4)
    @nnx.vmap
    def make(rngs):
        return Layer(3, rngs)

    ensemble = make(nnx.Rngs(0))
    assert ensemble.w.shape == (4, 3, 3)
    keys = random.split(random.fold_in(random.key(0), 0), 4)
    assert jnp.allclose(ensemble.w.value[2], random.normal(random.fold_in(keys[2], 0), (3, 3)) * 0.3)
    out = nnx.vmap(lambda m, x: m(x), in_axes=(0, None))(ensemble, X)
    assert out.shape == (4, 3) and ensemble.calls.value.tolist() == [1, 1, 1, 1]

    ensemble.calls.value = jnp.array(0)
    axes = nnx.StateAxes({nnx.Param: 0, ...: None})
    out = nnx.vmap(lambda m, x: m(x), in_axes=(axes, None), out_axes=1)(ensemble, X)
    assert out.shape == (3, 4) and int(ensemble.calls.value) == 1
    exact = nnx.StateAxes(nnx.State({"w": 0, "b": 0, "calls": None}))
    assert nnx.vmap(lambda m, x: m(x), in_axes=(exact, None))(ensemble, X).shape == (4, 3)


def test_vmap_names_a_variable_that_would_differ():
    model = Layer(3, nnx.Rngs(0))

    @functools.partial(nnx.vmap, in_axes=(None, 0))
    def add(model, x):
        model.b.value = model.b + x

    with pytest.raises(ArgumentError, match="the new value of Param b: expected a result that is the same for all"):
        add(model, jnp.ones((2, 3)))


def test_conflicting_prefixes_for_a_shared_variable_are_an_error():
    w = nnx.Param(jnp.ones((2, 2)))
    with pytest.raises(ArgumentError) as error:
        nnx.vmap(lambda a, b: a["x"] + b["y"], in_axes=(0, None))({"x": w}, {"y": w})
    assert str(error.value) == (
        "vmap, in_axes, Param: expected the same value on all paths to a shared variable, got 0 for the variable itself "
        "of module 0 and None for the variable itself of module 1.\n"
        "  Fix: give the variable itself of module 1 the value 0, or pass the variable only once."
    )
    axes = nnx.StateAxes({nnx.PathContains("top"): 0, ...: None})
    with pytest.raises(ArgumentError, match=r"got None for layers\[0\]\.b of module 0 and 0 for top\.b of module 0"):
        nnx.vmap(lambda m: m(X), in_axes=(axes,))(Model())


def test_filters_must_cover_all_variables_and_match_at_least_one():
    model = Layer(3, nnx.Rngs(0))
    with pytest.raises(ArgumentError, match="vmap, in_axes, calls: expected a filter that matches it, got a BatchStat"):
        nnx.vmap(lambda m: 0.0, in_axes=(nnx.StateAxes({nnx.Param: 0}),))(model)
    with pytest.raises(
        ArgumentError, match=r"vmap, in_axes, filter PathContains\('v'\): expected a filter that matches"
    ):
        nnx.vmap(lambda m: 0.0, in_axes=(nnx.StateAxes({nnx.PathContains("v"): 0, ...: 0}),))(model)
    nnx.vmap(lambda m, x: 0.0, in_axes=(nnx.StateAxes({nnx.Cache: 0, ...: None}), 0))(model, X)
    with pytest.raises(ArgumentError, match="expected a value for this path in the state given to StateAxes"):
        nnx.vmap(lambda m: 0.0, in_axes=(nnx.StateAxes(nnx.State({"w": 0})),))(model)


def test_mapped_dimensions_have_names():
    def make(key):
        return {"w": nnx.Param(random.normal(key, (3,)), out_sharding=("model",), eager_sharding=False)}

    keys = random.split(random.key(0), 2)
    made = nnx.vmap(make, transform_metadata={nnx.PARTITION_NAME: "layers"})(keys)
    assert made["w"].out_sharding == ("layers", "model") and made["w"].shape == (2, 3)
    seen = []
    nnx.vmap(lambda m: seen.append(m["w"].out_sharding), transform_metadata={nnx.PARTITION_NAME: "layers"})(made)
    assert seen == [("model",)] and made["w"].out_sharding == ("layers", "model")


def test_fields_of_the_metadata_gain_and_lose_the_entry_of_a_mapped_dimension():
    metadata = {nnx.PARTITION_NAME: "layers", "unit": "layer"}

    @nnx.vmap(transform_metadata=metadata)
    def make(x):
        return nnx.Param(x, unit=("m", "s"), note="no tuple")

    made, seen = make(jnp.ones((2, 3, 4))), []
    assert made.unit == ("layer", "m", "s") and made.note == "no tuple"
    nnx.vmap(lambda v: seen.append(v.unit), transform_metadata=metadata)(made)
    assert seen == [("m", "s")] and made.unit == ("layer", "m", "s")


def test_spmd_changes_the_metadata_of_variables_for_a_dimension():
    calls = []
    hooks = {"on_add_axis": lambda v, *args: calls.append(args), "on_remove_axis": lambda v, *args: calls.append(args)}
    v = nnx.Param(jnp.ones(2), out_sharding=("a",), unit=("m",), eager_sharding=False, **hooks)
    metadata = {nnx.PARTITION_NAME: "layers", "unit": "layer"}
    assert nnx.spmd.add_axis({"v": v}, 1, metadata)["v"] is v
    assert v.out_sharding == ("a", "layers") and v.unit == ("m", "layer")
    assert nnx.spmd.get_var_pspec(v) == PartitionSpec("a", "layers")
    nnx.spmd.remove_axis({"v": v}, 1, metadata)
    assert v.out_sharding == ("a",) and v.unit == ("m",) and calls == [(1, "layers")] * 2
    assert nnx.spmd.get_var_pspec(nnx.Param(1.0)) == PartitionSpec()
    with pytest.raises(ArgumentError) as error:
        nnx.spmd.add_axis(v, 0, {"unit": "layer"})
    assert str(error.value) == (
        "transform_metadata: expected a name of the dimension under 'partition_name', got {'unit': 'layer'}.\n"
        "  Fix: pass {nnx.PARTITION_NAME: name}; the name may be None."
    )


# Loops and branches


def test_scan_carries_slices_and_keeps():
    @functools.partial(nnx.vmap, in_axes=0)
    def make(key):
        return Layer(3, nnx.Rngs(key))

    stack = make(random.split(random.key(0), 4))
    steps = nnx.Variable(jnp.array(0))

    @functools.partial(nnx.scan, in_axes=(0, nnx.Carry, nnx.Carry), out_axes=(nnx.Carry, nnx.Carry, 1))
    def forward(layer, steps, x):
        steps.value += 1
        x = layer(x)
        return steps, x, x * 2

    for n in (1, 2):
        out, y, ys = forward(stack, steps, X)
        assert out is steps and int(steps.value) == 4 * n and stack.calls.value.tolist() == [n] * 4
    expected = X
    for i in range(4):
        expected = jnp.tanh(expected @ stack.w.value[i] + stack.b.value[i])
    assert jnp.allclose(y, expected, atol=1e-6) and ys.shape == (3, 4) and jnp.allclose(ys[:, 3], 2 * y)
    bars = nnx.grad(lambda m, steps: forward(m, steps, X)[1].sum())(stack, steps)
    assert bars.w.shape == (4, 3, 3)


def test_scan_by_filters_and_modules_as_carry():
    model = Layer(3, nnx.Rngs(0))
    axes = nnx.StateAxes({nnx.BatchStat: nnx.Carry, ...: None})

    @functools.partial(nnx.scan, in_axes=(axes, nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def cell(model, carry, x):
        carry = model(carry + x)
        return carry, carry.sum()

    carry, sums = cell(model, jnp.zeros(3), jnp.ones((5, 3)))
    assert sums.shape == (5,) and int(model.calls.value) == 5

    @nnx.scan
    def count(model, x):
        model.calls.value += x
        return model, x

    out, xs = count(model, jnp.arange(3))
    assert out is model and int(model.calls.value) == 8 and xs.tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError, match="scan, in_axes: expected 1 entries"):
        nnx.scan(lambda m: m)(model)


def test_eager_loops_compile_once(monkeypatch):
    model, traces = Layer(3, nnx.Rngs(0)), []

    def body(i, model):
        traces.append(1)
        model.calls.value += i
        return model

    for n in (1, 2, 3):
        assert nnx.fori_loop(0, 4, body, model) is model
        assert int(model.calls.value) == 6 * n
    assert len(traces) == 1


def test_while_loop_changes_modules():
    model = Layer(3, nnx.Rngs(0))

    def body(carry):
        model, n = carry
        model.calls.value += 2
        return model, n + 1

    out, n = nnx.while_loop(lambda carry: carry[0].calls < 5, body, (model, 0))
    assert out is model and int(n) == 3 and int(model.calls.value) == 6

    def grow(carry):
        carry[0].extra = nnx.Param(1.0)
        return carry

    with pytest.raises(TreeError, match="expected modules of the structure that came in"):
        nnx.while_loop(lambda c: True, lambda c: (Model(), c[1]), (model, 0))
    with pytest.raises(TraceError, match="while_loop of grow.*expected modules that keep their structure"):
        nnx.while_loop(lambda c: True, grow, (model, 0))


def test_branches_change_modules():
    model = Model()

    def run(model, x):
        return model(x), model.top

    def skip(model, x):
        return x, model.top

    for flag, n in ((True, 1), (False, 1), (jnp.array(True), 2)):
        y, first = nnx.cond(flag, run, skip, model, X)
        assert first is model.top and calls(model) == [n, n]
    y = nnx.jit(lambda model, i: nnx.switch(i, [lambda m: m(X), lambda m: X, lambda m: m(X) + 1], model))(model, 2)
    assert jnp.allclose(y, Model()(X) + 1, atol=1e-6) and calls(model) == [3, 3]
    with pytest.raises(TreeError, match="^cond, result.* of false_fun = "):
        nnx.cond(True, lambda m: setattr(m, "new", nnx.Param(1.0)), lambda m: None, model)


def test_branches_and_loops_set_only_what_they_write():
    model = Layer(3, nnx.Rngs(0))
    w = model.w.value
    axes = nnx.StateAxes({nnx.BatchStat: nnx.Carry, ...: None})

    @nnx.jit
    @nnx.scan(in_axes=(axes, nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def run(model, x, flag):
        def up(model):
            model.calls.value += 1

        def twice(i, model):
            model.calls.value += 10
            return model

        nnx.cond(flag, up, lambda model: None, model)
        nnx.fori_loop(0, 2, twice, model)
        return model.b + x, model.calls.value

    _, seen = run(model, X, jnp.array([True, False, True]))
    assert seen.tolist() == [21, 41, 62] and int(model.calls.value) == 62
    nnx.cond(True, lambda m: m.calls.set_value(m.calls + 1), lambda m: None, model)
    assert model.w.value is w and int(model.calls.value) == 63


def test_branches_may_change_structures_alike():
    model = Layer(3, nnx.Rngs(0))
    nnx.cond(
        False,
        lambda m: setattr(m, "seen", nnx.Intermediate(m.b + 1)),
        lambda m: setattr(m, "seen", nnx.Intermediate(m.b + 2)),
        model,
    )
    assert model.seen.value.tolist() == [2, 2, 2]


# Shapes only


def test_eval_shape_computes_nothing():
    made = nnx.eval_shape(lambda: Model(size=100_000))
    assert made.layers[1].w.value == phalanx.ShapeDtypeStruct((100_000, 100_000), "float32")
    assert made.top is made.layers[0]
    model = Model()
    out = nnx.eval_shape(lambda m, x: m(x), model, X)
    assert out.shape == (3,) and calls(model) == [0, 0]
    assert nnx.eval_shape(lambda m, x: m(x), made, phalanx.ShapeDtypeStruct((2, 100_000), "float32")).shape[0] == 2


def test_a_cached_call_returns_new_modules_without_retracing():
    traces = []

    @nnx.jit
    def advanced(model):
        traces.append(1)
        model.calls.value += 1
        copy = nnx.clone(model)
        copy.shared = model.calls
        return {"same": model, "copy": copy, "sum": model.w.value.sum()}

    class Counted(nnx.Module):
        def __init__(self):
            self.w, self.calls = nnx.Param(jnp.ones(2)), nnx.BatchStat(jnp.array(0))

    model = Counted()
    outs = [advanced(model) for _ in range(3)]
    assert len(traces) == 1 and int(model.calls.value) == 3
    assert all(out["same"] is model and out["copy"].shared is model.calls for out in outs)
    assert len({id(out["copy"].w) for out in outs}) == 3
    assert [int(out["copy"].calls.value) for out in outs] == [1, 2, 3] and float(outs[2]["sum"]) == 2.0


def test_scan_discards_changes_of_constant_variables_with_a_warning_or_carries_them_without_graph_updates():
    def count(model, c):
        model.n.value += 1
        return c + model.w.value * model.n.value, model.n.value

    class Counter(nnx.Module):
        def __init__(self):
            self.w, self.n = nnx.Param(jnp.ones(3)), nnx.BatchStat(jnp.array(0.0))

    axes = nnx.StateAxes({nnx.Param: 0, ...: None})
    model = Counter()
    with pytest.warns(UserWarning, match="the new value of BatchStat n is discarded in each iteration"):
        total, steps = nnx.scan(count, in_axes=(axes, nnx.Carry))(model, 0.0)
    assert float(total) == 3.0 and steps.tolist() == [1.0, 1.0, 1.0] and float(model.n.value) == 0.0
    for graph in (True, False):
        model = Counter()
        axes = nnx.prefix(model, {nnx.Param: 0, ...: None}, graph=graph)
        f = nnx.scan(count, in_axes=(axes, nnx.Carry), graph=graph, graph_updates=False)
        total, steps = f(model, 0.0)
        assert float(total) == 6.0 and steps.tolist() == [1.0, 2.0, 3.0] and float(model.n.value) == 3.0


def test_loops_accept_carried_variables_in_another_order():
    for loop in (
        lambda init: nnx.fori_loop(0, 3, lambda i, s: (s[1], s[0]), init),
        lambda init: nnx.while_loop(lambda s: s[2] < 3, lambda s: (s[1], s[0], s[2] + 1), (*init, 0)),
        lambda init: nnx.scan(lambda s: (s[1], s[0]), in_axes=nnx.Carry, out_axes=nnx.Carry, length=3)(init),
    ):
        a, b = nnx.Param(jnp.array(1.0)), nnx.Param(jnp.array(10.0))
        out = loop((a, b))
        assert out[0] is a and float(a.value) == 10.0 and float(b.value) == 1.0


def test_scan_checks_carries_and_results_when_it_is_applied():
    cases = {
        "scan, in_axes and out_axes: expected nnx.Carry in both or in none": dict(in_axes=0, out_axes=(nnx.Carry, 0)),
        "scan, in_axes and out_axes: expected nnx.Carry in both": dict(in_axes=(nnx.Carry, 0), out_axes=0),
        "scan, out_axes: expected nnx.Carry, or a dimension": dict(in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, None)),
    }
    for text, options in cases.items():
        with pytest.raises(ArgumentError, match=text):
            nnx.scan(lambda c, x: (c, x), **options)
    with pytest.raises(ArgumentError, match="expected a function of exactly one argument for in_axes=nnx.Carry"):
        nnx.scan(lambda c, x: c, in_axes=nnx.Carry, out_axes=nnx.Carry, length=2)(X, X)


def test_returning_a_variable_of_an_argument_along_another_dimension_is_refused():
    v = nnx.Param(jnp.ones((3, 2)))
    assert nnx.vmap(lambda v: v, in_axes=0, out_axes=0)(v) is v
    with pytest.raises(ArgumentError) as error:
        nnx.vmap(lambda v: v, in_axes=0, out_axes=1)(v)
    assert str(error.value) == (
        "vmap, out_axes, Param: expected 0, which vmap, in_axes has for this variable of an argument, got 1.\n"
        "  Fix: pass 0 for it in the option for the result, or return a copy: nnx.clone(module)."
    )


def test_prefixes_are_state_axes_or_modules_of_values():
    model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    table = {nnx.Param: 0, ...: None}
    tree = nnx.prefix({"m": model, "v": model.scale.copy(), "x": jnp.ones(1)}, table, graph=False)
    assert type(tree["m"]) is nnx.BatchNorm and tree["m"].scale == 0 and tree["m"].mean is None
    assert tree["v"] == 0 and tree["x"] is None
    for graph in (True, False):
        axes = nnx.prefix(model, table, graph=graph)
        stacked = nnx.vmap(
            lambda rngs: nnx.BatchNorm(2, rngs=rngs), out_axes=axes, axis_size=3, graph=graph, graph_updates=False
        )(nnx.Rngs(0).split(3))
        assert stacked.scale.shape == (3, 2) and stacked.mean.shape == (2,)
        apply = nnx.vmap(
            lambda m, x: m(x, use_running_average=True), in_axes=(axes, None), graph=graph, graph_updates=False
        )
        assert apply(stacked, jnp.ones((1, 2))).shape == (3, 1, 2)
    px, py = nnx.prefix((model, model), table, graph=True)
    assert px == py and px.resolve(("scale",), model.scale, "vmap, in_axes") == 0
    other = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(ArgumentError, match="expected a value at this path of the BatchNorm given as a prefix"):
        nnx.vmap(lambda m: None, in_axes=(tree["m"],), axis_size=2)(other)


def test_transform_metadata_removes_and_inserts_dimension_names():
    v = nnx.Param(jnp.array(0), out_sharding=("din", "dout"), eager_sharding=False)

    @nnx.transform_metadata(in_axes=0, out_axes=1, partition="din")
    def f(v):
        v.value += 1
        assert v.out_sharding == ("dout",)
        v.set_metadata(unit="m")
        return nnx.Param(jnp.array(10), out_sharding=("dmid", "dout"), eager_sharding=False)

    new = f(v)
    assert v.out_sharding == ("din", "dout") and int(v.value) == 1 and v.unit == "m"
    assert new.out_sharding == ("dmid", "din", "dout") and int(new.value) == 10
    g = nnx.transform_metadata(lambda v: v.out_sharding, partition="din")
    assert g(v) == ("dout",) and v.out_sharding == ("din", "dout")
    with pytest.raises(ArgumentError) as error:
        nnx.transform_metadata(lambda v: v.out_sharding, partition="dmid")(v)
    assert str(error.value) == (
        "transform_metadata, partition_name: expected 'din', the entry of mapped dimension 0 in the metadata "
        "out_sharding=('din', 'dout'), got 'dmid'.\n"
        "  Fix: pass the entry with which the transformation that made the variable inserted the dimension."
    )


@pytest.mark.parametrize(("graph", "updates"), [(True, True), (True, False), (False, False)])
def test_stages_of_jit_partial_bind_arguments(graph, updates):
    def f(m, x):
        m.calls.value += 1
        return x @ m.w.value

    model = Layer(3, nnx.Rngs(0))
    jitted = nnx.jit_partial(f, model, graph=graph, graph_updates=updates)
    compiled = jitted.lower(X).compile()
    for n in (1, 2):
        assert jnp.allclose(compiled(X), X @ model.w.value) and int(model.calls.value) == n
    assert jnp.allclose(jitted(X), X @ model.w.value) and jitted.eval_shape(X).shape == (3,)
    shared = nnx.Dict(a=model.w, b=model.w)
    if not graph:
        with pytest.raises(ArgumentError, match="jit_partial, graph=False: expected a tree"):
            nnx.jit_partial(lambda m: None, shared, graph=False)


def test_cached_partial_binds_a_copy_that_shares_variables():
    model = Layer(3, nnx.Rngs(0))

    @nnx.jit
    def f(bound, m):
        assert bound is not m and bound.w is m.w
        m.calls.value += 1
        return bound

    g = nnx.cached_partial(f, model)
    bound = g(model)
    assert bound is not model and bound.w is model.w and g(model) is bound and int(model.calls.value) == 2

    def grow(m):
        m.more = nnx.Variable(jnp.array(0))

    with pytest.raises(TraceError, match="cached_partial: expected bound modules that keep their structure, got the"):
        nnx.cached_partial(nnx.jit(grow), model)()
    with pytest.raises(ArgumentError, match="cached_partial: expected graph=True and graph_updates=True"):
        nnx.cached_partial(f, model, graph=False)


@pytest.mark.parametrize(("graph", "updates"), [(True, True), (True, False), (False, False)])
def test_scan_carries_arrays_that_are_attributes(graph, updates):
    class Point(nnx.Pytree):
        def __init__(self, x):
            self.x = x

    def step(model, point):
        point.x = point.x + model.w.value.sum()
        return point

    model, point = Layer(3, nnx.Rngs(0)), Point(jnp.array(0.0))
    axes = nnx.prefix(model, {...: None}, graph=graph)
    options = dict(in_axes=(axes, nnx.Carry), out_axes=nnx.Carry, length=4, graph=graph, graph_updates=updates)
    out = nnx.scan(step, **options)(model, point)
    assert out is point and jnp.allclose(point.x, 4 * model.w.value.sum(), atol=1e-5)

    def drop(model, point):
        del point.x
        return point

    with pytest.raises(TraceError, match="with 1 arrays outside of variables, got 0 arrays"):
        nnx.scan(drop, **options)(model, point)


def test_a_compiled_function_that_returns_new_variables_keeps_no_argument_alive():
    double = nnx.jit(lambda state: nnx.Param(state["kernel"] * 2))
    state = nnx.state(nnx.Linear(77, 3, rngs=nnx.Rngs(0)))
    result = double(state)
    del state
    gc.collect()
    assert sum(x.shape == (77, 3) for x in phalanx.live_arrays()) == 1 and result.shape == (77, 3)
