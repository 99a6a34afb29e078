"""The coordination service of a distributed program, in a separate process.

jaxlib ends every process of a program, in C++, when the service vanishes. It therefore runs in no process of the
program: `start` runs it in a child, which outlives its parent for as long as a process of the program is connected.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Any

from jaxlib import _jax

from phalanx.engine.child_process import start_child
from phalanx.engine.error_record import CoordinationError
from phalanx.engine.tcp_sockets import connections

# Seconds that mean never. jaxlib's reaction to a process that misses heartbeats, or comes late, is to end the others.
NEVER = 7 * 24 * 3600
_READY = "ready"


def host_and_port(address: str) -> tuple[str, int]:
    """Split an address, with or without brackets around an IPv6 host.

    Args:
      address: `"host:port"`.

    Returns:
      The host and the port.

    Raises:
      CoordinationError: there is no port, or none from 1 to 65535.

    Examples:
      >>> host_and_port("[::1]:80")
      ('::1', 80)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise CoordinationError(
            "distributed.initialize, coordinator_address",
            expected="a host and a port, such as '10.0.0.1:6000'",
            got=repr(address),
            fix="append the port on which process 0 is to listen, from 1 to 65535",
        )
    return host.strip("[]"), int(port)


def start(address: str, num_processes: int) -> subprocess.Popen[bytes]:
    """Start the service in a child process.

    Args:
      address: the host and port to listen on, as `"host:port"`.
      num_processes: the number of processes of the program.

    Returns:
      The child. It ends when its standard input is closed, as it is when this process ends, and the processes of the
      program have disconnected.

    Raises:
      CoordinationError: the service cannot listen on this address.
    """
    # Warnings of the service are about the settings that are chosen here on purpose. Ctrl-C does not end it.
    child = start_child(__name__, address, str(num_processes), environ={"TF_CPP_MIN_LOG_LEVEL": "2"}, new_session=True)
    assert child.stdout is not None and child.stderr is not None
    if child.stdout.readline().decode().strip() != _READY:
        lines = child.communicate()[1].decode().strip().splitlines()
        raise CoordinationError(
            "distributed.initialize, coordinator_bind_address",
            expected="an address of this machine with a free port",
            got=f"{address}: {lines[-1] if lines else 'the service ended'}",
            fix="choose another port, the same one in all processes",
        )
    return child


def main(address: str, num_processes: str) -> None:
    """Run the service until standard input is closed and no process is connected any more."""
    host, port = host_and_port(address)
    _check_free(host, port)
    service: Any = _jax.get_distributed_runtime_service(
        address,
        int(num_processes),
        heartbeat_timeout=NEVER,
        cluster_register_timeout=NEVER,
        shutdown_timeout=1,
        recoverable=True,  # The loss of a process must not end the others.
    )
    print(_READY, flush=True)
    sys.stdin.read()
    while any(True for _ in connections([port])):
        time.sleep(0.2)
    service.shutdown()


def _check_free(host: str, port: int) -> None:
    """Raise an OSError if a port is taken, since gRPC would share it silently with another program's service."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended a moment ago do not count
        probe.bind((host, port))
