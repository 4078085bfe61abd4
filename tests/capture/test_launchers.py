"""Which rank a process is, by the variables of every launcher, and what is no rank."""

from __future__ import annotations

import pytest

from layerscope.capture.launchers import Launch, batch_job, find, read_ranks
from layerscope.model.errors import UsageError

TORCHRUN = {
    "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
}  # fmt: skip
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "8",
}
BATCH = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}


def place(environment: dict[str, str]) -> tuple[str, int, int, str] | None:
    launch = find(environment)
    return (launch.launcher, launch.rank, launch.world_size, launch.job) if launch else None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, ("torchrun", 1, 4, "")),
        (
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "night run/7"},
            ("torchrun", 1, 4, "night_run_7"),
        ),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, ("Open MPI", 3, 4, "")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ("MPI", 0, 2, "")),
        ({"PMIX_RANK": "5", "PMIX_NAMESPACE": "slurm.pmix.1.0", **STEP}, ("PMIx", 5, 8, "4711")),
        ({"SLURM_PROCID": "7", **STEP}, ("Slurm", 7, 8, "4711")),
        # Tasks that are nodes, with torchrun in each: its ranks count.
        ({"SLURM_PROCID": "1", **STEP, **TORCHRUN}, ("torchrun", 1, 4, "4711")),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"},
            ("Open MPI", 0, 2, ""),
        ),
    ],
)
def test_each_launcher_says_it_in_its_own_way(
    environment: dict[str, str], expected: object
) -> None:
    assert place(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        BATCH,  # the script itself, in an allocation of eight tasks
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "first", "WORLD_SIZE": "4"},
        {"RANK": "²", "WORLD_SIZE": "4"},
        {"PMIX_RANK": "0"},
        {"SLURM_PROCID": "0", **STEP, "SLURM_STEP_NUM_TASKS": "1"},  # an interactive step
    ],
)
def test_what_is_no_rank_of_several_is_none(environment: dict[str, str]) -> None:
    assert find(environment) is None


def test_a_rank_without_its_world_does_not_hide_the_next_launcher() -> None:
    assert place({"RANK": "0", "SLURM_PROCID": "3", **STEP}) == ("Slurm", 3, 8, "4711")


def test_the_key_is_the_same_for_all_ranks_of_a_launch_and_another_for_the_next() -> None:
    def key(**changes: str) -> str:
        launch = find({"SLURM_PROCID": "0", "HOSTNAME": "node1", **STEP, **changes})
        assert isinstance(launch, Launch)
        return launch.key

    assert key() == key(SLURM_PROCID="5", HOSTNAME="node2")
    assert key() != key(SLURM_STEP_ID="3")
    assert key() != key(SLURM_JOB_ID="4712")


def test_the_number_of_a_batch_job_is_known_without_a_rank() -> None:
    assert batch_job(BATCH) == "4711"
    assert batch_job({"PBS_JOBID": "12[3].server"}) == "12_3_.server"
    assert batch_job(TORCHRUN) == ""


@pytest.mark.parametrize(
    ("text", "expected"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("4-5, 1,4", (1, 4, 5))]
)
def test_ranks_are_listed_with_commas_and_ranges(text: str, expected: tuple[int, ...]) -> None:
    assert read_ranks(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a", "3-1", "-1", "1-", "0-99999999", "0;1"])
def test_what_names_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no ranks"):
        read_ranks(text)
