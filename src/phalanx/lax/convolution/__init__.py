"""Convolutions: the primitive, the public functions, and dimension numbers."""
