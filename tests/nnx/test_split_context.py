"""Splitting and merging modules that share values, and updating the modules that were split."""

import copy
import pickle

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError


class Counter(nnx.Module):
    def __init__(self):
        self.n = nnx.Variable(jnp.zeros((), "int32"))
        self.kind = "new"


class Pair(nnx.Module):
    def __init__(self):
        self.a = Counter()
        self.b = self.a


def test_changes_of_a_copy_inside_a_compiled_function_reach_the_original():
    model = Pair()
    a, n = model.a, model.a.n

    @phalanx.jit
    def step(graphdef, state):
        with nnx.merge_context("step", inner=True) as ctx:
            copy = ctx.merge(graphdef, state)
        copy.a.n.value += 1
        copy.a.kind = "changed"
        copy.c = Counter()
        copy.again = copy
        with nnx.split_context("step") as ctx:
            return ctx.split(copy)

    with nnx.update_context("step"):
        with nnx.split_context("step") as ctx:
            parts = ctx.split(model)
        parts = step(*parts)
        with nnx.merge_context("step", inner=False) as ctx:
            updated = ctx.merge(*parts)
    assert updated is model and model.a is a is model.b and a.n is n
    assert int(n.value) == 1 and a.kind == "changed" and model.c.kind == "new" and model.again is model


def test_attributes_that_swap_places_are_swapped_in_the_original():
    model = nnx.Dict(a=nnx.Param(1.0), b=nnx.data(2.0))
    with nnx.update_context("swap"):
        with nnx.split_context("swap") as ctx:
            first, second = ctx.split(model), ctx.split(model)
        with nnx.merge_context("swap", inner=True) as ctx:
            inner, same = ctx.merge(*first), ctx.merge(*second)
        assert inner is same and inner is not model
        inner.a, inner.b = nnx.data(inner.b), inner.a
        with nnx.split_context("swap") as ctx:
            parts = ctx.split(inner)
        with nnx.merge_context("swap", inner=False) as ctx:
            assert ctx.merge(*parts) is model
    assert model.a == 2.0 and model.b.value == 1.0


def test_contexts_of_other_tags_and_unfit_arguments_raise_errors():
    with pytest.raises(ArgumentError) as error:
        nnx.current_update_context("absent")
    assert str(error.value) == (
        "nnx.current_update_context, argument tag: expected one of the open contexts, [], got 'absent'.\n"
        "  Fix: open it with nnx.update_context('absent')."
    )
    with nnx.update_context("here") as context, pytest.raises(ArgumentError, match="inner=True or inner=False"):
        assert nnx.current_update_context("here") is context
        nnx.merge_context("here").__enter__()


def test_unpacked_states_contain_their_structure():
    model = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    params, rest = nnx.unpack(model, nnx.Param, ...)
    assert isinstance(params, nnx.GraphState) and set(params) == {"scale", "bias"} and len(rest) == 2
    merged = nnx.merge(phalanx.tree.map(lambda x: x + 1, params), rest)
    assert merged.scale.value.tolist() == [2, 2, 2] and merged.mean is model.mean
    whole = nnx.unpack(model)
    del whole["scale"]
    whole["scale"] = nnx.Param(jnp.zeros(3))
    whole.bias = nnx.Param(jnp.ones(3))
    assert whole.scale.sum() == 0 and nnx.merge(whole).bias.sum() == 3
    assert repr(nnx.unpack(nnx.State({"n": 1}))) == (
        "GraphState(\n  _graphdef=GraphDef(tree, 0 variables, 0 arrays),\n  _state=State({})\n)"
    )
    for made in (pickle.loads(pickle.dumps(nnx.unpack([nnx.Param(1.0)]))), copy.deepcopy(nnx.unpack([nnx.Param(1.0)]))):
        assert nnx.merge(made)[0].value == 1.0


def test_node_states_are_pytrees_of_their_states():
    parts = nnx.NodeStates.from_split(*nnx.split([nnx.Param(1.0), nnx.Cache(2.0)], nnx.Param, ...), metadata="x")
    doubled = phalanx.tree.map(lambda x: 2 * x, parts)
    assert nnx.merge(doubled.graphdef, *doubled.states)[1].value == 4.0 and doubled.metadata == "x"
    with pytest.raises(ArgumentError, match="expected one state, got 2 states"):
        parts.state
    prefix = nnx.NodeStates.from_prefixes((0, None), metadata="x")
    with pytest.raises(ArgumentError, match="expected a structure, got states only"):
        prefix.graphdef
    assert nnx.NodeStates.from_states({}).state == {}


def test_structures_list_their_nodes_and_name_the_class_of_the_module():
    graphdef = nnx.graphdef(Pair())
    kinds = [type(d) for d in graphdef.nodes]
    assert kinds == [nnx.graphlib.NodeDef, nnx.graphlib.NodeDef, nnx.graphlib.VariableDef, nnx.graphlib.NodeRef]
    assert nnx.GraphDef[Pair] is nnx.GraphDef


def test_a_structure_made_in_tree_mode_has_one_node_with_the_paths_of_its_leaves():
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(model, graph=False)
    (node,) = graphdef.nodes
    assert isinstance(node, nnx.graphlib.TreeNodeDef) and node.path_index == ((("bias",), 0), (("kernel",), 1))
    assert graphdef is nnx.graphdef(model, graph=False) is not nnx.graphdef(model)
    assert pickle.loads(pickle.dumps(graphdef)) is graphdef
    assert nnx.merge(graphdef, state).kernel is model.kernel


def test_compat_functions_preserve_shared_references():
    model = Pair()
    assert len(nnx.compat.state(model)) == 1

    @nnx.compat.jit
    def step(model):
        model.b.n.value += 1

    step(model)
    assert int(model.a.n) == 1
    with pytest.raises(AttributeError, match="no attribute 'sin'"):
        nnx.compat.sin
