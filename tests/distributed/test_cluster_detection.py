"""Reading the facts about a cluster from the variables that launchers set."""

import re
from pathlib import Path

import numpy as np
import pytest

from phalanx import distributed
from phalanx.distributed.cluster_detection import detect
from phalanx.distributed.session import _choose_local_devices
from phalanx.engine.coordination_service import host_and_port
from phalanx.errors import ArgumentError, ArgumentTypeError, CoordinationError

UNKNOWN = dict.fromkeys(("coordinator_address", "num_processes", "process_id"))
SLURM = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[007-010,012],cpu1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}
TORCHRUN = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
LAUNCH = {"PHALANX_COORDINATOR_ADDRESS": "a:1", "PHALANX_NUM_PROCESSES": "2", "PHALANX_PROCESS_ID": "0"}
KUBERNETES = {"PHALANX_COORDINATOR_ADDRESS": "job-0.svc:1", "PHALANX_NUM_PROCESSES": "2", "JOB_COMPLETION_INDEX": "1"}


@pytest.mark.parametrize(
    "environ, expected",
    [
        (SLURM, ("gpu007:62440", 8, 5, 1)),
        (SLURM | {"SLURM_STEP_NODELIST": "n1,n2", "SLURM_STEP_ID": "2"}, ("n1:62562", 8, 5, 1)),
        (SLURM | {"SLURM_STEP_NODELIST": "rack[1-2]-n,x"}, ("rack1-n:62440", 8, 5, 1)),
        (OPEN_MPI, ("10.96.0.1:62624", 2, 1, 1)),
        (OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp6://[fe80::1,26::2]:43"}, ("[fe80::1]:61441", 2, 1, 1)),
        (TORCHRUN, ("node1:29501", 4, 3, 0)),
        (LAUNCH, ("a:1", 2, 0, None)),
        (LAUNCH | SLURM, ("a:1", 2, 0, None)),
        (KUBERNETES, ("job-0.svc:1", 2, 1, None)),
        # Alone on its machine, a process takes all GPUs.
        (SLURM | {"SLURM_NODEID": "5", "SLURM_STEP_TASKS_PER_NODE": "2(x5),1,2"}, ("gpu007:62440", 8, 5, None)),
        (SLURM | {"SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x8)"}, ("gpu007:62440", 8, 5, None)),
        (SLURM | {"SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "1,2"}, ("gpu007:62440", 8, 5, 1)),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ("10.96.0.1:62624", 2, 1, None)),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, ("10.96.0.1:62624", 2, 1, 1)),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "1"}, ("node1:29501", 4, 3, None)),
    ],
)
def test_environments_are_read(environ, expected):
    found = detect(environ, UNKNOWN)
    assert (*map(found.get, UNKNOWN), found.get("local_process_id")) == expected


def test_a_partly_set_environment_is_an_error_that_lists_the_missing_variables():
    environ = {k: v for k, v in SLURM.items() if k not in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")}
    with pytest.raises(ArgumentError) as caught:
        detect(environ, UNKNOWN)
    assert str(caught.value) == (
        "distributed.initialize, environment of slurm: expected the variables SLURM_STEP_NODELIST, SLURM_STEP_NUM_TASKS, "
        "since SLURM_STEP_ID is set, got none of them.\n"
        "  Fix: set them, or pass coordinator_address, num_processes to initialize."
    )


def test_given_arguments_come_before_the_environment():
    given = {"coordinator_address": "b:2", "num_processes": None, "process_id": None}
    without_nodes = {k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"}
    assert detect(without_nodes, given)["coordinator_address"] == "b:2"
    full = {"coordinator_address": "b:2", "num_processes": 1, "process_id": 0}
    assert detect({"RANK": "0"}, full) == full


def test_a_value_that_cannot_be_read_is_an_error():
    with pytest.raises(ArgumentError) as caught:
        detect(TORCHRUN | {"WORLD_SIZE": "many"}, UNKNOWN)
    assert str(caught.value) == (
        "distributed.initialize, environment of torchrun: expected values of WORLD_SIZE as torchrun sets them, "
        "got 'many'.\n  Fix: pass coordinator_address, num_processes and process_id to initialize."
    )


def test_an_optional_fact_that_cannot_be_read_is_no_error_where_all_arguments_are_given():
    given = {"coordinator_address": "h:1", "num_processes": 2, "process_id": 1}
    environ = SLURM | {"SLURM_LOCALID": "0", "SLURM_NODEID": "5", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert detect(environ, given) == given | {"local_process_id": 0}
    with pytest.raises(ArgumentError, match="SLURM_STEP_TASKS_PER_NODE"):
        detect(environ, UNKNOWN)


def test_batch_scripts_without_a_step_are_not_a_cluster():
    batch = {"SLURM_JOB_ID": "1000", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    with pytest.raises(ArgumentError) as caught:
        detect(batch, UNKNOWN)
    assert str(caught.value) == (
        "distributed.initialize: expected coordinator_address, num_processes, process_id, or a cluster environment "
        "(phalanx, slurm, ompi, torchrun, kubernetes), got neither.\n"
        "  Fix: start the program with `phalanx launch`, srun, mpirun or torchrun, or pass these arguments."
    )


def test_a_method_names_one_environment():
    assert detect(LAUNCH | TORCHRUN, UNKNOWN, "torchrun")["process_id"] == 3
    with pytest.raises(ArgumentError, match="process_id, or a cluster environment"):
        detect(TORCHRUN, UNKNOWN, "deactivate")
    with pytest.raises(ArgumentError, match="one of 'phalanx', 'slurm', .*got 'mpi4py'"):
        detect(TORCHRUN, UNKNOWN, "mpi4py")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((7777, 2, 0), {}, "coordinator_address: expected a string, got 7777"),
        (("a:1", "2", 0), {}, "num_processes: expected an int, got '2'"),
        (("a:1", 0, 0), {}, "num_processes: expected a positive number, got 0"),
        (("a:1", 2, 2), {}, "process_id: expected a number from 0 to num_processes - 1 = 1, got 2"),
        (
            ("a:1", 1, 0),
            {"heartbeat_timeout_seconds": 0},
            "heartbeat_timeout_seconds: expected a positive number of sec",
        ),
        (
            ("a:1", 1, 0),
            {"stuck_timeout_seconds": -1},
            "stuck_timeout_seconds: expected a positive number of seconds, got",
        ),
        (
            ("a:1", 2, 0),
            {"initialization_timeout": "5"},
            "initialization_timeout: expected a number of seconds, got '5'",
        ),
    ],
)
def test_wrong_arguments_of_initialize(arguments, options, message):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=f"^distributed.initialize, {re.escape(message)}"):
        distributed.initialize(*arguments, **options)
    assert not distributed.is_initialized()


def test_addresses_have_a_port():
    for address in ("host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:http"):
        with pytest.raises(CoordinationError, match="expected a host and a port, such as '10.0.0.1:6000'"):
            host_and_port(address)


def test_each_process_of_a_machine_takes_the_gpu_of_its_number():
    assert _choose_local_devices(None, 2, {}) == (2,)
    assert _choose_local_devices(None, 1, {"CUDA_VISIBLE_DEVICES": "4,5"}) == (1,)
    assert _choose_local_devices(None, 3, {"CUDA_VISIBLE_DEVICES": "3"}) is None  # restricted by the scheduler
    assert _choose_local_devices(None, None, {}) is None
    assert _choose_local_devices(0, 2, {}) == (0,)
    assert _choose_local_devices([0, 1], 2, {}) == _choose_local_devices(np.arange(2), 2, {}) == (0, 1)
    assert _choose_local_devices(np.int64(1), 2, {}) == (1,)
    with pytest.raises(ArgumentTypeError, match="local_device_ids: expected an int or a sequence of ints, got '0,1'"):
        _choose_local_devices("0,1", 2, {})


def test_the_jobset_of_the_guide_has_the_fields_that_are_read():
    yaml = pytest.importorskip("yaml")
    guide = Path(__file__).parents[2] / "docs/several_processes.md"
    jobset = yaml.safe_load(re.search(r"```yaml\n(.*?)```", guide.read_text(), re.S)[1])
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (workers,) = jobset["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"]
    (container,) = job["template"]["spec"]["containers"]
    environ = {each["name"]: each["value"] for each in container["env"]}
    # JobSet names a Pod by the numbers of its Job and of the Pod in it, in a subdomain with the name of the JobSet.
    name = jobset["metadata"]["name"]
    found = detect(environ | {"JOB_COMPLETION_INDEX": "3"}, UNKNOWN)
    assert found == {
        "coordinator_address": f"{name}-{workers['name']}-0-0.{name}:6000",
        "num_processes": job["completions"],
        "process_id": 3,
        "local_process_id": None,
    }
