"""Private things of JAX that Phalanx has in another form, for the rows of `private_names`.

Each is a few lines over what Phalanx has. What needs more is a feature, and belongs into the package of its subject.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, MutableMapping
from types import FrameType
from typing import Any

import numpy as np

from phalanx import tree
from phalanx.core import RuleError, get_aval, state
from phalanx.core.dtypes import canonicalize_dtype
from phalanx.engine.client import coordinator, process_index, started_clients
from phalanx.engine.traceback_filtering import exclude_file, include_file, is_internal
from phalanx.numpy.operands import promote
from phalanx.spmd.call_arguments import Signature

# JAX's dict of the clients that have started, by platform.
started_backends = started_clients()


def backends_are_initialized() -> bool:
    """Whether a client of a platform has started."""
    return bool(started_backends)


def trace_state_clean() -> bool:
    """Whether no transformation is tracing."""
    return state.trace is None


def supports_inf(dtype: Any) -> bool:
    """Whether a floating dtype has infinities."""
    return bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float32)))


class ExtendedDType:
    """Base of dtypes that a library defines with rules of its own; Phalanx refuses such a dtype where one is used."""


class ExcludedPaths(list[str]):
    """The files whose frames are hidden, as a list that libraries change."""

    def append(self, path: str) -> None:
        super().append(path)
        exclude_file(path)

    def remove(self, path: str) -> None:
        super().remove(path)
        include_file(path)


excluded_paths = ExcludedPaths()
exclude_path = excluded_paths.append


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is shown in tracebacks."""
    return not is_internal(frame.f_code)


class NodeTypes:
    """The registry of pytrees, as far as one asks it whether it contains a class."""

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and tree.is_tree_node(cls)


node_types = NodeTypes()


def flatten_one_level(x: Any) -> tuple[Any, Any]:
    """The children of a pytree node and its auxiliary data; a ValueError for a leaf."""
    if (opened := tree.flatten_one_level(x)) is None:
        raise ValueError(f"{type(x).__name__} is not a pytree node")
    return opened


def infer_argnums_and_argnames(signature: inspect.Signature, argnums: Any, argnames: Any) -> tuple[tuple, tuple]:
    """The positions and names of parameters, completed where only one of them is given, as `jit` does."""

    def parameters() -> None: ...

    parameters.__signature__ = signature  # type: ignore[attr-defined]
    found = Signature(parameters, argnums, argnames)
    return tuple(sorted(found.static_argnums)), tuple(sorted(found.static_argnames))


def promote_dtypes_complex(*args: Any) -> list:
    """The arrays in their common dtype, or in the complex one of its precision."""
    return promote("promote_dtypes_complex", *args, np.complex64(0))[:-1]


class GlobalState:
    """JAX's record of the distributed program of this process."""

    @property
    def client(self) -> Any:
        """The connection to the coordination service, or None if the program is not distributed."""
        found = coordinator()
        return None if found is None else found.client

    @property
    def process_id(self) -> int:
        """The number of this process."""
        return process_index()


global_state = GlobalState()


class CheckpointManagerBase:
    """Base of managers of checkpoints, which a library implements."""


def refuse_remote_hosts(*args: Any, **kwargs: Any) -> Any:
    """Refuse to run Python on the hosts of remote devices.

    Raises:
      RuleError: always; Phalanx controls the devices of its own processes only.
    """
    raise RuleError(
        "jax.experimental.colocated_python",
        expected="devices of the processes that run the program",
        got="a function for the hosts of remote devices",
        fix="start a process on each host, and connect them with distributed.initialize()",
    )


class KernelLanguage:
    """Stands for each thing of which kernels in Pallas are made, so that a library with such kernels can be imported.

    Raises:
      RuleError: it was called. The compilers of Pallas, Mosaic and Triton, are not reached through jaxlib alone.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuleError(
            "jax.experimental.pallas",
            expected="operations of Phalanx, or kernels that are compiled already",
            got="a kernel written in Pallas",
            fix="turn the library's option for Pallas off, or call a compiled kernel through phalanx.ffi.ffi_call",
        )


def cdiv(a: Any, b: Any) -> Any:
    """The quotient, rounded up."""
    return -(-a // b)


class HiType:
    """Base of types of values that a library defines through `jax.experimental.hijax`; see `HiPrim`."""


class HiPrim:
    """Base of operations on such values.

    Raises:
      RuleError: an operation was made. Phalanx traces arrays and references only, so that no such value exists.
    """

    def __init__(self) -> None:
        raise RuleError(
            f"{type(self).__module__}.{type(self).__name__}",
            expected="operations on arrays and references",
            got="one on a type defined through jax.experimental.hijax",
            fix="leave hijax off, or run nnx modules with 'phalanx run --nnx'",
        )


def register_hitype(cls: type, type_of: Callable[[Any], HiType]) -> None:
    """Accept the type of a class of values, which only operations on it would ask for."""


def aval_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method of a `HiType` that its tracers would have."""
    return method


class ArrayTypes(MutableMapping[type, Any]):
    """JAX's tables of host types that operations accept, with a function of a value for each.

    Phalanx accepts subclasses of `numpy.ndarray` without registration, and other objects by their `__jax_array__`,
    which a registered class gets.
    """

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handlers: dict[type, Any] = {np.ndarray: handler}

    def __getitem__(self, kind: type) -> Any:
        return self._handlers[kind]

    def __setitem__(self, kind: type, handler: Any) -> None:
        if not issubclass(kind, np.ndarray) and not hasattr(kind, "__jax_array__"):
            kind.__jax_array__ = lambda self: np.asarray(self)  # type: ignore[attr-defined]
        self._handlers[kind] = handler

    def __delitem__(self, kind: type) -> None:
        del self._handlers[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


aval_mappings = ArrayTypes(get_aval)
canonicalize_handlers = ArrayTypes(lambda x: np.asarray(x, canonicalize_dtype(x.dtype)))
