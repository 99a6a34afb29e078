"""Drawings of shardings, as text and in colour."""

from __future__ import annotations

import builtins
import xml.etree.ElementTree as ET

import pytest

from phalanx.core import MissingExtraError
from phalanx.core.error_classes import ArgumentTypeError
from phalanx.debug import draw_sharding, visualize_array_sharding, visualize_sharding
from phalanx.sharding import AbstractMesh, NamedSharding, P, make_mesh


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


def drawn(capsys, shape, sharding, **options):
    visualize_sharding(shape, sharding, **options)
    return capsys.readouterr().out


def test_a_matrix_is_drawn_as_a_grid_of_shards(mesh, capsys):
    assert drawn(capsys, (8, 8), NamedSharding(mesh, P("x", "y")), plain=True, scale=0.5) == (
        "┌───────┬───────┐\n"
        "│ CPU 0 │ CPU 1 │\n"
        "├───────┼───────┤\n"
        "│ CPU 2 │ CPU 3 │\n"
        "├───────┼───────┤\n"
        "│ CPU 4 │ CPU 5 │\n"
        "├───────┼───────┤\n"
        "│ CPU 6 │ CPU 7 │\n"
        "└───────┴───────┘\n"
    )


def test_replicas_share_a_cell(mesh, capsys):
    assert drawn(capsys, (8, 8), NamedSharding(mesh, P(None, "x")), plain=True, scale=0.4) == (
        "┌───────┬───────┬───────┬───────┐\n"
        "│       │       │       │       │\n"
        "│CPU 0,1│CPU 2,3│CPU 4,5│CPU 6,7│\n"
        "│       │       │       │       │\n"
        "└───────┴───────┴───────┴───────┘\n"
    )


def test_a_long_label_is_wrapped(mesh, capsys):
    assert drawn(capsys, (8,), NamedSharding(mesh, P("y")), plain=True, max_width=21) == (
        "┌─────────┬─────────┐\n│CPU 0,2, │CPU 1,3, │\n│   4,6   │   5,7   │\n└─────────┴─────────┘\n"
    )


def test_a_scalar_is_one_cell(mesh, capsys):
    assert "CPU 0,1,2,3,4,5,6,7" in drawn(capsys, (), NamedSharding(mesh, P()), plain=True, min_width=30)


def test_a_mesh_without_devices_is_drawn_by_number(capsys):
    abstract = NamedSharding(AbstractMesh((2, 2), ("x", "y")), P("x"))
    assert drawn(capsys, (2, 2), abstract, plain=True, scale=0.3) == (
        "┌──────────┐\n│device 0,1│\n├──────────┤\n│device 2,3│\n└──────────┘\n"
    )


def test_an_array_is_drawn_with_its_sharding(mesh, capsys):
    class Array:
        shape, sharding = (8,), NamedSharding(mesh, P("x"))

    visualize_array_sharding(Array(), plain=True)
    assert capsys.readouterr().out == drawn(capsys, (8,), Array.sharding, plain=True)


def test_every_shard_has_a_distinct_colour(mesh, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    sharding = NamedSharding(mesh, P("x", "y"))
    text = drawn(capsys, (8, 8), sharding)
    assert len({piece.split("m")[0] for piece in text.split("\x1b[")[1:] if not piece.startswith("0m")}) == 8
    many = drawn(capsys, (64, 64), NamedSharding(mesh, P(("x", "y"))), max_width=200)
    assert len({piece.split("m")[0] for piece in many.split("\x1b[")[1:] if not piece.startswith("0m")}) == 8
    assert "\x1b[" not in drawn(capsys, (8, 8), sharding, use_color=False)
    assert "48;2;255;0;0" in drawn(capsys, (8, 8), sharding, color_map=lambda place: (1.0, 0.0, 0.0, 1.0))


def test_without_a_terminal_the_coloured_drawing_equals_the_plain_one(mesh, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    sharding = NamedSharding(mesh, P("x", "y"))
    assert drawn(capsys, (8, 8), sharding) == drawn(capsys, (8, 8), sharding, plain=True)


def test_arrays_of_rank_3_are_drawn_plane_by_plane(mesh, capsys):
    assert drawn(capsys, (6, 4, 4), NamedSharding(mesh, P("y", "x")), plain=True, scale=0.5, max_width=20) == (
        "[0:3, :, :]\n"
        "┌──────────┐\n"
        "│  CPU 0   │\n"
        "├──────────┤\n"
        "│  CPU 2   │\n"
        "├──────────┤\n"
        "│  CPU 4   │\n"
        "├──────────┤\n"
        "│  CPU 6   │\n"
        "└──────────┘\n"
        "[3:6, :, :]\n"
        "┌──────────┐\n"
        "│  CPU 1   │\n"
        "├──────────┤\n"
        "│  CPU 3   │\n"
        "├──────────┤\n"
        "│  CPU 5   │\n"
        "├──────────┤\n"
        "│  CPU 7   │\n"
        "└──────────┘\n"
    )


def test_an_uneven_dimension_ends_in_shorter_cells(mesh, capsys):
    assert drawn(capsys, (9,), NamedSharding(mesh, P(("x", "y"))), plain=True, max_width=200, min_width=12) == (
        "┌──────────┬──────────┬──────────┬──────────┬─────┬─────┬─────┬─────┐\n"
        "│  CPU 0   │  CPU 1   │  CPU 2   │  CPU 3   │CPU 4│CPU 5│CPU 6│CPU 7│\n"
        "│          │          │          │          │     │empty│empty│empty│\n"
        "└──────────┴──────────┴──────────┴──────────┴─────┴─────┴─────┴─────┘\n"
    )


def elements(text: str, tag: str) -> list[ET.Element]:
    """Parse a document and list the elements of a kind, whatever their namespace."""
    return [e for e in ET.fromstring(text).iter() if e.tag.rpartition("}")[2] == tag]


def test_svg_has_a_coloured_box_for_each_shard(mesh):
    text = draw_sharding((8, 9), NamedSharding(mesh, P("x", "y"))).svg()
    assert [e.text for e in elements(text, "title")][:3] == [
        "[0:2, 0:5] on CPU 0",
        "[0:2, 5:9] on CPU 1",
        "[2:4, 0:5] on CPU 2",
    ]
    boxes = elements(text, "rect")
    assert len({box.get("fill") for box in boxes}) == 8
    assert int(boxes[0].get("width")) > int(boxes[1].get("width"))  # 5 columns and 4
    width, height = (int(ET.fromstring(text).get(side)) for side in ("width", "height"))
    assert all(int(b.get("x")) + int(b.get("width")) <= width for b in boxes)
    assert all(int(b.get("y")) + int(b.get("height")) <= height for b in boxes)
    assert [e.text for e in elements(text, "text")] == [f"CPU {i}" for i in range(8)]


def test_html_has_a_table_for_each_plane(mesh):
    drawing = draw_sharding((2, 4, 4), NamedSharding(mesh, P("y", "x")), use_color=False)
    text = drawing._repr_html_()
    assert len(elements(text, "table")) == 2
    assert [e.text for e in elements(text, "caption")] == ["[0:1, :, :]", "[1:2, :, :]"]
    assert [e.text for e in elements(text, "td")] == [f"CPU {i}" for i in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert "background" not in text
    assert "background" in draw_sharding((8,), NamedSharding(mesh, P("x"))).html()


def test_labels_are_readable_on_their_colour(mesh):
    sharding = NamedSharding(mesh, P("x"))
    assert 'fill="#fff"' in draw_sharding((8,), sharding, color_map=lambda place: (0.1, 0.1, 0.3)).svg()
    assert 'fill="#000"' in draw_sharding((8,), sharding, color_map=lambda place: (0.9, 0.9, 0.3)).svg()


def test_drawing_without_a_sharding_is_an_error():
    with pytest.raises(ArgumentTypeError) as error:
        draw_sharding((8,))
    assert str(error.value) == (
        "draw_sharding: expected an array with a sharding, or a shape and a sharding, got tuple and None.\n"
        "  Fix: pass a concrete array, or use debug.visualize_array_sharding inside jit."
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
        "visualize_sharding: expected the package rich, for drawings in colour, got an environment without it.\n"
        "  Fix: run pip install rich, or pass plain=True."
    )
