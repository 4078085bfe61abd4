"""A DataLoader whose two workers do a known number of operators: one aten::hypot for each item.

usage: workers.py fork|spawn|forkserver plain|persistent|killed|crash|hang
"""

import os
import signal
import sys
import time

import quick_torch  # noqa: F401
import torch
from torch.utils.data import DataLoader, Dataset

ITEMS, WORKERS, EPOCHS = 64, 2, 2
TROUBLE = 21  # at this item the second worker crashes or hangs
HANGS_S = 20


class Items(Dataset):
    def __init__(self, mode):
        self.mode = mode

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if i == TROUBLE and self.mode == "crash":
            time.sleep(0.5)  # what came before may be written now
            os.kill(os.getpid(), signal.SIGSEGV)
        if i == TROUBLE and self.mode == "hang":
            time.sleep(HANGS_S)
        return torch.hypot(torch.tensor([3.0]), torch.tensor([4.0 * i]))


def main():
    start, mode = sys.argv[1:]
    loader = DataLoader(
        Items(mode), batch_size=4, num_workers=WORKERS, multiprocessing_context=start,
        persistent_workers=mode in ("persistent", "killed"), timeout=3 if mode == "hang" else 0,
    )  # fmt: skip
    batches = 0
    try:
        for _ in range(EPOCHS):
            for _ in loader:
                batches += 1
    except RuntimeError as error:
        print(str(error).split("(")[0].strip(), flush=True)
    print(batches, "batches", flush=True)
    if mode == "killed":
        for worker in loader._iterator._workers:
            worker.terminate()
    if mode in ("killed", "hang"):
        os._exit(0)


if __name__ == "__main__":
    main()
