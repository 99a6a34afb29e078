"""The modules of JAX's tree, served from Phalanx's.

`jax.a.b` is a module of its own that shows the public names of `phalanx.a.b`, and what the tables add. It looks a name
up on first use and keeps it, so that a later use costs what it does in any module, and so that monkeypatching `jax.a.b`
changes what users of JAX see and nothing inside Phalanx, as it is with JAX. Installed by `phalanx.as_jax.install`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from phalanx.alias_modules import find_alias, find_submodules
from phalanx.as_jax.private_names import PRIVATE_NAMES
from phalanx.as_jax.public_names import JAX_VERSION, ONLY_IN_PHALANX, PUBLIC_NAMES

_IMPORT_SYSTEM = ("importlib", "_frozen_importlib", "phalanx.as_jax")


class PatchedModule(ModuleType):
    """A module of JAX's tree some of whose names change Phalanx when they are assigned to."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if (self.__name__, name) in _PATCHED:
            module, origin = _PATCHED[self.__name__, name]
            setattr(importlib.import_module(module), origin, value)


class ModuleLoader(Loader):
    """The names of one module of JAX's tree.

    Args:
      name: the module, such as `jax.numpy`.
      shown: the module of Phalanx whose public names it shows, or None if it has the names of the tables only.
      finder: the finder of its submodules.
    """

    def __init__(self, name: str, shown: ModuleType | None, finder: ModuleFinder):
        self.name, self.shown, self._finder = name, shown, finder
        self._rows = read_tables().get(name, {})
        self._public = {public for public in dir(shown) if not public.startswith("_")} if shown else set()
        if name == "jax":
            self._public -= ONLY_IN_PHALANX

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        kind = PatchedModule if any(module == self.name for module, _ in _PATCHED) else ModuleType
        return kind(self.name, getattr(self.shown, "__doc__", None))

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the functions that look names up (PEP 562); a plain module has the fastest look-up."""
        namespace = vars(module)

        def __getattr__(name: str) -> Any:
            namespace[name] = value = self.look_up(name)  # The next look-up does not come here.
            return value

        namespace["__getattr__"] = __getattr__
        namespace["__dir__"] = lambda: sorted({*namespace, *self.list_names()})

    def list_names(self) -> set[str]:
        """List the public names of the module, its rows in the tables, and its submodules in them."""
        prefix = f"{self.name}."
        children = {name.removeprefix(prefix).partition(".")[0] for name in read_tables() if name.startswith(prefix)}
        return {*self._public, *self._rows, *children}

    def look_up(self, name: str) -> Any:
        """Look up one name.

        Args:
          name: the name, without the module.

        Returns:
          The object of the row in the tables, the served submodule, or Phalanx's public object of this name.

        Raises:
          AttributeError: there is none.
        """
        path = f"{self.name}.{name}"
        if name in self._rows:
            source, origin = self._rows[name]
            return getattr(importlib.import_module(source), origin)
        if name == "__all__":
            return sorted(public for public in self.list_names() if not public.startswith("_"))
        if not name.startswith("__"):
            if self._finder.locate(path) is not None:
                return importlib.import_module(path)
            if name in self._public:
                return getattr(self.shown, name)
            self._finder.note_missing(path)
        raise AttributeError(f"module {self.name!r} has no attribute {name!r}")

    def find_submodule(self, name: str) -> ModuleType | None:
        """Find the module of Phalanx that the submodule `name` shows, unless a table has a row for it."""
        if self.shown is None or (self.name == "jax" and name in ONLY_IN_PHALANX):
            return None
        if name in self._public:
            found = getattr(self.shown, name)
            # A module of another library, such as NumPy, is itself, as it is in JAX.
            return found if isinstance(found, ModuleType) and found.__name__.startswith("phalanx.") else None
        path = f"{self.shown.__name__}.{name}"
        is_public = find_alias(path) is not None or find_submodules(path.partition(".")[2])
        return importlib.import_module(path) if is_public else None


class ModuleFinder(DistributionFinder):
    """Finds the modules of the served trees, and the version of JAX that they correspond to.

    Attributes:
      trees: the root of each served tree, such as `jax`, and the module of Phalanx that it shows.
      fallbacks: for each package that is served only if the real one is not installed, its trees.
      missing: the names that were asked for in vain, each with the modules that asked.
    """

    def __init__(self) -> None:
        self.trees: dict[str, str] = {}
        self.fallbacks: dict[str, dict[str, str]] = {}
        self.missing: dict[str, set[str]] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Find the spec of a module, as `importlib.abc.MetaPathFinder` has it; keep a name that is not found."""
        spec = self.locate(fullname)
        if spec is None and self._serves(fullname):
            self.note_missing(fullname)
        return spec

    def locate(self, fullname: str) -> ModuleSpec | None:
        """Find the spec of a module of a served tree.

        Args:
          fullname: the name of the module; the package above it has been imported.

        Returns:
          The spec, or None if the module does not belong to a served tree, or if Phalanx does not have it.
        """
        if fullname in self.fallbacks and fullname not in self.trees and PathFinder.find_spec(fullname) is None:
            self.trees |= self.fallbacks[fullname]
        if not self._serves(fullname):
            return None
        source = self.trees.get(fullname) or _SHOWN.get(fullname)
        if source is not None:
            return self._make_spec(fullname, importlib.import_module(source))
        parent, _, leaf = fullname.rpartition(".")
        loader = sys.modules[parent].__loader__
        shown = loader.find_submodule(leaf) if isinstance(loader, ModuleLoader) else None
        return None if shown is None and fullname not in _list_modules() else self._make_spec(fullname, shown)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> list[Distribution]:
        """Answer `importlib.metadata.version("jax")`."""
        return [JaxDistribution()] if context is not None and (context.name or "").lower() == "jax" else []

    def note_missing(self, name: str) -> None:
        """Keep a name that was asked for in vain, with the module on whose behalf, unless it was jaxlib for Phalanx."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_IMPORT_SYSTEM):
            frame = frame.f_back
        user = frame.f_globals.get("__name__", "?")
        if not user.startswith("phalanx."):
            self.missing.setdefault(name, set()).add(user)

    def _serves(self, fullname: str) -> bool:
        return any(f"{fullname}.".startswith(f"{root}.") for root in self.trees)

    def _make_spec(self, fullname: str, shown: ModuleType | None) -> ModuleSpec:
        origin = getattr(shown, "__file__", None)
        spec = ModuleSpec(fullname, ModuleLoader(fullname, shown, self), origin=origin, is_package=True)
        spec.has_location = origin is not None  # so that `__file__` is set
        return spec


class JaxDistribution(Distribution):
    """The metadata of an installed JAX, as far as programs ask for it."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: jax\nVersion: {JAX_VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / path


@functools.cache
def read_tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Read the tables of names: module of JAX -> name -> (module of Phalanx, attribute of it)."""
    tables: dict[str, dict[str, tuple[str, str]]] = {}
    public = ((module, names, source) for module, sources in PUBLIC_NAMES.items() for source, names in sources.items())
    private = ((row.module, row.names, row.source) for row in PRIVATE_NAMES)
    for module, names, source in (*public, *private):
        tables.setdefault(module, {})
        for alias, _, origin in (entry.partition("=") for entry in names.split()):
            if alias != "*":
                tables[module][alias] = (source, origin or alias)
    return tables


@functools.cache
def _list_modules() -> frozenset[str]:
    """List the modules that the tables name, and the packages above them."""
    return frozenset(
        ".".join(parts[:depth])
        for parts in (module.split(".") for module in read_tables())
        for depth in range(1, len(parts) + 1)
    )


# The modules of the tables that show all public names of a module of Phalanx.
_SHOWN = {row.module: row.source for row in PRIVATE_NAMES if row.names == "*"}

# The names whose assignment reaches Phalanx: (module of JAX, name) -> (module of Phalanx, name).
_PATCHED = {
    (row.module, name): read_tables()[row.module][name]
    for row in PRIVATE_NAMES
    if row.patched
    for name in (entry.partition("=")[0] for entry in row.names.split())
}
