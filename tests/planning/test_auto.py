"""AUTO: shardings that are chosen by solving and planning, against brute force and the usual strategies."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.meshes import auto_mesh
from tools.auto_table import (
    MESHES,
    MODELS,
    dense,
    descend,
    embedding,
    make_mesh,
    make_search,
    plan_by_hand,
    shape,
    values_of,
)

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nn, nnx
from phalanx.core.aval import ShapedArray
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, ShardingError
from phalanx.planning import AutoChoice, auto_choice, candidate_plans
from phalanx.planning.auto_candidates import list_candidates
from phalanx.planning.auto_solver import Solver
from phalanx.planning.candidate_plans import CandidatePlans
from phalanx.planning.repeated_layers import tie_repeated_layers
from phalanx.sharding import AUTO, AbstractMesh, AutoSharding, Mesh, NamedSharding, P
from phalanx.spmd.legacy.pjit import pjit
from phalanx.spmd.program_graph import build_graph
from phalanx.spmd.stages import Lowered


def choose(fun, mesh, args, **options):
    mark = AUTO(mesh, **options)
    return phalanx.jit(fun, in_shardings=mark, out_shardings=mark, donate_argnums=0).lower(*args)


@pytest.mark.slow
@pytest.mark.parametrize("mesh_name", [name for name in MESHES if name != "16x16"])
@pytest.mark.parametrize("model", MODELS)
def test_models_are_never_worse_than_usual_and_compute_the_same(model, mesh_name):
    fun, args, _ = MODELS[model]()
    mesh = make_mesh(mesh_name)
    lowered = choose(fun, mesh, args, time_limit=600)  # so that the load of the machine does not matter
    choice = lowered.auto
    steps = {name: plan.time.step for name, plan in choice.plans.items()}
    assert {"data parallel", "fully sharded", "tensor parallel"} <= steps.keys()
    assert choice.plan.time.step == min(steps.values())
    search = make_search(model, mesh)
    plan_by_hand(search, model, mesh)
    assert choice.plan.time.step <= search.plans.plans["by hand"].time.step * 1.05
    values = values_of(args)
    out, expected = lowered.compile()(*values), phalanx.jit(fun)(*values)
    for y, z in zip(phalanx.tree.leaves(out), phalanx.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(y, z, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]], ids=["bias first", "kernel first"])
def test_weights_that_are_multiplied_are_split_in_pairs_with_the_bias_of_the_first(order):
    sizes = [(64,), (16, 64), (64,), (64, 64), (8,), (64, 8)]  # bias and kernel of each layer
    types = [ShapedArray(dims, np.dtype("float32")) for dims in (*(sizes[i] for i in order), (32, 16))]
    specs = dict(list_candidates(types, range(6), [range(6), [6]], {"x": 4}))["tensor parallel in pairs"]
    x, whole = ("x",), ()
    assert [specs[order.index(i)] for i in range(6)] == [
        *[(x,), (whole, x)],
        *[(whole,), (x, whole)],
        *[(whole,), (whole, whole)],
    ]


SMALL = {
    "product": (lambda x, w: x @ w, (shape(512, 64), shape(64, 1024))),
    "contraction": (lambda x, w: x @ w, (shape(16, 4096), shape(4096, 16))),
    "rows": (lambda x, b: nn.softmax(x + b, axis=-1), (shape(256, 256), shape(256))),
    "chain": (lambda x, v, w: jnp.tanh(x @ v) @ w, (shape(32, 512), shape(512, 2048), shape(2048, 512))),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_programs_equal_brute_force(name):
    """No shardings of the arguments over one axis have a faster plan, if the compiler chooses those inside."""
    fun, args = SMALL[name]
    mesh = auto_mesh((4,), "x")
    choice = phalanx.jit(fun, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).lower(*args).auto
    traced = phalanx.jit(fun, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).trace(*args)
    search = auto_choice.Search(traced, AUTO(mesh), mesh, [None] * len(args))
    ways = [[[("x",) if i == d else () for i in range(len(a.shape))] for d in range(-1, len(a.shape))] for a in args]
    named = enumerate(itertools.product(*ways))
    search.plans.add([search.make_candidate(str(n), dict(enumerate(specs))) for n, specs in named])
    assert choice.plan.time.step <= min(plan.time.step for plan in search.plans.plans.values())


def double(x):
    return x * 2


def test_chosen_shardings_are_known_before_data_are_placed():
    mesh = auto_mesh((4,), "x")
    stage = phalanx.jit(double, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).lower(shape(4096, 3))
    assert stage.auto.in_specs == (P("x"),) and stage.auto.out_specs == P("x")
    compiled = stage.compile()
    assert compiled.input_shardings == ((NamedSharding(mesh, P("x")),), {})
    assert compiled.output_shardings == NamedSharding(mesh, P("x"))
    assert stage.auto.to_code() == "in_shardings=(P('x',),),\nout_shardings=P('x',),"
    assert eval(f"dict({stage.auto.to_code()})", {"P": P, "dict": dict}) == {
        "in_shardings": (P("x"),),
        "out_shardings": P("x"),
    }
    assert str(stage.auto).splitlines()[0].split() == ["candidate", "ms", "sent", "memory"]
    assert phalanx.jit(double).lower(1.0).auto is None


def test_calls_place_the_data_as_chosen():
    mesh = auto_mesh((4,), "x")
    f = phalanx.jit(double, in_shardings=AUTO, out_shardings=AUTO)
    x = np.arange(4096 * 3, dtype="float32").reshape(4096, 3)
    with mesh:
        y = f(x)
        assert y.sharding == NamedSharding(mesh, P("x"))
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(f(y), 4 * x)  # the results of a call are arguments of the next one
        # Arrays that are committed to other devices or shardings are moved.
        for sharding in (phalanx.devices()[7], NamedSharding(mesh, P())):
            np.testing.assert_array_equal(f(phalanx.device_put(x, sharding)), 2 * x)
    # The choice is made once, not for every call.
    traced = f.trace(shape(4096, 3))
    with mesh:
        assert traced.lower().auto is traced.lower().auto


def test_given_shardings_beside_auto_are_kept():
    mesh = auto_mesh((4, 2), ("data", "model"))

    def layer(x, w, b):
        return jnp.tanh(x @ w + b)

    args = shape(1024, 256), shape(256, 512), shape(512)
    ins, out = (P("data"), AUTO, AUTO), P("data", "model")
    with mesh:
        compiled = phalanx.jit(layer, in_shardings=ins, out_shardings=out).lower(*args).compile()
        x, w, b = compiled.input_shardings[0]
        assert x.spec == P("data") and compiled.output_shardings.spec == P("data", "model")
        assert w.spec.axes_per_dim(2) == ((), ("model",)) and b.spec == P("model")
        # None keeps what an argument has, or the whole of it.
        own = NamedSharding(mesh, P(None, "model"))
        given = phalanx.jit(layer, in_shardings=(None, AUTO, None)).lower(args[0].update(sharding=own), *args[1:])
        x, w, b = given.auto.in_specs
        assert (x, b) == (None, None) and w is not None
        assert given.compile().input_shardings[0][0] == own


def test_former_names():
    with auto_mesh((4,), "x"):
        y = pjit(double, in_axis_resources=AUTO, out_axis_resources=AUTO)(np.ones((4096, 2), "float32"))
    assert y.sharding.spec == P("x")
    assert phalanx.experimental.pjit.AUTO is AUTO and isinstance(AUTO, AutoSharding)


def test_state_has_one_sharding_in_every_step():
    mesh = auto_mesh((4,), "x")
    fun, args, _ = dense()
    compiled = choose(fun, mesh, args).compile()
    state, after = compiled.input_shardings[0][0], compiled.output_shardings[0]
    assert phalanx.tree.leaves(state) == phalanx.tree.leaves(after)
    values = values_of(args)
    once, _ = compiled(*values)
    twice, _ = compiled(once, *values[1:])
    assert int(twice["count"]) == int(values[0]["count"]) + 2


def print_choice():
    def loss(params, x):
        return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

    args = {"up": shape(64, 256), "down": shape(256, 64)}, shape(128, 64)
    print(choose(descend(loss), auto_mesh((2, 2), ("data", "model")), args).auto)


def test_the_choice_is_deterministic(capfd):
    print_choice()
    first = capfd.readouterr().out
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"PYTHONHASHSEED": "7", "XLA_FLAGS": flags}
    code = f"from {__name__} import print_choice; print_choice()"
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout == first != ""


def test_pasted_code_has_the_plan_of_the_choice():
    fun, args, _ = embedding()
    mesh = auto_mesh((4,), ("data",))
    choice = choose(fun, mesh, args).auto
    assert choice.num_constraints == 0
    with mesh:
        options = eval(f"dict({choice.to_code()})", {"P": P, "dict": dict})
        pasted = phalanx.plan(phalanx.jit(fun, donate_argnums=0, **options), *args, mesh=mesh)
    assert pasted.memory.peak == choice.plan.memory.peak
    assert [c[:2] for c in pasted.collectives] == [c[:2] for c in choice.plan.collectives]


def test_operations_are_computed_as_chosen():
    """A result has its sharding without communication, where a constraint of the user would reshard it."""
    mesh = auto_mesh((2, 2), ("data", "model"))
    whole, split = (NamedSharding(mesh, spec) for spec in (P(), P(None, ("data", "model"))))
    program = phalanx.jit(lambda x, g: x.T @ g, in_shardings=(whole, split)).trace(shape(64, 64), shape(64, 64))
    (result,) = program.program.outvars
    inside = auto_choice._constrain(program.program, {result: split})
    chosen = AutoChoice("chosen", inside, (split, split), (split,), program.in_tree, program.out_tree)
    assert "phalanx.reshard" not in program.with_shardings(chosen).lower().as_text()
    asked = phalanx.jit(
        lambda x, g: lax.with_sharding_constraint(x.T @ g, split), in_shardings=(split, split), out_shardings=split
    )
    assert "phalanx.reshard" in asked.lower(shape(64, 64), shape(64, 64)).as_text()


def test_layers_that_are_alike_share_variables():
    def loss(params, x):
        for up, down in params:
            x = x + jnp.tanh(x @ up) @ down
        return jnp.mean(x**2)

    counts = []
    for num_layers in (12, 20):
        args = [(shape(64, 128), shape(128, 64))] * num_layers, shape(32, 64)
        graph = build_graph(phalanx.make_jaxpr(descend(loss))(*args))
        tie_repeated_layers(graph)
        counts.append(len({graph.dims.find((v, d)) for v in graph.values for d in range(len(v.shape))}))
        middle = [{graph.dims.find((v, d)) for d in (0, 1)} for v in graph.inputs[10:14:2]]
        assert middle[0] == middle[1]
    assert counts[0] == counts[1]


def test_sizes_that_no_axis_divides_are_split():
    mesh = auto_mesh((8,), ("data",))
    fun = lambda x, w: nn.softmax(x @ w, axis=-1)
    args = shape(37, 512), shape(512, 1001)
    lowered = phalanx.jit(fun, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).lower(*args)
    assert lowered.auto.in_specs == (P("data"), P()) and lowered.auto.out_specs == P("data")
    assert lowered.auto.plan.time.step < lowered.auto.plans["replicated"].time.step / 2
    values = values_of(args)
    np.testing.assert_allclose(lowered.compile()(*values), fun(*values), rtol=1e-4, atol=1e-6)


def test_auto_in_exports_and_modules_and_ahead_of_time():
    mesh = auto_mesh((4,), "x")
    f = phalanx.jit(double, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh))
    x = np.arange(4096 * 3, dtype="float32").reshape(4096, 3)
    f.warm(shape(4096, 3))
    assert f(x).sharding == NamedSharding(mesh, P("x"))
    artifact = export.deserialize(export.export(f)(shape(4096, 3)).serialize())
    y = phalanx.jit(artifact.call, in_shardings=NamedSharding(mesh, P("x")))(x)
    np.testing.assert_array_equal(y, 2 * x)
    model = nnx.Linear(3, 8, rngs=nnx.Rngs(0))
    y = nnx.jit(lambda model, x: model(x), in_shardings=(None, AUTO(mesh)), out_shardings=AUTO(mesh))(model, x)
    assert y.sharding.spec == P("x")
    np.testing.assert_allclose(y, model(x), rtol=1e-5, atol=1e-5)


def test_a_memory_limit_that_binds_is_kept():
    def loss(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    args, mesh = ([shape(128, 128)] * 6, shape(4096, 128)), auto_mesh((4,), "x")
    free = choose(descend(loss), mesh, args).auto
    least = min(plan.memory.peak for plan in free.plans.values())
    assert least < free.plan.memory.peak
    limit = (least + free.plan.memory.peak) // 2
    tight = choose(descend(loss), mesh, args, memory=limit)
    assert tight.auto.plan.memory.peak <= limit < free.plan.memory.peak
    assert tight.auto.plan.time.step >= free.plan.time.step
    compiled = tight.compile().memory_analysis()
    held = compiled.argument_size_in_bytes + compiled.output_size_in_bytes - compiled.alias_size_in_bytes
    assert held + compiled.temp_size_in_bytes <= limit


def test_an_abstract_mesh_and_a_target():
    mesh = AbstractMesh((32,), ("data",))
    fun, args = SMALL["product"]
    mark = AUTO(mesh, target="h100")
    lowered = phalanx.jit(fun, in_shardings=mark, out_shardings=mark, donate_argnums=0).lower(*args)
    assert lowered.auto.plan.target == "h100" and lowered.auto.plan.num_devices == 32
    assert lowered.auto.plan.name.endswith(f" (AUTO: {lowered.auto.name})")
    assert lowered.auto.limit == 80e9


def message(error):
    return " ".join(str(error.value).split())


def test_errors():
    x = np.ones((8, 8), "float32")
    with pytest.raises(ShardingError) as error:
        phalanx.jit(double, in_shardings=AUTO)(x)
    assert message(error).endswith(
        "expected a mesh, over which AUTO chooses shardings, got no mesh in context, nor one of another sharding. "
        "Fix: write AUTO(mesh), or call the function inside `with mesh:` or after set_mesh(mesh)."
    )
    explicit = phalanx.make_mesh((4,), ("x",))
    with pytest.raises(ShardingError, match="expected a mesh whose axes are Auto, since AUTO chooses .* after tracing"):
        phalanx.jit(double, in_shardings=AUTO(explicit))(x)
    mesh = auto_mesh((4,), "x")
    with pytest.raises(ShardingError) as error:
        phalanx.jit(double, in_shardings=AUTO(mesh, memory=100), out_shardings=AUTO(mesh))(x)
    assert (
        "expected shardings for which a device needs at most 100 bytes, got at best 128 bytes (solved over x), which are 28 "
        "too many. Fix: use a larger mesh, phalanx.checkpoint, or donated arguments, or raise AUTO(memory=...)."
    ) in message(error)
    marked = phalanx.jit(double, in_shardings=AUTO(mesh))
    for outer in (phalanx.jit(marked), phalanx.vmap(marked)):
        with pytest.raises(ShardingError) as error:
            outer(x)
        assert message(error).startswith(
            "jit of double: expected shardings or None, since the function is called inside a transformation or another "
            "program, got AUTO(mesh="
        )
    with pytest.raises(ShardingError, match="a function that reads or writes mutable array references"):
        phalanx.jit(lambda ref: ref[...], in_shardings=AUTO(mesh))(phalanx.new_ref(x))
    for place in (phalanx.device_put, lax.with_sharding_constraint):
        with pytest.raises(ShardingError, match="expected a sharding or a spec, got AUTO") as error:
            place(x, AUTO)
        assert "write AUTO in in_shardings or out_shardings of jit, for the shardings of a whole program" in str(
            error.value
        )
    with pytest.raises(ArgumentTypeError, match="expected a PartitionSpec"):
        phalanx.shard_map(double, mesh=mesh, in_specs=AUTO, out_specs=P("x"))(x)
    with pytest.raises(ArgumentError, match="AUTO, argument target: expected cpu, or one of a100.* got 'h1000'"):
        phalanx.jit(double, in_shardings=AUTO(mesh, target="h1000"))(x)
    with pytest.raises(ArgumentTypeError, match="AUTO, argument mesh: expected a Mesh or an AbstractMesh"):
        AUTO("x")
    with pytest.raises(ArgumentError, match="AUTO, argument memory: expected a positive number, got -1"):
        AUTO(memory=-1)


def test_marks_are_printed_as_they_are_written():
    assert repr(AUTO) == "AUTO" and repr(AUTO(memory=8e9)) == "AUTO(memory=8000000000.0)"
    mesh = Mesh(np.array(phalanx.devices()[:2]), ("x",))
    assert AUTO(mesh) == AUTO(mesh) and AUTO(mesh)(target="h100").mesh is mesh


def small_step():
    args = {"up": shape(64, 256), "down": shape(256, 64)}, shape(128, 64)
    return descend(lambda p, x: jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"]) ** 2)), args


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_solving_leaves_the_function_as_it_was(interruptible, monkeypatch):
    mesh, (fun, args) = auto_mesh((4,), "x"), small_step()
    step = phalanx.jit(fun, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh), donate_argnums=0)
    solve = Solver.solve
    with monkeypatch.context() as patch:
        patch.setattr(Solver, "solve", lambda *given: (solve(*given), interrupt())[0])
        with pytest.raises(KeyboardInterrupt):
            step.lower(*args)
        with pytest.raises(KeyboardInterrupt):
            step(*values_of(args))
    assert str(step.lower(*args).auto) == str(choose(fun, mesh, args).auto)
    out, expected = step(*values_of(args)), fun(*values_of(args))
    phalanx.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-5), out, expected)


def test_an_interrupt_while_candidates_are_compiled_ends_their_compilers(interruptible, monkeypatch):
    mesh, (fun, args) = AbstractMesh((4,), ("x",)), small_step()
    children = []
    compile_offline = Lowered.compile_offline

    def compile_and_interrupt(lowered, topology, on_start):
        def started(child):
            child.send_signal(signal.SIGSTOP)  # so that it cannot end by itself before the interrupt is handled
            children.append(child)
            on_start(child)
            if child is children[0]:  # a second interrupt might come after the first one was handled
                interrupt()

        return compile_offline(lowered, topology, started)

    monkeypatch.setattr(Lowered, "compile_offline", compile_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        choose(fun, mesh, args)
    assert children and all(child.wait(60) == -signal.SIGKILL for child in children)


def test_out_of_time_the_best_so_far_is_taken():
    mesh, (fun, args) = auto_mesh((4, 2), ("data", "model")), small_step()
    search = make_search("mlp", mesh)
    (solver, *_) = [search._make_solver(way) for way in search._group_axes()]
    solver.deadline = 0.0  # long ago: each program is still given a tenth of a second
    solution = solver.solve(solver.axes)
    assert set(solution.split) == {axis.name for axis in solver.axes}
    choice = choose(fun, mesh, args, time_limit=1e-9).auto
    assert choice.plan.time.step == min(plan.time.step for plan in choice.plans.values())
    assert {"data parallel", "fully sharded", "tensor parallel"} <= choice.plans.keys()


def test_slow_compilers_plan_only_what_comes_close(monkeypatch):
    """XLA for CUDA answers for all candidates but those that XLA for CPUs finds to be slower."""
    seen = []
    plan = CandidatePlans._plan

    def plan_for(self, candidates, platform):
        seen.append((platform, [c.name for c in candidates]))
        plans = plan(self, candidates, "cpu")
        return {name: replace(found, compiler=platform) for name, found in plans.items()}

    monkeypatch.setattr(CandidatePlans, "_plan", plan_for)
    monkeypatch.setattr(candidate_plans, "choose_platform", lambda *_: "cuda")
    fun, args = small_step()
    choice = choose(fun, AbstractMesh((4,), ("x",)), args, target="h100").auto
    (first, every), (second, close) = seen
    assert (first, second) == ("cpu", "cuda") and set(close) < set(every) and 0 < len(close) <= 4
    assert choice.name in close and choice.plan.compiler == "cuda"
    assert {name for name, found in choice.plans.items() if found.compiler == "cuda"} == set(close)
    rows = str(choice).splitlines()
    assert sum(" ~" in row for row in rows) == len(choice.plans) - len(close)
    assert rows[len(choice.plans) + 1].startswith(
        "~ by XLA for CPUs, which found them slower or the same, in the place"
    )


def test_modules_have_the_choice_on_their_stage():
    model, mesh = nnx.Linear(64, 256, rngs=nnx.Rngs(0)), auto_mesh((4,), "x")
    forward = nnx.jit(lambda model, x: model(x), in_shardings=(None, AUTO(mesh)), out_shardings=AUTO(mesh))
    assert forward.lower(model, shape(512, 64)).auto.plan.time is not None


def test_a_candidate_splits_the_batch_over_the_outer_axes_and_all_else_over_the_innermost():
    search = make_search("transformer", make_mesh("4x2"))
    plain, constrained, *by_dim = search._solve_tensor_parallel()
    state, tokens = plain.in_specs
    assert tokens == P("data")
    split = {axis for spec in phalanx.tree.leaves(state) for axes in spec.axes_per_dim(5) for axis in axes}
    assert split == {"model"} and constrained.num_constraints > 0
    assert state["params"]["layers"]["qkv"] == state["mean"]["layers"]["qkv"] == P(None, None, None, "model")
    # One dimension of the model at a time: here its width, in all weights with it.
    width = next(c for c in by_dim if c.name == "dimension 2 of state['mean']['layers']['down'] over model")
    params, tokens = width.in_specs[0]["params"], width.in_specs[1]
    assert len(by_dim) == 4 and tokens == P("data") and params["layers"]["norm1"] == P(None, "model")
    assert params["embed"] == P(None, "model") and params["unembed"] == P("model")
    assert params["layers"]["qkv"] == params["layers"]["up"] == P(None, "model")
    assert params["layers"]["out"] == P(None, None, None, "model")


@pytest.mark.parametrize("out", [P("a"), P(None, "b"), P()])
def test_the_time_of_given_shardings_does_not_depend_on_the_order_of_the_axes(out):
    mesh = AbstractMesh((4, 2), ("a", "b"))
    place = lambda *spec: NamedSharding(mesh, P(*spec))
    product = phalanx.jit(jnp.matmul, in_shardings=(place("a", "b"), place("b")), out_shardings=place(*out))
    traced = product.trace(shape(64, 128), shape(128, 32))
    search = auto_choice.Search(traced, AUTO(mesh, target="h100"), mesh, [None] * 2)
    seconds = []
    for reverse in (False, True):
        solver = search._make_solver([("a",), ("b",)])
        seconds.append(solver.solve(sorted(solver.axes, key=lambda axis: axis.name, reverse=reverse)).seconds)
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-3) and min(seconds) > 0
