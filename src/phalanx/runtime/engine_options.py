"""The options that concern the engine, and how they reach it.

The engine does not know `config`. This module declares the devices, the compilation cache on disk and the transfer
guards as options, and passes their values on. `compiled_program` and `phalanx.config` import it.
"""

from __future__ import annotations

import functools

from phalanx.core import Option, choice, config as config, declare, flag, number, text
from phalanx.engine import client, compilation_cache, execution, transfer_guard as guards

num_cpu_devices = Option(
    None,
    number(int, 1, optional=True),
    "Number of virtual CPU devices.",
    example=8,
    on_update=lambda count: client.configure(num_cpu_devices=count),
)
platforms = Option(
    None,
    text,
    "Platforms to use, in order of preference, as in 'cuda,cpu'.",
    example="cuda,cpu",
    on_update=lambda names: client.configure(platforms=names and tuple(names.split(","))),
)
enable_compilation_cache = Option(True, flag, "Use the compilation cache on disk.")
compilation_cache_dir = Option(None, text, "Folder of the compilation cache on disk.", example="programs")
compilation_cache_max_size = Option(
    -1, number(int, -1), "Size in bytes beyond which old entries go; -1 for no limit.", example=10**9
)
persistent_cache_min_compile_time_secs = Option(
    1.0, number(float, 0.0), "Programs that compile faster are not stored.", example=0.5
)
persistent_cache_min_entry_size_bytes = Option(0, number(int, -1), "Smaller executables are not stored.", example=4096)
raise_persistent_cache_errors = Option(False, flag, "Raise errors of the cache on disk instead of warning.")
allocation_tracebacks = Option(
    False,
    flag,
    "Name the calls that make arrays in `profiler.device_memory_profile`; calls take longer.",
    example=True,
    on_update=execution.record_allocations,
)


compilation_cache.take_settings(
    lambda: compilation_cache.CacheSettings(
        directory=config.compilation_cache_dir if config.enable_compilation_cache else None,
        min_compile_seconds=config.persistent_cache_min_compile_time_secs,
        min_entry_bytes=config.persistent_cache_min_entry_size_bytes,
        max_bytes=config.compilation_cache_max_size,
        raise_errors=config.raise_persistent_cache_errors,
    )
)


def set_cache_dir(path: str) -> None:
    """Set the folder of the compilation cache on disk, as `config.update("compilation_cache_dir", path)` does.

    The folder must be writable by trusted users only, because its entries are machine code.

    Args:
      path: the folder; it is created when the first entry is written.

    Examples:
      >>> from phalanx.experimental.compilation_cache import compilation_cache
      >>> before = config.compilation_cache_dir
      >>> compilation_cache.set_cache_dir("programs")
      >>> config.compilation_cache_dir
      'programs'
      >>> compilation_cache.set_cache_dir(before)
    """
    config.update("compilation_cache_dir", path)


def reset_cache() -> None:
    """Set the counts of hits, misses and writes of the compilation cache on disk to zero.

    Nothing else is kept between compilations: the settings are read and entries are looked up at each of them. No entry
    is removed.

    Examples:
      >>> from phalanx.experimental.compilation_cache import compilation_cache
      >>> compilation_cache.reset_cache()
    """
    compilation_cache.reset_counts()


_level = choice(None, *guards.LEVELS)


def _guard(direction: str, moves: str) -> Option:
    return Option(
        None,
        _level,
        f"What to do where data moves {moves}.",
        example="log",
        on_update=functools.partial(guards.guard_everywhere, direction),
        on_block=functools.partial(guards.guard_here, direction),
    )


transfer_guard_host_to_device = _guard("host_to_device", "from the host to a device")
transfer_guard_device_to_device = _guard("device_to_device", "between devices")
transfer_guard_device_to_host = _guard("device_to_host", "from a device to the host")
_directions = (transfer_guard_host_to_device, transfer_guard_device_to_device, transfer_guard_device_to_host)
transfer_guard = Option(
    None, _level, "What to do where data moves, in any direction.", members=_directions, example="log"
)

declare(globals())
