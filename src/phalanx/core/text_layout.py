"""The layout of nested text: each group stays on one line if it fits, and continues on new lines otherwise.

`jaxpr_printer` builds a `Group` of the parts of a jaxpr, and `lay_out` chooses the line breaks. Every part is visited
once, and its width is measured up to the width of a line only, so that time is linear in the length of the text.

Source: Lindig (2000), "Strictly Pretty", after Wadler (1998), "A prettier printer".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Break(NamedTuple):
    """A place where a line may end.

    Args:
      flat: the text in its place if the group around it is on one line; None if the line must end here.
    """

    flat: str | None = " "

    def __str__(self) -> str:
        return self.flat or ""


class Comment(NamedTuple):
    """Text for the end of the line."""

    text: str

    def __str__(self) -> str:
        return ""  # It takes no room.


class Group(NamedTuple):
    """Parts that are on one line, or broken at all of their breaks.

    Args:
      parts: strings, breaks, fills, comments and other groups.
      indent: by how many columns its new lines are indented, relative to the group around it.
      is_independent: whether it may be on one line although the group around it is broken.
    """

    parts: Sequence[Any]
    indent: int = 0
    is_independent: bool = True


class Fill(NamedTuple):
    """Words on as few lines as possible: a line ends after the word that reaches its width.

    Args:
      words: the words.
      separator: the text between two words, before the space or the end of the line.
    """

    words: Sequence[str]
    separator: str = ""

    def __str__(self) -> str:
        """The words on one line."""
        return f"{self.separator} ".join(self.words)

    def on_several_lines(self) -> Group:
        """A group that decides at each place between two words whether the line ends."""
        place = Group([self.separator, Group([Break()])], is_independent=False)
        return Group(join(place, self.words), indent=2)


def fill(words: Sequence[str], separator: str = "") -> Fill | str:
    """The words on as few lines as possible."""
    return Fill(words, separator) if len(words) > 1 else "".join(words)


def join(separator: Any, parts: Sequence[Any]) -> list[Any]:
    """The parts with a separator between each two."""
    return [item for part in parts for item in (separator, part)][1:]


def lay_out(document: Group, width: float = 80) -> str:
    """Format a document.

    Args:
      document: the outermost group.
      width: the number of columns that a line should fit into.

    Returns:
      The text.

    Examples:
      >>> document = Group(["f(", Group([Break(""), *join(Break(), ["first,", "second"])], indent=4), ")"])
      >>> print(lay_out(document), lay_out(document, width=10), sep="\\n")
      f(first, second)
      f(
          first,
          second)
    """
    lines: list[str] = []
    line: list[str] = []
    comments: list[str] = []
    column = 0
    pending: list[tuple[int, bool, Any]] = [(0, False, document)]  # indentation, whether on one line, part
    while pending:
        indent, flat, part = pending.pop()
        if isinstance(part, Group):
            flat = flat or (part.is_independent and _fits(part, width - column))
            pending.extend([(indent + part.indent, flat, p) for p in reversed(part.parts)])
        elif isinstance(part, Comment):
            comments.append(part.text)
        elif isinstance(part, Fill) and not flat and len(str(part)) > width - column:
            pending.append((indent, False, part.on_several_lines()))
        elif flat or not isinstance(part, Break):
            line.append(str(part))
            column += len(line[-1])
        else:
            lines.append(_end_line(line, comments))
            line, comments, column = [" " * indent], [], indent
    return "\n".join([*lines, _end_line(line, comments)])


def _end_line(line: Sequence[str], comments: Sequence[str]) -> str:
    return "".join(line).rstrip() + "".join(comments)


def _fits(group: Group, room: float) -> bool:
    for part in _leaves(group):
        room -= len(str(part))
        if room < 0 or (isinstance(part, Break) and part.flat is None):
            return False
    return True


def _leaves(group: Group) -> Iterator[Any]:
    stack = [iter(group.parts)]
    while stack:
        part = next(stack[-1], None)
        if part is None:
            stack.pop()
        elif isinstance(part, Group):
            stack.append(iter(part.parts))
        else:
            yield part
