"""What the environment says of the hosts of a job."""

from pathlib import Path

import pytest

from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.launch_variables import LaunchVariables, default_workers


def test_variables_say_which_host_this_is(tmp_path: Path) -> None:
    assert LaunchVariables.of({}) == LaunchVariables(job="/")
    of_hocket = {
        "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3", "RANK": "4", "WORLD_SIZE": "9", "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001", "HOCKET_JOB": "net", "HOCKET_ATTEMPT": "2", "HOCKET_CHECKPOINT_DIR": str(tmp_path),
    }  # fmt: skip
    assert LaunchVariables.of(of_hocket) == LaunchVariables(1, 3, ("10.0.0.1", 20001), "net/2", tmp_path)
    assert LaunchVariables.of({"HOCKET_MEM_MIB": "512"}).memory_bytes == 512 << 20
    by_hand = {"NODE_RANK": "0", "NNODES": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"}
    assert LaunchVariables.of(by_hand) == LaunchVariables(0, 2, ("a", 5), "/")
    for wrong, why in (
        ({"NNODES": "2", "NODE_RANK": "2"}, "the rank of this host is 2, which must be within 0 and 1"),
        ({"NNODES": "two"}, "variable NNODES must be a whole number, not 'two'"),
        ({"NNODES": "2", "NODE_RANK": "1"}, "2 hosts need MASTER_ADDR and MASTER_PORT"),
        ({**by_hand, "MASTER_PORT": "70000"}, "2 hosts need MASTER_ADDR and MASTER_PORT"),
    ):
        with pytest.raises(TrainingError, match=why):
            LaunchVariables.of(wrong)


def test_a_job_has_as_many_workers_as_it_asked_for_cores() -> None:
    assert default_workers({}, 1, 7) == 7
    assert default_workers({"OMP_NUM_THREADS": "2", "HOCKET_SIZE": "4"}, 2, 7) == 4
    assert default_workers({"OMP_NUM_THREADS": "1", "HOCKET_SIZE": "1"}, 2, 7) == 1
