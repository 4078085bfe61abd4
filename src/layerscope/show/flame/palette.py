"""The colours of flame graphs, for light and dark screens, as CSS.

Text stands on them with a contrast of 4.5 or more (WCAG AA), and any two layers differ by 10 or
more (CIE76) for people who see no red or no green too; a test holds them to that. What a frame is
can also be read in its tooltip.
"""

from __future__ import annotations

from msgspec import Struct


class Theme(Struct, frozen=True):
    """Colours of the page, of the text on frames, of the layers, and of what grew and shrank, from
    little to much.
    """

    page: str
    text: str
    faint: str
    line: str
    on_frames: str
    layers: dict[str, str]
    grew: tuple[str, ...]
    shrank: tuple[str, ...]
    same: str

    def fills(self) -> dict[str, str]:
        """Every colour of a frame by the class that has it."""
        fills = dict(self.layers)
        for step, colour in enumerate(self.grew, 1):
            fills[f"grew{step}"] = colour
        for step, colour in enumerate(self.shrank, 1):
            fills[f"shrank{step}"] = colour
        fills["same"] = self.same
        return fills


LIGHT = Theme(
    page="#ffffff",
    text="#1b1b1b",
    faint="#5c6370",
    line="#d0d4da",
    on_frames="#1b1b1b",
    layers={
        "python": "#7bd6ff",
        "modules": "#f5e27a",
        "operators": "#f0a040",
        "api": "#dcf0b4",
        "ranges": "#d0a2d4",
        "primitives": "#52b893",
        "runtime": "#8f66ff",
        "gpu": "#b4e61e",
        "native": "#cbc2c6",
        "kernel": "#dd6b4d",
        "waits": "#9a94e6",
        "other": "#eceef1",
    },
    grew=("#fbdcd3", "#f6b5a3", "#ee8a72", "#e4644a"),
    shrank=("#d8e6f7", "#adcbef", "#7fb0e6", "#569adb"),
    same="#e6e8eb",
)
DARK = Theme(
    page="#16181d",
    text="#e8eaed",
    faint="#a4abb6",
    line="#3a3f48",
    on_frames="#ffffff",
    layers={
        "python": "#2871ae",
        "modules": "#6e5c29",
        "operators": "#b64a10",
        "api": "#141c50",
        "ranges": "#7e4384",
        "primitives": "#0e6b4c",
        "runtime": "#300000",
        "gpu": "#1b47fc",
        "native": "#565d69",
        "kernel": "#922204",
        "waits": "#4a44a6",
        "other": "#33383f",
    },
    grew=("#5b3a34", "#7c3d31", "#9b3e2c", "#b73a22"),
    shrank=("#33435a", "#2f5079", "#2a5c98", "#2367b8"),
    same="#41464e",
)


_ON_FRAMES = ("on_frames",)
_IN_REPORT = ":is(.flame, .flame-key)"
_WRITTEN = "/* Written by report_css() of show/flame/palette.py. */"


def css() -> str:
    """Variables and classes of both themes."""
    names = ("page", "text", "faint", "line", "on_frames")
    rules = [_variables(":root", LIGHT, names), "@media (prefers-color-scheme: dark) {"]
    rules += [_variables(":root", DARK, names), "}"]
    rules += [
        f".{name} {{ fill: var(--{name}); background: var(--{name}); }}" for name in LIGHT.fills()
    ]
    return "\n".join(rules)


def report_css() -> str:
    """The same colours for the page of the report (web/src/flame/palette.css), where they are of
    flame graphs alone and the user may choose light or dark.
    """
    dark = 'data-theme="dark"'
    rules = [
        _variables(_IN_REPORT, LIGHT, _ON_FRAMES),
        "@media (prefers-color-scheme: dark) {",
        _variables(f':root:not([data-theme="light"]) {_IN_REPORT}', DARK, _ON_FRAMES),
        "}",
        _variables(f":root[{dark}] {_IN_REPORT}", DARK, _ON_FRAMES),
        "@media print {",
        _variables(f":root:root {_IN_REPORT}", LIGHT, _ON_FRAMES),
        "}",
    ]
    for name in LIGHT.fills():
        colours = f"fill: var(--{name}); background: var(--{name});"
        rules.append(f"{_IN_REPORT} .{name} {{ {colours} }}")
    return "\n".join([_WRITTEN, *rules, ""])


def _variables(selector: str, theme: Theme, names: tuple[str, ...]) -> str:
    """A rule of CSS that gives the colours of a theme their names."""
    values = {name.replace("_", "-"): getattr(theme, name) for name in names}
    values |= theme.fills()
    lines = [f"--{name}: {value};" for name, value in values.items()]
    body = " ".join(lines)
    return f"{selector} {{ {body} }}"
