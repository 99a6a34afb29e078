"""Modules over a mesh: metadata, sharded initialization, and jit and shard_map with shardings by filter and by path."""

import functools

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.core.error_classes import ShardingError
from phalanx.nn import initializers
from phalanx.sharding import AxisType, NamedSharding, PartitionSpec as P, SingleDeviceSharding

kernel = initializers.normal(0.1)


@pytest.fixture(scope="module")
def mesh():
    return auto_mesh((2, 4), ("data", "model"))


class MLP(nnx.Module):
    def __init__(self, size, rngs):
        self.up = nnx.Param(nnx.with_partitioning(kernel, (None, "model"))(rngs.params(), (size, 4 * size)))
        self.down = nnx.Param(kernel(rngs.params(), (4 * size, size)), out_sharding=("model", None))
        self.bias = nnx.Param(jnp.zeros(size))
        self.calls = nnx.BatchStat(jnp.array(0))

    def __call__(self, x):
        self.calls.value += 1
        return jnp.tanh(x @ self.up) @ self.down + self.bias


def spec(x):
    return x.sharding.spec.canonical if isinstance(x.sharding, NamedSharding) else P()


def test_specs_and_shardings_come_from_the_metadata(mesh):
    state = nnx.state(nnx.eval_shape(lambda: MLP(4, nnx.Rngs(0))))
    specs = nnx.get_partition_spec(state)
    assert specs.up.value == P(None, "model") and specs.down.value == P("model", None) and specs.bias.value == P()
    shardings = nnx.get_named_sharding(state, mesh)
    assert type(shardings.up) is nnx.Param and shardings.down.value == NamedSharding(mesh, P("model", None))
    module = nnx.get_partition_spec(MLP(4, nnx.Rngs(0)))
    assert module.up.value == P(None, "model") and module.bias.value == P()
    shapes = nnx.abstract_with_sharding(state, mesh)
    assert shapes.up.value.sharding == NamedSharding(mesh, P(None, "model")) and shapes.up.shape == (4, 16)
    with nnx.logical_axis_rules({"mlp": "model", "embed": None}):
        w = nnx.Param(jnp.ones((2, 4)), out_sharding=("embed", "mlp"))
        assert nnx.get_partition_spec({"w": w})["w"].value == P(None, "model")
    assert w.sharding_names == ("embed", "mlp")


def test_variables_are_placed_when_they_are_made_under_a_mesh(mesh):
    plain = MLP(4, nnx.Rngs(0))
    assert isinstance(plain.up.value.sharding, SingleDeviceSharding)
    with mesh:
        model = MLP(4, nnx.Rngs(0))
        with nnx.use_eager_sharding(False):
            assert isinstance(MLP(4, nnx.Rngs(0)).down.value.sharding, SingleDeviceSharding)
    assert spec(model.up.value) == P(None, "model") and spec(model.down.value) == P("model")
    assert jnp.allclose(model.up.value, plain.up.value) and jnp.allclose(model.down.value, plain.down.value)
    with pytest.raises(ShardingError, match="out_sharding of a variable: expected at most 1 entries"), mesh:
        nnx.Param(jnp.ones(4), out_sharding=("data", "model"))


def test_jitted_initialization_shards_each_parameter(mesh):
    create = nnx.jit(lambda: MLP(8, nnx.Rngs(0)))
    with mesh:
        model = create()
        text = create.lower().compile().as_text()
    assert spec(model.up.value) == P(None, "model") and spec(model.down.value) == P("model")
    assert jnp.allclose(model.up.value, MLP(8, nnx.Rngs(0)).up.value, atol=1e-6)
    assert "f32[8,32]" not in text.replace("f32[8,32]{1,0} parameter", "")


def test_a_training_step_keeps_the_placement(mesh):
    with mesh:
        model = nnx.jit(lambda: MLP(8, nnx.Rngs(0)))()
    x = phalanx.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("data")))

    @nnx.jit
    def step(model, x):
        value, bars = nnx.value_and_grad(lambda m, x: (m(x) ** 2).mean())(model, x)
        nnx.update(model, phalanx.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), bars))
        return value

    whole = MLP(8, nnx.Rngs(0))
    for _ in range(3):
        assert jnp.allclose(step(model, x), step(whole, jnp.ones((8, 8))), atol=1e-5)
    assert spec(model.up.value) == P(None, "model") and spec(model.down.value) == P("model")


def test_jit_shardings_by_filter_and_by_exact_state(mesh):
    model = MLP(8, nnx.Rngs(0))
    place = lambda *names: NamedSharding(mesh, P(*names))
    by_filter = nnx.StateSharding({nnx.PathContains("up"): place(None, "model"), ...: place()})

    @functools.partial(nnx.jit, in_shardings=(by_filter, place("data")), out_shardings=place("data"))
    def run(model, x):
        return model(x)

    x = jnp.ones((8, 8))
    y = run(model, x)
    assert spec(y) == P("data") and jnp.allclose(y, MLP(8, nnx.Rngs(0))(x), atol=1e-5)
    assert int(model.calls.value) == 1 and spec(model.calls.value) == P()
    exact = nnx.StateSharding(nnx.get_named_sharding(nnx.state(model), mesh))
    z = nnx.jit(lambda m, x: m(x), in_shardings=(exact, place("data")))(MLP(8, nnx.Rngs(0)), x)
    assert jnp.allclose(z, y, atol=1e-5)
    created = nnx.jit(lambda: MLP(8, nnx.Rngs(0)), out_shardings=by_filter)()
    assert spec(created.up.value) == P(None, "model") and spec(created.down.value) == P()


def test_shard_map_is_data_parallel(mesh):
    model, whole = MLP(4, nnx.Rngs(0)), MLP(4, nnx.Rngs(0))
    x = jnp.arange(32.0).reshape(8, 4) / 10

    @nnx.shard_map(mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    def step(model, x):
        value, bars = nnx.value_and_grad(lambda m: phalanx.lax.pmean((m(x) ** 2).mean(), "data"))(model)
        nnx.update(model, phalanx.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), bars))
        return value

    def plain(model, x):
        value, bars = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        nnx.update(model, phalanx.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), bars))
        return value

    for _ in range(2):
        assert jnp.allclose(step(model, x), plain(whole, x), atol=1e-5)
    assert jnp.allclose(model.up.value, whole.up.value, atol=1e-5) and int(model.calls.value) == 2


@pytest.mark.parametrize("exact", [False, True])
def test_shard_map_is_tensor_parallel_by_filter_or_exact_state(mesh, exact):
    model = MLP(4, nnx.Rngs(0))
    if exact:
        specs = nnx.StateSharding(nnx.get_partition_spec(nnx.state(model)))
    else:
        up, down = nnx.PathContains("up"), nnx.PathContains("down")
        specs = nnx.StateSharding({up: P(None, "model"), down: P("model"), ...: P()})

    @nnx.jit
    @nnx.shard_map(mesh=mesh, in_specs=(specs, P("data")), out_specs=P("data"))
    def run(model, x):
        assert model.up.shape == (4, 4) and model.down.shape == (4, 4)
        part = jnp.tanh(x @ model.up) @ model.down
        model.calls.value += 1
        return phalanx.lax.psum(part, "model") + model.bias

    x = jnp.arange(32.0).reshape(8, 4) / 10
    y = run(model, x)
    assert jnp.allclose(y, MLP(4, nnx.Rngs(0))(x), atol=1e-5) and spec(y) == P("data")
    assert int(model.calls.value) == 1
    with mesh:
        spread = nnx.jit(lambda: MLP(4, nnx.Rngs(0)))()
    assert jnp.allclose(run(spread, x), y, atol=1e-5) and spec(spread.up.value) == P(None, "model")
    assert str(phalanx.debug.draw_sharding(spread.up.value)).count("CPU") == 4


def test_shard_map_names_a_variable_that_would_differ(mesh):
    model = MLP(4, nnx.Rngs(0))

    @nnx.shard_map(mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    def bad(model, x):
        model.bias.value = model.bias + x.sum()

    with pytest.raises(ShardingError, match="the new value of Param bias"):
        bad(model, jnp.ones((8, 4)))


def test_pmap_of_a_module_accepts_a_single_row():
    layer = nnx.Linear(2, 3, rngs=nnx.Rngs(0))

    @functools.partial(nnx.pmap, in_axes=(None, 0))
    def call(layer, x):
        return layer(x)

    x = jnp.ones((1, 4, 2))
    assert jnp.allclose(call(layer, x)[0], layer(x[0]))
    assert call(layer, x).sharding.spec == phalanx.P("pmap")


def test_pmap_runs_a_copy_of_the_module_on_each_device():
    model, whole = MLP(4, nnx.Rngs(0)), MLP(4, nnx.Rngs(0))
    x, traces = jnp.arange(32.0).reshape(8, 1, 4) / 10, []

    @functools.partial(nnx.pmap, in_axes=(nnx.StateAxes({nnx.BatchStat: 0, ...: None}), 0), axis_name="data")
    def step(model, x):
        traces.append(1)
        bars = nnx.grad(lambda m: (m(x) ** 2).mean())(model)
        bars = phalanx.lax.pmean(bars, "data")
        return bars.bias.value

    model.calls.value = jnp.zeros(8, jnp.int32)
    for _ in range(2):
        out = step(model, x)
    bars = nnx.grad(lambda m: (m(x.reshape(8, 4)) ** 2).mean())(whole)
    assert out.shape == (8, 4) and jnp.allclose(out[5], bars.bias.value, atol=1e-6)
    assert model.calls.value.tolist() == [2] * 8 and len(traces) == 1


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_types_of_a_model_made_under_a_mesh_know_their_shardings(kind):
    mesh = phalanx.make_mesh((2, 4), ("data", "model"), axis_types=(kind, kind))
    metadata = {"out_sharding": ("rows", "columns"), "sharding_rules": {"rows": None, "columns": "model"}}
    with phalanx.set_mesh(mesh):
        made = nnx.eval_shape(lambda: nnx.Linear(4, 8, kernel_metadata=metadata, rngs=nnx.Rngs(0)))
        real = nnx.Linear(4, 8, kernel_metadata=metadata, rngs=nnx.Rngs(0))
    assert made.kernel.value.sharding.spec == P(None, "model") == real.kernel.value.sharding.spec
    assert made.bias.value.sharding is None


def test_older_metadata_names_do_not_hide_the_sharding_of_the_value(mesh):
    with phalanx.set_mesh(mesh):
        for key in ("sharding", "sharding_names"):
            w = nnx.Param(jnp.ones((2, 4)), **{key: (None, "model")})
            assert w.sharding.spec == P(None, "model") and w.out_sharding == (None, "model") == w.sharding_names


def test_shardings_of_arguments_reach_the_variables_of_the_caller():
    mesh = phalanx.make_mesh((2, 4), ("a", "b"))
    shardings = nnx.StateSharding(
        {nnx.PathContains("kernel"): NamedSharding(mesh, P("a", "b")), ...: NamedSharding(mesh, P("b"))}
    )
    traces = []

    def apply(model, x):
        traces.append(1)
        return model(x)

    f = nnx.jit(apply, in_shardings=(shardings, None))
    for _ in range(2):  # another model of the same structure is sharded as well
        model = nnx.Linear(16, 32, rngs=nnx.Rngs(0))
        for _ in range(3):
            assert f(model, jnp.ones((4, 16))).shape == (4, 32)
            assert model.kernel.value.sharding.spec == P("a", "b") and model.bias.value.sharding.spec == P("b")
            assert model.kernel.value.addressable_shards[0].data.shape == (8, 8)
    assert len(traces) == 1
    unchanged = nnx.Linear(16, 32, rngs=nnx.Rngs(0))
    nnx.jit(apply, in_shardings=(shardings, None), graph_updates=False)(unchanged, jnp.ones((4, 16)))
    assert not isinstance(unchanged.kernel.value.sharding, NamedSharding)


def test_specs_of_shard_map_reach_the_variables_of_the_caller():
    mesh = phalanx.make_mesh((8,), ("a",))
    by_filter = nnx.StateSharding({nnx.PathContains("kernel"): P(None, "a"), ...: P()})
    exact = nnx.StateSharding(nnx.State({"kernel": P(None, "a"), "bias": P()}))
    for specs in (by_filter, exact):
        model = nnx.Linear(16, 32, rngs=nnx.Rngs(0))

        @nnx.shard_map(mesh=mesh, in_specs=(specs,), out_specs=None)
        def check(m):
            assert m.kernel.shape == (16, 4) and m.bias.shape == (32,)

        check(model)
        assert model.kernel.value.sharding == NamedSharding(mesh, P(None, "a"))
        assert model.bias.value.sharding.is_fully_replicated


def test_abstract_models_keep_the_mesh_of_each_variable():
    first, second = auto_mesh((2, 4), ("a", "b")), auto_mesh((1, 8), ("c", "d"))

    class Model(nnx.Module):
        def __init__(self):
            self.one = nnx.Param(jnp.ones((8, 8)), out_sharding=("a", "b"), mesh=first)
            self.two = nnx.Param(jnp.ones((8, 8)), out_sharding=("c", "d"), mesh=second)

    assert Model().one.value.sharding == NamedSharding(first, P("a", "b"))
    abstract = nnx.as_abstract(nnx.eval_shape(Model))
    assert abstract.one.value.sharding == NamedSharding(first, P("a", "b"))
    assert abstract.two.value.sharding == NamedSharding(second, P("c", "d"))


def test_an_embedding_may_be_split_along_the_vocabulary_of_an_explicit_axis():
    mesh = phalanx.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with phalanx.set_mesh(mesh):
        layer = nnx.Embed(8, 4, rngs=nnx.Rngs(0), embedding_metadata={"out_sharding": ("x", None)})
        found = layer(jnp.arange(4), out_sharding=P("y"))
        assert (
            str(phalanx.typeof(layer.embedding.value)) == "float32[8@x,4]"
            and str(phalanx.typeof(found)) == "float32[4@y,4]"
        )
        with pytest.raises(ShardingError, match="or pass out_sharding="):
            layer(jnp.arange(4))
    assert (np.asarray(layer.embedding.value)[:4] == np.asarray(found)).all()


def test_the_state_of_an_optimizer_may_be_sharded_otherwise_than_its_parameters(mesh):
    with phalanx.set_mesh(mesh):
        layer = nnx.Linear(4, 4, rngs=nnx.Rngs(0), kernel_metadata={"optimizer_sharding": ("data", "model")})
        optimizer = nnx.Optimizer(layer, optim.adam(1e-3), wrt=nnx.Param)
    assert spec(layer.kernel) == P() and spec(optimizer.opt_state[0].mu["kernel"]) == P("data", "model")
