"""Public namespaces: the modules whose names users import, such as `phalanx.numpy`.

The last statement of such a module is `__getattr__, __dir__ = publish(globals())`. From then on `dir()` shows the
public names only, public functions are API boundaries (see `traceback_filtering`), and `__module__` of what the
package defines is the namespace that users import it from, so that tracebacks, pickles and `help` name that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from phalanx.engine.defining_module import set_home
from phalanx.engine.traceback_filtering import guard_namespace
from phalanx.garbage_collector import import_without_collecting

_STANDARD_LIBRARY = sys.stdlib_module_names - {"builtins"}


def publish(
    namespace: dict[str, Any],
    *,
    only: str = "",
    modules: str = "",
    loads: str = "",
    also: str = "",
    lazy: Mapping[str, str] | None = None,
    guarded: Iterable[str] | None = None,
    copy_aliases: bool = False,
    prepare: Callable[[Any], None] | None = None,
    wrap: Callable[[Any], Any] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module a public namespace.

    In a package all names without an underscore are public, submodules only where `modules` names them. In a module
    that defines functions itself, the functions and classes that it defines are public, imported names are not.

    Args:
      namespace: the globals of the module, complete.
      only: the public names, separated by spaces, of a package from which other packages import internal names too.
      modules: the submodules that are public, separated by spaces; they are imported on first use.
      loads: submodules that are imported before the first lazy name, separated by spaces.
      also: further public names, separated by spaces: names that a module with definitions imports from others.
      lazy: names that are imported on first use: from the defining module, relative to the package or
        starting with `phalanx.`, to the names in it, separated by spaces. An entry `alias=name` gives a name of that
        module another one.
      guarded: the functions to make API boundaries of; all public ones by default.
      copy_aliases: bind a second name of a function to a copy that has this name, so that functions can be told apart
        by their names.
      prepare: called with each public function.
      wrap: returns what takes the place of a lazy name.

    Returns:
      The `__getattr__` and `__dir__` of the module (PEP 562).
    """
    own = namespace["__name__"]
    submodules, first = modules.split(), [f"{own}.{module}" for module in loads.split()]
    sources = {
        alias: (module if module.startswith("phalanx.") else f"{own}.{module}", origin or alias)
        for module, names in (lazy or {}).items()
        for alias, _, origin in (entry.partition("=") for entry in names.split())
    }
    # Internal names that the package exports beside the public ones stay as they are: they are on hot paths.
    chosen = only.split() or None if guarded is None else guarded
    guard_namespace(namespace, chosen and [name for name in chosen if name in namespace])
    defined = only.split() or [name for name in namespace if _is_public(namespace, name)]
    public = sorted({*defined, *also.split(), *submodules, *sources})
    namespace["__all__"] = public

    def adopt(name: str) -> None:
        if copy_aliases:
            _copy_alias(namespace, name)
        _adopt(namespace, name)
        if prepare is not None and isinstance(namespace[name], FunctionType):
            prepare(namespace[name])

    for name in public:
        if name in namespace:
            adopt(name)

    def __getattr__(name: str) -> Any:
        if name in sources:
            with import_without_collecting():
                module, origin = sources[name]
                *_, defining = map(importlib.import_module, (*first, module))
                found = getattr(defining, origin)
            namespace[name] = found if wrap is None else wrap(found)  # Later look-ups do not come here.
            if guarded is None or name in guarded:
                guard_namespace(namespace, (name,))
            adopt(name)
            return namespace[name]
        if name in submodules:
            return importlib.import_module(f"{own}.{name}")  # which binds it in the namespace
        raise AttributeError(f"module {own!r} has no attribute {name!r}")

    return __getattr__, lambda: list(public)


def import_public(namespace: dict[str, Any], name: str, module: str, attribute: str) -> Any:
    """Import a name of a namespace that has its own table of names, as `publish` imports lazy ones.

    The caller pauses the collector, since this module takes the time of importing NumPy and jaxlib itself.

    Args:
      namespace: the globals of the module, in which the name is bound.
      name: the public name.
      module: the defining module.
      attribute: the name in that module.
    """
    namespace[name] = getattr(importlib.import_module(module), attribute)
    guard_namespace(namespace, (name,))
    _adopt(namespace, name)
    return namespace[name]


def _is_public(namespace: dict[str, Any], name: str) -> bool:
    thing = namespace[name]
    defined = getattr(thing, "__module__", None) or ""
    if name.startswith("_") or name == "TYPE_CHECKING" or isinstance(thing, ModuleType):
        return False
    if "__path__" in namespace:
        return defined.partition(".")[0] not in _STANDARD_LIBRARY
    return defined == namespace["__name__"]


def _copy_alias(namespace: dict[str, Any], name: str) -> None:
    """Bind a name of a function that has another name to a copy of it."""
    function = namespace[name]
    if not isinstance(function, FunctionType) or function.__name__ == name:
        return
    namespace[name] = copied = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__, copied.__annotations__ = function.__kwdefaults__, function.__annotations__
    copied.__doc__, copied.__qualname__, copied.__module__ = function.__doc__, name, function.__module__
    copied.__dict__.update(function.__dict__)


def _adopt(namespace: dict[str, Any], name: str) -> None:
    """Set `__module__` of a public object to the outermost namespace that gives it this name."""
    thing, own = namespace[name], namespace["__name__"]
    if not isinstance(thing, (FunctionType, type)) or thing.__name__ != name:
        return
    defined = thing.__module__
    home = "phalanx" if sys.modules["phalanx"].__dict__["_NAMES"].get(name) in (own, defined) else own
    if defined != home and (defined == own or defined.startswith(f"{own}.")):
        set_home(thing, home)
