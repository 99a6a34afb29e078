"""Rotations in space, with the names of `scipy.spatial`."""

from phalanx.scipy.spatial import transform as transform
