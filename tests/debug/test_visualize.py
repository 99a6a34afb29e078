"""Drawings of shardings, as text and in colour."""

from __future__ import annotations

import builtins

import pytest

from phalanx.core.errors import ShapeError
from phalanx.debug import visualize_array_sharding, visualize_sharding
from phalanx.debug.visualize import MissingExtraError
from phalanx.sharding import NamedSharding, P, make_mesh


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


def drawn(capsys, shape, sharding, **options):
    visualize_sharding(shape, sharding, **options)
    return capsys.readouterr().out


def test_a_matrix_is_a_grid_of_its_parts(mesh, capsys):
    assert drawn(capsys, (8, 8), NamedSharding(mesh, P("x", "y")), plain=True, scale=0.5) == (
        "┌─────────┬─────────┐\n"
        "│  CPU 0  │  CPU 1  │\n"
        "├─────────┼─────────┤\n"
        "│  CPU 2  │  CPU 3  │\n"
        "├─────────┼─────────┤\n"
        "│  CPU 4  │  CPU 5  │\n"
        "├─────────┼─────────┤\n"
        "│  CPU 6  │  CPU 7  │\n"
        "└─────────┴─────────┘\n"
    )


def test_replicas_share_a_part(mesh, capsys):
    assert drawn(capsys, (8, 8), NamedSharding(mesh, P(None, "x")), plain=True, scale=0.3) == (
        "┌─────────┬─────────┬─────────┬─────────┐\n"
        "│         │         │         │         │\n"
        "│ CPU 0,1 │ CPU 2,3 │ CPU 4,5 │ CPU 6,7 │\n"
        "│         │         │         │         │\n"
        "└─────────┴─────────┴─────────┴─────────┘\n"
    )


def test_a_long_label_is_wrapped(mesh, capsys):
    assert drawn(capsys, (8,), NamedSharding(mesh, P("y")), plain=True, max_width=24) == (
        "┌──────────┬──────────┐\n"
        "│ CPU 0,2, │ CPU 1,3, │\n"
        "│   4,6    │   5,7    │\n"
        "│          │          │\n"
        "└──────────┴──────────┘\n"
    )


def test_a_scalar_is_one_part(mesh, capsys):
    assert "CPU 0,1,2,3,4,5,6,7" in drawn(capsys, (), NamedSharding(mesh, P()), plain=True, min_width=30)


def test_an_array_is_drawn_by_its_sharding(mesh, capsys):
    class Array:
        shape, sharding = (8,), NamedSharding(mesh, P("x"))

    visualize_array_sharding(Array(), plain=True)
    assert capsys.readouterr().out == drawn(capsys, (8,), Array.sharding, plain=True)


def test_every_part_has_its_own_colour(mesh, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    sharding = NamedSharding(mesh, P("x", "y"))
    text = drawn(capsys, (8, 8), sharding)
    assert len({piece.split("m")[0] for piece in text.split("\x1b[")[1:] if not piece.startswith("0m")}) == 8
    assert "\x1b[" not in drawn(capsys, (8, 8), sharding, use_color=False)
    assert "48;2;255;0;0" in drawn(capsys, (8, 8), sharding, color_map=lambda place: (1.0, 0.0, 0.0, 1.0))


def test_without_a_terminal_the_coloured_drawing_is_the_plain_one(mesh, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    sharding = NamedSharding(mesh, P("x", "y"))
    assert drawn(capsys, (8, 8), sharding) == drawn(capsys, (8, 8), sharding, plain=True)


def test_more_than_two_dimensions_are_refused(mesh):
    with pytest.raises(ShapeError) as error:
        visualize_sharding((2, 2, 2), NamedSharding(mesh, P()))
    assert str(error.value) == (
        "visualize_sharding: expected an array of one or two dimensions, got shape (2, 2, 2).\n"
        "  To mend: draw a slice of it, or reshape it to two dimensions."
    )


def test_without_rich_the_error_says_what_to_install(mesh, monkeypatch):
    real = builtins.__import__

    def without_rich(name, *args, **kwargs):
        if name.startswith("rich"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    with pytest.raises(MissingExtraError) as error:
        visualize_sharding((8,), NamedSharding(mesh, P("x")))
    assert str(error.value) == (
        "visualize_sharding: expected the package rich, which draws in colour, got an environment without it.\n"
        "  To mend: pip install rich, or pass plain=True."
    )
