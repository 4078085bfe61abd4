"""The report as one HTML file that asks the network for nothing.

Its script and style are the built page (web/), its data are blocks in elements that browsers do not
execute. A content security policy allows this script and this style, by their hashes, and nothing
else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import IO, Any

from layerscope.show.report.blocks import Block, as_json
from layerscope.show.screen import printable

_FOLDER = Path(__file__).parent
SCRIPT, STYLE = _FOLDER / "page.js", _FOLDER / "page.css"
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="layerscope">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript>This report needs JavaScript, which is switched off.</noscript></div>
"""
_ABOUT = '<script type="application/json" id="head">{head}</script>\n'
_BLOCK = '<script type="text/plain" id="block {name}">{data}</script>\n'
_END = "<script>{script}</script>\n</body>\n</html>\n"
# Beside its script and its style a page may ask for nothing, or for blocks from its own server.
NOTHING, OWN_SERVER = "'none'", "'self'"


def write(title: str, head: Mapping[str, Any], blocks: Iterable[Block], stream: IO[bytes]) -> None:
    """Write the page of these blocks; `head` says what the page needs before it reads any."""
    about = {**head, "blocks": {}}
    packed = []
    for block in blocks:
        about["blocks"][block.name] = block.about
        packed.append(block)
    opening = _opening(title, NOTHING)
    stream.write(opening.encode("utf-8"))
    stream.write(_ABOUT.format(head=as_data(about)).encode("utf-8"))
    for block in packed:
        data = base64.b64encode(block.packed).decode("ascii")
        stream.write(_BLOCK.format(name=escape(block.name), data=data).encode("utf-8"))
    stream.write(_ending().encode("utf-8"))


def served(title: str) -> bytes:
    """The page without data, which asks its own server for them."""
    return (_opening(title, OWN_SERVER) + _ending()).encode("utf-8")


def _opening(title: str, connects_to: str) -> str:
    policy = escape(content_policy(connects_to))
    style = STYLE.read_text("utf-8")
    return _HEAD.format(policy=policy, title=escape(printable(title)), style=style)


def _ending() -> str:
    return _END.format(script=SCRIPT.read_text("utf-8"))


def content_policy(connects_to: str = NOTHING) -> str:
    """What the page may do: run its script and its style, ask `connects_to`, and nothing else."""
    script, style = (_hash_of(file.read_text("utf-8")) for file in (SCRIPT, STYLE))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src {connects_to}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    written = base64.b64encode(digest).decode("ascii")
    return f"'sha256-{written}'"


def as_data(value: Any) -> str:
    """JSON that no HTML parser takes for anything else: it has no `<`."""
    return as_json(value).decode("utf-8").replace("<", "\\u003c")
