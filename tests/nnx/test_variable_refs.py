"""Variables in mutable references, which plain transformations change, and the graphs of references."""

import copy
import functools
import pickle

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.errors import ArgumentError, RefError


class Foo(nnx.Module):
    def __init__(self):
        self.a, self.b = nnx.Param(1.0), nnx.BatchStat(2.0)


@pytest.mark.parametrize("mode", [{"hijax": True}, {"ref": True}, {"hijax": True, "ref": True}])
def test_plain_transformations_change_variables_in_references(mode):
    v = nnx.Variable(jnp.array(3.0), **mode)
    assert (v.hijax, v.ref) == (mode.get("hijax", False), mode.get("ref", False))
    assert isinstance(v.get_raw_value(), phalanx.Ref) == v.ref
    assert isinstance(v, nnx.variablelib.HijaxVariable) == v.hijax

    @phalanx.jit
    def add(v, x):
        v[...] += x
        return v + 1

    assert float(add(v, 2.0)) == 6.0 and float(v.value) == 5.0
    phalanx.lax.scan(lambda c, x: (c, v.set_value(v.value + 1)), None, length=3)
    assert float(v.value) == 8.0

    def loss(x):
        v.value = phalanx.lax.stop_gradient(3 * x)
        return x**2 + v.value

    assert float(phalanx.grad(loss)(4.0)) == 8.0 and float(v.value) == 12.0
    nnx.jit(lambda v: v.set_value(v.value + 1))(v)
    assert float(v.value) == 13.0


def test_trees_in_references_keep_their_structure_inside_of_transformations():
    v = nnx.Variable({"a": jnp.array(0), "b": jnp.array(2)}, hijax=True)
    phalanx.jit(lambda v: v.__setitem__("a", v["a"] + 1))(v)
    assert {k: int(x) for k, x in v.value.items()} == {"a": 1, "b": 2}
    with pytest.raises(RefError) as error:
        phalanx.jit(lambda v: v.__setitem__("c", 1))(v)
    assert str(error.value) == (
        "Variable, setting its value: expected a value of the structure PyTreeDef({'a': *, 'b': *}), since callers see "
        "changes of its arrays only, got the structure PyTreeDef({'a': *, 'b': *, 'c': *}).\n  Fix: create all entries "
        "before the transformation, or pass the variable to the nnx transformation without hijax=True and ref=True."
    )
    v["c"] = jnp.ones(3)
    assert v["c"].shape == (3,) and v.hijax


def test_copies_have_references_of_their_own():
    v = nnx.Param(jnp.array(1.0), ref=True)
    copies = [v.copy(), copy.deepcopy(v), pickle.loads(pickle.dumps(v)), nnx.clone([v])[0], nnx.Param(v, ref=True)]
    copies.append(nnx.merge(*nnx.split([v]), copy=True)[0])
    v.value = 2.0
    assert [float(c.value) for c in copies] == [1.0] * 6 and all(c.ref for c in copies)
    made = nnx.jit(lambda: nnx.Param(jnp.zeros(2), hijax=True))()
    assert made.hijax and made.value.tolist() == [0.0, 0.0]
    assert repr(v) == "Param( # 1 (4 B)\n  value=Array(2., dtype=float32),\n  ref=True\n)"
    v.set_metadata(ref=False)
    assert isinstance(v.raw_value, phalanx.Array) and float(v.value) == 2.0


def test_with_vars_changes_the_modes_of_some_variables():
    first = nnx.with_vars(Foo(), hijax=True, ref=True)
    second = nnx.with_vars(first, hijax=False, only=nnx.BatchStat)
    assert second.a is first.a and second.b.ref and not second.b.hijax
    assert nnx.vars_as(nnx.state(first), ref=False)["a"].ref is False
    w = nnx.Param(1.0)
    with pytest.raises(ArgumentError) as error:
        nnx.with_vars({"a": w, "b": [w]}, ref=True)
    assert str(error.value) == (
        "with_vars: expected each variable that is changed once, got the same variable at a and b[0].\n"
        "  Fix: pass allow_duplicates=True, which keeps it shared."
    )
    shared = nnx.with_vars({"a": w, "b": [w]}, ref=True, allow_duplicates=True)
    assert shared["a"] is shared["b"][0] and shared["a"].ref


def test_defaults_hold_for_variables_that_layers_create():
    with nnx.var_defaults(hijax=True):
        rngs = nnx.Rngs(0)
        with nnx.var_defaults(ref=True, hijax=False):
            assert dict(nnx.var_defaults()) == {"hijax": False, "ref": True}
        assert not nnx.Param(1.0, hijax=False).hijax
    draw = phalanx.jit(lambda rngs: rngs())
    assert bool(draw(rngs) != draw(rngs)) and int(rngs.default.count.value) == 2


def test_references_outside_of_variables_are_shared_leaves():
    class Counter(nnx.Module):
        def __init__(self):
            self.a = phalanx.new_ref(1)
            self.b = self.a

    model = Counter()
    graphdef, state = nnx.split(model)
    assert len(state) == 1
    merged = nnx.merge(graphdef, nnx.graphlib.flatten(model)[1])
    assert merged.a is merged.b is model.a
    ref = phalanx.new_ref(1)
    assert nnx.split(ref)[1] is ref and nnx.merge(*nnx.split(ref)) is ref

    @nnx.jit
    def step(model):
        model.a[...] += 1
        made = Counter()
        return model, made

    same, made = step(model)
    assert same is model and int(model.a[...]) == 2 and made.a is made.b and int(made.a[...]) == 1


def test_programs_flatten_and_build_graphs_with_numbers_of_their_own():
    model, numbers = Foo(), nnx.graphlib.RefMap()
    a, b = model.a, model.b
    graphdef, state = nnx.graphlib.flatten(model, ref_index=numbers)
    assert len(numbers) == 3 and model in numbers and nnx.Param(1.0) not in numbers

    @functools.partial(phalanx.jit, static_argnums=0)
    def swap(graphdef, state):
        built = nnx.graphlib.IndexMap()
        inner = nnx.graphlib.unflatten(graphdef, state, index_ref=built)
        inner.a, inner.b = inner.b, inner.a
        outer = nnx.graphlib.RefMap.from_indexmap(built)
        graphdef, state = nnx.graphlib.flatten(inner, ref_index=nnx.graphlib.RefMap(), ref_outer_index=outer)
        return graphdef, state.to_nested_state()

    originals = nnx.graphlib.IndexMap.from_refmap(numbers)
    again = nnx.graphlib.unflatten(*swap(graphdef, state.to_nested_state()), outer_index_outer_ref=originals)
    assert again is model and model.a is b and model.b is a
    _, leaves = nnx.graphlib.flatten([model.a, {"again": model}], ref_index=numbers, with_paths=False)
    assert leaves == []
    path, leaf = state[0]
    assert path == ("a",) and leaf is a and len(state[1:]) == 1


def test_arrays_outside_of_variables_are_popped_updated_mapped_and_optimized():
    node = {"a": {"b": jnp.array(1), "c": nnx.Param(jnp.array(2)), "d": 3}}
    popped = nnx.pop(node, lambda path, x: path[-1] == "b")
    assert int(popped["a"]["b"]) == 1 and sorted(node["a"]) == ["c", "d"]
    nnx.update(node, {"a": {"d": 4}})
    assert node["a"]["d"] == 4
    assert nnx.map(lambda path, x: 0, node["a"], recreate_variables=False)["c"] == 0

    class Model(nnx.Module):
        def __init__(self):
            self.w = jnp.ones(2)

    model = Model()
    optimizer = nnx.Optimizer(model, optim.sgd(0.5), wrt=lambda path, x: path[-1] == "w")
    optimizer.update(model, nnx.State({"w": jnp.ones(2)}))
    assert model.w.tolist() == [0.5, 0.5]
    # A module of dimensions has the structure of the module that it was made of.
    axes = nnx.prefix(model, {...: 0}, graph=False)
    assert phalanx.vmap(lambda m: 2 * m.w, in_axes=(axes,))(model).tolist() == [1.0, 1.0]
    assert phalanx.tree.structure(axes) == phalanx.tree.structure(model)


def test_references_inside_variables_have_numbers_of_their_own():
    v = nnx.Param(jnp.array(1.0), ref=True)
    numbers = nnx.graphlib.RefMap()
    graphdef, state = nnx.graphlib.flatten({"a": v, "b": v}, ref_index=numbers)
    assert len(state) == 1 and len(numbers) == 2 and numbers[v.get_raw_value()] == 2
    merged = nnx.graphlib.unflatten(graphdef, state)
    assert merged["a"] is merged["b"]
    nnx.graphlib.flatten(nnx.Param(2.0), ref_index=numbers)
    assert sorted(numbers.values()) == [1, 2, 3]
