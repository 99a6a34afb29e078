"""Finding and cutting the TCP connections of this process."""

import socket
import sys

import pytest

from phalanx.engine.tcp_sockets import connections, cut_connections, listening_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed on Linux only")


def test_a_connection_is_found_by_its_port_and_a_thread_that_waits_on_it_is_woken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in listening_ports()
        assert list(connections([port])) == []  # a listener is no connection
        with socket.create_connection(("127.0.0.1", port)) as one, server.accept()[0] as other:
            assert len(list(connections([port]))) == 2
            cut_connections([port])
            one.settimeout(10)
            assert one.recv(1) == b"" and other.recv(1) == b""
            cut_connections([port])  # Connections that are shut down already are no error.
    assert port not in listening_ports()
