"""Draws a data set of handwritten-looking digits in MNIST's own file format (IDX), without a
download.

Each digit is a few pen strokes. Every image moves their control points a little, then slants,
turns, scales and shifts the whole, and draws it with a pen of random width, so that a model has
something to learn.

    python examples/make_digits.py --data examples/data/mnist --train 12800 --test 2000
"""

from __future__ import annotations

import argparse
import os
import struct
import time
from pathlib import Path

import numpy as np

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
SIDE = 28  # pixels
GLYPH_SIDE = 20  # MNIST's digits fill a box of 20 pixels in the middle of the 28
SPACING = 0.5  # pixels between two dots of ink along a stroke

# Ways to write each digit: strokes in a box of 100 x 100 (x to the right, y down), each a "curve"
# through its points or straight "lines" between them; strokes are parted by a semicolon.
GLYPHS = {
    0: ["curve 50,5 27,22 20,52 30,85 52,95 74,80 80,48 72,20 50,5"],
    1: [
        "lines 50,5 50,95",
        "lines 33,25 53,5 53,95",
    ],
    2: [
        "curve 22,30 32,10 58,6 74,25 62,50 40,73 20,93; lines 20,93 80,92",
        "curve 24,20 50,5 70,24 55,60 27,90 20,75 40,76 60,92 82,85",
    ],
    3: ["curve 25,18 45,5 70,18 64,40 42,47; curve 42,47 70,56 72,82 47,95 22,82"],
    4: [
        "lines 62,5 20,64 82,64; lines 62,5 62,95",
        "lines 27,8 23,52 74,50; lines 72,5 68,95",
    ],
    5: ["lines 75,7 32,8 28,45; curve 28,45 52,38 75,55 70,82 46,95 22,83"],
    6: ["curve 66,6 42,25 27,55 32,85 55,95 73,75 60,55 40,58 28,72"],
    7: [
        "lines 20,10 78,8 42,95",
        "lines 20,10 78,8 42,95; lines 36,50 72,50",
    ],
    8: ["curve 68,16 50,5 30,17 36,38 60,55 74,76 52,95 27,80 38,57 62,40 70,20"],
    9: ["curve 70,28 52,6 29,20 32,45 56,48 70,28 70,55 62,95"],
}


def draw_digits(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One image of SIDE x SIDE bytes for each label; white ink on black, as in MNIST."""
    images = np.empty((len(labels), SIDE, SIDE), np.uint8)
    hand = rng.random(len(labels))  # which of a digit's glyphs this one is
    for digit, glyphs in GLYPHS.items():
        for number, glyph in enumerate(glyphs):
            chosen = (labels == digit) & ((hand * len(glyphs)).astype(int) == number)
            images[chosen] = draw_glyph(glyph, int(chosen.sum()), rng)
    return images


def draw_glyph(glyph: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` different images of one way to write a digit."""
    strokes = []
    for stroke in glyph.split("; "):
        kind, *pairs = stroke.split()
        points = np.array([[int(number) / 100 for number in pair.split(",")] for pair in pairs])
        strokes.append(place_dots(kind, points, count, rng))
    dots = np.concatenate(strokes, axis=1)  # (count, dots, xy), in a box of 1 x 1 around 0
    turn, slant = rng.normal(0.0, 0.12, count), rng.normal(0.1, 0.15, count)
    width, height = rng.uniform(0.75, 1.1, count), rng.uniform(0.85, 1.08, count)
    x = (dots[..., 0] * width[:, None] - dots[..., 1] * slant[:, None]) * GLYPH_SIDE
    y = dots[..., 1] * height[:, None] * GLYPH_SIDE
    shift = rng.normal(0.0, 1.0, (2, count, 1)) + SIDE / 2 - 0.5
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    ink = blur(splat(x * cos - y * sin + shift[0], x * sin + y * cos + shift[1]))
    # A line has about 0.45 ink in its middle after the blur: from 1.5 a pencil, from 4 a felt pen.
    pressure = rng.uniform(1.6, 4.0, (count, 1, 1))
    grain = rng.normal(1.0, 0.1, ink.shape)
    return (np.clip(ink * pressure * grain, 0.0, 1.0) * 255).astype(np.uint8)


def place_dots(kind: str, points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Evenly spaced dots along `count` shaky versions of one stroke: (count, dots, xy)."""
    dense = basis(kind, len(points), 200)
    path = dense @ points
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    dots = max(2, int(length[-1] * GLYPH_SIDE / SPACING))
    nearest = np.searchsorted(length, np.linspace(0.0, length[-1], dots)).clip(0, len(dense) - 1)
    shaky = points + rng.normal(0.0, 0.035, (count, *points.shape))
    return np.einsum("dp,npc->ndc", dense[nearest], shaky - 0.5)


def basis(kind: str, points: int, dots: int) -> np.ndarray:
    """Weights (dots, points) that turn control points into dots on lines or on a Catmull-Rom
    curve.
    """
    at = np.linspace(0.0, points - 1, dots)
    left = np.minimum(at.astype(int), points - 2)
    t = at - left
    if kind == "lines":
        weights = np.stack([1 - t, t], axis=1)
        offsets = (0, 1)
    else:
        weights = 0.5 * np.stack(
            [
                -t + 2 * t**2 - t**3,
                2 - 5 * t**2 + 3 * t**3,
                t + 4 * t**2 - 3 * t**3,
                -(t**2) + t**3,
            ],
            axis=1,
        )
        offsets = (-1, 0, 1, 2)
    result = np.zeros((dots, points))
    for column, offset in enumerate(offsets):
        np.add.at(
            result, (np.arange(dots), np.clip(left + offset, 0, points - 1)), weights[:, column]
        )
    return result


def splat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Ink per pixel from dots (count, dots), each shared by the four pixels around it."""
    count = len(x)
    x, y = np.clip(x, 0.0, SIDE - 1.001), np.clip(y, 0.0, SIDE - 1.001)
    column, row = x.astype(int), y.astype(int)
    right, down = x - column, y - row
    pixel = (np.arange(count)[:, None] * SIDE + row) * SIDE + column
    ink = np.zeros(count * SIDE * SIDE)
    for offset, share in (
        (0, (1 - right) * (1 - down)),
        (1, right * (1 - down)),
        (SIDE, (1 - right) * down),
        (SIDE + 1, right * down),
    ):
        ink += np.bincount((pixel + offset).ravel(), (share * SPACING).ravel(), minlength=len(ink))
    return ink.reshape(count, SIDE, SIDE).astype(np.float32)


def blur(ink: np.ndarray) -> np.ndarray:
    """A soft pen: each image smoothed by 1-4-6-4-1 along the rows and along the columns."""
    for axis in (1, 2):
        padded = np.pad(ink, [(0, 0)] + [(2, 2) if axis == a else (0, 0) for a in (1, 2)])
        window = [np.take(padded, range(start, start + SIDE), axis=axis) for start in range(5)]
        ink = (window[0] + 4 * window[1] + 6 * window[2] + 4 * window[3] + window[4]) / 16
    return ink


def write_idx(path: Path, array: np.ndarray) -> None:
    """Writes bytes as an IDX file: two zeros, type 8 (unsigned byte), dimensions, sizes big endian,
    data.
    """
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    # By rename: another program that starts now must not read half a file.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(header + array.tobytes())
    unfinished.replace(path)


def make_digits(folder: Path, train: int = 12_800, test: int = 2_000, seed: int = 1) -> None:
    """Draws the four files of a data set into `folder`; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for part, count in (("train", train), ("test", test)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        images_name, labels_name = FILES[part]
        write_idx(folder / images_name, draw_digits(labels, rng))
        write_idx(folder / labels_name, labels)


def main() -> None:
    """Draws a data set as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parent / "data" / "mnist", metavar="DIR"
    )
    parser.add_argument("--train", type=int, default=12_800, help="training images (%(default)s)")
    parser.add_argument("--test", type=int, default=2_000, help="test images (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_s = time.perf_counter()
    make_digits(options.data, options.train, options.test, options.seed)
    print(
        f"{options.train} + {options.test} digits in {options.data}, "
        f"{time.perf_counter() - start_s:.1f} s"
    )


if __name__ == "__main__":
    main()
