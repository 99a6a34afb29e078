"""The architecture page and the glossary agree with the sources."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "phalanx"


def read_rows(page: str) -> list[list[str]]:
    """The cells of all table rows of a page."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]


def test_the_table_of_layers_is_that_of_the_import_linter():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    checked = [{name.strip() for name in layer.split(":")} for layer in config["layers"]]
    shown = [row for row in read_rows("architecture.md") if row[0].isdigit()]
    assert [set(re.findall(r"`(\w+)`", row[1])) for row in shown] == checked
    assert [int(row[0]) for row in shown] == list(range(len(checked), 0, -1))


@pytest.mark.parametrize("row", read_rows("glossary.md")[2:], ids=lambda row: row[0])
def test_a_term_of_the_glossary_is_defined_where_it_says(row):
    term, meaning, path, peer = row
    assert term and meaning and peer
    for name in re.findall(r"`([\w/.]+)`", path):
        assert any((folder / name).exists() for folder in (SOURCE, SOURCE.parent, ROOT)), name


def test_no_row_of_the_glossary_is_repeated():
    terms = [row[0] for row in read_rows("glossary.md")[2:]]
    assert terms == sorted(terms, key=str.lower) and len(terms) == len(set(terms))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("architecture.md")))
def test_files_named_on_the_page_exist(page):
    for name in re.findall(r"`((?:\w+/)+\w+\.py)", page.read_text()):
        assert any((folder / name).exists() for folder in (SOURCE, SOURCE.parent, ROOT)), name
