"""Platforms and their devices: one PJRT client per platform, started when its devices are first needed.

The CPU is always available; a GPU is if the package with its PJRT plugin is installed. `configure` must be called
before the first client starts.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

from jaxlib import _jax
from jaxlib._jax import Client as Client, Device as Device, DeviceList as DeviceList

from phalanx.engine import cuda
from phalanx.engine.environment_variables import option_variables, read_option_variable
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.forked_processes import in_forked_process
from phalanx.engine.runtime_errors import XlaRuntimeError

if TYPE_CHECKING:  # A process alone needs no module for the connection to others.
    from phalanx.engine.coordination import Coordinator

F = TypeVar("F", bound=Callable[..., Any])


class BackendError(PhalanxError, RuntimeError):
    """A platform is unknown, could not be started, or was configured too late.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.devices("abacus")
      ... except BackendError as error:
      ...     print(error.got)
      'abacus'
    """


class Cluster(NamedTuple):
    """The position of this process among the processes of a distributed program.

    Args:
      coordinator: the connection to the coordination service.
      collectives: jaxlib's CPU collectives.
      local_device_ids: the GPUs of the machine that this process uses; None for all that it sees.
    """

    coordinator: Coordinator
    collectives: Any
    local_device_ids: tuple[int, ...] | None = None


class Settings(NamedTuple):
    """The settings with which clients are started.

    Args:
      num_cpu_devices: virtual CPU devices of this process; None reads the environment, whose default is 1.
      platforms: the platforms that may be used, the default one first; None allows all that are found.
      cluster: the distributed program of this process, if any.
    """

    num_cpu_devices: int | None = None
    platforms: tuple[str, ...] | None = None
    cluster: Cluster | None = None


def platform_name(platform: str) -> str:
    """The name under which the engine and StableHLO know a platform: that of "gpu" is "cuda".

    Args:
      platform: such as "cpu" or "gpu".

    Returns:
      The name.

    Examples:
      >>> platform_name("gpu"), platform_name("cpu")
      ('cuda', 'cpu')
    """
    return "cuda" if platform == "gpu" else platform


class _Clients:
    """The started clients by platform, and the settings that hold until the first one starts."""

    settings = Settings()
    started: ClassVar[dict[str, Client]] = {}
    default: str | None = None
    lock = threading.RLock()
    left_in_parent: ClassVar[dict[str, Client]] = {}  # of a forked process, which lacks their threads
    abandoned: ClassVar[list[tuple]] = []  # of distributed programs that have failed


def is_forked() -> bool:
    """Whether this process was forked from one that had started clients, and cannot use any."""
    return bool(_Clients.left_in_parent)


def check_not_forked() -> None:
    """Raise a `BackendError` in a process that was forked after clients had started."""
    if is_forked():
        raise BackendError(
            "use of devices in a forked process",
            expected="a process that starts devices of its own",
            got="one forked after its parent had started them, whose threads it lacks, so that it would wait for ever",
            fix="start processes with multiprocessing.get_context('spawn'), or fork before the first array is made",
        )


def _check_main_interpreter() -> None:
    """Raise a `BackendError` in a sub-interpreter of Python, where jaxlib's compiler would wait for ever."""
    interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    if interpreters.get_current() != interpreters.get_main():
        raise BackendError(
            "use of devices in a sub-interpreter",
            expected="the main interpreter of the process, the only one that jaxlib supports",
            got="another interpreter of the same process",
            fix="use threads, or processes from multiprocessing.get_context('spawn')",
        )


@in_forked_process
def _leave_in_parent() -> None:
    # The clients are kept, because their destructors would wait for the threads, too.
    _Clients.left_in_parent.update(_Clients.started)
    _Clients.started.clear()
    _Clients.lock = threading.RLock()  # Another thread of the parent may have held it.


def started_clients() -> Mapping[str, Client]:
    """View the clients that have been started, by platform."""
    return MappingProxyType(_Clients.started)


def configure(**changes: Any) -> None:
    """Change the settings with which clients are started.

    Args:
      **changes: fields of `Settings`.

    Raises:
      BackendError: a client has been started with another value, or the number of devices is out of range.
    """
    with _Clients.lock:
        settings = _Clients.settings._replace(**changes)
        if settings == _Clients.settings:
            return
        if settings.num_cpu_devices is not None:
            _check_num_devices("num_cpu_devices", settings.num_cpu_devices)
        for name in changes:
            _check_changeable(name, getattr(settings, name))
        _Clients.settings = settings


def _check_changeable(name: str, value: Any) -> None:
    """Raise if a change would come too late for a client that is started already."""
    too_late = "cpu" in _Clients.started if name == "num_cpu_devices" else bool(_Clients.started)
    if not too_late or value == getattr(_Clients.settings, name):
        return
    # Setting the value that is in effect is allowed, so that a library may set options that its user has set already.
    if (name == "num_cpu_devices" and value == _Clients.started["cpu"].local_device_count()) or (
        name == "platforms" and value == _allowed_platforms()
    ):
        return
    raise BackendError(
        f"config.{name}",
        expected="to be set before the first array, device look-up or compilation",
        got=f"{value!r} after the devices were started",
        fix=f"set it at the top of the program, or in the environment as PHALANX_{name.upper()}",
    )


def _env_int(name: str) -> int | None:
    text = read_option_variable(name)
    if not text or text == "-1":
        return None
    if not text.isdigit() or int(text) < 1:
        variable, _ = option_variables(name)
        raise BackendError(
            variable, expected="a positive whole number", got=repr(text), fix=f"unset {variable} or give a number"
        )
    _check_num_devices(option_variables(name)[0], int(text))
    return int(text)


_MAX_CPU_DEVICES = 1 << 14


def _check_num_devices(where: str, number: int) -> None:
    """Refuse numbers that the engine would take minutes to start, or cannot represent."""
    if not 1 <= number <= _MAX_CPU_DEVICES:
        raise BackendError(
            where,
            expected=f"at least 1 and at most {_MAX_CPU_DEVICES} virtual CPU devices",
            got=number,
            fix="lower a program for more devices than that over an AbstractMesh",
        )


def _start_cpu(settings: Settings) -> Client:
    """Start the CPU client; with no number given, jaxlib itself reads it from XLA_FLAGS."""
    options: dict[str, Any] = {"num_devices": settings.num_cpu_devices or _env_int("num_cpu_devices")}
    if settings.cluster is not None:
        options |= {
            "distributed_client": settings.cluster.coordinator.client,
            "node_id": settings.cluster.coordinator.process_id,
            "num_nodes": settings.cluster.coordinator.num_processes,
            "collectives": settings.cluster.collectives,
        }
    # Asynchronous, so that the host can trace and start further programs while the CPU devices compute.
    return _jax.get_tfrt_cpu_client(asynchronous=True, **{k: v for k, v in options.items() if v is not None})


def _start_cuda(settings: Settings) -> Client:
    try:
        return cuda.start(settings.cluster)
    except (FileNotFoundError, XlaRuntimeError) as error:
        raise BackendError(
            "the platform cuda",
            expected="XLA's CUDA plugin and a GPU that it can use",
            got=str(error),
            fix="install phalanx[cuda13] and look at nvidia-smi, or name the platform cpu",
        ) from error


def abandon_clients() -> None:
    """Forget the clients of a distributed program that has failed, so that another one may be started."""
    with _Clients.lock:
        # They are kept, because their destructors would wait for collectives that cannot end.
        _Clients.abandoned.append((_Clients.settings.cluster, dict(_Clients.started)))
        _Clients.started.clear()
        _Clients.default = None
        _Clients.settings = _Clients.settings._replace(cluster=None)


def coordinator() -> Coordinator | None:
    """The connection of this process to the other processes of its distributed program; None if it is alone."""
    cluster = _Clients.settings.cluster
    return None if cluster is None else cluster.coordinator


def start_all_platforms() -> None:
    """Start the clients of all allowed platforms, which in a distributed program all processes must do together."""
    default_backend()
    for platform in _allowed_platforms():
        if platform == "cpu" or platform == default_backend():
            client(platform)


_STARTERS: dict[str, Callable[[Settings], Client]] = {"cuda": _start_cuda, "cpu": _start_cpu}


def _env_platforms() -> str | None:
    return read_option_variable("platforms", "platform_name")


def _allowed_platforms() -> tuple[str, ...]:
    named = _Clients.settings.platforms
    if named is None:
        named = tuple(p.strip() for p in (_env_platforms() or "").split(",") if p.strip())
    return tuple(map(platform_name, named)) or (("cuda", "cpu") if cuda.runs_programs() else ("cpu",))


def default_backend() -> str:
    """The name of the default platform: the first allowed platform that starts.

    Returns:
      "cpu" or "cuda".

    Raises:
      BackendError: a platform that the user named does not start.

    Examples:
      >>> default_backend() in ("cpu", "cuda")
      True
    """
    if _Clients.default is None:
        with _Clients.lock:
            _Clients.default = _find_default()
    return _Clients.default


def _find_default() -> str:
    platforms = _allowed_platforms()
    # A GPU plugin may be installed on a machine without a GPU; only a platform that the user named must start.
    for platform in platforms[:-1]:
        try:
            client(platform)
        except BackendError as error:
            if _Clients.settings.platforms is not None or _env_platforms():
                raise  # The user asked for this platform by name.
            warnings.warn(f"{platform} is installed but not used: {error}", RuntimeWarning, stacklevel=2)
            continue
        return platform
    client(platforms[-1])
    return platforms[-1]


def client(platform: str | None = None) -> Client:
    """Return the client of a platform, which is started if necessary.

    Args:
      platform: "cpu", "cuda" (or "gpu"); None for the default one.

    Returns:
      jaxlib's client.

    Raises:
      BackendError: the platform is unknown, not allowed, or its plugin is not installed.
    """
    name = default_backend() if platform is None else platform_name(platform)
    started = _Clients.started.get(name)
    if started is not None:
        return started
    # Checked again under the lock: another thread may have started the client meanwhile.
    with _Clients.lock:
        if name not in _Clients.started:
            if name not in _STARTERS:
                raise BackendError(
                    "platform", expected=f"one of {sorted(_STARTERS)}", got=repr(platform), fix="name one of these"
                )
            check_not_forked()
            _check_main_interpreter()
            _Clients.started[name] = _STARTERS[name](_Clients.settings)
        return _Clients.started[name]


# While a function is exported: called with the name and the result of each function below that lists or counts.
count_observer: ContextVar[Callable[[str, Any], Any] | None] = ContextVar("count_observer", default=None)


def _observed(function: F) -> F:
    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        found, observe = function(*args, **kwargs), count_observer.get()
        return found if observe is None else observe(function.__name__, found)

    return cast(F, observed)


@_observed
def devices(backend: str | None = None) -> list[Device]:
    """List the devices of a platform, over all processes, by id.

    Args:
      backend: "cpu", "cuda" (or "gpu"); None for the default platform.

    Returns:
      jaxlib's device objects.

    Examples:
      >>> devices("cpu")[0].platform
      'cpu'
    """
    return client(backend).devices()


@_observed
def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """List the devices that belong to one process.

    Args:
      process_index: the process; None for this one.
      backend: the platform; None for the default one.
      host_id: the older name of `process_index`.

    Returns:
      jaxlib's device objects.

    Raises:
      BackendError: there is no such process.

    Examples:
      >>> local_devices(backend="cpu") == local_devices(process_index(), "cpu")
      True
    """
    wanted = host_id if process_index is None else process_index
    if wanted is None:
        return client(backend).local_devices()
    if wanted not in process_indices(backend):
        raise BackendError(
            "local_devices, process_index",
            expected=f"one of {process_indices(backend)}",
            got=wanted,
            fix="leave process_index out to list the devices of this process",
        )
    return [device for device in devices(backend) if device.process_index == wanted]


@_observed
def device_count(backend: str | None = None) -> int:
    """Count the devices of a platform over all processes.

    Args:
      backend: as in `devices`.

    Returns:
      The number of devices.

    Examples:
      >>> device_count() == len(devices())
      True
    """
    return client(backend).device_count()


@_observed
def local_device_count(backend: str | None = None) -> int:
    """Count the devices of a platform that belong to this process.

    Args:
      backend: as in `devices`.

    Returns:
      The number of devices.

    Examples:
      >>> local_device_count() == len(local_devices())
      True
    """
    return client(backend).local_device_count()


def process_index(backend: str | None = None) -> int:
    """Return the index of this process, 0 if there is only one.

    Args:
      backend: as in `devices`.

    Returns:
      A number below `process_count()`.

    Examples:
      >>> process_index() in process_indices()
      True
    """
    return client(backend).process_index()


def process_indices(backend: str | None = None) -> list[int]:
    """List the indices of the processes that have devices of a platform.

    Args:
      backend: as in `devices`.

    Returns:
      The indices, sorted.

    Examples:
      >>> process_indices() == sorted({device.process_index for device in devices()})
      True
    """
    return sorted({device.process_index for device in devices(backend)})


@_observed
def process_count(backend: str | None = None) -> int:
    """Count the processes that have devices of a platform.

    Args:
      backend: as in `devices`.

    Returns:
      The number of processes; 1 if the program is not distributed.

    Examples:
      >>> process_count() == len(process_indices())
      True
    """
    return len(process_indices(backend))


# Former names of these functions, from when processes were called hosts.
host_count, host_id, host_ids = process_count, process_index, process_indices
