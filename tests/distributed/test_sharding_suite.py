"""Tests of shardings that are written for one process, run again by two processes with the same devices in all."""

import re
from pathlib import Path

import pytest
from tests.distributed.process_group import launch

ROOT = Path(__file__).parents[2]
QUICK = ["constraint"]
SLOW = [
    "collective_laws", "custom_partitioning", "eager_shard_map", "explicit", "global_view", "jax_sharding_conventions",
    "legacy_spellings", "random_reshardings", "references_on_meshes", "reshard", "shard_alike", "shard_map",
    "sharding_spec", "transformed_jit", "unreduced",
]  # fmt: skip
ONE_PROCESS = {
    # They use single devices, or half of them.
    "constraint": ["test_the_transpose_of_device_put", "test_a_mesh_block_inside_a_compiled_function"],
    "explicit": ["test_a_mesh_of_one_device_keeps_types"],
    "global_view": ["test_shardings_over_a_mesh_of_one_device_are_named_shardings"],
    "jax_sharding_conventions": ["test_jit_on_a_device_takes_arrays_of_other_devices"],
    "unreduced": ["test_gathers_and_updates_of_reduced_arrays", "test_terms_move_to_other_devices_as_a_sum"],
}
ALL_SHARDS = {
    # They look at all shards, at the numbers of devices, at effects that only some of the processes have, or at files of
    # all programs, with those that gather what is read.
    "custom_partitioning": ["test_programs_with_custom_partitioning_are_not_cached_on_disk"],
    "eager_shard_map": ["test_an_eager_shard_map_runs_effects_once"],
    "explicit": ["test_callbacks_over_explicit_axes_receive_unsharded_arrays"],
    "global_view": [
        "test_contradicting_shardings_are_errors_that_name_both", "test_shards_hold_their_slices",
        "test_a_mesh_of_some_devices",
    ],
    "shard_map": ["test_callbacks_run_on_each_device"],
    "transformed_jit": ["test_effects_happen_once_and_in_order_over_a_mesh"],
    "unreduced": ["test_a_contraction_leaves_its_terms_on_the_devices", "test_operations_that_are_not_linear_are_refused"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "at_least"), [(QUICK, 12), pytest.param(SLOW, 280, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
def test_the_sharding_suite_holds_over_two_processes(names, at_least):
    left_out = [
        f"--deselect=tests/spmd/test_{name}.py::{test}"
        for group in (ONE_PROCESS, ALL_SHARDS)
        for name in names
        for test in group.get(name, [])
    ]
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow", *left_out]
    files = [f"tests/spmd/test_{name}.py" for name in names]
    program = ["-m", "pytest", "-p", "tests.distributed.lockstep", *options, *files]
    done = launch(["-n", 2, "--devices", 4, "--"], program, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    for process in range(2):
        assert int(re.search(rf"^\[{process}\] (\d+) passed", done.stdout, re.M)[1]) >= at_least, done.stdout
