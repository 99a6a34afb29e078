"""The generated page of rules: every primitive has a row, and a cell says how it has a rule."""

import importlib.util
from pathlib import Path

from phalanx.core.primitive import registry

DOCS = Path(__file__).parents[2] / "docs"


def load():
    spec = importlib.util.spec_from_file_location("primitive_rules", DOCS / "primitive_rules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_a_row_for_every_primitive():
    rules = load()
    page = rules.on_page_markdown((DOCS / "primitives.md").read_text())
    assert all(f"| `{name}` |" in page for name in registry)


def test_cells_say_how_a_primitive_has_a_rule():
    rows = {line.split("|")[1].strip(" `"): line.split("|") for line in load().table().splitlines()}
    assert [cell.strip() for cell in rows["mul"][3:9]] == ["yes", "yes", "yes", "yes", "yes", "yes"]
    assert rows["floor"][6].strip() == "zero" and rows["transpose"][6].strip() == "linear"
    assert rows["exp"][7].strip() == "-" and "`partial_eval`" in rows["scan"][9]
