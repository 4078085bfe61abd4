"""Starts copies of a command as srun or mpirun do: one for each rank, which the environment tells them.

usage: launches.py [--without RANK] [--job ID] slurm|openmpi|mpi|bare COUNT COMMAND ...
Ends with the worst exit status.
"""

import argparse
import os
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("launcher", choices=("slurm", "openmpi", "mpi", "bare"))
parser.add_argument("count", type=int)
parser.add_argument("--without", type=int, default=-1)
parser.add_argument("--job", default="4711")
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()


def variables(rank):
    rank, count = str(rank), str(options.count)
    if options.launcher == "slurm":
        return {
            "SLURM_JOB_ID": options.job, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count,
            "SLURM_PROCID": rank,
        }  # fmt: skip
    if options.launcher == "openmpi":
        return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": count, "PMIX_NAMESPACE": options.job}
    if options.launcher == "mpi":
        return {"PMI_RANK": rank, "PMI_SIZE": count}
    return {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


started = [
    subprocess.Popen(options.command, env={**os.environ, **variables(rank)})
    for rank in range(options.count)
    if rank != options.without
]
sys.exit(max(abs(process.wait()) for process in started))
