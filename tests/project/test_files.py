"""The project's own files hold what they promise: the README's program runs, links lead somewhere, CI is executable."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = ["README.md", "CHANGELOG.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]


def run(source: str) -> str:
    environment = {**os.environ, "PHALANX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
def test_the_programs_of_the_readme_run(program):
    assert run(program)


@pytest.mark.parametrize("page", TEXTS)
def test_links_between_files_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_every_page_of_the_documentation_is_in_its_table_of_contents():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}


REFERENCE = ROOT / "docs" / "reference"
PAGES = {page.stem: re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE) for page in REFERENCE.glob("*.md")}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_a_reference_page_shows_exists(page):
    assert PAGES[page]
    for name in PAGES[page]:
        assert pkgutil.resolve_name(name) is not None, name


def test_nothing_is_documented_on_two_pages():
    shown = [name for page in PAGES.values() for name in page]
    assert len(shown) == len(set(shown)), sorted({name for name in shown if shown.count(name) > 1})


@pytest.mark.parametrize("room", ["", ".numpy", ".lax", ".random", ".nn", ".nnx", ".optim", ".image", ".ops", ".tree",
                                  ".sharding", ".export", ".debug", ".scipy", ".errors"])  # fmt: skip
def test_every_public_function_is_on_a_reference_page(room):
    module = importlib.import_module(f"phalanx{room}")
    text = Path(module.__file__).read_text()
    names = dir(module) if not room else re.findall(r"import (\w+) as \1$", text, re.MULTILINE)
    shown = {name for page in PAGES.values() for name in page}
    missing = []
    for name in names:
        thing = getattr(module, name)
        home = getattr(thing, "__module__", None) or ""
        is_ours = home.startswith("phalanx.") and home != module.__name__  # names of dtypes are of the room itself
        if not is_ours or not (inspect.isfunction(thing) or inspect.isclass(thing)):
            continue
        path = f"{home}.{thing.__name__}"
        if not any(path == s or path.startswith(f"{s}.") for s in shown):
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("target", ["demo", "test", "check", "bench", "docs"])
def test_the_makefile_has_the_targets_of_the_readme(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_ci_runs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().rstrip().splitlines()[-1] == "exec make --no-print-directory test"
    assert "make test" in (ROOT / "README.md").read_text()


def test_files_name_no_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not in a clone")
    private = re.compile("/" + r"(?:work|root|home/\w+|mnt)/" + "|--index" + "-url")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ""} and path.exists():
            assert not private.search(path.read_text(errors="ignore")), name
