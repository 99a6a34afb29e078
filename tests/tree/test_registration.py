"""Types become nodes by functions, methods, fields, or without children; bad registrations say what to change."""

import dataclasses
from typing import NamedTuple

import pytest

from phalanx import tree, tree_util
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError
from phalanx.tree import DictKey, keystr


def paths(value):
    return [(keystr(path), leaf) for path, leaf in tree.leaves_with_path(value)]


class Box:
    def __init__(self, *items, tag=None):
        self.items, self.tag = items, tag


def test_a_node_by_functions():
    class Mine(Box):
        pass

    tree_util.register_pytree_node(Mine, lambda b: (b.items, b.tag), lambda tag, xs: Mine(*xs, tag=tag))
    box = Mine(1, (2, 3), tag="t")
    assert paths(box) == [("[<flat index 0>]", 1), ("[<flat index 1>][0]", 2), ("[<flat index 1>][1]", 3)]
    assert tree.map(lambda x: -x, box).items == (-1, (-2, -3))
    assert tree.structure(box) != tree.structure(Mine(1, (2, 3), tag="u"))
    with pytest.raises(ArgumentError) as error:
        tree_util.register_pytree_node(Mine, lambda b: (b.items, b.tag), lambda tag, xs: Mine(*xs))
    assert str(error.value) == (
        f"register_pytree_node, nodetype: expected a class that is not a node yet, got {Mine!r}.\n"
        "  Fix: register Mine once, where it is defined."
    )


def test_a_node_with_keys():
    class Mine(Box):
        pass

    tree_util.register_pytree_with_keys(
        Mine, lambda b: ([(DictKey(i), x) for i, x in enumerate(b.items)], b.tag), lambda _, xs: Mine(*xs)
    )
    assert paths(Mine(1, 2)) == [("[0]", 1), ("[1]", 2)]
    assert tree.leaves(Mine(1, 2)) == [1, 2]


def test_nodes_by_methods():
    @tree_util.register_pytree_node_class
    class Plain(Box):
        def tree_flatten(self):
            return self.items, self.tag

        @classmethod
        def tree_unflatten(cls, tag, items):
            return cls(*items, tag=tag)

    @tree_util.register_pytree_with_keys_class
    class Keyed(Plain):
        def tree_flatten_with_keys(self):
            return [(DictKey(i), x) for i, x in enumerate(self.items)], self.tag

    assert tree.map(lambda x: x + 1, Plain(1, tag="t")).items == (2,)
    assert paths(Keyed(1)) == [("[0]", 1)]
    assert type(tree.map(lambda x: x, Keyed(1))) is Keyed


def test_a_dataclass_infers_its_fields():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: int
        b: tuple
        name: str = tree.static(default="layer")
        width: int = dataclasses.field(default=3, metadata={"static": True})

    layer = Layer(1, (2,))
    assert paths(layer) == [(".w", 1), (".b[0]", 2)]
    assert tree.map(lambda x: -x, layer) == Layer(-1, (-2,))
    assert tree.structure(layer) != tree.structure(Layer(1, (2,), name="other"))


def test_a_dataclass_with_listed_fields():
    @dataclasses.dataclass
    class State:
        x: int
        kind: str
        cache: int = 0

    tree_util.register_dataclass(State, ["x"], ["kind"], drop_fields=["cache"])
    assert tree.map(lambda x: x, State(1, "k", cache=7)) == State(1, "k", cache=0)


def test_a_field_that_the_constructor_sets_must_be_dropped():
    """It was dropped silently, with the value that a user had assigned."""

    @dataclasses.dataclass
    class Counted:
        x: int
        count: int = dataclasses.field(default=0, init=False)

    tree_util.register_dataclass(Counted, drop_fields=["count"])
    assert tree.leaves(Counted(1)) == [1]


@dataclasses.dataclass
class Two:
    x: int
    y: int
    late: int = dataclasses.field(default=0, init=False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (Two, ["x"], []),
            "register_dataclass of Two: expected each field of the constructor in data_fields or meta_fields, got no "
            "['y'].\n  Fix: add them to one of the lists, or to drop_fields if their defaults are right.",
        ),
        (
            (Two, ["x", "y", "z"], []),
            "register_dataclass of Two: expected fields of the constructor only, got ['z'].\n"
            "  Fix: remove 'z' from data_fields or from meta_fields.",
        ),
        (
            (Two, ["x", "y", "late"], [], ["late"]),
            "register_dataclass of Two: expected fields of the constructor only, got ['late'].\n"
            "  Fix: remove 'late' from data_fields or from meta_fields.",
        ),
        (
            (Two,),
            "register_dataclass of Two: expected fields of the constructor only, got ['late'].\n"
            "  Fix: add 'late' to drop_fields, which the constructor then sets.",
        ),
        (
            (Two, ["x", "y"], ["y"]),
            "register_dataclass of Two: expected each field in one list, got ['y'] twice.\n"
            "  Fix: remove 'y' from data_fields or from meta_fields.",
        ),
        (
            (Two, ["x", "y"]),
            "register_dataclass: expected data_fields and meta_fields, or neither, got data_fields alone.\n"
            "  Fix: pass both lists, [] for a kind without fields.",
        ),
        (
            (Box,),
            f"register_dataclass, nodetype: expected a dataclass, since no fields are listed, got {Box!r}.\n"
            "  Fix: decorate the class with dataclasses.dataclass, or pass data_fields and meta_fields.",
        ),
    ],
)
def test_wrong_fields_are_refused(arguments, text):
    with pytest.raises((ArgumentError, ArgumentTypeError)) as error:
        tree_util.register_dataclass(*arguments)
    assert str(error.value) == text


def test_wrong_arguments_are_refused():
    with pytest.raises(ArgumentTypeError) as error:
        tree_util.register_pytree_node(3, len, len)
    assert str(error.value) == (
        "register_pytree_node, nodetype: expected a class, got 3.\n  Fix: pass the class itself, not one of its values."
    )
    with pytest.raises(ArgumentTypeError) as error:
        tree_util.register_pytree_node(Box, len, 4)
    assert str(error.value) == (
        "register_pytree_node, unflatten_func: expected a function, got 4.\n  Fix: pass the function itself, not the result of calling it."
    )
    with pytest.raises(ArgumentTypeError) as error:
        tree_util.register_pytree_node_class(Box)
    assert str(error.value) == (
        "register_pytree_node_class, Box: expected a method tree_flatten, got none.\n  Fix: define tree_flatten in Box, or register the class with register_pytree_node."
    )


def test_a_static_value_is_part_of_the_structure():
    @tree_util.register_static
    class Mode(str):
        pass

    assert tree.leaves((Mode("train"), 1)) == [1]
    assert tree.structure(Mode("train")) == tree.structure(Mode("train")) != tree.structure(Mode("test"))
    assert tree_util.is_tree_node(Mode) and not tree_util.is_tree_node(str)


def test_a_named_tuple_may_be_registered_once():
    class Pair(NamedTuple):
        value: int
        label: str

    register = lambda: tree.register_pytree_node(
        Pair, lambda p: ((p.value,), p.label), lambda label, xs: Pair(*xs, label)
    )
    register()
    assert tree.leaves(Pair(1, "a")) == [1]
    assert tree.map(lambda x: x + 1, Pair(1, "a")) == Pair(2, "a")
    with pytest.raises(ArgumentError, match="expected a class that is not a node yet"):
        register()
