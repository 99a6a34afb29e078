"""For the reference pages: functions that are rows of a table, shown as what they are when the module is loaded.

mkdocstrings reads sources and would show such a row as an assignment. Named in `mkdocs.yml`.
"""

import inspect
from importlib import import_module
from typing import Any

import griffe


class Rows(griffe.Extension):
    """Puts functions in the place of the assignments that make them."""

    def on_package(self, *, pkg: griffe.Module, loader: Any, **kwargs: Any) -> None:
        self._mend(pkg)

    def _mend(self, module: griffe.Module) -> None:
        for name, member in list(module.members.items()):
            if member.is_alias:
                continue
            if isinstance(member, griffe.Module):
                self._mend(member)
            elif isinstance(member, griffe.Attribute) and not name.startswith("_"):
                self._show(module, name, member)

    def _show(self, module: griffe.Module, name: str, row: griffe.Attribute) -> None:
        if row.docstring is not None:
            return
        made = getattr(import_module(module.path), name, None)
        options = {"warnings": False}
        if (
            type(made).__name__ == "Option"
        ):  # of `core/config.py` or `runtime/settings.py`: documented by what it was declared with
            text = inspect.cleandoc(made.__doc__ or "")
            row.docstring = griffe.Docstring(text, parent=row, parser="google", parser_options=options)
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
        text = inspect.cleandoc(made.__doc__)
        function.docstring = griffe.Docstring(text, parent=function, parser="google", parser_options=options)
        module.set_member(name, function)
