"""The page of options: each option of `config` has a row with its values, default, and effect or reason."""

from tests.source_files import DOCS, load_file

import phalanx


def test_the_page_has_a_row_for_every_option():
    tables = load_file(DOCS / "option_table.py")
    page = tables.on_page_markdown((DOCS / "options.md").read_text())
    assert all(f"\n| `{name}` | " in page for name in dir(phalanx.config) if name in phalanx.config.values)
    assert (
        "| `enable_x64` | True or False | `False` | Keep 64-bit dtypes instead of narrowing them to 32 bits. |" in page
    )
    assert "| `scan3` | `False` | there is one implementation, which the option would choose |" in page
    assert tables.on_page_markdown("another page") == "another page"
