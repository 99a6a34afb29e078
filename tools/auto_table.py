"""How good the shardings are that AUTO chooses: five training steps on four meshes, as a table in Markdown.

`make auto` prints it. For each step and mesh it has the time of a run by plan, on nominal CPU devices: of AUTO, of the
fastest usual strategy, of tensor parallelism as a person writes it, and of the fastest shardings that a local search
finds, which starts from the fastest of these and changes the sharding of one array of the state or batch at a time.
Further columns have the CPU time of solving, without and with a memory limit that binds, and whether the values are
those of one device. `--model` and `--mesh` select rows, and `--search` limits the plans of the local search.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn
from phalanx.planning.auto_choice import Search
from phalanx.planning.auto_solver import Solver
from phalanx.planning.chosen_shardings import AutoChoice
from phalanx.sharding import AUTO, AbstractMesh, AxisType, Mesh, P

MESHES = {
    "8": ((8,), ("data",)),
    "4x2": ((4, 2), ("data", "model")),
    "2x2x2": ((2, 2, 2), ("a", "b", "c")),
    "16x16": ((16, 16), ("data", "model")),
}


def make_mesh(name: str) -> Mesh | AbstractMesh:
    """The mesh of a name: of the devices of this process, or of so many more that nothing can run on them."""
    sizes, names = MESHES[name]
    if (size := int(np.prod(sizes))) > phalanx.device_count():
        return AbstractMesh(sizes, names)
    devices = np.array(phalanx.devices()[:size]).reshape(sizes)
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))


def shape(*dims: int, dtype: str = "float32") -> phalanx.ShapeDtypeStruct:
    """The type of an array."""
    return phalanx.ShapeDtypeStruct(dims, dtype)


def descend(loss):
    """A step of gradient descent on a loss."""

    def step(params, *batch):
        grads = phalanx.grad(loss)(params, *batch)
        return phalanx.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return step


def adamw(loss):
    """A step of AdamW on a loss."""

    def step(state, *batch):
        value, grads = phalanx.value_and_grad(loss)(state["params"], *batch)
        mean = phalanx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
        square = phalanx.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["square"], grads)
        params = phalanx.tree.map(
            lambda p, m, v: p - 1e-2 * (m / (jnp.sqrt(v) + 1e-6) + 0.01 * p), state["params"], mean, square
        )
        return {"params": params, "mean": mean, "square": square, "count": state["count"] + 1}, value

    return step


def state_of(params):
    """The state of AdamW for parameters."""
    return {"params": params, "mean": params, "square": params, "count": shape(dtype="int32")}


def mlp():
    """Two residual layers of two matrices each."""

    def loss(params, x):
        for up, down in params:
            x = x + jnp.tanh(x @ up) @ down
        return jnp.mean(x**2)

    hand = lambda inner: [(P(None, inner), P(inner))] * 2
    return descend(loss), ([(shape(128, 512), shape(512, 128))] * 2, shape(256, 128)), hand


def transformer():
    """A decoder of three layers in a scan, with AdamW."""
    width, heads, hidden, words, length = 64, 8, 256, 256, 16

    def norm(x, scale):
        return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale

    def layer(x, p):
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", norm(x, p["norm1"]), p["qkv"]), 2, 0)
        scores = jnp.where(jnp.tri(length, dtype=bool), jnp.einsum("bqhk,bthk->bhqt", q, k), -1e9)
        x = x + jnp.einsum("bhqt,bthk,hkd->bqd", nn.softmax(scores, axis=-1), v, p["out"])
        return x + nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"], None

    def loss(params, tokens):
        x = lax.scan(layer, params["embed"][tokens[:, :-1]], params["layers"])[0]
        logits = x @ params["unembed"]
        picked = jnp.sum(logits * nn.one_hot(tokens[:, 1:], words), axis=-1)
        return jnp.mean(nn.logsumexp(logits, axis=-1) - picked)

    layers = {
        "norm1": shape(3, width),
        "qkv": shape(3, width, 3, heads, width // heads),
        "out": shape(3, heads, width // heads, width),
        "norm2": shape(3, width),
        "up": shape(3, width, hidden),
        "down": shape(3, hidden, width),
    }
    params = {"embed": shape(words, width), "layers": layers, "unembed": shape(width, words)}

    def hand(inner):
        specs = {
            "norm1": P(),
            "qkv": P(None, None, None, inner),
            "out": P(None, inner),
            "norm2": P(),
            "up": P(None, None, inner),
            "down": P(None, inner),
        }
        one = {"embed": P(None, inner), "layers": specs, "unembed": P(None, inner)}
        return {"params": one, "mean": one, "square": one, "count": P()}

    return adamw(loss), (state_of(params), shape(16, length + 1, dtype="int32")), hand


def cnn():
    """Two convolutions and a linear layer."""

    def loss(params, x, labels):
        for w in params[:-1]:
            x = nn.relu(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        x = x.mean((1, 2)) @ params[-1]
        return jnp.mean(nn.logsumexp(x, axis=-1) - jnp.sum(x * nn.one_hot(labels, 32), -1))

    params = [shape(3, 3, 8, 16), shape(3, 3, 16, 64), shape(64, 32)]
    hand = lambda inner: [P(None, None, None, inner), P(None, None, inner), P()]
    return descend(loss), (params, shape(32, 16, 16, 8), shape(32, dtype="int32")), hand


def embedding():
    """A table of embeddings and a linear layer."""

    def loss(params, ids, y):
        return jnp.mean((params["table"][ids].sum(1) @ params["w"] - y) ** 2)

    params = {"table": shape(4096, 64), "w": shape(64, 32)}
    hand = lambda inner: {"table": P(None, inner), "w": P(inner)}
    return descend(loss), (params, shape(128, 8, dtype="int32"), shape(128, 32)), hand


def dense():
    """Three linear layers with biases and AdamW, as `nnx.Linear` and `optax.adamw` have it."""

    def loss(params, x, y):
        for name in ("first", "second"):
            x = nn.gelu(x @ params[name]["kernel"] + params[name]["bias"])
        return jnp.mean((x @ params["third"]["kernel"] + params["third"]["bias"] - y) ** 2)

    linear = lambda n, m: {"kernel": shape(n, m), "bias": shape(m)}
    params = {"first": linear(64, 256), "second": linear(256, 256), "third": linear(256, 16)}

    def hand(inner):
        one = {
            "first": {"kernel": P(None, inner), "bias": P(inner)},
            "second": {"kernel": P(inner), "bias": P()},
            "third": {"kernel": P(), "bias": P()},
        }
        return {"params": one, "mean": one, "square": one, "count": P()}

    return adamw(loss), (state_of(params), shape(128, 64), shape(128, 16)), hand


MODELS = {"mlp": mlp, "transformer": transformer, "cnn": cnn, "embedding": embedding, "dense": dense}


def values_of(args):
    """Values for arguments: small numbers, and words for integers."""
    rng = np.random.default_rng(0)
    draw = lambda s: (
        (0.1 * rng.standard_normal(s.shape)).astype(s.dtype)
        if s.dtype == "float32"
        else rng.integers(0, 32, s.shape, dtype=s.dtype)
    )
    args = phalanx.tree.map(draw, args)
    if isinstance(args[0], dict) and "square" in args[0]:
        args[0]["square"] = phalanx.tree.map(abs, args[0]["square"])
    return args


def trace(model: str, mesh: Mesh | AbstractMesh, **options: Any) -> Any:
    """A model's step with AUTO over a mesh, traced."""
    fun, args, _ = MODELS[model]()
    mark = AUTO(mesh, **options)
    return phalanx.jit(fun, in_shardings=mark, out_shardings=mark, donate_argnums=0).trace(*args)


def make_search(model: str, mesh: Mesh | AbstractMesh, **options: Any) -> Search:
    """The search for shardings of a model's step, before it has made any plan."""
    traced = trace(model, mesh, **options)
    return Search(traced, AUTO(mesh, **options), mesh, [None] * len(traced.program.in_avals))


def plan_by_hand(search: Search, model: str, mesh: Mesh | AbstractMesh) -> None:
    """Plan tensor parallelism as a person writes it: the batch over the outer axes, the weights over the innermost."""
    _, args, hand = MODELS[model]()
    *outer, inner = mesh.shape
    weights = phalanx.tree.leaves(hand(inner), is_leaf=lambda s: isinstance(s, P))
    avals = phalanx.tree.leaves(args)
    batch = [P(tuple(outer)) if outer else P()] * (len(avals) - len(weights))
    specs = [s.axes_per_dim(a.ndim) for s, a in zip([*weights, *batch], avals, strict=True)]
    search.plans.add([search.make_candidate("by hand", dict(enumerate(specs)))])


@contextmanager
def solver_seconds() -> Iterator[list[float]]:
    """Collect the CPU seconds that building and solving the linear programs takes."""
    seconds: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args)
            finally:
                seconds.append(time.process_time() - start)

        return run

    with (
        mock.patch.object(Solver, "__post_init__", timed(Solver.__post_init__)),
        mock.patch.object(Solver, "solve", timed(Solver.solve)),
    ):
        yield seconds


def improve(search: Search, model: str, mesh: Mesh | AbstractMesh, start: str, most: int) -> str:
    """Change the sharding of one array at a time as long as plans become faster; returns the name of the fastest.

    The parameters of an optimiser that belong to one weight change together.

    Args:
      search: has the plan of the first shardings.
      model, mesh: the step.
      start: the name of the first shardings.
      most: the number of plans after which the search ends.
    """
    _, args, _ = MODELS[model]()
    paths = [(tuple(map(str, path)), leaf) for path, leaf in phalanx.tree.flatten_with_path(args)[0]]
    together: dict[Any, list[int]] = {}
    for i, (path, leaf) in enumerate(paths):
        together.setdefault((leaf.shape, path[-2:] if len(path) > 2 else path), []).append(i)
    best, plans = start, search.plans
    cost = lambda name: plans.plans[name].time.step
    count = 0
    while True:
        before = best
        for numbers in together.values():
            ndim = paths[numbers[0]][1].ndim
            for places in itertools.product(range(-1, ndim), repeat=len(mesh.shape)):
                if (count := count + 1) > most:
                    return best
                placed = dict(zip(mesh.shape, places, strict=True))
                spec = tuple(tuple(a for a in placed if placed[a] == d) for d in range(ndim))
                known = plans.found[best]
                pairs = zip(known.in_shardings, paths, strict=True)
                specs = {i: s.spec.axes_per_dim(leaf.ndim) for i, (s, (_, leaf)) in enumerate(pairs)}
                changed = search.make_candidate(f"changed {count}", specs | dict.fromkeys(numbers, spec))
                plans.add([replace(changed, program=known.program)])
                if changed.name in plans.plans and cost(changed.name) < cost(best) * (1 - 1e-6):
                    best = changed.name
        if best == before:
            return best


def measure(model: str, mesh_name: str, most: int) -> list[str]:
    """A row of the table."""
    mesh = make_mesh(mesh_name)
    search = make_search(model, mesh)
    with solver_seconds() as solving:
        choice = search.choose()
    plan_by_hand(search, model, mesh)
    steps = {name: plan.time.step for name, plan in search.plans.plans.items() if plan.time is not None}
    usual = min((name for name in steps if not name.startswith(("solved", "by hand"))), key=steps.__getitem__)
    own = steps[choice.name]
    best = improve(search, model, mesh, min(steps, key=steps.__getitem__), most)
    known = search.plans.plans[best].time.step
    by_hand = steps["by hand"]
    cells = [model, mesh_name, _us(own), f"{_us(steps[usual])} ({usual})", _us(by_hand), _us(known)]
    cells += [f"{own / min(steps[usual], by_hand):.3f}", f"{own / known:.3f}", f"{sum(solving):.1f}"]
    return [*cells, *_measure_limit(model, mesh, choice), _compare_values(model, mesh, choice)]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}"


def _measure_limit(model: str, mesh: Mesh | AbstractMesh, free: AutoChoice) -> tuple[str, str]:
    """The CPU seconds of solving for a memory limit that binds, and the peak as a part of the limit."""
    least = min(plan.memory.peak for plan in free.plans.values())
    if least == free.plan.memory.peak:
        return "-", "-"
    limit = (least + free.plan.memory.peak) // 2
    with solver_seconds() as solving:
        tight = make_search(model, mesh, memory=limit).choose()
    return f"{sum(solving):.1f}", f"{tight.plan.memory.peak / limit:.2f}"


def _compare_values(model: str, mesh: Mesh | AbstractMesh, choice: AutoChoice) -> str:
    """The largest difference from one device, relative to the largest value of an array; "-" if nothing can run."""
    if isinstance(mesh, AbstractMesh):
        return "-"
    fun, args, _ = MODELS[model]()
    values = values_of(args)
    out, expected = trace(model, mesh).with_shardings(choice).lower().compile()(*values), phalanx.jit(fun)(*values)
    pairs = zip(phalanx.tree.leaves(out), phalanx.tree.leaves(expected), strict=True)
    return f"{max(float(abs(np.asarray(y) - z).max() / max(abs(np.asarray(z)).max(), 1e-30)) for y, z in pairs):.0e}"


COLUMNS = (
    "step", "mesh", "AUTO, us", "fastest usual", "by hand", "best known", "AUTO / usual or hand", "AUTO / best known",
    "solving, CPU s", "with a limit", "peak / limit", "difference",
)  # fmt: skip


def main() -> None:
    """Print the table, a row when it is measured."""
    parser = argparse.ArgumentParser(prog="python -m tools.auto_table", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=MODELS, action="append", help="by default all")
    parser.add_argument("--mesh", choices=MESHES, action="append", help="by default all")
    parser.add_argument("--search", type=int, default=60, metavar="N", help="plans of the local search (default: 60)")
    args = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for mesh, model in itertools.product(args.mesh or MESHES, args.model or MODELS):
        print(f"| {' | '.join(measure(model, mesh, args.search))} |", flush=True)


if __name__ == "__main__":
    main()
