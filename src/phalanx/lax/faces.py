"""Public functions of one array and of two, from a row each: the primitive, one line of words, and an example.

What a function takes is what its primitive declares, so its documentation is derived from that. Builds on `family`;
called by the files whose tables are made of such rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.lax.family import (
    ANY,
    BITS,
    COMPLEX,
    EQUATED,
    FLOATING,
    INEXACT,
    INTEGER,
    ORDERED,
    SCALARS,
    AccuracyMode,
    Tolerance,
    match_two,
    public_name,
)

Accuracy = Tolerance | AccuracyMode | None

_WORDS = {
    INEXACT: "inexact",
    FLOATING: "float",
    COMPLEX: "complex",
    BITS: "bits",
    INTEGER: "int",
    ANY: "any",
    EQUATED: "any",
    ORDERED: "any",
}
_ACCURACY = "\n  accuracy: how exact the compiler must be, a `Tolerance` or `AccuracyMode`."
_DOC = """{words}: {types}.

Args:
  {takes}

Returns:
  {gives}.

Raises:
  {raises}

Examples:
  >>> from phalanx import lax
  >>> lax.{name}({example}).item()
  {value}
"""


class _Row(NamedTuple):
    """What a public function is made from.

    primitive: what it applies.
    words: what it computes, one line of its documentation.
    example, value: the arguments of a call, and what the call gives, as texts.
    result: the kind of dtype of the result, where it is another one than that of the arrays.
    """

    primitive: Any
    words: str
    example: str
    value: str
    result: str


def one(primitive: Any, words: str, example: str, value: str, *, accuracy: bool = False, result: str = "") -> Any:
    """Make the public function of a primitive of one array.

    Args:
      primitive: what it applies; it is defined in the module that calls this, under the primitive's public name.
      words: what it computes, one line of its documentation.
      example, value: the arguments of a call, and what the call gives, as texts.
      accuracy: whether it lets users say how exact the compiler must be.
      result: the kind of dtype of the result, where it is another one than that of the array.
    """

    def exact(x: Any, *, accuracy: Accuracy = None) -> Any:
        return primitive(x) if accuracy is None else primitive(x, accuracy=accuracy)

    def plain(x: Any) -> Any:
        return primitive(x)

    takes = f"x: array of {primitive.kinds.words}.{_ACCURACY if accuracy else ''}"
    raises = "DTypeError: `x` is of another dtype."
    return _named(exact if accuracy else plain, _Row(primitive, words, example, value, result), 1, takes, raises)


def two(primitive: Any, words: str, example: str, value: str, *, result: str = "", **operands: str) -> Any:
    """Make the public function of a primitive of two arrays.

    Args:
      primitive, words, example, value, result: as in `one`.
      **operands: the names of the two, and what each is; x and y if not given.
    """

    def function(x: Any, y: Any) -> Any:
        if type(x) in SCALARS or type(y) in SCALARS:
            x, y = match_two(x, y)
        return primitive(x, y)

    operands = operands or {"x": "", "y": ""}
    # Renamed, not wrapped: a call within a call would cost a tenth of an eager operation.
    function.__code__ = function.__code__.replace(co_varnames=tuple(operands))
    first, second = (f"{name}: {what}{': ' if what else ''}" for name, what in operands.items())
    takes = f"{first}array of {primitive.kinds.words}.\n  {second}one of the same dtype; shapes are equal, or one has"
    takes += " rank 0. A Python scalar takes the dtype of the other."
    raises = "DTypeError: the dtypes differ, or the operation does not take them.\n  ShapeError: the shapes differ."
    return _named(function, _Row(primitive, words, example, value, result), 2, takes, raises)


def _named(function: Callable, row: _Row, count: int, takes: str, raises: str) -> Callable:
    name, kind, result = public_name(row.primitive), _WORDS.get(row.primitive.kinds, "num"), row.result
    types = f"{', '.join([f'{kind}[*s]'] * count)} -> {result or kind}[*s]"
    gives = f"An array of the {'common shape' if count > 1 else 'shape of `x`'}, of a {result} dtype"
    if not result:
        gives = f"An array of the {'common shape and dtype' if count > 1 else 'shape and dtype of `x`'}"
    doc = _DOC.format(**row._asdict(), types=types, takes=takes, gives=gives, raises=raises, name=name)
    return named(function, name, doc, depth=3)


def named(function: Callable, name: str, doc: str, depth: int = 2) -> Any:
    """Give a function made by a table its name and documentation, and the module of the table (`depth` calls above)."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = sys._getframe(depth).f_globals["__name__"]  # where doctest and readers look for it
    function.__doc__ = doc
    return function
