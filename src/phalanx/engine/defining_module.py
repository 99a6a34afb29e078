"""The modules that define public objects, whose `__module__` names the namespace from which users import them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

_modules: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def defining_module(thing: Any) -> str | None:
    """Find the module in which an object is defined, whatever its `__module__` names.

    Args:
      thing: a function or a class.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> jnp.sum.__module__
      'phalanx.numpy'
      >>> defining_module(jnp.sum).startswith("phalanx.numpy.")
      True
    """
    try:
        found = _modules.get(thing)
    except TypeError:  # a property, which takes no weak references
        found = None
    return found or getattr(thing, "__module__", None)


def set_home(thing: Any, namespace: str) -> None:
    """Set `__module__` of a public function or class to the namespace from which users import it.

    Args:
      thing: the function or class.
      namespace: the name of the namespace.
    """
    _modules.setdefault(thing, thing.__module__)
    thing.__module__ = namespace


def public_in(namespace: str) -> Callable[[T], T]:
    """A decorator for classes that a public namespace re-exports, perhaps before it is imported, such as errors.

    Args:
      namespace: the name of the namespace.

    Returns:
      A function that sets the `__module__` of a class, which tracebacks show and pickle imports.
    """

    def publish(cls: T) -> T:
        set_home(cls, namespace)
        return cls

    return publish
