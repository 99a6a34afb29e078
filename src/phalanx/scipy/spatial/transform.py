"""Rotations in three dimensions as unit quaternions, and spherical linear interpolation.

A rotation is a pytree of its quaternions, with the real part last. Builds on `numpy`.

Source: Shepperd (1978), doi:10.2514/3.55767b (from matrices); Bernardes & Viollet (2022),
doi:10.1371/journal.pone.0276302 (Euler angles); Markley et al. (2007), doi:10.2514/1.28949 (mean).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp, random
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.engine import guard_methods as _guard_methods, publish as _publish
from phalanx.numpy.operands import align_ranks, broadcast_operands, promote_inexact
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey


def _check_shape(x: ArrayLike, name: str, last: tuple[int, ...]) -> Any:
    """Convert an operand to a floating-point array, whose last dimensions must be `last`."""
    (x,) = promote_inexact(f"Rotation.{name}", jnp.asarray(x))
    if x.shape[-len(last) :] != last:
        shape = ", ".join(map(str, last))
        raise ShapeError(
            f"Rotation.{name}",
            expected=f"an array of shape [..., {shape}]",
            got=x.shape,
            fix=f"pass an array whose last dimensions are [{shape}]",
        )
    return x


def _components(q: Array) -> list:
    return [q[..., i] for i in range(q.shape[-1])]


def _length(x: Array) -> Any:
    """The norm of vectors; its derivative at 0 is 0 and not NaN."""
    square = jnp.sum(x * x, axis=-1)
    return jnp.where(square == 0, 0, lax.sqrt(jnp.where(square == 0, 1, square)))


def _hamilton_product(p: Array, q: Array) -> Any:
    """The Hamilton product p q: the rotation q followed by p."""
    # Real parts are last: d and w.
    (a, b, c, d), (x, y, z, w) = _components(p), _components(q)
    return jnp.stack(
        [
            d * x + w * a + b * z - c * y,
            d * y + w * b + c * x - a * z,
            d * z + w * c + a * y - b * x,
            d * w - a * x - b * y - c * z,
        ],
        -1,
    )


def _canonical(q: Array) -> Any:
    """Choose the sign of quaternions such that the real part, or else the first nonzero element, is positive."""
    x, y, z, w = _components(q)
    negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return jnp.where(negative[..., None], -q, q)


def _axes(seq: str) -> tuple[list[int], bool]:
    if not re.fullmatch("[xyz]{1,3}|[XYZ]{1,3}", seq) or re.search(r"(.)\1", seq):
        raise ArgumentError(
            "Rotation, argument seq",
            expected="1 to 3 of 'xyz' or of 'XYZ', no two alike in a row",
            got=repr(seq),
            fix="pass 1 to 3 axes such as 'zyx', or 'ZYX' for intrinsic rotations",
        )
    return ["xyz".index(c) for c in seq.lower()], seq.isupper()


class Rotation(NamedTuple):
    """A rotation, or an array of rotations.

    Args:
      quat: unit quaternions with the real part last, float[4] or float[n, 4].

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
        """Concatenate rotations and arrays of rotations."""
        return cls(jnp.concatenate([r.quat if r.quat.ndim == 2 else r.quat[None] for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """From Euler angles, float[*s, n] for n axes in `seq`; lowercase is extrinsic, uppercase intrinsic."""
        axes, turning = _axes(seq)
        angles = _check_shape(angles, "from_euler", () if len(axes) == 1 and np.ndim(angles) == 0 else (len(axes),))
        angles = angles[..., None] if angles.ndim == 0 else angles
        half = angles * (math.pi / 360 if degrees else 0.5)
        whole: Any = None
        for k, axis in enumerate(axes):
            zero = half[..., k] * 0
            parts = [zero, zero, zero, lax.cos(half[..., k])]
            parts[axis] = lax.sin(half[..., k])
            one = jnp.stack(parts, -1)
            whole = (
                one if whole is None else _hamilton_product(whole, one) if turning else _hamilton_product(one, whole)
            )
        return cls(whole)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """From orthogonal matrices with determinant 1, float[*s, 3, 3]."""
        m = _check_shape(matrix, "from_matrix", (3, 3))
        at = lambda i, j: m[..., i, j]
        trace = at(0, 0) + at(1, 1) + at(2, 2)
        # 4 w^2 = 1 + trace, and 4 x^2 = 1 - trace + 2 m_xx; the largest of the four is at least 1.
        which = jnp.argmax(jnp.stack([at(0, 0), at(1, 1), at(2, 2), trace], -1), axis=-1)
        choices = []
        for i in range(3):  # solved for the quaternion's largest element, which avoids cancellation
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list = [None] * 4
            parts[i] = 1 - trace + 2 * at(i, i)
            parts[j], parts[k], parts[3] = at(j, i) + at(i, j), at(k, i) + at(i, k), at(k, j) - at(j, k)
            choices.append(jnp.stack(parts, -1))
        choices.append(jnp.stack([at(2, 1) - at(1, 2), at(0, 2) - at(2, 0), at(1, 0) - at(0, 1), 1 + trace], -1))
        q = jnp.take_along_axis(jnp.stack(choices, -2), which[..., None, None], -2)[..., 0, :]
        return cls.from_quat(q)

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """From modified Rodrigues parameters, axis times tan(angle / 4), float[*s, 3]."""
        m = _check_shape(mrp, "from_mrp", (3,))
        square = jnp.sum(m * m, axis=-1, keepdims=True)
        return cls(jnp.concatenate([2 * m, 1 - square], -1) / (1 + square))

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """From nonzero quaternions with the real part last, float[*s, 4]; they are normalized."""
        q = _check_shape(quat, "from_quat", (4,))
        return cls(q / lax.sqrt(jnp.sum(q * q, axis=-1, keepdims=True)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """From rotation vectors, axis times angle, float[*s, 3]."""
        v = _check_shape(rotvec, "from_rotvec", (3,)) * (math.pi / 180 if degrees else 1)
        angle = _length(v)[..., None]
        # Near 0 the quotient sin(angle / 2) / angle is 0 / 0, so its Taylor series is used.
        small = angle < 1e-3
        square = angle * angle
        safe = jnp.where(small, 1, angle)
        scale = jnp.where(small, 0.5 - square / 48 + square * square / 3840, lax.sin(safe / 2) / safe)
        return cls(jnp.concatenate([scale * v, lax.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """The identity rotation, or an array of `num` identity rotations."""
        q = np.array([0, 0, 0, 1], dtypes.requested_dtype(dtype, "Rotation.identity"))
        return cls(jnp.asarray(q if num is None else np.tile(q, (num, 1))))

    @classmethod
    def random(cls, random_key: PRNGKey, num: int | None = None) -> Rotation:
        """Uniformly distributed random rotations."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        """Index an array of rotations."""
        if self.single:
            raise ArgumentError(
                "Rotation[]", expected="an array of rotations", got="a single one", fix="check `single` before indexing"
            )
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        """The number of rotations."""
        if self.single:
            raise ArgumentError(
                "len(Rotation)", expected="an array of rotations", got="a single one", fix="check `single` before len"
            )
        return self.quat.shape[0]

    def __mul__(self, other: Rotation) -> Rotation:  # type: ignore[override]
        """Compose two rotations: `other` followed by this one."""
        p, q = promote_inexact("Rotation", self.quat, other.quat)
        if p.ndim != q.ndim:
            p, q = broadcast_operands("Rotation", *align_ranks(p, q))
        return Rotation.from_quat(_hamilton_product(p, q))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotate vectors, float[*s, 3]; with `inverse` by the inverse rotation."""
        v = _check_shape(vectors, "apply", (3,))
        matrix = (self.inv() if inverse else self).as_matrix()
        return jnp.sum(jnp.multiply(*align_ranks(matrix, v[..., None, :])), axis=-1)

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """The Euler angles, float[*s, 3]; the third is 0 in gimbal lock. `seq` is as in `from_euler`."""
        axes, turning = _axes(seq)
        if len(axes) != 3:
            raise ArgumentError(
                "Rotation.as_euler, argument seq",
                expected="3 letters",
                got=repr(seq),
                fix="pass a seq of three axes, such as 'xyz'",
            )
        i, j, k = axes[::-1] if turning else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = _components(self.quat)
        if symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        eps = 1e-7 if self.quat.dtype == np.float64 else 1e-4
        # Gimbal lock: only the sum or the difference of the outer angles is determined.
        near, far = lax.abs(middle) <= eps, lax.abs(middle - math.pi) <= eps
        first, last = half_sum - half_difference, half_sum + half_difference
        if not symmetric:
            last, middle = last * sign, middle - math.pi / 2
        together = jnp.where(near, 2 * half_sum, 2 * half_difference * (1 if turning else -1))
        if turning:
            first, last = last, first
            together = together if symmetric else together * sign
        first, last = jnp.where(near | far, together, first), jnp.where(near | far, 0, last)
        angles = jnp.stack([first, middle, last], -1)
        # Wrapped to [-pi, pi).
        angles = angles - 2 * math.pi * lax.floor((angles + math.pi) / (2 * math.pi))
        return angles * (180 / math.pi) if degrees else angles

    def as_matrix(self) -> Array:
        """The rotation matrices, float[*s, 3, 3]."""
        x, y, z, w = _components(self.quat)
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """The modified Rodrigues parameters, axis times tan(angle / 4) with an angle up to pi, float[*s, 3]."""
        w = self.quat[..., 3:]
        return self.quat[..., :3] * jnp.where(w < 0, -1, 1) / (1 + lax.abs(w))

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """The quaternions, float[*s, 4]; with a positive real part if `canonical`."""
        q = _canonical(self.quat) if canonical else self.quat
        return jnp.concatenate([q[..., 3:], q[..., :3]], -1) if scalar_first else q

    def as_rotvec(self, degrees: bool = False) -> Array:
        """The rotation vectors, axis times an angle up to pi, float[*s, 3]."""
        q = _canonical(self.quat)
        size = _length(q[..., :3])[..., None]
        angle = 2 * jnp.arctan2(size, q[..., 3:])
        small = angle < 1e-3
        square = angle * angle
        scale = jnp.where(small, 2 + square / 12 + 7 * square * square / 2880, angle / jnp.where(small, 1, size))
        return scale * q[..., :3] * (180 / math.pi if degrees else 1)

    def inv(self) -> Rotation:
        """The inverse rotations."""
        return Rotation(jnp.multiply(*align_ranks(self.quat, np.array([-1, -1, -1, 1], self.quat.dtype))))

    def magnitude(self) -> Array:
        """The rotation angles in radians, from 0 to pi."""
        return 2 * jnp.arctan2(_length(self.quat[..., :3]), lax.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The mean of the rotations, weighted by `weights`: the largest eigenvector of the sum of outer products."""
        q = jnp.atleast_2d(self.quat)
        weighted = q if weights is None else q * jnp.asarray(weights)[:, None].astype(q.dtype)
        # q and -q are the same rotation; their outer products agree, so the mean does not depend on the sign.
        products = lax.dot_general(weighted, q, (((0,), (0,)), ((), ())), precision="highest")
        return Rotation(jnp.linalg.eigh(products).eigenvectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is a single rotation and not an array."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Spherical linear interpolation between rotations at given times.

    Args:
      times: the times in ascending order, float[n].
      timedelta: the differences of consecutive times, float[n - 1].
      rotations: the rotations at all times except the last.
      rotvecs: the rotation vectors from each rotation to the next.

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
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """Interpolate an array of rotations, one for each time."""
        (times,) = promote_inexact("Slerp", jnp.asarray(times))
        if rotations.single or len(rotations) < 2 or times.shape != (len(rotations),):
            raise ShapeError(
                "Slerp",
                expected="a time for each of several rotations",
                got=times.shape,
                fix="pass an array of at least two rotations, and one time for each",
            )
        start: Any = rotations[:-1]
        return cls(times, times[1:] - times[:-1], start, (start.inv() * rotations[1:]).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at times between the first and the last, a scalar or float[m]."""
        (at,) = promote_inexact("Slerp", jnp.asarray(times))
        points = jnp.atleast_1d(at)
        last = np.int32(self.timedelta.shape[0] - 1)
        i = lax.clamp(np.int32(0), jnp.searchsorted(self.times, points, side="right").astype(np.int32) - 1, last)
        share = (points - self.times[i]) / self.timedelta[i]
        out = self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * share[:, None])
        return out[0] if at.ndim == 0 else out


_guard_methods(Rotation, "apply as_euler as_matrix __mul__")
__getattr__, __dir__ = _publish(globals())
