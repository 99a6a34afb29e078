"""Serialized executables: the same results without compiling, also in another process; refusals."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from phalanx.experimental import serialize_executable

import phalanx
import phalanx.numpy as jnp
from phalanx.sharding import AxisType, NamedSharding, P, make_mesh

X = np.arange(8.0, dtype=np.float32)


def round_trip(compiled):
    return serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))


def test_a_loaded_program_gives_the_same_results():
    f = phalanx.jit(lambda p, *, scale: {"sum": (p["a"] * scale).sum(), "rest": (p["b"],)})
    params = {"a": X, "b": jnp.arange(3), "unread": jnp.ones(2)}
    loaded = round_trip(f.lower(params, scale=2.0).compile())
    out = loaded(params, scale=3.0)
    assert float(out["sum"]) == float(X.sum() * 3)
    assert out["rest"][0].tolist() == [0, 1, 2]
    assert loaded.out_avals == f.lower(params, scale=2.0).compile().out_avals


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_a_program_over_a_mesh_keeps_its_shardings(axis_type):
    mesh = make_mesh((4, 2), ("x", "y"), (axis_type,) * 2)
    x = phalanx.device_put(X.reshape(4, 2), NamedSharding(mesh, P("x", "y")))
    compiled = phalanx.jit(lambda x: (x.T + 1, x * 2)).lower(x).compile()
    loaded = round_trip(compiled)
    for a, b in zip(loaded(x), compiled(x)):
        np.testing.assert_array_equal(a, b)
        assert a.sharding == b.sharding
    assert loaded.input_shardings == compiled.input_shardings


def test_donation_and_static_arguments_are_part_of_the_program():
    f = phalanx.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=0)
    loaded = round_trip(f.lower(jnp.asarray(X), 3).compile())
    x = jnp.array(X)
    np.testing.assert_array_equal(loaded(x), X * 3)
    assert x.is_deleted()


def test_another_process_loads_the_program(tmp_path):
    data, _, _ = serialize_executable.serialize(phalanx.jit(lambda x: jnp.sin(x) * 2).lower(X).compile())
    (tmp_path / "f.bin").write_bytes(data)
    script = f"""
        import numpy as np, phalanx
        from phalanx.experimental import serialize_executable
        tree = phalanx.tree.structure
        in_tree, out_tree = tree((((0,)), {{}})), tree(0)
        data = open({str(tmp_path / "f.bin")!r}, "rb").read()
        f = serialize_executable.deserialize_and_load(data, in_tree, out_tree)
        print(f(np.arange(8.0, dtype=np.float32)).tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=True
    )
    np.testing.assert_allclose(eval(done.stdout), np.sin(X) * 2, rtol=1e-6)


def test_wrong_arguments_are_refused_with_types():
    loaded = round_trip(phalanx.jit(lambda x: x + 1).lower(X).compile())
    with pytest.raises(TypeError, match=r"args\[0\] is i32\[8\], compiled for f32\[8\]"):
        loaded(jnp.arange(8))


def test_refusals():
    def prints(x):
        phalanx.debug.print("{}", x)
        return x

    with pytest.raises(TypeError, match="expected a program without effects.*got one with effects"):
        serialize_executable.serialize(phalanx.jit(prints).lower(1.0).compile())
    large = jnp.arange(1000.0)
    with pytest.raises(TypeError, match="got one with 1 large constants.*\n.*pass the constants as arguments"):
        serialize_executable.serialize(phalanx.jit(lambda x: x + large).lower(large).compile())

    data, in_tree, out_tree = serialize_executable.serialize(phalanx.jit(lambda x: x + 1).lower(X).compile())
    with pytest.raises(ValueError, match="altered"):
        serialize_executable.deserialize_and_load(data[:-1] + b"\0", in_tree, out_tree)
    with pytest.raises(ValueError, match="expected the 1 devices that the program was compiled for"):
        serialize_executable.deserialize_and_load(data, in_tree, out_tree, execution_devices=phalanx.devices()[:2])
    exported = phalanx.export.export(phalanx.jit(lambda x: x + 1))(X).serialize()
    with pytest.raises(ValueError, match="bytes from serialize_executable.serialize"):
        serialize_executable.deserialize_and_load(bytes(exported), in_tree, out_tree)
