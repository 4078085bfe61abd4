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

import msgspec

from layerscope.show.report.blocks import Block

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
<script type="application/json" id="head">{head}</script>
"""
_BLOCK = '<script type="text/plain" id="block {name}">{data}</script>\n'
_END = "<script>{script}</script>\n</body>\n</html>\n"


def write(title: str, head: Mapping[str, Any], blocks: Iterable[Block], stream: IO[bytes]) -> None:
    """Write the page of these blocks; `head` says what the page needs before it reads any."""
    script, style = SCRIPT.read_text("utf-8"), STYLE.read_text("utf-8")
    policy = content_policy(script, style)
    about = {**head, "blocks": {}}
    packed = []
    for block in blocks:
        about["blocks"][block.name] = block.about
        packed.append(block)
    opening = _HEAD.format(
        policy=escape(policy), title=escape(title), style=style, head=as_data(about)
    )
    stream.write(opening.encode("utf-8"))
    for block in packed:
        data = base64.b64encode(block.packed).decode("ascii")
        stream.write(_BLOCK.format(name=escape(block.name), data=data).encode("utf-8"))
    stream.write(_END.format(script=script).encode("utf-8"))


def content_policy(script: str, style: str) -> str:
    """What the page may do: run this script and this style, and nothing else."""
    return (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def as_data(value: Any) -> str:
    """JSON that no HTML parser takes for anything else: it has no `<`."""
    return msgspec.json.encode(value).decode("utf-8").replace("<", "\\u003c")
