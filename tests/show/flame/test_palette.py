"""The colours: text can be read on them, and layers are told apart by people who see no red or no
green.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from layerscope.analyse.stacks.frames import LAYERS
from layerscope.show.flame.palette import DARK, LIGHT, Theme, css

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
# What is seen of linear RGB (Machado, Oliveira, Fernandes 2009, severity 1.0).
SEEN = {
    "all colours": np.eye(3),
    "no red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                        [-0.003882, -0.048116, 1.051998]]),
    "no green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                          [-0.011820, 0.042940, 0.968881]]),
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    bright, dark = sorted(
        (float(XYZ[1] @ linear(one)), float(XYZ[1] @ linear(other))), reverse=True
    )
    return (bright + 0.05) / (dark + 0.05)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    x, y, z = (XYZ @ np.clip(seen @ linear(colour), 0, 1)) / (XYZ @ np.ones(3))
    fx, fy, fz = (
        v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z)
    )
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def test_contrast_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21, abs=0.01)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert lab("#ffffff", SEEN["no red"])[0] == pytest.approx(100, abs=0.1)


@THEMES
def test_text_can_be_read(theme: Theme) -> None:
    low = {name: contrast(fill, theme.on_frames) for name, fill in theme.fills().items()}
    assert {name: value for name, value in low.items() if value < 4.5} == {}
    assert min(contrast(theme.page, theme.text), contrast(theme.page, theme.faint)) >= 4.5


@THEMES
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_layers_are_told_apart(theme: Theme, seen: np.ndarray) -> None:
    near = {
        (one, other): float(
            np.linalg.norm(lab(theme.layers[one], seen) - lab(theme.layers[other], seen))
        )
        for one, other in combinations(theme.layers, 2)
    }
    assert {pair: round(value, 1) for pair, value in near.items() if value < 10} == {}


@THEMES
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_grown_and_shrunk_are_told_apart(theme: Theme, seen: np.ndarray) -> None:
    for red, blue in zip(theme.grew, theme.shrank, strict=True):
        assert np.linalg.norm(lab(red, seen) - lab(blue, seen)) > 10


def test_every_layer_has_a_colour() -> None:
    assert set(LIGHT.layers) == set(DARK.layers) == set(LAYERS)
    assert all(f".{layer} {{" in css() for layer in LAYERS)
