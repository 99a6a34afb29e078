"""A prefix spreads over a tree, and where it is none the error names the path."""

from collections import namedtuple

import pytest
from hypothesis import given, strategies as st

from phalanx import tree
from phalanx.core.error_classes import TreeError
from phalanx.tree import broadcast_prefix, equality_errors, flatten_axes, prefix_errors

Point = namedtuple("Point", "x y")
is_none = lambda x: x is None


def text(excinfo):
    return str(excinfo.value)


def test_a_prefix_spreads_over_subtrees():
    full = ({"w": 1, "b": (2, 3)}, [4, None])
    assert broadcast_prefix(0, full) == [0] * 4
    assert broadcast_prefix(("p", "q"), full) == ["p", "p", "p", "q"]
    assert broadcast_prefix(({"w": 0, "b": 1}, 2), full) == [1, 1, 0, 2]
    assert broadcast_prefix((None, 5), full, is_leaf=is_none) == [None, None, None, 5]
    assert broadcast_prefix((Point(0, 1),), (Point([2, 3], 4),)) == [0, 0, 1]


@given(
    st.recursive(st.integers(), lambda t: st.lists(t, max_size=3).map(tuple) | st.lists(t, max_size=2), max_leaves=9)
)
def test_a_tree_is_a_prefix_of_itself(value):
    assert broadcast_prefix(value, value) == tree.leaves(value)
    assert flatten_axes("t", tree.structure(value), value) == tree.leaves(value)
    assert list(prefix_errors(value, value)) == list(equality_errors(value, value)) == []


def test_a_list_may_count_as_a_tuple():
    full = (1, {"a": (2, 3)}, [4, 5])
    assert broadcast_prefix([0, {"a": [1, 2]}, (3, 4)], full, lists_as_tuples=True) == [0, 1, 2, 3, 4]
    assert flatten_axes("s", tree.structure(full), [0, None, 1], is_leaf=is_none, lists_as_tuples=True) == [
        0,
        None,
        None,
        1,
        1,
    ]
    with pytest.raises(TreeError) as error:
        broadcast_prefix([0, 1, 2], full, what="in_axes")
    assert text(error) == (
        "in_axes: expected a leaf or a tuple of length 3, got a list of length 3.\n  Fix: convert it with tuple()."
    )
    with pytest.raises(TreeError, match=r"^in_axes: expected a leaf or a tuple of length 3, got a list of length 2"):
        broadcast_prefix([0, 1], full, what="in_axes", lists_as_tuples=True)


def test_lists_as_tuples_inside_registered_nodes():
    from collections import OrderedDict

    full = (OrderedDict(b=(1, 2), a=3),)
    assert broadcast_prefix((OrderedDict(b=[7, 8], a=9),), full, lists_as_tuples=True) == [7, 8, 9]


@pytest.mark.parametrize(
    ("prefix", "full", "message"),
    [
        (
            ({"w": 0},),
            ({"w": 1, "b": 2},),
            "vmap, in_axes[0]: expected a leaf or a dict with keys ['b', 'w'], got a dict with keys ['w'].\n"
            "  Fix: add 'b'.",
        ),
        (
            ({"w": 0, "c": 0},),
            ({"w": 1, "b": 2},),
            "vmap, in_axes[0]: expected a leaf or a dict with keys ['b', 'w'], got a dict with keys ['c', 'w'].\n"
            "  Fix: add 'b' and remove 'c'.",
        ),
        (
            ({"w": (0, 1)},),
            ({"w": 3},),
            "vmap, in_axes[0]['w']: expected a leaf, where the full tree has one, got a tuple of length 2.\n"
            "  Fix: replace a tuple of length 2 by one leaf.",
        ),
        (
            (0, None),
            (1, 2),
            "vmap, in_axes[1]: expected a leaf, where the full tree has one, got None.\n  Fix: replace None by one leaf.",
        ),
        (
            {"w": 0},
            ({"w": 3},),
            "vmap, in_axes: expected a leaf or a tuple of length 1, got a dict with keys ['w'].\n"
            "  Fix: wrap it in a tuple of one element: (spec,).",
        ),
        (
            ((0, 1),),
            (Point(1, 2),),
            "vmap, in_axes[0]: expected a leaf or a Point with fields ['x', 'y'], got a tuple of length 2.\n"
            "  Fix: replace a tuple of length 2 by a Point with fields ['x', 'y'].",
        ),
    ],
)
def test_the_first_disagreement_is_named(prefix, full, message):
    with pytest.raises(TreeError) as error:
        broadcast_prefix(prefix, full, what="vmap, in_axes")
    assert text(error) == message


def test_all_disagreements_are_found():
    errors = list(prefix_errors({"a": (1,), "b": [1], "c": 0}, {"a": 1, "b": [1, 2], "c": (1, 2)}, what="p"))
    assert [error.where for error in errors] == ["p['a']", "p['b']"]


def test_equality_errors_take_trees_and_structures():
    expected, got = {"w": 1, "s": (1, None)}, {"w": (1,), "s": (1, 2)}
    for pair in ((expected, got), (tree.structure(expected), tree.structure(got)), (expected, tree.structure(got))):
        errors = list(equality_errors(*pair, what="carry"))
        assert [error.where for error in errors] == ["carry['s'][1]", "carry['w']"]
        assert str(errors[1]) == (
            "carry['w']: expected a leaf, got a tuple of length 1.\n  Fix: replace a tuple of length 1 by one leaf."
        )
    assert errors[0].expected == "None"


def test_the_data_of_a_node_counts():
    class Mine:
        def __init__(self, x, tag):
            self.x, self.tag = x, tag

    tree.register_pytree_node(Mine, lambda m: ((m.x,), m.tag), lambda tag, xs: Mine(*xs, tag))
    (error,) = equality_errors([Mine(1, "a")], [Mine(1, "b")], what="state")
    assert str(error) == (
        "state[0]: expected a Mine with 1 children and data 'a', got a Mine with 1 children and data 'b'.\n"
        "  Fix: give it the data of a Mine with 1 children and data 'a'."
    )


def test_broadcast_gives_the_full_tree_back():
    assert tree.broadcast((0, 1), ("x", {"a": "y", "b": ["z"]})) == (0, {"a": 1, "b": [1]})
    with pytest.raises(TreeError, match=r"^prefix\[1\]: expected a leaf, where the full tree has one"):
        tree.broadcast((0, (1, 2)), (3, 4))
