"""Train a byte-level transformer on the source code of Python's own standard library, over a mesh of devices.

    phalanx demo                                              # or: python examples/train_lm.py
    phalanx demo --mesh 2x4 --resume runs/demo --steps 1000   # continues, here on another mesh
    phalanx launch -n 2 --devices 4 --restarts 3 -- -m phalanx demo   # in two processes, again after a failure

The whole program is on this page: the data, the model as plain functions on a tree of parameters, AdamW, one compiled
training step, checkpoints, a sampler, and the export of the model to a file, from which another process completes a
prompt. Nothing in the model knows about devices; the lines under "Placement" do:
they split the batch over the mesh axis "data", the attention heads and the hidden units over "model".
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from phalanx.experimental import multihost_utils

import phalanx as jax
import phalanx.numpy as jnp
from phalanx import checkpoint, export, lax, nn, random
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec as P

# ---- Data: the bytes of the standard library, split into training and validation by files ----------------------------


def read_library() -> tuple[np.ndarray, np.ndarray, int]:
    """Read the running Python's `.py` files: training bytes, validation bytes (every 20th file), number of files."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests"}
    paths = sorted(p for p in root.rglob("*.py") if skipped.isdisjoint(p.relative_to(root).parts))
    texts = [path.read_bytes() + b"\n" for path in paths]
    train = b"".join(text for i, text in enumerate(texts) if i % 20)
    return np.frombuffer(train, np.uint8), np.frombuffer(b"".join(texts[::20]), np.uint8), len(texts)


def windows(data: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Cut `length` inputs and the byte that follows them at each start: uint8[starts, length + 1]."""
    return data[starts[:, None] + np.arange(length + 1)]


def training_batch(data: np.ndarray, config: Config, seed: int, step: int) -> np.ndarray:
    """Draw the batch of one step; it depends on the seed and the step alone, so a resumed run sees the same."""
    starts = np.random.default_rng((seed, step)).integers(len(data) - config.window, size=config.batch)
    return windows(data, starts, config.window)


# ---- Model: a decoder-only transformer in plain functions on a tree of parameters ------------------------------------


@dataclass(frozen=True)
class Config:
    """The sizes of the model and of its batch."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 512
    window: int = 128
    batch: int = 16
    dtype: str = "float32"


def init_params(key, config: Config):
    """Draw the parameters; those of all layers are stacked along a leading dimension, which `lax.scan` walks."""
    n, d, h, f = config.layers, config.width, config.heads, config.hidden
    keys = random.split(key, 6)

    def normal(key, shape, fan_in):
        return random.normal(key, shape) * fan_in**-0.5

    return {
        "embed": normal(keys[0], (256, d), d),
        "layers": {
            "norm1": jnp.ones((n, d)),
            "qkv": normal(keys[1], (n, d, 3, h, d // h), d),
            "out": normal(keys[2], (n, h, d // h, d), d * 2 * n),
            "norm2": jnp.ones((n, d)),
            "up": normal(keys[3], (n, d, f), d),
            "down": normal(keys[4], (n, f, d), f * 2 * n),
        },
        "norm": jnp.ones(d),
        "unembed": normal(keys[5], (d, 256), d),
    }


def rms_norm(x, scale):
    """Scale each vector to unit root mean square, then by learned factors."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x):
    """Rotary positions: turn each pair of features by an angle that grows with the position."""
    length, half = x.shape[-3], x.shape[-1] // 2
    angles = jnp.arange(length)[:, None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    sin, cos = jnp.sin(angles).astype(x.dtype), jnp.cos(angles).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def layer(x, p):
    """One transformer block: attention over the past, then an MLP, each added to its input."""
    q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", rms_norm(x, p["norm1"]), p["qkv"]), 2, 0)
    scores = jnp.einsum("bqhk,bthk->bhqt", rotate(q), rotate(k)) * q.shape[-1] ** -0.5
    past = jnp.tri(x.shape[1], dtype=bool)
    weights = nn.softmax(jnp.where(past, scores, -1e9), axis=-1)
    x = x + jnp.einsum("bhqt,bthk,hkd->bqd", weights, v, p["out"])
    return x + nn.gelu(rms_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def forward(params, tokens, dtype, split_batch=lambda x: x):
    """Predict the byte after each position: uint8[batch, time] -> f32[batch, time, 256] of logits."""
    params = jax.tree.map(lambda p: p.astype(dtype), params)
    x = split_batch(params["embed"][tokens])
    x, _ = lax.scan(lambda x, p: (layer(x, p), None), x, params["layers"])
    return (rms_norm(x, params["norm"]) @ params["unembed"]).astype("float32")


def loss(params, batch, forward):
    """The mean cross-entropy of the next byte, in nats."""
    logits = forward(params, batch[:, :-1])
    targets = nn.one_hot(batch[:, 1:], 256)
    return jnp.mean(nn.logsumexp(logits, axis=-1) - jnp.sum(logits * targets, axis=-1))


# ---- Optimiser and training step -------------------------------------------------------------------------------------


def learning_rate(step, total, peak=3e-3, warmup=30):
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    progress = jnp.clip((step - warmup) / max(total - warmup, 1), 0.0, 1.0)
    return peak * jnp.minimum(step / warmup, 0.55 + 0.45 * jnp.cos(jnp.pi * progress))


def init_state(key, config: Config):
    """Draw the parameters and start the optimiser."""
    params = init_params(key, config)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "mean": zeros, "square": zeros, "step": jnp.zeros((), "int32")}


def adamw(state, grads, rate, b1=0.9, b2=0.98, decay=0.05):
    """One AdamW update of the whole state; weights decay, the vectors of the norms do not."""
    step = state["step"] + 1
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["square"], grads)

    def updated(p, m, v):
        direction = m / (1 - b1**step) / (jnp.sqrt(v / (1 - b2**step)) + 1e-8)
        return p - rate * (direction + decay * p * (p.ndim > 2))

    params = jax.tree.map(updated, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "step": step}


def train_step(state, batch, *, total, forward):
    """State and batch to the next state and the loss."""
    value, grads = jax.value_and_grad(loss)(state["params"], batch, forward)
    return adamw(state, grads, learning_rate(state["step"] + 1, total)), value


# ---- Placement: the only part of the program that mentions devices ---------------------------------------------------

SPECS = {
    "embed": P(None, "model"),
    "layers": {
        "norm1": P(),
        "qkv": P(None, None, None, "model"),  # heads
        "out": P(None, "model"),
        "norm2": P(),
        "up": P(None, None, "model"),  # hidden units
        "down": P(None, "model"),
    },
    "norm": P(),
    "unembed": P(None, "model"),  # bytes predicted
}


class Trainer:
    """The compiled functions of one mesh, with the shardings of their arguments and results."""

    def __init__(self, mesh: Mesh, config: Config, total: int):
        """Only wrap the functions: each compiles at its first call."""
        place = partial(NamedSharding, mesh)
        params = jax.tree.map(place, SPECS)
        self.state_shardings = {"params": params, "mean": params, "square": params, "step": place(P())}
        self.batch_sharding = place(P("data"))
        # Without the constraint, the features of the embedded bytes would be split as the columns of the table are, and
        # each layer would gather them.
        split_batch = partial(lax.with_sharding_constraint, shardings=self.batch_sharding)
        model = partial(forward, dtype=config.dtype, split_batch=split_batch)
        step = partial(train_step, total=total, forward=model)
        self.init = jax.jit(partial(init_state, config=config), out_shardings=self.state_shardings)
        self.step = jax.jit(
            step, donate_argnums=0, out_shardings=(self.state_shardings, place(P())), communication="implied"
        )
        self.loss = jax.jit(partial(loss, forward=model))
        self.sample = jax.jit(partial(sample, dtype=config.dtype), static_argnames="length", out_shardings=place(P()))

    def put(self, batch: np.ndarray):
        """Place a batch on the mesh: each device gets its rows only."""
        return jax.device_put(batch, self.batch_sharding)


def make_mesh(shape: tuple[int, int]) -> Mesh:
    """Build the mesh of the default devices or, where they are too few, of virtual CPU devices."""
    size = shape[0] * shape[1]
    devices = jax.devices() if size > 1 else jax.local_devices()
    devices = devices if len(devices) >= size else jax.devices("cpu")
    return Mesh(np.array(devices[:size]).reshape(shape), ("data", "model"))


def join_processes() -> tuple[int, int]:
    """Join the other processes that `phalanx launch` has started; a mesh of the devices of all. Only one prints."""
    jax.distributed.initialize()
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w")
    model = 2 if jax.device_count() % 2 == 0 else 1
    return jax.device_count() // model, model


# ---- After training: validation, a sample ----------------------------------------------------------------------------


def bits_per_byte(trainer: Trainer, params, data: np.ndarray, config: Config, batches: int = 16) -> float:
    """Validate on windows spread evenly over all validation bytes."""
    starts = np.linspace(0, len(data) - config.window - 1, batches * config.batch).astype(int).reshape(batches, -1)
    nats = [trainer.loss(params, trainer.put(windows(data, row, config.window))) for row in starts]
    return float(np.mean([float(n) for n in nats]) / np.log(2))


def sample(params, window, key, *, length, dtype, temperature=0.7):
    """Continue a full window of bytes by `length` sampled ones, sliding the window along."""

    def step(window, key):
        logits = forward(params, window[None], dtype)[0, -1]
        byte = random.categorical(key, logits / temperature).astype("uint8")
        return jnp.append(window[1:], byte), byte

    return lax.scan(step, window, random.split(key, length))[1]


# ---- The model as a file ---------------------------------------------------------------------------------------------


def export_model(path: Path, params, dtype: str) -> export.Exported:
    """Write the trained model, with its parameters inside, for batches and texts of any size."""
    model = jax.jit(lambda tokens: forward(params, tokens, dtype))
    tokens = jax.ShapeDtypeStruct(export.symbolic_shape("batch, time"), "uint8")
    exported = export.export(model)(tokens)
    path.write_bytes(exported.serialize())
    return exported


def complete(path: Path, prompt: bytes, length: int, seed: int, temperature: float = 0.7) -> bytes:
    """Continue a prompt by the model in a file: nothing of the model's code is needed, only the file."""
    model = export.deserialize(path.read_bytes())
    window, drawn = np.frombuffer(prompt, np.uint8), []
    generator = np.random.default_rng(seed)
    for _ in range(length):
        logits = np.asarray(model.call(window[None])[0, -1], np.float64) / temperature
        weights = np.exp(logits - logits.max())
        drawn.append(np.uint8(generator.choice(256, p=weights / weights.sum())))
        window = np.append(window[1:], drawn[-1])
    return bytes(drawn)


def complete_elsewhere(path: Path, args: argparse.Namespace) -> str:
    """Let a second process complete the prompt from the file."""
    words = [sys.executable, __file__, "--complete", str(path), "--prompt", args.prompt, "--seed", str(args.seed)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


# ---- The program -----------------------------------------------------------------------------------------------------


@contextmanager
def progress_bar(first: int, total: int):
    """Yield `report(step, loss, bytes_per_second)`: a live bar in a terminal, a line every 20 steps elsewhere."""
    if not sys.stdout.isatty() or find_spec("rich") is None:

        def report(step, loss, speed):
            if step % 20 == 0 or step == total:
                print(f"step {step:4}/{total}  loss {loss:.3f}  {speed / 1e3:5.1f} kB/s", flush=True)

        yield report
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    status = TextColumn("loss [bold]{task.fields[loss]:.3f}[/]  [cyan]{task.fields[speed]:.1f} kB/s")
    with Progress("training", BarColumn(), MofNCompleteColumn(), status, TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=total, completed=first, loss=float("nan"), speed=0.0)
        yield lambda step, loss, speed: bar.update(task, completed=step, loss=loss, speed=speed / 1e3)


def train(
    trainer: Trainer, state, data, config: Config, *, seed: int, until: int, out: Path | None = None, save_every=200
):
    """Run the steps that are left, saving some of them: the last state, and the loss of each step."""
    losses, first, began = [], int(state["step"]), 0.0
    with progress_bar(first, until) as report:
        for step in range(first, until):
            state, value = trainer.step(state, trainer.put(training_batch(data, config, seed, step)))
            losses.append(float(value))
            began = began or time.perf_counter()  # Excludes the first step, which compiles.
            seconds = max(time.perf_counter() - began, 1e-9)
            report(step + 1, losses[-1], (step - first) * config.batch * config.window / seconds)
            if out and ((step + 1) % save_every == 0 or step + 1 == until):
                checkpoint.save(out, state, step=step + 1, keep=2)  # The files are written during the next steps.
    return state, losses


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="phalanx demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--mesh", metavar="DxM", help="devices along 'data' x 'model' (default: 4x2, or all devices)")
    parser.add_argument("--width", type=int, default=Config.width, help="features of a token (default: 128)")
    parser.add_argument("--heads", type=int, default=Config.heads, help="attention heads (default: 4)")
    parser.add_argument("--batch", type=int, default=Config.batch, help="windows of a step; any number (default: 16)")
    parser.add_argument("--steps", type=int, default=500, help="train up to this step (default: 500)")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where checkpoints go (default: runs/demo)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="continue the checkpoint in DIR, on any mesh")
    parser.add_argument("--save-every", type=int, default=200, metavar="N", help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="seed of parameters, batches and sample (default: 0)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="dtype of the computation")
    parser.add_argument("--prompt", default="def main(argv=None):\n", help="what the sample continues")
    parser.add_argument("--length", type=int, default=400, metavar="N", help="bytes of the sample (default: 400)")
    parser.add_argument("--complete", type=Path, metavar="FILE", help="only continue the prompt by an exported model")
    parser.add_argument("--compare", type=int, default=5, metavar="N", help="steps repeated on one device (default: 5)")
    args = parser.parse_args(argv)
    sizes = (args.mesh or "4x2").split("x")
    if len(sizes) != 2 or not all(size.isdecimal() for size in sizes):
        parser.error(f"--mesh: expected two numbers such as 4x2, got {args.mesh!r}")
    data, model = map(int, sizes)
    if min(data, model, args.batch) < 1:
        parser.error(f"--mesh, --batch: expected sizes of at least 1, got {args.mesh} and {args.batch}")
    if min(args.width, args.heads) < 1 or args.width % (2 * args.heads):  # rotary positions turn pairs of features
        parser.error(f"--width: expected a multiple of {2 * args.heads}, twice the heads, got {args.width}")
    if int(os.environ.get("PHALANX_RESTART_COUNT", 0)) and checkpoint.steps(args.out):
        args.resume = args.out  # `phalanx launch` has started the program again.
    if args.resume and not checkpoint.steps(args.resume):
        parser.error(f"--resume: there is no checkpoint in {args.resume}")
    if find_spec("tensorstore") is None:
        parser.error("checkpoints need tensorstore, which is not installed: pip install 'phalanx[demo]'")
    args.mesh = (data, model) if args.mesh else None
    return args


def show_placement(state, batch) -> None:
    """Draw the shardings of a batch and of the largest matrices."""
    up, down = state["params"]["layers"]["up"][0], state["params"]["layers"]["down"][0]
    for name, array in {"a batch": batch, "up, layer 0": up, "down, layer 0": down}.items():
        print(f"\n{name}: {array.dtype}{list(array.shape)}")
        jax.debug.visualize_array_sharding(array)


def main(argv: list[str] | None = None) -> None:
    """Train, compare with one device, validate, sample; the checkpoint stays in `--out`."""
    args = parse_arguments(argv)
    config = Config(width=args.width, heads=args.heads, batch=args.batch, dtype=args.dtype)
    prompt = args.prompt.encode()[-config.window :].rjust(config.window, b"\n")
    if args.complete:
        print(args.prompt + complete(args.complete, prompt, 120, args.seed).decode(errors="replace"))
        return
    out, seed = args.resume or args.out, args.seed
    if "PHALANX_PROCESS_ID" in os.environ:  # set by `phalanx launch`
        everything = join_processes()
        shape = args.mesh or everything
    else:
        shape = args.mesh or (4, 2)
        jax.config.update("jax_num_cpu_devices", shape[0] * shape[1])

    data, validation, files = read_library()
    print(f"data: {files} files, {len(data) / 1e6:.1f} MB to train on, {len(validation) / 1e6:.1f} MB to validate")
    mesh = make_mesh(shape)
    trainer = Trainer(mesh, config, args.steps)
    if args.resume:
        state = checkpoint.load(out, shardings=trainer.state_shardings)  # Each device reads its part, on any mesh.
    else:
        state = trainer.init(random.key(seed))
        for step in checkpoint.steps(out):
            checkpoint.delete(out, step)  # of an earlier run
    first, size = int(state["step"]), sum(p.size for p in jax.tree.leaves(state["params"]))
    print(f"model: {size / 1e6:.2f} M parameters in {config.dtype}; mesh: {dict(mesh.shape)} of {mesh.devices.flat[0]}")
    show_placement(state, trainer.put(training_batch(data, config, seed, first)))

    print(f"\ntraining from step {first} to {args.steps}")
    state, losses = train(
        trainer, state, data, config, seed=seed, until=args.steps, out=out, save_every=args.save_every
    )
    if first == 0 and (count := min(args.compare, len(losses))):
        alone = Trainer(make_mesh((1, 1)), config, args.steps)
        _, expected = train(alone, alone.init(random.key(seed)), data, config, seed=seed, until=count)
        gap = max(abs(a - b) for a, b in zip(losses, expected, strict=False))
        verdict = "equal" if gap < (1e-4 if config.dtype == "float32" else 1e-2) else "DIFFERENT"
        print(f"first {count} losses on {mesh.size} devices and on one: {verdict}, at most {gap:.1e} apart")

    bits = bits_per_byte(trainer, state["params"], validation, config)
    print(f"\nvalidation: {bits:.3f} bits per byte (8 is a blind guess)")
    window = np.frombuffer(prompt, np.uint8)
    continuation = trainer.sample(state["params"], window, random.key(seed), length=args.length)
    print(f"\nsample:\n{args.prompt}{bytes(np.asarray(continuation)).decode(errors='replace')}")
    params = jax.tree.map(jnp.asarray, multihost_utils.process_allgather(state["params"], tiled=True))
    if jax.process_index() == 0:
        exported = export_model(out / "model.phalanx", params, config.dtype)
        types = f"{exported.in_avals[0].str_short()} -> {exported.out_avals[0].str_short()}"
        print(f"\nmodel: {out / 'model.phalanx'}: {types}")
        print(f"a second process, from that file alone:\n{complete_elsewhere(out / 'model.phalanx', args)}")
    print(f"\ncheckpoint: {out / str(args.steps)}; to go on: phalanx demo --resume {out} --steps {2 * args.steps}")


if __name__ == "__main__":
    main()
