"""`phalanx export`: what it prints of artifacts, what it refuses, and that it runs them on files."""

import os

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import cli, export, random
from phalanx.engine import stablehlo
from phalanx.sharding import AbstractMesh, NamedSharding, PartitionSpec


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    def score(params, tokens, *, scale):
        return {"total": (params["w"][tokens] * scale).sum(), "rows": tokens.shape[0] * jnp.ones(tokens.shape)}

    specs = export.symbolic_args_specs(({"w": np.ones((7,), "f4")}, np.ones((2, 3), "i4")), (None, "b, t"), ["b >= 2"])
    exported = export.export(phalanx.jit(score), platforms=["cpu", "cuda"])(*specs, scale=np.float32(2))
    path = tmp_path_factory.mktemp("artifacts") / "score.phalanx"
    path.write_bytes(exported.serialize(vjp_order=1))
    return path


def test_inspect_shows_the_signature(artifact, capsys):
    assert cli.main(["export", "inspect", str(artifact)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"score: {artifact.stat().st_size:,} bytes, 1 derivative"
    assert lines[1] == "platforms: cpu, cuda; devices: 1"
    assert lines[3:] == [
        "arguments:",
        "  params['w']  f32[7]",
        "  tokens       i32[b,t]",
        "  scale        f32[]",
        "results:",
        "  ['rows']   f32[b,t]",
        "  ['total']  f32[]",
        "constraints: b >= 2",
        "effects: none",
        "custom calls: shape_assertion",
    ]
    assert cli.main(["export", "inspect", "--text", str(artifact)]) == 0
    assert "func.func public @main" in capsys.readouterr().out


def test_verify_reports_valid_and_broken_files(artifact, tmp_path, capsys):
    assert cli.main(["export", "verify", str(artifact)]) == 0
    window = f"(supported: {stablehlo.minimum_version()} to {stablehlo.current_version()})"
    assert capsys.readouterr().out.rstrip().endswith(window)
    broken = tmp_path / "broken"
    broken.write_bytes(artifact.read_bytes()[:-1] + b"\0")
    assert cli.main(["export", "verify", str(artifact), str(broken), str(tmp_path / "none")]) == 1
    said = capsys.readouterr()
    assert f"{artifact}: valid" in said.out
    assert (
        f"{broken}: deserialize: expected bytes that match their SHA-256 digest, got bytes that were altered"
        in said.err
    )
    assert "No such file" in said.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("command", ["inspect", "verify", "run"])
def test_files_that_would_block_or_fill_the_memory_are_refused(artifact, tmp_path, capsys, command):
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    for path, message in (
        (tmp_path / "pipe", f"[Errno 22] Not a regular file: '{tmp_path}/pipe'"),
        ("/dev/zero", "[Errno 22] Not a regular file: '/dev/zero'"),
        (tmp_path / "huge", f"expected bytes that start as an exported program, got {1 << 40} bytes that do not"),
    ):
        assert cli.main(["export", command, str(path)]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_inputs_that_would_block_or_fill_the_memory_are_refused(tmp_path, capsys):
    program, pipe, huge = tmp_path / "program", tmp_path / "pipe", tmp_path / "huge.npy"
    program.write_bytes(export.export(phalanx.jit(jnp.sin))(jnp.ones(3)).serialize())
    os.mkfifo(pipe)
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(117) + "\n"
    huge.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    for path, message in ((pipe, "Not a regular file"), (huge, "expected a file saved by numpy.save, got Unable to")):
        assert cli.main(["export", "run", str(program), str(path)]) == 1
        assert message in capsys.readouterr().err


def test_verify_refuses_unstable_kernels(tmp_path, capsys):
    from phalanx.export.safety_checks import STABLE_TARGETS

    name = "lapack_spotrf_ffi"
    exported = export.export(phalanx.jit(jnp.linalg.cholesky))(np.eye(2, dtype="f4"))
    path = tmp_path / "cholesky"
    path.write_bytes(exported.serialize())
    assert cli.main(["export", "verify", str(path)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(STABLE_TARGETS, name)
        assert cli.main(["export", "verify", str(path)]) == 1
    assert f"got calls of {name}" in capsys.readouterr().err


def test_run_takes_and_writes_numpy_files(artifact, tmp_path, capsys):
    w, tokens = np.arange(7, dtype="f4"), np.array([[1, 2, 3], [4, 5, 6]], "i4")
    np.savez(tmp_path / "in.npz", **{"params['w']": w, "tokens": tokens, "scale": np.float32(2)})
    assert cli.main(["export", "run", str(artifact), str(tmp_path / "in.npz"), "--out", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as out:
        assert out["['total']"] == 42 and out["['rows']"].tolist() == [[2.0] * 3] * 2
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path, x in zip(paths, (w, tokens, np.float32(2)), strict=True):
        np.save(path, x)
    assert cli.main(["export", "run", str(artifact), *map(str, paths)]) == 0
    assert "['total']: float32[]\n42.0" in capsys.readouterr().out


def test_run_explains_errors_in_its_inputs(artifact, tmp_path, capsys):
    def refused(*words):
        assert cli.main(["export", "run", str(artifact), *map(str, words)]) == 1
        return capsys.readouterr().err

    np.savez(tmp_path / "in.npz", tokens=np.ones((2, 3), "i4"))
    assert "expected arrays named params['w'], tokens, scale, got tokens" in refused(tmp_path / "in.npz")
    np.save(tmp_path / "x.npy", np.ones(3))
    assert "expected 3 .npy files (params['w'], tokens, scale) or one .npz, got 1 file." in refused(tmp_path / "x.npy")
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    assert f"input {tmp_path / 'bad.npy'}: expected a file saved by numpy.save" in refused(*[tmp_path / "bad.npy"] * 3)
    np.savez(
        tmp_path / "in.npz",
        **{"params['w']": np.ones(7, "f4"), "tokens": np.ones((1, 3), "i4"), "scale": np.float32(1)},
    )
    assert "expected sizes with b >= 2, got b = 1 from dimension 0 of tokens" in refused(tmp_path / "in.npz")


def test_results_of_narrow_floats_and_single_results(tmp_path):
    exported = export.export(phalanx.jit(lambda x: x * 2))(phalanx.ShapeDtypeStruct((3,), "bfloat16"))
    (tmp_path / "double").write_bytes(exported.serialize())
    np.save(tmp_path / "x.npy", np.asarray(jnp.ones(3, "bfloat16")))
    words = ["export", "run", str(tmp_path / "double"), str(tmp_path / "x.npy"), "--out", str(tmp_path / "y.npy")]
    assert cli.main(words) == 0
    assert np.load(tmp_path / "y.npy").view(phalanx.numpy.bfloat16.dtype).tolist() == [2.0] * 3


def test_run_shards_arguments_over_the_devices_of_the_export(tmp_path, capsys):
    def exported_for(count):
        rows = NamedSharding(AbstractMesh((count,), ("data",)), PartitionSpec("data"))
        return export.export(phalanx.jit(lambda x, y: x * y, in_shardings=(rows, None)))(
            np.ones(32, "f4"), np.float32(2)
        )

    np.save(tmp_path / "x.npy", np.arange(32, dtype="f4"))
    np.save(tmp_path / "y.npy", np.float32(2))
    for count in (8, 16):
        (tmp_path / f"{count}").write_bytes(exported_for(count).serialize())
    words = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "--out", str(tmp_path / "out.npy")]
    assert cli.main(["export", "run", str(tmp_path / "8"), *words]) == 0
    assert np.load(tmp_path / "out.npy").tolist() == [2.0 * i for i in range(32)]
    assert cli.main(["export", "run", str(tmp_path / "16"), *words]) == 1
    assert capsys.readouterr().err == (
        "phalanx export run: run of <lambda>: expected 16 devices, as it was exported for, got 8.\n"
        "  Fix: set PHALANX_NUM_CPU_DEVICES=16 to run it on virtual devices of the CPU, or give the sizes of a smaller mesh "
        "with --mesh.\n"
    )
    for sizes in ("data=4", "4", "data=1", "data=3", "data=7"):  # 32 rows, also where the devices do not divide them
        assert cli.main(["export", "run", str(tmp_path / "16"), *words, "--mesh", sizes]) == 0
        assert np.load(tmp_path / "out.npy").tolist() == [2.0 * i for i in range(32)]
    assert cli.main(["export", "inspect", str(tmp_path / "16")]) == 0
    assert "mesh: data=16\n" in capsys.readouterr().out
    assert cli.main(["export", "run", str(tmp_path / "16"), *words, "--mesh", "4x"]) == 1
    assert capsys.readouterr().err == (
        "phalanx export run: --mesh: expected each axis once, with its size, got '4x'.\n"
        "  Fix: write it as in --mesh data=64,model=2.\n"
    )


def test_random_keys_are_stored_as_raw_data(tmp_path):
    fold = phalanx.jit(lambda key, i: random.fold_in(key, i))
    (tmp_path / "fold").write_bytes(export.export(fold)(random.key(0), np.int32(1)).serialize())
    np.savez(tmp_path / "in.npz", key=random.key_data(random.key(7)), i=np.int32(5))
    words = ["export", "run", str(tmp_path / "fold"), str(tmp_path / "in.npz"), "--out", str(tmp_path / "out.npy")]
    assert cli.main(words) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), random.key_data(random.fold_in(random.key(7), 5)))


def test_a_broken_archive_of_inputs_is_an_error(artifact, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", x=np.ones(3))
    (tmp_path / "in.npz").write_bytes((tmp_path / "in.npz").read_bytes()[:100])
    assert cli.main(["export", "run", str(artifact), str(tmp_path / "in.npz")]) == 1
    assert f"input {tmp_path / 'in.npz'}: expected a file saved by numpy.savez, got" in capsys.readouterr().err
