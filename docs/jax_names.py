"""The tables on the page "Names of JAX": the public names of the peer and whether Phalanx has them.

The names, and the reasons for those that are absent or differ, are in `jax_names.toml`; which ones exist is read from
the package when the documentation is built. Named under `hooks` in `mkdocs.yml`. Run as a program, it prints the
tables.
"""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.as_jax.module_finder import read_tables

PLACE = "<!-- the tables of names -->"
DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "jax_names.toml").read_text())


class Name(NamedTuple):
    """One public name of JAX.

    Attributes:
      module: the module, such as `jax.numpy`.
      name: the name in it.
      exists: whether a program that imports it from Phalanx finds it.
      note: how it differs, or why it is absent; empty if it works as in JAX.
    """

    module: str
    name: str
    exists: bool
    note: str

    @property
    def path(self) -> str:
        """The full name."""
        return f"{self.module}.{self.name}"


def list_names() -> Iterator[Name]:
    """All names of the data file."""
    rows = read_tables()
    for module, text in DATA["names"].items():
        known = {*dir(find_module(f"phalanx{module.removeprefix('jax')}")), *rows.get(module, {})}
        for name in text.split():
            exists = name in known
            notes = DATA["differs" if exists else "absent"]
            yield Name(module, name, exists, notes.get(f"{module}.{name}", "" if exists else notes.get(module, "")))


def find_module(path: str) -> Any:
    """The module of Phalanx with a name, or the object in its place, such as `scipy.stats.norm`; None if absent."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(find_module(parent), name, None) if parent else None


def tables() -> str:
    """The tables as Markdown: a summary, the absent names, those that differ, and all others by module."""
    names = list(list_names())
    lines = ["| module | names | as in JAX | differ | absent |", "| --- | --- | --- | --- | --- |"]
    modules = list(DATA["names"])
    for module in modules:
        rows = [n for n in names if n.module == module]
        differ, absent = (len([n for n in rows if n.note and n.exists == exists]) for exists in (True, False))
        lines.append(f"| `{module}` | {len(rows)} | {len(rows) - differ - absent} | {differ} | {absent} |")
    lines += ["", "## Names that differ", "", "| name | difference |", "| --- | --- |"]
    lines += [f"| `{n.path}` | {n.note} |" for n in names if n.exists and n.note]
    lines += ["", "## Absent names", "", "| names | reason |", "| --- | --- |"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for n in names:
        if not n.exists:
            reasons.setdefault((n.module, n.note), []).append(n.name)
    lines += [
        f"| {', '.join(f'`{module}.{name}`' for name in absent)} | {note} |"
        for (module, note), absent in reasons.items()
    ]
    lines += ["", "## Names as in JAX", ""]
    for module in modules:
        same = [n.name for n in names if n.module == module and n.exists and not n.note]
        if same:
            lines += [f"**`{module}`**: {', '.join(f'`{name}`' for name in same)}", ""]
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables in their place; called by MkDocs for each page."""
    return markdown.replace(PLACE, tables()) if PLACE in markdown else markdown


if __name__ == "__main__":
    print(tables())
