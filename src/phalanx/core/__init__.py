"""Abstract values, programs, primitives, traces, dtypes, dimensions, errors and options: what every room above shares."""
