"""`make metrics`: figures of the library's language and order, beside the targets that this project keeps.

The figures are read off the sources with `ast` and `tokenize`, and `dir()` of the public namespaces off the imported
package. A figure points at places to read; it is no proof of a good sentence. Rates of words are per 1,000 words of
docstrings (without examples) and comments.

    python tools/metrics.py [FOLDER]    # default: src/phalanx
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# Words that documentation of the field uses rarely, with three times their rate in JAX's documentation.
WORDS = {
    "lie": (r"lies|lie|lying|lay", 0.15),
    "stand": (r"stands?|standing", 0.15),
    "say": (r"said|says|say|saying", 0.3),
    "tell": (r"told|tells?", 0.15),
    "what": (r"what", 1.5),
    "those of": (r"those (?:of|that)", 0.3),
    "own": (r"own", 0.6),
}
PARTICIPLES = (
    set("told given drawn shown brought met held laid laid_out made said seen taken written chosen".split())
)  # fmt: skip


class Figure(NamedTuple):
    """One row of the table: what was counted, the count, the target, and whether it is kept."""

    name: str
    value: float
    target: float | None
    form: str = "{:.0f}"

    def row(self) -> str:
        kept = "" if self.target is None else "ok" if self.value <= self.target else "MISSED"
        if self.name in ("comments",):
            kept = "ok" if self.value >= (self.target or 0) else "MISSED"
        target = "" if self.target is None else self.form.format(self.target)
        return f"| {self.name} | {self.form.format(self.value)} | {target} | {kept} |"


class Source:
    """A file of the library: its text, syntax tree, and the lines that docstrings take."""

    def __init__(self, path: Path, root: Path):
        self.path, self.text = path, path.read_text()
        self.tree = ast.parse(self.text)
        self.module = ".".join([root.name, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        self.docstrings = [
            node.body[0]
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None
        ]

    def comments(self) -> list[str]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [t.string for t in tokens if t.type == tokenize.COMMENT]

    def prose(self) -> str:
        texts = [ast.literal_eval(d.value).split("Examples:")[0] for d in self.docstrings]  # type: ignore[attr-defined]
        return " ".join([*(re.sub(r">>>.*(\n.*)?", "", text) for text in texts), *self.comments()])

    def code_lines(self) -> int:
        inside = {line for d in self.docstrings for line in range(d.lineno, (d.end_lineno or d.lineno) + 1)}
        return sum(1 for i, line in enumerate(self.text.splitlines(), 1) if line.strip() and i not in inside)

    def imports(self, known: set[str], late_only: bool = False) -> Iterator[str]:
        """The modules of the library that the file imports, wherever it does so, type checkers' imports apart."""

        def visit(node: ast.AST, late: bool) -> Iterator[str]:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                    continue
                if isinstance(child, ast.ImportFrom) and (late or not late_only):
                    for alias in child.names:
                        inner = f"{child.module}.{alias.name}"
                        yield inner if inner in known else child.module or ""
                elif isinstance(child, ast.Import) and (late or not late_only):
                    yield from (alias.name for alias in child.names)
                yield from visit(child, late or isinstance(child, FUNCTIONS))

        yield from (m for m in visit(self.tree, False) if m in known and m != self.module)


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a bare string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_participle(name: str) -> bool:
    """Whether the name of a function begins with a participle, as in `widened` or `_made_at`."""
    words = name.strip("_").split("_")
    return name.strip("_") in PARTICIPLES or (len(words) <= 2 and bool(re.search(r"[a-z]{3,}(ed|wn|own)$", words[0])))


def modules_in_cycles(edges: dict[str, set[str]]) -> set[str]:
    """The members of strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[str] = set()

    def connect(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in edges[v]:
            if w not in index:
                connect(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(component) > 1:
                found.update(component)

    for v in edges:
        if v not in index:
            connect(v)
    return found


def measure_prose(sources: list[Source]) -> Iterator[Figure]:
    """Rates of words that make sentences vague, and the share of lines with a comment."""
    prose = " ".join(source.prose() for source in sources)
    total = len(re.findall(r"[A-Za-z']+", prose))
    for name, (pattern, target) in WORDS.items():
        rate = 1000 * len(re.findall(rf"\b(?:{pattern})\b", prose, re.IGNORECASE)) / total
        yield Figure(f"'{name}' per 1,000 words", rate, target, "{:.2f}")
    directives = re.compile(r"# *(fmt|noqa|type|pragma|ruff)\b")
    comments = sum(not directives.match(c) for source in sources for c in source.comments())
    yield Figure("comments", comments / sum(s.code_lines() for s in sources), 0.04, "{:.1%}")


def measure_names(sources: list[Source]) -> Iterator[Figure]:
    """Functions that are not named by verbs, and files that share a basename."""
    names = [n.name for source in sources for n in ast.walk(source.tree) if isinstance(n, FUNCTIONS)]
    yield Figure("functions named by participles", sum(map(is_participle, names)) / len(names), 0.04, "{:.1%}")
    basenames = Counter(s.path.name for s in sources if s.path.name not in ("__init__.py", "__main__.py"))
    yield Figure("basenames shared by several files", sum(n > 1 for n in basenames.values()), 0)


def measure_order(sources: list[Source]) -> Iterator[Figure]:
    """Import cycles, late imports and hooks."""
    known = {source.module for source in sources}
    packages = {source.module for source in sources if source.path.name == "__init__.py"}
    # Importing a module runs the __init__ of its package, which is no dependency of the module.
    edges = {s.module: {m for m in s.imports(known) if m not in packages} for s in sources if s.module not in packages}
    yield Figure("modules in import cycles, late imports counted", len(modules_in_cycles(edges)), 0)
    yield Figure("late imports of our own modules", sum(len(set(s.imports(known, late_only=True))) for s in sources), 0)
    hooks = sum(
        isinstance(n, ast.Call) and re.match(r"Hook\b", ast.unparse(n.func)) is not None
        for source in sources
        for n in ast.walk(source.tree)
    )
    yield Figure("hooks", hooks, 8)


def measure_code(sources: list[Source]) -> Iterator[Figure]:
    """Size, types, formatting exceptions and caches."""
    nodes = [n for source in sources for n in ast.walk(source.tree)]
    statements = sum(isinstance(n, ast.stmt) and not is_docstring(n) for n in nodes)
    yield Figure("statements without docstrings", statements, 38_500)
    every = [(f, a) for f in nodes if isinstance(f, FUNCTIONS) for a in arguments(f)]
    public = [(f, a) for f, a in every if not f.name.startswith("_")]
    for name, group, target in (("arguments", every, 0.2), ("arguments of public functions", public, 0.1)):
        untyped = sum(a.annotation is not None and ast.unparse(a.annotation) == "Any" for _, a in group)
        yield Figure(f"{name} annotated Any", untyped / len(group), target, "{:.1%}")
    remedies = [
        k.value.value
        for n in nodes
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == "fix" and isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
    ]
    yield Figure("literal remedies of three words or fewer", sum(len(r.split()) <= 3 for r in remedies), 50)
    yield Figure("`# fmt: skip`", sum("fmt: skip" in c for source in sources for c in source.comments()), 50)
    yield Figure(
        "empty module-level dicts (registries) and functools.cache", sum(bare_dicts(s.tree) for s in sources), None
    )
    yield Figure("lines of the longest file", max(len(s.text.splitlines()) for s in sources), 800)


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """The named arguments of a function, `self` and `cls` apart."""
    given = function.args
    return [a for a in given.posonlyargs + given.args + given.kwonlyargs if a.arg not in ("self", "cls")]


def bare_dicts(tree: ast.Module) -> int:
    """Empty module-level dicts under a private name, and functions under `functools.cache` or `lru_cache`.

    Results are remembered in an `engine.cache.Cache`; what is left here should be registries of declared things.
    """
    empty = ("{}", "dict()")
    dicts = sum(
        isinstance(n, (ast.Assign, ast.AnnAssign))
        and n.value is not None
        and ast.unparse(n.value) in empty
        and ast.unparse(n.target if isinstance(n, ast.AnnAssign) else n.targets[0]).startswith("_")
        for n in tree.body
    )
    decorators = [ast.unparse(d) for n in ast.walk(tree) if isinstance(n, FUNCTIONS) for d in n.decorator_list]
    return dicts + sum(bool(re.match(r"functools\.(lru_)?cache\b", d)) for d in decorators)


def measure_namespaces() -> Iterator[Figure]:
    """Names that `dir()` of a public namespace shows and that nobody should import from it."""
    import importlib
    import inspect

    page = (ROOT / "docs" / "public_api.md").read_text()
    leaks = []
    for namespace in re.findall(r"^\| `(phalanx[\w.]*)` \|", page, re.MULTILINE):
        module = importlib.import_module(namespace)
        for name in dir(module):
            thing = getattr(module, name)
            home = (getattr(thing, "__module__", None) or "").partition(".")[0]
            is_foreign = home in sys.stdlib_module_names - {"builtins"} and namespace != "phalanx.typing"
            if not name.startswith("__") and not inspect.ismodule(thing) and (name.startswith("_") or is_foreign):
                leaks.append(f"{namespace}.{name}")
    yield Figure("names that leak into public namespaces", len(leaks), 0)


def main(folder: Path) -> None:
    """Print the table of all figures of a source folder."""
    sys.setrecursionlimit(20_000)
    sources = [Source(path, folder) for path in sorted(folder.rglob("*.py"))]
    figures = [Figure("files", len(sources), None)]
    for measure in (measure_prose, measure_names, measure_order, measure_code):
        figures += measure(sources)
    figures += measure_namespaces() if folder == ROOT / "src" / "phalanx" else ()
    print("| figure | now | target | |\n| --- | --- | --- | --- |")
    print("\n".join(figure.row() for figure in figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "src" / "phalanx")
