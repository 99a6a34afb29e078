"""`nnx.bridge.Module`: modules whose methods create variables and submodules, as in Linen."""

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError, ArgumentTypeError
from phalanx.nnx import bridge


class Dense(bridge.Module):
    features: int

    @bridge.compact
    def __call__(self, x):
        w = self.param("w", nnx.initializers.normal(), (x.shape[-1], self.features))
        return x @ w + self.param("b", nnx.initializers.zeros_init(), (self.features,))


def shapes(variables):
    return phalanx.tree.map(lambda x: x.shape, variables)


def test_compact_methods_create_variables_that_apply_gives_back():
    class Model(bridge.Module):
        @bridge.compact
        def __call__(self, x):
            self.alias = Dense(5)
            x = Dense(2, name="out")(self.alias(x))
            calls = self.variable("counts", "calls", lambda: jnp.array(0))
            calls.value += 1
            return Dense(3)(x), self.is_initializing()

    model, x = Model(), jnp.ones((1, 4))
    (first, is_initializing), variables = model.init_with_output(0, x)
    assert is_initializing and shapes(variables) == {
        "params": {"Dense_0": {"b": (5,), "w": (4, 5)}, "out": {"b": (2,), "w": (5, 2)}, "Dense_1": {"b": (3,), "w": (2, 3)}},
        "counts": {"calls": ()},
    }  # fmt: skip
    (again, is_initializing), new = model.apply(variables, x, mutable=["counts"])
    assert (again == first).all() and not is_initializing
    assert int(variables["counts"]["calls"]) == 1 and int(new["counts"]["calls"]) == 2
    params = {**variables["params"], "Dense_1": {"b": jnp.full(3, 10.0), "w": jnp.zeros((2, 3))}}
    assert model.apply({"params": params}, x)[0].tolist() == [[10.0] * 3]
    gradient = phalanx.jit(phalanx.grad(lambda p: model.apply({"params": p}, x)[0].sum()))(variables["params"])
    assert gradient["Dense_1"]["b"].tolist() == [1.0] * 3
    assert model.scope is None and bridge.current_module() is None and bridge.current_context() is None


def test_setup_creates_submodules_for_all_methods():
    class Model(bridge.Module):
        def setup(self):
            assert bridge.current_module() is self and not bridge.current_context().in_compact
            self.encoder = Dense(3)
            self.layers = [Dense(2), bridge.nnx_in_bridge_mdl(lambda rngs: nnx.Linear(2, 4, rngs=rngs))]

        def __call__(self, x):
            for layer in (self.encoder, *self.layers):
                x = layer(x)
            return x

        def encode(self, x):
            return self.encoder(x)

    model, x = Model(), jnp.ones((1, 2))
    variables = model.init(nnx.Rngs(1), x)
    assert shapes(variables["params"]) == {
        "encoder": {"b": (3,), "w": (2, 3)},
        "layers": {0: {"b": (2,), "w": (3, 2)}, 1: {"bias": (4,), "kernel": (2, 4)}},
    }
    encoded = x @ variables["params"]["encoder"]["w"]
    for method in ("encode", Model.encode, model.encode, "encoder"):
        assert (model.apply(variables, x, method=method) == encoded).all()


def test_nnx_modules_inside_take_the_given_variables_and_the_streams_of_the_call():
    class Model(bridge.Module):
        @bridge.compact
        def __call__(self, x):
            x = bridge.nnx_in_bridge_mdl(lambda rngs: nnx.Dropout(0.5, rngs=rngs))(x)
            return bridge.nnx_in_bridge_mdl(lambda rngs: nnx.BatchNorm(8, rngs=rngs), name="bn")(x)

    x = phalanx.random.normal(phalanx.random.key(0), (4, 8))
    variables = Model().init({"params": 0, "dropout": 1}, x)
    assert set(variables) == {"params", "batch_stats"} and set(variables["params"]) == {"bn"}
    first, second = (Model().apply(variables, x, rngs={"params": 0, "dropout": seed}, mutable=True) for seed in (2, 3))
    assert (first[0] != second[0]).any()
    expected = 0.99 * variables["batch_stats"]["bn"]["mean"]
    assert jnp.allclose(first[1]["batch_stats"]["bn"]["mean"], expected, atol=0.05)


def test_metadata_of_variables_is_kept_in_boxes():
    class Model(bridge.Module):
        @bridge.compact
        def __call__(self, x):
            init = nnx.with_metadata(nnx.initializers.ones, unit="m")
            return x @ self.param("w", init, (2, 3)) + bridge.current_module().param(
                "p", bridge.with_partitioning(nnx.initializers.ones, ("x",)), (3,)
            )

    variables = Model().init(0, jnp.ones((1, 2)))
    box = variables["params"]["w"]
    assert type(box) is bridge.NNXMeta and (box.var_type, box.metadata) == (nnx.Param, {"unit": "m"})
    assert phalanx.tree.map(lambda x: 2 * x, box).unbox().tolist() == [[2.0] * 3] * 2
    assert phalanx.tree.leaves(variables)[0].shape == (3,)
    assert Model().apply(variables, jnp.ones((1, 2))).tolist() == [[3.0] * 3]
    assert type(variables["params"]["p"]).__name__ in ("NNXMeta", "Partitioned")
    assert bridge.NNXMeta(nnx.Param, jnp.ones(3), {"out_sharding": ("x",)}).get_partition_spec() == phalanx.P("x")


def test_names_and_parents_of_submodules():
    class Named(bridge.Module):
        name: str = "x"

        @bridge.compact
        def __call__(self):
            assert Named(name="b").name == "b" and self.b.name == "b"
            assert Named(parent=None).scope is None
            first = Named()
            assert first is self.Named_1 and first.scope.rngs is self.scope.rngs
            for make in (lambda: Named(parent=self), lambda: Dense(1, name=3)):
                with pytest.raises((ArgumentError, ArgumentTypeError)):
                    make()
            return bridge.current_context().in_compact

    assert Named().apply({}) is True
    assert Named("a") == Named("a") and Named("a") != Named("b") and hash(Named()) != hash(Named())


def test_shared_submodules_have_the_path_of_the_attribute_of_the_highest_priority():
    class Pair(bridge.Module):
        def setup(self):
            self.a = self.z = Dense(1)
            self.set_attr_priority("z", bridge.AttrPriority.HIGH)

        def __call__(self, x):
            return self.a(x)

    assert list(Pair().init(0, jnp.ones((1, 1)))["params"]) == ["z"]


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda: Dense(1)(jnp.ones((1, 1))),
            "Dense.param: expected a module that init or apply has bound, got a module outside of a call.\n"
            "  Fix: call init or apply, as in module.apply(variables, x).",
        ),
        (
            lambda: Dense(1).apply({}, method="features"),
            "Dense.apply, argument method: expected a method, or the name of one, got features.\n"
            "  Fix: pass a function of the module, as in method=Dense.__call__.",
        ),
        (
            lambda: Dense(1).apply({}, method=lambda self: self.param("features", lambda key: 1)),
            "Dense, the variable 'features': expected a Param, or no attribute of this name, got one of type int.\n"
            "  Fix: choose another name, such as 'features_value'.",
        ),
        (
            lambda: Dense(1).apply({}, method=lambda self: self.variable("cache", "c")),
            "Dense, the variable 'c': expected a given variable or init_fn, got neither.\n  Fix: pass init_fn.",
        ),
        (
            lambda: bridge.nnx_in_bridge_mdl(nnx.Rngs),
            "nnx.bridge.nnx_in_bridge_mdl: expected a call in a method of an nnx.bridge.Module, got a call outside of "
            "one.\n  Fix: call it in setup, or in a method decorated with nnx.bridge.compact.",
        ),
        (
            lambda: bridge.compact(lambda self: 0)(nnx.Rngs()),
            "nnx.bridge.compact, argument self: expected an nnx.bridge.Module, got a Rngs.\n"
            "  Fix: derive the class from nnx.bridge.Module, or create its variables in __init__.",
        ),
    ],
)
def test_mistakes_are_errors(use, text):
    with pytest.raises((ArgumentError, ArgumentTypeError)) as error:
        use()
    assert str(error.value) == text


def test_update_creates_dictionaries_for_variables_at_new_paths():
    model = Dense(1)
    nnx.update(model, {"a": {"b": nnx.Param(jnp.array(2))}})
    assert int(model.a["b"].value) == 2
    with pytest.raises(phalanx.errors.TreeError, match=r"^update, features\.b: expected a path of the module"):
        nnx.update(model, {"features": {"b": nnx.Param(1)}})
