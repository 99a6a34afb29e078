"""What users see of a traceback: their own frames, whatever the way by which an exception left Phalanx."""

import pickle
import traceback

import numpy as np
import pytest
from phalanx.experimental.maps import xmap
from phalanx.experimental.shard_map import shard_map
from phalanx.interpreters import pxla
from phalanx.interpreters.sharded_jit import sharded_jit

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nnx, optim
from phalanx.core.config import traceback_filtering
from phalanx.engine.traceback_filtering import PACKAGE, UnfilteredTraceback

X, Y = jnp.ones(2), jnp.ones(3)


def wrong(x):
    return x + Y


def raises_key_error(x):
    return {}["missing"]


def in_callback(x):
    raise OSError("from the callback")


def call_back(x):
    shape = phalanx.ShapeDtypeStruct((), np.float32)
    return phalanx.pure_callback(in_callback, shape, x)


def tap(x):
    phalanx.debug.callback(in_callback, x)
    phalanx.effects_barrier()


def caught(call):
    """The exception that a call raises, with the names of the functions in its traceback, from the call inwards."""
    try:
        call()
    except Exception as error:
        return error, [frame.name for frame in traceback.extract_tb(error.__traceback__)][2:]
    raise AssertionError("nothing was raised")


DELETED = jnp.ones(3)
DELETED.delete()
LEAKED: list = []
phalanx.make_jaxpr(lambda x: LEAKED.append(x + 1))(X)

CALLS = {
    "an operator": (lambda: X + Y, []),
    "a reflected operator": (lambda: np.ones(2) + Y, []),
    "a ufunc": (lambda: jnp.add(X, Y), []),
    "a ufunc of one operand": (lambda: jnp.sin("text"), []),
    "lax": (lambda: lax.add(X, Y), []),
    "a composite function": (lambda: jnp.where(X > 0, X, Y), []),
    "a method": (lambda: X.reshape(5), []),
    "indexing": (lambda: X[0, 0], []),
    "an update": (lambda: X.at[0].set(Y), []),
    "einsum": (lambda: jnp.einsum("ij,jk", X, Y), []),
    "a name loaded late": (lambda: jnp.polyfit("x", 2, 3), []),
    "linalg": (lambda: jnp.linalg.inv(X), []),
    "fft": (lambda: jnp.fft.fft(X[0]), []),
    "random": (lambda: phalanx.random.normal(3, (2,)), []),
    "nn": (lambda: phalanx.nn.softmax("text"), []),
    "an initializer": (lambda: phalanx.nn.initializers.lecun_normal()(phalanx.random.key(0), (3,)), []),
    "conversion": (lambda: float(X), []),
    "writing an element": (lambda: X.__setitem__(0, 1), []),
    "an unknown attribute": (lambda: X.nothing, []),
    "a hash": (lambda: hash(X), []),
    "the pieces of a deleted array": (lambda: DELETED.addressable_shards, []),
    "pickling a deleted array": (lambda: DELETED.__reduce__(), []),
    "conversion of a leaked tracer": (lambda: np.asarray(LEAKED[0]), []),
    "a custom rule": (lambda: phalanx.custom_jvp(wrong)(X), []),
    "a mesh": (lambda: phalanx.sharding.Mesh(np.array(phalanx.devices()), ("x", "y")), []),
    "a sharding": (lambda: phalanx.NamedSharding(phalanx.make_mesh((2,), ("x",)), phalanx.P("y")), []),
    "a mesh by its room": (lambda: phalanx.sharding.make_mesh((3, 5), ("x", "y")), []),
    "xmap": (lambda: xmap(wrong, {0: "i"}, {0: "i"}, donate_argnums=5), []),
    "shard_map": (lambda: shard_map(wrong, None, phalanx.P(), 3)(X), []),
    "sharded_jit": (lambda: sharded_jit(wrong, phalanx.P(3), phalanx.P(2))(X), []),
    "an older sharding": (lambda: pxla.ShardingSpec([pxla.Chunked([4])], [pxla.ShardedAxis(1)]), []),
    "testing": (lambda: phalanx.testing.collectives(wrong, X), ["wrong"]),
    "an option": (lambda: phalanx.config.update("unknown", 1), []),
    "trees": (lambda: phalanx.tree.map(lambda a, b: a, [1, 2], [1]), []),
    "trees by their older names": (lambda: phalanx.tree_util.tree_map(lambda a, b: a, [1, 2], [1]), []),
    "a function mapped over a tree": (lambda: phalanx.tree.map(raises_key_error, [1]), ["raises_key_error"]),
    "jit": (lambda: phalanx.jit(wrong)(X), ["wrong"]),
    "jit of host data": (lambda: phalanx.jit(wrong)(np.ones(2)), ["wrong"]),
    "a user's error in jit": (lambda: phalanx.jit(raises_key_error)(X), ["raises_key_error"]),
    "stages": (lambda: phalanx.jit(wrong).lower(X), ["wrong"]),
    "a compiled stage": (lambda: phalanx.jit(lambda x: x).lower(X).compile()(Y), []),
    "make_jaxpr": (lambda: phalanx.make_jaxpr(wrong)(X), ["wrong"]),
    "grad": (lambda: phalanx.grad(wrong)(X), ["wrong"]),
    "a wrong result under grad": (lambda: phalanx.grad(lambda x: x)(X), []),
    "the function of vjp": (lambda: phalanx.vjp(lambda x: x, X)[1](1.0, 2.0), []),
    "vmap": (lambda: phalanx.vmap(wrong)(jnp.ones((4, 2))), ["wrong"]),
    "a wrong axis of vmap": (lambda: phalanx.vmap(wrong, in_axes=3)(jnp.ones((4, 2))), []),
    "all of them": (
        lambda: phalanx.vmap(phalanx.jit(phalanx.grad(phalanx.checkpoint(wrong))))(jnp.ones((4, 2))),
        ["wrong"],
    ),
    "scan": (lambda: lax.scan(lambda c, x: wrong(x), 0.0, jnp.ones((4, 2))), ["<lambda>", "wrong"]),
    "cond": (lambda: lax.cond(True, wrong, wrong, X), ["wrong"]),
    "a callback": (lambda: np.asarray(phalanx.jit(call_back)(1.0)), ["in_callback"]),
    "a tap": (lambda: tap(1.0), ["tap", "in_callback"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_the_users_frames_are_seen(name):
    call, wanted = CALLS[name]
    error, seen = caught(call)
    assert seen == wanted
    assert PACKAGE not in "".join(traceback.format_exception(error))
    assert error.__cause__ is None


def test_an_exception_inside_phalanx_on_the_way_is_not_shown():
    error, _ = caught(lambda: jnp.sin("text"))
    assert "During handling" not in "".join(traceback.format_exception(error))


def test_an_exception_that_the_user_was_handling_is_shown():
    def handle():
        try:
            raises_key_error(X)
        except KeyError:
            return wrong(X)

    error, seen = caught(handle)
    assert seen == ["wrong"]
    assert type(error.__context__) is KeyError and not error.__suppress_context__


def test_the_whole_traceback_is_kept_where_no_printed_one_shows_it():
    error, _ = caught(lambda: phalanx.vmap(phalanx.jit(wrong))(jnp.ones((4, 2))))
    held = error.__context__
    assert type(held) is UnfilteredTraceback and error.__suppress_context__
    names = [frame.name for frame in traceback.extract_tb(held.__traceback__)]
    assert names.index("mapped") < names.index("compiled") < names.index("wrong") < names.index("operator")


def test_remove_frames_shows_the_whole_traceback_as_the_cause():
    with traceback_filtering("remove_frames"):
        error, seen = caught(lambda: phalanx.jit(wrong)(X))
    assert seen == ["wrong"]
    assert type(error.__cause__) is UnfilteredTraceback
    shown = "".join(traceback.format_exception(error))
    assert shown.count("in wrong") == 2 and "in compiled" in shown


def test_off_leaves_the_traceback_as_it_is():
    with traceback_filtering("off"):
        error, seen = caught(lambda: phalanx.jit(wrong)(X))
    assert seen[0] == "compiled" and "wrong" in seen and seen[-1] != "wrong"
    assert error.__context__ is None and error.__cause__ is None


def test_tracebackhide_marks_the_frames_for_debuggers():
    with traceback_filtering("tracebackhide"):
        error, seen = caught(lambda: phalanx.jit(wrong)(X))
    assert seen[0] == "compiled"
    marked = {f.f_code.co_name for f, _ in traceback.walk_tb(error.__traceback__) if "__tracebackhide__" in f.f_locals}
    assert "compiled" in marked and "operator" in marked
    assert not {"wrong", "caught"} & marked


def test_an_exception_stays_what_it_was():
    error, _ = caught(lambda: phalanx.jit(wrong)(X))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize("fun", [jnp.sin, jnp.reshape, lax.scan, phalanx.tree.map, phalanx.grad, jnp.linalg.inv])
def test_public_functions_are_pickled_by_name(fun):
    assert pickle.loads(pickle.dumps(fun)) is fun


class Model(nnx.Module):
    def __init__(self):
        self.linear = nnx.Linear(3, 4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.linear(x)


HIGHER = {
    "a layer": (lambda: Model()(Y[:2]), ["__call__"]),
    "nnx.jit": (lambda: nnx.jit(Model.__call__)(Model(), Y[:2]), ["__call__"]),
    "nnx.grad": (lambda: nnx.grad(lambda m: m(Y[:2]).sum())(Model()), ["<lambda>", "__call__"]),
    "an optimiser": (lambda: optim.adam(1e-3).update({"a": X}, None), []),
    "export": (lambda: export.export(wrong)(X), []),
    "an exported call": (lambda: export.export(phalanx.jit(wrong))(Y).call(X), []),
    "shard_map": (
        lambda: phalanx.shard_map(
            wrong, mesh=phalanx.make_mesh((1,), ("x",)), in_specs=phalanx.P("x"), out_specs=phalanx.P("x")
        )(X),
        ["wrong"],
    ),
    "pmap": (lambda: phalanx.pmap(wrong)(X[None]), ["wrong"]),
}


@pytest.mark.parametrize("name", HIGHER)
def test_the_faces_above_hide_their_frames_too(name):
    call, wanted = HIGHER[name]
    assert caught(call)[1] == wanted
