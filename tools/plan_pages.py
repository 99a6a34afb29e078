"""HTML pages of plans: the training step of the demo on 8 CPU devices, 64 GPUs and a TPU pod, before and after AUTO.

`make plans` writes them to `build/plans/`, with the compilers for GPUs and TPUs. Where one is not installed, XLA for
CPUs answers in its place, and the page says so. Run as a program with the folder to write to.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from examples.train_lm import Config, Trainer, forward, init_state, train_step

import phalanx
from phalanx.planning import Machine, Plan
from phalanx.planning.machines import HOST
from phalanx.planning.plan_report import Bytes, Seconds
from phalanx.sharding import AUTO, AbstractMesh, NamedSharding, P

LARGE = Config(layers=8, width=1024, heads=16, hidden=4096, window=512, batch=256, dtype="bfloat16")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 3em auto; max-width: 960px; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2.2em 0 .3em } p { margin: .3em 0 .8em; color: #555 }
table { border-collapse: collapse; width: 100%; table-layout: fixed } th { font-weight: 600; text-align: left }
td, th { padding: 6px 12px 6px 0; vertical-align: top } tr + tr { border-top: 1px solid #ddd }
th:first-child { width: 11em; font-weight: 400 } .bar { height: 10px; border-radius: 2px; background: #33587f }
td.after .bar { background: #4f9d69 } a { color: #33587f } summary { cursor: pointer; color: #33587f }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1em; overflow-x: auto; font-size: 13px }
"""


class Place(NamedTuple):
    """Devices to plan for: their name, the sizes of the mesh, the machine and the sizes of the model."""

    name: str
    sizes: tuple[int, int]
    target: str | Machine
    config: Config


PLACES = {
    "cpu": Place("8 CPU devices", (4, 2), HOST, Config()),
    "gpu": Place("64 H100 GPUs", (16, 4), "h100", LARGE),
    "tpu": Place("TPU v5p pod of 256 chips", (64, 4), "v5p", LARGE),
}


def plan_step(place: Place) -> tuple[Plan, Any]:
    """Plan the step with the shardings of the demo, and choose others by AUTO; returns the plan and the choice."""
    mesh, config = AbstractMesh(place.sizes, ("data", "model")), place.config
    state = phalanx.eval_shape(partial(init_state, config=config), phalanx.random.key(0))
    batch = phalanx.ShapeDtypeStruct((config.batch, config.window + 1), "uint8")
    trainer = Trainer(mesh, config, total=500)
    given = phalanx.plan(
        trainer.step, state, batch, mesh=mesh, target=place.target,
        in_shardings=(trainer.state_shardings, trainer.batch_sharding),
    )  # fmt: skip
    auto = AUTO(mesh, target=place.target)
    step = partial(train_step, total=500, forward=partial(forward, dtype=config.dtype))
    outs = (auto, NamedSharding(mesh, P()))
    lowered = phalanx.jit(step, in_shardings=(auto, auto), out_shardings=outs, donate_argnums=0).lower(state, batch)
    return given, lowered.auto


def format_section(key: str, place: Place, given: Plan, choice: Any) -> str:
    """One place: memory, bytes sent and time of both plans as bars, and the chosen shardings as code."""
    rows = []
    for name, unit, read in (
        ("memory of a device", Bytes, lambda plan: plan.memory.peak),
        ("sent by a device", Bytes, lambda plan: plan.collectives.bytes),
        ("time of a step", Seconds, lambda plan: plan.time.step),
    ):
        values = read(given), read(choice.plan)
        bars = (
            f'<td class={side}>{unit(n)}<div class=bar style="width:{100 * n / max(*values, 1e-30):.1f}%"></div></td>'
            for side, n in zip(("before", "after"), values, strict=True)
        )
        rows.append(f"<tr><th>{name}</th>{''.join(bars)}</tr>")
    data, model = place.sizes
    notes = "".join(f"<p>{escape(note)}</p>" for note in given.notes)
    return (
        f"<h2>{escape(place.name)}: {data} × {model} along data × model</h2><p>{place.config.layers} layers of width "
        f"{place.config.width}, batches of {place.config.batch} × {place.config.window} in {place.config.dtype}, "
        f"compiled by {escape(given.compiler)}</p>{notes}<table><tr><th></th>"
        f"<th><a href={key}_before.html>before: the specs of the demo</a></th>"
        f"<th><a href={key}_after.html>after: AUTO, which took {escape(choice.name)}</a></th></tr>"
        f"{''.join(rows)}</table>"
        f"<details><summary>The chosen shardings as code</summary><pre>{escape(choice.to_code())}</pre></details>"
    )


def write_pages(folder: Path) -> None:
    """Write a page for each plan, and one with all of them side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for key, place in PLACES.items():
        given, choice = plan_step(place)
        named = replace(given, name=f"{given.name} (the specs of the demo)")
        (folder / f"{key}_before.html").write_text(named.to_html())
        (folder / f"{key}_after.html").write_text(choice.plan.to_html())
        sections.append(format_section(key, place, given, choice))
        print(f"{place.name}: planned")
    (folder / "index.html").write_text(
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>Plans of the demo</title><style>{STYLE}</style>"
        "<h1>The training step of the demo, planned before it runs</h1><p>What one device needs and sends, and the "
        "estimated time of a step, from the compiler and without the devices. The headings lead to a page for each "
        f"plan, with the memory over the program and source lines.</p>{''.join(sections)}</html>"
    )


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
