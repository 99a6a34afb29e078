"""Settings: how the options reach the engine.

The engine knows nothing of `config`; this file hands it the options that concern it: which devices there are, where
compiled programs are kept, and what may be moved. Importing it is enough; `dispatch` and `phalanx.config` do.
"""

from __future__ import annotations

import functools

from phalanx.core.config import config as config
from phalanx.engine import client, compilation_cache, guards


def _cache_settings() -> compilation_cache.CacheSettings:
    return compilation_cache.CacheSettings(
        directory=config.compilation_cache_dir if config.enable_compilation_cache else None,
        min_compile_seconds=config.persistent_cache_min_compile_time_secs,
        min_entry_bytes=config.persistent_cache_min_entry_size_bytes,
        max_bytes=config.compilation_cache_max_size,
        raise_errors=config.raise_persistent_cache_errors,
    )


compilation_cache.take_settings(_cache_settings)
config.observe("num_cpu_devices", lambda count: client.configure(num_cpu_devices=count))
config.observe("platforms", lambda names: client.configure(platforms=names and tuple(names.split(","))))


for _direction in guards.DIRECTIONS:
    _option = f"transfer_guard_{_direction}"
    config.observe(_option, functools.partial(guards.guard_everywhere, _direction))
    config.observe_here(_option, functools.partial(guards.guard_here, _direction))
    if _level := getattr(config, _option):
        guards.guard_everywhere(_direction, _level)
