"""README programs run, links resolve, every page is in the table of contents, and CI runs the documented commands."""

import os
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
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}


NAMESPACES = re.findall(r"^\| `(phalanx[\w.]*)` \|", (ROOT / "docs" / "public_api.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_public_namespace_has_a_reference_page(namespace):
    page = ROOT / "docs" / "reference" / f"{namespace.removeprefix('phalanx.')}.md"
    assert re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE) == [namespace]


def test_there_are_no_other_reference_pages():
    assert len(list((ROOT / "docs" / "reference").iterdir())) == len(NAMESPACES)


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
