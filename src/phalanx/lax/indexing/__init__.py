"""Slices, padding, gather and scatter."""
