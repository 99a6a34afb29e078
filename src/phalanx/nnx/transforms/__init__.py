"""Transformations of functions of modules: `jit`, `grad`, `vmap`, `scan` and others."""
