"""Public functions of elementwise primitives, each declared in one row: the primitive, a summary, and an example.

The rest of the docstring, types included, follows from the dtypes that the primitive declares. Builds on
`elementwise_builders`; called by `arithmetic`, `comparison`, `special` and `transcendental`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from phalanx.core import ShapeError
from phalanx.lax.elementwise.elementwise_builders import (
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
    Elementwise,
    Tolerance,
    apply_broadcast,
    match_scalar_pair,
    public_name,
)
from phalanx.typing import Array

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
_ACCURACY = "\n  accuracy: the accuracy required of the compiler, a `Tolerance` or an `AccuracyMode`."
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


def unary_wrapper(
    primitive: Elementwise, words: str, example: str, value: str, *, accuracy: bool = False, result: str = ""
) -> Any:
    """Make the public function of a primitive of one array.

    Args:
      primitive: the primitive that it applies; the caller binds the function to the public name of the primitive.
      words: the summary line of its docstring.
      example, value: the arguments and the output of an example, as text.
      accuracy: whether it has the keyword argument `accuracy`.
      result: the kind of the dtype of the result, if it is not the dtype of the operand.
    """

    # Two functions rather than one with an optional argument: a primitive without `accuracy` has no such parameter.
    def exact(x: Array, *, accuracy: Accuracy = None) -> Any:
        return primitive(x) if accuracy is None else primitive(x, accuracy=accuracy)

    def plain(x: Array) -> Any:
        return primitive(x)

    takes = f"x: array of {primitive.kinds.words}.{_ACCURACY if accuracy else ''}"
    raises = "DTypeError: `x` is of another dtype."
    return _named(
        exact if accuracy else plain,
        primitive,
        1,
        result,
        words=words,
        example=example,
        value=value,
        takes=takes,
        raises=raises,
    )


def binary_wrapper(
    primitive: Elementwise, words: str, example: str, value: str, *, result: str = "", **operands: str
) -> Any:
    """Make the public function of a primitive of two arrays.

    Args:
      primitive, words, example, value, result: as in `unary_wrapper`.
      **operands: the names and descriptions of the operands; x and y by default.
    """

    def function(x: Array, y: Array) -> Any:
        if type(x) in SCALARS or type(y) in SCALARS:
            x, y = match_scalar_pair(x, y)
        try:
            return primitive(x, y)
        except ShapeError:
            return apply_broadcast(primitive, x, y)

    operands = operands or {"x": "", "y": ""}
    # The parameters are renamed in the code object: another wrapper would cost a tenth of an eager operation.
    function.__code__ = function.__code__.replace(co_varnames=tuple(operands))
    first, second = (f"{name}: {what}{': ' if what else ''}" for name, what in operands.items())
    takes = (
        f"{first}array of {primitive.kinds.words}.\n  {second}array of the same dtype; the shapes are equal but for "
        "dimensions of\n    size 1, which are broadcast, or one has rank 0. A Python scalar is converted to the dtype "
        "of\n    the other operand."
    )
    raises = (
        "DTypeError: the dtypes differ, or the operation is not defined for them.\n  ShapeError: the shapes differ."
    )
    return _named(function, primitive, 2, result, words=words, example=example, value=value, takes=takes, raises=raises)


def _named(function: Callable, primitive: Elementwise, count: int, result: str, **texts: str) -> Callable:
    """Name and document the public function of a primitive of `count` operands; `texts` fill in the docstring."""
    name, kind = public_name(primitive), _WORDS.get(primitive.kinds, "num")
    types = f"{', '.join([f'{kind}[*s]'] * count)} -> {result or kind}[*s]"
    gives = f"An array of the {'common shape' if count > 1 else 'shape of `x`'}, of a {result} dtype"
    if not result:
        gives = f"An array of the {'common shape and dtype' if count > 1 else 'shape and dtype of `x`'}"
    return set_name_and_doc(function, name, _DOC.format(**texts, types=types, gives=gives, name=name), depth=3)


def set_name_and_doc(function: Callable, name: str, doc: str, depth: int = 2) -> Any:
    """Set the name and docstring of a generated function, and its module to the one `depth` calls above."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = sys._getframe(depth).f_globals["__name__"]  # doctest and pickle look the function up there
    function.__doc__ = doc
    return function
