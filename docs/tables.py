"""For the reference pages: what is documented by its row in a table, shown as it is when the module is loaded.

mkdocstrings reads sources and would show a function that is such a row as an assignment. Named in `mkdocs.yml`.
"""

import inspect
from importlib import import_module
from typing import Any

import griffe


class Rows(griffe.Extension):
    """Puts functions in the place of the assignments that make them, and completes docstrings as the code does."""

    def on_package(self, *, pkg: griffe.Module, loader: Any, **kwargs: Any) -> None:
        self._mend(pkg)

    def _mend(self, module: griffe.Module) -> None:
        for name, member in list(module.members.items()):
            if member.is_alias:
                continue
            if isinstance(member, griffe.Module):
                self._mend(member)
            elif isinstance(member, griffe.Class) and any("met_by" in str(d.value) for d in member.decorators):
                member.docstring = _docstring(member, getattr(import_module(module.path), name))
            elif isinstance(member, griffe.Function) and member.docstring is not None and not name.startswith("_"):
                member.docstring = _docstring(member, getattr(import_module(module.path), name))
            elif isinstance(member, griffe.Attribute) and not name.startswith("_"):
                self._show(module, name, member)

    def _show(self, module: griffe.Module, name: str, row: griffe.Attribute) -> None:
        if row.docstring is not None:
            return
        made = getattr(import_module(module.path), name, None)
        if type(made).__name__ == "Option":  # of `core/config.py`: documented by what it was declared with
            row.docstring = _docstring(row, made)
            return
        if not inspect.isfunction(made) or not made.__doc__ or made.__module__ != module.path:
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
        function.docstring = _docstring(function, made)
        module.set_member(name, function)


def _docstring(shown: griffe.Object, made: Any) -> griffe.Docstring:
    """What an object says of itself once its module is loaded."""
    text = inspect.cleandoc(made.__doc__ or "")
    return griffe.Docstring(text, parent=shown, parser="google", parser_options={"warnings": False})
