"""The primitives of Phalanx as `name_p`, under JAX's names where these differ."""

from __future__ import annotations

import phalanx.custom_rules
import phalanx.lax.linalg
import phalanx.numpy
import phalanx.random.discrete_distributions
import phalanx.spmd  # noqa: F401  # the packages and files that declare primitives
from phalanx.core import Primitive, registry
from phalanx.extend.user_call import call_p, closed_call_p, create_call_primitive, register_call_primitive_rules  # noqa: F401

_NAMES_IN_JAX = {"add_jaxvals": "add", "linear_solve": "custom_linear_solve", "remat": "remat2"}


def __getattr__(name: str) -> Primitive:
    key = name.removesuffix("_p")
    found = registry.get(_NAMES_IN_JAX.get(key, key)) if name.endswith("_p") else None
    if found is None:
        raise AttributeError(f"there is no primitive {name!r}; dir() of this module lists all of them")
    return found


def __dir__() -> list[str]:
    functions = ("call_p", "closed_call_p", "create_call_primitive", "register_call_primitive_rules")
    return sorted({*(f"{name}_p" for name in (*registry, *_NAMES_IN_JAX)), *functions})
