"""`phalanx run` runs a program as `python` does: arguments, paths, `__main__`, tracebacks, exit codes, children."""

import json
import sys
import zipfile

import pytest
from tests.as_jax.processes import run

SHOW = """
import json, sys
names = ("__name__", "__file__", "__package__", "__cached__", "__doc__")
main = {name: globals().get(name) for name in names}
spec = globals()["__spec__"]
print(json.dumps([sys.argv, sys.path[0], main, spec and spec.name, type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals()]))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    where = tmp_path_factory.mktemp("programs")
    (where / "show.py").write_text(SHOW)
    (where / "package").mkdir()
    (where / "package" / "__init__.py").write_text("import sys\nassert sys.argv[0] == '-m'\n")
    (where / "package" / "__main__.py").write_text(SHOW)
    (where / "folder").mkdir()
    (where / "folder" / "__main__.py").write_text(SHOW)
    with zipfile.ZipFile(where / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    (where / "link.py").symlink_to(where / "folder" / "__main__.py")
    return where


@pytest.mark.parametrize(
    "words",
    [["show.py"], ["-m", "show"], ["-m", "package"], ["folder"], ["archive.zip"], ["link.py"], ["-c", SHOW]],
    ids=lambda words: " ".join(words[:2])[:12],
)
def test_a_program_finds_what_python_gives_it(directory, words):
    arguments = [*words, "--flag", "-m", "x"]
    python, phalanx = run(*arguments, cwd=directory), run("-m", "phalanx", "run", *arguments, cwd=directory)
    assert python.returncode == phalanx.returncode == 0, python.stderr + phalanx.stderr
    assert json.loads(phalanx.stdout) == json.loads(python.stdout)


def test_the_module_takes_the_arguments_of_the_command(directory):
    words = ["show.py", "a"]
    assert run("-m", "phalanx.as_jax", *words, cwd=directory).stdout == run(*words, cwd=directory).stdout


FAILING = """\
def double(x):
    return 2 * jnp.dot(x, jnp.ones((3, 2)))

import jax.numpy as jnp
double(jnp.ones(4))
"""


def test_a_traceback_has_the_frames_of_the_program_only(tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = run("-m", "phalanx", "run", str(script))
    lines = [line for line in done.stderr.splitlines() if "^" not in line]
    assert done.returncode == 1
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 5, in <module>',
        "    double(jnp.ones(4))",
        f'  File "{script}", line 2, in double',
        "    return 2 * jnp.dot(x, jnp.ones((3, 2)))",
        "phalanx.errors.ShapeError: dot: expected equal sizes of the dimensions to be summed over, "
        "got 4 in (4,) and 3 in (3, 2).",
        "  Fix: transpose or reshape an operand.",
    ]


@pytest.mark.parametrize(
    "code, status, text",
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
        ("import atexit; atexit.register(print, 'done'); 1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_exit_codes_pass_through(code, status, text):
    done = run("-m", "phalanx", "run", "-c", code)
    assert done.returncode == status and done.stderr.endswith(text)
    assert done.stdout == ("done\n" if "atexit" in code else "")


@pytest.mark.parametrize(
    "words, text",
    [
        (["absent.py"], "can't open file '{cwd}/absent.py': [Errno 2] No such file or directory"),
        (["-m", "absent.module"], "No module named absent.module"),
        (["empty"], "can't open file '{cwd}/empty': [Errno 21] Is a directory"),
    ],
)
def test_a_program_that_is_not_there_is_an_error(tmp_path, words, text):
    (tmp_path / "empty").mkdir()
    done = run("-m", "phalanx", "run", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"phalanx run: {text.format(cwd=tmp_path)}\n")


@pytest.mark.parametrize("source", [b"x = (1,\n", b"x = 1\0"])
def test_a_program_with_an_error_of_syntax_ends_as_under_python(tmp_path, source):
    (tmp_path / "wrong.py").write_bytes(source)
    python, phalanx = (run(*words, "wrong.py", cwd=tmp_path) for words in ([], ["-m", "phalanx", "run"]))
    assert (phalanx.returncode, python.returncode) == (1, 1)
    assert "SyntaxError: " in phalanx.stderr
    assert "Traceback" not in phalanx.stderr


def test_the_report_lists_the_names_that_were_not_found():
    code = "import jax\nhasattr(jax.numpy, 'fftt')\ntry:\n    import jax.absent.module\nexcept ImportError: pass"
    done = run("-m", "phalanx", "run", "--report", "-c", code)
    assert done.stderr == (
        "Names of JAX that Phalanx does not have, and the modules that asked for them:\n"
        "  jax.absent      __main__\n"
        "  jax.numpy.fftt  __main__\n"
    )
    assert run("-m", "phalanx", "run", "--report", "-c", "import jax").stderr == (
        "Phalanx has every name of JAX that this program asked for.\n"
    )


CHILDREN = """\
import multiprocessing, subprocess, sys
import jax

def served(x):
    return jax.__name__, jax.jit.__module__, float(jax.numpy.sin(x)), sys.path

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(served, (1.0,)) == served(1.0)
    child = "import jax, sys; print(jax.jit.__module__, *(p for p in sys.path if 'child_startup' in p), sys.argv)"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout, end="")
"""


def test_child_processes_are_served_too(tmp_path):
    (tmp_path / "children.py").write_text(CHILDREN)
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.argv.append('of the environment')")
    done = run("-m", "phalanx", "run", "children.py", cwd=tmp_path, paths=(str(tmp_path),))
    assert done.stderr == "" and done.stdout == "phalanx ['-c', 'of the environment']\n"


def test_a_child_without_phalanx_is_left_alone(tmp_path):
    code = (
        f"import subprocess, os; subprocess.run([{sys.executable!r}, '-S', '-c', 'import site; site.main(); print(1)'])"
    )
    assert run("-m", "phalanx", "run", "-c", code).stdout == "1\n"
