"""The page "Names of JAX" is true: every absent name has a reason, and no note is about a name that is not listed."""

import types

import pytest
from tests.source_files import DOCS, load_file

from phalanx.as_jax.module_finder import read_tables

jax_names = load_file(DOCS / "jax_names.py")


@pytest.fixture(scope="module")
def names():
    return list(jax_names.list_names())


def test_every_absent_name_has_a_reason(names):
    assert [n.path for n in names if not n.exists and not n.note] == []


def test_every_note_is_about_a_name_on_the_page(names):
    shown = {n.note for n in names if n.note}
    assert {note for kind in ("absent", "differs") for note in jax_names.DATA[kind].values()} == shown


def test_a_name_that_exists_can_be_read(names):
    for n in names:
        if n.exists and n.name not in read_tables().get(n.module, {}):
            getattr(jax_names.find_module(f"phalanx{n.module.removeprefix('jax')}"), n.name)


def test_the_page_shows_every_name(names):
    page = jax_names.on_page_markdown(jax_names.PLACE)
    assert "| `jax.numpy` |" in page
    assert all(f"`{n.name}`" in page or f"`{n.path}`" in page for n in names)


# Names of releases of JAX before the one that the page follows, or after it.
OTHER_RELEASES = {"dce_sink_p"}


@pytest.mark.parametrize(
    "module", ["jax", "jax.numpy", "jax.lax", "jax.random", "jax.nn", "jax.tree_util", "jax.sharding"]
)
def test_the_page_lists_the_names_of_the_installed_peer(module):
    peer = pytest.importorskip(module)
    public = {n for n in dir(peer) if not n.startswith("_") and not isinstance(getattr(peer, n), types.ModuleType)}
    assert public - {n.name for n in jax_names.list_names() if n.module == module} - OTHER_RELEASES == set()
