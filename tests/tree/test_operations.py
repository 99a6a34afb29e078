"""Trees are taken apart, mapped over, reduced and put together; the results are those of the peer."""

import copy
import functools
import pickle
from collections import OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given, strategies as st
from tests.processes import run_python

from phalanx import tree, tree_util
from phalanx.tree import DictKey, GetAttrKey, Partial, SequenceKey, keystr

Point = namedtuple("Point", "x y")

TREES = [
    1,
    None,
    (),
    {"b": 1, "a": (2, None, [3])},
    [Point(1, (2,)), {}],
    OrderedDict(b=1, a=2),
    defaultdict(list, {"b": 1, "a": 2}),
    {2: 1, 1: [None]},
]


def nested(leaves):
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
            | st.tuples(inner, inner).map(lambda pair: Point(*pair))
        ),
        max_leaves=12,
    )


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_flatten_and_unflatten_are_inverse(value):
    leaves, treedef = tree.flatten(value)
    assert tree.unflatten(treedef, leaves) == value
    assert treedef.num_leaves == len(leaves)
    assert treedef == tree.structure(value)
    assert hash(treedef) == hash(tree.structure(value))


@given(nested(st.integers() | st.none()))
def test_laws_of_map(value):
    assert tree.map(lambda x: x, value) == value
    assert tree.leaves(tree.map(lambda x: -x, value)) == [-x for x in tree.leaves(value)]
    assert [leaf for _, leaf in tree.leaves_with_path(value)] == tree.leaves(value)
    assert tree.broadcast(0, value) == tree.map(lambda _: 0, value)


@given(nested(st.integers()))
def test_a_path_is_the_expression_of_its_leaf(value):
    for path, leaf in tree.leaves_with_path(value):
        assert eval("value" + keystr(path), {"value": value}) == leaf


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_leaves_and_paths_are_those_of_the_peer(value):
    peer = pytest.importorskip("jax").tree_util
    ours = [(keystr(path), leaf) for path, leaf in tree.leaves_with_path(value)]
    theirs = [(peer.keystr(path), leaf) for path, leaf in peer.tree_leaves_with_path(value)]
    assert ours == theirs


def test_the_public_names_are_those_of_the_peer():
    jax = pytest.importorskip("jax")
    for ours, theirs in ((tree, jax.tree), (tree_util, jax.tree_util)):
        missing = [name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)]
        assert missing == []


def test_keys_are_sorted_where_a_dict_has_no_order_of_its_own():
    assert tree.leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree.leaves(OrderedDict(b=1, a=2)) == [1, 2]
    assert tree.leaves(defaultdict(int, {"b": 1, "a": 2})) == [2, 1]
    rebuilt = tree.map(lambda x: x, defaultdict(list, {"b": 1}))
    assert rebuilt["new"] == []


def test_is_leaf_stops_the_walk():
    value = {"a": (1, 2), "b": [3]}
    is_pair = lambda x: isinstance(x, tuple)
    assert tree.leaves(value, is_leaf=is_pair) == [(1, 2), 3]
    assert tree.map(len, {"a": (1, 2)}, is_leaf=is_pair) == {"a": 2}
    assert tree.leaves((1, None), is_leaf=lambda x: x is None) == [1, None]
    at_a = lambda path, _: path == (DictKey("a"),)
    assert tree.leaves_with_path(value, at_a, is_leaf_takes_path=True)[0] == ((DictKey("a"),), (1, 2))
    assert tree.map_with_path(lambda path, x: keystr(path), value, is_leaf=is_pair) == {"a": "['a']", "b": ["['b'][0]"]}


def test_map_takes_subtrees_of_the_rest():
    assert tree.map(lambda x, y: (x, y), {"a": 1, "b": 2}, {"a": (3, 4), "b": 5}) == {"a": (1, (3, 4)), "b": (2, 5)}
    assert tree.map_with_path(lambda p, x, y: (p[0].idx, x + y), [1, 2], [3, 4]) == [(0, 4), (1, 6)]


def test_map_names_the_place_where_trees_differ():
    with pytest.raises(ValueError) as error:
        tree.map(lambda *_: None, {"a": (1, 2), "b": 3}, {"a": (1, 2), "b": 3}, {"a": (1,), "b": 3})
    assert str(error.value) == (
        "tree.map, tree 2['a']: expected a tuple of length 2, got a tuple of length 1.\n  Fix: add the element [1]."
    )
    assert error.value.__suppress_context__
    with pytest.raises(tree_error()) as error:
        tree.map(lambda *_: None, (1, None), (1, 2))
    assert str(error.value).startswith("tree.map, tree 1[1]: expected None, got the leaf 2.")


def tree_error():
    from phalanx.core.error_classes import TreeError

    return TreeError


def test_an_error_of_the_mapped_function_passes_through():
    with pytest.raises(ValueError, match="^mine$"):
        tree.map(lambda *_: (_ for _ in ()).throw(ValueError("mine")), [1], [2])


def test_unflatten_counts_the_leaves():
    with pytest.raises(tree_error()) as error:
        tree.unflatten(tree.structure((0, 0)), [1])
    assert str(error.value) == (
        "tree_unflatten, leaves: expected 2 leaves for PyTreeDef((*, *)), got 1 leaf.\n"
        "  Fix: pass one value for each leaf of the structure."
    )
    with pytest.raises(ValueError, match="Too many leaves"):
        tree.unflatten(tree.structure((0, 0)), iter([1, 2, 3]))


def test_reductions():
    value = {"a": 1, "b": [2, 3]}
    assert tree.reduce(lambda x, y: x + y, value) == 6
    assert tree.reduce(lambda x, y: x - y, value, 0) == -6
    assert tree.reduce(lambda x, y: x + y, (), 5) == 5
    assert tree.reduce_associative(lambda x, y: (x, y), [1, 2, 3, 4]) == ((1, 2), (3, 4))
    assert tree.reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TypeError, match="needs an identity"):
        tree.reduce_associative(max, [])
    assert tree.all(value) and not tree.all([1, 0])


def test_transpose_turns_inside_out():
    rows = [{"a": 1, "b": (2,)}, {"a": 3, "b": (4,)}]
    outer, inner = tree.structure([0, 0]), tree.structure(rows[0])
    assert tree.transpose(outer, inner, rows) == {"a": [1, 3], "b": ([2, 4],)}
    assert tree.transpose(outer, None, rows) == tree.transpose(outer, inner, rows)
    with pytest.raises(tree_error()) as error:
        tree.transpose(outer, None, [{"a": 1}, {"b": 1}])
    assert str(error.value) == (
        "tree.transpose, inner, tree 2: expected a dict with keys ['a'], got a dict with keys ['b'].\n"
        "  Fix: add 'a' and remove 'b'."
    )
    with pytest.raises(ValueError, match="expected a structure"):
        tree.transpose(tree.structure([]), None, [])


def test_treedefs():
    leaf, pair = tree.structure(0), tree.structure((0, [0]))
    assert tree_util.treedef_tuple([leaf, tree.structure([0])]) == pair
    assert tree_util.treedef_children(pair) == [leaf, tree.structure([0])]
    assert [tree_util.treedef_is_leaf(t) for t in (leaf, pair, tree.structure(None))] == [True, False, False]
    assert tree_util.all_leaves([1, "a"]) and not tree_util.all_leaves([1, None])
    assert tree_util.all_leaves([(1, 2)], is_leaf=lambda x: isinstance(x, tuple))


def test_a_treedef_pickles_and_copies():
    treedef = tree.structure({"b": Point(0, (0,)), "a": None})
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef


def test_one_level():
    assert tree_util.flatten_one_level({"b": 1, "a": (2,)}) == (((2,), 1), ("a", "b"))
    pairs, kind = tree_util.flatten_one_level_with_keys(Point(1, 2))
    assert list(pairs) == [(GetAttrKey("x"), 1), (GetAttrKey("y"), 2)] and kind is Point
    with pytest.raises(tree_error()) as error:
        tree_util.flatten_one_level(3)
    assert str(error.value) == (
        "flatten_one_level: expected a node of a tree, got the leaf 3.\n  Fix: pass a container, or check all_leaves([x])."
    )


def test_keystr():
    path = (DictKey("a"), SequenceKey(1), GetAttrKey("w"), tree_util.FlattenedIndexKey(2), "own")
    assert keystr(path) == "['a'][1].w[<flat index 2>]own"
    assert keystr(path, simple=True, separator="/") == "a/1/w/2/own"
    assert keystr(()) == ""


def test_a_partial_binds_leaves():
    f = lambda *args, **kw: (args, kw)
    bound = Partial(f, 1, k=[2])
    assert tree.leaves(bound) == [1, 2]
    assert [keystr(path) for path, _ in tree.leaves_with_path(bound)] == [".args[0]", ".keywords['k'][0]"]
    assert tree.map(lambda x: 10 * x, bound)(5) == ((10, 5), {"k": [20]})
    assert tree.structure(bound) == tree.structure(Partial(f, 3, k=[4]))


@pytest.mark.parametrize("inner", [functools.partial, Partial])
def test_a_partial_of_a_partial_takes_it_whole(inner):
    f = lambda *args: args
    held = inner(f, 1)
    bound = Partial(held, 2)
    assert tree.leaves(bound) == [2]
    assert bound(3) == (1, 2, 3)
    assert tree.structure(bound) == tree.structure(Partial(held, 5))
    assert tree.map(lambda x: -x, bound)(3) == (1, -2, 3)


def test_our_registry_is_not_the_peers():
    jax = pytest.importorskip("jax")

    class Ours:
        pass

    tree_util.register_static(Ours)
    assert tree.leaves(Ours()) == []
    assert len(jax.tree.leaves(Ours())) == 1


@pytest.mark.parametrize("place", ["inside", "[inside]"])
def test_a_tree_that_contains_itself_is_refused(place):
    text = run_python(
        f"""
        import phalanx
        inside = {{"x": 1.0}}
        inside["self"] = {place}
        try:
            phalanx.jit(lambda x: x)(inside)
        except phalanx.errors.TreeError as error:
            print(error)
        """
    )
    assert text == (
        "flattening of a tree: expected nodes that do not contain themselves, got a cycle, or a tree that is deeper than "
        "Python's limit of recursion.\n"
        "  Fix: take the reference to the outer node out of the inner one, or register its class as a node without it.\n"
    )
