"""The table on the page "Rules of primitives": all primitives and their rules, made when the documentation is built.

Named under `hooks` in `mkdocs.yml`. Run as a program, it prints the table.
"""

from typing import Any

import phalanx.export
import phalanx.nnx
import phalanx.random  # noqa: F401 - these packages declare primitives
from phalanx.core.primitive import (
    LINEAR,
    REQUIRED,
    ZERO,
    CallRules,
    KeyRules,
    NamedAxisRules,
    PlacementRules,
    Primitive,
    Undefined,
    registry,
)

PLACE = "<!-- the table of rules -->"
GROUPS = {"call": CallRules, "named axes": NamedAxisRules, "placement": PlacementRules, "keys": KeyRules}


def cell(primitive: Primitive, rule: str) -> str:
    """Describe how a primitive has a required rule: written, derived, or waived."""
    held = getattr(type(primitive), rule, None)
    if isinstance(held, Undefined):
        return "-"
    if held in (LINEAR, ZERO):
        return "linear" if held is LINEAR else "zero"
    if held is None:
        return "with axis" if rule == "batch" and primitive.batch_axis else "-"
    return "yes"


def optional(primitive: Primitive, group: type) -> str:
    """List the optional rules of a group that a primitive overrides."""
    names = [name for name in vars(group).get("__annotations__", {}) if getattr(primitive, name) not in (None, False)]
    return ", ".join(f"`{name}`" for name in names)


def table() -> str:
    """The table as Markdown, one row for each primitive."""
    columns = ["primitive", "defined in", *REQUIRED, *GROUPS]
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for name, primitive in sorted(registry.items()):
        module = type(primitive).__module__.removeprefix("phalanx.")
        rules = [cell(primitive, rule) for rule in REQUIRED]
        groups = [optional(primitive, group) for group in GROUPS.values()]
        lines.append(f"| `{name}` | `{module}` | {' | '.join([*rules, *groups])} |")
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the table in its place; called by MkDocs for each page."""
    return markdown.replace(PLACE, table()) if PLACE in markdown else markdown


if __name__ == "__main__":
    print(table())
