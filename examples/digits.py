"""Shared code of the examples on handwritten digits: the data, the training loop, a progress bar, the final picture.

The 1,797 images of 8 by 8 pixels come with scikit-learn (`pip install scikit-learn`); a fifth of them is kept for the
test. `train` knows nothing of devices: where batches go is said by the sharding that it is given, where parameters lie
by the model itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

import phalanx
from phalanx import checkpoint, nnx, optim

# ---- Data ------------------------------------------------------------------------------------------------------------


class Digits(NamedTuple):
    """Images f32[n, 8, 8, 1] in [0, 1] and their labels int[n], for training and for the test."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(seed: int = 0) -> Digits:
    """Load the digits of scikit-learn, split at random into training and test."""
    if find_spec("sklearn") is None:
        sys.exit("The digits come with scikit-learn, which is not installed: pip install scikit-learn")
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images, labels = (data.images[order, :, :, None] / 16).astype(np.float32), data.target[order].astype(np.int32)
    return Digits(images[360:], labels[360:], images[:360], labels[:360])


def batches(data: Digits, size: int, epochs: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of all training images, shuffled in each epoch, each image shifted by up to one pixel."""
    rng = np.random.default_rng(seed)
    padded = np.pad(data.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = np.arange(8)
    for _ in range(epochs):
        order = rng.permutation(len(data.labels))
        for chosen in np.split(order[: len(order) // size * size], len(order) // size):
            dy, dx = rng.integers(3, size=(2, size, 1))
            moved = padded[chosen[:, None, None], (dy + rows)[:, :, None], (dx + rows)[:, None, :]]
            yield moved, data.labels[chosen]


# ---- Training --------------------------------------------------------------------------------------------------------


@nnx.jit
def train_step(model, optimizer, metrics, images, labels):
    """One step along the gradient of the mean cross-entropy."""

    def loss_of(model):
        logits = model(images)
        return optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits

    (loss, logits), grads = nnx.value_and_grad(loss_of, has_aux=True)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=labels)
    return loss


@nnx.jit
def predict(model, images):
    """The most likely digit of each image."""
    return model(images).argmax(-1)


def train(
    model, data: Digits, *, sharding, epochs: int, rate: float = 3e-3, size: int = 64, seed: int = 0,
    report: Callable | None = None, folder: Path | None = None, resume: bool = False,
) -> list[float]:  # fmt: skip
    """Train a model in place, saving every epoch in `folder`; the loss of each step that is run."""
    steps = len(data.labels) // size
    total = epochs * steps
    schedule = optim.warmup_cosine_decay_schedule(0.0, rate, max(1, total // 10), max(2, total))
    tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(schedule, weight_decay=1e-2))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    training = {"model": model, "optimizer": optimizer, "epoch": 0}
    if resume:
        training = checkpoint.load(folder, training)  # updates the model and the optimizer in place
    elif folder:
        for step in checkpoint.steps(folder):
            checkpoint.delete(folder, step)  # of an earlier run
    done = training["epoch"] * steps
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    model.train()
    losses = []
    for step, batch in enumerate(islice(batches(data, size, epochs, seed), done, None), done + 1):
        losses.append(train_step(model, optimizer, metrics, *phalanx.device_put(batch, sharding)))
        if report and (step % 10 == 0 or step == total):  # Reading a number waits for the devices.
            report(step, {name: float(value) for name, value in metrics.compute().items()})
            metrics.reset()
        if folder and step % steps == 0:
            checkpoint.save(folder, training | {"epoch": step // steps}, step=step // steps, keep=1)
    return [float(loss) for loss in losses]


def evaluate(model, data: Digits) -> np.ndarray:
    """The confusion matrix of the test: true digits in rows, predictions in columns."""
    predicted = np.asarray(predict(nnx.view(model, deterministic=True, use_running_average=True,
                                            raise_if_not_found=False), data.test_images))  # fmt: skip
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (data.test_labels, predicted), 1)
    return confusion


@contextmanager
def progress_bar(total: int):
    """Yield `report(step, values)`: a live bar in a terminal, a line every 50 steps elsewhere."""
    if not sys.stdout.isatty() or find_spec("rich") is None:

        def report(step, values):
            if step % 50 == 0 or step == total:
                print(f"step {step:4}/{total}  " + "  ".join(f"{k} {v:.3f}" for k, v in values.items()), flush=True)

        yield report
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.fields[text]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("", total=total, text="training")
        yield lambda step, values: bar.update(
            task, completed=step, text="  ".join(f"{k} [bold]{v:.3f}[/]" for k, v in values.items())
        )


# ---- The picture -----------------------------------------------------------------------------------------------------


def draw(path: Path, title: str, losses: list[float], confusion: np.ndarray) -> None:
    """Write an SVG file with the loss of each step, smoothed, and the confusion matrix of the test."""
    window = max(1, len(losses) // 50)
    smooth = np.convolve(losses, np.ones(window) / window, mode="valid") if losses else np.zeros(1)
    top = max(float(smooth.max()), 1e-9)
    xs = np.linspace(60, 380, len(smooth))
    line = " ".join(f"{x:.1f},{300 - 240 * y / top:.1f}" for x, y in zip(xs, smooth))
    accuracy = np.trace(confusion) / max(confusion.sum(), 1)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 350" font-family="sans-serif" font-size="12">',
        '<rect width="780" height="350" fill="white"/>',
        f'<text x="20" y="28" font-size="16">{title}: {accuracy:.1%} of the test</text>',
        '<path d="M60 60V300H380" fill="none" stroke="#888"/>',
        f'<polyline points="{line}" fill="none" stroke="#3f51b5" stroke-width="2"/>',
        f'<text x="52" y="64" text-anchor="end">{top:.2f}</text><text x="52" y="304" text-anchor="end">0</text>',
        f'<text x="220" y="325" text-anchor="middle">loss over {len(losses)} steps</text>',
        '<text x="600" y="325" text-anchor="middle">digit (rows) and what it was taken for (columns)</text>',
    ]
    for i, row in enumerate(confusion):
        y = 60 + 24 * i
        parts.append(f'<text x="468" y="{y + 16}" text-anchor="end">{i}</text>')
        for j, count in enumerate(row):
            shade = 1 - count / max(row.sum(), 1)
            color = f"rgb({int(63 + 192 * shade)},{int(81 + 174 * shade)},{int(181 + 74 * shade)})"
            parts.append(f'<rect x="{480 + 24 * j}" y="{y}" width="23" height="23" fill="{color}"/>')
            if count:
                ink = "white" if shade < 0.5 else "black"
                middle = 491.5 + 24 * j
                parts.append(f'<text x="{middle}" y="{y + 16}" text-anchor="middle" fill="{ink}">{count}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


# ---- The program -----------------------------------------------------------------------------------------------------


def arguments(doc: str, argv: list[str] | None, *, epochs: int, rate: float) -> argparse.Namespace:
    """Parse the command line, which all examples share."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=epochs, help=f"rounds over all images (default: {epochs})")
    parser.add_argument("--rate", type=float, default=rate, help=f"the largest learning rate (default: {rate})")
    parser.add_argument("--seed", type=int, default=0, help="seed of parameters and batches (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="where picture and checkpoints go (default: runs)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the checkpoint below --out, on any mesh")
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error(f"--epochs: expected at least 1, got {args.epochs}")
    return args


def run(title: str, make_model: Callable, args: argparse.Namespace, *, sharding, data: Digits | None = None) -> float:
    """Train, test and draw; return the accuracy on the test images."""
    name = title.replace(" ", "_").lower()
    if find_spec("tensorstore") is None:
        sys.exit("Checkpoints need tensorstore, which is not installed: pip install 'phalanx[examples]'")
    if args.resume and not checkpoint.steps(args.out / name):
        sys.exit(f"--resume: there is no checkpoint in {args.out / name}")
    data = load() if data is None else data
    model = make_model(nnx.Rngs(args.seed))
    sample = phalanx.ShapeDtypeStruct((64, 8, 8, 1), np.float32)
    if find_spec("rich") is not None:
        print(nnx.tabulate(model, sample, depth=1, console_kwargs={"width": 120}))
    began = time.perf_counter()
    with progress_bar(args.epochs * (len(data.labels) // 64)) as report:
        losses = train(
            model, data, sharding=sharding, epochs=args.epochs, rate=args.rate, seed=args.seed, report=report,
            folder=args.out / name, resume=args.resume,
        )  # fmt: skip
    confusion = evaluate(model, data)
    accuracy = np.trace(confusion) / confusion.sum()
    picture = args.out / f"{name}.svg"
    draw(picture, title, losses, confusion)
    print(f"{accuracy:.1%} of {confusion.sum()} test images, after {time.perf_counter() - began:.0f} s; see {picture}")
    return float(accuracy)
