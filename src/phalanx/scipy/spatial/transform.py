"""Rotations of space, by quaternions, and paths between them.

Builds on `numpy`; a rotation is a pytree of its quaternions, the real part last.

Source: Shepperd (1978), doi:10.2514/3.55767b (of matrices); Bernardes & Viollet (2022),
doi:10.1371/journal.pone.0276302 (Euler angles); Markley et al. (2007), doi:10.2514/1.28949 (mean).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, random
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.engine.frames import guard_methods as _guard_methods
from phalanx.numpy import ufuncs
from phalanx.numpy.creation import asarray
from phalanx.numpy.joining import concatenate, stack
from phalanx.numpy.linalg import eigh
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import broadcast_operands, promote_inexact
from phalanx.numpy.reductions import argmax, sum
from phalanx.numpy.shapes import atleast_1d
from phalanx.numpy.sorting import searchsorted
from phalanx.numpy.taking import take_along_axis


def _floating(x: Any, name: str, last: tuple) -> Any:
    (x,) = promote_inexact(f"Rotation.{name}", asarray(x))
    if x.shape[-len(last) :] != last:
        shape = ", ".join(map(str, last))
        raise ShapeError(
            f"Rotation.{name}", expected=f"an array of shape [..., {shape}]", got=x.shape, mend="reshape it"
        )
    return x


def _parts(q: Any) -> list:
    return [q[..., i] for i in range(q.shape[-1])]


def _length(x: Any) -> Any:
    """The length of vectors, whose derivative at 0 is 0."""
    square = sum(x * x, axis=-1)
    return where(square == 0, 0, lax.sqrt(where(square == 0, 1, square)))


def _composed(p: Any, q: Any) -> Any:
    """The quaternion of the rotation q followed by p."""
    (a, b, c, d), (x, y, z, w) = _parts(p), _parts(q)
    return stack([d * x + w * a + b * z - c * y, d * y + w * b + c * x - a * z, d * z + w * c + a * y - b * x,
                  d * w - a * x - b * y - c * z], -1)  # fmt: skip


def _canonical(q: Any) -> Any:
    """With the sign that makes the last element that is not 0, from the real one on, positive."""
    x, y, z, w = _parts(q)
    negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return where(negative[..., None], -q, q)


def _axes(seq: str) -> tuple[list[int], bool]:
    if not re.fullmatch("[xyz]{1,3}|[XYZ]{1,3}", seq) or re.search(r"(.)\1", seq):
        raise ArgumentError("Rotation, argument seq", expected="1 to 3 of 'xyz' or of 'XYZ', no two alike in a row",
                            got=repr(seq), mend="use capitals for axes that turn along")  # fmt: skip
    return ["xyz".index(c) for c in seq.lower()], seq.isupper()


class Rotation(NamedTuple):
    """Rotations, one or a row of them.

    Args:
      quat: their quaternions of length 1, float[4] or float[n, 4], the real part last.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.spatial.transform import Rotation
      >>> turn = Rotation.from_euler("z", jnp.array(90.0), degrees=True)
      >>> turn.apply(jnp.array([1.0, 0.0, 0.0])).round(4).tolist()
      [0.0, 1.0, 0.0]
    """

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """One row of several rotations and rows of them."""
        return cls(concatenate([r.quat if r.quat.ndim == 2 else r.quat[None] for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Of angles about axes in turn, float[*s, n] for n letters in `seq`: fixed axes; capitals turn along."""
        axes, turning = _axes(seq)
        angles = _floating(angles, "from_euler", () if len(axes) == 1 and np.ndim(angles) == 0 else (len(axes),))
        angles = angles[..., None] if angles.ndim == 0 else angles
        half = angles * (math.pi / 360 if degrees else 0.5)
        whole: Any = None
        for k, axis in enumerate(axes):
            zero = half[..., k] * 0
            parts = [zero, zero, zero, lax.cos(half[..., k])]
            parts[axis] = lax.sin(half[..., k])
            one = stack(parts, -1)
            whole = one if whole is None else _composed(whole, one) if turning else _composed(one, whole)
        return cls(whole)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Of orthogonal matrices of determinant 1, float[*s, 3, 3]."""
        m = _floating(matrix, "from_matrix", (3, 3))
        at = lambda i, j: m[..., i, j]
        trace = at(0, 0) + at(1, 1) + at(2, 2)
        which = argmax(stack([at(0, 0), at(1, 1), at(2, 2), trace], -1), axis=-1)
        choices = []
        for i in range(3):  # by the largest element of the quaternion, so that nothing cancels
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list = [None] * 4
            parts[i] = 1 - trace + 2 * at(i, i)
            parts[j], parts[k], parts[3] = at(j, i) + at(i, j), at(k, i) + at(i, k), at(k, j) - at(j, k)
            choices.append(stack(parts, -1))
        choices.append(stack([at(2, 1) - at(1, 2), at(0, 2) - at(2, 0), at(1, 0) - at(0, 1), 1 + trace], -1))
        q = take_along_axis(stack(choices, -2), which[..., None, None], -2)[..., 0, :]
        return cls.from_quat(q)

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Of modified Rodrigues parameters, axis times tan(angle / 4), float[*s, 3]."""
        m = _floating(mrp, "from_mrp", (3,))
        square = sum(m * m, axis=-1, keepdims=True)
        return cls(concatenate([2 * m, 1 - square], -1) / (1 + square))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Of quaternions of any length but 0, float[*s, 4], the real part last."""
        q = _floating(quat, "from_quat", (4,))
        return cls(q / lax.sqrt(sum(q * q, axis=-1, keepdims=True)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Of rotation vectors, axis times angle, float[*s, 3]."""
        v = _floating(rotvec, "from_rotvec", (3,))
        v = v * (math.pi / 180) if degrees else v
        angle = _length(v)[..., None]
        small = angle < 1e-3
        square = angle * angle
        safe = where(small, 1, angle)
        scale = where(small, 0.5 - square / 48 + square * square / 3840, lax.sin(safe / 2) / safe)
        return cls(concatenate([scale * v, lax.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The rotation that changes nothing, or a row of `num` of it."""
        dtype = dtypes.requested_dtype(dtype, "Rotation.identity")
        q = np.array([0, 0, 0, 1], dtype)
        return cls(asarray(q if num is None else np.tile(q, (num, 1))))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Rotations drawn uniformly."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        """Some rotations of a row."""
        if self.single:
            raise ArgumentError("Rotation[]", expected="a row of rotations", got="a single one", mend="use it as it is")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        """How many rotations the row has."""
        if self.single:
            raise ArgumentError("len(Rotation)", expected="a row of rotations", got="a single one", mend="use single")
        return self.quat.shape[0]

    def __mul__(self, other: Rotation) -> Rotation:  # type: ignore[override]
        """`other` followed by this."""
        p, q = promote_inexact("Rotation", self.quat, other.quat)
        if p.ndim != q.ndim:
            p, q = broadcast_operands("Rotation", p, q)
        return Rotation.from_quat(_composed(p, q))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The vectors turned, float[*s, 3]; back with `inverse`."""
        v = _floating(vectors, "apply", (3,))
        matrix = self.as_matrix()
        matrix = matrix.swapaxes(-1, -2) if inverse else matrix
        return sum(matrix * v[..., None, :], axis=-1)

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """The angles about three axes in turn, float[*s, 3]; the third is 0 where two axes fall together."""
        axes, turning = _axes(seq)
        if len(axes) != 3:
            raise ArgumentError("Rotation.as_euler, argument seq", expected="3 letters", got=repr(seq), mend="name all")
        i, j, k = axes[::-1] if turning else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = _parts(self.quat)
        if symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        middle = 2 * ufuncs.arctan2(ufuncs.hypot(c, d), ufuncs.hypot(a, b))
        half_sum, half_difference = ufuncs.arctan2(b, a), ufuncs.arctan2(d, c)
        eps = 1e-7 if self.quat.dtype == np.float64 else 1e-4
        near, far = lax.abs(middle) <= eps, lax.abs(middle - math.pi) <= eps
        first = half_sum - half_difference
        last = half_sum + half_difference
        if not symmetric:
            last, middle = last * sign, middle - math.pi / 2
        together = where(near, 2 * half_sum, 2 * half_difference * (1 if turning else -1))
        if turning:
            first, last = last, first
            together = together if symmetric else together * sign
        first, last = where(near | far, together, first), where(near | far, 0, last)
        angles = stack([first, middle, last], -1)
        angles = angles - 2 * math.pi * lax.floor((angles + math.pi) / (2 * math.pi))
        return angles * (180 / math.pi) if degrees else angles

    def as_matrix(self) -> Any:
        """The orthogonal matrices, float[*s, 3, 3]."""
        x, y, z, w = _parts(self.quat)
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w]]  # fmt: skip
        return stack([stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Any:
        """The modified Rodrigues parameters, axis times tan(angle / 4) with an angle up to pi, float[*s, 3]."""
        w = self.quat[..., 3:]
        return self.quat[..., :3] * where(w < 0, -1, 1) / (1 + lax.abs(w))

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """The quaternions, float[*s, 4]; the one of two whose real part is positive if `canonical`."""
        q = _canonical(self.quat) if canonical else self.quat
        return concatenate([q[..., 3:], q[..., :3]], -1) if scalar_first else q

    def as_rotvec(self, degrees: bool = False) -> Any:
        """The rotation vectors, axis times an angle up to pi, float[*s, 3]."""
        q = _canonical(self.quat)
        size = _length(q[..., :3])[..., None]
        angle = 2 * ufuncs.arctan2(size, q[..., 3:])
        small = angle < 1e-3
        square = angle * angle
        scale = where(small, 2 + square / 12 + 7 * square * square / 2880, angle / where(small, 1, size))
        vector = scale * q[..., :3]
        return vector * (180 / math.pi) if degrees else vector

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Any:
        """The angles, from 0 to pi."""
        return 2 * ufuncs.arctan2(_length(self.quat[..., :3]), lax.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation nearest to all of a row, weighted by `weights`."""
        q = self.quat if not self.single else self.quat[None]
        weighted = q if weights is None else q * asarray(weights)[:, None].astype(q.dtype)
        products = lax.dot_general(weighted, q, (((0,), (0,)), ((), ())), precision="highest")
        return Rotation(eigh(products).eigenvectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether it is one rotation, not a row of them."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """The path through rotations at given times, turning evenly between each and the next.

    Args:
      times: ascending, float[n].
      timedelta: the time from each to the next.
      rotations: at all times but the last.
      rotvecs: the turn from each to the next.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.spatial.transform import Rotation, Slerp
      >>> turns = Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
      >>> path = Slerp.init(jnp.array([0.0, 1.0]), turns)
      >>> round(path(jnp.array(0.5)).magnitude().item(), 4)
      0.7854
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """The path through a row of rotations, one for each time."""
        (times,) = promote_inexact("Slerp", asarray(times))
        if rotations.single or len(rotations) < 2 or times.shape != (len(rotations),):
            raise ShapeError("Slerp", expected="a time for each of several rotations", got=times.shape,
                             mend="give a row of two rotations or more")  # fmt: skip
        start: Any = rotations[:-1]
        return cls(times, times[1:] - times[:-1], start, (start.inv() * rotations[1:]).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at times, a scalar or float[m], between the first and the last."""
        (at,) = promote_inexact("Slerp", asarray(times))
        points = atleast_1d(at)
        last = np.int32(self.timedelta.shape[0] - 1)
        i = lax.clamp(np.int32(0), searchsorted(self.times, points, side="right").astype(np.int32) - 1, last)
        share = (points - self.times[i]) / self.timedelta[i]
        out = self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * share[:, None])
        return out[0] if at.ndim == 0 else out


_guard_methods(Rotation, "apply as_euler as_matrix __mul__")
