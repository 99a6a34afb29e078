"""The byte layout of artifacts: magic number, version, lengths, and a SHA-256 digest around the sections.

An artifact is a fixed-size prefix, a header in JSON, the StableHLO program, the artifact of the derivative (may be
empty), and a digest of everything before it. docs/export-format.md describes every byte. `artifact_writer` and
`artifact_reader` handle the contents of the header.
"""

from __future__ import annotations

import hashlib  # noqa: TID253  # every artifact has a digest
import itertools
import json
import struct
from typing import Any, Final

from phalanx.engine.stablehlo import ArtifactError

MAGIC: Final = b"\x93PHALANX"
# A file of a later version is refused, since its fields may have another meaning.
VERSION: Final = 1
# Parsed JSON takes many times the memory of its text.
MAX_HEADER: Final = 1 << 26
_PREFIX = struct.Struct("<8sIIQQ")  # magic, version, lengths of the header, the program, the derivative
PREFIX_SIZE: Final = _PREFIX.size
_DIGEST_SIZE = hashlib.sha256().digest_size


def join_artifact(header: dict[str, Any], program: bytes, derivative: bytes | bytearray) -> bytearray:
    """Pack the sections of an artifact and seal them with a digest."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, len(text), len(program), len(derivative))
    out = bytearray().join((prefix, text, program, derivative))
    # The digest covers nested derivatives too, so one comparison detects damage anywhere in the file.
    out += hashlib.sha256(out).digest()
    return out


def check_prefix(prefix: bytes | memoryview, size: int) -> list[int]:
    """Check the first `PREFIX_SIZE` bytes of an artifact, and return the lengths of its sections.

    Args:
      prefix: the bytes; fewer if there are no more.
      size: the number of bytes of the whole.

    Raises:
      ArtifactError: it is not the prefix of an artifact of that size, of a known version.
    """
    if len(prefix) < PREFIX_SIZE or prefix[:8] != MAGIC:
        raise _corrupt_error("bytes that start as an exported program", f"{size} bytes that do not")
    _, version, *lengths = _PREFIX.unpack_from(prefix)
    if not 1 <= version <= VERSION:
        raise ArtifactError(
            "deserialize",
            expected=f"an artifact of format version 1 to {VERSION}",
            got=f"version {version}",
            fix=f"read it with a release of phalanx that supports format version {version}",
        )
    total = PREFIX_SIZE + sum(lengths) + _DIGEST_SIZE
    # Before anything is allocated: a forged length cannot make the reader reserve more than the size of the file.
    if total != size or lengths[0] > MAX_HEADER:
        raise _corrupt_error(f"{total} bytes, as the prefix declares", f"{size}")
    return lengths


def split_artifact(data: memoryview) -> tuple[dict[str, Any], memoryview, memoryview]:
    """Check an artifact's prefix, lengths and digest, and return its header, program and derivative.

    Raises:
      ArtifactError: the bytes are not a complete, unaltered artifact of a known version.
    """
    lengths = check_prefix(data[:PREFIX_SIZE], len(data))
    if hashlib.sha256(data[:-_DIGEST_SIZE]).digest() != bytes(data[-_DIGEST_SIZE:]):
        raise _corrupt_error("bytes that match their SHA-256 digest", "bytes that were altered")
    ends = itertools.accumulate(lengths, initial=PREFIX_SIZE)
    text, program, derivative = (data[start:stop] for start, stop in itertools.pairwise(ends))
    try:
        header = json.loads(bytes(text))
    # Deeply nested JSON exhausts the stack of the decoder, which raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise malformed_error("a header in JSON", f"{type(error).__name__}: {error}") from None
    if not isinstance(header, dict):
        raise malformed_error("a header that is a JSON object", header)
    return header, program, derivative


def _corrupt_error(expected: str, got: str) -> ArtifactError:
    return ArtifactError(
        "deserialize", expected=expected, got=got, fix="copy the file again, or export the function again"
    )


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
