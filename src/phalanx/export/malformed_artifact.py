"""The error for an artifact with well-formed bytes and contents that phalanx would not have written.

Called wherever a part of a header is read.
"""

from __future__ import annotations

from typing import Any

from phalanx.engine.stablehlo import ArtifactError

_MAX_SHOWN = 80


def malformed_error(expected: str, got: object, section: str = "") -> ArtifactError:
    """The error for a part of an artifact that cannot be read; long values are shortened."""
    text = got if isinstance(got, str) else repr(got)
    return ArtifactError(
        f"deserialize{section and ', ' + section}",
        expected=expected,
        got=text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}...",
        fix="export the function again: this file was not written by phalanx",
    )


def require_list(value: Any, expected: str, at_least: int = 0) -> list[Any]:
    """`value` if it is a list of at least that many entries.

    Raises:
      ArtifactError: it is not.
    """
    if not isinstance(value, list) or len(value) < at_least:
        raise malformed_error(expected, value)
    return value
