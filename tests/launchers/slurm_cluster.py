"""Slurm on this machine alone, run by the user of the tests: its daemons live in a folder and use free ports."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 60.0

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start the daemons, and end them afterwards.

    Args:
      folder: where their files go; its path is short, since that of a Unix socket is.

    Yields:
      The environment for `srun` and the other commands.

    Raises:
      RuntimeError: the node does not become ready.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    (controller_port, node_port), user = _free_ports(2), os.environ.get("USER", "root")
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            controller_port=controller_port,
            node_port=node_port,
            user=user,
            folder=folder,
            cpus=os.cpu_count(),
        )
    )
    munge = [
        f"--{option}-file={folder}/munge.{end}" for option, end in (("log", "log"), ("pid", "pid"), ("seed", "seed"))
    ]
    daemons = {
        "munged": ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *munge],
        "slurmctld": ["slurmctld", "-D", "-f", configuration],
        "slurmd": ["slurmd", "-D", "-f", configuration],
    }
    environ = {**os.environ, "SLURM_CONF": str(configuration)}
    with contextlib.ExitStack() as stack:
        for name, command in daemons.items():
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        _wait_for_node(environ, folder, list(daemons))
        yield environ


def _wait_for_node(environ: dict[str, str], folder: Path, names: list[str]) -> None:
    deadline, state = time.monotonic() + START_SECONDS, ""
    while state != "idle":
        if time.monotonic() > deadline:
            logs = "\n".join((folder / f"{name}.log").read_text()[-1000:] for name in names)
            raise RuntimeError(f"the node of Slurm is {state!r} after {START_SECONDS:g} s:\n{logs}")
        time.sleep(0.2)
        state = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environ, capture_output=True, text=True).stdout.strip()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
