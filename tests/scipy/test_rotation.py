"""Rotations against SciPy."""

import itertools

import numpy as np
import pytest
import scipy.spatial.transform as theirs

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ShapeError
from phalanx.scipy.spatial.transform import Rotation, Slerp

rng = np.random.default_rng(0)
Q = rng.normal(size=(9, 4))
Q = np.concatenate([Q / np.linalg.norm(Q, axis=1, keepdims=True), np.eye(4), [[1e-9, 0, 0, 1], [0, 0.6, 0, -0.8]]])
SEQUENCES = [s for s in map("".join, itertools.product("xyz", repeat=3)) if s[0] != s[1] != s[2]]


@pytest.fixture(autouse=True)
def in_64_bits():
    with phalanx.enable_x64(True):
        yield


def close(a, b, tol=1e-9):
    np.testing.assert_allclose(np.asarray(a), b, rtol=tol, atol=tol)


@pytest.mark.parametrize("index", [slice(None), 3])
def test_conversions_between_representations(index):
    ours, wanted = Rotation.from_quat(3 * Q[index]), theirs.Rotation.from_quat(Q[index])
    close(ours.as_quat(), wanted.as_quat())
    close(ours.as_quat(canonical=True), wanted.as_quat(canonical=True))
    close(ours.as_quat(scalar_first=True), wanted.as_quat(scalar_first=True))
    close(ours.as_matrix(), wanted.as_matrix())
    close(ours.as_mrp(), wanted.as_mrp())
    close(ours.magnitude(), wanted.magnitude())
    for degrees in (False, True):
        close(ours.as_rotvec(degrees), wanted.as_rotvec(degrees))
        close(Rotation.from_rotvec(wanted.as_rotvec(degrees), degrees).as_matrix(), wanted.as_matrix())
    close(Rotation.from_matrix(wanted.as_matrix()).as_matrix(), wanted.as_matrix())
    close(Rotation.from_mrp(wanted.as_mrp()).as_matrix(), wanted.as_matrix())
    close(ours.inv().as_matrix(), wanted.inv().as_matrix())


@pytest.mark.one_is_quick(group=lambda seq: (seq.isupper(), seq[0] == seq[2]))
@pytest.mark.parametrize("seq", [*SEQUENCES, *map(str.upper, SEQUENCES)])
def test_euler_angles(seq):
    angles = rng.uniform(-3, 3, size=(5, 3))
    close(Rotation.from_euler(seq, angles).as_matrix(), theirs.Rotation.from_euler(seq, angles).as_matrix())
    wanted = theirs.Rotation.from_quat(Q[:9])
    close(Rotation.from_quat(Q[:9]).as_euler(seq, degrees=True), wanted.as_euler(seq, degrees=True), 1e-7)
    middle = np.array([[0.3, 0, 0.4], [0.3, np.pi / 2, 0.4], [0.3, np.pi, 0.4]])  # where axes fall together
    locked = Rotation.from_euler(seq, middle)
    close(Rotation.from_euler(seq, locked.as_euler(seq)).as_matrix(), locked.as_matrix(), 1e-6)


def test_euler_angles_about_one_and_two_axes():
    close(Rotation.from_euler("y", 0.3).as_matrix(), theirs.Rotation.from_euler("y", 0.3).as_matrix())
    angles = rng.normal(size=(4, 2))
    close(Rotation.from_euler("XZ", angles).as_matrix(), theirs.Rotation.from_euler("XZ", angles).as_matrix())


def test_apply_and_composition():
    ours, wanted = Rotation.from_quat(Q), theirs.Rotation.from_quat(Q)
    v = rng.normal(size=(len(Q), 3))
    for inverse in (False, True):
        close(ours.apply(v, inverse), wanted.apply(v, inverse))
        close(ours[2].apply(v, inverse), wanted[2].apply(v, inverse))
        close(ours.apply(v[0], inverse), wanted.apply(v[0], inverse))
    close((ours * ours[::-1]).as_matrix(), (wanted * wanted[::-1]).as_matrix())
    close((ours[0] * ours).as_matrix(), (wanted[0] * wanted).as_matrix())
    weights = rng.uniform(size=len(Q))
    close(ours.mean(weights).as_matrix(), wanted.mean(weights).as_matrix())
    close(ours.mean().as_matrix(), wanted.mean().as_matrix())
    assert len(Rotation.concatenate([ours, ours[0]])) == len(Q) + 1
    close(Rotation.identity(3).as_matrix(), np.stack([np.eye(3)] * 3))
    drawn = Rotation.random(phalanx.random.key(0), 500)
    assert drawn.quat.shape == (500, 4) and Rotation.random(phalanx.random.key(0)).single
    assert abs(np.asarray(drawn.as_matrix()).mean(0)).max() < 0.1


def test_slerp_interpolates_along_the_shortest_arc():
    times = np.array([0.0, 1, 3, 4])
    ours, wanted = Slerp.init(times, Rotation.from_quat(Q[:4])), theirs.Slerp(times, theirs.Rotation.from_quat(Q[:4]))
    at = np.array([0, 0.3, 1, 2.2, 3.9, 4])
    close(ours(at).as_matrix(), wanted(at).as_matrix())
    close(phalanx.jit(lambda path, t: path(t).as_matrix())(ours, 0.7), wanted(0.7).as_matrix())


def test_derivatives_of_conversions():
    v = np.array([1.0, 2, -1])
    for form, start in (
        ("rotvec", [0.1, -0.4, 0.3]),
        ("rotvec", [0.0, 0, 0]),
        ("mrp", [0.1, 0.2, -0.1]),
        ("quat", [0.1, 0.4, 0.2, 1]),
    ):
        turned = lambda p, form=form: getattr(Rotation, f"from_{form}")(p).apply(v)
        phalanx.test_util.check_grads(turned, (np.array(start),), 1, rtol=1e-5, atol=1e-7)
    phalanx.test_util.check_grads(lambda p: Rotation.from_rotvec(p).as_euler("xyz"), (v,), 1, rtol=1e-5)
    slope = phalanx.jacrev(lambda p: Rotation.from_quat(p).as_rotvec())(jnp.array([0.0, 0, 0, 1]))
    close(slope, 2 * np.eye(3, 4))


def test_invalid_arguments_are_errors():
    one = Rotation.identity()
    with pytest.raises(ArgumentError, match="Rotation, argument seq: expected 1 to 3 of 'xyz'"):
        Rotation.from_euler("xxy", np.zeros(3))
    with pytest.raises(ArgumentError, match=r"Rotation\[\]: expected an array of rotations, got a single one"):
        one[0]
    with pytest.raises(ArgumentError, match=r"len\(Rotation\): expected an array of rotations"):
        len(one)
    with pytest.raises(ShapeError, match=r"Rotation.apply: expected an array of shape \[..., 3\], got \(2,\)"):
        one.apply(np.zeros(2))
    with pytest.raises(ArgumentError, match="Rotation.as_euler, argument seq: expected 3 letters"):
        one.as_euler("xy")
    with pytest.raises(ShapeError, match="Slerp: expected a time for each of several rotations"):
        Slerp.init(np.zeros(3), Rotation.identity(2))
