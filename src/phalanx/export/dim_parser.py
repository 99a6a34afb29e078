"""A recursive-descent parser of dimensions: `b, 2*b + 1, max(b, c)` and constraints such as `b >= c + 8`.

Texts may come from untrusted artifacts, so nesting, digits, powers and the size of numbers are limited.
`phalanx.symbolic` prints the texts that this file parses; `symbolic_scope` and `symbolic_shapes` call it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, Final

from phalanx.core import ArgumentError
from phalanx.symbolic import max_dim, min_dim, non_negative
from phalanx.typing import DimSize

_TOKENS: Final = re.compile(r"\d+|[^\W\d]\w*|\.\.\.|[<>=!]=|\S")
# A level of parentheses takes four calls of this parser, and Python allows a thousand.
_MAX_DEPTH: Final = 50
_MAX_DIGITS: Final = 18
_MAX_POWER: Final = 64
_MAX_BITS: Final = 128

# The number of operands (0: any positive number), and the function.
_FUNCTIONS: Final[dict[str, tuple[int, Callable[..., DimSize]]]] = {
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "max": (0, lambda *dims: functools.reduce(max_dim, dims)),
    "min": (0, lambda *dims: functools.reduce(min_dim, dims)),
    "non_negative": (1, non_negative),
}


class DimParser:
    """The tokens of one text and a position in them.

    Args:
      where: the origin of the text, for error messages.
      text: the text.
      variable: maps a name to its dimension.
      like: the dimensions that `_` and `...` refer to, or None.
    """

    def __init__(
        self, where: str, text: str, variable: Callable[[str], DimSize], like: tuple[Any, ...] | None = None
    ) -> None:
        self.where = where
        self.variable = variable
        self.like = like
        self.tokens: list[str] = [*_TOKENS.findall(text), ""]
        self.position = 0
        self.depth = 0

    def parse_shape(self) -> tuple[DimSize, ...]:
        """Parse dimensions separated by commas, to the end of the text; parentheses around all of them are optional."""
        in_parentheses = self._wraps_all() and self._take("(")
        dims: list[DimSize] = []
        while self._peek() not in ("", ")"):
            dims.extend(self._parse_item(len(dims)))
            if not self._take(","):
                break
        if in_parentheses:
            self._expect(")")
        self._expect_end()
        return tuple(dims)

    def parse_relation(self) -> tuple[DimSize, str, DimSize]:
        """Parse two dimensions with a comparison between them, to the end of the text."""
        x = self.parse_sum()
        if self._peek() not in ("==", ">=", "<=", ">", "<"):
            raise self._error("one of ==, >=, <=, >, <")
        symbol = self._next()
        return x, symbol, self.parse_dim()

    def parse_dim(self) -> DimSize:
        """Parse one dimension, to the end of the text."""
        dim = self.parse_sum()
        self._expect_end()
        return dim

    def _parse_item(self, index: int) -> list[DimSize]:
        """Parse one entry of a shape: a dimension, `_`, or `...`, which may denote several dimensions of `like`."""
        if self._peek() not in ("_", "..."):
            return [self.parse_sum()]
        token = self._next()
        if self.like is None:
            raise self._error(f"a dimension instead of {token!r}, since there is no array shape to copy it from,")
        if token == "_":
            if index >= len(self.like):
                raise self._error(f"{len(self.like)} dimensions, as the array has,")
            return [self.like[index]]
        # The entries after `...` determine how many dimensions it stands for; a trailing comma adds none.
        following = 0 if self._peek() in ("", ")") else 1 + self._count_commas() - (self.tokens[-2] in (",", ")"))
        count = len(self.like) - index - following
        if count < 0:
            raise self._error(f"{len(self.like)} dimensions, as the array has,")
        return list(self.like[index : index + count])

    def _count_commas(self) -> int:
        """The number of commas after the next token, outside of parentheses."""
        depth = count = 0
        for token in self.tokens[self.position + 1 :]:
            depth += (token == "(") - (token == ")")
            count += token == "," and depth == 0
        return count

    def _wraps_all(self) -> bool:
        """Whether one pair of parentheses encloses the whole text."""
        depth = 0
        for i, token in enumerate(self.tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return token == ")" and i == len(self.tokens) - 2
        return False

    def parse_sum(self) -> DimSize:
        """Parse products separated by + and -."""
        # Only sums recurse through parentheses and operands, so counting them bounds the depth of all productions.
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self._error(f"at most {_MAX_DEPTH} nested parentheses")
        total: Any = self._parse_product()
        while self._peek() in ("+", "-"):
            total = total + self._parse_product() if self._next() == "+" else total - self._parse_product()
        self.depth -= 1
        return total  # type: ignore[no-any-return]

    def _parse_product(self) -> DimSize:
        is_negative = self._take("-")
        if not is_negative:
            self._take("+")
        product: Any = self._parse_power()
        while self._peek() in ("*", "/", "%"):
            symbol = self._next()
            if symbol == "/":
                self._expect("/")
            combine = {"*": operator.mul, "%": operator.mod, "/": operator.floordiv}[symbol]
            product = combine(product, self._parse_power())
        return -product if is_negative else product  # type: ignore[no-any-return]

    def _parse_power(self) -> DimSize:
        base: Any = self._parse_atom()
        if not self._take("^"):
            return base  # type: ignore[no-any-return]
        if not self._peek().isdecimal():
            raise self._error("a whole number as the power")
        power = self._parse_number()
        # A short text such as 9^9^9 would otherwise compute a number that fills the memory.
        if power > _MAX_POWER or (type(base) is int and base.bit_length() * power > _MAX_BITS):
            raise self._error(f"a power of at most {_MAX_POWER}, and numbers of at most {_MAX_BITS} bits,")
        return base**power  # type: ignore[no-any-return]

    def _parse_atom(self) -> DimSize:
        token = self._peek()
        if token.isdecimal():
            return self._parse_number()
        if token.isidentifier():
            return self._parse_name(self._next())
        if self._take("("):
            inner = self.parse_sum()
            self._expect(")")
            return inner
        raise self._error("a name, a number or '('")

    def _parse_number(self) -> int:
        if len(self._peek()) > _MAX_DIGITS:
            raise self._error(f"a number of at most {_MAX_DIGITS} digits")
        return int(self._next())

    def _parse_name(self, name: str) -> DimSize:
        """A variable, or the operands of a function and its value."""
        if not self._take("("):
            return self.variable(name)
        if name not in _FUNCTIONS:
            raise self._error(f"one of the functions {', '.join(_FUNCTIONS)} before '('")
        num_operands, function = _FUNCTIONS[name]
        operands = [self.parse_sum()]
        while len(operands) < num_operands or (not num_operands and self._peek() == ","):
            self._expect(",")
            operands.append(self.parse_sum())
        self._expect(")")
        return function(*operands)

    def _peek(self) -> str:
        """The next token, or "" at the end."""
        return self.tokens[self.position]

    def _next(self) -> str:
        """Consume and return the next token."""
        self.position += 1
        return self.tokens[self.position - 1]

    def _take(self, token: str) -> bool:
        """Consume the next token if it is `token`; return whether it was."""
        is_next = self._peek() == token
        self.position += is_next
        return is_next

    def _expect(self, token: str) -> None:
        """Consume the next token, which must be `token`."""
        if not self._take(token):
            raise self._error(repr(token))

    def _expect_end(self) -> None:
        if self._peek():
            raise self._error("the end of the text")

    def _error(self, expected: str) -> ArgumentError:
        """The error for the token at the current position."""
        before = " ".join(self.tokens[: self.position])
        return ArgumentError(
            self.where,
            expected=f"{expected} after {before!r}" if before else f"{expected} at the start",
            got=repr(self._peek()) if self._peek() else "the end",
            fix="write dimensions between commas, as in 'b, 2*b + 1', and constraints as in 'b >= c + 8'",
        )
