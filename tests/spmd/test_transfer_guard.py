"""Guards against transfers that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, TransferError
from phalanx.sharding import Mesh, NamedSharding, P, make_mesh

HOST = np.arange(8, dtype=np.float32)


@pytest.fixture
def add_one():
    f = phalanx.jit(lambda x: x + 1)
    f(HOST)
    return f


def test_disallow_forbids_implicit_transfers_to_devices(add_one):
    with phalanx.transfer_guard("disallow"), pytest.raises(TransferError) as error:
        add_one(HOST)
    assert str(error.value) == (
        "host-to-device transfer: expected no such transfer, since a guard forbids it, got aval=ShapedArray(float32[8]), "
        "dst_sharding=SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device).\n"
        '  Fix: transfer the data with device_put if the guard is "disallow", or allow it with transfer_guard("allow").'
    )
    with phalanx.transfer_guard("disallow"), pytest.raises(RuntimeError, match="host-to-device"):
        jnp.sin(HOST)
    add_one(HOST)


def test_disallow_permits_explicit_transfers(add_one):
    mesh = make_mesh((8,), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    moves = [
        lambda: phalanx.device_put(HOST),
        lambda: phalanx.device_put(HOST, sharding),
        lambda: phalanx.device_put(jnp.zeros(8), phalanx.devices()[1]),
        lambda: phalanx.device_put_replicated(HOST, phalanx.devices()[:2]),
        lambda: phalanx.device_put_sharded([HOST, HOST], phalanx.devices()[:2]),
        lambda: phalanx.make_array_from_callback((8,), sharding, lambda index: HOST[index]),
    ]
    for move in moves:
        with phalanx.transfer_guard("disallow"):
            add_one(phalanx.device_put(move()))
        with phalanx.transfer_guard("disallow_explicit"), pytest.raises(TransferError):
            move()
    x = phalanx.device_put(HOST)
    with phalanx.transfer_guard("disallow"):
        np.testing.assert_array_equal(phalanx.device_get(add_one(x)), HOST + 1)


def test_disallow_forbids_implicit_transfers_between_devices():
    x = phalanx.device_put(HOST)
    there = phalanx.sharding.SingleDeviceSharding(phalanx.devices()[3])
    f = phalanx.jit(lambda x: x, in_shardings=there)
    f(x)
    with phalanx.transfer_guard_device_to_device("disallow"), pytest.raises(TransferError, match="device-to-device"):
        f(jnp.zeros(8))
    with phalanx.transfer_guard_host_to_device("disallow"):
        f(jnp.zeros(8))


def test_the_innermost_guard_applies(add_one):
    with phalanx.transfer_guard("disallow"):
        with phalanx.transfer_guard_host_to_device("allow"):
            add_one(HOST)
            with phalanx.transfer_guard("disallow"), pytest.raises(TransferError):
                add_one(HOST)
            add_one(HOST)
        with pytest.raises(TransferError):
            add_one(HOST)


@phalanx.transfer_guard("disallow")
def guarded(f):
    f(HOST)


def test_a_guard_is_also_a_decorator(add_one):
    with pytest.raises(TransferError):
        guarded(add_one)


def test_a_guard_is_thread_local_and_the_option_is_global(add_one):
    failures = []

    def call():
        try:
            add_one(HOST)
        except TransferError as error:
            failures.append(error)

    def in_thread():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return len(failures)

    with phalanx.transfer_guard("disallow"):
        assert in_thread() == 0
    phalanx.config.update("transfer_guard", "disallow")
    try:
        assert in_thread() == 1
        assert phalanx.config.transfer_guard_host_to_device == "disallow"
        with phalanx.transfer_guard("allow"):
            add_one(HOST)
    finally:
        phalanx.config.update("transfer_guard", None)
    assert in_thread() == 1


def test_constants_of_a_program_may_be_transferred_under_a_guard():
    table = np.arange(2000, dtype=np.float32)
    x = jnp.ones(2000)
    with phalanx.transfer_guard("disallow"):
        y = phalanx.jit(lambda x: x + table)(x)
    np.testing.assert_array_equal(y, table + 1)


def test_an_unknown_guard_level_is_an_error():
    with pytest.raises(ArgumentError) as error:
        phalanx.transfer_guard("forbid")
    assert str(error.value) == (
        "option transfer_guard: expected one of None, 'allow', 'log', 'disallow', 'log_explicit', 'disallow_explicit', "
        "got 'forbid'.\n"
        "  Fix: for example, config.update('transfer_guard', 'disallow_explicit')."
    )


def test_the_environment_sets_guards():
    program = (
        "import numpy as np, phalanx\n"
        "try: phalanx.jit(lambda x: x)(np.ones(3))\n"
        "except RuntimeError as error: print(type(error).__name__)"
    )
    environment = {**os.environ, "PHALANX_TRANSFER_GUARD": "disallow", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "TransferError\n", done.stderr


def test_arrays_that_pass_the_host_between_devices_are_not_host_data():
    devices = phalanx.devices()
    one = Mesh(np.array(devices[:4]).reshape(2, 2), ("x", "y"))
    other = Mesh(np.array(devices[3::-1]).reshape(2, 2), ("x", "y"))
    x = phalanx.device_put(HOST.reshape(4, 2), NamedSharding(one, P("x", "y")))
    with phalanx.transfer_guard("disallow_explicit"):
        y = phalanx.device_put(x, NamedSharding(other, P("x")))
        with pytest.raises(TransferError):
            phalanx.device_put(HOST)
    np.testing.assert_array_equal(y, x)


def test_a_transfer_to_other_devices_is_one_wherever_it_passes():
    devices = phalanx.devices()
    one, other = (Mesh(np.array(part).reshape(2, 2), ("x", "y")) for part in (devices[:4], devices[4:]))
    x = phalanx.device_put(HOST.reshape(4, 2), NamedSharding(one, P("x", "y")))
    for spec in (P("x", "y"), P("y", "x")):
        with phalanx.transfer_guard("disallow_explicit"), pytest.raises(TransferError):
            phalanx.device_put(x, NamedSharding(other, spec))
    # Another shape of a mesh of the same devices may only reorder shards.
    flat = Mesh(np.array(devices[:4]).reshape(4, 1), ("x", "y"))
    with phalanx.transfer_guard("disallow_explicit"):
        phalanx.device_put(phalanx.device_put(x, NamedSharding(flat, P("x"))), NamedSharding(one, P(("y", "x"))))
