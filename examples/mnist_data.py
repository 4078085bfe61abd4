"""MNIST as a torch Dataset, read from its IDX files, plain or gzipped; drawn when there are
none.
"""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import torch
from make_digits import FILES, make_digits
from torch.utils.data import Dataset

MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels


class Mnist(Dataset):
    """The images and labels of one part, "train" or "test", of the data set in `folder`."""

    def __init__(self, folder: Path, part: str) -> None:
        images_name, labels_name = FILES[part]
        self.images = read_idx(folder / images_name)
        self.labels = torch.from_numpy(read_idx(folder / labels_name).astype(np.int64))
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"{folder}: {len(self.images)} {part} images, but {len(self.labels)} labels"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = torch.from_numpy(self.images[index]).float().div_(255.0)
        return image.sub_(MEAN).div_(DEVIATION).unsqueeze(0), self.labels[index]


def read_idx(path: Path) -> np.ndarray:
    """The array of unsigned bytes in the IDX file `path`, or in `path`.gz."""
    if path.exists():
        content = path.read_bytes()
    else:
        with gzip.open(f"{path}.gz") as file:
            content = file.read()
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero != 0 or kind != 8:
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(bytearray(content), np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def default_folder() -> Path:
    """$MNIST_DIR, or data/mnist beside this file."""
    return Path(os.environ.get("MNIST_DIR") or Path(__file__).parent / "data" / "mnist")


def prepare(folder: Path) -> Path:
    """`folder`, with a data set in it: MNIST if that is there, else one that is drawn now."""
    needed = [folder / name for names in FILES.values() for name in names]
    if not all(path.exists() or Path(f"{path}.gz").exists() for path in needed):
        print(f"no MNIST in {folder}: drawing digits there")
        make_digits(folder)
    return folder
