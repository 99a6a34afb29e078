"""The code on the pages runs, each page's blocks in order in one namespace, and prints what stands behind it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx

pytestmark = pytest.mark.lengthy

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", re.DOTALL)


def run(text: str, name: str, capsys) -> None:
    namespace: dict = {}
    for code, wanted in BLOCK.findall(text):
        exec(compile(code, name, "exec"), namespace)
        phalanx.effects_barrier()
        printed = capsys.readouterr().out
        if wanted:
            assert printed.rstrip() == wanted.rstrip(), code


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_code_of_a_page_runs(page, capsys):
    run(page.read_text(), str(page), capsys)


WALK = """
import textwrap
import phalanx
import phalanx.lax.elementwise.elementwise_primitives as elementwise

exec(textwrap.dedent(line), vars(elementwise))
cube = elementwise.cube_p
print(cube(3.0), phalanx.grad(cube)(2.0), phalanx.grad(phalanx.grad(cube))(2.0))
print(phalanx.jit(phalanx.vmap(cube))(phalanx.numpy.arange(3.0)))
"""


def test_the_declaration_of_the_walk_declares_a_primitive():
    """In a process of its own, since every primitive is walked by the law tests."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    (declared,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    code = f"line = {declared!r}\n{WALK}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["27.0", "12.0", "12.0", "[0.", "1.", "8.]"]


def test_another_output_is_noticed(capsys):
    page = "```python\nprint(1)\n```\n```text\n{}\n```\n"
    run(page.format(1), "page", capsys)
    with pytest.raises(AssertionError):
        run(page.format(2), "page", capsys)
