"""Further names that programs for Flax use: trees, split and merge contexts, streams, traversals."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.errors import ArgumentError, ArgumentTypeError
from phalanx.nnx import objects
from phalanx.sharding import AxisType, PartitionSpec as P


def test_trees_of_modules_through_functions_that_know_pytrees_only():
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    grad = phalanx.grad(lambda tree: nnx.from_tree(tree)(jnp.ones((1, 2))).sum())(nnx.to_tree(model))
    assert type(nnx.from_tree(grad)) is nnx.Linear and nnx.from_tree(grad).bias.value.tolist() == [1.0, 1.0, 1.0]


def test_split_context_preserves_references_between_modules():
    embed = nnx.Embed(3, 2, rngs=nnx.Rngs(0))
    with nnx.split_context() as ctx:
        first, second = ctx.split(embed), ctx.split({"head": embed, "w": nnx.Param(jnp.ones(1))})
    assert len(second[1].flat_state()) == 1
    with nnx.merge_context() as ctx:
        a, b = ctx.merge(*first), ctx.merge(*second)
    assert b["head"] is a and a is not embed


def test_streams_are_replaced_in_a_view_of_the_model_and_advance_in_the_model():
    model = nnx.Dict(drop=nnx.Dropout(0.5, rngs=nnx.Rngs(0)), w=nnx.Param(jnp.ones(2)))
    made = nnx.with_rngs(model, split=3)
    assert made["drop"].rngs.key.shape == (3,) and made["w"] is model["w"]
    assert model["drop"].rngs.key.shape == () and int(model["drop"].rngs.count.value) == 1


def test_with_rngs_splits_forks_and_broadcasts_streams():
    rngs = nnx.Rngs(0, params=1, noise=2, rest=3)
    made = nnx.with_rngs(rngs, split={"params": 2}, broadcast={"noise": 4}, fork="default")
    assert made.params.key.shape == (2,) and made.noise.key.shape == (4,) and made.rest.key is rngs.rest.key
    assert made.default.key is not rngs.default.key and (made.noise.key.value[0] == made.noise.key.value[3]).all()
    shape = nnx.with_rngs(split=5, only="params")(lambda r: (r.params.key.shape, r.noise.key.shape))(rngs)
    assert shape == ((5,), ())


def test_nested_mappings_as_flat_ones_and_back():
    nested = {"a": {"b": 1, "c": {}}, "d": 2}
    flat = nnx.traversals.flatten_mapping(nested, keep_empty_nodes=True)
    assert flat == {("a", "b"): 1, ("a", "c"): nnx.traversals.empty_node, ("d",): 2}
    assert nnx.traversals.unflatten_mapping(flat) == nested
    assert nnx.traversals.flatten_mapping(nested, is_leaf=lambda path, x: len(path) == 1)["a",] == nested["a"]
    with pytest.raises(ArgumentTypeError, match=r"^flatten_mapping, argument xs: expected a mapping, got a list"):
        nnx.traversals.flatten_mapping([1])


def test_a_train_state_is_a_tree_that_steps():
    graphdef, params = nnx.split(nnx.Linear(2, 1, rngs=nnx.Rngs(0)))
    state = nnx.TrainState.create(graphdef, params=params, tx=optim.sgd(0.1))

    @phalanx.jit
    def step(state, x):
        loss, grads = phalanx.value_and_grad(lambda p: (state.apply(p)(x)[0] ** 2).mean())(state.params)
        return state.apply_gradients(grads), loss

    losses = []
    for _ in range(20):
        state, loss = step(state, jnp.ones((4, 2)))
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0] and int(state.step) == 20


def test_abstract_trees_know_their_shardings_where_there_is_a_mesh():
    tree = {"w": nnx.Param(jnp.ones((4, 2)), out_sharding=("x", None))}
    assert nnx.as_abstract(tree)["w"].value == phalanx.ShapeDtypeStruct((4, 2), np.float32)
    with phalanx.set_mesh(phalanx.make_mesh((2,), ("x",), (AxisType.Auto,))):
        assert nnx.as_abstract(tree)["w"].value.sharding.spec == P("x", None)


def test_a_prefix_made_of_a_module():
    model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    stacked = nnx.vmap(lambda rngs: nnx.BatchNorm(2, rngs=rngs))(nnx.Rngs(0).split(3))
    axes = nnx.prefix(model, {nnx.Param: 0, ...: None})
    by_path = nnx.prefix(model, lambda path, v: 0 if path[0] in ("scale", "bias") else None)
    assert axes == by_path
    for v in (stacked.mean, stacked.var):
        v.value = v.value[0]
    f = nnx.vmap(lambda m, x: m(x, use_running_average=True), in_axes=(axes, None))
    assert f(stacked, jnp.ones((1, 2))).shape == (3, 1, 2)


def test_instances_of_a_registered_class_are_data():
    class Box:
        def __init__(self, x):
            self.x = x

    assert not nnx.is_data(Box(1)) and nnx.has_data([1, jnp.ones(1)]) == [jnp.ones(1)]
    before = objects._array_types
    nnx.register_data_type(Box)
    try:
        assert nnx.is_data(Box(1)) and len(nnx.has_data([Box(1), 2])) == 1
    finally:
        objects._array_types = before


def test_partial_and_modes():
    w = nnx.Param(jnp.array(2.0))
    double = nnx.jit_partial(lambda w, x: w * x, w)
    w.value = jnp.array(3.0)
    with nnx.set_graph_mode(True), nnx.set_graph_updates(True):
        assert float(double(2.0)) == 6.0


@pytest.mark.parametrize("how", ["filters", "exact"])
def test_layers_run_on_shards_of_their_parameters_in_shard_map(how):
    """A tensor parallel block of library layers inside `shard_map`: each layer has its shard of the parameters."""
    mesh = phalanx.make_mesh((2, 4), ("data", "model"), (AxisType.Auto,) * 2)

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.up = nnx.Linear(6, 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs, axis_name="data")
            self.heads = nnx.LinearGeneral(16, (8, 2), use_bias=False, rngs=rngs)
            self.down = nnx.LinearGeneral((8, 2), 6, axis=(-2, -1), use_bias=False, rngs=rngs)

        def __call__(self, x, over=lambda y: y):
            y = self.heads(over(nnx.relu(self.norm(self.up(x)))))
            return self.down(y)

    model = Block(nnx.Rngs(0))
    x = phalanx.random.normal(phalanx.random.key(1), (4, 6))
    gather = lambda y: phalanx.lax.all_gather(y, "model", axis=1, tiled=True)
    specs = {
        ("up", "kernel"): P(None, "model"),
        ("up", "bias"): P("model"),
        ("heads", "kernel"): P(None, "model", None),
        ("down", "kernel"): P("model", None, None),
        **{("norm", n): P("model") for n in ("scale", "bias", "mean", "var")},
    }
    if how == "exact":
        prefix = nnx.StateSharding(nnx.State.from_flat_path(specs.items()))
    else:
        prefix = nnx.StateSharding({(lambda path, v, p=p: path == p): spec for p, spec in specs.items()})

    @nnx.jit
    @nnx.shard_map(mesh=mesh, in_specs=(prefix, P("data")), out_specs=P("data"))
    def parallel(model, x):
        return phalanx.lax.psum(model(x, over=gather), "model")

    whole = nnx.clone(model)
    whole.norm.axis_name = None
    assert np.allclose(parallel(model, x), whole(x), atol=1e-5)
    assert np.allclose(model.norm.mean.value, whole.norm.mean.value, atol=1e-6)


def test_children_are_variables_and_objects_and_module_children_are_modules():
    model = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    layer = model.layers[0]
    assert [name for name, _ in nnx.iter_children(layer)] == ["bias", "kernel"]
    assert list(nnx.iter_module_children(layer)) == []
    assert dict(nnx.iter_children(model.layers)) == dict(nnx.iter_module_children(model.layers)) == {0: layer}


def test_an_object_is_a_leaf_of_trees_and_a_node_of_graphs():
    class Counter(nnx.Object):
        def __init__(self):
            self.counts = [jnp.zeros(2)]

    counter = Counter()
    assert phalanx.tree.all_leaves([counter]) and not isinstance(nnx.Dropout(0.5), nnx.Object)
    nnx.jit(lambda c: c.counts.append(c.counts[0] + 1))(counter)
    assert [c.tolist() for c in counter.counts] == [[0, 0], [1, 1]]


def test_classes_may_be_annotated_with_the_type_of_their_model():
    assert nnx.TrainState[nnx.Linear] is nnx.TrainState and nnx.Optimizer[nnx.Linear] is nnx.Optimizer


def test_metadata_without_the_modes_of_the_variable():
    count = nnx.Variable(jnp.zeros(()), ref=True, unit="steps")
    assert count.get_metadata(exclude_required=True) == {"unit": "steps"} != count.get_metadata()


def test_an_optimizer_in_tree_mode_refuses_shared_variables():
    w = nnx.Param(jnp.ones(2))
    assert nnx.Optimizer(nnx.Dict(a=w), optim.sgd(0.1), wrt=nnx.Param, graph=False).graph is False
    with pytest.raises(ArgumentError, match="the Param at .* again"):
        nnx.Optimizer(nnx.Dict(a=w, b=w), optim.sgd(0.1), wrt=nnx.Param, graph=False)


def test_filterlib_has_the_filters_of_nnx():
    names = "Any All Not Everything Nothing OfType PathContains PathIn WithTag"
    assert all(getattr(nnx.filterlib, name) is getattr(nnx, name) for name in names.split() if hasattr(nnx, name))
    either = nnx.filterlib.Any(nnx.Param, "x")
    assert repr(either) == "Any(OfType(Param), WithTag('x'))" and either(("w",), nnx.Param(1.0))
