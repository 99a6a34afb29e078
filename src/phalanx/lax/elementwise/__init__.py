"""Elementwise operations: tables of primitives with their derivatives, and the public functions."""
