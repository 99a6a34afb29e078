"""The TCP connections of this process, found among its open files.

The C++ libraries of jaxlib open connections of their own and offer no way to list or close them. Works on Linux; on
other systems no connection is found.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Collection, Iterator

_OPEN_FILES = "/proc/self/fd"


def own_sockets() -> Iterator[socket.socket]:
    """Duplicates of the TCP sockets of this process, each closed when the next one is asked for."""
    if not os.path.isdir(_OPEN_FILES):
        return
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # closed since it was listed
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found


def listening_ports() -> set[int]:
    """The ports on which this process accepts connections."""
    return {s.getsockname()[1] for s in own_sockets() if s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)}


def connections(ports: Collection[int]) -> Iterator[socket.socket]:
    """The connections of which one end has one of these ports."""
    for found in own_sockets():
        with contextlib.suppress(OSError):  # not connected
            if {found.getsockname()[1], found.getpeername()[1]} & set(ports):
                yield found


def cut_connections(ports: Collection[int]) -> None:
    """Shut down the connections of which one end has one of these ports; threads that wait on them get an error."""
    for found in connections(ports):
        with contextlib.suppress(OSError):  # closed by the peer meanwhile
            found.shutdown(socket.SHUT_RDWR)
