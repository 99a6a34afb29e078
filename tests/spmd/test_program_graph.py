"""The flat graph of a program: inlined calls, opened loops and branches, and the dimensions that they tie."""

from __future__ import annotations

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.spmd.program_graph import build_graph


def graph_of(f, *shapes):
    return build_graph(phalanx.make_jaxpr(f)(*(phalanx.ShapeDtypeStruct(s, "float32") for s in shapes)))


def operations(graph):
    return [(o.eqn.primitive.name, o.trips) for o in graph.operations if o.eqn is not None]


def classes(graph, value):
    return [graph.dims.find((value, d)) for d in range(len(value.shape))]


def test_calls_are_inlined():
    @phalanx.custom_jvp
    def inner(x):
        return jnp.sin(x)

    inner.defjvps(lambda x_dot, y, x: x_dot)
    graph = graph_of(lambda x: phalanx.jit(phalanx.checkpoint(lambda x: inner(x) + 1.0))(x), (4,))
    assert operations(graph) == [("sin", 1), ("add", 1)]
    assert graph.operations[1].operands[0] is graph.operations[0].results[0]
    assert graph.operations[1].operands[1] is None  # the literal
    assert graph.outputs == list(graph.operations[1].results)


def test_a_loop_is_opened_once_with_its_trips():
    def f(x, ws):
        return lax.scan(lambda x, w: (lax.scan(lambda c, _: (c @ w, None), x, None, 3)[0], jnp.sum(x, 1)), x, ws)

    graph = graph_of(f, (8, 4), (5, 4, 4))
    assert operations(graph) == [("dot_general", 15), ("reduce_sum", 5)]
    x, ws = graph.inputs
    dot, ys = next(o for o in graph.operations if o.eqn is not None), graph.outputs[1]
    # The rows of the stacked operand are read, and those of the stacked result written; iterations cannot be split.
    assert classes(graph, ws)[1:] == classes(graph, dot.operands[1])
    assert {(ws, 0), (ys, 0)} <= set(graph.unsplit)
    # What a loop carries has one sharding in every iteration; the initial value may have another.
    assert classes(graph, dot.operands[0]) == classes(graph, dot.results[0]) != classes(graph, x)
    assert {(v, n) for v, n in graph.stacks if v is ws} == {(ws, 0), (ws, len(graph.operations) - 2)}


def test_branches_agree_with_the_result():
    graph = graph_of(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x * 2, x), (4, 6))
    branches = [o for o in graph.operations if o.eqn is not None and o.eqn.primitive.name in ("sin", "mul")]
    for o in branches:
        assert classes(graph, o.results[0]) == classes(graph, graph.outputs[0])


def test_while_loops_tie_what_they_carry():
    graph = graph_of(lambda x: lax.while_loop(lambda x: jnp.sum(x) < 9, lambda x: x * 2, x), (4,))
    assert sorted(operations(graph)) == [("lt", 1), ("mul", 1), ("reduce_sum", 1)]
    mul = next(o for o in graph.operations if o.eqn is not None and o.eqn.primitive.name == "mul")
    assert classes(graph, mul.operands[0]) == classes(graph, mul.results[0])


def test_values_of_variables_are_found_again():
    layer = phalanx.jit(lambda x: jnp.tanh(x))
    jaxpr = phalanx.make_jaxpr(lambda x: layer(layer(x)))(jnp.ones(3))
    graph = build_graph(jaxpr)
    (tanh,) = jaxpr.eqns[0].params["jaxpr"].eqns
    assert len(graph.bound[tanh.outvars[0]]) == 2  # one for each call
    assert [v.bytes for v in graph.bound[tanh.outvars[0]]] == [12, 12]
