"""Errors about modules name the path of the variable and the line that created it. The full text is asserted."""

import re

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, optim
from phalanx.errors import ArgumentError, ShapeError, TraceContextError, TreeError, UnexpectedTracerError
from phalanx.sharding import AxisType, PartitionSpec as P


class Block(nnx.Module):
    def __init__(self, rngs):
        self.kernel = nnx.Param(jnp.ones((8, 2)))
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(x @ self.kernel)


class Model(nnx.Module):
    def __init__(self, rngs=None):
        self.blocks = [Block(rngs or nnx.Rngs(0))]
        self.calls = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x):
        return self.blocks[0](x)


x = jnp.ones((1, 8))
SAME = "expected the same value on all paths to a shared variable"


def refused(error, text, run):
    """Assert the text of an error, with line numbers of this file replaced by 0, and that it ends with a remedy."""
    with pytest.raises(error) as caught:
        run()
    said, _, fix = str(caught.value).partition("\n  Fix: ")
    assert re.sub(r"at \S*test_nnx_error_messages\.py:\d+(:\d+)?", "at 0", said) == text + "."
    assert fix


def scan_of(m, b):
    return nnx.scan(lambda m, b: (b, 0), in_axes=(0, nnx.Carry), out_axes=(nnx.Carry, 0))(m, b)


def shard_map_of(m, b):
    mesh = phalanx.make_mesh((8,), ("x",), (AxisType.Auto,))
    return nnx.shard_map(lambda m, b: 0, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())(m, b)


def jit_of(m, b):
    spread = nnx.StateSharding({nnx.PathContains("kernel"): P("x"), ...: None})
    return nnx.jit(lambda m, b: 0, in_shardings=(spread, None))(m, b)


@pytest.mark.parametrize(
    ("transformed", "where", "first", "second"),
    [
        (lambda m, b: nnx.vmap(lambda m, b: 0, in_axes=(0, None))(m, b), "vmap, in_axes", 0, None),
        (lambda m, b: nnx.pmap(lambda m, b: 0, in_axes=(0, None))(m, b), "pmap, in_axes", 0, None),
        (scan_of, "scan, in_axes", 0, nnx.Carry),
        (shard_map_of, "shard_map, in_specs", P(), P("x")),
        (jit_of, "jit, in_shardings", P("x"), None),
    ],
)
def test_one_variable_under_two_prefixes(transformed, where, first, second):
    model = Model()
    model.blocks[0].drop.rngs = None
    got = f"got {first!r} for blocks[0].kernel of module 0 and {second!r} for kernel of module 1"
    refused(ArgumentError, f"{where}, Param: {SAME}, {got}", lambda: transformed(model, model.blocks[0]))


def test_one_variable_that_is_and_is_not_differentiated():
    model = Model()
    refused(
        ArgumentError,
        "grad, Param kernel: expected a variable that is differentiated in all arguments that contain it, or in none, got one that is "
        "differentiated in argument 0 and not in argument 1",
        lambda: nnx.grad(lambda m, b: m(x).sum())(model, model.blocks[0]),
    )


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            lambda m: nnx.vmap(lambda m: 0, in_axes=(nnx.StateAxes({nnx.PathContains("krenel"): 0, ...: None}),))(m),
            "vmap, in_axes, filter PathContains('krenel'): expected a filter that matches at least one variable, got none",
        ),
        (
            lambda m: nnx.vmap(lambda m: 0, in_axes=(nnx.StateAxes({nnx.Param: 0, nnx.BatchStat: None}),))(m),
            "vmap, in_axes, blocks[0].drop.rngs.count: expected a filter that matches it, got a RngCount, which none of "
            "OfType(Param), OfType(BatchStat) matches",
        ),
        (
            lambda m: nnx.grad(lambda m: m(x).sum(), argnums=nnx.DiffState(0, nnx.LoRAParam))(m),
            "grad, argument 0: expected variables that OfType(LoRAParam) matches, got none",
        ),
        (
            lambda m: nnx.Optimizer(m, optim.sgd(0.1), wrt=nnx.LoRAParam),
            "nnx.Optimizer, argument wrt: expected variables of the model that OfType(LoRAParam) matches, got none",
        ),
        (
            lambda m: nnx.split(m, nnx.Param, nnx.RngState),
            "split, calls: expected a filter that matches it, got a BatchStat, which none of OfType(Param), OfType(RngState) "
            "matches",
        ),
    ],
)
def test_filters_that_match_nothing_or_too_little_raise_an_error(run, text):
    refused(ArgumentError, text, lambda: run(Model()))


def test_streams_that_are_not_there():
    model = Model()
    model.streams = nnx.Rngs(params=0)
    text = "Rngs streams, stream 'noise': expected one of the streams ['params'], got 'noise'"
    refused(nnx.MissingStreamError, text, lambda: model.streams.noise())
    model.blocks[0].drop = nnx.Dropout(0.5)
    refused(
        ArgumentError,
        "nnx.Dropout blocks[0].drop, argument rngs: expected random streams with 'dropout', since deterministic is False, "
        "got None",
        lambda: model(x),
    )


def test_a_draw_from_streams_that_were_split():
    model = Model()
    nnx.split_rngs(model, splits=3)
    refused(
        ArgumentError,
        "RngStream blocks[0].drop.rngs, a draw from the stream 'default': expected a stream with one key, got a stream that was "
        "split into keys of shape (3,)",
        lambda: model(x),
    )


@pytest.mark.parametrize(
    ("error", "run", "text"),
    [
        (
            ShapeError,
            lambda m: nnx.update(m, {"blocks": {0: {"kernel": jnp.ones((3, 3))}}}),
            "update, blocks[0].kernel: expected a value of shape (8, 2), got a value of shape (3, 3)",
        ),
        (
            ShapeError,
            lambda m: nnx.replace_by_pure_dict(nnx.state(m), {"blocks": {"0": {"kernel": jnp.ones((3, 3))}}}),
            "replace_by_pure_dict, blocks[0].kernel: expected a value of shape (8, 2), got a value of shape (3, 3)",
        ),
        (
            TreeError,
            lambda m: nnx.update(m, {"blocks": {0: {"kernle": jnp.ones((8, 2))}}}),
            "update, blocks[0].kernle: expected a path of the module, got a path that it does not have",
        ),
        (
            TreeError,
            lambda m: nnx.merge(nnx.graphdef(m), nnx.state(m, nnx.Param)),
            "merge: expected a leaf for each of the 4 paths of GraphDef(Model, 4 variables, 0 arrays), got no leaf at "
            "blocks[0].drop.rngs.count, blocks[0].drop.rngs.key, calls",
        ),
        (
            TreeError,
            lambda m: nnx.Optimizer(m, optim.sgd(0.1), wrt=nnx.Param).update(
                m, nnx.State({"blocks": {0: {"kernel": nnx.Param(jnp.ones((3, 3)))}}})
            ),
            "nnx.Optimizer.update, argument grads, blocks[0].kernel: expected shape (8, 2), got shape (3, 3)",
        ),
    ],
)
def test_values_of_another_shape_or_place(error, run, text):
    refused(error, text, lambda: run(Model()))


@pytest.fixture(scope="module")
def leaked():
    """A model that was stored outside of the transformation that made its values."""
    held = []

    def keep(model):
        model.blocks[0].kernel.value *= 2
        held.append(model)
        return 0

    nnx.jit(keep)(Model())
    return held[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m(x),
        lambda m: m.blocks[0].kernel + 1,
        lambda m: nnx.jit(lambda m: m(x))(m.blocks[0]),
        lambda m: nnx.vmap(lambda m: m.kernel.sum())(m.blocks[0]),
        lambda m: nnx.grad(lambda m: m(x).sum())(m.blocks[0]),
    ],
)
def test_a_module_whose_trace_has_ended(leaked, use):
    said = "expected a value of the current computation, since the tracing of keep has ended, got {} traced by keep, at 0 ({})"
    with pytest.raises(UnexpectedTracerError) as caught:
        use(leaked)
    text = re.sub(r"at \S*test_nnx_error_messages\.py:\d+(:\d+)?", "at 0", str(caught.value))
    kernel = "Param blocks[0].kernel, reading its value: " + said.format("f32[8,2]", "Block.__init__")
    count = "RngCount blocks[0].drop.rngs.count, reading its value: " + said.format("u32[]", "Block.__init__")
    assert text.startswith((kernel, count))


def test_a_change_after_the_trace_has_ended(leaked):
    refused(
        TraceContextError,
        "Param blocks[0].kernel, setting its value: expected the trace in which it was created, inside the tracing of "
        "keep, at 0 (Block.__init__), got a change outside of any transformation, when the tracing of keep has ended or "
        "does not enclose it",
        lambda: leaked.blocks[0].kernel.set_value(1.0),
    )


OUTSIDE = "expected the trace in which it was created, outside of any transformation, at 0"


@pytest.mark.parametrize(
    ("transformed", "between"),
    [
        (lambda f: phalanx.jit(f)(1.0), "inside the tracing of f"),
        (lambda f: phalanx.grad(f)(1.0), "inside the derivative of f"),
        (lambda f: phalanx.vmap(f)(jnp.ones(2)), "inside vmap of f"),
        (
            lambda f: phalanx.jit(lambda y: phalanx.vmap(phalanx.grad(f))(y))(jnp.ones(2)),
            "inside the derivative of f, inside vmap of f, inside the tracing of <lambda>",
        ),
    ],
)
def test_a_change_from_the_wrong_level(transformed, between):
    model = Model()

    def f(y):
        model.calls.value = y
        return y

    refused(
        TraceContextError,
        f"BatchStat calls, setting its value: {OUTSIDE} (Model.__init__), got a change {between}",
        lambda: transformed(f),
    )


@pytest.mark.parametrize(
    ("change", "what", "made"),
    [
        (
            lambda m, y: m.blocks[0].kernel.set_metadata(a=1),
            "Param blocks[0].kernel, setting metadata",
            "Block.__init__",
        ),
        (lambda m, y: setattr(m.blocks[0], "more", y), "Block blocks[0], setting 'more'", "Model.__init__"),
        (lambda m, y: delattr(m.blocks[0], "drop"), "Block blocks[0], deleting 'drop'", "Model.__init__"),
        (lambda m, y: nnx.pop(m, nnx.BatchStat), "Model, popping 'calls'", None),
        (lambda m, y: nnx.update(m, {"calls": y}), "BatchStat calls, setting its value", "Model.__init__"),
        (lambda m, y: m(x), "RngCount blocks[0].drop.rngs.count, setting its value", "Block.__init__"),
    ],
)
def test_each_kind_of_change_from_the_wrong_level(change, what, made):
    model = Model()
    where = f" ({made})" if made else " (test_each_kind_of_change_from_the_wrong_level)"

    def f(y):
        change(model, y)
        return y

    refused(
        TraceContextError,
        f"{what}: {OUTSIDE}{where}, got a change inside the tracing of f",
        lambda: phalanx.jit(f)(1.0),
    )


@pytest.mark.parametrize(
    ("text", "run"),
    [
        (
            "argument rngs of a layer: expected an nnx.Rngs, for the parameters, got None",
            lambda r: nnx.Linear(2, 3, rngs=None),
        ),
        ("the number of features of a layer: expected integers, got (2.5, 3)", lambda r: nnx.Linear(2.5, 3, rngs=r)),
        (
            "nn.initializers.variance_scaling shape: expected sizes of at least 0, got (-2, 3)",
            lambda r: nnx.Embed(-2, 3, rngs=r),
        ),
        (
            "nnx.Conv, inputs: expected 1 spatial dimensions before the features, as in kernel_size, got shape (4,)",
            lambda r: nnx.Conv(4, 8, 3, rngs=r)(jnp.ones(4)),
        ),
        ("nnx.Conv, argument strides: expected numbers of at least 1, got 0", lambda r: nnx.Conv(4, 8, 3, 0, rngs=r)),
    ],
)
def test_layers_refuse_sizes_and_streams_that_cannot_be(text, run):
    refused((ValueError, TypeError), text, lambda: run(nnx.Rngs(0)))


def test_a_list_that_contains_itself_is_part_of_a_graph_but_of_no_pytree():
    model = Block(nnx.Rngs(0))
    model.parts = [nnx.Param(1.0)]
    model.parts.append(model.parts)
    copy = nnx.clone(model)
    assert copy.parts[1] is copy.parts and "[...]" in repr(model)
    refused(
        ArgumentError,
        "Block.parts: expected a list that does not contain itself, since a pytree has no cycles, got a cycle",
        lambda: phalanx.tree.leaves(model),
    )


def test_an_initializer_whose_result_has_too_few_dimensions_for_its_sharding_is_refused():
    with phalanx.set_mesh(phalanx.make_mesh((8,), ("x",))):
        refused(
            ValueError,
            "out_sharding of a parameter: expected a spec of at most 2 entries for an array of shape (3, 3), got "
            "P('x', None, None)",
            lambda: nnx.Linear(3, 3, rngs=nnx.Rngs(0), kernel_metadata={"out_sharding": ("x", None, None)}),
        )


def test_a_mark_holds_until_the_attribute_is_marked_otherwise():
    scale = nnx.Dict(a=nnx.data(1.0), b=nnx.static(2.0))
    scale.a, scale.b = 3.0, 4.0
    assert phalanx.tree.leaves(scale) == [3.0]
    refused(
        ArgumentError,
        "Dict, setting 'b': expected a static value without arrays, variables and modules, got an array marked as static",
        lambda: setattr(scale, "b", jnp.ones(2)),
    )
    scale.a, scale.b = nnx.static(5.0), nnx.data(6.0)
    assert phalanx.tree.leaves(scale) == [6.0]
