"""Dimensions as text: `b, 2*b + 1, max(b, c)` and constraints such as `b >= c + 8`, read by recursive descent.

The texts of artifacts come from outside, so depth, numbers and powers are limited. Builds on `phalanx.symbolic`, which
prints what is read here; called by `scopes` and `symbolic`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

from phalanx.core.errors import ArgumentError
from phalanx.symbolic import max_dim, min_dim, non_negative

_TOKENS: Final = re.compile(r"\d+|[^\W\d]\w*|\.\.\.|[<>=!]=|\S")
_MAX_DEPTH: Final = 50
_MAX_DIGITS: Final = 18
_MAX_POWER: Final = 64
_MAX_BITS: Final = 128

_FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "max": (0, lambda *xs: _folded(max_dim, xs)),
    "min": (0, lambda *xs: _folded(min_dim, xs)),
    "non_negative": (1, non_negative),
}


def _folded(pick: Callable[[Any, Any], Any], xs: tuple) -> Any:
    found = xs[0]
    for x in xs[1:]:
        found = pick(found, x)
    return found


class Reader:
    """The tokens of one text, and what is made of them.

    Args:
      where: what is read, for messages.
      text: the text.
      variable: gives the dimension of a name.
      like: the dimensions that `_` and `...` stand for; None where there are none.
    """

    def __init__(self, where: str, text: str, variable: Callable[[str], Any], like: tuple | None = None) -> None:
        self.where = where
        self.variable = variable
        self.like = like
        self.tokens = [*_TOKENS.findall(text), ""]
        self.at = 0
        self.depth = 0

    def shape(self) -> tuple[Any, ...]:
        """A list of dimensions, to the end of the text; parentheses around the whole are optional."""
        closing = self._wraps_all() and self.take("(")
        dims: list[Any] = []
        while self.peek() not in ("", ")"):
            dims.extend(self._item(len(dims)))
            if not self.take(","):
                break
        if closing:
            self.want(")")
        self.end()
        return tuple(dims)

    def relation(self) -> tuple[Any, str, Any]:
        """Two dimensions with a comparison between them, to the end of the text."""
        x = self.sum()
        symbol = self.next() if self.peek() in ("==", ">=", "<=", ">", "<") else ""
        if not symbol:
            raise self.wrong("one of ==, >=, <=, >, <")
        y = self.sum()
        self.end()
        return x, symbol, y

    def _item(self, position: int) -> list[Any]:
        if self.peek() not in ("_", "..."):
            return [self.sum()]
        token = self.next()
        if self.like is None:
            raise self.wrong(f"a dimension instead of {token!r}, since there is no array whose shape could tell,")
        if token == "_":
            if position >= len(self.like):
                raise self.wrong(f"{len(self.like)} dimensions, as the array has,")
            return [self.like[position]]
        following = 0 if self.peek() in ("", ")") else 1 + self._commas() - (self.tokens[-2] in (",", ")"))
        count = len(self.like) - position - following
        if count < 0:
            raise self.wrong(f"{len(self.like)} dimensions, as the array has,")
        return list(self.like[position : position + count])

    def _commas(self) -> int:
        """How many commas stand after the next one, outside parentheses."""
        depth = count = 0
        for token in self.tokens[self.at + 1 :]:
            depth += (token == "(") - (token == ")")
            count += token == "," and depth == 0
        return count

    def _wraps_all(self) -> bool:
        """Whether one pair of parentheses holds the whole text."""
        depth = 0
        for i, token in enumerate(self.tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return token == ")" and i == len(self.tokens) - 2
        return False

    def sum(self) -> Any:
        """Terms with + and - between them."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.wrong(f"at most {_MAX_DEPTH} parentheses inside each other")
        total = self._product()
        while self.tokens[self.at] in ("+", "-"):
            total = total + self._product() if self.take("+") else total - (self.take("-") and self._product())
        self.depth -= 1
        return total

    def _product(self) -> Any:
        negative = self.take("-")
        product = self._power()
        while self.tokens[self.at] in ("*", "/", "%"):
            if self.take("*"):
                product = product * self._power()
            elif self.take("%"):
                product = product % self._power()
            else:
                self.want("/")
                self.want("/")
                product = product // self._power()
        return -product if negative else product

    def _power(self) -> Any:
        base = self._atom()
        if not self.take("^"):
            return base
        if not self.peek().isdecimal():
            raise self.wrong("a whole number as the power")
        power = self._number()
        if power > _MAX_POWER or (type(base) is int and base.bit_length() * power > _MAX_BITS):
            raise self.wrong(f"a power of at most {_MAX_POWER}, and numbers of at most {_MAX_BITS} bits,")
        return base**power

    def _atom(self) -> Any:
        token = self.peek()
        if token.isdecimal():
            return self._number()
        if token.isidentifier():
            return self._call(self.next())
        if self.take("("):
            inner = self.sum()
            self.want(")")
            return inner
        raise self.wrong("a name, a number or '('")

    def _number(self) -> int:
        if len(self.peek()) > _MAX_DIGITS:
            raise self.wrong(f"a number of at most {_MAX_DIGITS} digits")
        return int(self.next())

    def _call(self, name: str) -> Any:
        if not self.take("("):
            return self.variable(name)
        if name not in _FUNCTIONS:
            raise self.wrong(f"one of the functions {', '.join(_FUNCTIONS)} before '('")
        count, function = _FUNCTIONS[name]
        operands = [self.sum()]
        while len(operands) < count or (not count and self.peek() == ","):
            self.want(",")
            operands.append(self.sum())
        self.want(")")
        return function(*operands)

    def peek(self) -> str:
        """The next token, "" at the end."""
        return self.tokens[self.at]

    def next(self) -> str:
        """The next token, which is left behind."""
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, token: str) -> bool:
        """Leave the next token behind if it is this one."""
        found = self.tokens[self.at] == token
        self.at += found
        return found

    def want(self, token: str) -> None:
        """Leave the next token behind, which has to be this one."""
        if not self.take(token):
            raise self.wrong(repr(token))

    def end(self) -> None:
        """Refuse anything more."""
        if self.peek():
            raise self.wrong("the end of the text")

    def wrong(self, expected: str) -> ArgumentError:
        """The error for the token at hand."""
        before = " ".join(self.tokens[: self.at])
        return ArgumentError(
            self.where,
            expected=f"{expected} after {before!r}" if before else f"{expected} at the start",
            got=repr(self.peek()) if self.peek() else "the end",
            mend="write dimensions between commas, as in 'b, 2*b + 1', and constraints as in 'b >= c + 8'",
        )
