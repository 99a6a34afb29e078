"""The page of options: each option of `config` has a row with its values, default, and effect or reason."""

import importlib.util
from pathlib import Path

import phalanx

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_a_row_for_every_option():
    spec = importlib.util.spec_from_file_location("option_table", DOCS / "option_table.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = tables.on_page_markdown((DOCS / "options.md").read_text())
    assert all(f"\n| `{name}` | " in page for name in dir(phalanx.config) if name in phalanx.config.values)
    assert (
        "| `enable_x64` | True or False | `False` | Keep 64-bit dtypes instead of narrowing them to 32 bits. |" in page
    )
    assert "| `scan3` | `False` | there is one implementation, which the option would choose |" in page
    assert tables.on_page_markdown("another page") == "another page"
