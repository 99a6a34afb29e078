"""The generated page of rules: every primitive has a row, and a cell says how it has a rule."""

from tests.source_files import DOCS, load_file

from phalanx.core.primitive import registry

rules = load_file(DOCS / "primitive_rules.py")


def test_the_page_has_a_row_for_every_primitive():
    page = rules.on_page_markdown((DOCS / "primitives.md").read_text())
    assert all(f"| `{name}` |" in page for name in registry)


def test_cells_say_how_a_primitive_has_a_rule():
    rows = {line.split("|")[1].strip(" `"): line.split("|") for line in rules.table().splitlines()}
    assert [cell.strip() for cell in rows["mul"][3:9]] == ["yes", "yes", "yes", "yes", "yes", "yes"]
    assert rows["floor"][6].strip() == "zero" and rows["transpose"][6].strip() == "linear"
    assert rows["exp"][7].strip() == "-" and "`partial_eval`" in rows["scan"][9]
