"""One rank of several: 10 operators for rank 0, 20 for rank 1, and so on.

usage: rank.py [late SECONDS RANK | exits STATUS RANK]
"""

import os
import sys
import time

from facts import work

names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
rank = next(int(os.environ[name]) for name in names if name in os.environ)
what, value, which = (sys.argv[1:] or ["", "0", "-1"])[:3]
work(10)
if what == "late" and rank == int(which):
    time.sleep(float(value))
work(10 * rank)
print("rank", rank, flush=True)
if what == "exits" and rank == int(which):
    sys.exit(int(value))
