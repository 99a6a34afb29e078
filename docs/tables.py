"""Griffe extension for the reference pages, named in `mkdocs.yml`.

mkdocstrings reads sources without running them. This extension adds what only the imported package knows: which names a
public namespace has, the functions that are rows of tables, and docstrings that are completed when a module is loaded.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

NAMESPACES = re.findall(
    r"^\| `(phalanx[\w.]*)` \|", (Path(__file__).parent / "public_api.md").read_text(), re.MULTILINE
)


class PublicNamespaces(griffe.Extension):
    """Shows in each public namespace its public names, under these names."""

    def on_package(self, *, pkg: griffe.Module, loader: Any, **kwargs: Any) -> None:
        add_rows(pkg)
        for namespace in NAMESPACES:
            show_names(pkg, namespace)


def show_names(package: griffe.Module, namespace: str) -> None:
    """Make the public names of a namespace its exports, whichever file defines them."""
    from phalanx.engine.defining_module import defining_module

    module = package[namespace.removeprefix("phalanx.")] if namespace != "phalanx" else package
    loaded = import_module(namespace)
    module.exports = []
    for name in dir(loaded):
        thing = getattr(loaded, name)
        if inspect.ismodule(thing) or name.startswith("_"):
            continue
        module.exports.append(name)
        home = defining_module(thing) if inspect.isfunction(thing) or inspect.isclass(thing) else None
        shown = find(package, f"{home}.{thing.__name__}") if home and home.startswith("phalanx.") else None
        if shown is None or shown.path == f"{namespace}.{name}":
            continue
        if home == f"{namespace}.{name}":  # a function in a module of its name, which an alias would hide
            module.set_member(name, shown)
        else:
            module.set_member(name, griffe.Alias(name, shown, parent=module))


def find(package: griffe.Module, path: str) -> griffe.Object | None:
    """Find an object of the package by its path, or None."""
    try:
        return package[path.removeprefix("phalanx.")]
    except KeyError:
        return None


def add_rows(module: griffe.Module) -> None:
    """Replace assignments that make functions by these functions, in a module and those inside it."""
    for name, member in list(module.members.items()):
        if member.is_alias:
            continue
        if isinstance(member, griffe.Module):
            add_rows(member)
        elif name.startswith("_"):
            continue
        elif isinstance(member, griffe.Class) and any("example" in str(d.value) for d in member.decorators):
            member.docstring = read_docstring(member, getattr(import_module(module.path), name))
        elif isinstance(member, griffe.Function) and member.docstring is not None:
            member.docstring = read_docstring(member, getattr(import_module(module.path), name))
        elif isinstance(member, griffe.Attribute) and member.docstring is None:
            add_row(module, name, member)


def add_row(module: griffe.Module, name: str, row: griffe.Attribute) -> None:
    """Replace one assignment, if it makes a function or an option."""
    from phalanx.engine.defining_module import defining_module

    made = getattr(import_module(module.path), name, None)
    if type(made).__name__ == "Option":  # of core/config.py, which documents an option by its declaration
        row.docstring = read_docstring(row, made)
        return
    if not inspect.isfunction(made) or not made.__doc__ or defining_module(made) != module.path:
        return
    kinds = {kind: griffe.ParameterKind[kind.name.lower()] for kind in inspect._ParameterKind}
    parameters = [
        griffe.Parameter(
            p.name,
            kind=kinds[p.kind],
            annotation=str(p.annotation).strip("'") if p.annotation is not p.empty else None,
            default=repr(p.default) if p.default is not p.empty else None,
        )
        for p in inspect.signature(made).parameters.values()
    ]
    function = griffe.Function(
        name, parameters=griffe.Parameters(*parameters), lineno=row.lineno, endlineno=row.endlineno
    )
    function.docstring = read_docstring(function, made)
    module.set_member(name, function)


def read_docstring(shown: griffe.Object, made: Any) -> griffe.Docstring:
    """Read the docstring that an object has after its module was loaded."""
    text = inspect.cleandoc(made.__doc__ or "")
    return griffe.Docstring(text, parent=shown, parser="google", parser_options={"warnings": False})
