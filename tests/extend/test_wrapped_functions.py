"""Functions with transformations around them (`linear_util`) and functions of leaves (`api_util`)."""

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import api_util, tree_util
from phalanx.extend import linear_util as lu


@lu.transformation_with_aux
def flatten_result(tree, *leaves):
    out = yield tree_util.tree_unflatten(tree, leaves), {}
    yield tree_util.tree_flatten(out)


@lu.transformation
def scaled(factor, *args):
    yield factor * (yield args, {})


def test_generators_and_functions_transform_alike():
    f = lu.wrap_init(lambda x, y, bias=0: x + y + bias, {"bias": 1})
    doubled = lu.transformation2(lambda f, factor, *args: factor * f(*args))
    for transform in (scaled, doubled):
        assert transform(f, 2).call_wrapped(3, 4) == 16
    # The outermost transformation was added last.
    assert scaled(lu.transformation2(lambda f, *args: f(*args) + 100)(f), 10).call_wrapped(1, 1) == 1030


def test_auxiliary_output_is_read_after_one_call():
    leaves, tree = tree_util.tree_flatten(({"a": 1}, 2))
    f, out_tree = flatten_result(lu.wrap_init(lambda x, y: (x["a"], [y])), tree)
    with pytest.raises(lu.StoreException, match="expected a value, which a call of the function stores, got none"):
        out_tree()
    assert f.call_wrapped(*leaves) == [1, 2]
    assert out_tree() == tree_util.tree_structure((0, [0]))
    with pytest.raises(RuntimeError, match="expected an empty store, got one that holds"):
        f.call_wrapped(*leaves)


def test_wrapped_functions_compare_by_function_and_transformations():
    def f(x):
        return x

    one, other = scaled(lu.wrap_init(f), 2), scaled(lu.wrap_init(f), 2)
    assert one == other and hash(one) == hash(other) and one != scaled(lu.wrap_init(f), 3)
    assert one.__name__ == "f" and one.debug_info.func_name == "f"
    assert one.with_unknown_names().debug_info.arg_names is None


def test_cache_remembers_results_and_auxiliary_output():
    calls = []

    @lu.cache
    def run(fun, *args):
        calls.append(args)
        return fun.call_wrapped(*args)

    def f(x):
        return [x, x]

    tree = tree_util.tree_structure((0,))
    for _ in range(2):
        fun, out_tree = flatten_result(lu.wrap_init(f), tree)
        assert run(fun, 5) == [5, 5] and out_tree() == tree_util.tree_structure([0, 0])
    assert calls == [(5,)]
    run.evict_function(f)
    run(flatten_result(lu.wrap_init(f), tree)[0], 5)
    assert len(calls) == 2


def test_merge_linear_aux_reads_the_one_that_was_called():
    made = [flatten_result(lu.wrap_init(lambda x: x), tree_util.tree_structure((0,))) for _ in range(2)]
    (_, first), (second_fun, second) = made
    second_fun.call_wrapped(1)
    assert lu.merge_linear_aux(first, second) == (False, tree_util.tree_structure(0))
    with pytest.raises(lu.StoreException, match="expected one function that was called, got 0"):
        lu.merge_linear_aux(first, first)


def test_flatten_fun_traces_functions_of_trees():
    args, kwargs = ({"a": 1.0},), {"b": 2.0}
    leaves, tree = tree_util.tree_flatten((args, kwargs))
    fun, out_tree = api_util.flatten_fun(lu.wrap_init(lambda x, b: {"y": jnp.sin(x["a"]) * b}), tree)
    out = phalanx.jit(fun.call_wrapped)(*leaves)
    assert tree_util.tree_unflatten(out_tree(), out).keys() == {"y"}
    fun, out_tree = api_util.flatten_fun_nokwargs(lu.wrap_init(lambda x: (x, x)), tree_util.tree_structure((0,)))
    assert fun.call_wrapped(3) == [3, 3]


def test_argnums_partial_fixes_the_other_arguments():
    fun, dynamic = api_util.argnums_partial(lu.wrap_init(lambda x, y, z: (x, y, z)), (0, -1), (1, "two", 3))
    assert dynamic == [1, 3] and fun.call_wrapped(10, 30) == (10, "two", 30)
    again, _ = api_util.argnums_partial(lu.wrap_init(fun.f), (0, -1), (1, "two", 3))
    assert again.transforms == fun.transforms
    with pytest.raises(TypeError, match="argnums_partial, fixed argument: expected a hashable value"):
        api_util.argnums_partial(lu.wrap_init(max), 0, (1, [2]))
    fun, _ = api_util.argnums_partial(lu.wrap_init(lambda x, y: y), 0, (1, [2]), require_static_args_hashable=False)
    assert fun.call_wrapped(1) == [2]


def test_donations_by_position_and_name():
    tree = tree_util.tree_structure(((1, {"a": 2, "b": 3}), {"c": 4, "d": 5}))
    assert api_util.donation_vector((1,), ("d",), tree) == (False, True, True, False, True)
    assert api_util.donation_vector((0,), (), tree_util.tree_structure((1, 2)), kws=False) == (True, False)
    assert api_util.rebase_donate_argnums((1, 4), (0, 2)) == (0, 2)
    with pytest.raises(ValueError, match="expected arguments that are not static, got 1"):
        api_util.rebase_donate_argnums((1,), (1,))


def test_prefixes_are_repeated_over_structures():
    tree = tree_util.tree_structure((1, [2, 3]))
    assert api_util.flatten_axes("in_axes", tree, (0, None)) == [0, None, None]
    assert api_util.flatten_axes("in_axes", tree, [0, 1], tupled_args=True) == [0, 1, 1]
    whole = tree_util.tree_structure(((1, 2), {"c": 3}))
    assert api_util.flatten_axes("in_axes", whole, (None, 1), kws=True) == [None, 1, 0]
    with pytest.raises(ValueError, match="in_axes"):
        api_util.flatten_axes("in_axes", tree, (0, 1, 2))


def test_debug_info_names_the_function_and_its_leaves():
    def step(state, *rest, scale):
        return state

    info = api_util.debug_info("jit", step, ({"w": 1}, 2, 3), {"scale": 4}, static_argnums=(2,))
    assert info.arg_names == ("state['w']", "args[1]", "scale")
    assert (info.func_name, info.func_filename, info.traced_for) == ("step", __file__, "jit")
    assert info.func_lineno == step.__code__.co_firstlineno
    assert info.replace_func_name("other").func_name == "other"
    assert info.safe_result_paths(2) == ("", "")


def test_safe_map_refuses_other_lengths():
    assert api_util.safe_map(lambda x, y: x + y, [1, 2], (3, 4)) == [4, 6]
    with pytest.raises(ValueError, match="expected sequences of one length, got lengths 2, 1"):
        api_util.safe_map(max, [1, 2], [3])
