"""Flame graphs in a browser: what they show, and a user's mouse and keys on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser import chromium
from tests.recordings import MS, Recording

FILES = pytest.mark.parametrize("suffix", [".svg", ".html"])
MAIN = ("python <module> train.py:9", "python main train.py:5")
CONV = (*MAIN, "modules Net", "operators aten::conv2d", "primitives convolution")

SHOWN = """
    const data = JSON.parse(document.querySelector('#flame-data').textContent);
    return [...document.querySelectorAll('#frames rect')].map((rect, i) => {
        const box = rect.getBoundingClientRect();
        rect.dispatchEvent(new MouseEvent('mousemove', {bubbles: true}));
        const label = document.querySelector('#flame-tip b').textContent;
        document.querySelector('#frames').dispatchEvent(new MouseEvent('mouseleave'));
        return {label, total: data.nodes.total[i], x: box.x, y: box.y,
                width: box.width, height: box.height, shown: getComputedStyle(rect).display !== 'none',
                hit: rect.classList.contains('hit'), fill: getComputedStyle(rect).fill};
    });"""
TIP = """
    const tip = document.querySelector('#flame-tip');
    return tip.parentElement.style.display === 'none' ? null : tip.innerText;"""
# The middles of the visible frames.
BOXES = """
    return [...document.querySelectorAll('#frames rect')].filter(
        rect => getComputedStyle(rect).display !== 'none').map(rect => {
            const box = rect.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        });"""
FOUND = "return document.querySelector('.found').textContent"
FOCUSED = "return document.activeElement.getAttribute('aria-label')"
# Texts that lie in no frame.
OUTSIDE = """
    const rects = [...document.querySelectorAll('#frames rect')].map(rect => rect.getBoundingClientRect());
    return [...document.querySelectorAll('#labels text')].filter(text => {
        const box = text.getBoundingClientRect(), middle = (box.top + box.bottom) / 2;
        return !rects.some(rect => rect.left <= box.left && box.right <= rect.right + 1 && rect.top <= middle
                                   && middle <= rect.bottom);
    }).map(text => text.textContent);"""
TEXTS = "return [...document.querySelectorAll('#labels text')].map(text => text.textContent)"


def made() -> Recording:
    """400 ms: 250 in the convolution (50 of them in its reorder), 100 in loading, 50 in a helper
    called `conv_name`.
    """
    recording = Recording()
    for stack, weight in (
        (CONV, 200), ((*CONV, "native reorder libdnnl.so"), 50), ((*MAIN, "python load data.py:3"), 100),
        ((*MAIN, "python conv_name <b>&amp;.py:1"), 50),
    ):  # fmt: skip
        recording.add_sample(recording.add_stack(*stack), weight * MS)
    return recording


def shown(page: chromium.Page) -> dict[str, Any]:
    """The visible frames by label (which are unique here)."""
    return {frame["label"]: frame for frame in page.run(SHOWN) if frame["shown"]}


def said_of_all(page: chromium.Page) -> list[list[str]]:
    """What the tooltips of all frames say, which the mouse goes over one after the other."""
    boxes = page.run(BOXES)
    said = []
    for x, y in boxes:
        page.mouse(x, y)
        said.append(page.run(TIP).splitlines())
    return said


def point(page: chromium.Page, label: str, click: bool = False) -> None:
    frame = shown(page)[label]
    page.mouse(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2, click)


def search(page: chromium.Page, words: str) -> None:
    page.keys("/", *words)
    page.wait(
        f"document.querySelector('#layerscope-flame').dataset.searched === {json.dumps(words)}"
    )
