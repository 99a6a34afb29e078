"""Optimizers, metrics, and the display of models."""

import sys

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError
from phalanx.nnx.inspection import display, tabulate
from phalanx.sharding import Mesh, set_mesh

X = np.random.default_rng(0).normal(size=(8, 3)).astype("f")


def gradients(model, wrt=nnx.Param):
    graphdef, params, rest = nnx.split(model, wrt, ...)
    return phalanx.grad(lambda p: (nnx.merge(graphdef, p, rest)(X) ** 2).mean())(params)


def pure(state):
    return phalanx.tree.map(lambda v: v.value, state, is_leaf=lambda v: isinstance(v, nnx.Variable))


# --- Optimizer ---


def test_an_optimizer_applies_its_gradient_transformation():
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    tx = optim.chain(optim.clip_by_global_norm(0.1), optim.adamw(0.01))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    params = pure(nnx.state(model))
    state = tx.init(params)
    for _ in range(3):
        grads = gradients(model)
        updates, state = tx.update(pure(grads), state, params)
        params = optim.apply_updates(params, updates)
        optimizer.update(model, grads)
        phalanx.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), pure(nnx.state(model)), params)
    assert int(optimizer.step.value) == 3


def test_only_the_chosen_variables_change():
    model = nnx.LoRALinear(3, 4, lora_rank=2, rngs=nnx.Rngs(0))
    kernel = model.kernel.value
    optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.LoRAParam)
    optimizer.update(model, gradients(model, nnx.LoRAParam))
    assert model.kernel.value is kernel
    assert float(jnp.abs(model.lora.lora_b.value).max()) > 0


def test_optimizer_state_has_the_metadata_of_the_parameters():
    mesh = Mesh(np.array(phalanx.devices()).reshape(4, 2), ("data", "model"))
    with set_mesh(mesh):
        model = nnx.Linear(16, 32, kernel_metadata={"out_sharding": (None, "model")}, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optim.adam(0.1), wrt=nnx.Param)
    moment, count = optimizer.opt_state[0].mu.kernel, optimizer.opt_state[0].count
    assert type(moment) is nnx.OptVariable and type(count) is nnx.OptArray
    assert moment.out_sharding == (None, "model")
    assert moment.value.sharding.is_equivalent_to(model.kernel.value.sharding, 2)
    factored = nnx.Optimizer(model, optim.adafactor(0.1, min_dim_size_to_factor=4), wrt=nnx.Param)
    assert not factored.opt_state[0].v_row.kernel.has_metadata("out_sharding")


def test_an_optimizer_can_be_split_and_merged():
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optim.adam(0.1), wrt=nnx.Param)
    graphdef, state = nnx.split((model, optimizer))

    @phalanx.jit
    def step(state):
        model, optimizer = nnx.merge(graphdef, state)
        optimizer.update(model, gradients(model))
        return nnx.state((model, optimizer))

    nnx.update((model, optimizer), step(state))
    assert int(optimizer.step.value) == 1 and int(optimizer.opt_state[0].count.value) == 1


def test_labels_by_path_choose_transformations():
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    label = lambda params: phalanx.tree.map_with_path(lambda path, x: path[-1].key, params)
    tx = optim.partition({"kernel": optim.sgd(1.0), "bias": optim.set_to_zero()}, label)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    bias, kernel = model.bias.value, model.kernel.value
    optimizer.update(model, gradients(model))
    assert np.array_equal(model.bias.value, bias) and not np.array_equal(model.kernel.value, kernel)


def test_a_model_and_its_optimizer_in_one():
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    state = nnx.ModelAndOptimizer(model, optim.sgd(0.1))
    before = model.kernel.value
    state.update(gradients(model))
    assert state.model is model and not np.array_equal(model.kernel.value, before)


def test_ema_follows_the_parameters_without_changing_the_model():
    model = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    average = nnx.EMA(model, decay=0.5, only=nnx.Param)
    values = [jnp.full(3, k) for k in (2.0, 4.0)]
    for value in values:
        model.scale.value = value
        average.update(model)
    smooth = average.apply_to(model)
    np.testing.assert_allclose(smooth.scale.value, 0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 4)
    assert model.scale.value is values[-1] and smooth.mean is model.mean
    assert "mean" not in average.params


def test_an_averaged_model_follows_each_update():
    model = nnx.PReLU(1.0)
    average = nnx.EMA(model, decay=0.5)
    averaged = average.apply_to(model)

    @nnx.jit
    def step(model, average):
        model.negative_slope.value *= 0.0
        average.update(model)

    step(model, average)
    assert averaged.negative_slope is average.params.negative_slope and float(averaged.negative_slope) == 0.5


def test_an_update_returns_the_updates():
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    before = model.kernel.value
    optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.Param)
    updates = optimizer.update(model, gradients(model))
    np.testing.assert_allclose(model.kernel.value, before + updates["kernel"], rtol=1e-6)


def test_gradients_of_other_variables_are_ignored():
    model = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.PathContains("bias"))
    optimizer.update(model, nnx.map_state(lambda path, v: v.replace(jnp.ones(3)), nnx.state(model)))
    np.testing.assert_allclose(model.bias.value, -0.1)
    assert model.scale.value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_extra_arguments_of_an_update_may_be_functions(compiled):
    def update(updates, state, params=None, *, value_fn, factor, **extra):
        return phalanx.tree.map(lambda g: -factor * g * value_fn(params), updates), state

    tx = optim.GradientTransformationExtraArgs(lambda params: (), update)
    model = nnx.PReLU(2.0)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    def step(model, optimizer):
        grads = nnx.State({"negative_slope": jnp.ones(())})
        optimizer.update(model, grads, value_fn=lambda params: params["negative_slope"] ** 2, factor=nnx.Param(0.25))

    (nnx.jit(step) if compiled else step)(model, optimizer)
    assert float(model.negative_slope) == 1.0


def fails(error, message, fun):
    with pytest.raises(error) as caught:
        fun()
    assert str(caught.value) == message


def test_bad_arguments_of_optimizer_and_ema_raise_errors():
    fails(
        ArgumentError,
        "nnx.EMA, argument decay: expected a number between 0 and 1, got 99.\n"
        "  Fix: pass 0.999 to average over about 1,000 updates.",
        lambda: nnx.EMA(nnx.PReLU(), 99),
    )
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    fails(
        ArgumentTypeError,
        "nnx.Optimizer, argument wrt: expected a filter that selects the variables to optimize, got nothing.\n  Fix: pass wrt=nnx.Param to optimize all parameters.",
        lambda: nnx.Optimizer(model, optim.sgd(0.1)),
    )
    optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.Param)
    fails(
        TreeError,
        "nnx.Optimizer.update, argument grads, kernel: expected a gradient, got none.\n  Fix: differentiate with "
        "respect to the same variables: nnx.grad(f, argnums=nnx.DiffState(0, wrt)).",
        lambda: optimizer.update(model, nnx.State({"bias": jnp.ones(4)})),
    )
    fails(
        TreeError,
        "nnx.Optimizer.update, argument grads, bias: expected shape (4,), got shape (5,).\n"
        "  Fix: pass gradients that nnx.grad computed for this model.",
        lambda: optimizer.update(model, nnx.state(nnx.Linear(3, 5, rngs=nnx.Rngs(0)))),
    )


# --- metrics ---


def test_averages_over_batches_and_masks():
    loss = nnx.metrics.Average("loss")
    assert np.isnan(loss.compute())
    loss.update(loss=jnp.array([1.0, 2.0, 30.0]), mask=np.array([True, True, False]), other=3)
    loss.update(loss=6.0)
    assert float(loss.compute()) == 3.0
    loss.reset()
    assert np.isnan(loss.compute())


def test_welford_is_the_statistics_of_all_values():
    values = np.random.default_rng(0).normal(1e4, 1.0, size=90).astype("f")
    metric = nnx.metrics.Welford()
    for part in np.split(values, 3):
        metric.update(values=part)
    got = metric.compute()
    np.testing.assert_allclose(got.mean, values.mean(dtype="d"), rtol=1e-6)
    np.testing.assert_allclose(got.standard_deviation, values.std(dtype="d"), rtol=1e-3)
    np.testing.assert_allclose(got.standard_error_of_mean, values.std(dtype="d") / 90**0.5, rtol=1e-3)


def test_accuracy_of_two_and_of_more_classes():
    accuracy = nnx.metrics.Accuracy()
    accuracy.update(logits=jnp.eye(3), labels=np.array([0, 1, 1]), mask=np.array([True, True, False]))
    assert float(accuracy.compute()) == 1.0
    binary = nnx.metrics.Accuracy(threshold=0.5)
    binary.update(logits=np.array([0.2, 0.7, 0.9]), labels=np.array([0, 1, 0]))
    np.testing.assert_allclose(binary.compute(), 2 / 3)


def test_metrics_are_updated_inside_a_compiled_function():
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    graphdef, state = metrics.split()

    @phalanx.jit
    def step(state):
        metrics = nnx.merge(graphdef, state)
        metrics.update(logits=jnp.eye(2), labels=jnp.array([0, 0]), loss=jnp.array([1.0, 2.0]))
        return nnx.state(metrics)

    nnx.update(metrics, step(step(state)))
    assert {k: float(v) for k, v in metrics.compute().items()} == {"accuracy": 0.5, "loss": 1.5}
    assert int(metrics.loss.count.value) == 4
    metrics.reset()
    assert np.isnan(metrics.compute()["loss"])


def test_masks_by_the_names_of_metrics():
    class Count(nnx.Metric):
        def __init__(self):
            self.count = nnx.metrics.MetricState(jnp.zeros((), "int32"))

        def update(self, **kwargs):
            assert "mask" not in kwargs
            self.count.value += 1

    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), calls=Count())
    metrics.update(loss=jnp.array([1.0, 5.0]), mask={"loss": jnp.array([True, False])})
    assert float(metrics.loss.compute()) == 1.0 and int(metrics.calls.count) == 1
    both = nnx.MultiMetric(a=nnx.metrics.Average("x"), b=nnx.metrics.Average("x"))
    both.update(x=jnp.array([1.0, 5.0]), mask=jnp.array([False, True]))
    assert {name: float(value) for name, value in both.compute().items()} == {"a": 5.0, "b": 5.0}


def test_bad_arguments_of_metrics_raise_errors():
    fails(
        ArgumentTypeError,
        "nnx.metrics.Average.update: expected the keyword argument 'values', got ['loss'].\n"
        "  Fix: pass values=values, or create the metric with the name that you pass: nnx.metrics.Average('name').",
        lambda: nnx.metrics.Average().update(loss=1.0),
    )
    fails(
        ShapeError,
        "nnx.metrics.Accuracy.update: expected logits of the labels' shape with classes as last dimension, got "
        "logits of shape (3, 3), labels of shape (3, 3).\n  Fix: pass labels as class numbers, not as one-hot vectors: labels.argmax(-1).",
        lambda: nnx.metrics.Accuracy().update(logits=jnp.eye(3), labels=jnp.eye(3, dtype=int)),
    )
    fails(
        DTypeError,
        "nnx.metrics.Accuracy.update, argument labels: expected integers, got float32.\n  Fix: pass labels.astype('int32').",
        lambda: nnx.metrics.Accuracy().update(logits=jnp.eye(3), labels=jnp.ones(3)),
    )
    fails(
        ArgumentError,
        "nnx.MultiMetric: expected names that are not names of its methods, got update.\n  Fix: choose another name, such as update_metric.",
        lambda: nnx.MultiMetric(update=nnx.metrics.Average()),
    )
    fails(
        ArgumentTypeError,
        "nnx.MultiMetric, argument loss: expected a metric, got 3 of type int.\n  Fix: pass a metric such as loss=nnx.metrics.Average('loss').",
        lambda: nnx.MultiMetric(loss=3),
    )


# --- drawings ---


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.blocks = [nnx.Linear(4, 4, rngs=rngs) for _ in range(2)]
        self.tied = self.blocks[0]
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x, scale=1.0):
        x = self.norm(self.first(x))
        for block in self.blocks:
            x = block(x)
        return {"y": self.dropout(x) * scale}


def cells(table):
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]
    return {row[0]: row for row in rows if row[0] or row[1]}


def test_tabulate_shows_inputs_outputs_and_variables():
    pytest.importorskip("rich")
    model = Model(nnx.Rngs(0))
    mean = model.norm.mean.value
    table = nnx.tabulate(model, jnp.ones((5, 3)), scale=2.0)
    rows = cells(table)
    assert list(rows) == ["", "first", "norm", "blocks/0", "blocks/1", "dropout"]
    assert rows["first"][:4] == ["first", "Linear", "float32[5,3]", "float32[5,4]"]
    assert rows[""][3:6] == ["y: float32[5,4]", "8 (32 B)", "64 (256 B)"]
    assert "kernel: float32[3,4]" in table and "16 (64 B)" in table and "Total Parameters: 74" in table
    assert model.norm.mean.value is mean and "noted" not in repr(vars(nnx.Linear)["__call__"])


def test_a_table_of_outer_modules_with_their_operations():
    pytest.importorskip("rich")
    rows = cells(
        nnx.tabulate(Model(nnx.Rngs(0)), jnp.ones((5, 3)), depth=1, compute_flops=True, compute_vjp_flops=True)
    )
    assert list(rows) == ["", "first", "norm", "dropout"]
    forward, both = int(rows["first"][4]), int(rows["first"][5])
    assert forward >= 2 * 5 * 3 * 4 and both >= 2 * forward


def test_tabulate_does_not_count_what_the_call_stores():
    class Model(nnx.Module):
        def __call__(self, x):
            self.sow(nnx.Intermediate, "h", x)
            return x

    table = nnx.tabulate(Model(), jnp.ones(3))
    assert "Total Parameters: 0 (0 B)" in table and "Intermediate" not in table


def test_tabulate_can_call_another_method():
    pytest.importorskip("rich")
    rows = cells(nnx.tabulate(nnx.Embed(7, 3, rngs=nnx.Rngs(0)), jnp.ones((2, 3)), method="attend"))
    assert rows["attend"][1:4] == ["Embed", "float32[2,3]", "float32[2,7]"]
    fails(
        ArgumentError,
        "nnx.tabulate, argument method: expected a method of Linear, got 'attend'.\n"
        "  Fix: pass the name of the method to call, such as method='__call__'.",
        lambda: nnx.tabulate(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), method="attend"),
    )


class Caller(nnx.Module):
    """Calls its other methods with empty containers, None and modules."""

    def __init__(self):
        self.inner = nnx.Dict(w=nnx.Param(jnp.ones((2, 3)), unit="m"))
        self.calls = []

    def inspect(self, x, *, options, again=None):
        return x + 1, {"seen": again}

    def __call__(self, x):
        self.calls.append(x)
        self.inspect(x, options={})
        self.inspect(x, options={}, again=None)
        self.inspect(x, options={"a": [1, "b"]}, again=self.inner)
        return None


def test_each_call_of_a_method_has_a_row():
    table = nnx.tabulate(Caller(), jnp.ones(4), console_kwargs={"width": 200})
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]
    assert [row[:4] for row in rows[:2]] == [
        ["", "Caller", "float32[4]", ""],
        ["inspect", "Caller", "- float32[4]", "- float32[4]"],
    ]
    assert [row[2] for row in rows if row[2]] == [
        *("float32[4]", "- float32[4]", "options: {}"),
        *("- float32[4]", "again: None", "options: {}"),
        *("- float32[4]", "again: Dict(...)", "options:", "a:", "- 1", "- b"),
    ]
    assert rows[0][4] == "6 (24 B)" and "Total Parameters: 6 (24 B)" in table


def test_operations_are_counted_without_calling_methods_again():
    class Inner(nnx.Module):
        def __init__(self, calls):
            self.linear, self.calls = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.static(calls)

        def __call__(self, x, mode="fast"):
            self.calls.append(mode)
            return self.linear(x), mode

    class Outer(nnx.Module):
        def __init__(self, calls):
            shared = Inner(calls)
            self.layers = nnx.List([shared, Inner(calls), shared])

        def __call__(self, x):
            for layer in self.layers:
                x, mode = layer(x, mode="slow")
            assert mode == "slow"
            return x

    calls = []
    rows = cells(nnx.tabulate(Outer(calls), jnp.ones((4, 2)), compute_flops=True))
    assert calls == ["slow"] * 3
    assert list(rows) == ["", "layers/0", "layers/0/linear", "layers/1", "layers/1/linear"]
    assert int(rows["layers/0"][4]) == int(rows["layers/0/linear"][4]) >= 2 * 4 * 2 * 2
    assert int(rows[""][4]) >= 3 * int(rows["layers/0"][4])


def test_a_table_without_rich_is_the_same(monkeypatch):
    pytest.importorskip("rich")
    model = Model(nnx.Rngs(0))
    drawn = nnx.tabulate(model, jnp.ones((5, 3)))
    monkeypatch.setattr(tabulate, "find_spec", lambda name: None)
    plain = nnx.tabulate(model, jnp.ones((5, 3)))
    strip = lambda text: [line.strip() for line in text.splitlines()]
    assert strip(plain) == strip(drawn)


def test_the_text_of_a_model_begins_with_its_sizes():
    model = nnx.Sequential(nnx.BatchNorm(3, rngs=nnx.Rngs(0)), nnx.Dropout(0.1, rngs=nnx.Rngs(0)))
    first = repr(model).splitlines()[0]
    assert first == "Sequential( # Param: 6 (24 B), BatchStat: 6 (24 B), RngState: 2 (12 B), Total: 14 (60 B)"


def test_shardings_are_drawn_in_notebooks():
    mesh = phalanx.make_mesh((4,), ("x",))
    with set_mesh(mesh):
        model = nnx.Linear(
            4, 2, kernel_init=nnx.with_partitioning(nnx.initializers.ones, ("x", None)), rngs=nnx.Rngs(0)
        )
    page = display.to_html(display.draw(model))
    assert "<code>float32[4, 2] P(&#x27;x&#x27;, None), out_sharding=(&#x27;x&#x27;, None)</code>" in page
    assert "<table" in page and "CPU 3" in page and page.count("<details") == page.count("</details>")


def test_models_states_and_variables_are_shown_as_text(capsys):
    class Block(nnx.Module):
        def __init__(self, count, cycle):
            self.kind, self._hidden, self.name = dict, 3, "block"
            self.w = nnx.Param(jnp.zeros((2, 2)), unit="m")
            self.cycle = nnx.data((count, self, cycle))
            self.parts = nnx.List([nnx.Cache(jnp.zeros(2)), nnx.Dict(a=1)])

    cycle = []
    cycle.append(cycle)
    nnx.display(Block(nnx.RngCount(jnp.array(0), tag="count"), cycle))
    assert (
        capsys.readouterr().out
        == """\
Block( # RngState: 1 (4 B), Cache: 2 (8 B), Param: 4 (16 B), Total: 7 (28 B)
  kind=dict,
  name='block',
  w=Param( # 4 (16 B)
    value=Array(shape=(2, 2), dtype=dtype('float32')),
    unit='m'
  ),
  cycle=(RngCount( # 1 (4 B)
    value=Array(0, dtype=int32, weak_type=True),
    tag='count'
  ), Block(...), [[...]]),
  parts=List([
    Cache( # 2 (8 B)
      value=Array([0., 0.], dtype=float32)
    ),
    Dict({
      'a': 1
    })
  ])
)
"""
    )
    state = nnx.State({"a": {"b": nnx.Param(jnp.zeros((2, 1)))}, "c": nnx.State({})})
    assert (
        repr(state)
        == str(state)
        == """\
State({
  'a': {
    'b': Param( # 2 (8 B)
      value=Array([[0.],
             [0.]], dtype=float32)
    )
  },
  'c': {}
})"""
    )
    assert (
        repr(nnx.to_flat_state({"a": nnx.Param(1)}))
        == """\
FlatState([
  (('a',), Param(
    value=1
  ))
])"""
    )


def test_a_model_in_a_notebook_is_html_that_folds(monkeypatch):
    shown = []
    shell = type("Shell", (), {"kernel": object()})()
    notebook = type(sys)("IPython")
    notebook.get_ipython = lambda: shell
    face = type(sys)("IPython.display")
    face.HTML, face.display = str, shown.append
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", face)
    model = nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), lambda x: x < 3)
    nnx.display(model)
    (page,) = shown
    assert page.startswith("<details") and "&lt;lambda&gt;" in page and "<code>float32[3, 4]</code>" in page
    assert page.count("<details") == page.count("</details>")


def test_drawing_ends_where_a_graph_is_a_circle():
    module = nnx.Module()
    module.itself = module
    assert display.draw(module).children[0].detail == "..." and repr(module) == "Module(\n  itself=Module(...)\n)"
