"""Abstract values, programs, primitives, traces, dtypes, dimensions, errors and options, shared by every room above."""
