"""The constants of a program: small ones become part of its text, large ones are passed to it as leading inputs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from phalanx.core import Jaxpr, Tracer, config, get_aval, leak_error, select_flagged, select_unflagged
from phalanx.engine import client, compilation_cache, explicit_transfer
from phalanx.runtime.array import Array

# A constant of the jaxpr of more elements becomes an argument of the program; a smaller one becomes part of its text,
# where XLA can fold it and calls need not pass it.
INLINE_CONSTANT_SIZE = 256


def hoist_constants(program: Jaxpr) -> tuple[Jaxpr, list]:
    """The jaxpr with its large constants as leading inputs, and the values of these."""
    if not program.constvars:
        return program, []
    if (leaked := next((c for c in program.consts if isinstance(c, Tracer)), None)) is not None:
        raise leak_error(leaked)
    # Arrays are passed where the text of the program decides whether another process has the same one, or whether the
    # cache on disk has it: their values may differ from process to process and from run to run.
    inlines_arrays = client.coordinator() is None and compilation_cache.settings().directory is None
    large = [not is_inlined(c, inlines_arrays) for c in program.consts]
    with explicit_transfer():  # As for the large ones: a transfer guard must not refuse what a function closes over.
        for constant in select_unflagged(program.consts, large):
            np.asarray(constant)  # An array keeps the value that it read.
    return program.hoist_some(large), select_flagged(program.consts, large)


def is_inlined(constant: Any, inlines_arrays: bool) -> bool:
    """Whether a constant becomes part of the text of the program."""
    if type(constant) is Array:
        # The elements of keys are not numbers, and reading a sharded array means to assemble it.
        is_allowed = inlines_arrays and constant._type.has_plain_buffer
    else:
        is_allowed = isinstance(constant, np.ndarray)
    return is_allowed and constant.size <= INLINE_CONSTANT_SIZE


def warn_of_large_constants(constants: list, name: str) -> None:
    """Warn of constants of more bytes than the option `captured_constants_warn_bytes` allows."""
    limit = config.captured_constants_warn_bytes
    total = sum(c.nbytes for c in constants)
    if 0 <= limit < total:
        largest = ", ".join(get_aval(c).str_short() for c in sorted(constants, key=lambda c: -c.nbytes)[:3])
        warnings.warn(
            f"{name} closes over constants of {total} bytes in all, the largest of them {largest}, which each of its "
            "programs holds; pass them as arguments, or set captured_constants_warn_bytes to a larger number",
            UserWarning,
            stacklevel=2,
        )
