"""Exported programs: written, read and called, they do what the function does, and say clearly what they cannot."""

import os
import re
import subprocess
import sys
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nnx, optim, random
from phalanx.export import DisabledSafetyCheck, deserialize, tree_serialization

F32 = np.dtype("float32")
X = np.arange(12, dtype="f4").reshape(3, 4) / 10
Y = np.linspace(-1, 1, 8, dtype="f4").reshape(4, 2)


def shape(*dims, dtype="float32", sharding=None):
    return phalanx.ShapeDtypeStruct(dims, dtype, sharding=sharding)


def network(params, x):
    """A small function with trees on both sides."""
    h = jnp.tanh(x @ params["w"])
    return {"out": h.sum(), "hidden": h}


PARAMS = {"w": Y}
SPECS = ({"w": shape(4, 2)}, shape(3, 4))


def exported(vjp_order=1, **options):
    return deserialize(export.export(phalanx.jit(network), **options)(*SPECS).serialize(vjp_order=vjp_order))


def raises(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def test_an_artifact_records_its_signature():
    found = exported()
    assert found.fun_name == "network" and found.platforms == ("cpu",) and found.nr_devices == 1
    assert [str(a) for a in found.in_avals] == ["float32[4,2]", "float32[3,4]"]
    assert [str(a) for a in found.out_avals] == ["float32[3,2]", "float32[]"]
    assert (
        str(found.in_tree) == "PyTreeDef((({'w': *}, *), {}))"
        and str(found.out_tree) == "PyTreeDef({'hidden': *, 'out': *})"
    )
    assert found.ordered_effects == found.unordered_effects == () and found.has_vjp()
    assert found.module_kept_var_idx == (0, 1) and found.parameters == ("params", "x")
    assert "stablehlo.tanh" in found.mlir_module()
    assert found.calling_convention_version == export.maximum_supported_calling_convention_version


@pytest.mark.parametrize("how", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_a_call_equals_the_function(how):
    got, want = how(exported().call)(PARAMS, X), network(PARAMS, X)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6)


def test_gradients_of_two_orders_go_through_the_artifact():
    found = exported(vjp_order=2)

    def slope(f):
        return lambda p, x: phalanx.grad(lambda p: f(p, x)["out"])(p)["w"].sum()

    for f in (found.call, phalanx.jit(found.call)):
        np.testing.assert_allclose(slope(f)(PARAMS, X), slope(network)(PARAMS, X), rtol=1e-5)
        got, want = phalanx.grad(slope(f))(PARAMS, X)["w"], phalanx.grad(slope(network))(PARAMS, X)["w"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_the_derivative_is_an_exported_function_of_arguments_and_cotangents():
    found = export.export(phalanx.jit(lambda x, n: (x * n, n + 1)))(shape(3), shape(dtype="int32")).vjp()
    assert [str(a) for a in found.in_avals] == ["float32[3]", "int32[]", "float32[3]", "bool[]"]
    assert [str(a) for a in found.out_avals] == ["float32[3]", "bool[]"]
    x_bar, n_bar = found.call(X[0, :3], np.int32(2), np.ones(3, F32), np.zeros((), bool))
    np.testing.assert_array_equal(x_bar, [2, 2, 2])
    assert not n_bar


def test_vjp_of_an_artifact_without_a_derivative_is_an_error():
    found = exported(vjp_order=0)
    assert not found.has_vjp()
    with raises(
        ValueError,
        "vjp of exported network: expected an artifact with its derivative, got one that was serialized without.\n"
        "  Fix: export it again and call serialize(vjp_order=1), or a larger order for higher derivatives.",
    ):
        phalanx.grad(lambda x: found.call(PARAMS, x)["out"])(X)


def test_vmap_calls_the_program_for_each_element():
    xs = np.stack([X, 2 * X, -X])
    got = phalanx.vmap(exported().call, in_axes=(None, 0))(PARAMS, xs)
    np.testing.assert_allclose(got["out"], [network(PARAMS, x)["out"] for x in xs], rtol=1e-5)


def test_an_exported_function_can_call_another():
    inner = exported()
    outer = export.export(phalanx.jit(lambda x: inner.call(PARAMS, x)["out"] + inner.call(PARAMS, 2 * x)["out"]))(
        shape(3, 4)
    )
    got = deserialize(outer.serialize(1))
    want = network(PARAMS, X)["out"] + network(PARAMS, 2 * X)["out"]
    np.testing.assert_allclose(got.call(X), want, rtol=1e-5)
    assert phalanx.grad(got.call)(X).shape == (3, 4)


def test_constants_keys_and_unused_arguments():
    table = jnp.arange(1000.0)

    @phalanx.jit
    def draw(key, unused, i, *, scale):
        return table[i] * scale + random.normal(key, (2,))

    args = random.key(3), np.ones(7, F32), np.int32(5)
    found = deserialize(export.export(draw)(*args, scale=2.0).serialize())
    assert found.module_kept_var_idx == (0, 2, 3)
    np.testing.assert_allclose(found.call(*args, scale=2.0), draw(*args, scale=2.0), rtol=1e-6)


class Pair(NamedTuple):
    first: object
    second: object


class Box:
    def __init__(self, value, label):
        self.value, self.label = value, label


phalanx.tree_util.register_pytree_node(Box, lambda b: ((b.value,), b.label), lambda label, v: Box(v[0], label))
export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
export.register_pytree_node_serialization(
    Box,
    serialized_name="tests.Box",
    serialize_auxdata=str.encode,
    deserialize_auxdata=lambda data: data.decode(),
    from_children=lambda label, children: Box(children[0], label),
)


def test_containers_of_every_kind_round_trip():
    tree = Pair(OrderedDict(b=X, a=None), (Box(X, "label"), [X, {"k": X, "empty": ()}, {3: X}]))
    found = deserialize(export.export(phalanx.jit(lambda t: t))(tree).serialize())
    got = found.call(tree)
    assert phalanx.tree.structure(got) == phalanx.tree.structure(tree)
    assert got.second[0].label == "label" and list(got.first) == ["b", "a"]


@pytest.mark.parametrize("name", ["eig", "eigh", "qr", "svd", "slogdet"])
def test_the_named_tuples_of_linalg_round_trip(name):
    fun = phalanx.jit(getattr(jnp.linalg, name))
    a = np.eye(3, dtype="f4") + np.ones((3, 3), "f4")
    got = deserialize(export.export(fun)(a).serialize()).call(a)
    assert type(got) is type(fun(a)) and hasattr(got, "_fields")
    for x, y in zip(got, fun(a), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_named_tuples_of_set_routines_round_trip():
    fun = phalanx.jit(lambda x: jnp.unique_counts(x, size=4))
    got = deserialize(export.export(fun)(X[0]).serialize()).call(X[0])
    assert type(got) is type(fun(X[0])) and [v.tolist() for v in got] == [v.tolist() for v in fun(X[0])]


class Unregistered(NamedTuple):
    x: object


def test_serializing_an_unregistered_container_is_an_error():
    found = export.export(phalanx.jit(lambda t: t.x))(Unregistered(X))
    with raises(
        ValueError,
        "serialize, structure of the arguments or results: expected tuples, lists, dicts and registered containers, "
        f"got a {__name__}.Unregistered.\n"
        "  Fix: call phalanx.export.register_namedtuple_serialization(Unregistered, "
        "serialized_name='tests.Unregistered') here, and where the artifact is read.",
    ):
        found.serialize()


def test_the_fix_for_an_unregistered_container_is_the_call_for_its_kind():
    class Plain:
        x = X

    phalanx.tree.register_pytree_node(Plain, lambda plain: ((plain.x,), None), lambda _, xs: Plain())
    state = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    for container, fix in (
        (Plain(), "register_pytree_node_serialization(Plain, serialized_name='tests.Plain', serialize_auxdata="),
        (state, "pass the values as dicts, phalanx.nnx.to_pure_dict(phalanx.nnx.state(module))"),
    ):
        with pytest.raises(ValueError, match=re.escape(fix)):
            export.export(phalanx.jit(lambda t: phalanx.tree.leaves(t)))(container).serialize()
    export.export(phalanx.jit(lambda t: phalanx.tree.leaves(t)))(nnx.to_pure_dict(state)).serialize()


@pytest.mark.parametrize(
    "tx",
    [
        optim.adamw(1e-2),
        optim.sgd(1e-2, momentum=0.9),
        optim.MultiSteps(optim.adafactor(1e-2), 2).gradient_transformation(),
        optim.chain(optim.clip_by_global_norm(1.0), optim.masked(optim.lion(1e-3), {"w": True, "b": False})),
    ],
)
def test_states_of_optimizers_round_trip_also_where_optim_is_not_imported(tx, monkeypatch):
    params = {"w": X, "b": Y}
    update = phalanx.jit(lambda grads, state, params: tx.update(grads, state, params))
    args = params, tx.init(params), params
    blob = export.export(update)(*args).serialize()
    for table in ("_by_type", "_by_name"):
        known = getattr(tree_serialization, table)
        others = {key: kind for key, kind in known.items() if not kind.name.startswith("phalanx.optim.")}
        monkeypatch.setattr(tree_serialization, table, others)
    got, wanted = deserialize(blob).call(*args), update(*args)
    assert phalanx.tree.structure(got) == phalanx.tree.structure(wanted)
    for x, y in zip(*map(phalanx.tree.leaves, (got, wanted)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


MISUSES = {
    "count": (
        lambda f: f.call(PARAMS),
        "call of exported network: expected 2 positional arguments (params, x), got 1.\n"
        "  Fix: pass the arguments that it was exported for; defaults and static ones are not part of an artifact.",
    ),
    "tree": (
        lambda f: f.call({"v": Y}, X),
        "call of exported network, argument params: expected a dict with keys ['w'], "
        "got a dict with keys ['v'].\n  Fix: add 'w' and remove 'v'.",
    ),
    "keyword": (
        lambda f: f.call(PARAMS, X, train=True),
        "call of exported network: expected no keyword arguments, got train.\n"
        "  Fix: pass the arguments that it was exported for; defaults and static ones are not part of an artifact.",
    ),
    "no array": (
        lambda f: f.call({"w": "weights"}, X),
        "call of exported network, argument params['w']: expected an array or a scalar, got 'weights' of type str.\n"
        "  Fix: convert it with phalanx.numpy.asarray.",
    ),
    "a list for an array": (
        lambda f: f.call(PARAMS, X.tolist()),
        "call of exported network, argument x: expected a leaf, got a list of length 3.\n"
        "  Fix: replace a list of length 3 by one leaf.",
    ),
    "traced": (
        lambda f: phalanx.jit(f.call)(PARAMS, X[:2]),
        "call of exported network, argument x: expected an array of type f32[3,4], got f32[2,4].\n"
        "  Fix: pass an array of that shape, or export the function for this shape.",
    ),
    "rank": (
        lambda f: f.call(PARAMS, X[0]),
        "call of exported network, argument x: expected an array of type f32[3,4], got f32[4].\n"
        "  Fix: pass an array of that shape, or export the function for this shape.",
    ),
    "constant": (
        lambda f: f.call({"w": Y[:3]}, X),
        "call of exported network, argument params['w']: expected an array of type f32[4,2], got f32[3,2].\n"
        "  Fix: pass an array of that shape, or export the function for this shape.",
    ),
    "dtype": (
        lambda f: f.call(PARAMS, X.astype("i4")),
        "call of exported network, argument x: expected an array of type f32[3,4], got i32[3,4].\n"
        "  Fix: convert it with astype('float32').",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_wrong_argument_is_named_in_the_error(name):
    misuse, text = MISUSES[name]
    with pytest.raises(phalanx.errors.PhalanxError) as error:
        misuse(exported())
    assert str(error.value) == text


NAMED_MISUSES = {
    "missing": (
        {"scale": 2.0},
        "call of exported shifted: expected the keyword arguments opts, scale, got scale.\n"
        "  Fix: pass the arguments that it was exported for; defaults and static ones are not part of an artifact.",
    ),
    "tree": (
        {"scale": 2.0, "opts": {"c": X}},
        "call of exported shifted, argument opts: expected a dict with keys ['b'], got a dict with keys ['c'].\n"
        "  Fix: add 'b' and remove 'c'.",
    ),
    "shape": (
        {"scale": 2.0, "opts": {"b": X[0]}},
        "call of exported shifted, argument opts['b']: expected an array of type f32[3,4], got f32[4].\n"
        "  Fix: pass an array of that shape, or export the function for this shape.",
    ),
    "weak type": (
        {"scale": 2, "opts": {"b": X}},
        "call of exported shifted, argument scale: expected an array of type ~f32[], got ~i32[].\n"
        "  Fix: convert it with astype('float32').",
    ),
}


@pytest.mark.parametrize("name", NAMED_MISUSES)
def test_a_wrong_keyword_argument_is_named_in_the_error(name):
    def shifted(x, *, scale, opts):
        return x * scale + opts["b"]

    found = deserialize(export.export(phalanx.jit(shifted))(X, scale=1.0, opts={"b": X}).serialize())
    np.testing.assert_allclose(found.call(X, scale=2.0, opts={"b": X}), 3 * X)
    named, text = NAMED_MISUSES[name]
    with pytest.raises(phalanx.errors.PhalanxError) as error:
        found.call(X, **named)
    assert str(error.value) == text


def zeros(*dims):
    return np.zeros(dims, "f4")


SIZES = "pass arguments whose sizes fit each other and the constraints of the export."
SYMBOLIC_MISUSES = {
    "least size": (
        zeros(1, 4),
        zeros(4, 2),
        "argument x: expected sizes with b >= 2, got b = 1 from dimension 0 of x",
        SIZES,
    ),
    "greatest size": (
        zeros(2, 66),
        zeros(66, 2),
        "argument x: expected sizes with n <= 64, got n = 66 from dimension 1 of x",
        SIZES,
    ),
    "divisor": (zeros(2, 3), zeros(3, 2), "argument x: expected sizes with mod(n, 2) == 0, got n = 3", SIZES),
    "two sizes": (
        zeros(2, 4),
        zeros(6, 2),
        "argument y['k']: expected a size of n for dimension 0 of y['k'], with n = 4, got 6",
        SIZES,
    ),
    "constant": (
        zeros(2, 4),
        zeros(4, 3),
        "argument y['k']: expected an array of type f32[n,2], got f32[4,3]",
        "pass an array of that shape, or export the function for this shape.",
    ),
    "rank": (
        zeros(2, 4),
        zeros(4),
        "argument y['k']: expected an array of type f32[n,2], got f32[4]",
        "pass an array of that shape, or export the function for this shape.",
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC_MISUSES)
def test_a_wrong_symbolic_size_names_the_argument_and_the_constraint(name):
    specs = export.symbolic_args_specs((X, {"k": Y}), ("b, n", {"k": "n, _"}), ["b >= 2", "n <= 64", "mod(n, 2) == 0"])
    found = deserialize(export.export(phalanx.jit(lambda x, y: x @ y["k"]))(*specs).serialize())
    x, k, text, fix = SYMBOLIC_MISUSES[name]
    for call in (found.call, phalanx.jit(found.call)):
        with raises(ValueError, f"call of exported <lambda>, {text}.\n  Fix: {fix}"):
            call(x, {"k": k})


def test_passing_raw_data_for_a_key_explains_how_to_make_keys():
    found = export.export(phalanx.jit(lambda key: random.normal(key, (2,))))(random.key(0))
    with raises(
        TypeError,
        "call of exported <lambda>, argument key: expected an array of type key<fry>[], got u32[2].\n"
        "  Fix: make keys with random.key(seed, impl=...) or random.wrap_key_data.",
    ):
        found.call(np.zeros(2, "u4"))


def test_cotangent_arguments_of_a_derivative_are_named_after_results():
    derivative = exported(vjp_order=2).vjp()
    bars = ("cotangent of result['hidden']", "cotangent of result['out']")
    assert derivative.parameters == ("params['w']", "x", *bars)
    assert derivative.vjp().parameters == (*derivative.parameters, "cotangent of result[0]", "cotangent of result[1]")
    with raises(
        ValueError,
        "call of exported network_vjp, argument cotangent of result['out']: expected an array of type f32[], "
        "got f32[1].\n  Fix: pass an array of that shape, or export the function for this shape.",
    ):
        derivative.call(Y, X, np.zeros((3, 2), F32), np.zeros(1, F32))


MISUSES_OF_EXPORT = {
    "a name for names": (
        lambda: exported(platforms="cpu"),
        "export, argument platforms: expected a list of names, got the name 'cpu'.\n  Fix: pass platforms=['cpu'].",
    ),
    "a text for a check": (
        lambda: exported(disabled_checks=["platform"]),
        "export, argument disabled_checks: expected a list of checks, got ['platform'].\n"
        "  Fix: pass disabled_checks=[DisabledSafetyCheck.custom_call(name)], or [DisabledSafetyCheck.platform()].",
    ),
    "a function of a traced value": (
        lambda: phalanx.grad(lambda y: export.export(phalanx.jit(lambda x: x * y))(X).call(X).sum())(2.0),
        "export of <lambda>: expected a function that closes over no traced value, got one that closes over a value of an "
        "enclosing transformation.\n  Fix: pass that value as an argument.",
    ),
    "no order": (
        lambda: exported(vjp_order=-1),
        "serialize of exported network, argument vjp_order: expected an int, 0 or more, got -1.\n"
        "  Fix: pass vjp_order=1 to include the gradient.",
    ),
    "too high an order": (
        lambda: exported(vjp_order=1).serialize(vjp_order=2),
        "serialize of exported network, argument vjp_order: expected at most 1, the number of derivatives in the file it "
        "was read from, got 2.\n  Fix: export the function again from its source: an artifact cannot be differentiated further.",
    ),
    "text for bytes": (
        lambda: deserialize("artifact"),
        "deserialize, argument blob: expected bytes, got a str.\n"
        "  Fix: pass the result of Exported.serialize(), or pathlib.Path(path).read_bytes().",
    ),
}


@pytest.mark.parametrize("name", MISUSES_OF_EXPORT)
def test_wrong_arguments_of_export_and_serialize_are_errors(name):
    misuse, text = MISUSES_OF_EXPORT[name]
    with pytest.raises(phalanx.errors.PhalanxError) as error:
        misuse()
    assert str(error.value) == text


def test_several_platforms_in_one_artifact():
    @phalanx.jit
    def solve(a, b):
        return lax.linalg.triangular_solve(a @ a.T + jnp.eye(3), b, left_side=True, lower=True)

    a = np.arange(9, dtype="f4").reshape(3, 3)
    for platforms in (["cpu", "cuda"], ["cuda", "cpu"]):
        found = deserialize(export.export(solve, platforms=platforms)(a, a).serialize())
        assert found.platforms == tuple(platforms)
        assert "stablehlo.case" in found.mlir_module() and "lapack_strsm_ffi" in found.mlir_module()
        np.testing.assert_allclose(found.call(a, a), solve(a, a), rtol=1e-5)
        np.testing.assert_allclose(phalanx.vmap(found.call)(a[None], a[None])[0], solve(a, a), rtol=1e-5)


def test_calling_on_another_platform_is_an_error_unless_the_check_is_disabled():
    only = exported(platforms=["tpu"])
    with raises(
        ValueError,
        "call of exported network: expected one of the platforms that it was exported for: tpu, got cpu.\n"
        "  Fix: place the arguments on one of these, or export it with platforms=['cpu', ...].",
    ):
        only.call(PARAMS, X)
    free = exported(platforms=["tpu"], disabled_checks=[DisabledSafetyCheck.platform()])
    np.testing.assert_allclose(free.call(PARAMS, X)["out"], network(PARAMS, X)["out"], rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"^export, argument platforms: expected some of cpu, cuda, rocm, tpu, each once"
    ):
        exported(platforms=["cpu", "abacus"])


def test_exporting_unstable_kernels_is_an_error_that_names_them():
    noisy = phalanx.jit(lambda x: phalanx.pure_callback(np.sin, shape(3), x))
    with pytest.raises(export.CustomCallError) as error:
        export.export(noisy)(shape(3))
    message = str(error.value)
    target = re.search(r"got calls of (\w+)", message)[1]
    assert message.startswith("export of <lambda>: expected only custom calls with a stability guarantee")
    line = noisy.__wrapped__.__code__.co_firstlineno
    assert f", got calls of {target} at test_exported.py:{line}.\n" in message
    allowed = export.export(noisy, disabled_checks=[DisabledSafetyCheck.custom_call(target)])(shape(3))
    assert allowed.disabled_safety_checks == (DisabledSafetyCheck.custom_call(target),)
    assert all(reason for reason in export.STABLE_TARGETS.values())
    for again in (allowed, deserialize(allowed.serialize())):  # The callback is a place in a list of the first process.
        with raises(
            ValueError,
            f"call of exported <lambda>: expected only custom calls that every process can run, got calls of "
            f"{target}.\n  Fix: export it again without them: pass what a host callback computes as an argument.",
        ):
            again.call(X[0, :3])
    with pytest.raises(export.ArtifactError, match=f"^verify of the program: expected .* got calls of {target}"):
        export.verify(allowed.serialize())


def test_a_call_refuses_unstable_kernels_whatever_the_header_declares():
    found = export.export(phalanx.jit(jnp.linalg.cholesky))(np.eye(2, dtype="f4"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(export.STABLE_TARGETS, "lapack_spotrf_ffi")
        with pytest.raises(export.CustomCallError, match="got calls of lapack_spotrf_ffi"):
            found.call(np.eye(2, dtype="f4"))


def test_exporting_a_function_without_jit_is_an_error():
    with pytest.raises(
        TypeError, match=r"^export, argument fun_jit: expected a function made by jit, got <function network"
    ):
        export.export(network)


STRANGER = """
import pathlib, sys, numpy as np, phalanx
from phalanx import export

found = export.verify(pathlib.Path(sys.argv[1]).read_bytes())
for batch, length in ((1, 1), (2, 7)):
    x = np.arange(batch * length * 4, dtype="f4").reshape(batch, length, 4) / 50
    w = np.linspace(-1, 1, 8, dtype="f4").reshape(4, 2)
    loss = lambda p, x: found.call(p, x)["loss"]
    np.testing.assert_allclose(loss({"w": w}, x), np.tanh(x @ w).mean(), rtol=1e-5)
    slope = phalanx.jit(phalanx.grad(loss))({"w": w}, x)["w"]
    want = np.einsum("bti,btj->ij", x, 1 - np.tanh(x @ w) ** 2) / (batch * length * 2)
    np.testing.assert_allclose(slope, want, rtol=1e-4, atol=1e-6)
print(found.fun_name, *found.in_avals, "jax" in sys.modules)
"""


def test_another_process_calls_the_model_and_its_gradient_without_the_source(tmp_path):
    def model(params, x):
        return {"loss": jnp.tanh(x @ params["w"]).mean()}

    specs = export.symbolic_args_specs(({"w": Y}, np.ones((2, 3, 4), "f4")), (None, "batch, time, _"))
    path = tmp_path / "model.phalanx"
    path.write_bytes(export.export(phalanx.jit(model), platforms=["cpu", "cuda", "tpu"])(*specs).serialize(vjp_order=1))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", STRANGER, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "model float32[4,2] float32[batch,time,4] False\n", "")
