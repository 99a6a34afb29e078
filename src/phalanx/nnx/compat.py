"""`nnx.compat`: functions of `phalanx.nnx` that preserve shared references, whatever the defaults are.

`compat.jit(f)` is `jit(f, graph=True, graph_updates=True)`, and so on for each function below. Programs that use these
names do not depend on `set_graph_mode` and `set_graph_updates`.
"""

from __future__ import annotations

import functools
from typing import Any

from phalanx import nnx

# Functions that only read or copy modules have no option `graph_updates`.
_READ = frozenset(
    "clone flatten get_abstract_model graphdef iter_children iter_graph iter_modules recursive_map reseed split state "
    "view view_info".split()
)
_UPDATE = frozenset(
    "cached_partial checkify cond custom_vjp eval_shape fori_loop fork_rngs grad jit jvp pmap remat scan shard_map "
    "split_rngs switch value_and_grad vjp vmap while_loop".split()
)


def __getattr__(name: str) -> Any:
    if name not in _READ | _UPDATE:
        raise AttributeError(f"module 'phalanx.nnx.compat' has no attribute {name!r}")
    options = {"graph": True} if name in _READ else {"graph": True, "graph_updates": True}
    function = functools.partial(getattr(nnx, name), **options)
    globals()[name] = function  # later accesses do not call this function
    return function


def __dir__() -> list[str]:
    return sorted(_READ | _UPDATE)
