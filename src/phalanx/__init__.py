"""SPMD array programming for Python: the public face, which loads each name on first use."""
