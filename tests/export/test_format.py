"""The bytes of artifacts: every altered one is noticed, whatever they say nothing worse than an error happens."""

import hashlib
import json
import random
import struct

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export
from phalanx.export import ArtifactError, deserialize
from phalanx.export.artifact_format import MAGIC, VERSION, split_artifact

X = np.ones((3, 4), "f4")


@pytest.fixture(scope="module")
def blob():
    return bytes(export.export(phalanx.jit(lambda x: jnp.sin(x).sum()))(X).serialize(vjp_order=1))


def sealed(data):
    return data + hashlib.sha256(data).digest()


def with_header(blob, change):
    """The artifact with another header, and a digest that agrees."""
    header, program, derivative = split_artifact(memoryview(blob))
    change(header)
    text = json.dumps(header).encode()
    head = struct.pack("<8sIIQQ", MAGIC, VERSION, len(text), len(program), len(derivative))
    return sealed(head + text + bytes(program) + bytes(derivative))


def test_writing_is_deterministic(blob):
    again = export.export(phalanx.jit(lambda x: jnp.sin(x).sum()))(X).serialize(vjp_order=1)
    assert bytes(again) == blob


def test_every_prefix_is_an_error(blob):
    for length in range(len(blob)):
        with pytest.raises(ArtifactError):
            deserialize(blob[:length])


def test_every_flipped_bit_is_detected(blob):
    generator = random.Random(0)
    for _ in range(10_000):
        altered = bytearray(blob)
        altered[generator.randrange(len(blob))] ^= 1 << generator.randrange(8)
        with pytest.raises(ArtifactError):
            deserialize(altered)


def test_a_later_version_is_an_error(blob):
    later = bytearray(blob[:-32])
    later[8:12] = struct.pack("<I", VERSION + 1)
    with pytest.raises(ArtifactError) as error:
        deserialize(sealed(bytes(later)))
    assert str(error.value) == (
        f"deserialize: expected an artifact of format version 1 to {VERSION}, got version {VERSION + 1}.\n"
        "  Fix: read it with a release of phalanx that supports format version 2."
    )


WRONG = [
    [],
    {},
    3,
    -1,
    2**70,
    1.5,
    "x",
    None,
    True,
    ["*"],
    [["*"]],
    "float32[-1]",
    ["float32[b]"],
    ["float32[1e9]"],
    ["f"],
]


def test_an_altered_header_is_an_error_or_another_valid_program(blob):
    names = list(split_artifact(memoryview(blob))[0])
    for name in names:
        for value in WRONG:
            try:
                found = deserialize(with_header(blob, lambda h, name=name, value=value: h.update({name: value})))
            except ArtifactError:
                continue
            assert len(found.in_shardings) == len(found.in_avals) == found.in_tree.num_leaves, (name, value)
        if name not in ("mesh_axes", "axes_named_by", "devices_fixed_by"):  # which the first versions did not write
            with pytest.raises(ArtifactError):
                deserialize(with_header(blob, lambda h, name=name: h.pop(name)))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, "\xff", "", "[]", '"x"'])
def test_a_header_that_is_not_a_json_object_is_an_error(text):
    data = text.encode("latin1")
    head = struct.pack("<8sIIQQ", MAGIC, VERSION, len(data), 0, 0)
    with pytest.raises(ArtifactError):
        deserialize(sealed(head + data))


def test_a_deeply_nested_structure_is_an_error(blob):
    deep = "*"
    for _ in range(500):
        deep = ["tuple", deep]
    deserialize(with_header(blob, lambda h: h.update(out_tree=["tuple", "*"])))
    found = with_header(blob, lambda h: h.update(out_tree=deep))
    try:
        deserialize(found)
    except ArtifactError as error:
        assert "nested too deeply" in str(error)


def test_calling_a_program_that_cannot_be_parsed_is_an_error(blob):
    header, _, _ = split_artifact(memoryview(blob))
    text = json.dumps(header).encode()
    head = struct.pack("<8sIIQQ", MAGIC, VERSION, len(text), 7, 0)
    with pytest.raises(ArtifactError, match="^portable artifact: expected a program in StableHLO"):
        deserialize(sealed(head + text + b"nothing")).call(X)
