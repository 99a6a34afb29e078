"""The bridge to Flax Linen: Linen modules as NNX modules, and NNX modules in the style of Linen.

`to_nnx` wraps Linen modules, `linen_style` has modules whose methods create variables and submodules, and
`functional_style` gives module classes `init` and `apply`. Nothing of Flax is imported; Linen itself runs in programs
that `phalanx run` serves.
"""

from typing import Any as _Any

from phalanx.engine.public_namespace import publish as _publish
from phalanx.nnx import initializers as initializers
from phalanx.nnx.bridge.functional_style import Functional as Functional, functional as functional
from phalanx.nnx.bridge.linen_style import (
    AttrPriority as AttrPriority,
    Module as Module,
    Scope as Scope,
    compact as compact,
    current_context as current_context,
    current_module as current_module,
    linen_in_bridge_mdl as linen_in_bridge_mdl,
    nnx_in_bridge_mdl as nnx_in_bridge_mdl,
)
from phalanx.nnx.bridge.linen_variables import NNXMeta as NNXMeta, with_partitioning as with_partitioning
from phalanx.nnx.bridge.to_linen import make_to_linen as _make_to_linen, to_linen as to_linen
from phalanx.nnx.bridge.to_nnx import ToNNX as ToNNX, lazy_init as lazy_init

_get, _list_names = _publish(globals())


def __getattr__(name: str) -> _Any:
    # Derived from Linen's class, and made when it is used first.
    return _make_to_linen() if name == "ToLinen" else _get(name)


def __dir__() -> list[str]:
    return sorted({*_list_names(), "ToLinen"})
