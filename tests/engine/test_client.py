import os
import subprocess
import sys

import pytest
from tests.processes import run_python

from phalanx.engine import client


def test_the_devices_are_those_of_the_environment():
    assert len(client.devices("cpu")) == client.device_count("cpu") == 8
    assert client.devices("cpu") == client.local_devices(backend="cpu")
    assert client.local_devices(process_index=0, backend="cpu") == client.devices("cpu")
    assert client.local_device_count("cpu") == 8
    assert (client.process_index("cpu"), client.process_count("cpu"), client.process_indices("cpu")) == (0, 1, [0])


def test_a_change_after_the_start_says_so():
    client.devices("cpu")
    with pytest.raises(client.BackendError) as error:
        client.configure(num_cpu_devices=3)
    assert str(error.value) == (
        "config.num_cpu_devices: expected to be set before the first array, device look-up or compilation, "
        "got 3 after the devices were started.\n"
        "  Fix: set it at the top of the program, or in the environment as PHALANX_NUM_CPU_DEVICES."
    )


def test_the_number_that_is_in_force_may_be_set_again():
    client.devices("cpu")
    client.configure(num_cpu_devices=8)


def test_the_platforms_in_force_may_be_set_again_after_a_look_at_the_devices():
    code = "import phalanx; d = phalanx.devices(); phalanx.device_put(1.0); phalanx.config.update('platforms', 'cpu'); print(d)"
    environment = {"PYTHONPATH": ":".join(sys.path), "PHALANX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[CpuDevice(id=0)]\n", done.stderr


def test_unknown_platforms_and_processes_are_errors():
    with pytest.raises(client.BackendError) as error:
        client.devices("abacus")
    assert str(error.value) == ("platform: expected one of ['cpu', 'cuda'], got 'abacus'.\n  Fix: name one of these.")
    with pytest.raises(client.BackendError) as error:
        client.local_devices(process_index=7, backend="cpu")
    assert str(error.value) == (
        "local_devices, process_index: expected one of [0], got 7.\n"
        "  Fix: leave process_index out to list the devices of this process."
    )


@pytest.mark.parametrize(
    "environment, before, expected",
    [
        ({}, "", "1"),
        ({"PHALANX_NUM_CPU_DEVICES": "3"}, "", "3"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, "", "4"),
        ({"PHALANX_NUM_CPU_DEVICES": "3"}, "client.configure(num_cpu_devices=5)", "5"),
        ({"PHALANX_NUM_CPU_DEVICES": "many"}, "", "PHALANX_NUM_CPU_DEVICES: expected a positive whole number"),
        ({"PHALANX_PLATFORMS": "cpu"}, "", "1"),
    ],
)
def test_the_number_of_devices_can_be_chosen(environment, before, expected):
    code = f"from phalanx.engine import client\n{before}\nprint(client.device_count())"
    environment = {"PYTHONPATH": ":".join(sys.path), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert expected in done.stdout + done.stderr


def test_a_platform_that_is_not_there_says_what_is_missing():
    try:
        client.devices("gpu")
    except client.BackendError as error:
        text = str(error)
    else:
        pytest.skip("there is a GPU")
    assert text.startswith("the platform cuda: expected XLA's CUDA plugin and a GPU that it can use, got ")
    assert text.endswith("Fix: install phalanx[cuda13] and look at nvidia-smi, or name the platform cpu.")


def test_a_plugin_without_a_gpu_is_a_warning_unless_it_was_asked_for(tmp_path):
    plugin = tmp_path / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"no shared object")
    kernels = tmp_path / "jax_cuda13_plugin" / "__init__.py"

    def run(code, **environment):
        environment |= {"PYTHONPATH": ":".join([str(tmp_path), *sys.path])}
        code = f"from phalanx.engine import client\n{code}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    # The plugin alone is installed for plans, on machines without a GPU.
    assert run("print(client.default_backend())") == "cpu\n"
    kernels.parent.mkdir()
    kernels.touch()
    text = run("print(client.default_backend())")
    assert "RuntimeWarning: cuda is installed but not used: the platform cuda: expected" in text
    assert text.endswith("cpu\n") or "cpu\n" in text
    assert "BackendError" in run("client.devices()", PHALANX_PLATFORMS="cuda,cpu")
    assert "BackendError" in run("client.devices('cuda')")
    assert run("print(client.devices('cpu'))") == "[CpuDevice(id=0)]\n"


def test_a_number_of_devices_out_of_range_is_refused_at_once():
    for code, number in (("", 100_000), ("client.configure(num_cpu_devices=0)", 8)):
        environment = {"PYTHONPATH": ":".join(sys.path), "PHALANX_NUM_CPU_DEVICES": str(number)}
        code = f"from phalanx.engine import client\n{code}\nclient.devices('cpu')"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30)
        assert "expected at least 1 and at most 16384 virtual CPU devices, got" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_gets_an_error_and_does_not_wait_for_threads_of_its_parent():
    text = run_python(
        """
        import os, warnings
        from phalanx.engine.client import BackendError
        import numpy as np
        import phalanx, phalanx.numpy as jnp
        warnings.simplefilter("ignore")
        f, x = phalanx.jit(lambda x: x * 2), jnp.arange(8.0)
        f(x), x + 1, np.asarray(x)
        compiled = f.lower(x).compile()
        for _ in range(3):
            compiled(x)
        child = os.fork()
        if not child:
            for use in (lambda: f(x), lambda: compiled(x), lambda: x + 1, lambda: jnp.ones(3), phalanx.devices, lambda: phalanx.grad(f)(1.0)):
                try:
                    use()
                except BackendError as error:
                    message = str(error)
                    print(message.split(":")[0])
            print(message)
            print(np.asarray(x).sum(), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], f(x).sum(), flush=True)
        """
    )
    assert text == (
        "use of devices in a forked process\n"
        * 6
        + "use of devices in a forked process: expected a process that starts devices of its own, got one forked after its "
        "parent had started them, whose threads it lacks, so that it would wait for ever.\n"
        "  Fix: start processes with multiprocessing.get_context('spawn'), or fork before the first array is made.\n"
        "28.0\n0 56.0\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_does_not_wait_for_locks_that_threads_of_its_parent_hold():
    text = run_python(
        """
        import os, threading, warnings
        import phalanx, phalanx.numpy as jnp
        from phalanx.engine import cache, client
        from phalanx.engine.buffer_deletion import begin_read
        from phalanx.runtime import in_flight
        warnings.simplefilter("ignore")
        x, ref, f = jnp.arange(8.0), phalanx.new_ref(jnp.zeros(3)), phalanx.jit(lambda ref: ref[...])
        rows = phalanx.device_put(x, phalanx.NamedSharding(phalanx.make_mesh((8,), ("a",)), phalanx.P("a")))
        table = cache.Cache("tests.fork", 8)
        held, forked = threading.Event(), threading.Event()

        def hold():
            with in_flight._start_lock, in_flight._pending_lock, cache._registry_lock, table._lock, ref.turn:
                begin_read(id(rows._buffer))
                held.set()
                forked.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if not child:
            x.delete(), rows.delete(), phalanx.effects_barrier(), phalanx.jit(lambda x: x)
            table.get_or_make(1, object)
            print(x.is_deleted(), rows.is_deleted())
            try:
                f(ref)
            except client.BackendError as error:
                print(str(error).split(":")[0], flush=True)
            os._exit(0)
        forked.set()
        print(os.waitpid(child, 0)[1], flush=True)
        """
    )
    assert text == "True True\nuse of devices in a forked process\n0\n"
