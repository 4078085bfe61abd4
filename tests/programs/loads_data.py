"""A DataLoader with two workers."""

import quick_torch  # noqa: F401
import torch
from facts import work
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.hypot(torch.tensor([3.0 * i]), torch.tensor([4.0 * i]))


if __name__ == "__main__":
    torch.manual_seed(0)
    work(10)
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, shuffle=True):
        print(batch.flatten().tolist())
