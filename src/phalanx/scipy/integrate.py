"""Integrals with the names of `scipy.integrate`."""

from phalanx.numpy.calculus import trapezoid as trapezoid
