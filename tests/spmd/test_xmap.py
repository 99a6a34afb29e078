"""Named axes of arguments: what `xmap` means, where it runs, and its errors."""

import functools

import numpy as np
import pytest
from phalanx.experimental.maps import SerialLoop, serial_loop, xmap
from tests.error_texts import without_positions

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn, testing
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, AxisError, ShardingError, UnboundAxisError
from phalanx.scipy.special import logsumexp
from phalanx.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = np.arange(24, dtype=np.float32).reshape(4, 6)
RESOURCES = ({}, {"i": "x"}, {"i": ("x", "y")}, {"i": "x", "j": "y"}, {"i": SerialLoop(2)}, {"i": (SerialLoop(2), "x")})


@pytest.fixture
def mesh():
    with Mesh(np.array(phalanx.devices()[:4]).reshape(2, 2), ("x", "y")) as mesh:
        yield mesh


def test_named_dimensions_are_removed_and_restored(mesh):
    for resources in RESOURCES:
        f = xmap(
            lambda x, y: (x * 2, x + y, y),
            in_axes=(["i", "j", ...], {0: "j"}),
            out_axes=({1: "i", 0: "j"}, ["i", "j", ...], {0: "j", 2: "i"}),
            axis_resources=resources,
        )
        a, b, c = f(X, np.ones((6, 5), np.float32))
        np.testing.assert_allclose(a, 2 * X.T)
        np.testing.assert_allclose(b, X[:, :, None] + np.ones((4, 6, 5)))
        np.testing.assert_allclose(c, np.ones((6, 5, 4)))


def test_a_list_without_an_ellipsis_names_all_dimensions(mesh):
    f = xmap(lambda x, y: (x + y, x.sum()), in_axes=(["i", None], ["i"]), out_axes=[["i", None], ["i"]])
    rows, sums = f(X, jnp.arange(4.0))
    np.testing.assert_allclose(rows, X + np.arange(4.0)[:, None])
    np.testing.assert_allclose(sums, X.sum(1))
    for in_axes, out_axes, what in ((["i"], {0: "i"}, "in_axes[0]"), ({0: "i"}, ["i"], "out_axes")):
        with pytest.raises(AxisError) as e:
            xmap(lambda x: x, in_axes, out_axes)(X)
        assert without_positions(e.value) == (
            f"xmap of <lambda>, {what}: expected a name or None for each dimension of an array of rank 2, got ['i'].\n"
            "  Fix: end the list with ... if the array has further dimensions."
        )
    with pytest.raises(ArgumentTypeError, match=r"got \[Ellipsis, 'i'\]"):
        xmap(lambda x: x, [..., "i"], [...])(X)


def test_collectives_go_over_axes_by_name(mesh):
    for resources in ({}, {"i": "x"}, {"i": ("x", "y")}, {"i": "x", "j": "y"}, {"j": SerialLoop(3), "i": "x"}):
        f = xmap(
            lambda x: (lax.psum(x, "i"), x - lax.pmax(x, "i"), lax.axis_index("i")),
            in_axes=["i", "j", ...],
            out_axes=(["j", ...], ["i", "j", ...], ["i", ...]),
            axis_resources=resources,
        )
        total, gap, index = f(X)
        np.testing.assert_allclose(total, X.sum(0))
        np.testing.assert_allclose(gap, X - X.max(0))
        assert index.tolist() == [0, 1, 2, 3]


def test_reductions_take_named_axes():
    f = xmap(lambda x: jnp.sum(x, axis=(0, "i")), in_axes=["i", ...], out_axes={})
    assert f(X) == X.sum()
    g = xmap(lambda x: jnp.mean(x, "i"), in_axes=["i", ...], out_axes=[...])
    np.testing.assert_allclose(g(X), X.mean(0))


@pytest.mark.one_is_quick(group=lambda axis: "names")
@pytest.mark.parametrize("axis", [0, (0, 1)], ids=str)
def test_functions_over_named_axes_equal_those_over_dimensions(axis, mesh):
    named = {0: "i", (0, 1): ("i", 0)}[axis]
    reductions = (jnp.var, jnp.std, jnp.any, jnp.all, nn.logmeanexp)
    maps = (nn.softmax, nn.log_softmax, nn.standardize)
    where = X % 5 > 1
    for f, out in *((f, {}) for f in reductions), *((f, {0: "i"}) for f in maps):
        for options in ({"i": "x"}, {}):
            over_names = xmap(lambda x: f(x, axis=named), in_axes={0: "i"}, out_axes=out, axis_resources=options)  # noqa: B023
            masked = xmap(lambda x, w: f(x, axis=named, where=w), ({0: "i"},) * 2, out, axis_resources=options)  # noqa: B023
            np.testing.assert_allclose(over_names(X), f(X, axis=axis), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(masked(X, where), f(X, axis=axis, where=where), rtol=1e-5, atol=1e-6)
    for f in maps:
        value = lambda x: (xmap(lambda x: f(x, axis=named), {0: "i"}, {0: "i"})(x) ** 3).sum()  # noqa: B023
        expected = phalanx.grad(lambda x: (f(x, axis=axis) ** 3).sum())(X / 9)  # noqa: B023
        np.testing.assert_allclose(phalanx.grad(value)(X / 9), expected, rtol=1e-4, atol=1e-5)


A, B = (np.sin(np.arange(np.prod(s), dtype=np.float32)).reshape(s) for s in ((4, 2, 6), (6, 2, 3)))
SPLITS = ({"k": "x", "i": "y"}, {}, {"k": "x"}, {"i": ("x", "y")})


@pytest.mark.one_is_quick(group=lambda resources: "a split")
@pytest.mark.parametrize("resources", SPLITS, ids=str)
def test_pdot_sums_products_over_names_and_over_dimensions(mesh, resources):
    def products(body, in_axes, out_axes):
        f = xmap(body, in_axes, out_axes, axis_resources=resources)
        return f(A, B), phalanx.jit(f)(A, B), phalanx.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1))(A, B)

    def same(body, in_axes, out_axes, equation):
        eager, compiled, gradients = products(body, in_axes, out_axes)
        want = np.einsum(equation, A, B)
        np.testing.assert_allclose(eager, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(compiled, want, rtol=1e-4, atol=1e-5)
        wanted = phalanx.grad(lambda a, b: (jnp.einsum(equation, a, b) ** 2).sum(), (0, 1))(A, B)
        for got, held in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(got, held, rtol=1e-3, atol=1e-4)

    # All dimensions have names; one is summed by its position; two are summed by name, one of them nothing shares.
    same(lambda a, b: lax.pdot(a, b, "k"), (["i", "j", "k"], ["k", "m", "n"]), ["i", "j", "m", "n"], "ijk,kmn->ijmn")
    same(lambda a, b: lax.pdot(a, b, "k", ((0,), (0,))), ({0: "i", 2: "k"}, {0: "k"}), ["i", ...], "ijk,kjn->in")
    same(
        lambda a, b: lax.pdot(a, b, ("k", "i"), pos_batch=((0,), (0,))),
        ({0: "i", 2: "k"}, {0: "k", 2: "n"}),
        {1: "n"},
        "ijk,kjn->jn",
    )


def test_an_axis_is_split_over_the_mesh(mesh):
    f = xmap(lambda x: x + 1, in_axes=["i", ...], out_axes=["i", ...], axis_resources={"i": ("x", "y")})
    y = f(np.zeros((8, 3), np.float32))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P(("x", "y"))), 2)
    assert {s.data.shape for s in y.addressable_shards} == {(2, 3)}


def test_axis_sizes_and_results_that_do_not_vary_are_supported():
    f = xmap(lambda x: (x, lax.axis_index("n")), in_axes={}, out_axes=(["n", ...], ["n", ...]), axis_sizes={"n": 3})
    x, index = f(jnp.arange(2.0))
    assert x.tolist() == [[0, 1]] * 3
    assert index.tolist() == [0, 1, 2]


def test_xmap_composes_with_jit_and_grad(mesh):
    f = xmap(lambda x: jnp.sin(x) - lax.pmean(x, "i"), ["i", ...], ["i", ...], axis_resources={"i": "x"})
    inner = xmap(phalanx.jit(lambda x: x - lax.pmean(x, "i")), ["i", ...], ["i", ...], axis_resources={"i": "x"})
    np.testing.assert_allclose(phalanx.jit(f)(X), np.sin(X) - X.mean(0), atol=1e-5)
    np.testing.assert_allclose(inner(X), X - X.mean(0), atol=1e-5)
    g = phalanx.grad(lambda x: (f(x) ** 2).sum())(X)
    want = phalanx.grad(lambda x: ((jnp.sin(x) - x.mean(0)) ** 2).sum())(X)
    np.testing.assert_allclose(g, want, atol=1e-4)


def named(**options):
    return xmap(lambda x: x, ["i", ...], ["i", ...], **options)


def test_an_unknown_axis_of_a_result_is_an_error():
    with pytest.raises(UnboundAxisError) as e:
        xmap(lambda x: x, ["i", ...], ["i", "k", ...])(X)
    assert without_positions(e.value) == (
        "xmap of <lambda>, out_axes: expected an axis of in_axes or axis_sizes ('i'), got 'k'.\n"
        "  Fix: correct the name, or pass its size in axis_sizes={'k': ...}."
    )


def test_a_result_that_varies_over_an_axis_missing_in_out_axes_is_an_error():
    with pytest.raises(ArgumentError) as e:
        xmap(lambda x: (x, x), ["i", ...], (["i", ...], {}))(X)
    assert without_positions(e.value) == (
        "xmap of <lambda>, out_axes[1]: expected a dimension for axis 'i', over which this result varies, got none.\n"
        "  Fix: add 'i' to out_axes, or reduce over it with lax.psum or lax.pmean."
    )


def test_a_mesh_axis_used_twice_is_an_error_that_names_both_uses():
    def message(in_axes, out_axes, resources):
        with pytest.raises(ShardingError) as e:
            xmap(lambda x: x["a"], in_axes, out_axes, axis_resources=resources)({"a": X})
        return without_positions(e.value)

    assert message(["i", "j"], {}, {"i": "x", "j": ("y", "x")}) == (
        "xmap of <lambda>, in_axes[0]['a']: expected an array of which each mesh axis splits one named axis, "
        "got 'x' for 'i' and for 'j'.\n"
        "  Fix: assign another mesh axis to 'j' in axis_resources, or none."
    )
    assert message(["i", ...], {}, {"i": ("x", "x")}).startswith("xmap of <lambda>, in_axes[0]['a']: expected an array")


def test_a_mesh_axis_may_split_several_axes_of_different_arrays(mesh):
    """As the hidden and the last dimension of a network, of which no array has both."""
    f = lambda x, y: (lax.psum(jnp.sin(x), "i"), jnp.cos(y) - lax.pmean(y, "j"))
    resources = {"i": "x", "j": "x"}
    mapped = xmap(f, (["i", ...], ["j", ...]), ([...], ["j", ...]), axis_resources=resources)
    total, rest = mapped(X, X)
    np.testing.assert_allclose(total, np.sin(X).sum(0), rtol=1e-5)
    np.testing.assert_allclose(rest, np.cos(X) - X.mean(0), rtol=1e-5)
    assert rest.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    with pytest.raises(ShardingError, match=r"xmap of add, out_axes: .* got 'x' for 'i' and for 'j'"):
        xmap(jnp.add, (["i"], ["j"]), ["i", "j"], axis_resources=resources)(X[0], X[:, 0])


def test_an_empty_list_maps_a_scalar():
    assert xmap(lambda x, y: jnp.sum(x, axis="i") + y, in_axes=(["i"], []), out_axes=[])(X[0], 2.0) == 17


def test_a_serial_loop_has_a_name_inside_a_block(mesh):
    sizes = []
    slow = lambda x: sizes.append(x.aval.shape) or jnp.sin(x).sum()
    with serial_loop("slowly", 2):
        f = xmap(slow, ["i", ...], ["i"], axis_resources={"i": ("slowly", "x")})
        np.testing.assert_allclose(f(X), np.sin(X).sum(1), rtol=1e-5)
        assert "scan" in str(phalanx.make_jaxpr(f)(X))
    with pytest.raises(ShardingError, match="an axis of the current mesh \\('x', 'y'\\), got 'slowly'"):
        xmap(slow, ["i", ...], ["i"], axis_resources={"i": "slowly"})(X)
    with pytest.raises(
        ArgumentError, match="serial_loop 'slowly': expected a serial loop with at least one chunk, got 0"
    ):
        serial_loop("slowly", 0).__enter__()


def test_a_mesh_axis_used_around_and_inside_is_an_error_that_names_both_uses(mesh):
    inner = xmap(lambda x: x, ["j"], ["j"], axis_resources={"j": "x"})
    with pytest.raises(ShardingError, match="got 'x' for the mapped dimension and in P\\('x',\\)"):
        xmap(inner, ["i", ...], ["i", ...], axis_resources={"i": "x"})(X)


def test_other_mismatches_are_errors(mesh):
    with pytest.raises(ShardingError, match="an axis of the current mesh \\('x', 'y'\\), got 'z'"):
        named(axis_resources={"i": "z"})(X)
    with pytest.raises(ShardingError, match="axis 'i': expected a size divisible by 8, .*got 6"):
        named(axis_resources={"i": ("x", "y", SerialLoop(2))})(X.T)
    with pytest.raises(ArgumentError, match="one size: 4 in argument\\[0\\], got 6 in argument\\[1\\]"):
        xmap(lambda x, y: x, (["i", ...], [None, "i", ...]), ["i", ...])(X, X)
    with pytest.raises(AxisError) as e:
        xmap(lambda x: x, ["i"], ["i", ...])(X)
    assert without_positions(e.value) == (
        "xmap of <lambda>, in_axes[0]: expected a name or None for each dimension of an array of rank 2, got ['i'].\n"
        "  Fix: end the list with ... if the array has further dimensions."
    )
    with pytest.raises(AxisError, match="dimensions of an array of rank 2, got 2 for 'i'"):
        xmap(lambda x: x, {2: "i"}, {0: "i"})(X)
    with pytest.raises(ArgumentError, match="'i' for dimensions 0 and 1"):
        xmap(lambda x: x, ["i", "i", ...], {0: "i"})(X)
    with pytest.raises(UnboundAxisError, match="axis_resources: .*got 'k'"):
        named(axis_resources={"k": "x"})(X)
    with pytest.raises(
        ArgumentTypeError, match="in_axes.*expected a dict from dimensions to names, or a list of names.* got 'i'"
    ):
        xmap(lambda x: x, "i", {})(X)
    with pytest.raises(UnboundAxisError) as e:
        xmap(lambda x: lax.psum(x, "i"), ["i", ...], {}, axis_resources={"i": SerialLoop(2)})(X)
    assert "Axis 'i' is a serial loop" in e.value.__notes__[0]


def test_a_network_with_named_axes_equals_one_with_positional_dimensions():
    """Reductions, sums of exponentials and unit vectors over named axes, wherever these run."""
    w1, w2, images = (jnp.sin(jnp.arange(n * k * 1.0)).reshape(n, k) for n, k in ((16, 8), (8, 4), (8, 16)))
    labels = jnp.arange(8) % 4

    def loss(w1, w2):
        logits = nn.relu(images @ w1) @ w2
        return -(nn.one_hot(labels, 4) * (logits - logsumexp(logits, axis=1, keepdims=True))).sum(1).mean()

    def named(log_total, w1, w2, image, label):
        logits = lax.pdot(nn.relu(lax.pdot(image, w1, "inputs")), w2, "hidden")
        scores = logits - log_total(logits, "classes")
        return -lax.pmean((nn.one_hot(label, lax.psum(1, "classes"), axis="classes") * scores).sum("classes"), "batch")

    axes = [["inputs", "hidden"], ["hidden", "classes"], ["batch", "inputs"], ["batch", ...]]
    value, grads = phalanx.value_and_grad(loss, (0, 1))(w1, w2)
    mesh_axes = {"batch": "x", "hidden": "y"}, {"classes": "y", "hidden": "x"}
    for log_total, resources in (logsumexp, {}), *((nn.logsumexp, r) for r in mesh_axes):
        f = xmap(functools.partial(named, log_total), axes, [...], axis_resources=resources)
        with phalanx.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2):
            found, found_grads = phalanx.value_and_grad(f, (0, 1))(w1, w2, images, labels)
        np.testing.assert_allclose(found, value, rtol=1e-5)
        for a, b in zip(found_grads, grads, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_one_hot_over_an_axis_of_another_size_is_an_error():
    with pytest.raises(ArgumentError) as error:
        phalanx.vmap(lambda c: nn.one_hot(1, 5, axis="i") + c, axis_name="i")(jnp.zeros(4))
    assert without_positions(error.value) == (
        "nn.one_hot, argument num_classes: expected 4, the size of axis 'i', got 5.\n"
        "  Fix: name an axis with a member for each class."
    )


def test_a_serial_loop_keeps_arrays_sharded_over_the_mesh(mesh):
    """Each device goes through its own instances, part by part: nothing is gathered, and nothing sent."""
    f = xmap(lambda x: 2 * x, ["i", ...], ["i", ...], axis_resources={"i": ("x", SerialLoop(3))})
    x = phalanx.device_put(jnp.arange(24.0).reshape(12, 2), NamedSharding(mesh, P("x")))
    y = f(x)
    assert y.sharding.spec == P("x")
    np.testing.assert_array_equal(y, 2 * x)
    assert not testing.collectives(phalanx.jit(f), x)


@pytest.mark.parametrize("style", [phalanx.pmap, phalanx.soft_pmap])
def test_rows_inside_an_axis_over_the_mesh_share_its_devices(mesh, style):
    """The mesh has all devices already, so that rows inside run one beside the other on those of their instance."""
    row = lambda x: jnp.sin(x) * lax.psum(x, "j") + lax.axis_index("i") - lax.pmean(x, ("i", "j"))
    place = {"in_axes": {0: "i"}, "out_axes": {0: "i"}, "axis_resources": {"i": ("x", "y")}}
    f = xmap(style(row, axis_name="j"), **place)
    want = phalanx.vmap(phalanx.vmap(row, axis_name="j"), axis_name="i")
    x = X.reshape(4, 2, 3)
    gradient = lambda g: phalanx.grad(lambda x: (g(x) ** 2).sum())(x)
    for g in (f, phalanx.jit(f)):
        np.testing.assert_allclose(g(x), want(x), rtol=1e-5)
        np.testing.assert_allclose(gradient(g), gradient(want), rtol=1e-4)
    assert f(x).sharding.spec == P(("x", "y"))
    with pytest.raises(ShardingError) as error:
        style(xmap(row, in_axes={0: "j"}, out_axes={0: "j"}, axis_resources={"j": "z"}), axis_name="i")(x)
    assert without_positions(error.value).startswith(
        "xmap of <lambda>, axis_resources['j']: expected an axis of the current mesh ("
    )
    if style is phalanx.pmap:
        assert without_positions(error.value).endswith(
            "Fix: leave axis_resources out inside pmap and shard_map, or replace the surrounding pmap by xmap."
        )
