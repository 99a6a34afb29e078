"""Calls with a mistake raise an error that is also the built-in exception of NumPy or JAX for the same mistake.

Each expression of `cases` gets one mistake at a time: an argument of a wrong type, shape or value, a missing one, or an
unknown keyword. Where both refuse the call, our error is of the class that NumPy raises, or of the one of JAX.
"""

import ast
import copy

import numpy as np
import pytest
from tests.numpy import cases

import phalanx
import phalanx.numpy as jnp

try:
    import jax
except ImportError:
    jax = None

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = {
    "text": "'abc'",
    "nothing": "None",
    "large": "99",
    "fraction": "1.5",
    "ragged": "[[1, 2], [3]]",
    "text_array": "np.array('a')",
    "shape": "np.zeros((2, 7, 5), np.float32)",
    "empty": "np.zeros(0, np.float32)",
}
KEYWORDS = {"axis": "axis=7", "axis_name": "axis='x'", "dtype": "dtype='nonsense'", "unknown": "no_such=1"}
# Part of the message: why our class is another one.
DIFFERENCES = {
    "cov, argument weights": "weights of a wrong shape are a ShapeError in each function, and a RuntimeError there",
    "expected edges, got none": "an empty vector of edges is a ShapeError, and an IndexError there",
    "axis_name: expected the name": "any and all reduce over named axes, too",
}
MISTAKES = ("missing", "surplus", *VALUES, *KEYWORDS)


def function_name(expression):
    """The function that an expression calls, if it is a call of a public function."""
    call = ast.parse(expression, mode="eval").body
    return ast.unparse(call.func) if type(call) is ast.Call and ast.unparse(call.func).startswith("xp.") else None


def with_mistakes(expression, mistake):
    """The expressions that make one mistake, at each place where it can be made."""
    call = ast.parse(expression, mode="eval").body

    def changed(change):
        made = copy.deepcopy(call)
        change(made)
        return ast.unparse(made)

    if mistake == "missing":
        return [changed(lambda c: c.args.pop())] if call.args else []
    if mistake == "surplus":
        return [changed(lambda c: c.args.extend([ast.Constant(1)] * 9))]
    if mistake in VALUES:
        value = ast.parse(VALUES[mistake], mode="eval").body
        return [changed(lambda c, i=i: c.args.__setitem__(i, value)) for i in range(len(call.args))]
    (keyword,) = ast.parse(f"f({KEYWORDS[mistake]})", mode="eval").body.keywords
    given = [k for k in call.keywords if k.arg != keyword.arg]
    return [changed(lambda c: setattr(c, "keywords", [*given, keyword]))]


def find_error(expression, system, xp):
    """The error of an expression, whose arrays are traced so that nothing is compiled; None if it works."""
    names = [n for n in cases.ARRAYS if n in expression]

    def function(*arrays):
        eval(expression, {"xp": xp, "np": np, **cases.ARRAYS, **dict(zip(names, arrays, strict=True))})

    try:
        if system is np:
            function(*[cases.ARRAYS[n].copy() for n in names])
        else:
            system.eval_shape(function, *[cases.ARRAYS[n] for n in names])
    except Exception as error:
        return error
    return None


def builtin_of(error):
    """The most specific built-in class of an error."""
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def differing_errors(expressions, mistake):
    """The invalid calls whose error is of neither class, and the number of compared ones."""
    found, compared = [], 0
    for expression in expressions:
        for call in with_mistakes(expression, mistake):
            wanted = find_error(call, np, np)
            ours = None if wanted is None else find_error(call, phalanx, jnp)
            if ours is None:
                continue
            compared += 1
            if isinstance(ours, builtin_of(wanted)) or any(part in str(ours) for part in DIFFERENCES):
                continue
            peer = None if jax is None else find_error(call, jax, jax.numpy)
            if peer is not None and not isinstance(ours, builtin_of(peer)):
                found.append(f"{call}: {type(ours).__name__}, not {type(wanted).__name__} or {type(peer).__name__}")
    return found, compared


EXPRESSIONS = [c for c in cases.CASES if not c.startswith("~") and function_name(c)]
ONE_EACH = list({function_name(c): c for c in EXPRESSIONS}.values())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_invalid_calls_raise_errors_of_numpy_or_jax(mistake):
    found, compared = differing_errors(ONE_EACH, mistake)
    assert found == [] and compared > 50


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_all_invalid_calls_raise_errors_of_numpy_or_jax(mistake):
    assert differing_errors(EXPRESSIONS, mistake)[0] == []


@pytest.mark.skipif(jax is None, reason="needs the peer")
def test_an_error_of_another_class_is_found(monkeypatch):
    monkeypatch.setattr(jnp, "diag", lambda *args: {}["missing"])
    assert differing_errors(["xp.diag(V)"], "text_array")[0] != []
