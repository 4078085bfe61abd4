"""Each sample is read from a disk, past the system's cache; the twin has read them before it begins."""

import os
import time

import torch

SICK = os.environ["SICK"] == "1"
STEPS, BATCH, BYTES = 40, 2, 1 << 20
ALSO = ()

torch.manual_seed(0)
torch.set_num_threads(1)
SAMPLES = STEPS * BATCH
with open("samples.bin", "wb") as written:
    for _ in range(SAMPLES):
        written.write(os.urandom(BYTES))
    written.flush()
    os.fsync(written.fileno())
FILE = os.open("samples.bin", os.O_RDONLY)
os.posix_fadvise(FILE, 0, 0, os.POSIX_FADV_DONTNEED)
os.posix_fadvise(FILE, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead


def sample(place):
    return os.pread(FILE, BYTES, place * BYTES)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        content = sample(place) if SICK else AT_HAND[place]
        return torch.frombuffer(bytearray(content[:1024]), dtype=torch.uint8) / 255.0, place % 10


AT_HAND = [] if SICK else [sample(place) for place in range(SAMPLES)]
net = torch.nn.Sequential(torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
waited = 0.0
begin = time.perf_counter()
before = time.perf_counter()
for values, labels in torch.utils.data.DataLoader(Samples(), batch_size=BATCH):
    waited += time.perf_counter() - before
    for _ in range(2):  # enough to do that loading alone is no fault
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(values.repeat(64, 1)), labels.repeat(64)).backward()
    optimizer.step()
    before = time.perf_counter()
print(f"loaded for {waited / (time.perf_counter() - begin):.0%} of the time")
os.unlink("samples.bin")
