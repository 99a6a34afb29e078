"""Cluster environments: how the process number, the number of processes and the coordinator are read from variables.

Each environment is a row of `CLUSTERS`, a pure function of the environment variables. `session.initialize` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentError


@dataclass(frozen=True)
class Field:
    """How one fact about the cluster is read.

    Args:
      variables: the environment variables it depends on.
      read: a function of their texts.
    """

    variables: tuple[str, ...]
    read: Callable[..., Any]


@dataclass(frozen=True)
class ClusterEnvironment:
    """A launcher of processes, and the variables that it sets.

    Args:
      name: the name, for `cluster_detection_method`.
      mark: the variable that every process has which this launcher started.
      coordinator_address, num_processes, process_id: how these are read.
      local_process_id: how the number among the processes of the machine is read, where there is one.
      local_num_processes: how the number of processes of the machine is read, where it is known.
    """

    name: str
    mark: str
    coordinator_address: Field
    num_processes: Field
    process_id: Field
    local_process_id: Field = Field((), lambda: None)
    local_num_processes: Field = Field((), lambda: None)

    def read(self, environ: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Read the facts that the user has not given.

        Args:
          environ: the environment variables.
          given: the arguments of `initialize`; those that are None are read.

        Returns:
          The arguments, completed, and `local_process_id`; None if the process is the only one of its machine.

        Raises:
          ArgumentError: variables are missing or cannot be read.
        """
        fields: dict[str, Field] = {name: getattr(self, name) for name, value in given.items() if value is None}
        missing = sorted({v for field in fields.values() for v in field.variables if not environ.get(v)})
        if missing:
            unknown = [name for name, field in fields.items() if not set(missing).isdisjoint(field.variables)]
            raise ArgumentError(
                f"distributed.initialize, environment of {self.name}",
                expected=f"the variables {', '.join(missing)}, since {self.mark} is set",
                got="none of them" if len(missing) > 1 else "no such variable",
                fix=f"set them, or pass {', '.join(unknown)} to initialize",
            )
        for name in ("local_process_id", "local_num_processes"):
            if all(map(environ.get, getattr(self, name).variables)):
                fields[name] = getattr(self, name)
        found = dict(given)
        for name, field in fields.items():
            try:
                found[name] = self._read_field(field, environ)
            except ArgumentError:
                if None in given.values():  # otherwise the user has given what is needed
                    raise
        if found.pop("local_num_processes", None) == 1:
            found["local_process_id"] = None
        return found

    def _read_field(self, field: Field, environ: Mapping[str, str]) -> Any:
        texts = [environ[v] for v in field.variables]
        try:
            return field.read(*texts)
        except (ValueError, IndexError, AttributeError):
            raise ArgumentError(
                f"distributed.initialize, environment of {self.name}",
                expected=f"values of {', '.join(field.variables)} as {self.name} sets them",
                got=", ".join(map(repr, texts)),
                fix="pass coordinator_address, num_processes and process_id to initialize",
            ) from None


# Ports above Linux's range of ephemeral ports.
_FIRST_PORT, _NUM_PORTS = 61440, 4096


def _slurm_address(nodes: str, job: str, step: str) -> str:
    """The first node of the step, with a port that depends on job and step."""
    # "gpu[007-010,012],cpu1" begins with "gpu007".
    found = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    host = "".join(part or "" for part in found.groups())  # type: ignore[union-attr]
    return f"{host}:{_FIRST_PORT + (int(job) + 61 * int(step)) % _NUM_PORTS}"


def _slurm_tasks(node: str, tasks: str) -> int:
    """The tasks of a node, of which "8(x4),2" lists eight on each of four nodes and two on the next."""
    counts = []
    for count, repeats in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):
        counts += [int(count)] * int(repeats or 1)
    return counts[int(node)]


def _open_mpi_address(uri: str) -> str:
    """The machine of `mpirun`, from "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911", with a port of the job."""
    job, _, rest = uri.partition(".")
    v4, v6 = re.search(r"tcp6?://(?:\[([^,\]]+)|([^,:]+))", rest).groups()  # type: ignore[union-attr]
    return f"{f'[{v4}]' if v4 else v6}:{_FIRST_PORT + (int(job) >> 12) % _NUM_PORTS}"


def _torchrun_address(host: str, port: str) -> str:
    # The port itself belongs to the rendezvous of torchrun.
    return f"{host}:{int(port) + 1}"


_COORDINATOR = Field(("PHALANX_COORDINATOR_ADDRESS",), str)

CLUSTERS = (
    ClusterEnvironment(
        "phalanx",  # set by `phalanx launch`, and by programs that start processes themselves
        "PHALANX_PROCESS_ID",
        _COORDINATOR,
        Field(("PHALANX_NUM_PROCESSES",), int),
        Field(("PHALANX_PROCESS_ID",), int),
    ),
    ClusterEnvironment(
        "slurm",
        "SLURM_STEP_ID",  # not set by sbatch and salloc, but by srun for each task
        Field(("SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"), _slurm_address),
        Field(("SLURM_STEP_NUM_TASKS",), int),
        Field(("SLURM_PROCID",), int),
        Field(("SLURM_LOCALID",), int),
        Field(("SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"), _slurm_tasks),
    ),
    ClusterEnvironment(
        "ompi",
        "OMPI_COMM_WORLD_RANK",
        Field(("OMPI_MCA_orte_hnp_uri",), _open_mpi_address),
        Field(("OMPI_COMM_WORLD_SIZE",), int),
        Field(("OMPI_COMM_WORLD_RANK",), int),
        Field(("OMPI_COMM_WORLD_LOCAL_RANK",), int),
        Field(("OMPI_COMM_WORLD_LOCAL_SIZE",), int),
    ),
    ClusterEnvironment(
        "torchrun",  # also Ray Train and SkyPilot
        "RANK",
        Field(("MASTER_ADDR", "MASTER_PORT"), _torchrun_address),
        Field(("WORLD_SIZE",), int),
        Field(("RANK",), int),
        Field(("LOCAL_RANK",), int),
        Field(("LOCAL_WORLD_SIZE",), int),
    ),
    ClusterEnvironment(
        "kubernetes",  # an indexed Job, whose manifest gives the other two
        "JOB_COMPLETION_INDEX",
        _COORDINATOR,
        Field(("PHALANX_NUM_PROCESSES",), int),
        Field(("JOB_COMPLETION_INDEX",), int),
    ),
)


def detect(environ: Mapping[str, str], given: Mapping[str, Any], method: str | None = None) -> dict[str, Any]:
    """Complete the arguments of `initialize` from the environment.

    Args:
      environ: the environment variables.
      given: `coordinator_address`, `num_processes` and `process_id`; None for those to be found.
      method: the name of a cluster environment; None takes the first one whose mark is set, "deactivate" none.

    Returns:
      The arguments, and `local_process_id` where the environment numbers the processes of a machine; None for only one.

    Raises:
      ArgumentError: the environment is set in part only, there is none, or `method` is unknown.

    Examples:
      >>> unknown = dict.fromkeys(("coordinator_address", "num_processes", "process_id"))
      >>> environ = {
      ...     "MASTER_ADDR": "node1",
      ...     "MASTER_PORT": "29500",
      ...     "RANK": "3",
      ...     "WORLD_SIZE": "4",
      ...     "LOCAL_RANK": "1",
      ... }
      >>> list(detect(environ, unknown).values())
      ['node1:29501', 4, 3, 1]
    """
    names = [c.name for c in CLUSTERS]
    if method not in (None, "deactivate", *names):
        raise ArgumentError(
            "distributed.initialize, cluster_detection_method",
            expected=f"one of {', '.join(map(repr, (*names, 'deactivate')))}",
            got=repr(method),
            fix="name one of these, or leave it out",
        )
    if address := environ.get("PHALANX_COORDINATOR_ADDRESS") or environ.get("JAX_COORDINATOR_ADDRESS"):
        given = {**given, "coordinator_address": given["coordinator_address"] or address}
    for cluster in CLUSTERS:
        if method == cluster.name or (method is None and environ.get(cluster.mark)):
            return cluster.read(environ, given)
    if required := [name for name, value in given.items() if value is None]:
        raise ArgumentError(
            "distributed.initialize",
            expected=f"{', '.join(required)}, or a cluster environment ({', '.join(names)})",
            got="neither",
            fix="start the program with `phalanx launch`, srun, mpirun or torchrun, or pass these arguments",
        )
    return dict(given)
