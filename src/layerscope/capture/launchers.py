"""Which rank of a distributed job a process is, as its launcher says in the environment.

A rank counts only together with the size of its world, and only in a world of more than one: a
batch script under Slurm has SLURM_PROCID=0 and is no rank, the tasks that `srun` starts have
SLURM_STEP_NUM_TASKS beside it. The first pair of RANKS that is whole wins: torchrun under srun is
about torchrun's ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from layerscope.model.errors import UsageError

# Launcher, the variable with the rank, the variables that may hold the size of the world.
RANKS = (
    ("torchrun", "RANK", ("WORLD_SIZE",)),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("PMIx", "PMIX_RANK", ("PMIX_SIZE", "SLURM_STEP_NUM_TASKS")),
    ("MPI", "PMI_RANK", ("PMI_SIZE",)),
    ("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS",)),
)
# The number or name of the job, for the name of the recording.
_BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_JOBS = (*_BATCH_JOBS, "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
# What all ranks of one launch have in common, and the next launch mostly has not.
_SHARED = (
    *_JOBS,
    "SLURM_STEP_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_MCA_ess_base_jobid",
    "MASTER_ADDR",
    "MASTER_PORT",
)
# torchrun's run id when nobody chose one.
_NO_JOB = ("", "none")
_MOST_RANKS = 1_000_000


class Launch(Struct, frozen=True):
    """Our place among the processes that were started together. `key` is the same for all of
    them.
    """

    launcher: str
    rank: int
    world_size: int
    job: str
    key: str


def find(environment: Mapping[str, str]) -> Launch | None:
    """The rank that a launcher gave to whoever has this environment; None when it is not one of
    several.
    """
    for launcher, variable, sizes in RANKS:
        rank = _number(environment.get(variable))
        size = next(
            (size for name in sizes if (size := _number(environment.get(name))) is not None), None
        )
        if rank is not None and size is not None and rank < size and size > 1:
            key = " ".join(
                f"{name}={environment[name]}" for name in _SHARED if environment.get(name)
            )
            return Launch(launcher, rank, size, _first(environment, _JOBS), key)
    return None


def batch_job(environment: Mapping[str, str]) -> str:
    """The number of the batch job that this belongs to, as part of a file's name; empty outside of
    one.
    """
    return _first(environment, _BATCH_JOBS)


def read_ranks(text: str) -> tuple[int, ...]:
    """The ranks that `0,3-5` names, in order. UsageError when it names none."""
    ranks: set[int] = set()
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", word)
        first, last = 1, 0
        if found:
            first = int(found[1])
            last = int(found[2] or found[1])
        if first > last or last >= _MOST_RANKS:
            raise UsageError(f"--ranks {text!r} names no ranks. For example: --ranks 0,3-5")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))


def _number(text: str | None) -> int | None:
    if not text:
        return None
    is_number = text.isascii() and text.isdigit()
    return int(text) if is_number else None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these variables that names a job, in letters that a file name may have."""
    values = (environment.get(name, "") for name in names)
    found = next((value for value in values if value not in _NO_JOB), "")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", found)[:64]
