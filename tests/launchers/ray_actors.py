"""Two actors of Ray that train as the processes of one program: `ray_actors.py FOLDER`."""

import os
import socket
import sys

import ray
from tests.launchers import train

NUM_PROCESSES = 2


@ray.remote(num_cpus=1)
class Worker:
    """A process of the program."""

    def choose_address(self) -> str:
        """An address at which the other processes reach this one."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"

    def train(self, folder: str, address: str, process: int) -> None:
        """Run the training script."""
        train.main(folder, address, NUM_PROCESSES, process)


def main(folder: str) -> None:
    ray.init(
        num_cpus=NUM_PROCESSES,
        include_dashboard=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
    )
    workers = [Worker.remote() for _ in range(NUM_PROCESSES)]
    address = ray.get(workers[0].choose_address.remote())
    ray.get([worker.train.remote(folder, address, process) for process, worker in enumerate(workers)])
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
