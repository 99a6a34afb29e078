"""Split and merge of graphs with shared references and cycles, and caching of the traversal."""

import copy

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.core.error_classes import ArgumentError, ShapeError, TreeError
from phalanx.nnx.graphlib import graph_walk


class Layer(nnx.Module):
    def __init__(self, size, rngs):
        self.w = nnx.Param(rngs.params.normal((size, size)))
        self.b = nnx.Param(jnp.zeros(size))
        self.size = size

    def __call__(self, x):
        return x @ self.w + self.b


class Model(nnx.Module):
    def __init__(self, depth=2, rngs=None):
        rngs = rngs or nnx.Rngs(0)
        self.layers = [Layer(3, rngs) for _ in range(depth)]
        self.named = {"first": self.layers[0], "pair": (nnx.Cache(jnp.ones(2)), 3)}
        self.count = nnx.BatchStat(jnp.array(0))
        self.table = jnp.arange(3.0)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


PATHS = [
    ("count",),
    ("layers", 0, "b"),
    ("layers", 0, "w"),
    ("layers", 1, "b"),
    ("layers", 1, "w"),
    ("named", "pair", 0),
    ("table",),
]


def test_a_state_has_each_variable_and_array_once():
    assert nnx.state(Model()).flat_state().paths == PATHS


def test_merge_inverts_split():
    model = Model()
    graphdef, state = nnx.split(model)
    again = nnx.merge(graphdef, state, copy=True)
    assert again.named["first"] is again.layers[0] and again.layers[0] is not model.layers[0]
    assert again.layers[0].w is not model.layers[0].w and again.named["pair"][1] == 3
    x = jnp.ones(3)
    assert (again(x) == model(x)).all()
    assert type(again.layers) is list


def test_a_split_shares_its_variables():
    model = Model()
    graphdef, state = nnx.split(model)
    assert state.count is model.count and nnx.merge(graphdef, state).count is model.count


def test_cycles_are_kept():
    class Node(nnx.Module):
        def __init__(self):
            self.me, self.w = self, nnx.Param(1.0)

    graphdef, state = nnx.split(Node())
    again = nnx.merge(graphdef, state)
    assert again.me is again and state.flat_state().paths == [("w",)]


def test_definitions_are_interned():
    assert nnx.graphdef(Model()) is nnx.graphdef(Model())
    assert nnx.graphdef(Model(3)) is not nnx.graphdef(Model(2))
    assert phalanx.tree.leaves(nnx.graphdef(Model())) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "extra", 1),
        lambda m: setattr(m.layers[1], "size", 4),
        lambda m: setattr(m.layers[1], "size", 3.0),
        lambda m: delattr(m.layers[0], "b"),
        lambda m: m.layers.append(Layer(3, nnx.Rngs(1))),
        lambda m: m.layers.reverse() or setattr(m.layers[0], "size", 5),
        lambda m: m.named.update(other=nnx.Param(1.0)),
        lambda m: m.count.set_metadata(unit="steps"),
        lambda m: nnx.pop(m, nnx.Cache),
        lambda m: setattr(m.layers[1], "b", m.layers[0].b),
    ],
)
def test_a_structural_change_changes_the_definition(change):
    model = Model()
    before = nnx.graphdef(model)
    change(model)
    assert nnx.graphdef(model) is not before


def test_an_unchanged_module_is_not_traversed_again(monkeypatch):
    model = Model()
    before = nnx.graphdef(model)
    monkeypatch.setattr(graph_walk.Walk, "_object", lambda *_: pytest.fail("walked"))
    model.count.value += 1
    model.table = model.table + 1
    model.layers[0].w.value = jnp.zeros((3, 3))
    assert nnx.graphdef(model) is before
    assert nnx.state(model).table.tolist() == [1, 2, 3]


def test_another_modules_change_does_not_make_a_walk(monkeypatch):
    model, other = Model(), Model()
    before = nnx.graphdef(model), nnx.graphdef(other)
    other.extra = 1
    monkeypatch.setattr(graph_walk.Walk, "_object", lambda *_: pytest.fail("walked"))
    assert nnx.graphdef(model) is before[0]


def test_a_discarded_module_is_freed_at_once():
    import gc
    import weakref

    gc.disable()
    try:
        model = Layer(3, nnx.Rngs(0))
        nnx.graphdef(model)
        seen = weakref.ref(model)
        del model
        assert seen() is None
    finally:
        gc.enable()


def test_a_module_that_holds_a_function_of_itself_is_freed():
    import gc
    import weakref

    model = Layer(3, nnx.Rngs(0))
    model.act = lambda x: model_of[0](x) if model_of else x
    model.again = lambda x, model=model: model(x)
    model_of = []
    nnx.graphdef(model)
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None


def test_filters_sort_the_leaves():
    model = Model()
    _, params, arrays, rest = nnx.split(model, nnx.Param, lambda path, x: not isinstance(x, nnx.Variable), ...)
    assert params.flat_state().paths == PATHS[1:5]
    assert (list(arrays), sorted(rest)) == (["table"], ["count", "named"])
    assert nnx.state(model, nnx.PathContains("named")).flat_state().paths == [("named", "pair", 0)]
    assert len(nnx.state(model, nnx.All(nnx.Param, nnx.Not(nnx.PathContains("w")))).flat_state()) == 2
    assert len(nnx.state(model, (nnx.BatchStat, nnx.Cache)).flat_state()) == 2
    assert nnx.state(model, "dropout") == nnx.State({})


def test_a_leaf_that_no_filter_matches_raises_an_error():
    with pytest.raises(ArgumentError) as error:
        nnx.split(Model(), nnx.Param)
    assert str(error.value) == (
        "split, count: expected a filter that matches it, got a BatchStat, which none of OfType(Param) matches.\n"
        "  Fix: add the filter nnx.BatchStat, or `...` as the last filter to match all other leaves."
    )


def test_a_filter_that_matches_everything_must_be_last():
    with pytest.raises(ArgumentError) as error:
        nnx.split(Model(), ..., nnx.Param)
    assert "split, filter 0: expected `...` as the last filter only" in str(error.value)


def test_update_sets_values_and_refuses_other_shapes():
    model = Model()
    nnx.update(model, {"count": jnp.array(7), "table": jnp.zeros(3)})
    assert int(model.count.value) == 7 and model.table.tolist() == [0, 0, 0]
    doubled = phalanx.tree.map(lambda x: x * 2, nnx.state(model, nnx.BatchStat))
    nnx.update(model, doubled)
    assert int(model.count.value) == 14 and model.count is not doubled.count
    with pytest.raises(ShapeError) as error:
        nnx.update(model, {"layers": {0: {"w": jnp.zeros(4)}}})
    assert str(error.value) == (
        "update, layers[0].w: expected a value of shape (3, 3), got a value of shape (4,).\n"
        "  Fix: pass the state of a module of the same sizes, or assign to variable.value to change the shape."
    )
    with pytest.raises(TreeError, match=r"^update, cuont: expected a path of the module"):
        nnx.update(model, {"cuont": jnp.array(1)})


def test_merging_an_incomplete_state_names_the_missing_paths():
    graphdef, params, rest = nnx.split(Model(), nnx.Param, ...)
    with pytest.raises(TreeError, match=r"got no leaf at count, named\.pair\[0\], table"):
        nnx.merge(graphdef, params)
    with pytest.raises(TreeError, match=r"got additional leaves at layers\[0\]\.b"):
        nnx.merge(nnx.graphdef(nnx.List()), params)


def test_leaves_are_merged_as_they_are_or_as_a_list():
    model = nnx.Dict(w=nnx.Param(jnp.ones(2)), n=jnp.zeros(3), last=nnx.BatchStat(jnp.ones(1)))
    graphdef, state = nnx.split(model)
    values = nnx.as_pure(state)
    assert type(nnx.merge(graphdef, values).w) is nnx.Param
    assert nnx.merge(graphdef, values, recreate_variables=False).w is values["w"]
    assert nnx.merge(graphdef, state, recreate_variables=False).w is model.w
    for graph in (True, False):
        graphdef, leaves = nnx.graphlib.flatten(model, with_paths=False, graph=graph)
        again = nnx.graphlib.unflatten(graphdef, leaves)
        assert again.w is model.w and again.n is model.n and again.last is model.last
        copied = nnx.graphlib.unflatten(graphdef, leaves, copy_variables=True)
        assert copied.w is not model.w and copied.w.value is model.w.value
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        nnx.graphlib.unflatten(graphdef, leaves[1:])


def test_merging_overlapping_states_names_their_paths():
    graphdef, state = nnx.split(nnx.Dict(a=nnx.Param(1.0), b=nnx.Param(2.0)))
    with pytest.raises(TreeError) as error:
        nnx.merge(graphdef, state, nnx.filter_state(state, nnx.PathContains("b")))
    assert str(error.value) == (
        "merge: expected each leaf in one of the states, got several values of b.\n"
        "  Fix: pass the states of one nnx.split, or join overlapping states with nnx.merge_state."
    )


def test_clones_share_nothing_or_only_variables():
    model = Model()
    assert nnx.clone(model).count is not model.count
    shared = nnx.clone(model, variables=False)
    assert shared.count is model.count and shared.layers is not model.layers


def test_pop_removes_every_reference():
    model = Model()
    model.again = model.count
    popped = nnx.pop(model, nnx.BatchStat)
    assert list(popped) == ["again"] and not hasattr(model, "count") and not hasattr(model, "again")
    with pytest.raises(ArgumentError, match="at least one filter"):
        nnx.pop(model)


def test_iteration_meets_everything_once():
    model = Model()
    assert [p for p, _ in nnx.iter_modules(model)] == [("layers", 0), ("layers", 1), ()]
    variables = [p for p, x in nnx.iter_graph(model) if isinstance(x, nnx.Variable)]
    assert variables == PATHS[:6]
    assert nnx.find_duplicates(model) == [[("layers", 0), ("named", "first")]]


def test_views_differ_in_attributes_only():
    class Mode(nnx.Module):
        def __init__(self):
            self.deterministic, self.w = False, nnx.Param(1.0)

    model = {"a": Mode()}
    seen = nnx.with_attributes(model, deterministic=True)
    assert (seen["a"].deterministic, model["a"].deterministic) == (True, False) and seen["a"].w is model["a"].w
    model["a"].eval()
    assert model["a"].deterministic
    model["a"].train()
    assert not model["a"].deterministic
    with pytest.raises(ArgumentError, match="attributes of some module, got rate"):
        model["a"].set_attributes(rate=0.5)


def test_marks_make_attributes_data_or_static():
    class Marked(nnx.Module):
        low: nnx.Data[float]

        def __init__(self):
            self.low = 1.0
            self.scale = nnx.data(2.0)
            self.table = nnx.static(np.ones(2))

    graphdef, state = nnx.split(Marked())
    assert nnx.to_pure_dict(state) == {"low": 1.0, "scale": 2.0}
    again = nnx.merge(graphdef, {"low": 3.0, "scale": 4.0})
    assert (again.low, again.scale, again.table.tolist()) == (3.0, 4.0, [1.0, 1.0])


def test_modules_and_states_are_pytrees():
    model = Layer(2, nnx.Rngs(0))
    doubled = phalanx.tree.map(lambda x: x * 2, model)
    assert type(doubled) is Layer and (doubled.w.value == model.w.value * 2).all() and doubled.size == 2
    out = phalanx.jit(lambda m, x: m(x))(model, jnp.ones(2))
    assert jnp.allclose(out, model(jnp.ones(2)))
    state = nnx.state(model)
    assert [phalanx.tree_util.keystr(p) for p, _ in phalanx.tree.leaves_with_path(state)] == [
        "['b'].value",
        "['w'].value",
    ]


def test_modules_are_copied_and_called_through_their_state():
    model = Model()
    twin = copy.deepcopy(model)
    assert twin.layers[0] is twin.named["first"] and twin.layers[0].w is not model.layers[0].w
    (y, (_, state)) = nnx.call(nnx.split(model))(jnp.ones(3))
    assert jnp.allclose(y, model(jnp.ones(3))) and state.count is not model.count
    mapped = nnx.map(lambda path, x: x * 0 if path[-1] == "w" else x, model)
    assert (mapped.layers[0].w.value == 0).all() and mapped.named["first"] is mapped.layers[0]


def test_states_are_nested_mappings():
    state = nnx.State({"a": {"b": nnx.Param(1.0), "c": nnx.Cache(2.0)}, "d": 3.0})
    params, rest = state.split(nnx.Param, ...)
    assert nnx.merge_state(params, rest).flat_state().paths == state.flat_state().paths
    assert (state - params).flat_state().paths == [("a", "c"), ("d",)] and (params | rest) == state
    state.a.b = nnx.Param(5.0)
    state["e"] = {"f": 1.0}
    assert nnx.to_pure_dict(state) == {"a": {"b": 5.0, "c": 2.0}, "d": 3.0, "e": {"f": 1.0}}
    state.replace_by_pure_dict({"a": {"b": 6.0}})
    assert state.a.b.value == 6.0
    with pytest.raises(AttributeError, match="the state has no 'z'; it has"):
        state.z
    with pytest.raises(TreeError, match=r"replace_by_pure_dict, a\.q"):
        state.replace_by_pure_dict({"a": {"q": 1}})


def test_a_variable_is_split_by_filters_and_merged():
    v = nnx.Param(jnp.array(1.0))
    graphdef, stats, params, rest = nnx.split(v, nnx.BatchStat, nnx.Param, ...)
    assert params is v and not stats and not rest
    assert nnx.merge(graphdef, stats, params, rest) is v
    nnx.update(v, stats, params.replace(jnp.array(2.0)), rest)
    assert float(v.value) == 2.0


def test_attributes_set_through_vars_are_seen():
    class Model(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.array(1.0))

    model = Model()
    total = nnx.jit(lambda m: sum(v.value for _, v in nnx.to_flat_state(nnx.state(m))))
    for _ in range(3):
        assert float(total(model)) == 1.0
    before = nnx.graphdef(model)
    vars(model)["b"] = nnx.Param(jnp.array(10.0))
    assert list(nnx.state(model)) == ["b", "w"] and float(total(model)) == 11.0
    model.__dict__["w"] = nnx.Param(jnp.array(2.0))
    assert float(total(model)) == 12.0
    del vars(model)["b"]
    assert nnx.graphdef(model) is before and float(total(model)) == 2.0

    @nnx.jit
    def add(m):
        vars(m)["c"] = nnx.Param(jnp.array(5.0))

    add(model)
    assert float(model.c.value) == 5.0
