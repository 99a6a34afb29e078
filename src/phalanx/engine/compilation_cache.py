"""The compilation cache on disk: executables are compiled once and loaded by later processes.

Builds on jaxlib's serialized executables; `compiler` calls it, and `runtime.engine_options` provides the settings. An
entry is one file with a digest in front. It is written under a temporary name and renamed when it is complete, so that
the cache survives a crash while writing, a damaged file, and two writers at once. An executable is machine code, so a
folder that every user may write to is not used, nor an entry that is a link or no file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import platform
import stat
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from jaxlib import _jax, version as _version

from phalanx.engine import monitoring, regular_files
from phalanx.engine.client import Device
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.runtime_errors import XlaRuntimeError

Executable = TypeVar("Executable")

_SUFFIX = ".phxc"
_MAGIC = b"PHXC\x00\x01\r\n"  # A copy in text mode changes the line end, which reveals it.
_DIGEST_BYTES = 32  # of SHA-256
_READ = regular_files.READ | getattr(os, "O_NOFOLLOW", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_MAX_RATIO = 50  # of the size of a payload to that of its entry; machine code is compressed to a third
_STALE_SECONDS = 3600.0  # No process takes as long to write an entry, so the writer of an older file has crashed.


class CompilationCacheError(PhalanxError, RuntimeError):
    """An entry of the compilation cache on disk cannot be read or written."""


class CompilationCacheWarning(UserWarning):
    """The compilation cache on disk failed; the program was compiled without it."""


class CacheSettings(NamedTuple):
    """The user's settings of the cache.

    Args:
      directory: the folder of the entries; None for no cache.
      min_compile_seconds: programs that compile faster are not stored.
      min_entry_bytes: smaller entries are not stored.
      max_bytes: the size of the folder beyond which the least recently used entries are removed; -1 for no limit.
      raise_errors: whether a bad entry is an error instead of a warning.
    """

    directory: str | None = None
    min_compile_seconds: float = 1.0
    min_entry_bytes: int = 0
    max_bytes: int = -1
    raise_errors: bool = False


class _State:
    """The source of the settings, and the numbers of hits, misses and writes of this process."""

    settings: Callable[[], CacheSettings] = CacheSettings
    hits = misses = writes = 0


def take_settings(source: Callable[[], CacheSettings]) -> None:
    """Read the settings from `source`, at each compilation and on its thread."""
    _State.settings = source


def settings() -> CacheSettings:
    """The current settings."""
    return _State.settings()


def counts() -> dict[str, int]:
    """Count the hits, misses and writes of this process."""
    return {"hits": _State.hits, "misses": _State.misses, "writes": _State.writes}


def reset_counts() -> None:
    """Set the counts of this process to zero."""
    _State.hits = _State.misses = _State.writes = 0


def make_key(module: Any, compile_options: Any, devices: Sequence[Device]) -> str:
    """Make the name of a program's entry.

    Args:
      module: the MLIR module; its source locations are ignored.
      compile_options: jaxlib's compile options; the options for dumps are ignored.
      devices: the devices of the executable.

    Returns:
      The digest of everything on which the machine code depends, in hexadecimal.
    """
    import hashlib  # Imported here and below, so that only users of the cache wait for it.

    client = devices[0].client
    digest = hashlib.sha256()
    for part in (
        _MAGIC,
        _version.__version__.encode(),
        client.platform.encode(),
        client.platform_version.encode(),
        _processor() if client.platform == "cpu" else b"",
        repr([(device.device_kind, device.id, device.process_index) for device in devices]).encode(),
        _options_without_dumps(compile_options),
        _bytes_without_locations(module),
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def make_fingerprint(module: Any, devices: Sequence[Device]) -> str:
    """Make a digest of a program that is equal in all processes that have the same program.

    Args:
      module: the MLIR module; its source locations are ignored.
      devices: the devices of the program, in partition order.

    Returns:
      The digest, in hexadecimal.
    """
    import hashlib

    digest = hashlib.blake2b(repr([device.id for device in devices]).encode(), digest_size=16)
    digest.update(_bytes_without_locations(module))
    return digest.hexdigest()


def _bytes_without_locations(module: Any) -> bytes:
    from jaxlib.mlir import passmanager

    with module.context:
        stripped = module.operation.clone()
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(stripped)
        buffer = io.BytesIO()
        stripped.write_bytecode(buffer)
    return buffer.getvalue()


def _options_without_dumps(compile_options: Any) -> bytes:
    plain = _jax.CompileOptions.ParseFromString(compile_options.SerializeAsString())
    debug = plain.executable_build_options.debug_options
    texts = ("xla_dump_to", "xla_dump_hlo_module_re", "xla_dump_hlo_pass_re", "xla_dump_hlo_pipeline_re")
    flags = ("xla_dump_hlo_as_text", "xla_dump_hlo_as_proto", "xla_dump_hlo_as_html", "xla_dump_hlo_as_dot")
    for name, empty in (dict.fromkeys(texts, "") | dict.fromkeys(flags, False)).items():
        setattr(debug, name, empty)
    return plain.SerializeAsString()


def _processor() -> bytes:
    """Describe this machine's processor and instruction sets, since CPU code may not run on another one."""
    lines = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        lines += sorted({line for line in file if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return "\n".join(lines).encode()


def cached(
    key: str,
    cache: CacheSettings,
    *,
    make: Callable[[], Executable],
    dump: Callable[[Executable], bytes],
    revive: Callable[[bytes], Executable],
) -> Executable:
    """Return the executable of a key: from the disk, or made and stored.

    Args:
      key: from `make_key`.
      cache: the settings, with a directory.
      make: compiles the executable.
      dump: serializes an executable.
      revive: deserializes an executable.

    Returns:
      The executable.

    Raises:
      CompilationCacheError: an entry is bad or cannot be written, and `raise_errors` is set.
    """
    path = _path(key, cache)
    if _is_open_to_others(os.path.dirname(path), cache):
        return make()
    monitoring.record_event(monitoring.CACHE_REQUEST)
    start = time.perf_counter()
    payload, is_bad = _read(path, key, cache)
    if payload is not None:
        try:
            executable = revive(payload)
        except XlaRuntimeError as error:
            is_bad = True
            _discard(path, cache, f"one that XLA cannot load ({error})")
        else:
            _State.hits += 1
            monitoring.record_event(monitoring.CACHE_HIT)
            monitoring.record_event_duration_secs(monitoring.CACHE_READ, time.perf_counter() - start)
            return executable
    _State.misses += 1
    monitoring.record_event(monitoring.CACHE_MISS)
    start = time.perf_counter()
    executable = make()
    # A bad entry is replaced even if compiling took little time, so that the warning does not come again.
    if is_bad or time.perf_counter() - start >= cache.min_compile_seconds:
        _write(path, _encode(dump(executable), key), cache)
    return executable


def _is_open_to_others(directory: str, cache: CacheSettings) -> bool:
    """Whether every user may write to the folder, which is reported."""
    try:
        mode = os.stat(directory).st_mode
    except (OSError, ValueError):  # There is none yet, or none can have this name.
        return False
    if not mode & stat.S_IWOTH or os.name == "nt":
        return False
    _complain(
        cache,
        f"folder {directory}",
        "one that only trusted users can write to, since its entries are executed",
        f"the mode {stat.filemode(mode)}, so it is not used",
        f"run chmod o-w {directory}, and remove entries that are not yours",
    )
    return True


def _read(path: str, key: str, cache: CacheSettings) -> tuple[bytes | None, bool]:
    """Read an entry; returns its payload or None, and whether the entry exists but is bad."""
    try:
        # A pipe would block the reader, and a link could lead to any file.
        with open(os.open(path, _READ), "rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read() if is_file else b""
    except FileNotFoundError:
        return None, False
    except (OSError, ValueError) as error:  # a ValueError if no file can have this name
        _complain(cache, f"entry {path}", "a file that can be read", str(error))
        return None, True
    payload = _decode(content, key)
    if payload is None:
        _discard(path, cache, "a file that was cut short or altered")
        return None, True
    with contextlib.suppress(OSError):
        os.utime(path)  # Record the use: the least recently used entries are removed first.
    return payload, False


def _discard(path: str, cache: CacheSettings, got: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    _complain(cache, f"entry {path}", "the executable as it was written", got)


def _write(path: str, content: bytes, cache: CacheSettings) -> None:
    """Write an entry under a temporary name, and rename it when it is complete."""
    if len(content) < cache.min_entry_bytes or 0 <= cache.max_bytes < len(content):
        return
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(temporary, _WRITE, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            os.unlink(temporary)
        _complain(cache, f"entry {path}", "a folder that can be written to", str(error))
        return
    _State.writes += 1
    if cache.max_bytes >= 0:
        _drop_oldest(os.path.dirname(path), cache.max_bytes)


def _path(key: str, cache: CacheSettings) -> str:
    assert cache.directory is not None, "the cache is asked for entries only where it has a folder"
    return os.path.join(os.path.expanduser(cache.directory), key + _SUFFIX)


def _encode(payload: bytes, key: str) -> bytes:
    body = zlib.compress(payload, level=1)
    if len(payload) > _MAX_RATIO * len(body):
        body = zlib.compress(payload, level=0)  # stored; `_decode` refuses what unpacks to much more
    return _MAGIC + _digest(key, body) + body


def _decode(content: bytes, key: str) -> bytes | None:
    """The payload of a file; None if the file is damaged or belongs to another key."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = content[start:]
    if content[:start] != _MAGIC + _digest(key, body):
        return None
    unpacking = zlib.decompressobj()
    try:
        payload = unpacking.decompress(body, _MAX_RATIO * len(body))
    except zlib.error:
        return None
    return payload if unpacking.eof else None


def _digest(key: str, body: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(key.encode() + body).digest()


def _drop_oldest(directory: str, max_bytes: int) -> None:
    """Remove the least recently used entries until the rest fits, and temporary files of crashed writers."""
    entries = sorted(_entries(directory), key=lambda entry: entry[1], reverse=True)
    for (path, _, _), total in zip(entries, itertools.accumulate(size for _, _, size in entries)):
        if total > max_bytes:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _entries(directory: str) -> Iterator[tuple[str, float, int]]:
    """List path, time of last use and size of each entry."""
    for item in os.scandir(directory):
        with contextlib.suppress(OSError):  # Another process may have removed it.
            stat = item.stat()
            if item.name.endswith(_SUFFIX):
                yield item.path, stat.st_mtime, stat.st_size
            elif item.name.endswith(".tmp") and _SUFFIX in item.name and time.time() - stat.st_mtime > _STALE_SECONDS:
                os.unlink(item.path)


_REWRITTEN = "ignore a single warning, since the entry is rewritten; if it recurs, check the disk and its permissions"


def _complain(cache: CacheSettings, where: str, expected: str, got: str, fix: str = _REWRITTEN) -> None:
    error = CompilationCacheError(f"compilation cache, {where}", expected=expected, got=got, fix=fix)
    if cache.raise_errors:
        raise error
    warnings.warn(CompilationCacheWarning(str(error)), stacklevel=3)
