"""The tables on the page "Options": every option of `phalanx.config`, made when the documentation is built.

Named under `hooks` in `mkdocs.yml`. Run as a program, it prints the tables.
"""

from typing import Any

from phalanx.core.config import Option, _declared
from phalanx.core.options_without_effect import OPTIONS_WITHOUT_EFFECT
from phalanx.runtime import engine_options  # noqa: F401 - declares the options of the engine

WITH_EFFECT, WITHOUT_EFFECT = "<!-- the options with an effect -->", "<!-- the options without effect -->"


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows])


def values_of(option: Option) -> str:
    """What an option accepts, as the error of its check names it."""
    try:
        option.check(option.name, object())
    except ValueError as refused:
        return str(getattr(refused, "expected", refused))
    return "any value"


def options_with_effect() -> str:
    """One row for each option that changes something."""
    rows = [
        [f"`{name}`", values_of(option), f"`{option.default!r}`", option.summary]
        for name, option in sorted(_declared.items())
        if name not in OPTIONS_WITHOUT_EFFECT
    ]
    return table(["option", "values", "default", "effect"], rows)


def options_without_effect() -> str:
    """One row for each option that is accepted only."""
    rows = [[f"`{name}`", f"`{default!r}`", why] for name, (default, why) in sorted(OPTIONS_WITHOUT_EFFECT.items())]
    return table(["option", "default", "why it has no effect"], rows)


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Put the tables into the page that has places for them; called by mkdocs."""
    if WITH_EFFECT not in markdown:
        return markdown
    return markdown.replace(WITH_EFFECT, options_with_effect()).replace(WITHOUT_EFFECT, options_without_effect())


if __name__ == "__main__":
    print(options_with_effect(), options_without_effect(), sep="\n\n")
